/* The formulas of ops.def as loops of one dtype: T. For the real ones with all derivatives, for
 * integers (KN_ROW_INTEGER is the type, from KN_ROW_MIN to KN_ROW_MAX) without. KN_ROW_RARE: the
 * rare rows alone, in place of the others. */
#include "host/pointwise/rows.h"

#include "host/pointwise/pointwise_math.h"
#include "needs.h"

#pragma GCC diagnostic ignored "-Wtype-limits"          /* x < 0 of what has no sign */
#pragma GCC diagnostic ignored "-Wtautological-compare" /* x != x of integers */

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)

#ifdef KN_ROW_INTEGER
#undef T
#undef T_ABS
#define T KN_ROW_INTEGER
#define T_ABS(x) ((x) < 0 ? -(x) : (x))
#undef T_FMOD
#undef T_MOD
#undef T_FLOOR_DIV
#undef KN_QUOTIENT_IS_FAR
#define KN_QUOTIENT_IS_FAR(x, y) false
#define T_FMOD(x, y) integer_fmod(x, y)
#define T_MOD(x, y) integer_mod(x, y)
#define T_FLOOR_DIV(x, y) integer_floor_div(x, y)
#define HAS_REALS 0
#define NAME KN_ROW_NAME
static inline T integer_fmod(T x, T y) {
    if (y == 0 || (KN_ROW_MIN < 0 && y == (T)-1)) return 0; /* the least number by -1 traps */
    return (T)(x % y);
}
static inline T integer_mod(T x, T y) {
    T rest = integer_fmod(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? (T)(rest + y) : rest;
}
static inline T integer_floor_div(T x, T y) {
    if (y == 0) return 0;
    if (KN_ROW_MIN < 0 && y == (T)-1) return (T)(0 - (uint64_t)x);
    T q = (T)(x / y), rest = (T)(x % y);
    return rest != 0 && (rest < 0) != (y < 0) ? (T)(q - 1) : q;
}
static inline T scalar(double v) { /* the nearest */
    if (v != v) return 0;
    if (v >= (double)KN_ROW_MAX) return KN_ROW_MAX;
    return v <= (double)KN_ROW_MIN ? KN_ROW_MIN : (T)v;
}
#else
#define HAS_REALS 1
#define NAME KN_REAL
static inline T scalar(double v) { return (T)v; }
#endif

/* --- an input, CLASS(variable): its type and name; whether this dtype has rows of the class --- */
#define VAR_FLOAT(n) n
#define VAR_NUMERIC(n) n
#define VAR_ANY(n) n
#define VAR_BOOL(n) n
#define VAR(in) VAR_##in
#define TYPE_FLOAT(n) T
#define TYPE_NUMERIC(n) T
#define TYPE_ANY(n) T
#define TYPE_BOOL(n) uint8_t
#define TYPE(in) TYPE_##in
#define HAS_FLOAT(n) HAS_REALS
#define HAS_NUMERIC(n) 1
#define HAS_ANY(n) 1
#ifdef KN_ROW_BOOLS
#define HAS_BOOL(n) 1
#else
#define HAS_BOOL(n) 0
#endif
#define HAS(in) PASTE(HAS_, in)
#define IF_1(...) __VA_ARGS__
#define IF_0(...)
#define IF(has) PASTE(IF_, has)

/* --- forward --- */
#define LOOP(name)                                                                                 \
    static void name(void *to, const void *const in[], int64_t n, double P, double Q, bool add)
#define START                                                                                      \
    const T p = scalar(P), q = scalar(Q);                                                          \
    (void)p, (void)q, (void)add;
#define EACH KN_SIMD for (int64_t i = 0; i < n; i++)
/* Loops of the domains ANGLE, TANGENT, HALF, POWER, QUOTIENT and ABOVE_ZERO have a second version,
 * kn__far, for arrays with an element that the fast one can't compute: a large angle, one not above
 * 0, a large quotient; or for powers that are no product or root, and derivatives of high order. */
#define FAR_ALL(x, n, forward) false
#define FAR_POSITIVE(x, n, forward) false
#define FAR_KINKS(x, n, forward) false
#define FAR_UNIT(x, n, forward) false
#define FAR_FRACTION(x, n, forward) false
#define FAR_ABOVE_ONE(x, n, forward) false
#define FAR_ANGLE(x, n, forward) KN_ANY_FAR(x, n)
#define FAR_TANGENT(x, n, forward) (forward && KN_ANY_FAR(x, n))
#define FAR_POWER(x, n, forward) kn__power_is_far(p, forward)
#define FAR_HALF(x, n, forward) (forward && kn__any_below(x, n))
#define FAR_ABOVE_ZERO(x, n, forward) (!KN_IS_WIDE && (p > 0 || kn__any_below(x, n)))
/* Elements that are looked at, then computed: few enough to stay in the first cache. */
enum { ALL_AT_ONCE = INT32_MAX / 2, STRETCH = 2048 };
#define STRETCH_ALL ALL_AT_ONCE
#define STRETCH_POSITIVE ALL_AT_ONCE
#define STRETCH_KINKS ALL_AT_ONCE
#define STRETCH_UNIT ALL_AT_ONCE
#define STRETCH_FRACTION ALL_AT_ONCE
#define STRETCH_ABOVE_ONE ALL_AT_ONCE
#define STRETCH_POWER ALL_AT_ONCE
#define STRETCH_ANGLE STRETCH
#define STRETCH_TANGENT STRETCH
#define STRETCH_HALF STRETCH
#define STRETCH_ABOVE_ZERO STRETCH
#define STRETCH_QUOTIENT STRETCH
#define EACH_STRETCH(domain)                                                                       \
    for (int64_t at = 0, all = n; n = all - at, n > 0; at += STRETCH_##domain)                     \
        if (n = n < STRETCH_##domain ? n : STRETCH_##domain, true)
#define IS_FAR_ALL(x, y) false
#define IS_FAR_POSITIVE(x, y) false
#define IS_FAR_KINKS(x, y) false
#define IS_FAR_FRACTION(x, y) false
#define IS_FAR_QUOTIENT(x, y) KN_QUOTIENT_IS_FAR(x, y)
#define EACH_OF(far, body)                                                                         \
    if (far) {                                                                                     \
        enum { kn__far = 1 };                                                                      \
        EACH body                                                                                  \
    } else {                                                                                       \
        enum { kn__far = 0 };                                                                      \
        EACH body                                                                                  \
    }
#define FORWARD1(name, R, domain, x, formula)                                                      \
    LOOP(name##_f) {                                                                               \
        START EACH_STRETCH(domain) {                                                               \
            R *out = (R *)to + at;                                                                 \
            const TYPE(x) *X = (const TYPE(x) *)in[0] + at;                                        \
            EACH_OF(FAR_##domain(X, n, true), {                                                    \
                const TYPE(x) VAR(x) = X[i];                                                       \
                out[i] = (R)(formula);                                                             \
            })                                                                                     \
        }                                                                                          \
    }
/* xi, yi: the element that belongs to result i. */
#define FORWARD2_FORM(name, R, domain, x, y, formula, xi, yi)                                      \
    LOOP(name) {                                                                                   \
        const TYPE(x) x0 = *(const TYPE(x) *)in[0];                                                \
        const TYPE(y) y0 = *(const TYPE(y) *)in[1];                                                \
        (void)x0, (void)y0;                                                                        \
        START EACH_STRETCH(domain) {                                                               \
            R *out = (R *)to + at;                                                                 \
            const TYPE(x) *X = (const TYPE(x) *)in[0] + at;                                        \
            const TYPE(y) *Y = (const TYPE(y) *)in[1] + at;                                        \
            (void)X, (void)Y;                                                                      \
            uint32_t far = 0; /* as wide as an element, so that it is a vector */                  \
            EACH far |= IS_FAR_##domain(xi, yi) ? 1 : 0;                                           \
            EACH_OF(far, {                                                                         \
                const TYPE(x) VAR(x) = xi;                                                         \
                const TYPE(y) VAR(y) = yi;                                                         \
                out[i] = (R)(formula);                                                             \
            })                                                                                     \
        }                                                                                          \
    }
#define FORWARD2(name, R, domain, x, y, formula)                                                   \
    FORWARD2_FORM(name##_f, R, domain, x, y, formula, X[i], Y[i])                                  \
    FORWARD2_FORM(name##_vs, R, domain, x, y, formula, X[i], y0)                                   \
    FORWARD2_FORM(name##_sv, R, domain, x, y, formula, x0, Y[i])
#define FORWARD3(name, R, x, y, w, formula)                                                        \
    LOOP(name##_f) {                                                                               \
        START R *out = to;                                                                         \
        const TYPE(x) *X = in[0];                                                                  \
        const TYPE(y) *Y = in[1];                                                                  \
        const TYPE(w) *W = in[2];                                                                  \
        EACH {                                                                                     \
            const TYPE(x) VAR(x) = X[i];                                                           \
            const TYPE(y) VAR(y) = Y[i];                                                           \
            const TYPE(w) VAR(w) = W[i];                                                           \
            out[i] = (R)(formula);                                                                 \
        }                                                                                          \
    }

/* --- derivatives: in is g, the inputs, z; what a formula doesn't read isn't loaded --- */
#define READS(d) (READS_ d)
#define READS_(reads, formula) reads
#define FORMULA(d) (FORMULA_ d)
#define FORMULA_(reads, formula) formula
#define LOAD(type, name, reads, bit, from)                                                         \
    const type name = (reads) & (bit) ? (from)[i] : (type)0;                                       \
    (void)name;
#define LOAD_IN(d, x, k) LOAD(TYPE(x), VAR(x), READS(d), 1 << k, ((const TYPE(x) *)Xs[k]))
#define LOAD_GZ(d)                                                                                 \
    const T g = READS(d) & ZERO ? 0 : Gs[i];                                                       \
    (void)g;                                                                                       \
    LOAD(T, z, READS(d), Z, Zs)
#if HAS_REALS
#ifdef __clang__
#define APART __attribute__((noinline))
#else
#define APART __attribute__((noipa))
#endif
/* Adds what `loop` gives by overwriting, so that it needs no copy that adds: of second derivatives,
 * rare rows, far versions, and the long formulas of is_long, whose time grows by at most 6 %
 * (AMD EPYC, gcc 12, November 2026). No formula that comes here reads a BOOL. */
static APART void add_by_blocks(kn__row_loop loop, T *out, const void *const in[], int n_in,
                                int64_t n, double P, double Q) {
    enum { BLOCK = 512, INPUTS = 5 };
    T term[BLOCK];
    const void *from[INPUTS];
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t few = n - at < BLOCK ? n - at : BLOCK;
        for (int k = 0; k < n_in; k++) from[k] = in[k] ? (const T *)in[k] + at : NULL;
        loop(term, from, few, P, Q, false);
        KN_SIMD for (int64_t i = 0; i < few; i++) out[at + i] += term[i];
    }
}
#ifdef KN_ROW_RARE
#define IS_LONG(op) true
#else
#define IS_LONG(op) is_long(op)
static inline bool is_long(kn_op op) {
    switch ((int)op) {
        case KN_OP_mish:
        case KN_OP_pow:
        case KN_OP_logistic_terms:
            return true;
        default:
            return false;
    }
}
#endif
#endif /* HAS_REALS */
#define BACK_START(k)                                                                              \
    START T *out = to;                                                                             \
    const T *Gs = in[0], *Zs = in[k + 1];                                                          \
    const void *const *Xs = in + 1;                                                                \
    (void)Gs, (void)Zs, (void)Xs;
#define BACK_BODY(d, assign, ...) LOAD_GZ(d) __VA_ARGS__ out[i] assign(T) FORMULA(d);
#define FIRST(name, wanted, k, domain, d, ...)                                                     \
    LOOP(name##_##wanted) {                                                                        \
        BACK_START(k)                                                                              \
        const bool far = FAR_##domain(Xs[0], n, false);                                            \
        if (add && (far || IS_LONG(KN_OP_##name))) {                                               \
            add_by_blocks(name##_##wanted, out, in, k + 2, n, P, Q);                               \
        } else if (add) {                                                                          \
            enum { kn__far = 0 };                                                                  \
            EACH { BACK_BODY(d, +=, __VA_ARGS__) }                                                 \
        } else {                                                                                   \
            EACH_OF(far, {BACK_BODY(d, =, __VA_ARGS__)})                                           \
        }                                                                                          \
    }
/* Second derivatives are rare: the highest instruction set has the loops of the next one,
 * KN_ROW_SECOND_OF. */
#define SECOND_NAME_(name, real, isa) kn__##name##_##real##_##isa
#define SECOND_NAME(name, real, isa) SECOND_NAME_(name, real, isa)
#ifdef KN_ROW_SECOND_OF
#define SECOND_LOOP(name) SECOND_NAME(name, NAME, KN_ROW_SECOND_OF)
#define SECOND_BODY(...)
#else
#define SECOND_LOOP(name) SECOND_NAME(name, NAME, KN_ISA)
#define SECOND_BODY(loop, k, domain, d, ...)                                                       \
    void loop(void *to, const void *const in[], int64_t n, double P, double Q, bool add) {         \
        BACK_START(k)                                                                              \
        if (add) {                                                                                 \
            add_by_blocks(loop, out, in, k + 2, n, P, Q);                                          \
        } else {                                                                                   \
            EACH_OF(FAR_##domain(Xs[0], n, false), {BACK_BODY(d, =, __VA_ARGS__)})                 \
        }                                                                                          \
    }
#endif
#define SECOND(name, wanted, ...)                                                                  \
    void SECOND_LOOP(name##_##wanted)(void *, const void *const[], int64_t, double, double, bool); \
    SECOND_BODY(SECOND_LOOP(name##_##wanted), __VA_ARGS__)
#define BACK1(order, name, wanted, domain, d, x) order(name, wanted, 1, domain, d, LOAD_IN(d, x, 0))
#define BACK2(order, name, wanted, d, x, y)                                                        \
    order(name, wanted, 2, ALL, d, LOAD_IN(d, x, 0) LOAD_IN(d, y, 1))
#define BACK3(order, name, wanted, d, x, y, w)                                                     \
    order(name, wanted, 3, ALL, d, LOAD_IN(d, x, 0) LOAD_IN(d, y, 1) LOAD_IN(d, w, 2))

/* clang-format off */
#if HAS_REALS
#define MAKE1(name, s, domain, x, formula, e0, e00, third)                                         \
    IF(HAS(x))(FORWARD1(name, T, domain, x, formula) BACK1(FIRST, name, d0, domain, e0, x)        \
                     BACK1(SECOND, name, d00, domain, e00, x))
#define MAKE2(name, s, domain, x, y, formula, e0, e1, e00, e01, e11, third)                        \
    FORWARD2(name, T, domain, x, y, formula)                                                       \
    BACK2(FIRST, name, d0, e0, x, y)                                                              \
    BACK2(FIRST, name, d1, e1, x, y)                                                              \
    BACK2(SECOND, name, d00, e00, x, y)                                                           \
    BACK2(SECOND, name, d01, e01, x, y)                                                           \
    BACK2(SECOND, name, d11, e11, x, y)
#define MAKE3(name, s, domain, x, y, w, formula, e0, e1, e2, e00, e01, e02, e11, e12, e22, third)  \
    FORWARD3(name, T, x, y, w, formula)                                                            \
    BACK3(FIRST, name, d0, e0, x, y, w)                                                           \
    BACK3(FIRST, name, d1, e1, x, y, w)                                                           \
    BACK3(FIRST, name, d2, e2, x, y, w)                                                           \
    BACK3(SECOND, name, d00, e00, x, y, w)                                                        \
    BACK3(SECOND, name, d01, e01, x, y, w)                                                        \
    BACK3(SECOND, name, d02, e02, x, y, w)                                                        \
    BACK3(SECOND, name, d11, e11, x, y, w)                                                        \
    BACK3(SECOND, name, d12, e12, x, y, w)                                                        \
    BACK3(SECOND, name, d22, e22, x, y, w)
#define ENTRY1(name, ...) [KN__ROW_##name] = {name##_f, .d = {name##_d0}, .dd = {{SECOND_LOOP(name##_d00)}}},
#define ENTRY2(name, ...)                                                                          \
    [KN__ROW_##name] = {FORMS(name), .d = {name##_d0, name##_d1},                                  \
                        .dd = {{SECOND_LOOP(name##_d00), SECOND_LOOP(name##_d01)},                 \
                               {SECOND_LOOP(name##_d01), SECOND_LOOP(name##_d11)}}},
#define ENTRY3(name, ...)                                                                          \
    [KN__ROW_##name] = {name##_f, .d = {name##_d0, name##_d1, name##_d2},                          \
                        .dd = {{SECOND_LOOP(name##_d00), SECOND_LOOP(name##_d01), SECOND_LOOP(name##_d02)}, \
                               {SECOND_LOOP(name##_d01), SECOND_LOOP(name##_d11), SECOND_LOOP(name##_d12)}, \
                               {SECOND_LOOP(name##_d02), SECOND_LOOP(name##_d12), SECOND_LOOP(name##_d22)}}},
#else
#define MAKE1(name, s, domain, x, formula, ...) IF(HAS(x))(FORWARD1(name, T, domain, x, formula))
#define MAKE2(name, s, domain, x, y, formula, ...) IF(HAS(y))(FORWARD2(name, T, domain, x, y, formula))
#define MAKE3(name, s, domain, x, y, w, f, ...) IF(HAS(w))(FORWARD3(name, T, x, y, w, f))
#define ENTRY1(name, s, domain, x, ...) IF(HAS(x))([KN__ROW_##name] = {.f = name##_f}, )
#define ENTRY2(name, s, domain, x, y, ...) IF(HAS(y))([KN__ROW_##name] = {FORMS(name)}, )
#define ENTRY3(name, s, domain, x, y, w, ...) IF(HAS(w))([KN__ROW_##name] = {.f = name##_f}, )
#endif
#define FORMS(name) .f = name##_f, .vs = name##_vs, .sv = name##_sv
/* clang-format on */

#ifdef KN_ROW_RARE
#define KN_RARE1 MAKE1
#define KN_RARE2 MAKE2
#include <knet/ops.def>
#define KN_RARE1 ENTRY1
#define KN_RARE2 ENTRY2
#else
#define KN_ROW1 MAKE1
#define KN_ROW2 MAKE2
#define KN_ROW3 MAKE3
#define KN_RARE1(...)
#define KN_RARE2(...)
#define KN_COMPARE(name, domain, x, y, formula)                                                    \
    IF(HAS(y))(FORWARD2(name, uint8_t, domain, x, y, formula))
#define KN_COMPARE1(name, domain, x, formula)                                                      \
    IF(HAS(x))(FORWARD1(name, uint8_t, domain, x, formula))
#include <knet/ops.def>
#define KN_ROW1 ENTRY1
#define KN_ROW2 ENTRY2
#define KN_ROW3 ENTRY3
#define KN_RARE1(...)
#define KN_RARE2(...)
#define KN_COMPARE(name, domain, x, y, ...) IF(HAS(y))([KN__ROW_##name] = {FORMS(name)}, )
#define KN_COMPARE1(name, domain, x, ...) IF(HAS(x))([KN__ROW_##name] = {.f = name##_f}, )
#endif

#define TABLE_(name, isa) kn__rows_##name##_##isa
#define TABLE(name, isa) TABLE_(name, isa)
extern const kn__row_loops TABLE(NAME, KN_ISA)[];
const kn__row_loops TABLE(NAME, KN_ISA)[KN__ROW_COUNT] = {
#include <knet/ops.def>
};
