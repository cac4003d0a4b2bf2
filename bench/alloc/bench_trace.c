/* What a trace costs an operation of the pool: hot pairs with it and without, in turn. The file is
 * on the disk of the temporary directory, and so is its price. */
#include <knet/pool.h>
#include <knet/trace.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench.h"

static const size_t SIZES[8] = {512, 4096, 256, 16384, 1024, 6144, 2048, 8192};
static char path[4096];

static void must(kn_status status) {
    if (status == KN_OK) return;
    fprintf(stderr, "bench_trace: %s\n", kn_last_error()->message);
    exit(1);
}

/* So many pairs a repetition that starting and ending the trace is a small part of it. */
enum { PAIRS = 400000 };

static void hot(void *ctx, long n) {
    kn_pool *pool = ctx;
    for (long i = 0; i < n * PAIRS; i++) {
        void *ptr = NULL;
        must(kn_alloc(&ptr, pool, SIZES[i & 7], NULL));
        must(kn_free(pool, ptr));
    }
}

static void traced(void *ctx, long n) {
    must(kn_trace_begin(path, NULL));
    hot(ctx, n);
    must(kn_trace_end());
}

int main(int argc, char **argv) {
    bench_init(argc, argv);
    const char *dir = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/knet-bench-XXXXXX", dir ? dir : "/tmp");
    int fd = mkstemp(path);
    if (fd < 0) {
        perror(path);
        return 1;
    }
    close(fd);
    kn_pool *pool = kn_device_pool(kn_device_host());
    if (!pool) must(kn_check());
    bench_result r = bench_pair(traced, pool, hot, pool);
    unlink(path);
    bench_emit_ratio("pool", "trace_ns", r.a_ns / (2 * PAIRS), "ns", r.b_ns / (2 * PAIRS), r.ratio);
    return 0;
}
