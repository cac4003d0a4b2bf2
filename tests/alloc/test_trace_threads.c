/* The trace of several threads: times, order of events, concurrent ends. */
#include <knet/trace.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "inspect/trace_ring.h"
#include "pool_fixture.h"
#include "trace_file.h"

/* One thread publishes its clock, another reads that value and then its own clock. Without
 * the fence in kn__trace_ticks, two cores give some hundred wrong times here. The reader must not
 * wait for a change: a loop's end is mispredicted, and then the clock is read after it anyway. */
static _Atomic uint64_t published;
static atomic_bool enough;

static void *publish_times(void *ctx) {
    while (!atomic_load_explicit(&enough, memory_order_relaxed)) {
        atomic_store_explicit(&published, kn__trace_ticks(), memory_order_release);
    }
    return ctx;
}

/* The number of times that lie before one that was known. */
static int count_wrong_times(void) {
    enum { CHANGES = 20000, READS = 60000000 }; /* on one core there are few changes */
    pthread_t thread;
    uint64_t before = 0;
    int n_changes = 0, n_wrong = 0;
    enough = false;
    assert_int_equal(pthread_create(&thread, NULL, publish_times, NULL), 0);
    for (int i = 0; i < READS && n_changes < CHANGES; i++) {
        uint64_t known = atomic_load_explicit(&published, memory_order_acquire);
        uint64_t ticks = kn__trace_ticks();
        n_wrong += ticks < known;
        n_changes += known != before;
        before = known;
    }
    enough = true;
    pthread_join(thread, NULL);
    return n_wrong;
}

/* A virtual machine that is stopped for a moment, or moved to other cores, may set a core's clock
 * back, once. A missing fence gives wrong times in every round. */
static void a_time_is_later_than_any_time_known_before(void **state) {
    (void)state;
    enum { ROUNDS = 5 };
    int round = 1;
    while (count_wrong_times() > 0) assert_true(round++ < ROUNDS);
}

static void every_event_of_every_thread_is_recorded_in_order(void **state) {
    (void)state;
    fixture f = fixture_make(GiB, false, NULL);
    pthread_t threads[THREADS];
    trace_begin(NULL);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, churn, &f);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    file got = trace_end();
    assert_int_equal(n_failed, 0);
    assert_int_equal(file_count(&got, KN_TRACE_ALLOC), THREADS * PAIRS);
    assert_int_equal(file_count(&got, KN_TRACE_FREE), THREADS * PAIRS);
    struct {
        uint64_t ticks, live;
        uint32_t thread;
    } of[64] = {{0, 0, 0}};
    for (size_t i = 0; i < got.n; i++) {
        const kn_trace_event *e = &got.events[i].e;
        if (e->kind != KN_TRACE_ALLOC && e->kind != KN_TRACE_FREE) continue;
        size_t t = got.events[i].thread % 64;
        assert_true(of[t].thread == 0 || of[t].thread == got.events[i].thread);
        of[t].thread = got.events[i].thread;
        assert_true(e->time_ticks >= of[t].ticks);
        of[t].ticks = e->time_ticks;
        /* a thread frees the block that it has just allocated */
        assert_int_equal(of[t].live, e->kind == KN_TRACE_ALLOC ? 0 : e->ptr);
        of[t].live = e->kind == KN_TRACE_ALLOC ? e->ptr : 0;
    }
    kn_trace_stats stats = trace_stats();
    assert_int_equal(stats.n_events, got.n);
    assert_int_equal(stats.n_lost, 0);
    file_free(&got);
    fixture_end(&f);
}

/* Each thread exchanges its new block for one of another thread, and frees that. */
enum { EXCHANGERS = 64, PLACES = 48, EXCHANGES = 1500 };

typedef struct table {
    kn_pool *pool;
    kn_stream streams[3];
    _Atomic(void *) places[PLACES];
    atomic_int n_started;
} table;

static void *exchange_blocks(void *ctx) {
    table *t = ctx;
    int number = atomic_fetch_add(&t->n_started, 1);
    for (int i = 0; i < EXCHANGES; i++) {
        void *ptr = NULL;
        kn_stream stream = t->streams[(number + i / 16) % 3];
        if (kn_alloc(&ptr, t->pool, i % 64 ? 512 : 200000, stream) < 0) n_failed++;
        ptr = atomic_exchange(&t->places[(number + i * 7) % PLACES], ptr);
        if (kn_free(t->pool, ptr) < 0) n_failed++;
    }
    return NULL;
}

static void blocks_that_64_threads_pass_on_are_freed_after_their_allocation(void **state) {
    (void)state;
    fixture f = fixture_make(4 * GiB, false, NULL);
    table t = {.pool = f.pool, .streams = {new_stream(&f), new_stream(&f)}};
    pthread_t threads[EXCHANGERS];
    trace_begin(NULL);
    for (int i = 0; i < EXCHANGERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, exchange_blocks, &t), 0);
    }
    for (int i = 0; i < EXCHANGERS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < PLACES; i++) assert_ok(kn_free(f.pool, t.places[i]));
    file got = trace_end();
    assert_int_equal(n_failed, 0);
    assert_int_equal(file_count(&got, KN_TRACE_ALLOC), EXCHANGERS * EXCHANGES);
    assert_int_equal(file_count(&got, KN_TRACE_FREE), EXCHANGERS * EXCHANGES);
    assert_blocks_alternate(&got);
    file_free(&got);
    fixture_end(&f);
}

/* Ends, slow disks, full disks. */

static void *end_trace(void *ctx) {
    if (kn_trace_end() < 0) n_failed++;
    return ctx;
}

static void several_threads_may_end_a_trace(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    for (int round = 0; round < 50; round++) {
        trace_begin(NULL);
        for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, end_trace, NULL);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        file got = file_read();
        assert_int_equal(file_count(&got, KN_TRACE_END), 1);
        file_free(&got);
    }
    assert_int_equal(n_failed, 0);
}

/* Counts its pairs when each is done. */
static atomic_size_t n_pairs;
static atomic_bool flushed_enough;

static void *count_pairs(void *ctx) {
    const fixture *f = ctx;
    while (!flushed_enough) {
        void *ptr = NULL;
        if (kn_alloc(&ptr, f->pool, 512, NULL) < 0 || kn_free(f->pool, ptr) < 0) n_failed++;
        n_pairs++;
    }
    return NULL;
}

static void *flush_often(void *ctx) {
    while (!flushed_enough) {
        if (kn_trace_flush() < 0) n_failed++;
    }
    return ctx;
}

static void a_flush_writes_what_other_threads_have_done_and_loses_nothing(void **state) {
    (void)state;
    enum { FLUSHES = 50, PAIRS_MAX = 200000 };
    fixture f = fixture_make(GiB, false, NULL);
    pthread_t threads[THREADS];
    trace_begin(NULL);
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, i ? count_pairs : flush_often, &f);
    }
    for (int i = 0; i < FLUSHES && n_pairs < PAIRS_MAX; i++) {
        size_t known = n_pairs;
        assert_ok(kn_trace_flush());
        file got = file_read();
        assert_true(file_count(&got, KN_TRACE_FREE) >= known);
        file_free(&got);
    }
    flushed_enough = true;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    file got = trace_end();
    assert_int_equal(n_failed, 0);
    assert_int_equal(file_count(&got, KN_TRACE_ALLOC), n_pairs);
    assert_int_equal(file_count(&got, KN_TRACE_FREE), n_pairs);
    assert_blocks_alternate(&got);
    file_free(&got);
    fixture_end(&f);
}

int main(void) {
    if (!trace_path_make()) return 1;
    int failed = RUN_TESTS(TEST(a_time_is_later_than_any_time_known_before),
                           TEST(every_event_of_every_thread_is_recorded_in_order),
                           TEST(blocks_that_64_threads_pass_on_are_freed_after_their_allocation),
                           TEST(several_threads_may_end_a_trace),
                           TEST(a_flush_writes_what_other_threads_have_done_and_loses_nothing));
    trace_path_remove();
    return failed;
}
