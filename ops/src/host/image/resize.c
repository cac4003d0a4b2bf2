/* Resizing images on the host: plane by plane. */
#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "host/base/slots.h"
#include "image_call.h"

enum { CHUNK = 32768 }; /* elements of a chunk's planes, at least */

typedef struct resize_run {
    kn__resize_work work;
    void (*plane)(const kn__resize_work *w, void *to, const void *from, void *row);
    char *to;
    const char *from;
    size_t to_bytes, from_bytes;
    int64_t planes, each;
    kn__slots slots; /* of a row */
} resize_run;

static void resize_chunk(void *ctx, int64_t i) {
    resize_run *run = ctx;
    int64_t end = (i + 1) * run->each < run->planes ? (i + 1) * run->each : run->planes;
    void *row = kn__slot_take(&run->slots);
    for (int64_t p = i * run->each; p < end; p++)
        run->plane(&run->work, run->to + (size_t)p * run->to_bytes,
                   run->from + (size_t)p * run->from_bytes, row);
    kn__slot_give(&run->slots, row);
}

static kn_status make_rows(kn__resize_work *w, kn_op_call *call) {
    int64_t planes = w->r.out[0], rows = w->r.out[1];
    void *memory = NULL;
    KN_TRY(kn__work(&memory, call, (size_t)(planes + rows) * sizeof(kn__taps)));
    kn__taps *plane = memory, *row = plane + planes;
    for (int64_t i = 0; i < planes; i++) plane[i] = kn__resize_source(&w->r, 0, i);
    for (int64_t i = 0; i < rows; i++) row[i] = kn__resize_source(&w->r, 1, i);
    w->plane = plane, w->row = row;
    return KN_OK;
}

static kn_status make_columns(kn__resize_work *w, kn_op_call *call, kn_dtype dtype) {
    int64_t n = w->r.out[2];
    void *memory = NULL;
    KN_TRY(kn__work(&memory, call, (size_t)n * (sizeof(double) + 2 * sizeof(int32_t))));
    double *weight = memory;
    w->doubles = !w->r.is_linear && n == 2 * w->r.in[2];
    int32_t *at = (int32_t *)(void *)(weight + n), *next = at + n;
    for (int64_t i = 0; i < n; i++) {
        kn__taps s = kn__resize_source(&w->r, 2, i);
        at[i] = (int32_t)s.at, next[i] = (int32_t)s.next;
        w->doubles &= s.at == i / 2;
        if (dtype == KN_F64)
            weight[i] = s.weight;
        else
            ((float *)memory)[i] = (float)s.weight;
    }
    w->at = at, w->next = next, w->weight = memory;
    return KN_OK;
}

static kn_status run_planes(kn_op_call *call, bool back) {
    const kn_tensor *x = call->in[0], *y = call->out[0];
    kn_dtype dtype = (kn_dtype)y->dtype;
    const kn__loop_table *loops = kn__loops(dtype);
    size_t bytes = kn_dtype_bytes(dtype);
    resize_run run = {.work = {.r = kn__resize_of(call->attr)},
                      .plane = back ? loops->resize_back_plane : loops->resize_plane,
                      .to = y->data,
                      .from = x->data,
                      .planes = x->dim[0] * x->dim[1]};
    const kn__resize *r = &run.work.r;
    int64_t large = r->in[0] * r->in[1] * r->in[2], small = r->out[0] * r->out[1] * r->out[2];
    run.from_bytes = (size_t)(back ? small : large) * bytes;
    run.to_bytes = (size_t)(back ? large : small) * bytes;
    run.each = kn__chunks(CHUNK, large + small);
    KN_TRY(make_rows(&run.work, call));
    KN_TRY(make_columns(&run.work, call, dtype));
    int64_t n = kn__chunks(run.planes, run.each);
    int64_t width = r->in[2] > r->out[2] ? r->in[2] : r->out[2];
    KN_TRY(kn__slots_create(&run.slots, call, n, (size_t)width * bytes));
    kn__parallel_for(run.slots.n, n, resize_chunk, &run);
    return KN_OK;
}

kn_status kn__host_resize(kn_op_call *call) { return run_planes(call, false); }
kn_status kn__host_resize_back(kn_op_call *call) { return run_planes(call, true); }
