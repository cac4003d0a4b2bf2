/* Ops of f16 and bf16 whose sums are f32: results and gradients are those of f32, rounded once. */
#include <knet/norm.h>
#include <knet/sequence.h>

#include "autograd_test.h"

enum { B = 3, C = 6, S = 5, KINDS = 9, ATTENTION = 6, NORMS = ATTENTION };

static const kn_batchnorm_options training = {.training = 1};

static kn_tensor *head(kn_tensor *x, int64_t i) {
    return kn_reshape(kn_slice(x, KN_SHAPE(i, 0, 0), KN_SHAPE(i + 1, C, S)), KN_SHAPE(1, 1, C, S));
}

/* Queries, keys and values are parts of x; the mask is in[1], in 16 bits. */
static kn_tensor *attended(kn_tensor *in[], kn_dtype half) {
    kn_tensor *x = in[0];
    const kn_attention_options o = {.mask = kn_cast(kn_cast(in[1], half), kn_tensor_dtype(x))};
    return kn_attention(head(x, 0), head(x, 1), head(x, 2), &o);
}

/* in: x [B,C,S], weight and bias [C], running mean and variance [C]. */
static kn_tensor *result(int kind, kn_tensor *in[], kn_dtype half) {
    kn_tensor *rows = kn_reshape(in[0], KN_SHAPE(B * S, C));
    switch (kind) {
        case 0:
            return kn_batchnorm(in[0], KN_NONE, KN_NONE, in[1], in[2], &training);
        case 1:
            return kn_batchnorm(in[0], in[3], in[4], in[1], in[2], NULL);
        case 2:
            return kn_groupnorm(in[0], in[1], in[2], 2, 1e-3);
        case 3:
            return kn_batchnorm(rows, KN_NONE, KN_NONE, in[1], in[2], &training);
        case 4:
            return kn_layernorm(rows, in[1], in[2], 1, 1e-3);
        case 5:
            return kn_rmsnorm(rows, in[1], 1, 1e-3);
        case ATTENTION:
            return attended(in, half);
        default:
            break;
    }
    kn_tensor *labels =
        kn_argmax(kn_reshape(kn_neg(in[0]), KN_SHAPE(B * S, C)), KN_SHAPE(1), false);
    if (kind == 7) return kn_cross_entropy(rows, labels);
    return kn_cross_entropy_with(rows, labels, &(kn_cross_entropy_options){.smoothing = 0.1});
}

static kn_tensor *wave(kn_shape shape, double rate, kn_dtype dtype) {
    int64_t n = 1;
    for (int d = 0; d < shape.n_dims; d++) n *= shape.dim[d];
    kn_tensor *t = kn_sin(kn_linspace(1, 1 + rate * (double)n, n));
    return kn_reshape(kn_cast(t, dtype), shape);
}

/* Values that fit the 16-bit type, of x in `dtype`, of the others in f32. */
static void inputs(kn_tensor *in[5], kn_dtype half, kn_dtype dtype) {
    in[0] = kn_cast(wave(KN_SHAPE(B, C, S), 0.7, half), dtype);
    for (int i = 1; i < 5; i++) in[i] = wave(KN_SHAPE(C), i + 0.3, KN_F32);
    in[4] = kn_affine(in[4], 0.5, 1);
    for (int i = 0; i < 5; i++) in[i] = kn_watch(in[i]);
}

static kn_tensor *weighed(kn_tensor *y, kn_dtype half, double rate) {
    kn_tensor *c = kn_cast(wave(kn_tensor_shape(y), rate, half), KN_F32);
    return sum_all(kn_mul(kn_cast(y, KN_F32), c));
}

enum { FIRST = 1, SECOND = FIRST + 5, RESULTS = SECOND + 2 };

/* y, its gradients by all inputs, and the gradients of that of x by x and the weight. */
static void run(kn_tensor *out[RESULTS], int kind, bool again, kn_dtype half, kn_dtype dtype) {
    kn_tensor *in[5], *d[5], *dd[2];
    inputs(in, half, dtype);
    const kn_gradients_options keep = {.keep = 1, .again = again};
    kn_tensor *y = result(kind, in, half);
    memset(out, 0, RESULTS * sizeof *out);
    out[0] = y;
    assert_ok(kn_gradients(d, weighed(y, half, 1.1), in, 5, &keep));
    for (int i = 0; i < 5; i++) out[FIRST + i] = d[i];
    if (!again) return;
    assert_ok(
        kn_gradients(dd, weighed(d[0], half, 1.7), in, 2, &(kn_gradients_options){.keep = 1}));
    out[SECOND] = dd[0], out[SECOND + 1] = dd[1];
}

static bool same(kn_tensor *got, kn_tensor *want, kn_dtype dtype) {
    if (!got || got == KN_NONE) return want == got;
    if (kn_tensor_dtype(got) != dtype) return false;
    want = kn_cast(want, dtype);
    size_t bytes = (size_t)kn_tensor_numel(got) * kn_dtype_bytes(dtype);
    return kn_tensor_numel(got) == kn_tensor_numel(want) &&
           memcmp(kn_data(got), kn_data(want), bytes) == 0;
}

static void results_and_gradients_are_rounded_once(void **state) {
    (void)state;
    for (int i = 0; i < 4 * KINDS; i++) {
        int kind = i / 4;
        bool again = i / 2 % 2 && kind != ATTENTION;
        kn_dtype half = i % 2 ? KN_BF16 : KN_F16;
        bool ok[RESULTS];
        {
            KN_TAPE();
            kn_tensor *got[RESULTS], *want[RESULTS];
            run(got, kind, again, half, half);
            run(want, kind, again, half, KN_F32);
            for (int r = 0; r < RESULTS; r++) {
                bool is_x = r == 0 || r == FIRST || r == SECOND;
                ok[r] = same(got[r], want[r], is_x ? half : KN_F32);
            }
            assert_ok(kn_check());
        }
        for (int r = 0; r < RESULTS; r++) {
            if (!ok[r]) print_error("op %d, case %d, result %d\n", kind, i % 4, r);
            assert_true(ok[r]);
        }
    }
}

/* Weights of 16 bits get gradients of 16 bits. */
static void weights_may_have_the_bits_of_x(void **state) {
    (void)state;
    for (int kind = 0; kind < NORMS; kind++) {
        KN_TAPE();
        kn_tensor *in[5], *d[2];
        inputs(in, KN_BF16, KN_BF16);
        for (int i = 1; i < 3; i++) in[i] = kn_watch(kn_cast(in[i], KN_BF16));
        kn_tensor *y = result(kind, in, KN_BF16);
        assert_ok(kn_gradients(d, weighed(y, KN_BF16, 1.1), in, 2, NULL));
        for (int i = 0; i < 2; i++) assert_int_equal(kn_tensor_dtype(d[i]), KN_BF16);
    }
}

/* What the tape keeps of a layernorm is x and two numbers a row. */
static void the_tape_keeps_x_in_16_bits(void **state) {
    (void)state;
    enum { ROWS = 256, WIDTH = 1024 };
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, kn_device_host(), NULL));
    {
        KN_TAPE(.pool = pool);
        kn_tensor *x = kn_watch(kn_cast(kn_ones(KN_SHAPE(ROWS, WIDTH)), KN_BF16));
        kn_pool_stats before, after;
        kn_pool_stats_read(&before, sizeof before, pool);
        assert_non_null(kn_layernorm(x, KN_NONE, KN_NONE, 1, 1e-5));
        kn_pool_stats_read(&after, sizeof after, pool);
        assert_true(after.live_bytes - before.live_bytes < 3 * ROWS * WIDTH);
    }
    kn_pool_destroy(pool);
}

int main(void) {
    return RUN_TESTS(OPS_TEST(results_and_gradients_are_rounded_once),
                     OPS_TEST(weights_may_have_the_bits_of_x),
                     OPS_TEST(the_tape_keeps_x_in_16_bits));
}
