/* The memory of a plan: each buffer made inside at an offset of one block, so that no two overlap
 * that are in use at the same time. The largest buffers choose first, the lowest place that is free
 * as long as they are used. */
#include <stdlib.h>
#include <string.h>

#include "capture.h"

enum { GRAIN = 64, GPU_GRAIN = 256 }; /* a cache line; what libraries of GPUs want */

void kn__region_drop(kn__plan_memory *region) {
    if (!region || atomic_fetch_sub_explicit(&region->refs, 1, memory_order_acq_rel) != 1) return;
    kn_free(region->pool, region->data);
    free(region);
}

static void region_release(void *region) { kn__region_drop(region); }
kn_owner kn__region_owner(kn__plan_memory *region) { return (kn_owner){region_release, region}; }

kn_status kn__region_call(kn__block_fn fn, const kn_storage *s, kn_stream stream) {
    if (!s->owner || s->owner->release_fn != region_release) return KN_OK;
    const kn__plan_memory *region = s->owner->ctx;
    return fn(region->pool, region->data, stream);
}

static size_t rounded(size_t n, size_t grain) { return (n + grain - 1) / grain * grain; }

static int largest_first(const void *a, const void *b) {
    const kn__buffer *x = *(kn__buffer *const *)a, *y = *(kn__buffer *const *)b;
    if (x->size_bytes != y->size_bytes) return x->size_bytes > y->size_bytes ? -1 : 1;
    return x->first - y->first;
}

/* placed[0 … n - 1], by offset, has room for one more. */
static void place_one(kn__buffer **placed, uint32_t n, kn__buffer *b, size_t grain) {
    size_t at = 0, size = rounded(b->size_bytes, grain);
    for (uint32_t i = 0; i < n; i++) {
        const kn__buffer *p = placed[i];
        if (p->last < b->first || b->last < p->first) continue;
        if (p->offset >= at + size) break;
        size_t end = p->offset + rounded(p->size_bytes, grain);
        if (end > at) at = end;
    }
    b->offset = at;
    while (n > 0 && placed[n - 1]->offset > at) {
        placed[n] = placed[n - 1];
        n--;
    }
    placed[n] = b;
}

/* Bytes of the region. */
static size_t place_all(kn__buffer **order, kn__buffer **placed, uint32_t n, size_t grain) {
    size_t size = 0;
    qsort(order, n, sizeof(kn__buffer *), largest_first);
    for (uint32_t i = 0; i < n; i++) {
        place_one(placed, i, order[i], grain);
        size_t end = order[i]->offset + rounded(order[i]->size_bytes, grain);
        if (end > size) size = end;
    }
    return size;
}

static kn_status region_make(kn__plan *plan, size_t size_bytes) {
    kn__plan_memory *region = calloc(1, sizeof *region);
    if (!region) return KN_FAIL(KN_ERR_OOM, "kn_capture_end: no host memory");
    *region = (kn__plan_memory){.refs = 1, .pool = plan->pool, .size_bytes = size_bytes};
    kn_status status = kn_alloc(&region->data, plan->pool, size_bytes, plan->stream);
    if (status < 0)
        free(region);
    else
        plan->region = region;
    return status;
}

/* Where the op was called: known once the call has returned. */
static void place_note(kn_tensor *t, const kn__buffer *b) {
    if (!t || !b->inside || !b->storage) return;
    const kn_tensor *made =
        (const kn_tensor *)(const void *)((const char *)b->storage - offsetof(kn_tensor, own));
    t->file = made->file;
    t->line = made->line;
}

static char *input_in(const kn__plan *plan, int i) {
    const kn__plan_input *in = &plan->inputs[i];
    return (char *)plan->region->data + plan->buffers[in->buffer].offset + in->skew;
}

/* Views of inputs get theirs at each replay on the host. */
static void views_set(kn__plan *plan) {
    char *region = plan->region->data;
    for (uint32_t i = 0; i < plan->n_views; i++) {
        const kn__frozen *v = &plan->views[i];
        if (v->buffer == (uint32_t)KN__NO_BUFFER) continue;
        const kn__buffer *b = &plan->buffers[v->buffer];
        place_note(v->t, b);
        if (v->input >= 0) {
            if (plan->on_gpu) kn__frozen_set(v, input_in(plan, v->input) + v->at_bytes);
            continue;
        }
        kn__frozen_set(v, (b->inside ? region + b->offset : b->data) + v->at_bytes);
    }
    for (uint32_t i = 0; i < plan->n_pieces; i++) {
        kn__piece *p = &plan->pieces[i];
        p->data = region + plan->buffers[p->buffer].offset;
        p->in_use = false;
    }
    for (int i = 0; i < plan->n_inputs && plan->on_gpu; i++)
        plan->inputs[i].data = input_in(plan, i);
}

/* --- work space of replayed calls --- */

void *kn__pieces_take(kn__pieces *pieces, size_t size_bytes) {
    kn__piece *p = pieces->piece, *end = p + pieces->n;
    while (p < end && p->in_use) p++;
    if (p == end || p->size_bytes < size_bytes) return NULL;
    p->in_use = true;
    return p->data;
}

bool kn__pieces_end(kn__pieces *pieces, const void *data) {
    for (uint32_t i = 0; i < pieces->n; i++) {
        if (pieces->piece[i].data != data) continue;
        pieces->piece[i].in_use = false;
        return true;
    }
    return false;
}

kn_status kn__plan_place(kn__plan *plan) {
    uint32_t n = 0;
    kn__buffer **order = calloc(2 * (size_t)plan->n_buffers + 1, sizeof *order);
    if (!order) return KN_FAIL(KN_ERR_OOM, "kn_capture_end: no host memory");
    for (uint32_t i = 0; i < plan->n_buffers; i++) {
        kn__buffer *b = &plan->buffers[i];
        if (b->is_out) b->last = plan->n_calls; /* until the next replay writes it */
        if (b->inside) order[n++] = b;
    }
    size_t size = place_all(order, order + n, n, plan->on_gpu ? GPU_GRAIN : GRAIN);
    free(order);
    KN_TRY(region_make(plan, size));
    views_set(plan);
    return KN_OK;
}
