/* Gradients of layer norm and RMS norm beside those of the formula in small ops: rows of all parts
 * of a vector, and of more than one block of sums; with each set of weights. */
#include <knet/norm.h>

#include "autograd_test.h"

enum { ROWS = 5 };

/* x̂·w + b by small ops. */
static kn_tensor *by_hand(kn_tensor *x, kn_tensor *w, kn_tensor *b, bool centred) {
    kn_tensor *d = centred ? kn_sub(x, kn_mean(x, KN_SHAPE(1), true)) : x;
    kn_tensor *var = kn_mean(kn_square(d), KN_SHAPE(1), true);
    kn_tensor *y = kn_div(d, kn_sqrt(kn_affine(var, 1, 1e-5)));
    if (w != KN_NONE) y = kn_mul(y, w);
    return b != KN_NONE ? kn_add(y, b) : y;
}

static kn_tensor *by_op(kn_tensor *x, kn_tensor *w, kn_tensor *b, bool centred) {
    return centred ? kn_layernorm(x, w, b, 1, 1e-5) : kn_rmsnorm(x, w, 1, 1e-5);
}

/* `has`: bit 0: w, bit 1: b, bit 2: no gradient of x, bit 4: none of w. The gradients, in order. */
static int run(kn_tensor *out[], kn_tensor *(*norm)(kn_tensor *, kn_tensor *, kn_tensor *, bool),
               kn_dtype dtype, int64_t n, int has, bool centred) {
    kn_shape shape = KN_SHAPE(ROWS, n);
    kn_tensor *x = kn_cast(kn_reshape(kn_sin(kn_linspace(0, 1e4, ROWS * n)), shape), dtype);
    kn_tensor *g = kn_cast(kn_reshape(kn_cos(kn_linspace(2, 3e4, ROWS * n)), shape), dtype);
    kn_tensor *w = has & 1 ? kn_cast(kn_linspace(1, 2, n), dtype) : KN_NONE;
    kn_tensor *b = has & 2 ? kn_watch(kn_cast(kn_linspace(-1, 1, n), dtype)) : KN_NONE;
    kn_tensor *of[3];
    int n_of = 0;
    if (!(has & 4)) of[n_of++] = x = kn_watch(x);
    if (w != KN_NONE && !(has & 16)) of[n_of++] = w = kn_watch(w);
    if (b != KN_NONE) of[n_of++] = b;
    kn_tensor *sum = kn_sum(kn_mul(norm(x, w, b, centred), g), KN_ALL, false);
    assert_ok(kn_gradients(out, sum, of, n_of, NULL));
    return n_of;
}

static void gradients_are_those_of_small_ops(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 3, 16, 37, 512, 4096, 4117, 9001};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int has = 0; has < 32; has++) {
            bool centred = !(has & 8);
            if (((has & 6) == 4 && (has & 17) != 1) || (has & 17) == 16 || (!centred && has & 2) ||
                (lengths[i] == 1 && centred))
                continue;
            for (int k = 0; k < 2; k++) {
                KN_TAPE(.threads = 2, .dtype = KN_F64);
                kn_tensor *got[3], *want[3];
                double tolerance = k ? 1e-12 : 2e-5;
                int n = run(got, by_op, k ? KN_F64 : KN_F32, lengths[i], has, centred);
                run(want, by_hand, KN_F64, lengths[i], has, centred);
                for (int j = 0; j < n; j++)
                    for (int64_t e = 0; e < kn_tensor_numel(want[j]); e++)
                        assert_close(ops_at(got[j], e), ops_at(want[j], e), tolerance, tolerance);
            }
        }
}

int main(void) { return RUN_TESTS(OPS_TEST(gradients_are_those_of_small_ops)); }
