/* The CUDA kernels against the host's, with no GPU: the module's own C files call the .cu files'
 * launchers, whose kernels run as fibers (emulate.h) on the host's memory. Products and
 * convolutions are libraries' and stay out. */
#include <knet/op_act.h>
#include <math.h>

#include "cuda/base/module.h"
#include "cuda/linalg/small.h"
#include "emulate_order.h"
#include "parity.h"
#include "test.h"

/* --- what the C files want of CUDA --- */

cudaError_t emulate_memset(void *p, int byte, size_t n, cudaStream_t stream);
cudaError_t emulate_memset(void *p, int byte, size_t n, cudaStream_t stream) {
    (void)stream;
    memset(p, byte, n);
    return cudaSuccess;
}

cudaError_t emulate_memcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind,
                           cudaStream_t stream);
cudaError_t emulate_memcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind,
                           cudaStream_t stream) {
    (void)kind, (void)stream;
    memcpy(to, from, n);
    return cudaSuccess;
}

kn_status kn__cuda_status(cudaError_t error, const char *what) {
    return error == cudaSuccess ? KN_OK : KN_FAIL(KN_ERR_CUDA, "%s: %d", what, (int)error);
}

#define kn__cuda_matmul NULL
#define kn__cuda_linear NULL
#define kn__cuda_linear_weight_bias NULL
#define kn__cuda_cholesky kn__small_cholesky
#define kn__cuda_solve kn__small_solve
#define kn__cuda_inverse kn__small_inverse
#define kn__cuda_det kn__small_det
#define kn__cuda_qr NULL
#define kn__cuda_svd NULL
#define kn__cuda_eigh NULL
#define kn__cuda_rnn NULL
#define kn__cuda_rnn_back NULL
#define kn__cuda_conv NULL
#define kn__cuda_conv_data NULL
#define kn__cuda_conv_weight NULL

static const kn_kernel_fn kernels[KN_OP_COUNT] = {
#include "cuda/base/kernels.def"
};

/* --- guards that AddressSanitizer watches, reads too --- */

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
static void watch_guards(const kn_tensor *t, int guard, bool on) {
    if (!t || t == KN_NONE || !t->data) return;
    size_t element = kn_dtype_bytes((kn_dtype)t->dtype), bytes = (size_t)guard * element;
    char *begin = t->data, *end = begin + (size_t)t->n * element;
    if (on) {
        ASAN_POISON_MEMORY_REGION(begin - bytes, bytes);
        ASAN_POISON_MEMORY_REGION(end, bytes);
    } else {
        ASAN_UNPOISON_MEMORY_REGION(begin - bytes, bytes);
        ASAN_UNPOISON_MEMORY_REGION(end, bytes);
    }
}
#else
static void watch_guards(const kn_tensor *t, int guard, bool on) { (void)t, (void)guard, (void)on; }
#endif

static void watch_all(const kn_op_call *call, int guard, bool on) {
    for (int i = 0; i < call->n_in; i++) watch_guards(call->in[i], guard, on);
    for (int r = 0; r < call->n_out; r++) watch_guards(call->out[r], guard, on);
}

/* --- the table --- */

static parity_table table;

/* in_parts: kernels with 32-bit indices are launched for parts of a result. A part has 5 elements,
 * fewer than the outermost dimension of most cases; more only where there would be more than PARTS
 * parts. */
enum { PARTS = 25 };
static bool in_parts;

/* Does what kn_op_run does around a kernel of the host, for results that exist. */
static kn_status run_emulated(void *ctx, kn_op_call *call) {
    const int *guard = ctx;
    const kn_op_info *info = &kn_op_table[call->op];
    int64_t n = 0;
    call->n_out = info->n_out;
    call->pool = kn_device_pool(call->device);
    call->stream = NULL;
    for (int i = call->n_in - 1; i >= 0; i--) {
        bool has = i < KN_IN_NAMED && (info->in[i] & KN_CLASS_SAME) && call->in[i] != KN_NONE;
        if (has) call->dtype = (uint8_t)kn_tensor_dtype(call->in[i]);
    }
    if (!info->infer(call)) return kn_check();
    for (int r = 0; r < call->n_out; r++) {
        int64_t n_out = call->out[r] ? kn_tensor_numel(call->out[r]) : 0;
        n = n_out > n ? n_out : n;
    }
    if (n == 0) return KN_OK;
    if (in_parts) kn_emulate_order.index_max = n > 5 * PARTS ? n / PARTS : 5;
    watch_all(call, *guard, true);
    kn_status status = kernels[call->op](call);
    watch_all(call, *guard, false);
    kn__work_end(call, 0);
    return status;
}

static bool equals_host(const parity_case *c, kn_dtype dtype, int guard) {
    parity_mode host = {kn_device_host(), dtype, dtype, guard, NULL, NULL}, emulated = host;
    emulated.run = run_emulated, emulated.ctx = &guard;
    parity_result got, want;
    if (!parity_run(&want, c, &host)) return false;
    bool same = parity_run(&got, c, &emulated);
    if (same) same = parity_same(c, &got, &want, dtype == KN_F64 ? 1e-13 : 1e-7);
    parity_result_free(&got);
    parity_result_free(&want);
    return same;
}

/* Large matrices are cuSOLVER's. */
static bool is_emulated(const parity_case *c) {
    const kn_shape *a = &c->in[0].shape;
    bool is_square = c->op == KN_OP_cholesky || c->op == KN_OP_solve || c->op == KN_OP_inverse ||
                     c->op == KN_OP_det || c->op == KN_OP_slogdet;
    return kernels[c->op] && !(is_square && a->dim[a->n_dims - 1] > KN__SMALL);
}

/* Runs one case of `shares`, the next ones at the next call. A sanitizer makes the kernels twenty
 * times slower: there one of six. Guards of 64 elements keep buffers aligned to 16 bytes, guards of
 * one don't. */
static void run_share(int shares, emulate_order order, kn_dtype dtype, int guard) {
    static int share;
    if (TEST_SANITIZED) shares = 6;
    kn_emulate_order = order;
    int n_failed = 0, n = 0;
    for (int i = share++ % shares; i < table.n; i += shares) {
        if (!is_emulated(&table.cases[i])) continue;
        n_failed += !equals_host(&table.cases[i], dtype, guard);
        n++;
    }
    assert_int_equal(n_failed, 0);
    assert_true(n > 300);
}

static void run_all(emulate_order order, kn_dtype dtype, int guard) {
    run_share(1, order, dtype, guard);
}

enum { ANY_GRID = 1 << 20 };
static const int64_t any_index = UINT32_MAX;

static void kernels_on_aligned_f32_equal_the_host(void **state) {
    (void)state;
    run_all((emulate_order){.blocks_max = ANY_GRID, .index_max = any_index}, KN_F32, 64);
}

static void kernels_on_unaligned_f64_equal_the_host(void **state) {
    (void)state;
    run_all((emulate_order){.blocks_max = ANY_GRID, .index_max = any_index}, KN_F64, 1);
}

static void kernels_need_no_order_of_threads_or_blocks(void **state) {
    (void)state;
    run_all((emulate_order){.threads_reversed = 1,
                            .blocks_reversed = 1,
                            .blocks_max = ANY_GRID,
                            .index_max = any_index},
            KN_F32, 1);
}

static void kernels_bear_a_warp_that_runs_ahead(void **state) {
    (void)state;
    emulate_order order = {.warp_ahead = 1, .blocks_max = 3, .index_max = any_index};
    run_share(2, order, KN_F32, 64);
    order.threads_reversed = 1;
    run_share(2, order, KN_F32, 1);
}

static void three_blocks_and_many_launches_do_the_work_of_all(void **state) {
    (void)state;
    in_parts = true;
    run_all((emulate_order){.blocks_reversed = 1, .blocks_max = 3}, KN_F64, 64);
    in_parts = false;
}

/* What the host reports as an error. */
static void an_index_out_of_range_reads_nan_and_is_not_written(void **state) {
    (void)state;
    KN_FRAME();
    const float values[] = {1, 2, 3, 4}, more[] = {10, 20, 30, 40, 50, 60};
    const int64_t places[] = {1, 2, -3};
    kn_tensor *x = kn_tensor_from(values, KN_F32, KN_SHAPE(2, 2));
    kn_tensor *y = kn_tensor_from(more, KN_F32, KN_SHAPE(3, 2));
    kn_tensor *in[] = {x, kn_tensor_from(places, KN_I64, KN_SHAPE(3)), y};
    const kn_op ops[] = {KN_OP_index_select, KN_OP_index_add, KN_OP_index_set};
    const float want[3][6] = {{3, 4, NAN, NAN, NAN, NAN}, {1, 2, 13, 24}, {1, 2, 10, 20}};
    for (int k = 0; k < 3; k++) {
        kn_attr_index attr = {.axis = 0};
        kn_op_call call;
        int no_guard = 0;
        kn_op_call_init(&call, ops[k], &attr, in, k ? 3 : 2);
        memset(call.out, 0, sizeof call.out);
        call.out[0] = kn_zeros(k ? KN_SHAPE(2, 2) : KN_SHAPE(3, 2));
        call.given = 1;
        call.device = kn_device_host();
        assert_ok(run_emulated(&no_guard, &call));
        const float *got = kn_data(call.out[0]);
        for (int64_t i = 0; i < kn_tensor_numel(call.out[0]); i++) {
            assert_true(got[i] == want[k][i] || (got[i] != got[i] && want[k][i] != want[k][i]));
        }
    }
}

/* The op on x as the kernels compute it, and as the host does; of x's shape for casts, else 0-dim.
 */
static void assert_same(kn_op op, void *attr, kn_tensor *x, kn_dtype to) {
    kn_op_call call;
    int no_guard = 0;
    kn_shape shape = op == KN_OP_cast ? kn_tensor_shape(x) : KN_SCALAR;
    kn_tensor *want = kn_op_call_run(op, attr, &x, 1);
    assert_non_null(want);
    kn_op_call_init(&call, op, attr, &x, 1);
    memset(call.out, 0, sizeof call.out);
    call.out[0] = kn_tensor_new(kn_device_host(), to, shape);
    call.given = 1;
    call.device = kn_device_host();
    assert_ok(run_emulated(&no_guard, &call));
    size_t bytes = (size_t)kn_tensor_numel(want) * kn_dtype_bytes(to);
    assert_memory_equal(kn_data(call.out[0]), kn_data(want), bytes);
}

static void casts_to_16_bits_round_once(void **state) {
    (void)state;
    KN_FRAME();
    const int64_t far = (INT64_C(1) << 62) + (INT64_C(1) << 54), near = 16842753;
    const int64_t wide[] = {near, -near, near - 1, far, far + 1, -far - 1, INT64_MAX, INT64_MIN, 3};
    const int32_t narrow[] = {(int32_t)near, (int32_t)-near, INT32_MAX, INT32_MIN};
    const double real[] = {1.0048828126, 1.0009765626, -2049.00001, 1e300, INFINITY, 1e-7, 0};
    kn_tensor *x[] = {kn_tensor_from(wide, KN_I64, KN_SHAPE(9)),
                      kn_tensor_from(narrow, KN_I32, KN_SHAPE(4)),
                      kn_tensor_from(real, KN_F64, KN_SHAPE(7))};
    for (int i = 0; i < 3; i++) {
        kn_attr_cast bf16 = {KN_BF16}, f16 = {KN_F16};
        assert_same(KN_OP_cast, &bf16, x[i], KN_BF16);
        assert_same(KN_OP_cast, &f16, x[i], KN_F16);
    }
}

static void sizes_of_the_least_integers_wrap(void **state) {
    (void)state;
    KN_FRAME();
    const int64_t wide[] = {INT64_MIN, 5, -7};
    const int32_t narrow[] = {INT32_MIN, 5, -7};
    kn_tensor *x[] = {kn_tensor_from(wide, KN_I64, KN_SHAPE(3)),
                      kn_tensor_from(narrow, KN_I32, KN_SHAPE(3))};
    for (int i = 0; i < 2; i++) {
        kn_attr_axes attr = {1, 0};
        kn_dtype own = kn_tensor_dtype(x[i]);
        assert_same(KN_OP_max_abs, &attr, x[i], own);
        assert_same(KN_OP_min_abs, &attr, x[i], own);
        assert_same(KN_OP_sum_abs, &attr, x[i], KN_I64);
    }
}

/* What products and convolutions call after the library. */
static void activations_in_place_equal_the_ops(void **state) {
    (void)state;
    KN_FRAME();
    for (int act = KN_ACT_RELU; act < KN_ACTS; act++) {
        const double values[] = {-7, -2.5, -0.3, 0, 0.4, 1, 2.9, 5, 40};
        kn_tensor *x = kn_tensor_from(values, KN_F64, KN_SHAPE(3, 3));
        const double *want = kn_data(kn_op_call_run(kn_act_op((kn_act)act), NULL, &x, 1));
        kn_op_call call = {.op = KN_OP_linear_act, .out = {x}};
        assert_ok(kn__activate(&call, (kn_act)act));
        for (int i = 0; i < 9; i++)
            assert_close(((const double *)kn_data(x))[i], want[i], 1e-14, 1e-16);
    }
}

static kn_tensor *wave(double rate, kn_shape shape, kn_dtype dtype) {
    int64_t n = 1;
    for (int d = 0; d < shape.n_dims; d++) n *= shape.dim[d];
    return kn_reshape(kn_cast(kn_sin(kn_linspace(1, rate * (double)n, n)), dtype), shape);
}

enum { HALF_ROWS = 4, HALF_CHANNELS = 3, HALF_INNER = 5 };

/* The op with results like x, and two of one number a channel or a row; x and g of `dtype`. */
static void run_norm(kn_tensor *out[3], kn_op op, kn_dtype half, kn_dtype dtype, bool rows) {
    bool back = op == KN_OP_batchnorm_back || op == KN_OP_rownorm_back;
    kn_shape shape = KN_SHAPE(HALF_ROWS, HALF_CHANNELS, HALF_INNER);
    int64_t n = rows ? HALF_CHANNELS * HALF_INNER : HALF_CHANNELS, n_stats = rows ? HALF_ROWS : n;
    kn_attr_normalize attr = {1e-3, 0.3, HALF_ROWS, 1, n, rows ? 1 : HALF_INNER, NULL, 0};
    kn_tensor *x = kn_cast(wave(0.7, shape, half), dtype),
              *g = kn_cast(wave(1.3, shape, half), dtype);
    kn_tensor *w = wave(0.4, KN_SHAPE(n), KN_F32), *mean = wave(0.3, KN_SHAPE(n_stats), KN_F32);
    kn_tensor *var = kn_affine(mean, 0.5, 1), *five[] = {x, mean, var, w, w}, *three[] = {x, w, w};
    kn_tensor *backs[] = {g, x, w, mean, var};
    kn_op_call call;
    int no_guard = 0, n_in = op == KN_OP_layernorm ? 3 : 5;
    kn_op_call_init(&call, op, &attr, back ? backs : n_in == 3 ? three : five, n_in);
    memset(call.out, 0, sizeof call.out);
    call.want = call.given = op == KN_OP_batchnorm_eval ? 1 : 7;
    call.out[0] = kn_tensor_new(kn_device_host(), dtype, shape);
    for (int r = 1; r < 3 && call.want > 1; r++)
        call.out[r] = kn_zeros(KN_SHAPE(back || !rows ? n : n_stats));
    call.device = kn_device_host();
    assert_ok(run_emulated(&no_guard, &call));
    memcpy(out, call.out, 3 * sizeof *out);
}

/* q, k and v of `dtype`. */
static void run_attention(kn_tensor *out[4], bool back, kn_dtype half, kn_dtype dtype) {
    kn_shape shape = KN_SHAPE(1, 2, 7, 3), scores = KN_SHAPE(1, 2, 7, 7);
    kn_attr_attention attr = {.scale = 0.7};
    kn_tensor *q = kn_cast(wave(0.7, shape, half), dtype),
              *k = kn_cast(wave(1.3, shape, half), dtype);
    kn_tensor *v = kn_cast(wave(0.4, shape, half), dtype), *y = wave(0.9, shape, KN_F32);
    kn_tensor *stats = kn_affine(wave(0.2, KN_SHAPE(1, 2, 7, 2), KN_F32), 0.1, 1);
    kn_tensor *mask = wave(0.3, KN_SHAPE(7, 7), KN_F32), *in[] = {q, k, v, mask, KN_NONE};
    kn_tensor *backs[] = {q, k, v, mask, y, stats, y, KN_NONE};
    kn_op_call call;
    int no_guard = 0;
    kn_op_call_init(&call, back ? KN_OP_attention_back : KN_OP_attention, &attr, back ? backs : in,
                    back ? 8 : 5);
    memset(call.out, 0, sizeof call.out);
    call.want = call.given = back ? 15 : 3;
    for (int r = 0; r < 3 && back; r++) call.out[r] = kn_tensor_new(kn_device_host(), dtype, shape);
    if (back) call.out[3] = kn_zeros(scores);
    if (!back) call.out[0] = kn_zeros(shape), call.out[1] = kn_zeros(KN_SHAPE(1, 2, 7, 2));
    call.device = kn_device_host();
    assert_ok(run_emulated(&no_guard, &call));
    memcpy(out, call.out, 4 * sizeof *out);
}

static bool same_bits(kn_tensor *a, kn_tensor *b) {
    size_t bytes = a ? (size_t)kn_tensor_numel(a) * kn_dtype_bytes(kn_tensor_dtype(a)) : 0;
    return !bytes || memcmp(kn_data(a), kn_data(b), bytes) == 0;
}

static void norms_of_16_bits_are_those_of_f32_rounded_once(void **state) {
    (void)state;
    static const kn_op ops[] = {KN_OP_batchnorm, KN_OP_batchnorm_eval, KN_OP_batchnorm_back,
                                KN_OP_layernorm, KN_OP_rownorm_back};
    for (int half = KN_F16; half <= KN_BF16; half++) {
        for (int k = 0; k < 5; k++) {
            KN_FRAME();
            kn_tensor *got[3], *want[3];
            run_norm(got, ops[k], (kn_dtype)half, (kn_dtype)half, k > 2);
            run_norm(want, ops[k], (kn_dtype)half, KN_F32, k > 2);
            assert_true(same_bits(got[0], kn_cast(want[0], (kn_dtype)half)));
            assert_true(same_bits(got[1], want[1]) && same_bits(got[2], want[2]));
        }
    }
}

static void attention_of_16_bits_is_that_of_f32_rounded_once(void **state) {
    (void)state;
    for (int half = KN_F16; half <= KN_BF16; half++) {
        for (int back = 0; back < 2; back++) {
            KN_FRAME();
            kn_tensor *got[4], *want[4];
            run_attention(got, back, (kn_dtype)half, (kn_dtype)half);
            run_attention(want, back, (kn_dtype)half, KN_F32);
            for (int r = 0; r < (back ? 3 : 2); r++) {
                kn_tensor *rounded = back ? kn_cast(want[r], (kn_dtype)half) : want[r];
                assert_true(same_bits(got[r], rounded));
            }
            assert_true(same_bits(got[3], want[3]));
        }
    }
}

int main(void) {
    parity_table_make(&table);
    int n_failed = RUN_TESTS(
        TEST(kernels_on_aligned_f32_equal_the_host), TEST(kernels_on_unaligned_f64_equal_the_host),
        TEST(kernels_need_no_order_of_threads_or_blocks), TEST(kernels_bear_a_warp_that_runs_ahead),
        TEST(three_blocks_and_many_launches_do_the_work_of_all),
        TEST(an_index_out_of_range_reads_nan_and_is_not_written),
        TEST(activations_in_place_equal_the_ops), TEST(casts_to_16_bits_round_once),
        TEST(sizes_of_the_least_integers_wrap),
        TEST(norms_of_16_bits_are_those_of_f32_rounded_once),
        TEST(attention_of_16_bits_is_that_of_f32_rounded_once));
    parity_table_free(&table);
    return n_failed;
}
