/* Links (links.h): a few vectors of the hand stay in registers while all links turn. */
#include "host/pointwise/links.h"

#include "host/base/loops.h"
#include "host/base/turned.h"
#include "needs.h"
#ifdef __x86_64__
#include <immintrin.h>
#endif

#pragma GCC diagnostic ignored "-Wunused-variable" /* inputs that a formula does not read */

typedef real vec __attribute__((vector_size(KN_TILE_BYTES)));
enum {
    WIDTH = KN_TILE_BYTES / sizeof(real),
    VECTORS = KN_TILE_BYTES == 64 ? 16 : 8, /* half of the registers */
    STRETCH = VECTORS * WIDTH,
    LANE_VECTORS = KN__LINK_LANES_BYTES / sizeof(vec)
};
#define INLINE static inline __attribute__((always_inline))

INLINE vec load(const char *x) {
    vec v;
    __builtin_memcpy(&v, x, sizeof v);
    return v;
}

INLINE vec every(const char *x) {
    real a;
    __builtin_memcpy(&a, x, sizeof a);
    return a - (vec){0};
}

INLINE vec root(vec x) {
#if defined __AVX512F__ && defined KN_REAL_IS_F32
    return (vec)_mm512_sqrt_ps((__m512)x);
#elif defined __AVX512F__
    return (vec)_mm512_sqrt_pd((__m512d)x);
#elif defined __AVX2__ && defined KN_REAL_IS_F32
    return (vec)_mm256_sqrt_ps((__m256)x);
#elif defined __AVX2__
    return (vec)_mm256_sqrt_pd((__m256d)x);
#elif defined __x86_64__ && defined KN_REAL_IS_F32
    return (vec)_mm_sqrt_ps((__m128)x);
#elif defined __x86_64__
    return (vec)_mm_sqrt_pd((__m128d)x);
#else
    for (int i = 0; i < WIDTH; i++) x[i] = (real)__builtin_sqrt((double)x[i]);
    return x;
#endif
}

/* --- formulas: u and v are the first and the second input --- */

#define T real
#define T_SQRT(x) root(x)
#define VAR_FLOAT(n) n
#define VAR_NUMERIC(n) n
#define VAR_ANY(n) n
#define VAR_BOOL(n) n
#define VAR(in) VAR_##in
#define FORMULA(d) (FORMULA_ d)
#define FORMULA_(reads, formula) formula
#define NOTHING_0(...)
#define NOTHING_1(...) __VA_ARGS__
#define IF(has) KN_LINK_PASTE(NOTHING_, has)

/* Of one input, and of two with the hand in either place. */
#define EACH KN_UNROLL(16) for (int k = 0; k < VECTORS; k++)
#define HAND_ALONE(row, order, ...)                                                                \
    case KN__LINK(row, order, 0):                                                                  \
        EACH {                                                                                     \
            const vec u = hand[k];                                                                 \
            __VA_ARGS__                                                                            \
        }                                                                                          \
        break;
/* `loaded`: the vectors of x, or a single element in all places. */
#define EACH_X(...)                                                                                \
    if (step) {                                                                                    \
        EACH {                                                                                     \
            const vec loaded = load(at + k * (int)sizeof(vec));                                    \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    } else {                                                                                       \
        const vec loaded = every(at);                                                              \
        EACH { __VA_ARGS__ }                                                                       \
    }                                                                                              \
    break;
#define HAND_AND_X(row, order, ...)                                                                \
    case KN__LINK(row, order, 0):                                                                  \
        EACH_X(const vec u = hand[k], v = loaded; __VA_ARGS__)                                     \
    case KN__LINK(row, order, 1):                                                                  \
        EACH_X(const vec u = loaded, v = hand[k]; __VA_ARGS__)
#define BACK(row, order, d, ...)                                                                   \
    HAND_AND_X(row, order, {                                                                       \
        const vec g = u, z = v, __VA_ARGS__;                                                       \
        hand[k] = FORMULA(d);                                                                      \
    })
#define LINKS1(name, s, domain, a, formula, d0, ...)                                               \
    IF(KN_LINK_HAS_F(name))                                                                        \
    (HAND_ALONE(KN__ROW_##name, 0, const vec VAR(a) = u; hand[k] = (formula);))                    \
        IF(KN_LINK_HAS_D(name))(BACK(KN__ROW_##name, 1, d0, VAR(a) = v))
#define LINKS2(name, s, domain, a, b, formula, d0, d1, ...)                                        \
    IF(KN_LINK_HAS_F(name))                                                                        \
    (HAND_AND_X(KN__ROW_##name, 0, const vec VAR(a) = u, VAR(b) = v; hand[k] = (formula);))        \
        IF(KN_LINK_HAS_D(name))(BACK(KN__ROW_##name, 1, d0, VAR(a) = v, VAR(b) = v)                \
                                    BACK(KN__ROW_##name, 2, d1, VAR(a) = v, VAR(b) = v))

/* --- the machine --- */

INLINE void store(char *x, const vec hand[]) {
    EACH __builtin_memcpy(x + k * (int)sizeof(vec), &hand[k], sizeof(vec));
}

/* Adds element i of the row to lane i of so many, as kn__folds' sums do; n: of the hand, which has
 * more in the last turn. */
INLINE void sum(vec lanes[], int64_t first, vec hand[], int64_t n) {
    if (n < STRETCH) {
        char whole[STRETCH * sizeof(real)] = {0}, part[STRETCH * sizeof(real)];
        store(part, hand);
        __builtin_memcpy(whole, part, (size_t)n * sizeof(real));
        EACH hand[k] = load(whole + k * (int)sizeof(vec));
    }
    vec *at = VECTORS < LANE_VECTORS ? lanes + first / WIDTH % LANE_VECTORS : lanes;
    EACH at[k % LANE_VECTORS] += hand[k];
}

/* Lane l meets lane l + half, for halves of the lanes, of that half, and so on. */
INLINE real join(vec lanes[]) {
    KN_UNROLL(4)
    for (int half = LANE_VECTORS / 2; half; half /= 2) {
        KN_UNROLL(8)
        for (int k = 0; k < half; k++) lanes[k] += lanes[k + half];
    }
    vec v = lanes[0];
    if (WIDTH > 8) v += TURNED(v, 8);
    if (WIDTH > 4) v += TURNED(v, 4);
    if (WIDTH > 2) v += TURNED(v, 2);
    return (v + TURNED(v, 1))[0];
}

/* A link of this call: x is the place of its first element. */
typedef struct here {
    int64_t what;
    int64_t mask; /* -1: the elements follow each other; 0: a single one */
    char *x;
    real p, q;
} here;

/* n elements, STRETCH but for the last; those that are missing count as 0. `whole` is constant. */
INLINE void turn(const here *link, const here *end, int64_t first, int64_t n, bool whole,
                 vec lanes[]) {
    vec hand[VECTORS];
    char rest[STRETCH * sizeof(real)];
    const size_t bytes = (size_t)n * sizeof(real);
    EACH hand[k] = (vec){0};
    if (!whole) __builtin_memset(rest, 0, sizeof rest);
    for (; link < end; link++) {
        const T p = link->p, q = link->q;
        char *at = link->x + (first * (int64_t)sizeof(real) & link->mask);
        const bool step = link->mask;
        if (!whole && step && link->what != KN__LINK_STORE) {
            __builtin_memcpy(rest, at, bytes);
            at = rest;
        }
        (void)p, (void)q;
        switch (link->what) {
            case KN__LINK_LOAD:
                EACH_X(hand[k] = loaded;)
            case KN__LINK_STORE:
                store(whole ? at : rest, hand);
                if (!whole) __builtin_memcpy(at, rest, bytes);
                break;
            case KN__LINK_SUM:
                sum(lanes, first, hand, n);
                break;
#define KN_ROW1 LINKS1
#define KN_ROW2 LINKS2
#define KN_RARE1(...)
#define KN_RARE2(...)
#include <knet/ops.def>
            default:
                __builtin_unreachable();
        }
    }
}

double KN_LOOP(links)(const kn__link *link, int n_links, const uintptr_t base[], int64_t from,
                      int64_t n) {
    here all[KN__LINKS_MAX], *end = all;
    for (int i = 0; i < n_links; i++) {
        const kn__link *l = &link[i];
        const int64_t moved = from * l->moves * (int64_t)sizeof(real);
        char *x = (char *)(base[l->base] + l->x + (uintptr_t)moved);
        *end++ = (here){l->what, -(int64_t)l->stride, x, (real)l->p, (real)l->q};
    }
    vec lanes[LANE_VECTORS] = {{0}};
    int64_t at = 0;
    for (; at + STRETCH <= n; at += STRETCH) turn(all, end, at, STRETCH, true, lanes);
    if (at < n) turn(all, end, at, n - at, false, lanes);
    return link[n_links - 1].what == KN__LINK_SUM ? (double)join(lanes) : 0;
}
