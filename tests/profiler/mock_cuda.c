/* A library that looks like the driver: as much of it as the timer calls.
 *
 * MOCK_CUDA in the environment is a list of words: version=N, hang (the GPU never ends its work). A
 * context that was destroyed must not be used: the program is aborted.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT const void *mock_cuda_destroyed; /* a context; set by the mock of CUPTI */
EXPORT int mock_cuda_n_syncs;

EXPORT int cuDriverGetVersion(int *version) {
    const char *list = getenv("MOCK_CUDA"), *at = list ? strstr(list, "version=") : NULL;
    *version = at ? atoi(at + 8) : 13000;
    return 0;
}

EXPORT int cuCtxPushCurrent_v2(const void *context) {
    if (context == mock_cuda_destroyed) abort();
    return 0;
}

EXPORT int cuCtxPopCurrent_v2(void **context) {
    *context = NULL;
    return 0;
}

EXPORT int cuCtxSynchronize(void) {
    const char *list = getenv("MOCK_CUDA");
    while (list && strstr(list, "hang")) pause();
    mock_cuda_n_syncs++;
    return 0;
}
