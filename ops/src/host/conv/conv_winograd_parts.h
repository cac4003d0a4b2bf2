/* What the passes of Winograd's way share (conv_winograd.h). */
#ifndef KN_CONV_WINOGRAD_PARTS_H
#define KN_CONV_WINOGRAD_PARTS_H

#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "host/base/slots.h"
#include "host/conv/conv_winograd.h"
#include "host/movement/strided.h"

enum {
    TILE = KN_WINOGRAD_TILE,
    LANES = KN_WINOGRAD_BLOCK,
    PHASES = 4,
    WEIGHT_BYTES = 8 << 20 /* of weights' numbers, or of sums for them, at a time */
};

/* Planes of so many channels, or blocks of them. */
typedef struct kn__planes {
    const float *data;
    int64_t channels, size[2];
    bool in_blocks;
} kn__planes;

/* The elements that lie at a multiple of a stride, and the taps that meet them. */
typedef struct kn__phase {
    int64_t pad[2];  /* the first window begins so far before the first element */
    int64_t from[2]; /* the first result */
    kn__winograd_taps taps;
} kn__phase;

/* The numbers of neighbouring tiles: number j of tile i at data[j·step + i·tile_step], of 16
 * channels. */
typedef struct kn__numbers {
    float *data;
    int64_t step, tile_step;
} kn__numbers;

typedef struct kn__winograd {
    const kn__loop_table *loops;
    kn__planes from; /* x, or dy in the pass of dx */
    int n_numbers;   /* of a tile */
    int n_phases;    /* 1 or 4 */
    kn__phase phase[PHASES];
    int64_t stride_from, stride_to;  /* of windows, of results: one of them is 1 */
    int64_t tile_rows, tile_columns; /* of an image */
    int64_t rows, unit_rows;         /* of tiles: of all images, of a unit */
    int64_t n_to;                    /* channels of the result; of dy in the pass of dw */
    int64_t first, n, width;         /* those in work, a multiple of LANES; of a panel */
    int64_t w_from, w_to;            /* elements between weights of neighbouring channels */
    int64_t strip;                   /* elements of work space */
    kn__slots slots;
    /* y, dx: */
    const float *w, *bias;
    float *u; /* [numbers][phases][panels][channels][width] */
    float *to;
    int64_t out[2];
    bool to_blocks;
    bool in_place;            /* dx is written over dy: units are whole kn__planes */
    kn__conv_epilogue finish; /* its y is NULL: nothing follows the sums */
} kn__winograd;

/* y or dx. w: NULL, or what the weights' numbers are kept with. */
kn_status kn__winograd_products(kn_op_call *call, kn__winograd *k, const kn_tensor *w);
/* Whether dx may be written over dy. */
bool kn__winograd_fits_in_place(const kn__winograd *k);
/* dw, of x's phases. */
kn_status kn__winograd_sums(kn_op_call *call, const kn__winograd *of_x, const kn__planes *dy);

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t rounded(int64_t n, int64_t unit) { return kn__chunks(n, unit) * unit; }

/* Elements between the numbers of a tile: an odd number of cache lines, so that they don't meet in
 * the cache. n: a multiple of LANES. */
static inline int64_t step_of(int64_t n) { return (n / LANES | 1) * LANES; }
static inline int64_t n_panels(const kn__winograd *k) { return kn__chunks(k->n, k->width); }

/* Results of each phase, not sums of all. */
static inline int phases_to(const kn__winograd *k) { return k->stride_to == 1 ? 1 : k->n_phases; }

/* As many channels of the result at a time as the limit allows, in equal parts of whole panels. */
static inline int64_t most_at_once(const kn__winograd *k) {
    int64_t all = rounded(k->n_to, k->width);
    int64_t each = k->n_numbers * k->n_phases * k->from.channels;
    int64_t fit = WEIGHT_BYTES / ((int64_t)sizeof(float) * each);
    int64_t parts = kn__chunks(all, larger(fit, k->width));
    return rounded(kn__chunks(all, parts), k->width);
}

static inline size_t bytes_of(int64_t elements) { return (size_t)elements * sizeof(float); }

/* --- tiles of images --- */

/* Some tile rows of one image, and the rows of its planes that they read or write. */
typedef struct kn__strip {
    int64_t image, row, n_rows;
    int64_t first, n;
} kn__strip;

/* The tile rows from `row` on that lie in one image, before `end`. Tiles are `step` elements apart,
 * begin `pad` before the first one, and have `side` of them. */
static inline kn__strip strip_at(const kn__winograd *k, int64_t row, int64_t end, int64_t step,
                                 int64_t pad, int64_t side, int64_t height) {
    kn__strip p = {.image = row / k->tile_rows, .row = row % k->tile_rows};
    p.n_rows = smaller(k->tile_rows - p.row, end - row);
    p.first = smaller(larger(step * p.row - pad, 0), height);
    p.n = larger(smaller(step * (p.row + p.n_rows - 1) - pad + side, height) - p.first, 0);
    return p;
}

/* Of windows, of all phases. */
static inline kn__strip strip_of_windows(const kn__winograd *k, int64_t row, int64_t end) {
    int64_t side = k->stride_from * kn__winograd_side(k->phase[0].taps.n) + (phases_to(k) > 1);
    return strip_at(k, row, end, TILE * k->stride_from, k->phase[0].pad[0], side, k->from.size[0]);
}

static inline int64_t strip_elements(const kn__winograd *k, int64_t columns) {
    int64_t stride = larger(k->stride_from, k->stride_to);
    return (TILE * stride * k->unit_rows + 2 * stride + 1) * columns * LANES;
}

/* 16 channels, from c on, of a strip's rows; in `space` unless they lie so. */
static inline const float *blocks_of(const kn__winograd *k, const kn__planes *x, const kn__strip *p,
                                     int64_t c, float *space) {
    int64_t plane = x->size[0] * x->size[1], at = p->first * x->size[1];
    const float *from = x->data + (p->image * x->channels + c) * plane;
    if (x->in_blocks) return from + at * LANES;
    k->loops->planes_to_blocks(space, from + at, plane, (int)smaller(x->channels - c, LANES),
                               p->n * x->size[1]);
    return space;
}

typedef void (*transform_fn)(const kn__winograd_tiles *t, void *v, const void *x);

/* The numbers of a strip's tiles, of 16 channels in blocks; pad: of tiles `stride` elements apart.
 */
static inline void transform(const kn__winograd *k, transform_fn fn, const float *blocks,
                             int64_t columns, const kn__strip *p, const int64_t pad[2],
                             int64_t stride, kn__numbers v) {
    for (int64_t i = 0; i < p->n_rows; i++, v.data += k->tile_columns * v.tile_step) {
        kn__winograd_tiles t = {.rows = p->n,
                                .columns = columns,
                                .row = TILE * stride * (p->row + i) - pad[0] - p->first,
                                .column = -pad[1],
                                .n = k->tile_columns,
                                .step = v.step,
                                .tile_step = v.tile_step,
                                .stride = stride,
                                .taps = k->phase[0].taps.n};
        fn(&t, v.data, blocks);
    }
}

/* The numbers of x's 16 channels, from c on, those of phases `apart` elements apart. */
static inline void transform_windows(const kn__winograd *k, const kn__strip *p, int64_t c,
                                     float *space, kn__numbers v, int64_t apart) {
    const float *blocks = blocks_of(k, &k->from, p, c, space);
    for (int f = 0; f < k->n_phases; f++, v.data += apart)
        transform(k, k->loops->winograd_windows, blocks, k->from.size[1], p, k->phase[f].pad,
                  k->stride_from, v);
}

#endif
