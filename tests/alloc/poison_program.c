/* poison_program clean|free|end [BYTES]: uses a block of the host's pool, after its free or behind
 * its end where it is asked to. */
#include <knet/pool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *must_alloc(kn_pool *pool, size_t bytes) {
    void *ptr = NULL;
    if (kn_alloc(&ptr, pool, bytes, NULL) < 0) exit(2);
    return ptr;
}

int main(int argc, char **argv) {
    kn_pool *pool = kn_device_pool(kn_device_host());
    size_t bytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000;
    if (!pool || argc < 2) return 2;
    char *block = must_alloc(pool, bytes);
    memset(block, 1, bytes);
    if (strcmp(argv[1], "end") == 0) block[bytes] = 1;
    (void)kn_free(pool, block);
    if (strcmp(argv[1], "free") == 0) block[bytes / 2] = 1;
    block = must_alloc(pool, bytes);
    memset(block, 2, bytes);
    return kn_free(pool, block) < 0;
}
