/* The seam between ops and the kernels of a device: a table of functions, one per op.
 *
 * A kernel gets tensors whose shapes and dtypes were checked and whose data is plain (unless its
 * device set a layout), and enqueues its work on `stream`. It never allocates results. It returns
 * KN_OK or a recorded error. Scratch memory comes from kn__scratch. Empty tensors (n == 0) never
 * reach a kernel, except as inputs of reductions and concat.
 */
#ifndef KN_KERNEL_H
#define KN_KERNEL_H

#include <knet/op.h>

typedef struct kn_kernel_call {
    kn_op op;
    int n_in;
    kn_tensor *const *in; /* KN_NONE where absent */
    kn_tensor *out, *aux; /* aux NULL when not wanted */
    const void *attr;
    bool accumulate; /* out += result */
    kn_device *device;
    kn_stream stream;
    int threads; /* host kernels: how many to use; results must not depend on it */
} kn_kernel_call;

typedef kn_status (*kn_kernel_fn)(const kn_kernel_call *call);

extern const kn_kernel_fn kn__host_kernels[KN_OP_COUNT];

/* The CUDA kernels live in a module of their own, libknet_ops_cuda.so, loaded when the first tensor
 * lands on a CUDA device: programs without a GPU don't pay for loading cuBLAS and cuDNN. It exports
 * this one function. */
typedef struct kn_cuda_module {
    uint32_t abi; /* KN_CUDA_MODULE_ABI */
    const kn_kernel_fn *kernels;
    /* Text of the versions of CUDA runtime, cuBLAS and cuDNN for `knet info`. */
    void (*versions)(char *out, size_t out_bytes);
} kn_cuda_module;
enum { KN_CUDA_MODULE_ABI = 1 };
typedef const kn_cuda_module *(*kn_cuda_module_fn)(void);
#define KN_CUDA_MODULE_SYMBOL "kn_cuda_module_get"

/* Scratch for the time of one call, from the pool of `device`, in the order of the stream. */
KN_API kn_status kn__scratch(void **out, const kn_kernel_call *call, size_t size_bytes);
KN_API void kn__scratch_end(const kn_kernel_call *call, void *ptr);

/* Host: runs body(ctx, i) for i in 0 … n-1 on up to `threads` threads, in any order. Inside it the
 * libraries' own threading is off. Split the work by shape alone, so that results don't depend on
 * the number of threads. */
typedef void (*kn__body_fn)(void *ctx, int64_t i);
void kn__parallel_for(int threads, int64_t n, kn__body_fn body, void *ctx);

#endif
