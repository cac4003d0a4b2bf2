#include "counter.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "checked.h"
#include "clock.h"
#include "counters.h"

struct kn_prof_counter {
    pthread_mutex_t lock;
    kn__counter is;   /* protected by the lock, but the name */
    uint64_t last_at; /* ticks of the last sample in a trace; protected by the lock */
    kn__trace_counters traced;
};

_Static_assert((int)KN__TRACE_COUNTERS_MAX >= (int)KN__COUNTERS_MAX, "a trace has each counter");

enum { APART = 8 }; /* ticks between two samples of a counter: more than a nanosecond */

static atomic_bool followed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of those who make counters */
static kn_prof_counter all[KN__COUNTERS_MAX];
static atomic_int n_counters;
static _Atomic(uint64_t) n_refused, n_lost;

static kn_prof_counter *find(const char *name, int n) {
    for (int i = 0; i < n; i++) {
        if (strcmp(all[i].is.name, name) == 0) return &all[i];
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
    memcpy(made->is.name, name, strlen(name) + 1);
    if (options) {
        if (options->unit) kn__counter_text(made->is.unit, sizeof made->is.unit, options->unit);
        made->is.limit_min = options->limit_min;
        made->is.limit_max = options->limit_max;
    }
    kn__trace_counter_init(&made->traced, made->is.name, made->is.unit, (uint32_t)n);
    atomic_store_explicit(&n_counters, n + 1, memory_order_release);
    return made;
}

void kn__counters_follow(bool on) { atomic_store(&followed, on); }

kn_prof_counter *kn_prof_counter_get_on_(const char *name, const kn_prof_counter_options *options) {
    if (!name || !atomic_load(&followed)) return NULL;
    char kept[sizeof all->is.name];
    kn__counter_text(kept, sizeof kept, name);
    pthread_mutex_lock(&lock);
    kn_prof_counter *c = find(kept, atomic_load_explicit(&n_counters, memory_order_relaxed));
    if (!c) c = make(kept, options);
    pthread_mutex_unlock(&lock);
    return c;
}

bool kn__counter_sample(kn__trace_event *event, const kn_prof_sample_ *sample, uint64_t at) {
    kn_prof_counter *c = sample->counter;
    if (!atomic_load_explicit(&followed, memory_order_relaxed)) return false;
    if (!c) {
        atomic_fetch_add_explicit(&n_lost, 1, memory_order_relaxed);
        return false;
    }
    pthread_mutex_lock(&c->lock);
    long double value = sample->is_change ? c->is.last + sample->value : sample->value;
    bool has_value = isfinite((double)value);
    if (has_value) {
        kn__counter_add(&c->is, value);
    } else {
        c->is.n_missed++;
    }
    if (at && at < c->last_at + APART) at = kn__max_u64(kn__clock_now(), c->last_at + APART);
    if (at) c->last_at = at;
    pthread_mutex_unlock(&c->lock);
    if (at && has_value) *event = kn__trace_sample(&c->traced, at, value);
    return at && has_value;
}

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
