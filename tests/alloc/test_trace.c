/* The trace's file: which events it has, with which pools, streams, sizes and times; an observer
 * beside it. */
#include <knet/observer.h>
#include <knet/trace.h>
#include <unistd.h>

#include "inspect/trace_ring.h"
#include "pool_fixture.h"
#include "trace_file.h"

static void allocs_and_frees_are_in_order_with_the_bytes_requested(void **state) {
    (void)state;
    fixture f = fixture_make(GiB, false, NULL);
    kn_stream stream = new_stream(&f);
    trace_begin(NULL);
    void *small = must_alloc(f.pool, 1000, stream), *large = must_alloc(f.pool, 3 * MiB + 5, NULL);
    assert_ok(kn_free(f.pool, small));
    assert_ok(kn_free(f.pool, large));
    file got = trace_end();
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
    assert_int_equal(kn_trace_kind_of(file_last(&got)), KN_TRACE_END);
    assert_int_equal(file_last(&got)->a >> 8, 0);
    assert_int_equal(file_last(&got)->b, got.n);
    assert_int_equal(file_count(&got, KN_TRACE_CLOCK), 2);
    file_free(&got);
    fixture_end(&f);
}

static void uses_growth_trims_failures_and_pools_are_events(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, &(kn_pool_options){.name = "a pool of the test's"});
    kn_stream other = new_stream(&f);
    kn_pool *second = NULL;
    trace_begin(NULL);
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
    file got = trace_end();
    assert_int_equal(file_first(&got, KN_TRACE_USE)->ptr, (uintptr_t)ptr);
    assert_int_equal(file_first(&got, KN_TRACE_USE)->stream, (uintptr_t)other);
    assert_int_equal(file_first(&got, KN_TRACE_OOM)->size, 100 * MiB);
    assert_true(file_first(&got, KN_TRACE_GROW)->size >= MiB);
    assert_int_equal(file_first(&got, KN_TRACE_TRIM)->ptr, 0);
    assert_in_range(file_first(&got, KN_TRACE_TRIM)->size, MiB, 64 * MiB);
    assert_true(file_first(&got, KN_TRACE_POOL_GONE)->time_ticks <= file_clock_ticks(&got, 1));
    assert_int_equal(got.n_pools, 2);
    assert_string_equal(got.pool_names[0], "a pool of the test's");
    assert_string_equal(got.pool_names[1], "second"); /* made while the trace runs */
    const kn_trace_event *created = NULL;
    for (size_t i = 0; i < got.n; i++) {
        if (got.events[i].e.kind == KN_TRACE_POOL) created = &got.events[i].e;
    }
    assert_int_equal(file_first(&got, KN_TRACE_POOL_GONE)->pool, created->pool);
    file_free(&got);
    fixture_end(&f);
}

static void a_trace_of_one_pool_has_no_events_of_others(void **state) {
    (void)state;
    fixture f = fixture_make(GiB, false, NULL), other = fixture_make(GiB, false, NULL);
    trace_begin(f.pool);
    kn_free(other.pool, must_alloc(other.pool, 512, NULL));
    kn_free(f.pool, must_alloc(f.pool, 256, NULL));
    file got = trace_end();
    assert_int_equal(file_count(&got, KN_TRACE_POOL), 1);
    assert_int_equal(file_count(&got, KN_TRACE_ALLOC), 1);
    assert_int_equal(file_first(&got, KN_TRACE_ALLOC)->size, 256);
    file_free(&got);
    fixture_end(&f);
    fixture_end(&other);
}

static void a_pool_at_a_reused_address_gets_a_new_number(void **state) {
    (void)state;
    enum { POOLS = 8 };
    fixture f = fixture_make(GiB, false, NULL);
    uint32_t number[POOLS];
    size_t n = 0;
    trace_begin(NULL);
    for (int i = 0; i < POOLS - 1; i++) {
        kn_pool *pool = NULL;
        assert_ok(kn_pool_create(&pool, f.device, NULL));
        kn_free(pool, must_alloc(pool, 512, NULL));
        kn_pool_destroy(pool);
    }
    file got = trace_end();
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
enum { POOLS = 3, STREAMS = 3, LIVE = 16, OPS = 20000 };

typedef struct block {
    void *ptr;
    int pool;
} block;

/* Frees or allocates a random block; returns the event that the trace must have. */
static kn_trace_event do_random(block live[], kn_pool *pools[], const kn_stream streams[]) {
    block *b = &live[test_random_below(LIVE)];
    kn_trace_event e = {.kind = KN_TRACE_FREE};
    if (b->ptr) {
        e.ptr = (uintptr_t)b->ptr;
        assert_ok(kn_free(pools[b->pool], b->ptr));
        b->ptr = NULL;
    } else {
        b->pool = (int)test_random_below(POOLS);
        kn_stream stream = streams[test_random_below(STREAMS)];
        size_t size = 1 + test_random_below(test_random_below(8) ? 5000 : 3 * MiB);
        b->ptr = must_alloc(pools[b->pool], size, stream);
        e = (kn_trace_event){.kind = KN_TRACE_ALLOC, .ptr = (uintptr_t)b->ptr, .size = size};
        e.stream = (uintptr_t)stream;
    }
    e.pool = (uint32_t)b->pool;
    return e;
}

/* The file's allocations and frees are the expected ones. */
static void assert_events(const file *got, kn_trace_event expected[]) {
    size_t n = 0;
    uint32_t number[POOLS] = {0}; /* in the trace */
    for (size_t i = 0; i < got->n; i++) {
        kn_trace_event e = got->events[i].e;
        if (e.kind != KN_TRACE_ALLOC && e.kind != KN_TRACE_FREE) continue;
        assert_true(n < OPS);
        if (e.kind == KN_TRACE_FREE) e.size = 0; /* rounded; another test checks it */
        e.time_ticks = 0;
        uint32_t pool = expected[n].pool;
        if (!number[pool]) number[pool] = e.pool;
        expected[n].pool = number[pool];
        assert_memory_equal(&e, &expected[n], sizeof e);
        n++;
    }
    assert_int_equal(n, OPS);
    assert_true(number[0] != number[1] && number[1] != number[2] && number[2] != number[0]);
    assert_true(got->n_records * sizeof *got->records < 40 * got->n);
}

static void each_event_has_its_own_pool_stream_and_size(void **state) {
    (void)state;
    fixture f = fixture_make(4 * GiB, false, NULL);
    kn_pool *pools[POOLS] = {f.pool};
    kn_stream streams[STREAMS] = {new_stream(&f), new_stream(&f)}; /* the last: the default */
    for (int i = 1; i < POOLS; i++) assert_ok(kn_pool_create(&pools[i], f.device, NULL));
    block live[LIVE] = {{0}};
    kn_trace_event *expected = calloc(OPS, sizeof *expected);
    assert_non_null(expected);
    trace_begin(NULL);
    for (int i = 0; i < OPS; i++) expected[i] = do_random(live, pools, streams);
    file got = trace_end();
    assert_events(&got, expected);
    file_free(&got);
    free(expected);
    for (int i = 0; i < LIVE; i++) {
        if (live[i].ptr) assert_ok(kn_free(pools[live[i].pool], live[i].ptr));
    }
    for (int i = 1; i < POOLS; i++) kn_pool_destroy(pools[i]);
    fixture_end(&f);
}

/* The thread, the pool and the stream are those of the trace before. */
static void a_new_trace_repeats_time_pool_and_stream(void **state) {
    (void)state;
    fixture f = fixture_make(GiB, false, NULL);
    kn_stream stream = new_stream(&f);
    for (int i = 0; i < 3; i++) {
        trace_begin(i == 1 ? f.pool : NULL);
        kn_free(f.pool, must_alloc(f.pool, 512, stream));
        file got = trace_end();
        assert_int_equal(file_count(&got, KN_TRACE_ALLOC), 1);
        const kn_trace_event *e = file_first(&got, KN_TRACE_ALLOC);
        assert_int_equal(e->pool, file_first(&got, KN_TRACE_POOL)->pool);
        assert_int_equal(e->stream, (uintptr_t)stream);
        assert_true(e->time_ticks >= file_clock_ticks(&got, 0) &&
                    e->time_ticks <= file_clock_ticks(&got, 1));
        assert_int_equal(file_first(&got, KN_TRACE_FREE)->pool, e->pool);
        file_free(&got);
    }
    fixture_end(&f);
}

static void each_event_takes_16_bytes_and_has_a_time_of_its_own(void **state) {
    (void)state;
    fixture f = fixture_make(GiB, false, NULL);
    trace_begin(NULL);
    kn_stream stream = new_stream(&f);
    for (int i = 0; i < PAIRS; i++) kn_free(f.pool, must_alloc(f.pool, 512, stream));
    file got = trace_end();
    assert_true(got.n >= 2 * PAIRS);
    assert_true(got.n_records * sizeof *got.records <= 17 * got.n + 4096);
    assert_int_equal(file_count(&got, KN_TRACE_CLOCK), 2);
    uint64_t before = file_clock_ticks(&got, 0), after = file_clock_ticks(&got, 1), n_times = 0;
    for (size_t i = 0; i < got.n; i++) {
        uint64_t ticks = got.events[i].e.time_ticks;
        assert_true(before <= ticks && ticks <= after);
        n_times += ticks > before;
        before = ticks;
    }
    assert_true(n_times >= got.n / 2); /* a coarse clock reads the same twice */
    file_free(&got);
    fixture_end(&f);
}

/* The ring alone, with times of the test's choice. */
static void times_far_apart_are_kept_and_times_never_decrease(void **state) {
    (void)state;
    static kn__ring ring;
    const uint64_t far = UINT32_MAX; /* the most that an event can hold */
    const uint64_t ticks[] = {5, 5 + far, 6 + 2 * far, 7, 1 << 20, (uint64_t)1 << 60};
    enum { N = sizeof ticks / sizeof *ticks };
    kn_trace_thread thread = {0};
    uint64_t latest = 0, n_events = 0;
    memset(&ring, 0, sizeof ring);
    for (size_t i = 0; i < N; i++) {
        kn__ring_put_event(&ring, KN_TRACE_FREE, 0x123456789a00 + i * 256, KN_TRACE_SIZE_MAX - i,
                           ticks[i]);
    }
    assert_int_equal(ring.head, N + 2); /* two are too far from the one before */
    for (size_t i = 0; i < ring.head; i++) {
        kn_trace_event e;
        if (!kn_trace_event_read(&e, &thread, &ring.records[i])) continue;
        if (ticks[n_events] > latest) latest = ticks[n_events];
        assert_int_equal(e.time_ticks, latest);
        assert_int_equal(e.ptr, 0x123456789a00 + n_events * 256);
        assert_int_equal(e.size, KN_TRACE_SIZE_MAX - n_events);
        assert_int_equal(e.kind, KN_TRACE_FREE);
        n_events++;
    }
    assert_int_equal(n_events, N);
}

static void a_size_beyond_48_bits_is_capped_and_changes_no_time(void **state) {
    (void)state;
    fixture f = fixture_make(GiB, false, NULL);
    void *ptr = NULL;
    trace_begin(NULL);
    assert_int_equal(kn_alloc(&ptr, f.pool, SIZE_MAX / 2, NULL), KN_ERR_OOM);
    kn_free(f.pool, must_alloc(f.pool, 512, NULL));
    file got = trace_end();
    assert_int_equal(file_first(&got, KN_TRACE_OOM)->size, KN_TRACE_SIZE_MAX);
    assert_true(file_first(&got, KN_TRACE_OOM)->time_ticks <= file_clock_ticks(&got, 1));
    assert_true(file_first(&got, KN_TRACE_FREE)->time_ticks <= file_clock_ticks(&got, 1));
    file_free(&got);
    fixture_end(&f);
}

/* An observer attached beside the trace. */

static struct {
    int allocs, frees, uses, pools, pools_gone, ooms, calls_begun, calls_ended;
    int64_t reserved, grown;
    int resets;
    uint64_t marks[2];
} heard;
static uint32_t owner_given_back;

static void hear_call(const char *name) {
    (void)name;
    heard.calls_begun++;
}
static void hear_call_end(const char *name) {
    (void)name;
    heard.calls_ended++;
}
static uint32_t hear_alloc(kn_pool *pool, void *ptr, size_t size, kn_stream stream) {
    (void)pool, (void)ptr, (void)size, (void)stream;
    return (uint32_t)++heard.allocs + 40;
}
static void hear_free(kn_pool *pool, void *ptr, size_t size, uint32_t owner) {
    (void)pool, (void)ptr, (void)size;
    heard.frees++;
    owner_given_back = owner;
}
static void hear_use(kn_pool *pool, void *ptr, kn_stream stream) {
    (void)pool, (void)ptr, (void)stream;
    heard.uses++;
}
static void hear_peaks_reset(kn_pool *pool, uint64_t live_bytes_max) {
    (void)pool;
    heard.marks[heard.resets++ % 2] = live_bytes_max;
}
static void hear_reserve(kn_pool *pool, int64_t delta, uint64_t reserved) {
    (void)pool, (void)reserved;
    heard.reserved += delta;
    heard.grown += delta > 0 ? delta : 0;
}
static void hear_oom(kn_pool *pool, size_t wanted) {
    (void)pool, (void)wanted;
    heard.ooms++;
}
static void hear_pool(kn_pool *pool) {
    (void)pool;
    heard.pools++;
}
static void hear_pool_gone(kn_pool *pool) {
    (void)pool;
    heard.pools_gone++;
}
static bool name_owner(uint32_t owner, char *out, size_t out_bytes) {
    snprintf(out, out_bytes, "listener's %u", owner);
    return true;
}
static const kn_observer listener = {.on_call_begin = hear_call,
                                     .on_call_end = hear_call_end,
                                     .on_alloc = hear_alloc,
                                     .on_free = hear_free,
                                     .on_reserve = hear_reserve,
                                     .on_oom = hear_oom,
                                     .on_pool_create = hear_pool,
                                     .on_pool_destroy = hear_pool_gone,
                                     .owner_name = name_owner,
                                     .on_use = hear_use,
                                     .on_peaks_reset = hear_peaks_reset};
static const kn_observer deaf = {.on_alloc = NULL}; /* all its functions are NULL */

/* Causes at least one call of each function of an observer. */
static void do_one_of_each(void) {
    fixture f = fixture_make(64 * MiB, false, NULL);
    void *ptr = must_alloc(f.pool, MiB, NULL), *none = NULL;
    assert_ok(kn_block_use(f.pool, ptr, new_stream(&f)));
    assert_fails(kn_alloc(&none, f.pool, 100 * MiB, NULL), KN_ERR_OOM, "out of memory");
    assert_ok(kn_free(f.pool, ptr));
    kn_pool_peaks_reset(f.pool);
    assert_ok(kn_pool_peaks_push(f.pool));
    fixture_end(&f);
}

static void an_observer_is_called_the_same_with_and_without_a_trace(void **state) {
    (void)state;
    assert_ok(kn_observer_attach(&listener));
    memset(&heard, 0, sizeof heard);
    do_one_of_each();
    int first_calls = heard.calls_begun;
    assert_true(heard.allocs == 1 && heard.frees == 1 && heard.uses == 1 && heard.pools == 1);
    assert_true(heard.pools_gone == 1 && heard.ooms == 1 && heard.reserved == 0);
    assert_true(heard.resets == 2 && heard.marks[0] == MiB && heard.marks[1] == 0);
    int64_t first_grown = heard.grown;
    assert_true(first_grown > 0);
    assert_true(first_calls > 0 && heard.calls_ended == first_calls);

    trace_begin(NULL);
    do_one_of_each();
    file got = trace_end();
    assert_true(heard.allocs == 2 && heard.frees == 2 && heard.uses == 2 && heard.pools == 2);
    assert_true(heard.pools_gone == 2 && heard.ooms == 2 && heard.reserved == 0);
    assert_int_equal(heard.grown, 2 * first_grown);
    assert_true(heard.resets == 4 && heard.marks[0] == MiB && heard.marks[1] == 0);
    assert_true(heard.calls_begun == 2 * first_calls && heard.calls_ended == 2 * first_calls);
    assert_int_equal(file_count(&got, KN_TRACE_ALLOC), 1);
    file_free(&got);
    assert_ok(kn_observer_attach(NULL));

    assert_ok(kn_observer_attach(&deaf));
    trace_begin(NULL);
    do_one_of_each();
    got = trace_end();
    assert_int_equal(file_count(&got, KN_TRACE_OOM), 1);
    file_free(&got);
    assert_ok(kn_observer_attach(NULL));
}

static void an_observer_keeps_its_owners_when_traces_begin_and_end(void **state) {
    (void)state;
    fixture f = fixture_make(GiB, false, NULL);
    assert_ok(kn_observer_attach(&listener));
    memset(&heard, 0, sizeof heard);
    void *before = must_alloc(f.pool, 512, NULL);
    trace_begin(NULL);
    assert_int_equal(heard.pools, 0); /* attach reported them already */
    void *during = must_alloc(f.pool, MiB, NULL);
    assert_ok(kn_free(f.pool, before));
    assert_int_equal(owner_given_back, 41);
    char snapshot[] = "/tmp/knet-trace-snapshot-XXXXXX", text[1 << 16];
    close(mkstemp(snapshot));
    assert_ok(kn_pool_snapshot(f.pool, snapshot));
    FILE *in = fopen(snapshot, "rb");
    text[fread(text, 1, sizeof text - 1, in)] = 0;
    fclose(in);
    unlink(snapshot);
    assert_non_null(strstr(text, "listener's 42"));
    file got = trace_end();
    assert_ok(kn_free(f.pool, during));
    assert_int_equal(owner_given_back, 42);
    file_free(&got);

    trace_begin(NULL);
    assert_ok(kn_observer_attach(NULL));
    kn_free(f.pool, must_alloc(f.pool, 512, NULL));
    assert_int_equal(heard.allocs, 2);
    assert_ok(kn_observer_attach(&listener));
    kn_free(f.pool, must_alloc(f.pool, 512, NULL));
    assert_int_equal(heard.allocs, 3);
    got = trace_end();
    assert_int_equal(file_count(&got, KN_TRACE_ALLOC), 2);
    file_free(&got);
    assert_ok(kn_observer_attach(NULL));
    fixture_end(&f);
}

static void a_flush_completes_the_file_and_the_trace_goes_on(void **state) {
    (void)state;
    fixture f = fixture_make(GiB, false, NULL);
    trace_begin(NULL);
    for (size_t i = 1; i < 4; i++) {
        void *ptr = must_alloc(f.pool, 1000, NULL);
        assert_ok(kn_trace_flush());
        file got = file_read();
        assert_int_equal(got.odd_bytes, 0);
        assert_int_equal(file_count(&got, KN_TRACE_ALLOC), i);
        assert_int_equal(file_count(&got, KN_TRACE_FREE), i - 1);
        assert_int_equal(file_count(&got, KN_TRACE_CLOCK), 1 + i);
        assert_true(got.events[got.n - 1].e.time_ticks <= file_clock_ticks(&got, i));
        file_free(&got);
        assert_ok(kn_free(f.pool, ptr));
    }
    file got = trace_end();
    assert_int_equal(file_count(&got, KN_TRACE_FREE), 3);
    assert_int_equal(file_count(&got, KN_TRACE_POOL), 1);
    file_free(&got);
    assert_fails(kn_trace_flush(), KN_ERR_INVALID, "no trace is running");
    fixture_end(&f);
}

static void wrong_use_and_paths_that_cannot_be_written_are_errors(void **state) {
    (void)state;
    assert_ok(kn_trace_end()); /* no trace is running */
    assert_fails(kn_trace_begin("", NULL), KN_ERR_INVALID, "path is empty");
    assert_fails(kn_trace_begin("/nonexistent/t.kntrace", NULL), KN_ERR_IO,
                 "cannot write /nonexistent/t.kntrace: No such file");
    assert_fails(kn_trace_begin("/dev/full", NULL), KN_ERR_IO, "No space left");
    assert_fails(kn_trace_begin(trace_path, &(kn_trace_options){.reserved = {0, 0, 7}}),
                 KN_ERR_INVALID, "reserved[2]");
    trace_begin(NULL);
    assert_fails(kn_trace_begin("/tmp/another", NULL), KN_ERR_INVALID, "runs already, into /tmp/");
    file got = trace_end(); /* unharmed */
    file_free(&got);
    int free_fd = dup(0); /* the failures left no file open */
    close(free_fd);
    assert_fails(kn_trace_begin("/dev/full", NULL), KN_ERR_IO, "No space left");
    int fd = dup(0);
    close(fd);
    assert_int_equal(fd, free_fd);
}

int main(void) {
    if (!trace_path_make()) return 1;
    int failed = RUN_TESTS(TEST(allocs_and_frees_are_in_order_with_the_bytes_requested),
                           TEST(uses_growth_trims_failures_and_pools_are_events),
                           TEST(a_trace_of_one_pool_has_no_events_of_others),
                           TEST(a_pool_at_a_reused_address_gets_a_new_number),
                           TEST(each_event_has_its_own_pool_stream_and_size),
                           TEST(a_new_trace_repeats_time_pool_and_stream),
                           TEST(each_event_takes_16_bytes_and_has_a_time_of_its_own),
                           TEST(times_far_apart_are_kept_and_times_never_decrease),
                           TEST(a_size_beyond_48_bits_is_capped_and_changes_no_time),
                           TEST(an_observer_is_called_the_same_with_and_without_a_trace),
                           TEST(an_observer_keeps_its_owners_when_traces_begin_and_end),
                           TEST(a_flush_completes_the_file_and_the_trace_goes_on),
                           TEST(wrong_use_and_paths_that_cannot_be_written_are_errors));
    trace_path_remove();
    return failed;
}
