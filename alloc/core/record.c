#include "core/record.h"

enum { RECORDS = 64 }; /* added at once */

kn__block *kn__records_add(kn__records *records) {
    kn__block *more = kn__meta_alloc(records->meta, RECORDS * sizeof *more);
    for (int i = 0; more && i < RECORDS; i++) {
        more[i].next = records->spare;
        records->spare = &more[i];
    }
    return records->spare;
}

kn__block *kn__block_create(kn__records *records, kn__stream *stream, char *ptr, size_t size) {
    kn__block *block = kn__record_take(records, stream, ptr, size);
    if (!block) return NULL;
    block->left = block->right = block->next = block->prev = NULL;
    kn__block_set(block, KN__FREE, 0);
    return block;
}
