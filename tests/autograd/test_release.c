/* What backward frees within a node: results before a rule that doesn't read them, saved values
 * before the gradients that no longer read them, and the incoming gradient, written over. */
#include <knet/capture.h>

#include "autograd_test.h"

enum { MIB = 1 << 20 };

static uint64_t live_of(kn_pool *pool, uint64_t *most) {
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, pool);
    *most = stats.live_bytes_max;
    return stats.live_bytes;
}

typedef struct fixture {
    kn_params *set;
    kn_pool *pool;
} fixture;

static fixture open_fixture(void) {
    fixture f = {.set = params_f32()};
    assert_ok(kn_pool_create(&f.pool, kn_device_host(), NULL));
    return f;
}

static void close_fixture(fixture *f) {
    kn_params_destroy(f->set);
    kn_pool_destroy(f->pool);
}

/* The bytes of kn_backward beyond what lived before it. Gradients of parameters have their place
 * already. */
static uint64_t backward_takes(const fixture *f, kn_tensor *loss) {
    uint64_t most, before = live_of(f->pool, &most);
    kn_pool_peaks_reset(f->pool);
    assert_ok(kn_backward(loss));
    live_of(f->pool, &most);
    return most - before;
}

/* x [4,64,32] to 1024 and back: h and gelu(h) are 1 MiB each. Where the last layer has its weight's
 * gradient, its input goes; the input's gradient takes that room, and gelu's is written over it: no
 * MiB is added, but the work space of products, which is half a MiB with AVX2. */
static void a_layers_input_goes_before_its_gradient_comes(void **state) {
    (void)state;
    fixture f = open_fixture();
    kn_tensor *w1 = kn_param(f.set, KN_SHAPE(1024, 32), kn_init_uniform(-1, 1), "w1");
    kn_tensor *w2 = kn_param(f.set, KN_SHAPE(32, 1024), kn_init_uniform(-1, 1), "w2");
    assert_non_null(kn_params_grad(f.set));
    {
        KN_TAPE(.pool = f.pool, .threads = 1);
        kn_tensor *h = kn_linear(kn_ones(KN_SHAPE(4, 64, 32)), w1, KN_NONE);
        kn_tensor *loss = sum_all(kn_linear(kn_gelu(h), w2, KN_NONE));
        assert_true(backward_takes(&f, loss) < MIB);
    }
    { /* the same with a residual */
        KN_TAPE(.pool = f.pool, .threads = 1);
        kn_tensor *x = kn_ones(KN_SHAPE(4, 64, 32)), *h = kn_linear(x, w1, KN_NONE);
        kn_tensor *loss = sum_all(kn_linear_add(kn_gelu(h), w2, KN_NONE, x, KN_ACT_NONE));
        assert_true(backward_takes(&f, loss) < MIB);
    }
    close_fixture(&f);
}

/* Of 1 MiB each; activations that read it do. */
static void layers_without_an_activation_keep_no_result(void **state) {
    (void)state;
    fixture f = open_fixture();
    kn_tensor *w = kn_param(f.set, KN_SHAPE(8, 8), kn_init_uniform(-1, 1), "w");
    uint64_t most;
    for (int act = KN_ACT_NONE; act <= KN_ACT_RELU; act++)
        for (int conv = 0; conv < 2; conv++) {
            KN_TAPE(.pool = f.pool, .threads = 1);
            kn_tensor *x = kn_ones(conv ? KN_SHAPE(64, 8, 8, 64) : KN_SHAPE(32768, 8));
            kn_tensor *filter = kn_reshape(w, KN_SHAPE(8, 8, 1, 1)), *loss;
            uint64_t before = live_of(f.pool, &most);
            {
                KN_FRAME();
                const kn_conv_options o = {.act = (kn_act)act};
                kn_tensor *y = conv ? kn_conv_add(x, filter, KN_NONE, x, &o)
                                    : kn_linear_add(x, w, KN_NONE, x, o.act);
                loss = kn_keep(sum_all(y));
            }
            assert_int_equal((live_of(f.pool, &most) - before) / MIB, act == KN_ACT_RELU);
            assert_ok(kn_backward(loss));
        }
    close_fixture(&f);
}

/* x [64,8,64,64], conv, relu, conv, maxpool */
static kn_tensor *block(void *ctx, kn_tensor *const x[]) {
    kn_tensor **w = ctx;
    const kn_conv_options act = {.padding = {1, 1}, .act = KN_ACT_RELU}, same = {.padding = {1, 1}};
    kn_tensor *y = kn_conv(kn_conv(x[0], w[0], KN_NONE, &act), w[1], KN_NONE, &same);
    return kn_maxpool(y, KN_SHAPE(2, 2), NULL);
}

/* A map is 8 MiB. The second run makes two of them and a quarter; then there are relu's result and
 * one gradient, which the convolution's gradient of its input is written over. */
static void a_gradient_of_images_is_written_over_the_last(void **state) {
    (void)state;
    fixture f = open_fixture();
    kn_tensor *w[2];
    for (int i = 0; i < 2; i++)
        w[i] = kn_param(f.set, KN_SHAPE(8, 8, 3, 3), kn_init_uniform(-1, 1), "w%d", i);
    assert_non_null(kn_params_grad(f.set));
    {
        KN_TAPE(.pool = f.pool, .threads = 1);
        kn_tensor *x = kn_ones(KN_SHAPE(64, 8, 64, 64));
        kn_tensor *loss = sum_all(kn_recompute(block, w, &x, 1, NULL));
        assert_true(backward_takes(&f, loss) < 21 * MIB);
    }
    close_fixture(&f);
}

/* The sum's gradient is both terms', and z's node reads it after the convolution's. */
static void a_gradient_that_another_node_reads_is_not_written_over(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(1, 1, 1, 1), "w", 3), *s = PARAM(set, KN_SCALAR, "s", 5);
    KN_TAPE();
    kn_tensor *x = kn_ones(KN_SHAPE(2, 1, 4, 4)), *z = kn_mul(x, s);
    kn_tensor *y = kn_conv(kn_mul(x, kn_reshape(w, KN_SCALAR)), w, KN_NONE, NULL);
    assert_ok(kn_backward(sum_all(kn_square(kn_add(y, z))))); /* 32 (w² + s)² */
    assert_values(kn_grad(s), 64 * 14);
    assert_values(kn_grad(w), 64 * 14 * 6);
    kn_params_destroy(set);
}

/* h leads to no parameter: the walk doesn't reach it, and it can be read afterwards. */
static void a_value_that_the_pass_does_not_reach_stays(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2, 2), "w", 1, 2, 3, 4);
    KN_TAPE();
    kn_tensor *x = kn_watch(kn_ones(KN_SHAPE(2, 2))), *h = kn_affine(x, 2, 0);
    assert_ok(kn_backward(sum_all(kn_matmul(h, w, NULL))));
    assert_values(h, 2, 2, 2, 2);
    kn_params_destroy(set);
}

/* A slot keeps a value that would be freed early. */
static void a_held_value_stays(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(1, 2), "w", 1, 2), *slot = NULL;
    {
        KN_TAPE();
        kn_tensor *h = kn_exp(kn_affine(w, 0, 0));
        assert_ok(kn_hold(&slot, kn_affine(h, 3, 0)));
        assert_ok(kn_backward(sum_all(kn_linear(slot, w, KN_NONE))));
        assert_values(slot, 3, 3);
    }
    kn_unhold(&slot);
    kn_params_destroy(set);
}

/* --- results without a gradient, whose frame ends before backward --- */

static kn_tensor *best_of(kn_tensor *x, int which) {
    KN_FRAME();
    kn_tensor *value = NULL, *index = NULL, *image = kn_reshape(x, KN_SHAPE(1, 1, 64));
    kn_status status = which == 0   ? kn_topk(&value, &index, x, 3, 0, false)
                       : which == 1 ? kn_sort_index(&value, &index, x, 0, false)
                       : which == 2 ? kn_max_index(&value, &index, x, KN_SHAPE(0), true)
                                    : kn_maxpool_index(&value, &index, image, KN_SHAPE(2), NULL);
    assert_ok(status);
    return kn_keep(value);
}

/* The list of ended headers is whole: all of them are used again. */
static void use_many_headers(void) {
    for (int i = 0; i < 20; i++) {
        KN_FRAME();
        kn_tensor *x = kn_ones(KN_SHAPE(2));
        for (int k = 0; k < 100; k++) x = kn_affine(x, 1, 1);
        assert_values(x, 101, 101);
    }
}

static void a_failed_pass_leaves_ended_indices_alone(void **state) {
    (void)state;
    for (int which = 0; which < 4; which++) {
        KN_FRAME();
        for (int i = 0; i < 20; i++) {
            KN_TAPE();
            kn_tensor *x = kn_watch(kn_linspace(0, 1, 64)), *dx = NULL;
            kn_tensor *y = best_of(x, which), *t = kn_tanh(x), *spoilt = kn_sin(t);
            assert_ok(kn_fill_into(t, 0));
            kn_tensor *sum = kn_add(sum_all(spoilt), sum_all(y));
            assert_fails(kn_gradients(&dx, sum, &x, 1, NULL), KN_ERR_INVALID,
                         "written after it was saved");
        }
        use_many_headers();
    }
}

/* A pass that succeeds gives their memory back with that of values. */
static void an_index_is_consumed_with_its_value(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(3), "w", 1, 3, 2), *value = NULL, *index = NULL;
    KN_TAPE();
    assert_ok(kn_topk(&value, &index, w, 2, 0, false));
    assert_ok(kn_backward(sum_all(value)));
    assert_values(kn_grad(w), 0, 1, 1);
    assert_string_equal(kn_tensor_problem(index),
                        "was consumed by kn_backward or kn_gradients; a slot (kn_hold) keeps it");
    kn_params_destroy(set);
}

/* --- numbers stay, such as the parts of a loss --- */

/* out: two parts, and their weighted sum before it was scaled. w is 1, 2. */
static kn_status parts_of_a_loss(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    fixture *f = ctx;
    KN_TAPE();
    kn_tensor *y = kn_mul(kn_params_at(f->set, 0, NULL), in[0]);
    out[0] = kn_mean(kn_square(y), KN_ALL, false);
    out[1] = kn_sum(kn_exp(kn_affine(y, 0, 0)), KN_ALL, true);
    out[2] = kn_add(out[0], kn_affine(out[1], 0.5, 0));
    KN_TRY(kn_backward(kn_affine(out[2], 1024, 0)));
    for (int i = 0; i < 3; i++) kn_keep(out[i]);
    return kn_check();
}

static void parts_of_a_loss_stay(void **state) {
    (void)state;
    const kn_frame_options options[] = {
        {0}, {.fuse = 1}, {.recompute = 1}, {.fuse = 1, .recompute = 1}, {.autocast = KN_BF16}};
    const double want[] = {10, 2, 11};
    fixture f = open_fixture();
    PARAM(f.set, KN_SHAPE(2), "w", 1, 2);
    kn_capture *capture = NULL;
    assert_ok(kn_capture_create(&capture, NULL));
    for (size_t i = 0; i < sizeof options / sizeof options[0] + 3; i++) {
        bool plain = i < sizeof options / sizeof options[0];
        KN_AT_EXIT(kn_frame_end, kn_frame) = kn_frame_begin(plain ? &options[i] : NULL);
        kn_tensor *out[3], *x = kn_full(KN_SHAPE(2), 2);
        if (plain)
            assert_ok(parts_of_a_loss(out, &x, &f));
        else
            assert_ok(kn_capture_run(out, 3, capture, &x, 1, parts_of_a_loss, &f));
        for (int k = 0; k < 3; k++) assert_true(item_of(out[k]) == want[k]);
    }
    kn_capture_destroy(capture);
    close_fixture(&f);
}

/* They would keep all of it. */
static void an_element_of_a_large_value_goes(void **state) {
    (void)state;
    fixture f = open_fixture();
    kn_tensor *w = kn_param(f.set, KN_SHAPE(MIB), kn_init_uniform(1, 2), "w");
    uint64_t most;
    {
        KN_TAPE(.pool = f.pool);
        kn_tensor *element = kn_slice(kn_square(w), KN_SHAPE(5), KN_SHAPE(6));
        assert_ok(kn_backward(sum_all(kn_square(element))));
        assert_op_fails(kn_exp(element), KN_ERR_INVALID, "was consumed by kn_backward");
        assert_true(live_of(f.pool, &most) < MIB);
    }
    close_fixture(&f);
}

int main(void) {
    return RUN_TESTS(OPS_TEST(a_layers_input_goes_before_its_gradient_comes),
                     OPS_TEST(layers_without_an_activation_keep_no_result),
                     OPS_TEST(a_gradient_of_images_is_written_over_the_last),
                     OPS_TEST(a_gradient_that_another_node_reads_is_not_written_over),
                     OPS_TEST(a_value_that_the_pass_does_not_reach_stays),
                     OPS_TEST(a_held_value_stays),
                     OPS_TEST(a_failed_pass_leaves_ended_indices_alone),
                     OPS_TEST(an_index_is_consumed_with_its_value), OPS_TEST(parts_of_a_loss_stay),
                     TEST(an_element_of_a_large_value_goes));
}
