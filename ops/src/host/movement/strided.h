/* Copies between two regions of memory, each with a stride for every dimension: what most movement
 * ops are on the host. */
#ifndef KN_HOST_STRIDED_H
#define KN_HOST_STRIDED_H

#include <knet/op.h>

typedef struct kn__strided_copy {
    void *to;
    const void *from;
    kn_dtype dtype;
    bool add; /* to += from; BOOL can't */
    int n_dims;
    int64_t dim[KN_DIMS_MAX];
    int64_t to_stride[KN_DIMS_MAX], from_stride[KN_DIMS_MAX]; /* in elements; may be negative */
} kn__strided_copy;

/* The row-major strides of t. */
void kn__strides(int64_t stride[], const kn_tensor *t);
/* Over all elements; the places written to differ. */
void kn__strided_copy_run(int threads, const kn__strided_copy *copy);
/* n bytes, on all threads. */
void kn__copy_bytes(int threads, void *to, const void *from, size_t n);
void kn__zero_bytes(int threads, void *to, size_t n);
/* n elements, each rounded once: cast.c. */
void kn__cast(int threads, void *y, kn_dtype to, const void *x, kn_dtype from, int64_t n);
/* Result 0 is input 0 with the attribute's value around it: pad.c. */
void kn__pad_run(const kn_op_call *call, const kn_attr_pad *attr);

#endif
