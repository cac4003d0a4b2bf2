#include "counter.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct kn_prof_counter {
    pthread_mutex_t lock;
    kn__counter is; /* protected by the lock, but the name */
};

static atomic_bool followed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of those who make counters */
static kn_prof_counter all[KN__COUNTERS_MAX];
static atomic_int n_counters;
static _Atomic(uint64_t) n_refused, n_lost;

static kn_prof_counter *find(const char *name, int n) {
    for (int i = 0; i < n; i++) {
        if (strncmp(all[i].is.name, name, sizeof all[i].is.name - 1) == 0) return &all[i];
    }
    return NULL;
}

static kn_prof_counter *make(const char *name, const kn_prof_counter_options *options) {
    int n = atomic_load_explicit(&n_counters, memory_order_relaxed);
    if (n == KN__COUNTERS_MAX) {
        atomic_fetch_add(&n_refused, 1);
        return NULL;
    }
    kn_prof_counter *made = &all[n];
    pthread_mutex_init(&made->lock, NULL);
    snprintf(made->is.name, sizeof made->is.name, "%s", name);
    if (options) {
        snprintf(made->is.unit, sizeof made->is.unit, "%s", options->unit ? options->unit : "");
        made->is.limit_min = options->limit_min;
        made->is.limit_max = options->limit_max;
    }
    atomic_store_explicit(&n_counters, n + 1, memory_order_release);
    return made;
}

void kn__counters_follow(bool on) { atomic_store(&followed, on); }

kn_prof_counter *kn_prof_counter_get_on_(const char *name, const kn_prof_counter_options *options) {
    if (!name || !atomic_load(&followed)) return NULL;
    pthread_mutex_lock(&lock);
    kn_prof_counter *c = find(name, atomic_load_explicit(&n_counters, memory_order_relaxed));
    if (!c) c = make(name, options);
    pthread_mutex_unlock(&lock);
    return c;
}

/* The mean moves with each value: a sum could overflow. */
static void add_value(kn__counter *c, double value) {
    if (!c->n) c->first = c->min = c->max = value;
    c->n++;
    c->last = value;
    c->min = fmin(c->min, value);
    c->max = fmax(c->max, value);
    c->mean += value / (double)c->n - c->mean / (double)c->n;
    bool has_limits = c->limit_min != 0 || c->limit_max != 0;
    c->n_beyond += has_limits && (value < c->limit_min || value > c->limit_max);
}

static void take_sample(kn_prof_counter *c, double value, bool is_change) {
    if (!atomic_load_explicit(&followed, memory_order_relaxed)) return;
    if (!c) {
        atomic_fetch_add_explicit(&n_lost, 1, memory_order_relaxed);
        return;
    }
    pthread_mutex_lock(&c->lock);
    if (is_change) value += c->is.last;
    if (isfinite(value)) {
        add_value(&c->is, value);
    } else {
        c->is.n_missed++;
    }
    pthread_mutex_unlock(&c->lock);
}

void kn_prof_counter_sample(kn_prof_counter *counter, double value) {
    take_sample(counter, value, false);
}

void kn_prof_counter_add(kn_prof_counter *counter, double by) { take_sample(counter, by, true); }

void kn_prof_counter_miss(kn_prof_counter *counter) { take_sample(counter, NAN, false); }

bool kn__counters_exist(void) { return atomic_load(&n_counters) || atomic_load(&n_lost); }

kn_status kn__counters_take(kn__report *out) {
    kn__counters *to = &out->counters;
    int n = atomic_load_explicit(&n_counters, memory_order_acquire);
    to->n_refused = atomic_load(&n_refused);
    to->n_lost = atomic_load(&n_lost);
    if (!n) return KN_OK;
    to->all = kn__report_bytes(out, (size_t)n * sizeof *to->all);
    if (!to->all) return KN_FAIL(KN_ERR_OOM, "no memory for the timer's report");
    for (int i = 0; i < n; i++) {
        pthread_mutex_lock(&all[i].lock);
        to->all[to->n++] = all[i].is;
        pthread_mutex_unlock(&all[i].lock);
    }
    return KN_OK;
}
