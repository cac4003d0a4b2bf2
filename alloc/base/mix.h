/* splitmix64 (Steele, Lea, Flood 2014), whose steps also make a good hash of one number, and FNV-1a
 * (Fowler, Noll, Vo) of bytes. */
#ifndef KN_BASE_MIX_H
#define KN_BASE_MIX_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* 2^64 / the golden ratio: a multiplicative hash's factor. */
#define KN__GOLDEN 0x9E3779B97F4A7C15u

static inline uint64_t kn__mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* The next of a sequence of 2^64 numbers, each once. */
static inline uint64_t kn__splitmix(uint64_t *state) { return kn__mix(*state += KN__GOLDEN); }

/* A number in [0, 1), a multiple of 2^-53, by the upper 53 bits. */
static inline double kn__uniform(uint64_t bits) { return (double)(bits >> 11) * 0x1p-53; }

/* --- FNV-1a: h so far, first KN__FNV_START; so hashed in parts, it is that of the whole --- */

#define KN__FNV_START 0xCBF29CE484222325u

static inline uint64_t kn__fnv_step(uint64_t h, uint64_t n) { return (h ^ n) * 0x100000001B3u; }

static inline uint64_t kn__fnv(uint64_t h, const void *bytes, size_t n) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < n; i++) h = kn__fnv_step(h, at[i]);
    return h;
}

static inline uint64_t kn__fnv_text(uint64_t h, const char *text) {
    for (; *text; text++) h = kn__fnv_step(h, (unsigned char)*text);
    return h;
}

/* Faster, of a struct without padding: by words, whose upper bits are mixed in. What a last part of
 * a word holds is left out. */
static inline uint64_t kn__fnv_words(uint64_t h, const void *bytes, size_t n) {
    uint64_t word;
    for (size_t i = 0; i + sizeof word <= n; i += sizeof word) {
        memcpy(&word, (const char *)bytes + i, sizeof word);
        h = kn__fnv_step(h, word);
        h ^= h >> 29;
    }
    return h;
}

#endif
