/* Winograd's way of y and dx: units of tiles, of some channels of the result at a time. */
#include <string.h>

#include "host/conv/conv_plan.h"
#include "host/conv/conv_weights.h"
#include "host/conv/conv_winograd_parts.h"

enum {
    UNIT_BYTES = 1 << 20,  /* of a unit's windows and products */
    IMAGE_BYTES = 4 << 20, /* of those of a whole image */
    CHANNELS = 128,        /* of a unit's windows at a time, and of those of each phase: */
    PHASE_CHANNELS = 64
};

/* --- units --- */

/* Of channels from c on, those at a time. */
static int64_t depth_of(const kn__winograd *k, int64_t c) {
    int64_t most = k->n_phases > 1 ? PHASE_CHANNELS : CHANNELS;
    return smaller(rounded(k->from.channels - c, LANES), most);
}

/* v [numbers][tiles][phases][depth]: the windows' numbers, of channels from c on. */
static void windows(const kn__winograd *k, float *v, float *space, int64_t row, int64_t end,
                    int64_t c) {
    int64_t depth = depth_of(k, c), each = k->n_phases * depth;
    int64_t step = step_of((end - row) * k->tile_columns * each);
    for (kn__strip p; row < end; row += p.n_rows, v += p.n_rows * k->tile_columns * each) {
        p = strip_of_windows(k, row, end);
        for (int64_t at = 0; at < depth; at += LANES)
            transform_windows(k, &p, c + at, space, (kn__numbers){v + at, step, each}, depth);
    }
}

static int64_t u_phase(const kn__winograd *k) { return n_panels(k) * k->width * k->from.channels; }
static int64_t u_step(const kn__winograd *k) { return step_of(k->n_phases * u_phase(k)); }

/* m [tiles][n] += v [tiles][channels] · u, of one number and phase; rows of m and v are m_row and
 * v_row elements apart. */
static void multiply_tiles(const kn__winograd *k, float *m, int64_t m_row, const float *v,
                           int64_t v_row, const float *u, int64_t channels, int64_t tiles) {
    for (int64_t at = 0; at < k->n; at += k->width)
        for (int64_t i = 0; i < tiles; i += k->loops->tile_rows)
            k->loops->gemm_tile_rows(m + i * m_row + at, m_row, v + i * v_row, v_row,
                                     u + at * k->from.channels, channels,
                                     (int)smaller(k->loops->tile_rows, tiles - i),
                                     (int)smaller(k->width, k->n - at));
}

/* m [numbers][tiles][phases or 1][n] (+)= v · u, of channels from c on. */
static void multiply(const kn__winograd *k, float *m, const float *v, int64_t tiles, int64_t c) {
    int64_t depth = depth_of(k, c), channels = smaller(depth, k->from.channels - c);
    int64_t v_row = k->n_phases * depth, m_row = phases_to(k) * k->n;
    const float *u = k->u + c * k->width;
    for (int j = 0; j < k->n_numbers; j++) {
        if (c == 0) memset(m, 0, bytes_of(tiles * m_row));
        for (int f = 0; f < k->n_phases; f++)
            multiply_tiles(k, m + (phases_to(k) > 1 ? f * k->n : 0), m_row, v + f * depth, v_row,
                           u + f * u_phase(k), channels, tiles);
        v += step_of(tiles * v_row), m += step_of(tiles * m_row), u += u_step(k);
    }
}

/* The results of a strip in blocks, of all phases. */
static void results_in(const kn__winograd *k, float *blocks, const kn__strip *p, kn__numbers m,
                       const float bias[LANES]) {
    for (int64_t i = 0; i < p->n_rows; i++, m.data += k->tile_columns * m.tile_step) {
        for (int f = 0; f < phases_to(k); f++) {
            kn__winograd_tiles t = {.rows = p->n,
                                    .columns = k->out[1],
                                    .row = TILE * k->stride_to * i + k->phase[f].from[0],
                                    .column = k->phase[f].from[1],
                                    .n = k->tile_columns,
                                    .step = m.step,
                                    .tile_step = m.tile_step,
                                    .stride = k->stride_to,
                                    .taps = k->phase[0].taps.n};
            k->loops->winograd_results(&t, blocks, m.data + f * k->n, bias);
        }
    }
}

/* The result's 16 channels, from c on, of a strip, whose products begin at m. */
static void result(const kn__winograd *k, const kn__strip *p, int64_t c, kn__numbers m,
                   float *space) {
    int64_t plane = k->out[0] * k->out[1], positions = p->n * k->out[1];
    int64_t place = (p->image * k->n_to + c) * plane;
    int lanes = (int)smaller(LANES, k->n_to - c);
    float bias[LANES] = {0}, *to = k->to + place + p->first * k->out[1];
    float *blocks = k->to_blocks ? k->to + place + p->first * k->out[1] * LANES : space;
    if (k->bias) memcpy(bias, k->bias + c, bytes_of(lanes));
    results_in(k, blocks, p, m, bias);
    if (!k->to_blocks) k->loops->blocks_to_planes(to, plane, lanes, blocks, positions);
    if (!k->finish.y) return;
    if (k->to_blocks) kn__conv_finish(&k->finish, blocks - k->to, positions * LANES);
    for (int i = 0; i < lanes && !k->to_blocks; i++)
        kn__conv_finish(&k->finish, to - k->to + i * plane, positions);
}

static void results(const kn__winograd *k, float *m, float *space, int64_t row, int64_t end) {
    int64_t each = phases_to(k) * k->n, step = step_of((end - row) * k->tile_columns * each);
    int64_t side = TILE * k->stride_to;
    for (kn__strip p; row < end; row += p.n_rows, m += p.n_rows * k->tile_columns * each) {
        p = strip_at(k, row, end, side, 0, side, k->out[0]);
        for (int64_t at = 0; at < k->n; at += LANES)
            result(k, &p, k->first + at, (kn__numbers){m + at, step, each}, space);
    }
}

/* Elements of a unit's windows. */
static int64_t unit_windows(const kn__winograd *k) {
    int64_t tiles = k->unit_rows * k->tile_columns;
    return k->n_numbers * step_of(tiles * k->n_phases * depth_of(k, 0));
}

static void unit_body(void *ctx, int64_t i) {
    kn__winograd *k = ctx;
    int64_t row = i * k->unit_rows, end = smaller(row + k->unit_rows, k->rows);
    float *space = kn__slot_take(&k->slots), *v = space + k->strip, *m = v + unit_windows(k);
    for (int64_t c = 0; c < k->from.channels; c += depth_of(k, c)) {
        windows(k, v, space, row, end, c);
        multiply(k, m, v, (end - row) * k->tile_columns, c);
    }
    results(k, m, space, row, end);
    kn__slot_give(&k->slots, space);
}

/* --- weights --- */

/* u of channel i. */
static void weights_body(void *ctx, int64_t i) {
    kn__winograd *k = ctx;
    for (int64_t at = 0; at < k->n; at += k->width) {
        const float *w = k->w + i * k->w_from + (k->first + at) * k->w_to;
        int lanes = (int)smaller(k->width, smaller(k->n, k->n_to - k->first) - at);
        float *u = k->u + at * k->from.channels + i * k->width;
        for (int f = 0; f < k->n_phases; f++)
            k->loops->winograd_weights(u + f * u_phase(k), u_step(k), w, k->w_to, lanes,
                                       &k->phase[f].taps);
    }
}

/* All channels of the result in parts: each one's place among them, and its weights' numbers. */
typedef struct parts {
    kn__winograd *k;
    int64_t most; /* channels of a part */
    int threads;
    kn__kept_weights *kept; /* of all parts, one after the other; NULL: there is room for one */
} parts;

static int64_t part_elements(const parts *p) {
    const kn__winograd *k = p->k;
    return k->n_numbers * step_of(k->n_phases * p->most * k->from.channels);
}

static void part_choose(const parts *p, int64_t first, float *u) {
    kn__winograd *k = p->k;
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

static kn_status weights_take(parts *p, const kn_tensor *w) {
    int64_t n = kn__chunks(p->k->n_to, p->most);
    return kn__conv_weights_take(&p->kept, w, NULL, p->k->stride_from,
                                 bytes_of(n * part_elements(p)), weights_make, p);
}

/* Bytes of a tile's windows and products. */
static int64_t tile_bytes(const kn__winograd *k) {
    int64_t n = smaller(most_at_once(k), rounded(k->n_to, LANES));
    return k->n_numbers * (int64_t)sizeof(float) *
           (k->n_phases * depth_of(k, 0) + phases_to(k) * n);
}

bool kn__winograd_fits_in_place(const kn__winograd *k) {
    return most_at_once(k) >= k->n_to &&
           tile_bytes(k) * k->tile_rows * k->tile_columns <= IMAGE_BYTES;
}

/* Rows of tiles in a unit: what the second cache holds, as many units as keep some threads busy,
 * but tiles enough for each to be worth reading all weights. */
static int64_t rows_at_once(const kn__winograd *k) {
    enum { UNITS = 16, LEAST_TILES = 14 };
    int64_t rows = larger(kn__chunks(k->rows, UNITS), kn__chunks(LEAST_TILES, k->tile_columns));
    rows = larger(1, smaller(rows, UNIT_BYTES / (tile_bytes(k) * k->tile_columns)));
    if (k->in_place) return larger(1, rows / k->tile_rows) * k->tile_rows;
    return kn__chunks(k->rows, kn__chunks(k->rows, rows));
}

static kn_status parts_run(kn_op_call *call, const parts *p) {
    kn__winograd *k = p->k;
    int64_t tiles = k->unit_rows * k->tile_columns, units = kn__chunks(k->rows, k->unit_rows);
    int64_t n = smaller(p->most, rounded(k->n_to, LANES));
    int64_t slot = k->strip + unit_windows(k) + k->n_numbers * step_of(tiles * phases_to(k) * n);
    void *u = p->kept ? p->kept->data : NULL;
    if (!p->kept) KN_TRY(kn__work(&u, call, bytes_of(part_elements(p))));
    KN_TRY(kn__slots_create(&k->slots, call, units, bytes_of(slot)));
    for (int64_t first = 0; first < k->n_to; first += p->most) {
        int64_t at = p->kept ? first / p->most * part_elements(p) : 0;
        part_choose(p, first, (float *)u + at);
        if (!p->kept) kn__parallel_for(call->threads, k->from.channels, weights_body, k);
        kn__parallel_for(k->slots.n, units, unit_body, k);
    }
    return KN_OK;
}

kn_status kn__winograd_products(kn_op_call *call, kn__winograd *k, const kn_tensor *w) {
    parts p = {.k = k, .most = most_at_once(k), .threads = call->threads};
    k->unit_rows = rows_at_once(k);
    k->strip = strip_elements(k, larger(k->from.size[1], k->out[1]));
    if (w) KN_TRY(weights_take(&p, w));
    kn_status status = parts_run(call, &p);
    kn__conv_weights_give(p.kept);
    return status;
}
