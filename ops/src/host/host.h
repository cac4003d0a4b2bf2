/* What the layers above take from the host's kernels beside the table of ops: fused passes,
 * reductions at the end of one, and images in blocks of channels. The CUDA module has such a table
 * too. */
#ifndef KN_HOST_H
#define KN_HOST_H

#include "host/pointwise/fused.h"
#include "kernel.h"
#include "thread.h"

typedef struct kn__host_module {
    void (*fused_run)(const kn__fused *f);
    kn_kernel_fn reduce;
    bool (*reduce_fuses)(const kn_op_call *call);
    kn_status (*reduce_fused)(kn_op_call *call, const kn__fused *f);
    int64_t (*reduce_row)(kn__recipe *recipe, const kn_op_call *call);
    bool (*layout_takes)(const kn__ops_thread *self, const kn_op_call *call);
    kn_status (*layout_run)(bool *taken, kn__ops_thread *self, kn_op_call *call);
    void (*layout_plain)(void *to, void *from, kn_dtype dtype, const int64_t dim[4], int threads);
    void (*kept_weights_drop)(kn_storage *s);       /* copies made of its data */
    kn_status (*kept_weights_close)(kn_storage *s); /* from now on none are kept */
    void (*forks_watch)(void);                      /* makes forks wait for the kernels' locks */
} kn__host_module;
extern const kn__host_module kn__host;

void kn__host_forks_watch(void);

#endif
