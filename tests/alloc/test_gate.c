/* The gate of a thread's cache in every order of its steps: an owner that works without a lock, a
 * caller-back that holds the pool's lock, and stores of the owner that others see late.
 *
 * The code of gate.h runs as it is; its accesses to memory go through the functions below, each of
 * which lets the others run first. An owner's store waits in a buffer until it is drained, in
 * order, at any later moment: what x86 and ARM do to a store and the loads after it. */
#include <stdbool.h>
#include <stdint.h>

static void gate_store(_Atomic uint32_t *at, uint32_t value);
static uint32_t gate_load(const _Atomic uint32_t *at);
static void gate_add(_Atomic uint32_t *at);
static bool gate_fence(void);

#define KN__GATE_STORE(at, value) gate_store((at), (value))
#define KN__GATE_LOAD(at) gate_load((at))
#define KN__GATE_ADD(at) gate_add((at))
#define KN__GATE_FENCE() gate_fence()

#include "pool/gate.h"

#include <ucontext.h>

#include "test.h"

enum { OWNER, CALLER, DRAIN, ACTORS };
enum { STACK_BYTES = 64 * 1024, BUFFER = 8, DEPTH = 64 };
typedef enum fence_kind { WORKS, FAILS, DOES_NOTHING } fence_kind;

typedef struct late_store {
    _Atomic uint32_t *at;
    uint32_t value;
} late_store;

static struct {
    kn__gate gate;
    _Atomic uint32_t pool_generation;
    uint32_t rack_generation;
    fence_kind fence;
    int n_ops, n_calls; /* of the owner and of the caller-back */

    late_store buffer[BUFFER];
    int n_buffered;
    int running; /* OWNER or CALLER */
    bool done[2], wants_lock[2], locked;
    bool inside, emptying; /* the owner uses its rack; the caller-back empties it */
    bool called_back;      /* since the owner renewed its cache */
    long n_overlaps, n_stale, n_entered, n_emptied;

    ucontext_t scheduler, contexts[2];
    char stacks[2][STACK_BYTES];
} w;

static void others_first(void) {
    int me = w.running;
    swapcontext(&w.contexts[me], &w.scheduler);
}

static void drain_one(void) {
    atomic_store(w.buffer[0].at, w.buffer[0].value);
    for (int i = 1; i < w.n_buffered; i++) w.buffer[i - 1] = w.buffer[i];
    w.n_buffered--;
}

static void drain_all(void) {
    while (w.n_buffered) drain_one();
}

static void gate_store(_Atomic uint32_t *at, uint32_t value) {
    others_first();
    assert_true(w.running == OWNER && w.n_buffered < BUFFER);
    w.buffer[w.n_buffered++] = (late_store){at, value};
}

/* The owner sees its own stores at once. */
static uint32_t gate_load(const _Atomic uint32_t *at) {
    others_first();
    for (int i = w.n_buffered; w.running == OWNER && i-- > 0;) {
        if (w.buffer[i].at == at) return w.buffer[i].value;
    }
    return atomic_load(at);
}

static void gate_add(_Atomic uint32_t *at) {
    others_first();
    atomic_fetch_add(at, 1);
}

static bool gate_fence(void) {
    others_first();
    if (w.fence == WORKS) drain_all();
    return w.fence != FAILS;
}

static void lock(void) {
    w.wants_lock[w.running] = true;
    others_first(); /* comes back when the lock is open */
    w.wants_lock[w.running] = false;
    w.locked = true;
    if (w.running == OWNER) drain_all(); /* its atomic operation is a barrier */
}

/* As kn_alloc and kn_free do it. */
static void owner_op(void) {
    bool stale = w.called_back;
    if (kn__gate_enter(&w.gate, &w.pool_generation, &w.rack_generation)) {
        w.inside = true;
        w.n_entered++;
        w.n_stale += stale; /* called back before the operation began */
        w.n_overlaps += w.emptying;
        others_first();
        w.n_overlaps += w.emptying;
        w.inside = false;
        kn__gate_leave(&w.gate);
        return;
    }
    kn__gate_leave(&w.gate);
    lock();
    w.rack_generation = atomic_load(&w.pool_generation);
    w.called_back = false;
    w.locked = false;
}

static void owner(void) {
    for (int i = 0; i < w.n_ops; i++) owner_op();
    w.done[OWNER] = true;
    others_first();
}

/* As kn__caches_flush does it. */
static void caller_back(void) {
    for (int i = 0; i < w.n_calls; i++) {
        lock();
        bool fenced = kn__gates_call_back(&w.pool_generation);
        w.called_back = fenced;
        if (fenced && kn__gate_is_shut(&w.gate)) {
            w.emptying = true;
            w.n_emptied++;
            w.n_overlaps += w.inside;
            others_first();
            w.n_overlaps += w.inside;
            w.emptying = false;
        }
        w.locked = false;
    }
    w.done[CALLER] = true;
    others_first();
}

/* The explorer: plays all sequences of choices, one after another, by their prefix. */

static bool may_run(int actor) {
    if (actor == DRAIN) return w.n_buffered > 0;
    return !w.done[actor] && !(w.wants_lock[actor] && w.locked);
}

static void begin(int actor, void (*fn)(void)) {
    getcontext(&w.contexts[actor]);
    w.contexts[actor].uc_stack.ss_sp = w.stacks[actor];
    w.contexts[actor].uc_stack.ss_size = STACK_BYTES;
    w.contexts[actor].uc_link = &w.scheduler;
    makecontext(&w.contexts[actor], fn, 0);
}

static void play(int choices[DEPTH], int n_options[DEPTH], int *depth) {
    atomic_store(&w.gate.busy, 0);
    atomic_store(&w.pool_generation, 1);
    w.rack_generation = 1;
    w.n_buffered = 0;
    w.locked = w.inside = w.emptying = w.called_back = false;
    for (int i = 0; i < 2; i++) w.done[i] = w.wants_lock[i] = false;
    begin(OWNER, owner);
    begin(CALLER, caller_back);
    for (int at = 0;; at++) {
        int options[ACTORS], n = 0;
        for (int i = 0; i < ACTORS; i++) {
            if (may_run(i)) options[n++] = i;
        }
        if (!n) break;
        assert_true(at < DEPTH);
        if (at >= *depth) {
            choices[at] = 0;
            *depth = at + 1;
        }
        n_options[at] = n;
        int actor = options[choices[at]];
        if (actor == DRAIN) {
            drain_one();
            continue;
        }
        w.running = actor;
        swapcontext(&w.scheduler, &w.contexts[actor]);
    }
    assert_true(w.done[OWNER] && w.done[CALLER]);
}

static long explore(fence_kind fence, int n_ops, int n_calls) {
    int choices[DEPTH], n_options[DEPTH], depth = 0;
    long n_plays = 0;
    w.fence = fence;
    w.n_ops = n_ops;
    w.n_calls = n_calls;
    w.n_overlaps = w.n_stale = w.n_entered = w.n_emptied = 0;
    do {
        play(choices, n_options, &depth);
        n_plays++;
        while (depth && choices[depth - 1] + 1 == n_options[depth - 1]) depth--;
        if (depth) choices[depth - 1]++;
    } while (depth);
    return n_plays;
}

static void one_thread_at_a_time_holds_the_gate(void **state) {
    (void)state;
    static const int sizes[][2] = {{1, 1}, {2, 1}, {1, 2}};
    for (int i = 0; i < 3; i++) {
        long n_plays = explore(WORKS, sizes[i][0], sizes[i][1]);
        assert_true(n_plays > 100);
        assert_int_equal(w.n_overlaps, 0);
        assert_int_equal(w.n_stale, 0);
        assert_true(w.n_entered > 0 && w.n_emptied > 0);
    }
}

/* Without the barrier the same search finds orders that go wrong: it can see them. */
static void missing_barrier_is_seen(void **state) {
    (void)state;
    explore(DOES_NOTHING, 1, 1);
    assert_true(w.n_overlaps > 0);
}

/* Where the system has no barrier the caller-back keeps out. */
static void barrier_that_fails_leaves_caches_alone(void **state) {
    (void)state;
    explore(FAILS, 2, 1);
    assert_int_equal(w.n_overlaps, 0);
    assert_int_equal(w.n_emptied, 0);
    assert_true(w.n_entered > 0);
}

int main(void) {
    return RUN_TESTS(TEST(one_thread_at_a_time_holds_the_gate), TEST(missing_barrier_is_seen),
                     TEST(barrier_that_fails_leaves_caches_alone));
}
