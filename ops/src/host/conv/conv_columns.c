/* Convolution through column matrices: a block of the image's windows is copied into a matrix that
 * stays in the second cache, and one product does the rest. A 1x1 window over every element needs
 * no copy. */
#include "host/conv/conv_columns.h"

#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "host/base/slots.h"
#include "host/conv/conv_over.h"
#include "host/product/gemm.h"

enum { BLOCK_BYTES = 512 * 1024, PIECES = 16, LEAST_COLUMNS = 64, WEIGHT_BYTES = 16 << 20 };

typedef struct columns_work {
    const kn__conv_sizes *s;
    const kn__loop_table *loops;
    const char *x, *w, *y; /* as the pass needs them; y or x is dy or the result's side */
    char *result;
    const char *bias;
    kn__conv_epilogue finish; /* forward */
    size_t bytes;             /* of an element */
    int64_t blocks;           /* row blocks (conv, conv_weight) or channel blocks (conv_data) */
    int64_t parts;            /* conv_weight: runs of images */
    bool direct;              /* the image is its own column matrix */
    size_t columns_bytes;     /* in the slot, before the product's own work space */
    kn__slots slots;
    _Atomic int status;
} columns_work;

static bool is_direct(const kn__conv_sizes *s) {
    for (int i = 0; i < 3; i++)
        if (s->window[i] != 1 || s->stride[i] != 1 || s->padding[i] != 0 || s->padding_end[i] != 0)
            return false;
    return true;
}

static columns_work work_of(kn_op_call *call, const kn__conv_sizes *s, kn_dtype dtype) {
    return (columns_work){.s = s,
                          .loops = kn__loops(dtype),
                          .bytes = kn_dtype_bytes(dtype),
                          .result = call->out[0]->data,
                          .blocks = 1,
                          .direct = is_direct(s)};
}

/* Elements of a plane set [channels of one group], of image `b`, group `g`. */
static size_t x_at(const columns_work *k, int64_t b, int64_t g) {
    const kn__conv_sizes *s = k->s;
    return (size_t)((b * s->groups + g) * s->channels * s->in_plane) * k->bytes;
}
static size_t y_at(const columns_work *k, int64_t b, int64_t g) {
    const kn__conv_sizes *s = k->s;
    return (size_t)((b * s->groups + g) * s->outputs * s->out_plane) * k->bytes;
}
static size_t w_at(const columns_work *k, int64_t g) {
    const kn__conv_sizes *s = k->s;
    return (size_t)(g * s->outputs * s->channels * s->window_size) * k->bytes;
}

/* Cuts n units of unit_bytes each into blocks that fit the cache, and into enough of them to keep
 * threads busy as long as each keeps `least` units. */
static int64_t blocks_of(int64_t n, size_t unit_bytes, int64_t others, int64_t least) {
    int64_t fit = (int64_t)(BLOCK_BYTES / (unit_bytes ? unit_bytes : 1));
    int64_t blocks = kn__chunks(n, fit < 1 ? 1 : fit), most = n / (least < 1 ? 1 : least);
    int64_t wanted = kn__chunks(PIECES, others);
    if (blocks < wanted) blocks = wanted < most ? wanted : (most > blocks ? most : blocks);
    return blocks < 1 ? 1 : blocks;
}

/* The columns of `rows` result rows from `first`: in the slot, or the image itself. */
static const char *columns_of(const columns_work *k, void *slot, const char *x, int64_t first,
                              int64_t rows) {
    if (k->direct) return x + (size_t)(first * k->s->out[2]) * k->bytes;
    k->loops->image_to_columns(k->s, slot, x, k->s->channels, first, rows);
    return slot;
}

static void product(columns_work *k, const kn__gemm *gemm, char *slot) {
    int status = kn__gemm_run(gemm, slot + k->columns_bytes);
    if (status) atomic_store_explicit(&k->status, status, memory_order_relaxed);
}

/* Runs `body` n times; each slot holds `columns` elements and the work space of `largest`. */
static kn_status columns_run(kn_op_call *call, columns_work *k, int64_t n, kn__body_fn body,
                             int64_t columns, const kn__gemm *largest) {
    k->columns_bytes = ((size_t)columns * k->bytes + 63) / 64 * 64;
    KN_TRY(kn__slots_create(&k->slots, call, n, k->columns_bytes + kn__gemm_bytes(largest)));
    kn_scope scope = kn_scope_begin_static(kn__gemm_label(largest));
    kn__library_for(k->slots.n, n, body, k);
    kn_scope_end(&scope);
    int status = atomic_load_explicit(&k->status, memory_order_relaxed);
    return status ? kn__gemm_fail(status) : KN_OK;
}

/* --- y [outputs, rows] = w [outputs, channels·window] · columns --- */

static kn__gemm forward_product(const columns_work *k, int64_t rows) {
    const kn__conv_sizes *s = k->s;
    int64_t depth = s->channels * s->window_size, n = rows * s->out[2];
    return (kn__gemm){.dtype = k->bytes == 8 ? KN_F64 : KN_F32,
                      .accumulate = k->bias != NULL,
                      .m = s->outputs,
                      .n = n,
                      .k = depth,
                      .lda = depth,
                      .ldb = k->direct ? s->in_plane : n,
                      .ldc = s->out_plane};
}

static void forward_body(void *ctx, int64_t i) {
    columns_work *k = ctx;
    const kn__conv_sizes *s = k->s;
    int64_t block = i % k->blocks, g = i / k->blocks % s->groups, b = i / k->blocks / s->groups;
    int64_t first = kn__part(kn__conv_rows(s), k->blocks, block);
    int64_t rows = kn__part(kn__conv_rows(s), k->blocks, block + 1) - first;
    char *slot = kn__slot_take(&k->slots);
    kn__gemm gemm = forward_product(k, rows);
    gemm.a = k->w + w_at(k, g);
    gemm.b = columns_of(k, slot, k->x + x_at(k, b, g), first, rows);
    gemm.c = k->result + y_at(k, b, g) + (size_t)(first * s->out[2]) * k->bytes;
    if (k->bias)
        k->loops->fill_rows(gemm.c, k->bias + (size_t)(g * s->outputs) * k->bytes, s->outputs,
                            gemm.n, s->out_plane);
    product(k, &gemm, slot);
    int64_t y = (b * s->groups + g) * s->outputs * s->out_plane + first * s->out[2];
    for (int64_t o = 0; o < s->outputs; o++)
        kn__conv_finish(&k->finish, y + o * s->out_plane, gemm.n);
    kn__slot_give(&k->slots, slot);
}

kn_status kn__columns_conv(kn_op_call *call, const kn__conv_sizes *s, const kn_tensor *x,
                           const kn_tensor *w, const kn_tensor *bias) {
    columns_work k = work_of(call, s, (kn_dtype)x->dtype);
    k.x = x->data, k.w = w->data, k.bias = bias ? bias->data : NULL;
    k.finish = kn__conv_finish_of(call);
    int64_t depth = s->channels * s->window_size, rows = kn__conv_rows(s);
    k.blocks = blocks_of(rows, (size_t)(depth * s->out[2]) * k.bytes, s->batch * s->groups,
                         kn__chunks(LEAST_COLUMNS, s->out[2]));
    int64_t most = kn__chunks(rows, k.blocks);
    kn__gemm largest = forward_product(&k, most);
    return columns_run(call, &k, s->batch * s->groups * k.blocks, forward_body,
                       k.direct ? 0 : depth * most * s->out[2], &largest);
}

/* --- dx: columns [channels·window, plane] = wᵀ · dy [outputs, plane], added back --- */

static kn__gemm data_product(const columns_work *k, int64_t channels) {
    const kn__conv_sizes *s = k->s;
    return (kn__gemm){.dtype = k->bytes == 8 ? KN_F64 : KN_F32,
                      .trans_a = true,
                      .m = channels * s->window_size,
                      .n = s->out_plane,
                      .k = s->outputs,
                      .lda = s->channels * s->window_size,
                      .ldb = s->out_plane,
                      .ldc = s->out_plane};
}

static void data_body(void *ctx, int64_t i) {
    columns_work *k = ctx;
    const kn__conv_sizes *s = k->s;
    int64_t block = i % k->blocks, g = i / k->blocks % s->groups, b = i / k->blocks / s->groups;
    int64_t first = kn__part(s->channels, k->blocks, block);
    int64_t channels = kn__part(s->channels, k->blocks, block + 1) - first;
    char *slot = kn__slot_take(&k->slots);
    char *dx = k->result + x_at(k, b, g) + (size_t)(first * s->in_plane) * k->bytes;
    kn__gemm gemm = data_product(k, channels);
    gemm.a = k->w + w_at(k, g) + (size_t)(first * s->window_size) * k->bytes;
    gemm.b = k->y + y_at(k, b, g);
    gemm.c = k->direct ? dx : slot;
    product(k, &gemm, slot);
    if (!k->direct) k->loops->columns_to_image(s, dx, slot, channels);
    kn__slot_give(&k->slots, slot);
}

kn_status kn__columns_conv_data(kn_op_call *call, const kn__conv_sizes *s, const kn_tensor *dy,
                                const kn_tensor *w) {
    columns_work k = work_of(call, s, (kn_dtype)dy->dtype);
    k.w = w->data;
    KN_TRY(kn__conv_dy_apart(&k.y, call));
    k.blocks = blocks_of(s->channels, (size_t)(s->window_size * s->out_plane) * k.bytes,
                         s->batch * s->groups, kn__chunks(LEAST_COLUMNS, s->window_size));
    int64_t most = kn__chunks(s->channels, k.blocks);
    kn__gemm largest = data_product(&k, most);
    return columns_run(call, &k, s->batch * s->groups * k.blocks, data_body,
                       k.direct ? 0 : most * s->window_size * s->out_plane, &largest);
}

/* --- dw [outputs, channels·window] = sum over images of dy · columnsᵀ --- */

static kn__gemm weight_product(const columns_work *k, int64_t rows) {
    const kn__conv_sizes *s = k->s;
    int64_t width = s->channels * s->window_size;
    return (kn__gemm){.dtype = k->bytes == 8 ? KN_F64 : KN_F32,
                      .trans_b = true,
                      .m = s->outputs,
                      .n = width,
                      .k = rows * s->out[2],
                      .lda = s->out_plane,
                      .ldb = k->direct ? s->in_plane : rows * s->out[2],
                      .ldc = width};
}

static void weight_image(columns_work *k, char *slot, char *dw, int64_t b, int64_t g, bool first) {
    const kn__conv_sizes *s = k->s;
    for (int64_t block = 0; block < k->blocks; block++) {
        int64_t row = kn__part(kn__conv_rows(s), k->blocks, block);
        int64_t rows = kn__part(kn__conv_rows(s), k->blocks, block + 1) - row;
        kn__gemm gemm = weight_product(k, rows);
        gemm.accumulate = !first || block > 0;
        gemm.a = k->y + y_at(k, b, g) + (size_t)(row * s->out[2]) * k->bytes;
        gemm.b = columns_of(k, slot, k->x + x_at(k, b, g), row, rows);
        gemm.c = dw + w_at(k, g);
        product(k, &gemm, slot);
    }
}

static void weight_body(void *ctx, int64_t i) {
    columns_work *k = ctx;
    const kn__conv_sizes *s = k->s;
    int64_t g = i % s->groups, part = i / s->groups;
    int64_t first = kn__part(s->batch, k->parts, part),
            end = kn__part(s->batch, k->parts, part + 1);
    char *slot = kn__slot_take(&k->slots);
    for (int64_t b = first; b < end; b++)
        weight_image(k, slot, k->result + (size_t)part * w_at(k, s->groups), b, g, b == first);
    kn__slot_give(&k->slots, slot);
}

/* The parts' sum, in order, in chunks of elements. */
typedef struct sum_work {
    const columns_work *k;
    char *y;
    int64_t n;
    bool accumulate;
} sum_work;
enum { SUM_CHUNK = 4096 };

static void sum_body(void *ctx, int64_t i) {
    const sum_work *sum = ctx;
    int64_t first = i * SUM_CHUNK, left = sum->n - first;
    size_t at = (size_t)first * sum->k->bytes;
    sum->k->loops->sum_parts(sum->y + at, sum->k->result + at, sum->k->parts, sum->n,
                             left < SUM_CHUNK ? left : SUM_CHUNK, sum->accumulate);
}

kn_status kn__columns_conv_weight(kn_op_call *call, const kn__conv_sizes *s, const kn_tensor *x,
                                  const kn_tensor *dy) {
    columns_work k = work_of(call, s, (kn_dtype)x->dtype);
    k.x = x->data, k.y = dy->data;
    int64_t depth = s->channels * s->window_size, rows = kn__conv_rows(s);
    k.blocks = blocks_of(rows, (size_t)(depth * s->out[2]) * k.bytes, PIECES, 1);
    int64_t most = kn__chunks(rows, k.blocks), n = s->groups * s->outputs * depth;
    int64_t fit = WEIGHT_BYTES / (n * (int64_t)k.bytes);
    k.parts = fit < 2 ? 2 : (fit < PIECES ? fit : PIECES);
    if (k.parts > s->batch) k.parts = s->batch;
    void *partial = NULL;
    KN_TRY(kn__work(&partial, call, (size_t)(k.parts * n) * k.bytes));
    k.result = partial;
    kn__gemm largest = weight_product(&k, most);
    kn_status status = columns_run(call, &k, k.parts * s->groups, weight_body,
                                   k.direct ? 0 : depth * most * s->out[2], &largest);
    sum_work sum = {&k, call->out[0]->data, n, (call->accumulate & 1) != 0};
    if (status == KN_OK) kn__parallel_for(call->threads, kn__chunks(n, SUM_CHUNK), sum_body, &sum);
    return status;
}
