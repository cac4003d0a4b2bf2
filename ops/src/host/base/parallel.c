/* Loops over independent pieces of work, on the caller and on helper threads that all callers
 * share.
 *
 * The caller works too, and waits only for helpers that have taken a piece: one that the system
 * hasn't scheduled yet costs nothing, so that a busy machine slows a loop down by its share of the
 * processors and no more. Pieces lie in ranges, one a thread. A thread takes those of its own range
 * in turn, then those left in others: the next loop over the same data then finds in its cache
 * the part it used. So every other loop of a caller runs backward: it begins with the data that
 * the last one touched last.
 *
 * Helpers and callers that run out of work spin for a moment, then sleep. A helper must not be
 * woken on the caller's processor, where it could only take turns with it: some kernels leave it
 * there for milliseconds. Helpers live as long as the process, which is why the library is never
 * unloaded. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "cancel.h"
#include "cores.h"
#include "helper.h"
#include "host/base/chunks.h"
#include "host/base/float_mode.h"
#include "kernel.h"
#include "libgomp.h"
#include "relax.h"

enum {
    HELPERS_MAX = 1023,
    SPINS = 3000, /* about 0.1 ms: longer than from one op to the next in a small model */
    RANGES_MAX = 16,
};

typedef struct range {
    _Alignas(64) _Atomic int64_t n_taken; /* pieces; may pass n */
    int64_t first, n;
} range;

typedef struct loop {
    kn__body_fn body;
    void *ctx;
    kn__float_mode float_mode; /* the caller's: results are the same on any thread */
    int n_ranges;
    bool backward;
    _Atomic bool is_spent; /* every piece is taken */
    _Atomic int n_inside;  /* helpers that run bodies; written under the lock */
    int n_wanted;          /* helpers that may still enter */
    struct loop *previous; /* posted before this one */
    range range[RANGES_MAX];
} loop;

static struct {
    pthread_mutex_t lock; /* protects everything below */
    pthread_cond_t work, left;
    loop *last;
    int n_helpers, n_asleep, n_waiting; /* waiting: callers, for helpers to leave */
    int processor;                      /* of the last caller */
    _Atomic uint32_t n_posted;          /* loops so far */
} team = {.lock = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP,
          .work = PTHREAD_COND_INITIALIZER,
          .left = PTHREAD_COND_INITIALIZER};

static _Thread_local bool inside; /* a loop, as its caller or a helper */
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void run_range(const loop *l, range *r) {
    for (;;) {
        int64_t i = atomic_fetch_add_explicit(&r->n_taken, 1, memory_order_relaxed);
        if (i >= r->n) break;
        l->body(l->ctx, r->first + (l->backward ? r->n - 1 - i : i));
    }
}

/* thread: 0 is a caller, the others are helpers. */
static void run_pieces(loop *l, int thread) {
    int own = thread ? 1 + (thread - 1) % (l->n_ranges - 1) : 0;
    inside = true;
    for (int i = 0; i < l->n_ranges; i++) run_range(l, &l->range[(own + i) % l->n_ranges]);
    atomic_store_explicit(&l->is_spent, true, memory_order_relaxed);
    inside = false;
}

/* --- helpers --- */

static loop *find_locked(void) {
    loop *l = team.last;
    while (l && (l->n_wanted == 0 || atomic_load_explicit(&l->is_spent, memory_order_relaxed)))
        l = l->previous;
    return l;
}

/* True: this thread, which may run on `allowed`, keeps off a processor. */
static bool keep_off(int processor, cpu_set_t *allowed) {
    cpu_set_t others;
    if (sched_getaffinity(0, sizeof *allowed, allowed) < 0) return false;
    others = *allowed;
    CPU_CLR((size_t)processor, &others);
    return CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0;
}

static bool is_posted(uint32_t n_seen) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&team.n_posted, memory_order_relaxed) != n_seen) return true;
        kn__relax();
    }
    return false;
}

static void wait_for_work_locked(uint32_t n_seen) {
    int processor = team.processor;
    cpu_set_t allowed;
    pthread_mutex_unlock(&team.lock);
    bool keeps_off = !is_posted(n_seen) && keep_off(processor, &allowed);
    pthread_mutex_lock(&team.lock);
    if (!find_locked()) { /* nothing was posted by now, counted or not */
        team.n_asleep++;
        pthread_cond_wait(&team.work, &team.lock);
        team.n_asleep--;
    }
    if (!keeps_off) return;
    pthread_mutex_unlock(&team.lock);
    sched_setaffinity(0, sizeof allowed, &allowed);
    pthread_mutex_lock(&team.lock);
}

static void help_locked(loop *l, int thread) {
    l->n_wanted--;
    atomic_fetch_add_explicit(&l->n_inside, 1, memory_order_relaxed);
    pthread_mutex_unlock(&team.lock);
    kn__float_mode_adopt(l->float_mode);
    run_pieces(l, thread);
    pthread_mutex_lock(&team.lock);
    /* Released: the caller reads what the bodies wrote. The loop may be gone after this. */
    int n_inside = atomic_fetch_sub_explicit(&l->n_inside, 1, memory_order_release) - 1;
    if (n_inside == 0 && team.n_waiting > 0) pthread_cond_broadcast(&team.left);
}

static void *helper_run(void *number) {
    int thread = (int)(intptr_t)number;
    cpu_set_t allowed;
    kn__helper_enter();
    if (kn__cores_allowed(&allowed)) sched_setaffinity(0, sizeof allowed, &allowed);
    omp_set_num_threads(1); /* of the libraries that bodies call; each thread has its own setting */
    pthread_mutex_lock(&team.lock);
    for (;;) {
        uint32_t n_seen = atomic_load_explicit(&team.n_posted, memory_order_relaxed);
        loop *l = find_locked();
        if (l) {
            help_locked(l, thread);
        } else {
            wait_for_work_locked(n_seen);
        }
    }
    return NULL;
}

/* A child has the forking thread alone, and another thread may have held the lock. */
static void forget_in_child(void) {
    team.lock = (pthread_mutex_t)PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
    pthread_cond_init(&team.work, NULL);
    pthread_cond_init(&team.left, NULL);
    team.last = NULL;
    team.n_helpers = team.n_asleep = team.n_waiting = 0;
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, forget_in_child); }

/* With all signals blocked: they are the program's own threads' to handle. */
static bool helper_start(int number) {
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&thread, NULL, helper_run, (void *)(intptr_t)number) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started) pthread_detach(thread);
    return started;
}

/* --- callers --- */

static void post(loop *l) {
    pthread_mutex_lock(&team.lock);
    while (team.n_helpers < l->n_wanted && helper_start(team.n_helpers + 1)) team.n_helpers++;
    l->previous = team.last;
    team.last = l;
    team.processor = sched_getcpu();
    int n_wake = team.n_asleep < l->n_wanted ? team.n_asleep : l->n_wanted;
    pthread_mutex_unlock(&team.lock);
    /* Only now: a helper that spins on it wants the lock next. */
    atomic_fetch_add_explicit(&team.n_posted, 1, memory_order_relaxed);
    for (int i = 0; i < n_wake; i++) pthread_cond_signal(&team.work);
}

static void wait_for_helpers(loop *l) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&l->n_inside, memory_order_acquire) == 0) return;
        kn__relax();
    }
    pthread_mutex_lock(&team.lock);
    team.n_waiting++;
    while (atomic_load_explicit(&l->n_inside, memory_order_acquire) > 0)
        pthread_cond_wait(&team.left, &team.lock);
    team.n_waiting--;
    pthread_mutex_unlock(&team.lock);
}

static void take_back(loop *l) {
    loop **at = &team.last;
    pthread_mutex_lock(&team.lock);
    while (*at != l) at = &(*at)->previous;
    *at = l->previous;
    pthread_mutex_unlock(&team.lock);
    wait_for_helpers(l);
}

void kn__parallel_for(int threads, int64_t n, kn__body_fn body, void *ctx) {
    if (threads > HELPERS_MAX + 1) threads = HELPERS_MAX + 1;
    if (threads > n) threads = (int)n;
    if (threads <= 1 || inside || omp_in_parallel()) {
        for (int64_t i = 0; i < n; i++) body(ctx, i);
        return;
    }
    KN__CANCEL_LATER(); /* helpers have the loop until it ends */
    pthread_once(&fork_once, watch_forks);
    static _Thread_local bool backward;
    loop l = {.body = body, .ctx = ctx, .n_wanted = threads - 1, .backward = backward = !backward};
    l.float_mode = kn__float_mode_get();
    l.n_ranges = threads < RANGES_MAX ? threads : RANGES_MAX;
    for (int i = 0; i < l.n_ranges; i++) {
        l.range[i].first = kn__part(n, l.n_ranges, i);
        l.range[i].n = kn__part(n, l.n_ranges, i + 1) - l.range[i].first;
    }
    post(&l);
    run_pieces(&l, 0);
    take_back(&l);
}
