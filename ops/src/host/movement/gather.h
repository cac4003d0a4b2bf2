/* What the host's kernels that read indices share: the three extents around an axis, and an index
 * out of range. */
#ifndef KN_HOST_GATHER_H
#define KN_HOST_GATHER_H

#include <stdatomic.h>

#include "host/movement/strided.h"
#include "kernel.h"

typedef struct kn__indexed { /* x [outer, size, inner], y [outer, count, inner] */
    int64_t outer, size, inner, count;
    bool rows; /* index [count]; else index [outer, count, inner] */
    kn_dtype index_dtype;
    const void *index;
    _Atomic int64_t bad; /* the first place of an index out of range; INT64_MAX: all are in range */
} kn__indexed;

/* Of a call whose first operand, or result, of x's shape is `whole`. */
void kn__indexed_init(kn__indexed *j, const kn_op_call *call, const kn_tensor *whole);
/* Index i, 0 … size - 1, or -1 for one out of range, which is remembered. */
static inline int64_t kn__index_at(kn__indexed *j, int64_t i);
/* INVALID if one was out of range. */
kn_status kn__indexed_check(kn__indexed *j, const kn_op_call *call);
void kn__indexed_bad(kn__indexed *j, int64_t i);

static inline int64_t kn__index_read(const void *index, kn_dtype dtype, int64_t i) {
    if (dtype == KN_I64) return ((const int64_t *)index)[i];
    return dtype == KN_I32 ? ((const int32_t *)index)[i] : ((const uint8_t *)index)[i];
}

static inline int64_t kn__index_at(kn__indexed *j, int64_t i) {
    int64_t v = kn__index_read(j->index, j->index_dtype, i);
    if (v < 0) v += j->size;
    if (__builtin_expect((uint64_t)v < (uint64_t)j->size, 1)) return v;
    kn__indexed_bad(j, i);
    return -1;
}

#endif
