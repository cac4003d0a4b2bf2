/* Kronecker's product of short rows of b, in blocks: an element of a repeated over each of them,
 * times a row of b over and over. Both are made once for many blocks. */
#include "kron.h"

#include <string.h>

#include "host/base/chunks.h"
#include "host/base/walk.h"
#include "host/pointwise/rows.h"
#include "kernel.h"

enum { BLOCK = 256, LONG_ROW = 256, GRAIN = 1 << 15 };

typedef struct kron_job {
    char *c, *tiles; /* tiles: of each row of b, block·q elements */
    const char *a;
    kn__row_loop mul;
    int64_t n, p, q, block; /* block: columns of a */
    int64_t p_each, parts;  /* rows of b in a piece of work; pieces for a row of a */
    size_t bytes;
} kron_job;

static void kron_part(void *ctx, int64_t i) {
    const kron_job *j = ctx;
    char repeated[BLOCK * sizeof(double)];
    int64_t row = i / j->parts, first = i % j->parts * j->p_each, end = first + j->p_each;
    if (end > j->p) end = j->p;
    for (int64_t at = 0; at < j->n; at += j->block) {
        int64_t columns = j->n - at < j->block ? j->n - at : j->block, n = columns * j->q;
        for (int64_t k = 0; k < columns; k++)
            kn__walk_repeat(repeated + (size_t)(k * j->q) * j->bytes,
                            j->a + (size_t)(row * j->n + at + k) * j->bytes, j->bytes, j->q);
        for (int64_t p = first; p < end; p++) {
            const void *in[] = {repeated, j->tiles + (size_t)(p * j->block * j->q) * j->bytes};
            int64_t to = ((row * j->p + p) * j->n + at) * j->q;
            j->mul(j->c + (size_t)to * j->bytes, in, n, 0, 0, false);
        }
    }
}

/* from, `bytes` of it, n times. */
static void tile(char *to, const char *from, size_t bytes, int64_t n) {
    size_t all = bytes * (size_t)n, done = bytes;
    memcpy(to, from, bytes);
    for (; done < all; done *= 2) memcpy(to + done, to, done < all - done ? done : all - done);
}

kn_status kn__host_kron(kn_op_call *call) {
    const kn_tensor *a = call->in[0], *b = call->in[1];
    kn_dtype dtype = (kn_dtype)a->dtype;
    kron_job j = {.c = call->out[0]->data, .a = a->data, .bytes = kn_dtype_bytes(dtype)};
    j.n = a->dim[1], j.p = b->dim[0], j.q = b->dim[1];
    if (dtype == KN_F16 || dtype == KN_BF16 || j.q >= LONG_ROW)
        return kn__kron_broadcast(call, kn__host_row2);
    j.mul = kn__row_loops_of(dtype, KN_OP_mul)->f;
    j.block = BLOCK / j.q < j.n ? BLOCK / j.q : j.n;
    j.p_each = GRAIN / (j.n * j.q) + 1;
    j.parts = kn__chunks(j.p, j.p_each);
    void *tiles = NULL;
    size_t row_bytes = (size_t)j.q * j.bytes;
    KN_TRY(kn__work(&tiles, call, (size_t)(j.p * j.block) * row_bytes));
    j.tiles = tiles;
    for (int64_t p = 0; p < j.p; p++)
        tile(j.tiles + (size_t)(p * j.block) * row_bytes,
             (const char *)b->data + (size_t)p * row_bytes, row_bytes, j.block);
    kn__parallel_for(call->threads, a->dim[0] * j.parts, kron_part, &j);
    return KN_OK;
}
