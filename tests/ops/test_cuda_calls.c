/* What the module of CUDA kernels asks of the CUDA libraries, on a fake GPU. */
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <knet/capture.h>

#include "fake_gpu.h"
#include "ops_test.h"

static kn_device *gpu;

static int begin(void **state) {
    (void)state;
    fake_gpu_reset();
    return 0;
}
static int end(void **state) {
    (void)state;
    if (fake_cuda_count().n_violations) print_error("violation: %s\n", fake_cuda_violation());
    return fake_cuda_count().n_violations ? -1 : 0;
}

/* A number that no other test has: its plans are new. */
static int64_t new_size(void) {
    static int64_t size = 16;
    return size += 4;
}

static kn_tensor *new_linear(void) {
    int64_t n = new_size();
    return kn_linear(kn_ones(KN_SHAPE(3, 8)), kn_ones(KN_SHAPE(n, 8)), kn_ones(KN_SHAPE(n)));
}

/* --- products --- */

static void any_refusal_of_the_bias_leaves_it_to_a_kernel(void **state) {
    (void)state;
    static const cublasStatus_t errors[] = {
        CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_ARCH_MISMATCH,
        CUBLAS_STATUS_INTERNAL_ERROR};
    KN_FRAME(.device = gpu);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        fake_gpu_reset();
        fake_gpu_fail("cublasLtMatmulAlgoGetHeuristic", 1, 1, (int)errors[i]);
        assert_non_null(new_linear());
        assert_int_equal(fake_gpu_count().n_products, 1);
        assert_int_equal(fake_gpu_epilogue(), CUBLASLT_EPILOGUE_DEFAULT);
        assert_int_equal(fake_gpu_kernels("row_add"), 1);
    }
}

static void a_bias_is_added_by_the_product(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    assert_non_null(new_linear());
    assert_int_equal(fake_gpu_epilogue(), CUBLASLT_EPILOGUE_BIAS);
    assert_int_equal(fake_gpu_kernels("row_add"), 0);
}

static void a_product_that_is_refused_twice_is_an_error(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    fake_gpu_fail("cublasLtMatmulAlgoGetHeuristic", 1, 2, CUBLAS_STATUS_NOT_SUPPORTED);
    assert_null(new_linear());
    assert_fails(kn_check(), KN_ERR_CUDA, "CUBLAS_STATUS_NOT_SUPPORTED");
    assert_non_null(new_linear());
}

/* Rows of x, 16 bytes each. */
static void row_product(kn_tensor *x, kn_tensor *w, int64_t row) {
    kn_tensor *one = kn_slice(x, KN_SHAPE(row, 0), KN_SHAPE(row + 1, 4));
    assert_non_null(kn_linear(one, w, KN_NONE));
}

static void addresses_share_a_plan_from_16_bytes_on(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    kn_tensor *x = kn_ones(KN_SHAPE(64, 4)), *w = kn_ones(KN_SHAPE(new_size(), 4));
    for (int64_t row = 0; row < 64; row++) row_product(x, w, row);
    assert_int_equal(fake_gpu_calls("cublasLtMatmulAlgoGetHeuristic"), 1);
    kn_tensor *odd = kn_slice(kn_ones(KN_SHAPE(5)), KN_SHAPE(1), KN_SHAPE(5));
    row_product(kn_reshape(odd, KN_SHAPE(1, 4)), w, 0);
    assert_int_equal(fake_gpu_calls("cublasLtMatmulAlgoGetHeuristic"), 2);
}

/* The graph gets the plan that was recorded. */
static void a_captured_input_keeps_its_alignment(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    kn_capture *capture = NULL;
    int64_t n = new_size();
    kn_tensor *all = kn_ones(KN_SHAPE(20, n)), *w = kn_ones(KN_SHAPE(8, n)), *y;
    assert_ok(kn_capture_create(&capture, NULL));
    for (int64_t at = 0; at < 5; at++) {
        kn_tensor *x = kn_tensor_view(all, KN_SHAPE(10 + at, n), at);
        fake_gpu_reset();
        assert_ok(kn_capture_begin(capture, &x, 1));
        y = kn_linear(x, w, KN_NONE);
        assert_ok(kn_capture_end(capture, &y, 1));
        assert_int_equal(fake_gpu_calls("cublasLtMatmulAlgoGetHeuristic"), 1);
        assert_ok(kn_capture_launch(capture, &x, 1));
    }
    kn_capture_destroy(capture);
}

static void a_batch_of_products_is_one_call(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    int64_t n = new_size();
    kn_tensor *a = kn_ones(KN_SHAPE(6, 3, n)), *b = kn_ones(KN_SHAPE(6, n, 5));
    fake_gpu_reset();
    assert_non_null(kn_matmul(a, b, NULL));
    assert_int_equal(fake_gpu_launches(), 1);
    assert_int_equal(fake_gpu_count().n_products, 1);
    assert_non_null(kn_matmul(kn_reshape(a, KN_SHAPE(1, 18, n)),
                              kn_slice(b, KN_SHAPE(0, 0, 0), KN_SHAPE(1, n, 5)), NULL));
    assert_int_equal(fake_gpu_calls("cublasLtMatmulAlgoGetHeuristic"), 2);
}

static void a_sum_of_no_products_is_cleared_or_left_alone(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    kn_tensor *a = kn_zeros(KN_SHAPE(3, 0)), *b = kn_zeros(KN_SHAPE(0, 4)), *c;
    fake_gpu_reset();
    assert_non_null(c = kn_matmul(a, b, NULL));
    assert_int_equal(fake_gpu_count().n_fills, 1);
    kn_attr_matmul attr = {0, 0};
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_matmul, &attr, KN_LIST_(a, b), 2);
    call.out[0] = c, call.given = call.accumulate = 1;
    assert_ptr_equal(kn_op_run(&call), c);
    assert_int_equal(fake_gpu_launches(), 1);
}

/* --- rows --- */

/* Runs op for all its results. */
static kn_op_call run_row(kn_op op, kn_tensor *const in[], int n_in, unsigned want) {
    kn_op_call call;
    kn_op_call_init(&call, op, NULL, in, n_in);
    call.want = (uint8_t)want;
    assert_non_null(kn_op_run(&call));
    return call;
}

static void gradients_of_a_row_take_one_launch(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    kn_tensor *x = kn_ones(KN_SHAPE(100)), *y = kn_ones(KN_SHAPE(100));
    fake_gpu_reset();
    run_row(KN_OP_mul_back, KN_LIST_(x, x, y, KN_NONE), 4, 3);
    assert_int_equal(fake_gpu_launches(), 1);
    assert_int_equal(fake_gpu_kernels("row_mul"), 1);
    run_row(KN_OP_mul_back2, KN_LIST_(x, y, KN_NONE, KN_NONE, KN_NONE), 5, 3);
    assert_int_equal(fake_gpu_launches(), 2);
    assert_int_equal(fake_gpu_kernels("row_mul"), 2);
}

static void gradients_that_are_zero_are_cleared_or_left_alone(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    kn_tensor *x = kn_ones(KN_SHAPE(100));
    fake_gpu_reset();
    kn_op_call call = run_row(KN_OP_sign_back, KN_LIST_(x, KN_NONE, KN_NONE), 3, 1);
    assert_int_equal(fake_gpu_count().n_fills, 1);
    call.given = call.accumulate = 1;
    assert_non_null(kn_op_run(&call));
    assert_int_equal(fake_gpu_launches(), 1);
    /* x·y's second derivative by x and y reads u and v; the one by x and x is zero. */
    run_row(KN_OP_mul_back2, KN_LIST_(x, KN_NONE, KN_NONE, KN_NONE, KN_NONE), 5, 3);
    assert_int_equal(fake_gpu_count().n_fills, 2);
    assert_int_equal(fake_gpu_count().n_kernels, 1);
}

static void a_dtype_without_kernel_is_an_error_that_names_it(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    kn_op_call call;
    kn_tensor *x = kn_cast(kn_ones(KN_SHAPE(4, 6)), KN_I64);
    kn_op_call_init(&call, KN_OP_mul_back, NULL, KN_LIST_(x, x, x, KN_NONE), 4);
    call.loose = 1, call.dtype = KN_I64, call.device = gpu; /* its inputs are not checked */
    assert_null(kn_op_run(&call));
    assert_fails(kn_check(), KN_ERR_UNSUPPORTED, "kn_mul_back: cuda:0 has no kernel for i64");
}

/* --- math modes --- */

static int compute_type_in(kn_math_mode math, kn_dtype dtype, kn_device *device) {
    KN_FRAME(.device = device, .math = math, .dtype = dtype);
    assert_non_null(new_linear());
    return fake_gpu_compute_type();
}

static void products_compute_in_the_frames_mode(void **state) {
    (void)state;
    assert_int_equal(compute_type_in(0, KN_F32, gpu), CUBLAS_COMPUTE_32F);
    assert_int_equal(compute_type_in(KN_MATH_STRICT, KN_F32, gpu), CUBLAS_COMPUTE_32F);
    assert_int_equal(compute_type_in(KN_MATH_TF32, KN_F32, gpu), CUBLAS_COMPUTE_32F_FAST_TF32);
    assert_int_equal(compute_type_in(KN_MATH_BF16, KN_F32, gpu), CUBLAS_COMPUTE_32F_FAST_16BF);
    assert_int_equal(compute_type_in(KN_MATH_BF16, KN_F64, gpu), CUBLAS_COMPUTE_64F);
}

static void a_gpu_without_tensor_cores_for_a_mode_is_strict(void **state) {
    (void)state;
    kn_device *old = NULL;
    fake_cuda_machine_get()->compute_major = 7;
    assert_ok(kn_device_find(&old, "cuda:1"));
    assert_int_equal(compute_type_in(KN_MATH_TF32, KN_F32, old), CUBLAS_COMPUTE_32F);
    assert_int_equal(compute_type_in(KN_MATH_BF16, KN_F32, old), CUBLAS_COMPUTE_32F);
}

static void a_mode_that_cublaslt_refuses_becomes_strict(void **state) {
    (void)state;
    fake_gpu_fail("cublasLtMatmulAlgoGetHeuristic", 1, 2, CUBLAS_STATUS_NOT_SUPPORTED);
    assert_int_equal(compute_type_in(KN_MATH_TF32, KN_F32, gpu), CUBLAS_COMPUTE_32F);
    assert_int_equal(fake_gpu_epilogue(), CUBLASLT_EPILOGUE_BIAS);
}

static int plans_of(const char *function, kn_math_mode math, kn_tensor *x, kn_tensor *w) {
    KN_FRAME(.math = math);
    int before = fake_gpu_calls(function);
    assert_non_null(kn_tensor_numel(x) > 64 ? kn_conv(x, w, KN_NONE, NULL)
                                            : kn_linear(x, w, KN_NONE));
    return fake_gpu_calls(function) - before;
}

static void each_mode_has_plans_of_its_own(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    const char *ask = "cublasLtMatmulAlgoGetHeuristic";
    kn_tensor *x = kn_ones(KN_SHAPE(2, 4)), *w = kn_ones(KN_SHAPE(new_size(), 4));
    for (int math = KN_MATH_STRICT; math <= KN_MATH_BF16; math++)
        assert_int_equal(plans_of(ask, (kn_math_mode)math, x, w), 1);
    for (int math = KN_MATH_STRICT; math <= KN_MATH_BF16; math++)
        assert_int_equal(plans_of(ask, (kn_math_mode)math, x, w), 0);
}

static void convolutions_in_bf16_are_those_in_tf32(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    const char *make = "cudnnBackendSetAttribute";
    kn_tensor *x = kn_ones(KN_SHAPE(2, 3, 8, 8)), *w = kn_ones(KN_SHAPE(new_size(), 3, 3, 3));
    assert_true(plans_of(make, KN_MATH_STRICT, x, w) > 20);
    assert_true(plans_of(make, KN_MATH_TF32, x, w) > 20);
    assert_true(plans_of(make, KN_MATH_BF16, x, w) < 5); /* addresses at most */
}

/* --- convolutions --- */

static void convolve(int64_t channels) {
    assert_non_null(kn_conv(kn_ones(KN_SHAPE(2, 3, 8, 8)), kn_ones(KN_SHAPE(channels, 3, 3, 3)),
                            KN_NONE, NULL));
}

static void a_plan_keeps_two_descriptors(void **state) { /* itself, and the last run's addresses */
    (void)state;
    KN_FRAME(.device = gpu);
    convolve(new_size());
    int before = fake_gpu_descriptors();
    convolve(new_size());
    assert_int_equal(fake_gpu_descriptors(), before + 2);
}

static void a_plan_that_fails_keeps_no_descriptor(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    convolve(new_size());
    int before = fake_gpu_descriptors(), n_failed = 0;
    for (int nth = 1;; nth++, n_failed++) {
        fake_gpu_reset();
        fake_gpu_fail("cudnnBackendSetAttribute", nth, 1, CUDNN_STATUS_BAD_PARAM);
        if (kn_conv(kn_ones(KN_SHAPE(2, 3, 8, 8)), kn_ones(KN_SHAPE(5, 3, 3, 3)), KN_NONE, NULL))
            break;
        assert_fails(kn_check(), KN_ERR_CUDA, "CUDNN_STATUS_BAD_PARAM");
        assert_true(fake_gpu_descriptors() <= before + 1); /* a plan whose run failed */
    }
    assert_true(n_failed > 20);
}

static void a_stream_is_set_once(void **state) {
    (void)state;
    kn_stream other = NULL;
    assert_ok(kn_stream_create(&other, gpu));
    {
        KN_FRAME(.device = gpu);
        int64_t channels = new_size();
        for (int i = 0; i < 3; i++) convolve(channels);
        int before = fake_gpu_calls("cudnnSetStream");
        assert_true(before <= 1);
        for (int i = 0; i < 3; i++) convolve(channels);
        assert_int_equal(fake_gpu_calls("cudnnSetStream"), before);
        {
            KN_FRAME(.stream = other);
            convolve(channels);
        }
        assert_int_equal(fake_gpu_calls("cudnnSetStream"), before + 1);
    }
    kn_stream_destroy(gpu, other);
}

/* --- mixed precision --- */

static void products_of_16_bits_sum_in_f32(void **state) {
    (void)state;
    static const int types[][2] = {{KN_F16, CUDA_R_16F}, {KN_BF16, CUDA_R_16BF}};
    KN_FRAME(.device = gpu);
    for (int i = 0; i < 2; i++) {
        KN_FRAME(.autocast = types[i][0]);
        fake_gpu_reset();
        kn_tensor *y = new_linear();
        assert_int_equal(kn_tensor_dtype(y), types[i][0]);
        assert_int_equal(fake_gpu_count().n_products, 1);
        assert_int_equal(fake_gpu_matrix_type(), types[i][1]);
        assert_int_equal(fake_gpu_compute_type(), CUBLAS_COMPUTE_32F);
        assert_int_equal(fake_gpu_epilogue(), CUBLASLT_EPILOGUE_BIAS);
        assert_int_equal(fake_gpu_kernels("cast"), 3); /* x, w, b */
    }
}

static void an_activation_of_16_bits_stays_one(void **state) {
    (void)state;
    KN_FRAME(.device = gpu, .autocast = KN_BF16);
    kn_tensor *x = kn_ones(KN_SHAPE(2, 3, 8, 8)), *w = kn_ones(KN_SHAPE(new_size(), 3, 3, 3));
    kn_tensor *b = kn_ones(KN_SHAPE(kn_tensor_shape(w).dim[0]));
    fake_gpu_reset();
    kn_tensor *y = kn_maxpool(kn_relu(kn_conv(x, w, b, NULL)), KN_SHAPE(2, 2), NULL);
    assert_int_equal(kn_tensor_dtype(y), KN_BF16);
    assert_int_equal(fake_gpu_count().n_convolutions, 1);
    assert_int_equal(fake_gpu_kernels("cast"), 3);
    assert_int_equal(fake_gpu_kernels("bias_act"), 0); /* the plan adds b */
    assert_int_equal(fake_gpu_kernels("maxpool"), 1);
}

/* cuDNN finalises thirteen descriptors of a convolution, its bias and relu; then its heuristics
 * know nothing of them, twice. A kernel adds the bias, the next time too. */
static void a_convolution_without_an_engine_that_adds_its_bias_takes_a_kernel(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    convolve(new_size()); /* describes the device */
    kn_tensor *x = kn_ones(KN_SHAPE(2, 3, 8, 8)), *w = kn_ones(KN_SHAPE(new_size(), 3, 3, 3));
    kn_tensor *b = kn_ones(KN_SHAPE(kn_tensor_shape(w).dim[0]));
    for (int again = 0; again < 2; again++) {
        fake_gpu_reset();
        if (!again) fake_gpu_fail("cudnnBackendFinalize", 14, 2, CUDNN_STATUS_NOT_SUPPORTED);
        assert_non_null(kn_conv(x, w, b, &(kn_conv_options){.act = KN_ACT_RELU}));
        assert_ok(kn_check());
        assert_int_equal(fake_gpu_count().n_convolutions, 1);
        assert_int_equal(fake_gpu_kernels("bias_act"), 1);
    }
}

/* cuDNN finalises six descriptors of a graph; then its heuristics know nothing of it, twice. */
static void a_convolution_without_an_engine_of_16_bits_runs_in_f32(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    convolve(new_size()); /* describes the device */
    kn_tensor *x = kn_cast(kn_ones(KN_SHAPE(2, 3, 8, 8)), KN_F16);
    kn_tensor *w = kn_cast(kn_ones(KN_SHAPE(new_size(), 3, 3, 3)), KN_F16);
    for (int again = 0; again < 2; again++) {
        fake_gpu_reset();
        if (!again) fake_gpu_fail("cudnnBackendFinalize", 7, 2, CUDNN_STATUS_NOT_SUPPORTED);
        kn_tensor *y = kn_conv(x, w, KN_NONE, NULL);
        assert_ok(kn_check());
        assert_int_equal(kn_tensor_dtype(y), KN_F16);
        assert_int_equal(fake_gpu_count().n_convolutions, 1);
        assert_int_equal(fake_gpu_kernels("cast"), 3);                          /* x, w, y */
        if (again) assert_true(fake_gpu_calls("cudnnBackendSetAttribute") < 5); /* no new plan */
    }
}

/* --- recurrent networks --- */

static kn_tensor *network(int64_t hidden, double dropout, kn_rng *rng) {
    kn_rnn_options o = {.hidden = hidden, .layers = 3, .dropout = dropout, .rng = rng};
    return kn_rnn(kn_ones(KN_SHAPE(4, 2, 5)), kn_ones(KN_SHAPE(kn_rnn_params(5, &o))), &o);
}

static void a_network_is_one_call_and_its_kind_is_described_once(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    fake_gpu_reset();
    int64_t hidden = new_size();
    for (int i = 0; i < 3; i++) assert_non_null(network(hidden, 0, NULL));
    assert_int_equal(fake_gpu_calls("cudnnRNNForward"), 3);
    assert_int_equal(fake_gpu_calls("cudnnSetRNNDescriptor_v8"), 1);
    assert_int_equal(fake_gpu_kernels("dropout"), 0);
    {
        KN_FRAME(.math = KN_MATH_TF32);
        for (int i = 0; i < 2; i++) assert_non_null(network(hidden, 0, NULL));
    }
    assert_int_equal(fake_gpu_calls("cudnnSetRNNDescriptor_v8"), 2); /* cores' math is another */
}

static void with_dropout_each_layer_is_a_call(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    kn_rng *rng = NULL;
    assert_ok(kn_rng_create(&rng, 1));
    fake_gpu_reset();
    assert_non_null(network(new_size(), 0.5, rng));
    assert_int_equal(fake_gpu_calls("cudnnRNNForward"), 3);
    assert_int_equal(fake_gpu_kernels("dropout"), 2);
    kn_rng_destroy(rng);
}

/* What the rule of rnn runs. math: of the frame of the backward. */
static kn_tensor *network_back(int64_t hidden, kn_math_mode math) {
    kn_rnn_options o = {.hidden = hidden, .bidirectional = 1};
    kn_attr_rnn attr = {.math = KN_MATH_STRICT,
                        .input = 5,
                        .hidden = hidden,
                        .layers = 1,
                        .directions = 2,
                        .steps = 4,
                        .batch = 2};
    kn_op_call call;
    kn_tensor *x = kn_ones(KN_SHAPE(4, 2, 5)), *w = kn_ones(KN_SHAPE(kn_rnn_params(5, &o)));
    kn_op_call_init(&call, KN_OP_rnn, &attr, KN_LIST_(x, w, KN_NONE, KN_NONE, KN_NONE), 5);
    call.want = 1 | 8;
    kn_tensor *y = kn_op_run(&call);
    if (!y) return NULL;
    KN_FRAME(.math = math);
    kn_op_call_init(&call, KN_OP_rnn_back, &attr,
                    KN_LIST_(x, w, y, call.out[3], KN_NONE, KN_NONE, KN_NONE), 7);
    call.want = 3;
    return kn_keep(kn_op_run(&call));
}

static void the_backward_has_the_math_of_the_forward(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    fake_gpu_reset();
    assert_non_null(network_back(new_size(), KN_MATH_TF32));
    assert_int_equal(fake_gpu_calls("cudnnSetRNNDescriptor_v8"), 1);
}

static void all_gradients_of_a_network_take_two_calls(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    fake_gpu_reset();
    assert_non_null(network_back(new_size(), KN_MATH_STRICT));
    assert_int_equal(fake_gpu_calls("cudnnRNNBackwardData_v8"), 1);
    assert_int_equal(fake_gpu_calls("cudnnRNNBackwardWeights_v8"), 1);
}

static void parameters_that_lie_elsewhere_are_an_error(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    fake_gpu_misplace(true);
    assert_op_fails(network(new_size(), 0, NULL), KN_ERR_UNSUPPORTED, "elsewhere in w");
    fake_gpu_misplace(false);
}

static void calls_that_fail_leave_no_descriptors(void **state) {
    (void)state;
    static const char *const functions[] = {
        "cudnnCreateRNNDescriptor",  "cudnnSetRNNDescriptor_v8",  "cudnnGetRNNWeightParams",
        "cudnnSetRNNDataDescriptor", "cudnnGetRNNTempSpaceSizes", "cudnnRNNForward",
        "cudnnRNNBackwardData_v8",   "cudnnRNNBackwardWeights_v8"};
    KN_FRAME(.device = gpu);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        int before = fake_gpu_descriptors();
        fake_gpu_reset();
        fake_gpu_fail(functions[i], 1, 1, CUDNN_STATUS_BAD_PARAM);
        assert_op_fails(network_back(new_size(), KN_MATH_STRICT), KN_ERR_CUDA,
                        "CUDNN_STATUS_BAD_PARAM");
        fake_gpu_reset();
        int kept = fake_gpu_descriptors() - before;
        assert_true(kept == 0 || kept == 2); /* those of the kind of network */
        assert_non_null(network_back(new_size(), KN_MATH_STRICT));
    }
}

/* --- errors that others left --- */

static void an_error_of_another_call_fails_no_kernel(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    kn_tensor *x = kn_ones(KN_SHAPE(100));
    fake_gpu_last_error(cudaErrorNotReady); /* a program polled an event */
    assert_non_null(kn_relu(x));
    fake_gpu_fail("cudaMemsetAsync", 1, 1, cudaErrorMemoryAllocation);
    int64_t n = new_size();
    assert_op_fails(kn_matmul(kn_ones(KN_SHAPE(n, 0)), kn_ones(KN_SHAPE(0, n)), NULL), KN_ERR_OOM,
                    "cudaMemsetAsync");
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_non_null(kn_relu(x));
}

/* --- contexts --- */

static void a_thread_without_a_context_gets_one_once(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    kn_tensor *x = kn_ones(KN_SHAPE(100));
    for (int i = 0; i < 10; i++) kn_drop(kn_relu(x));
    fake_gpu_reset();
    for (int i = 0; i < 10; i++) kn_drop(kn_relu(x));
    assert_int_equal(fake_gpu_kernels("row_relu"), 10);
    assert_int_equal(fake_cuda_calls("cuCtxPushCurrent"), 0);
    assert_int_equal(fake_cuda_count().n_contexts, 1);
}

static void kernels_run_in_the_context_of_their_gpu(void **state) {
    (void)state;
    static const char *const names[] = {"managed:1", "cuda:1", "managed:0", "cuda:0"};
    for (int i = 0; i < 4; i++) {
        kn_device *device = NULL;
        assert_ok(kn_device_find(&device, names[i]));
        KN_FRAME(.device = device);
        assert_non_null(kn_relu(kn_ones(KN_SHAPE(100))));
        assert_int_equal(fake_gpu_count().device, i < 2);
    }
}

static void the_callers_context_is_put_back(void **state) {
    (void)state;
    cu_context own = fake_cuda_foreign_context();
    KN_FRAME(.device = gpu);
    kn_tensor *x = kn_ones(KN_SHAPE(100));
    int before = fake_cuda_count().n_contexts;
    fake_cuda_context_push(own);
    assert_non_null(kn_relu(x));
    assert_int_equal(fake_cuda_count().n_contexts, before + 1);
    assert_ptr_equal(fake_cuda_context_pop(), own);
}

/* --- a GPU that is lost --- */

static int n_logged;
static void count_lost(void *ctx, int level, const char *text) {
    (void)ctx, (void)level;
    n_logged += strstr(text, "restart the program") != NULL;
}

static void a_lost_gpu_is_logged_once(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    kn_tensor *x = kn_ones(KN_SHAPE(100));
    kn_log_attach(count_lost, NULL);
    fake_gpu_fail("cudaLaunchKernel", 1, 1, cudaErrorInvalidConfiguration);
    assert_null(kn_relu(x));
    assert_fails(kn_check(), KN_ERR_CUDA, "relu_kernel");
    assert_int_equal(n_logged, 0);
    fake_gpu_fail("cudaLaunchKernel", 1, 5, cudaErrorIllegalAddress);
    for (int i = 0; i < 5; i++) {
        assert_null(kn_relu(x));
        assert_fails(kn_check(), KN_ERR_CUDA, "cudaErrorIllegalAddress");
    }
    kn_log_attach(NULL, NULL);
    assert_int_equal(n_logged, 1);
}

#define CALLS_TEST(fn) cmocka_unit_test_setup_teardown(fn, begin, end)

int main(void) {
    if (kn_device_find(&gpu, "cuda:0") < 0) return 1;
    return RUN_TESTS(
        CALLS_TEST(any_refusal_of_the_bias_leaves_it_to_a_kernel),
        CALLS_TEST(a_bias_is_added_by_the_product),
        CALLS_TEST(a_product_that_is_refused_twice_is_an_error),
        CALLS_TEST(addresses_share_a_plan_from_16_bytes_on),
        CALLS_TEST(a_captured_input_keeps_its_alignment),
        CALLS_TEST(a_batch_of_products_is_one_call),
        CALLS_TEST(a_sum_of_no_products_is_cleared_or_left_alone),
        CALLS_TEST(gradients_of_a_row_take_one_launch),
        CALLS_TEST(gradients_that_are_zero_are_cleared_or_left_alone),
        CALLS_TEST(a_dtype_without_kernel_is_an_error_that_names_it),
        CALLS_TEST(products_compute_in_the_frames_mode),
        CALLS_TEST(a_gpu_without_tensor_cores_for_a_mode_is_strict),
        CALLS_TEST(a_mode_that_cublaslt_refuses_becomes_strict),
        CALLS_TEST(each_mode_has_plans_of_its_own),
        CALLS_TEST(convolutions_in_bf16_are_those_in_tf32),
        CALLS_TEST(products_of_16_bits_sum_in_f32), CALLS_TEST(an_activation_of_16_bits_stays_one),
        CALLS_TEST(a_convolution_without_an_engine_of_16_bits_runs_in_f32),
        CALLS_TEST(a_convolution_without_an_engine_that_adds_its_bias_takes_a_kernel),
        CALLS_TEST(a_plan_keeps_two_descriptors), CALLS_TEST(a_plan_that_fails_keeps_no_descriptor),
        CALLS_TEST(a_stream_is_set_once),
        CALLS_TEST(a_network_is_one_call_and_its_kind_is_described_once),
        CALLS_TEST(with_dropout_each_layer_is_a_call),
        CALLS_TEST(all_gradients_of_a_network_take_two_calls),
        CALLS_TEST(the_backward_has_the_math_of_the_forward),
        CALLS_TEST(an_error_of_another_call_fails_no_kernel),
        CALLS_TEST(parameters_that_lie_elsewhere_are_an_error),
        CALLS_TEST(calls_that_fail_leave_no_descriptors),
        CALLS_TEST(a_thread_without_a_context_gets_one_once),
        CALLS_TEST(kernels_run_in_the_context_of_their_gpu),
        CALLS_TEST(the_callers_context_is_put_back), CALLS_TEST(a_lost_gpu_is_logged_once));
}
