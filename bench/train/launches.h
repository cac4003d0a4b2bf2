/* Counts what a training step enqueues on a GPU, on the fake of tests/ops/fake_gpu.h: the program
 * must be linked with it. */
#ifndef KNET_LAUNCHES_H
#define KNET_LAUNCHES_H

#include <knet/frame.h>

/* Kernels of our own and launching calls of cublasLt, cuDNN and the driver in one step of kn_train
 * on "cuda:0": forward, backward, Adam and the sum of losses, batch 128. Copies of the next batch
 * are not among them. */
kn_status launches_count(int *out, const char *model, kn_math_mode math);

#endif
