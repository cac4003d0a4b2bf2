/* Math modes on the card: how far products and convolutions, and their gradients, are from the same
 * in f64 on the CPU. Strict must not round factors; tf32 and bf16 may, as far as frame.h says. */
#include "gpu.h"

#include <knet/tape.h>

#include <math.h>

static kn_device *gpu;

enum { RESULTS = 3 }; /* y, dx, dw */

typedef kn_tensor *(*layer_fn)(kn_tensor *x, kn_tensor *w);

static kn_tensor *matmul(kn_tensor *x, kn_tensor *w) { return kn_matmul(x, w, NULL); }
static kn_tensor *linear(kn_tensor *x, kn_tensor *w) { return kn_linear(x, w, KN_NONE); }
static kn_tensor *conv(kn_tensor *x, kn_tensor *w) {
    return kn_conv(x, w, KN_NONE, &(kn_conv_options){.padding = {1, 1}});
}

typedef struct layer {
    const char *name;
    layer_fn run;
    kn_shape x, w;
} layer;

#define DIMS(...)                                                                                  \
    { {__VA_ARGS__}, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)) }

static const layer layers[] = {
    {"matmul", matmul, DIMS(192, 512), DIMS(512, 256)},
    {"linear", linear, DIMS(192, 512), DIMS(256, 512)},
    {"conv", conv, DIMS(8, 32, 16, 16), DIMS(64, 32, 3, 3)},
};

/* Values that f32 holds, the same on every device. */
static kn_tensor *values(kn_shape shape, kn_rng *rng, kn_dtype dtype) {
    kn_tensor *x = NULL;
    KN_FRAME(.dtype = KN_F32);
    x = kn_keep(kn_uniform(shape, -1, 1, rng));
    return dtype == KN_F32 ? x : kn_keep(kn_cast(x, dtype));
}

static double *read_f64(kn_tensor *t, size_t *n) {
    KN_FRAME();
    kn_tensor *wide = kn_cast(t, KN_F64);
    *n = (size_t)kn_tensor_numel(t);
    double *out = malloc(*n * sizeof *out);
    assert_non_null(out);
    assert_ok(kn_copy_out(out, *n * sizeof *out, wide));
    return out;
}

/* The layer's output and the gradients of its inputs. */
static void run(double *out[RESULTS], size_t n[RESULTS], const layer *l, kn_device *device,
                kn_dtype dtype, int math, int autocast) {
    kn_rng *rng = NULL;
    kn_tensor *grads[2];
    assert_ok(kn_rng_create(&rng, 11));
    KN_TAPE(.device = device, .dtype = dtype, .math = math, .autocast = autocast);
    kn_tensor *in[2] = {kn_watch(values(l->x, rng, dtype)), kn_watch(values(l->w, rng, dtype))};
    kn_tensor *y = l->run(in[0], in[1]);
    kn_tensor *dy = values(kn_tensor_shape(y), rng, dtype);
    out[0] = read_f64(y, &n[0]);
    assert_ok(kn_gradients(grads, kn_mul(y, dy), in, 2, NULL));
    for (int i = 0; i < 2; i++) out[1 + i] = read_f64(grads[i], &n[1 + i]);
    assert_ok(kn_check());
    kn_rng_destroy(rng);
}

static double nmse(const double *a, const double *b, size_t n) {
    double error = 0, scale = 0;
    for (size_t i = 0; i < n; i++) {
        error += (a[i] - b[i]) * (a[i] - b[i]);
        scale += b[i] * b[i];
    }
    return error / scale;
}

static void assert_errors(int math, int autocast, double most) {
    static const char *const names[RESULTS] = {"y", "dx", "dw"};
    for (size_t k = 0; k < sizeof layers / sizeof *layers; k++) {
        double *got[RESULTS], *want[RESULTS];
        size_t n[RESULTS];
        run(want, n, &layers[k], kn_device_host(), KN_F64, KN_MATH_STRICT, KN_OFF);
        run(got, n, &layers[k], gpu, KN_F32, math, autocast);
        for (int i = 0; i < RESULTS; i++) {
            double error = nmse(got[i], want[i], n[i]);
            print_message("%s %s in %s: squared error %.1e\n", layers[k].name, names[i],
                          autocast == KN_OFF ? kn_math_mode_name((kn_math_mode)math)
                                             : kn_dtype_name((kn_dtype)autocast),
                          error);
            assert_true(error <= most);
            free(got[i]);
            free(want[i]);
        }
    }
}

/* TF32 alone would give 1e-7. */
static void strict_products_do_not_round_their_factors(void **state) {
    (void)state;
    assert_errors(KN_MATH_STRICT, KN_OFF, 1e-10);
}

static void tf32_rounds_factors_to_ten_bits(void **state) {
    (void)state;
    assert_errors(KN_MATH_TF32, KN_OFF, 1e-6);
}

static void bf16_rounds_factors_to_seven_bits(void **state) {
    (void)state;
    assert_errors(KN_MATH_BF16, KN_OFF, 1e-4);
}

/* Factors and results are rounded to 10 and 7 bits; sums of products are not. */
static void mixed_precision_sums_in_f32(void **state) {
    (void)state;
    assert_errors(KN_MATH_STRICT, KN_F16, 2e-6);
    assert_errors(KN_MATH_STRICT, KN_BF16, 1e-4);
}

int main(void) {
    gpu = gpu_get();
    return RUN_TESTS(TEST(strict_products_do_not_round_their_factors),
                     TEST(tf32_rounds_factors_to_ten_bits), TEST(bf16_rounds_factors_to_seven_bits),
                     TEST(mixed_precision_sums_in_f32));
}
