/* Reading tensors of integers, whatever their dtype. */
#ifndef KN_LABELS_H
#define KN_LABELS_H

#include <knet/tensor.h>

#include "rounded.h"

static inline KN_HOST_DEVICE int64_t kn__label_at(const void *data, kn_dtype dtype, int64_t i) {
    if (dtype == KN_I64) return ((const int64_t *)data)[i];
    if (dtype == KN_I32) return ((const int32_t *)data)[i];
    return ((const uint8_t *)data)[i];
}

#endif
