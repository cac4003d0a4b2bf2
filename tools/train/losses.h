/* Sums that a training run reads once an epoch, on the batches' device. */
#ifndef KN_TRAIN_LOSSES_H
#define KN_TRAIN_LOSSES_H

#include <knet/op.h>

/* *slot: a zero of f64. */
kn_status kn__sum_begin(kn_tensor **slot, const kn_tensor *beside);
/* Adds the mean of n samples n times. */
kn_status kn__sum_add(kn_tensor *sum, kn_tensor *mean, int64_t n);

/* The losses of an epoch's steps. In one sum of f32 a long epoch's would be lost to rounding; one
 * of f64 takes a launch more a step. So each of several sums of f32 takes its turn.
 * *slot: those sums, zeros. */
kn_status kn__losses_begin(kn_tensor **slot, const kn_tensor *beside);
/* Adds that of step i. */
kn_status kn__losses_add(kn_tensor *losses, int64_t i, kn_tensor *loss);
kn_status kn__losses_read(double *sum, kn_tensor *losses);

#endif
