/* What runs in a training step, from the events of ops (op_watch.h). */
#include <knet/op_watch.h>
#include <knet/prof_heap.h>
#include <knet/prof_read.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "explain.h"
#include "now.h"

enum { WARM_UP = 2 };

const char *const kn__explain_phase_names[] = {"forward", "backward", "update"};

typedef struct made { /* who wrote a storage; the last entry of a storage counts */
    const kn_storage *storage;
    int event;
} made;

typedef struct recorder {
    kn__explain_run run;
    made *made;
    int n_made, events_cap, inputs_cap, made_cap;
    const kn_tensor *y; /* the last event's result: it has its place by the next event */
    int counted;        /* events before it are inside others */
    bool failed;
} recorder;

static bool grow(void *list, int *cap, int n, size_t size_bytes) {
    void **at = list;
    if (n < *cap) return true;
    int wanted = *cap ? 2 * *cap : 1024;
    void *grown = realloc(*at, (size_t)wanted * size_bytes);
    if (!grown) return false;
    *at = grown;
    *cap = wanted;
    return true;
}

/* --- scopes --- */

static bool is_inner(const char *label, size_t n) {
    static const char *const names[] = {"train", "backward", "sum_outgrads", "gradients"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == n && memcmp(names[i], label, n) == 0) return true;
    for (size_t i = 0; i + 4 < n; i++) /* "conv  d weight": a derivative */
        if (memcmp(label + i, "  d ", 4) == 0) return true;
    return false;
}

/* The model's scopes in the timer's: "train/backward/conv1/conv  d weight/conv_weight" is conv1. */
static void path_set(kn__explain_event *e, const char *scope) {
    size_t at = 0;
    e->phase = KN__EXPLAIN_FORWARD;
    e->path[0] = 0;
    for (const char *label = scope, *slash; (slash = strchr(label, '/')); label = slash + 1) {
        size_t n = (size_t)(slash - label);
        if (n == 8 && memcmp(label, "backward", n) == 0) e->phase = KN__EXPLAIN_BACKWARD;
        if (is_inner(label, n) || at + n + 2 > sizeof e->path) continue;
        if (at) e->path[at++] = '/';
        memcpy(e->path + at, label, n);
        at += n;
        e->path[at] = 0;
    }
    size_t n = strlen(e->name);
    if (n > 5 && strcmp(e->name + n - 5, "_step") == 0) e->phase = KN__EXPLAIN_UPDATE;
}

/* --- events --- */

static void place_set(kn__explain_event *e, const char *file, int line) {
    const char *slash = strrchr(file, '/');
    snprintf(e->where, sizeof e->where, "%s:%d", slash ? slash + 1 : file, line);
}

static void inputs_add(recorder *r, kn__explain_event *e, const kn_op_event *event) {
    e->first_in = r->run.n_inputs;
    for (int i = 0; i < event->n_in; i++) {
        int k = r->n_made - 1;
        while (k >= 0 && r->made[k].storage != event->in[i]) k--;
        if (k < 0) continue; /* a parameter, the batch */
        if (!grow(&r->run.input, &r->inputs_cap, r->run.n_inputs, sizeof *r->run.input)) {
            r->failed = true;
            return;
        }
        r->run.input[r->run.n_inputs++] = r->made[k].event;
        e->n_in++;
    }
}

static void outputs_add(recorder *r, const kn_op_event *event) {
    for (int i = 0; i < event->n_out; i++) {
        if (!grow(&r->made, &r->made_cap, r->n_made, sizeof *r->made)) {
            r->failed = true;
            return;
        }
        r->made[r->n_made++] = (made){event->out[i], r->run.n_events};
    }
}

/* The events inside it, such as a chain that a reduction reads, came just before: their time is not
 * its own, and they are of the same scope of the model. */
static void leave_inner(recorder *r, kn__explain_event *outer) {
    size_t n = strlen(outer->scope);
    for (int i = r->run.n_events - 1; i >= r->counted; i--) {
        kn__explain_event *e = &r->run.event[i];
        if (strncmp(e->scope, outer->scope, n) != 0 || e->scope[n] != '/') break;
        outer->ns -= e->ns < outer->ns ? e->ns : outer->ns;
        memcpy(e->path, outer->path, sizeof e->path);
    }
    r->counted = r->run.n_events;
}

static void watch(void *ctx, const kn_op_event *event) {
    recorder *r = ctx;
    if (r->failed || !grow(&r->run.event, &r->events_cap, r->run.n_events, sizeof *r->run.event)) {
        r->failed = true;
        return;
    }
    if (r->y && r->y->file && r->run.n_events)
        place_set(&r->run.event[r->run.n_events - 1], r->y->file, r->y->line);
    kn__explain_event *e = &r->run.event[r->run.n_events];
    *e = (kn__explain_event){.n_ops = event->n_ops, .flops = event->flops};
    e->moved_bytes = event->moved_bytes;
    snprintf(e->name, sizeof e->name, "%s", event->name);
    if (event->where) snprintf(e->where, sizeof e->where, "%s", event->where);
    r->y = event->where ? NULL : event->y;
    kn_prof_open_path(e->scope, sizeof e->scope, &e->ns);
    path_set(e, e->scope);
    leave_inner(r, e);
    inputs_add(r, e, event);
    outputs_add(r, event);
    r->run.n_events++;
}

/* --- steps --- */

static kn_status step(recorder *r, kn__model_steps *s, bool is_watched) {
    kn_pool *pool = kn_device_pool(kn_frame_device());
    kn_pool_stats stats = {0};
    if (pool) kn_pool_peaks_reset(pool);
    if (is_watched) kn_op_watch(watch, r);
    uint64_t start = kn__now_ns(CLOCK_MONOTONIC);
    kn_status status = kn__model_steps_train(s);
    r->run.step_ns = kn__now_ns(CLOCK_MONOTONIC) - start;
    kn_op_watch(NULL, NULL);
    if (pool) kn_pool_stats_read(&stats, sizeof stats, pool);
    r->run.live_bytes_max = stats.live_bytes_max;
    if (s->capture[KN__STEPS_TRAIN]) {
        kn_capture_stats plan;
        kn_capture_stats_read(&plan, sizeof plan, s->capture[KN__STEPS_TRAIN]);
        r->run.plan_bytes = plan.plan_bytes;
    }
    free(r->made);
    if (status == KN_OK && r->failed)
        status = KN_FAIL(KN_ERR_OOM, "no memory for %d events", r->run.n_events);
    return status;
}

/* Least times, where both steps had the same events. */
static void merge(kn__explain_run *to, const kn__explain_run *run) {
    if (run->step_ns < to->step_ns) to->step_ns = run->step_ns;
    for (int i = 0; to->n_events == run->n_events && i < to->n_events; i++) {
        if (run->event[i].ns < to->event[i].ns) to->event[i].ns = run->event[i].ns;
    }
}

kn_status kn__explain_record(kn__explain_run *out, kn__model_steps *s, int fuse, int n_steps) {
    *out = (kn__explain_run){.step_ns = 0};
    KN_TRY(kn_prof_owners_on());
    KN_FRAME(.fuse = fuse);
    KN_TRY(kn_check());
    for (int i = -WARM_UP; i < n_steps; i++) {
        recorder r = {.failed = false};
        kn_status status = step(&r, s, i >= 0);
        if (status == KN_OK && i == 0) {
            *out = r.run;
            continue;
        }
        if (status == KN_OK && i > 0) merge(out, &r.run);
        kn__explain_run_release(&r.run);
        KN_TRY(status);
    }
    return KN_OK;
}

void kn__explain_run_release(kn__explain_run *run) {
    free(run->event);
    free(run->input);
    run->event = NULL;
    run->input = NULL;
}
