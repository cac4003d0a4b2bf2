#include "host/pointwise/fused.h"

#include <pthread.h>
#include <stdlib.h>

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

/* --- links --- */

enum { BASE_NONE, BASE_TILES, BASE_WALKED };

/* Whether operand k of a chain whose tiles are single rows repeats one row, or one element. */
static bool is_one_row(const kn__fused_step *s, int k) {
    const kn__walk *w = &s->job.walk[k];
    bool ok = s->row && kn__fused_rows(s->row) == 1 && w->inner == s->row;
    for (int i = 0; i < w->n_outer; i++) ok &= w->stride[0][i] == 0;
    return ok;
}

/* Operand k of step i, read by l, in the run that begins with step `first`. */
static void link_operand(kn__link *l, kn__fused_links *links, int first, int i, int k,
                         const kn__fused_step *s) {
    const kn__row_job *j = &s->job;
    bool is_tile = s->from[k] >= 0, is_alone = s->row && kn__fused_rows(s->row) == 1;
    l->base = is_tile ? BASE_TILES : BASE_NONE;
    l->x = is_tile ? (uintptr_t)s->from[k] * sizeof(kn__tile) : (uintptr_t)j->in[k];
    if (j->same[k]) {
        l->stride = is_tile || j->in_bytes[k];
        l->moves = !is_tile && j->in_bytes[k];
    } else if (!is_tile || !is_alone) { /* else: the element of the one row */
        l->stride = j->walk[k].step[0] != 0;
        if (is_one_row(s, k)) return;
        uint8_t at = links->n_walked[first]++;
        links->walked[2 * first + at].step = (uint8_t)i;
        links->walked[2 * first + at].in = (uint8_t)k;
        l->base = (uint8_t)(BASE_WALKED + at);
        l->x = 0;
    }
}

static void link_result(kn__link *l, const kn__fused_step *s) {
    bool is_tile = s->tile >= 0;
    *l = (kn__link){.what = KN__LINK_STORE, .stride = 1, .moves = !is_tile};
    l->base = is_tile ? BASE_TILES : BASE_NONE;
    l->x = is_tile ? (uintptr_t)s->tile * sizeof(kn__tile) : (uintptr_t)s->job.out[s->r];
}

static void links_of_run(kn__fused_links *links, const kn__fused *f, int first) {
    kn__link *begin = &links->link[KN__STEP_LINKS * first], *l = begin;
    for (int i = first; i < first + f->step[first].run; i++) {
        const kn__fused_step *s = &f->step[i];
        const int other = s->hand != 1;
        if (s->hand == KN__HAND_EMPTY) {
            *l = (kn__link){.what = KN__LINK_LOAD};
            link_operand(l++, links, first, i, s->link_in[0], s);
        }
        if (s->sums) {
            *l++ = (kn__link){.what = KN__LINK_SUM};
            continue;
        }
        *l = (kn__link){.what = (int16_t)(s->link + !other), .p = s->job.p, .q = s->job.q};
        l->x = (uintptr_t)&l->p; /* derivatives that don't use their second input load it too */
        if (s->link_in[other] >= 0) link_operand(l, links, first, i, s->link_in[other], s);
        l++;
        if (!s->is_held) link_result(l++, s);
    }
    links->n[first] = (uint8_t)(l - begin);
}

void kn__fused_links_make(kn__fused_links *links, const kn__fused *f) {
    for (int i = 0; i < f->n_steps; i += f->step[i].run ? f->step[i].run : 1) {
        links->n_walked[i] = 0;
        if (f->step[i].run) links_of_run(links, f, i);
    }
}

static void *write_sum(const kn__fused_step *s, kn__tile tiles[], int64_t from, double sum) {
    void *y = result(s, tiles, from / s->row);
    const double v = sum / s->recipe.divisor;
    if (s->job.dtype == KN_F32)
        *(float *)y = (float)v;
    else
        *(double *)y = v;
    return y;
}

/* The steps i … i + run - 1. False: one of their operands is no vector here. */
static bool run_links(void **y, const kn__fused *f, const kn__fused_links *links, int i,
                      kn__tile tiles[], int64_t from, int64_t n) {
    uintptr_t base[BASE_WALKED + 2 * KN__FUSED_STEPS];
    base[BASE_NONE] = 0;
    base[BASE_TILES] = (uintptr_t)tiles;
    for (int w = 0; w < links->n_walked[i]; w++) {
        const kn__fused_step *s = &f->step[links->walked[2 * i + w].step];
        int k = links->walked[2 * i + w].in;
        const char *x = kn__row_place(&s->job, k, operand(s, k, tiles, from), from, n);
        if (!x) return false;
        base[BASE_WALKED + w] = (uintptr_t)x;
    }
    const kn__fused_step *last = &f->step[i + f->step[i].run - 1];
    double sum = kn__loops(last->job.dtype)
                     ->links(&links->link[KN__STEP_LINKS * i], links->n[i], base, from, n);
    *y = last->sums ? write_sum(last, tiles, from, sum) : result(last, tiles, from);
    return true;
}

/* Step i, or its run; returns how many steps that is. */
static int run_at(void **y, const kn__fused *f, const kn__fused_links *links, int i,
                  kn__tile tiles[], int64_t from, int64_t n) {
    const kn__fused_step *s = &f->step[i];
    if (s->run && run_links(y, f, links, i, tiles, from, n)) return s->run;
    if (s->reduces) {
        *y = reduce(s, tiles, from, n);
        return 1;
    }
    if (s->by_rows) from /= s->row, n /= s->row;
    *y = run_step(s, tiles, from, n);
    return 1;
}

const void *kn__fused_block(const kn__fused *f, const kn__fused_links *links, kn__tile tiles[],
                            int64_t from, int64_t n) {
    void *y = NULL;
    for (int i = 0; i < f->n_steps;) i += run_at(&y, f, links, i, tiles, from, n);
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

typedef struct pass {
    const kn__fused *f;
    kn__fused_links links;
} pass;

static void run_part(void *ctx, int64_t i) {
    const pass *p = ctx;
    const kn__fused *f = p->f;
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
        kn__fused_block(f, &p->links, tiles, from, n);
    }
}

void kn__fused_run(const kn__fused *f) {
    pass p;
    p.f = f;
    kn__fused_links_make(&p.links, f);
    kn__parallel_for(f->threads, kn__chunks(f->n, f->grain), run_part, &p);
}
