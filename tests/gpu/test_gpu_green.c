/* Streams of a green context (a share of the card's multiprocessors) are streams of the device:
 * pools take them. Their type is NVIDIA's, so this needs cuda.h to compile. */
#include "gpu.h"

#include <cuda.h>
#include <knet/pool.h>

static kn_device *gpu;

#if CUDA_VERSION >= 12050
typedef struct api {
    CUresult (*resource)(CUdevice device, CUdevResource *out, CUdevResourceType type);
    CUresult (*split)(CUdevResource *out, unsigned *n, const CUdevResource *from,
                      CUdevResource *rest, unsigned flags, unsigned min_count);
    CUresult (*describe)(CUdevResourceDesc *out, CUdevResource *resources, unsigned n);
    CUresult (*create)(CUgreenCtx *out, CUdevResourceDesc desc, CUdevice device, unsigned flags);
    CUresult (*destroy)(CUgreenCtx context);
    CUresult (*stream)(CUstream *out, CUgreenCtx context, unsigned flags, int priority);
} api;

static bool find(api *a) {
    return gpu_find_function("cuDeviceGetDevResource", &a->resource) &&
           gpu_find_function("cuDevSmResourceSplitByCount", &a->split) &&
           gpu_find_function("cuDevResourceGenerateDesc", &a->describe) &&
           gpu_find_function("cuGreenCtxCreate", &a->create) &&
           gpu_find_function("cuGreenCtxDestroy", &a->destroy) &&
           gpu_find_function("cuGreenCtxStreamCreate", &a->stream);
}

static void streams_of_a_green_context_are_accepted(void **state) {
    (void)state;
    api a = {0};
    CUdevResource all, part;
    CUdevResourceDesc desc = NULL;
    CUgreenCtx green = NULL;
    CUstream theirs = NULL;
    unsigned n = 1;
    kn_pool *pool = NULL;
    void *x = NULL, *y = NULL;
    if (!find(&a)) test_skip_all("the driver has no green contexts");
    assert_int_equal(a.resource(0, &all, CU_DEV_RESOURCE_TYPE_SM), CUDA_SUCCESS);
    assert_int_equal(a.split(&part, &n, &all, NULL, 0, 8), CUDA_SUCCESS);
    assert_int_equal(a.describe(&desc, &part, 1), CUDA_SUCCESS);
    assert_int_equal(a.create(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM), CUDA_SUCCESS);
    assert_int_equal(a.stream(&theirs, green, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    assert_ok(kn_pool_create(&pool, gpu, NULL));
    assert_ok(kn_alloc(&x, pool, 5 * MIB, theirs));
    assert_ok(kn_device_fill(gpu, x, 7, 5 * MIB, theirs));
    assert_ok(kn_alloc(&y, pool, MIB, NULL));
    assert_ok(kn_block_use(pool, y, theirs));
    gpu_assert_bytes(gpu, x, 5 * MIB, 7, theirs);
    assert_ok(kn_free(pool, x));
    assert_ok(kn_free(pool, y));
    kn_stream_retire(gpu, theirs);
    kn_pool_destroy(pool);
    assert_int_equal(a.destroy(green), CUDA_SUCCESS); /* and its stream */
}
#else
static void streams_of_a_green_context_are_accepted(void **state) {
    (void)state;
    test_skip_all("cuda.h has no green contexts");
}
#endif

int main(void) {
    gpu = gpu_get();
    return RUN_TESTS(TEST(streams_of_a_green_context_are_accepted));
}
