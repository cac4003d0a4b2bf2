/* Every case of the table on cuda:0 against the host: plainly, with other alignments, and as a
 * captured graph. Skipped where there is no GPU. For tools that make a program many times slower:
 * `few` runs three cases of each op, `own` the same of the ops whose kernels are ours alone. */
#include <cuda_runtime_api.h>

#include "parity.h"
#include "test.h"

static parity_table table;
static kn_device *gpu;

static double most_of(kn_dtype dtype) { return dtype == KN_F64 ? 1e-13 : 1e-7; }

static bool is_of_a_library(kn_op op) {
    return op == KN_OP_matmul || op == KN_OP_linear || op == KN_OP_conv || op == KN_OP_conv_data ||
           op == KN_OP_conv_weight || op == KN_OP_rnn;
}

static bool is_within(double nmse, const parity_case *c, const parity_mode *mode) {
    if (c->host_only) return true;
    parity_mode host = *mode;
    host.device = kn_device_host(), host.run = NULL;
    parity_result got, want;
    if (!parity_run(&want, c, &host)) return false;
    bool same = parity_run(&got, c, mode);
    if (same) same = parity_same(c, &got, &want, nmse);
    parity_result_free(&got);
    parity_result_free(&want);
    return same;
}

static bool equals_host(const parity_case *c, const parity_mode *mode) {
    return is_within(most_of(mode->dtype), c, mode);
}

static void run_all(parity_mode mode) {
    int n_failed = 0;
    for (int i = 0; i < table.n; i++) n_failed += !equals_host(&table.cases[i], &mode);
    print_message("%d of %d cases agree (%s, guard %d)\n", table.n - n_failed, table.n,
                  kn_dtype_name(mode.dtype), mode.guard);
    assert_int_equal(n_failed, 0);
}

static void f32_equals_the_host(void **state) {
    (void)state;
    run_all((parity_mode){gpu, KN_F32, KN_F32, 64, NULL, NULL});
}

static void f64_equals_the_host(void **state) {
    (void)state;
    run_all((parity_mode){gpu, KN_F64, KN_F64, 64, NULL, NULL});
}

static void buffers_at_odd_addresses_equal_the_host(void **state) {
    (void)state;
    run_all((parity_mode){gpu, KN_F32, KN_F32, 3, NULL, NULL});
    run_all((parity_mode){gpu, KN_F64, KN_F64, 1, NULL, NULL});
}

/* How many rounded products follow each other: in a recurrent network, one for each layer and step.
 */
static int64_t products_in_a_row(const parity_case *c) {
    kn_attr_rnn attr;
    if (c->op != KN_OP_rnn) return 1;
    memcpy(&attr, c->attr, sizeof attr);
    return attr.layers * attr.steps > 1 ? attr.layers * attr.steps : 1;
}

/* Twice the square of a factor's relative error, with room for short sums: TF32 keeps 10 bits of
 * the mantissa, bf16 7. */
static void math_modes_round_factors_and_no_more(void **state) {
    (void)state;
    static const double most[] = {
        [KN_MATH_STRICT] = 1e-7, [KN_MATH_TF32] = 2e-6, [KN_MATH_BF16] = 1e-4};
    int n_failed_all = 0; /* asserted outside of the frames, which set the mode */
    for (int math = KN_MATH_STRICT; math <= KN_MATH_BF16; math++) {
        KN_FRAME(.math = math);
        int n_failed = 0;
        for (int i = 0; i < table.n; i++) {
            const parity_case *c = &table.cases[i];
            if (!is_of_a_library(c->op)) continue;
            double bound = most[math];
            if (math != KN_MATH_STRICT) bound *= (double)products_in_a_row(c);
            n_failed += !is_within(bound, c, &(parity_mode){gpu, KN_F32, KN_F32, 64, NULL, NULL});
            n_failed += !equals_host(c, &(parity_mode){gpu, KN_F64, KN_F64, 64, NULL, NULL});
        }
        print_message("%s: %d cases differ too much\n", kn_math_mode_name((kn_math_mode)math),
                      n_failed);
        n_failed_all += n_failed;
    }
    assert_int_equal(n_failed_all, 0);
}

static void the_same_call_gives_the_same_bits(void **state) {
    (void)state;
    parity_mode mode = {gpu, KN_F32, KN_F32, 64, NULL, NULL};
    int n_failed = 0;
    for (int i = 0; i < table.n; i++) {
        parity_result a, b;
        parity_case exact = table.cases[i];
        exact.compare = COMPARE_EXACT;
        if (!parity_run(&a, &exact, &mode)) continue;
        bool same = parity_run(&b, &exact, &mode) && parity_same(&exact, &a, &b, 0);
        n_failed += !same;
        parity_result_free(&a);
        parity_result_free(&b);
    }
    assert_int_equal(n_failed, 0);
}

/* --- captured --- */

static kn_status cuda_status(cudaError_t error, const char *what) {
    return error == cudaSuccess ? KN_OK
                                : KN_FAIL(KN_ERR_CUDA, "%s: %s", what, cudaGetErrorString(error));
}
#define CUDA_TRY(fn, ...) KN_TRY(cuda_status(fn(__VA_ARGS__), #fn))

static kn_status launch_graph(cudaGraph_t graph, cudaStream_t stream) {
    cudaGraphExec_t exec = NULL;
    CUDA_TRY(cudaGraphInstantiate, &exec, graph, 0);
    CUDA_TRY(cudaGraphLaunch, exec, stream);
    CUDA_TRY(cudaStreamSynchronize, stream);
    CUDA_TRY(cudaGraphExecDestroy, exec);
    return KN_OK;
}

/* cuSOLVER's functions behind them can't be captured. */
static bool waits_for_the_stream(kn_op op) { return op == KN_OP_eigh || op == KN_OP_svd; }

/* Captures the call into a graph, then launches the graph. A call that refuses the capture must
 * leave it valid; it then runs without one. */
static kn_status run_captured(void *ctx, kn_op_call *call) {
    (void)ctx;
    cudaStream_t stream = kn_frame_stream();
    cudaGraph_t graph = NULL;
    CUDA_TRY(cudaStreamSynchronize, stream);
    CUDA_TRY(cudaStreamBeginCapture, stream, cudaStreamCaptureModeThreadLocal);
    kn_status status = kn_op_run(call) ? KN_OK : kn_check();
    cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    if (ended != cudaSuccess) status = cuda_status(ended, "cudaStreamEndCapture");
    if (status == KN_OK) status = launch_graph(graph, stream);
    if (status == KN_ERR_UNSUPPORTED && waits_for_the_stream(call->op))
        status = kn_op_run(call) ? KN_OK : kn_check();
    if (graph) cudaGraphDestroy(graph);
    return status;
}

static void captured_calls_equal_the_host(void **state) {
    (void)state;
    parity_mode mode = {gpu, KN_F32, KN_F32, 64, NULL, NULL};
    for (int i = 0; i < table.n; i++) { /* plans, handles and scratch first */
        parity_result warm;
        if (!table.cases[i].host_only && parity_run(&warm, &table.cases[i], &mode))
            parity_result_free(&warm);
    }
    mode.run = run_captured;
    run_all(mode);
}

static int count_of(kn_op op) {
    int n = 0;
    for (int i = 0; i < table.n; i++) n += table.cases[i].op == op;
    return n;
}

/* Keeps the first, the middle and the last case of each op. */
static void keep_few(bool own) {
    int n_kept = 0, seen[KN_OP_COUNT] = {0}, n_of[KN_OP_COUNT];
    for (int op = 0; op < KN_OP_COUNT; op++) n_of[op] = count_of((kn_op)op);
    for (int i = 0; i < table.n; i++) {
        kn_op op = table.cases[i].op;
        int at = seen[op]++, n = n_of[op];
        if (own && is_of_a_library(op)) continue;
        if (at == 0 || at == n / 2 || at == n - 1) table.cases[n_kept++] = table.cases[i];
    }
    table.n = n_kept;
}

int main(int argc, char **argv) {
    const char *which = argc > 1 ? argv[1] : "all";
    if (kn_device_find(&gpu, "cuda:0") < 0) test_skip_all(kn_last_error()->message);
    parity_table_make(&table);
    if (strcmp(which, "all") != 0) {
        keep_few(strcmp(which, "own") == 0);
        int n_wrong =
            RUN_TESTS(TEST(f32_equals_the_host), TEST(buffers_at_odd_addresses_equal_the_host));
        parity_table_free(&table);
        return n_wrong;
    }
    int n_failed = RUN_TESTS(
        TEST(f32_equals_the_host), TEST(f64_equals_the_host),
        TEST(buffers_at_odd_addresses_equal_the_host), TEST(math_modes_round_factors_and_no_more),
        TEST(the_same_call_gives_the_same_bits), TEST(captured_calls_equal_the_host));
    parity_table_free(&table);
    return n_failed;
}
