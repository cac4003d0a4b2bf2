/* Convolution straight from the planes. Everything that depends on the shape alone (where window
 * elements and groups of positions lie) is tabled once a call, then one image after the other runs
 * through the micro-tiles while it stays in the first cache. */
#include "host/conv/conv_direct.h"

#include <string.h>

#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "host/base/slots.h"

enum { LEAST_POSITIONS = 16, WEIGHT_PARTS = 16, PIECES = 16, TILE_GROUPS_MOST = 4 };
/* Of conv_weight: most bytes of parts; of a run of images beside large weights. */
enum { WEIGHT_BYTES = 8 << 20, RUN_BYTES = 4 << 20 };

bool kn__direct_fits(const kn__conv_sizes *s, kn_dtype dtype) {
    return s->window_size > 1 && s->stride[2] == 1 && s->out[2] >= kn__loops(dtype)->group;
}
bool kn__direct_fits_weight(const kn__conv_sizes *s) {
    return s->window_size > 1 && s->out_plane >= LEAST_POSITIONS;
}

typedef struct direct_work {
    const kn__conv_sizes *s;
    const kn__loop_table *loops;
    size_t bytes;
    kn__direct product;
    const char *x, *y;
    char *result;
    const char *packed, *bias;
    kn__conv_epilogue finish; /* forward */
    int64_t packed_size;      /* of one group's weights, elements */
    int64_t padded[3];        /* x's sizes with its padding */
    int64_t padded_plane;
    int64_t y_row, y_plane;  /* dy's row, made a multiple of a vector, and its plane */
    int64_t heights, widths; /* an image's outputs and groups of positions, cut for small batches */
    /* conv_weight: */
    int64_t parts, n_panels;
    const int64_t *position;    /* of each result element's window in x, of n_together images */
    int64_t n_together, images; /* large weights: images of a run; the present run's */
    int64_t first_image, x_image, row_blocks;
    char *planes, *columns;
    kn__slots slots;
} direct_work;

static bool is_padded(const kn__conv_sizes *s) {
    for (int i = 0; i < 3; i++) {
        if (s->padding[i] || s->padding_end[i]) return true;
    }
    return false;
}

static direct_work work_of(kn_op_call *call, const kn__conv_sizes *s, kn_dtype dtype) {
    direct_work k = {.s = s,
                     .loops = kn__loops(dtype),
                     .bytes = kn_dtype_bytes(dtype),
                     .result = call->out[0]->data,
                     .padded_plane = 1,
                     .heights = 1,
                     .widths = 1};
    for (int i = 0; i < 3; i++) {
        k.padded[i] = s->in[i] + s->padding[i] + s->padding_end[i];
        k.padded_plane *= k.padded[i];
    }
    k.y_row = (s->out[2] + k.loops->group - 1) / k.loops->group * k.loops->group;
    k.y_plane = kn__conv_rows(s) * k.y_row + k.loops->group; /* and a group of zeros */
    return k;
}

/* --- tables --- */

/* Where element `j` of the window (in row order) lies in a padded plane, from the window's corner.
 */
static int64_t window_at(const direct_work *k, int64_t j) {
    const kn__conv_sizes *s = k->s;
    if (s->flip) j = s->window_size - 1 - j;
    int64_t column = j % s->window[2], row = j / s->window[2] % s->window[1];
    int64_t depth = j / s->window[2] / s->window[1];
    return (depth * s->dilation[0] * k->padded[1] + row * s->dilation[1]) * k->padded[2] +
           column * s->dilation[2];
}

/* The corner of the window of result row r, in a padded plane. */
static int64_t corner_at(const direct_work *k, int64_t r) {
    const kn__conv_sizes *s = k->s;
    int64_t depth = r / s->out[1], row = r % s->out[1];
    return (depth * s->stride[0] * k->padded[1] + row * s->stride[1]) * k->padded[2];
}

static int64_t groups_per_row(const direct_work *k) { return k->y_row / k->loops->group; }

/* Rows (channel, window) in the order of the weight. */
static void fill_window_table(const direct_work *k, int64_t *table) {
    for (int64_t c = 0; c < k->s->channels; c++)
        for (int64_t j = 0; j < k->s->window_size; j++)
            *table++ = c * k->padded_plane + window_at(k, j);
}

/* --- planes with and without padding --- */

static void copy_planes(const direct_work *k, char *to, const char *from, bool crop) {
    const kn__conv_sizes *s = k->s;
    size_t row = (size_t)s->in[2] * k->bytes;
    for (int64_t c = 0; c < s->channels; c++)
        for (int64_t i = 0; i < s->in[0] * s->in[1]; i++) {
            int64_t d = i / s->in[1] + s->padding[0], h = i % s->in[1] + s->padding[1];
            int64_t at = c * k->padded_plane + (d * k->padded[1] + h) * k->padded[2];
            size_t padded = (size_t)(at + s->padding[2]) * k->bytes;
            size_t plain = (size_t)(c * s->in_plane + i * s->in[2]) * k->bytes;
            memcpy(to + (crop ? plain : padded), from + (crop ? padded : plain), row);
        }
}

/* The planes of image b, group g, padded: in the slot when there is padding. */
static const char *padded_planes(const direct_work *k, char *slot, int64_t b, int64_t g) {
    const kn__conv_sizes *s = k->s;
    const char *x = k->x + (size_t)((b * s->groups + g) * s->channels * s->in_plane) * k->bytes;
    if (!is_padded(s)) return x;
    memset(slot, 0, (size_t)(s->channels * k->padded_plane) * k->bytes);
    copy_planes(k, slot, x, false);
    return slot;
}

static int64_t slot_elements(const direct_work *k) { /* of padded planes, to a cache line */
    return (k->s->channels * k->padded_plane + 2 * k->loops->group + 15) / 16 * 16;
}

/* --- y --- */

/* Where a piece's outputs begin: with a tile. */
static int64_t first_output(const direct_work *k, int64_t piece) {
    int64_t tiles = kn__chunks(k->s->outputs, k->loops->tile_rows);
    int64_t first = kn__part(tiles, k->heights, piece) * k->loops->tile_rows;
    return first < k->s->outputs ? first : k->s->outputs;
}

/* Where its groups of positions do: with a tile too, but the last two of a row may overlap, so one
 * piece does both. */
static int64_t first_group(const direct_work *k, int64_t piece) {
    int64_t n = k->product.n_groups, row = groups_per_row(k);
    int64_t first = kn__part(kn__chunks(n, TILE_GROUPS_MOST), k->widths, piece) * TILE_GROUPS_MOST;
    if (first >= n) return n;
    return first + (row > 1 && first % row == row - 1);
}

static int64_t image_pieces(const direct_work *k) { return k->heights * k->widths; }

static void forward_body(void *ctx, int64_t i) {
    direct_work *k = ctx;
    const kn__conv_sizes *s = k->s;
    int64_t piece = i % image_pieces(k), image = i / image_pieces(k), g = image % s->groups;
    int64_t row = first_output(k, piece % k->heights), group = first_group(k, piece / k->heights);
    kn__direct part = k->product;
    part.n_rows = first_output(k, piece % k->heights + 1) - row;
    part.row_at += row;
    char *slot = k->planes ? NULL : kn__slot_take(&k->slots);
    const char *x = k->planes ? k->planes + (size_t)(image * slot_elements(k)) * k->bytes
                              : padded_planes(k, slot, image / s->groups, g);
    size_t weights = (size_t)(g * k->packed_size + row * k->product.n_steps) * k->bytes;
    k->loops->direct_product(
        &part, k->result + (size_t)(image * s->outputs * s->out_plane) * k->bytes, x,
        k->packed + weights, k->bias ? k->bias + (size_t)(g * s->outputs + row) * k->bytes : NULL,
        group, first_group(k, piece / k->heights + 1) - group);
    if (image_pieces(k) == 1) {
        int64_t planes = s->outputs * s->out_plane;
        kn__conv_finish(&k->finish, i * planes, planes);
    }
    kn__slot_give(&k->slots, slot);
}

/* Image i of all, for its pieces. */
static void pad_body(void *ctx, int64_t i) {
    const direct_work *k = ctx;
    char *to = k->planes + (size_t)(i * slot_elements(k)) * k->bytes;
    (void)padded_planes(k, to, i / k->s->groups, i % k->s->groups);
}

/* Groups of a result row overlap at its end when its length is no multiple of theirs. */
static void fill_forward_tables(direct_work *k, int64_t *table) {
    const kn__conv_sizes *s = k->s;
    int64_t *offset = table, *row_at = offset + k->product.n_steps;
    int64_t *from = row_at + k->product.n_rows, *to = from + k->product.n_groups;
    fill_window_table(k, offset);
    for (int64_t i = 0; i < s->outputs; i++) row_at[i] = i * s->out_plane;
    for (int64_t r = 0, g = 0; r < kn__conv_rows(s); r++)
        for (int64_t j = 0; j < groups_per_row(k); j++, g++) {
            int64_t most = s->out[2] - k->loops->group, column = j * k->loops->group;
            if (column > most) column = most;
            from[g] = corner_at(k, r) + column;
            to[g] = r * s->out[2] + column;
        }
    k->product.offset = offset, k->product.row_at = row_at;
    k->product.from_at = from, k->product.to_at = to;
}

/* Outputs first: each piece reads its own weights then. */
static void cut(direct_work *k) {
    int64_t images = k->s->batch * k->s->groups, wanted = kn__chunks(PIECES, images);
    int64_t tall = kn__chunks(k->s->outputs, k->loops->tile_rows);
    int64_t wide = kn__chunks(k->product.n_groups, TILE_GROUPS_MOST);
    k->heights = wanted < tall ? wanted : tall;
    k->widths = kn__chunks(wanted, k->heights);
    if (k->widths > wide) k->widths = wide;
}

kn_status kn__direct_conv(kn_op_call *call, const kn__conv_sizes *s, const kn_tensor *x,
                          const kn_tensor *w, const kn_tensor *bias) {
    direct_work k = work_of(call, s, (kn_dtype)x->dtype);
    int64_t steps = s->channels * s->window_size, rows = kn__conv_rows(s);
    k.x = x->data;
    k.bias = bias ? bias->data : NULL;
    k.finish = kn__conv_finish_of(call);
    k.product =
        (kn__direct){.n_rows = s->outputs, .n_steps = steps, .n_groups = rows * groups_per_row(&k)};
    k.packed_size = s->outputs * steps;
    cut(&k);
    size_t packed_bytes = (size_t)(s->groups * k.packed_size) * k.bytes;
    size_t table_bytes = (size_t)(steps + s->outputs + 2 * k.product.n_groups) * sizeof(int64_t);
    void *memory = NULL;
    KN_TRY(kn__work(&memory, call, table_bytes + packed_bytes));
    fill_forward_tables(&k, memory);
    char *packed = (char *)memory + table_bytes;
    for (int64_t g = 0; g < s->groups; g++)
        k.loops->gemm_pack(packed + (size_t)(g * k.packed_size) * k.bytes,
                           (const char *)w->data + (size_t)(g * k.packed_size) * k.bytes, steps, 1,
                           s->outputs, steps, k.loops->tile_rows, false);
    k.packed = packed;
    int64_t images = s->batch * s->groups, n = images * image_pieces(&k);
    size_t image_bytes = is_padded(s) ? (size_t)slot_elements(&k) * k.bytes : 0;
    bool once = image_pieces(&k) > 1 && image_bytes;
    if (once) {
        KN_TRY(kn__work(&memory, call, image_bytes * (size_t)images));
        k.planes = memory;
        kn__parallel_for(call->threads, images, pad_body, &k);
    }
    KN_TRY(kn__slots_create(&k.slots, call, n, once ? 0 : image_bytes));
    kn__parallel_for(k.slots.n, n, forward_body, &k);
    if (image_pieces(&k) > 1) kn__conv_finish_all(&k.finish, call);
    return KN_OK;
}

/* --- dx: each (window element, channel) adds its share to the padded planes --- */

/* dy's planes with rows of whole groups; what lies behind a row is zero. */
static void copy_dy(const direct_work *k, char *to, int64_t b, int64_t g) {
    const kn__conv_sizes *s = k->s;
    size_t row = (size_t)s->out[2] * k->bytes, padded = (size_t)k->y_row * k->bytes;
    const char *dy = k->y + (size_t)((b * s->groups + g) * s->outputs * s->out_plane) * k->bytes;
    for (int64_t o = 0; o < s->outputs; o++) {
        for (int64_t r = 0; r < kn__conv_rows(s); r++, to += padded, dy += row) {
            memcpy(to, dy, row);
            if (padded > row) memset(to + row, 0, padded - row);
        }
        memset(to, 0, padded / (size_t)groups_per_row(k));
        to += padded / (size_t)groups_per_row(k);
    }
}

static void data_body(void *ctx, int64_t i) {
    direct_work *k = ctx;
    const kn__conv_sizes *s = k->s;
    int64_t g = i % s->groups, b = i / s->groups;
    char *slot = kn__slot_take(&k->slots), *dy = slot + (size_t)slot_elements(k) * k->bytes;
    char *dx = k->result + (size_t)(i * s->channels * s->in_plane) * k->bytes;
    copy_dy(k, dy, b, g);
    memset(slot, 0, (size_t)slot_elements(k) * k->bytes);
    k->loops->direct_product(&k->product, slot, dy,
                             k->packed + (size_t)(g * k->packed_size) * k->bytes, NULL, 0,
                             k->product.n_groups);
    if (is_padded(s))
        copy_planes(k, dx, slot, true);
    else
        memcpy(dx, slot, (size_t)(s->channels * s->in_plane) * k->bytes);
    kn__slot_give(&k->slots, slot);
}

/* Neighbouring rows of the product belong to different channels, so that one's addition doesn't
 * wait for the store of the one before. */
static void fill_data_tables(direct_work *k, int64_t *table) {
    const kn__conv_sizes *s = k->s;
    int64_t *offset = table, *row_at = offset + k->product.n_steps;
    int64_t *from = row_at + k->product.n_rows, *to = from + k->product.n_groups;
    int64_t n = kn__conv_rows(s) * groups_per_row(k);
    for (int64_t o = 0; o < s->outputs; o++) offset[o] = o * k->y_plane;
    for (int64_t i = 0; i < k->product.n_rows; i++)
        row_at[i] = i % s->channels * k->padded_plane + window_at(k, i / s->channels);
    for (int64_t g = 0; g < n; g++) {
        int64_t column = g % groups_per_row(k) * k->loops->group;
        from[g] = g * k->loops->group;
        to[g] = corner_at(k, g / groups_per_row(k)) + column;
    }
    for (int64_t g = n; g < k->product.n_groups; g++) /* zeros, to fill the last tile */
        from[g] = n * k->loops->group, to[g] = 0;
    k->product.offset = offset, k->product.row_at = row_at;
    k->product.from_at = from, k->product.to_at = to;
}

/* packed[panel][output][row] of weight [output][channel][window]; rows are (window, channel). */
static void pack_transposed(const direct_work *k, char *to, const char *w) {
    const kn__conv_sizes *s = k->s;
    int64_t rows = k->product.n_rows, width = k->loops->tile_rows;
    for (int64_t first = 0; first < rows; first += width)
        for (int64_t o = 0; o < s->outputs; o++)
            for (int64_t i = first; i < rows && i < first + width; i++, to += k->bytes) {
                int64_t at = (o * s->channels + i % s->channels) * s->window_size + i / s->channels;
                memcpy(to, w + (size_t)at * k->bytes, k->bytes);
            }
}

kn_status kn__direct_conv_data(kn_op_call *call, const kn__conv_sizes *s, const kn_tensor *dy,
                               const kn_tensor *w) {
    direct_work k = work_of(call, s, (kn_dtype)dy->dtype);
    int64_t n_groups = kn__conv_rows(s) * groups_per_row(&k);
    k.y = dy->data;
    k.product = (kn__direct){.n_rows = s->channels * s->window_size,
                             .n_steps = s->outputs,
                             .n_groups = kn__chunks(n_groups, TILE_GROUPS_MOST) * TILE_GROUPS_MOST,
                             .accumulate = true};
    k.packed_size = k.product.n_rows * s->outputs;
    size_t packed_bytes = (size_t)(s->groups * k.packed_size) * k.bytes;
    size_t table_bytes =
        (size_t)(k.product.n_rows + s->outputs + 2 * k.product.n_groups) * sizeof(int64_t);
    void *memory = NULL;
    KN_TRY(kn__work(&memory, call, table_bytes + packed_bytes));
    fill_data_tables(&k, memory);
    char *packed = (char *)memory + table_bytes;
    for (int64_t g = 0; g < s->groups; g++) {
        size_t at = (size_t)(g * k.packed_size) * k.bytes;
        pack_transposed(&k, packed + at, (const char *)w->data + at);
    }
    k.packed = packed;
    size_t slot_bytes = (size_t)(slot_elements(&k) + s->outputs * k.y_plane) * k.bytes;
    int64_t n = s->batch * s->groups;
    kn_status status = kn__slots_create(&k.slots, call, n, slot_bytes);
    if (status == KN_OK) {
        kn__parallel_for(k.slots.n, n, data_body, &k);
    }
    return status;
}

/* --- dw, as [channel·window][outputs] for each part of the batch, then summed in order --- */

static int64_t part_elements(const direct_work *k) {
    return k->product.n_rows * k->n_panels * k->loops->tile_columns;
}

static void weight_body(void *ctx, int64_t i) {
    direct_work *k = ctx;
    const kn__conv_sizes *s = k->s;
    int64_t g = i % s->groups, part = i / s->groups;
    char *slot = kn__slot_take(&k->slots), *packed = slot + (size_t)slot_elements(k) * k->bytes;
    char *c = k->result + (size_t)(i * part_elements(k)) * k->bytes;
    memset(c, 0, (size_t)part_elements(k) * k->bytes);
    for (int64_t b = kn__part(s->batch, k->parts, part); b < kn__part(s->batch, k->parts, part + 1);
         b++) {
        const char *x = padded_planes(k, slot, b, g);
        size_t dy = (size_t)((b * s->groups + g) * s->outputs * s->out_plane) * k->bytes;
        k->loops->gemm_pack(packed, k->y + dy, s->out_plane, 1, s->outputs, s->out_plane,
                            k->loops->tile_columns, true);
        k->loops->direct_weight(c, x, k->product.row_at, k->product.n_rows, k->position,
                                s->out_plane, packed, k->n_panels);
    }
    kn__slot_give(&k->slots, slot);
}

typedef struct weight_sum {
    const direct_work *k;
    kn_tensor *dw;
    bool accumulate;
} weight_sum;
enum { SUM_ELEMENTS = 256, SUM_ROWS = 16 };
/* Rows of sums, which don't begin at the same place of a page. */
typedef char sum_room[SUM_ROWS][(SUM_ELEMENTS + 16) * sizeof(double)];

/* dw's elements from `to` on (+)= those of n columns of `rows` rows. */
static void sum_turn(const weight_sum *sum, sum_room room, int64_t to, int64_t rows, int64_t n) {
    const int64_t step = sum->k->product.n_rows;
    for (int64_t j = 0; j < n; j++, to += step)
        for (int64_t r = 0; r < rows; r++) {
            if (sum->k->bytes == sizeof(double)) {
                double *dw = sum->dw->data, value;
                memcpy(&value, room[r] + (size_t)j * sizeof value, sizeof value);
                dw[to + r] = (sum->accumulate ? dw[to + r] : 0) + value;
            } else {
                float *dw = sum->dw->data, value;
                memcpy(&value, room[r] + (size_t)j * sizeof value, sizeof value);
                dw[to + r] = (sum->accumulate ? dw[to + r] : 0) + value;
            }
        }
}

static int64_t sum_blocks(const direct_work *k) { return kn__chunks(k->product.n_rows, SUM_ROWS); }

/* Some rows (channel, window) of one group: their parts' sums go to columns of dw. */
static void sum_body(void *ctx, int64_t i) {
    const weight_sum *sum = ctx;
    const direct_work *k = sum->k;
    const kn__conv_sizes *s = k->s;
    int64_t g = i / sum_blocks(k), row = i % sum_blocks(k) * SUM_ROWS;
    int64_t columns = k->n_panels * k->loops->tile_columns, left = k->product.n_rows - row;
    int64_t rows = left < SUM_ROWS ? left : SUM_ROWS;
    for (int64_t o = 0; o < s->outputs; o += SUM_ELEMENTS) {
        _Alignas(64) sum_room room;
        int64_t n = s->outputs - o < SUM_ELEMENTS ? s->outputs - o : SUM_ELEMENTS;
        for (int64_t r = 0; r < rows; r++) {
            int64_t from = g * part_elements(k) + (row + r) * columns + o;
            k->loops->sum_parts(room[r], k->result + (size_t)from * k->bytes, k->parts,
                                s->groups * part_elements(k), n, false);
        }
        sum_turn(sum, room, (g * s->outputs + o) * k->product.n_rows + row, rows, n);
    }
}

/* Where the element of result row r, column i, of image b has its window. */
static void fill_weight_tables(direct_work *k, int64_t *table) {
    const kn__conv_sizes *s = k->s;
    int64_t *position = table + k->product.n_rows, p = 0;
    fill_window_table(k, table);
    for (int64_t b = 0; b < k->n_together; b++)
        for (int64_t r = 0; r < kn__conv_rows(s); r++)
            for (int64_t i = 0; i < s->out[2]; i++)
                position[p++] = b * k->x_image + corner_at(k, r) + i * s->stride[2];
    k->product.row_at = table, k->position = position;
}

static size_t weight_table_bytes(const direct_work *k) {
    int64_t n = k->product.n_rows + k->n_together * k->s->out_plane;
    return (size_t)((n + 7) / 8 * 8) * sizeof(int64_t);
}

static void weight_finish(kn_op_call *call, const direct_work *k) {
    weight_sum sum = {k, call->out[0], (call->accumulate & 1) != 0};
    kn__parallel_for(call->threads, k->s->groups * sum_blocks(k), sum_body, &sum);
}

/* Parts of the batch, each with a dw of its own. */
static kn_status weight_by_parts(kn_op_call *call, direct_work *k) {
    const kn__conv_sizes *s = k->s;
    void *memory = NULL;
    size_t table_bytes = weight_table_bytes(k);
    size_t part_bytes = (size_t)(s->groups * part_elements(k)) * k->bytes;
    KN_TRY(kn__work(&memory, call, table_bytes + (size_t)k->parts * part_bytes));
    fill_weight_tables(k, memory);
    k->result = (char *)memory + table_bytes;
    int64_t packed = k->n_panels * k->loops->tile_columns * s->out_plane;
    size_t slot_bytes = (size_t)(slot_elements(k) + packed) * k->bytes;
    KN_TRY(kn__slots_create(&k->slots, call, k->parts * s->groups, slot_bytes));
    kn__parallel_for(k->slots.n, k->parts * s->groups, weight_body, k);
    weight_finish(call, k);
    return KN_OK;
}

/* --- dw of large weights: threads share it by rows, and sum over runs of images --- */

static int64_t panel_elements(const direct_work *k) {
    return k->images * k->s->out_plane * k->loops->tile_columns;
}

/* Image and group i of the run: x padded, dy as a part of each panel. */
static void run_copy_body(void *ctx, int64_t i) {
    direct_work *k = ctx;
    const kn__conv_sizes *s = k->s;
    int64_t g = i % s->groups, b = i / s->groups, width = k->loops->tile_columns;
    int64_t image = k->first_image + b, plane = s->out_plane;
    size_t dy = (size_t)((image * s->groups + g) * s->outputs * plane) * k->bytes;
    char *to = k->columns + (size_t)(b * plane * width) * k->bytes;
    for (int64_t o = 0; o < s->outputs; o += width, dy += (size_t)(width * plane) * k->bytes)
        k->loops->gemm_pack(
            to + (size_t)((g * k->n_panels + o / width) * panel_elements(k)) * k->bytes, k->y + dy,
            plane, 1, s->outputs - o < width ? s->outputs - o : width, plane, (int)width, true);
    if (is_padded(s))
        padded_planes(k, k->planes + (size_t)(i * slot_elements(k)) * k->bytes, image, g);
}

/* A block of rows of one group's dw, over all images of the run. */
static void run_rows_body(void *ctx, int64_t i) {
    direct_work *k = ctx;
    const kn__conv_sizes *s = k->s;
    int64_t g = i / k->row_blocks, block = i % k->row_blocks, height = k->loops->tile_rows;
    int64_t tiles = kn__chunks(k->product.n_rows, height);
    int64_t row = kn__part(tiles, k->row_blocks, block) * height;
    int64_t end = kn__part(tiles, k->row_blocks, block + 1) * height;
    int64_t rows = (end < k->product.n_rows ? end : k->product.n_rows) - row;
    int64_t width = k->n_panels * k->loops->tile_columns;
    char *c = k->result + (size_t)(g * part_elements(k) + row * width) * k->bytes;
    const char *x =
        is_padded(s)
            ? k->planes + (size_t)(g * slot_elements(k)) * k->bytes
            : k->x +
                  (size_t)((k->first_image * s->groups + g) * s->channels * s->in_plane) * k->bytes;
    if (!k->first_image) memset(c, 0, (size_t)(rows * width) * k->bytes);
    k->loops->direct_weight(
        c, x, k->product.row_at + row, rows, k->position, k->images * s->out_plane,
        k->columns + (size_t)(g * k->n_panels * panel_elements(k)) * k->bytes, k->n_panels);
}

static kn_status weight_by_rows(kn_op_call *call, direct_work *k) {
    const kn__conv_sizes *s = k->s;
    void *memory = NULL;
    int64_t packed = s->groups * k->n_panels * k->loops->tile_columns * s->out_plane;
    int64_t padded = is_padded(s) ? s->groups * slot_elements(k) : 0;
    int64_t fit = (int64_t)(RUN_BYTES / ((size_t)(packed + padded) * k->bytes));
    k->n_together = fit < 1 ? 1 : (fit < s->batch ? fit : s->batch);
    k->x_image = is_padded(s) ? padded : s->groups * s->channels * s->in_plane;
    int64_t tiles = kn__chunks(k->product.n_rows, k->loops->tile_rows);
    k->row_blocks = kn__chunks(WEIGHT_PARTS, s->groups);
    if (k->row_blocks > tiles) k->row_blocks = tiles; /* none is empty */
    k->parts = 1;
    size_t table_bytes = weight_table_bytes(k);
    size_t dw_bytes = (size_t)(s->groups * part_elements(k)) * k->bytes;
    size_t run_bytes = (size_t)(k->n_together * (packed + padded)) * k->bytes;
    KN_TRY(kn__work(&memory, call, table_bytes + dw_bytes + run_bytes));
    fill_weight_tables(k, memory);
    k->result = (char *)memory + table_bytes;
    k->columns = k->result + dw_bytes;
    k->planes = k->columns + (size_t)(k->n_together * packed) * k->bytes;
    for (k->first_image = 0; k->first_image < s->batch; k->first_image += k->images) {
        int64_t left = s->batch - k->first_image;
        k->images = left < k->n_together ? left : k->n_together;
        kn__parallel_for(call->threads, k->images * s->groups, run_copy_body, k);
        kn__parallel_for(call->threads, s->groups * k->row_blocks, run_rows_body, k);
    }
    weight_finish(call, k);
    return KN_OK;
}

kn_status kn__direct_conv_weight(kn_op_call *call, const kn__conv_sizes *s, const kn_tensor *x,
                                 const kn_tensor *dy) {
    direct_work k = work_of(call, s, (kn_dtype)x->dtype);
    k.x = x->data, k.y = dy->data;
    k.n_together = 1;
    k.product.n_rows = s->channels * s->window_size;
    k.n_panels = kn__chunks(s->outputs, k.loops->tile_columns);
    k.parts = s->batch < WEIGHT_PARTS ? s->batch : WEIGHT_PARTS;
    size_t parts_bytes = (size_t)(k.parts * s->groups * part_elements(&k)) * k.bytes;
    return parts_bytes > WEIGHT_BYTES ? weight_by_rows(call, &k) : weight_by_parts(call, &k);
}
