#include "nvtx.h"

bool kn__nvtx_start(void) { return false; }
void kn__nvtx_push(kn__tree_node *node) { (void)node; }
void kn__nvtx_pop(void) {}
void kn__nvtx_live(int64_t bytes) { (void)bytes; }
void *kn__nvtx_heap(const char *name) { return (void)name, NULL; }
void kn__nvtx_heap_end(void *heap) { (void)heap; }
void kn__nvtx_block(void *heap, const void *ptr, size_t size_bytes) {
    (void)heap, (void)ptr, (void)size_bytes;
}
void kn__nvtx_block_end(const void *ptr) { (void)ptr; }
