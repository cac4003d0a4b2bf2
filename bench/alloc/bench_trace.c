/* What a trace costs an operation of the pool: hot pairs with it and without, in turn; then the
 * same beside a second thread that has had events. The file is on the disk of the temporary
 * directory, and so is its price. */
#include <knet/pool.h>
#include <knet/trace.h>
#include <pthread.h>
#include <semaphore.h>
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

/* ns an operation. */
static double time_hot(kn_pool *pool, long n) {
    uint64_t begin = bench_now_ns();
    hot(pool, n);
    return (double)(bench_now_ns() - begin) / (2.0 * (double)n);
}

/* A thread that has one pair in the trace and then only lives on. */
typedef struct neighbour {
    kn_pool *pool;
    pthread_t thread;
    sem_t ready, over;
} neighbour;

static void *live_beside(void *ctx) {
    neighbour *self = ctx;
    hot(self->pool, 1);
    sem_post(&self->ready);
    sem_wait(&self->over);
    return NULL;
}

static void neighbour_begin(neighbour *self) {
    sem_init(&self->ready, 0, 0);
    sem_init(&self->over, 0, 0);
    if (pthread_create(&self->thread, NULL, live_beside, self) != 0) {
        fprintf(stderr, "bench_trace: no second thread\n");
        exit(1);
    }
    sem_wait(&self->ready);
}

static void neighbour_end(neighbour *self) {
    sem_post(&self->over);
    pthread_join(self->thread, NULL);
    sem_destroy(&self->ready);
    sem_destroy(&self->over);
}

/* A new file each time; making it and closing it is not what an operation costs. */
static double time_traced(kn_pool *pool, long n, bool beside) {
    neighbour second = {.pool = pool};
    must(kn_trace_begin(path, NULL));
    if (beside) neighbour_begin(&second);
    double ns = time_hot(pool, n);
    if (beside) neighbour_end(&second);
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
static void bench(kn_pool *pool, const char *metric, bool beside) {
    enum { REPEATS = 31, PAIRS = 500000 };
    double on[REPEATS], off[REPEATS], ratio[REPEATS];
    int n = bench_quick() ? 7 : REPEATS;
    hot(pool, PAIRS);
    for (int i = 0; i < n; i++) {
        on[i] = time_traced(pool, PAIRS, beside);
        off[i] = time_hot(pool, PAIRS);
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
    bench(pool, "trace_ns", false);
    bench(pool, "trace_threads_ns", true);
    unlink(path);
    return 0;
}
