/* Rotary embedding of one row. */
#include <string.h>

#include "host/base/loops.h"

void KN_LOOP(rotate)(void *y, const void *x, const void *turn, int64_t pairs, int64_t n,
                     bool adjacent) {
    const real *in = x, *cosine = turn, *sine = cosine + pairs;
    real *out = y;
    int64_t step = adjacent ? 2 : 1, other = adjacent ? 1 : pairs;
    KN_SIMD
    for (int64_t i = 0; i < pairs; i++) {
        real a = in[step * i], b = in[step * i + other];
        out[step * i] = a * cosine[i] - b * sine[i];
        out[step * i + other] = a * sine[i] + b * cosine[i];
    }
    if (n > 2 * pairs)
        memcpy(out + 2 * pairs, in + 2 * pairs, (size_t)(n - 2 * pairs) * sizeof(real));
}
