#include "trace_format.h"

#include <stdio.h>
#include <string.h>

const kn__trace_name kn__trace_launched;
const char kn__trace_whole[] = "whole", kn__trace_real[] = "real";

void kn__trace_counter_init(kn__trace_counters *out, const char *name, const char *unit,
                            uint32_t number) {
    out->whole = (kn__trace_counter){{name, kn__trace_whole}, unit, number};
    out->real = (kn__trace_counter){{name, kn__trace_real}, unit, number};
}

kn__trace_event kn__trace_sample(const kn__trace_counters *counter, uint64_t at,
                                 long double value) {
    bool has_room = value >= -0x1p63L && value < 0x1p63L;
    int64_t whole = has_room ? (int64_t)value : 0;
    bool is_whole = has_room && (long double)whole == value;
    kn__trace_event e = {is_whole ? &counter->whole.name : &counter->real.name, at, 0};
    double real = (double)value;
    if (is_whole) {
        e.end = (uint64_t)whole;
    } else {
        memcpy(&e.end, &real, sizeof e.end);
    }
    return e;
}

long double kn__trace_value(const kn__trace_event *e) {
    if (e->name->where == kn__trace_whole) return (long double)(int64_t)e->end;
    double real;
    memcpy(&real, &e->end, sizeof real);
    return real;
}

void kn__trace_put_thread(kn__trace_writer *w, kn__trace_thread *thread, long tid,
                          const char *name) {
    *thread = (kn__trace_thread){.tid = tid, .number = ++w->n_threads};
    snprintf(thread->name, sizeof thread->name, "%s", name);
    w->format->thread(w, thread);
}

/* *is_new: it was not seen before. */
static kn__trace_stream *find_stream(kn__trace_writer *w, uint32_t device, uint32_t stream,
                                     bool *is_new) {
    kn__hash *all = &w->streams;
    if (kn__hash_is_full(all) && !kn__hash_grow(all, sizeof(kn__trace_stream), 16)) return NULL;
    uint64_t key = ((uint64_t)device << 32 | stream) + 1; /* UINT32_MAX is no device */
    kn__trace_stream *s = kn__hash_find(all, sizeof *s, key);
    *is_new = !s->key;
    if (s->key) return s;
    kn__hash_use(all, s, key);
    *s = (kn__trace_stream){key, device, stream, (uint32_t)all->n_used, {0}};
    return s;
}

static kn__trace_stream *see_stream(kn__trace_writer *w, uint32_t device, uint32_t stream) {
    bool new_device, new_stream;
    if (!find_stream(w, device, UINT32_MAX, &new_device)) return NULL;
    if (new_device) w->format->device(w, device);
    kn__trace_stream *s = find_stream(w, device, stream, &new_stream);
    if (s && new_stream) w->format->stream(w, s);
    return s;
}

void kn__trace_put_record(kn__trace_writer *w, const kn__record *record, uint32_t launch) {
    kn__trace_stream *s = see_stream(w, record->device, record->stream);
    if (s) w->format->record(w, s, record, launch);
}

void kn__trace_end(kn__trace_writer *w, uint64_t n_skipped) {
    w->format->finish(w, n_skipped);
    kn__hash_release(&w->streams);
    w->n_threads = 0;
}

/* --- no file --- */

static void no_thread(kn__trace_writer *w, kn__trace_thread *thread) { (void)w, (void)thread; }
static void no_start(kn__trace_writer *w) { (void)w; }
static void no_device(kn__trace_writer *w, uint32_t device) { (void)w, (void)device; }
static void no_stream(kn__trace_writer *w, const kn__trace_stream *stream) {
    (void)w, (void)stream;
}
static void no_events(kn__trace_writer *w, kn__trace_thread *thread, const kn__trace_event *events,
                      size_t n) {
    (void)w, (void)thread, (void)events, (void)n;
}
static void no_record(kn__trace_writer *w, kn__trace_stream *stream, const kn__record *record,
                      uint32_t launch) {
    (void)w, (void)stream, (void)record, (void)launch;
}
static void no_finish(kn__trace_writer *w, uint64_t n_skipped) { (void)w, (void)n_skipped; }

const kn__trace_format kn__trace_none = {no_start,  no_thread, no_device, no_stream,
                                         no_events, no_record, no_finish};
