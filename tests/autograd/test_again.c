/* Frames with .recompute: the same bits as without, while cheap ops' results are forgotten until
 * backward reads them. */
#include <knet/capture.h>
#include <knet/op_watch.h>
#include <knet/prof.h>
#include <knet/prof_heap.h>
#include <pthread.h>

#include "autograd_test.h"

enum { BATCH = 64, WIDTH = 512, BYTES = BATCH * WIDTH * 4 }; /* more than 64 KiB */

typedef struct net {
    kn_params *set;
    kn_tensor *w[6], *scale, *shift, *image[6], *channel[2], *few, *mean, *variance;
    kn_rng *rng;
} net;

static void net_init(net *m) {
    *m = (net){.set = params_f32()};
    for (int i = 0; i < 6; i++) {
        m->w[i] = kn_param(m->set, KN_SHAPE(WIDTH, WIDTH), kn_init_he(), "w%d", i);
        m->image[i] = kn_param(m->set, KN_SHAPE(8, 8, 1, 1), kn_init_he(), "image%d", i);
    }
    m->scale = kn_param(m->set, KN_SHAPE(WIDTH), kn_init_normal(1, 0.1), "scale");
    m->shift = kn_param(m->set, KN_SHAPE(WIDTH), kn_init_normal(0, 1), "shift");
    m->few = kn_param(m->set, KN_SHAPE(WIDTH / 8, WIDTH / 8), kn_init_he(), "few");
    m->channel[0] = kn_param(m->set, KN_SHAPE(8), kn_init_normal(1, 0.1), "channel scale");
    m->channel[1] = kn_param(m->set, KN_SHAPE(8), kn_init_normal(0, 1), "channel shift");
    assert_ok(kn_rng_create(&m->rng, 5));
}

static void net_release(net *m) {
    kn_rng_destroy(m->rng);
    kn_params_destroy(m->set);
}

static kn_tensor *linear(kn_tensor *x, kn_tensor *w) { return kn_linear(x, w, KN_NONE); }

/* --- nets: [BATCH,WIDTH] to the same, in frames as layers have them --- */

static kn_tensor *gelu_net(net *m, kn_tensor *x) {
    KN_FRAME();
    return kn_keep(linear(kn_gelu(linear(x, m->w[0])), m->w[1]));
}

static kn_tensor *layernorm_net(net *m, kn_tensor *x) {
    KN_FRAME();
    kn_tensor *h = linear(x, m->w[0]);
    return kn_keep(linear(kn_layernorm(h, m->scale, m->shift, 1, 1e-5), m->w[1]));
}

static kn_tensor *rmsnorm_net(net *m, kn_tensor *x) {
    KN_FRAME();
    return kn_keep(linear(kn_rmsnorm(linear(x, m->w[0]), m->scale, 1, 1e-5), m->w[1]));
}

static kn_tensor *groupnorm_net(net *m, kn_tensor *x) {
    KN_FRAME();
    kn_tensor *h = linear(x, m->w[0]);
    return kn_keep(linear(kn_groupnorm(h, m->scale, m->shift, 8, 1e-5), m->w[1]));
}

/* relu's own gradient keeps what dropout reads. */
static kn_tensor *dropout_net(net *m, kn_tensor *x) {
    KN_FRAME();
    return kn_keep(linear(kn_dropout(kn_relu(linear(x, m->w[0])), 0.4, m->rng), m->w[1]));
}

/* The cast's input is silu's; the product reads 16 bits. */
static kn_tensor *cast_net(net *m, kn_tensor *x) {
    KN_FRAME();
    kn_tensor *h = kn_silu(linear(x, m->w[0]));
    return kn_keep(kn_mul(h, kn_cast(kn_tanh(kn_cast(h, KN_BF16)), KN_F32)));
}

static const kn_batchnorm_options training = {.training = 1};

static kn_tensor *normed(net *m, kn_tensor *x, int conv) {
    return kn_batchnorm(kn_conv(x, m->image[conv], KN_NONE, NULL), KN_NONE, KN_NONE, m->channel[0],
                        m->channel[1], &training);
}

static kn_tensor *block(net *m, kn_tensor *x, int conv) {
    KN_FRAME();
    kn_tensor *y = kn_relu(normed(m, x, conv));
    return kn_keep(kn_relu(kn_add(normed(m, y, conv + 1), x)));
}

/* Each relu of a batchnorm goes; of the sums around the blocks every other one, for it is made from
 * the one before. */
static kn_tensor *residual_net(net *m, kn_tensor *x) {
    KN_FRAME();
    kn_tensor *y = kn_relu(kn_reshape(linear(x, m->w[0]), KN_SHAPE(BATCH / 4, 8, 16, 16)));
    for (int i = 0; i < 3; i++) {
        kn_tensor *last = y;
        y = block(m, last, 2 * i);
        kn_drop(last);
    }
    return kn_keep(kn_reshape(y, KN_SHAPE(BATCH, WIDTH)));
}

/* Of batchnorm over columns, whose running statistics change once a call. */
static kn_tensor *running_net(net *m, kn_tensor *x) {
    KN_FRAME();
    kn_tensor *y =
        kn_batchnorm(linear(x, m->w[0]), m->mean, m->variance, m->scale, m->shift, &training);
    return kn_keep(linear(kn_relu(y), m->w[1]));
}

/* Statistics of each column of [BATCH,8,64], and no bias. */
static kn_tensor *column_net(net *m, kn_tensor *x) {
    KN_FRAME();
    const kn_batchnorm_options each = {.training = 1, .per_activation = 1};
    kn_tensor *h = kn_reshape(linear(x, m->w[0]), KN_SHAPE(BATCH, 8, WIDTH / 8));
    kn_tensor *y = kn_batchnorm(h, KN_NONE, KN_NONE, m->scale, KN_NONE, &each);
    return kn_keep(linear(y, m->few));
}

/* Of a norm that reads and writes 16 bits. */
static kn_tensor *half_net(net *m, kn_tensor *x) {
    KN_FRAME();
    kn_tensor *y = kn_cast(linear(x, m->w[0]), KN_BF16);
    y = kn_batchnorm(y, KN_NONE, KN_NONE, m->scale, m->shift, &training);
    return kn_keep(linear(kn_cast(y, KN_F32), m->w[1]));
}

/* --- with and without --- */

static kn_tensor *values(void) {
    kn_rng *rng = NULL;
    assert_ok(kn_rng_create(&rng, 9));
    kn_tensor *x = kn_normal(KN_SHAPE(BATCH, WIDTH), 0, 1, rng);
    kn_rng_destroy(rng);
    return x;
}

typedef kn_tensor *(*net_fn)(net *m, kn_tensor *x);

static void count_kernel(void *ctx, const kn_op_event *event) {
    (void)event;
    ++*(int *)ctx;
}

static int n_kernels; /* of the last step's backward */

/* A step; returns the bytes that it kept from forward to backward. */
static uint64_t step(net *m, net_fn forward, bool fuse, bool recompute) {
    kn_pool *pool = NULL;
    kn_pool_stats stats;
    n_kernels = 0;
    assert_ok(kn_pool_create(&pool, kn_device_host(), NULL));
    {
        KN_TAPE(.pool = pool, .fuse = fuse ? 1 : KN_OFF, .recompute = recompute ? 1 : KN_OFF);
        kn_tensor *x = values(), *loss = sum_all(kn_square(forward(m, x)));
        assert_ok(kn_check());
        assert_ok(kn_tensor_compute(loss));
        kn_pool_stats_read(&stats, sizeof stats, pool);
        kn_op_watch(count_kernel, &n_kernels);
        assert_ok(kn_backward(loss));
        kn_op_watch(NULL, NULL);
        assert_ok(kn_tape_check());
    }
    kn_pool_destroy(pool);
    return stats.live_bytes;
}

static void assert_same_bits(kn_tensor *a, kn_tensor *b) {
    assert_memory_equal(kn_data(a), kn_data(b), (size_t)kn_tensor_numel(a) * sizeof(float));
}

static void assert_same(net *a, net *b) {
    for (int i = 0; i < kn_params_count(a->set); i++) {
        kn_tensor *g = kn_grad(kn_params_at(a->set, i, NULL));
        kn_tensor *h = kn_grad(kn_params_at(b->set, i, NULL));
        assert_int_equal(g == KN_NONE, h == KN_NONE);
        if (g != KN_NONE) assert_same_bits(g, h);
    }
}

/* halves: how many halves of BYTES are forgotten; n_passes: what making them again takes. */
static void compare(net_fn forward, int halves, int n_passes) {
    assert_ok(kn_prof_owners_on()); /* events come with it */
    for (int fuse = 0; fuse < 2; fuse++) {
        net plain, again;
        net_init(&plain);
        net_init(&again);
        for (int i = 0; i < 2; i++) {
            uint64_t more = step(&plain, forward, fuse, false);
            int n = n_kernels;
            uint64_t less = step(&again, forward, fuse, true);
            if (!fuse) assert_int_equal(n_kernels - n, n_passes);
            assert_same(&plain, &again);
            assert_int_equal(more - less, halves * BYTES / 2);
        }
        net_release(&plain);
        net_release(&again);
    }
}

static void gelu_is_made_again(void **state) {
    (void)state;
    compare(gelu_net, 2, 1);
}

static void norms_are_made_again(void **state) {
    (void)state;
    compare(layernorm_net, 2, 1);
    compare(rmsnorm_net, 2, 1);
    compare(groupnorm_net, 2, 1);
    compare(column_net, 2, 2);
    compare(half_net, 2, 2);
}

static void dropout_is_made_again_with_the_same_numbers(void **state) {
    (void)state;
    compare(dropout_net, 2, 1);
}

static void casts_are_made_again(void **state) {
    (void)state;
    compare(cast_net, 5, 3);
}

static void a_chain_keeps_a_value_in_between(void **state) {
    (void)state;
    compare(residual_net, 8, 10);
}

/* Made again from the batch's statistics: the running ones have moved once. */
static void running_statistics_move_once(void **state) {
    (void)state;
    net m[2];
    for (int i = 0; i < 2; i++) {
        net_init(&m[i]);
        KN_FRAME();
        assert_ok(kn_hold(&m[i].mean, kn_zeros(KN_SHAPE(WIDTH))));
        assert_ok(kn_hold(&m[i].variance, kn_ones(KN_SHAPE(WIDTH))));
        for (int j = 0; j < 2; j++) step(&m[i], running_net, false, i);
    }
    assert_same(&m[0], &m[1]);
    assert_same_bits(m[0].mean, m[1].mean);
    assert_same_bits(m[0].variance, m[1].variance);
    for (int i = 0; i < 2; i++) {
        kn_unhold(&m[i].mean);
        kn_unhold(&m[i].variance);
        net_release(&m[i]);
    }
}

static bool is_forgotten(const kn_tensor *t) { return t->state == KN_TENSOR_FORGOTTEN; }

/* h = x·w, y = gelu(h), z = y·v; *y is the tape's alone, or is held. */
static kn_tensor *three(net *m, kn_tensor *x, kn_tensor **h, kn_tensor **y, kn_tensor **slot) {
    KN_FRAME();
    *h = kn_keep(linear(x, m->w[0]));
    *y = kn_gelu(*h);
    if (slot) assert_ok(kn_hold(slot, *y));
    return kn_keep(linear(*y, m->w[1]));
}

static void a_result_goes_when_the_tape_alone_refers_to_it(void **state) {
    (void)state;
    net m;
    net_init(&m);
    KN_SLOT(held);
    kn_tensor *h, *y;
    {
        KN_TAPE(.recompute = 1);
        kn_tensor *z = three(&m, values(), &h, &y, NULL);
        assert_true(is_forgotten(y));
        assert_false(is_forgotten(h)); /* gelu is made of it */
        assert_ok(kn_backward(sum_all(z)));
    }
    {
        KN_TAPE(.recompute = 1);
        kn_tensor *z = three(&m, values(), &h, &y, &held);
        assert_false(is_forgotten(y));
        assert_same_bits(held, kn_gelu(h));
        assert_ok(kn_backward(sum_all(z)));
        assert_same_bits(held, kn_gelu(linear(values(), m.w[0])));
    }
    net_release(&m);
}

/* The gradient of relu reads relu's result, and nothing keeps relu's input. */
static void a_result_stays_that_is_no_more_than_its_input(void **state) {
    (void)state;
    net m;
    net_init(&m);
    KN_TAPE(.recompute = 1);
    kn_tensor *y, *z;
    {
        KN_FRAME();
        y = kn_relu(linear(values(), m.w[0]));
        z = kn_keep(linear(y, m.w[1]));
    }
    assert_false(is_forgotten(y));
    assert_ok(kn_backward(sum_all(z)));
    net_release(&m);
}

static void small_results_stay(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = kn_param(set, KN_SHAPE(32, 32), kn_init_he(), "w"), *y;
    {
        KN_TAPE(.recompute = 1);
        kn_tensor *z;
        {
            KN_FRAME();
            y = kn_gelu(linear(kn_ones(KN_SHAPE(32, 32)), w));
            z = kn_keep(linear(y, w));
        }
        assert_false(is_forgotten(y));
        assert_ok(kn_backward(sum_all(z)));
    }
    kn_params_destroy(set);
}

static void first_and_second_gradients_have_the_same_bits(void **state) {
    (void)state;
    float *bits[2];
    int64_t nodes[2];
    for (int recompute = 0; recompute < 2; recompute++) {
        net m;
        net_init(&m);
        KN_TAPE(.recompute = recompute ? 1 : KN_OFF);
        kn_tensor *h, *y, *dx, *ddx, *x = kn_watch(values());
        kn_tensor *z = sum_all(kn_square(three(&m, x, &h, &y, NULL)));
        assert_true(is_forgotten(y) == recompute);
        assert_ok(kn_gradients(&dx, z, &x, 1, &(kn_gradients_options){.keep = 1, .again = 1}));
        nodes[recompute] = kn_tape_nodes(); /* those of gradients among them */
        assert_ok(
            kn_gradients(&ddx, sum_all(kn_square(dx)), &x, 1, &(kn_gradients_options){.keep = 1}));
        bits[recompute] = malloc(2 * BYTES);
        assert_non_null(bits[recompute]);
        memcpy(bits[recompute], kn_data(dx), BYTES);
        memcpy(bits[recompute] + BATCH * WIDTH, kn_data(ddx), BYTES);
        net_release(&m);
    }
    assert_memory_equal(bits[0], bits[1], 2 * BYTES);
    assert_int_equal(nodes[0], nodes[1]);
    free(bits[0]);
    free(bits[1]);
}

/* x less a mean that moves on before backward, as running means do. */
static void a_constant_may_be_written_before_backward(void **state) {
    (void)state;
    net m;
    net_init(&m);
    KN_TAPE(.recompute = 1);
    kn_tensor *mean = kn_ones(KN_SHAPE(WIDTH)), *z, *y;
    {
        KN_FRAME();
        kn_tensor *h = linear(values(), m.w[0]);
        z = kn_mul(h, h); /* keeps h */
        y = kn_sub(h, mean);
        z = kn_keep(kn_add(z, linear(y, m.w[1])));
    }
    assert_false(is_forgotten(y));
    assert_ok(kn_add_into(mean, mean));
    assert_ok(kn_backward(sum_all(z)));
    net_release(&m);
}

static void a_parameter_that_was_written_is_an_error(void **state) {
    (void)state;
    net m;
    net_init(&m);
    {
        KN_TAPE(.recompute = 1);
        kn_tensor *loss = sum_all(layernorm_net(&m, values()));
        assert_non_null(kn_data_mut(m.shift));
        assert_fails(kn_backward(loss), KN_ERR_INVALID, "the result of layernorm");
        assert_non_null(strstr(kn_last_error()->message, "was written since"));
    }
    step(&m, layernorm_net, false, true); /* later steps work */
    net_release(&m);
}

static void a_result_that_was_written_is_an_error_as_without(void **state) {
    (void)state;
    net m;
    net_init(&m);
    for (int recompute = 0; recompute < 2; recompute++) {
        KN_TAPE(.recompute = recompute ? 1 : KN_OFF);
        kn_tensor *z;
        {
            KN_FRAME();
            kn_tensor *y = kn_gelu(linear(values(), m.w[0]));
            z = kn_keep(linear(y, m.w[1]));
            assert_ok(kn_add_into(y, values()));
        }
        assert_fails(kn_backward(sum_all(z)), KN_ERR_INVALID, "written after it was saved");
    }
    net_release(&m);
}

/* Fused, both factors are computed with their product, which the layer reads. */
static void a_pass_stores_nothing_that_is_forgotten(void **state) {
    (void)state;
    net m;
    net_init(&m);
    kn_pool *pool = NULL;
    kn_pool_stats before, after;
    assert_ok(kn_pool_create(&pool, kn_device_host(), NULL));
    {
        KN_TAPE(.pool = pool, .fuse = 1, .recompute = 1);
        kn_tensor *h = linear(values(), m.w[0]), *y;
        y = kn_mul(kn_gelu(h), kn_silu(h));
        kn_pool_stats_read(&before, sizeof before, pool);
        kn_pool_peaks_reset(pool);
        assert_ok(kn_tensor_compute(y));
        kn_pool_stats_read(&after, sizeof after, pool);
        assert_int_equal(after.live_bytes_max - before.live_bytes, BYTES);
        assert_ok(kn_backward(sum_all(linear(y, m.w[1]))));
    }
    kn_pool_destroy(pool);
    net_release(&m);
}

static kn_status residual_step(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    KN_TAPE();
    kn_tensor *loss = sum_all(kn_square(residual_net(ctx, in[0])));
    KN_TRY(kn_backward(loss));
    out[0] = kn_keep(loss);
    return kn_check();
}

/* Runs the step as it is, records it and replays it; returns the kernels of the recorded one. */
static int capture_steps(net *m, bool fuse, bool recompute) {
    kn_capture *capture = NULL;
    int n[3] = {0};
    net_init(m);
    assert_ok(kn_capture_create(&capture, NULL));
    KN_FRAME(.record = KN_OFF, .fuse = fuse ? 1 : KN_OFF, .recompute = recompute ? 1 : KN_OFF);
    kn_tensor *x = values(), *loss;
    for (int i = 0; i < 3; i++) {
        kn_op_watch(count_kernel, &n[i]);
        assert_ok(kn_capture_run(&loss, 1, capture, &x, 1, residual_step, m));
        kn_op_watch(NULL, NULL);
    }
    kn_capture_destroy(capture);
    return n[1];
}

/* Fused, five passes and the products of five scales; else a kernel for each op. */
static void a_captured_step_makes_values_again(void **state) {
    (void)state;
    assert_ok(kn_prof_owners_on());
    for (int fuse = 0; fuse < 2; fuse++) {
        net plain, again;
        int n = capture_steps(&plain, fuse, false);
        assert_int_equal(capture_steps(&again, fuse, true) - n, fuse ? 10 : 12);
        assert_same(&plain, &again);
        net_release(&plain);
        net_release(&again);
    }
}

static void options_are_checked(void **state) {
    (void)state;
    kn_frame frame = kn_frame_begin(&(kn_frame_options){.recompute = 2});
    assert_fails(kn_check(), KN_ERR_INVALID, "recompute is 2");
    kn_frame_end(&frame);
}

/* Another thread's tape reads the value as a constant, while this one counts who refers to it. */
typedef struct reader {
    net *m;
    kn_tensor *y;
} reader;

static void *read_values(void *ctx) {
    const reader *r = ctx;
    KN_TAPE(.recompute = 1);
    for (int i = 0; i < 20; i++) {
        kn_tensor *w = kn_watch(kn_ones(KN_SHAPE(WIDTH, WIDTH))), *dw;
        kn_tensor *z = sum_all(kn_gelu(linear(r->y, w)));
        assert_ok(kn_gradients(&dw, z, &w, 1, NULL));
    }
    return NULL;
}

static void another_threads_tape_may_read_a_value(void **state) {
    (void)state;
    net m;
    net_init(&m);
    {
        KN_TAPE(.recompute = 1);
        kn_tensor *h, *y, *z;
        pthread_t thread;
        {
            KN_FRAME();
            z = kn_keep(three(&m, values(), &h, &y, NULL));
            y = kn_gelu(h);
            reader r = {&m, y};
            assert_int_equal(pthread_create(&thread, NULL, read_values, &r), 0);
            for (int i = 0; i < 20; i++) z = kn_keep(kn_add(z, linear(y, m.w[2])));
            pthread_join(thread, NULL);
        }
        assert_true(is_forgotten(y));
        assert_ok(kn_backward(sum_all(z)));
    }
    net_release(&m);
}

/* With KNET_RECOMPUTE=0 no frame forgets anything, with 1 those that leave .recompute zero do. */
static void the_environment_decides(void **state) {
    (void)state;
    const int choices[] = {KN_OFF, 0, 1};
    bool is_on = strcmp(getenv("KNET_RECOMPUTE"), "1") == 0;
    for (int i = 0; i < 3; i++) {
        net m;
        net_init(&m);
        kn_tensor *h, *y;
        KN_TAPE(.recompute = choices[i]);
        kn_tensor *z = three(&m, values(), &h, &y, NULL);
        assert_true(is_forgotten(y) == (is_on && choices[i] != KN_OFF));
        assert_ok(kn_backward(sum_all(z)));
        net_release(&m);
    }
}

int main(void) {
    if (getenv("KNET_RECOMPUTE")) {
        const struct CMUnitTest tests[] = {OPS_TEST(the_environment_decides)};
        return cmocka_run_group_tests(tests, NULL, NULL);
    }
    const struct CMUnitTest tests[] = {
        OPS_TEST(gelu_is_made_again),
        OPS_TEST(norms_are_made_again),
        OPS_TEST(dropout_is_made_again_with_the_same_numbers),
        OPS_TEST(casts_are_made_again),
        OPS_TEST(a_chain_keeps_a_value_in_between),
        OPS_TEST(running_statistics_move_once),
        OPS_TEST(a_result_goes_when_the_tape_alone_refers_to_it),
        OPS_TEST(a_result_stays_that_is_no_more_than_its_input),
        OPS_TEST(small_results_stay),
        OPS_TEST(first_and_second_gradients_have_the_same_bits),
        OPS_TEST(a_constant_may_be_written_before_backward),
        OPS_TEST(a_parameter_that_was_written_is_an_error),
        OPS_TEST(a_result_that_was_written_is_an_error_as_without),
        OPS_TEST(a_pass_stores_nothing_that_is_forgotten),
        OPS_TEST(a_captured_step_makes_values_again),
        OPS_TEST(options_are_checked),
        OPS_TEST(another_threads_tape_may_read_a_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
