/* Images in blocks of channels, oneDNN's layout: in frames with .layout, convolutions leave
 * their results in it, and pools, pointwise ops and batchnorm of given statistics keep it, so that
 * a chain of them reorders its first input and its last result alone. Such a result is pending
 * (fuse.h); every other reader gets its plain form. */
#ifndef KN_CONV_LAYOUT_H
#define KN_CONV_LAYOUT_H

#include "kernel.h"
#include "thread.h"

/* Channels in a block: 16 with AVX-512, 8 with AVX2; 0: the layout is of no use here. */
int64_t kn__layout_block(void);
/* Whether the result of this checked call, which is not recorded, stays in blocks. */
bool kn__layout_takes(const kn__ops_thread *self, const kn_op_call *call);
/* Runs it: out[0], a header, becomes pending. *taken false: the library has nothing fast for these
 * sizes. An error is recorded. */
kn_status kn__layout_run(bool *taken, kn__ops_thread *self, kn_op_call *call);
/* [dim[0],dim[1],dim[2],dim[3]] from blocks. */
void kn__layout_plain(void *to, void *from, kn_dtype dtype, const int64_t dim[4], int threads);

#endif
