// Exclusive prefix sums: of a block's threads, and of an array by one block.
#ifndef KN_CUDA_SCAN_CUH
#define KN_CUDA_SCAN_CUH

#include "cuda/base/device.cuh"

namespace kn_dev {

enum { SCAN_GROUP = 16 };  // BLOCK is its square

struct block_sums {
    int64_t value[BLOCK], group[SCAN_GROUP];
};

// The sum of x over the threads before this one; *total: over all. Every thread calls it.
__device__ inline int64_t block_before(block_sums &s, int64_t x, int64_t *total) {
    int t = (int)threadIdx.x, group = t / SCAN_GROUP;
    __syncthreads();  // the last use of s is over
    s.value[t] = x;
    __syncthreads();
    if (t < SCAN_GROUP) {
        int64_t sum = 0;
        for (int i = 0; i < SCAN_GROUP; i++) sum += s.value[t * SCAN_GROUP + i];
        s.group[t] = sum;
    }
    __syncthreads();
    int64_t before = 0, all = 0;
    for (int i = 0; i < SCAN_GROUP; i++) {
        before += i < group ? s.group[i] : 0;
        all += s.group[i];
    }
    for (int i = group * SCAN_GROUP; i < t; i++) before += s.value[i];
    *total = all;
    return before;
}

}  // namespace kn_dev
#endif
