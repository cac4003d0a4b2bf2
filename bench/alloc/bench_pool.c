/* The pool against jemalloc's mallocx, on the same sizes in the same order, in one run.
 *
 *   hot       alloc and free of one small block, over and over; under a tag, and under none
 *   random    RMM's random_allocations: sizes uniform to a bound, p(alloc) = 0.73, a cap on what is
 *             live; here with n operations made beforehand and blocks up to 1 MiB
 *   arena     alloc and free of one block too large for slabs
 *   threads   how many times the throughput of one thread two have, each with its own blocks
 *   cross     free of small blocks that another thread allocated
 *   touch     no allocator: the next of n records of a cache line in random order, as an operation
 *             on one of n blocks has to do at least once
 */
#include <jemalloc/jemalloc.h>
#include <knet/pool.h>
#include <knet/sim.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "mix.h"

static void must(kn_status status) {
    if (status == KN_OK) return;
    fprintf(stderr, "bench_pool: %s\n", kn_last_error()->message);
    exit(1);
}

/* Hot pairs, over a few sizes as a program has them. */

static const size_t HOT_SIZES[8] = {512, 4096, 256, 16384, 1024, 6144, 2048, 8192};

static void pool_hot(void *ctx, long n) {
    kn_pool *pool = ctx;
    for (long i = 0; i < n; i++) {
        void *ptr = NULL;
        must(kn_alloc(&ptr, pool, HOT_SIZES[i & 7], NULL));
        must(kn_free(pool, ptr));
    }
}

static void pool_hot_tagged(void *ctx, long n) {
    KN_TAG("bench");
    pool_hot(ctx, n);
}

static void jemalloc_hot(void *ctx, long n) {
    (void)ctx;
    for (long i = 0; i < n; i++) {
        void *volatile ptr = mallocx(HOT_SIZES[i & 7], 0);
        dallocx(ptr, 0);
    }
}

/* The arena: larger than any slab's slots. */

static void pool_arena(void *ctx, long n) {
    kn_pool *pool = ctx;
    for (long i = 0; i < n; i++) {
        void *ptr = NULL;
        must(kn_alloc(&ptr, pool, (size_t)8 << 20, NULL));
        must(kn_free(pool, ptr));
    }
}

static void jemalloc_arena(void *ctx, long n) {
    (void)ctx;
    for (long i = 0; i < n; i++) {
        void *volatile ptr = mallocx((size_t)8 << 20, 0);
        dallocx(ptr, 0);
    }
}

/* Random churn. The script is made once: which slot, and a size to allocate or 0 to free. */

typedef struct churn {
    kn_pool *pool;
    size_t n_operations, n_slots;
    struct {
        uint32_t slot, size;
    } * script;
    void **slots;
} churn;

/* n allocations, each freed in the end, so that the script can be repeated. */
static churn churn_make(kn_pool *pool, size_t n) {
    const uint64_t max = (uint64_t)1 << 20, cap = (uint64_t)16000 << 20;
    churn c = {.pool = pool, .n_slots = n};
    c.script = calloc(2 * n, sizeof *c.script);
    c.slots = calloc(n, sizeof *c.slots);
    uint32_t *live = calloc(n, sizeof *live), *sizes = calloc(n, sizeof *sizes);
    size_t n_live = 0, n_made = 0;
    uint64_t seed = 1, bytes = 0;
    while (n_made < n || n_live) {
        uint32_t size = (uint32_t)(1 + kn__splitmix(&seed) % max);
        bool alloc =
            n_made < n && (!n_live || kn__splitmix(&seed) % 100 < 73) && bytes + size <= cap;
        if (alloc) {
            live[n_live++] = (uint32_t)n_made;
            sizes[n_made] = size;
            bytes += size;
            c.script[c.n_operations].slot = (uint32_t)n_made++;
            c.script[c.n_operations++].size = size;
        } else {
            size_t i = kn__splitmix(&seed) % n_live;
            c.script[c.n_operations++].slot = live[i];
            bytes -= sizes[live[i]];
            live[i] = live[--n_live];
        }
    }
    free(live);
    free(sizes);
    return c;
}

static void churn_free(churn *c) {
    free(c->script);
    free(c->slots);
}

static void pool_churn(void *ctx, long n) {
    const churn *c = ctx;
    for (long round = 0; round < n; round++) {
        for (size_t i = 0; i < c->n_operations; i++) {
            void **slot = &c->slots[c->script[i].slot];
            if (c->script[i].size) {
                must(kn_alloc(slot, c->pool, c->script[i].size, NULL));
            } else {
                must(kn_free(c->pool, *slot));
            }
        }
    }
}

static void jemalloc_churn(void *ctx, long n) {
    const churn *c = ctx;
    for (long round = 0; round < n; round++) {
        for (size_t i = 0; i < c->n_operations; i++) {
            void **slot = &c->slots[c->script[i].slot];
            if (c->script[i].size) {
                *slot = mallocx(c->script[i].size, 0);
            } else {
                dallocx(*slot, 0);
            }
        }
    }
}

static void bench_churn(kn_pool *pool, const char *metric, size_t n) {
    churn c = churn_make(pool, n);
    bench_result r = bench_pair(pool_churn, &c, jemalloc_churn, &c);
    double per = (double)c.n_operations;
    bench_emit_ratio("pool", metric, r.a_ns / per, "ns", r.b_ns / per, r.ratio);
    churn_free(&c);
}

/* What one dependent read of a record costs, of so many that caches may not hold them. */

typedef struct record {
    struct record *next;
    char rest[56];
} record;

static void touch(void *ctx, long n) {
    record *volatile *at = ctx;
    record *r = *at;
    for (long i = 0; i < n; i++) r = r->next;
    *at = r;
}

static double touch_ns(size_t n) {
    record *records = aligned_alloc(64, n * sizeof *records);
    uint32_t *order = calloc(n, sizeof *order);
    uint64_t seed = 1;
    for (size_t i = 0; i < n; i++) order[i] = (uint32_t)i;
    for (size_t i = n; i-- > 1;) {
        size_t k = kn__splitmix(&seed) % (i + 1);
        uint32_t swapped = order[i];
        order[i] = order[k];
        order[k] = swapped;
    }
    for (size_t i = 0; i < n; i++) records[order[i]].next = &records[order[(i + 1) % n]];
    record *at = records;
    double ns = bench_ns(touch, &at);
    free(order);
    free(records);
    return ns;
}

static void bench_touch(void) {
    double least = touch_ns(64);
    bench_emit("pool", "touch_1e3_ns", touch_ns(1000), "ns", least);
    bench_emit("pool", "touch_1e4_ns", touch_ns(10000), "ns", least);
    bench_emit("pool", "touch_1e5_ns", touch_ns(100000), "ns", least);
}

/* Two threads, each with its own blocks. */

typedef struct hot_thread {
    bench_fn fn;
    void *ctx;
    long n;
} hot_thread;

static void *run_hot(void *ctx) {
    hot_thread *t = ctx;
    t->fn(t->ctx, t->n);
    return NULL;
}

static void two_threads(bench_fn fn, void *ctx, long n) {
    hot_thread other = {fn, ctx, n};
    pthread_t thread;
    pthread_create(&thread, NULL, run_hot, &other);
    fn(ctx, n);
    pthread_join(thread, NULL);
}

/* The best of many: others on the machine can only take away from it. */
static double scaling(bench_fn fn, void *ctx) {
    const long n = bench_quick() ? 200000 : 2000000;
    double best = 0;
    for (int i = 0; i < (bench_quick() ? 5 : 15); i++) {
        uint64_t start = bench_now_ns();
        fn(ctx, n);
        uint64_t middle = bench_now_ns();
        two_threads(fn, ctx, n);
        double ratio = 2.0 * (double)(middle - start) / (double)(bench_now_ns() - middle);
        if (ratio > best) best = ratio;
    }
    return best;
}

/* One thread allocates blocks, another frees them: in batches, so that only frees are measured. */

enum { BATCH = 4096 };

typedef struct cross {
    kn_pool *pool; /* NULL: jemalloc */
    void *blocks[BATCH];
    uint64_t ns; /* of all frees of the batch */
} cross;

static void *free_batch(void *ctx) {
    cross *c = ctx;
    uint64_t start = bench_now_ns();
    for (int i = 0; i < BATCH; i++) {
        if (c->pool) {
            must(kn_free(c->pool, c->blocks[i]));
        } else {
            dallocx(c->blocks[i], 0);
        }
    }
    c->ns = bench_now_ns() - start;
    return NULL;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double cross_ns(kn_pool *pool) {
    enum { REPEATS = 101 };
    static cross c;
    double ns[REPEATS];
    int n = bench_quick() ? 21 : REPEATS;
    c.pool = pool;
    for (int r = 0; r < n; r++) {
        for (int i = 0; i < BATCH; i++) {
            if (pool) {
                must(kn_alloc(&c.blocks[i], pool, HOT_SIZES[i & 7], NULL));
            } else {
                c.blocks[i] = mallocx(HOT_SIZES[i & 7], 0);
            }
        }
        pthread_t thread;
        pthread_create(&thread, NULL, free_batch, &c);
        pthread_join(thread, NULL);
        ns[r] = (double)c.ns / BATCH;
    }
    qsort(ns, (size_t)n, sizeof *ns, by_value);
    return ns[n / 2];
}

static void emit_pair(const char *metric, bench_result r) {
    bench_emit_ratio("pool", metric, r.a_ns / 2, "ns", r.b_ns / 2, r.ratio);
}

int main(int argc, char **argv) {
    bench_init(argc, argv);
    kn_pool *host = kn_device_pool(kn_device_host()), *sim = NULL;
    kn_device *device = NULL;
    if (!host) must(kn_check());
    must(kn_device_find(&device, "sim"));
    must(kn_pool_create(&sim, device, NULL));
    emit_pair("hot_ns", bench_pair(pool_hot_tagged, host, jemalloc_hot, NULL));
    emit_pair("hot_untagged_ns", bench_pair(pool_hot, host, jemalloc_hot, NULL));
    emit_pair("arena_ns", bench_pair(pool_arena, sim, jemalloc_arena, NULL));
    bench_churn(sim, "random_ns", 1000); /* the name the first figures have */
    bench_churn(sim, "random_1e3_ns", 1000);
    bench_churn(sim, "random_1e4_ns", 10000);
    bench_churn(sim, "random_1e5_ns", 100000);
    bench_touch();
    bench_emit("pool", "threads_2", scaling(pool_hot, host), "x", scaling(jemalloc_hot, NULL));
    bench_emit("pool", "cross_free_ns", cross_ns(sim), "ns", cross_ns(NULL));
    kn_pool_destroy(sim);
    return 0;
}
