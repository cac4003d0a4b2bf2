/* A trace in the JSON that chrome://tracing, Perfetto and PyTorch's tools read (keys as Kineto
 * writes them). By hand, as this is most of the cost of an event. */
#include <string.h>

#include "trace_format.h"

enum { GROUP_MAX = 32, KEY_BYTES = 256 };

static void put_number(kn__text *out, uint64_t value) {
    char digits[20];
    size_t at = sizeof digits;
    do digits[--at] = (char)('0' + value % 10);
    while (value /= 10);
    kn__text_add(out, digits + at, sizeof digits - at);
}

/* Microseconds with three places: as a double they would lose nanoseconds. */
static void put_us(kn__text *out, uint64_t ns) {
    char rest[4] = {'.', (char)('0' + ns / 100 % 10), (char)('0' + ns / 10 % 10),
                    (char)('0' + ns % 10)};
    put_number(out, ns / 1000);
    kn__text_add(out, rest, sizeof rest);
}

#define PUT(literal) kn__text_add(out, literal, sizeof literal - 1)
#define PUT_KEY(key, value)                                                                        \
    do {                                                                                           \
        PUT(",\"" key "\":");                                                                      \
        put_number(out, (uint64_t)(value));                                                        \
    } while (0)

static void put_ts(kn__text *out, uint64_t ns) {
    PUT(",\"ts\":");
    put_us(out, ns);
}

static void put_span(kn__text *out, uint64_t start_ns, uint64_t spent_ns, uint64_t pid,
                     uint64_t tid) {
    PUT_KEY("pid", pid);
    PUT_KEY("tid", tid);
    put_ts(out, start_ns);
    PUT(",\"dur\":");
    put_us(out, spent_ns);
}

/* --- names --- */

static void put_name(kn__text *out, const char *name) {
    PUT(",\"args\":{\"name\":");
    kn__text_json(out, name);
    PUT("}}");
}

static void start(kn__trace_writer *w) {
    kn__text *out = &w->out;
    PUT(KN__TRACE_JSON_HEAD);
    put_number(out, w->clock.start_realtime_ns);
    PUT(",\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"process_name\"");
    PUT_KEY("pid", w->pid);
    put_name(out, "knet");
}

static void name_thread(kn__trace_writer *w, kn__trace_thread *thread) {
    kn__text *out = &w->out;
    PUT(",\n{\"ph\":\"M\",\"name\":\"thread_name\"");
    PUT_KEY("pid", w->pid);
    PUT_KEY("tid", thread->tid);
    put_name(out, thread->name);
}

static void name_device(kn__trace_writer *w, uint32_t device) {
    kn__text *out = &w->out;
    char name[24] = "";
    kn__text text = kn__text_in(name, sizeof name);
    kn__text_printf(&text, "GPU %u", device);
    PUT(",\n{\"ph\":\"M\",\"name\":\"process_name\"");
    PUT_KEY("pid", device);
    put_name(out, name);
}

static void name_stream(kn__trace_writer *w, const kn__trace_stream *stream) {
    kn__text *out = &w->out;
    char name[24] = "";
    kn__text text = kn__text_in(name, sizeof name);
    kn__text_printf(&text, "stream %u", stream->stream);
    PUT(",\n{\"ph\":\"M\",\"name\":\"thread_name\"");
    PUT_KEY("pid", stream->device);
    PUT_KEY("tid", stream->stream);
    put_name(out, name);
}

/* --- events --- */

static void put_scope(kn__trace_writer *w, const kn__trace_event *e, long tid) {
    kn__text *out = &w->out;
    PUT(",\n{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":");
    kn__text_json(out, e->name->label);
    uint64_t from = kn__trace_since(&w->clock, e->start), to = kn__trace_since(&w->clock, e->end);
    put_span(out, from, to > from ? to - from : 0, (uint64_t)w->pid, (uint64_t)tid);
    if (e->name->where) {
        PUT(",\"args\":{\"file\":");
        kn__text_json(out, e->name->where);
        PUT("}");
    }
    PUT("}");
}

static void put_range_event(kn__trace_writer *w, const char *label, uint64_t ns, char phase,
                            long tid) {
    kn__text *out = &w->out;
    PUT(",\n{\"ph\":\"");
    kn__text_add(out, &phase, 1);
    PUT("\",\"cat\":\"range\",\"name\":");
    kn__text_json(out, label);
    PUT_KEY("id", w->n_ranges);
    PUT_KEY("pid", w->pid);
    PUT_KEY("tid", tid);
    put_ts(out, ns);
    PUT("}");
}

/* An asynchronous event. */
static void put_range(kn__trace_writer *w, const kn__trace_event *e, long tid) {
    w->n_ranges++;
    put_range_event(w, e->name->label, kn__trace_since(&w->clock, e->start), 'b', tid);
    uint64_t end = kn__trace_since(&w->clock, e->end & ~KN__TRACE_RANGE);
    put_range_event(w, e->name->label, end, 'e', tid);
}

static void put_memory(kn__trace_writer *w, const kn__trace_event *e) {
    kn__text *out = &w->out;
    PUT(",\n{\"ph\":\"C\",\"name\":\"live bytes\"");
    PUT_KEY("pid", w->pid);
    put_ts(out, kn__trace_since(&w->clock, e->start));
    PUT(",\"args\":{\"bytes\":");
    put_number(out, e->end);
    PUT("}}");
}

/* --- counters --- */

/* Of the name "group/part": the bytes of the group; 0: it has none. */
static size_t group_bytes(const char *name) {
    const char *slash = strrchr(name, '/');
    return slash && slash[1] ? (size_t)(slash - name) : 0;
}

/* How many events are values of one group: sampled together, no counter twice. */
static size_t count_group(const kn__trace_event *e, size_t n) {
    const kn__trace_counter *all[GROUP_MAX] = {kn__trace_counter_of(e)};
    const char *name = all[0]->name.label;
    size_t bytes = group_bytes(name), k = 1;
    for (; bytes && k < n && k < GROUP_MAX; k++) {
        const kn__trace_counter *c = all[k] = kn__trace_counter_of(&e[k]);
        if (!c || e[k].start != e->start || group_bytes(c->name.label) != bytes) break;
        if (memcmp(c->name.label, name, bytes) != 0) break;
        for (size_t i = 0; i < k; i++) {
            if (all[i]->number == c->number) return k;
        }
    }
    return k;
}

static void put_value(kn__text *out, const kn__trace_event *e) {
    uint64_t bits = e->end;
    if (e->name->where == kn__trace_real) {
        kn__text_printf(out, "%.17g", (double)kn__trace_value(e));
    } else if (bits >> 63) {
        PUT("-");
        put_number(out, 0 - bits);
    } else {
        put_number(out, bits);
    }
}

/* "part (unit)" */
static void put_part(kn__text *out, const kn__trace_counter *c, size_t group) {
    char key[KEY_BYTES] = "";
    kn__text text = kn__text_in(key, sizeof key);
    kn__text_puts(&text, c->name.label + group + 1);
    if (*c->unit) kn__text_printf(&text, " (%s)", c->unit);
    kn__text_json(out, key);
}

/* The values of a group are one event. Returns how many events were put. */
static size_t put_samples(kn__trace_writer *w, const kn__trace_event *e, size_t n) {
    kn__text *out = &w->out;
    size_t in_group = count_group(e, n);
    const kn__trace_counter *c = kn__trace_counter_of(e);
    char name[KEY_BYTES] = "";
    kn__text text = kn__text_in(name, sizeof name);
    size_t group = in_group > 1 ? group_bytes(c->name.label) : strlen(c->name.label);
    kn__text_add(&text, c->name.label, group);
    PUT(",\n{\"ph\":\"C\",\"cat\":\"");
    kn__text_puts(out, in_group > 1 ? "counters" : "counter");
    PUT("\",\"name\":");
    kn__text_json(out, name);
    PUT_KEY("pid", w->pid);
    put_ts(out, kn__trace_since(&w->clock, e->start));
    for (size_t i = 0; i < in_group; i++) {
        c = kn__trace_counter_of(&e[i]);
        kn__text_puts(out, i ? "," : ",\"args\":{");
        if (in_group > 1) {
            put_part(out, c, group);
        } else {
            kn__text_json(out, *c->unit ? c->unit : "value");
        }
        PUT(":");
        put_value(out, &e[i]);
    }
    PUT("}}");
    return in_group;
}

/* The start of an arrow, in the scope around it. */
static void put_launch(kn__trace_writer *w, const kn__trace_event *e, long tid) {
    kn__text *out = &w->out;
    PUT(",\n{\"ph\":\"s\",\"cat\":\"ac2g\",\"name\":\"ac2g\"");
    PUT_KEY("id", e->end);
    PUT_KEY("pid", w->pid);
    PUT_KEY("tid", tid);
    put_ts(out, kn__trace_since(&w->clock, e->start));
    PUT("}");
}

static void put_events(kn__trace_writer *w, kn__trace_thread *thread, const kn__trace_event *events,
                       size_t n) {
    for (size_t i = 0, step; i < n; i += step) {
        const kn__trace_event *e = &events[i];
        step = 1;
        if (!e->name) {
            put_memory(w, e);
        } else if (e->name == &kn__trace_launched) {
            put_launch(w, e, thread->tid);
        } else if (kn__trace_counter_of(e)) {
            step = put_samples(w, e, n - i);
        } else if (kn__trace_is_range(e)) {
            put_range(w, e, thread->tid);
        } else {
            put_scope(w, e, thread->tid);
        }
    }
}

static void put_sizes(kn__text *out, const uint32_t sizes[3]) {
    put_number(out, sizes[0]);
    PUT(",");
    put_number(out, sizes[1]);
    PUT(",");
    put_number(out, sizes[2]);
    PUT("]");
}

static void put_args(kn__text *out, const kn__record *r) {
    PUT(",\"args\":{\"correlation\":");
    put_number(out, r->id);
    if (r->bytes) PUT_KEY("bytes", r->bytes);
    if (r->grid[0]) {
        PUT(",\"grid\":[");
        put_sizes(out, r->grid);
        PUT(",\"block\":[");
        put_sizes(out, r->block);
        PUT_KEY("registers per thread", r->registers);
        PUT_KEY("shared memory", r->shared_bytes);
    }
    PUT("}}");
}

static void put_record(kn__trace_writer *w, kn__trace_stream *stream, const kn__record *r,
                       uint32_t launch) {
    kn__text *out = &w->out;
    bool copy = r->name && strncmp(r->name, "[memcpy", 7) == 0;
    bool set = r->name && strncmp(r->name, "[memset", 7) == 0;
    uint64_t from =
        r->start_ns > w->clock.start_realtime_ns ? r->start_ns - w->clock.start_realtime_ns : 0;
    PUT(",\n{\"ph\":\"X\",\"cat\":\"");
    kn__text_puts(out, copy ? "gpu_memcpy" : set ? "gpu_memset" : "kernel");
    PUT("\",\"name\":");
    kn__text_json(out, r->name ? r->name : "(unnamed)");
    uint64_t spent = r->end_ns > r->start_ns ? r->end_ns - r->start_ns : 0;
    put_span(out, from, spent, stream->device, stream->stream);
    put_args(out, r);
    if (!launch) return;
    PUT(",\n{\"ph\":\"f\",\"bp\":\"e\",\"cat\":\"ac2g\",\"name\":\"ac2g\"");
    PUT_KEY("id", launch);
    PUT_KEY("pid", stream->device);
    PUT_KEY("tid", stream->stream);
    put_ts(out, from);
    PUT("}");
}

static void put_notes(kn__trace_writer *w) {
    kn__text *out = &w->out;
    if (!w->notes) return;
    PUT(",\n{\"ph\":\"M\",\"name\":\"process_labels\"");
    PUT_KEY("pid", w->pid);
    PUT(",\"args\":{\"labels\":");
    kn__text_json(out, w->notes);
    PUT("}}");
}

static void finish(kn__trace_writer *w, uint64_t n_skipped) {
    kn__text *out = &w->out;
    put_notes(w);
    PUT(KN__TRACE_JSON_END);
    put_number(out, n_skipped);
    PUT("}\n");
}

const kn__trace_format kn__trace_json = {start,      name_thread, name_device, name_stream,
                                         put_events, put_record,  finish};
