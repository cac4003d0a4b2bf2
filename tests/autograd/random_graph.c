#include "random_graph.h"

#include <knet/op.h>
#include <knet/ops.h>
#include <knet/tape.h>
#include <string.h>

enum { STEPS = 18, VALUES_MAX = GRAPH_INPUTS + STEPS };

static _Thread_local uint64_t choice;

static int pick(int n) {
    choice = choice * 6364136223846793005u + 1442695040888963407u;
    return (int)((choice >> 33) % (uint64_t)n);
}

static kn_tensor *unary(kn_tensor *x) {
    kn_tensor *bounded = kn_tanh(x);
    switch (pick(10)) {
        case 0:
            return kn_gelu(x);
        case 1:
            return kn_exp(bounded);
        case 2:
            return kn_affine(x, 0.75, -0.1);
        case 3:
            return kn_sigm(kn_mul(x, x));
        case 4:
            return kn_cast(kn_silu(kn_cast(x, KN_F16)), KN_F32);
        case 5:
            return kn_cast(kn_mul(kn_cast(x, KN_F64), kn_cast(bounded, KN_F64)), KN_F32);
        case 6:
            return kn_relu(x);
        case 7:
            return kn_sqrt(kn_affine(kn_mul(bounded, bounded), 1, 0.5));
        case 8:
            return kn_cast(kn_affine(kn_cast(x, KN_BF16), 0.5, 1), KN_F32);
        default:
            return bounded;
    }
}

static kn_tensor *binary(kn_tensor *x, kn_tensor *y) {
    switch (pick(6)) {
        case 0:
            return kn_add(x, y);
        case 1:
            return kn_mul(x, kn_tanh(y));
        case 2:
            return kn_where(kn_gt(x, y), x, kn_affine(y, 0.5, 0));
        case 3:
            return kn_div(x, kn_affine(kn_mul(y, y), 1, 1));
        case 4:
            return kn_maximum(x, y);
        default:
            return kn_sub(kn_affine(x, 0.5, 0), y);
    }
}

/* Parts of columns, as gates of a recurrent cell are: in order, all or some of them, or
 * overlapping. */
static kn_tensor *by_columns(kn_tensor *x) {
    kn_tensor *part[4], *sum = kn_add(x, kn_affine(x, 0.25, 0));
    kn_shape shape = kn_tensor_shape(x);
    int64_t rows = shape.dim[0], columns = shape.dim[1];
    if (pick(3) == 0) {
        kn_tensor *a = kn_slice(sum, KN_SHAPE(0, 3), KN_SHAPE(rows, columns - 13)),
                  *b = kn_slice(pick(2) ? x : sum, KN_SHAPE(0, 16), KN_SHAPE(rows, columns));
        kn_tensor *inner = kn_slice(a, KN_SHAPE(0, 8), KN_SHAPE(rows, 24));
        b = kn_mul(kn_tanh(a), b);
        return kn_concat((kn_tensor *[]){kn_sigm(inner), b}, 2, 1);
    }
    bool all = pick(3) != 0;
    if (kn_chunk(part, pick(2) ? kn_tanh(sum) : sum, 4, 1) < 0)
        return kn_error_defer(kn_last_error()->status);
    kn_tensor *c = kn_add(kn_mul(kn_sigm(part[1]), part[0]), kn_mul(part[0], kn_tanh(part[2])));
    kn_tensor *h = kn_mul(kn_sigm(part[all ? 3 : 2]), kn_tanh(c));
    return kn_concat((kn_tensor *[]){c, h, kn_cast(part[0], KN_F32), kn_neg(c)}, 4, 1);
}

static kn_tensor *other(kn_tensor *x) {
    kn_shape shape = kn_tensor_shape(x);
    if (shape.n_dims < 2) return kn_neg(x);
    if (shape.dim[1] % 4 == 0 && shape.dim[1] >= 48 && pick(3) == 0) return by_columns(x);
    switch (pick(7)) {
        case 0:
            return kn_mean(x, KN_SHAPE(pick(2)), true);
        case 5:
            return kn_max(kn_affine(x, 2, 0), KN_SHAPE(1), true);
        case 6:
            return kn_cast(kn_sum(kn_cast(kn_mul(x, x), KN_F64), KN_SHAPE(1), true), KN_F32);
        case 1:
            return kn_reshape(kn_reshape(x, KN_SHAPE(-1)), shape);
        case 2:
            return kn_softmax(x, 1);
        case 3:
            return kn_mean(x, KN_ALL, false);
        default:
            return kn_slice(x, KN_SHAPE(0, 0), KN_SHAPE(1, shape.dim[1]));
    }
}

/* Values added up in place, when nothing that is recorded has saved them. */
static kn_tensor *in_place(kn_tensor *x, kn_tensor *y) {
    kn_tensor *sum = kn_detach(kn_affine(x, 1, 0.25)), *before = kn_mul(sum, sum);
    kn_status status = kn_add_into(sum, kn_detach(kn_mul(x, x)));
    if (status < 0) return kn_error_defer(status);
    return kn_add(kn_add(before, sum), y);
}

static kn_tensor *graph(kn_tensor *const x[], uint64_t seed, bool reads) {
    kn_tensor *v[VALUES_MAX];
    int n = GRAPH_INPUTS;
    choice = seed;
    memcpy(v, x, GRAPH_INPUTS * sizeof *v);
    for (int i = 0; i < STEPS; i++) {
        kn_tensor *a = v[pick(n)], *b = v[pick(n)];
        int kind = pick(10);
        v[n] = kind < 4 ? unary(a) : kind < 8 ? binary(a, b) : kind < 9 ? other(a) : in_place(b, a);
        if (!v[n]) return NULL;
        if (pick(8) == 0 && reads && !kn_data(v[n])) return NULL;
        n++;
    }
    kn_tensor *y = NULL;
    for (int i = GRAPH_INPUTS; i < n; i += 3) {
        kn_tensor *part = kn_mean(kn_mul(v[i], v[i]), KN_ALL, false);
        y = y ? kn_add(y, part) : part;
    }
    return kn_add(y, kn_mean(v[n - 1], KN_ALL, false));
}

kn_tensor *random_graph(kn_tensor *const x[], uint64_t seed, bool reads) {
    KN_FRAME(); /* its end forgets, where frames have .recompute */
    return kn_keep(graph(x, seed, reads));
}

void random_graph_values(float *out, int n, uint64_t seed) {
    choice = seed;
    for (int i = 0; i < n; i++) out[i] = (float)(pick(4000) - 2000) / 1000;
}

kn_status random_graph_bits(uint32_t *out, kn_tensor *t) {
    int64_t n = kn_tensor_numel(t);
    KN_TRY(kn_copy_out(out, (size_t)n * sizeof *out, t));
    for (int64_t i = 0; i < n; i++)
        if ((out[i] & 0x7FFFFFFFu) > 0x7F800000u) out[i] = 0x7FC00000u;
    return KN_OK;
}
