#include "host/conv/conv_winograd.h"

#include <string.h>

#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "host/base/slots.h"
#include "host/conv/conv_over.h"
#include "host/conv/conv_plan.h"
#include "host/conv/conv_weights.h"
#include "host/movement/strided.h"

enum {
    NUMBERS = KN_WINOGRAD_NUMBERS,
    LANES = KN_WINOGRAD_BLOCK,
    WEIGHT_BYTES = 8 << 20, /* of weights' numbers, or of sums for them, at a time */
    UNIT_BYTES = 1 << 20,   /* of a unit's windows and products */
    IMAGE_BYTES = 4 << 20,  /* of those of a whole image */
    CHANNELS = 128,         /* of a unit's windows at a time */
    CHUNK_BYTES =
        1 << 20,     /* of windows and gradients whose products are added to the sums at a time */
    CHUNK_TILES = 48 /* unless they are fewer: reading the sums must pay */
};

/* Planes of so many channels, or blocks of them, and where a window's corner lies. */
typedef struct images {
    const float *data;
    int64_t channels, size[2], pad[2];
    bool in_blocks;
} images;

typedef struct winograd {
    const kn__loop_table *loops;
    images from;                     /* x, or dy in the pass of dx */
    int64_t tile_rows, tile_columns; /* of an image */
    int64_t rows, unit_rows;         /* of tiles: of all images, of a unit */
    int64_t n_to;                    /* channels of the result; of dy in the pass of dw */
    int64_t first, n, width;         /* those in work, a multiple of LANES; of a panel */
    int64_t w_from, w_to;            /* elements between weights of neighbouring channels */
    int64_t strip;                   /* elements of work space */
    kn__slots slots;
    /* y, dx: */
    const float *w, *bias;
    bool flip; /* the window is turned round */
    float *u;  /* [36][panels][channels][width] */
    float *to;
    int64_t out[2];
    bool to_blocks;
    bool in_place;            /* dx is written over dy: units are whole images */
    kn__conv_epilogue finish; /* its y is NULL: nothing follows the sums */
} winograd;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t rounded(int64_t n, int64_t unit) { return kn__chunks(n, unit) * unit; }

bool kn__winograd_fits(const kn__conv_sizes *s) {
    return kn__loops(KN_F32)->tile_columns >= LANES && s->groups == 1 && s->in[0] == 1 &&
           s->window[0] == 1 && s->window[1] == 3 && s->window[2] == 3 && s->stride[1] == 1 &&
           s->stride[2] == 1 && s->dilation[1] == 1 && s->dilation[2] == 1 && !s->padding[0] &&
           !s->padding_end[0] && !s->flip;
}

/* Elements between the numbers of a tile: an odd number of cache lines, so that they don't meet in
 * the cache. n: a multiple of LANES. */
static int64_t step_of(int64_t n) { return (n / LANES | 1) * LANES; }
static int64_t n_panels(const winograd *k) { return kn__chunks(k->n, k->width); }

/* As many channels of the result at a time as the limit allows, in equal parts of whole panels. */
static int64_t most_at_once(const winograd *k) {
    int64_t all = rounded(k->n_to, k->width);
    int64_t fit = WEIGHT_BYTES / (NUMBERS * (int64_t)sizeof(float) * k->from.channels);
    int64_t parts = kn__chunks(all, larger(fit, k->width));
    return rounded(kn__chunks(all, parts), k->width);
}

static size_t bytes_of(int64_t elements) { return (size_t)elements * sizeof(float); }

/* --- tiles of images --- */

/* Some tile rows of one image, and the rows of its planes that they read or write. */
typedef struct strip {
    int64_t image, row, n_rows;
    int64_t first, n;
} strip;

/* The tile rows from `row` on that lie in one image, before `end`; `side` is that of a window. */
static strip strip_at(const winograd *k, int64_t row, int64_t end, int64_t side, int64_t pad,
                      int64_t height) {
    strip p = {.image = row / k->tile_rows, .row = row % k->tile_rows};
    p.n_rows = smaller(k->tile_rows - p.row, end - row);
    p.first = smaller(larger(4 * p.row - pad, 0), height);
    p.n = larger(smaller(4 * (p.row + p.n_rows - 1) - pad + side, height) - p.first, 0);
    return p;
}

static int64_t strip_elements(const winograd *k, int64_t columns) {
    return (4 * k->unit_rows + 2) * columns * LANES;
}

/* 16 channels, from c on, of a strip's rows; in `space` unless they lie so. */
static const float *blocks_of(const winograd *k, const images *x, const strip *p, int64_t c,
                              float *space) {
    int64_t plane = x->size[0] * x->size[1], at = p->first * x->size[1];
    const float *from = x->data + (p->image * x->channels + c) * plane;
    if (x->in_blocks) return from + at * LANES;
    k->loops->planes_to_blocks(space, from + at, plane, (int)smaller(x->channels - c, LANES),
                               p->n * x->size[1]);
    return space;
}

/* The numbers of neighbouring tiles: number j of tile i at data[j·step + i·tile_step], of 16
 * channels. */
typedef struct numbers {
    float *data;
    int64_t step, tile_step;
} numbers;

typedef void (*transform_fn)(const kn__winograd_tiles *t, void *v, const void *x);

/* The numbers of 16 channels, from c on, of a strip's tiles. */
static void transform(const winograd *k, transform_fn fn, const images *x, const strip *p,
                      int64_t c, float *space, numbers v) {
    const float *blocks = blocks_of(k, x, p, c, space);
    for (int64_t i = 0; i < p->n_rows; i++, v.data += k->tile_columns * v.tile_step) {
        kn__winograd_tiles t = {.rows = p->n,
                                .columns = x->size[1],
                                .row = 4 * (p->row + i) - x->pad[0] - p->first,
                                .column = -x->pad[1],
                                .n = k->tile_columns,
                                .step = v.step,
                                .tile_step = v.tile_step};
        fn(&t, v.data, blocks);
    }
}

/* --- y, dx: units --- */

static int64_t depth_of(const winograd *k, int64_t c) {
    return smaller(rounded(k->from.channels - c, LANES), CHANNELS);
}

/* v [36][tiles][depth]: the windows' numbers, of channels from c on. */
static void windows(const winograd *k, float *v, float *space, int64_t row, int64_t end,
                    int64_t c) {
    const images *x = &k->from;
    int64_t depth = depth_of(k, c), step = step_of((end - row) * k->tile_columns * depth);
    for (strip p; row < end; row += p.n_rows, v += p.n_rows * k->tile_columns * depth) {
        p = strip_at(k, row, end, 6, x->pad[0], x->size[0]);
        for (int64_t at = 0; at < depth; at += LANES)
            transform(k, k->loops->winograd_windows, x, &p, c + at, space,
                      (numbers){v + at, step, depth});
    }
}

static int64_t u_step(const winograd *k) {
    return step_of(n_panels(k) * k->width * k->from.channels);
}

/* m [36][tiles][n] (+)= v · u, of channels from c on. */
static void multiply(const winograd *k, float *m, const float *v, int64_t tiles, int64_t c) {
    int64_t depth = depth_of(k, c), channels = smaller(depth, k->from.channels - c);
    const float *u = k->u + c * k->width;
    for (int j = 0; j < NUMBERS; j++) {
        if (c == 0) memset(m, 0, bytes_of(tiles * k->n));
        for (int64_t at = 0; at < k->n; at += k->width)
            for (int64_t i = 0; i < tiles; i += k->loops->tile_rows)
                k->loops->gemm_tile_rows(m + i * k->n + at, k->n, v + i * depth, depth,
                                         u + at * k->from.channels, channels,
                                         (int)smaller(k->loops->tile_rows, tiles - i),
                                         (int)smaller(k->width, k->n - at));
        v += step_of(tiles * depth), m += step_of(tiles * k->n), u += u_step(k);
    }
}

/* The result's 16 channels, from c on, of a strip, whose products begin at m. */
static void result(const winograd *k, const strip *p, int64_t c, numbers m, float *space) {
    int64_t plane = k->out[0] * k->out[1], positions = p->n * k->out[1];
    int64_t place = (p->image * k->n_to + c) * plane;
    int lanes = (int)smaller(LANES, k->n_to - c);
    float bias[LANES] = {0}, *to = k->to + place + p->first * k->out[1];
    float *blocks = k->to_blocks ? k->to + place + p->first * k->out[1] * LANES : space;
    if (k->bias) memcpy(bias, k->bias + c, bytes_of(lanes));
    for (int64_t i = 0; i < p->n_rows; i++, m.data += k->tile_columns * m.tile_step) {
        kn__winograd_tiles t = {.rows = p->n,
                                .columns = k->out[1],
                                .row = 4 * i,
                                .n = k->tile_columns,
                                .step = m.step,
                                .tile_step = m.tile_step};
        k->loops->winograd_results(&t, blocks, m.data, bias);
    }
    if (!k->to_blocks) k->loops->blocks_to_planes(to, plane, lanes, blocks, positions);
    if (!k->finish.y) return;
    if (k->to_blocks) kn__conv_finish(&k->finish, blocks - k->to, positions * LANES);
    for (int i = 0; i < lanes && !k->to_blocks; i++)
        kn__conv_finish(&k->finish, to - k->to + i * plane, positions);
}

static void results(const winograd *k, float *m, float *space, int64_t row, int64_t end) {
    int64_t step = step_of((end - row) * k->tile_columns * k->n);
    for (strip p; row < end; row += p.n_rows, m += p.n_rows * k->tile_columns * k->n) {
        p = strip_at(k, row, end, 4, 0, k->out[0]);
        for (int64_t at = 0; at < k->n; at += LANES)
            result(k, &p, k->first + at, (numbers){m + at, step, k->n}, space);
    }
}

static void unit_body(void *ctx, int64_t i) {
    winograd *k = ctx;
    int64_t row = i * k->unit_rows, end = smaller(row + k->unit_rows, k->rows);
    float *space = kn__slot_take(&k->slots), *v = space + k->strip;
    float *m = v + NUMBERS * step_of(k->unit_rows * k->tile_columns * depth_of(k, 0));
    for (int64_t c = 0; c < k->from.channels; c += CHANNELS) {
        windows(k, v, space, row, end, c);
        multiply(k, m, v, (end - row) * k->tile_columns, c);
    }
    results(k, m, space, row, end);
    kn__slot_give(&k->slots, space);
}

/* --- y, dx: weights --- */

/* u of channel i. */
static void weights_body(void *ctx, int64_t i) {
    winograd *k = ctx;
    for (int64_t at = 0; at < k->n; at += k->width) {
        const float *w = k->w + i * k->w_from + (k->first + at) * k->w_to;
        int lanes = (int)smaller(k->width, smaller(k->n, k->n_to - k->first) - at);
        k->loops->winograd_weights(k->u + at * k->from.channels + i * k->width, u_step(k), w,
                                   k->w_to, lanes, k->flip);
    }
}

/* All channels of the result in parts: each one's place among them, and its weights' numbers. */
typedef struct parts {
    winograd *k;
    int64_t most; /* channels of a part */
    int threads;
    float *kept; /* of all parts, one after the other; NULL: there is room for one */
} parts;

static int64_t part_elements(const parts *p) {
    return NUMBERS * step_of(p->most * p->k->from.channels);
}

static void part_choose(const parts *p, int64_t first, float *u) {
    winograd *k = p->k;
    k->first = first;
    k->n = smaller(p->most, rounded(k->n_to - first, LANES));
    k->u = u;
}

static kn_status weights_make(void *ctx, char *kept) {
    const parts *p = ctx;
    float *u = (float *)(void *)kept;
    for (int64_t first = 0; first < p->k->n_to; first += p->most, u += part_elements(p)) {
        part_choose(p, first, u);
        kn__parallel_for(p->threads, p->k->from.channels, weights_body, p->k);
    }
    return KN_OK;
}

static kn_status weights_keep(parts *p, const kn_tensor *w) {
    int64_t n = kn__chunks(p->k->n_to, p->most);
    char *kept = NULL;
    KN_TRY(kn__conv_weights_kept(&kept, w, NULL, bytes_of(n * part_elements(p)), weights_make, p));
    p->kept = (float *)(void *)kept;
    return KN_OK;
}

/* Bytes of a tile's windows and products. */
static int64_t tile_bytes(const winograd *k) {
    int64_t n = smaller(most_at_once(k), rounded(k->n_to, LANES));
    return NUMBERS * (int64_t)sizeof(float) * (depth_of(k, 0) + n);
}

/* Rows of tiles in a unit: what the second cache holds, as many units as keep some threads busy,
 * but tiles enough for each to be worth reading all weights. */
static int64_t rows_at_once(const winograd *k) {
    enum { UNITS = 16, LEAST_TILES = 14 };
    int64_t rows = larger(kn__chunks(k->rows, UNITS), kn__chunks(LEAST_TILES, k->tile_columns));
    rows = larger(1, smaller(rows, UNIT_BYTES / (tile_bytes(k) * k->tile_columns)));
    if (k->in_place) return larger(1, rows / k->tile_rows) * k->tile_rows;
    return kn__chunks(k->rows, kn__chunks(k->rows, rows));
}

/* w: NULL, or what the weights' numbers are kept with. */
static kn_status products_run(kn_op_call *call, winograd *k, const kn_tensor *w) {
    parts p = {.k = k, .most = most_at_once(k), .threads = call->threads};
    k->unit_rows = rows_at_once(k);
    k->strip = strip_elements(k, larger(k->from.size[1], k->out[1]));
    int64_t tiles = k->unit_rows * k->tile_columns, units = kn__chunks(k->rows, k->unit_rows);
    int64_t n = smaller(p.most, rounded(k->n_to, LANES));
    int64_t slot = k->strip + NUMBERS * (step_of(tiles * depth_of(k, 0)) + step_of(tiles * n));
    void *memory = NULL;
    if (w) KN_TRY(weights_keep(&p, w));
    if (!p.kept) KN_TRY(kn__work(&memory, call, bytes_of(part_elements(&p))));
    KN_TRY(kn__slots_create(&k->slots, call, units, bytes_of(slot)));
    for (int64_t first = 0; first < k->n_to; first += p.most) {
        int64_t at = first / p.most * part_elements(&p);
        part_choose(&p, first, p.kept ? p.kept + at : memory);
        if (!p.kept) kn__parallel_for(call->threads, k->from.channels, weights_body, k);
        kn__parallel_for(k->slots.n, units, unit_body, k);
    }
    return KN_OK;
}

/* --- dw: sums over all tiles, in their order --- */

typedef struct sums {
    winograd k;
    images dy;
    float *dw;
    int64_t row, end;                      /* tile rows in work */
    int64_t depth;                         /* x's channels, a multiple of LANES */
    float *windows, *gradients, *products; /* [36]: [tiles][depth], [panels][tiles][width],
                                              [channels][n] */
    int64_t blocks;                        /* of x's channels, whose sums are made apart */
    bool accumulate;
} sums;

static int64_t tiles_in_work(const sums *g) { return (g->end - g->row) * g->k.tile_columns; }

/* The numbers of some tile rows. */
static void numbers_body(void *ctx, int64_t i) {
    sums *g = ctx;
    winograd *k = &g->k;
    int64_t row = g->row + i * k->unit_rows, end = smaller(row + k->unit_rows, g->end);
    int64_t all = tiles_in_work(g), z_step = step_of(n_panels(k) * all * k->width);
    float *space = kn__slot_take(&k->slots);
    for (strip p; row < end; row += p.n_rows) {
        int64_t tile = (row - g->row) * k->tile_columns;
        p = strip_at(k, row, end, 6, k->from.pad[0], k->from.size[0]);
        for (int64_t c = 0; c < g->depth; c += LANES)
            transform(
                k, k->loops->winograd_windows, &k->from, &p, c, space,
                (numbers){g->windows + tile * g->depth + c, step_of(all * g->depth), g->depth});
        p = strip_at(k, row, end, 4, 0, g->dy.size[0]);
        for (int64_t c = 0; c < k->n; c += LANES) {
            float *z = g->gradients + (c / k->width * all + tile) * k->width + c % k->width;
            transform(k, k->loops->winograd_gradients, &g->dy, &p, k->first + c, space,
                      (numbers){z, z_step, k->width});
        }
    }
    kn__slot_give(&k->slots, space);
}

enum { BLOCK = 56 }; /* four tiles of a product */

/* One of the 36 numbers, of a block of x's channels. */
static void sums_body(void *ctx, int64_t i) {
    sums *g = ctx;
    const winograd *k = &g->k;
    int64_t j = i / g->blocks, first = i % g->blocks * BLOCK, tiles = tiles_in_work(g);
    int64_t end = smaller(first + BLOCK, k->from.channels);
    const float *v = g->windows + j * step_of(tiles * g->depth);
    const float *z = g->gradients + j * step_of(n_panels(k) * tiles * k->width);
    float *to = g->products + j * step_of(k->from.channels * k->n);
    for (int64_t at = 0; at < k->n; at += k->width)
        for (int64_t c = first; c < end; c += k->loops->tile_rows)
            k->loops->gemm_tile(to + c * k->n + at, k->n, v + c, g->depth, z + at * tiles, tiles,
                                (int)smaller(k->loops->tile_rows, end - c),
                                (int)smaller(k->width, k->n - at));
}

/* dw of channel i. */
static void dw_body(void *ctx, int64_t i) {
    sums *g = ctx;
    const winograd *k = &g->k;
    int64_t n = smaller(k->n, k->n_to - k->first);
    for (int64_t at = 0; at < n; at += k->width)
        k->loops->winograd_weight_sums(
            g->dw + (k->first + at) * k->w_to + i * k->w_from, k->w_to, g->products + i * k->n + at,
            step_of(k->from.channels * k->n), (int)smaller(k->width, n - at), g->accumulate);
}

static int64_t chunk_rows(const sums *g, int64_t n) {
    int64_t tiles = CHUNK_BYTES / (NUMBERS * (int64_t)sizeof(float) * (g->depth + n));
    return smaller(kn__chunks(larger(tiles, CHUNK_TILES), g->k.tile_columns), g->k.rows);
}

static kn_status sums_run(kn_op_call *call, sums *g) {
    enum { UNITS = 16, UNIT_ROWS = 4 };
    winograd *k = &g->k;
    int64_t most = most_at_once(k), rows = chunk_rows(g, most), tiles = rows * k->tile_columns;
    k->unit_rows = larger(1, smaller(UNIT_ROWS, rows / UNITS));
    k->strip = strip_elements(k, larger(k->from.size[1], g->dy.size[1]));
    int64_t v = NUMBERS * step_of(tiles * g->depth), z = NUMBERS * step_of(tiles * most);
    int64_t products = NUMBERS * step_of(k->from.channels * most) + k->width; /* read as panels */
    void *memory = NULL;
    KN_TRY(kn__work(&memory, call, bytes_of(v + z + products)));
    g->windows = memory, g->gradients = g->windows + v, g->products = g->gradients + z;
    KN_TRY(kn__slots_create(&k->slots, call, kn__chunks(rows, k->unit_rows), bytes_of(k->strip)));
    for (k->first = 0; k->first < k->n_to; k->first += most) {
        k->n = smaller(most, rounded(k->n_to - k->first, LANES));
        kn__zero_bytes(call->threads, g->products, bytes_of(products));
        for (g->row = 0; g->row < k->rows; g->row = g->end) {
            g->end = smaller(g->row + rows, k->rows);
            kn__parallel_for(k->slots.n, kn__chunks(g->end - g->row, k->unit_rows), numbers_body,
                             g);
            kn__parallel_for(call->threads, NUMBERS * g->blocks, sums_body, g);
        }
        kn__parallel_for(call->threads, k->from.channels, dw_body, g);
    }
    return KN_OK;
}

/* --- the passes --- */

static images images_of(const kn_tensor *t, int64_t channels, const int64_t size[2]) {
    return (images){.data = t->data, .channels = channels, .size = {size[0], size[1]}};
}

/* Of a pass whose tiles lie in planes of `out`. */
static winograd winograd_of(const images *from, const int64_t out[2], int64_t batch) {
    const kn__loop_table *loops = kn__loops(KN_F32);
    winograd k = {.loops = loops, .from = *from, .width = loops->tile_columns};
    k.out[0] = out[0], k.out[1] = out[1];
    k.tile_rows = kn__chunks(out[0], 4), k.tile_columns = kn__chunks(out[1], 4);
    k.rows = batch * k.tile_rows;
    return k;
}

static winograd of_x(const kn_op_call *call, const kn__conv_sizes *s) {
    images x = images_of(call->in[0], s->channels, s->in + 1);
    x.pad[0] = s->padding[1], x.pad[1] = s->padding[2];
    winograd k = winograd_of(&x, s->out + 1, s->batch);
    k.n_to = s->outputs;
    k.w_from = 9, k.w_to = 9 * s->channels;
    return k;
}

static kn_status forward(kn_op_call *call, const kn__conv_sizes *s, unsigned flags) {
    winograd k = of_x(call, s);
    k.from.in_blocks = flags & KN_PLAN_FROM_BLOCKS;
    k.to_blocks = flags & KN_PLAN_TO_BLOCKS;
    k.w = call->in[1]->data;
    k.to = call->out[0]->data;
    if (call->in[2] != KN_NONE) k.bias = call->in[2]->data;
    k.finish = kn__conv_finish_of(call);
    if (!k.finish.act && !k.finish.residual) k.finish.y = NULL;
    return products_run(call, &k, flags & KN_PLAN_KEEP ? call->in[1] : NULL);
}

static kn_status data(kn_op_call *call, const kn__conv_sizes *s) {
    images dy = images_of(call->in[0], s->outputs, s->out + 1);
    for (int i = 0; i < 2; i++) dy.pad[i] = 2 - s->padding[1 + i];
    winograd k = winograd_of(&dy, s->in + 1, s->batch);
    k.n_to = s->channels;
    k.w_from = 9 * s->channels, k.w_to = 9;
    k.flip = true;
    k.w = call->in[1]->data;
    k.to = call->out[0]->data;
    k.in_place = kn__conv_is_over(call) && most_at_once(&k) >= k.n_to &&
                 tile_bytes(&k) * k.tile_rows * k.tile_columns <= IMAGE_BYTES;
    if (!k.in_place) {
        const char *from = NULL;
        KN_TRY(kn__conv_dy_apart(&from, call));
        k.from.data = (const float *)(const void *)from;
    }
    return products_run(call, &k, NULL);
}

static kn_status weight(kn_op_call *call, const kn__conv_sizes *s) {
    sums g = {.k = of_x(call, s),
              .dy = images_of(call->in[1], s->outputs, s->out + 1),
              .dw = call->out[0]->data,
              .depth = rounded(s->channels, LANES),
              .blocks = kn__chunks(s->channels, BLOCK),
              .accumulate = call->accumulate & 1};
    return sums_run(call, &g);
}

kn_status kn__winograd_conv(kn_op_call *call, kn__conv_pass pass, const kn__conv_sizes *s,
                            unsigned flags) {
    if (pass == KN_PASS_WEIGHT) return weight(call, s);
    return pass == KN_PASS_DATA ? data(call, s) : forward(call, s, flags);
}
