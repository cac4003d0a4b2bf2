/* Captured random graphs: the bits of plain ones, forward, first and second order, with fusion on
 * and off; inputs change between replays, threads replay at once, allocations fail. The program's
 * own kn_alloc stands before the library's. */
#include <dlfcn.h>
#include <knet/capture.h>
#include <knet/op.h>
#include <pthread.h>
#include <sched.h>

#include "autograd_test.h"
#include "random_graph.h"

enum { ROWS = 24, COLUMNS = 56, OUTS = 1 + 2 * GRAPH_INPUTS };

static _Thread_local int fail_at, n_allocs; /* fail_at 0: never */

KN_API kn_status kn_alloc(void **out, kn_pool *pool, size_t size_bytes, kn_stream stream) {
    typedef kn_status (*alloc_fn)(void **, kn_pool *, size_t, kn_stream);
    static _Atomic(alloc_fn) next;
    alloc_fn fn = next;
    if (!fn) {
        void *symbol = dlsym(RTLD_NEXT, "kn_alloc");
        memcpy(&fn, &symbol, sizeof fn);
        next = fn;
    }
    if (++n_allocs == fail_at) return KN_FAIL(KN_ERR_OOM, "allocation %d fails", n_allocs);
    return fn(out, pool, size_bytes, stream);
}

static const int64_t sizes[GRAPH_INPUTS][2] = {{ROWS, COLUMNS}, {1, COLUMNS}, {ROWS, 1}};

typedef struct step {
    uint64_t seed;
    bool second; /* gradients of gradients, too */
} step;

/* A value, its gradients, and the gradients of their sum. */
static kn_status graph_step(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    const step *s = ctx;
    KN_TAPE();
    kn_tensor *x[GRAPH_INPUTS], *dx[GRAPH_INPUTS], *ddx[GRAPH_INPUTS], *norm = NULL;
    for (int i = 0; i < GRAPH_INPUTS; i++) x[i] = kn_watch(kn_tensor_alias(in[i]));
    kn_tensor *y = random_graph(x, s->seed, false);
    KN_TRY(kn_gradients(dx, y, x, GRAPH_INPUTS,
                        &(kn_gradients_options){.keep = 1, .again = s->second}));
    for (int i = 0; i < GRAPH_INPUTS && s->second; i++) {
        kn_tensor *part = kn_sum(kn_mul(dx[i], kn_tanh(dx[i])), KN_ALL, false);
        norm = norm ? kn_add(norm, part) : part;
    }
    if (s->second)
        KN_TRY(kn_gradients(ddx, norm, x, GRAPH_INPUTS, &(kn_gradients_options){.keep = 1}));
    out[0] = kn_keep(y);
    for (int i = 0; i < GRAPH_INPUTS; i++) {
        out[1 + i] = kn_keep(dx[i]);
        out[1 + GRAPH_INPUTS + i] = s->second ? kn_keep(ddx[i]) : kn_keep(kn_exp(dx[i]));
    }
    return kn_check();
}

typedef struct bits {
    uint32_t x[OUTS][ROWS * COLUMNS];
} bits;

static kn_status bits_read(bits *to, kn_tensor *const out[]) {
    memset(to, 0, sizeof *to);
    for (int i = 0; i < OUTS; i++) KN_TRY(random_graph_bits(to->x[i], out[i]));
    return KN_OK;
}

static kn_status inputs_make(kn_tensor *in[], uint64_t seed) {
    float values[ROWS * COLUMNS];
    for (int i = 0; i < GRAPH_INPUTS; i++) {
        random_graph_values(values, ROWS * COLUMNS, seed + (uint64_t)i);
        in[i] = kn_tensor_from(values, KN_F32, KN_SHAPE(sizes[i][0], sizes[i][1]));
    }
    return kn_check();
}

static kn_status plain_run(bits *to, step *s, uint64_t data) {
    KN_FRAME(.fuse = KN_OFF);
    kn_tensor *in[GRAPH_INPUTS], *out[OUTS];
    KN_TRY(inputs_make(in, data));
    KN_TRY(graph_step(out, in, s));
    return bits_read(to, out);
}

static kn_status captured_run(bits *to, kn_capture *capture, step *s, uint64_t data, int fuse) {
    KN_FRAME(.fuse = fuse);
    kn_tensor *in[GRAPH_INPUTS], *out[OUTS];
    KN_TRY(inputs_make(in, data));
    KN_TRY(kn_capture_run(out, OUTS, capture, in, GRAPH_INPUTS, graph_step, s));
    return bits_read(to, out);
}

/* Runs, records, and replays twice, each time with other data. */
static void same_bits(step *s, int fuse) {
    static bits plain, captured;
    kn_capture *capture = NULL;
    assert_ok(kn_capture_create(&capture, NULL));
    for (uint64_t data = 0; data < 4; data++) {
        assert_ok(plain_run(&plain, s, s->seed + data));
        assert_ok(captured_run(&captured, capture, s, s->seed + data, fuse));
        if (memcmp(&plain, &captured, sizeof plain) != 0) {
            fail_msg("seed %llu, run %d%s", (unsigned long long)s->seed, (int)data,
                     fuse == 1 ? ", fused" : "");
        }
    }
    kn_capture_destroy(capture);
}

static void captured_random_graphs_have_the_bits_of_plain_ones(void **state) {
    (void)state;
    for (int i = 0; i < 40; i++) {
        step s = {test_random(), i % 2};
        same_bits(&s, KN_OFF);
        same_bits(&s, 1);
    }
}

/* The n-th allocation fails while the step is recorded: no plan, no leak, the capture works. */
static void a_failing_allocation_leaves_no_plan(void **state) {
    (void)state;
    static bits plain, captured;
    step s = {test_random(), true};
    kn_capture *capture = NULL;
    assert_ok(kn_capture_create(&capture, NULL));
    assert_ok(plain_run(&plain, &s, 1));
    for (int fuse = KN_OFF; fuse <= 1; fuse += 1 - KN_OFF) {
        kn_status status = KN_ERR_OOM;
        for (int at = 1; status == KN_ERR_OOM; at += 1 + at / 8) {
            assert_ok(kn_capture_reset(capture));
            assert_ok(captured_run(&captured, capture, &s, 1, fuse));
            uint64_t live = ops_live_bytes();
            n_allocs = 0, fail_at = at;
            status = captured_run(&captured, capture, &s, 1, fuse);
            fail_at = 0;
            if (status < 0) assert_int_equal(ops_live_bytes(), live);
        }
        assert_ok(status);
        assert_ok(captured_run(&captured, capture, &s, 1, fuse));
        assert_memory_equal(&plain, &captured, sizeof plain);
    }
    kn_capture_destroy(capture);
}

typedef struct job {
    uint64_t seed;
    bits plain, captured;
    kn_status status;
} job;

static void *on_thread(void *ctx) {
    job *j = ctx;
    step s = {j->seed, true};
    kn_capture *capture = NULL;
    j->status = kn_capture_create(&capture, NULL);
    for (int i = 0; i < 8 && j->status == KN_OK; i++)
        j->status = captured_run(&j->captured, capture, &s, j->seed, i < 4 ? 1 : KN_OFF);
    kn_capture_destroy(capture);
    return NULL;
}

static void threads_record_and_replay_at_once(void **state) {
    (void)state;
    enum { THREADS = 4 };
    static job jobs[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        jobs[i].seed = test_random();
        step s = {jobs[i].seed, true};
        assert_ok(plain_run(&jobs[i].plain, &s, jobs[i].seed));
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, on_thread, &jobs[i]), 0);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_ok(jobs[i].status);
        assert_memory_equal(&jobs[i].plain, &jobs[i].captured, sizeof jobs[i].plain);
    }
}

/* --- tensors of the step that end on another thread --- */

/* So many that headers which that thread ended would go back to malloc. */
enum { HANDED = 6000 };

typedef struct hand_over {
    kn_tensor *t[HANDED];
    _Atomic int n_given, n_ended;
    int n_awaited; /* by the step */
} hand_over;

static void *end_handed(void *ctx) {
    hand_over *h = ctx;
    KN_FRAME();
    for (int i = 0; i < HANDED; i++) {
        while (atomic_load(&h->n_given) <= i) sched_yield();
        kn_tensor_release(h->t[i]);
        kn_drop(kn_ones(KN_SHAPE(3)));
        atomic_store(&h->n_ended, i + 1);
    }
    return NULL;
}

static kn_status hands_over(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    hand_over *h = ctx;
    for (int i = 0; i < HANDED; i++) {
        kn_tensor *y = kn_affine(in[0], 1, i);
        KN_TRY(kn_check());
        if (i % 2) {
            kn_tensor *whole = y;
            y = kn_tensor_alias(y); /* the data outlive the header that made them */
            kn_drop(whole);
        }
        h->t[i] = kn_tensor_retain(y);
        kn_drop(y);
        atomic_store(&h->n_given, i + 1);
    }
    while (atomic_load(&h->n_ended) < h->n_awaited) sched_yield();
    out[0] = kn_affine(in[0], 3, 1);
    return kn_check();
}

static kn_status record_hand_over(kn_capture *capture, kn_tensor *x, int n_awaited) {
    static hand_over h;
    kn_tensor *y[1] = {NULL};
    pthread_t thread;
    h.n_awaited = n_awaited;
    atomic_store(&h.n_given, 0);
    atomic_store(&h.n_ended, 0);
    assert_int_equal(pthread_create(&thread, NULL, end_handed, &h), 0);
    assert_ok(kn_capture_begin(capture, &x, 1));
    assert_ok(hands_over(y, &x, &h));
    kn_status status = kn_capture_end(capture, y, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return status;
}

static void another_thread_may_end_what_the_step_makes(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    KN_FRAME(.fuse = KN_OFF);
    kn_tensor *x = kn_ones(KN_SHAPE(3));
    assert_ok(kn_capture_create(&capture, NULL));
    for (int i = 0; i < 3; i++) {
        assert_ok(kn_capture_reset(capture));
        assert_ok(record_hand_over(capture, x, HANDED));
        assert_ok(kn_capture_launch(capture, &x, 1));
        assert_true(ops_at(kn_capture_out(capture, 0), 2) == 4);
    }
    kn_capture_destroy(capture);
}

/* Whether they end in time is by chance, and the answer is one of two. */
static void what_ends_later_lives_on(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    KN_FRAME(.fuse = KN_OFF);
    kn_tensor *x = kn_ones(KN_SHAPE(3));
    assert_ok(kn_capture_create(&capture, NULL));
    for (int i = 0; i < 3; i++) {
        assert_ok(kn_capture_reset(capture));
        if (record_hand_over(capture, x, 0) == KN_OK) continue;
        assert_non_null(strstr(kn_last_error()->message, "made inside by affine [3]"));
    }
    assert_ok(kn_capture_reset(capture));
    assert_ok(record_hand_over(capture, x, HANDED));
    kn_capture_destroy(capture);
}

/* --- passes of fused rows --- */

enum { N = 5000 };

static kn_status fused_step(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    (void)ctx;
    kn_tensor *y = kn_gelu(kn_affine(kn_mul(in[0], in[0]), 0.5, 0.1));
    out[0] = kn_affine(kn_tanh(y), 2, 0);
    out[1] = kn_sum(kn_exp(kn_neg(kn_abs(in[0]))), KN_SHAPE(1), false);
    return kn_check();
}

/* The chain is one pass, the sum reads another's tiles, and neither takes memory in between. */
static void a_chain_is_one_call_of_the_plan(void **state) {
    (void)state;
    kn_capture_stats stats[2];
    for (int fused = 0; fused < 2; fused++) {
        kn_capture *capture = NULL;
        KN_FRAME(.fuse = fused ? 1 : KN_OFF);
        kn_tensor *x = kn_ones(KN_SHAPE(5, N / 5)), *y[2];
        assert_ok(kn_capture_create(&capture, NULL));
        for (int i = 0; i < 2; i++)
            assert_ok(kn_capture_run(y, 2, capture, &x, 1, fused_step, NULL));
        kn_capture_stats_read(&stats[fused], sizeof stats[fused], capture);
        kn_capture_destroy(capture);
    }
    assert_int_equal(stats[0].n_calls, 9);
    assert_int_equal(stats[1].n_calls, 2);
    assert_in_range(stats[1].plan_bytes, N * sizeof(float), N * sizeof(float) + 1024);
}

static kn_status holds_pending(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    out[0] = kn_exp(in[0]);
    KN_TRY(kn_hold(ctx, kn_affine(in[0], 2, 0)));
    return kn_check();
}

static void a_pending_tensor_that_lives_on_is_named(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    KN_SLOT(kept);
    KN_FRAME(.fuse = 1);
    kn_tensor *x = kn_ones(KN_SHAPE(N)), *y = NULL;
    assert_ok(kn_capture_create(&capture, NULL));
    assert_ok(kn_capture_run(&y, 1, capture, &x, 1, holds_pending, &kept));
    assert_fails(kn_capture_run(&y, 1, capture, &x, 1, holds_pending, &kept), KN_ERR_INVALID,
                 "made inside by affine [5000] (");
    assert_true(ops_at(kept, 3) == 2);
    kn_capture_destroy(capture);
}

int main(void) {
    return RUN_TESTS(OPS_TEST(captured_random_graphs_have_the_bits_of_plain_ones),
                     OPS_TEST(a_failing_allocation_leaves_no_plan),
                     OPS_TEST(threads_record_and_replay_at_once),
                     OPS_TEST(another_thread_may_end_what_the_step_makes),
                     OPS_TEST(what_ends_later_lives_on), OPS_TEST(a_chain_is_one_call_of_the_plan),
                     OPS_TEST(a_pending_tensor_that_lives_on_is_named));
}
