/* Convolutions, pooling and activations against PyTorch, and their gradients (ops/golden/conv.py,
 * pool.py, activation.py). */
#include "../ops/golden/activation.h"
#include "../ops/golden/conv.h"
#include "../ops/golden/pool.h"
#include "../ops/kernels_test.h"
#include "autograd_test.h"

/* Element i is ((i·a + b) mod m)·scale + shift. */
static kn_tensor *made(kn_dtype dtype, kn_shape shape, int a, int b, int m, double scale,
                       double shift) {
    double values[256];
    int64_t n = 1;
    for (int d = 0; d < shape.n_dims; d++) n *= shape.dim[d];
    assert_true(n <= 256);
    for (int i = 0; i < n; i++) values[i] = (i * a + b) % m * scale + shift;
    return from_doubles(values, dtype, shape);
}

static void check_part(const char *name, const char *part, kn_tensor *t, const double **want,
                       const double *end) {
    if (!t) print_error("%s, %s: %s\n", name, part, kn_last_error()->message);
    assert_non_null(t);
    int64_t n = kn_tensor_numel(t);
    assert_true(n <= end - *want);
    double tol = kn_tensor_dtype(t) == KN_F64 ? 1e-11 : 1e-5;
    for (int64_t i = 0; i < n; i++) {
        double got = ops_at(t, i), right = (*want)[i];
        if (fabs(got - right) > tol * (fabs(right) + 1))
            fail_msg("%s, %s: element %d is %.17g, expected %.17g", name, part, (int)i, got, right);
    }
    *want += n;
}

/* y, then the gradients of Σ y·dy by each input, against one list of numbers. */
static void check(const char *name, kn_tensor *y, kn_tensor *dy, kn_tensor *const x[], int n_x,
                  const double *want, size_t n_want) {
    const double *end = want + n_want;
    kn_tensor *d[4];
    check_part(name, "y", y, &want, end);
    assert_ok(kn_gradients(d, y, x, n_x, &(kn_gradients_options){.dy = dy, .keep = 1}));
    for (int i = 0; i < n_x; i++) {
        char part[] = "gradient 0";
        part[sizeof part - 2] = (char)('0' + i);
        check_part(name, part, d[i], &want, end);
    }
    assert_true(want == end);
}
#define NUMBERS(name) golden_##name, sizeof golden_##name / sizeof *golden_##name

/* --- convolutions --- */

static kn_tensor *seeded(kn_dtype dtype, int seed, kn_shape shape) {
    return made(dtype, shape, 7, seed * 5, 23, 1.0 / 16, -0.6875);
}

#define CONV(...) kn_conv(x[0], x[1], x[2], &(kn_conv_options){__VA_ARGS__})
#define BACK(...) kn_deconv(x[0], x[1], x[2], &(kn_conv_options){__VA_ARGS__})
#define CONVOLUTIONS(X)                                                                            \
    X(line, CONV(.stride = {2}, .padding = {1}, .padding_extra = {2}, .dilation = {2}), 3,         \
      KN_SHAPE(2, 2, 7), KN_SHAPE(3, 2, 3), KN_SHAPE(3))                                           \
    X(line_groups, CONV(.padding = {1}, .groups = 2), 3, KN_SHAPE(1, 4, 6), KN_SHAPE(6, 2, 3),     \
      KN_SHAPE(6))                                                                                 \
    X(plane, CONV(.padding = {1, 1}), 3, KN_SHAPE(2, 2, 4, 5), KN_SHAPE(3, 2, 3, 3), KN_SHAPE(3))  \
    X(plane_one, kn_conv(x[0], x[1], x[2], NULL), 3, KN_SHAPE(2, 3, 2, 3), KN_SHAPE(2, 3, 1, 1),   \
      KN_SHAPE(2))                                                                                 \
    X(plane_flip, kn_conv(x[0], x[1], KN_NONE, &(kn_conv_options){.flip = 1}), 2,                  \
      KN_SHAPE(1, 2, 4, 5), KN_SHAPE(2, 2, 3, 2))                                                  \
    X(plane_groups, CONV(.stride = {1, 2}, .padding = {1, 0}, .groups = 2), 3,                     \
      KN_SHAPE(1, 4, 4, 5), KN_SHAPE(4, 2, 3, 3), KN_SHAPE(4))                                     \
    X(plane_each, CONV(.padding = {1, 1}, .groups = 3), 3, KN_SHAPE(1, 3, 4, 4),                   \
      KN_SHAPE(6, 1, 3, 3), KN_SHAPE(6))                                                           \
    X(plane_dilated, CONV(.padding = {2, 2}, .dilation = {2, 1}), 3, KN_SHAPE(1, 2, 5, 4),         \
      KN_SHAPE(2, 2, 3, 3), KN_SHAPE(2))                                                           \
    X(plane_uneven, CONV(.stride = {2, 1}, .padding = {0, 2}, .padding_extra = {2, -1}), 3,        \
      KN_SHAPE(1, 2, 4, 4), KN_SHAPE(2, 2, 2, 3), KN_SHAPE(2))                                     \
    X(plane_less, CONV(.padding = {2, 1}, .padding_extra = {-1, -1}), 3, KN_SHAPE(1, 2, 4, 4),     \
      KN_SHAPE(2, 2, 3, 3), KN_SHAPE(2))                                                           \
    X(plane_add,                                                                                   \
      kn_conv_add(x[0], x[1], x[2], x[3],                                                          \
                  &(kn_conv_options){.padding = {1, 1}, .act = KN_ACT_RELU}),                      \
      4, KN_SHAPE(1, 2, 4, 4), KN_SHAPE(2, 2, 3, 3), KN_SHAPE(2), KN_SHAPE(1, 2, 4, 4))            \
    X(cube, CONV(.stride = {1, 2, 1}, .padding = {1, 1, 0}), 3, KN_SHAPE(1, 2, 3, 4, 3),           \
      KN_SHAPE(2, 2, 2, 3, 2), KN_SHAPE(2))                                                        \
    X(cube_groups,                                                                                 \
      CONV(.padding = {1, 1, 0}, .padding_extra = {0, -1, 1}, .dilation = {1, 2, 1}, .groups = 2), \
      3, KN_SHAPE(1, 4, 2, 3, 3), KN_SHAPE(4, 2, 2, 2, 2), KN_SHAPE(4))                            \
    X(back_line, BACK(.stride = {3}, .padding = {1}, .padding_extra = {-2}, .dilation = {2}), 3,   \
      KN_SHAPE(2, 3, 4), KN_SHAPE(3, 2, 3), KN_SHAPE(2))                                           \
    X(back_plane, BACK(.stride = {2, 2}, .padding = {1, 1}), 3, KN_SHAPE(1, 2, 3, 4),              \
      KN_SHAPE(2, 3, 4, 4), KN_SHAPE(3))                                                           \
    X(back_groups, BACK(.stride = {2, 1}, .padding_extra = {-1, 0}, .groups = 2), 3,               \
      KN_SHAPE(1, 4, 2, 3), KN_SHAPE(4, 2, 3, 2), KN_SHAPE(4))                                     \
    X(back_cube, BACK(.stride = {1, 2, 1}, .padding = {0, 1, 1}, .dilation = {2, 1, 1}), 3,        \
      KN_SHAPE(1, 2, 2, 3, 3), KN_SHAPE(2, 2, 2, 3, 2), KN_SHAPE(2))

typedef struct convolution {
    const char *name;
    kn_tensor *(*run)(kn_tensor *const x[]);
    int n_in;
    kn_shape in[4];
    const double *want;
    size_t n_want;
} convolution;

#define X(name, expr, ...)                                                                         \
    static kn_tensor *conv_##name(kn_tensor *const x[]) { return expr; }
CONVOLUTIONS(X)
#undef X
#define X(name, expr, n, ...) {#name, conv_##name, n, {__VA_ARGS__}, NUMBERS(name)},

static void convolutions_equal_those_of_pytorch(void **state) {
    (void)state;
    const convolution convolutions[] = {CONVOLUTIONS(X)};
    for (size_t i = 0; i < sizeof convolutions / sizeof *convolutions; i++) FOR_BOTH_DTYPES(dtype) {
            const convolution *c = &convolutions[i];
            KN_TAPE(.dtype = dtype);
            kn_tensor *x[4];
            for (int k = 0; k < c->n_in; k++) x[k] = kn_watch(seeded(dtype, k + 1, c->in[k]));
            kn_tensor *y = c->run(x);
            if (!y) print_error("%s: %s\n", c->name, kn_last_error()->message);
            assert_non_null(y);
            kn_tensor *dy = seeded(dtype, 6, kn_tensor_shape(y));
            check(c->name, y, dy, x, c->n_in, c->want, c->n_want);
        }
}
#undef X

/* --- pooling --- */

static void check_pool(const char *name, kn_tensor *y, kn_tensor *x, const double *want,
                       size_t n_want) {
    if (!y) print_error("%s: %s\n", name, kn_last_error()->message);
    assert_non_null(y);
    kn_tensor *dy = made(kn_tensor_dtype(y), kn_tensor_shape(y), 1, 0, 1000, 1, 0);
    check(name, y, dy, &x, 1, want, n_want);
}
#define POOL(name, kind, x, window, ...)                                                           \
    check_pool(#name, kn_##kind##pool(x, KN_SHAPE window, &(kn_pooling_options){__VA_ARGS__}), x,  \
               NUMBERS(name##_both))
#define SIZED(name, expr) check_pool(#name, expr, x, NUMBERS(name##_both))

static void pooling_equals_that_of_pytorch(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_TAPE(.dtype = dtype);
        kn_tensor *of[3];
        const kn_shape shapes[] = {KN_SHAPE(1, 2, 6, 5), KN_SHAPE(1, 2, 30),
                                   KN_SHAPE(1, 1, 4, 3, 5)};
        for (int i = 0; i < 3; i++)
            of[i] = kn_watch(made(dtype, shapes[i], 37, 11, 211, 1.0 / 8, -13));
        kn_tensor *x = of[0], *line = of[1], *cube = of[2];
        POOL(max, max, x, (2, 2), .ceil = 0);
        POOL(max_overlap, max, x, (3, 3), .stride = {2, 2}, .padding = {1, 1});
        POOL(max_uneven, max, x, (3, 2), .stride = {2, 1}, .padding = {1, 0});
        POOL(max_dilated, max, x, (2, 2), .stride = {1, 1}, .padding = {1, 1}, .dilation = {3, 2});
        POOL(max_ceil, max, x, (3, 3), .stride = {2, 2}, .ceil = 1);
        POOL(max_line, max, line, (4), .stride = {3}, .padding = {2});
        POOL(max_cube, max, cube, (2, 2, 2), .stride = {1, 2, 2});
        POOL(avg, avg, x, (2, 2), .ceil = 0);
        POOL(avg_padded, avg, x, (3, 3), .stride = {2, 2}, .padding = {1, 1});
        POOL(avg_inside, avg, x, (3, 3), .stride = {2, 2}, .padding = {1, 1}, .inside = 1);
        POOL(avg_ceil, avg, x, (3, 2), .stride = {2, 3}, .ceil = 1, .inside = 1);
        POOL(avg_line, avg, line, (4), .stride = {3}, .padding = {2});
        POOL(avg_cube, avg, cube, (2, 3, 2), .stride = {1, 2, 2}, .padding = {0, 1, 0});
        SIZED(adaptive_avg, kn_adaptive_avgpool(x, KN_SHAPE(9, 2)));
        SIZED(adaptive_max, kn_adaptive_maxpool(x, KN_SHAPE(3, 4)));
        SIZED(global_avg, kn_global_avgpool(x));
        SIZED(global_max, kn_global_maxpool(x));
    }
}

/* --- activations --- */

enum { PLACES = 58 };

#define ACTIVATION(name, expr)                                                                     \
    do {                                                                                           \
        kn_tensor *y = expr;                                                                       \
        check(#name, y, weights, &x, 1, NUMBERS(name));                                            \
    } while (0)

static void activations_equal_those_of_pytorch(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_TAPE(.dtype = dtype);
        kn_tensor *x = kn_watch(made(dtype, KN_SHAPE(PLACES), 1, 0, PLACES, 0.25, -7));
        kn_tensor *weights = seeded(dtype, 1, KN_SHAPE(PLACES));
        ACTIVATION(relu, kn_relu(x));
        ACTIVATION(sigm, kn_sigm(x));
        ACTIVATION(tanh, kn_tanh(x));
        ACTIVATION(leaky_relu, kn_leaky_relu(x, 0.125));
        ACTIVATION(elu, kn_elu(x, 0.75));
        ACTIVATION(celu, kn_celu(x, 0.75));
        ACTIVATION(selu, kn_selu(x));
        ACTIVATION(gelu, kn_gelu(x));
        ACTIVATION(gelu_tanh, kn_gelu_tanh(x));
        ACTIVATION(silu, kn_silu(x));
        ACTIVATION(mish, kn_mish(x));
        ACTIVATION(softplus, kn_softplus(x));
        ACTIVATION(softsign, kn_softsign(x));
        ACTIVATION(logsigmoid, kn_logsigmoid(x));
        ACTIVATION(hardsigmoid, kn_hardsigmoid(x));
        ACTIVATION(hardtanh, kn_hardtanh(x, -0.5, 2));
        ACTIVATION(relu6, kn_relu6(x));
        ACTIVATION(hardshrink, kn_hardshrink(x, 0.5));
        ACTIVATION(softshrink, kn_softshrink(x, 0.5));
        ACTIVATION(tanhshrink, kn_tanhshrink(x));
    }
}

/* Away from -3 and 3, where the slopes of hardswish are others (ops.h). */
static void hardswish_equals_that_of_pytorch_away_from_its_ends(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_TAPE(.dtype = dtype);
        kn_tensor *x = kn_watch(made(dtype, KN_SHAPE(PLACES), 1, 0, PLACES, 0.25, -7 + 0.125));
        kn_tensor *weights = seeded(dtype, 1, KN_SHAPE(PLACES));
        ACTIVATION(hardswish, kn_hardswish(x));
    }
}

/* PyTorch's glu of both halves. */
static void a_gate_equals_that_of_pytorch(void **state) {
    (void)state;
    enum { HALF = PLACES / 2 };
    FOR_BOTH_DTYPES(dtype) {
        KN_TAPE(.dtype = dtype);
        kn_tensor *x[] = {kn_watch(made(dtype, KN_SHAPE(HALF), 1, 0, PLACES, 0.25, -7)),
                          kn_watch(made(dtype, KN_SHAPE(HALF), 1, HALF, PLACES, 0.25, -7))};
        kn_tensor *weights = seeded(dtype, 1, KN_SHAPE(HALF)), *y = kn_gate(x[0], x[1]);
        check("gate", y, weights, x, 2, NUMBERS(gate));
    }
}

int main(void) {
    return RUN_TESTS(OPS_TEST(convolutions_equal_those_of_pytorch),
                     OPS_TEST(pooling_equals_that_of_pytorch),
                     OPS_TEST(activations_equal_those_of_pytorch),
                     OPS_TEST(hardswish_equals_that_of_pytorch_away_from_its_ends),
                     OPS_TEST(a_gate_equals_that_of_pytorch));
}
