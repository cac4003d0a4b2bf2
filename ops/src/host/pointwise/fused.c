#include "host/pointwise/fused.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "host/reduce/reduce_fused.h"
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

/* Operand k from element `from` on, of a broadcast one its first element, be it in the tile or
 * not. */
static const char *operand(const kn__fused_step *s, int k, const kn__tile tiles[], int64_t from) {
    const kn__row_job *j = &s->job;
    if (s->from[k] < 0)
        return j->in[k] && j->same[k] ? j->in[k] + (size_t)from * j->in_bytes[k] : j->in[k];
    uintptr_t tile = (uintptr_t)tiles[s->from[k]].bytes;
    if (!j->same[k]) tile -= (uintptr_t)(from / s->row) * j->in_bytes[k];
    return (const char *)tile;
}

static void *result(const kn__fused_step *s, kn__tile tiles[], int64_t from) {
    if (s->tile >= 0) return tiles[s->tile].bytes;
    return s->job.out[s->r] + (size_t)from * s->job.out_bytes;
}

/* Rows of the tile that begins at element `from`. */
static void *reduce(const kn__fused_step *s, kn__tile tiles[], int64_t from, int64_t n) {
    void *y = result(s, tiles, from / s->row);
    kn__host_reduce_rows(y, s->to, operand(s, 0, tiles, from), s->job.dtype, &s->recipe, n / s->row,
                         s->row);
    return y;
}

static void *run_step(const kn__fused_step *s, kn__tile tiles[], int64_t from, int64_t n) {
    const kn__row_job *j = &s->job;
    const void *in[KN__ROW_OPERANDS] = {NULL};
    void *to[KN__ROW_RESULTS] = {NULL};
    for (int k = 0; k < j->n_in; k++) in[k] = operand(s, k, tiles, from);
    if (s->part) {
        scatter rows = {s, in[0], from};
        kn__walk_range(&s->rows, from, from + n, scatter_row, &rows);
        return NULL;
    }
    void *y = to[s->r] = result(s, tiles, from);
    if (s->is_cast) {
        kn__tile buffer;
        kn__cast_block(y, s->to, kn__row_operand(j, 0, in[0], from, n, &buffer), j->dtype, n);
    } else {
        kn__row_block(j, in, to, from, n);
    }
    return y;
}

static void line_fill(char line[KN__LINK_LINE], const char *x, size_t bytes) {
    for (size_t at = 0; at < KN__LINK_LINE; at += bytes) {
        if (bytes == sizeof(float))
            memcpy(line + at, x, sizeof(float)); /* a call costs as much as all of them */
        else
            memcpy(line + at, x, sizeof(double));
    }
}

/* x: operand k. False: its elements lie in several rows. */
static bool link_to(kn__link *l, const kn__fused_step *s, int k, const kn__tile tiles[],
                    int64_t from, int64_t n) {
    const kn__row_job *j = &s->job;
    const char *x;
    bool is_single = true;
    if (!j->same[k] && s->from[k] >= 0 && kn__fused_rows(s->row) == 1) {
        x = tiles[s->from[k]].bytes; /* of the one row */
    } else {
        x = operand(s, k, tiles, from);
        is_single = j->same[k] ? s->from[k] < 0 && !j->in_bytes[k] : !j->walk[k].step[0];
        if (!j->same[k]) x = kn__row_place(j, k, x, from, n);
    }
    if (!x) return false;
    l->stride = !is_single;
    l->x = is_single ? l->line : (char *)(uintptr_t)x;
    if (is_single) line_fill(l->line, x, j->out_bytes);
    return true;
}

/* The sum of a row whose lanes have theirs: they are a row themselves. */
static void *sum_lanes(const kn__fused_step *s, kn__tile tiles[], int64_t from,
                       const char lanes[]) {
    void *y = result(s, tiles, from / s->row);
    kn__host_reduce_rows(y, s->to, lanes, s->job.dtype, &s->recipe, 1,
                         KN__LINK_LANES_BYTES / (int64_t)s->job.in_bytes[0]);
    return y;
}

/* The steps s … s + run - 1. False: one of their operands is no vector here. */
static bool run_links(void **y, const kn__fused_step *s, kn__tile tiles[], int64_t from,
                      int64_t n) {
    kn__link link[KN__LINKS_MAX], *l = link;
    _Alignas(KN__LINK_LINE) char lanes[KN__LINK_LANES_BYTES];
    for (const kn__fused_step *end = s + s->run; s < end; s++, l++) {
        const int other = s->hand != 1;
        if (s->sums) {
            memset(lanes, 0, sizeof lanes);
            *l = (kn__link){.what = KN__LINK_SUM, .x = lanes};
            continue;
        }
        if (s->hand == KN__HAND_EMPTY) {
            if (!link_to(l, s, s->link_in[0], tiles, from, n)) return false;
            l++->what = KN__LINK_LOAD;
        }
        l->what = (int16_t)(s->link + !other);
        l->stride = 0, l->x = l->line;
        l->p = s->job.p, l->q = s->job.q;
        int k = s->link_in[other];
        if (k >= 0 && !link_to(l, s, k, tiles, from, n)) return false;
        if (s->is_held) continue;
        (++l)->what = KN__LINK_STORE;
        l->stride = 1, l->x = *y = result(s, tiles, from);
    }
    kn__loops(s[-1].job.dtype)->links(link, (int)(l - link), n);
    if (s[-1].sums) *y = sum_lanes(&s[-1], tiles, from, lanes);
    return true;
}

/* Step s, or its run; returns how many steps that is. */
static int run_at(void **y, const kn__fused_step *s, kn__tile tiles[], int64_t from, int64_t n) {
    if (s->reduces) {
        *y = reduce(s, tiles, from, n);
        return 1;
    }
    if (s->by_rows) from /= s->row, n /= s->row;
    if (s->run && run_links(y, s, tiles, from, n)) return s->run;
    *y = run_step(s, tiles, from, n);
    return 1;
}

const void *kn__fused_block(const kn__fused *f, kn__tile tiles[], int64_t from, int64_t n) {
    void *y = NULL;
    for (int k = 0; k < f->n_steps;) k += run_at(&y, &f->step[k], tiles, from, n);
    return y;
}

/* --- the tiles of a thread --- */

static pthread_key_t key;
static bool key_made;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static _Thread_local kn__tile *own_tiles;

static void tiles_free(void *tiles) {
    free(tiles);
    own_tiles = NULL;
}

static void key_make(void) { key_made = pthread_key_create(&key, tiles_free) == 0; }

/* An unloaded library must not be called at the end of a thread. */
__attribute__((destructor)) static void key_delete(void) {
    if (key_made) pthread_key_delete(key);
    key_made = false;
}

static __attribute__((noinline)) kn__tile *tiles_make(void) {
    pthread_once(&key_once, key_make);
    kn__tile *tiles =
        key_made ? aligned_alloc(_Alignof(kn__tile), KN__FUSED_STEPS * sizeof *tiles) : NULL;
    if (tiles && pthread_setspecific(key, tiles) != 0) {
        free(tiles);
        tiles = NULL;
    }
    own_tiles = tiles;
    return tiles;
}

kn__tile *kn__fused_tiles(void) { return own_tiles ? own_tiles : tiles_make(); }

/* --- a pass --- */

static void run_part(void *ctx, int64_t i) {
    const kn__fused *f = ctx;
    kn__tile *tiles = kn__fused_tiles();
    if (!tiles)
        tiles =
            __builtin_alloca_with_align(KN__FUSED_STEPS * sizeof *tiles, 8 * _Alignof(kn__tile));
    int64_t end = (i + 1) * f->grain < f->n ? (i + 1) * f->grain : f->n;
    int64_t most = f->whole_row ? kn__fused_rows(f->whole_row) * f->whole_row
                   : f->is_free ? f->grain
                                : KN__ROW_BLOCK;
    for (int64_t from = i * f->grain, n; from < end; from += n) {
        n = end - from < most ? end - from : most;
        if (f->row && n > f->row - from % f->row) n = f->row - from % f->row;
        kn__fused_block(f, tiles, from, n);
    }
}

void kn__fused_run(const kn__fused *f) {
    kn__parallel_for(f->threads, kn__chunks(f->n, f->grain), run_part, (void *)(uintptr_t)f);
}
