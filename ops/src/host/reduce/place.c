/* Places of extremes along one axis: x as [outer, n, inner]. A single long row, or tile of columns,
 * is cut into chunks. */
#include <string.h>

#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "host/reduce/cells.h"
#include "host/reduce/folds.h"
#include "kernel.h"
#include "reduce.h"

typedef struct place_job {
    const kn__fold_table *folds;
    const char *x;
    int64_t *places; /* NULL: not wanted */
    kn_tensor *values;
    kn_dtype dtype;
    bool max;
    int64_t n, inner, tile, tiles, units, units_each;
    int64_t chunks; /* of a single long row, or tile of columns */
    kn__cell *chunk_best;
    int64_t *chunk_place;
} place_job;

static bool improves(const place_job *j, kn__cell v, kn__cell best) {
    if (!kn__is_float(j->dtype)) return j->max ? v.i > best.i : v.i < best.i;
    return (j->max ? v.f > best.f : v.f < best.f) || (v.f != v.f && best.f == best.f);
}

static void store_place(const place_job *j, int64_t at, const kn__cell *best, const int64_t *places,
                        int64_t n) {
    if (j->places) memcpy(j->places + at, places, (size_t)n * sizeof *places);
    if (!j->values) return;
    store_cells(j->values, at, best, !kn__is_float(j->dtype), n);
}

/* Pieces of a row of halves, or of one along columns, are joined in their order. */
static void place_halves(const place_job *j, kn__cell *best, int64_t *places, const uint16_t *x,
                         int64_t n, int64_t down) {
    float buffer[HALF_ROWS * KN_COLUMNS];
    const kn__loop_table *loops = kn__loops(KN_F32);
    bool columns = j->inner > 1;
    int64_t step = columns ? HALF_ROWS : HALF_BLOCK;
    kn__cell piece[KN_COLUMNS];
    int64_t at[KN_COLUMNS];
    for (int64_t d = 0; d < down; d += step) {
        int64_t m = at_most(down - d, step);
        if (columns) {
            for (int64_t r = 0; r < m; r++)
                loops->cast_from(buffer + r * n, x + (d + r) * j->inner, j->dtype, n);
            j->folds->place_columns(piece, at, buffer, n, m, n, j->max);
        } else {
            loops->cast_from(buffer, x + d, j->dtype, m);
            j->folds->place_rows(piece, at, buffer, 1, m, m, j->max);
        }
        for (int64_t i = 0; i < n; i++) {
            if (d && !improves(j, piece[i], best[i])) continue;
            best[i] = piece[i];
            places[i] = at[i] + d;
        }
    }
}

/* n whole rows of halves that lie one after the other, as many at a time as have room. */
static void place_half_rows(const place_job *j, kn__cell *best, int64_t *places, const uint16_t *x,
                            int64_t n) {
    float buffer[HALF_ROWS * KN_COLUMNS];
    const int64_t most = HALF_ROWS * KN_COLUMNS / j->n;
    for (int64_t o = 0; o < n; o += most) {
        int64_t m = at_most(n - o, most);
        kn__loops(KN_F32)->cast_from(buffer, x + o * j->n, j->dtype, m * j->n);
        j->folds->place_rows(best + o, places + o, buffer, m, j->n, j->n, j->max);
    }
}

/* Of n lines from `at` on: the first `down` elements. */
static void find_places(const place_job *j, kn__cell *best, int64_t *places, int64_t at, int64_t n,
                        int64_t down) {
    const char *x = j->x + (size_t)at * kn_dtype_bytes(j->dtype);
    if (j->dtype == KN_F16 || j->dtype == KN_BF16) {
        const uint16_t *in = (const uint16_t *)(const void *)x;
        if (j->inner > 1)
            place_halves(j, best, places, in, n, down);
        else if (j->n <= HALF_BLOCK)
            place_half_rows(j, best, places, in, n);
        else
            for (int64_t o = 0; o < n; o++)
                place_halves(j, best + o, places + o, in + o * j->n, 1, down);
    } else if (j->inner > 1) {
        j->folds->place_columns(best, places, x, n, down, j->inner, j->max);
    } else {
        j->folds->place_rows(best, places, x, n, down, j->n, j->max);
    }
}

static void place_part(void *ctx, int64_t part) {
    const place_job *j = ctx;
    bool columns = j->inner > 1; /* a unit is a tile of them, or one row */
    int64_t to = at_most((part + 1) * j->units_each, j->units), step;
    kn__cell best[KN_COLUMNS];
    int64_t places[KN_COLUMNS];
    for (int64_t unit = part * j->units_each; unit < to; unit += step) {
        int64_t outer = unit / j->tiles, from = unit % j->tiles * j->tile;
        step = columns ? 1 : at_most(to - unit, KN_COLUMNS);
        int64_t n = columns ? at_most(j->inner - from, j->tile) : step;
        find_places(j, best, places, outer * j->n * j->inner + from, n, j->n);
        store_place(j, outer * j->inner + from, best, places, n);
    }
}

static void place_chunk(void *ctx, int64_t chunk) {
    const place_job *j = ctx;
    int64_t from = kn__part(j->n, j->chunks, chunk), to = kn__part(j->n, j->chunks, chunk + 1);
    int64_t *places = j->chunk_place + chunk * j->inner;
    find_places(j, j->chunk_best + chunk * j->inner, places, from * j->inner, j->inner, to - from);
    for (int64_t i = 0; i < j->inner; i++) places[i] += from;
}

/* One long row, or one tile of long columns. */
static kn_status place_chunks(place_job *j, kn_op_call *call) {
    int64_t n = j->chunks * j->inner;
    void *work = NULL;
    KN_TRY(kn__work(&work, call, (size_t)n * (sizeof(kn__cell) + sizeof(int64_t))));
    kn__cell *best = j->chunk_best = work;
    int64_t *places = j->chunk_place = (int64_t *)(void *)(best + n);
    kn__parallel_for(call->threads, j->chunks, place_chunk, j);
    for (int64_t i = j->inner; i < n; i++) {
        int64_t to = i % j->inner;
        if (improves(j, best[i], best[to])) best[to] = best[i], places[to] = places[i];
    }
    store_place(j, 0, best, places, j->inner);
    return KN_OK;
}

kn_status kn__host_place(kn_op_call *call) {
    const kn_tensor *x = call->in[0];
    kn__lines lines = kn__lines_of(x, ((const kn_attr_axes *)call->attr)->mask);
    bool pair = call->n_out > 1;
    place_job j = {.folds = kn__folds((kn_dtype)x->dtype),
                   .x = x->data,
                   .values = pair ? call->out[0] : NULL,
                   .places = NULL,
                   .dtype = (kn_dtype)x->dtype,
                   .max = call->op == KN_OP_argmax || call->op == KN_OP_max_index,
                   .n = lines.n,
                   .inner = lines.inner};
    kn_tensor *places = call->out[pair ? 1 : 0];
    if (places) j.places = places->data;
    if (j.n == 1) {
        if (places) memset(places->data, 0, (size_t)places->n * sizeof *j.places);
        if (j.values) memcpy(j.values->data, x->data, (size_t)x->n * kn_dtype_bytes(j.dtype));
        return KN_OK;
    }
    j.tile = at_most(j.inner, KN_LINES);
    j.tiles = kn__chunks(j.inner, KN_LINES);
    j.units = lines.outer * j.tiles;
    j.units_each = CHUNK_ELEMENTS / (x->n / j.units + 1) + 1;
    j.chunks = j.units == 1 ? at_most(x->n / CHUNK_ELEMENTS, CHUNKS_MAX) : 1;
    if (j.chunks > 1) return place_chunks(&j, call);
    int threads = x->n >= WORTH_SPLITTING ? call->threads : 1;
    kn__parallel_for(threads, kn__chunks(j.units, j.units_each), place_part, &j);
    return KN_OK;
}
