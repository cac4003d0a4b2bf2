/* Pending tensors: results of pointwise rows and casts that a frame with .fuse puts off until their
 * data is needed, and computes in one pass with their pending inputs.
 *
 * Vocabulary. An *expression* is one such call and the storage of its result; an *operand* is an
 * input's data, or the storage of another expression's result. An expression is *computed* when its
 * storage gets data.
 * Invariants. A storage has an expression exactly as long as it has no data; no view reads it, and
 * its tensor has the state KN_TENSOR_PENDING. An expression owns a use of each operand's storage,
 * so inputs may be freed or consumed; before an input's data is written, the expressions that read
 * it are computed. Expressions belong to their thread, and end with its outermost frame.
 * A result whose data is there in another layout than the plain one (KN_LAYOUT_BLOCKS) is pending
 * too: its expression only brings the data in order, apart from all passes.
 */
#ifndef KN_FUSE_H
#define KN_FUSE_H

#include "thread.h"

typedef struct kn__expr kn__expr;

/* Whether the results of this checked call are put off. */
bool kn__fuse_takes(const kn__ops_thread *self, const kn_op_call *call);
/* Whether the call adds to a pending result that takes it as one part more. */
bool kn__fuse_joins(kn__ops_thread *self, const kn_op_call *call);
kn_status kn__fuse_join(const kn_op_call *call);
/* Puts the wanted results off: their headers get storage without data. An error is recorded. */
kn_status kn__fuse_defer(kn__ops_thread *self, const kn_op_call *call);

/* Makes t, a header without storage, pending on `from`, which has its data in another layout. An
 * error is recorded. */
kn_status kn__fuse_defer_plain(kn__ops_thread *self, const kn_op_call *call, kn_tensor *t,
                               kn_storage *from);
/* That storage; NULL: t's layout is plain. */
kn_storage *kn__fuse_source(const kn_tensor *t);

/* Computes t if it is pending. An error is recorded, and t stays pending. */
kn_status kn__fuse_compute(kn_storage *s);
/* Marks t: the pass that first reads it stores it too. */
kn_status kn__fuse_keep(kn_tensor *t);
/* For the reduction of a pending input: makes the pass that gives its tiles and runs the call by
 * kn__host_reduce_fused. The input stays pending where it is cheaper to compute again. */
kn_status kn__fuse_reduce(kn_op_call *call);
/* Whether t is this thread's to compute; else an error is pending. */
bool kn__fuse_is_mine(const kn_tensor *t);
static inline kn_status kn__compute(kn_tensor *t) {
    if (__builtin_expect(t->state != KN_TENSOR_PENDING, 1)) return KN_OK;
    return kn__fuse_compute(t->storage);
}
/* Before a call of a kernel: its inputs, except one that a reduction reads by tiles, and what reads
 * data that the op writes without a claim. */
kn_status kn__fuse_before(kn__ops_thread *self, const kn_op_call *call);
/* Before s is written: s itself, and what reads it. */
kn_status kn__fuse_before_write(kn__ops_thread *self, kn_storage *s);
/* All of the thread's, before its outermost frame ends. */
kn_status kn__fuse_all(kn__ops_thread *self);
void kn__fuse_thread_end(kn__ops_thread *self);

#endif
