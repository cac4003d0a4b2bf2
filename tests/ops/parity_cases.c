/* The table. Shapes on purpose: no dimensions, one element, primes, sizes around the widths of
 * vectors, warps and blocks, and some that need several blocks or passes. */
#include "parity_case.h"

static parity_table *table;

parity_case *parity_add(kn_op op, parity_compare compare) {
    if (table->n == table->n_room) {
        table->n_room = table->n_room ? 2 * table->n_room : 256;
        table->cases = realloc(table->cases, (size_t)table->n_room * sizeof *table->cases);
        if (!table->cases) abort();
    }
    parity_case *c = &table->cases[table->n++];
    memset(c, 0, sizeof *c);
    c->op = op, c->compare = compare;
    /* Counted per op: the name decides the data, which another op's cases must not change. */
    static int n_cases[KN_OP_COUNT];
    if (table->n == 1) memset(n_cases, 0, sizeof n_cases);
    snprintf(c->name, sizeof c->name, "%s/%d", kn_op_name(op), ++n_cases[op]);
    return c;
}

parity_case *parity_last(void) { return &table->cases[table->n - 1]; }
int parity_count(void) { return table->n; }

void parity_each_shape(void (*body)(kn_op op, parity_operand shape), kn_op op) {
    body(op, SCALAR(UNIFORM));
    body(op, OPERAND(UNIFORM, 1));
    body(op, OPERAND(UNIFORM, 4, 0));
    body(op, OPERAND(UNIFORM, 3, 5, 7));
    body(op, OPERAND(UNIFORM, 256, 4));
    body(op, OPERAND(UNIFORM, 2, 1, 1031, 17));
}

/* COMPUTED operands stay f32 beside those of 16 bits. */
void parity_halves_of(int n) {
    for (int i = table->n - n, end = table->n; i < end; i++)
        for (int half = KN_F16; half <= KN_BF16; half++) {
            parity_case *c = parity_add(table->cases[i].op, table->cases[i].compare), named = *c;
            *c = table->cases[i]; /* where it is now */
            memcpy(c->name, named.name, sizeof c->name);
            const kn_op_info *info = &kn_op_table[c->op];
            for (int k = 0; k < PARITY_BUFFERS; k++) {
                int r = k - PARITY_OUT;
                parity_operand *o = r < 0 ? &c->in[k] : &c->out[r];
                bool wide =
                    r < 0 ? info->in[k] & KN_CLASS_COMPUTED : info->out[r] == KN_OUT_COMPUTED;
                if (!o->dtype) o->dtype = (kn_dtype)(wide ? KN_F32 : half);
            }
        }
}

/* --- one value --- */

static void fill_with(kn_dtype dtype, double value, parity_operand shape) {
    parity_case *c = parity_add(KN_OP_fill, COMPARE_EXACT);
    c->out[0] = of_dtype(like(shape, FILL_GUARD), dtype);
    ATTR(c, kn_attr_make, .a = value);
}

static void fill_cases(void) {
    fill_with((kn_dtype)0, 0.3, U(1031));
    fill_with((kn_dtype)0, 0, U(5, 7));
    for (int dtype = KN_F32; dtype <= KN_BOOL; dtype++) fill_with((kn_dtype)dtype, 1, U(13001));
}

/* --- relu with the bias before it --- */

static void relu_bias_of(int axis, bool accumulate, parity_operand x) {
    parity_case *c = parity_add(KN_OP_relu_bias_back, COMPARE_CLOSE);
    c->n_in = 2, c->in[0] = like(x, FILL_TIES), c->in[1] = x, c->out[0] = like(x, FILL_GUARD);
    c->out[1] = U(x.shape.dim[axis]), c->accumulate = accumulate ? 2 : 0;
    if (!accumulate) c->out[1].fill = FILL_GUARD;
    ATTR(c, kn_attr_axes, ((1u << x.shape.n_dims) - 1) & ~(1u << axis), false);
}

static void relu_bias_cases(void) {
    relu_bias_of(0, false, U(10));
    relu_bias_of(1, false, U(100, 64));
    relu_bias_of(1, true, U(37, 131));
    relu_bias_of(1, true, U(1501, 20));
    relu_bias_of(2, false, U(3, 7, 260));
    relu_bias_of(1, false, U(5, 3, 12, 12));
    relu_bias_of(1, true, U(5, 3, 7, 5));
    relu_bias_of(1, true, U(17, 2, 96, 96));
    relu_bias_of(1, false, U(2, 3, 50));
    parity_case *c = parity_add(KN_OP_relu_bias_back, COMPARE_CLOSE);
    c->n_in = 2, c->in[0] = OPERAND(SPECIAL, 40, 30), c->in[1] = U(40, 30);
    c->out[0] = OPERAND(GUARD, 40, 30), c->out[1] = OPERAND(GUARD, 30);
    ATTR(c, kn_attr_axes, 1, false);
}

/* --- products --- */

static void matmul_of(int64_t m, int64_t k, int64_t n, int trans, bool accumulate) {
    parity_case *c = parity_add(KN_OP_matmul, COMPARE_CLOSE);
    c->n_in = 2, c->accumulate = accumulate;
    c->in[0] = trans & 1 ? U(k, m) : U(m, k);
    c->in[1] = trans & 2 ? U(n, k) : U(k, n);
    c->out[0] = accumulate ? U(m, n) : OPERAND(GUARD, m, n);
    ATTR(c, kn_attr_matmul, (trans & 1) != 0, (trans & 2) != 0);
}

static void batched_matmul_of(parity_operand a, parity_operand b, parity_operand out, int trans,
                              bool accumulate) {
    parity_case *c = parity_add(KN_OP_matmul, COMPARE_CLOSE);
    c->n_in = 2, c->in[0] = a, c->in[1] = b, c->accumulate = accumulate;
    c->out[0] = accumulate ? out : like(out, FILL_GUARD);
    ATTR(c, kn_attr_matmul, (trans & 1) != 0, (trans & 2) != 0);
}

static void linear_of(parity_operand x, parity_operand out, int64_t outputs, bool bias) {
    parity_case *c = parity_add(KN_OP_linear, COMPARE_CLOSE);
    int64_t inputs = x.shape.dim[x.shape.n_dims - 1];
    c->n_in = 3, c->in[0] = x, c->in[1] = U(outputs, inputs);
    if (bias) c->in[2] = U(outputs);
    c->out[0] = like(out, FILL_GUARD);
}

static void product_cases(void) {
    for (int trans = 0; trans < 4; trans++) {
        matmul_of(1, 1, 1, trans, false);
        matmul_of(5, 7, 3, trans, false);
        matmul_of(64, 128, 32, trans, false);
        matmul_of(127, 65, 33, trans, true);
        matmul_of(1, 300, 40, trans, false);
        matmul_of(100, 784, 10, trans, false);
    }
    parity_halves_of(5); /* one of them accumulates */
    matmul_of(256, 512, 256, 0, true);
    matmul_of(3, 0, 4, 0, false);
    matmul_of(3, 0, 4, 2, true);
    batched_matmul_of(U(3, 5, 7), U(3, 7, 4), U(3, 5, 4), 0, false);
    batched_matmul_of(U(2, 3, 7, 5), U(2, 3, 4, 7), U(2, 3, 5, 4), 3, false);
    batched_matmul_of(U(4, 33, 17), U(4, 9, 17), U(4, 33, 9), 2, true);
    batched_matmul_of(U(2, 3, 0), U(2, 0, 4), U(2, 3, 4), 0, true);
    batched_matmul_of(U(2, 3, 0), U(2, 0, 4), U(2, 3, 4), 0, false);
    linear_of(U(100, 784), U(100, 64), 64, true);
    linear_of(U(100, 64), U(100, 10), 10, true);
    linear_of(U(100, 64), U(100, 10), 10, false);
    linear_of(U(3, 5, 17), U(3, 5, 9), 9, true);
    parity_halves_of(3);
    linear_of(U(11), U(1), 1, true);
    linear_of(U(1, 1), U(1, 1), 1, true);
    linear_of(U(2, 0), U(2, 3), 3, true);
}

/* --- convolution --- */

typedef struct geometry {
    int64_t batch, in, out, x[3], w[3];
    kn_attr_conv attr;
} geometry;

static kn_shape with_spatial(int64_t a, int64_t b, const int64_t *spatial, int n) {
    kn_shape shape = {.dim = {a, b}, .n_dims = 2 + n};
    for (int d = 0; d < n; d++) shape.dim[2 + d] = spatial[d];
    return shape;
}

/* With the sizes that the gradients' results have. */
static void set_conv_attr(parity_case *c, kn_attr_conv attr, const int64_t *size) {
    for (int d = 0; d < attr.n_spatial && size; d++) attr.size[d] = size[d];
    set_attr(c, &attr, sizeof attr);
}

/* conv, conv_data and conv_weight of one geometry. */
static void conv_of(geometry g, bool bias) {
    int n = g.attr.n_spatial;
    int64_t y[3];
    for (int d = 0; d < n; d++) {
        int64_t span = g.attr.dilation[d] * (g.w[d] - 1) + 1;
        int64_t padded = g.x[d] + g.attr.padding[d] + g.attr.padding_end[d];
        y[d] = (padded - span) / g.attr.stride[d] + 1;
    }
    parity_operand x = {.fill = FILL_UNIFORM, .shape = with_spatial(g.batch, g.in, g.x, n)};
    parity_operand w = {.fill = FILL_UNIFORM,
                        .shape = with_spatial(g.out, g.in / g.attr.groups, g.w, n)};
    parity_operand out = {.fill = FILL_UNIFORM, .shape = with_spatial(g.batch, g.out, y, n)};
    parity_case *c = parity_add(KN_OP_conv, COMPARE_CLOSE);
    c->n_in = 3, c->in[0] = x, c->in[1] = w, c->out[0] = like(out, FILL_GUARD);
    if (bias) c->in[2] = U(g.out);
    set_conv_attr(c, g.attr, NULL);
    c = parity_add(KN_OP_conv_data, COMPARE_CLOSE);
    c->n_in = 2, c->in[0] = out, c->in[1] = w, c->out[0] = like(x, FILL_GUARD);
    set_conv_attr(c, g.attr, g.x);
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        c = parity_add(KN_OP_conv_weight, COMPARE_CLOSE);
        c->n_in = 2, c->in[0] = x, c->in[1] = out;
        c->out[0] = accumulate ? w : like(w, FILL_GUARD), c->accumulate = (uint8_t)accumulate;
        set_conv_attr(c, g.attr, g.w);
    }
}

/* y like conv's first two geometries; `given`: bit 0 a bias, bit 1 a residual. */
static void conv_act_of(geometry g, parity_operand y, int given, kn_act act) {
    int n = g.attr.n_spatial;
    parity_case *c = parity_add(KN_OP_conv_act, COMPARE_CLOSE);
    c->n_in = 4, c->out[0] = like(y, FILL_GUARD);
    c->in[0] = (parity_operand){.fill = FILL_UNIFORM, .shape = with_spatial(g.batch, g.in, g.x, n)};
    c->in[1] = (parity_operand){.fill = FILL_UNIFORM,
                                .shape = with_spatial(g.out, g.in / g.attr.groups, g.w, n)};
    if (given & 1) c->in[2] = U(g.out);
    if (given & 2) c->in[3] = y;
    g.attr.act = (int32_t)act;
    set_conv_attr(c, g.attr, NULL);
}

static kn_attr_conv conv_attr(int n, int64_t stride, int64_t padding, int64_t dilation,
                              int64_t groups, bool flip) {
    kn_attr_conv attr = {.groups = groups, .n_spatial = n, .flip = flip};
    for (int d = 0; d < 3; d++) {
        attr.stride[d] = d < n ? stride : 1;
        attr.padding[d] = attr.padding_end[d] = d < n ? padding : 0;
        attr.dilation[d] = d < n ? dilation : 1;
    }
    return attr;
}

/* `extra` more padding at the ends. */
static kn_attr_conv uneven(kn_attr_conv attr, int64_t extra) {
    for (int d = 0; d < attr.n_spatial; d++) attr.padding_end[d] += extra;
    return attr;
}

static void conv_cases(void) {
    conv_of((geometry){100, 1, 20, {28, 28}, {5, 5}, conv_attr(2, 1, 0, 1, 1, false)}, true);
    conv_of((geometry){50, 20, 50, {12, 12}, {5, 5}, conv_attr(2, 1, 0, 1, 1, false)}, true);
    conv_of((geometry){4, 16, 32, {14, 14}, {3, 3}, conv_attr(2, 1, 1, 1, 1, false)}, true);
    parity_halves_of(4);
    conv_of((geometry){2, 3, 5, {9, 7}, {3, 2}, conv_attr(2, 1, 1, 1, 1, true)}, false);
    parity_halves_of(4);
    conv_of((geometry){3, 4, 6, {11, 8}, {3, 3}, conv_attr(2, 2, 1, 1, 2, false)}, true);
    conv_of((geometry){2, 8, 8, {10, 10}, {3, 3}, conv_attr(2, 1, 1, 1, 8, false)}, false);
    conv_of((geometry){2, 3, 4, {13, 13}, {3, 3}, conv_attr(2, 1, 2, 2, 1, true)}, true);
    conv_of((geometry){3, 5, 7, {8, 9}, {3, 3}, conv_attr(2, 3, 0, 1, 1, false)}, true);
    conv_of((geometry){1, 1, 1, {1, 1}, {1, 1}, conv_attr(2, 1, 0, 1, 1, false)}, true);
    conv_of((geometry){8, 24, 16, {6, 6}, {1, 1}, conv_attr(2, 1, 0, 1, 1, false)}, false);
    conv_of((geometry){4, 6, 8, {50}, {5}, conv_attr(1, 2, 2, 1, 1, false)}, true);
    conv_of((geometry){2, 4, 4, {21}, {3}, conv_attr(1, 1, 1, 2, 2, true)}, false);
    conv_of((geometry){2, 3, 4, {7, 6, 5}, {3, 3, 2}, conv_attr(3, 1, 1, 1, 1, false)}, true);
    conv_of((geometry){2, 4, 6, {6, 7, 8}, {2, 3, 3}, conv_attr(3, 2, 1, 1, 2, true)}, true);
    conv_of((geometry){3, 4, 5, {9, 8}, {2, 3}, uneven(conv_attr(2, 1, 0, 1, 1, false), 1)}, true);
    conv_of((geometry){2, 4, 6, {7, 9}, {3, 3}, uneven(conv_attr(2, 2, 1, 1, 2, true), -1)}, true);
    conv_of((geometry){2, 3, 4, {20}, {4}, uneven(conv_attr(1, 1, 1, 2, 1, false), 2)}, true);
    conv_of((geometry){1, 2, 3, {5, 6, 5}, {2, 2, 3}, uneven(conv_attr(3, 1, 1, 1, 1, false), -1)},
            false);
    conv_of((geometry){0, 3, 4, {6, 6}, {3, 3}, conv_attr(2, 1, 0, 1, 1, false)}, true);
}

static void conv_act_cases(void) {
    geometry plain = {3, 4, 6, {10, 10}, {3, 3}, conv_attr(2, 1, 1, 1, 2, false)};
    geometry odd = {2, 3, 5, {9, 7}, {3, 2}, conv_attr(2, 1, 0, 1, 1, false)};
    for (int given = 0; given < 4; given++)
        for (int act = KN_ACT_NONE; act < KN_ACTS; act++) {
            conv_act_of(plain, U(3, 6, 10, 10), given, (kn_act)act);
            conv_act_of(odd, U(2, 5, 7, 6), given, (kn_act)act);
            if (given == 3) parity_halves_of(2);
        }
    geometry line = {2, 3, 4, {16}, {3}, conv_attr(1, 1, 1, 1, 1, false)};
    conv_act_of(line, U(2, 4, 16), 3, KN_ACT_RELU);
    geometry none = {0, 3, 4, {6, 6}, {3, 3}, conv_attr(2, 1, 0, 1, 1, false)};
    conv_act_of(none, U(0, 4, 4, 4), 3, KN_ACT_RELU);
}

/* --- pooling --- */

static int64_t pooled(int64_t in, const kn_attr_pool *attr, int d) {
    if (!attr->stride[d]) return attr->size[d];
    int64_t reach = (attr->window[d] - 1) * attr->dilation[d] + 1;
    int64_t left = in + 2 * attr->padding[d] - reach, n = left / attr->stride[d] + 1;
    bool more = attr->ceil && left % attr->stride[d] && n * attr->stride[d] < in + attr->padding[d];
    return n + more;
}

static void pool_of(int64_t batch, int64_t channels, const int64_t *size, kn_attr_pool attr) {
    int n = attr.n_spatial;
    int64_t y[3];
    for (int d = 0; d < n; d++) y[d] = pooled(size[d], &attr, d);
    parity_operand big = {.fill = FILL_UNIFORM, .shape = with_spatial(batch, channels, size, n)};
    parity_operand small = {.fill = FILL_UNIFORM, .shape = with_spatial(batch, channels, y, n)};
    parity_operand offsets = of_dtype(like(small, FILL_OFFSETS), KN_U8);
    static const kn_op ops[] = {KN_OP_maxpool, KN_OP_avgpool, KN_OP_maxpool_back,
                                KN_OP_maxpool_take, KN_OP_avgpool_back};
    for (int i = 0; i < 5; i++) {
        bool back = ops[i] == KN_OP_maxpool_back || ops[i] == KN_OP_avgpool_back;
        bool max = ops[i] != KN_OP_avgpool && ops[i] != KN_OP_avgpool_back;
        parity_case *c = parity_add(ops[i], max && !back ? COMPARE_EXACT : COMPARE_CLOSE);
        c->n_in = i >= 2 && max ? 2 : 1;
        c->in[0] = back ? small : like(big, max ? FILL_TIES : FILL_UNIFORM);
        if (c->n_in == 2) c->in[1] = offsets;
        c->out[0] = like(back ? big : small, FILL_GUARD);
        if (ops[i] == KN_OP_maxpool) c->out[1] = of_dtype(like(small, FILL_GUARD), KN_U8);
        for (int d = 0; d < n; d++) attr.size[d] = back ? size[d] : attr.stride[d] ? 0 : y[d];
        set_attr(c, &attr, sizeof attr);
    }
}

#define POOL(n, ...)                                                                               \
    (kn_attr_pool) { .dilation = {1, 1, 1}, .n_spatial = (n), __VA_ARGS__ }

static void pool_cases(void) {
    pool_of(100, 20, (int64_t[]){24, 24}, POOL(2, .window = {2, 2, 1}, .stride = {2, 2, 1}));
    pool_of(3, 5, (int64_t[]){11, 7}, POOL(2, .window = {3, 2, 1}, .stride = {2, 1, 1}));
    pool_of(2, 3, (int64_t[]){9, 9}, POOL(2, .window = {2, 2, 1}, .stride = {3, 3, 1}));
    pool_of(1, 1, (int64_t[]){16, 16}, POOL(2, .window = {16, 16, 1}, .stride = {1, 1, 1}));
    pool_of(2, 2, (int64_t[]){5}, POOL(1, .window = {4, 1, 1}, .stride = {(int64_t)1 << 32, 1, 1}));
    pool_of(4, 3, (int64_t[]){33}, POOL(1, .window = {3, 1, 1}, .stride = {2, 1, 1}));
    pool_of(2, 2, (int64_t[]){6, 5, 7}, POOL(3, .window = {2, 2, 3}, .stride = {2, 1, 2}));
    for (int inside = 0; inside < 2; inside++) {
        kn_attr_pool same = POOL(2, .window = {3, 3, 1}, .stride = {1, 1, 1}, .padding = {1, 1, 0},
                                 .inside = inside);
        pool_of(2, 3, (int64_t[]){8, 7}, same);
        kn_attr_pool resnet = POOL(2, .window = {3, 3, 1}, .stride = {2, 2, 1},
                                   .padding = {1, 1, 0}, .inside = inside);
        pool_of(2, 5, (int64_t[]){14, 15}, resnet);
        kn_attr_pool ceil =
            POOL(2, .window = {2, 3, 1}, .stride = {2, 2, 1}, .ceil = 1, .inside = inside);
        pool_of(3, 2, (int64_t[]){7, 8}, ceil);
        kn_attr_pool spread = POOL(2, .window = {2, 3, 1}, .stride = {1, 2, 1}, .inside = inside);
        spread.dilation[0] = 3, spread.dilation[1] = 2;
        pool_of(2, 3, (int64_t[]){9, 11}, spread);
        kn_attr_pool all = POOL(3, .window = {2, 3, 4}, .stride = {2, 3, 1}, .padding = {1, 1, 2},
                                .ceil = 1, .inside = inside);
        all.dilation[1] = 2;
        pool_of(2, 2, (int64_t[]){5, 8, 6}, all);
        parity_halves_of(25);
        kn_attr_pool line = POOL(1, .window = {5, 1, 1}, .stride = {3, 1, 1}, .padding = {2, 0, 0},
                                 .ceil = 1, .inside = inside);
        pool_of(2, 3, (int64_t[]){19}, line);
    }
    pool_of(5, 4, (int64_t[]){12, 12}, POOL(2, .window = {2, 2, 1}, .stride = {2, 2, 1}));
    parity_halves_of(5);
    pool_of(2, 3, (int64_t[]){7, 5}, POOL(2, .window = {3, 3, 1}, .size = {3, 2}));
    parity_halves_of(5);
    pool_of(1, 2, (int64_t[]){5, 6, 11},
            POOL(3, .window = {2, 2, 5}, .stride = {0, 2, 0}, .size = {7, 3, 3}));
    pool_of(3, 1, (int64_t[]){40}, POOL(1, .window = {8, 1, 1}, .size = {6}));
    for (int kind = 0; kind < 4; kind++) {
        int padding = kind / 2;
        parity_case *c = parity_add(KN_OP_maxpool, COMPARE_EXACT);
        int64_t n = padding ? 5 : 4;
        c->n_in = 1, c->in[0] = OPERAND(SPECIAL, 2, 3, 12, 12);
        c->out[0] = OPERAND(GUARD, 2, 3, n, n), c->out[1] = of_dtype(c->out[0], KN_U8);
        kn_attr_pool attr = POOL(2, .window = {3, 3, 1}, .stride = {3, 3, 1},
                                 .padding = {padding, padding, 0}, .ceil = 1, .skip_nan = kind % 2);
        set_attr(c, &attr, sizeof attr);
        parity_halves_of(1);
    }
}

/* --- softmax and losses --- */

static void softmax_of(int axis, parity_operand x) {
    static const kn_op ops[] = {KN_OP_softmax, KN_OP_logsoftmax, KN_OP_softmax_back,
                                KN_OP_logsoftmax_back};
    for (int i = 0; i < 4; i++) {
        parity_case *c = parity_add(ops[i], COMPARE_CLOSE);
        c->n_in = i < 2 ? 1 : 2;
        c->in[0] = x, c->out[0] = like(x, FILL_GUARD);
        if (i >= 2) c->in[1] = x;
        ATTR(c, kn_attr_axes, 1u << axis, false);
    }
}

static parity_case *entropy_of(parity_operand x, parity_operand labels, double smoothing) {
    parity_case *c = parity_add(KN_OP_cross_entropy, COMPARE_CLOSE);
    c->n_in = 2, c->in[0] = x, c->in[1] = labels, c->out[0] = SCALAR(GUARD);
    ATTR(c, kn_attr_scalars, smoothing, 0);
    return c;
}

/* Logits so large that a sum with the logarithm would lose it. */
static void large_logits(int64_t rows, int64_t classes, int axis) {
    parity_operand x = OPERAND(OFFSET, rows, classes);
    parity_case *c = parity_add(KN_OP_logsoftmax, COMPARE_CLOSE);
    c->n_in = 1, c->in[0] = x, c->out[0] = like(x, FILL_GUARD);
    ATTR(c, kn_attr_axes, 1u << axis, false);
    entropy_of(x, INDEX(KN_I64, classes, rows), 0)->out[1] = like(x, FILL_GUARD);
}

static void loss_of(int64_t rows, int64_t classes, kn_dtype label, parity_fill fill) {
    parity_operand x = U(rows, classes), labels = INDEX(label, classes, rows);
    labels.fill = fill;
    entropy_of(x, labels, 0)->out[1] = like(x, FILL_GUARD);
    entropy_of(x, labels, 0);
    entropy_of(x, labels, 0.3)->out[1] = like(x, FILL_GUARD);
    parity_halves_of(3);
    parity_case *c = parity_add(KN_OP_nll, COMPARE_CLOSE);
    c->n_in = 2, c->in[0] = x, c->in[1] = labels, c->out[0] = SCALAR(GUARD);
    for (int64_t k = 1; k <= classes; k = 5 * k - 1) {
        c = parity_add(KN_OP_accuracy, COMPARE_CLOSE);
        c->n_in = 2, c->in[0] = like(x, FILL_TIES), c->in[1] = labels, c->out[0] = SCALAR(GUARD);
        ATTR(c, kn_attr_best, k);
    }
    if (fill == FILL_BEYOND) return;
    c = parity_add(KN_OP_nll_back, COMPARE_CLOSE);
    c->n_in = 2, c->in[0] = labels, c->in[1] = SCALAR(UNIFORM), c->out[0] = like(x, FILL_GUARD);
    ATTR(c, kn_attr_classes, classes);
}

static void loss_cases(void) {
    softmax_of(0, U(1));
    softmax_of(1, U(101, 10));
    softmax_of(1, U(3, 8));
    softmax_of(1, U(5, 16));
    softmax_of(1, U(70, 17));
    /* On a GPU rows are held by a warp or a block, in packs of 16 bytes or not, or not at all. */
    softmax_of(1, U(33, 257));
    softmax_of(1, U(9, 101));
    softmax_of(1, U(6, 64));
    softmax_of(1, U(13, 300));
    softmax_of(1, U(4, 2001));
    softmax_of(1, U(3, 5000));
    softmax_of(1, U(2, 9001));
    softmax_of(1, U(2, 70001)); /* a thread's part is summed in pieces */
    softmax_of(0, U(700, 3));
    softmax_of(0, U(12, 35));
    softmax_of(1, U(4, 6, 5, 3));
    large_logits(5, 40, 1);
    large_logits(3, 1500, 1);
    large_logits(7, 70, 0);
    loss_of(100, 10, KN_U8, FILL_INDEX);
    loss_of(1, 1, KN_I64, FILL_INDEX);
    loss_of(37, 101, KN_I32, FILL_INDEX);
    loss_of(9, 64, KN_I64, FILL_INDEX);
    loss_of(13, 300, KN_I32, FILL_INDEX);
    loss_of(5, 3001, KN_I64, FILL_INDEX);
    loss_of(3, 4000, KN_I32, FILL_INDEX);
    loss_of(2, 9001, KN_I64, FILL_INDEX);
    loss_of(5000, 3, KN_U8, FILL_INDEX);
    loss_of(7, 10, KN_I32, FILL_BEYOND);
    loss_of(7, 10, KN_U8, FILL_BEYOND);
    loss_of(40, 200, KN_I64, FILL_INDEX); /* of 16 bits: packs of 8 */
    entropy_of(OPERAND(SPECIAL, 30, 24), INDEX(KN_I64, 24, 30), 0.2)->out[1] =
        OPERAND(GUARD, 30, 24);
    entropy_of(OPERAND(LARGE, 30, 24), INDEX(KN_I64, 24, 30), 0)->out[1] = OPERAND(GUARD, 30, 24);
    parity_halves_of(2);
}

/* --- random --- */

static void random_of(kn_op op, parity_operand shape) {
    parity_case *c = parity_add(op, op == KN_OP_normal ? COMPARE_CLOSE : COMPARE_EXACT);
    c->n_in = 1, c->in[0] = STATE, c->out[0] = like(shape, FILL_GUARD), c->one_dtype = true;
    ATTR(c, kn_attr_make, .a = op == KN_OP_normal ? 0.5 : -1, .b = 2);
}

static void random_cases(void) {
    parity_each_shape(random_of, KN_OP_uniform);
    parity_each_shape(random_of, KN_OP_normal);
    random_of(KN_OP_uniform, U(100003));
    parity_case *c = parity_add(KN_OP_rng_take, COMPARE_EXACT);
    c->n_in = 1, c->in[0] = STATE;
    c->out[0] = of_dtype(OPERAND(GUARD, 2), KN_I64);
    ATTR(c, kn_attr_scalars, 1001, 0);
}

/* --- movement --- */

/* y: the block of x that begins at `start`. */
static void slice_of(kn_dtype dtype, parity_operand x, parity_operand y, kn_attr_box attr) {
    static const kn_op ops[] = {KN_OP_slice, KN_OP_slice_back, KN_OP_slice, KN_OP_slice_back};
    for (int i = 0; i < (dtype ? 2 : 4); i++) { /* the last two add */
        bool is_back = ops[i] == KN_OP_slice_back, adds = i >= 2;
        parity_operand out = is_back ? x : y;
        parity_case *c = parity_add(ops[i], COMPARE_EXACT);
        c->n_in = 1, c->accumulate = adds;
        c->in[0] = of_dtype(is_back ? y : x, dtype), c->in[0].limit = 100;
        c->out[0] = of_dtype(like(out, adds ? FILL_UNIFORM : FILL_GUARD), dtype);
        memcpy(attr.size, out.shape.dim, sizeof attr.size);
        set_attr(c, &attr, sizeof attr);
    }
}

static void transpose_of(kn_dtype dtype, parity_operand x, kn_attr_transpose attr) {
    parity_operand y = like(x, FILL_GUARD);
    for (int d = 0; d < x.shape.n_dims; d++) y.shape.dim[d] = x.shape.dim[attr.axis[d]];
    parity_case *c = parity_add(KN_OP_transpose, COMPARE_EXACT);
    c->n_in = 1, c->in[0] = of_dtype(x, dtype), c->in[0].limit = 100;
    c->out[0] = of_dtype(y, dtype);
    set_attr(c, &attr, sizeof attr);
}

static void concat_of(kn_dtype dtype, int axis, int n, const parity_operand *x) {
    parity_case *c = parity_add(KN_OP_concat, COMPARE_EXACT);
    parity_operand out = of_dtype(like(x[0], FILL_GUARD), dtype);
    out.shape.dim[axis] = 0;
    for (int i = 0; i < n; i++) {
        c->in[i] = of_dtype(x[i], dtype);
        c->in[i].limit = 100;
        out.shape.dim[axis] += x[i].shape.dim[axis];
    }
    c->n_in = n, c->out[0] = out;
    ATTR(c, kn_attr_concat, axis);
}

static void block_diag_of(kn_dtype dtype, int n, const parity_operand *x) {
    parity_case *c = parity_add(KN_OP_block_diag, COMPARE_EXACT);
    parity_operand out = of_dtype(like(x[0], FILL_GUARD), dtype);
    out.shape = KN_SHAPE(0, 0);
    for (int i = 0; i < n; i++) {
        c->in[i] = of_dtype(x[i], dtype);
        c->in[i].limit = 100;
        for (int d = 0; d < 2; d++) out.shape.dim[d] += x[i].shape.dim[d];
    }
    c->n_in = n, c->out[0] = out;
    ATTR(c, kn_attr_concat, 0);
}

static void broadcast_of(kn_dtype dtype, parity_operand x, parity_operand out) {
    kn_attr_shape attr = {.n_dims = out.shape.n_dims};
    memcpy(attr.dim, out.shape.dim, sizeof attr.dim);
    for (int adds = 0; adds < (dtype ? 1 : 2); adds++) {
        parity_case *c = parity_add(KN_OP_broadcast, COMPARE_EXACT);
        c->n_in = 1, c->in[0] = of_dtype(x, dtype), c->in[0].limit = 100;
        c->out[0] = of_dtype(like(out, adds ? FILL_UNIFORM : FILL_GUARD), dtype);
        c->accumulate = (uint8_t)adds;
        set_attr(c, &attr, sizeof attr);
    }
}

static void cast_of(kn_dtype from, kn_dtype to) {
    parity_case *c = parity_add(KN_OP_cast, COMPARE_EXACT);
    bool integer = from == KN_I64 || from == KN_I32 || from == KN_U8 || from == KN_BOOL;
    c->n_in = 1, c->in[0] = of_dtype(OPERAND(WIDE, 13001), from);
    if (integer) c->in[0].fill = from == KN_BOOL ? FILL_INDEX : FILL_WIDE;
    c->in[0].limit = 2;
    c->out[0] = of_dtype(OPERAND(GUARD, 13001), to);
    ATTR(c, kn_attr_cast, (int32_t)to);
}

static void movement_cases(void) {
    const kn_dtype own = (kn_dtype)0;
    slice_of(own, U(20, 30), U(14, 25), (kn_attr_box){{3, 5}, {0}});
    slice_of(own, U(64, 128), U(64, 64), (kn_attr_box){{0, 64}, {0}});
    slice_of(KN_U8, OPERAND(INDEX, 5, 6, 7), OPERAND(INDEX, 3, 1, 4),
             (kn_attr_box){{1, 2, 3}, {0}});
    slice_of(own, U(4, 6), U(0, 3), (kn_attr_box){{2, 2}, {0}});
    slice_of(KN_I64, OPERAND(INDEX, 9), OPERAND(INDEX, 1), (kn_attr_box){{8}, {0}});
    slice_of(KN_BF16, U(3, 16, 16), U(3, 16, 8), (kn_attr_box){{0, 0, 8}, {0}});
    transpose_of(own, U(100, 37), PERM(1, 0));
    transpose_of(own, U(1, 5), PERM(1, 0));
    transpose_of(own, U(3, 40, 50), PERM(0, 2, 1));
    transpose_of(own, U(6, 20, 7, 9), PERM(0, 2, 3, 1));
    transpose_of(own, U(4, 5, 6), PERM(2, 1, 0));
    transpose_of(own, U(4, 5, 6, 8), PERM(1, 0, 2, 3));
    transpose_of(KN_U8, OPERAND(INDEX, 65, 67), PERM(1, 0));
    transpose_of(KN_F16, U(65, 67), PERM(1, 0));
    transpose_of(KN_I64, OPERAND(INDEX, 2, 3, 2, 3, 2, 3, 2, 3), PERM(7, 6, 5, 4, 3, 2, 1, 0));
    concat_of(own, 0, 3, (parity_operand[]){U(2, 7), U(1, 7), U(5, 7)});
    concat_of(own, 1, 3, (parity_operand[]){U(5, 4), U(5, 8), U(5, 1)});
    concat_of(own, 1, 3, (parity_operand[]){U(4, 3, 5), U(4, 0, 5), U(4, 2, 5)});
    concat_of(KN_I32, 2, 2, (parity_operand[]){OPERAND(INDEX, 2, 3, 4), OPERAND(INDEX, 2, 3, 1)});
    block_diag_of(own, 4, (parity_operand[]){U(5, 4), U(3, 0), U(1, 70), U(0, 2)});
    block_diag_of(own, 1, (parity_operand[]){U(7, 3)});
    block_diag_of(KN_U8, 2, (parity_operand[]){OPERAND(INDEX, 2, 3), OPERAND(INDEX, 4, 1)});
    broadcast_of(own, SCALAR(UNIFORM), U(1031));
    broadcast_of(own, U(5, 1), U(5, 64));
    broadcast_of(own, U(64), U(5, 64));
    broadcast_of(own, U(3, 1, 4), U(2, 3, 6, 4));
    broadcast_of(own, U(701, 1), U(701, 3));
    broadcast_of(own, U(37, 1, 5), U(37, 40, 5));
    broadcast_of(KN_BOOL, of_dtype(OPERAND(INDEX, 1, 3), KN_BOOL), U(4, 3));
    for (int from = KN_F32; from <= KN_BOOL; from++) {
        for (int to = KN_F32; to <= KN_BOOL; to++) cast_of((kn_dtype)from, (kn_dtype)to);
    }
}

void parity_table_make(parity_table *out) {
    memset(out, 0, sizeof *out);
    table = out;
    parity_row_cases();
    fill_cases();
    parity_reduce_cases();
    relu_bias_cases();
    product_cases();
    conv_cases();
    conv_act_cases();
    pool_cases();
    loss_cases();
    parity_norm_cases();
    random_cases();
    parity_random_cases();
    parity_linalg_cases();
    movement_cases();
    parity_move_cases();
    parity_sequence_cases();
    parity_image_cases();
    parity_optim_cases();
}

void parity_table_free(parity_table *out) { free(out->cases); }
