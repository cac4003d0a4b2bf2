#include "host/pointwise/fused.h"

#include "host/base/chunks.h"
#include "kernel.h"

typedef struct scatter {
    const kn__fused_step *step;
    const char *x; /* its one operand, from element `from` on */
    int64_t from;
} scatter;

static void scatter_row(const void *ctx, int64_t at, const int64_t to[], int64_t n) {
    const scatter *s = ctx;
    const kn__row_job *j = &s->step->job;
    const void *x = s->x + (size_t)(at - s->from) * j->in_bytes[0];
    void *y = s->step->part + (size_t)to[0] * j->out_bytes;
    kn__row_block(j, &x, &y, at, n);
}

static void *run_step(const kn__fused_step *s, kn__tile tiles[], int64_t from, int64_t n) {
    const kn__row_job *j = &s->job;
    const void *in[KN__ROW_OPERANDS] = {NULL};
    void *to[KN__ROW_RESULTS] = {NULL};
    for (int k = 0; k < j->n_in; k++) {
        if (s->from[k] >= 0)
            in[k] = tiles[s->from[k]].bytes;
        else if (j->in[k] && j->same[k])
            in[k] = j->in[k] + (size_t)from * j->in_bytes[k];
        else
            in[k] = j->in[k];
    }
    if (s->part) {
        scatter rows = {s, in[0], from};
        walk_range(&s->rows, from, from + n, scatter_row, &rows);
        return NULL;
    }
    void *y = s->tile >= 0 ? tiles[s->tile].bytes : j->out[s->r] + (size_t)from * j->out_bytes;
    to[s->r] = y;
    if (s->is_cast) {
        kn__tile buffer;
        kn__cast_block(y, s->to, kn__row_operand(j, 0, in[0], from, n, &buffer), j->dtype, n);
    } else {
        kn__row_block(j, in, to, from, n);
    }
    return y;
}

const void *kn__fused_block(const kn__fused *f, kn__tile tiles[], int64_t from, int64_t n) {
    const void *y = NULL;
    for (int k = 0; k < f->n_steps; k++) y = run_step(&f->step[k], tiles, from, n);
    return y;
}

static void run_part(void *ctx, int64_t i) {
    const kn__fused *f = ctx;
    kn__tile tiles[KN__FUSED_STEPS];
    int64_t end = (i + 1) * f->grain < f->n ? (i + 1) * f->grain : f->n;
    for (int64_t from = i * f->grain, n; from < end; from += n) {
        n = end - from < KN__ROW_BLOCK ? end - from : KN__ROW_BLOCK;
        if (f->row && n > f->row - from % f->row) n = f->row - from % f->row;
        kn__fused_block(f, tiles, from, n);
    }
}

void kn__fused_run(const kn__fused *f) {
    kn__parallel_for(f->threads, kn__chunks(f->n, f->grain), run_part, (void *)(uintptr_t)f);
}
