/* Captured steps: which data is an input's and which lies in tensors made before; versions of what
 * a replay writes; plans that take another's place; records of tensors. */
#include <knet/capture.h>
#include <knet/op.h>
#include <malloc.h>

#include "autograd_test.h"

/* --- inputs that are parts of what the step reads as a whole --- */

static kn_tensor *ramp(void) { return F32(KN_SHAPE(8), 1, 2, 3, 4, 5, 6, 7, 8); }
static kn_tensor *pair_of(kn_tensor *all, int64_t i) {
    return kn_slice(all, KN_SHAPE(i), KN_SHAPE(i + 2));
}

static kn_status less_mean(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    out[0] = kn_sub(in[0], kn_mean(ctx, KN_ALL, false));
    return kn_check();
}
/* Where rows are fused the whole is an operand of the pass. */
static kn_status times_whole(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    kn_tensor *rows = kn_mul(kn_reshape(ctx, KN_SHAPE(4, 2)), kn_affine(in[0], 1, 1));
    out[0] = kn_sum(kn_reshape(kn_exp(kn_affine(rows, 0.01, 0)), KN_SHAPE(8)), KN_ALL, false);
    return kn_check();
}
/* The part that the recorded input is, whatever the input: of the whole, and of a view of it. */
static kn_status plus_first(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    kn_tensor *rows = kn_reshape(ctx, KN_SHAPE(4, 2)), *first = pair_of(ctx, 0);
    kn_tensor *row = kn_reshape(kn_slice(rows, KN_SHAPE(0, 0), KN_SHAPE(1, 2)), KN_SHAPE(2));
    kn_tensor *own = kn_reshape(kn_reshape(in[0], KN_SHAPE(2, 1)), KN_SHAPE(2));
    out[0] = kn_affine(kn_mul(kn_add(own, kn_affine(first, 10, 0)), row), 1, 1);
    return kn_check();
}
/* A result that lies in the whole. */
static kn_status first_of_all(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    (void)in;
    out[0] = pair_of(ctx, 0);
    return kn_check();
}

static void the_whole_is_read_where_it_lies(kn_capture_fn step, int fuse) {
    kn_capture *capture = NULL;
    assert_ok(kn_capture_create(&capture, NULL));
    KN_FRAME(.fuse = fuse);
    kn_tensor *all = ramp();
    for (int i = 0; i < 5; i++) {
        KN_FRAME();
        /* the second is recorded, which is where the whole begins; the last is no part of it */
        kn_tensor *x = i < 4 ? pair_of(all, (i + 3) % 4 * 2) : F32(KN_SHAPE(2), 1, 2), *plain, *y;
        assert_ok(step(&plain, &x, all));
        assert_ok(kn_capture_run(&y, 1, capture, &x, 1, step, all));
        assert_true(kn_tensor_numel(y) == kn_tensor_numel(plain));
        for (int64_t k = 0; k < kn_tensor_numel(y); k++)
            assert_true(ops_at(y, k) == ops_at(plain, k));
    }
    kn_capture_destroy(capture);
}

static void a_part_of_what_is_read_as_a_whole_may_be_an_input(void **state) {
    (void)state;
    the_whole_is_read_where_it_lies(less_mean, KN_OFF);
    the_whole_is_read_where_it_lies(times_whole, KN_OFF);
    the_whole_is_read_where_it_lies(less_mean, 1);
    the_whole_is_read_where_it_lies(times_whole, 1);
}

static void a_fixed_part_stays_where_it_is_also_if_it_was_the_recorded_input(void **state) {
    (void)state;
    the_whole_is_read_where_it_lies(plus_first, KN_OFF);
    the_whole_is_read_where_it_lies(plus_first, 1);
    the_whole_is_read_where_it_lies(first_of_all, KN_OFF);
}

static void a_result_that_views_an_input_is_an_error(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    assert_ok(kn_capture_create(&capture, NULL));
    KN_FRAME();
    kn_tensor *x[] = {kn_full(KN_SHAPE(3), 1), pair_of(ramp(), 2)};
    assert_ok(kn_capture_begin(capture, x, 2));
    kn_tensor *out = kn_slice(kn_reshape(x[1], KN_SHAPE(2, 1)), KN_SHAPE(1, 0), KN_SHAPE(2, 1));
    assert_fails(kn_capture_end(capture, &out, 1), KN_ERR_INVALID,
                 "out[0] is in[1] or a view of it");
    kn_capture_destroy(capture);
}

/* --- versions --- */

static kn_status tenfold(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    (void)ctx;
    out[0] = kn_affine(in[0], 10, 0);
    return kn_check();
}

typedef struct pair {
    kn_params *set;
    kn_capture *capture;
} pair;

static pair pair_open(void) {
    pair p = {NULL, NULL};
    assert_ok(kn_params_create(&p.set, NULL));
    assert_ok(kn_capture_create(&p.capture, NULL));
    return p;
}

static void pair_close(pair *p) {
    kn_capture_destroy(p->capture);
    kn_params_destroy(p->set);
}

static void a_saved_result_that_the_next_replay_overwrites_is_an_error(void **state) {
    (void)state;
    pair p = pair_open();
    KN_FRAME();
    kn_tensor *w = kn_param(p.set, KN_SCALAR, (kn_init){KN_INIT_CONSTANT, 1, 0}, "w"), *y;
    kn_tensor *a = kn_full(KN_SCALAR, 1), *b = kn_full(KN_SCALAR, 7);
    for (int i = 0; i < 3; i++) assert_ok(kn_capture_run(&y, 1, p.capture, &a, 1, tenfold, NULL));
    for (int again = 0; again < 2; again++) {
        KN_TAPE();
        assert_ok(kn_capture_launch(p.capture, &a, 1));
        kn_tensor *loss = kn_mul(w, kn_capture_out(p.capture, 0));
        if (again) {
            assert_ok(kn_capture_launch(p.capture, &b, 1));
            assert_fails(kn_backward(loss), KN_ERR_INVALID, "written after it was saved");
        } else {
            assert_ok(kn_backward(loss));
            assert_values(kn_grad(w), 10);
        }
    }
    pair_close(&p);
}

static void an_input_that_wants_a_gradient_is_an_error(void **state) {
    (void)state;
    pair p = pair_open();
    KN_FRAME();
    kn_tensor *x[] = {kn_full(KN_SCALAR, 3), kn_full(KN_SCALAR, 1)}, *y;
    for (int i = 0; i < 4; i++) {
        {
            KN_TAPE();
            kn_tensor *in[] = {x[0], kn_watch(x[1])};
            assert_fails(kn_capture_run(&y, 1, p.capture, in, 2, tenfold, NULL), KN_ERR_INVALID,
                         "kn_capture_run: in[1] wants a gradient");
            if (i > 1)
                assert_fails(kn_capture_launch(p.capture, in, 2), KN_ERR_INVALID,
                             "kn_capture_launch: in[1] wants a gradient");
            in[1] = kn_detach(in[1]);
            assert_ok(kn_capture_run(&y, 1, p.capture, in, 2, tenfold, NULL));
            assert_values(y, 30);
        }
    }
    pair_close(&p);
}

static kn_status times_param(kn_tensor *out[], kn_tensor *const in[], void *w) {
    out[0] = kn_mul(in[0], w);
    return kn_check();
}

static void an_open_tape_records_no_run_of_a_capture(void **state) {
    (void)state;
    pair p = pair_open();
    KN_FRAME();
    kn_tensor *w = kn_param(p.set, KN_SCALAR, (kn_init){KN_INIT_CONSTANT, 2, 0}, "w");
    kn_tensor *x = kn_full(KN_SCALAR, 3), *y;
    for (int i = 0; i < 4; i++) {
        KN_TAPE();
        assert_ok(kn_capture_run(&y, 1, p.capture, &x, 1, times_param, w));
        assert_values(y, 6);
        assert_false(kn_op_recording(&y, 1));
    }
    pair_close(&p);
}

static void a_replay_that_writes_an_input_is_a_new_version_of_that_input(void **state) {
    (void)state;
    pair p = pair_open();
    KN_FRAME();
    kn_tensor *w = kn_param(p.set, KN_SCALAR, (kn_init){KN_INIT_CONSTANT, 1, 0}, "w");
    kn_tensor *first = kn_full(KN_SCALAR, 1);
    assert_ok(kn_capture_begin(p.capture, &first, 1));
    assert_ok(kn_axpy_into(first, 1, w));
    assert_ok(kn_capture_end(p.capture, NULL, 0));
    for (int reads_first = 0; reads_first < 2; reads_first++) {
        KN_TAPE();
        kn_tensor *a = kn_full(KN_SCALAR, 5), *loss = kn_mul(w, reads_first ? first : a);
        assert_ok(kn_capture_launch(p.capture, &a, 1));
        assert_values(a, 6);
        if (reads_first) {
            assert_ok(kn_backward(loss));
            assert_values(kn_grad(w), 2);
        } else {
            assert_fails(kn_backward(loss), KN_ERR_INVALID, "written after it was saved");
        }
    }
    pair_close(&p);
}

/* --- constants of ops --- */

static kn_status filtered_maxima(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    KN_FRAME(.dtype = *(kn_dtype *)ctx);
    kn_tensor *w = kn_bilinear_filter(KN_SHAPE(1, 1, 3, 3));
    kn_tensor *y = kn_conv(kn_cast(in[0], *(kn_dtype *)ctx), w, KN_NONE, NULL);
    KN_TRY(kn_axpy_into(w, 2, kn_ones(KN_SHAPE(1, 1, 3, 3)))); /* it is the step's */
    kn_tensor *most = kn_adaptive_maxpool(y, KN_SHAPE(1, 3));
    out[0] = kn_keep(kn_add(most, kn_sum(w, KN_ALL, false)));
    return kn_check();
}

static void ops_with_constants_of_their_own_are_captured(void **state) {
    (void)state;
    pair p = pair_open();
    kn_rng *rng = NULL;
    assert_ok(kn_rng_create(&rng, 1));
    for (int i = 0; i < 8; i++) {
        KN_FRAME();
        kn_dtype dtype = i < 4 ? KN_F32 : KN_F64;
        if (i == 4) assert_ok(kn_capture_reset(p.capture));
        kn_tensor *x = kn_normal(KN_SHAPE(1, 1, 23, 64), 0, 1, rng), *plain, *y;
        assert_ok(filtered_maxima(&plain, &x, &dtype));
        assert_ok(kn_capture_run(&y, 1, p.capture, &x, 1, filtered_maxima, &dtype));
        for (int64_t k = 0; k < 3; k++) assert_true(ops_at(plain, k) == ops_at(y, k));
    }
    kn_rng_destroy(rng);
    pair_close(&p);
}

/* --- layouts --- */

static kn_status two_convolutions(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    kn_tensor *const *w = ctx;
    KN_FRAME(.layout = 1);
    const kn_conv_options same = {.padding = {1, 1}};
    kn_tensor *y = kn_relu(kn_conv(in[0], w[0], KN_NONE, &same));
    out[0] = kn_keep(kn_conv(y, w[1], KN_NONE, &same));
    return kn_check();
}

static void the_first_run_has_the_bits_of_replays(void **state) {
    (void)state;
    enum { N = 16 * 16 * 16 };
    float first[N], later[N];
    pair p = pair_open();
    kn_rng *rng = NULL;
    assert_ok(kn_rng_create(&rng, 1));
    KN_FRAME();
    kn_tensor *w[] = {kn_normal(KN_SHAPE(32, 3, 3, 3), 0, 0.2, rng),
                      kn_normal(KN_SHAPE(16, 32, 3, 3), 0, 0.1, rng)};
    kn_tensor *x = kn_normal(KN_SHAPE(1, 3, 16, 16), 0, 1, rng), *y;
    uint64_t n_layouts = kn_layout_calls();
    for (int i = 0; i < 3; i++) {
        assert_ok(kn_capture_run(&y, 1, p.capture, &x, 1, two_convolutions, w));
        assert_ok(kn_copy_out(i ? later : first, sizeof first, y));
        if (i) assert_memory_equal(first, later, sizeof first);
    }
    assert_int_equal(kn_layout_calls(), n_layouts);
    kn_rng_destroy(rng);
    pair_close(&p);
}

/* --- plans --- */

static void a_plan_takes_the_place_of_the_one_for_the_same_inputs(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    kn_capture_stats stats;
    KN_FRAME();
    assert_ok(kn_capture_create(&capture, &(kn_capture_options){.plans_max = 2}));
    kn_tensor *other = F32(KN_SHAPE(3), 1, 2, 3), *x = F32(KN_SHAPE(2), 1, 2), *y;
    for (int by = 1; by < 5; by++) {
        kn_tensor *in = by == 1 ? other : x;
        assert_ok(kn_capture_begin(capture, &in, 1));
        y = kn_affine(in, by, 0);
        assert_ok(kn_capture_end(capture, &y, 1));
    }
    assert_ok(kn_capture_launch(capture, &x, 1));
    assert_values(kn_capture_out(capture, 0), 4, 8);
    kn_capture_stats_read(&stats, sizeof stats, capture);
    assert_int_equal(stats.n_plans, 2);
    assert_ok(kn_capture_launch(capture, &other, 1));
    assert_values(kn_capture_out(capture, 0), 1, 2, 3);
    kn_capture_destroy(capture);
}

static kn_status fails_at_first(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    if (!(*(int *)ctx)++) return KN_FAIL(KN_ERR_IO, "for now");
    out[0] = *(int *)ctx == 2 ? NULL : kn_affine(in[0], 3, 0);
    return kn_check();
}

static void a_step_is_recorded_once_it_ran(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    kn_capture_stats stats;
    int calls = 0;
    KN_FRAME();
    assert_ok(kn_capture_create(&capture, NULL));
    kn_tensor *x = F32(KN_SHAPE(2), 1, 2), *y = x;
    assert_fails(kn_capture_run(&y, 1, capture, &x, 1, fails_at_first, &calls), KN_ERR_IO,
                 "for now");
    assert_fails(kn_capture_run(&y, 1, capture, &x, 1, fails_at_first, &calls), KN_ERR_INVALID,
                 "left out[0] NULL");
    for (int i = 0; i < 4; i++) {
        assert_ok(kn_capture_run(&y, 1, capture, &x, 1, fails_at_first, &calls));
        assert_values(y, 3, 6);
        kn_capture_stats_read(&stats, sizeof stats, capture);
        assert_int_equal(stats.n_recorded, i > 0);
    }
    kn_capture_destroy(capture);
}

static void counts_below_zero_are_refused(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    KN_FRAME();
    assert_ok(kn_capture_create(&capture, NULL));
    kn_tensor *x = F32(KN_SHAPE(2), 1, 2), *y = NULL;
    assert_fails(kn_capture_begin(capture, &x, -1), KN_ERR_INVALID, "n_in is -1");
    for (int i = 0; i < 4; i++) { /* before each kind of run */
        assert_fails(kn_capture_run(&y, -1, capture, &x, 1, tenfold, NULL), KN_ERR_INVALID,
                     "kn_capture_run: n_out is -1");
        assert_fails(kn_capture_run(NULL, 1, capture, &x, 1, tenfold, NULL), KN_ERR_INVALID,
                     "kn_capture_run: out is NULL");
        if (i) assert_ok(kn_capture_run(&y, 1, capture, &x, 1, tenfold, NULL));
    }
    assert_ok(kn_capture_reset(capture));
    assert_ok(kn_capture_begin(capture, &x, 1));
    assert_fails(kn_capture_end(capture, &x, -2), KN_ERR_INVALID, "n_out is -2");
    assert_fails(kn_compute(&x, -1), KN_ERR_INVALID, "kn_compute: n is -1");
    kn_capture_destroy(capture);
}

static kn_status product_and_ones(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    (void)ctx;
    out[0] = kn_matmul(in[0], in[0], NULL);
    out[1] = kn_ones(KN_SHAPE(2));
    return kn_check();
}

/* A frame with other dtypes or another precision has plans of its own. */
static void the_settings_of_a_frame_choose_the_plan(void **state) {
    (void)state;
    static const kn_frame_options settings[] = {
        {.dtype = 0}, {.autocast = KN_BF16}, {.dtype = KN_F64}, {.math = KN_MATH_TF32}};
    enum { N = sizeof settings / sizeof *settings };
    kn_capture *capture = NULL;
    kn_capture_stats stats;
    KN_FRAME();
    assert_ok(kn_capture_create(&capture, NULL));
    kn_tensor *x = F32(KN_SHAPE(2, 2), 1, 2, 3, 4);
    for (int i = 0; i < 4 * N; i++) {
        kn_frame frame = kn_frame_begin(&settings[i % N]);
        kn_tensor *plain[2], *out[2];
        assert_ok(product_and_ones(plain, &x, NULL));
        assert_int_equal(kn_capture_has(capture, &x, 1), i >= 2 * N);
        assert_ok(kn_capture_run(out, 2, capture, &x, 1, product_and_ones, NULL));
        for (int k = 0; k < 2; k++)
            assert_int_equal(kn_tensor_dtype(out[k]), kn_tensor_dtype(plain[k]));
        kn_frame_end(&frame);
    }
    kn_capture_stats_read(&stats, sizeof stats, capture);
    assert_int_equal(stats.n_recorded, N);
    kn_capture_destroy(capture);
}

static kn_status only_ones(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    (void)in;
    (void)ctx;
    out[0] = kn_ones(KN_SHAPE(2));
    return kn_check();
}

static void a_plan_without_inputs_is_for_its_device(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    kn_device *sim = NULL;
    KN_FRAME();
    assert_ok(kn_device_find(&sim, "sim"));
    assert_ok(kn_capture_create(&capture, NULL));
    for (int i = 0; i < 2; i++) {
        kn_tensor *y = NULL;
        assert_ok(kn_capture_run(&y, 1, capture, NULL, 0, only_ones, NULL));
    }
    assert_true(kn_capture_has(capture, NULL, 0));
    {
        KN_FRAME(.device = sim);
        assert_false(kn_capture_has(capture, NULL, 0));
    }
    kn_capture_destroy(capture);
}

static void row_sparse_gradients_are_refused_by_name(void **state) {
    (void)state;
    pair p = pair_open();
    KN_FRAME();
    kn_tensor *w = kn_param(p.set, KN_SHAPE(5, 2), (kn_init){KN_INIT_CONSTANT, 1, 0}, "words");
    assert_ok(kn_param_sparse(w));
    kn_tensor *index = I64(KN_SHAPE(3), 1, 4, 1);
    assert_ok(kn_capture_begin(p.capture, &index, 1));
    {
        KN_TAPE();
        kn_tensor *loss = kn_sum(kn_embedding(w, index), KN_ALL, false);
        assert_fails(kn_backward(loss), KN_ERR_UNSUPPORTED, "the gradient of words is row-sparse");
    }
    pair_close(&p);
}

/* Recorded before a backward has given the gradients their order. */
static kn_status read_gradients(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    (void)in;
    out[0] = kn_sum(kn_grad(kn_params_find(ctx, "a")), KN_ALL, false);
    out[1] = kn_sum(kn_square(kn_params_grad(ctx)), KN_ALL, false);
    return kn_check();
}

/* By handles from before the recording. */
static kn_status read_handles(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    (void)in;
    kn_tensor *const *handle = ctx;
    out[0] = kn_sum(handle[0], KN_ALL, false);
    out[1] = kn_sum(kn_square(handle[1]), KN_ALL, false);
    return kn_check();
}

/* Gradients of a alone, or of both. */
static void step_with(const pair *p, kn_optim *sgd, bool both) {
    kn_tensor *a = kn_params_find(p->set, "a"), *b = kn_params_find(p->set, "b");
    KN_TAPE();
    kn_tensor *loss = both ? kn_add(kn_affine(b, 1, 0), kn_affine(a, 10, 0)) : a;
    assert_ok(kn_backward(kn_sum(loss, KN_ALL, false)));
    assert_ok(kn_optim_step(sgd));
}

static void gradients_stay_where_a_plan_reads_them(void **state) {
    (void)state;
    for (int before = 0; before < 2; before++) {
        pair p = pair_open();
        kn_optim *sgd = NULL;
        KN_FRAME();
        kn_tensor *a = kn_param(p.set, KN_SHAPE(3), (kn_init){KN_INIT_CONSTANT, 1, 0}, "a");
        (void)kn_param(p.set, KN_SHAPE(3), (kn_init){KN_INIT_CONSTANT, 1, 0}, "b");
        assert_ok(kn_sgd_create(&sgd, p.set, 0, NULL));
        kn_tensor *handle[2] = {NULL}, *out[2];
        if (before) handle[0] = kn_grad(a), handle[1] = kn_params_grad(p.set);
        for (int i = 0; i < 6; i++) {
            static const double sums[] = {0, 0, 3, 30, 30, 30},
                                squares[] = {0, 0, 3, 303, 303, 303};
            if (i > 1) step_with(&p, sgd, i > 2);
            assert_ok(before ? kn_capture_run(out, 2, p.capture, NULL, 0, read_handles, handle)
                             : kn_capture_run(out, 2, p.capture, NULL, 0, read_gradients, p.set));
            assert_values(out[0], sums[i]);
            assert_values(out[1], squares[i]);
        }
        kn_optim_destroy(sgd);
        pair_close(&p);
    }
}

/* --- a capture inside another --- */

static kn_status exponential(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    (void)ctx;
    out[0] = kn_exp(in[0]);
    return kn_check();
}
static kn_status twice_inside(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    kn_tensor *y[2] = {NULL};
    for (int i = 0; i < 2; i++) {
        kn_tensor *x = kn_affine(in[0], 0.5, i);
        KN_TRY(kn_capture_run(&y[i], 1, ctx, &x, 1, exponential, NULL));
        y[i] = kn_affine(y[i], 1, 0); /* the second run may overwrite the first one's */
    }
    out[0] = kn_add(y[0], y[1]);
    return kn_check();
}

static void a_step_with_a_captured_part_is_captured(void **state) {
    (void)state;
    kn_capture *part = NULL, *whole = NULL;
    assert_ok(kn_capture_create(&part, NULL));
    assert_ok(kn_capture_create(&whole, NULL));
    for (int i = 0; i < 5; i++) {
        KN_FRAME();
        kn_tensor *x = F32(KN_SHAPE(2), (float)i, 1), *y = NULL;
        assert_ok(kn_capture_run(&y, 1, whole, &x, 1, twice_inside, part));
        kn_tensor *want =
            kn_add(kn_exp(kn_affine(x, 0.5, 0)), kn_exp(kn_affine(kn_affine(x, 0.5, 1), 1, 0)));
        for (int64_t k = 0; k < 2; k++) assert_true(ops_at(y, k) == ops_at(want, k));
        assert_true(kn_capture_has(whole, &x, 1) == (i > 0));
    }
    kn_capture_destroy(whole);
    kn_capture_destroy(part);
}

/* --- records --- */

/* 30,000 tensors more end inside recordings; their records would be 9 MB. */
static void records_of_tensors_that_a_recording_made_are_used_again(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    KN_FRAME();
    assert_ok(kn_capture_create(&capture, NULL));
    size_t before = 0;
    for (int i = 0; i < 400; i++) {
        KN_FRAME();
        kn_tensor *x = kn_zeros(KN_SHAPE(4)), *y = x;
        assert_ok(kn_capture_begin(capture, &x, 1));
        for (int k = 0; k < 100; k++) y = kn_affine(y, 1, 0);
        kn_capture_cancel(capture);
        if (i == 99) before = mallinfo2().uordblks;
    }
    size_t after = mallinfo2().uordblks;
    assert_true(after < before + 1000000);
    kn_capture_destroy(capture);
}

int main(void) {
    return RUN_TESTS(OPS_TEST(a_part_of_what_is_read_as_a_whole_may_be_an_input),
                     OPS_TEST(a_fixed_part_stays_where_it_is_also_if_it_was_the_recorded_input),
                     OPS_TEST(a_result_that_views_an_input_is_an_error),
                     OPS_TEST(a_saved_result_that_the_next_replay_overwrites_is_an_error),
                     OPS_TEST(an_input_that_wants_a_gradient_is_an_error),
                     OPS_TEST(an_open_tape_records_no_run_of_a_capture),
                     OPS_TEST(a_replay_that_writes_an_input_is_a_new_version_of_that_input),
                     OPS_TEST(ops_with_constants_of_their_own_are_captured),
                     OPS_TEST(the_first_run_has_the_bits_of_replays),
                     OPS_TEST(a_plan_takes_the_place_of_the_one_for_the_same_inputs),
                     OPS_TEST(a_step_is_recorded_once_it_ran),
                     OPS_TEST(counts_below_zero_are_refused),
                     OPS_TEST(the_settings_of_a_frame_choose_the_plan),
                     OPS_TEST(a_plan_without_inputs_is_for_its_device),
                     OPS_TEST(row_sparse_gradients_are_refused_by_name),
                     OPS_TEST(gradients_stay_where_a_plan_reads_them),
                     OPS_TEST(a_step_with_a_captured_part_is_captured),
                     OPS_TEST(records_of_tensors_that_a_recording_made_are_used_again));
}
