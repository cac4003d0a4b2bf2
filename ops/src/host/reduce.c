/* Reductions over any axes. x's dimensions are merged into groups that are kept or reduced in turn.
 * If the last group is reduced, the inner loop runs along rows of `rows_n` contiguous elements; if
 * it is kept, along columns: tiles of at most KN_COLUMNS of them, down the last reduced group.
 *
 * Work is cut by shape alone: into outputs, and for few outputs of much work also into chunks of
 * what is reduced; their partial results, doubles, are combined in order. */
#include <math.h>
#include <string.h>

#include "../kernel.h"
#include "chunks.h"
#include "loops.h"

typedef struct group_list {
    int n;
    int64_t dim[KN_DIMS_MAX], stride[KN_DIMS_MAX], total;
} group_list;

typedef struct plan {
    const kn_loops *loops;
    kn_op op;
    size_t bytes;
    const char *x;
    char *out;
    bool accumulate;
    double scale;             /* of a mean: 1/count; NaN for none */
    group_list kept, reduced; /* the outer groups */
    int64_t down, across;     /* the last reduced group; columns: the last kept group, rows: 1 */
    bool columns;
    int64_t tiles, units;         /* tiles of `across`; kept.total × tiles */
    int64_t outer_chunks, chunks; /* of the reduced outer groups; and of `down` beside them */
    double *partial;              /* [chunks][kept.total·across] */
    int64_t units_each;           /* taken by a thread at a time */
} plan;

enum { WORTH_SPLITTING = 1 << 16, FEW_UNITS = 32, CHUNK_ELEMENTS = 1 << 14, CHUNKS_MAX = 64 };

/* --- making the plan --- */

static void push(group_list *list, int64_t dim, int64_t stride) {
    list->dim[list->n] = dim;
    list->stride[list->n++] = stride;
}

static int64_t total(const group_list *list) {
    int64_t n = 1;
    for (int i = 0; i < list->n; i++) n *= list->dim[i];
    return n;
}

/* The dimensions of x as groups, innermost first, alternately kept and reduced. */
static int merge_groups(int64_t dim[], bool reduced[], const kn_tensor *x, uint32_t mask) {
    int n = 0;
    for (int i = x->n_dims - 1; i >= 0; i--) {
        bool is_reduced = mask >> i & 1;
        if (x->dim[i] == 1) continue;
        if (n && reduced[n - 1] == is_reduced) {
            dim[n - 1] *= x->dim[i];
        } else {
            dim[n] = x->dim[i];
            reduced[n++] = is_reduced;
        }
    }
    return n;
}

static void plan_groups(plan *p, const kn_tensor *x, uint32_t mask) {
    int64_t dim[KN_DIMS_MAX];
    bool reduced[KN_DIMS_MAX];
    int n = merge_groups(dim, reduced, x, mask), i = 0;
    p->columns = n > 0 && !reduced[0];
    p->across = p->columns ? dim[i++] : 1;
    p->down = i < n ? dim[i++] : 1;
    int64_t stride = p->across * p->down;
    for (; i < n; i++) {
        push(reduced[i] ? &p->reduced : &p->kept, dim[i], stride);
        stride *= dim[i];
    }
    p->kept.total = total(&p->kept);
    p->reduced.total = total(&p->reduced);
}

/* Few outputs of much work: what is reduced is cut too. */
static void plan_chunks(plan *p) {
    int64_t work = p->reduced.total * p->down * p->across * p->kept.total;
    p->tiles = kn__chunks(p->across, KN_COLUMNS);
    p->units = p->kept.total * p->tiles;
    p->outer_chunks = p->chunks = 1;
    if (p->units < FEW_UNITS && work >= WORTH_SPLITTING) {
        int64_t wanted = work / p->units / CHUNK_ELEMENTS;
        if (wanted > CHUNKS_MAX) wanted = CHUNKS_MAX;
        int64_t longest = p->reduced.total > p->down ? p->reduced.total : p->down;
        if (wanted > longest) wanted = longest;
        if (wanted > 1) p->chunks = wanted;
        if (p->reduced.total > p->down) p->outer_chunks = p->chunks;
    }
    int64_t unit_work = work / (p->units * p->chunks) + 1;
    p->units_each = CHUNK_ELEMENTS / unit_work + 1;
}

/* --- running it --- */

static int64_t offset(const group_list *list, int64_t i) {
    if (list->n == 0) return 0;
    if (list->n == 1) return i * list->stride[0];
    int64_t at = 0;
    for (int g = 0; g < list->n; g++) { /* innermost first */
        at += i % list->dim[g] * list->stride[g];
        i /= list->dim[g];
    }
    return at;
}

static double better(bool max, double a, double b) {
    return (max ? a > b : a < b) || a != a ? a : b;
}

static bool is_extreme(const plan *p) { return p->op == KN_OP_max || p->op == KN_OP_min; }

/* One output, or one tile of them, over one chunk of what is reduced; `acc` has its neutral value.
 */
static void reduce_unit(const plan *p, int64_t unit, int64_t chunk, double *acc) {
    int64_t tile = p->tiles > 1 ? unit % p->tiles : 0, from = tile * KN_COLUMNS,
            n = p->across - from < KN_COLUMNS ? p->across - from : KN_COLUMNS;
    int64_t r0 = 0, r1 = p->reduced.total, d0 = 0, d1 = p->down;
    if (p->outer_chunks > 1) {
        r0 = kn__part(p->reduced.total, p->chunks, chunk);
        r1 = kn__part(p->reduced.total, p->chunks, chunk + 1);
    } else if (p->chunks > 1) {
        d0 = kn__part(p->down, p->chunks, chunk);
        d1 = kn__part(p->down, p->chunks, chunk + 1);
    }
    int64_t base = offset(&p->kept, p->tiles > 1 ? unit / p->tiles : unit) + d0 * p->across + from;
    bool extreme = is_extreme(p), max = p->op == KN_OP_max;
    for (int64_t r = r0; r < r1; r++) {
        const void *x = p->x + (size_t)(base + offset(&p->reduced, r)) * p->bytes;
        if (p->columns) {
            if (extreme)
                p->loops->extreme_columns(max, acc, x, d1 - d0, n, p->across);
            else
                p->loops->sum_columns(acc, x, d1 - d0, n, p->across);
        } else if (extreme) {
            *acc = better(max, *acc, p->loops->extreme_row(max, x, d1 - d0));
        } else {
            *acc += p->loops->sum_row(x, d1 - d0);
        }
    }
}

static void neutral(const plan *p, double *acc, int64_t n) {
    double value = p->op == KN_OP_max   ? -(double)INFINITY
                   : p->op == KN_OP_min ? (double)INFINITY
                                        : 0;
    for (int64_t i = 0; i < n; i++) acc[i] = value;
}

static void store(const plan *p, int64_t at, const double *acc, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double value = acc[i] * p->scale;
        if (p->bytes == 4) {
            float *out = (float *)(void *)p->out + at + i;
            *out = (float)(p->accumulate ? (double)*out + value : value);
        } else {
            double *out = (double *)(void *)p->out + at + i;
            *out = p->accumulate ? *out + value : value;
        }
    }
}

/* Where a unit's outputs begin, and how many they are. */
static int64_t unit_place(const plan *p, int64_t unit, int64_t *n) {
    if (p->tiles == 1) {
        *n = p->across;
        return unit * p->across;
    }
    int64_t from = unit % p->tiles * KN_COLUMNS;
    *n = p->across - from < KN_COLUMNS ? p->across - from : KN_COLUMNS;
    return unit / p->tiles * p->across + from;
}

/* Sums of rows that follow each other, such as those over the last axis. */
static bool is_rows(const plan *p) {
    return !p->columns && !is_extreme(p) && !p->accumulate && p->reduced.n == 0 &&
           (p->kept.n == 0 || (p->kept.n == 1 && p->kept.stride[0] == p->down));
}

static void rows_part(void *ctx, int64_t part) {
    const plan *p = ctx;
    int64_t from = part * p->units_each, rows = p->units - from;
    if (rows > p->units_each) rows = p->units_each;
    p->loops->sum_rows(p->out + (size_t)from * p->bytes, p->x + (size_t)(from * p->down) * p->bytes,
                       rows, p->down, p->scale);
}

static void whole_part(void *ctx, int64_t part) {
    const plan *p = ctx;
    double acc[KN_COLUMNS];
    int64_t to = (part + 1) * p->units_each, n;
    if (to > p->units) to = p->units;
    for (int64_t unit = part * p->units_each; unit < to; unit++) {
        int64_t at = unit_place(p, unit, &n);
        neutral(p, acc, n);
        reduce_unit(p, unit, 0, acc);
        store(p, at, acc, n);
    }
}

static void chunk_part(void *ctx, int64_t part) {
    const plan *p = ctx;
    int64_t unit = part / p->chunks, chunk = part % p->chunks, n;
    int64_t at = unit_place(p, unit, &n);
    double *acc = p->partial + chunk * p->kept.total * p->across + at;
    neutral(p, acc, n);
    reduce_unit(p, unit, chunk, acc);
}

static void combine(const plan *p) {
    int64_t outputs = p->kept.total * p->across;
    for (int64_t chunk = 1; chunk < p->chunks; chunk++) {
        const double *from = p->partial + chunk * outputs;
        for (int64_t i = 0; i < outputs; i++) {
            double a = p->partial[i], b = from[i];
            p->partial[i] = is_extreme(p) ? better(p->op == KN_OP_max, a, b) : a + b;
        }
    }
    store(p, 0, p->partial, outputs);
}

kn_status kn__host_reduce(kn_op_call *call) {
    const kn_tensor *x = call->in[0];
    const kn_attr_axes *attr = call->attr;
    plan p = {.loops = kn__loops((kn_dtype)x->dtype),
              .op = (kn_op)call->op,
              .scale = 1,
              .bytes = kn_dtype_bytes((kn_dtype)x->dtype),
              .x = x->data,
              .out = call->out[0]->data,
              .accumulate = (call->accumulate & 1) != 0};
    if (x->n == 0) { /* sums of nothing */
        double nothing = call->op == KN_OP_mean ? (double)NAN : 0;
        for (int64_t i = 0; i < call->out[0]->n; i++) store(&p, i, &nothing, 1);
        return KN_OK;
    }
    if (call->op == KN_OP_mean) p.scale = (double)call->out[0]->n / (double)x->n;
    plan_groups(&p, x, attr->mask);
    plan_chunks(&p);
    if (p.chunks == 1) {
        int threads = x->n >= WORTH_SPLITTING ? call->threads : 1;
        kn__parallel_for(threads, kn__chunks(p.units, p.units_each),
                         is_rows(&p) ? rows_part : whole_part, &p);
        return KN_OK;
    }
    void *partial = NULL;
    size_t size = (size_t)(p.chunks * p.kept.total * p.across) * sizeof(double);
    KN_TRY(kn__work(&partial, call, size));
    p.partial = partial;
    kn__parallel_for(call->threads, p.units * p.chunks, chunk_part, &p);
    combine(&p);
    return KN_OK;
}

/* --- argmax: x as [outer, n, inner] --- */

typedef struct argmax_job {
    const kn_loops *loops;
    const char *x;
    int64_t *out;
    int64_t n, inner, tiles, units, units_each;
    size_t bytes;
} argmax_job;

static void argmax_part(void *ctx, int64_t part) {
    const argmax_job *j = ctx;
    int64_t to = (part + 1) * j->units_each;
    if (to > j->units) to = j->units;
    for (int64_t unit = part * j->units_each; unit < to; unit++) {
        int64_t outer = unit / j->tiles, from = unit % j->tiles * KN_COLUMNS,
                n = j->inner - from < KN_COLUMNS ? j->inner - from : KN_COLUMNS;
        const void *x = j->x + (size_t)(outer * j->n * j->inner + from) * j->bytes;
        int64_t *out = j->out + outer * j->inner + from;
        if (j->inner == 1)
            *out = j->loops->argmax_row(x, j->n);
        else
            j->loops->argmax_columns(out, x, j->n, n, j->inner);
    }
}

kn_status kn__host_argmax(kn_op_call *call) {
    const kn_tensor *x = call->in[0];
    const kn_attr_axes *attr = call->attr;
    int axis = __builtin_ctz(attr->mask);
    argmax_job j = {.loops = kn__loops((kn_dtype)x->dtype),
                    .x = x->data,
                    .out = call->out[0]->data,
                    .n = x->dim[axis],
                    .inner = 1,
                    .bytes = kn_dtype_bytes((kn_dtype)x->dtype)};
    for (int i = axis + 1; i < x->n_dims; i++) j.inner *= x->dim[i];
    j.tiles = kn__chunks(j.inner, KN_COLUMNS);
    j.units = x->n / (j.n * j.inner) * j.tiles;
    j.units_each = CHUNK_ELEMENTS / (x->n / j.units + 1) + 1;
    int threads = x->n >= WORTH_SPLITTING ? call->threads : 1;
    kn__parallel_for(threads, kn__chunks(j.units, j.units_each), argmax_part, &j);
    return KN_OK;
}
