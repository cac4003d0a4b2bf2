// Kernels as the module may have none, for test_cuda_sass.c.

// An array that is indexed by a number known at run time only stands on the stack.
__global__ void stack_kernel(float *out, const float *in, const int *at) {
    float values[64];
    for (int i = 0; i < 64; i++) values[i] = in[i * 32 + threadIdx.x];
    for (int i = 0; i < 64; i++) out[i] = values[at[i]];
}

// 96 values at once in at most 32 registers: most are spilled.
__global__ void __launch_bounds__(1024, 2) spilling_kernel(float *out, const float *in) {
    float values[96];
#pragma unroll
    for (int i = 0; i < 96; i++) values[i] = in[i * 1024 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 96; i++) out[i * 1024 + threadIdx.x] = values[i] * values[95 - i];
}

__global__ void narrow_kernel(float *out, const float *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * in[i];
}
