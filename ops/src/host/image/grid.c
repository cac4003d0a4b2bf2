/* Samples of images at the places of a grid, on the host. Gradients of x are made by a few channels
 * at a time, those of the grid by a few places. */
#include <string.h>

#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "image_call.h"
#include "kernel.h"

enum { CHANNELS = 8 }; /* of one piece of the gradient of x */

typedef struct grid_run {
    kn__grid g;
    const kn__loop_table *loops;
    size_t bytes;
    const char *x, *grid, *dy;
    char *y, *dx, *dgrid;
    int64_t runs, groups; /* of the places and of the channels of an image */
} grid_run;

static char *at(const grid_run *r, const void *base, int64_t element) {
    return (char *)(uintptr_t)base + (size_t)element * r->bytes;
}

static grid_run run_of(const kn_op_call *call) {
    const kn_tensor *x = call->in[0], *grid = call->in[1];
    grid_run r = {.g = kn__grid_of(call->attr, x, grid),
                  .loops = kn__loops((kn_dtype)x->dtype),
                  .bytes = kn_dtype_bytes((kn_dtype)x->dtype),
                  .x = x->data,
                  .grid = grid->data};
    r.runs = kn__chunks(r.g.places, KN_GRID_RUN);
    r.groups = kn__chunks(r.g.channels, CHANNELS);
    return r;
}

static int64_t places_left(const grid_run *r, int64_t first) {
    return r->g.places - first < KN_GRID_RUN ? r->g.places - first : KN_GRID_RUN;
}

static void sample_run(void *ctx, int64_t i) {
    const grid_run *r = ctx;
    int64_t b = i / r->runs, first = i % r->runs * KN_GRID_RUN, c = b * r->g.channels;
    r->loops->grid_sample(&r->g, at(r, r->y, c * r->g.places),
                          at(r, r->x, c * r->g.in[0] * r->g.in[1]),
                          at(r, r->grid, 2 * b * r->g.places), first, places_left(r, first));
}

kn_status kn__host_grid_sample(kn_op_call *call) {
    grid_run r = run_of(call);
    r.y = call->out[0]->data;
    kn__parallel_for(call->threads, r.g.batch * r.runs, sample_run, &r);
    return KN_OK;
}

static void back_x(void *ctx, int64_t i) {
    const grid_run *r = ctx;
    int64_t b = i / r->groups, first = i % r->groups * CHANNELS, left = r->g.channels - first;
    int64_t c = b * r->g.channels + first;
    r->loops->grid_back_x(&r->g, at(r, r->dx, c * r->g.in[0] * r->g.in[1]),
                          at(r, r->dy, c * r->g.places), at(r, r->grid, 2 * b * r->g.places),
                          left < CHANNELS ? left : CHANNELS);
}

static void back_grid(void *ctx, int64_t i) {
    const grid_run *r = ctx;
    int64_t b = i / r->runs, first = i % r->runs * KN_GRID_RUN, c = b * r->g.channels;
    int64_t from = 2 * b * r->g.places;
    r->loops->grid_back_grid(&r->g, at(r, r->dgrid, from), at(r, r->x, c * r->g.in[0] * r->g.in[1]),
                             at(r, r->dy, c * r->g.places), at(r, r->grid, from), first,
                             places_left(r, first));
}

/* x, grid, g → dx, dgrid */
kn_status kn__host_grid_sample_back(kn_op_call *call) {
    grid_run r = run_of(call);
    r.dy = call->in[2]->data;
    if (call->out[0]) {
        r.dx = call->out[0]->data;
        kn__parallel_for(call->threads, r.g.batch * r.groups, back_x, &r);
    }
    if (call->out[1] && r.g.nearest) {
        memset(call->out[1]->data, 0, (size_t)call->out[1]->n * r.bytes);
    } else if (call->out[1]) {
        r.dgrid = call->out[1]->data;
        kn__parallel_for(call->threads, r.g.batch * r.runs, back_grid, &r);
    }
    return KN_OK;
}
