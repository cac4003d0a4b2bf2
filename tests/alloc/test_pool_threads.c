/* Threads: own pairs, blocks handed from one to another, pools that outlive threads and threads
 * that outlive pools. Assertions are made on the main thread only. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <knet/observer.h>

#include "pool_fixture.h"

enum { THREADS = 4, ROUNDS = 4000, RING = 64 };

typedef struct worker {
    kn_pool *pool;
    kn_sim *sim;
    kn_stream stream;
    uint64_t seed;
    int n_failed;
    _Atomic(void *) *ring; /* blocks handed over; NULL: an empty place */
    void *left;            /* a block that is still live */
} worker;

static uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void *own_blocks(void *ctx) {
    worker *w = ctx;
    void *live[32] = {NULL};
    for (int i = 0; i < ROUNDS; i++) {
        size_t k = next_random(&w->seed) % 32;
        w->n_failed += kn_free(w->pool, live[k]) != KN_OK;
        live[k] = NULL;
        size_t size = 1 + next_random(&w->seed) % (next_random(&w->seed) % 8 ? 20000 : 300000);
        w->n_failed += kn_alloc(&live[k], w->pool, size, w->stream) != KN_OK;
    }
    for (int k = 0; k < 32; k++) w->n_failed += kn_free(w->pool, live[k]) != KN_OK;
    return NULL;
}

static void *hand_over(void *ctx) {
    worker *w = ctx;
    for (int i = 0; i < ROUNDS; i++) {
        void *mine = NULL;
        size_t size = 1 + next_random(&w->seed) % (next_random(&w->seed) % 8 ? 9000 : 200000);
        w->n_failed += kn_alloc(&mine, w->pool, size, w->stream) != KN_OK;
        void *theirs = atomic_exchange(&w->ring[next_random(&w->seed) % RING], mine);
        w->n_failed += kn_free(w->pool, theirs) != KN_OK;
    }
    return NULL;
}

/* Little memory and work on the device: threads take from each other's streams, and may fail. */
static void *crowded(void *ctx) {
    worker *w = ctx;
    void *live[8] = {NULL};
    for (int i = 0; i < ROUNDS / 4; i++) {
        size_t k = next_random(&w->seed) % 8, size = 1 + next_random(&w->seed) % (2 * MiB);
        w->n_failed += kn_free(w->pool, live[k]) != KN_OK;
        live[k] = NULL;
        if (kn_alloc(&live[k], w->pool, size, w->stream) == KN_OK) {
            kn_sim_work(w->sim, w->stream, live[k], size, w->seed);
        }
        while (next_random(&w->seed) % 4) (void)kn_sim_step(w->sim, w->stream);
    }
    for (int k = 0; k < 8; k++) w->n_failed += kn_free(w->pool, live[k]) != KN_OK;
    return NULL;
}

/* Every byte that is handed out is marked, in grains of what slots are multiples of. Blocks pass
 * from thread to thread and from stream to stream; KNET_TEST_OPS sets how many each thread
 * allocates. */
enum { GRAIN = 256, GRAINS = 1 << 23 }; /* a window as large as the pool's addresses */
static _Atomic(uint8_t) *marks;
typedef struct marked {
    size_t size;
    void *ptr;
    kn_stream home;
} marked;

static int mark(const void *ptr, size_t size, uint8_t value) {
    int n_wrong = 0;
    for (size_t at = (uintptr_t)ptr / GRAIN, end = at + (size + GRAIN - 1) / GRAIN; at < end;
         at++) {
        n_wrong +=
            atomic_exchange_explicit(&marks[at % GRAINS], value, memory_order_relaxed) == value;
    }
    return n_wrong;
}

static void drop_marked(worker *w, marked *m) {
    if (!m) return;
    w->n_failed += mark(m->ptr, m->size, 0);
    if (m->home != w->stream) w->n_failed += kn_block_use(w->pool, m->ptr, w->stream) != KN_OK;
    w->n_failed += kn_free(w->pool, m->ptr) != KN_OK;
    free(m);
}

static void *hand_over_marked(void *ctx) {
    worker *w = ctx;
    const char *text = getenv("KNET_TEST_OPS");
    for (size_t n = text ? (size_t)strtoull(text, NULL, 0) : ROUNDS; n > 0; n--) {
        marked *mine = malloc(sizeof *mine);
        size_t size = 1 + next_random(&w->seed) % (next_random(&w->seed) % 8 ? 9000 : 200000);
        *mine = (marked){.size = size, .home = w->stream};
        if (kn_alloc(&mine->ptr, w->pool, size, w->stream) == KN_OK) {
            w->n_failed += mark(mine->ptr, size, 1);
        } else {
            free(mine);
            mine = NULL;
        }
        drop_marked(w, atomic_exchange(&w->ring[next_random(&w->seed) % RING], mine));
        (void)kn_sim_step(w->sim, w->stream);
    }
    for (int i = 0; i < RING; i++) drop_marked(w, atomic_exchange(&w->ring[i], NULL));
    return NULL;
}

/* Blocks go from stream to stream with work on both, which the device watches. What a thread takes
 * over it makes its stream wait for, uses and frees; now and then its stream goes, work pending. */
typedef struct handed {
    void *ptr;
    size_t size;
    uint64_t user;
    kn_stream home;
    kn_event *ready;
} handed;

static int take_over(worker *w, handed *h) {
    int n_failed = 0;
    if (!h) return 0;
    if (h->home != w->stream || next_random(&w->seed) % 2) {
        n_failed += kn_event_wait(h->ready, w->stream) != KN_OK;
        kn_sim_work(w->sim, w->stream, h->ptr, h->size, h->user);
        n_failed += kn_block_use(w->pool, h->ptr, w->stream) != KN_OK;
    }
    kn_event_destroy(h->ready);
    n_failed += kn_free(w->pool, h->ptr) != KN_OK;
    free(h);
    return n_failed;
}

static handed *make_handed(worker *w) {
    static atomic_uint_least64_t n_users;
    size_t size = 1 + next_random(&w->seed) % (next_random(&w->seed) % 4 ? 9000 : 3 * MiB);
    handed h = {.size = size, .user = atomic_fetch_add(&n_users, 1) + 1, .home = w->stream};
    if (kn_alloc(&h.ptr, w->pool, size, w->stream) < 0) return NULL; /* memory is short */
    kn_sim_work(w->sim, w->stream, h.ptr, size, h.user);
    w->n_failed += kn_event_create(&h.ready, kn_pool_device(w->pool)) != KN_OK;
    w->n_failed += kn_event_record(h.ready, w->stream) != KN_OK;
    handed *out = malloc(sizeof *out);
    *out = h;
    return out;
}

static void *hand_over_working(void *ctx) {
    worker *w = ctx;
    kn_device *device = kn_pool_device(w->pool);
    const char *text = getenv("KNET_TEST_OPS");
    size_t n_rounds = text ? (size_t)strtoull(text, NULL, 0) : ROUNDS;
    for (size_t n = n_rounds; n > 0; n--) {
        handed *mine = make_handed(w);
        w->n_failed += take_over(w, atomic_exchange(&w->ring[next_random(&w->seed) % RING], mine));
        while (next_random(&w->seed) % 6) (void)kn_sim_step(w->sim, w->stream);
        if (next_random(&w->seed) % 1000 == 0) kn_sim_drain(w->sim); /* of streams that are gone */
        if (w->stream && n % (n_rounds / 8 + 1) == 0) { /* the device forgets none: not too many */
            kn_stream_destroy(device, w->stream);
            w->n_failed += kn_stream_create(&w->stream, device) != KN_OK;
        }
    }
    for (int i = 0; i < RING; i++) {
        w->n_failed += take_over(w, atomic_exchange(&w->ring[i], NULL));
    }
    return NULL;
}

static void run_workers(fixture *f, void *(*fn)(void *), bool own_streams) {
    static _Atomic(void *) ring[RING];
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        kn_stream stream = own_streams ? new_stream(f) : NULL;
        workers[i] = (worker){f->pool, f->sim, stream, test_random(), 0, ring, NULL};
        assert_int_equal(pthread_create(&threads[i], NULL, fn, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].n_failed, 0);
    }
    for (int i = 0; i < RING; i++) assert_ok(kn_free(f->pool, atomic_exchange(&ring[i], NULL)));
    assert_int_equal(stats_of(f->pool).live_bytes, 0);
    assert_int_equal(stats_of(f->pool).requested_bytes, 0);
    assert_ok(kn_pool_check(f->pool));
}

static void threads_with_their_own_blocks(void **state) {
    (void)state;
    fixture f = fixture_make(4 * GiB, false, NULL);
    run_workers(&f, own_blocks, false);
    run_workers(&f, own_blocks, true);
    fixture_end(&f);
}

static void blocks_are_freed_on_other_threads(void **state) {
    (void)state;
    fixture f = fixture_make(4 * GiB, false, NULL);
    run_workers(&f, hand_over, false);
    run_workers(&f, hand_over, true);
    fixture_end(&f);
}

static void crowded_threads_never_get_memory_in_use(void **state) {
    (void)state;
    fixture f = fixture_make(24 * MiB, false, NULL);
    run_workers(&f, crowded, true);
    fixture_end(&f);
}

static void no_two_threads_hold_the_same_bytes(void **state) {
    (void)state;
    marks = calloc(GRAINS, 1);
    assert_non_null(marks);
    fixture f = fixture_make(128 * MiB, false, NULL);
    run_workers(&f, hand_over_marked, false);
    run_workers(&f, hand_over_marked, true);
    fixture_end(&f);
    free((void *)marks);
}

static void work_on_blocks_that_are_handed_over_is_never_disturbed(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        fixture f = fixture_make(128 * MiB, plain, NULL);
        run_workers(&f, hand_over_working, false);
        run_workers(&f, hand_over_working, true);
        assert_no_violation(f.sim);
        assert_true(stats_of(f.pool).n_events > 0);
        fixture_end(&f);
    }
}

static void host_pool_takes_any_thread(void **state) {
    (void)state;
    fixture f = {.device = kn_device_host()};
    assert_ok(kn_pool_create(&f.pool, f.device, NULL));
    run_workers(&f, own_blocks, false);
    run_workers(&f, hand_over, false);
    kn_pool_destroy(f.pool);
}

/* Everybody reads while others work. */
static atomic_bool stop;
static void *read_stats(void *ctx) {
    worker *w = ctx;
    while (!atomic_load(&stop)) {
        kn_pool_stats stats;
        kn_pool_stats_read(&stats, sizeof stats, w->pool);
        w->n_failed += stats.reserved_bytes > 4 * GiB;
        w->n_failed += kn_pool_trim(w->pool, 64 * MiB) != KN_OK;
    }
    return NULL;
}

static void statistics_and_trim_go_on_meanwhile(void **state) {
    (void)state;
    fixture f = fixture_make(4 * GiB, false, NULL);
    worker reader = {.pool = f.pool};
    pthread_t thread;
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&thread, NULL, read_stats, &reader), 0);
    run_workers(&f, hand_over, false);
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(reader.n_failed, 0);
    fixture_end(&f);
}

/* Pools come and go while a thread keeps its caches of others. */
static void *stay_through(void *ctx) {
    worker *w = ctx;
    while (!atomic_load(&stop)) {
        void *ptr = NULL;
        w->n_failed += kn_alloc(&ptr, w->pool, 4000, NULL) != KN_OK;
        w->n_failed += kn_free(w->pool, ptr) != KN_OK;
    }
    return NULL;
}

static void pools_come_and_go_under_living_threads(void **state) {
    (void)state;
    fixture f = fixture_make(4 * GiB, false, NULL);
    worker w = {.pool = f.pool};
    pthread_t thread;
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&thread, NULL, stay_through, &w), 0);
    for (int i = 0; i < 50; i++) {
        kn_pool *pool = NULL;
        assert_ok(kn_pool_create(&pool, f.device, NULL));
        void *ptr = must_alloc(pool, 4000, NULL);
        assert_ok(kn_free(pool, ptr));
        kn_pool_destroy(pool);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(w.n_failed, 0);
    fixture_end(&f);
}

static void *thread_stream(void *ctx) {
    worker *w = ctx;
    kn_stream again = NULL;
    kn_device *device = kn_pool_device(w->pool);
    w->n_failed += kn_stream_of_thread(&w->stream, device) != KN_OK;
    w->n_failed += kn_stream_of_thread(&again, device) != KN_OK || again != w->stream;
    for (size_t size = 70; size <= 70000; size *= 1000) {
        void *ptr = NULL;
        w->n_failed += kn_alloc(&ptr, w->pool, size, w->stream) != KN_OK;
        if (ptr) kn_sim_work(w->sim, w->stream, ptr, size, w->seed);
        w->n_failed += kn_free(w->pool, ptr) != KN_OK;
    }
    return NULL;
}

/* Tensors that were written on the stream may outlive the thread. */
static void stream_of_a_thread_that_ended_is_the_next_ones(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    uint64_t objects = 0, metadata = 0;
    kn_stream first = NULL;
    kn_event *event = NULL;
    assert_ok(kn_event_create(&event, f.device));
    for (uint64_t i = 0; i < 60; i++) {
        worker w = {.pool = f.pool, .sim = f.sim, .seed = i + 1};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, thread_stream, &w), 0);
        pthread_join(thread, NULL);
        assert_int_equal(w.n_failed, 0);
        assert_non_null(w.stream);
        if (!i) first = w.stream;
        assert_ptr_equal(w.stream, first);
        assert_ok(kn_event_record(event, w.stream));
        kn_sim_drain(f.sim);
        if (i == 4) {
            objects = kn_sim_objects(f.sim);
            metadata = stats_of(f.pool).metadata_bytes;
        }
    }
    assert_true(kn_sim_objects(f.sim) <= objects + 16); /* no stream more; some events may be */
    assert_int_equal(stats_of(f.pool).metadata_bytes, metadata);
    kn_event_destroy(event);
    fixture_end(&f);
}

static void *leave_a_block(void *ctx) {
    worker *w = ctx;
    void *gone = NULL;
    w->n_failed += kn_stream_of_thread(&w->stream, kn_pool_device(w->pool)) != KN_OK;
    w->n_failed += kn_alloc(&w->left, w->pool, 2 * MiB, w->stream) != KN_OK;
    w->n_failed += kn_alloc(&gone, w->pool, 1000, w->stream) != KN_OK;
    w->n_failed += kn_free(w->pool, gone) != KN_OK;
    return NULL;
}

/* The block keeps the pool's record of its stream, which the next thread's blocks use too. */
static void block_that_outlives_its_thread_costs_no_record_of_a_stream(void **state) {
    (void)state;
    enum { N = 60, BLOCKS = 64 * 1024 }; /* records of 60 blocks and more */
    fixture f = fixture_make(1 * GiB, false, NULL);
    void *blocks[N];
    uint64_t metadata = 0, reserved = 0;
    for (int i = 0; i < N; i++) {
        worker w = {.pool = f.pool, .sim = f.sim};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, leave_a_block, &w), 0);
        pthread_join(thread, NULL);
        assert_int_equal(w.n_failed, 0);
        blocks[i] = w.left;
        if (i == 1) metadata = stats_of(f.pool).metadata_bytes;
        if (i == 1) reserved = stats_of(f.pool).reserved_bytes;
    }
    assert_true(stats_of(f.pool).metadata_bytes <= metadata + BLOCKS);
    assert_true(stats_of(f.pool).reserved_bytes <= reserved + (N + 2) * 2 * MiB);
    for (int i = 0; i < N; i++) assert_ok(kn_free(f.pool, blocks[i]));
    fixture_end(&f);
}

static void *work_and_end(void *ctx) {
    worker *w = ctx;
    void *ptr = NULL;
    w->n_failed += kn_stream_of_thread(&w->stream, kn_pool_device(w->pool)) != KN_OK;
    w->n_failed += kn_alloc(&ptr, w->pool, 40 * MiB, w->stream) != KN_OK;
    kn_sim_work(w->sim, w->stream, ptr, 40 * MiB, 1);
    w->n_failed += kn_free(w->pool, ptr) != KN_OK;
    return NULL;
}

static void memory_of_a_thread_that_ended_is_every_streams_once_its_work_is_done(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_stream own = new_stream(&f);
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 1 * MiB, own)));
    worker w = {.pool = f.pool, .sim = f.sim};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, work_and_end, &w), 0);
    pthread_join(thread, NULL);
    assert_int_equal(w.n_failed, 0);
    kn_sim_drain(f.sim);
    uint64_t reserved = stats_of(f.pool).reserved_bytes;
    void *ptr = must_alloc(f.pool, 40 * MiB, own);
    kn_sim_work(f.sim, own, ptr, 40 * MiB, 2);
    assert_int_equal(stats_of(f.pool).reserved_bytes, reserved);
    assert_int_equal(stats_of(f.pool).n_syncs, 0);
    assert_ok(kn_free(f.pool, ptr));
    fixture_end(&f);
}

static atomic_int n_told; /* of the pool "raced" */
static void count_raced(kn_pool *pool) { n_told += strcmp(kn_pool_name(pool), "raced") == 0; }
static pthread_barrier_t together;

static void *make_pool_together(void *out) {
    pthread_barrier_wait(&together);
    kn_status status = kn_pool_create(out, kn_device_host(), &(kn_pool_options){.name = "raced"});
    return (void *)(intptr_t)status;
}

static void observer_attached_meanwhile_hears_of_a_pool_once(void **state) {
    (void)state;
    static const kn_observer observer = {.on_pool_create = count_raced};
    pthread_barrier_init(&together, NULL, 2);
    for (int i = 0; i < 200; i++) {
        pthread_t thread;
        kn_pool *pool = NULL;
        void *status = NULL;
        n_told = 0;
        assert_int_equal(pthread_create(&thread, NULL, make_pool_together, &pool), 0);
        pthread_barrier_wait(&together);
        assert_ok(kn_observer_attach(&observer));
        pthread_join(thread, &status);
        assert_int_equal((intptr_t)status, KN_OK);
        assert_int_equal(n_told, 1);
        assert_ok(kn_observer_attach(NULL));
        kn_pool_destroy(pool);
    }
    pthread_barrier_destroy(&together);
}

/* --- two threads free one block --- */

static _Atomic int n_frees_told;
static _Atomic bool second_is_done;

/* Holds the first thread up inside kn_free until the second one is through. */
static void wait_for_second(kn_pool *pool, void *ptr, size_t size, uint32_t owner) {
    (void)pool, (void)ptr, (void)size, (void)owner;
    if (atomic_fetch_add(&n_frees_told, 1)) return;
    while (!atomic_load(&second_is_done)) sched_yield();
}

static void drop_log(void *ctx, int level, const char *text) { (void)ctx, (void)level, (void)text; }

typedef struct first_free {
    kn_pool *pool;
    void *block;
    kn_status status;
} first_free;

static void *free_first(void *ctx) {
    first_free *first = ctx;
    first->status = kn_free(first->pool, first->block);
    return NULL;
}

static void the_second_of_two_frees_at_the_same_moment_is_an_error(void **state) {
    (void)state;
    static const kn_observer observer = {.on_free = wait_for_second};
    fixture f = fixture_make(1 * GiB, false, NULL);
    first_free first = {.pool = f.pool, .block = must_alloc(f.pool, 1000, NULL)};
    pthread_t thread;
    assert_ok(kn_observer_attach(&observer));
    kn_log_attach(drop_log, NULL);
    assert_int_equal(pthread_create(&thread, NULL, free_first, &first), 0);
    while (!atomic_load(&n_frees_told)) sched_yield();
    kn_status second = kn_free(f.pool, first.block);
    atomic_store(&second_is_done, true);
    pthread_join(thread, NULL);
    kn_log_attach(NULL, NULL);
    assert_ok(kn_observer_attach(NULL));
    assert_int_equal(second, KN_ERR_INVALID);
    assert_ok(first.status);
    assert_int_equal(n_frees_told, 1);
    assert_int_equal(stats_of(f.pool).n_misuses, 1);
    assert_ok(kn_pool_check(f.pool));
    fixture_end(&f);
}

int main(void) {
    return RUN_TESTS(TEST(the_second_of_two_frees_at_the_same_moment_is_an_error),
                     TEST(threads_with_their_own_blocks), TEST(blocks_are_freed_on_other_threads),
                     TEST(crowded_threads_never_get_memory_in_use),
                     TEST(no_two_threads_hold_the_same_bytes),
                     TEST(work_on_blocks_that_are_handed_over_is_never_disturbed),
                     TEST(host_pool_takes_any_thread), TEST(statistics_and_trim_go_on_meanwhile),
                     TEST(pools_come_and_go_under_living_threads),
                     TEST(stream_of_a_thread_that_ended_is_the_next_ones),
                     TEST(block_that_outlives_its_thread_costs_no_record_of_a_stream),
                     TEST(memory_of_a_thread_that_ended_is_every_streams_once_its_work_is_done),
                     TEST(observer_attached_meanwhile_hears_of_a_pool_once));
}
