/* Threads' caches: memory in them is never out of reach, whatever the thread does. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#include "pool_fixture.h"

/* A thread that fills its caches, then blocks. */
typedef struct hoarder {
    fixture *f;
    const kn_stream *streams; /* NULL: one of its own */
    int n_streams, n_failed;
    pthread_barrier_t *together;
} hoarder;

static void fill_cache(hoarder *h, kn_stream stream) {
    void *slots[512];
    int n = 0;
    for (size_t size = 8 * KiB; size <= 64 * KiB; size += 8 * KiB) {
        for (size_t i = 0; i < 256 * KiB / size; i++, n++) {
            h->n_failed += kn_alloc(&slots[n], h->f->pool, size, stream) != KN_OK;
        }
    }
    while (n-- > 0) h->n_failed += kn_free(h->f->pool, slots[n]) != KN_OK;
}

static void *hoard(void *ctx) {
    hoarder *h = ctx;
    kn_stream own = NULL;
    if (!h->streams) h->n_failed += kn_stream_of_thread(&own, h->f->device) != KN_OK;
    for (int i = 0; i < h->n_streams; i++) fill_cache(h, h->streams ? h->streams[i] : own);
    pthread_barrier_wait(h->together);
    pthread_barrier_wait(h->together); /* blocked meanwhile */
    return NULL;
}

enum { HOARDERS_MAX = 32 };
typedef struct crowd {
    pthread_barrier_t together;
    int n;
    hoarder hoarders[HOARDERS_MAX];
    pthread_t threads[HOARDERS_MAX];
} crowd;

static void crowd_begin(crowd *c, fixture *f, int n, const kn_stream *streams, int n_streams) {
    c->n = n;
    pthread_barrier_init(&c->together, NULL, (unsigned)n + 1);
    for (int i = 0; i < n; i++) {
        c->hoarders[i] = (hoarder){f, streams, n_streams, 0, &c->together};
        assert_int_equal(pthread_create(&c->threads[i], NULL, hoard, &c->hoarders[i]), 0);
    }
    pthread_barrier_wait(&c->together);
}

static void crowd_end(crowd *c) {
    pthread_barrier_wait(&c->together);
    for (int i = 0; i < c->n; i++) {
        pthread_join(c->threads[i], NULL);
        assert_int_equal(c->hoarders[i].n_failed, 0);
    }
    pthread_barrier_destroy(&c->together);
}

static void trim_takes_the_caches_of_blocked_threads(void **state) {
    (void)state;
    enum { THREADS = 16, STREAMS = 8 };
    static crowd c;
    fixture f = fixture_instant(4 * GiB, NULL);
    kn_stream streams[STREAMS];
    for (int i = 0; i < STREAMS; i++) streams[i] = new_stream(&f);
    crowd_begin(&c, &f, THREADS, streams, STREAMS);
    assert_int_equal(stats_of(f.pool).live_bytes, 0);
    assert_true(stats_of(f.pool).cached_bytes > 100 * MiB);
    assert_true(stats_of(f.pool).reserved_bytes >= stats_of(f.pool).cached_bytes);
    assert_ok(kn_pool_trim(f.pool, 0));
    assert_int_equal(stats_of(f.pool).cached_bytes, 0);
    assert_int_equal(stats_of(f.pool).reserved_bytes, 0);
    assert_ok(kn_pool_check(f.pool));
    crowd_end(&c);
    fixture_end(&f);
}

/* On a device that lags behind: what threads cache is not in use when the wait is over. */
static void sync_and_trim_return_all_free_memory(void **state) {
    (void)state;
    static crowd c;
    fixture f = fixture_make(4 * GiB, false, NULL);
    kn_stream stream = new_stream(&f);
    void *slots[64];
    crowd_begin(&c, &f, 4, &stream, 1);
    for (int i = 0; i < 64; i++) {
        slots[i] = must_alloc(f.pool, 60000, stream);
        kn_sim_work(f.sim, stream, slots[i], 60000, (uint64_t)i);
    }
    for (int i = 0; i < 64; i++) assert_ok(kn_free(f.pool, slots[i]));
    assert_true(stats_of(f.pool).cached_bytes > 0);
    assert_ok(kn_pool_sync(f.pool));
    assert_ok(kn_pool_trim(f.pool, 0));
    assert_int_equal(stats_of(f.pool).reserved_bytes, 0);
    crowd_end(&c);
    fixture_end(&f);
}

/* 32 idle threads, whose caches would fill the device. */
static void idle_threads_do_not_make_memory_run_out(void **state) {
    (void)state;
    static crowd c;
    fixture f = fixture_instant(64 * MiB, NULL);
    void *small = must_alloc(f.pool, 512 * KiB, NULL);
    crowd_begin(&c, &f, HOARDERS_MAX, NULL, 1);
    void *big = must_alloc(f.pool, 32 * MiB, NULL);
    assert_int_equal(stats_of(f.pool).n_ooms, 0);
    assert_ok(kn_free(f.pool, big));
    assert_ok(kn_free(f.pool, small));
    crowd_end(&c);
    fixture_end(&f);
}

typedef struct giver {
    fixture *f;
    void *slots[4];
    pthread_barrier_t here;
    int n_failed;
} giver;

static void *free_and_block(void *ctx) {
    giver *s = ctx;
    for (int i = 0; i < 4; i++) s->n_failed += kn_free(s->f->pool, s->slots[i]) != KN_OK;
    pthread_barrier_wait(&s->here);
    pthread_barrier_wait(&s->here);
    return NULL;
}

/* The device is full but for the slots in the cache of a blocked thread: too little for a slab. */
static void one_slot_of_another_threads_cache_is_enough(void **state) {
    (void)state;
    fixture f = fixture_instant(8 * MiB, NULL);
    giver s = {.f = &f};
    void *all[128];
    pthread_t thread;
    for (int i = 0; i < 128; i++) all[i] = must_alloc(f.pool, 64 * KiB, NULL);
    for (int i = 0; i < 4; i++) s.slots[i] = all[i];
    assert_int_equal(pthread_barrier_init(&s.here, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, free_and_block, &s), 0);
    pthread_barrier_wait(&s.here);
    for (int i = 0; i < 4; i++) all[i] = must_alloc(f.pool, 64 * KiB, NULL);
    pthread_barrier_wait(&s.here);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&s.here);
    assert_int_equal(s.n_failed, 0);
    for (int i = 0; i < 128; i++) assert_ok(kn_free(f.pool, all[i]));
    fixture_end(&f);
}

/* With a limit below the live bytes, free slots in any cache serve requests. */
static void memory_above_a_lowered_limit_is_in_reach(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f);
    void *a = must_alloc(f.pool, 20 * MiB, NULL), *b = must_alloc(f.pool, 20 * MiB, s);
    void *c = must_alloc(f.pool, 4 * MiB, s);
    kn_sim_work(f.sim, s, b, 20 * MiB, 1);
    assert_ok(kn_free(f.pool, b));
    assert_ok(kn_pool_limit(f.pool, 10 * MiB)); /* nothing can be given back */
    void *x = must_alloc(f.pool, 8 * MiB, NULL);
    kn_sim_work(f.sim, NULL, x, 8 * MiB, 2);
    void *all[] = {a, c, x};
    for (int i = 0; i < 3; i++) assert_ok(kn_free(f.pool, all[i]));
    fixture_end(&f);
}

/* Slabs grow with the class; where memory is short a page that has a slot will do. */
static void slab_is_small_where_memory_is_short(void **state) {
    (void)state;
    fixture f = fixture_instant(8 * MiB, NULL);
    void *small[64], *pages[128], *x = NULL;
    int n = 0;
    for (int i = 0; i < 64; i++) small[i] = must_alloc(f.pool, 8 * KiB, NULL);
    while (n < 128 && kn_alloc(&x, f.pool, 65 * KiB, NULL) == KN_OK) pages[n++] = x;
    assert_ok(kn_free(f.pool, pages[--n]));
    void *last = must_alloc(f.pool, 64 * KiB, NULL);
    assert_ok(kn_free(f.pool, last));
    for (int i = 0; i < 64; i++) assert_ok(kn_free(f.pool, small[i]));
    while (n) assert_ok(kn_free(f.pool, pages[--n]));
    fixture_end(&f);
}

/* A stream that goes leaves nothing behind in the caches of threads that don't come by again. */
static void a_destroyed_stream_leaves_no_slot_in_caches(void **state) {
    (void)state;
    static crowd c;
    fixture f = fixture_instant(256 * MiB, NULL); /* a small device: little that is idle is moved */
    kn_stream streams[4];
    for (int i = 0; i < 4; i++) streams[i] = new_stream(&f);
    crowd_begin(&c, &f, 4, streams, 4);
    assert_true(stats_of(f.pool).cached_bytes > 0);
    for (int i = 0; i < 4; i++) kn_stream_destroy(f.device, streams[i]);
    assert_int_equal(stats_of(f.pool).cached_bytes, 0);
    void *all = must_alloc(f.pool, stats_of(f.pool).reserved_bytes, NULL);
    assert_true(stats_of(f.pool).reserved_bytes <= stats_of(f.pool).live_bytes + 2 * MiB);
    assert_ok(kn_free(f.pool, all));
    crowd_end(&c);
    fixture_end(&f);
}

/* A slot that was freed last is allocated first, from the cache; from a slab it would be the
 * lowest.
 */
static void caches_serve_again_after_they_were_called_back(void **state) {
    (void)state;
    fixture f = fixture_instant(1 * GiB, NULL);
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 1000, NULL)));
    assert_ok(kn_pool_trim(f.pool, 0));
    void *slots[4];
    for (int i = 0; i < 4; i++) slots[i] = must_alloc(f.pool, 1000, NULL);
    for (int i = 3; i >= 0; i--) {
        assert_ok(kn_free(f.pool, slots[i]));
        assert_ptr_equal(must_alloc(f.pool, 1000, NULL), slots[i]);
    }
    for (int i = 0; i < 4; i++) assert_ok(kn_free(f.pool, slots[i]));
    fixture_end(&f);
}

/* A slab that was emptied before its stream was destroyed. */
static void a_destroyed_stream_leaves_no_empty_slab(void **state) {
    (void)state;
    fixture f = fixture_instant(1 * GiB, NULL);
    kn_stream first = new_stream(&f), second = new_stream(&f), third = new_stream(&f);
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 64 * KiB, second)));
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 64 * KiB, first)));
    uint64_t reserved = stats_of(f.pool).reserved_bytes;
    kn_stream_destroy(f.device, first); /* empties all caches */
    assert_int_equal(stats_of(f.pool).cached_bytes, 0);
    kn_stream_destroy(f.device, second);
    void *all = must_alloc(f.pool, reserved, third);
    assert_int_equal(stats_of(f.pool).reserved_bytes, reserved);
    assert_ok(kn_free(f.pool, all));
    fixture_end(&f);
}

/* Threads at work while their caches are called back all the time: no slot has two owners. */

typedef struct busy {
    fixture *f;
    _Atomic bool *stop;
    uint64_t me, n_wrong, n_rounds;
} busy;

enum { MARKS = 1 << 16 };
static _Atomic uint64_t owners[MARKS]; /* by address */

static _Atomic uint64_t *owner_of(const void *ptr) {
    return &owners[((uintptr_t)ptr >> 8) % MARKS];
}

static void *work(void *ctx) {
    busy *b = ctx;
    void *held[40] = {NULL};
    uint64_t seed = b->me;
    while (!atomic_load(b->stop) || b->n_rounds < 1000) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        void **slot = &held[(seed >> 33) % 40];
        if (*slot) {
            b->n_wrong += atomic_exchange(owner_of(*slot), 0) != b->me;
            b->n_wrong += kn_free(b->f->pool, *slot) != KN_OK;
            *slot = NULL;
        } else if (kn_alloc(slot, b->f->pool, 200 + (seed >> 40) % 2000, NULL) == KN_OK) {
            b->n_wrong += atomic_exchange(owner_of(*slot), b->me) != 0;
        }
        b->n_rounds++;
    }
    for (int i = 0; i < 40; i++) {
        if (!held[i]) continue;
        b->n_wrong += atomic_exchange(owner_of(held[i]), 0) != b->me;
        b->n_wrong += kn_free(b->f->pool, held[i]) != KN_OK;
    }
    return NULL;
}

static void caches_of_busy_threads_may_be_called_back(void **state) {
    (void)state;
    enum { THREADS = 3, ROUNDS = 3000 };
    fixture f = fixture_instant(8 * MiB, NULL); /* addresses that don't share marks */
    _Atomic bool stop = false;
    busy all[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        all[i] = (busy){.f = &f, .stop = &stop, .me = (uint64_t)i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &all[i]), 0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        assert_ok(kn_pool_trim(f.pool, 0));
        if (round % 64 == 0) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(all[i].n_wrong, 0);
    }
    assert_int_equal(stats_of(f.pool).live_bytes, 0);
    fixture_end(&f);
}

/* A signal stops a thread again and again, often while it works in its cache, which has nearly all
 * memory: a request waits until the thread continues. */

static _Atomic bool stopped;

static void stay_a_while(int signal) {
    (void)signal;
    atomic_store(&stopped, true);
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

static void *alloc_and_free(void *ctx) {
    busy *b = ctx;
    void *slot = NULL;
    size_t size = 8 * KiB;
    for (; !atomic_load(b->stop); b->n_rounds++) { /* 20 classes; one slot is live at a time */
        if (kn_alloc(&slot, b->f->pool, size, NULL) == KN_OK) (void)kn_free(b->f->pool, slot);
        if (b->n_rounds % 64 == 0) size = size >= 60 * KiB ? 8 * KiB : size + 2 * KiB;
    }
    return NULL;
}

static void thread_that_is_preempted_in_its_cache_is_waited_for(void **state) {
    (void)state;
    fixture f = fixture_instant(12 * MiB, NULL); /* six handles: a live slot lies in two at most */
    _Atomic bool stop = false;
    busy b = {.f = &f, .stop = &stop};
    struct sigaction action = {.sa_handler = stay_a_while};
    sigaction(SIGUSR1, &action, NULL);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, alloc_and_free, &b), 0);
    for (int i = 0; i < 100; i++) {
        void *big = NULL;
        atomic_store(&stopped, false);
        pthread_kill(thread, SIGUSR1);
        while (!atomic_load(&stopped)) nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
        assert_ok(kn_alloc(&big, f.pool, 7600 * KiB, NULL));
        assert_ok(kn_free(f.pool, big));
        nanosleep(&(struct timespec){.tv_nsec = 6000000}, NULL); /* the cache fills again */
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    fixture_end(&f);
}

/* A thread keeps slots of each pool, of many. */
static void every_pool_of_many_has_caches(void **state) {
    (void)state;
    enum { POOLS = 200 };
    fixture f = fixture_instant(16 * GiB, NULL);
    kn_pool *pools[POOLS];
    for (int i = 0; i < POOLS; i++) {
        assert_ok(kn_pool_create(&pools[i], f.device, NULL));
        assert_ok(kn_free(pools[i], must_alloc(pools[i], 1000, NULL)));
        assert_true(stats_of(pools[i]).cached_bytes > 0);
    }
    for (int i = 0; i < POOLS; i++) {
        assert_ok(kn_pool_check(pools[i]));
        kn_pool_destroy(pools[i]);
    }
    for (int i = 0; i < 1100; i++) { /* a destroyed pool leaves its place to another one */
        assert_ok(kn_pool_create(&pools[0], f.device, NULL));
        if (i % 100 == 99) {
            assert_ok(kn_free(pools[0], must_alloc(pools[0], 1000, NULL)));
            assert_true(stats_of(pools[0]).cached_bytes > 0);
        }
        kn_pool_destroy(pools[0]);
    }
    fixture_end(&f);
}

/* Of each size a thread keeps 256 KiB or four slots. */
static void cache_is_bounded(void **state) {
    (void)state;
    enum { N = 300 };
    fixture f = fixture_instant(1 * GiB, NULL);
    kn_stream s = new_stream(&f);
    for (size_t size = 4 * KiB; size <= 64 * KiB; size *= 2) {
        void *slots[N];
        assert_ok(kn_pool_trim(f.pool, 0));
        for (int i = 0; i < N; i++) slots[i] = must_alloc(f.pool, size, i % 2 ? s : NULL);
        for (int i = 0; i < N; i++) assert_ok(kn_free(f.pool, slots[i]));
        assert_in_range(stats_of(f.pool).cached_bytes, size, 2 * 256 * KiB);
    }
    fixture_end(&f);
}

/* The peak is that of all blocks at once, though a thread counts small ones by itself. */
static void peak_of_small_blocks_is_exact(void **state) {
    (void)state;
    enum { N = 400 };
    fixture f = fixture_instant(1 * GiB, NULL);
    void *slots[N];
    for (int i = 0; i < N; i++) slots[i] = must_alloc(f.pool, 10000, NULL);
    uint64_t peak = stats_of(f.pool).live_bytes;
    assert_int_equal(peak, N * 10240);
    for (int i = 0; i < N; i++) assert_ok(kn_free(f.pool, slots[i]));
    void *big = must_alloc(f.pool, 100000, NULL); /* the counters are folded with nothing live */
    assert_ok(kn_free(f.pool, big));
    assert_int_equal(stats_of(f.pool).live_bytes_max, peak);
    fixture_end(&f);
}

int main(void) {
    return RUN_TESTS(
        TEST(trim_takes_the_caches_of_blocked_threads), TEST(sync_and_trim_return_all_free_memory),
        TEST(idle_threads_do_not_make_memory_run_out),
        TEST(one_slot_of_another_threads_cache_is_enough),
        TEST(memory_above_a_lowered_limit_is_in_reach), TEST(slab_is_small_where_memory_is_short),
        TEST(a_destroyed_stream_leaves_no_slot_in_caches),
        TEST(a_destroyed_stream_leaves_no_empty_slab),
        TEST(caches_serve_again_after_they_were_called_back),
        TEST(caches_of_busy_threads_may_be_called_back),
        TEST(thread_that_is_preempted_in_its_cache_is_waited_for),
        TEST(every_pool_of_many_has_caches), TEST(cache_is_bounded),
        TEST(peak_of_small_blocks_is_exact));
}
