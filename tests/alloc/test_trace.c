/* The trace: what is in the file, beside an observer, over threads, without room on the disk. */
#include <knet/observer.h>
#include <knet/trace.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool_fixture.h"
#include "trace_ring.h"

static char path[] = "/tmp/knet-trace-XXXXXX";

enum { THREADS_MAX = 256 };

typedef struct event {
    kn_trace_event e;
    uint32_t thread;
} event;

typedef struct file {
    kn_trace_header header;
    kn_trace_record *records;
    size_t n_records, odd_bytes; /* behind the last whole record */
    event *events;
    size_t n;
    char pool_names[8][25]; /* in the order of their events */
    size_t n_pools;
} file;

static void take(file *f, kn_trace_thread *thread, uint32_t number, const kn_trace_record *record) {
    event *to = &f->events[f->n];
    if (!kn_trace_event_read(&to->e, thread, record)) return;
    to->thread = number;
    f->n++;
    if (to->e.kind != KN_TRACE_POOL) return;
    assert_true(f->n_pools < 8);
    memcpy(f->pool_names[f->n_pools++], thread->name, 24);
}

static void put_together(file *f) {
    static kn_trace_thread threads[THREADS_MAX];
    uint64_t now = UINT64_MAX;
    memset(threads, 0, sizeof threads);
    for (size_t i = 0; i < f->n_records; i++) {
        const kn_trace_record *record = &f->records[i];
        if (kn_trace_kind_of(record) == KN_TRACE_THREAD) {
            now = record->a >> 8;
            continue;
        }
        assert_true(now < THREADS_MAX);
        take(f, &threads[now], (uint32_t)now, record);
    }
}

static file file_read(void) {
    file f = {.n = 0};
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    assert_int_equal(fread(&f.header, sizeof f.header, 1, in), 1);
    fseek(in, 0, SEEK_END);
    size_t bytes = (size_t)ftell(in) - sizeof f.header;
    f.n_records = bytes / sizeof *f.records;
    f.odd_bytes = bytes % sizeof *f.records;
    f.records = calloc(f.n_records + 1, sizeof *f.records);
    f.events = calloc(f.n_records + 1, sizeof *f.events);
    fseek(in, sizeof f.header, SEEK_SET);
    assert_int_equal(fread(f.records, sizeof *f.records, f.n_records, in), f.n_records);
    fclose(in);
    put_together(&f);
    return f;
}

static void file_free(file *f) {
    free(f->records);
    free(f->events);
}

static size_t count(const file *f, kn_trace_kind kind) {
    size_t n = 0;
    for (size_t i = 0; i < f->n_records; i++) n += kn_trace_kind_of(&f->records[i]) == kind;
    return n;
}

static const kn_trace_event *first(const file *f, kn_trace_kind kind) {
    for (size_t i = 0; i < f->n; i++) {
        if (f->events[i].e.kind == kind) return &f->events[i].e;
    }
    fail_msg("no event of kind %d", (int)kind);
    return NULL;
}

static const kn_trace_record *last(const file *f) { return &f->records[f->n_records - 1]; }

static void begin(kn_pool *only) {
    assert_ok(kn_trace_begin(path, &(kn_trace_options){.pool = only}));
}

static file end(void) {
    assert_ok(kn_trace_end());
    return file_read();
}

static void allocs_and_frees_stand_in_order_with_the_bytes_asked_for(void **state) {
    (void)state;
    fixture f = fixture_make(GiB, false, NULL);
    kn_stream stream = new_stream(&f);
    begin(NULL);
    void *small = must_alloc(f.pool, 1000, stream), *large = must_alloc(f.pool, 3 * MiB + 5, NULL);
    assert_ok(kn_free(f.pool, small));
    assert_ok(kn_free(f.pool, large));
    file got = end();
    assert_memory_equal(got.header.magic, KN_TRACE_MAGIC, 8);
    assert_int_equal(got.header.version, KN_TRACE_VERSION);
    assert_int_equal(got.header.record_bytes, sizeof(kn_trace_record));
    assert_int_equal(got.header.process, (uint32_t)getpid());
    const kn_trace_event *seen[4];
    size_t n = 0;
    for (size_t i = 0; i < got.n; i++) {
        kn_trace_kind kind = got.events[i].e.kind;
        if (kind == KN_TRACE_ALLOC || kind == KN_TRACE_FREE) seen[n++] = &got.events[i].e;
        assert_true(n <= 4);
    }
    assert_int_equal(n, 4);
    assert_int_equal(seen[0]->ptr, (uintptr_t)small);
    assert_int_equal(seen[0]->size, 1000);
    assert_int_equal(seen[0]->stream, (uintptr_t)stream);
    assert_int_equal(seen[1]->size, 3 * MiB + 5);
    assert_int_equal(seen[2]->ptr, (uintptr_t)small);
    assert_int_equal(seen[2]->size, 1024);
    assert_int_equal(seen[3]->ptr, (uintptr_t)large);
    for (int i = 1; i < 4; i++) assert_true(seen[i]->time_ticks >= seen[i - 1]->time_ticks);
    assert_int_equal(kn_trace_kind_of(last(&got)), KN_TRACE_END);
    assert_int_equal(last(&got)->a >> 8, 0);
    assert_int_equal(last(&got)->b, got.n);
    assert_int_equal(count(&got, KN_TRACE_CLOCK), 2);
    file_free(&got);
    fixture_end(&f);
}

static void uses_growth_trims_refusals_and_pools_are_events(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, &(kn_pool_options){.name = "a pool of the test's"});
    kn_stream other = new_stream(&f);
    kn_pool *second = NULL;
    begin(NULL);
    assert_ok(kn_pool_create(&second, f.device, &(kn_pool_options){.name = "second"}));
    void *ptr = must_alloc(f.pool, MiB, NULL), *none = NULL;
    assert_ok(kn_block_use(f.pool, ptr, other));
    assert_fails(kn_alloc(&none, f.pool, 100 * MiB, NULL), KN_ERR_OOM, "out of memory");
    assert_ok(kn_free(f.pool, ptr));
    for (int i = 0; i < 2; i++) { /* the first one asks when the other stream is done */
        assert_ok(kn_pool_trim(f.pool, 0));
        kn_sim_drain(f.sim);
    }
    assert_ok(kn_pool_trim(f.pool, 0));
    kn_pool_destroy(second);
    file got = end();
    assert_int_equal(first(&got, KN_TRACE_USE)->ptr, (uintptr_t)ptr);
    assert_int_equal(first(&got, KN_TRACE_USE)->stream, (uintptr_t)other);
    assert_int_equal(first(&got, KN_TRACE_OOM)->size, 100 * MiB);
    assert_true(first(&got, KN_TRACE_GROW)->size >= MiB);
    assert_int_equal(first(&got, KN_TRACE_TRIM)->ptr, 0);
    assert_int_equal(got.n_pools, 2);
    assert_string_equal(got.pool_names[0], "a pool of the test's");
    assert_string_equal(got.pool_names[1], "second"); /* made while the trace runs */
    const kn_trace_event *created = NULL;
    for (size_t i = 0; i < got.n; i++) {
        if (got.events[i].e.kind == KN_TRACE_POOL) created = &got.events[i].e;
    }
    assert_int_equal(first(&got, KN_TRACE_POOL_GONE)->pool, created->pool);
    file_free(&got);
    fixture_end(&f);
}

static void a_trace_of_one_pool_hears_nothing_of_others(void **state) {
    (void)state;
    fixture f = fixture_make(GiB, false, NULL), other = fixture_make(GiB, false, NULL);
    begin(f.pool);
    kn_free(other.pool, must_alloc(other.pool, 512, NULL));
    kn_free(f.pool, must_alloc(f.pool, 256, NULL));
    file got = end();
    assert_int_equal(count(&got, KN_TRACE_POOL), 1);
    assert_int_equal(count(&got, KN_TRACE_ALLOC), 1);
    assert_int_equal(first(&got, KN_TRACE_ALLOC)->size, 256);
    file_free(&got);
    fixture_end(&f);
    fixture_end(&other);
}

static void a_pool_where_another_was_has_a_number_of_its_own(void **state) {
    (void)state;
    enum { POOLS = 8 };
    fixture f = fixture_make(GiB, false, NULL);
    uint32_t number[POOLS];
    size_t n = 0;
    begin(NULL);
    for (int i = 0; i < POOLS - 1; i++) {
        kn_pool *pool = NULL;
        assert_ok(kn_pool_create(&pool, f.device, NULL));
        kn_free(pool, must_alloc(pool, 512, NULL));
        kn_pool_destroy(pool);
    }
    file got = end();
    for (size_t i = 0; i < got.n; i++) {
        if (got.events[i].e.kind == KN_TRACE_ALLOC) number[n++] = got.events[i].e.pool;
        assert_true(n < POOLS);
    }
    assert_int_equal(n, POOLS - 1);
    for (size_t i = 1; i < n; i++) assert_int_equal(number[i], number[i - 1] + 1);
    file_free(&got);
    fixture_end(&f);
}

/* Random allocations and frees over pools and streams are in the file one for one. */
static void each_event_has_its_own_pool_stream_and_size(void **state) {
    (void)state;
    enum { POOLS = 3, STREAMS = 3, LIVE = 16, OPS = 20000 };
    typedef struct block {
        void *ptr;
        int pool;
    } block;
    fixture f = fixture_make(4 * GiB, false, NULL);
    kn_pool *pools[POOLS] = {f.pool};
    kn_stream streams[STREAMS] = {new_stream(&f), new_stream(&f)}; /* the last: the default */
    for (int i = 1; i < POOLS; i++) assert_ok(kn_pool_create(&pools[i], f.device, NULL));
    block live[LIVE] = {{0}};
    kn_trace_event *expected = calloc(OPS, sizeof *expected);
    assert_non_null(expected);
    begin(NULL);
    for (int i = 0; i < OPS; i++) {
        block *b = &live[test_random_below(LIVE)];
        kn_trace_event *e = &expected[i];
        if (b->ptr) {
            *e = (kn_trace_event){.kind = KN_TRACE_FREE, .ptr = (uintptr_t)b->ptr};
            assert_ok(kn_free(pools[b->pool], b->ptr));
            b->ptr = NULL;
        } else {
            b->pool = (int)test_random_below(POOLS);
            kn_stream stream = streams[test_random_below(STREAMS)];
            size_t size = 1 + test_random_below(test_random_below(8) ? 5000 : 3 * MiB);
            b->ptr = must_alloc(pools[b->pool], size, stream);
            *e = (kn_trace_event){.kind = KN_TRACE_ALLOC, .ptr = (uintptr_t)b->ptr, .size = size};
            e->stream = (uintptr_t)stream;
        }
        e->pool = (uint32_t)b->pool;
    }
    file got = end();
    size_t n = 0;
    uint32_t number[POOLS] = {0}; /* in the trace */
    for (size_t i = 0; i < got.n; i++) {
        kn_trace_event e = got.events[i].e;
        if (e.kind != KN_TRACE_ALLOC && e.kind != KN_TRACE_FREE) continue;
        assert_true(n < OPS);
        if (e.kind == KN_TRACE_FREE) e.size = 0; /* rounded, and looked at elsewhere */
        e.time_ticks = 0;
        uint32_t pool = expected[n].pool;
        if (!number[pool]) number[pool] = e.pool;
        expected[n].pool = number[pool];
        assert_memory_equal(&e, &expected[n], sizeof e);
        n++;
    }
    assert_int_equal(n, OPS);
    assert_true(number[0] != number[1] && number[1] != number[2] && number[2] != number[0]);
    assert_true(got.n_records * sizeof *got.records < 40 * got.n);
    file_free(&got);
    free(expected);
    for (int i = 0; i < LIVE; i++) {
        if (live[i].ptr) assert_ok(kn_free(pools[live[i].pool], live[i].ptr));
    }
    for (int i = 1; i < POOLS; i++) kn_pool_destroy(pools[i]);
    fixture_end(&f);
}

/* An observer beside the trace. */

static int n_heard_allocs, n_heard_frees, n_heard_pools;
static uint32_t owner_given_back;

static uint32_t hear_alloc(kn_pool *pool, void *ptr, size_t size, kn_stream stream) {
    (void)pool, (void)ptr, (void)size, (void)stream;
    return (uint32_t)++n_heard_allocs + 40;
}
static void hear_free(kn_pool *pool, void *ptr, size_t size, uint32_t owner) {
    (void)pool, (void)ptr, (void)size;
    n_heard_frees++;
    owner_given_back = owner;
}
static void hear_pool(kn_pool *pool) {
    (void)pool;
    n_heard_pools++;
}
static const kn_observer listener = {
    .on_alloc = hear_alloc, .on_free = hear_free, .on_pool_create = hear_pool};

static void an_observer_hears_the_same_with_a_trace_as_without(void **state) {
    (void)state;
    fixture f = fixture_make(GiB, false, NULL);
    n_heard_allocs = n_heard_frees = n_heard_pools = 0;
    assert_ok(kn_observer_attach(&listener));
    int n_pools = n_heard_pools;
    void *before = must_alloc(f.pool, 512, NULL);
    begin(NULL);
    assert_int_equal(n_heard_pools, n_pools); /* the trace's own look at them is not passed on */
    void *during = must_alloc(f.pool, MiB, NULL);
    assert_ok(kn_free(f.pool, before));
    assert_int_equal(owner_given_back, 41);
    file got = end();
    assert_ok(kn_free(f.pool, during));
    assert_int_equal(owner_given_back, 42);
    assert_int_equal(n_heard_allocs, 2);
    assert_int_equal(n_heard_frees, 2);
    file_free(&got);

    begin(NULL);
    assert_ok(kn_observer_attach(NULL));
    kn_free(f.pool, must_alloc(f.pool, 512, NULL));
    assert_int_equal(n_heard_allocs, 2);
    assert_ok(kn_observer_attach(&listener));
    kn_free(f.pool, must_alloc(f.pool, 512, NULL));
    assert_int_equal(n_heard_allocs, 3);
    got = end();
    assert_int_equal(count(&got, KN_TRACE_ALLOC), 2);
    file_free(&got);
    assert_ok(kn_observer_attach(NULL));
    fixture_end(&f);
}

/* Threads. */

enum { THREADS = 4, PAIRS = 30000 }; /* more than a ring holds */
static atomic_int n_failed;

static void *churn(void *ctx) {
    const fixture *f = ctx;
    for (int i = 0; i < PAIRS; i++) {
        void *ptr = NULL;
        if (kn_alloc(&ptr, f->pool, 256 + (size_t)(i % 8) * 256, NULL) < 0) n_failed++;
        if (kn_free(f->pool, ptr) < 0) n_failed++;
    }
    return NULL;
}

static void every_event_of_every_thread_is_there_and_in_its_order(void **state) {
    (void)state;
    fixture f = fixture_make(GiB, false, NULL);
    pthread_t threads[THREADS];
    begin(NULL);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, churn, &f);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    file got = end();
    assert_int_equal(n_failed, 0);
    assert_int_equal(count(&got, KN_TRACE_ALLOC), THREADS * PAIRS);
    assert_int_equal(count(&got, KN_TRACE_FREE), THREADS * PAIRS);
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
        /* each frees what it has just allocated */
        assert_int_equal(of[t].live, e->kind == KN_TRACE_ALLOC ? 0 : e->ptr);
        of[t].live = e->kind == KN_TRACE_ALLOC ? e->ptr : 0;
    }
    kn_trace_stats stats;
    kn_trace_stats_read(&stats, sizeof stats);
    assert_int_equal(stats.n_events, got.n);
    assert_int_equal(stats.n_lost, 0);
    file_free(&got);
    fixture_end(&f);
}

/* Who has the turn reads its clock now and then only. */
static void a_lone_thread_has_small_events_and_times_within_its_trace(void **state) {
    (void)state;
    fixture f = fixture_make(GiB, false, NULL);
    begin(NULL);
    churn(&f);
    file got = end();
    assert_int_equal(n_failed, 0);
    assert_true(got.n >= 2 * PAIRS);
    assert_true(got.n_records * sizeof *got.records <= 17 * got.n + 4096);
    uint64_t clock[2] = {0};
    int n_clocks = 0;
    for (size_t i = 1; i < got.n_records; i++) {
        if (kn_trace_kind_of(&got.records[i]) != KN_TRACE_CLOCK) continue;
        assert_int_equal(kn_trace_kind_of(&got.records[i - 1]), KN_TRACE_TIME);
        assert_true(n_clocks < 2);
        clock[n_clocks++] = got.records[i - 1].b;
    }
    uint64_t before = clock[0], n_times = 0;
    for (size_t i = 0; i < got.n; i++) {
        uint64_t ticks = got.events[i].e.time_ticks;
        assert_true(before <= ticks && ticks <= clock[1]);
        n_times += ticks > before;
        before = ticks;
    }
    assert_true(n_times >= got.n / 64);
    file_free(&got);
    fixture_end(&f);
}

/* The clock: what one thread read before it passed something on is not later than what another
 * reads when it has got it. */
enum { READINGS = 400000 };
static struct {
    uint64_t ticks[READINGS];
    _Alignas(64) _Atomic uint32_t n;
} told;

static void *tell_readings(void *ctx) {
    for (uint32_t i = 1; i < READINGS; i++) {
        told.ticks[i] = kn__trace_ticks();
        atomic_store_explicit(&told.n, i, memory_order_release);
    }
    return ctx;
}

/* Nothing here waits for what is told: whoever waits has guessed wrong when it comes, and starts
 * again. */
static void a_clock_read_after_anothers_is_later(void **state) {
    (void)state;
    static uint32_t heard[READINGS];
    static uint64_t ticks[READINGS];
    pthread_t thread;
    uint32_t n = 0, n_told = 0;
    pthread_create(&thread, NULL, tell_readings, NULL);
    while (n_told < READINGS - 1) {
        n_told = atomic_load_explicit(&told.n, memory_order_acquire);
        ticks[n % READINGS] = kn__trace_ticks();
        heard[n++ % READINGS] = n_told;
    }
    pthread_join(thread, NULL);
    for (uint32_t i = 0; i < READINGS; i++) assert_true(ticks[i] >= told.ticks[heard[i]]);
}

/* What can't be. */

static void wrong_use_and_paths_that_cannot_be_written_are_errors(void **state) {
    (void)state;
    assert_ok(kn_trace_end()); /* none runs: nothing */
    assert_fails(kn_trace_begin("", NULL), KN_ERR_INVALID, "path is empty");
    assert_fails(kn_trace_begin("/nonexistent/t.kntrace", NULL), KN_ERR_IO,
                 "/nonexistent/t.kntrace can't be written: No such file");
    assert_fails(kn_trace_begin("/dev/full", NULL), KN_ERR_IO, "No space left");
    assert_fails(kn_trace_begin(path, &(kn_trace_options){.reserved = {0, 0, 7}}), KN_ERR_INVALID,
                 "reserved[2]");
    begin(NULL);
    assert_fails(kn_trace_begin("/tmp/another", NULL), KN_ERR_INVALID, "runs already, into /tmp/");
    file got = end();
    file_free(&got);
}

static void a_full_disk_costs_events_not_the_program(void **state) {
    (void)state;
    enum { BYTES = 100000 };
    fixture f = fixture_make(GiB, false, NULL);
    struct rlimit before, tight;
    getrlimit(RLIMIT_FSIZE, &before);
    tight = (struct rlimit){BYTES, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &tight);
    begin(NULL);
    churn(&f);
    kn_status status = kn_trace_end();
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, KN_ERR_IO);
    test_assert_message("events were lost", __FILE__, __LINE__);
    assert_int_equal(n_failed, 0);
    file got = file_read();
    kn_trace_stats stats;
    kn_trace_stats_read(&stats, sizeof stats);
    assert_int_equal(got.odd_bytes, 0);
    assert_int_equal(got.n, stats.n_events);
    assert_true(got.n > 1000 && got.n_records * sizeof *got.records <= BYTES);
    assert_true(stats.n_events + stats.n_lost >= 2 * PAIRS);
    assert_int_equal(count(&got, KN_TRACE_END), 0);
    file_free(&got);

    begin(NULL); /* with room again */
    kn_free(f.pool, must_alloc(f.pool, 512, NULL));
    got = end();
    assert_int_equal(count(&got, KN_TRACE_ALLOC), 1);
    file_free(&got);
    fixture_end(&f);
}

static void a_fork_leaves_the_trace_to_the_parent(void **state) {
    (void)state;
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, kn_device_host(), NULL)); /* usable in the child */
    begin(NULL);
    kn_free(pool, must_alloc(pool, 512, NULL));
    pid_t child = fork();
    if (child == 0) {
        void *ptr = NULL;
        if (kn_alloc(&ptr, pool, 512, NULL) == KN_OK) kn_free(pool, ptr);
        _exit(kn_trace_end() == KN_OK ? 0 : 1);
    }
    int code = -1;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    kn_free(pool, must_alloc(pool, 512, NULL));
    file got = end();
    assert_int_equal(count(&got, KN_TRACE_ALLOC), 2);
    assert_int_equal(kn_trace_kind_of(last(&got)), KN_TRACE_END);
    file_free(&got);
    kn_pool_destroy(pool);
}

/* In a child: what a program does that never ends its trace. */
static bool trace_one_block(void) {
    kn_pool *pool = NULL;
    void *ptr = NULL;
    if (kn_pool_create(&pool, kn_device_host(), NULL) < 0) return false;
    bool ok = kn_trace_begin(path, NULL) == KN_OK && kn_alloc(&ptr, pool, 77, NULL) == KN_OK;
    kn_free(pool, ptr);
    kn_pool_destroy(pool);
    return ok;
}

static void a_program_that_just_exits_has_a_whole_trace(void **state) {
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        if (trace_one_block()) exit(0);
        _exit(1);
    }
    int code = -1;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    file got = file_read();
    assert_int_equal(first(&got, KN_TRACE_ALLOC)->size, 77);
    assert_int_equal(kn_trace_kind_of(last(&got)), KN_TRACE_END);
    file_free(&got);
}

int main(void) {
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    int failed = RUN_TESTS(TEST(allocs_and_frees_stand_in_order_with_the_bytes_asked_for),
                           TEST(uses_growth_trims_refusals_and_pools_are_events),
                           TEST(a_trace_of_one_pool_hears_nothing_of_others),
                           TEST(a_pool_where_another_was_has_a_number_of_its_own),
                           TEST(each_event_has_its_own_pool_stream_and_size),
                           TEST(an_observer_hears_the_same_with_a_trace_as_without),
                           TEST(every_event_of_every_thread_is_there_and_in_its_order),
                           TEST(a_lone_thread_has_small_events_and_times_within_its_trace),
                           TEST(a_clock_read_after_anothers_is_later),
                           TEST(wrong_use_and_paths_that_cannot_be_written_are_errors),
                           TEST(a_full_disk_costs_events_not_the_program),
                           TEST(a_fork_leaves_the_trace_to_the_parent),
                           TEST(a_program_that_just_exits_has_a_whole_trace));
    unlink(path);
    return failed;
}
