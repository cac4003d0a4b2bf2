/* Options of the pool for a trace: each option's values are played alone, then the best of them
 * together, then plan mode. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay.h"

/* What counts as a saving: of the peak of live bytes, and of the time in driver calls. */
static const double BYTES_SHARE = 0.005, TIME_SHARE = 0.1;
static const double KIB = 1024.0;

typedef struct knob {
    const char *name; /* in KNET_ALLOC */
    size_t offset;    /* in kn_pool_options: a size_t, or a double */
    bool is_share;
    bool of_peak;     /* the values are multiples of the peak of live bytes */
    double values[8]; /* end with 0 */
} knob;

static const knob knobs[] = {
    {"slab_max",
     offsetof(kn_pool_options, slab_max_bytes),
     false,
     false,
     {128 * KIB, 256 * KIB, 512 * KIB, 1024 * KIB}},
    {"pressure", offsetof(kn_pool_options, pressure), true, false, {0.25, 0.5, 0.75, 1}},
    {"soft_limit",
     offsetof(kn_pool_options, soft_limit_bytes),
     false,
     true,
     {1, 1.005, 1.01, 1.02, 1.05, 1.1}},
};
enum { N_KNOBS = sizeof knobs / sizeof *knobs };

typedef struct tuner {
    const kn__trace *trace;
    kn__play_options how;
    const kn__costs *costs;
    kn__tuned *out;
    kn__played *played;
} tuner;

static void option_set(kn_pool_options *pool, const knob *k, double value, uint64_t peak) {
    void *at = (char *)pool + k->offset;
    if (k->is_share) {
        *(double *)at = value;
        return;
    }
    /* Whole MiB above the peak, so that it can be typed. */
    double bytes = k->of_peak ? value * (double)peak : value;
    const uint64_t step = k->of_peak ? (uint64_t)1 << 20 : 1;
    *(size_t *)at = (size_t)(((uint64_t)bytes + step - 1) / step * step);
}

static void words_add(char *words, size_t room, const kn_pool_options *pool, const knob *k) {
    const void *at = (const char *)pool + k->offset;
    size_t n = strlen(words);
    const char *comma = n ? "," : "";
    if (k->is_share) {
        if (*(const double *)at > 0)
            snprintf(words + n, room - n, "%s%s=%g", comma, k->name, *(const double *)at);
        return;
    }
    size_t bytes = *(const size_t *)at, mib = (size_t)1 << 20;
    bool whole = bytes % mib == 0;
    if (bytes) {
        snprintf(words + n, room - n, "%s%s=%zu%s", comma, k->name, bytes / (whole ? mib : 1024),
                 whole ? "MiB" : "KiB");
    }
}

/* Whether these options were tried before: values round to the same one, or one option alone was
 * better than the defaults. */
static bool is_known(const kn__tuned *out, const kn__try *x) {
    for (int i = 0; i < out->n; i++)
        if (out->tries[i].plan == x->plan && !strcmp(out->tries[i].words, x->words)) return true;
    return false;
}

static kn_status try_options(tuner *t, const kn_pool_options *pool, bool plan) {
    if (t->out->n == KN__TRIES_MAX) return KN_OK;
    kn__try *x = &t->out->tries[t->out->n];
    *x = (kn__try){.pool = *pool, .plan = plan};
    for (int i = 0; i < N_KNOBS; i++) words_add(x->words, sizeof x->words, pool, &knobs[i]);
    if (is_known(t->out, x)) return KN_OK;
    t->how.pool = pool;
    KN_TRY(kn__play(t->played, t->trace, plan ? "plan" : "arena", &t->how));
    x->oom = t->played->oom;
    x->counts = t->played->counts;
    x->driver_us = kn__costs_us(t->costs, &x->counts.calls);
    t->out->n++;
    return KN_OK;
}

/* Whether `a` saves memory beside `b`, or saves time and takes no more memory; and adds no wait. */
static bool is_better(const tuner *t, const kn__try *a, const kn__try *b) {
    const kn__counts *x = &a->counts, *y = &b->counts;
    const kn__try *plain = &t->out->tries[0];
    double less = (double)y->reserved_bytes_max - (double)x->reserved_bytes_max;
    double least = BYTES_SHARE * (double)t->trace->peak_live_bytes;
    if (a->oom) return false;
    if (b->oom) return true;
    if (a->plan && !b->plan) return less >= least; /* its time is that of a later step */
    if (x->syncs > plain->counts.syncs ||
        x->calls.n[KN__CALL_WAIT] > plain->counts.calls.n[KN__CALL_WAIT]) {
        return false;
    }
    return less >= least || (less >= 0 && a->driver_us < (1 - TIME_SHARE) * b->driver_us);
}

/* Plays all values of an option; its best one goes into `best`. */
static kn_status try_knob(tuner *t, const knob *k, kn_pool_options *best, bool *found) {
    int winner = 0;
    for (int i = 0; k->values[i] > 0; i++) {
        kn_pool_options pool = {.name = NULL};
        option_set(&pool, k, k->values[i], t->trace->peak_live_bytes);
        if (k->of_peak && pool.soft_limit_bytes > t->how.device_bytes && t->how.device_bytes) break;
        KN_TRY(try_options(t, &pool, false));
        int last = t->out->n - 1;
        if (is_better(t, &t->out->tries[last], &t->out->tries[winner])) winner = last;
    }
    if (!winner) return KN_OK;
    const char *from = (const char *)&t->out->tries[winner].pool + k->offset;
    memcpy((char *)best + k->offset, from, k->is_share ? sizeof(double) : sizeof(size_t));
    *found = true;
    return KN_OK;
}

/* The best one so far, and those from `first` on. */
static void choose(tuner *t, int first) {
    kn__tuned *out = t->out;
    for (int i = first; i < out->n; i++) {
        if (is_better(t, &out->tries[i], &out->tries[out->best])) out->best = i;
    }
}

kn_status kn__tune(kn__tuned *out, const kn__trace *trace, const kn__play_options *options,
                   const kn__costs *costs) {
    tuner t = {.trace = trace, .costs = costs, .out = out};
    kn_pool_options best = {.name = NULL};
    bool found = false;
    kn_status status;
    if (options) t.how = *options;
    t.how.untimed = true;
    t.how.places = NULL;
    memset(out, 0, sizeof *out);
    t.played = calloc(1, sizeof *t.played);
    if (!t.played) return KN_FAIL(KN_ERR_OOM, "no memory to play the trace");
    KN_TRY_GOTO(status, try_options(&t, &best, false));
    for (int i = 0; i < N_KNOBS; i++) KN_TRY_GOTO(status, try_knob(&t, &knobs[i], &best, &found));
    if (found) KN_TRY_GOTO(status, try_options(&t, &best, false));
    choose(&t, 1);
    int n = out->n;
    best = out->tries[out->best].pool;
    KN_TRY_GOTO(status, try_options(&t, &out->tries[0].pool, true));
    if (out->best) KN_TRY_GOTO(status, try_options(&t, &best, true));
    choose(&t, n);
cleanup:
    free(t.played);
    return status;
}
