/* Writes the source of a chain's kernel: operands are read, each step is a call of its row's
 * formula on the values before it, and stored results are written. */
#include "cuda/pointwise/chain_kernel.h"
#include "kernel.h"

static int bytes_of(unsigned dtype) { return (int)kn_dtype_bytes((kn_dtype)dtype); }

/* Their arithmetic takes longer than their loads. */
static const bool is_rare[KN_OP_COUNT] = {
#define RARE(name)                                                                                 \
    [KN_OP_##name] = true, [KN_OP_##name##_back] = true, [KN_OP_##name##_back2] = true,
#define KN_VECTOR1(name, ...) RARE(name)
#define KN_VECTOR2(name, ...) RARE(name)
#define KN_RARE1(name, ...) RARE(name)
#define KN_RARE2(name, ...) RARE(name)
#include <knet/ops.def>
#undef RARE
};

int kn__chain_width(const kn__chain *chain) {
    int most = 1;
    if (chain->n_dims) return 1;
    for (int i = 0; i < chain->n_steps; i++) {
        if (is_rare[chain->step[i].op]) return 1;
    }
    for (int k = 0; k < chain->n_operands; k++) {
        int bytes = bytes_of(chain->dtype[k]);
        if (chain->kind[k] == KN__CHAIN_DENSE && bytes > most) most = bytes;
    }
    for (int i = 0; i < chain->n_steps; i++) {
        int bytes = bytes_of(chain->step[i].to);
        if (chain->step[i].stored && bytes > most) most = bytes;
    }
    return 16 / most;
}

static void write_load(kn__text *out, const kn__chain *c, int k) {
    kn__text_printf(out, "        computed_as<%d> x%d[V];\n", c->dtype[k], k);
    if (c->kind[k] == KN__CHAIN_SINGLE) {
        kn__text_printf(out, "        chain_load_single<%d>(x%d, a.in[%d]);\n", c->dtype[k], k, k);
        return;
    }
    kn__text_printf(out, "        chain_load<%d>(x%d, a.in[%d], ", c->dtype[k], k, k);
    if (c->kind[k] == KN__CHAIN_STRIDED)
        kn__text_printf(out, "chain_place<%d>(a, a.stride[%d], i)", c->n_dims, k);
    else
        kn__text_puts(out, "i");
    kn__text_puts(out, ", a.n - i, a.wide);\n");
}

/* --- steps --- */

static void write_value(kn__text *out, unsigned in) {
    if (in < KN__CHAIN_STEPS)
        kn__text_printf(out, "t%u", in);
    else
        kn__text_printf(out, "x%u[v]", in - KN__CHAIN_STEPS);
}

static void write_operand(kn__text *out, const kn__chain_step *s, int k) {
    if (s->in[k] == KN__CHAIN_ABSENT) {
        kn__text_puts(out, "T(0)");
        return;
    }
    kn__text_puts(out, "chain_operand<T>(");
    write_value(out, s->in[k]);
    kn__text_puts(out, ")");
}

/* "const T NAME[] = {…}" of inputs from … from + n - 1 */
static void write_inputs(kn__text *out, const kn__chain_step *s, int from, int n) {
    kn__text_puts(out, "            const T in[] = {");
    for (int k = 0; k < n; k++) {
        if (k) kn__text_puts(out, ", ");
        write_operand(out, s, from + k);
    }
    kn__text_puts(out, "};\n");
}

static void write_scalars(kn__text *out, int i) {
    kn__text_printf(out,
                    "chain_scalar<T>(a.p[%d]), chain_scalar<T>(a.q[%d]), a.p[%d].real, "
                    "a.q[%d].real",
                    i, i, i, i);
}

static void write_row(kn__text *out, const kn__chain_step *s, int i, const char *row) {
    bool compares = s->to == KN_BOOL && kn_op_table[s->op].out[0] == KN_BOOL;
    write_inputs(out, s, 0, s->n_in);
    kn__text_printf(out, "            t%d = chain_%s<%d>(row_%s::forward<T>(in, ", i,
                    compares ? "truth" : "round", s->to, row);
    write_scalars(out, i);
    kn__text_puts(out, "));\n");
}

static void write_back(kn__text *out, const kn__chain_step *s, int i, const char *row) {
    write_inputs(out, s, 1, s->n_in - 2);
    kn__text_printf(out, "            t%d = chain_round<%d>(row_%s::first<%d, T>(", i, s->to, row,
                    s->r);
    write_operand(out, s, 0);
    kn__text_puts(out, ", in, ");
    write_operand(out, s, s->n_in - 1);
    kn__text_puts(out, ", ");
    write_scalars(out, i);
    kn__text_puts(out, "));\n");
}

/* The sum over the terms that aren't zero everywhere, in the order of pointwise.cuh. */
static void write_back2(kn__text *out, const kn__chain_step *s, int i, const char *row) {
    const kn_op_info *info = &kn_op_table[s->op];
    const kn_op_needs *needs = &kn_op_needs_table[s->op - info->order];
    int n = info->row;
    write_inputs(out, s, n, n);
    kn__text_puts(out, "            T sum = T(0);\n");
    for (int k = 0; k < n; k++) {
        if (s->in[k] == KN__CHAIN_ABSENT || needs->second[k][s->r] & KN_NEED_ZERO) continue;
        kn__text_printf(out, "            sum += row_%s::second<%d, %d, T>(", row, k, s->r);
        write_operand(out, s, k);
        kn__text_puts(out, ", in, ");
        write_operand(out, s, s->n_in - 1);
        kn__text_puts(out, ", ");
        write_scalars(out, i);
        kn__text_puts(out, ");\n");
    }
    kn__text_printf(out, "            t%d = chain_round<%d>(sum);\n", i, s->to);
}

static void write_step(kn__text *out, const kn__chain *c, int i) {
    const kn__chain_step *s = &c->step[i];
    int order = kn_op_table[s->op].order;
    const char *row = kn_op_name((kn_op)(s->op - order));
    kn__text_printf(out, "            computed_as<%d> t%d;\n            {\n", s->to, i);
    if (s->op == KN_OP_cast) {
        kn__text_printf(out, "            t%d = chain_cast<%d>(", i, s->to);
        write_value(out, s->in[0]);
        kn__text_puts(out, ");\n");
    } else {
        int dtype = s->dtype ? s->dtype : KN_BOOL;
        kn__text_printf(out, "            using T = computed_as<%d>;\n", dtype);
        (order == 0 ? write_row : order == 1 ? write_back : write_back2)(out, s, i, row);
    }
    kn__text_puts(out, "            }\n");
    if (s->stored) kn__text_printf(out, "            y%d[v] = t%d;\n", i, i);
}

static void write_store(kn__text *out, const kn__chain *c, int i) {
    const kn__chain_step *s = &c->step[i];
    kn__text_printf(out, "        chain_store<%d>(a.out[%d], ", s->to, i);
    if (s->part)
        kn__text_printf(out, "chain_place<%d>(a, a.part_stride[%d], i)", c->n_dims, s->part - 1);
    else
        kn__text_puts(out, "i");
    kn__text_printf(out, ", a.n - i, a.wide, y%d);\n", i);
}

void kn__chain_source(kn__text *out, const kn__chain *c, const char *name) {
    kn__text_printf(
        out,
        "#include \"cuda/pointwise/chain.cuh\"\n"
        "extern \"C\" __global__ void __launch_bounds__(256)\n"
        "    %s(const kn__chain_args a) {\n"
        "    using namespace kn_dev;\n"
        "    constexpr int V = %d;\n"
        "    for (int64_t i = thread_index() * V; i < a.n; i += thread_count() * V) {\n",
        name, kn__chain_width(c));
    for (int k = 0; k < c->n_operands; k++) write_load(out, c, k);
    for (int i = 0; i < c->n_steps; i++) {
        if (c->step[i].stored)
            kn__text_printf(out, "        computed_as<%d> y%d[V];\n", c->step[i].to, i);
    }
    kn__text_puts(out, "#pragma unroll\n        for (int v = 0; v < V; v++) {\n");
    for (int i = 0; i < c->n_steps; i++) write_step(out, c, i);
    kn__text_puts(out, "        }\n");
    for (int i = 0; i < c->n_steps; i++) {
        if (c->step[i].stored) write_store(out, c, i);
    }
    kn__text_puts(out, "    }\n}\n");
}
