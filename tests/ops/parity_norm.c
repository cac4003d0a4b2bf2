/* Cases of normalization: by channels of a batch, and by rows. */
#include "parity_case.h"

static parity_operand guard(parity_operand o) { return like(o, FILL_GUARD); }

enum {
    WEIGHT = 1,
    BIAS = 2,
    RUNNING = 4,
    STATISTICS = 8,
    NO_RESULT = 16,
    SPECIAL = 32,
    LARGE = 64
};

static parity_operand filled(parity_operand x, int has) {
    return like(x, has & SPECIAL ? FILL_SPECIAL : has & LARGE ? FILL_LARGE : FILL_UNIFORM);
}

static kn_attr_normalize attr_of(int64_t outer, int64_t groups, int64_t channels, int64_t inner) {
    return (kn_attr_normalize){1e-3, 0.3, outer, groups, channels, inner, NULL, 0};
}

static void set_back(parity_case *c, parity_operand x, parity_operand channels,
                     parity_operand statistics, int has, int want) {
    c->n_in = 5, c->in[0] = x, c->in[1] = x;
    if (has & WEIGHT) c->in[2] = like(channels, FILL_POSITIVE);
    c->in[3] = statistics, c->in[4] = like(statistics, FILL_POSITIVE);
    if (want & 1) c->out[0] = guard(x);
    if (want & 2) c->out[1] = guard(channels);
    if (want & 4) c->out[2] = guard(channels);
}

/* x [outer, channels, inner] */
static void batch_of(int64_t outer, int64_t channels, int64_t inner, int has) {
    kn_attr_normalize attr = attr_of(outer, 1, channels, inner);
    parity_operand x = filled(U(outer, channels, inner), has), row = U(channels);
    parity_case *c = parity_add(KN_OP_batchnorm, COMPARE_CLOSE);
    c->n_in = 5, c->in[0] = x;
    if (has & RUNNING) c->in[1] = row, c->in[2] = like(row, FILL_POSITIVE);
    if (has & WEIGHT) c->in[3] = row;
    if (has & BIAS) c->in[4] = row;
    if (!(has & NO_RESULT)) c->out[0] = guard(x);
    if (has & STATISTICS) c->out[1] = guard(row), c->out[2] = guard(row);
    set_attr(c, &attr, sizeof attr);
    for (attr.by_rstd = 0; attr.by_rstd < 2; attr.by_rstd++) {
        c = parity_add(KN_OP_batchnorm_eval, COMPARE_CLOSE);
        c->n_in = 5, c->in[0] = x, c->in[1] = row, c->in[2] = like(row, FILL_POSITIVE);
        if (has & WEIGHT) c->in[3] = row;
        if (has & BIAS) c->in[4] = row;
        c->out[0] = guard(x);
        set_attr(c, &attr, sizeof attr);
    }
    attr.by_rstd = 0;
    for (int want = has & WEIGHT ? 7 : 1; want > 0; want -= 3) {
        c = parity_add(KN_OP_batchnorm_back, COMPARE_CLOSE);
        set_back(c, x, row, row, has, want);
        set_attr(c, &attr, sizeof attr);
    }
}

static void rows_of(kn_op op, kn_attr_normalize attr, int has) {
    parity_operand x = filled(U(attr.outer, attr.groups, attr.channels, attr.inner), has);
    parity_operand channels = U(attr.groups * attr.channels), rows = U(attr.outer * attr.groups);
    bool centred = op != KN_OP_rmsnorm;
    parity_case *c = parity_add(op, COMPARE_CLOSE);
    c->n_in = centred ? 3 : 2, c->in[0] = x;
    if (has & WEIGHT) c->in[1] = channels;
    if (centred && has & BIAS) c->in[2] = channels;
    c->out[0] = guard(x);
    if (has & STATISTICS) c->out[1] = guard(rows);
    if (has & STATISTICS && centred) c->out[2] = guard(rows);
    set_attr(c, &attr, sizeof attr);
    for (int want = has & WEIGHT ? 7 : 1; want > 0; want -= 3) {
        c = parity_add(KN_OP_rownorm_back, COMPARE_CLOSE);
        set_back(c, x, channels, rows, has, want);
        if (!centred) c->in[3] = NONE;
        set_attr(c, &attr, sizeof attr);
    }
}

static void layer_of(int64_t rows, int64_t n, int has) {
    rows_of(KN_OP_layernorm, attr_of(rows, 1, n, 1), has);
    rows_of(KN_OP_rmsnorm, attr_of(rows, 1, n, 1), has);
}

static void no_rows_of(kn_op op, parity_operand statistics, kn_attr_normalize attr) {
    parity_case *c = parity_add(op, COMPARE_EXACT); /* zeros */
    set_back(c, U(0, 1, 6, 1), U(6), statistics, WEIGHT, 7);
    set_attr(c, &attr, sizeof attr);
}

void parity_norm_cases(void) {
    const int all = WEIGHT | BIAS | RUNNING | STATISTICS, before = parity_count();
    batch_of(4, 6, 64, all);
    batch_of(3, 5, 49, all);
    batch_of(2, 17, 1031, all);
    batch_of(5, 33, 1, all);
    batch_of(700, 7, 1, all);
    batch_of(5, 1100, 1, all);
    batch_of(200, 600, 1, all);
    batch_of(300, 3, 16, STATISTICS);
    batch_of(9, 2, 2000, WEIGHT | STATISTICS);
    batch_of(1, 3, 5, BIAS);
    batch_of(2, 1, 1, RUNNING);
    batch_of(6, 4, 12, RUNNING | STATISTICS | NO_RESULT);
    layer_of(7, 1, all);
    layer_of(33, 32, all);
    layer_of(20, 101, all);
    layer_of(130, 64, WEIGHT);
    layer_of(9, 1000, all);
    layer_of(3, 5000, BIAS | STATISTICS);
    layer_of(2, 9001, all);
    layer_of(1, 20, 0);
    rows_of(KN_OP_groupnorm, attr_of(3, 2, 4, 9), all);
    rows_of(KN_OP_groupnorm, attr_of(2, 3, 2, 64), WEIGHT);
    rows_of(KN_OP_groupnorm, attr_of(5, 7, 1, 130), all);
    rows_of(KN_OP_groupnorm, attr_of(6, 3, 5, 1), all);
    rows_of(KN_OP_groupnorm, attr_of(2, 1, 3, 700), BIAS);
    no_rows_of(KN_OP_rownorm_back, U(0), attr_of(0, 1, 6, 1));
    no_rows_of(KN_OP_batchnorm_back, U(6), attr_of(0, 1, 6, 1));
    layer_of(6, 136, all); /* of 16 bits: packs of 8 */
    layer_of(3, 2048, all);
    layer_of(5, 255, all);
    for (int fill = SPECIAL; fill <= LARGE; fill *= 2) {
        batch_of(4, 12, 40, all | fill);
        batch_of(50, 20, 1, all | fill);
        layer_of(40, 7, all | fill);
        layer_of(9, 256, all | fill);
        layer_of(2, 9000, all | fill);
        rows_of(KN_OP_groupnorm, attr_of(4, 3, 2, 25), all | fill);
    }
    parity_halves_of(parity_count() - before);
}
