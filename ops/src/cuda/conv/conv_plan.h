/* Convolution plans: cuDNN's graph backend with one operation a graph, or a convolution and what
 * follows it. A plan depends on sizes, attributes, dtype and the kind of GPU alone, and can be made
 * with no GPU at hand, from a device description. That is how tests make them.
 *
 * Of cuDNN's engines only those are taken that give the same bits each time, need no compiler at
 * run time, and compute in full precision or, where the mode allows that, in TF32. No engine that
 * cuDNN offers for f32 computes in bf16; those that round to f16 overflow, and are left out.
 * Convolutions of f16 and bf16 sum in f32; those that have no engine are computed by that of f32,
 * on copies.
 */
#ifndef KN_CUDA_CONV_PLAN_H
#define KN_CUDA_CONV_PLAN_H

#include "cuda/base/module.h"
#include "plan_cache.h"

typedef enum kn__conv_kind {
    KN__CONV_FORWARD, /* x, w → y */
    KN__CONV_DATA,    /* dy, w → dx */
    KN__CONV_WEIGHT   /* x, dy → dw */
} kn__conv_kind;

enum { KN__CONV_DIMS = 5, KN__CONV_SPATIAL = 3 };

/* What a plan adds to a forward convolution, in this order: a residual like y, a number a channel,
 * relu. Without a bias cuDNN 9.19 has no engine for the others. */
enum { KN__CONV_RESIDUAL = 1, KN__CONV_BIAS = 2, KN__CONV_RELU = 4 };

/* Of one run; unused ones are NULL. */
typedef struct kn__conv_data {
    void *x, *w, *y, *residual, *bias, *workspace;
} kn__conv_data;

/* Compared byte by byte: clear it first. One spatial dimension is given as two, the first 1. */
typedef struct kn__conv_key {
    int32_t kind, dtype, gpu;
    int32_t n_spatial; /* 2 or 3 */
    int32_t accumulate, flip, alignment_bytes;
    int32_t math;  /* kn_math_mode: STRICT or TF32; STRICT for f64 */
    int32_t after; /* KN__CONV_…, or'ed; not beside `accumulate` */
    int32_t unused;
    int64_t x[KN__CONV_DIMS], w[KN__CONV_DIMS], y[KN__CONV_DIMS];
    int64_t stride[KN__CONV_SPATIAL], dilation[KN__CONV_SPATIAL];
    int64_t padding[KN__CONV_SPATIAL], padding_end[KN__CONV_SPATIAL];
} kn__conv_key;

typedef struct kn__conv_plan {
    kn__cached_plan cached;
    kn__conv_key key;
    cudnnBackendDescriptor_t plan; /* the one descriptor that is kept; NULL: there is no engine */
    size_t workspace_bytes;
    int64_t engine;                        /* cuDNN's number of it */
    uint32_t notes;                        /* bits: its cudnnBackendNumericalNote_t */
    bool tf32;                             /* factors are rounded to TF32 */
    _Atomic(struct kn__conv_pack *) spare; /* the addresses of the last run, ready to run again */
} kn__conv_plan;

/* A device description: of a GPU of this machine, or from JSON. */
kn_status kn__conv_device_of_gpu(cudnnBackendDescriptor_t *out, int gpu);
kn_status kn__conv_device_of_json(cudnnBackendDescriptor_t *out, const char *json);
/* The description as JSON; out_bytes with the 0 at the end. */
kn_status kn__conv_device_json(char *out, size_t out_bytes, cudnnBackendDescriptor_t device);

/* Errors: UNSUPPORTED when no engine fits; CUDA. */
kn_status kn__conv_plan_create(kn__conv_plan **out, const kn__conv_key *key,
                               cudnnBackendDescriptor_t device);
void kn__conv_plan_destroy(kn__conv_plan *plan);
kn_status kn__conv_plan_run(kn__conv_plan *plan, cudnnHandle_t handle, const kn__conv_data *data);

#endif
