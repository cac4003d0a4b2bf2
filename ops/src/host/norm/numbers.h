/* Single numbers of tensors, f32 or f64: `bytes` is an element's size. */
#ifndef KN_NORM_NUMBERS_H
#define KN_NORM_NUMBERS_H

#include "kernel.h"

/* NULL where the tensor is not there, or not wanted. */
static inline void *data_of(const kn_tensor *t) { return t && t != KN_NONE ? t->data : NULL; }

static inline double number_at(const void *data, size_t bytes, int64_t i) {
    return bytes == sizeof(double) ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static inline void number_set(void *data, size_t bytes, int64_t i, double value) {
    if (!data) return;
    if (bytes == sizeof(double))
        ((double *)data)[i] = value;
    else
        ((float *)data)[i] = (float)value;
}

/* As an element holds it. */
static inline double number_rounded(size_t bytes, double value) {
    return bytes == sizeof(double) ? value : (double)(float)value;
}

#endif
