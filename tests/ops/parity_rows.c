/* Cases of pointwise rows, their gradients and comparisons: from the op table. */
#include <math.h>

#include "parity_case.h"

typedef enum domain {
    ALL,
    POSITIVE,
    KINKS,
    UNIT,
    FRACTION,
    ABOVE_ONE,
    ANGLE,
    TANGENT,
    HALF,
    QUOTIENT,
    POWER,
    ABOVE_ZERO
} domain;
static const domain domain_of[KN_OP_COUNT] = {
#define ROW(name, d) [KN_OP_##name] = d, [KN_OP_##name##_back] = d, [KN_OP_##name##_back2] = d,
#define KN_ROW1(name, s, domain, ...) ROW(name, domain)
#define KN_ROW2(name, s, domain, ...) ROW(name, domain)
#define KN_ROW3(name, s, domain, ...) ROW(name, domain)
#define KN_COMPARE(name, domain, ...) [KN_OP_##name] = domain,
#define KN_COMPARE1(name, domain, ...) [KN_OP_##name] = domain,
#include <knet/ops.def>
};

static kn_op row_of(kn_op op) { return (kn_op)(op - kn_op_table[op].order); }

static bool is_exact(kn_op op) { /* a single rounding at most */
    switch ((int)op) {
        case KN_OP_neg:
        case KN_OP_abs:
        case KN_OP_sign:
        case KN_OP_relu:
        case KN_OP_clamp:
        case KN_OP_hardtanh:
        case KN_OP_maximum:
        case KN_OP_minimum:
        case KN_OP_add:
        case KN_OP_sub:
        case KN_OP_mul:
        case KN_OP_where:
        case KN_OP_square:
        case KN_OP_floor:
        case KN_OP_ceil:
        case KN_OP_trunc:
        case KN_OP_round:
        case KN_OP_copysign:
        case KN_OP_hardshrink:
        case KN_OP_softshrink:
            return true;
        default:
            return kn_op_table[op].out[0] == KN_BOOL;
    }
}

static parity_fill fill_of_domain(kn_op op) {
    static const parity_fill fills[] = {
        [ALL] = FILL_UNIFORM,    [POSITIVE] = FILL_POSITIVE,   [KINKS] = FILL_TIES,
        [UNIT] = FILL_UNIT,      [FRACTION] = FILL_FRACTION,   [ABOVE_ONE] = FILL_ABOVE_ONE,
        [ANGLE] = FILL_UNIFORM,  [HALF] = FILL_UNIFORM,        [QUOTIENT] = FILL_POSITIVE,
        [POWER] = FILL_POSITIVE, [ABOVE_ZERO] = FILL_POSITIVE, [TANGENT] = FILL_FRACTION};
    return fills[domain_of[op]];
}

static bool is_integer(kn_dtype dtype) {
    return dtype == KN_I64 || dtype == KN_I32 || dtype == KN_U8;
}

/* Input k of op, of a row's dtype. */
static parity_operand row_input(kn_op op, int k, kn_dtype dtype, parity_operand shape) {
    bool is_bool = (kn_op_table[op].in[k] & KN_CLASS_ANY) == KN_CLASS_BOOL || dtype == KN_BOOL;
    parity_operand x = like(shape, fill_of_domain(op));
    if (is_integer(dtype)) x.fill = k ? FILL_TIES : FILL_WIDE;
    if (is_bool) x.fill = FILL_INDEX, x.limit = 2;
    x.dtype = is_bool ? KN_BOOL : dtype;
    return x;
}

static void set_scalars(parity_case *c, double p, double q) {
    if (kn_op_table[c->op].attr_bytes) ATTR(c, kn_attr_scalars, p, q);
}

static parity_case *row(kn_op op, kn_dtype dtype, const parity_operand *shape, parity_operand out) {
    parity_case *c = parity_add(op, is_exact(op) ? COMPARE_EXACT : COMPARE_CLOSE);
    bool is_bool = kn_op_table[op].out[0] == KN_BOOL;
    c->n_in = kn_op_table[op].n_in;
    for (int k = 0; k < c->n_in; k++) c->in[k] = row_input(op, k, dtype, shape[k]);
    c->out[0] = of_dtype(like(out, FILL_GUARD), is_bool ? KN_BOOL : dtype);
    set_scalars(c, -0.5, 0.75);
    return c;
}

static void row_of_one_shape(kn_op op, parity_operand shape) {
    row(op, (kn_dtype)0, (parity_operand[]){shape, shape, shape}, shape);
}

typedef struct broadcast {
    parity_operand x[3], out;
} broadcast;
/* The operands of rows of one to three inputs; the third one is the largest. */
#define BROADCASTS                                                                                 \
    {{U(6, 10), SCALAR(UNIFORM), U(1, 10)}, U(6, 10)}, {{U(1), U(7, 33), U(7, 1)}, U(7, 33)},      \
        {{U(13, 128), U(128), SCALAR(UNIFORM)}, U(13, 128)},                                       \
        {{U(5, 1), U(1, 9), U(5, 9)}, U(5, 9)},                                                    \
        {{U(3, 1, 4, 1), U(2, 1, 5), U(2, 4, 5)}, U(3, 2, 4, 5)}, {                                \
        {U(2, 1, 2, 1, 2, 1, 2, 1), U(1, 3, 1, 3, 1, 3, 1, 3), U(1)}, U(2, 3, 2, 3, 2, 3, 2, 3)    \
    }

static void row_forward(kn_op op) {
    const broadcast broadcasts[] = {BROADCASTS};
    const kn_op_info *info = &kn_op_table[op];
    uint32_t dtypes = info->in[info->n_in - 1];
    if (!(dtypes & KN_CLASS_REAL)) { /* logic */
        row(op, KN_BOOL, (parity_operand[]){U(1031), U(1031)}, U(1031));
        row(op, KN_BOOL, broadcasts[3].x, broadcasts[3].out);
        return;
    }
    parity_each_shape(row_of_one_shape, op);
    for (int i = 0; i < 6 && info->n_in > 1; i++) {
        row(op, (kn_dtype)0, broadcasts[i].x, broadcasts[i].out);
    }
    for (int dtype = KN_F16; dtype <= KN_BOOL; dtype++) {
        if (!(dtypes >> dtype & 1)) continue;
        row(op, (kn_dtype)dtype, (parity_operand[]){U(1031), U(1031), U(1031)}, U(1031));
        if (info->n_in > 1) row(op, (kn_dtype)dtype, broadcasts[4].x, broadcasts[4].out);
    }
}

/* --- their gradients --- */

/* Operands of back: g, x…, z; of back2: u…, x…, z. Those that no wanted result reads are absent.
 * `given_u`: which of u… are there. */
typedef struct wanted {
    uint8_t results, accumulate, given_u;
} wanted;

static uint32_t reads_of(kn_op op, int i, int j) {
    const kn_op_needs *needs = &kn_op_needs_table[row_of(op)];
    return kn_op_table[op].order == 1 ? needs->first[j] : needs->second[i][j];
}

/* A bit for each operand that one of the wanted results reads. */
static uint32_t operands_read(kn_op op, wanted w) {
    int k = kn_op_table[op].row, x = kn_op_table[op].order == 1 ? 1 : k;
    uint32_t all = 0;
    for (int j = 0; j < k; j++) {
        for (int i = 0; i < x && (w.results >> j & 1); i++) {
            uint32_t reads = reads_of(op, i, j);
            if (!(w.given_u >> i & 1) || (reads & KN_NEED_ZERO)) continue;
            all |= 1u << i | (reads & 0xFF) << x | (reads >> KN_NEED_OUT & 1) << (x + k);
        }
    }
    return all;
}

static void back(kn_op op, kn_dtype dtype, wanted w, const broadcast *shapes) {
    const kn_op_info *info = &kn_op_table[op];
    int k = info->row, x = info->order == 1 ? 1 : k;
    uint32_t read = operands_read(op, w) | w.given_u;
    parity_case *c = parity_add(op, COMPARE_CLOSE);
    c->n_in = info->n_in;
    for (int i = 0; i < x; i++) c->in[i] = of_dtype(like(shapes->out, FILL_UNIFORM), dtype);
    for (int i = 0; i < k; i++) c->in[x + i] = row_input(row_of(op), i, dtype, shapes->x[i]);
    c->in[x + k] = of_dtype(like(shapes->out, fill_of_domain(op)), dtype);
    for (int i = 0; i < c->n_in; i++) {
        if (!(read >> i & 1)) c->in[i] = NONE;
    }
    for (int j = 0; j < k; j++) {
        parity_fill fill = w.accumulate >> j & 1 ? FILL_UNIFORM : FILL_GUARD;
        if (w.results >> j & 1) c->out[j] = of_dtype(like(shapes->out, fill), dtype);
    }
    c->accumulate = w.accumulate & w.results;
    set_scalars(c, -0.5, 0.75);
}

static void back_shape(kn_op op, parity_operand shape) {
    uint8_t all = (uint8_t)((1u << kn_op_table[op].row) - 1);
    back(op, (kn_dtype)0, (wanted){all, 0, kn_op_table[op].order == 1 ? 1 : all},
         &(broadcast){{shape, shape, shape}, shape});
}

static void row_back(kn_op op) {
    const broadcast broadcasts[] = {BROADCASTS}, same = {{U(67), U(67), U(67)}, U(67)};
    const kn_op_info *info = &kn_op_table[op];
    uint8_t all = (uint8_t)((1u << info->row) - 1), u = info->order == 1 ? 1 : all;
    parity_each_shape(back_shape, op);
    for (int i = 0; i < 6 && info->row > 1; i++) {
        wanted w = {all, i % 2 ? all : 0, u};
        back(op, (kn_dtype)0, w, &broadcasts[i]);
    }
    for (uint8_t results = 1; results <= all; results++) {
        for (uint8_t given_u = 1; given_u <= u; given_u++) {
            back(op, (kn_dtype)0, (wanted){results, 0, given_u}, &same);
            back(op, (kn_dtype)0, (wanted){results, all, given_u}, &same);
        }
    }
    back(op, (kn_dtype)0, (wanted){all, 1, u}, &same);
    for (int dtype = KN_F16; dtype <= KN_BF16; dtype++) {
        back(op, (kn_dtype)dtype, (wanted){all, all, u}, &same);
        back(op, (kn_dtype)dtype, (wanted){all, 0, u}, &broadcasts[4]);
    }
}

static void specials(kn_op op) { /* NaN, infinities, signed zeros */
    parity_operand x = OPERAND(SPECIAL, 1000);
    parity_case *c = row(op, (kn_dtype)0, (parity_operand[]){x, x}, x);
    c->in[0] = c->in[1] = x;
}

static void specials_of_one(kn_op op, parity_fill fill) {
    parity_operand x = like(U(1003), fill);
    parity_case *c = row(op, (kn_dtype)0, &x, x);
    c->in[0] = x, c->compare = COMPARE_EXACT;
}

static void relu_back_of_specials(void) {
    parity_case *c = parity_add(KN_OP_relu_back, COMPARE_EXACT);
    c->n_in = 3, c->in[0] = U(1003), c->in[2] = OPERAND(SPECIAL, 1003);
    c->out[0] = OPERAND(GUARD, 1003);
}

static void far_back(kn_op op) {
    parity_operand x = OPERAND(WIDE, 1003);
    back(op, (kn_dtype)0, (wanted){1, 0, 1}, &(broadcast){{x}, x});
    parity_last()->in[1] = x;
}

/* Without v: what v would be multiplied by is infinite or no number, and stays out. */
static void div_back2_of_specials(void) {
    parity_operand x = OPERAND(SPECIAL, 1003);
    back(KN_OP_div_back2, (kn_dtype)0, (wanted){3, 0, 1}, &(broadcast){{x, x}, x});
    parity_last()->in[3] = x;
}

static void scalars_of(kn_op op, kn_dtype dtype, double p, double q) {
    const broadcast same = {{U(77), U(77), U(77)}, U(77)};
    set_scalars(row(op, dtype, same.x, same.out), p, q);
    if (is_integer(dtype)) return;
    for (int order = 1; order < 3; order++) {
        back((kn_op)((int)op + order), dtype, (wanted){1, 0, 1}, &same);
        set_scalars(parity_last(), p, q);
    }
}

/* Rows of whole packs of 16 bytes, with operands that are broadcast along them, across and both. */
static void packs_of(kn_op op) {
    static const kn_dtype dtypes[] = {(kn_dtype)0, KN_F16, KN_BF16, KN_I32};
    const broadcast shapes[] = {{{U(19, 1), U(16), U(19, 16)}, U(19, 16)},
                                {{U(3, 1, 32), U(5, 1), U(3, 5, 32)}, U(3, 5, 32)},
                                {{U(3, 5, 1, 8), U(1, 7, 1), U(5, 7, 8)}, U(3, 5, 7, 8)},
                                {{U(40, 4), U(1, 4), U(1)}, U(40, 4)}};
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < 4; i++) row(op, dtypes[t], shapes[i].x, shapes[i].out);
}

void parity_row_cases(void) {
    for (int op = 0; op < KN_OP_COUNT; op++) {
        const kn_op_info *info = &kn_op_table[op];
        if (info->row && info->order == 0) row_forward((kn_op)op);
        if (info->row && info->order > 0) row_back((kn_op)op);
        if (info->row && info->out[0] == KN_BOOL && (info->in[0] & KN_CLASS_REAL))
            specials((kn_op)op);
    }
    packs_of(KN_OP_add);
    packs_of(KN_OP_where);
    packs_of(KN_OP_lt);
    specials(KN_OP_maximum);
    specials(KN_OP_minimum);
    specials(KN_OP_add);
    specials_of_one(KN_OP_relu, FILL_SPECIAL);
    relu_back_of_specials();
    div_back2_of_specials();
    far_back(KN_OP_gelu_tanh_back);
    far_back(KN_OP_gelu_tanh_back2);
    specials_of_one(KN_OP_sigm, FILL_SPECIAL);
    specials_of_one(KN_OP_sigm, FILL_WIDE);
    static const double powers[] = {0, 0.5, 1, -1, 2, 3, 1.7, 4};
    for (size_t i = 0; i < sizeof powers / sizeof *powers; i++) {
        scalars_of(KN_OP_pow_scalar, (kn_dtype)0, powers[i], 0);
    }
    scalars_of(KN_OP_clamp, KN_I32, -3.7, 200);
    scalars_of(KN_OP_clamp, KN_I64, -1e30, 1e9);
    scalars_of(KN_OP_clamp, KN_U8, 2.5, 1e9);
    scalars_of(KN_OP_clamp, KN_I32, NAN, INFINITY);
}
