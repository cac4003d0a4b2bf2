/* A libcudart, or a libcuda (LATE_DRIVER), of two functions over malloc. */
#include <stddef.h>
#include <stdlib.h>

#ifdef LATE_DRIVER
#define ALLOC cuMemAlloc_v2
#define FREE cuMemFree_v2
#else
#define ALLOC cudaMalloc
#define FREE cudaFree
#endif

__attribute__((visibility("default"))) int ALLOC(void **out, size_t bytes);
__attribute__((visibility("default"))) int FREE(void *ptr);

int ALLOC(void **out, size_t bytes) { return (*out = malloc(bytes)) ? 0 : 2; }

int FREE(void *ptr) {
    free(ptr);
    return 0;
}
