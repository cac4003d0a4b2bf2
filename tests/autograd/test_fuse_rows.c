/* Frames with .fuse: steps that hand vectors on in registers, and passes that reduce rows and run
 * the steps after, give the bits of single ops. With KNET_FUSE=all, so that short rows wait too. */
#include <knet/op_watch.h>
#include <knet/prof_heap.h>
#include <pthread.h>

#include "autograd_test.h"

/* Every formula that goes by links, after and before others, with its derivatives: whole arrays,
 * rows and single elements as either input, of a size that leaves a rest. */
enum { LINK_ROWS = 5, LINK_COLUMNS = 331, LINKED = 11 };

static kn_tensor *linked(int i, kn_tensor *x, kn_tensor *y) {
    kn_tensor *in = kn_affine(x, 0.5, 0.1);
    switch (i) {
        case 0:
            return kn_add(kn_sqrt(in), kn_neg(in));
        case 1:
            return kn_mul(kn_rsqrt(in), in);
        case 2:
            return kn_sub(y, kn_reciprocal(in));
        case 3:
            return kn_div(in, y);
        case 4:
            return kn_div(y, in);
        case 5:
            return kn_sub(in, y);
        case 6:
            return kn_axpby(y, kn_square(in), 0.3, -2);
        case 7:
            return kn_axpby(in, y, 1.5, 0.7);
        case 8:
            return kn_mul(kn_mul(in, in), kn_mul(y, in));
        case 9:
            return kn_add(kn_neg(kn_exp(in)), kn_tanh(kn_mul(in, y)));
        default:
            return kn_add(y, kn_square(kn_sigm(in)));
    }
}

static kn_status run_linked(void *out, int i, kn_shape shape, kn_dtype dtype, int fuse) {
    KN_TAPE(.fuse = fuse);
    int64_t n = shape.dim[0] * shape.dim[1];
    kn_tensor *in[2] = {kn_linspace(0.5, 2, LINK_ROWS * LINK_COLUMNS), kn_linspace(1, 3, n)};
    in[0] = kn_watch(kn_cast(kn_reshape(in[0], KN_SHAPE(LINK_ROWS, LINK_COLUMNS)), dtype));
    in[1] = kn_watch(kn_cast(kn_reshape(in[1], shape), dtype));
    kn_tensor *z = kn_affine(linked(i, in[0], in[1]), 1.25, -1), *d[2];
    size_t one = kn_dtype_bytes(dtype), bytes = LINK_ROWS * LINK_COLUMNS * one;
    KN_TRY(kn_copy_out(out, bytes, z));
    KN_TRY(kn_gradients(d, kn_sum(kn_mul(z, z), KN_ALL, false), in, 2, NULL));
    KN_TRY(kn_copy_out((char *)out + bytes, bytes, d[0]));
    return d[1] ? kn_copy_out((char *)out + 2 * bytes, (size_t)n * one, d[1]) : KN_OK;
}

static void links_give_the_bits_of_single_ops(void **state) {
    (void)state;
    static char bits[2][3 * LINK_ROWS * LINK_COLUMNS * sizeof(double)];
    const kn_shape shapes[] = {KN_SHAPE(LINK_ROWS, LINK_COLUMNS), KN_SHAPE(1, LINK_COLUMNS),
                               KN_SHAPE(LINK_ROWS, 1), KN_SHAPE(1, 1)};
    for (int i = 0; i < LINKED * 8; i++) {
        kn_dtype dtype = i % 2 ? KN_F64 : KN_F32;
        memset(bits, 0, sizeof bits);
        assert_ok(run_linked(bits[0], i / 8, shapes[i / 2 % 4], dtype, KN_OFF));
        assert_ok(run_linked(bits[1], i / 8, shapes[i / 2 % 4], dtype, 1));
        if (memcmp(bits[0], bits[1], sizeof bits[0]) != 0)
            fail_msg("formula %d, %s, shape %d differs", i / 8, kn_dtype_name(dtype), i / 2 % 4);
    }
}

/* --- rows --- */

enum { LAST = -1, FORMULAS = 14 };

static kn_tensor *centered(kn_tensor *x) { return kn_sub(x, kn_mean(x, KN_SHAPE(LAST), true)); }

/* An element for each row of x, which waits, and which no reduction gave. */
static kn_tensor *gains(const kn_tensor *x) {
    kn_shape shape = {.n_dims = x->n_dims};
    int64_t n = 1;
    for (int d = 0; d < x->n_dims; d++) shape.dim[d] = d + 1 < x->n_dims ? x->dim[d] : 1;
    for (int d = 0; d < x->n_dims; d++) n *= shape.dim[d];
    return kn_affine(kn_cast(kn_reshape(kn_linspace(1, 2, n), shape), (kn_dtype)x->dtype), 2, 0);
}

/* w: one row of x. */
static kn_tensor *of_rows(int i, kn_tensor *x, kn_tensor *w) {
    kn_shape last = KN_SHAPE(LAST);
    kn_tensor *y;
    switch (i) {
        case 0:
            y = centered(x);
            x = kn_mul(y, kn_rsqrt(kn_affine(kn_mean(kn_square(y), last, true), 1, 1e-3)));
            return kn_add(kn_mul(x, w), w);
        case 1:
            y = kn_exp(kn_sub(x, kn_max(x, last, true)));
            return kn_div(y, kn_sum(y, last, true));
        case 2:
            return kn_sub(kn_affine(x, 2, 0), kn_logsumexp(kn_mul(x, w), last, true));
        case 3:
            return kn_div(x, kn_std(kn_affine(x, 3, 1), last, true, NULL));
        case 4:
            return kn_mul(x, kn_rsqrt(kn_mean(kn_square(x), last, true)));
        case 5:
            y = kn_div(x, kn_max_abs(x, last, true));
            y = kn_sub(y, kn_min(y, last, true));
            return kn_add(kn_mul(y, kn_norm(y, 3, last, true)), kn_mul(x, w));
        case 6: /* a result of one element a row */
            y = kn_sub(kn_max(x, last, true), kn_min(x, last, true));
            return kn_div(y, kn_affine(kn_sum_abs(x, last, true), 1, 2));
        case 7: /* without the axis the means stand across the rows, if they fit */
            y = kn_mean(x, last, false);
            if (x->dim[0] == x->dim[1]) return kn_sub(x, y);
            return kn_add(kn_affine(x, 0.5, 0), kn_sum(kn_mul(y, y), KN_ALL, false));
        case 8: /* rows of two lengths */
            y = centered(x);
            return kn_mul(y, kn_max(y, KN_SHAPE(-2, LAST), true));
        case 9: /* columns of what rows gave */
            return kn_add(x, kn_max(kn_mean(x, last, true), KN_SHAPE(-2), true));
        case 10: /* a part of what rows gave */
            y = kn_mean(x, last, true);
            if (x->n_dims < 3) return kn_sub(y, kn_slice(y, KN_SHAPE(0, 0), KN_SHAPE(1, 1)));
            return kn_sub(kn_slice(y, KN_SHAPE(0, 1, 0), KN_SHAPE(3, 5, 1)),
                          kn_slice(y, KN_SHAPE(0, 0, 0), KN_SHAPE(3, 4, 1)));
        case 11: /* a sum of something else than the step before it */
            return kn_mul(kn_neg(x), kn_mean(x, last, true));
        case 12:
            y = gains(x);
            y = kn_square(kn_mul(y, centered(x)));
            return kn_add(y, kn_relu(y));
        default:
            y = centered(kn_mul(x, kn_prod(x, KN_ALL, true)));
            return kn_mul(y, kn_var(kn_reshape(kn_tanh(y), KN_SHAPE(1, -1)), last, true, NULL));
    }
}

enum { ELEMENTS_MAX = 64 * 1024 };
typedef struct values {
    size_t n;
    char bytes[4 * ELEMENTS_MAX * sizeof(double)];
} values;

static kn_status append(values *v, kn_tensor *t) {
    if (!t) return kn_check();
    size_t bytes = (size_t)t->n * kn_dtype_bytes((kn_dtype)t->dtype);
    KN_TRY(kn_copy_out(v->bytes + v->n, bytes, t));
    v->n += bytes;
    return KN_OK;
}

/* Not recorded: no result is saved for a derivative. */
static kn_status run_forward(values *out, int i, kn_tensor *x, kn_tensor *w, int fuse) {
    KN_FRAME(.fuse = fuse, .threads = fuse == 1 ? 3 : 1, .record = KN_OFF);
    return append(out, of_rows(i, x, w));
}

static kn_status run_rows(values *out, int i, kn_shape shape, kn_dtype dtype, int fuse) {
    KN_TAPE(.fuse = fuse, .threads = fuse == 1 ? 3 : 1);
    int64_t n = 1, row = shape.dim[shape.n_dims - 1];
    for (int d = 0; d < shape.n_dims; d++) n *= shape.dim[d];
    kn_tensor *x = kn_sin(kn_linspace(0, (double)n / 7, n)), *d[2], *kept;
    kn_tensor *in[] = {kn_watch(kn_cast(kn_reshape(x, shape), dtype)),
                       kn_watch(kn_cast(kn_linspace(0.5, 1.5, row), dtype))};
    out->n = 0;
    KN_TRY(run_forward(out, i, in[0], in[1], fuse));
    kn_tensor *y = of_rows(i, in[0], in[1]);
    kept = kn_add(y, in[1]);
    kn_tensor *loss = kn_sum(kn_mul(kept, kept), KN_ALL, false);
    KN_TRY(append(out, y));
    KN_TRY(kn_gradients(d, loss, in, 2, NULL));
    for (int k = 0; k < 2; k++) {
        if (d[k]) KN_TRY(append(out, d[k])); /* not all formulas read the second one */
    }
    return KN_OK;
}

static void rows_that_are_reduced_and_go_on_give_the_same_bits(void **state) {
    (void)state;
    static values plain, fused;
    static const kn_dtype dtypes[] = {KN_F32, KN_F64, KN_F16, KN_BF16};
    const kn_shape shapes[] = {KN_SHAPE(40, 1024),  KN_SHAPE(7, 600),    KN_SHAPE(33, 17),
                               KN_SHAPE(3, 5, 130), KN_SHAPE(300, 2),    KN_SHAPE(1, 256),
                               KN_SHAPE(130, 130),  KN_SHAPE(3, 17, 17), KN_SHAPE(6, 320)};
    const int n_shapes = sizeof shapes / sizeof *shapes;
    for (int i = 0; i < FORMULAS * 4 * n_shapes; i++) {
        kn_dtype dtype = dtypes[i % 4];
        int formula = i / 4 / n_shapes, shape = i / 4 % n_shapes;
        assert_ok(run_rows(&fused, formula, shapes[shape], dtype, 1)); /* finds no result yet */
        assert_ok(run_rows(&plain, formula, shapes[shape], dtype, KN_OFF));
        assert_int_equal(plain.n, fused.n);
        if (memcmp(plain.bytes, fused.bytes, plain.n) != 0)
            fail_msg("formula %d, shape %d, %s differs", formula, shape, kn_dtype_name(dtype));
    }
}

static void last_name(void *ctx, const kn_op_event *event) {
    snprintf(ctx, 128, "%s %d", event->name, event->n_in);
}

static void a_normalization_of_small_ops_is_one_pass(void **state) {
    (void)state;
    char name[128] = "";
    KN_FRAME(.fuse = 1);
    kn_tensor *x = kn_reshape(kn_linspace(-1, 1, 8 * 1024), KN_SHAPE(8, 1024)), *y;
    assert_non_null(kn_data(x));
    assert_ok(kn_prof_owners_on());
    kn_op_watch(last_name, name);
    y = centered(x);
    y = kn_mul(y, kn_rsqrt(kn_mean(kn_square(y), KN_SHAPE(LAST), true)));
    assert_string_equal(name, "");
    assert_non_null(kn_data(y));
    kn_op_watch(NULL, NULL);
    assert_string_equal(name, "mean+sub+square+mean+rsqrt+mul 2");
}

static void a_row_is_reduced_before_it_is_written(void **state) {
    (void)state;
    KN_FRAME(.fuse = 1);
    kn_tensor *x = kn_ones(KN_SHAPE(4, 1024)), *mean = kn_mean(x, KN_SHAPE(1), true);
    kn_tensor *y = kn_sub(x, mean);
    assert_int_equal(mean->state, KN_TENSOR_PENDING);
    assert_ok(kn_fill_into(x, 7));
    assert_close(ops_at(mean, 3), 1, 0, 0);
    assert_close(ops_at(y, 3000), 0, 0, 0);
    kn_tensor *long_rows = kn_mean(kn_ones(KN_SHAPE(2, 4096)), KN_SHAPE(1), true);
    assert_int_equal(long_rows->state, KN_TENSOR_LIVE);
    mean = kn_mean(x, KN_SHAPE(1), true);
    y = kn_add(kn_reshape(mean, KN_SHAPE(4)),
               kn_slice(kn_sub(x, mean), KN_SHAPE(0, 8), KN_SHAPE(1, 12)));
    assert_close(ops_at(y, 3), 7, 0, 0);
}

/* A pass, and a reduction that reads the tiles of one. */
static void *compute_fused(void *out) {
    KN_FRAME(.fuse = 1);
    kn_tensor *x = kn_exp(kn_zeros(KN_SHAPE(70, 70))), *y = kn_mul(kn_add(x, x), x);
    float *sums = out;
    return kn_data(x) && kn_copy_out(sums, sizeof *sums, kn_sum(y, KN_ALL, false)) == KN_OK ? out
                                                                                            : NULL;
}

static void threads_with_small_stacks_compute(void **state) {
    (void)state;
    float sum = 0;
    void *done = NULL;
    pthread_t thread;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    assert_int_equal(pthread_create(&thread, &small, compute_fused, &sum), 0);
    assert_int_equal(pthread_join(thread, &done), 0);
    pthread_attr_destroy(&small);
    assert_non_null(done);
    assert_close(sum, 2 * 70 * 70, 0, 0);
}

int main(void) {
    setenv("KNET_FUSE", "all", 1);
    return RUN_TESTS(OPS_TEST(links_give_the_bits_of_single_ops),
                     OPS_TEST(rows_that_are_reduced_and_go_on_give_the_same_bits),
                     OPS_TEST(a_normalization_of_small_ops_is_one_pass),
                     OPS_TEST(a_row_is_reduced_before_it_is_written),
                     TEST_LONG(threads_with_small_stacks_compute)); /* sanitizers need more */
}
