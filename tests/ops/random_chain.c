#include "random_chain.h"

#include "test.h"

bool chain_op_is_step(kn_op op) { return kn_op_table[op].row || op == KN_OP_cast; }

static unsigned new_operand(kn__chain *c, kn_dtype dtype) {
    int k = c->n_operands++;
    c->dtype[k] = (uint8_t)dtype;
    c->kind[k] = (uint8_t)test_random_below(c->n_dims ? 3 : 2);
    return (unsigned)(KN__CHAIN_STEPS + k);
}

/* whole: as large as the result, which casts need. */
static unsigned value_of(kn__chain *c, kn_dtype dtype, bool whole) {
    unsigned found[KN__CHAIN_STEPS + KN__CHAIN_OPERANDS];
    unsigned n = 0;
    for (unsigned i = 0; i < c->n_steps; i++) {
        if (c->step[i].to == dtype) found[n++] = i;
    }
    for (unsigned k = 0; k < c->n_operands; k++) {
        bool fits = !whole || c->kind[k] == KN__CHAIN_DENSE;
        if (fits && c->dtype[k] == dtype) found[n++] = KN__CHAIN_STEPS + k;
    }
    bool fresh = !n || (c->n_operands < KN__CHAIN_OPERANDS / 2 && test_random_below(3) == 0);
    if (!fresh) return found[test_random_below(n)];
    unsigned made = new_operand(c, dtype);
    if (whole) c->kind[made - KN__CHAIN_STEPS] = KN__CHAIN_DENSE;
    return made;
}

/* The dtype of input k of a row, or of its derivatives: g or u…, x…, z. */
static kn_dtype input_dtype(const kn_op_info *info, int k, kn_dtype dtype) {
    int first = info->order == 2 ? info->row : info->order;
    const kn_op_info *row = info - info->order;
    bool is_x = k >= first && k < first + info->row;
    return is_x && row->in[k - first] == KN_CLASS_BOOL ? KN_BOOL : dtype;
}

bool chain_add(kn__chain *c, kn_op op, kn_dtype dtype, int r, bool store) {
    const kn_op_info *info = &kn_op_table[op], *row = info - info->order;
    kn__chain_step s = {.op = (uint16_t)op, .dtype = (uint8_t)dtype};
    s.r = (uint8_t)(info->order ? r : 0);
    bool casts = op == KN_OP_cast;
    int n_in = casts ? 1 : info->row;
    if (info->order) n_in += 1 + (info->order == 1 ? 1 : info->row);
    unsigned allowed = casts ? KN_CLASS_ANY : row->in[info->row - 1];
    if (info->order) allowed &= KN_CLASS_FLOAT;
    if (!(allowed >> dtype & 1) || c->n_steps == KN__CHAIN_STEPS) return false;
    if (c->n_operands + n_in > KN__CHAIN_OPERANDS) return false;
    if (info->order && r >= info->row) return false;
    s.n_in = (uint8_t)n_in;
    for (int k = 0; k < n_in; k++) {
        s.in[k] = (uint8_t)value_of(c, casts ? dtype : input_dtype(info, k, dtype), casts);
    }
    bool is_bool = !casts && row->out[0] == KN_BOOL;
    s.to = (uint8_t)(casts ? 1 + test_random_below(KN_BOOL) : is_bool ? KN_BOOL : dtype);
    s.stored = store;
    c->step[c->n_steps++] = s;
    return true;
}

kn__chain chain_random(int steps, int n_dims) {
    kn__chain c;
    memset(&c, 0, sizeof c);
    c.n_dims = (uint8_t)n_dims;
    kn_dtype dtypes[] = {(kn_dtype)(1 + test_random_below(KN_BOOL)), KN_F32};
    for (int tries = 0; tries < 400 && c.n_steps < steps; tries++) {
        kn_op op = (kn_op)test_random_below(KN_OP_COUNT);
        if (test_random_below(8) == 0) op = KN_OP_cast;
        kn_dtype dtype = test_random_below(5) ? dtypes[test_random_below(2)]
                         : c.n_steps          ? (kn_dtype)c.step[c.n_steps - 1].to
                                              : KN_F64;
        if (!chain_op_is_step(op)) continue;
        bool last = c.n_steps == steps - 1;
        (void)chain_add(&c, op, dtype, (int)test_random_below(3),
                        last || test_random_below(4) == 0);
    }
    c.step[c.n_steps - 1].stored = 1;
    int n_parts = 0;
    for (int i = 0; i < c.n_steps && c.n_dims; i++) {
        bool part = c.step[i].stored && n_parts < KN__CHAIN_PARTS && test_random_below(3) == 0;
        if (part) c.step[i].part = (uint8_t)++n_parts;
    }
    bool strides = n_parts > 0;
    for (int k = 0; k < c.n_operands; k++) strides |= c.kind[k] == KN__CHAIN_STRIDED;
    if (!strides) c.n_dims = 0;
    return c;
}
