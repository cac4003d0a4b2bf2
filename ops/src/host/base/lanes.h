/* The sum of a vector's lanes by halves: kn__vec_sum's order and bits, in registers. Included by
 * *_loops.c files. */
#ifndef KN_LANES_SUM_H
#define KN_LANES_SUM_H

#include "host/base/loops.h"

typedef real kn__half2 __attribute__((vector_size(2 * sizeof(real))));
typedef real kn__half4 __attribute__((vector_size(4 * sizeof(real))));

static inline real kn__lanes_sum4(kn__half4 v) {
    kn__half2 two = __builtin_shufflevector(v, v, 0, 1) + __builtin_shufflevector(v, v, 2, 3);
    return two[0] + two[1];
}

static inline real kn__lanes_sum(kn__vec v) {
#ifdef KN_REAL_IS_F32
    typedef real half8 __attribute__((vector_size(8 * sizeof(real))));
    half8 e = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
              __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
#else
    kn__vec e = v;
#endif
    return kn__lanes_sum4(__builtin_shufflevector(e, e, 0, 1, 2, 3) +
                          __builtin_shufflevector(e, e, 4, 5, 6, 7));
}

#endif
