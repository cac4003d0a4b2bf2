/* A small VGG-style net for pictures [B,3,32,32], and its training step. */
#ifndef BENCH_VGG_H
#define BENCH_VGG_H

#include <knet/parallel.h>

enum { VGG_CONVS = 6, VGG_LINEARS = 2, VGG_CLASSES = 10 };

typedef struct vgg {
    kn_params *params;
    kn_optim *optim;
    kn_parallel *parallel; /* NULL: one rank */
    kn_tensor *w[VGG_CONVS + VGG_LINEARS], *b[VGG_CONVS + VGG_LINEARS];
    kn_tensor *x, *y;   /* slots: a batch */
    double backward_ns; /* of all steps so far */
} vgg;

/* A batch of this many pictures. comm may be NULL. */
kn_status vgg_create(vgg *net, int batch, kn_comm *comm);
void vgg_destroy(vgg *net);
/* Forward, backward, the mean of all ranks' gradients, update. */
kn_status vgg_step(vgg *net, int threads);

#endif
