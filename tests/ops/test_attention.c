/* Attention on the host: against PyTorch, against the same of small ops, and bad arguments. */
#include "golden/attention.h"
#include "golden/rotary.h"
#include "golden_arrays.h"

enum { B = 2, H = 4, G = 2, T = 3, S = 5, D = 4, E = 3 };

/* What attention.py's made() makes. */
static kn_tensor *made(kn_dtype dtype, int seed, kn_shape shape) {
    double x[256];
    int n = 1;
    for (int d = 0; d < shape.n_dims; d++) n *= (int)shape.dim[d];
    assert_true(n <= 256);
    for (int i = 0; i < n; i++) x[i] = (i * 7 + seed * 5) % 23 / 16.0 - 0.6875;
    return kn_cast(from_doubles(x, KN_F64, shape), dtype);
}

static void check_golden(kn_dtype dtype, kn_attention_options o, const double *want) {
    KN_FRAME();
    kn_tensor *q = made(dtype, 1, KN_SHAPE(B, H, T, D)), *k = made(dtype, 2, KN_SHAPE(B, G, S, D));
    kn_tensor *v = made(dtype, 3, KN_SHAPE(B, G, S, E));
    if (o.mask) o.mask = made(dtype, 4, KN_SHAPE(H, 1, S));
    kn_tensor *y = kn_attention(q, k, v, &o);
    assert_non_null(y);
    double most = dtype == KN_F64 ? 1e-9 : 2e-6;
    for (int i = 0; i < B * H * T * E; i++) assert_close(ops_at(y, i), want[i], most, most);
}

static void attention_equals_that_of_pytorch(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        check_golden(dtype, (kn_attention_options){.causal = 0}, golden_plain);
        check_golden(dtype, (kn_attention_options){.scale = 0.7}, golden_scaled);
        check_golden(dtype, (kn_attention_options){.causal = 1, .offset = S - T}, golden_causal);
        check_golden(dtype, (kn_attention_options){.mask = KN_NONE}, golden_masked);
    }
}

/* softmax(q·kᵀ·scale + mask)·v of one group. */
static kn_tensor *small_ops(kn_tensor *q, kn_tensor *k, kn_tensor *v, kn_tensor *mask) {
    double scale = 1 / sqrt((double)kn_tensor_shape(q).dim[3]);
    kn_tensor *scores = kn_affine(kn_matmul(q, k, &(kn_matmul_options){.trans_b = 1}), scale, 0);
    if (mask) scores = kn_add(scores, mask);
    return kn_matmul(kn_softmax(scores, 3), v, NULL);
}

static void check_small(kn_dtype dtype, kn_shape q_shape, int64_t keys, int64_t e, bool masked) {
    KN_FRAME(.dtype = dtype);
    int64_t b = q_shape.dim[0], h = q_shape.dim[1], t = q_shape.dim[2];
    kn_tensor *q = random_tensor(dtype, q_shape);
    kn_tensor *k = random_tensor(dtype, KN_SHAPE(b, h, keys, q_shape.dim[3]));
    kn_tensor *v = random_tensor(dtype, KN_SHAPE(b, h, keys, e)), *mask = NULL;
    kn_attention_options o = {.causal = 0};
    if (masked) { /* each query sees its own first keys, and key 0 */
        kn_tensor *seen = kn_tril(kn_ones(KN_SHAPE(t, keys)), 0);
        o.mask = kn_gt(seen, kn_zeros(KN_SHAPE(1)));
        mask = kn_where(o.mask, kn_zeros(KN_SHAPE(1)), kn_full(KN_SHAPE(1), -INFINITY));
    }
    kn_tensor *y = kn_attention(q, k, v, &o), *want = small_ops(q, k, v, mask);
    assert_non_null(y);
    double most = dtype == KN_F64 ? 1e-12 : 1e-5;
    for (int64_t i = 0; i < kn_tensor_numel(y); i++)
        assert_close(ops_at(y, i), ops_at(want, i), most, most);
    if (!masked) return;
    kn_tensor *causal = kn_attention(q, k, v, &(kn_attention_options){.causal = 1});
    for (int64_t i = 0; i < kn_tensor_numel(y); i++)
        assert_close(ops_at(causal, i), ops_at(want, i), most, most);
}

static void attention_equals_that_of_small_ops(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        check_small(dtype, KN_SHAPE(2, 3, 7, 5), 9, 4, false);
        check_small(dtype, KN_SHAPE(1, 2, 300, 33), 517, 17, false);
        check_small(dtype, KN_SHAPE(1, 2, 300, 33), 517, 17, true);
        check_small(dtype, KN_SHAPE(2, 1, 49, 64), 49, 64, true);
        check_small(dtype, KN_SHAPE(2, 3, 1, 33), 517, 17, false); /* without packing */
        check_small(dtype, KN_SHAPE(1, 2, 3, 64), 300, 9, true);
    }
}

static void any_number_of_threads_gives_the_same_bits(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *q = random_tensor(KN_F32, KN_SHAPE(1, 3, 700, 24)), *y[3];
    kn_tensor *k = random_tensor(KN_F32, KN_SHAPE(1, 1, 700, 24));
    static const int threads[] = {1, 2, 7};
    for (int i = 0; i < 3; i++) {
        KN_FRAME(.threads = threads[i]);
        y[i] = kn_keep(kn_attention(q, k, k, &(kn_attention_options){.causal = 1}));
    }
    assert_same_bits(y[0], y[1]);
    assert_same_bits(y[0], y[2]);
}

/* Of 0.3: v is the identity, so that y has the weights. */
static void dropout_drops_its_share_of_the_weights(void **state) {
    (void)state;
    KN_FRAME();
    enum { N = 90, ALL = N * N };
    kn_tensor *q = random_tensor(KN_F32, KN_SHAPE(1, 1, N, 8)), *y[3];
    kn_tensor *v = kn_reshape(kn_eye(N, N), KN_SHAPE(1, 1, N, N));
    kn_tensor *plain = kn_attention(q, q, v, NULL);
    static const int threads[] = {1, 2, 7};
    for (int i = 0; i < 3; i++) {
        KN_FRAME(.threads = threads[i]);
        kn_rng *rng = NULL;
        assert_ok(kn_rng_create(&rng, 17));
        const kn_attention_options o = {.dropout = 0.3, .rng = rng};
        y[i] = kn_keep(kn_attention(q, q, v, &o));
        kn_rng_destroy(rng);
    }
    assert_same_bits(y[0], y[1]);
    assert_same_bits(y[0], y[2]);
    int dropped = 0;
    for (int i = 0; i < ALL; i++) {
        double weight = ops_at(y[0], i);
        dropped += weight == 0;
        if (weight != 0) assert_close(weight, ops_at(plain, i) / 0.7, 1e-5, 1e-9);
    }
    assert_true(dropped > ALL / 4 && dropped < ALL * 35 / 100); /* the generator's seed is fixed */
}

static void rotary_embedding_equals_that_of_pytorch(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        kn_tensor *x = golden_x(dtype, KN_SHAPE(2, 5, 6));
        GOLDEN(kn_rotary(x, NULL), halves);
        const kn_rotary_options adjacent = {.base = 100, .offset = 7, .adjacent = 1};
        GOLDEN(kn_rotary(x, &adjacent), adjacent);
        GOLDEN(kn_rotary(x, &(kn_rotary_options){.n = 4}), part);
    }
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(5, 6));
    assert_op_fails(kn_rotary(kn_ones(KN_SHAPE(6)), NULL), KN_ERR_SHAPE, "x must be [...,T,D]");
    assert_op_fails(kn_rotary(x, &(kn_rotary_options){.n = 3}), KN_ERR_SHAPE, "n is 3");
    assert_op_fails(kn_rotary(x, &(kn_rotary_options){.n = 8}), KN_ERR_SHAPE, "at most 6");
    assert_op_fails(kn_rotary(x, &(kn_rotary_options){.base = -1}), KN_ERR_INVALID, "base is -1");
    assert_op_fails(kn_rotary(x, &(kn_rotary_options){.offset = INT64_MAX}), KN_ERR_INVALID,
                    "offset is 9223372036854775807");
    assert_op_fails(kn_rotary(x, &(kn_rotary_options){.unused = 1}), KN_ERR_INVALID, "unused");
    assert_op_fails(kn_rotary(x, &(kn_rotary_options){.reserved = {1}}), KN_ERR_INVALID,
                    "reserved[0]");
    assert_shape(kn_rotary(kn_ones(KN_SHAPE(0, 6)), NULL), KN_SHAPE(0, 6));
    assert_shape(kn_rotary(kn_ones(KN_SHAPE(3, 0)), NULL), KN_SHAPE(3, 0));
}

static void queries_that_see_no_key_give_zeros_and_nan_stays(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *q = kn_ones(KN_SHAPE(1, 1, 3, 2)), *k = kn_ones(KN_SHAPE(1, 1, 2, 2));
    kn_tensor *y = kn_attention(q, k, k, &(kn_attention_options){.causal = 1, .offset = -1});
    assert_values(y, 0, 0, 1, 1, 1, 1);
    kn_tensor *mask = F32(KN_SHAPE(3, 2), -INFINITY, -INFINITY, 0, -INFINITY, NAN, 0);
    y = kn_attention(q, k, k, &(kn_attention_options){.mask = mask});
    assert_true(ops_at(y, 0) == 0 && ops_at(y, 2) == 1 && isnan(ops_at(y, 4)));
    y = kn_attention(q, kn_zeros(KN_SHAPE(1, 1, 0, 2)), kn_zeros(KN_SHAPE(1, 1, 0, 4)), NULL);
    assert_shape(y, KN_SHAPE(1, 1, 3, 4));
    assert_true(ops_at(y, 0) == 0);
}

static void bad_arguments_are_errors_with_the_values(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *q = kn_ones(KN_SHAPE(2, 4, 3, 8)), *k = kn_ones(KN_SHAPE(2, 3, 5, 8));
    kn_tensor *k2 = kn_ones(KN_SHAPE(2, 2, 5, 8)), *v2 = kn_ones(KN_SHAPE(2, 2, 4, 8));
    assert_op_fails(kn_attention(q, k, k, NULL), KN_ERR_SHAPE, "4 heads of q are no multiple of 3");
    assert_op_fails(kn_attention(q, k2, v2, NULL), KN_ERR_SHAPE, "don't agree");
    assert_op_fails(kn_attention(kn_ones(KN_SHAPE(3, 8)), k2, k2, NULL), KN_ERR_SHAPE,
                    "q must be [B,H,T,D]");
    assert_op_fails(kn_attention(q, k2, k2, &(kn_attention_options){.mask = kn_ones(KN_SHAPE(4))}),
                    KN_ERR_SHAPE, "mask must broadcast to [2,4,3,5]");
    kn_tensor *mask = kn_cast(kn_ones(KN_SHAPE(3, 5)), KN_I64);
    assert_op_fails(kn_attention(q, k2, k2, &(kn_attention_options){.mask = mask}), KN_ERR_DTYPE,
                    "kn_attention: mask is i64; it must be bool (whether the query sees the key) "
                    "or f32 (a number to add to the score)");
    mask = kn_cast(mask, KN_F64);
    assert_op_fails(kn_attention(q, k2, k2, &(kn_attention_options){.mask = mask}), KN_ERR_DTYPE,
                    "q is f32, mask is f64; see kn_cast");
    kn_tensor *gone = NULL;
    {
        KN_FRAME();
        gone = kn_ones(KN_SHAPE(5, 6));
    }
    assert_op_fails(kn_attention(q, k2, k2, &(kn_attention_options){.mask = gone}), KN_ERR_INVALID,
                    "kn_attention: mask [5,6]");
    assert_op_fails(kn_attention(q, k2, k2, &(kn_attention_options){.scale = NAN}), KN_ERR_INVALID,
                    "scale is nan");
    assert_op_fails(kn_attention(q, k2, k2, &(kn_attention_options){.reserved = {1}}),
                    KN_ERR_INVALID, "reserved[0] is not zero");
    assert_op_fails(kn_attention(q, k2, k2, &(kn_attention_options){.dropout = 0.5}),
                    KN_ERR_INVALID, "dropout is 0.5, rng NULL");
    assert_op_fails(kn_attention(q, k2, k2, &(kn_attention_options){.dropout = 2}), KN_ERR_INVALID,
                    "dropout is 2");
    assert_op_fails(
        kn_attention(q, k2, k2, &(kn_attention_options){.causal = 1, .offset = INT64_MAX}),
        KN_ERR_INVALID, "offset is 9223372036854775807");
    assert_op_fails(kn_attention(q, kn_cast(k2, KN_F64), k2, NULL), KN_ERR_DTYPE,
                    "q is f32, k is f64");
}

/* A mask is bool or of q's dtype; in frames with .autocast of f32 too. */
static void masks_beside_16_bits(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *f16 = made(KN_F16, 1, KN_SHAPE(1, 2, S, D)), *x = kn_cast(f16, KN_F32);
    kn_tensor *number = made(KN_F16, 2, KN_SHAPE(S, S)), *wide = kn_cast(number, KN_F32);
    kn_tensor *sees = kn_ge(kn_cast(kn_triu(wide, 0), KN_F32), kn_zeros(KN_SHAPE(1)));
    kn_tensor *masks[][2] = {{number, wide}, {sees, sees}};
    for (int i = 0; i < 2; i++) {
        kn_tensor *y = kn_attention(f16, f16, f16, &(kn_attention_options){.mask = masks[i][0]});
        kn_tensor *want = kn_attention(x, x, x, &(kn_attention_options){.mask = masks[i][1]});
        want = kn_cast(want, KN_F16);
        assert_memory_equal(kn_data(y), kn_data(want), 2 * 2 * S * D);
        KN_FRAME(.autocast = KN_F16);
        y = kn_attention(f16, f16, f16, &(kn_attention_options){.mask = masks[i][1]});
        assert_int_equal(kn_tensor_dtype(y), KN_F32);
    }
    assert_op_fails(kn_attention(f16, f16, f16, &(kn_attention_options){.mask = wide}),
                    KN_ERR_DTYPE, "q is f16, mask is f32; see kn_cast");
    kn_tensor *other = kn_cast(wide, KN_BF16);
    assert_op_fails(kn_attention(f16, f16, f16, &(kn_attention_options){.mask = other}),
                    KN_ERR_DTYPE, "q is f16, mask is bf16; see kn_cast");
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(attention_equals_that_of_pytorch), OPS_TEST(attention_equals_that_of_small_ops),
        OPS_TEST(any_number_of_threads_gives_the_same_bits),
        OPS_TEST(dropout_drops_its_share_of_the_weights),
        OPS_TEST(rotary_embedding_equals_that_of_pytorch),
        OPS_TEST(queries_that_see_no_key_give_zeros_and_nan_stays),
        OPS_TEST(bad_arguments_are_errors_with_the_values), OPS_TEST(masks_beside_16_bits));
}
