/* libknet_torch on a device of no cost, called through pointers as PyTorch calls it.
 *
 * torch_512_ns, torch_8m_ns: one call, alloc or free of a hot block, beside jemalloc's of 512
 * bytes.
 *
 * Of traces in $KNET_TRACES or ../shared/traces: <trace>_reserved, bytes beside the live ones; and
 * in a step after the third <trace>_calls of the driver, <trace>_waits of the host and of streams.
 */
#include <dlfcn.h>
#include <jemalloc/jemalloc.h>
#include <knet/pool.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "null_device.h"
#include "replay.h"

typedef void *(*alloc_fn)(size_t size, int device, kn_stream stream);
typedef void (*free_fn)(void *ptr, size_t size, int device, kn_stream stream);

static alloc_fn torch_alloc;
static free_fn torch_free;
static null_device *null;

static void must(kn_status status) {
    if (status == KN_OK) return;
    fprintf(stderr, "bench_plugin: %s\n", kn_last_error()->message);
    exit(1);
}

static void torch_pair(void *ctx, long n) {
    size_t size = *(const size_t *)ctx;
    for (long i = 0; i < n; i++) torch_free(torch_alloc(size, 0, NULL), size, 0, NULL);
}

static void jemalloc_pair(void *ctx, long n) {
    (void)ctx;
    for (long i = 0; i < n; i++) {
        void *volatile ptr = mallocx(512, 0);
        dallocx(ptr, 0);
    }
}

static void bench_pair_of(const char *metric, size_t size) {
    bench_result r = bench_pair(torch_pair, &size, jemalloc_pair, NULL);
    bench_emit_ratio("plugin", metric, r.a_ns / 2, "ns", r.b_ns / 2, r.ratio);
}

static uint64_t device_calls(void) {
    return null->n_maps + null->n_unmaps + null->n_records + null->n_queries + null->n_waits;
}

static void play(const kn__trace *trace, void **blocks) {
    for (size_t i = 0; i < trace->n_steps; i++) {
        const kn__step *s = &trace->steps[i];
        if (s->kind == KN__STEP_ALLOC) {
            blocks[s->block] = torch_alloc(s->size, 0, NULL);
        } else if (s->kind == KN__STEP_FREE) {
            torch_free(blocks[s->block], 0, 0, NULL);
            blocks[s->block] = NULL;
        }
    }
    for (uint32_t i = 0; i < trace->n_blocks; i++) {
        if (blocks[i]) torch_free(blocks[i], 0, 0, NULL);
        blocks[i] = NULL;
    }
}

static void bench_trace(const char *name, const kn__trace *trace, kn_pool *pool) {
    char metric[128];
    void **blocks = calloc(trace->n_blocks, sizeof *blocks);
    if (!blocks) return;
    must(kn_pool_trim(pool, 0));
    kn_pool_peaks_reset(pool);
    for (int step = 0; step < 3; step++) play(trace, blocks);
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, pool);
    uint64_t before = device_calls(), waits = null->n_waits + stats.n_syncs;
    for (int step = 0; step < 3; step++) play(trace, blocks);
    kn_pool_stats_read(&stats, sizeof stats, pool);
    snprintf(metric, sizeof metric, "%s_reserved", name);
    bench_emit("plugin", metric, (double)stats.reserved_bytes_max, "bytes",
               (double)stats.live_bytes_max);
    snprintf(metric, sizeof metric, "%s_calls", name);
    bench_emit("plugin", metric, (double)(device_calls() - before) / 3, "calls", (double)NAN);
    snprintf(metric, sizeof metric, "%s_waits", name);
    bench_emit("plugin", metric, (double)(null->n_waits + stats.n_syncs - waits) / 3, "waits",
               (double)NAN);
    free(blocks);
}

static void bench_file(const char *name, kn_pool *pool) {
    char path[4096];
    kn__trace trace;
    const char *named = getenv("KNET_TRACES");
    snprintf(path, sizeof path, "%s/%s.csv.gz", named ? named : "../shared/traces", name);
    if (kn__trace_read(&trace, path, false) < 0) return;
    bench_trace(name, &trace, pool);
    kn__trace_release(&trace);
}

int main(int argc, char **argv) {
    kn_device *device = NULL;
    void *impl = NULL;
    bench_init(argc, argv);
    must(null_device_create(&null, (uint64_t)160 << 30));
    const kn_device_driver *driver = kn_device_driver_get(null->device, &impl);
    must(kn_device_register(&device, "cuda:0", driver, impl)); /* where the plug-in looks */
    void *library = dlopen(KNET_TORCH_LIBRARY, RTLD_LAZY | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "bench_plugin: %s\n", dlerror());
        return 1;
    }
    *(void **)&torch_alloc = dlsym(library, "knet_torch_alloc");
    *(void **)&torch_free = dlsym(library, "knet_torch_free");
    bench_pair_of("torch_512_ns", 512);
    bench_pair_of("torch_8m_ns", (size_t)8 << 20);
    kn_pool *pool = kn_device_pool(device);
    bench_file("gpt-ctx256-step", pool);
    bench_file("resnet50", pool);
    return 0;
}
