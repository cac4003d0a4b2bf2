/* Random numbers by the element map of philox.h: 8 counters at a time, their words side by side. */
#include "host/base/loops.h"
#include "integers.h"
#include "philox.h"
#include "quantile.h"

#if defined __AVX512F__ || defined __AVX2__ || defined __SSE2__
#include <immintrin.h>
#endif

/* A counter's word sits in the low half of a 64-bit lane. The upper half may hold anything:
 * products read low halves only, and the rest never moves bits down. */
#ifdef __AVX512F__
enum { WIDE = 8 };
typedef __m512i wide;
#define WIDE_MUL(a, b) _mm512_mul_epu32(a, b)
#define WIDE_HIGH(a) _mm512_srli_epi64(a, 32)
#define WIDE_XOR(a, b) _mm512_xor_si512(a, b)
#define WIDE_ALL(x) _mm512_set1_epi64((long long)(x))
#elif defined __AVX2__
enum { WIDE = 4 };
typedef __m256i wide;
#define WIDE_MUL(a, b) _mm256_mul_epu32(a, b)
#define WIDE_HIGH(a) _mm256_srli_epi64(a, 32)
#define WIDE_XOR(a, b) _mm256_xor_si256(a, b)
#define WIDE_ALL(x) _mm256_set1_epi64x((long long)(x))
#elif defined __SSE2__
enum { WIDE = 2 };
typedef __m128i wide;
#define WIDE_MUL(a, b) _mm_mul_epu32(a, b)
#define WIDE_HIGH(a) _mm_srli_epi64(a, 32)
#define WIDE_XOR(a, b) _mm_xor_si128(a, b)
#define WIDE_ALL(x) _mm_set1_epi64x((long long)(x))
#else
enum { WIDE = 1 };
typedef uint64_t wide;
#define WIDE_MUL(a, b) ((uint64_t)(uint32_t)(a) * (uint32_t)(b))
#define WIDE_HIGH(a) ((a) >> 32)
#define WIDE_XOR(a, b) ((a) ^ (b))
#define WIDE_ALL(x) ((uint64_t)(x))
#endif

enum { GROUPS = 2, COUNTERS = 8 * GROUPS, PARTS = COUNTERS / WIDE };
typedef struct word_block { /* [group][word][counter]: the order of the elements */
    uint32_t w[GROUPS][4][8];
} word_block;

/* The words of counters first … first + COUNTERS - 1. */
static inline void words_fill(word_block *out, uint64_t first, uint64_t seed) {
    wide c[4][PARTS];
    for (int i = 0; i < PARTS; i++) {
        uint64_t low[WIDE], high[WIDE];
        for (int l = 0; l < WIDE; l++) {
            low[l] = first + (uint64_t)(i * WIDE + l);
            high[l] = low[l] >> 32;
        }
        memcpy(&c[0][i], low, sizeof low);
        memcpy(&c[1][i], high, sizeof high);
        c[2][i] = c[3][i] = WIDE_ALL(0);
    }
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++, k0 += KN_PHILOX_W0, k1 += KN_PHILOX_W1) {
        wide key0 = WIDE_ALL(k0), key1 = WIDE_ALL(k1);
        for (int i = 0; i < PARTS; i++) {
            wide p0 = WIDE_MUL(WIDE_ALL(KN_PHILOX_M0), c[0][i]);
            wide p1 = WIDE_MUL(WIDE_ALL(KN_PHILOX_M1), c[2][i]);
            c[0][i] = WIDE_XOR(WIDE_XOR(WIDE_HIGH(p1), c[1][i]), key0);
            c[2][i] = WIDE_XOR(WIDE_XOR(WIDE_HIGH(p0), c[3][i]), key1);
            c[1][i] = p1;
            c[3][i] = p0;
        }
    }
    for (int w = 0; w < 4; w++)
        for (int i = 0; i < PARTS; i++) {
            uint64_t lanes[WIDE];
            memcpy(lanes, &c[w][i], sizeof lanes);
            for (int l = 0; l < WIDE; l++)
                out->w[i * WIDE / 8][w][i * WIDE % 8 + l] = (uint32_t)lanes[l];
        }
}

enum { WORDS = 32 * GROUPS };

#ifdef KN_REAL_IS_F32
enum { PER_FILL = WORDS };
static inline void uniform_block(real *y, const word_block *words, real lo, real hi, real below) {
    const uint32_t *w = &words->w[0][0][0];
    for (int i = 0; i < WORDS; i++) y[i] = kn__uniform_f32(w[i], lo, hi, below);
}
static inline void normal_block(real *y, const word_block *words, double mean, double stddev) {
    for (int g = 0; g < GROUPS; g++)
        for (int pair = 0; pair < 2; pair++)
            for (int l = 0; l < 8; l++) {
                double z[2];
                kn__normal_pair_f32(z, words->w[g][2 * pair][l], words->w[g][2 * pair + 1][l]);
                for (int i = 0; i < 2; i++)
                    y[32 * g + 16 * pair + 8 * i + l] = (real)(mean + stddev * z[i]);
            }
}
static inline void exponential_block(real *y, const word_block *words, double rate) {
    const uint32_t *w = &words->w[0][0][0];
    for (int i = 0; i < WORDS; i++) y[i] = (real)kn__exponential_f32(w[i], rate);
}
static real below_of(real lo, real hi) { return kn__below_f32(lo, hi); }
#else
enum { PER_FILL = WORDS / 2 };
static inline void uniform_block(real *y, const word_block *words, real lo, real hi, real below) {
    for (int g = 0; g < GROUPS; g++)
        for (int p = 0; p < 2; p++)
            for (int l = 0; l < 8; l++)
                y[16 * g + 8 * p + l] = kn__uniform_f64(words->w[g][2 * p][l],
                                                        words->w[g][2 * p + 1][l], lo, hi, below);
}
static inline void normal_block(real *y, const word_block *words, double mean, double stddev) {
    for (int g = 0; g < GROUPS; g++)
        for (int l = 0; l < 8; l++) {
            uint32_t w[4] = {words->w[g][0][l], words->w[g][1][l], words->w[g][2][l],
                             words->w[g][3][l]};
            double z[2];
            kn__normal_pair_f64(z, w);
            for (int i = 0; i < 2; i++) y[16 * g + 8 * i + l] = mean + stddev * z[i];
        }
}
static inline void exponential_block(real *y, const word_block *words, double rate) {
    for (int g = 0; g < GROUPS; g++)
        for (int p = 0; p < 2; p++)
            for (int l = 0; l < 8; l++)
                y[16 * g + 8 * p + l] =
                    kn__exponential_f64(words->w[g][2 * p][l], words->w[g][2 * p + 1][l], rate);
}
static real below_of(real lo, real hi) { return kn__below_f64(lo, hi); }
#endif

/* `first` is a multiple of 32, so of the elements a group of 8 counters makes. */
static uint64_t counter_of(const int64_t state[2], int64_t first, int per_group) {
    return (uint64_t)state[1] + (uint64_t)(first / per_group) * 8;
}

void KN_LOOP(uniform)(void *y, int64_t first, int64_t n, const int64_t state[2], double lo,
                      double hi) {
    real *out = y, low = (real)lo, high = (real)hi, below = below_of(low, high);
    uint64_t counter = counter_of(state, first, PER_FILL / GROUPS);
    word_block words;
    for (; n >= PER_FILL; n -= PER_FILL, out += PER_FILL, counter += COUNTERS) {
        words_fill(&words, counter, (uint64_t)state[0]);
        uniform_block(out, &words, low, high, below);
    }
    if (n > 0) {
        real rest[PER_FILL];
        words_fill(&words, counter, (uint64_t)state[0]);
        uniform_block(rest, &words, low, high, below);
        memcpy(out, rest, (size_t)n * sizeof(real));
    }
}

void KN_LOOP(normal)(void *y, int64_t first, int64_t n, const int64_t state[2], double mean,
                     double stddev) {
    real *out = y;
    uint64_t counter = counter_of(state, first, PER_FILL / GROUPS);
    for (; n > 0; n -= PER_FILL, out += PER_FILL, counter += COUNTERS) {
        real block[PER_FILL];
        word_block words;
        words_fill(&words, counter, (uint64_t)state[0]);
        normal_block(block, &words, mean, stddev);
        memcpy(out, block, (size_t)(n < PER_FILL ? n : PER_FILL) * sizeof(real));
    }
}

void KN_LOOP(exponential)(void *y, int64_t first, int64_t n, const int64_t state[2], double rate) {
    real *out = y;
    uint64_t counter = counter_of(state, first, PER_FILL / GROUPS);
    for (; n > 0; n -= PER_FILL, out += PER_FILL, counter += COUNTERS) {
        real block[PER_FILL];
        word_block words;
        words_fill(&words, counter, (uint64_t)state[0]);
        exponential_block(block, &words, rate);
        memcpy(out, block, (size_t)(n < PER_FILL ? n : PER_FILL) * sizeof(real));
    }
}

/* One word an element, whatever the type. */
static inline void dropout_block(real *y, const real *x, const word_block *words,
                                 uint32_t threshold, real scale, int64_t n) {
    const uint32_t *w = &words->w[0][0][0];
    for (int64_t i = 0; i < n; i++) y[i] = w[i] >= threshold ? x[i] * scale : 0;
}

void KN_LOOP(dropout)(void *y, const void *x, int64_t first, int64_t n, const int64_t state[2],
                      double p) {
    real *out = y, scale = (real)kn__dropout_scale(p);
    const real *in = x;
    uint32_t threshold = kn__dropout_threshold(p);
    uint64_t counter = counter_of(state, first, 32);
    word_block words;
    for (; n >= WORDS; n -= WORDS, out += WORDS, in += WORDS, counter += COUNTERS) {
        words_fill(&words, counter, (uint64_t)state[0]);
        dropout_block(out, in, &words, threshold, scale, WORDS);
    }
    if (n > 0) {
        words_fill(&words, counter, (uint64_t)state[0]);
        dropout_block(out, in, &words, threshold, scale, n);
    }
}

void KN_LOOP(bernoulli)(void *y, int64_t first, int64_t n, const int64_t state[2], double p) {
    real *out = y;
    uint64_t below = (uint64_t)(p * 4294967296.0), counter = counter_of(state, first, 32);
    word_block words;
    for (; n > 0; n -= WORDS, out += WORDS, counter += COUNTERS) {
        const uint32_t *w = &words.w[0][0][0];
        words_fill(&words, counter, (uint64_t)state[0]);
        for (int64_t i = 0; i < (n < WORDS ? n : WORDS); i++) out[i] = w[i] < below ? 1 : 0;
    }
}

/* Two words an element, whatever the type. */
void KN_LOOP(truncated_normal)(void *y, int64_t first, int64_t n, const int64_t state[2],
                               const kn__truncated *t) {
    real *out = y;
    uint64_t counter = counter_of(state, first, 16);
    word_block words;
    for (int64_t i = 0; i < n; i++) {
        int64_t in = i % (WORDS / 2), group = in / 16, pair = in % 16 / 8, lane = in % 8;
        if (in == 0)
            words_fill(&words, counter + (uint64_t)(i / (WORDS / 2)) * COUNTERS,
                       (uint64_t)state[0]);
        double x = kn__truncated_normal(t, words.w[group][2 * pair][lane],
                                        words.w[group][2 * pair + 1][lane]);
        out[i] = (real)x;
    }
}

void KN_LOOP(integers)(int64_t *y, int64_t first, int64_t n, const int64_t state[2], int64_t lo,
                       uint64_t range) {
    uint64_t counter = counter_of(state, first, 16), seed = (uint64_t)state[0];
    word_block words;
    for (int64_t i = 0; i < n; i++) {
        int64_t in = i % (WORDS / 2), group = in / 16, pair = in % 16 / 8, lane = in % 8;
        uint64_t block = counter + (uint64_t)(i / (WORDS / 2)) * COUNTERS;
        if (in == 0) words_fill(&words, block, seed);
        uint64_t word =
            (uint64_t)words.w[group][2 * pair + 1][lane] << 32 | words.w[group][2 * pair][lane];
        uint64_t own = block + (uint64_t)(8 * group + lane);
        y[i] = (int64_t)((uint64_t)lo + kn__integer_below(word, range, own, seed, (int)pair));
    }
}

/* One pass of LANES numbers through the network, round by round: a number's own rounds wait for
 * each other. */
enum { LANES = 64 };
static void permutation_steps(uint32_t *x, const kn__feistel *p) {
    uint32_t left[LANES], right[LANES];
    for (int i = 0; i < LANES; i++)
        left[i] = x[i] >> p->right_bits, right[i] = x[i] & p->right_mask;
    for (int k = 0; k < KN_PERMUTATION_KEYS; k += 2)
        for (int i = 0; i < LANES; i++) kn__permutation_rounds(p, k, &left[i], &right[i]);
    for (int i = 0; i < LANES; i++) x[i] = left[i] << p->right_bits | right[i];
}

void KN_LOOP(permutation)(int64_t *y, int64_t first, int64_t n, const kn__feistel *p, int64_t all) {
    enum { BLOCK = 8 * LANES };
    uint32_t x[BLOCK] = {0};
    int at[BLOCK];
    for (int64_t done = 0; done < n; done += BLOCK) {
        int m = n - done < BLOCK ? (int)(n - done) : BLOCK;
        for (int i = 0; i < m; i++)
            x[i] = kn__permutation_start(p, (uint32_t)(first + done + i)), at[i] = i;
        for (int left = m; left > 0;) { /* about half of them walk on */
            int next = 0;
            for (int i = 0; i < left; i += LANES) permutation_steps(x + i, p);
            for (int i = 0; i < left; i++) {
                y[done + at[i]] = (int64_t)x[i];
                x[next] = x[i], at[next] = at[i];
                next += x[i] >= all;
            }
            left = next;
        }
    }
}
