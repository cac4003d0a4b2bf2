/* Rotary embedding on the host: a table of cosines and sines by position, then rows. */
#include <math.h>

#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "kernel.h"

enum { CHUNK = 16384 }; /* elements of a piece, at least */

typedef struct rotary_run {
    const kn_attr_rotary *attr;
    const kn__loop_table *loops;
    kn_dtype dtype;
    size_t bytes;
    int64_t rows, steps, width, pairs, each; /* rows: of a piece of x, of the table: steps */
    char *table, *y;                         /* table [steps][2][pairs] */
    const char *x;
} rotary_run;

static void set(void *to, kn_dtype dtype, int64_t i, double value) {
    if (dtype == KN_F64)
        ((double *)to)[i] = value;
    else
        ((float *)to)[i] = (float)value;
}

static void make_table(void *ctx, int64_t i) { /* pair i */
    const rotary_run *r = ctx;
    double rate = pow(r->attr->base, -2 * (double)i / (double)r->attr->n);
    for (int64_t t = 0; t < r->steps; t++) {
        double angle = (double)(t + r->attr->offset) * rate;
        set(r->table, r->dtype, 2 * t * r->pairs + i, cos(angle));
        set(r->table, r->dtype, (2 * t + 1) * r->pairs + i,
            r->attr->inverse ? -sin(angle) : sin(angle));
    }
}

static void turn_rows(void *ctx, int64_t i) {
    const rotary_run *r = ctx;
    int64_t end = (i + 1) * r->each < r->rows ? (i + 1) * r->each : r->rows;
    for (int64_t row = i * r->each; row < end; row++) {
        size_t at = (size_t)(row * r->width) * r->bytes;
        const char *turn = r->table + (size_t)(2 * (row % r->steps) * r->pairs) * r->bytes;
        r->loops->rotate(r->y + at, r->x + at, turn, r->pairs, r->width, r->attr->adjacent);
    }
}

kn_status kn__host_rotary(kn_op_call *call) {
    const kn_tensor *x = call->in[0];
    rotary_run r = {.attr = call->attr,
                    .loops = kn__loops((kn_dtype)x->dtype),
                    .dtype = (kn_dtype)x->dtype,
                    .bytes = kn_dtype_bytes((kn_dtype)x->dtype),
                    .steps = x->dim[x->n_dims - 2],
                    .width = x->dim[x->n_dims - 1],
                    .y = call->out[0]->data,
                    .x = x->data};
    r.pairs = r.attr->n / 2;
    r.rows = x->n / r.width;
    r.each = kn__chunks(CHUNK, r.width);
    void *table = NULL;
    KN_TRY(kn__work(&table, call, (size_t)(2 * r.steps * r.pairs) * r.bytes));
    r.table = table;
    kn__parallel_for(call->threads, r.pairs, make_table, &r);
    kn__parallel_for(call->threads, kn__chunks(r.rows, r.each), turn_rows, &r);
    return KN_OK;
}
