#include <knet/op.h>

#include "autograd_test.h"

/* --- accumulation --- */

static void a_shared_gradient_is_never_added_to_in_place(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3);
    KN_TAPE();
    kn_tensor *x = kn_affine(w, 1, 0);
    /* add hands one buffer to both operands, and x's grows by the product's afterwards */
    kn_tensor *y = kn_add(x, kn_mul(x, x));
    assert_ok(kn_backward(sum_all(y)));
    assert_values(kn_grad(w), 5, 7);
    kn_params_destroy(set);
}

/* z hands its gradient to h and q; then the product, recorded before z, adds to h's. */
static kn_tensor *residual(void *ctx, kn_tensor *const x[]) {
    (void)ctx;
    kn_tensor *h = kn_tanh(x[0]), *q = kn_sigm(x[1]), *m = kn_matmul(h, x[2], NULL),
              *z = kn_add(h, q);
    return kn_add(sum_all(kn_mul(m, m)), sum_all(kn_mul(z, z)));
}

/* The same by views: h's first gradient is a view of what z handed to q. */
static kn_tensor *views(void *ctx, kn_tensor *const x[]) {
    (void)ctx;
    kn_tensor *h = kn_tanh(x[0]), *q = kn_sigm(x[1]), *t = kn_exp(h);
    kn_tensor *z = kn_add(kn_reshape(h, KN_SHAPE(9)), kn_reshape(q, KN_SHAPE(9)));
    return kn_add(sum_all(kn_mul(kn_matmul(t, x[2], NULL), t)), sum_all(kn_mul(z, z)));
}

/* h's second gradient is a view as well, of what the second sum handed to r. */
static kn_tensor *views_twice(void *ctx, kn_tensor *const x[]) {
    (void)ctx;
    kn_tensor *q = kn_reshape(kn_sigm(x[1]), KN_SHAPE(9)),
              *r = kn_reshape(kn_exp(x[2]), KN_SHAPE(9));
    kn_tensor *h = kn_tanh(x[0]), *first = kn_reshape(h, KN_SHAPE(9));
    kn_tensor *a = kn_add(first, r), *b = kn_add(kn_reshape(h, KN_SHAPE(9)), q);
    return kn_add(sum_all(kn_mul(a, a)), sum_all(kn_mul(b, b)));
}

static kn_tensor *aliases(void *ctx, kn_tensor *const x[]) {
    (void)ctx;
    kn_tensor *h = kn_tanh(x[0]), *q = kn_sigm(x[1]), *m = kn_matmul(h, x[2], NULL);
    kn_tensor *z = kn_add(kn_dropout(h, 0, NULL), kn_cast(q, KN_F64));
    return kn_add(sum_all(kn_mul(m, m)), sum_all(kn_mul(z, z)));
}

static void gradients_that_meet_leave_those_they_share_alone(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *x[3];
    for (int i = 0; i < 3; i++) {
        double values[9];
        for (int j = 0; j < 9; j++) values[j] = test_random_uniform(-1, 1);
        x[i] = kn_tensor_from(values, KN_F64, KN_SHAPE(3, 3));
    }
    for (int order = 1; order <= 2; order++) {
        assert_ok(kn_gradcheck(residual, NULL, x, 3, order, 1e-6, 1e-8));
        assert_ok(kn_gradcheck(views, NULL, x, 3, order, 1e-6, 1e-8));
        assert_ok(kn_gradcheck(views_twice, NULL, x, 3, order, 1e-6, 1e-8));
        assert_ok(kn_gradcheck(aliases, NULL, x, 3, order, 1e-6, 1e-8));
    }
}

static void one_value_used_many_times(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3), *v = PARAM(set, KN_SHAPE(2), "v", 1, -1);
    KN_TAPE();
    kn_tensor *x = kn_mul(w, v), *y = kn_add(x, x);
    for (int i = 0; i < 5; i++) y = kn_add(y, x);
    y = kn_add(kn_sub(y, x), kn_add(w, w));
    assert_ok(kn_backward(sum_all(y)));
    assert_values(kn_grad(w), 6 + 2, -6 + 2);
    assert_values(kn_grad(v), 12, 18);
    kn_params_destroy(set);
}

static void a_parameter_used_twice_gets_both_gradients(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2, 2), "w", 1, 2, 3, 4),
              *b = PARAM(set, KN_SHAPE(2), "b", 0, 0);
    KN_TAPE();
    kn_tensor *x = F32(KN_SHAPE(1, 2), 1, 1);
    kn_tensor *y = kn_linear(kn_linear(x, w, b), w, b); /* [3,7] → [17,37] */
    assert_ok(kn_backward(sum_all(y)));
    assert_values(kn_grad(w), 3 + 4, 7 + 4, 3 + 6, 7 + 6);
    assert_values(kn_grad(b), 1 + 4, 1 + 6);
    kn_params_destroy(set);
}

static void broadcast_parameters_get_the_sum(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *scale = PARAM(set, KN_SHAPE(1, 2, 1), "scale", 2, 3);
    kn_tensor *shift = PARAM(set, KN_SHAPE(2), "shift", 0, 0);
    kn_tensor *bias = PARAM(set, KN_SCALAR, "bias", 1);
    KN_TAPE();
    kn_tensor *x = kn_ones(KN_SHAPE(3, 2, 2));
    kn_tensor *y = kn_add(kn_add(kn_mul(x, scale), shift), bias);
    assert_ok(kn_backward(sum_all(y)));
    assert_values(kn_grad(scale), 6, 6);
    assert_values(kn_grad(shift), 6, 6);
    assert_values(kn_grad(bias), 12);
    assert_shape(kn_grad(scale), KN_SHAPE(1, 2, 1));
    kn_params_destroy(set);
}

static void backward_adds_until_a_step_is_taken(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3), *v = PARAM(set, KN_SHAPE(1), "v", 1);
    kn_optim *sgd = NULL;
    assert_ok(kn_sgd_create(&sgd, set, 0, NULL));
    KN_FRAME();
    assert_values(kn_grad(w), 0, 0);
    for (int cycle = 0; cycle < 3; cycle++) {
        for (int i = 1; i <= 3; i++) {
            KN_TAPE();
            assert_ok(kn_backward(sum_all(kn_mul(kn_mul(w, w), v))));
            assert_values(kn_grad(w), 4 * i, 6 * i);
            assert_values(kn_grad(v), 13 * i);
        }
        assert_ok(kn_optim_step(sgd));
        assert_values(kn_grad(w), 12, 18); /* still there to be looked at */
    }
    {
        KN_TAPE();
        assert_ok(kn_backward(sum_all(w)));
    }
    assert_values(kn_grad(w), 1, 1);
    assert_values(kn_grad(v), 0); /* not of an earlier cycle */
    kn_optim_destroy(sgd);
    kn_params_destroy(set);
}

static void frozen_inputs_cost_no_gradient(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(1, 1, 1, 1), "w", 2);
    KN_TAPE();
    kn_tensor *x = kn_ones(KN_SHAPE(1, 1, 2, 2)), *watched = kn_watch(x);
    /* the watched branch leads to no parameter: kn_backward need not walk it */
    kn_tensor *y = kn_mul(kn_conv(x, w, KN_NONE, NULL), kn_exp(watched));
    assert_ok(kn_backward(sum_all(y)));
    assert_close(ops_at(kn_grad(w), 0), 4 * 2.718281828459045, 1e-6, 0);
    kn_params_destroy(set);
}

static void empty_batches_give_zero_gradients(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2, 3), "w", 1, 2, 3, 4, 5, 6);
    kn_tensor *b = PARAM(set, KN_SHAPE(2), "b", 1, 2);
    for (int i = 0; i < 2; i++) {
        KN_TAPE();
        kn_tensor *x = kn_zeros(KN_SHAPE(0, 3));
        assert_ok(kn_backward(sum_all(kn_relu(kn_linear(x, w, b)))));
        assert_values(kn_grad(w), 0, 0, 0, 0, 0, 0);
        assert_values(kn_grad(b), 0, 0);
        kn_tensor *one = kn_ones(KN_SHAPE(2)), *none = kn_zeros(KN_SHAPE(0, 2, 5)), *d = NULL;
        kn_drop(kn_full(KN_SHAPE(2), 7)); /* memory that is used again */
        kn_tensor *y = kn_batchnorm(none, one, one, b, KN_NONE, NULL);
        assert_ok(kn_gradients(&d, sum_all(y), &b, 1, NULL));
        assert_values(d, 0, 0);
    }
    kn_params_destroy(set);
}

static bool recorded;
static kn_status noting_backward(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    (void)call;
    recorded = kn_frame_recording();
    dx[0] = dy;
    return KN_OK;
}
static kn_status same_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    (void)call;
    *y = kn_affine(x[0], 1, 0);
    return kn_check();
}
static kn_status constant_backward(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    (void)dy;
    dx[0] = kn_call_ctx(call);
    return KN_OK;
}
static const kn_rule constant_slope = {
    .name = "constant", .forward = same_forward, .backward = constant_backward};

static const kn_rule noting = {
    .name = "noting", .forward = same_forward, .backward = noting_backward};

static void backward_records_only_for_higher_derivatives(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(1), "w", 2);
    for (int i = 0; i < 3; i++) {
        KN_TAPE();
        kn_tensor *y = kn_apply(&noting, &w, 1, NULL, NULL), *dw = NULL;
        recorded = i < 2;
        if (i == 0)
            assert_ok(kn_backward(y));
        else
            assert_ok(kn_gradients(&dw, y, &w, 1, &(kn_gradients_options){.again = i == 2}));
        assert_int_equal(recorded, i == 2);
    }
    kn_params_destroy(set);
}

/* Neither taken from its frame nor added to. */
static void a_gradient_that_the_caller_owns_stays_the_callers(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3);
    KN_TAPE();
    kn_tensor *slope = F32(KN_SHAPE(2), 5, 7), *x = kn_affine(w, 1, 0);
    kn_tensor *square = kn_mul(x, x), *flat = kn_apply(&constant_slope, &x, 1, slope, NULL);
    assert_ok(kn_backward(sum_all(kn_add(square, flat)))); /* slope is x's first gradient */
    assert_values(kn_grad(w), 4 + 5, 6 + 7);
    assert_values(slope, 5, 7);
    kn_params_destroy(set);
}

/* --- slices --- */

static uint64_t allocations(void) {
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, kn_device_pool(kn_device_host()));
    return stats.n_allocs;
}

/* Adds up the windows of `half` rows (or columns) of a [2·half,2] parameter. Returns the
 * allocations of backward. */
static uint64_t sum_of_windows(kn_tensor *w, int half, bool rows) {
    KN_TAPE();
    kn_tensor *x = rows ? w : kn_transpose(w, KN_ALL), *y = NULL;
    for (int t = 0; t <= half; t++) {
        kn_tensor *window = rows ? kn_slice(x, KN_SHAPE(t, 0), KN_SHAPE(t + half, 2))
                                 : kn_slice(x, KN_SHAPE(0, t), KN_SHAPE(2, t + half));
        y = y ? kn_add(y, window) : window;
    }
    uint64_t before = allocations();
    assert_ok(kn_backward(sum_all(y)));
    uint64_t made = allocations() - before;
    for (int i = 0; i < 2 * half; i++) {
        int first = i < half ? 0 : i - half + 1, last = i < half ? i : half;
        assert_close(ops_at(kn_grad(w), 2 * i), last - first + 1, 0, 0);
        assert_close(ops_at(kn_grad(w), 2 * i + 1), last - first + 1, 0, 0);
    }
    return made;
}

static uint64_t allocations_of_windows(int half, bool rows) {
    kn_params *set = params_f32();
    kn_optim *sgd = NULL;
    kn_tensor *w = kn_param(set, KN_SHAPE(2 * half, 2), (kn_init){KN_INIT_CONSTANT, 1, 0}, "w");
    assert_ok(kn_sgd_create(&sgd, set, 0, NULL));
    sum_of_windows(w, half, rows); /* the arena of gradients is made here */
    {
        KN_FRAME();
        assert_ok(kn_optim_step(sgd));
    }
    uint64_t made = sum_of_windows(w, half, rows);
    kn_optim_destroy(sgd);
    kn_params_destroy(set);
    return made;
}

/* Zeros of x's size for each slice would make backward quadratic in their number. */
static void gradients_of_slices_add_up_in_one_buffer(void **state) {
    (void)state;
    for (int rows = 0; rows < 2; rows++) {
        assert_int_equal(allocations_of_windows(64, rows), allocations_of_windows(3, rows));
    }
}

/* The first gradient of x is shared with z: slices must not add to it. */
static void a_slice_leaves_a_shared_gradient_alone(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *a = PARAM(set, KN_SHAPE(3), "a", 1, 2, 3),
              *b = PARAM(set, KN_SHAPE(3), "b", 4, 5, 6);
    KN_TAPE();
    kn_tensor *x = kn_affine(a, 2, 0), *z = kn_affine(b, 3, 0);
    kn_tensor *first = kn_slice(x, KN_SHAPE(0), KN_SHAPE(2)),
              *last = kn_slice(x, KN_SHAPE(1), KN_SHAPE(3));
    kn_tensor *y = kn_add(x, z); /* backward comes here first and gives both the same gradient */
    assert_ok(kn_backward(kn_add(sum_all(y), kn_add(sum_all(first), sum_all(last)))));
    assert_values(kn_grad(a), 2 * 2, 3 * 2, 2 * 2);
    assert_values(kn_grad(b), 3, 3, 3);
    kn_params_destroy(set);
}

/* A first gradient is moved, a second one added by a kernel of f16. */
static void gradients_of_f16_slices_add_up(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(3), "w", 1, 2, 3);
    for (int twice = 0; twice < 2; twice++) {
        KN_TAPE();
        kn_tensor *x = kn_cast(w, KN_F16);
        kn_tensor *y = kn_cast(kn_slice(x, KN_SHAPE(0), KN_SHAPE(2)), KN_F32);
        if (twice) y = kn_add(y, kn_cast(kn_slice(x, KN_SHAPE(1), KN_SHAPE(3)), KN_F32));
        kn_tensor *loss = sum_all(y);
        assert_ok(kn_backward(loss));
        if (twice)
            assert_values(kn_grad(w), 2, 3, 1);
        else
            assert_values(kn_grad(w), 1, 1, 0);
    }
    kn_params_destroy(set);
}

/* --- sets --- */

static void two_sets_get_their_own(void **state) {
    (void)state;
    kn_params *one = params_f32(), *two = params_f32();
    kn_tensor *w = PARAM(one, KN_SHAPE(2), "w", 2, 3), *v = PARAM(two, KN_SHAPE(2), "w", 5, 7);
    KN_TAPE();
    assert_ok(kn_backward(sum_all(kn_mul(w, v))));
    assert_values(kn_grad(w), 5, 7);
    assert_values(kn_grad(v), 2, 3);
    kn_params_destroy(one);
    kn_params_destroy(two);
}

/* --- memory --- */

static kn_tensor *scaled(kn_tensor *x) { return kn_affine(x, 1.01, 0); }

static uint64_t peak_of(kn_tensor *(*layer)(kn_tensor *), kn_tensor *w, int layers, int64_t n,
                        bool backward, int fuse) {
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, kn_device_host(), NULL));
    kn_pool_stats stats;
    {
        KN_TAPE(.pool = pool, .fuse = fuse);
        kn_tensor *y = kn_mul(kn_ones(KN_SHAPE(n)), w);
        for (int i = 0; i < layers; i++) y = layer(y);
        kn_tensor *loss = sum_all(y);
        if (backward) assert_ok(kn_backward(loss));
    }
    kn_pool_stats_read(&stats, sizeof stats, pool);
    kn_pool_destroy(pool);
    return stats.live_bytes_max;
}

/* Backward frees each value as it passes, so it needs no more than the forward pass left, and two
 * gradients. Fused frames keep fewer values, and need no more than others. */
static void backward_peaks_at_the_live_set(void **state) {
    (void)state;
    enum { N = 1 << 14, LAYERS = 20 };
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SCALAR, "w", 2);
    kn_tensor *(*const layers[])(kn_tensor *) = {scaled, kn_tanh}; /* the second saves its result */
    for (int i = 0; i < 2; i++) {
        uint64_t forward = peak_of(layers[i], w, LAYERS, N, false, KN_OFF);
        assert_true(forward >= LAYERS * N * sizeof(float));
        for (int fuse = KN_OFF; fuse <= 1; fuse++) {
            uint64_t both = peak_of(layers[i], w, LAYERS, N, true, fuse);
            assert_true(both <= forward + 2 * N * sizeof(float) + 8192);
        }
    }
    kn_params_destroy(set);
}

/* Ops that need nothing keep nothing: dropped values go at once. */
static void unneeded_values_are_not_kept(void **state) {
    (void)state;
    enum { N = 1 << 14 };
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SCALAR, "w", 2);
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, kn_device_host(), NULL));
    kn_pool_stats stats;
    {
        KN_TAPE(.pool = pool);
        kn_tensor *y = kn_mul(kn_ones(KN_SHAPE(N)), w);
        for (int i = 0; i < 20; i++) {
            kn_tensor *next = kn_neg(kn_add(y, y));
            kn_drop(y);
            y = next;
            kn_pool_stats_read(&stats, sizeof stats, pool);
            assert_true(stats.live_bytes <= (uint64_t)(i + 4) * N * sizeof(float) + 8192);
        }
    }
    kn_pool_stats_read(&stats, sizeof stats, pool);
    assert_int_equal(stats.live_bytes, 0);
    kn_pool_destroy(pool);
    kn_params_destroy(set);
}

static uint64_t live_of(kn_pool *pool) {
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, pool);
    return stats.live_bytes;
}

/* Of a product with a constant only the constant is saved: y's own gradient is not wanted. */
static void a_product_with_a_constant_keeps_the_constant_alone(void **state) {
    (void)state;
    enum { N = 1 << 14, LAYERS = 8 };
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SCALAR, "w", 2);
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, kn_device_host(), NULL));
    {
        KN_TAPE(.pool = pool);
        kn_tensor *y = kn_mul(kn_ones(KN_SHAPE(N)), w);
        uint64_t before = live_of(pool);
        {
            KN_FRAME();
            for (int i = 0; i < LAYERS; i++) y = kn_mul(kn_full(KN_SHAPE(N), i), y);
            kn_keep(y);
        }
        assert_true(live_of(pool) - before <= (LAYERS + 1) * N * sizeof(float) + 8192);
    }
    kn_pool_destroy(pool);
    kn_params_destroy(set);
}

/* Backward frees the temporaries of a rule as soon as it leaves the node. */
static void temporaries_of_backward_go_with_their_node(void **state) {
    (void)state;
    enum { N = 1 << 14, LAYERS = 20 };
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SCALAR, "w", 2);
    kn_pool *pool = NULL;
    kn_pool_stats stats;
    assert_ok(kn_pool_create(&pool, kn_device_host(), NULL));
    {
        KN_TAPE(.pool = pool);
        kn_tensor *c = kn_ones(KN_SHAPE(N)), *y = kn_mul(c, w);
        for (int i = 0; i < LAYERS; i++) y = kn_maximum(y, c);
        kn_tensor *loss = sum_all(y);
        uint64_t forward = (LAYERS + 2) * N * sizeof(float) + 8192;
        assert_true(live_of(pool) <= forward); /* fused frames keep less */
        assert_ok(kn_backward(loss));
        kn_pool_stats_read(&stats, sizeof stats, pool);
        /* two gradients, and maximum's: comparisons, their shares, the product */
        assert_true(stats.live_bytes_max <= forward + 8 * N * sizeof(float));
    }
    kn_pool_destroy(pool);
    kn_params_destroy(set);
}

/* Backward begins with it: the loss doesn't depend on it. Fused frames never compute such nodes. */
static void nodes_after_the_loss_are_released_first(void **state) {
    (void)state;
    enum { N = 1 << 14, LAYERS = 20 };
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SCALAR, "w", 2);
    kn_pool *pool = NULL;
    kn_pool_stats stats;
    assert_ok(kn_pool_create(&pool, kn_device_host(), NULL));
    {
        KN_TAPE(.pool = pool, .fuse = KN_OFF, .recompute = KN_OFF);
        kn_tensor *y = kn_mul(kn_ones(KN_SHAPE(N)), w), *loss = sum_all(kn_maximum(y, y));
        {
            KN_FRAME();
            for (int i = 0; i < LAYERS; i++) y = kn_tanh(y);
        } /* the tape alone keeps them */
        uint64_t forward = live_of(pool);
        assert_true(forward >= LAYERS * N * sizeof(float));
        assert_ok(kn_backward(loss));
        kn_pool_stats_read(&stats, sizeof stats, pool);
        assert_true(stats.live_bytes_max <= forward + N * sizeof(float));
    }
    kn_pool_destroy(pool);
    kn_params_destroy(set);
}

/* The gradient of the logits that cross_entropy leaves beside its result is the tape's alone. */
static void second_results_go_with_the_tape(void **state) {
    (void)state;
    enum { ROWS = 64, CLASSES = 256 };
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SCALAR, "w", 2);
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, kn_device_host(), NULL));
    {
        KN_TAPE(.pool = pool);
        kn_tensor *x = kn_ones(KN_SHAPE(ROWS, CLASSES)), *labels = kn_argmax(x, KN_SHAPE(1), false);
        uint64_t before = live_of(pool);
        kn_tensor *loss = kn_cross_entropy(kn_mul(x, w), labels);
        assert_true(live_of(pool) - before >= (uint64_t)2 * ROWS * CLASSES * sizeof(float));
        assert_ok(kn_backward(loss));
        assert_true(live_of(pool) - before < 4096);
    }
    kn_pool_destroy(pool);
    kn_params_destroy(set);
}

/* There is memory for the loss, not for the gradient of the logits beside it. */
static void a_failed_call_gives_its_result_back_at_once(void **state) {
    (void)state;
    enum { ROWS = 1 << 10, CLASSES = 1 << 12 }; /* 16 MiB */
    kn_pool *pool = NULL;
    kn_pool_options limit = {.limit_bytes = 24 << 20};
    assert_ok(kn_pool_create(&pool, kn_device_host(), &limit));
    {
        KN_TAPE(.pool = pool);
        kn_tensor *x = kn_watch(kn_ones(KN_SHAPE(ROWS, CLASSES)));
        kn_tensor *labels = kn_argmax(x, KN_SHAPE(1), false);
        uint64_t before = live_of(pool);
        assert_op_fails(kn_cross_entropy(x, labels), KN_ERR_OOM,
                        "no memory for a tensor [1024,4096]");
        assert_int_equal(live_of(pool), before);
    }
    kn_pool_destroy(pool);
}

static void steady_steps_keep_live_bytes_flat(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = kn_param(set, KN_SHAPE(8, 16), kn_init_xavier(), "w");
    kn_tensor *b = kn_param(set, KN_SHAPE(8), (kn_init){0}, "b");
    kn_optim *adam = NULL;
    assert_ok(kn_adam_create(&adam, set, 1e-2, NULL));
    uint64_t live = 0, reserved = 0;
    for (int i = 0; i < 20; i++) {
        {
            KN_TAPE();
            kn_tensor *y = kn_relu(kn_linear(kn_ones(KN_SHAPE(4, 16)), w, b));
            assert_ok(kn_backward(sum_all(kn_mul(y, y))));
            assert_ok(kn_optim_step(adam));
        }
        kn_pool_stats stats;
        kn_pool_stats_read(&stats, sizeof stats, kn_device_pool(kn_device_host()));
        if (i == 2) live = stats.live_bytes, reserved = stats.reserved_bytes;
        if (i > 2) assert_int_equal(stats.live_bytes, live);
        if (i > 2) assert_int_equal(stats.reserved_bytes, reserved);
    }
    kn_optim_destroy(adam);
    kn_params_destroy(set);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(a_shared_gradient_is_never_added_to_in_place),
        OPS_TEST(gradients_that_meet_leave_those_they_share_alone),
        OPS_TEST(one_value_used_many_times), OPS_TEST(a_parameter_used_twice_gets_both_gradients),
        OPS_TEST(broadcast_parameters_get_the_sum), OPS_TEST(backward_adds_until_a_step_is_taken),
        OPS_TEST(frozen_inputs_cost_no_gradient), OPS_TEST(empty_batches_give_zero_gradients),
        OPS_TEST(gradients_of_slices_add_up_in_one_buffer),
        OPS_TEST(backward_records_only_for_higher_derivatives),
        OPS_TEST(a_gradient_that_the_caller_owns_stays_the_callers),
        OPS_TEST(a_slice_leaves_a_shared_gradient_alone), OPS_TEST(gradients_of_f16_slices_add_up),
        OPS_TEST(two_sets_get_their_own), OPS_TEST(backward_peaks_at_the_live_set),
        OPS_TEST(unneeded_values_are_not_kept),
        OPS_TEST(a_product_with_a_constant_keeps_the_constant_alone),
        OPS_TEST(temporaries_of_backward_go_with_their_node),
        OPS_TEST(nodes_after_the_loss_are_released_first),
        OPS_TEST(second_results_go_with_the_tape),
        OPS_TEST(a_failed_call_gives_its_result_back_at_once),
        OPS_TEST(steady_steps_keep_live_bytes_flat));
}
