/* Predictions of frozen models: which of them are replayed, with the bits of plain predictions, and
 * which run as they are.
 *
 * The program's own kn_alloc stands before the library's. */
#include <dlfcn.h>
#include <knet/capture.h>
#include <knet/op.h>
#include <knet/tape.h>
#include <knet/train.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "../ops/ops_test.h"
#include "small_models.h"

enum { BATCH = 12, N_BATCHES = 4, SCORES_MAX = 1 << 16, PLAN_MAX = 32 * 1024 };

static _Thread_local int fail_at, n_allocs; /* fail_at 0: never; allocations from there on fail */

KN_API kn_status kn_alloc(void **out, kn_pool *pool, size_t size_bytes, kn_stream stream) {
    typedef kn_status (*alloc_fn)(void **out, kn_pool *pool, size_t size_bytes, kn_stream stream);
    static _Atomic(alloc_fn) real;
    alloc_fn next = real;
    if (!next) {
        void *symbol = dlsym(RTLD_NEXT, "kn_alloc");
        memcpy(&next, &symbol, sizeof next); /* ISO C has no cast for it */
        real = next;
    }
    n_allocs++;
    if (fail_at && n_allocs >= fail_at)
        return KN_FAIL(KN_ERR_OOM, "scripted failure of allocation %d", n_allocs);
    return next(out, pool, size_bytes, stream);
}

/* --- a model whose predictions are counted: a replay does not call it --- */

static _Atomic int n_runs;
static kn_tensor *(*inner_predict)(void *model, kn_layer *net, const kn_batch *batch);

static kn_tensor *counted(void *model, kn_layer *net, const kn_batch *batch) {
    n_runs++;
    return inner_predict ? inner_predict(model, net, batch) : kn_layer_forward(net, batch->x);
}

typedef struct fixture {
    small_model small;
    kn_params *params;
    kn_model *model;
    kn_loader *loader;
    kn_batch batch;
} fixture;

static void fixture_init(fixture *f) {
    kn_dataset *data = NULL;
    inner_predict = f->small.kind.predict;
    f->small.kind.predict = counted;
    assert_ok(kn_params_create(&f->params, &(kn_params_options){.seed = 1}));
    assert_ok(kn_model_create_kind(&f->model, &f->small.kind, f->params));
    assert_ok(kn_model_data_make(&data, &f->small.kind, BATCH * N_BATCHES, KN_TEST));
    assert_ok(kn_loader_create_from(&f->loader, data,
                                    &(kn_loader_options){.batch = BATCH, .split = KN_TEST}));
    kn_dataset_destroy(data);
}

static void fixture_release(fixture *f) {
    kn_loader_destroy(f->loader);
    kn_model_destroy(f->model);
    kn_params_destroy(f->params);
}

/* The i-th of the small models. False: beyond the last. */
static bool model_at(fixture *f, int i) {
    *f = (fixture){.params = NULL};
    if (!small_model_at(&f->small, i)) return false;
    fixture_init(f);
    return true;
}

typedef struct scores {
    char bytes[SCORES_MAX];
    size_t n;
    int runs;
} scores;

static scores predicted(fixture *f) {
    scores s = {.n = 0};
    int before = n_runs;
    KN_FRAME(.record = KN_OFF);
    assert_true(kn_loader_cycle(f->loader, &f->batch));
    kn_tensor *y = kn_model_predict(f->model, &f->batch);
    if (!y) fail_msg("%s: %s", f->small.kind.name, kn_last_error()->message);
    s.n = (size_t)kn_tensor_numel(y) * kn_dtype_bytes(kn_tensor_dtype(y));
    assert_true(s.n <= SCORES_MAX);
    assert_ok(kn_copy_out(s.bytes, s.n, y));
    s.runs = n_runs - before;
    return s;
}

/* Models whose predictions can't be captured, or would gain nothing: of one call, of blocks of
 * channels where the processor has them, on data that the host reads. */
static bool is_plain(const char *name) {
    static const char *const names[] = {"linear", "softmax", "tagger_chars", "tree_lstm"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

static bool is_large(const char *name) {
    static const char *const names[] = {"lenet", "vgg",      "cifar",    "resnet",
                                        "dcgan", "densenet", "mobilenet"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(names[i], name, strlen(names[i])) == 0) return true;
    return false;
}

static void bits_are_those_of_plain_predictions(void **state) {
    (void)state;
    static fixture f;
    static scores plain[N_BATCHES], s;
    for (int i = 0; model_at(&f, i); i++) {
        const char *name = f.small.kind.name;
        int runs = 0;
        assert_ok(kn_layer_freeze(kn_model_net(f.model)));
        for (int k = 0; k < N_BATCHES; k++) plain[k] = predicted(&f);
        assert_ok(kn_freeze(f.model));
        for (int k = 0; k < 2 * N_BATCHES; k++) {
            s = predicted(&f);
            runs += s.runs;
            assert_int_equal(s.n, plain[k % N_BATCHES].n);
            assert_memory_equal(s.bytes, plain[k % N_BATCHES].bytes, s.n);
        }
        if (is_plain(name) ? runs < 2 * N_BATCHES : !is_large(name) && runs == 2 * N_BATCHES)
            fail_msg("%s: %d of %d predictions ran", name, runs, 2 * N_BATCHES);
        fixture_release(&f);
    }
}

/* --- a small model with all that may change --- */

enum { IN = 4, OUT = 4 };

typedef struct twin {
    double factor;
    bool reads; /* data on the host */
} twin;

static kn_status twin_init(void *model, kn_layer *net) {
    twin *t = model;
    t->factor = 1;
    kn_layer_linear(net, "fc1", IN, 8, &(kn_layer_linear_options){.act = kn_relu});
    kn_layer_dropout(net, "drop", 0.5);
    kn_layer_linear(net, "fc2", 8, OUT, NULL);
    return kn_check();
}

static kn_tensor *twin_predict(void *model, kn_layer *net, const kn_batch *batch) {
    const twin *t = model;
    double sum = 0;
    kn_tensor *y = kn_layer_forward(net, batch->x);
    n_runs++;
    if (t->reads && y && kn_item(&sum, kn_sum(y, KN_ALL, false)) < 0)
        return kn_error_defer(kn_last_error()->status);
    return kn_affine(y, t->factor + sum, 0);
}

typedef struct twins {
    kn_params *params;
    kn_model *frozen, *plain; /* of the same parameters' values */
    kn_params *plain_params;
} twins;

static const kn_model_kind twin_kind = {.name = "twin",
                                        .size_bytes = sizeof(twin),
                                        .init = twin_init,
                                        .predict = twin_predict,
                                        .is_pure = true};

static void twins_init(twins *t) {
    const kn_params_options options = {.seed = 7};
    *t = (twins){.params = NULL};
    assert_ok(kn_params_create(&t->params, &options));
    assert_ok(kn_params_create(&t->plain_params, &options));
    assert_ok(kn_model_create_kind(&t->frozen, &twin_kind, t->params));
    assert_ok(kn_model_create_kind(&t->plain, &twin_kind, t->plain_params));
    assert_ok(kn_freeze(t->frozen));
    n_runs = 0;
}

static void twins_release(twins *t) {
    kn_model_destroy(t->frozen);
    kn_model_destroy(t->plain);
    kn_params_destroy(t->params);
    kn_params_destroy(t->plain_params);
}

static kn_tensor *x_of(int64_t n, int seed) {
    return kn_affine(kn_reshape(kn_linspace(-1, 1, n * IN), KN_SHAPE(n, IN)), 1 + seed, 0.1 * seed);
}

static void assert_same(kn_tensor *a, kn_tensor *b) {
    assert_ok(kn_check());
    assert_int_equal(kn_tensor_numel(a), kn_tensor_numel(b));
    assert_memory_equal(kn_data(a), kn_data(b),
                        (size_t)kn_tensor_numel(a) * kn_dtype_bytes(kn_tensor_dtype(a)));
}

/* Predicts n samples as the plain twin does. Returns whether the frozen one ran. */
static bool twins_agree(const twins *t, int64_t n, int seed) {
    KN_FRAME(.record = KN_OFF);
    kn_tensor *x = x_of(n, seed), *want = kn_model_logits(t->plain, x);
    int before = n_runs;
    kn_tensor *y = kn_model_logits(t->frozen, x);
    bool ran = n_runs > before;
    assert_same(y, want);
    return ran;
}

/* From here on predictions of n samples are replays. */
static void twins_warm(const twins *t, int64_t n) {
    for (int i = 0; i < 2; i++) (void)twins_agree(t, n, i);
    for (int i = 0; i < 3; i++) assert_false(twins_agree(t, n, i));
}

static void each_shape_has_a_plan(void **state) {
    (void)state;
    twins t;
    twins_init(&t);
    for (int64_t n = 1; n <= 4; n++) twins_warm(&t, n);
    for (int64_t n = 1; n <= 4; n++) assert_false(twins_agree(&t, n, 3));
    for (int i = 0; i < 3; i++) /* more shapes than plans */
        for (int64_t n = 1; n <= 7; n++) (void)twins_agree(&t, n, i);
    twins_warm(&t, 2);
    twins_release(&t);
}

static void a_result_that_is_held_stays(void **state) {
    (void)state;
    twins t;
    twins_init(&t);
    twins_warm(&t, 2);
    KN_FRAME(.record = KN_OFF);
    KN_SLOT(held);
    kn_tensor *x = x_of(2, 5), *want = kn_model_logits(t.plain, x);
    {
        KN_FRAME(.record = KN_OFF);
        assert_ok(kn_hold(&held, kn_reshape(kn_model_logits(t.frozen, x), KN_SHAPE(-1))));
    }
    assert_true(twins_agree(&t, 2, 6));
    assert_same(held, want);
    kn_unhold(&held);
    assert_false(twins_agree(&t, 2, 6));
    twins_release(&t);
}

static void a_result_may_be_the_next_input(void **state) {
    (void)state;
    twins t;
    twins_init(&t);
    twins_warm(&t, 2);
    KN_FRAME(.record = KN_OFF);
    kn_tensor *x = x_of(2, 1), *want = x;
    for (int i = 0; i < 4; i++) {
        x = kn_model_logits(t.frozen, x);
        want = kn_model_logits(t.plain, want);
        assert_same(x, want);
    }
    twins_release(&t);
}

static void weights_double(kn_params *params) {
    KN_FRAME(.record = KN_OFF);
    kn_tensor *w = kn_params_at(params, 0, NULL);
    assert_ok(kn_add_into(w, kn_affine(w, 1, 0)));
}

static void replays_read_the_weights_as_they_are(void **state) {
    (void)state;
    twins t;
    kn_ema *ema[2] = {NULL};
    twins_init(&t);
    assert_ok(kn_ema_create(&ema[0], t.params, 0.5));
    assert_ok(kn_ema_create(&ema[1], t.plain_params, 0.5));
    twins_warm(&t, 2);
    weights_double(t.params);
    weights_double(t.plain_params);
    assert_false(twins_agree(&t, 2, 1));
    for (int i = 0; i < 3; i++) { /* the averages have memory of their own */
        assert_ok(kn_ema_swap(ema[0]));
        assert_ok(kn_ema_swap(ema[1]));
        twins_warm(&t, 2);
    }
    kn_ema_destroy(ema[0]);
    kn_ema_destroy(ema[1]);
    twins_release(&t);
}

/* Away and back, they lie elsewhere. */
static void weights_that_moved_are_recorded_again(void **state) {
    (void)state;
    twins t;
    kn_device *sim = NULL;
    if (kn_device_find(&sim, "sim") < 0) skip();
    twins_init(&t);
    twins_warm(&t, 2);
    assert_ok(kn_params_to(t.params, sim));
    assert_ok(kn_params_to(t.params, kn_device_host()));
    weights_double(t.plain_params);
    for (int i = 0; i < kn_params_count(t.params); i++) {
        kn_tensor *w = kn_params_at(t.plain_params, i, NULL);
        size_t n_bytes = (size_t)kn_tensor_numel(w) * sizeof(float);
        assert_ok(kn_copy_into(kn_params_at(t.params, i, NULL), kn_data(w), n_bytes));
    }
    twins_warm(&t, 2);
    twins_release(&t);
}

static void a_changed_model_is_recorded_again(void **state) {
    (void)state;
    twins t;
    twins_init(&t);
    twins_warm(&t, 2);
    ((twin *)kn_model_self(t.frozen))->factor = ((twin *)kn_model_self(t.plain))->factor = 3;
    assert_true(twins_agree(&t, 2, 1));
    twins_warm(&t, 2);
    kn_layer_thaw(kn_model_net(t.frozen));
    assert_true(twins_agree(&t, 2, 1));
    assert_true(twins_agree(&t, 2, 1));
    assert_true(twins_agree(&t, 2, 1));
    assert_ok(kn_freeze(t.frozen));
    twins_warm(&t, 2);
    KN_FRAME(.threads = kn_frame_threads() + 1);
    assert_true(twins_agree(&t, 2, 1));
    twins_release(&t);
}

/* The frame must not end with a plan in its pool. */
static void other_pools_have_no_plans(void **state) {
    (void)state;
    twins t;
    kn_pool *pool = NULL;
    kn_pool_stats stats;
    twins_init(&t);
    assert_ok(kn_pool_create(&pool, kn_device_host(), NULL));
    for (int i = 0; i < 4; i++) {
        KN_FRAME(.pool = pool);
        assert_true(twins_agree(&t, 2, i));
    }
    kn_pool_stats_read(&stats, sizeof stats, pool);
    assert_int_equal(stats.live_bytes, 0);
    kn_pool_destroy(pool);
    twins_release(&t);
}

static void layers_that_train_are_not_replayed(void **state) {
    (void)state;
    twins t;
    twins_init(&t);
    twins_warm(&t, 4);
    kn_layer_mode_set(kn_layer_find(kn_model_net(t.frozen), "drop"), KN_LAYER_TRAIN);
    KN_FRAME(.record = KN_OFF);
    float first[4 * OUT];
    int before = n_runs, n_same = 0;
    for (int i = 0; i < 5; i++) {
        KN_FRAME();
        kn_tensor *y = kn_model_logits(t.frozen, x_of(4, 1));
        assert_ok(kn_check());
        if (i == 0) memcpy(first, kn_data(y), sizeof first);
        n_same += memcmp(kn_data(y), first, sizeof first) == 0;
    }
    assert_int_equal(n_runs - before, 5);
    assert_true(n_same < 5);
    twins_release(&t);
}

static void data_that_the_host_reads_is_read_each_time(void **state) {
    (void)state;
    twins t;
    twins_init(&t);
    ((twin *)kn_model_self(t.frozen))->reads = ((twin *)kn_model_self(t.plain))->reads = true;
    for (int i = 0; i < 5; i++) assert_true(twins_agree(&t, 2, i));
    twins_release(&t);
}

/* --- beside a tape, and inside another capture --- */

static void a_tape_gets_its_gradients(void **state) {
    (void)state;
    twins t;
    twins_init(&t);
    twins_warm(&t, 2);
    KN_TAPE();
    kn_tensor *x = kn_watch(x_of(2, 1)), *dx = NULL;
    kn_tensor *loss = kn_sum(kn_model_logits(t.frozen, x), KN_ALL, false);
    assert_ok(kn_gradients(&dx, loss, &x, 1, NULL));
    double size = 0;
    assert_ok(kn_item(&size, kn_max_abs(dx, KN_ALL, false)));
    assert_true(size > 0);
    twins_release(&t);
}

static kn_status captured_step(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    out[0] = kn_affine(kn_model_logits((const kn_model *)ctx, in[0]), 2, 0);
    return kn_check();
}

static void a_captured_step_holds_the_prediction(void **state) {
    (void)state;
    twins t;
    kn_capture *capture = NULL;
    twins_init(&t);
    assert_ok(kn_capture_create(&capture, NULL));
    for (int i = 0; i < 4; i++) {
        KN_FRAME(.record = KN_OFF);
        kn_tensor *x = x_of(2, i), *y = NULL;
        assert_ok(kn_capture_run(&y, 1, capture, &x, 1, captured_step, t.frozen));
        assert_same(y, kn_affine(kn_model_logits(t.plain, x), 2, 0));
    }
    kn_capture_destroy(capture);
    twins_warm(&t, 2); /* nothing was refused */
    twins_release(&t);
}

static void other_precisions_are_not_replayed(void **state) {
    (void)state;
    twins t;
    twins_init(&t);
    twins_warm(&t, 2);
    for (int i = 0; i < 3; i++) {
        KN_FRAME(.autocast = KN_BF16, .record = KN_OFF);
        assert_true(twins_agree(&t, 2, 1));
    }
    assert_false(twins_agree(&t, 2, 1));
    twins_release(&t);
}

/* --- errors --- */

static void errors_are_those_of_plain_predictions(void **state) {
    (void)state;
    twins t;
    twins_init(&t);
    twins_warm(&t, 2);
    for (int i = 0; i < 3; i++) {
        KN_FRAME(.record = KN_OFF);
        assert_null(kn_model_logits(t.frozen, kn_ones(KN_SHAPE(2, IN + 1))));
        assert_fails(kn_check(), KN_ERR_SHAPE, "fc1");
    }
    assert_null(kn_model_logits(t.frozen, NULL));
    assert_fails(kn_check(), KN_ERR_INVALID, "x is NULL");
    assert_false(twins_agree(&t, 2, 1));
    twins_release(&t);
}

/* Allocation n fails, or all from there on, in four predictions, n = 1, 2, … until none does. Each
 * either succeeds or is out of memory; later ones are right, and nothing leaks. */
static void failing_allocations_leave_the_plain_way(void **state) {
    (void)state;
    bool failed = true;
    for (int n = 1; failed; n++) {
        twins t;
        twins_init(&t);
        failed = false;
        for (int i = 0; i < 4; i++) {
            KN_FRAME(.record = KN_OFF);
            kn_tensor *x = x_of(2, i), *want = kn_model_logits(t.plain, x);
            assert_ok(kn_check());
            if (i == 0) n_allocs = 0;
            fail_at = n;
            kn_tensor *y = kn_model_logits(t.frozen, x);
            failed |= n_allocs >= n;
            fail_at = 0;
            if (y)
                assert_same(y, want);
            else
                assert_fails(kn_check(), KN_ERR_OOM, "scripted");
        }
        for (int i = 0; i < 3; i++) (void)twins_agree(&t, 2, i);
        twins_release(&t);
    }
}

/* --- threads --- */

static void *predict_many(void *ctx) {
    const twins *t = ctx;
    for (int i = 0; i < 1000; i++) (void)twins_agree(t, 1 + i % 3, i % 5);
    return NULL;
}

static void threads_may_predict_at_the_same_time(void **state) {
    (void)state;
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    twins t;
    twins_init(&t);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, predict_many, &t), 0);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
    twins_release(&t);
}

/* --- memory --- */

static uint64_t peak_of_predictions(fixture *f) {
    kn_pool *pool = kn_device_pool(kn_device_host());
    kn_pool_stats stats;
    kn_pool_peaks_reset(pool);
    for (int k = 0; k < 2 * N_BATCHES; k++) (void)predicted(f);
    kn_pool_stats_read(&stats, sizeof stats, pool);
    return stats.live_bytes_max;
}

/* A plan's memory is also there while work space is, which a plain prediction may not need then. */
static void replays_take_hardly_more_memory(void **state) {
    (void)state;
    static fixture f;
    for (int i = 0; model_at(&f, i); i++) {
        assert_ok(kn_layer_freeze(kn_model_net(f.model)));
        uint64_t plain = peak_of_predictions(&f);
        assert_ok(kn_freeze(f.model));
        uint64_t replayed = peak_of_predictions(&f);
        if (replayed > plain + PLAN_MAX)
            fail_msg("%s: %d bytes, plain %d", f.small.kind.name, (int)replayed, (int)plain);
        fixture_release(&f);
    }
}

static uint64_t peak_of_large_ones(const kn_model *model) {
    enum { N = 4096 };
    kn_pool *pool = kn_device_pool(kn_device_host());
    kn_pool_stats stats;
    KN_FRAME(.record = KN_OFF);
    kn_tensor *x = x_of(N, 1);
    kn_pool_peaks_reset(pool);
    for (int i = 0; i < 4; i++) {
        KN_FRAME();
        assert_non_null(kn_model_logits(model, x));
    }
    kn_pool_stats_read(&stats, sizeof stats, pool);
    return stats.live_bytes_max;
}

static void large_results_are_not_tried(void **state) {
    (void)state;
    twins t;
    twins_init(&t);
    assert_int_equal(peak_of_large_ones(t.frozen), peak_of_large_ones(t.plain));
    twins_release(&t);
}

static double elsewhere; /* what a prediction may read beside its arguments */

static kn_tensor *impure_predict(void *model, kn_layer *net, const kn_batch *batch) {
    kn_tensor *y = twin_predict(model, net, batch);
    return kn_affine(y, elsewhere, 0);
}

static void kinds_are_not_replayed_unless_they_say_so(void **state) {
    (void)state;
    kn_model_kind kind = twin_kind;
    kn_model *model;
    kn_params *params;
    double first = 0, value = 0;
    kind.predict = impure_predict;
    kind.is_pure = false;
    assert_ok(kn_params_create(&params, &(kn_params_options){.seed = 7}));
    assert_ok(kn_model_create_kind(&model, &kind, params));
    assert_ok(kn_freeze(model));
    for (int i = 1; i <= 4; i++) {
        KN_FRAME(.record = KN_OFF);
        elsewhere = i;
        kn_tensor *y = kn_model_logits(model, x_of(2, 1));
        assert_ok(kn_item(&value, kn_sum(y, KN_ALL, false)));
        if (i == 1) first = value;
        assert_true(first != 0 && fabs(value - i * first) < 1e-5 * fabs(first));
    }
    kn_model_destroy(model);
    kn_params_destroy(params);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(bits_are_those_of_plain_predictions), OPS_TEST(each_shape_has_a_plan),
        OPS_TEST(a_result_that_is_held_stays), OPS_TEST(a_result_may_be_the_next_input),
        OPS_TEST(replays_read_the_weights_as_they_are),
        OPS_TEST(weights_that_moved_are_recorded_again),
        OPS_TEST(a_changed_model_is_recorded_again), OPS_TEST(other_pools_have_no_plans),
        OPS_TEST(layers_that_train_are_not_replayed),
        OPS_TEST(data_that_the_host_reads_is_read_each_time), OPS_TEST(a_tape_gets_its_gradients),
        OPS_TEST(a_captured_step_holds_the_prediction), OPS_TEST(other_precisions_are_not_replayed),
        OPS_TEST(errors_are_those_of_plain_predictions),
        OPS_TEST(failing_allocations_leave_the_plain_way),
        OPS_TEST(threads_may_predict_at_the_same_time), OPS_TEST(replays_take_hardly_more_memory),
        OPS_TEST(large_results_are_not_tried), OPS_TEST(kinds_are_not_replayed_unless_they_say_so));
}
