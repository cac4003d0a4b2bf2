/* Streams: whether a pool makes one stream wait for another, and the cost of many streams.
 *
 *   overlap    a compute stream writes a buffer in each step, a communication stream reads it one
 *              step later: steps in which the compute stream cannot run its own work
 *   prefetch   a copy stream fills the next batch while a compute stream works on the current one:
 *              batches whose copy cannot start
 *   …_85       the same with 85 % of the device live
 *   rr         pairs of alloc and free of 1 MiB, on N streams in turn: time of a pair
 *   storm      16 threads and 24 streams: 40 buffers of 512 B to 2 MiB for an event, each event on
 *              another stream: time of an operation, and how often a stream waits for another
 *   handover   a stage of a training step on one stream, then the same stage on another stream:
 *              reserved bytes, divided by the bytes of one stage
 *
 * Overlap, prefetch and handover run on the simulated device, whose streams run when the program
 * lets them; rr and storm on a device that costs nothing (null_device.h). The baseline of blocked
 * steps, rr1 and storm is a plain lock and best fit that steals before it grows (reference.h); that
 * of rr2 … rr256 is rr1.
 *
 * Published figures, each from its authors' machine and driver:
 *
 *   RMM's pool, 4 streams, 4 kernels (2021)      2094 us; 536 us with cudaMallocAsync, since the
 *                                                pool makes streams wait: rapidsai/rmm#841, #850
 *   RMM's pool, 32 streams (2025)                above 1 ms for an allocation and for a free, due
 *                                                to the lock: rapidsai/rmm#1887
 *   RMM, one stream for each thread (2020)       cudaEventRecord takes 113.9 us on average over
 *                                                100,808 calls: rapidsai/rmm#448
 *   CMS's copy of CUB's allocator, 16 threads,   cudaEventRecord takes 22.9 us on average over
 *   24 streams (2021)                            480,004 calls, 39.9 % of the time in the API:
 *                                                cms-patatrack/pixeltrack-standalone#218
 *   PyTorch, a free after record_stream (2022)   3.97 us to insert events, 2.85 us with reused
 *                                                events: pytorch/pytorch#78279
 */
#include <knet/pool.h>
#include <knet/sim.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "null_device.h"
#include "reference.h"

enum { STREAMS_MAX = 256 };
static const size_t MiB = (size_t)1 << 20, GiB = (size_t)1 << 30;

static void must(kn_status status) {
    if (status == KN_OK) return;
    fprintf(stderr, "bench_streams: %s\n", kn_last_error()->message);
    exit(1);
}

/* An allocator with its device and streams: a pool, or the reference. */

typedef struct side {
    kn_pool *pool; /* NULL: the reference */
    reference *plain;
    kn_sim *sim;       /* or NULL */
    null_device *null; /* or NULL */
    kn_device *device;
    uint64_t capacity_bytes;
    int n_streams;
    kn_stream streams[STREAMS_MAX];
} side;

static void side_init(side *s, bool plain, kn_device *device, int n_streams) {
    s->device = device;
    s->n_streams = n_streams;
    for (int i = 0; i < n_streams; i++) must(kn_stream_create(&s->streams[i], device));
    if (plain) {
        must(reference_create(&s->plain, device, s->capacity_bytes, s->streams,
                              (uint32_t)n_streams));
    } else {
        must(kn_pool_create(&s->pool, device, NULL));
    }
}

static void side_on_sim(side *s, bool plain, uint64_t capacity_bytes, int n_streams) {
    static int n_made;
    char name[16];
    kn_device *device = NULL;
    *s = (side){.capacity_bytes = capacity_bytes};
    must(kn_sim_create(&s->sim, &(kn_sim_options){.capacity_bytes = capacity_bytes}));
    snprintf(name, sizeof name, "sim:%d", ++n_made);
    must(kn_device_register(&device, name, kn_sim_driver(s->sim), s->sim));
    side_init(s, plain, device, n_streams);
}

static void side_on_null(side *s, bool plain, uint64_t capacity_bytes, int n_streams) {
    *s = (side){.capacity_bytes = capacity_bytes};
    must(null_device_create(&s->null, capacity_bytes));
    side_init(s, plain, s->null->device, n_streams);
}

/* A figure counts only if the simulator saw no violation. */
static void side_release(side *s) {
    char text[256];
    if (s->sim) kn_sim_drain(s->sim);
    kn_pool_destroy(s->pool);
    reference_destroy(s->plain);
    for (int i = 0; i < s->n_streams; i++) kn_stream_destroy(s->device, s->streams[i]);
    if (!s->sim || kn_sim_violations(s->sim, text, sizeof text) == 0) return;
    fprintf(stderr, "bench_streams: %s\n", text);
    exit(1);
}

static void *take(side *s, size_t size_bytes, int stream) {
    void *ptr = NULL;
    if (s->pool) {
        must(kn_alloc(&ptr, s->pool, size_bytes, s->streams[stream]));
    } else {
        must(reference_alloc(&ptr, s->plain, size_bytes, (uint32_t)stream));
    }
    return ptr;
}

/* Frees a block of `stream` whose last use is on stream `user`. */
static void give(side *s, void *ptr, int stream, int user) {
    if (!s->pool) {
        reference_free(s->plain, ptr, (uint32_t)user);
        return;
    }
    if (user != stream) must(kn_block_use(s->pool, ptr, s->streams[user]));
    must(kn_free(s->pool, ptr));
}

/* Steps in which a stream is blocked. */

static void order(const side *s, int later, int earlier) {
    kn_event *event = NULL;
    must(kn_event_create(&event, s->device));
    must(kn_event_record(event, s->streams[earlier]));
    must(kn_event_wait(event, s->streams[later]));
    kn_event_destroy(event);
}

static void run(const side *s, int stream) {
    while (kn_sim_step(s->sim, s->streams[stream])) {
    }
}

/* Runs the stream as far as possible; true if work is left. */
static bool is_blocked(const side *s, int stream) {
    run(s, stream);
    return kn_sim_pending(s->sim, s->streams[stream]) > 0;
}

/* Allocates blocks that stay, as weights do, until `percent` of the device is live. */
static void fill(side *s, int percent, int stream) {
    const uint64_t unit = 64 * MiB;
    uint64_t left = s->capacity_bytes / 100 * (uint64_t)percent / (2 * MiB) * (2 * MiB);
    for (uint64_t size; left > 0; left -= size) {
        size = left < unit ? left : unit;
        (void)take(s, size, stream);
    }
}

static bool happened(kn_event *event) {
    bool done = false;
    must(kn_event_query(&done, event));
    return done;
}

enum { OVERLAP_STEPS = 40, PREFETCH_STEPS = 30 };

/* At the end of a step the communication stream has read the buffer of the step before. */
static double overlap(bool plain, int live_percent) {
    enum { COMPUTE, COMM };
    static side s;
    const size_t size = 64 * MiB;
    kn_event *read[2] = {NULL, NULL}; /* of this step's buffer and the last step's, in turn */
    int n_blocked = 0;
    side_on_sim(&s, plain, 8 * GiB, 2);
    fill(&s, live_percent, COMPUTE);
    for (int i = 0; i < 2; i++) must(kn_event_create(&read[i], s.device));
    for (int step = 0; step < OVERLAP_STEPS; step++) {
        uint64_t user = (uint64_t)step + 1;
        void *x = take(&s, size, COMPUTE);
        kn_sim_work(s.sim, s.streams[COMPUTE], x, size, user);
        n_blocked += is_blocked(&s, COMPUTE);
        order(&s, COMM, COMPUTE);
        kn_sim_work(s.sim, s.streams[COMM], x, size, user);
        must(kn_event_record(read[step % 2], s.streams[COMM]));
        give(&s, x, COMPUTE, COMM);
        run(&s, COMPUTE);
        while (!happened(read[(step + 1) % 2]) && kn_sim_step(s.sim, s.streams[COMM])) {
            run(&s, COMPUTE);
        }
    }
    for (int i = 0; i < 2; i++) kn_event_destroy(read[i]);
    side_release(&s);
    return n_blocked;
}

/* When a batch is copied, the compute stream still has the step on the previous batch to run. */
static double prefetch(bool plain, int live_percent) {
    enum { COMPUTE, COPY };
    static side s;
    const size_t size = 256 * MiB;
    int n_blocked = 0;
    side_on_sim(&s, plain, 16 * GiB, 2);
    fill(&s, live_percent, COMPUTE);
    for (int step = 0; step < PREFETCH_STEPS; step++) {
        uint64_t user = (uint64_t)step + 1;
        void *batch = take(&s, size, COPY);
        kn_sim_work(s.sim, s.streams[COPY], batch, size, user);
        n_blocked += is_blocked(&s, COPY);
        run(&s, COMPUTE);
        order(&s, COMPUTE, COPY);
        kn_sim_work(s.sim, s.streams[COMPUTE], batch, size, user);
        give(&s, batch, COPY, COMPUTE);
    }
    side_release(&s);
    return n_blocked;
}

static void bench_blocked(void) {
    bench_emit("streams", "overlap_blocked", overlap(false, 0), "steps", overlap(true, 0));
    bench_emit("streams", "overlap_blocked_85", overlap(false, 85), "steps", overlap(true, 85));
    bench_emit("streams", "prefetch_blocked", prefetch(false, 0), "steps", prefetch(true, 0));
    bench_emit("streams", "prefetch_blocked_85", prefetch(false, 85), "steps", prefetch(true, 85));
}

/* Pairs on many streams. */

static void pairs_pool(void *ctx, long n) {
    side *s = ctx;
    for (long i = 0, at = 0; i < n; i++) {
        void *ptr = NULL;
        must(kn_alloc(&ptr, s->pool, MiB, s->streams[at]));
        must(kn_free(s->pool, ptr));
        if (++at == s->n_streams) at = 0;
    }
}

static void pairs_plain(void *ctx, long n) {
    side *s = ctx;
    uint32_t n_streams = (uint32_t)s->n_streams, at = 0;
    for (long i = 0; i < n; i++) {
        void *ptr = NULL;
        must(reference_alloc(&ptr, s->plain, MiB, at));
        reference_free(s->plain, ptr, at);
        if (++at == n_streams) at = 0;
    }
}

static void bench_round_robin(void) {
    static side one, plain, many;
    static const int n_streams[] = {2, 64, 256};
    side_on_null(&one, false, 80 * GiB, 1);
    side_on_null(&plain, true, 80 * GiB, 1);
    bench_result r = bench_pair(pairs_pool, &one, pairs_plain, &plain);
    bench_emit_ratio("streams", "rr1_ns", r.a_ns, "ns", r.b_ns, r.ratio);
    for (int i = 0; i < 3; i++) {
        char metric[32];
        side_on_null(&many, false, 80 * GiB, n_streams[i]);
        r = bench_pair(pairs_pool, &many, pairs_pool, &one);
        snprintf(metric, sizeof metric, "rr%d_ns", n_streams[i]);
        bench_emit_ratio("streams", metric, r.a_ns, "ns", r.b_ns, r.ratio);
        side_release(&many);
    }
    side_release(&one);
    side_release(&plain);
}

/* A storm of events. */

enum { THREADS = 16, STORM_STREAMS = 24, EVENTS = 100, BUFFERS = 40 };

typedef struct storm_thread {
    pthread_t thread;
    side *s;
    int index;
} storm_thread;

static void *storm_run(void *ctx) {
    storm_thread *t = ctx;
    uint64_t random = (uint64_t)t->index * 7919 + 1;
    void *live[BUFFERS];
    for (int event = 0; event < EVENTS; event++) {
        int stream = (t->index + event * 5) % STORM_STREAMS;
        for (int i = 0; i < BUFFERS; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            size_t size = (size_t)512 << (random >> 40) % 12;
            live[i] = take(t->s, size + (random >> 20) % size, stream);
        }
        for (int i = 0; i < BUFFERS; i++) give(t->s, live[i], stream, stream);
    }
    return NULL;
}

static void storm(void *ctx, long n) {
    storm_thread threads[THREADS];
    for (long round = 0; round < n; round++) {
        for (int i = 0; i < THREADS; i++) {
            threads[i] = (storm_thread){.s = ctx, .index = i};
            if (pthread_create(&threads[i].thread, NULL, storm_run, &threads[i]) == 0) continue;
            fprintf(stderr, "bench_streams: no thread %d\n", i);
            exit(1);
        }
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i].thread, NULL);
    }
}

/* Counts waits in three storms: on an empty pool, on a used one, and with events that are never
 * done, as on a device with a long queue. */
static double storm_waits(side *s) {
    storm(s, 2);
    atomic_store(&s->null->busy, true);
    storm(s, 1);
    atomic_store(&s->null->busy, false);
    return (double)atomic_load(&s->null->n_waits);
}

static void bench_storm(void) {
    static side pool, plain;
    const double n_operations = 2.0 * THREADS * EVENTS * BUFFERS;
    side_on_null(&pool, false, 40 * GiB, STORM_STREAMS);
    side_on_null(&plain, true, 40 * GiB, STORM_STREAMS);
    bench_emit("streams", "storm_waits", storm_waits(&pool), "waits", storm_waits(&plain));
    bench_result r = bench_pair(storm, &pool, storm, &plain);
    bench_emit_ratio("streams", "storm_ns", r.a_ns / n_operations, "ns", r.b_ns / n_operations,
                     r.ratio);
    side_release(&pool);
    side_release(&plain);
}

/* Handover of a stage. */

enum { STAGE_BLOCKS = 560 }; /* 2 GiB */

/* From 4 KiB to 32 MiB, uniform on a log scale. */
static size_t stage_size(uint64_t *random) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(4096 * exp2((double)(*random >> 40) / (double)(1 << 24) * 13));
}

/* Allocates and uses blocks, then frees them in LIFO order. keeps_up: the device is always idle. */
static void stage(side *s, int stream, bool keeps_up) {
    void *live[STAGE_BLOCKS];
    uint64_t random = 1;
    for (int i = 0; i < STAGE_BLOCKS; i++) {
        size_t size = stage_size(&random);
        live[i] = take(s, size, stream);
        kn_sim_work(s->sim, s->streams[stream], live[i], size, (uint64_t)(uintptr_t)live[i]);
        if (keeps_up) kn_sim_drain(s->sim);
    }
    for (int i = STAGE_BLOCKS; i-- > 0;) {
        give(s, live[i], stream, stream);
        if (keeps_up) kn_sim_drain(s->sim);
    }
}

static kn_pool_stats stats_of(const side *s) {
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, s->pool);
    return stats;
}

static void bench_handover(void) {
    enum { FIRST, SECOND };
    static side s;
    side_on_sim(&s, false, 80 * GiB, 1);
    stage(&s, FIRST, false);
    double stage_bytes = (double)stats_of(&s).live_bytes_max;
    side_release(&s);

    side_on_sim(&s, false, 80 * GiB, 2);
    give(&s, take(&s, MiB, SECOND), SECOND, SECOND); /* the pool has seen it */
    stage(&s, FIRST, false);
    kn_sim_drain(s.sim);
    stage(&s, SECOND, true);
    double reserved = (double)stats_of(&s).reserved_bytes_max;
    side_release(&s);
    bench_emit("streams", "handover_growth", reserved / stage_bytes, "x", 1);
}

int main(int argc, char **argv) {
    bench_init(argc, argv);
    bench_blocked();
    bench_round_robin();
    bench_storm();
    bench_handover();
    return 0;
}
