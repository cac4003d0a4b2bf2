#include "steps.h"

#include <pthread.h>

#include "cancel.h"
#include "checked.h"
#include "left.h"
#include "scope.h"
#include "trace.h"

static pthread_mutex_t lock = KN__LEFT_MUTEX; /* protects all below */
static kn__step_plan plan = {.first = 1};
static void (*measure_fn)(bool on);
static void (*report_fn)(void);
static kn__steps steps = {.min_ns = UINT64_MAX};
static uint64_t n_seen, last_step_ns;

void kn__steps_start(const kn__step_plan *wanted, void (*measure)(bool on), void (*report)(void)) {
    pthread_mutex_lock(&lock);
    plan = *wanted;
    measure_fn = measure;
    report_fn = report;
    pthread_mutex_unlock(&lock);
}

void kn__steps_read(kn__steps *out) {
    bool locked = kn__left_lock(&lock);
    *out = steps;
    if (locked) pthread_mutex_unlock(&lock);
    if (!out->n_timed) out->min_ns = 0;
}

uint64_t kn__steps_seen(void) {
    bool locked = kn__left_lock(&lock);
    uint64_t n = n_seen;
    if (locked) pthread_mutex_unlock(&lock);
    return n;
}

void kn__steps_leave(void) { (void)kn__left_mine(&lock); }

static bool is_measured(uint64_t step) {
    return step >= plan.first && (!plan.last || step <= plan.last);
}

/* The time from the step before: when the first step of a program began is not known. */
static void count(uint64_t now) {
    steps.n++;
    if (n_seen == 1) return;
    KN_ASSERT(now >= last_step_ns);
    uint64_t spent = now - last_step_ns;
    steps.n_timed++;
    steps.sum_ns += spent;
    steps.squares_ns2 += (double)spent * (double)spent;
    if (spent < steps.min_ns) steps.min_ns = spent;
    if (spent > steps.max_ns) steps.max_ns = spent;
}

/* True: a report is due. The trace has the end of a step before measuring may end. */
static bool count_step(uint64_t now) {
    n_seen++;
    bool was = is_measured(n_seen), will = is_measured(n_seen + 1);
    if (was) {
        count(now);
        kn__trace_step(n_seen > 1 ? now - last_step_ns : 0);
    }
    last_step_ns = now;
    if (was != will && measure_fn) measure_fn(will);
    return plan.every && n_seen % plan.every == 0 && report_fn;
}

void kn_step(void) {
    if (!__atomic_load_n(&kn_prof_on_, __ATOMIC_RELAXED)) return;
    KN__CANCEL_LATER();
    if (!kn__left_lock(&lock)) return;
    bool due = count_step(kn__clock_monotonic_ns()); /* under the lock: steps come in order */
    pthread_mutex_unlock(&lock);
    if (due) report_fn();
}
