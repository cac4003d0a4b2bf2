/* The logits and labels that golden/ctc.py makes. */
#ifndef KNET_GOLDEN_CTC_H
#define KNET_GOLDEN_CTC_H

#include "golden/ctc.h"

#include "kernels_test.h"

enum { CTC_T = 9, CTC_B = 4, CTC_C = 5, CTC_S = 3, CTC_N = CTC_T * CTC_B * CTC_C };

static inline kn_tensor *ctc_logits(kn_dtype dtype) {
    double x[CTC_N];
    for (int i = 0; i < CTC_N; i++) x[i] = (i * 37 + 5) % 101 / 16.0 - 3;
    return from_doubles(x, dtype, KN_SHAPE(CTC_T, CTC_B, CTC_C));
}

static inline kn_tensor *ctc_integers(const int32_t *x, kn_dtype dtype, kn_shape shape) {
    return kn_cast(kn_tensor_from(x, KN_I32, shape), dtype);
}
#define CTC_LENGTHS(dtype, ...) ctc_integers((const int32_t[]){__VA_ARGS__}, dtype, KN_SHAPE(CTC_B))

static inline kn_tensor *ctc_labels(kn_dtype dtype, int32_t shift) {
    int32_t x[] = {1, 2, 2, 3, 1, 3, 4, 4, 4, 2, 1, 1};
    for (int i = 0; i < 12; i++) x[i] += shift;
    return ctc_integers(x, dtype, KN_SHAPE(CTC_B, CTC_S));
}

typedef struct ctc_case {
    const double *want; /* n losses, then the gradient */
    int n;
    kn_ctc_options options;
    int32_t shift; /* of labels */
} ctc_case;

/* The cases of ctc.py; tensors belong to the caller's frame. */
static inline void ctc_cases(ctc_case out[5]) {
    kn_tensor *steps = CTC_LENGTHS(KN_I64, 9, 5, 8, 7), *labels = CTC_LENGTHS(KN_U8, 3, 2, 3, 0);
    out[0] = (ctc_case){golden_mean, 1, {.blank = 0}, 0};
    out[1] = (ctc_case){golden_sum, 1, {.blank = CTC_C - 1, .reduction = KN_REDUCE_SUM}, -1};
    out[2] = (ctc_case){golden_lengths,
                        CTC_B,
                        {.lengths = steps, .target_lengths = labels, .reduction = KN_REDUCE_NONE},
                        0};
    out[3] = (ctc_case){golden_mean_lengths, 1, {.lengths = steps, .target_lengths = labels}, 0};
    out[4] = (ctc_case){golden_short,
                        CTC_B,
                        {.lengths = CTC_LENGTHS(KN_I32, 9, 2, 4, 7),
                         .target_lengths = CTC_LENGTHS(KN_I64, 3, 3, 3, 1),
                         .reduction = KN_REDUCE_NONE,
                         .zero_infinity = 1},
                        0};
}

#endif
