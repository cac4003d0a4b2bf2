/* The CUDA kernels against the host's, with no GPU: the module's own C files call the .cu files'
 * launchers, whose kernels run as fibers (emulate.h) on the host's memory. Products and
 * convolutions are libraries' and stay out. */
#include "module.h"
#include "parity.h"
#include "test.h"

/* --- what the C files want of CUDA --- */

cudaError_t emulate_memset(void *p, int byte, size_t n, cudaStream_t stream);
cudaError_t emulate_memset(void *p, int byte, size_t n, cudaStream_t stream) {
    (void)stream;
    memset(p, byte, n);
    return cudaSuccess;
}

kn_status kn__cuda_status(cudaError_t error, const char *what) {
    return error == cudaSuccess ? KN_OK : KN_FAIL(KN_ERR_CUDA, "%s: %d", what, (int)error);
}

#define POINTWISE(name)                                                                            \
    static kn_status run_##name(const kn_kernel_call *call) {                                      \
        return kn__pointwise_run(call, kn__launch_##name, #name);                                  \
    }
#define KN_UNARY(name, formula, saves, gradient) POINTWISE(name) POINTWISE(name##_back)
#define KN_BINARY(name, formula) POINTWISE(name)
#define KN_COMPARE(name, formula) POINTWISE(name)
#include <knet/ops.def>

#define kn__cuda_matmul NULL
#define kn__cuda_linear NULL
#define kn__cuda_conv NULL
#define kn__cuda_conv_data NULL
#define kn__cuda_conv_weight NULL
#define kn__cuda_NONE NULL

static const kn_kernel_fn kernels[KN_OP_COUNT] = {
#define KN_UNARY(name, formula, saves, gradient)                                                   \
    [KN_OP_##name] = run_##name, [KN_OP_##name##_back] = run_##name##_back,
#define KN_BINARY(name, formula) [KN_OP_##name] = run_##name,
#define KN_COMPARE(name, formula) [KN_OP_##name] = run_##name,
#define KN_KERNEL(name, host, cuda) [KN_OP_##name] = kn__cuda_##cuda,
#include <knet/ops.def>
};

/* --- the table --- */

static parity_table table;

static kn_status run_emulated(void *ctx, kn_op_call *call) {
    (void)ctx;
    kn_kernel_call kernel_call = {.op = call->op,
                                  .n_in = call->n_in,
                                  .in = call->in,
                                  .out = call->out,
                                  .aux = call->aux,
                                  .attr = call->attr,
                                  .accumulate = call->accumulate,
                                  .device = call->device,
                                  .threads = 1};
    return kn_tensor_numel(call->out) ? kernels[call->op](&kernel_call) : KN_OK;
}

static bool equals_host(const parity_case *c, kn_dtype dtype, int guard) {
    parity_mode host = {kn_device_host(), dtype, dtype, guard, NULL, NULL}, emulated = host;
    emulated.run = run_emulated;
    parity_result got, want;
    if (!parity_run(&want, c, &host)) return false;
    bool same = parity_run(&got, c, &emulated);
    if (same) same = parity_same(c, &got, &want, dtype == KN_F64 ? 1e-13 : 1e-7);
    parity_result_free(&got);
    parity_result_free(&want);
    return same;
}

static void run_all(kn_dtype dtype, int guard) {
    int n_failed = 0, n = 0;
    for (int i = 0; i < table.n; i++) {
        if (!kernels[table.cases[i].op]) continue;
        n_failed += !equals_host(&table.cases[i], dtype, guard);
        n++;
    }
    assert_int_equal(n_failed, 0);
    assert_true(n > 300);
}

static void kernels_on_aligned_f32_equal_the_host(void **state) {
    (void)state;
    run_all(KN_F32, 64);
}

static void kernels_on_unaligned_f64_equal_the_host(void **state) {
    (void)state;
    run_all(KN_F64, 1);
}

int main(void) {
    parity_table_make(&table);
    int n_failed = RUN_TESTS(TEST(kernels_on_aligned_f32_equal_the_host),
                             TEST(kernels_on_unaligned_f64_equal_the_host));
    parity_table_free(&table);
    return n_failed;
}
