/* Calls cuDNN and cublasLt through the CUDA module's own code, on a machine that need have no GPU:
 * plans from a device description (argv[2]), and calls that fail for want of a handle. argv[1]
 * "bare" adds one call that is in no scope, to see that the test sees it. */
#include <stdio.h>

#include "../../ops/src/cuda/product/matmul.c"
#include "cuda/conv/conv_plan.h"

/* Of rows and sums, whose kernels are not here. */
kn_status kn__bias_add(const kn_op_call *call, kn_tensor *y, const kn_tensor *bias, int axis) {
    (void)call, (void)y, (void)bias, (void)axis;
    return KN_FAIL(KN_ERR_INTERNAL, "no kernels here");
}
kn_status kn__cuda_reduce(kn_op_call *call) {
    (void)call;
    return KN_FAIL(KN_ERR_INTERNAL, "no kernels here");
}
kn_status kn__activate(const kn_op_call *call, kn_act act) {
    (void)call, (void)act;
    return KN_FAIL(KN_ERR_INTERNAL, "no kernels here");
}
cudaError_t kn__launch_row(const kn__row_args *r, cudaStream_t stream) {
    (void)r, (void)stream;
    return cudaErrorNotSupported;
}
kn_status kn__zeros(const kn_op_call *call, int r) {
    (void)call, (void)r;
    return KN_FAIL(KN_ERR_INTERNAL, "no kernels here");
}

static bool read_file(char *out, size_t out_bytes, const char *path) {
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(out, 1, out_bytes - 1, file) : 0;
    if (file) fclose(file);
    out[n] = '\0';
    return n > 0;
}

static bool convolve(const char *json) {
    cudnnBackendDescriptor_t device = NULL;
    kn__conv_plan *plan = NULL;
    kn__conv_key key;
    memset(&key, 0, sizeof key);
    key.dtype = KN_F32, key.n_spatial = 2, key.alignment_bytes = 4;
    const int64_t x[] = {8, 3, 12, 12}, w[] = {5, 3, 3, 3}, y[] = {8, 5, 10, 10};
    memcpy(key.x, x, sizeof x), memcpy(key.w, w, sizeof w), memcpy(key.y, y, sizeof y);
    for (int d = 0; d < 2; d++) key.stride[d] = key.dilation[d] = 1;
    if (kn__conv_device_of_json(&device, json) < 0) return false;
    if (kn__conv_plan_create(&plan, &key, device) < 0) return false;
    char memory[3];
    const kn__conv_data data = {.x = &memory[0], .w = &memory[1], .y = &memory[2]};
    bool fails = kn__conv_plan_run(plan, NULL, &data) < 0;
    kn__conv_plan_destroy(plan);
    return fails;
}

static bool multiply(void) {
    cublasLtHandle_t lt = NULL;
    lt_plan plan;
    memset(&plan, 0, sizeof plan);
    plan.key = (lt_key){.batch = 1, .m = 4, .n = 4, .k = 4, .alignment_bytes = 4, .dtype = KN_F32};
    (void)!lt_handle(&lt, 0); /* no GPU: an error */
    float x[16] = {0};
    kn_tensor t = {.data = x, .dtype = KN_F32};
    kn_op_call call = {.out = {&t}};
    product p = {.a = &t, .b = &t, .batch = 1, .m = 4, .n = 4, .k = 4};
    return build(&plan, NULL, NULL) < 0 && execute(&call, &p, &plan, NULL, NULL) < 0;
}

int main(int argc, char **argv) {
    static char json[8192];
    if (argc < 3 || !read_file(json, sizeof json, argv[2])) return 99;
    if (!convolve(json)) return 1;
    if (!multiply()) return 2;
    if (strcmp(argv[1], "bare") == 0) (void)cublasLtGetVersion();
    return 0;
}
