/* Offline placement: where in one run of bytes each block of a known sequence lies.
 *
 * Two blocks whose lifetimes overlap get bytes of their own; others may share. The problem is
 * NP-hard (dynamic storage allocation); several greedy orders are tried and the smallest kept. */
#ifndef KN_BASE_PLACE_H
#define KN_BASE_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kn__lifetime {
    uint64_t size;       /* bytes, not 0 */
    uint32_t begin, end; /* lives in [begin, end) */
    uint64_t offset;     /* the result */
} kn__lifetime;

/* Sets the offsets. *total is the end of the highest block; *order names the order that gave it.
 * Time and memory: quadratic and linear in n. False: no host memory. */
bool kn__place_spans(uint64_t *total, const char **order, kn__lifetime *spans, size_t n);

/* The most bytes that live at once: no placement needs less. False: no host memory. */
bool kn__place_peak(uint64_t *peak, const kn__lifetime *spans, size_t n);

#endif
