/* Frames with .fuse: gradients that meet at one value have the bits of single ops, whatever waits;
 * sums of small ones stay in place; a step of an optimiser computes what it reads. */
#include <knet/op_watch.h>
#include <knet/prof_heap.h>

#include "autograd_test.h"

enum { ROWS = 16, COLUMNS = 256, N = ROWS * COLUMNS };

/* The loss of x[], which have the shape [ROWS,COLUMNS]. */
typedef kn_tensor *(*loss_fn)(kn_tensor *const x[], int kind);

typedef struct grads {
    float d[2][N];
} grads;

/* order 2: of the gradients' product. */
static kn_status run(grads *out, loss_fn loss, int kind, int order, int fuse) {
    KN_TAPE(.fuse = fuse);
    KN_TRY(kn_check());
    kn_tensor *x[2], *d[2];
    for (int i = 0; i < 2; i++) {
        x[i] = kn_linspace(i ? 1.7 : 0.3, i ? 0.45 : 4.4, N);
        x[i] = kn_watch(kn_reshape(x[i], KN_SHAPE(ROWS, COLUMNS)));
    }
    kn_gradients_options again = {.again = order == 2};
    KN_TRY(kn_gradients(d, loss(x, kind), x, 2, &again));
    if (order == 2) KN_TRY(kn_gradients(d, sum_all(kn_mul(d[0], d[1])), x, 2, NULL));
    for (int i = 0; i < 2; i++) KN_TRY(kn_copy_out(out->d[i], sizeof out->d[i], d[i]));
    return KN_OK;
}

static void expect_same_bits(loss_fn loss, int kind, int order) {
    static grads plain, fused;
    assert_ok(run(&plain, loss, kind, order, KN_OFF));
    assert_ok(run(&fused, loss, kind, order, 1));
    if (memcmp(&plain, &fused, sizeof plain) != 0) fail_msg("gradients of %d differ", kind);
}

/* --- 16 bits: a term added to a gradient is not rounded before --- */

static kn_tensor *of_16_bits(kn_tensor *const x[], int kind) {
    kn_dtype dtype = kind & 1 ? KN_BF16 : KN_F16;
    kn_tensor *h = kn_cast(x[0], dtype), *v = kn_cast(x[1], dtype), *y;
    switch (kind / 2) {
        case 0:
            y = kn_add(kn_tanh(kn_square(h)), h);
            break;
        case 1:
            y = kn_add(kn_gelu(kn_mul(h, h)), h);
            break;
        default:
            y = kn_sub(kn_mul(kn_tanh(kn_mul(h, v)), kn_sigm(h)), kn_sub(h, v));
    }
    return sum_all(kn_affine(kn_cast(kn_mul(y, v), KN_F32), 0.3, 0));
}

static void gradients_of_16_bits_meet_with_the_same_bits(void **state) {
    (void)state;
    for (int kind = 0; kind < 6; kind++) expect_same_bits(of_16_bits, kind, 1);
}

/* --- second derivatives of several terms --- */

static kn_tensor *of_two(kn_tensor *const x[], int kind) {
    kn_tensor *more = kn_add(kn_exp(x[1]), kn_sqrt(x[0])); /* first here, last in backward of it */
    kn_tensor *const rows[] = {
        kn_div(x[0], x[1]),  kn_hypot(x[0], x[1]),      kn_logaddexp(x[0], x[1]),
        kn_gate(x[0], x[1]), kn_atan2(x[0], x[1]),      kn_xlogy(x[0], x[1]),
        kn_pow(x[0], x[1]),  kn_lerp(x[0], x[1], x[0]), kn_addcmul(x[0], x[0], x[1], 0.7),
    };
    return kn_add(sum_all(rows[kind]), sum_all(more));
}

static void second_derivatives_of_two_inputs_have_the_same_bits(void **state) {
    (void)state;
    for (int kind = 0; kind < 9; kind++) expect_same_bits(of_two, kind, 2);
}

/* --- products, lookups and parts, added to a gradient that a waiting result reads --- */

static kn_tensor *of_kernels(kn_tensor *const x[], int kind) {
    kn_tensor *index = kn_cast(kn_floor(kn_linspace(0, 7.9, 5 * ROWS)), KN_I32), *y;
    switch (kind) {
        case 0:
            y = kn_matmul(
                x[0], kn_reshape(kn_linspace(-1, 1, COLUMNS * COLUMNS), KN_SHAPE(COLUMNS, COLUMNS)),
                NULL);
            break;
        case 1:
            y = kn_index_select(x[0], index, 0);
            break;
        case 2:
            y = kn_sum(x[0], KN_SHAPE(1), true);
            break;
        default: /* parts of columns that don't overlap */
            y = kn_concat(
                (kn_tensor *[]){kn_slice(x[0], KN_SHAPE(0, 8), KN_SHAPE(ROWS, 72)),
                                kn_exp(kn_slice(x[0], KN_SHAPE(0, 80), KN_SHAPE(ROWS, 144)))},
                2, 1);
    }
    kn_tensor *first = sum_all(kn_tanh(y)), *wait = kn_tanh(x[1]);
    kn_tensor *sum = kn_add(x[0], wait); /* its gradient is that of both, and read by tanh's */
    if (kind < 4) return kn_add(first, sum_all(kn_mul(kn_tanh(sum), x[1])));
    kn_tensor *part = kn_slice(sum, KN_SHAPE(0, 160), KN_SHAPE(ROWS, 224));
    return kn_add(first, kn_reshape(sum_all(kn_tanh(part)), kn_tensor_shape(first)));
}

static void what_waits_does_not_change_where_a_kernel_adds(void **state) {
    (void)state;
    for (int kind = 0; kind < 5; kind++) expect_same_bits(of_kernels, kind, 1);
}

/* --- counts --- */

static void count_event(void *ctx, const kn_op_event *event) {
    (void)event;
    ++*(int *)ctx;
}

/* Calls of kernels in the backward pass of a cell whose values have n elements. */
static int backward_calls(int64_t n, int fuse) {
    int calls = 0;
    kn_tensor *d;
    KN_TAPE(.fuse = fuse);
    assert_ok(kn_prof_owners_on());
    kn_tensor *x = kn_watch(kn_linspace(-1, 1, n)), *y = kn_mul(kn_tanh(x), kn_sigm(x));
    y = sum_all(kn_add(kn_add(kn_square(x), kn_exp(x)), kn_mul(y, x)));
    assert_non_null(kn_data(y));
    kn_op_watch(count_event, &calls);
    assert_ok(kn_gradients(&d, y, &x, 1, NULL));
    assert_non_null(kn_data(d));
    kn_op_watch(NULL, NULL);
    return calls;
}

static void small_gradients_are_added_in_place(void **state) {
    (void)state;
    assert_int_equal(backward_calls(100, 1), backward_calls(100, KN_OFF));
    assert_true(backward_calls(4096, 1) < backward_calls(4096, KN_OFF));
}

static void a_step_of_an_optimiser_computes_what_it_reads(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = kn_param(set, KN_SHAPE(N), (kn_init){KN_INIT_CONSTANT, 2, 0}, "w");
    kn_optim *optim = NULL;
    assert_ok(kn_sgd_create(&optim, set, 0.5, NULL));
    KN_TAPE(.fuse = 1);
    kn_tensor *decay = kn_mul(w, w), *unread = kn_neg(kn_ones(KN_SHAPE(N)));
    assert_ok(kn_backward(sum_all(kn_mul(w, w))));
    assert_ok(kn_optim_step(optim));
    assert_int_equal(unread->state, KN_TENSOR_PENDING);
    assert_close(ops_at(w, 5), 0, 0, 0);
    assert_close(ops_at(decay, 5), 4, 0, 0);
    assert_close(ops_at(unread, 5), -1, 0, 0);
    kn_optim_destroy(optim);
    kn_params_destroy(set);
}

int main(void) {
    unsetenv("KNET_FUSE"); /* counts are those of small results that don't wait */
    return RUN_TESTS(OPS_TEST(gradients_of_16_bits_meet_with_the_same_bits),
                     OPS_TEST(second_derivatives_of_two_inputs_have_the_same_bits),
                     OPS_TEST(what_waits_does_not_change_where_a_kernel_adds),
                     OPS_TEST(small_gradients_are_added_in_place),
                     OPS_TEST(a_step_of_an_optimiser_computes_what_it_reads));
}
