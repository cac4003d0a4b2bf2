/* How host kernels split work: by shape alone, never by the number of threads. */
#ifndef KN_CHUNKS_H
#define KN_CHUNKS_H

#include <stdint.h>

static inline int64_t kn__chunks(int64_t n, int64_t chunk) { return (n + chunk - 1) / chunk; }
/* Where part i of `parts` begins, for i in 0 … parts: sizes differ by one at most. */
static inline int64_t kn__part(int64_t n, int64_t parts, int64_t i) {
    return n / parts * i + (i < n % parts ? i : n % parts);
}

/* Elements of a piece, where `grain` elements are worth waking a thread: a grain, but of few grains
 * a part, so that threads end together; in whole cache lines. */
static inline int64_t kn__even(int64_t n, int64_t grain) {
    enum { MANY = 32, PARTS = 4 };
    int64_t grains = kn__chunks(n, grain), pieces = grains;
    if (grains <= 1) return grain;
    if (grains < MANY) pieces = grains * PARTS < MANY ? grains * PARTS : MANY;
    return kn__chunks(kn__chunks(n, pieces), 64) * 64;
}

#endif
