#include "core/bins.h"

bool kn__bins_visit(const kn__bins *bins, size_t least_bytes, kn__block_fn fn, void *ctx) {
    for (unsigned word = 0; word < KN__BINS / 64; word++) {
        for (uint64_t bits = bins->words[word]; bits; bits &= bits - 1) {
            kn__block *block = bins->head[word * 64 + (unsigned)__builtin_ctzll(bits)];
            if (block && block->size < least_bytes) continue;
            for (kn__block *next; block; block = next) {
                next = block->next;
                if (fn(ctx, block)) return true;
            }
        }
    }
    return false;
}

bool kn__bins_visit_down(const kn__bins *bins, kn__block_fn fn, void *ctx) {
    for (int word = KN__BINS / 64 - 1; word >= 0; word--) {
        for (uint64_t bits = bins->words[word], top; bits; bits &= ~top) {
            int bit = 63 - __builtin_clzll(bits);
            top = 1ull << bit;
            for (kn__block *block = bins->head[word * 64 + bit]; block; block = block->next) {
                if (fn(ctx, block)) return true;
            }
        }
    }
    return false;
}

static bool add_bytes(void *ctx, kn__block *block) {
    *(uint64_t *)ctx += block->size;
    return false;
}

uint64_t kn__bins_bytes(const kn__bins *bins) {
    uint64_t bytes = 0;
    (void)kn__bins_visit(bins, 0, add_bytes, &bytes);
    return bytes;
}
