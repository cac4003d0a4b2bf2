/* libknet_torch.so, called as PyTorch calls it, on the fake driver. */
#include "stderr_text.h"
#include "torch_fixture.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

static void blocks_are_allocated_and_freed(void **state) {
    (void)state;
    torch_init(2);
    void *a = must(512, NULL), *b = must(8 * MiB, NULL);
    assert_int_equal((uintptr_t)a % 256, 0);
    assert_int_equal(stats_now().live_bytes, 512 + 8 * MiB);
    assert_true(torch_free(a) && torch_free(b));
    assert_int_equal(stats_now().live_bytes, 0);
    void *none = a;
    assert_int_equal(torch_alloc(&none, 0, 0, NULL), TORCH_OK);
    assert_null(none);
}

static void each_device_has_its_own_pool(void **state) {
    (void)state;
    void *other = NULL;
    assert_int_equal(torch_alloc(&other, 4096, 1, NULL), TORCH_OK);
    assert_ptr_not_equal(torch_pool(0), torch_pool(1));
    assert_int_equal(stats_now().live_bytes, 0);
    assert_true(torch_free(other));
    assert_int_equal(torch_alloc(&other, 4096, 7, NULL), TORCH_ERROR);
    assert_non_null(strstr(torch_what(), "cuda:7"));
    assert_int_equal(torch_alloc(&other, 4096, -1, NULL), TORCH_ERROR);
    assert_null(torch_pool(64));
}

/* PyTorch stores a NULL as a tensor's data: there must be an exception in its place. */
static void out_of_memory_is_an_exception_with_the_reason(void **state) {
    (void)state;
    void *held = must(600 * MiB, NULL), *more = held;
    assert_int_equal(torch_alloc(&more, 600 * MiB, 0, NULL), TORCH_BAD_ALLOC);
    assert_null(more);
    assert_non_null(strstr(torch_what(), "600"));
    assert_true(torch_free(held));
    assert_true(torch_free(must(600 * MiB, NULL)));
    assert_int_equal(torch_alloc(&more, SIZE_MAX - 5, 0, NULL), TORCH_BAD_ALLOC);
}

static void memory_fraction_limits_the_pool(void **state) {
    (void)state;
    void *ptr = NULL;
    assert_int_equal(torch_fraction(0.25, 0), TORCH_OK);
    assert_int_equal(torch_alloc(&ptr, 300 * MiB, 0, NULL), TORCH_BAD_ALLOC);
    assert_true(torch_free(must(200 * MiB, NULL)));
    assert_int_equal(torch_fraction(1e-12, 0), TORCH_OK); /* less than a byte */
    assert_int_equal(torch_alloc(&ptr, 100, 0, NULL), TORCH_BAD_ALLOC);
    assert_int_equal(torch_fraction(0, 0), TORCH_ERROR);
    assert_int_equal(torch_fraction(1.5, 0), TORCH_ERROR);
    assert_int_equal(torch_fraction(1, 0), TORCH_OK);
    assert_true(torch_free(must(300 * MiB, NULL)));
}

/* torch.cuda.empty_cache() also returns what streams used last. */
static void empty_cache_returns_all_free_memory(void **state) {
    (void)state;
    kn_stream s = new_stream(), other = new_stream();
    void *a = must(20 * MiB, s), *b = must(20 * MiB, other);
    assert_int_equal(torch_record_stream(a, other), TORCH_OK);
    assert_true(torch_free(a) && torch_free(b));
    assert_true(stats_now().reserved_bytes >= 40 * MiB);
    assert_int_equal(torch_reset(), TORCH_OK);
    assert_int_equal(stats_now().reserved_bytes, 0);
    drop_stream(s);
    drop_stream(other);
}

static void base_allocation_is_found_from_any_address(void **state) {
    (void)state;
    char *large = must(8 * MiB, NULL), *small = must(3000, NULL);
    size_t size = 0;
    assert_ptr_equal(torch_base(large + 5 * MiB, &size), large);
    assert_int_equal(size, 8 * MiB);
    assert_ptr_equal(torch_base(small + 2999, &size), small);
    assert_true(size >= 3000 && size <= 3500);
    assert_ptr_equal(torch_base(large, NULL), large);
    int mine = 0;
    size = 77;
    assert_ptr_equal(torch_base(&mine, &size), &mine);
    assert_int_equal(size, 77);
    assert_true(torch_free(large) && torch_free(small));
}

/* What the other stream has yet to read stays as it is. */
static void recorded_stream_delays_reuse(void **state) {
    (void)state;
    kn_device *device = kn_pool_device(torch_pool(0));
    kn_stream s = new_stream(), other = new_stream();
    for (int round = 0; round < 2; round++) {
        size_t size = round ? 2000 : 4 * MiB;
        void *x = must(size, s), *copy = must(size, s), *next[8];
        char result = 0;
        assert_ok(kn_device_fill(device, x, 1, size, s));
        fake_cuda_hold(other);
        assert_ok(kn_device_copy(device, copy, device, x, size, other));
        assert_int_equal(torch_record_stream(x, other), TORCH_OK);
        assert_true(torch_free(x));
        for (int i = 0; i < 8; i++) {
            next[i] = must(size, s);
            assert_ok(kn_device_fill(device, next[i], 2, size, s));
        }
        fake_cuda_release(other);
        assert_ok(kn_stream_sync(device, other));
        assert_ok(kn_device_copy(kn_device_host(), &result, device, copy, 1, s));
        assert_int_equal(result, 1);
        for (int i = 0; i < 8; i++) assert_true(torch_free(next[i]));
        assert_true(torch_free(copy));
    }
    int mine;
    assert_int_equal(torch_record_stream(&mine, s), TORCH_OK); /* not ours: as if never called */
    drop_stream(s);
    drop_stream(other);
}

static void recorded_stream_of_another_device_is_waited_for(void **state) {
    (void)state;
    kn_device *second = NULL;
    kn_stream foreign = NULL;
    assert_ok(kn_device_find(&second, "cuda:1"));
    assert_ok(kn_stream_create(&foreign, second));
    char *x = must(4 * MiB, NULL), *y = must(2000, NULL);
    for (int i = 0; i < 2; i++) assert_int_equal(torch_record_stream(x + i, foreign), TORCH_OK);
    uint64_t n = fake_cuda_calls("cuStreamSynchronize");
    assert_true(torch_free(y));
    assert_int_equal(fake_cuda_calls("cuStreamSynchronize"), n);
    assert_true(torch_free(x));
    assert_int_equal(fake_cuda_calls("cuStreamSynchronize"), n + 1);
    assert_int_equal(stats_now().live_bytes, 0);
    assert_true(torch_free(must(4 * MiB, NULL))); /* the use is forgotten */
    assert_int_equal(fake_cuda_calls("cuStreamSynchronize"), n + 1);
    void *lost = must(4 * MiB, NULL);
    assert_int_equal(torch_record_stream(lost, foreign), TORCH_OK);
    fake_cuda_fail("cuStreamSynchronize", 1, 1, 700);
    char text[2048];
    stderr_text on_stderr = stderr_begin();
    assert_true(torch_free(lost));
    stderr_end(text, sizeof text, on_stderr);
    assert_non_null(strstr(text, "knet: error: knet_torch_free: block "));
    assert_int_equal(stats_now().live_bytes, 4 * MiB);
    assert_ok(kn_free(torch_pool(0), lost));
    kn_stream_destroy(second, foreign);
}

/* --- memory of graphs --- */

typedef struct capture {
    kn_stream stream;
    bool begun;
    int n_asked;
} capture;

/* PyTorch's filter says no until the capture has begun, which is after begin_pool. */
static bool is_captured(void *ctx, kn_stream stream) {
    capture *c = ctx;
    c->n_asked++;
    return c->begun && stream == c->stream;
}

static bool inside(const char *ptr, char *const *blocks, int n, size_t size) {
    for (int i = 0; i < n; i++) {
        if (ptr < blocks[i] + size && blocks[i] < ptr + size) return true;
    }
    return false;
}

enum { GRAPH_BLOCKS = 6 };

static void capture_step(char **blocks, size_t size, kn_stream s, capture *c, uint64_t id) {
    void *outside = must(size, s);
    assert_true(torch_free(outside));
    assert_int_equal(torch_begin(0, id, 1, is_captured, c), TORCH_OK);
    assert_true(torch_free(must(size, s))); /* not captured yet */
    c->begun = true;
    fake_cuda_capture((cu_stream)s, true);
    for (int i = 0; i < GRAPH_BLOCKS; i++) blocks[i] = must(size, s);
    for (int i = 0; i < GRAPH_BLOCKS; i++) assert_true(torch_free(blocks[i]));
    void *again = must(size, s); /* the graph reuses its own memory */
    assert_true(inside(again, blocks, GRAPH_BLOCKS, size));
    assert_true(torch_free(again));
    fake_cuda_capture((cu_stream)s, false);
    torch_end(0, id, 1);
    c->begun = false;
}

static void memory_of_a_graph_stays_apart_until_it_is_released(void **state) {
    (void)state;
    kn_stream s = new_stream();
    for (int round = 0; round < 2; round++) {
        size_t size = round ? 3000 : 5 * MiB;
        char *blocks[GRAPH_BLOCKS], *others[40];
        capture c = {.stream = s};
        capture_step(blocks, size, s, &c, (uint64_t)round + 1);
        int asked = c.n_asked;
        for (int i = 0; i < 40; i++) {
            others[i] = must(size, i % 2 ? s : NULL);
            assert_false(inside(others[i], blocks, GRAPH_BLOCKS, size));
        }
        assert_int_equal(c.n_asked, asked); /* no filter is open */
        for (int i = 0; i < 40; i++) assert_true(torch_free(others[i]));
        assert_int_equal(torch_reset(), TORCH_OK);
        assert_true(stats_now().reserved_bytes > 0); /* the graph keeps its memory */
        torch_release(0, (uint64_t)round + 1, 1);
        assert_int_equal(torch_reset(), TORCH_OK);
        assert_int_equal(stats_now().reserved_bytes, 0);
    }
    drop_stream(s);
}

/* Two graphs share a pool: it is free after as many releases as begins. */
static void pool_of_two_graphs_is_released_twice(void **state) {
    (void)state;
    kn_stream s = new_stream();
    char *blocks[GRAPH_BLOCKS];
    capture c = {.stream = s};
    capture_step(blocks, 2 * MiB, s, &c, 9);
    uint64_t reserved = stats_now().reserved_bytes;
    capture_step(blocks, 2 * MiB, s, &c, 9);
    assert_int_equal(stats_now().reserved_bytes, reserved);
    torch_release(0, 9, 1);
    assert_int_equal(torch_reset(), TORCH_OK);
    assert_true(stats_now().reserved_bytes > 0);
    torch_release(0, 9, 1);
    torch_release(0, 9, 1); /* once too often: no effect */
    assert_int_equal(torch_reset(), TORCH_OK);
    assert_int_equal(stats_now().reserved_bytes, 0);
    drop_stream(s);
}

/* A pool that runs out of memory takes that of released graphs, after a wait for the device. */
static void released_memory_serves_a_request_that_would_fail(void **state) {
    (void)state;
    kn_stream s = new_stream();
    char *blocks[GRAPH_BLOCKS];
    capture c = {.stream = s};
    capture_step(blocks, 120 * MiB, s, &c, 3);
    void *ptr = NULL;
    assert_int_equal(torch_alloc(&ptr, 700 * MiB, 0, NULL), TORCH_BAD_ALLOC);
    torch_release(0, 3, 1);
    assert_true(torch_free(must(700 * MiB, NULL)));
    drop_stream(s);
}

/* A tensor that outlives its graph's pool. */
static void live_block_survives_the_release(void **state) {
    (void)state;
    kn_stream s = new_stream();
    capture c = {.stream = s, .begun = true};
    assert_int_equal(torch_begin(0, 4, 0, is_captured, &c), TORCH_OK);
    char *kept = must(3 * MiB, s), *slot = must(700, s), *more[20];
    torch_end(0, 4, 0);
    torch_release(0, 4, 0);
    for (int i = 0; i < 20; i++) {
        more[i] = must(3 * MiB, s);
        assert_false(inside(more[i], &kept, 1, 3 * MiB));
    }
    for (int i = 0; i < 20; i++) assert_true(torch_free(more[i]));
    assert_int_equal(torch_record_stream(kept, NULL), TORCH_OK);
    assert_true(torch_free(kept) && torch_free(slot));
    drop_stream(s);
}

/* --- what runs inside an allocation --- */

static bool yes_always(void *ctx, kn_stream stream) {
    (void)ctx;
    (void)stream;
    return true;
}

/* As another thread of Python does, which holds the lock that the first one waits for. */
static void *use_another_pool(void *ctx) {
    void *ptr = NULL;
    (void)ctx;
    if (torch_begin(0, 8, 0, yes_always, NULL) != TORCH_OK) return NULL;
    if (torch_alloc(&ptr, 3000, 0, NULL) != TORCH_OK || !torch_free(ptr)) return NULL;
    torch_end(0, 8, 0);
    torch_release(0, 8, 0);
    return torch_pool(0); /* not NULL */
}

static bool wait_for_another_thread(void) {
    pthread_t thread;
    void *done = NULL;
    return pthread_create(&thread, NULL, use_another_pool, NULL) == 0 &&
           pthread_join(thread, &done) == 0 && done;
}

typedef struct inner {
    bool inside;
    int n_done;
} inner;

/* Allocates, and waits for a thread that does: a filter, and a callback of the pool. */
static void run_inner(inner *x) {
    void *ptr = NULL;
    if (x->inside) return;
    x->inside = true;
    bool done = torch_alloc(&ptr, 700, 0, NULL) == TORCH_OK && torch_free(ptr);
    x->n_done += done && wait_for_another_thread();
    x->inside = false;
}

static bool busy_filter(void *ctx, kn_stream stream) {
    (void)stream;
    run_inner(ctx);
    return true;
}

static void filter_may_allocate_and_wait_for_a_thread(void **state) {
    (void)state;
    inner x = {0};
    alarm(60); /* not for ever, should one thread wait for another */
    assert_int_equal(torch_begin(0, 6, 0, busy_filter, &x), TORCH_OK);
    assert_true(torch_free(must(2 * MiB, NULL)));
    torch_end(0, 6, 0);
    torch_release(0, 6, 0);
    assert_int_equal(x.n_done, 1);
    alarm(0);
}

static size_t evict(void *ctx, kn_pool *pool, size_t wanted) {
    (void)pool;
    (void)wanted;
    run_inner(ctx);
    torch_end(0, 7, 0);
    torch_release(0, 7, 0); /* also of the pool that the allocation belongs to */
    return 0;
}

static void callback_may_allocate_and_release_pools(void **state) {
    (void)state;
    void *ptr = NULL;
    inner x = {0};
    alarm(60);
    assert_ok(kn_pool_oom_attach(torch_pool(0), evict, &x));
    assert_int_equal(torch_begin(0, 7, 0, yes_always, NULL), TORCH_OK);
    assert_int_equal(torch_alloc(&ptr, 2000 * MiB, 0, NULL), TORCH_BAD_ALLOC);
    assert_int_equal(x.n_done, 1);
    kn_pool_oom_detach(torch_pool(0), evict, &x);
    alarm(0);
}

enum { CHURNERS = 3, CHURN_ROUNDS = 200 };
static atomic_bool churn_ends;

static void *churn(void *ctx) {
    uint64_t n = (uintptr_t)ctx;
    while (!atomic_load(&churn_ends)) {
        void *small = NULL, *large = NULL;
        if (torch_alloc(&small, 100 + n++ % 3000, 0, NULL) != TORCH_OK) return NULL;
        if (torch_alloc(&large, MiB + n % MiB, 0, NULL) != TORCH_OK) return NULL;
        if (!torch_free(small) || !torch_free(large)) return NULL;
    }
    return ctx;
}

/* PyTorch's filter refers to an object that goes once its pool has ended. */
static atomic_bool is_alive;
static atomic_int n_dead_asked;

static bool look_at_object(void *ctx, kn_stream stream) {
    (void)ctx;
    (void)stream;
    sched_yield();
    n_dead_asked += !is_alive;
    return true;
}

static void pools_come_and_go_while_threads_allocate(void **state) {
    (void)state;
    pthread_t threads[CHURNERS];
    atomic_store(&churn_ends, false);
    for (uintptr_t i = 0; i < CHURNERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
    }
    for (int i = 0; i < CHURN_ROUNDS; i++) {
        is_alive = true;
        assert_int_equal(torch_begin(0, 5, 0, look_at_object, NULL), TORCH_OK);
        usleep(100);
        torch_end(0, 5, 0);
        is_alive = false;
        torch_release(0, 5, 0);
    }
    atomic_store(&churn_ends, true);
    for (uintptr_t i = 0; i < CHURNERS; i++) {
        void *done = NULL;
        assert_int_equal(pthread_join(threads[i], &done), 0);
        assert_ptr_equal(done, (void *)(i + 1));
    }
    assert_int_equal(n_dead_asked, 0);
}

/* --- a model of live blocks --- */

enum { MODEL_BLOCKS = 300, MODEL_STEPS = 20000 };
typedef struct model_block {
    char *ptr;
    size_t size;
    int pool; /* 0: none, else the private pool's number */
} model_block;

static bool always(void *ctx, kn_stream stream) {
    (void)stream;
    return *(bool *)ctx;
}

static void model_alloc(model_block *b, kn_stream stream, int pool, const model_block *all) {
    b->size = test_random_below(4) ? 1 + test_random_below(9000) : 1 + test_random_below(3 * MiB);
    b->ptr = must(b->size, stream);
    b->pool = pool;
    kn_block_info info;
    assert_true(kn_block_find(&info, sizeof info, torch_pool(0), b->ptr + b->size / 2));
    assert_ptr_equal(info.ptr, b->ptr);
    assert_int_equal(info.requested_bytes, b->size);
    assert_int_equal(info.graph, pool > 0);
    for (int i = 0; i < MODEL_BLOCKS; i++) {
        const model_block *other = &all[i];
        if (other == b || !other->ptr) continue;
        assert_false(other->ptr < b->ptr + b->size && b->ptr < other->ptr + other->size);
    }
}

/* Random calls of all kinds; no two live blocks overlap. */
static void live_blocks_never_overlap(void **state) {
    (void)state;
    static model_block blocks[MODEL_BLOCKS];
    kn_stream streams[3] = {NULL, new_stream(), new_stream()};
    int open = 0, n_begun[4] = {0};
    bool yes = true;
    for (int step = 0; step < MODEL_STEPS; step++) {
        model_block *b = &blocks[test_random_below(MODEL_BLOCKS)];
        kn_stream stream = streams[test_random_below(3)];
        uint64_t what = test_random_below(1000);
        if (what < 4 && !open) {
            open = 1 + (int)test_random_below(3);
            n_begun[open]++;
            assert_int_equal(torch_begin(0, (uint64_t)open, 5, always, &yes), TORCH_OK);
        } else if (what < 8 && open) {
            torch_end(0, (uint64_t)open, 5);
            open = 0;
        } else if (what < 9 && !open) {
            for (int i = 1; i < 4; i++) {
                for (; n_begun[i]; n_begun[i]--) torch_release(0, (uint64_t)i, 5);
            }
        } else if (what < 10) {
            assert_int_equal(torch_reset(), TORCH_OK);
        } else if (!b->ptr) {
            model_alloc(b, stream, open, blocks);
        } else if (what < 300) {
            assert_int_equal(torch_record_stream(b->ptr, stream), TORCH_OK);
        } else {
            assert_true(torch_free(b->ptr));
            b->ptr = NULL;
        }
    }
    if (open) torch_end(0, (uint64_t)open, 5);
    for (int i = 0; i < MODEL_BLOCKS; i++) {
        if (blocks[i].ptr) assert_true(torch_free(blocks[i].ptr));
        blocks[i].ptr = NULL;
    }
    for (int i = 1; i < 4; i++) {
        for (; n_begun[i]; n_begun[i]--) torch_release(0, (uint64_t)i, 5);
    }
    drop_stream(streams[1]);
    drop_stream(streams[2]);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    torch_load(argv[1]);
    return RUN_TESTS(TORCH_TEST(blocks_are_allocated_and_freed),
                     TORCH_TEST(each_device_has_its_own_pool),
                     TORCH_TEST(out_of_memory_is_an_exception_with_the_reason),
                     TORCH_TEST(memory_fraction_limits_the_pool),
                     TORCH_TEST(empty_cache_returns_all_free_memory),
                     TORCH_TEST(base_allocation_is_found_from_any_address),
                     TORCH_TEST(recorded_stream_delays_reuse),
                     TORCH_TEST(recorded_stream_of_another_device_is_waited_for),
                     TORCH_TEST(memory_of_a_graph_stays_apart_until_it_is_released),
                     TORCH_TEST(pool_of_two_graphs_is_released_twice),
                     TORCH_TEST(released_memory_serves_a_request_that_would_fail),
                     TORCH_TEST(live_block_survives_the_release),
                     TORCH_TEST(filter_may_allocate_and_wait_for_a_thread),
                     TORCH_TEST(callback_may_allocate_and_release_pools),
                     TORCH_TEST(pools_come_and_go_while_threads_allocate),
                     TORCH_TEST(live_blocks_never_overlap));
}
