/* Pairs of alloc and free for pair_instr.sh to count instructions: frames of 64 blocks of 64 bytes,
 * allocated and then freed in LIFO order. */
#include <jemalloc/jemalloc.h>
#include <knet/pool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 64, BYTES = 64 };

static void must(kn_status status) {
    if (status == KN_OK) return;
    fprintf(stderr, "pair_frames: %s\n", kn_last_error()->message);
    exit(1);
}

static void frame_pool(kn_pool *pool) {
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) must(kn_alloc(&blocks[i], pool, BYTES, NULL));
    for (int i = BLOCKS; i-- > 0;) must(kn_free(pool, blocks[i]));
}

static void frame_jemalloc(void) {
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) blocks[i] = mallocx(BYTES, 0);
    for (int i = BLOCKS; i-- > 0;) dallocx(blocks[i], 0);
}

int main(int argc, char **argv) {
    bool ours = argc == 3 && strcmp(argv[1], "pool") == 0;
    if (argc != 3 || (!ours && strcmp(argv[1], "jemalloc") != 0)) {
        fprintf(stderr, "usage: pair_frames pool|jemalloc FRAMES\n");
        return 2;
    }
    long n = strtol(argv[2], NULL, 10);
    kn_pool *pool = kn_device_pool(kn_device_host());
    if (!pool) must(kn_check());
    for (long i = 0; i < n; i++) {
        if (ours) {
            frame_pool(pool);
        } else {
            frame_jemalloc();
        }
    }
    return 0;
}
