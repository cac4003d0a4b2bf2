/* splitmix64 (Steele, Lea, Flood 2014), whose steps also make a good hash of one number. */
#ifndef KN_BASE_MIX_H
#define KN_BASE_MIX_H

#include <stdint.h>

/* 2^64 / the golden ratio: a multiplicative hash's factor. */
#define KN__GOLDEN 0x9E3779B97F4A7C15u

static inline uint64_t kn__mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* The next of a sequence of 2^64 numbers, each once. */
static inline uint64_t kn__splitmix(uint64_t *state) { return kn__mix(*state += KN__GOLDEN); }

#endif
