/* Winograd's way of dw: sums over all tiles, in their order. */
#include "host/conv/conv_winograd_parts.h"

enum {
    CHUNK_BYTES =
        1 << 20,     /* of windows and gradients whose products are added to the sums at a time */
    CHUNK_TILES = 48 /* unless they are fewer: reading the sums must pay */
};

typedef struct sums {
    kn__winograd k;
    kn__planes dy;
    float *dw;
    int64_t row, end; /* tile rows in work */
    int64_t depth;    /* x's channels, a multiple of LANES */
    /* [numbers]: [tiles][phases][depth], [panels][tiles][width], [phases][depth][n] */
    float *windows, *gradients, *products;
    int64_t blocks; /* of x's channels, whose sums are made apart */
    bool accumulate;
} sums;

static int64_t tiles_in_work(const sums *g) { return (g->end - g->row) * g->k.tile_columns; }

static int64_t windows_row(const sums *g) { return g->k.n_phases * g->depth; }

/* The numbers of some tile rows. */
static void numbers_body(void *ctx, int64_t i) {
    sums *g = ctx;
    kn__winograd *k = &g->k;
    int64_t row = g->row + i * k->unit_rows, end = smaller(row + k->unit_rows, g->end);
    int64_t all = tiles_in_work(g), each = windows_row(g);
    int64_t v_step = step_of(all * each), z_step = step_of(n_panels(k) * all * k->width);
    float *space = kn__slot_take(&k->slots);
    for (kn__strip p; row < end; row += p.n_rows) {
        int64_t tile = (row - g->row) * k->tile_columns;
        p = strip_of_windows(k, row, end);
        for (int64_t c = 0; c < g->depth; c += LANES)
            transform_windows(k, &p, c, space,
                              (kn__numbers){g->windows + tile * each + c, v_step, each}, g->depth);
        p = strip_at(k, row, end, TILE, 0, TILE, g->dy.size[0]);
        for (int64_t c = 0; c < k->n; c += LANES) {
            float *z = g->gradients + (c / k->width * all + tile) * k->width + c % k->width;
            const float *blocks = blocks_of(k, &g->dy, &p, k->first + c, space);
            transform(k, k->loops->winograd_gradients, blocks, g->dy.size[1], &p, (int64_t[]){0, 0},
                      1, (kn__numbers){z, z_step, k->width});
        }
    }
    kn__slot_give(&k->slots, space);
}

enum { BLOCK = 56 }; /* four tiles of a product */

/* One of the numbers, of a block of x's channels and phases. */
static void sums_body(void *ctx, int64_t i) {
    sums *g = ctx;
    const kn__winograd *k = &g->k;
    int64_t j = i / g->blocks, first = i % g->blocks * BLOCK, tiles = tiles_in_work(g);
    int64_t end = smaller(first + BLOCK, windows_row(g)), each = windows_row(g);
    const float *v = g->windows + j * step_of(tiles * each);
    const float *z = g->gradients + j * step_of(n_panels(k) * tiles * k->width);
    float *to = g->products + j * step_of(windows_row(g) * k->n);
    for (int64_t at = 0; at < k->n; at += k->width)
        for (int64_t c = first; c < end; c += k->loops->tile_rows)
            k->loops->gemm_tile(to + c * k->n + at, k->n, v + c, each, z + at * tiles, tiles,
                                (int)smaller(k->loops->tile_rows, end - c),
                                (int)smaller(k->width, k->n - at));
}

/* dw of channel i. */
static void dw_body(void *ctx, int64_t i) {
    sums *g = ctx;
    const kn__winograd *k = &g->k;
    int64_t n = smaller(k->n, k->n_to - k->first), step = step_of(windows_row(g) * k->n);
    for (int64_t at = 0; at < n; at += k->width) {
        float *dw = g->dw + (k->first + at) * k->w_to + i * k->w_from;
        const float *products = g->products + i * k->n + at;
        for (int f = 0; f < k->n_phases; f++)
            k->loops->winograd_weight_sums(dw, k->w_to, products + f * g->depth * k->n, step,
                                           (int)smaller(k->width, n - at), &k->phase[f].taps,
                                           g->accumulate);
    }
}

static int64_t chunk_rows(const sums *g, int64_t n) {
    int64_t bytes = g->k.n_numbers * (int64_t)sizeof(float) * (windows_row(g) + n);
    int64_t tiles = CHUNK_BYTES / bytes;
    return smaller(kn__chunks(larger(tiles, CHUNK_TILES), g->k.tile_columns), g->k.rows);
}

static kn_status run(kn_op_call *call, sums *g) {
    enum { UNITS = 16, UNIT_ROWS = 4 };
    kn__winograd *k = &g->k;
    int64_t most = most_at_once(k), rows = chunk_rows(g, most), tiles = rows * k->tile_columns;
    k->unit_rows = larger(1, smaller(UNIT_ROWS, rows / UNITS));
    k->strip = strip_elements(k, larger(k->from.size[1], g->dy.size[1]));
    int64_t v = k->n_numbers * step_of(tiles * windows_row(g));
    int64_t z = k->n_numbers * step_of(tiles * most);
    int64_t products =
        k->n_numbers * step_of(windows_row(g) * most) + k->width; /* read as panels */
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
            kn__parallel_for(call->threads, k->n_numbers * g->blocks, sums_body, g);
        }
        kn__parallel_for(call->threads, k->from.channels, dw_body, g);
    }
    return KN_OK;
}

kn_status kn__winograd_sums(kn_op_call *call, const kn__winograd *of_x, const kn__planes *dy) {
    sums g = {.k = *of_x,
              .dy = *dy,
              .dw = call->out[0]->data,
              .depth = rounded(of_x->from.channels, LANES),
              .accumulate = call->accumulate & 1};
    g.blocks = kn__chunks(windows_row(&g), BLOCK);
    return run(call, &g);
}
