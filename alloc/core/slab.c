#include "core/slab.h"
#include <string.h>

#include "core/arena.h"

enum {
    FIRST = 8, /* slots of a class's first slab, at least */
    SAME = 2   /* slabs of a size, then they are larger */
};

/* A class's slabs grow with its slots, from 8 of them or a page on, so that a class that is used
 * little costs little; at most KN__SLAB_SLOTS slots. */
size_t kn__slab_bytes(const kn__stream *stream, unsigned size_class) {
    size_t slot = kn__size_class_bytes(size_class), most = KN__PAGE;
    if (slot > 1 << 10) most = (size_t)256 << 10;
    if (slot > 8 << 10) most = (size_t)512 << 10;
    if (slot > 64 << 10) most = slot * 8 > (2 << 20) ? (size_t)4 << 20 : (size_t)2 << 20;
    size_t least = slot * FIRST, n = stream->n_slabs[size_class];
    least = (least * (1 + n / SAME) + KN__PAGE - 1) / KN__PAGE * KN__PAGE;
    return least < most ? least : most;
}

static size_t record_bytes(unsigned n_slots) {
    return sizeof(kn__slab) + (n_slots + 1u) * sizeof(kn__slot);
}

/* --- the list of slabs that have free slots --- */

static void link_partial(kn__slab *slab) {
    KN__LIST_ADD(&slab->stream->partial[slab->size_class], slab);
}

static void unlink_partial(kn__slab *slab) {
    KN__LIST_REMOVE(&slab->stream->partial[slab->size_class], slab);
}

kn__slab *kn__slab_create(kn_pool *pool, kn__block *block, unsigned size_class, unsigned depth) {
    KN_ASSERT(block->state == KN__LIVE && (uintptr_t)block->ptr % KN__PAGE == 0);
    size_t slot = kn__size_class_bytes(size_class), bytes = block->size;
    unsigned n_slots = (unsigned)(bytes / slot), grains = (unsigned)(slot / KN__GRAIN);
    kn__slab *slab = kn__meta_alloc(&pool->meta, record_bytes(n_slots));
    if (!slab) return NULL;
    slab->base = block->ptr;
    slab->stream = block->stream;
    slab->slot_bytes = (uint32_t)slot;
    slab->inverse = (((uint64_t)1 << 32) + grains - 1) / grains;
    slab->size_class = (uint16_t)size_class;
    slab->n_slots = slab->n_free = (uint16_t)n_slots;
    slab->depth_bytes = (uint16_t)(depth * sizeof(kn__slot_ref));
    slab->block = block;
    for (unsigned i = 0; i < n_slots; i++) slab->free[i / 64] |= 1ull << i % 64;
    for (unsigned i = 0; i < n_slots; i++) KN__WRITE(slab->slots[i].owner, KN__SLOT_NEW);
    kn__block_set(block, KN__SLAB, 0);
    block->slab = slab;
    kn__pages_set(&pool->pages, slab->base, bytes >> KN__PAGE_SHIFT,
                  (uintptr_t)slab | KN__PAGE_IS_SLAB);
    slab->stream->n_slabs[size_class]++;
    link_partial(slab);
    return slab;
}

static void slab_destroy(kn_pool *pool, kn__slab *slab) {
    KN_ASSERT(slab->n_free == slab->n_slots && !kn__slab_n_waiting(slab) && !slab->shared);
    kn__block *block = slab->block;
    kn__pages_set(&pool->pages, slab->base, block->size >> KN__PAGE_SHIFT, 0);
    unlink_partial(slab);
    slab->stream->n_slabs[slab->size_class]--;
    kn__meta_free(&pool->meta, slab, record_bytes(slab->n_slots));
    kn__arena_put_home(pool, block, kn__stream_epoch(block->stream));
}

static unsigned take_from(kn__slab *slab, kn__slot_ref *out, unsigned n) {
    const kn__slot_ref *first = out, *end = out + n;
    size_t bytes = slab->slot_bytes;
    for (unsigned word = 0; word < KN__SLAB_SLOTS / 64 && out < end; word++) {
        char *base = slab->base + word * 64 * bytes;
        kn__slot *slots = slab->slots + word * 64;
        uint64_t left = slab->free[word];
        for (; left && out < end; left &= left - 1) {
            unsigned i = (unsigned)__builtin_ctzll(left);
            *out++ = (kn__slot_ref){base + i * bytes, slots + i};
        }
        slab->free[word] = left;
    }
    unsigned taken = (unsigned)(out - first);
    slab->n_free = (uint16_t)(slab->n_free - taken);
    return taken;
}

unsigned kn__slab_take(kn__stream *stream, unsigned size_class, kn__slot_ref *out, unsigned n) {
    unsigned taken = 0;
    while (taken < n && stream->partial[size_class]) {
        kn__slab *slab = stream->partial[size_class];
        taken += take_from(slab, out + taken, n - taken);
        if (slab->n_free == 0) unlink_partial(slab);
    }
    return taken;
}

void kn__slab_put_edge(kn_pool *pool, kn__slab *slab) {
    if (slab->n_free == 1) link_partial(slab);
    if (slab->n_free == slab->n_slots) slab_destroy(pool, slab);
}

unsigned kn__slab_n_waiting(const kn__slab *slab) {
    unsigned n = 0;
    for (int word = 0; word < KN__SLAB_SLOTS / 64; word++) {
        n += (unsigned)__builtin_popcountll(slab->waiting[word]);
    }
    return n;
}

void kn__slab_move(kn__slab *slab, kn__stream *stream) {
    KN_ASSERT(slab->stream != stream && slab->block->slab == slab);
    if (slab->n_free) unlink_partial(slab);
    slab->stream->n_slabs[slab->size_class]--;
    stream->n_slabs[slab->size_class]++;
    slab->stream = stream;
    if (slab->n_free) link_partial(slab);
}
