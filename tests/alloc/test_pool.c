/* Blocks of one stream, misuse, counters and a pool's life, on the simulated device. */
#include <cjson/cJSON.h>
#include <knet/observer.h>

#include "pool_fixture.h"

static void sizes_are_served_and_aligned(void **state) {
    (void)state;
    fixture f = fixture_make(4 * GiB, false, NULL);
    for (size_t size = 1; size < 64 * MiB; size = size * 3 / 2 + 1) {
        char *a = must_alloc(f.pool, size, NULL), *b = must_alloc(f.pool, size, NULL);
        assert_int_equal((uintptr_t)a % 256, 0);
        assert_int_equal((uintptr_t)b % 256, 0);
        assert_true(a + size <= b || b + size <= a);
        assert_ok(kn_free(f.pool, a));
        assert_ok(kn_free(f.pool, b));
    }
    fixture_end(&f);
}

static void blocks_have_the_requested_alignment(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        fixture f = fixture_make(4 * GiB, plain, NULL);
        void *ptrs[400];
        int n = 0;
        uint64_t requested = 0;
        for (size_t align = 1; align <= 2 * MiB; align *= 2) {
            static const size_t sizes[] = {1, 300, 5000, 40000, 65536, 65537, 300000, 3000000};
            for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
                assert_ok(kn_alloc_aligned(&ptrs[n], f.pool, sizes[i], align, NULL));
                assert_int_equal((uintptr_t)ptrs[n] % align, 0);
                assert_int_equal((uintptr_t)ptrs[n++] % 256, 0);
                requested += sizes[i];
            }
        }
        assert_int_equal(stats_of(f.pool).requested_bytes, requested);
        assert_ok(kn_pool_check(f.pool));
        while (n) assert_ok(kn_free(f.pool, ptrs[--n]));
        fixture_end(&f);
    }
}

static void invalid_alignment_is_rejected(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    void *ptr = &f;
    assert_fails(kn_alloc_aligned(&ptr, f.pool, 100, 768, NULL), KN_ERR_INVALID, "768");
    assert_null(ptr);
    assert_fails(kn_alloc_aligned(&ptr, f.pool, 100, 0, NULL), KN_ERR_INVALID, "align is 0");
    assert_fails(kn_alloc_aligned(&ptr, f.pool, 100, (size_t)1 << 63, NULL), KN_ERR_OOM, "100");
    assert_ok(kn_alloc_aligned(&ptr, f.pool, 0, 4096, NULL));
    assert_null(ptr);
    fixture_end(&f);
}

/* As a cleanup does where the pool was not created. */
static void without_a_pool_null_can_be_freed(void **state) {
    (void)state;
    int local = 0;
    assert_ok(kn_free(NULL, NULL));
    assert_fails(kn_free(NULL, &local), KN_ERR_INVALID, "kn_free: pool is NULL");
}

static void zero_bytes_are_null(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    void *ptr = &f;
    assert_ok(kn_alloc(&ptr, f.pool, 0, NULL));
    assert_null(ptr);
    assert_ok(kn_free(f.pool, NULL));
    assert_ok(kn_block_use(f.pool, NULL, NULL));
    assert_int_equal(stats_of(f.pool).n_allocs, 0);
    fixture_end(&f);
}

static void rounding_wastes_at_most_an_eighth(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    for (size_t size = 4 * KiB; size < 256 * KiB; size += 1000) {
        void *ptr = must_alloc(f.pool, size, NULL);
        uint64_t live = stats_of(f.pool).live_bytes;
        assert_true(live >= size && (double)live <= 1.125 * (double)size + 256);
        assert_ok(kn_free(f.pool, ptr));
    }
    fixture_end(&f);
}

static void freed_block_is_reused_at_once(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    size_t sizes[] = {100, 5000, 60000, 100000, 9 * MiB};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *a = must_alloc(f.pool, sizes[i], NULL);
        assert_ok(kn_free(f.pool, a));
        void *b = must_alloc(f.pool, sizes[i], NULL);
        assert_ptr_equal(a, b);
        assert_ok(kn_free(f.pool, b));
    }
    fixture_end(&f);
}

static void free_block_merges_with_both_neighbours(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    char *a = must_alloc(f.pool, 1 * MiB, NULL), *b = must_alloc(f.pool, 1 * MiB, NULL);
    char *c = must_alloc(f.pool, 1 * MiB, NULL), *d = must_alloc(f.pool, 1 * MiB, NULL);
    assert_ptr_equal(b, a + 1 * MiB);
    assert_ptr_equal(c, b + 1 * MiB);
    assert_ok(kn_free(f.pool, a));
    assert_ok(kn_free(f.pool, c));
    assert_ok(kn_free(f.pool, b));
    char *all = must_alloc(f.pool, 3 * MiB, NULL);
    assert_ptr_equal(all, a);
    assert_ok(kn_free(f.pool, all));
    assert_ok(kn_free(f.pool, d));
    fixture_end(&f);
}

static void steady_state_calls_the_device_never(void **state) {
    (void)state;
    fixture f = fixture_make(8 * GiB, false, NULL);
    void *live[40] = {NULL};
    uint64_t calls = 0;
    for (int round = 0; round < 20; round++) {
        if (round == 2) calls = kn_sim_calls(f.sim, KN_SIM_ANY);
        for (size_t i = 0; i < 40; i++) live[i] = must_alloc(f.pool, (i * i + 1) * 3001, NULL);
        for (size_t i = 0; i < 40; i++) assert_ok(kn_free(f.pool, live[(i * 7) % 40]));
    }
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_ANY), calls);
    assert_int_equal(stats_of(f.pool).n_events, 0);
    assert_int_equal(stats_of(f.pool).n_syncs, 0);
    fixture_end(&f);
}

static void stats_add_up(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    void *a = must_alloc(f.pool, 100, NULL), *b = must_alloc(f.pool, 300000, NULL);
    kn_pool_stats s = stats_of(f.pool);
    assert_int_equal(s.requested_bytes, 300100);
    assert_int_equal(s.live_bytes, 256 + 586 * 512);
    assert_int_equal(s.live_bytes_max, s.live_bytes);
    assert_int_equal(s.reserved_bytes, 2 * MiB);
    assert_int_equal(s.n_allocs, 2);
    assert_int_equal(s.n_device_allocs, 1);
    assert_ok(kn_free(f.pool, a));
    assert_ok(kn_free(f.pool, b));
    kn_pool_stats after = stats_of(f.pool);
    assert_int_equal(after.live_bytes, 0);
    assert_int_equal(after.requested_bytes, 0);
    assert_int_equal(after.live_bytes_max, s.live_bytes_max);
    assert_int_equal(after.reserved_bytes_max, 2 * MiB);
    fixture_end(&f);
}

/* The high-water mark of one thread is exact though its counters are folded late. */
static void live_maximum_is_exact(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    void *live[100];
    uint64_t model = 0, high = 0;
    size_t n = 0;
    for (int i = 0; i < 20000; i++) {
        bool alloc = n == 0 || (n < 100 && test_random_below(2));
        uint64_t before = stats_of(f.pool).live_bytes;
        if (alloc) {
            live[n++] = must_alloc(f.pool, 1 + test_random_below(100000), NULL);
        } else {
            assert_ok(kn_free(f.pool, live[--n]));
        }
        model = stats_of(f.pool).live_bytes;
        assert_true(alloc ? model > before : model < before);
        if (model > high) high = model;
    }
    assert_int_equal(stats_of(f.pool).live_bytes_max, high);
    while (n) assert_ok(kn_free(f.pool, live[--n]));
    fixture_end(&f);
}

static void stats_of_an_older_layout_are_cut(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    kn_pool_stats s;
    memset(&s, 0x55, sizeof s);
    kn_pool_stats_read(&s, offsetof(kn_pool_stats, reserved_bytes), f.pool);
    assert_int_equal(s.live_bytes, 0);
    assert_int_equal(s.reserved_bytes, 0x5555555555555555u);
    fixture_end(&f);
}

/* Misuse is an error that names it, and changes nothing. */

static int n_logged;
static void count_log(void *ctx, int level, const char *text) {
    (void)ctx, (void)text;
    n_logged += level == 0;
}

static void misuse_is_an_error_and_keeps_the_state(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL), other = fixture_make(1 * GiB, false, NULL);
    kn_log_attach(count_log, NULL);
    n_logged = 0;
    size_t sizes[] = {1000, 3 * MiB};
    int local = 0;
    for (int i = 0; i < 2; i++) {
        char *ptr = must_alloc(f.pool, sizes[i], NULL);
        assert_fails(kn_free(f.pool, ptr + 256), KN_ERR_INVALID, "points into a block");
        assert_fails(kn_free(f.pool, ptr + 1), KN_ERR_INVALID, "points into a block");
        assert_fails(kn_block_use(f.pool, ptr + 256, new_stream(&f)), KN_ERR_INVALID,
                     "points into a block");
        assert_ok(kn_free(f.pool, ptr));
        assert_fails(kn_free(f.pool, ptr), KN_ERR_INVALID, "freed already");
        assert_fails(kn_block_use(f.pool, ptr, new_stream(&f)), KN_ERR_INVALID, "freed already");
    }
    assert_fails(kn_free(f.pool, &local), KN_ERR_INVALID, "another pool's");
    assert_fails(kn_free(f.pool, (void *)(uintptr_t)8), KN_ERR_INVALID, "another pool's");
    assert_fails(kn_free(f.pool, (void *)UINTPTR_MAX), KN_ERR_INVALID, "another pool's");
    kn_log_attach(NULL, NULL);
    assert_int_equal(n_logged, 13);
    assert_int_equal(stats_of(f.pool).n_misuses, 13);
    fixture_end(&f);
    fixture_end(&other);
}

/* What kn_free says of each slot before it is handed out, while it is live and after. */
static void what_was_never_handed_out_was_not_freed(void **state) {
    (void)state;
    enum { N = 20 };
    static const kn_observer none = {0};
    for (int watched = 0; watched < 2; watched++) {
        if (watched) assert_ok(kn_observer_attach(&none));
        fixture f = fixture_make(1 * GiB, false, NULL);
        const char *never = "is no live block of the pool: freed already, never handed out";
        kn_stream s = new_stream(&f);
        char *live[N], *next = NULL;
        int n = 0;
        for (; n < N && (!next || live[n - 1] != next); n++) {
            if (n == 2) next = (live[0] < live[1] ? live[0] : live[1]) + 512;
            for (int i = 0; next && i < 2; i++) {
                assert_fails(kn_free(f.pool, next + i), KN_ERR_INVALID, never);
                assert_fails(kn_block_use(f.pool, next + i, s), KN_ERR_INVALID, never);
            }
            live[n] = must_alloc(f.pool, 500, NULL);
        }
        assert_ptr_equal(live[--n], next);
        assert_fails(kn_free(f.pool, next + 1), KN_ERR_INVALID, "points into a block");
        assert_ok(kn_free(f.pool, next));
        assert_fails(kn_free(f.pool, next), KN_ERR_INVALID, "was freed already");
        while (n) assert_ok(kn_free(f.pool, live[--n]));
        fixture_end(&f);
        assert_ok(kn_observer_attach(NULL));
    }
}

static void sizes_that_are_used_little_cost_little(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    void *blocks[64];
    int n = 0;
    for (size_t size = 1024; size <= 64 * KiB; size += size / 4) {
        blocks[n++] = must_alloc(f.pool, size, NULL);
    }
    kn_pool_stats s = stats_of(f.pool); /* eight of each size, and a page more at most */
    assert_true(s.reserved_bytes <= 8 * s.live_bytes + (uint64_t)n * 64 * KiB + 2 * MiB);
    while (n) assert_ok(kn_free(f.pool, blocks[--n]));
    fixture_end(&f);
}

/* The observer. */

typedef struct seen {
    int n_alloc, n_free, n_oom, n_created, n_destroyed, n_calls;
    int64_t live;
    uint64_t reserved;
    uint32_t owner;
} seen;
static seen saw;

static void saw_begin(const char *name) { saw.n_calls += name != NULL; }
static void saw_end(const char *name) { saw.n_calls -= name != NULL; }
static uint32_t saw_alloc(kn_pool *pool, void *ptr, size_t size_bytes, kn_stream stream) {
    (void)pool, (void)ptr, (void)stream;
    saw.n_alloc++;
    saw.live += (int64_t)size_bytes;
    return saw.owner;
}
static void saw_free(kn_pool *pool, void *ptr, size_t size_bytes, uint32_t owner) {
    (void)pool, (void)ptr;
    assert_int_equal(owner, saw.owner);
    saw.n_free++;
    saw.live -= (int64_t)size_bytes;
}
static void saw_reserve(kn_pool *pool, int64_t delta_bytes, uint64_t reserved_bytes) {
    (void)pool;
    saw.reserved += (uint64_t)delta_bytes;
    assert_int_equal(saw.reserved, reserved_bytes);
}
static void saw_oom(kn_pool *pool, size_t wanted_bytes) {
    (void)pool;
    saw.n_oom += wanted_bytes == GiB;
}
static void saw_create(kn_pool *pool) { saw.n_created += kn_pool_name(pool) != NULL; }
static void saw_destroy(kn_pool *pool) { saw.n_destroyed += kn_pool_name(pool) != NULL; }
static bool saw_name(uint32_t owner, char *out, size_t out_bytes) {
    snprintf(out, out_bytes, "layer\"%u\"", owner);
    return true;
}
static const kn_observer OBSERVER = {saw_begin,   saw_end, saw_alloc,  saw_free,
                                     saw_reserve, saw_oom, saw_create, saw_destroy,
                                     saw_name,    NULL,    NULL};

/* Valid JSON that names the pool, its blocks, their owners and how far the ladder was climbed. */
static void check_snapshot(kn_pool *pool) {
    char path[] = "/tmp/knet_snapshot_XXXXXX", text[20000] = "";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_ok(kn_pool_snapshot(pool, path));
    FILE *file = fdopen(fd, "r");
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    remove(path);
    cJSON *root = cJSON_Parse(text);
    assert_non_null(root);
    assert_string_equal(cJSON_GetObjectItem(root, "pool")->valuestring, "watched");
    const cJSON *rung;
    cJSON_ArrayForEach(rung, cJSON_GetObjectItem(root, "ladder")) {
        const char *name = cJSON_GetObjectItem(rung, "rung")->valuestring;
        if (strcmp(name, "callbacks") != 0) continue;
        assert_int_equal(cJSON_GetObjectItem(rung, "tried")->valueint, 1);
    }
    const cJSON *segment = cJSON_GetArrayItem(cJSON_GetObjectItem(root, "segments"), 0), *block;
    double live = 0;
    cJSON_ArrayForEach(block, cJSON_GetObjectItem(segment, "blocks")) {
        if (strcmp(cJSON_GetObjectItem(block, "state")->valuestring, "live") != 0) continue;
        assert_string_equal(cJSON_GetObjectItem(block, "owner")->valuestring, "layer\"7\"");
        live += cJSON_GetObjectItem(block, "size")->valuedouble;
    }
    assert_true(live == 20.0 * (double)MiB);
    cJSON_Delete(root);
}

static void observer_sees_every_block_and_names_owners(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, &(kn_pool_options){.name = "watched"});
    saw = (seen){.owner = 7};
    assert_ok(kn_observer_attach(&OBSERVER));
    assert_true(saw.n_created >= 1); /* replayed */
    static const kn_observer OTHER = {0};
    assert_fails(kn_observer_attach(&OTHER), KN_ERR_INVALID, "another observer");
    void *small = must_alloc(f.pool, 100, NULL), *big = must_alloc(f.pool, 20 * MiB, NULL);
    void *none = NULL;
    assert_int_equal(saw.n_alloc, 2);
    assert_int_equal(saw.live, stats_of(f.pool).live_bytes);
    assert_int_equal(saw.reserved, stats_of(f.pool).reserved_bytes);
    assert_fails(kn_alloc(&none, f.pool, GiB, NULL), KN_ERR_OOM, "held by layer\"7\" 20.0 MiB");
    assert_int_equal(saw.n_oom, 1);
    assert_int_equal(stats_of(f.pool).n_ooms, 1);
    check_snapshot(f.pool);
    assert_ok(kn_free(f.pool, small));
    assert_ok(kn_free(f.pool, big));
    assert_int_equal(saw.n_free, 2);
    assert_int_equal(saw.live, 0);
    fixture_end(&f);
    assert_int_equal(saw.n_destroyed, 1);
    assert_int_equal(saw.reserved, 0);
    assert_int_equal(saw.n_calls, 0);
    assert_ok(kn_observer_attach(NULL));
}

static void snapshot_to_nowhere_is_an_error(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    assert_fails(kn_pool_snapshot(f.pool, "/nonexistent/x.json"), KN_ERR_IO, "/nonexistent/x.json");
    void *live[64]; /* more text than fits the stream's buffer */
    for (int i = 0; i < 64; i++) live[i] = must_alloc(f.pool, 100 * KiB, NULL);
    assert_fails(kn_pool_snapshot(f.pool, "/dev/full"), KN_ERR_IO, "No space left");
    for (int i = 0; i < 64; i++) assert_ok(kn_free(f.pool, live[i]));
    fixture_end(&f);
}

/* Kept apart so that pools beyond the threads' cache slots are seen to work too. */
static void more_pools_than_threads_cache(void **state) {
    (void)state;
    fixture f = fixture_make(4 * GiB, false, NULL);
    enum { POOLS = 80 };
    kn_pool *pools[POOLS];
    void *small[POOLS], *big[POOLS];
    for (int i = 0; i < POOLS; i++) {
        assert_ok(kn_pool_create(&pools[i], f.device, NULL));
        small[i] = must_alloc(pools[i], 1000, NULL);
        big[i] = must_alloc(pools[i], 100000, NULL);
    }
    for (int i = 0; i < POOLS; i++) {
        assert_ok(kn_free(pools[i], small[i]));
        assert_ok(kn_free(pools[i], big[i]));
        assert_int_equal(stats_of(pools[i]).live_bytes, 0);
        assert_ok(kn_pool_check(pools[i]));
        kn_pool_destroy(pools[i]);
    }
    fixture_end(&f);
}

static void same_trace_gives_same_addresses(void **state) {
    (void)state;
    uint64_t sums[2];
    for (int run = 0; run < 2; run++) {
        fixture f = fixture_make(4 * GiB, false, NULL);
        void *live[64] = {NULL};
        uint64_t x = 1, sum = 0;
        for (int i = 0; i < 5000; i++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            size_t k = x >> 58;
            if (live[k]) assert_ok(kn_free(f.pool, live[k]));
            live[k] = must_alloc(f.pool, (x >> 33) % (2 * MiB) + 1, NULL);
            sum = sum * 31 + (uintptr_t)live[k];
        }
        for (int k = 0; k < 64; k++) assert_ok(kn_free(f.pool, live[k]));
        sums[run] = sum;
        fixture_end(&f);
    }
    assert_int_equal(sums[0], sums[1]);
}

static void destroy_of_null_is_a_no_op(void **state) {
    (void)state;
    kn_pool_destroy(NULL);
}

static void only_pools_of_the_caller_are_destroyed(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_pool *pool = NULL, *own = kn_device_pool(f.device),
            *pinned = kn_device_pinned_pool(f.device);
    assert_ok(kn_pool_create(&pool, f.device, NULL));
    assert_true(own && pinned);
    kn_log_attach(count_log, NULL);
    n_logged = 0;
    kn_pool_destroy(own);
    kn_pool_destroy(pinned);
    assert_int_equal(n_logged, 2);
    kn_pool_destroy(pool);
    assert_int_equal(n_logged, 2);
    kn_pool_destroy(pool); /* once more */
    kn_pool_destroy((kn_pool *)&pool);
    assert_int_equal(n_logged, 4);
    kn_log_attach(NULL, NULL);
    assert_ptr_equal(kn_device_pool(f.device), own);
    assert_ok(kn_free(own, must_alloc(own, 1000, NULL)));
    for (int i = 0; i < 2; i++, kn_sim_drain(f.sim)) assert_ok(kn_pool_trim(own, 0));
    fixture_end(&f);
}

static void no_device_is_an_error(void **state) {
    (void)state;
    kn_pool *pool = NULL;
    assert_fails(kn_pool_create(&pool, NULL, NULL), KN_ERR_INVALID, "the device is NULL");
    assert_null(kn_device_pool(NULL));
    assert_fails(kn_check(), KN_ERR_INVALID, "kn_device_pool: the device is NULL");
    assert_null(kn_device_pinned_pool(NULL));
    assert_fails(kn_check(), KN_ERR_INVALID, "kn_device_pinned_pool: the device is NULL");
}

int main(void) {
    return RUN_TESTS(
        TEST(sizes_are_served_and_aligned), TEST(blocks_have_the_requested_alignment),
        TEST(invalid_alignment_is_rejected), TEST(zero_bytes_are_null),
        TEST(rounding_wastes_at_most_an_eighth), TEST(freed_block_is_reused_at_once),
        TEST(free_block_merges_with_both_neighbours), TEST(steady_state_calls_the_device_never),
        TEST(stats_add_up), TEST(live_maximum_is_exact), TEST(stats_of_an_older_layout_are_cut),
        TEST(without_a_pool_null_can_be_freed), TEST(misuse_is_an_error_and_keeps_the_state),
        TEST(what_was_never_handed_out_was_not_freed), TEST(sizes_that_are_used_little_cost_little),
        TEST(observer_sees_every_block_and_names_owners), TEST(snapshot_to_nowhere_is_an_error),
        TEST(more_pools_than_threads_cache), TEST(same_trace_gives_same_addresses),
        TEST(destroy_of_null_is_a_no_op), TEST(only_pools_of_the_caller_are_destroyed),
        TEST(no_device_is_an_error));
}
