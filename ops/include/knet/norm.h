/* Normalization. Part of ops.h, whose rules hold.
 *
 * (x - mean)/√(variance + eps)·weight + bias, with the variance of the population. weight and bias
 * may be KN_NONE, each. One pass makes the gradients of x, weight and bias; second gradients exist
 * and are composed of other ops. An x of f16 or bf16 gives such a result; all between is f32, and
 * so are batchnorm's running statistics; weight and bias are of x's dtype or f32. Their dimensions
 * of one element don't count: [C,1,1] serves as [C].
 *
 *     kn_batchnorm_options training = {.training = 1};
 *     kn_tensor *y = kn_batchnorm(x, mean, var, w, b, &training);       // writes mean and var
 */
#ifndef KNET_NORM_H
#define KNET_NORM_H

#include <knet/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the parts of one batch, on several ranks, are normalised by the statistics of all of them:
 * <knet/parallel.h> makes one. */
typedef struct kn_batch_ranks {
    /* all [size][n]: this rank's n numbers are in place; fills in those of the others. */
    kn_status (*gather_fn)(void *ctx, double all[], int64_t n);
    void *ctx;
    int rank, size; /* this one; how many there are */
} kn_batch_ranks;

/* Options of kn_batchnorm. */
typedef struct kn_batchnorm_options {
    int training;       /* 1: mean and variance of x; 0: the running ones */
    int per_activation; /* 1: of each element of [C,…]; weights and running ones have as many */
    double momentum;    /* 0: 0.1. In training running = (1 - momentum)·running + momentum·new */
    double eps;         /* 0: 1e-5 */
    /* In training, on the host: the ranks whose x are the parts of one batch, of any sizes. Each
     * calls kn_batchnorm and its backward in the same order, which has no second gradients.
     * Borrowed until the tape ends. NULL: x is the whole batch. */
    const kn_batch_ranks *ranks;
    uint64_t reserved[3]; /* zero */
} kn_batchnorm_options;
/* Over the batch, for each channel: x [B,C,…], all others [C]. In training the running mean and
 * variance, unless KN_NONE, are written in place; the variance enters with n - 1 as its divisor, as
 * PyTorch's; one element a channel is a SHAPE error. NULL options: the defaults. Source: Ioffe and
 * Szegedy 2015. */
KN_API kn_tensor *kn_batchnorm(kn_tensor *x, kn_tensor *running_mean, kn_tensor *running_var,
                               kn_tensor *weight, kn_tensor *bias,
                               const kn_batchnorm_options *options);
/* kn_layernorm: over the last n_axes dimensions, which weight and bias have too; kn_rmsnorm: x less
 * no mean, without a bias, else as kn_layernorm. Source: Ba et al. 2016; Zhang and Sennrich 2019.
 */
KN_API kn_tensor *kn_layernorm(kn_tensor *x, kn_tensor *weight, kn_tensor *bias, int n_axes,
                               double eps);
KN_API kn_tensor *kn_rmsnorm(kn_tensor *x, kn_tensor *weight, int n_axes, double eps);
/* x [B,C,…]; weight, bias [C]. kn_groupnorm: over each group of C/groups channels of one sample;
 * kn_instancenorm: over each channel of one sample. Source: Wu and He 2018; Ulyanov et al. 2016. */
KN_API kn_tensor *kn_groupnorm(kn_tensor *x, kn_tensor *weight, kn_tensor *bias, int64_t groups,
                               double eps);
KN_API kn_tensor *kn_instancenorm(kn_tensor *x, kn_tensor *weight, kn_tensor *bias, double eps);
/* x·(k + alpha·mean of x² over `size` neighbouring channels, zeros beside the first and
 * last)^-beta, x [B,C,…]: local response normalization. Source: Krizhevsky et al. 2012. */
KN_API kn_tensor *kn_lrn(kn_tensor *x, int64_t size, double alpha, double beta, double k);

#include <knet/sites/norm.h>

#ifdef __cplusplus
}
#endif
#endif
