/* Convolutions and products in bf16: by oneDNN where the processor multiplies it, else as f32. Sums
 * are f32 and rounded once either way, so a result is within half a unit in the last place of its
 * f32 one. */
#include <math.h>
#include <string.h>

#include "conv_sizes.h"
#include "host/conv/conv_layout.h"

static kn_tensor *rounded(kn_tensor *x) { return kn_cast(x, KN_BF16); }
static kn_tensor *wide(kn_tensor *x) { return kn_cast(x, KN_F32); }
static kn_tensor *random_bf16(kn_shape shape) { return rounded(random_tensor(KN_F32, shape)); }

/* One rounding: 2^-8 of the value, or, near 0, of what sums of some hundred terms round in f32. */
static void assert_rounded(kn_tensor *got, kn_tensor *want) {
    assert_non_null(got);
    assert_non_null(want);
    assert_int_equal(kn_tensor_dtype(got), KN_BF16);
    assert_int_equal(kn_tensor_numel(got), kn_tensor_numel(want));
    kn_tensor *g = wide(got);
    for (int64_t i = 0; i < kn_tensor_numel(want); i++)
        assert_close(ops_at(g, i), ops_at(want, i), 0x1p-8, 1e-4);
}

static const struct conv_case {
    kn_shape x, w;
    kn_attr_conv attr;
} cases[] = {
    {{.dim = {5, 16, 9, 9}, .n_dims = 4},
     {.dim = {32, 16, 3, 3}, .n_dims = 4},
     {.stride = {1, 1, 1},
      .dilation = {1, 1, 1},
      .padding = {1, 1},
      .padding_end = {1, 1},
      .groups = 1,
      .n_spatial = 2}},
    {{.dim = {17, 3, 21, 21}, .n_dims = 4},
     {.dim = {16, 3, 7, 7}, .n_dims = 4},
     {.stride = {2, 2, 1},
      .dilation = {1, 1, 1},
      .padding = {3, 3},
      .padding_end = {3, 3},
      .groups = 1,
      .n_spatial = 2}},
    {{.dim = {4, 32, 8, 8}, .n_dims = 4},
     {.dim = {32, 1, 3, 3}, .n_dims = 4},
     {.stride = {1, 1, 1},
      .dilation = {1, 1, 1},
      .padding = {1, 1},
      .padding_end = {1, 1},
      .groups = 32,
      .n_spatial = 2}},
    {{.dim = {3, 6, 7, 7}, .n_dims = 4}, /* no blocks of channels: as f32 */
     {.dim = {9, 2, 3, 3}, .n_dims = 4},
     {.stride = {1, 1, 1}, .dilation = {1, 1, 1}, .groups = 3, .n_spatial = 2}},
    {{.dim = {2, 32, 11}, .n_dims = 3},
     {.dim = {48, 32, 3}, .n_dims = 3},
     {.stride = {2, 1, 1}, .dilation = {2, 1, 1}, .groups = 1, .n_spatial = 1}},
    {{.dim = {2, 16, 3, 10, 10}, .n_dims = 5}, /* planes of the window lie in padding */
     {.dim = {32, 16, 3, 3, 3}, .n_dims = 5},
     {.stride = {2, 2, 2},
      .dilation = {1, 1, 1},
      .padding = {1, 1, 1},
      .padding_end = {1, 1, 1},
      .groups = 1,
      .n_spatial = 3}},
    {{.dim = {2, 16, 5, 6, 7}, .n_dims = 5},
     {.dim = {16, 16, 2, 2, 2}, .n_dims = 5},
     {.stride = {1, 1, 1}, .dilation = {1, 1, 1}, .groups = 1, .n_spatial = 3}},
};

static kn_tensor *like_result(const struct conv_case *c) {
    kn_tensor *y = op_conv_attr(kn_zeros(c->x), kn_zeros(c->w), KN_NONE, &c->attr);
    assert_non_null(y);
    return random_bf16(kn_tensor_shape(y));
}

static void every_pass_is_the_f32_one_rounded_once(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        KN_FRAME(.threads = 2);
        const struct conv_case *c = &cases[i];
        kn_tensor *x = random_bf16(c->x), *w = random_bf16(c->w), *dy = like_result(c);
        for (int which = 0; which < 3; which++)
            assert_rounded(conv_pass(which, x, w, dy, &c->attr, 2),
                           conv_pass(which, wide(x), wide(w), wide(dy), &c->attr, 2));
    }
}

/* Memory that was freed with NaN in it is what work space gets next. */
static void leave_nan_in_the_pool(void) {
    static uint8_t ones[1 << 20];
    memset(ones, 0xff, sizeof ones);
    for (int64_t n = 512; n <= (int64_t)sizeof ones; n += n / 4) {
        KN_FRAME();
        assert_non_null(kn_tensor_from(ones, KN_U8, KN_SHAPE(n)));
    }
}

static int random_size(int most) { return 1 + (int)test_random_below((uint64_t)most); }

/* Small images, wide strides and paddings: parts of windows that read padding alone. */
static struct conv_case random_case(int n_spatial) {
    struct conv_case c = {.attr = {.stride = {1, 1, 1}, .dilation = {1, 1, 1}, .groups = 1}};
    c.attr.n_spatial = n_spatial;
    c.x = c.w = (kn_shape){.dim = {2, 16}, .n_dims = 2 + n_spatial};
    c.w.dim[0] = 16 * random_size(2);
    for (int d = 0; d < n_spatial; d++) {
        c.x.dim[2 + d] = random_size(7);
        c.w.dim[2 + d] = random_size(3);
        c.attr.stride[d] = random_size(3);
        c.attr.dilation[d] = random_size(2);
        c.attr.padding[d] = random_size(3) - 1;
        c.attr.padding_end[d] = random_size(3) - 1;
        int64_t pads = c.attr.padding[d] + c.attr.padding_end[d];
        if (c.x.dim[2 + d] + pads < (c.w.dim[2 + d] - 1) * c.attr.dilation[d] + 1)
            c.w.dim[2 + d] = 1;
    }
    return c;
}

static void windows_in_padding_are_right(void **state) {
    (void)state;
    for (int i = 0; i < 300; i++) {
        KN_FRAME(.threads = 2);
        struct conv_case c = random_case(1 + i % 3);
        kn_tensor *x = random_bf16(c.x), *w = random_bf16(c.w), *dy = like_result(&c);
        for (int which = 0; which < 3; which++) {
            leave_nan_in_the_pool();
            assert_rounded(conv_pass(which, x, w, dy, &c.attr, 2),
                           conv_pass(which, wide(x), wide(w), wide(dy), &c.attr, 2));
        }
    }
}

static void the_number_of_threads_changes_no_bit_of_bf16(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        KN_FRAME();
        const struct conv_case *c = &cases[i];
        kn_tensor *x = random_bf16(c->x), *w = random_bf16(c->w), *dy = like_result(c);
        for (int which = 0; which < 3; which++)
            assert_same_bits(conv_pass(which, x, w, dy, &c->attr, 1),
                             conv_pass(which, x, w, dy, &c->attr, 3));
    }
}

/* The sum of both is rounded, not the second one alone. */
static void a_gradient_is_added_before_it_is_rounded(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        KN_FRAME(.threads = 2);
        const struct conv_case *c = &cases[i];
        kn_tensor *x = random_bf16(c->x), *dy = like_result(c), *into = random_bf16(c->w);
        kn_tensor *want =
            kn_add(op_conv_weight(wide(x), wide(dy), c->w, &c->attr, NULL), wide(into));
        op_conv_weight(x, dy, c->w, &c->attr, into);
        assert_rounded(into, want);
    }
}

/* Bias, residual and activation. */
static void what_follows_the_sums_is_near_f32(void **state) {
    (void)state;
    KN_FRAME(.threads = 2);
    kn_tensor *x = random_bf16(KN_SHAPE(4, 32, 37, 9)), *b = random_bf16(KN_SHAPE(32));
    kn_tensor *w = rounded(kn_affine(random_tensor(KN_F32, KN_SHAPE(32, 32, 3, 3)), 1.0 / 17, 0));
    for (int act = KN_ACT_NONE; act < KN_ACTS; act++) {
        kn_conv_options o = {.padding = {1, 1}, .act = (kn_act)act};
        kn_tensor *got = wide(kn_conv_add(x, w, b, x, &o));
        kn_tensor *want = kn_conv_add(wide(x), wide(w), wide(b), wide(x), &o);
        for (int64_t i = 0; i < kn_tensor_numel(want); i++) /* two roundings, of terms up to 4 */
            assert_close(ops_at(got, i), ops_at(want, i), 0x1p-7, 4 * 0x1p-8);
    }
}

static bool in_blocks(const kn_tensor *t) { return t->layout == KN_LAYOUT_BLOCKS; }

typedef struct net {
    kn_tensor *x, *first, *w, *b, *mean, *var;
} net;

static net net_of(void) {
    kn_tensor *mean = random_tensor(KN_F32, KN_SHAPE(32));
    return (net){random_tensor(KN_F32, KN_SHAPE(9, 3, 15, 15)),
                 kn_affine(random_tensor(KN_F32, KN_SHAPE(32, 3, 3, 3)), 0.2, 0),
                 kn_affine(random_tensor(KN_F32, KN_SHAPE(32, 32, 3, 3)), 0.06, 0),
                 random_tensor(KN_F32, KN_SHAPE(32)),
                 mean,
                 kn_affine(kn_square(mean), 1, 1)};
}

/* *blocks: every result in between stays in blocks. */
static kn_tensor *forward(const net *n, bool *blocks) {
    const kn_conv_options relu = {.padding = {1, 1}, .act = KN_ACT_RELU},
                          same = {.padding = {1, 1}};
    const kn_pooling_options steps = {.stride = {2, 2}, .padding = {1, 1}};
    kn_tensor *x = kn_conv(n->x, n->first, n->b, &relu);
    kn_tensor *y =
        kn_batchnorm(kn_conv(x, n->w, n->b, &same), n->mean, n->var, n->b, n->mean, NULL);
    kn_tensor *z = kn_relu(kn_add(y, x)), *p = kn_maxpool(z, KN_SHAPE(3, 3), &steps);
    kn_tensor *q = kn_avgpool(p, KN_SHAPE(2, 2), NULL);
    kn_tensor *last = kn_conv_add(q, n->w, n->b, q, &relu);
    *blocks = in_blocks(x) && in_blocks(y) && in_blocks(z) && in_blocks(p) && in_blocks(last);
    return kn_mean(last, KN_SHAPE(2, 3), false);
}

static void a_mixed_chain_stays_in_blocks(void **state) {
    (void)state;
    KN_FRAME(.threads = 2);
    net n = net_of();
    bool blocks = false;
    kn_tensor *want = forward(&n, &blocks), *got[3];
    for (int i = 0; i < 3; i++) {
        KN_FRAME(.autocast = KN_BF16, .layout = i ? i : KN_OFF, .threads = 1 + i);
        got[i] = kn_keep(wide(forward(&n, &blocks)));
        assert_int_equal(blocks, i && kn__dnnl_has_bf16());
    }
    for (int i = 0; i < 3; i++)
        for (int64_t k = 0; k < kn_tensor_numel(want); k++)
            assert_close(ops_at(got[i], k), ops_at(want, k), 0.02, 0.02);
}

/* Batches, transposes, one row, one column, no columns to sum over, tiles of many threads. */
static void products_are_the_f32_ones_rounded_once(void **state) {
    (void)state;
    static const struct {
        int64_t batch, m, n, k;
    } sizes[] = {{1, 1, 1, 1},    {1, 100, 64, 784}, {1, 130, 257, 96}, {5, 33, 17, 40},
                 {40, 16, 24, 8}, {1, 1, 300, 77},   {1, 90, 1, 5000},  {1, 7, 9, 0}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int how = 0; how < 4; how++) {
            const kn_matmul_options o = {.trans_a = how & 1, .trans_b = how >> 1};
            int64_t batch = sizes[i].batch, m = sizes[i].m, n = sizes[i].n, k = sizes[i].k;
            KN_FRAME(.threads = 2);
            kn_tensor *a = random_bf16(o.trans_a ? KN_SHAPE(batch, k, m) : KN_SHAPE(batch, m, k));
            kn_tensor *b = random_bf16(o.trans_b ? KN_SHAPE(batch, n, k) : KN_SHAPE(batch, k, n));
            kn_tensor *got = kn_matmul(a, b, &o);
            assert_rounded(got, kn_matmul(wide(a), wide(b), &o));
            KN_FRAME(.threads = 3);
            assert_same_bits(got, kn_matmul(a, b, &o));
        }
}

/* The gradient of a shared weight is added to before it is rounded; bias and activation follow. */
static void linear_layers_add_and_activate(void **state) {
    (void)state;
    KN_FRAME(.threads = 2);
    kn_tensor *x = random_bf16(KN_SHAPE(130, 300)), *b = random_bf16(KN_SHAPE(70));
    kn_tensor *r = random_bf16(KN_SHAPE(130, 70));
    kn_tensor *w = rounded(kn_affine(random_tensor(KN_F32, KN_SHAPE(70, 300)), 0.1, 0));
    assert_rounded(kn_linear(x, w, b), kn_linear(wide(x), wide(w), wide(b)));
    for (int act = KN_ACT_RELU; act < KN_ACTS; act++) {
        kn_tensor *got = wide(kn_linear_act(x, w, b, (kn_act)act));
        kn_tensor *want = kn_linear_act(wide(x), wide(w), wide(b), (kn_act)act);
        for (int64_t i = 0; i < kn_tensor_numel(want); i++) /* two roundings */
            assert_close(ops_at(got, i), ops_at(want, i), 0x1p-7, 0x1p-7);
        got = wide(kn_linear_add(x, w, b, r, (kn_act)act));
        want = kn_linear_add(wide(x), wide(w), wide(b), wide(r), (kn_act)act);
        for (int64_t i = 0; i < kn_tensor_numel(want); i++)
            assert_close(ops_at(got, i), ops_at(want, i), 0x1p-7, 0x1p-6);
    }
    kn_tensor *into = random_bf16(KN_SHAPE(300, 70)), *dy = random_bf16(KN_SHAPE(130, 70));
    kn_attr_matmul attr = {.trans_a = 1};
    kn_tensor *sum = kn_add(kn_matmul(wide(x), wide(dy), &(kn_matmul_options){.trans_a = 1}),
                            wide(into)),
              *in[] = {x, dy};
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_matmul, &attr, in, 2);
    call.given = call.accumulate = 1;
    call.out[0] = into;
    assert_ptr_equal(kn_op_run(&call), into);
    assert_rounded(into, sum);
}

/* Whether the library convolves bf16 follows from the processor and KNET_ISA. */
static void the_route_follows_the_instruction_set(void **state) {
    (void)state;
    KN_FRAME();
    kn_op_call call = {.dtype = KN_BF16};
    kn__conv_sizes s = plain_sizes;
    bool takes = true;
    assert_int_equal(kn__conv_takes_bf16(&takes, &call, KN_PASS_FORWARD, &s), KN_OK);
    assert_int_equal(takes, kn__dnnl_has_bf16());
    kn__conv_prefer(KN_CONV_OURS);
    assert_int_equal(kn__conv_takes_bf16(&takes, &call, KN_PASS_FORWARD, &s), KN_OK);
    assert_false(takes);
    kn__conv_prefer(KN_CONV_TABLED);
    call.dtype = KN_F16;
    assert_int_equal(kn__conv_takes_bf16(&takes, &call, KN_PASS_FORWARD, &s), KN_OK);
    assert_false(takes);
    call.dtype = KN_BF16;
    s.flip = true;
    assert_int_equal(kn__conv_takes_bf16(&takes, &call, KN_PASS_FORWARD, &s), KN_OK);
    assert_false(takes);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(every_pass_is_the_f32_one_rounded_once), OPS_TEST(windows_in_padding_are_right),
        OPS_TEST(the_number_of_threads_changes_no_bit_of_bf16),
        OPS_TEST(a_gradient_is_added_before_it_is_rounded),
        OPS_TEST(what_follows_the_sums_is_near_f32), OPS_TEST(a_mixed_chain_stays_in_blocks),
        OPS_TEST(products_are_the_f32_ones_rounded_once), OPS_TEST(linear_layers_add_and_activate),
        OPS_TEST(the_route_follows_the_instruction_set));
}
