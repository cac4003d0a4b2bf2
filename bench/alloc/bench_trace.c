/* The cost of a trace for an operation of the pool: pairs of an allocation and a free with a trace
 * and without, in turn, on one thread and on two at once. The file is on the disk of the temporary
 * directory, and the cost of writing it is included. */
#include <knet/pool.h>
#include <knet/trace.h>
#include <pthread.h>
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

static void hot(kn_pool *pool, long n) {
    for (long i = 0; i < n; i++) {
        void *ptr = NULL;
        must(kn_alloc(&ptr, pool, SIZES[i & 7], NULL));
        must(kn_free(pool, ptr));
    }
}

typedef struct worker {
    kn_pool *pool;
    long n;
    pthread_barrier_t *start;
} worker;

static void *work(void *ctx) {
    worker *self = ctx;
    pthread_barrier_wait(self->start);
    hot(self->pool, self->n);
    return NULL;
}

/* ns of an operation, of which each thread executes 2 n. */
static double time_hot(kn_pool *pool, long n, int n_threads) {
    enum { THREADS_MAX = 2 };
    pthread_t threads[THREADS_MAX];
    pthread_barrier_t start;
    worker w = {pool, n, &start};
    pthread_barrier_init(&start, NULL, (unsigned)n_threads);
    for (int i = 1; i < n_threads; i++) {
        if (pthread_create(&threads[i], NULL, work, &w) != 0) {
            fprintf(stderr, "bench_trace: no second thread\n");
            exit(1);
        }
    }
    pthread_barrier_wait(&start);
    uint64_t begin = bench_now_ns();
    hot(pool, n);
    for (int i = 1; i < n_threads; i++) pthread_join(threads[i], NULL);
    double ns = (double)(bench_now_ns() - begin) / (2.0 * (double)n);
    pthread_barrier_destroy(&start);
    return ns;
}

/* A new file each time. Its creation and its end are not counted. */
static double time_traced(kn_pool *pool, long n, int n_threads) {
    must(kn_trace_begin(path, NULL));
    double ns = time_hot(pool, n, n_threads);
    must(kn_trace_end());
    unlink(path);
    return ns;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

/* In turn, so that a slow spell hits both. */
static void bench(kn_pool *pool, const char *metric, int n_threads) {
    enum { REPEATS = 31, PAIRS = 500000 };
    double on[REPEATS], off[REPEATS], ratio[REPEATS];
    int n = bench_quick() ? 7 : REPEATS;
    hot(pool, PAIRS);
    for (int i = 0; i < n; i++) {
        on[i] = time_traced(pool, PAIRS, n_threads);
        off[i] = time_hot(pool, PAIRS, n_threads);
        ratio[i] = on[i] / off[i];
    }
    bench_emit_ratio("pool", metric, median(on, n), "ns", median(off, n), median(ratio, n));
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
    bench(pool, "trace_ns", 1);
    bench(pool, "trace_threads_ns", 2);
    unlink(path);
    return 0;
}
