/* Products on a GPU, and what follows them: the fake one computes products as cublasLt's
 * descriptions say, beside the host's.
 */
#include <cublasLt.h>
#include <knet/op_act.h>
#include <string.h>

#include "autograd_test.h"
#include "fake_gpu.h"

static kn_device *gpu;

static int begin(void **state) {
    (void)state;
    fake_gpu_reset();
    fake_gpu_compute_products();
    return 0;
}
static int end(void **state) {
    (void)state;
    if (fake_cuda_count().n_violations) print_error("violation: %s\n", fake_cuda_violation());
    return fake_cuda_count().n_violations ? -1 : 0;
}

/* On the host; the frame's device has a copy. */
static kn_tensor *random_of(kn_shape shape, uint64_t seed) {
    float values[4096];
    int64_t n = 1;
    for (int d = 0; d < shape.n_dims; d++) n *= shape.dim[d];
    assert_true(n <= 4096);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        values[i] = (float)(int32_t)(seed >> 32) * 0x1p-31f;
    }
    KN_FRAME(.device = kn_device_host());
    return kn_keep(kn_tensor_from(values, KN_F32, shape));
}

static kn_tensor *there(kn_tensor *x) { return x == KN_NONE ? x : kn_to(x, gpu); }

static void assert_like(kn_tensor *on_gpu, kn_tensor *on_host) {
    kn_tensor *read = kn_to(on_gpu, kn_device_host());
    assert_non_null(read);
    assert_non_null(on_host);
    assert_int_equal(read->n, on_host->n);
    const float *a = kn_data(read), *b = kn_data(on_host);
    for (int64_t i = 0; i < read->n; i++) assert_close((double)a[i], (double)b[i], 1e-5, 1e-6);
}

static void matrices_are_transposed_and_repeated_as_asked(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    for (int trans = 0; trans < 4; trans++) {
        kn_matmul_options o = {.trans_a = trans & 1, .trans_b = trans >> 1};
        kn_tensor *a = random_of(trans & 1 ? KN_SHAPE(2, 5, 3) : KN_SHAPE(2, 3, 5), 1);
        kn_tensor *b = random_of(trans & 2 ? KN_SHAPE(1, 7, 5) : KN_SHAPE(1, 5, 7), 2);
        assert_like(kn_matmul(there(a), there(b), &o), kn_matmul(a, b, &o));
    }
}

static void a_layer_adds_its_bias_and_activates(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    kn_tensor *x = random_of(KN_SHAPE(2, 3, 5), 1), *w = random_of(KN_SHAPE(7, 5), 2);
    kn_tensor *b = random_of(KN_SHAPE(7), 3);
    assert_like(kn_linear(there(x), there(w), there(b)), kn_linear(x, w, b));
    assert_int_equal(fake_gpu_epilogue(), CUBLASLT_EPILOGUE_BIAS);
    assert_like(kn_linear_act(there(x), there(w), there(b), KN_ACT_RELU),
                kn_linear_act(x, w, b, KN_ACT_RELU));
    assert_int_equal(fake_gpu_epilogue(), CUBLASLT_EPILOGUE_RELU_BIAS);
    assert_int_equal(fake_gpu_kernels(""), 0);
}

static void a_layer_adds_its_residual_and_activates(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    kn_tensor *x = random_of(KN_SHAPE(2, 3, 5), 1), *w = random_of(KN_SHAPE(7, 5), 2);
    kn_tensor *b = random_of(KN_SHAPE(7), 3), *r = random_of(KN_SHAPE(2, 3, 7), 4);
    kn_tensor *kept = there(r);
    for (int act = KN_ACT_NONE; act <= KN_ACT_RELU; act++) {
        assert_like(kn_linear_add(there(x), there(w), there(b), kept, (kn_act)act),
                    kn_linear_add(x, w, b, r, (kn_act)act));
        assert_like(kn_linear_add(there(x), there(w), KN_NONE, kept, (kn_act)act),
                    kn_linear_add(x, w, KN_NONE, r, (kn_act)act));
    }
    assert_int_equal(fake_gpu_epilogue(), CUBLASLT_EPILOGUE_RELU);
    assert_int_equal(fake_gpu_count().n_products, 4);
    assert_int_equal(fake_gpu_kernels(""), 0);
    assert_like(kept, r);
}

/* Of no products. */
static void a_residual_alone_is_copied(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    kn_tensor *x = random_of(KN_SHAPE(3, 0), 1), *w = random_of(KN_SHAPE(7, 0), 2);
    kn_tensor *r = random_of(KN_SHAPE(3, 7), 4);
    assert_like(kn_linear_add(there(x), there(w), KN_NONE, there(r), KN_ACT_NONE), r);
    assert_int_equal(fake_gpu_count().n_products, 0);
}

static void a_residual_gets_the_gradient_of_the_sum(void **state) {
    (void)state;
    KN_FRAME();
    for (int t = 0; t < 2; t++) {
        kn_device *device = t ? kn_device_host() : gpu;
        KN_TAPE(.device = device);
        kn_tensor *x = kn_to(random_of(KN_SHAPE(2, 3, 5), 1), device), *d = NULL;
        kn_tensor *w = kn_to(random_of(KN_SHAPE(7, 5), 2), device);
        kn_tensor *r = kn_watch(kn_to(random_of(KN_SHAPE(2, 3, 7), 4), device));
        kn_tensor *dy = random_of(KN_SHAPE(2, 3, 7), 5);
        kn_tensor *y = kn_linear_add(x, w, KN_NONE, r, KN_ACT_NONE);
        assert_ok(kn_gradients(&d, y, &r, 1, &(kn_gradients_options){.dy = kn_to(dy, device)}));
        assert_like(d, dy);
    }
}

typedef struct layer {
    kn_tensor *x, *w, *b, *dy; /* on the host */
    kn_tensor *dx[3];          /* by x, w, b */
} layer;

static layer layer_of(int64_t rows) {
    return (layer){.x = random_of(KN_SHAPE(rows, 2, 5), 1),
                   .w = random_of(KN_SHAPE(7, 5), 2),
                   .b = random_of(KN_SHAPE(7), 3),
                   .dy = random_of(KN_SHAPE(rows, 2, 7), 4)};
}

/* The gradients of linear, or linear_act, by what `wanted` names: bits of x, w, b. */
static void differentiate(layer *l, kn_device *device, unsigned wanted, kn_act act) {
    kn_tensor *of[3] = {l->x, l->w, l->b}, *wrt[3], *dx[3];
    int n = 0;
    KN_TAPE(.device = device);
    kn_tensor *dy = kn_to(l->dy, device);
    for (int i = 0; i < 3; i++) {
        of[i] = kn_to(of[i], device);
        if (wanted >> i & 1) wrt[n++] = of[i] = kn_watch(of[i]);
    }
    kn_tensor *y = kn_linear_act(of[0], of[1], of[2], act);
    assert_ok(kn_gradients(dx, y, wrt, n, &(kn_gradients_options){.dy = dy}));
    for (int i = 0, k = 0; i < 3; i++) {
        if (wanted >> i & 1) l->dx[i] = kn_keep(kn_to(dx[k++], kn_device_host()));
    }
}

static void a_bias_gets_its_gradient_from_the_weights_product(void **state) {
    (void)state;
    KN_FRAME();
    for (unsigned wanted = 6; wanted < 8; wanted++) {
        layer on_gpu = layer_of(3 + wanted), on_host = on_gpu;
        begin(NULL);
        differentiate(&on_gpu, gpu, wanted, KN_ACT_NONE);
        assert_int_equal(fake_gpu_count().n_products, wanted == 7 ? 3 : 2);
        assert_int_equal(fake_gpu_kernels(""), 0);
        differentiate(&on_host, kn_device_host(), wanted, KN_ACT_NONE);
        for (int i = 0; i < 3; i++) {
            if (wanted >> i & 1) assert_like(on_gpu.dx[i], on_host.dx[i]);
        }
    }
}

static void without_the_weights_it_is_a_sum(void **state) {
    (void)state;
    KN_FRAME();
    layer l = layer_of(11);
    differentiate(&l, gpu, 4, KN_ACT_NONE);
    assert_int_equal(fake_gpu_count().n_products, 1);
    assert_int_equal(fake_gpu_kernels("fold_sum"), 1);
}

/* relu's kernel has made it. */
static void with_relu_it_is_not_made_again(void **state) {
    (void)state;
    KN_FRAME();
    layer l = layer_of(12);
    differentiate(&l, gpu, 6, KN_ACT_RELU);
    assert_int_equal(fake_gpu_kernels("relu_bias"), 1);
    assert_int_equal(fake_gpu_kernels("fold_sum"), 0);
    assert_int_equal(fake_gpu_count().n_products, 2);
    assert_int_equal(fake_gpu_epilogue(), CUBLASLT_EPILOGUE_DEFAULT);
}

static kn_status weight_bias_back(kn_op_call *call, kn_tensor *in[2]) {
    kn_op_call_init(call, KN_OP_linear_weight_bias, NULL, in, 2);
    call->want = 3;
    return kn_op_run(call) ? KN_OK : kn_check();
}

/* Of the result alone, without the sums before it. */
static void sigm_and_tanh_are_differentiated_by_one_kernel(void **state) {
    (void)state;
    KN_FRAME();
    static const kn_act acts[] = {KN_ACT_SIGM, KN_ACT_TANH};
    static const char *const rows[] = {"row_sigm", "row_tanh"};
    for (int i = 0; i < 2; i++) {
        layer l = layer_of(13 + i);
        begin(NULL);
        differentiate(&l, gpu, 6, acts[i]);
        assert_int_equal(fake_gpu_kernels(rows[i]), 2); /* forward and backward */
        assert_int_equal(fake_gpu_kernels(""), 2);
        assert_int_equal(fake_gpu_count().n_products, 2);
    }
}

static const char *const rows[KN_ACTS] = {
    [KN_ACT_GELU] = "row_gelu", [KN_ACT_SILU] = "row_silu", [KN_ACT_GELU_TANH] = "row_gelu_tanh",
    [KN_ACT_SIGM] = "row_sigm", [KN_ACT_TANH] = "row_tanh", [KN_ACT_HARDSWISH] = "row_hardswish"};

/* One plan serves all. */
static void activations_but_relu_are_a_kernel_after_the_product(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    kn_tensor *x = kn_ones(KN_SHAPE(3, 8)), *w = kn_ones(KN_SHAPE(21, 8));
    kn_tensor *y = kn_linear(x, w, KN_NONE), *b = kn_ones(KN_SHAPE(kn_tensor_shape(w).dim[0]));
    for (int act = KN_ACT_RELU; act < KN_ACTS; act++) {
        const bool is_relu = act == KN_ACT_RELU;
        fake_gpu_reset();
        assert_non_null(kn_linear_add(x, w, b, y, (kn_act)act));
        assert_int_equal(fake_gpu_count().n_products, 1);
        assert_int_equal(fake_gpu_calls("cublasLtMatmulAlgoGetHeuristic"), act <= KN_ACT_GELU);
        assert_int_equal(fake_gpu_epilogue(),
                         is_relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS);
        assert_int_equal(fake_gpu_kernels(""), !is_relu);
        if (!is_relu) assert_int_equal(fake_gpu_kernels(rows[act]), 1);
    }
}

/* Bias and residual are in the plan. */
static void activations_but_relu_are_a_kernel_after_the_convolution(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    kn_tensor *x = kn_ones(KN_SHAPE(2, 3, 8, 8)), *w = kn_ones(KN_SHAPE(21, 3, 3, 3));
    kn_tensor *b = kn_ones(KN_SHAPE(kn_tensor_shape(w).dim[0])), *r = kn_conv(x, w, KN_NONE, NULL);
    for (int act = KN_ACT_RELU; act < KN_ACTS; act++) {
        const bool is_relu = act == KN_ACT_RELU;
        fake_gpu_reset();
        assert_non_null(kn_conv_add(x, w, b, r, &(kn_conv_options){.act = (kn_act)act}));
        assert_int_equal(fake_gpu_count().n_convolutions, 1);
        assert_int_equal(fake_gpu_kernels(""), !is_relu);
        if (!is_relu) assert_int_equal(fake_gpu_kernels(rows[act]), 1);
    }
}

static void a_refused_sum_is_left_to_a_kernel(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    kn_op_call on_gpu, on_host;
    kn_tensor *x = random_of(KN_SHAPE(13, 5), 1), *g = random_of(KN_SHAPE(13, 7), 2);
    fake_gpu_fail("cublasLtMatmulAlgoGetHeuristic", 1, 1, CUBLAS_STATUS_NOT_SUPPORTED);
    assert_ok(weight_bias_back(&on_gpu, (kn_tensor *[]){there(x), there(g)}));
    assert_int_equal(fake_gpu_epilogue(), CUBLASLT_EPILOGUE_DEFAULT);
    assert_int_equal(fake_gpu_kernels("fold_sum"), 1);
    assert_ok(weight_bias_back(&on_host, (kn_tensor *[]){x, g}));
    assert_like(on_gpu.out[0], on_host.out[0]);
}

/* The epilogue can't add: sums that are added to are a kernel's, and so are those beside a weight's
 * gradient that is. */
static void sums_that_are_added_to_are_left_to_a_kernel(void **state) {
    (void)state;
    KN_FRAME(.device = gpu);
    kn_tensor *x = random_of(KN_SHAPE(17, 5), 1), *g = random_of(KN_SHAPE(17, 7), 2);
    for (unsigned adds = 1; adds < 4; adds++) {
        kn_op_call on_gpu, on_host, *calls[] = {&on_gpu, &on_host};
        kn_tensor *weight = random_of(KN_SHAPE(7, 5), 3), *to[] = {there(weight), weight};
        kn_tensor *in[][2] = {{there(x), there(g)}, {x, g}};
        begin(NULL);
        for (int i = 0; i < 2; i++) {
            KN_FRAME(.device = i ? kn_device_host() : gpu);
            kn_op_call *call = calls[i];
            kn_op_call_init(call, KN_OP_linear_weight_bias, NULL, in[i], 2);
            call->want = call->given = 3, call->accumulate = (uint8_t)adds;
            call->out[0] = to[i], call->out[1] = kn_keep(kn_zeros(KN_SHAPE(7)));
            assert_non_null(kn_op_run(call));
        }
        assert_int_equal(fake_gpu_epilogue(), CUBLASLT_EPILOGUE_DEFAULT);
        assert_int_equal(fake_gpu_kernels("fold_sum"), 1);
        assert_like(on_gpu.out[0], on_host.out[0]);
    }
}

static void wrong_shapes_are_errors_that_show_them(void **state) {
    (void)state;
    KN_FRAME();
    kn_op_call call;
    kn_tensor *x = kn_ones(KN_SHAPE(3, 5)), *none = kn_ones(KN_SHAPE(0, 5));
    static const char text[] = "x must be [R,I] and g [R,O], not empty";
    assert_fails(weight_bias_back(&call, (kn_tensor *[]){x, kn_ones(KN_SHAPE(2, 7))}), KN_ERR_SHAPE,
                 text);
    assert_fails(weight_bias_back(&call, (kn_tensor *[]){none, none}), KN_ERR_SHAPE, "g [0,5]");
}

int main(void) {
    if (kn_device_find(&gpu, "cuda:0") < 0) return 1;
    return RUN_TESTS(TEST_WITH(matrices_are_transposed_and_repeated_as_asked, begin, end),
                     TEST_WITH(a_layer_adds_its_bias_and_activates, begin, end),
                     TEST_WITH(a_layer_adds_its_residual_and_activates, begin, end),
                     TEST_WITH(a_residual_alone_is_copied, begin, end),
                     TEST_WITH(a_residual_gets_the_gradient_of_the_sum, begin, end),
                     TEST_WITH(a_bias_gets_its_gradient_from_the_weights_product, begin, end),
                     TEST_WITH(without_the_weights_it_is_a_sum, begin, end),
                     TEST_WITH(with_relu_it_is_not_made_again, begin, end),
                     TEST_WITH(sigm_and_tanh_are_differentiated_by_one_kernel, begin, end),
                     TEST_WITH(activations_but_relu_are_a_kernel_after_the_product, begin, end),
                     TEST_WITH(activations_but_relu_are_a_kernel_after_the_convolution, begin, end),
                     TEST_WITH(a_refused_sum_is_left_to_a_kernel, begin, end),
                     TEST_WITH(sums_that_are_added_to_are_left_to_a_kernel, begin, end),
                     TEST_WITH(wrong_shapes_are_errors_that_show_them, begin, end));
}
