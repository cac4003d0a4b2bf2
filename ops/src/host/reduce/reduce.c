/* Reductions over any axes, by the recipe of each op (reduce.h). x's dimensions are merged into
 * groups that are kept or reduced in turn. If the last group is reduced, loops run along rows of
 * contiguous elements; if it is kept, along columns. A *tile* is what a loop takes at once: at most
 * KN_COLUMNS neighbouring results, and all that makes them.
 *
 * Work is cut by shape alone: into tiles, and for few tiles of much work also into chunks of the
 * reduced elements; their partial results are joined in order. */
#include <math.h>
#include <string.h>

#include "convert.h"
#include "fuse.h"
#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "host/reduce/cells.h"
#include "host/reduce/folds.h"
#include "host/reduce/reduce_fused.h"
#include "kernel.h"

typedef struct group_list {
    int n;
    int64_t dim[KN_DIMS_MAX], stride[KN_DIMS_MAX], total;
} group_list;

typedef struct plan {
    const kn__fold_table *folds;
    kn__recipe recipe;
    kn_dtype dtype;
    const char *x;
    const kn__fused *source; /* NULL: x; else what makes x, by tiles */
    const kn__fused_links *links;
    kn_tensor *out;
    const kn_tensor *given; /* shifts */
    bool accumulate;
    group_list kept, reduced; /* the outer groups */
    bool columns;
    int64_t down;           /* the last reduced group */
    int64_t across, stride; /* the last kept group: results beside each other; a row's stride */
    int64_t tile, tiles;    /* results of a tile; tiles of `across` */
    int64_t units;          /* kept.total × tiles */
    int64_t chunks;         /* of `down`, or of the outer reduced groups */
    bool outer_chunks;
    kn__cell *partial, *shift; /* [chunks][outputs], [outputs]; of chunked work */
    kn__fold fold;             /* of the pass */
    int64_t units_each;        /* taken by a thread at a time */
    kn__brief_loop brief;      /* makes the results without cells; NULL: it can't */
} plan;

enum { FEW_UNITS = 32 };
/* Rows that column loops join at once; rows of a partial result, at least: one thread joins those.
 */
enum { ROWS_AT_ONCE = 64, CHUNK_DEPTH = 256 };

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
    p->across = p->down = 1;
    if (p->columns) p->across = p->stride = dim[i++];
    if (i < n) p->down = dim[i++];
    if (!p->columns) {
        p->stride = p->down;
        if (i < n) p->across = dim[i++];
    }
    int64_t stride = p->across * p->down;
    for (; i < n; i++) {
        push(reduced[i] ? &p->reduced : &p->kept, dim[i], stride);
        stride *= dim[i];
    }
    p->kept.total = total(&p->kept);
    p->reduced.total = total(&p->reduced);
}

/* Few tiles of much work: cuts the reduced elements too. */
static void plan_chunks(plan *p) {
    int64_t depth = p->reduced.total * p->down, work = depth * p->across * p->kept.total;
    p->tile = p->columns ? KN_COLUMNS : at_most(CHUNK_ELEMENTS / depth + 1, KN_COLUMNS);
    p->tile = at_most(p->tile, p->across);
    p->tiles = kn__chunks(p->across, p->tile);
    p->units = p->kept.total * p->tiles;
    p->chunks = 1;
    if (p->units < FEW_UNITS && work >= WORTH_SPLITTING) {
        int64_t wanted = at_most(work / p->units / CHUNK_ELEMENTS, CHUNKS_MAX);
        p->outer_chunks = p->reduced.total > p->down;
        wanted = at_most(wanted, p->outer_chunks ? p->reduced.total : p->down);
        if (p->columns) wanted = at_most(wanted, kn__chunks(depth, CHUNK_DEPTH));
        if (wanted > 1) p->chunks = wanted;
    }
    p->units_each = CHUNK_ELEMENTS / (work / p->units + 1) + 1;
}

/* --- one tile --- */

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

/* Halves are converted to f32 piece by piece. */
static void fold_halves(const plan *p, kn__cell *cells, const uint16_t *x, int64_t n, int64_t down,
                        const kn__cell *shift) {
    float buffer[HALF_ROWS * KN_COLUMNS];
    const kn__loop_table *loops = kn__loops(KN_F32);
    double power = p->recipe.p;
    if (!p->columns) {
        for (int64_t o = 0; o < n; o++) {
            for (int64_t d = 0; d < down; d += HALF_BLOCK) {
                int64_t m = at_most(down - d, HALF_BLOCK);
                loops->cast_from(buffer, x + o * p->stride + d, p->dtype, m);
                p->folds->rows[p->fold](cells + o, buffer, 1, m, m, shift ? shift + o : NULL,
                                        power);
            }
        }
        return;
    }
    /* of few columns many rows are converted at once, and HALF_ROWS joined at a time */
    const int64_t most = p->stride == n ? KN_COLUMNS / n * HALF_ROWS : HALF_ROWS;
    for (int64_t d = 0; d < down; d += most) {
        int64_t rows = at_most(down - d, most), lines = p->stride == n ? 1 : rows;
        for (int64_t r = 0; r < lines; r++)
            loops->cast_from(buffer + r * n, x + (d + r) * p->stride, p->dtype, rows * n / lines);
        for (int64_t r = 0; r < rows; r += HALF_ROWS)
            p->folds->columns[p->fold](cells, buffer + r * n, n, at_most(rows - r, HALF_ROWS), n,
                                       shift, power);
    }
}

/* Rows from a tile of the chain: of a long row one of the loops' blocks, so that the bits are those
 * of the whole row; short ones that lie together. */
static void fold_tile(const plan *p, kn__tile tiles[], kn__cell *cells, int64_t at, int64_t n,
                      int64_t down) {
    float f32[KN__ROW_BLOCK];
    const void *x = kn__fused_block(p->source, p->links, tiles, at, n * down);
    if (p->dtype == KN_F16 || p->dtype == KN_BF16) {
        kn__loops(KN_F32)->cast_from(f32, x, p->dtype, n * down);
        x = f32;
    }
    p->folds->rows[p->fold](cells, x, n, down, down, NULL, p->recipe.p);
}

static __attribute__((noinline)) void fold_fused(const plan *p, kn__cell *cells, int64_t at,
                                                 int64_t n, int64_t down) {
    kn__tile *tiles = kn__fused_tiles();
    if (!tiles)
        tiles =
            __builtin_alloca_with_align(KN__FUSED_STEPS * sizeof *tiles, 8 * _Alignof(kn__tile));
    int64_t block = p->dtype == KN_F64 ? KN_FOLD_BLOCK_BYTES / 8 : KN_FOLD_BLOCK_BYTES / 4;
    int64_t together = down == p->stride ? KN__ROW_BLOCK / down : 0;
    if (together > 1) {
        for (int64_t o = 0; o < n; o += together)
            fold_tile(p, tiles, cells + o, at + o * down, at_most(n - o, together), down);
        return;
    }
    for (int64_t o = 0; o < n; o++) {
        for (int64_t d = 0; d < down; d += block)
            fold_tile(p, tiles, cells + o, at + o * p->stride + d, 1, at_most(down - d, block));
    }
}

static void fold_piece(const plan *p, kn__cell *cells, int64_t at, int64_t n, int64_t down,
                       const kn__cell *shift) {
    if (p->source) {
        fold_fused(p, cells, at, n, down);
        return;
    }
    const char *x = p->x + (size_t)at * kn_dtype_bytes(p->dtype);
    if (p->dtype == KN_F16 || p->dtype == KN_BF16) {
        fold_halves(p, cells, (const uint16_t *)(const void *)x, n, down, shift);
        return;
    }
    const kn__fold_loop *loops = p->columns ? p->folds->columns : p->folds->rows;
    loops[p->fold](cells, x, n, down, p->stride, shift, p->recipe.p);
}

/* The loop that makes the results of one tile at once, if there is one. */
static kn__brief_loop brief_loop(const plan *p) {
    const size_t bytes = p->dtype == KN_F64 || p->dtype == KN_I64 ? 8 : 4;
    bool one_pass = p->recipe.shift == KN__SHIFT_NONE && p->recipe.finish == KN__FINISH_DIVIDE;
    if (!one_pass || p->source || p->accumulate || p->chunks > 1 || p->reduced.total > 1)
        return NULL;
    bool is_half = p->dtype == KN_F16 || p->dtype == KN_BF16; /* more are joined in f64 */
    int64_t most = is_half ? HALF_ROWS : KN_BRIEF_ROWS;
    if (p->columns) return p->down <= most ? p->folds->brief_columns[p->fold] : NULL;
    return (size_t)p->down < KN_BRIEF_ROW_BYTES / bytes ? p->folds->brief_rows[p->fold] : NULL;
}

/* Where a unit's results begin, and how many they are. */
static int64_t unit_place(const plan *p, int64_t unit, int64_t *n) {
    int64_t from = unit % p->tiles * p->tile;
    *n = at_most(p->across - from, p->tile);
    return unit / p->tiles * p->across + from;
}

/* Where a chunk of `down` begins. Column loops join blocks of rows, which chunks don't cut. */
static int64_t chunk_place(const plan *p, int64_t chunk) {
    int64_t block = p->columns ? ROWS_AT_ONCE : 1;
    return at_most(kn__part(kn__chunks(p->down, block), p->chunks, chunk) * block, p->down);
}

/* One tile over one chunk of the reduced elements. */
static void fold_unit(const plan *p, int64_t unit, int64_t chunk, kn__cell *cells,
                      const kn__cell *shift) {
    int64_t r0 = 0, r1 = p->reduced.total, d0 = 0, d1 = p->down, n;
    if (p->chunks > 1 && p->outer_chunks) {
        r0 = kn__part(p->reduced.total, p->chunks, chunk);
        r1 = kn__part(p->reduced.total, p->chunks, chunk + 1);
    } else if (p->chunks > 1) {
        d0 = chunk_place(p, chunk);
        d1 = chunk_place(p, chunk + 1);
    }
    unit_place(p, unit, &n);
    int64_t from = unit % p->tiles * p->tile;
    int64_t base = offset(&p->kept, unit / p->tiles);
    base += p->columns ? d0 * p->stride + from : from * p->stride + d0;
    neutral_cells(p->fold, p->dtype, cells, n);
    for (int64_t r = r0; r < r1; r++)
        fold_piece(p, cells, base + offset(&p->reduced, r), n, d1 - d0, shift);
}

/* --- shifts and finishes --- */

/* Of a mean: the first element of each of n results. Sums of distances from it keep their digits
 * where the elements lie close together, far from zero. */
static void first_elements(const plan *p, int64_t unit, kn__cell *first) {
    int64_t n, from = unit % p->tiles * p->tile, step = p->columns ? 1 : p->stride;
    unit_place(p, unit, &n);
    size_t bytes = kn_dtype_bytes(p->dtype);
    const char *x = p->x + (size_t)(offset(&p->kept, unit / p->tiles) + from * step) * bytes;
    for (int64_t i = 0; i < n; i++)
        first[i].f = kn__as_double(x + (size_t)(i * step) * bytes, p->dtype);
}

/* shift: the first elements, or nothing; joined: what the first pass made. */
static void make_shift(const plan *p, kn__cell *shift, const kn__cell *joined, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (p->recipe.shift == KN__SHIFT_MEAN)
            shift[i].f += joined[i].f / (double)p->recipe.n_in;
        else
            shift[i] = joined[i];
    }
}

static void given_shift(const plan *p, kn__cell *shift, int64_t at, int64_t n) {
    size_t bytes = kn_dtype_bytes(p->dtype);
    for (int64_t i = 0; i < n; i++)
        shift[i].f =
            kn__as_double((const char *)p->given->data + (size_t)(at + i) * bytes, p->dtype);
}

/* n <= KN_COLUMNS results from `at` on. */
static void finish(const plan *p, int64_t at, const kn__cell *cells, const kn__cell *shift,
                   int64_t n) {
    const kn__recipe *r = &p->recipe;
    bool integers = !kn__is_float(p->dtype) || p->fold == KN__FOLD_COUNT;
    bool plain = r->finish == KN__FINISH_DIVIDE && r->divisor == 1;
    if (integers && plain && !kn__is_float((kn_dtype)p->out->dtype)) {
        store_cells(p->out, at, cells, true, n);
        return;
    }
    if (r->finish == KN__FINISH_ANY || r->finish == KN__FINISH_ALL) {
        uint8_t *out = (uint8_t *)p->out->data + at;
        int64_t least = r->finish == KN__FINISH_ANY ? 1 : r->n_in;
        for (int64_t i = 0; i < n; i++) out[i] = cells[i].i >= least;
        return;
    }
    double v[KN_COLUMNS];
    for (int64_t i = 0; i < n; i++) v[i] = integers ? (double)cells[i].i : cells[i].f;
    if (r->finish == KN__FINISH_DIVIDE) {
        for (int64_t i = 0; i < n; i++) v[i] /= r->divisor;
    } else {
        for (int64_t i = 0; i < n; i++) v[i] = finished(r, p->dtype, v[i], shift ? shift[i].f : 0);
    }
    store(p->out, p->accumulate, at, v, n);
}

/* --- running it --- */

/* The fold that makes the shifts. */
static plan shift_plan(const plan *p) {
    plan first = *p;
    first.fold = p->recipe.shift == KN__SHIFT_MAX ? KN__FOLD_MAX : KN__FOLD_SUM_FROM;
    return first;
}

static bool has_first_pass(const plan *p) {
    return p->recipe.shift == KN__SHIFT_MEAN || p->recipe.shift == KN__SHIFT_MAX;
}

/* n halves at a time, as many columns or whole rows. */
static void brief_halves(const plan *p, uint16_t *y, const uint16_t *x, int64_t n) {
    float from[HALF_ROWS * KN_COLUMNS], to[KN_COLUMNS];
    const kn__loop_table *loops = kn__loops(KN_F32);
    int64_t each = at_most(HALF_ROWS * KN_COLUMNS / p->down, n), rows = p->columns ? p->down : 1;
    for (int64_t i = 0; i < n; i += each) {
        int64_t m = at_most(n - i, each), length = p->columns ? m : m * p->down;
        const uint16_t *in = x + (p->columns ? i : i * p->down);
        for (int64_t r = 0; r < rows; r++)
            loops->cast_from(from + r * length, in + r * p->stride, p->dtype, length);
        p->brief(to, from, m, p->down, m, p->recipe.divisor);
        loops->cast_to(y + i, to, p->dtype, m);
    }
}

static void brief_unit(const plan *p, int64_t unit) {
    int64_t n, at = unit_place(p, unit, &n), from = unit % p->tiles * p->tile;
    from = offset(&p->kept, unit / p->tiles) + (p->columns ? from : from * p->stride);
    size_t bytes = kn_dtype_bytes(p->dtype);
    void *y = (char *)p->out->data + (size_t)at * bytes;
    const void *x = p->x + (size_t)from * bytes;
    if (p->dtype == KN_F16 || p->dtype == KN_BF16)
        brief_halves(p, y, x, n);
    else
        p->brief(y, x, n, p->down, p->stride, p->recipe.divisor);
}

static void whole_unit(const plan *p, int64_t unit) {
    if (p->brief) {
        brief_unit(p, unit);
        return;
    }
    kn__cell cells[KN_COLUMNS], shifts[KN_COLUMNS];
    int64_t n, at = unit_place(p, unit, &n);
    if (has_first_pass(p)) {
        plan first = shift_plan(p);
        bool mean = p->recipe.shift == KN__SHIFT_MEAN;
        if (mean) first_elements(p, unit, shifts);
        fold_unit(&first, unit, 0, cells, mean ? shifts : NULL);
        make_shift(p, shifts, cells, n);
    } else if (p->given) {
        given_shift(p, shifts, at, n);
    }
    const kn__cell *shift = p->recipe.shift == KN__SHIFT_NONE ? NULL : shifts;
    fold_unit(p, unit, 0, cells, shift);
    finish(p, at, cells, shift, n);
}

static void whole_part(void *ctx, int64_t part) {
    const plan *p = ctx;
    int64_t to = at_most((part + 1) * p->units_each, p->units);
    for (int64_t unit = part * p->units_each; unit < to; unit++) whole_unit(p, unit);
}

static void chunk_part(void *ctx, int64_t part) {
    const plan *p = ctx;
    int64_t unit = part / p->chunks, chunk = part % p->chunks, n;
    int64_t at = unit_place(p, unit, &n);
    fold_unit(p, unit, chunk, p->partial + chunk * p->out->n + at, p->shift ? p->shift + at : NULL);
}

/* One pass over all chunks; the joined results are in the first one's place. */
static void chunked_pass(plan *p, int threads) {
    bool integers = !kn__is_float(p->dtype) || p->fold == KN__FOLD_COUNT;
    kn__parallel_for(threads, p->units * p->chunks, chunk_part, p);
    for (int64_t chunk = 1; chunk < p->chunks; chunk++)
        join_cells(p->fold, integers, p->partial, p->partial + chunk * p->out->n, p->out->n);
}

static kn_status run_chunks(plan *p, kn_op_call *call) {
    int64_t outputs = p->out->n;
    void *partial = NULL;
    KN_TRY(kn__work(&partial, call, (size_t)((p->chunks + 1) * outputs) * sizeof(kn__cell)));
    p->partial = partial;
    if (p->recipe.shift != KN__SHIFT_NONE) {
        kn__cell *shift = p->partial + p->chunks * outputs;
        if (has_first_pass(p)) {
            plan first = shift_plan(p);
            if (p->recipe.shift == KN__SHIFT_MEAN) {
                for (int64_t unit = 0, n; unit < p->units; unit++)
                    first_elements(p, unit, shift + unit_place(p, unit, &n));
                first.shift = shift;
            }
            chunked_pass(&first, call->threads);
            make_shift(p, shift, p->partial, outputs);
        } else {
            given_shift(p, shift, 0, outputs);
        }
        p->shift = shift;
    }
    chunked_pass(p, call->threads);
    for (int64_t at = 0; at < outputs; at += KN_COLUMNS)
        finish(p, at, p->partial + at, p->shift ? p->shift + at : NULL,
               at_most(outputs - at, KN_COLUMNS));
    return KN_OK;
}

/* Of no elements. */
static void finish_nothing(plan *p) {
    kn__cell cells[KN_COLUMNS], shift[KN_COLUMNS];
    plan first = shift_plan(p);
    neutral_cells(first.fold, first.dtype, shift, KN_COLUMNS);
    neutral_cells(p->fold, p->dtype, cells, KN_COLUMNS);
    for (int64_t at = 0; at < p->out->n; at += KN_COLUMNS)
        finish(p, at, cells, shift, at_most(p->out->n - at, KN_COLUMNS));
}

static kn_status reduce_from(kn_op_call *call, const kn__fused *source,
                             const kn__fused_links *links) {
    const kn_tensor *x = call->in[0];
    plan p = {.source = source,
              .links = links,
              .folds = kn__folds((kn_dtype)x->dtype),
              .recipe = kn__reduce_recipe(call),
              .dtype = (kn_dtype)x->dtype,
              .x = x->data,
              .out = call->out[0],
              .accumulate = (call->accumulate & 1) != 0};
    bool is_any_or_all = p.recipe.finish == KN__FINISH_ANY || p.recipe.finish == KN__FINISH_ALL;
    p.fold = p.recipe.fold;
    if (p.recipe.shift == KN__SHIFT_GIVEN) p.given = call->in[1];
    if (x->n == 0) {
        finish_nothing(&p);
        return KN_OK;
    }
    if (p.dtype == KN_BOOL && is_any_or_all) { /* in a byte's width */
        p.fold = p.recipe.fold = p.recipe.finish == KN__FINISH_ANY ? KN__FOLD_MAX : KN__FOLD_MIN;
        p.recipe.finish = KN__FINISH_DIVIDE;
    }
    plan_groups(&p, x, ((const kn_attr_axes *)call->attr)->mask);
    plan_chunks(&p);
    if (p.chunks > 1) return run_chunks(&p, call);
    p.brief = brief_loop(&p);
    int threads = x->n >= WORTH_SPLITTING ? call->threads : 1;
    kn__parallel_for(threads, kn__chunks(p.units, p.units_each), whole_part, &p);
    return KN_OK;
}

kn_status kn__host_reduce(kn_op_call *call) {
    if (call->in[0]->state == KN_TENSOR_PENDING) return kn__fuse_reduce(call);
    return reduce_from(call, NULL, NULL);
}

kn_status kn__host_reduce_fused(kn_op_call *call, const kn__fused *f) {
    kn__fused_links links;
    kn__fused_links_make(&links, f);
    return reduce_from(call, f, &links);
}

bool kn__host_reduce_fuses(const kn_op_call *call) {
    const kn_tensor *x = call->in[0];
    if (x->n == 0 || kn__reduce_recipe(call).shift != KN__SHIFT_NONE) return false;
    plan p = {0};
    plan_groups(&p, x, ((const kn_attr_axes *)call->attr)->mask);
    return !p.columns;
}

int64_t kn__host_reduce_row(kn__recipe *recipe, const kn_op_call *call) {
    enum { FLOATS = 1u << KN_F32 | 1u << KN_F64 | 1u << KN_F16 | 1u << KN_BF16 };
    const kn_tensor *x = call->in[0];
    plan p = {0};
    if (x->n == 0 || !(FLOATS >> x->dtype & 1)) return 0;
    *recipe = kn__reduce_recipe(call);
    if (recipe->fold == KN__FOLD_COUNT || recipe->shift == KN__SHIFT_GIVEN) return 0;
    if (recipe->finish == KN__FINISH_ANY || recipe->finish == KN__FINISH_ALL) return 0;
    plan_groups(&p, x, ((const kn_attr_axes *)call->attr)->mask);
    plan_chunks(&p);
    return p.columns || p.reduced.n || p.chunks > 1 ? 0 : p.down;
}

/* In one pass. */
static void fold_rows(void *y, kn_dtype to, const void *x, kn_dtype from, const kn__recipe *recipe,
                      int64_t rows, int64_t row) {
    enum { FEW = 8 };
    const kn__fold_loop fold = kn__folds(from)->rows[recipe->fold];
    const size_t bytes = kn_dtype_bytes(from), to_bytes = kn_dtype_bytes(to);
    kn__cell cells[FEW];
    double v[FEW];
    for (int64_t r = 0, n; r < rows; r += n) {
        n = at_most(rows - r, FEW);
        neutral_cells(recipe->fold, from, cells, n);
        fold(cells, (const char *)x + (size_t)(r * row) * bytes, n, row, row, NULL, recipe->p);
        for (int64_t i = 0; i < n; i++) v[i] = cells[i].f / recipe->divisor;
        const kn_tensor out = {.data = (char *)y + (size_t)r * to_bytes, .dtype = (uint8_t)to};
        store(&out, false, 0, v, n);
    }
}

void kn__host_reduce_rows(void *y, kn_dtype to, const void *x, kn_dtype from,
                          const kn__recipe *recipe, int64_t rows, int64_t row) {
    bool is_half = from == KN_F16 || from == KN_BF16;
    if (recipe->shift == KN__SHIFT_NONE && recipe->finish == KN__FINISH_DIVIDE && !is_half) {
        fold_rows(y, to, x, from, recipe, rows, row);
        return;
    }
    kn_tensor out = {.n = rows, .dtype = (uint8_t)to, .data = y};
    plan p = {.folds = kn__folds(from), .recipe = *recipe, .dtype = from, .x = x, .out = &out};
    p.fold = recipe->fold;
    p.kept.total = p.reduced.total = p.tiles = p.chunks = 1;
    p.across = p.tile = rows;
    p.stride = p.down = row;
    whole_unit(&p, 0);
}
