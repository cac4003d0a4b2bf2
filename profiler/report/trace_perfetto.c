/* A trace as Perfetto's protobuf (perfetto/trace/trace_packet.proto): some thirty bytes a scope.
 *
 * Each thread is a sequence of packets of its own, and the GPUs are one: in a sequence names are
 * numbers, told once, the track is the thread's, and times are differences to the packet before. A
 * scope that began before the last packet carries its time in full; readers sort packets. */
#include <limits.h>
#include <stdlib.h>

#include "protobuf.h"
#include "trace_format.h"

enum { /* TracePacket */
       PACKET = 1,
       CLOCK_SNAPSHOT = 6,
       TIMESTAMP = 8,
       SEQUENCE = 10,
       TRACK_EVENT = 11,
       INTERNED = 12,
       FLAGS = 13,
       CLOCK_ID = 58,
       DEFAULTS = 59,
       TRACK_DESCRIPTOR = 60
};
enum { /* TrackEvent */
       ARGUMENT = 4,
       TYPE = 9,
       NAME_ID = 10,
       TRACK = 11,
       NAME = 23,
       COUNTER_VALUE = 30,
       SOURCE_ID = 34,
       REAL_VALUE = 44,
       FLOW = 47,
       FLOW_END = 48
};
enum { BEGIN = 1, END = 2, INSTANT = 3, COUNTER = 4 }; /* its types */
enum { UNIT_NS = 1, UNIT_BYTES = 3 };                  /* of counters */
enum { ARGUMENT_NAME = 10, ARGUMENT_NUMBER = 3, ARGUMENT_TEXT = 6 };
enum { CLEARED = 1, NEEDS_STATE = 2 };                 /* flags */
enum { REALTIME = 1, BOOTTIME = 6, INCREMENTAL = 64 }; /* clocks */
enum { PROCESS_TRACK = 1, MEMORY_TRACK = 2, THREAD_TRACKS = 16 };
enum { GPU_SEQUENCE = 1, THREAD_SEQUENCES = 2 };
#define RANGE_TRACKS (UINT64_C(1) << 33)
enum { COUNTER_TRACKS = 1 << 19, STREAM_TRACKS = 1 << 20, DEVICE_TRACKS = 1 << 24 };
/* Before the first event there is room for the snapshots of the sequences: no two have one time. */
enum { LEAD_NS = 1000000 };
enum { PACKET_BYTES = 64 };

/* The number of a label in a sequence. */
typedef struct name_slot {
    uint64_t key;
    const void *text; /* the scope's name, or our copy of the text */
    uint32_t sequence, id;
} name_slot;

/* --- packets --- */

static void put_packet(kn__trace_writer *w) { kn__pb_add_message(&w->out, PACKET, &w->body); }

static void put_track(kn__trace_writer *w, uint32_t sequence) {
    kn__pb_add_number(&w->body, SEQUENCE, sequence);
    kn__pb_add_message(&w->body, TRACK_DESCRIPTOR, &w->part);
    put_packet(w);
}

static void add_clock(kn__trace_writer *w, uint64_t id, uint64_t ns, bool incremental) {
    kn__pb_add_number(&w->inner, 1, id);
    kn__pb_add_number(&w->inner, 2, ns);
    if (incremental) kn__pb_add_number(&w->inner, 3, 1);
    kn__pb_add_message(&w->part, 1, &w->inner);
}

/* Begins a sequence: its clock, and the track of what names none. Returns its time. */
static uint64_t start_sequence(kn__trace_writer *w, uint32_t sequence, uint64_t track) {
    uint64_t now = sequence < LEAD_NS ? sequence : LEAD_NS;
    add_clock(w, BOOTTIME, w->base_ns + now, false);
    add_clock(w, INCREMENTAL, now, true);
    kn__pb_add_number(&w->body, SEQUENCE, sequence);
    kn__pb_add_message(&w->body, CLOCK_SNAPSHOT, &w->part);
    put_packet(w);
    kn__pb_add_number(&w->body, SEQUENCE, sequence);
    kn__pb_add_number(&w->body, FLAGS, CLEARED);
    kn__pb_add_number(&w->part, CLOCK_ID, INCREMENTAL);
    if (track) {
        kn__pb_add_number(&w->inner, TRACK, track);
        kn__pb_add_message(&w->part, TRACK_EVENT, &w->inner);
    }
    kn__pb_add_message(&w->body, DEFAULTS, &w->part);
    put_packet(w);
    return now;
}

static unsigned char *put_time(const kn__trace_writer *w, unsigned char *at, uint64_t *last_ns,
                               uint64_t ns) {
    ns += LEAD_NS;
    if (ns >= *last_ns) {
        at = kn__pb_number(at, TIMESTAMP, ns - *last_ns);
        *last_ns = ns;
        return at;
    }
    at = kn__pb_number(at, TIMESTAMP, w->base_ns + ns);
    return kn__pb_number(at, CLOCK_ID, BOOTTIME);
}

/* An event that has fewer than 128 bytes: its packet's head, then `event`. */
static void put_event(kn__trace_writer *w, uint32_t sequence, uint64_t *last_ns, uint64_t ns,
                      const unsigned char *event, size_t n_bytes) {
    unsigned char bytes[2 * PACKET_BYTES], *at = bytes + 2;
    at = put_time(w, at, last_ns, ns);
    at = kn__pb_number(at, SEQUENCE, sequence);
    at = kn__pb_number(at, FLAGS, NEEDS_STATE);
    at = kn__pb_varint(kn__pb_tag(at, TRACK_EVENT, KN__PB_BYTES), n_bytes);
    memcpy(at, event, n_bytes);
    at += n_bytes;
    bytes[0] = PACKET << 3 | KN__PB_BYTES;
    bytes[1] = (unsigned char)(at - bytes - 2);
    kn__pb_add(&w->out, bytes, at);
}

/* --- names --- */

/* "file.c:12" with the same number. */
static void add_source(kn__trace_writer *w, uint32_t id, const char *where) {
    const char *colon = strrchr(where, ':');
    size_t n = colon ? (size_t)(colon - where) : strlen(where);
    kn__pb_add_number(&w->inner, 1, id);
    kn__pb_add_bytes(&w->inner, 2, where, n);
    if (colon) kn__pb_add_number(&w->inner, 4, strtoul(colon + 1, NULL, 10));
    kn__pb_add_message(&w->part, 4, &w->inner);
}

static void put_new_name(kn__trace_writer *w, uint32_t sequence, uint32_t id, const char *label,
                         const char *where) {
    kn__pb_add_number(&w->inner, 1, id);
    kn__pb_add_text(&w->inner, 2, label);
    kn__pb_add_message(&w->part, 2, &w->inner);
    if (where) add_source(w, id, where);
    kn__pb_add_number(&w->body, SEQUENCE, sequence);
    kn__pb_add_number(&w->body, FLAGS, NEEDS_STATE);
    kn__pb_add_message(&w->body, INTERNED, &w->part);
    put_packet(w);
}

static bool is_same(const name_slot *slot, uint32_t sequence, const kn__trace_name *name,
                    const char *text) {
    if (slot->sequence != sequence) return false;
    return name ? slot->text == name : strcmp(slot->text, text) == 0;
}

/* The number of a scope's name, or of a text; told now if it is new. 0: there is no memory. */
static uint32_t find_name(kn__trace_writer *w, uint32_t sequence, const kn__trace_name *name,
                          const char *text) {
    if (kn__hash_is_full(&w->names) && !kn__hash_grow(&w->names, sizeof(name_slot), 64)) return 0;
    uint64_t key =
        name ? kn__hash_pair(sequence, (uint64_t)(uintptr_t)name) : kn__hash_text(sequence, text);
    name_slot *slot = kn__hash_find(&w->names, sizeof *slot, key);
    while (slot->key && !is_same(slot, sequence, name, text)) {
        slot = kn__hash_after(&w->names, sizeof *slot, slot);
    }
    if (slot->key) return slot->id;
    const void *kept = name ? (const void *)name : strdup(text);
    if (!kept) return 0;
    kn__hash_use(&w->names, slot, key);
    *slot = (name_slot){key, kept, sequence, ++w->last_name};
    put_new_name(w, sequence, w->last_name, text, name ? name->where : NULL);
    return w->last_name;
}

static void forget_names(kn__trace_writer *w) {
    for (size_t i = 0; i < w->names.n_slots; i++) {
        name_slot *slot = kn__hash_at(&w->names, sizeof *slot, i);
        if (slot->key && slot->sequence == GPU_SEQUENCE) free((void *)(uintptr_t)slot->text);
    }
    kn__hash_release(&w->names);
    w->last_name = 0;
}

/* --- tracks --- */

/* Told again with the notes at the end. */
static void put_process(kn__trace_writer *w) {
    kn__pb_add_number(&w->inner, 1, (uint64_t)w->pid);
    kn__pb_add_text(&w->inner, 6, "knet");
    if (w->notes) kn__pb_add_text(&w->inner, 8, w->notes); /* process_labels */
    kn__pb_add_number(&w->part, 1, PROCESS_TRACK);
    kn__pb_add_message(&w->part, 3, &w->inner);
    put_track(w, GPU_SEQUENCE);
}

static void start(kn__trace_writer *w) {
    w->base_ns = w->clock.start_boot_ns - LEAD_NS;
    add_clock(w, BOOTTIME, w->base_ns, false);
    add_clock(w, REALTIME, w->clock.start_realtime_ns - LEAD_NS, false);
    kn__pb_add_number(&w->part, 2, BOOTTIME);
    kn__pb_add_message(&w->body, CLOCK_SNAPSHOT, &w->part);
    put_packet(w);
    w->gpu_last_ns = start_sequence(w, GPU_SEQUENCE, 0);

    put_process(w);
    kn__pb_add_number(&w->inner, 3, 3); /* bytes */
    kn__pb_add_number(&w->part, 1, MEMORY_TRACK);
    kn__pb_add_text(&w->part, 2, "live bytes");
    kn__pb_add_number(&w->part, 5, PROCESS_TRACK);
    kn__pb_add_message(&w->part, 8, &w->inner);
    put_track(w, GPU_SEQUENCE);
}

static uint32_t sequence_of(const kn__trace_thread *t) { return THREAD_SEQUENCES + t->number; }

static void name_thread(kn__trace_writer *w, kn__trace_thread *t) {
    uint64_t track = THREAD_TRACKS + t->number;
    kn__pb_add_number(&w->inner, 1, (uint64_t)w->pid);
    kn__pb_add_number(&w->inner, 2, (uint64_t)t->tid);
    kn__pb_add_text(&w->inner, 5, t->name);
    kn__pb_add_number(&w->part, 1, track);
    kn__pb_add_number(&w->part, 5, PROCESS_TRACK);
    kn__pb_add_message(&w->part, 4, &w->inner);
    put_track(w, sequence_of(t));
    t->last_ns = start_sequence(w, sequence_of(t), track);
}

static void name_device(kn__trace_writer *w, uint32_t device) {
    kn__pb_add_number(&w->part, 1, DEVICE_TRACKS + (uint64_t)device);
    kn__text_printf(&w->inner, "GPU %u", device);
    kn__pb_add_message(&w->part, 2, &w->inner);
    put_track(w, GPU_SEQUENCE);
}

static uint64_t track_of(const kn__trace_stream *s, uint32_t lane) {
    return STREAM_TRACKS + (uint64_t)s->number * KN__TRACE_LANES + lane;
}

static void name_lane(kn__trace_writer *w, const kn__trace_stream *s, uint32_t lane) {
    kn__pb_add_number(&w->part, 1, track_of(s, lane));
    kn__text_printf(&w->inner, "stream %u", s->stream);
    kn__pb_add_message(&w->part, 2, &w->inner);
    kn__pb_add_number(&w->part, 5, DEVICE_TRACKS + (uint64_t)s->device);
    put_track(w, GPU_SEQUENCE);
}

static void name_stream(kn__trace_writer *w, const kn__trace_stream *s) { name_lane(w, s, 0); }

/* --- events of threads --- */

static void put_begin(kn__trace_writer *w, kn__trace_thread *t, const kn__trace_name *name,
                      uint64_t ns) {
    unsigned char event[PACKET_BYTES], *at = kn__pb_number(event, TYPE, BEGIN);
    uint32_t id = find_name(w, sequence_of(t), name, name->label);
    at = kn__pb_number(at, NAME_ID, id);
    if (name->where) at = kn__pb_number(at, SOURCE_ID, id);
    put_event(w, sequence_of(t), &t->last_ns, ns, event, (size_t)(at - event));
}

static void put_end(kn__trace_writer *w, kn__trace_thread *t, uint64_t ns) {
    unsigned char event[PACKET_BYTES], *at = kn__pb_number(event, TYPE, END);
    put_event(w, sequence_of(t), &t->last_ns, ns, event, (size_t)(at - event));
}

/* Each has a track of its own; viewers join those of one name. */
static void put_range(kn__trace_writer *w, kn__trace_thread *t, const kn__trace_event *e) {
    uint64_t track = RANGE_TRACKS + w->n_ranges++;
    kn__pb_add_number(&w->part, 1, track);
    kn__pb_add_text(&w->part, 2, e->name->label);
    kn__pb_add_number(&w->part, 5, PROCESS_TRACK);
    put_track(w, GPU_SEQUENCE);
    uint32_t id = find_name(w, sequence_of(t), e->name, e->name->label);
    unsigned char event[PACKET_BYTES], *at = kn__pb_number(event, TYPE, BEGIN);
    at = kn__pb_number(kn__pb_number(at, TRACK, track), NAME_ID, id);
    put_event(w, sequence_of(t), &t->last_ns, kn__trace_since(&w->clock, e->start), event,
              (size_t)(at - event));
    at = kn__pb_number(kn__pb_number(event, TYPE, END), TRACK, track);
    put_event(w, sequence_of(t), &t->last_ns, kn__trace_since(&w->clock, e->end & ~KN__TRACE_RANGE),
              event, (size_t)(at - event));
}

static void put_bytes(kn__trace_writer *w, kn__trace_thread *t, uint64_t bytes, uint64_t ns) {
    unsigned char event[PACKET_BYTES], *at = kn__pb_number(event, TYPE, COUNTER);
    at = kn__pb_number(kn__pb_number(at, TRACK, MEMORY_TRACK), COUNTER_VALUE, bytes);
    put_event(w, sequence_of(t), &t->last_ns, ns, event, (size_t)(at - event));
}

static uint64_t unit_of(const char *name) {
    bool is_bytes = strcmp(name, "B") == 0 || strcmp(name, "bytes") == 0;
    return is_bytes ? UNIT_BYTES : strcmp(name, "ns") == 0 ? UNIT_NS : 0;
}

static uint64_t counter_track(kn__trace_writer *w, const kn__trace_counter *c) {
    uint64_t track = COUNTER_TRACKS + c->number;
    if (w->counters_seen[c->number]) return track;
    w->counters_seen[c->number] = true;
    uint64_t unit = unit_of(c->unit);
    if (unit) kn__pb_add_number(&w->inner, 3, unit);
    if (!unit && *c->unit) kn__pb_add_text(&w->inner, 6, c->unit);
    kn__pb_add_number(&w->part, 1, track);
    kn__pb_add_text(&w->part, 2, c->name.label);
    kn__pb_add_number(&w->part, 5, PROCESS_TRACK);
    kn__pb_add_message(&w->part, 8, &w->inner);
    put_track(w, GPU_SEQUENCE);
    return track;
}

static void put_sample(kn__trace_writer *w, kn__trace_thread *t, const kn__trace_event *e,
                       uint64_t ns) {
    const kn__trace_counter *c = kn__trace_counter_of(e);
    unsigned char event[PACKET_BYTES], *at = kn__pb_number(event, TYPE, COUNTER);
    at = kn__pb_number(at, TRACK, counter_track(w, c));
    bool is_real = c->name.where == kn__trace_real;
    at =
        is_real ? kn__pb_fixed64(at, REAL_VALUE, e->end) : kn__pb_number(at, COUNTER_VALUE, e->end);
    put_event(w, sequence_of(t), &t->last_ns, ns, event, (size_t)(at - event));
}

/* The start of an arrow to a kernel. */
static void put_launch(kn__trace_writer *w, kn__trace_thread *t, uint64_t id, uint64_t ns) {
    static const char name[] = "launch";
    unsigned char event[PACKET_BYTES], *at = kn__pb_number(event, TYPE, INSTANT);
    at = kn__pb_varint(kn__pb_tag(at, NAME, KN__PB_BYTES), sizeof name - 1);
    memcpy(at, name, sizeof name - 1);
    at = kn__pb_fixed64(at + sizeof name - 1, FLOW, id);
    put_event(w, sequence_of(t), &t->last_ns, ns, event, (size_t)(at - event));
}

/* Scopes come when they end, an outer one after those in it. Which of them begin right before event
 * i: heads[i] is the outermost, and next[] the one inside it; -1: no more. */
static void find_begins(kn__trace_writer *w, const kn__trace_event *events, size_t n) {
    int *heads = w->heads, *next = w->next, *roots = w->roots, *firsts = w->firsts;
    size_t n_roots = 0;
    for (size_t i = 0; i < n; i++) {
        int first = (int)i;
        heads[i] = next[i] = -1;
        if (kn__trace_is_range(&events[i])) continue;
        while (n_roots && events[roots[n_roots - 1]].start >= events[i].start) {
            if (!kn__trace_is_scope(&events[i])) break;
            first = firsts[--n_roots];
        }
        roots[n_roots] = (int)i;
        firsts[n_roots++] = first;
        if (!kn__trace_is_scope(&events[i])) continue;
        next[i] = heads[first];
        heads[first] = (int)i;
    }
}

/* One allocation for the four lists; false: there is no memory. */
static bool make_room(kn__trace_writer *w, size_t n) {
    if (n <= w->n_begins) return true;
    int *all = malloc(4 * n * sizeof *all);
    if (!all) return false;
    free(w->heads);
    w->heads = all;
    w->next = all + n;
    w->roots = all + 2 * n;
    w->firsts = all + 3 * n;
    w->n_begins = n;
    return true;
}

static void put_events(kn__trace_writer *w, kn__trace_thread *t, const kn__trace_event *events,
                       size_t n) {
    if (n > INT_MAX || !make_room(w, n)) {
        w->out.failed = true;
        return;
    }
    find_begins(w, events, n);
    for (size_t i = 0; i < n; i++) {
        const kn__trace_event *e = &events[i];
        for (int j = w->heads[i]; j >= 0; j = w->next[j]) {
            put_begin(w, t, events[j].name, kn__trace_since(&w->clock, events[j].start));
        }
        uint64_t ns = kn__trace_since(&w->clock, kn__trace_is_scope(e) ? e->end : e->start);
        if (kn__trace_is_range(e)) {
            put_range(w, t, e);
        } else if (kn__trace_is_scope(e)) {
            put_end(w, t, ns);
        } else if (kn__trace_counter_of(e)) {
            put_sample(w, t, e, ns);
        } else if (e->name) {
            put_launch(w, t, e->end, ns);
        } else {
            put_bytes(w, t, e->end, ns);
        }
    }
}

/* --- events of GPUs --- */

/* The first lane where nothing runs any more; the last one takes what has none. */
static uint32_t find_lane(kn__trace_writer *w, kn__trace_stream *s, const kn__record *r) {
    uint32_t lane = 0;
    while (lane < KN__TRACE_LANES - 1 && s->ends[lane] > r->start_ns) lane++;
    if (lane && !s->ends[lane]) name_lane(w, s, lane);
    if (r->end_ns > s->ends[lane]) s->ends[lane] = r->end_ns;
    return lane;
}

static void add_number(kn__trace_writer *w, const char *name, uint64_t value) {
    if (!value) return;
    kn__pb_add_text(&w->inner, ARGUMENT_NAME, name);
    kn__pb_add_number(&w->inner, ARGUMENT_NUMBER, value);
    kn__pb_add_message(&w->part, ARGUMENT, &w->inner);
}

static void add_sizes(kn__trace_writer *w, const char *name, const uint32_t sizes[3]) {
    char text[40] = "";
    kn__text sized = kn__text_in(text, sizeof text);
    kn__text_printf(&sized, "%u x %u x %u", sizes[0], sizes[1], sizes[2]);
    kn__pb_add_text(&w->inner, ARGUMENT_NAME, name);
    kn__pb_add_text(&w->inner, ARGUMENT_TEXT, text);
    kn__pb_add_message(&w->part, ARGUMENT, &w->inner);
}

static void add_arguments(kn__trace_writer *w, const kn__record *r) {
    add_number(w, "bytes", r->bytes);
    if (!r->grid[0]) return;
    add_sizes(w, "grid", r->grid);
    add_sizes(w, "block", r->block);
    add_number(w, "registers", r->registers);
    add_number(w, "shared memory", r->shared_bytes);
}

static void put_gpu_event(kn__trace_writer *w, uint64_t ns) {
    unsigned char head[PACKET_BYTES], *at = put_time(w, head, &w->gpu_last_ns, ns);
    at = kn__pb_number(kn__pb_number(at, SEQUENCE, GPU_SEQUENCE), FLAGS, NEEDS_STATE);
    kn__pb_add(&w->body, head, at);
    kn__pb_add_message(&w->body, TRACK_EVENT, &w->part);
    put_packet(w);
}

static void put_record(kn__trace_writer *w, kn__trace_stream *s, const kn__record *r,
                       uint32_t launch) {
    uint64_t start_ns = w->clock.start_realtime_ns;
    uint64_t from = r->start_ns > start_ns ? r->start_ns - start_ns : 0;
    uint64_t to = r->end_ns > start_ns ? r->end_ns - start_ns : 0;
    uint64_t track = track_of(s, find_lane(w, s, r));
    uint32_t name = find_name(w, GPU_SEQUENCE, NULL, r->name ? r->name : "(unnamed)");
    kn__pb_add_number(&w->part, TYPE, BEGIN);
    kn__pb_add_number(&w->part, NAME_ID, name);
    kn__pb_add_number(&w->part, TRACK, track);
    if (launch) kn__pb_add_fixed64(&w->part, FLOW_END, launch);
    add_arguments(w, r);
    put_gpu_event(w, from);
    kn__pb_add_number(&w->part, TYPE, END);
    kn__pb_add_number(&w->part, TRACK, track);
    put_gpu_event(w, to > from ? to : from);
}

/* The number of dropped events is an event of the process, at the start. */
static void finish(kn__trace_writer *w, uint64_t n_skipped) {
    if (n_skipped) {
        kn__pb_add_number(&w->part, TYPE, INSTANT);
        kn__pb_add_number(&w->part, TRACK, PROCESS_TRACK);
        kn__pb_add_text(&w->part, NAME, "the trace is not complete");
        add_number(w, "events skipped", n_skipped);
        put_gpu_event(w, 0);
    }
    if (w->notes) put_process(w);
    forget_names(w);
    memset(w->counters_seen, 0, sizeof w->counters_seen);
    free(w->heads);
    w->heads = NULL;
    w->n_begins = 0;
    kn__text_release(&w->body);
    kn__text_release(&w->part);
    kn__text_release(&w->inner);
}

const kn__trace_format kn__trace_perfetto = {start,      name_thread, name_device, name_stream,
                                             put_events, put_record,  finish};
