/* Scans along one axis: x as [outer, n, inner]. Lines are independent; a long line alone is cut
 * into chunks, whose totals say where each chunk begins. */
#include <string.h>

#include "convert.h"
#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "host/reduce/folds.h"
#include "kernel.h"

enum { GRAIN = 1 << 14, HALF_PIECE = 512 };

typedef struct scan_job {
    const kn__fold_table *folds;
    kn__scan_kind scan;
    kn__scan_way way;
    kn_dtype dtype;
    char *y;
    const char *x, *b; /* b: of KN_SCAN_RECUR */
    size_t bytes, out_bytes;
    kn__lines lines;
    int64_t tiles, units, units_each, chunks;
    kn__cell *starts; /* [lines][chunks] */
} scan_job;

static kn__cell start_of(const scan_job *j) {
    kn__cell zero = {.i = 0}, one = {.i = 1};
    if (kn__is_float(j->dtype)) one.f = 1;
    return j->scan == KN_SCAN_PROD ? one : zero;
}

static bool is_half(const scan_job *j) { return j->dtype == KN_F16 || j->dtype == KN_BF16; }

/* `count` neighbouring halves by way of f32; as a piece of one line, or of as many lines. */
static void scan_halves(const scan_job *j, int64_t at, int64_t count, bool one_line,
                        kn__cell *carry, bool store) {
    float y[HALF_PIECE], x[HALF_PIECE], b[HALF_PIECE];
    const kn__loop_table *loops = kn__loops(KN_F32);
    loops->cast_from(x, j->x + (size_t)at * 2, j->dtype, count);
    if (j->b) loops->cast_from(b, j->b + (size_t)at * 2, j->dtype, count);
    if (one_line)
        j->folds->scan_row[j->scan](store ? y : NULL, x, b, carry, 1, count, 1, j->way);
    else
        j->folds->scan_columns[j->scan](y, x, b, carry, count, 1, count, j->way);
    if (store) loops->cast_to(j->y + (size_t)at * 2, y, j->dtype, count);
}

/* Elements from … to - 1 of the line that begins at `line`. */
static void scan_line(const scan_job *j, int64_t line, int64_t from, int64_t to, kn__cell *carry,
                      bool store) {
    int64_t at = line + from, n = to - from;
    if (!is_half(j)) {
        j->folds->scan_row[j->scan](
            store ? j->y + (size_t)at * j->out_bytes : NULL, j->x + (size_t)at * j->bytes,
            j->b ? j->b + (size_t)at * j->bytes : NULL, carry, 1, n, 1, j->way);
        return;
    }
    for (int64_t done = 0; done < n; done += HALF_PIECE) {
        int64_t m = n - done < HALF_PIECE ? n - done : HALF_PIECE;
        int64_t first = j->way.reverse ? to - done - m : from + done;
        scan_halves(j, line + first, m, true, carry, store);
    }
}

/* n neighbouring lines along columns, from element `at` on. */
static void scan_tile(const scan_job *j, int64_t at, int64_t n) {
    kn__cell carry[KN_LINES];
    for (int64_t i = 0; i < n; i++) carry[i] = start_of(j);
    if (!is_half(j)) {
        j->folds->scan_columns[j->scan](j->y + (size_t)at * j->out_bytes,
                                        j->x + (size_t)at * j->bytes,
                                        j->b ? j->b + (size_t)at * j->bytes : NULL, carry, n,
                                        j->lines.n, j->lines.inner, j->way);
        return;
    }
    for (int64_t k = 0; k < j->lines.n; k++) {
        int64_t d = j->way.reverse ? j->lines.n - 1 - k : k;
        scan_halves(j, at + d * j->lines.inner, n, false, carry, true);
    }
}

static void unit_part(void *ctx, int64_t part) {
    const scan_job *j = ctx;
    int64_t to = (part + 1) * j->units_each;
    if (to > j->units) to = j->units;
    for (int64_t unit = part * j->units_each; unit < to; unit++) {
        if (j->lines.inner == 1) {
            kn__cell carry = start_of(j);
            scan_line(j, unit * j->lines.n, 0, j->lines.n, &carry, true);
        } else {
            int64_t from = unit % j->tiles * KN_LINES, left = j->lines.inner - from;
            scan_tile(j, unit / j->tiles * j->lines.n * j->lines.inner + from,
                      left < KN_LINES ? left : KN_LINES);
        }
    }
}

/* --- few long lines --- */

static void scan_chunk(const scan_job *j, int64_t part, bool store) {
    int64_t line = part / j->chunks, chunk = part % j->chunks;
    kn__cell carry = store ? j->starts[part] : start_of(j);
    scan_line(j, line * j->lines.n, kn__part(j->lines.n, j->chunks, chunk),
              kn__part(j->lines.n, j->chunks, chunk + 1), &carry, store);
    if (!store) j->starts[part] = carry;
}
static void total_part(void *ctx, int64_t part) { scan_chunk(ctx, part, false); }
static void chunk_part(void *ctx, int64_t part) { scan_chunk(ctx, part, true); }

/* From totals to where each chunk begins. */
static void place_starts(const scan_job *j) {
    bool prod = j->scan == KN_SCAN_PROD;
    for (int64_t line = 0; line < j->lines.outer; line++) {
        kn__cell acc = start_of(j);
        for (int64_t k = 0; k < j->chunks; k++) {
            kn__cell *at = &j->starts[line * j->chunks + (j->way.reverse ? j->chunks - 1 - k : k)];
            kn__cell total = *at;
            *at = acc;
            if (kn__is_float(j->dtype))
                acc.f = prod ? acc.f * total.f : acc.f + total.f;
            else
                acc.i = (int64_t)(prod ? (uint64_t)acc.i * (uint64_t)total.i
                                       : (uint64_t)acc.i + (uint64_t)total.i);
        }
    }
}

static kn_status run_chunks(scan_job *j, kn_op_call *call) {
    void *starts = NULL;
    int64_t n = j->lines.outer * j->chunks;
    KN_TRY(kn__work(&starts, call, (size_t)n * sizeof(kn__cell)));
    j->starts = starts;
    kn__parallel_for(call->threads, n, total_part, j);
    place_starts(j);
    kn__parallel_for(call->threads, n, chunk_part, j);
    return KN_OK;
}

kn_status kn__host_scan(kn_op_call *call) {
    const kn_tensor *x = call->in[0];
    const kn_attr_scan *attr = call->attr;
    scan_job j = {.folds = kn__folds((kn_dtype)x->dtype),
                  .scan = call->op == KN_OP_cumsum    ? KN_SCAN_SUM
                          : call->op == KN_OP_cumprod ? KN_SCAN_PROD
                                                      : KN_SCAN_RECUR,
                  .way = {attr->reverse != 0, attr->exclusive != 0},
                  .dtype = (kn_dtype)x->dtype,
                  .y = call->out[0]->data,
                  .x = x->data,
                  .bytes = kn_dtype_bytes((kn_dtype)x->dtype),
                  .out_bytes = kn_dtype_bytes((kn_dtype)call->out[0]->dtype),
                  .lines = kn__lines_of(x, attr->mask)};
    if (call->op == KN_OP_recur) j.b = call->in[1]->data;
    j.tiles = kn__chunks(j.lines.inner, KN_LINES);
    j.units = j.lines.outer * j.tiles;
    j.units_each = GRAIN / (x->n / j.units + 1) + 1;
    j.chunks = j.lines.inner == 1 && j.units < 8 && j.scan != KN_SCAN_RECUR ? j.lines.n / GRAIN : 1;
    if (j.chunks > 1) return run_chunks(&j, call);
    kn__parallel_for(x->n >= 2 * GRAIN ? call->threads : 1, kn__chunks(j.units, j.units_each),
                     unit_part, &j);
    return KN_OK;
}
