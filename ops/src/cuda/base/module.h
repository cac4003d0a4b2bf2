/* What the C files of the CUDA module share: errors of the libraries as kn_status, scopes round
 * their calls, handles, plans. Every kernel runs with the primary context of its device current;
 * module.c sees to that and puts the caller's context back.
 */
#ifndef KN_CUDA_MODULE_H
#define KN_CUDA_MODULE_H

#include <cublasLt.h>
#include <cudnn.h>
#include <knet/prof_call.h>

#include "cuda/base/launch.h"
#include "kernel.h"

/* KN_OK, or the failure with the library's own text; `what` names the function that was called. */
kn_status kn__cuda_status(cudaError_t error, const char *what);
kn_status kn__cublas_status(cublasStatus_t error, const char *what);
kn_status kn__cudnn_status(cudnnStatus_t error, const char *what);

/* A kn_status: calls fn in a scope of its name. */
#define KN__CUDA(fn, ...) kn__cuda_status(KN_PROF_FN(fn, __VA_ARGS__), #fn)
#define KN__CUBLAS(fn, ...) kn__cublas_status(KN_PROF_FN(fn, __VA_ARGS__), #fn)
#define KN__CUDNN(fn, ...) kn__cudnn_status(KN_PROF_FN(fn, __VA_ARGS__), #fn)
/* The same for a launcher in a variable. */
#define KN__CUDA_NAMED(label, ...) kn__cuda_status(KN_PROF_CALL(label, (__VA_ARGS__)), label)

/* --- context.c --- */
enum { KN__GPUS_MAX = 64 };
/* N of "cuda:N"; -1: beyond KN__GPUS_MAX. */
int kn__gpu_index(const kn_device *device);
/* Makes the device's primary context current; *pushed says whether leave has to take it off. It
 * stays on a thread that had none. */
kn_status kn__gpu_enter(bool *pushed, const kn_device *device);
void kn__gpu_leave(bool pushed);
/* Sets the pointer to a function at `fn` to one of the driver, of CUDA 12.0 or before. False: the
 * driver lacks it, and the pointer is NULL. */
bool kn__driver_find(void *fn, const char *name);

/* --- module.c, pointwise.c, move.c, …: the kernels --- */
kn_status kn__cuda_row(kn_op_call *call);
kn_status kn__cuda_row_back(kn_op_call *call);
kn_status kn__cuda_row_back2(kn_op_call *call);
#define KN_OP(name, in, out, attr, infer, kernel, rule, needs, flags)                              \
    kn_status kn__cuda_##kernel(kn_op_call *call);
#include <knet/ops.def>

/* chain.c */
kn_status kn__cuda_chain(bool *launched, const kn__chain *chain, kn__chain_args *args,
                         kn_device *device, kn_stream stream);
bool kn__cuda_chains(void);
void kn__cuda_chains_wait(void);

/* graph.c */
kn_status kn__cuda_graph_make(void **out, kn_device *device, kn__enqueue_fn enqueue, void *ctx);
kn_status kn__cuda_graph_launch(void *graph, kn_device *device, kn_stream stream);
void kn__cuda_graph_destroy(void *graph, kn_device *device);

/* recurrent.c: bytes of the reserve of a call of rnn. */
kn_status kn__cuda_rnn_reserve(size_t *out, const kn_op_call *call);

/* Result 0 is to be added to. */
static inline bool kn__adds(const kn_op_call *call) { return call->accumulate & 1; }
/* Result r is all zeros; where it is added to, nothing happens. */
kn_status kn__zeros(const kn_op_call *call, int r);
/* y [rows, n, inner] += bias [n]: for products and convolutions that can't do it themselves. */
kn_status kn__bias_add(const kn_op_call *call, kn_tensor *y, const kn_tensor *bias, int axis);
/* A row's scalar for an integer dtype: toward zero, saturated. */
int64_t kn__integer_of(double value, kn_dtype dtype);
/* Result 0, in place. */
kn_status kn__activate(const kn_op_call *call, kn_act act);
/* UNSUPPORTED: the op, the device and the dtype. */
kn_status kn__no_kernel(const kn_op_call *call, kn_dtype dtype);

/* --- region.c --- */
/* Merges neighbouring dimensions that every one of the first n_operands operands walks through in
 * one stride, and drops those of one element. */
void kn__region_merge(kn__operand_region *r, int n_operands);
/* Row-major strides of `t` seen as `shape_of`'s shape, 0 where it is broadcast. */
void kn__region_strides(int64_t *stride, const kn_tensor *t, const kn_tensor *shape_of);

#endif
