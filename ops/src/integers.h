/* Random integers and permutations, the same on every device: philox.h's words, integer
 * arithmetic. */
#ifndef KN_INTEGERS_H
#define KN_INTEGERS_H

#include "philox.h"

static inline KN_HOST_DEVICE uint64_t kn__mul_high(uint64_t *low, uint64_t a, uint64_t b) {
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t mid = a1 * b0 + (a0 * b0 >> 32), mid2 = a0 * b1 + (uint32_t)mid;
    *low = a * b;
    return a1 * b1 + (mid >> 32) + (mid2 >> 32);
}

/* A number below `range` from a word of 64 bits: each equally likely, since the few words that
 * would favour some are replaced by the counter's words of the next stream. `pair`: which words of
 * the counter are the element's. Lemire 2019, Fast Random Integer Generation in an Interval. */
static inline KN_HOST_DEVICE uint64_t kn__integer_below(uint64_t word, uint64_t range,
                                                        uint64_t counter, uint64_t seed, int pair) {
    uint64_t low, high = kn__mul_high(&low, word, range);
    if (low >= range) return high;
    uint64_t least = (0 - range) % range;
    for (uint32_t stream = 1; low < least; stream++) {
        uint32_t w[4];
        kn__philox_stream(w, counter, seed, stream);
        word = (uint64_t)w[2 * pair + 1] << 32 | w[2 * pair];
        high = kn__mul_high(&low, word, range);
    }
    return high;
}

/* --- permutations: of a few elements by swaps, all equally likely. Of more, a Feistel network on
 * the smallest power of two from 2n on, walked until it gives a number below n. A Feistel network
 * is an even permutation, and restricted to n numbers it is even more often than odd: so a random
 * bit swaps the first two elements. --- */
enum { KN_PERMUTATION_KEYS = 16, KN_PERMUTATION_FEW = 32 };

/* Fisher and Yates, a counter a swap. */
static inline KN_HOST_DEVICE void kn__permutation_few(int64_t *out, int64_t n, uint64_t seed,
                                                      uint64_t offset) {
    for (int64_t i = 0; i < n; i++) out[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        uint32_t w[4];
        uint64_t counter = offset + (uint64_t)i;
        kn__philox(w, counter, seed);
        uint64_t word = (uint64_t)w[1] << 32 | w[0];
        uint64_t at = kn__integer_below(word, (uint64_t)i + 1, counter, seed, 0);
        int64_t last = out[i];
        out[i] = out[at];
        out[at] = last;
    }
}

typedef struct kn__feistel {
    uint32_t key[KN_PERMUTATION_KEYS]; /* the words of four counters */
    uint32_t coin;                     /* 1: the first two are swapped */
    int right_bits;
    uint32_t left_mask, right_mask;
} kn__feistel;

static inline KN_HOST_DEVICE void kn__permutation_make(kn__feistel *p, uint64_t n, uint64_t seed,
                                                       uint64_t offset) {
    int bits = 5;
    while ((UINT64_C(1) << bits) < 2 * n) bits++;
    p->right_bits = (bits + 1) / 2;
    p->right_mask = (1u << p->right_bits) - 1;
    p->left_mask = (1u << (bits - p->right_bits)) - 1;
    for (int i = 0; i < KN_PERMUTATION_KEYS / 4; i++)
        kn__philox(p->key + 4 * i, offset + (uint64_t)i, seed);
    uint32_t w[4];
    kn__philox(w, offset + KN_PERMUTATION_KEYS / 4, seed);
    p->coin = w[0] & 1;
}

/* What the walk for element i begins with. */
static inline KN_HOST_DEVICE uint32_t kn__permutation_start(const kn__feistel *p, uint32_t i) {
    return i < 2 ? i ^ p->coin : i;
}

static inline KN_HOST_DEVICE uint32_t kn__permutation_mix(uint32_t x, uint32_t key) {
    x = (x ^ key) * 0x9E3779B1u;
    x = (x ^ x >> 15) * 0x85EBCA77u + key;
    return x ^ x >> 13;
}

/* Two rounds, with the keys k and k + 1. */
static inline KN_HOST_DEVICE void kn__permutation_rounds(const kn__feistel *p, int k,
                                                         uint32_t *left, uint32_t *right) {
    *left ^= kn__permutation_mix(*right, p->key[k]) & p->left_mask;
    *right ^= kn__permutation_mix(*left, p->key[k + 1]) & p->right_mask;
}

/* One pass through the network. */
static inline KN_HOST_DEVICE uint32_t kn__permutation_step(const kn__feistel *p, uint32_t x) {
    uint32_t left = x >> p->right_bits, right = x & p->right_mask;
    for (int k = 0; k < KN_PERMUTATION_KEYS; k += 2) kn__permutation_rounds(p, k, &left, &right);
    return left << p->right_bits | right;
}

#endif
