/* Host threads: one OpenMP runtime, and none of it for a single piece of work. */
#include <omp.h>

#include "../kernel.h"

/* ThreadSanitizer doesn't see how OpenMP's threads wait for each other: under it there is one. */
#ifdef __SANITIZE_THREAD__
enum { THREADS_MAX = 1 };
#else
enum { THREADS_MAX = 4096 };
#endif

void kn__parallel_for(int threads, int64_t n, kn__body_fn body, void *ctx) {
    if (threads > THREADS_MAX) threads = THREADS_MAX;
    if (threads > n) threads = (int)n;
    if (threads <= 1 || omp_in_parallel()) {
        for (int64_t i = 0; i < n; i++) body(ctx, i);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t i = 0; i < n; i++) body(ctx, i);
}
