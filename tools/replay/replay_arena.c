/* The policy that is ours: a pool on a simulated device. */
#include <knet/pool.h>
#include <knet/sim.h>
#include <stdio.h>

#include "replay_policy.h"

typedef struct arena {
    kn_sim *sim;
    kn_device *device;
    kn_device_driver driver; /* the simulator's, of the play's size */
    kn_pool *pool;
    uint32_t n_streams;
    kn_stream *streams;
    kn_pool_options options;
} arena;

/* The simulator has a fixed capacity and counts only calls that can fail. These functions give it
 * the capacity of the play and count the driver's calls. One play at a time. */
static struct {
    kn_device_driver sim; /* the functions called from here */
    uint64_t capacity_bytes, held_bytes;
    kn__driver_calls calls;
} device;

static void count(kn__driver_call call, uint64_t bytes) {
    kn__calls_add(&device.calls, call, 1, bytes);
}

static kn_status info_read(void *impl, kn_device_info *out) {
    KN_TRY(device.sim.info_read(impl, out));
    out->total_bytes = device.capacity_bytes;
    out->free_bytes = device.capacity_bytes - device.held_bytes;
    return KN_OK;
}

static kn_status free_bytes(void *impl, uint64_t *out) {
    (void)impl;
    count(KN__CALL_INFO, 0);
    *out = device.capacity_bytes - device.held_bytes;
    return KN_OK;
}

static kn_status room_check(size_t size_bytes) {
    uint64_t left = device.capacity_bytes - device.held_bytes;
    if (size_bytes <= left) return KN_OK;
    return KN_FAIL(KN_ERR_OOM, "%zu bytes asked for, the device has %llu of %llu left", size_bytes,
                   (unsigned long long)left, (unsigned long long)device.capacity_bytes);
}

static kn_status segment_alloc(void *impl, void **out, size_t size_bytes) {
    KN_TRY(room_check(size_bytes));
    KN_TRY(device.sim.segment_alloc(impl, out, size_bytes));
    count(KN__CALL_ALLOC, size_bytes);
    device.held_bytes += size_bytes;
    return KN_OK;
}

static void segment_free(void *impl, void *ptr, size_t size_bytes) {
    count(KN__CALL_FREE, size_bytes);
    device.held_bytes -= size_bytes;
    device.sim.segment_free(impl, ptr, size_bytes);
}

static kn_status handle_create(void *impl, uint64_t *out, size_t size_bytes) {
    KN_TRY(room_check(size_bytes));
    KN_TRY(device.sim.handle_create(impl, out, size_bytes));
    count(KN__CALL_CREATE, size_bytes);
    device.held_bytes += size_bytes;
    return KN_OK;
}

static void handle_destroy(void *impl, uint64_t handle, size_t size_bytes) {
    count(KN__CALL_RELEASE, size_bytes);
    device.held_bytes -= size_bytes;
    device.sim.handle_destroy(impl, handle, size_bytes);
}

static kn_status handle_map(void *impl, void *at, size_t size_bytes, uint64_t handle) {
    count(KN__CALL_MAP, size_bytes);
    return device.sim.handle_map(impl, at, size_bytes, handle);
}

static kn_status range_access(void *impl, void *at, size_t size_bytes) {
    count(KN__CALL_ACCESS, size_bytes);
    return device.sim.range_access(impl, at, size_bytes);
}

static kn_status handle_unmap(void *impl, void *at, size_t size_bytes) {
    count(KN__CALL_UNMAP, size_bytes);
    return device.sim.handle_unmap(impl, at, size_bytes);
}

static kn_status event_record(void *impl, void *event, kn_stream stream) {
    count(KN__CALL_RECORD, 0);
    return device.sim.event_record(impl, event, stream);
}

static kn_status event_query(void *impl, void *event, bool *done) {
    count(KN__CALL_QUERY, 0);
    return device.sim.event_query(impl, event, done);
}

static kn_status event_wait(void *impl, void *event, kn_stream stream) {
    count(KN__CALL_WAIT, 0);
    return device.sim.event_wait(impl, event, stream);
}

static kn_status make_device(arena *a, uint32_t n_streams) {
    static unsigned n_made;
    char name[16];
    /* On one stream nothing says how far the device lags behind: it is taken to keep up. On several
     * it does its work now and then (work_is_done), so that streams have to wait for each other. */
    kn_sim_options options = {.capacity_bytes = UINT64_MAX, .instant = n_streams == 1};
    KN_TRY(kn_sim_create(&a->sim, &options));
    device.sim = a->driver = *kn_sim_driver(a->sim);
    device.held_bytes = 0;
    a->driver.info_read = info_read;
    a->driver.free_bytes = free_bytes;
    a->driver.segment_alloc = segment_alloc;
    a->driver.segment_free = segment_free;
    a->driver.handle_create = handle_create;
    a->driver.handle_destroy = handle_destroy;
    a->driver.handle_map = handle_map;
    a->driver.range_access = range_access;
    a->driver.handle_unmap = handle_unmap;
    a->driver.event_record = event_record;
    a->driver.event_query = event_query;
    a->driver.event_wait = event_wait;
    snprintf(name, sizeof name, "replay:%u", ++n_made % 10000000);
    return kn_device_register(&a->device, name, &a->driver, a->sim);
}

/* Devices live as long as the process, and so do the objects that they point to. */
static kn_status make_streams(arena *a, const kn__trace *trace) {
    a->streams = calloc(trace->n_streams, sizeof *a->streams);
    if (!a->streams) return KN_FAIL(KN_ERR_OOM, "no memory for %u streams", trace->n_streams);
    for (; a->n_streams < trace->n_streams; a->n_streams++) {
        if (trace->null_stream[a->n_streams]) continue;
        KN_TRY(kn_stream_create(&a->streams[a->n_streams], a->device));
    }
    return KN_OK;
}

static void arena_destroy(void *policy) {
    arena *a = policy;
    if (!a) return;
    kn_pool_destroy(a->pool);
    for (uint32_t i = 0; i < a->n_streams; i++) {
        if (a->streams[i]) kn_stream_destroy(a->device, a->streams[i]);
    }
    free(a->streams);
    a->streams = NULL;
    a->pool = NULL;
    if (!a->device) free(a);
}

static kn_status arena_create(void **out, const kn__trace *trace) {
    arena *a = calloc(1, sizeof *a);
    if (!a) return KN_FAIL(KN_ERR_OOM, "no memory for a device");
    a->options.name = "replay";
    kn_status status = make_device(a, trace->n_streams);
    if (status == KN_OK) status = make_streams(a, trace);
    if (status < 0) {
        arena_destroy(a);
        return status;
    }
    *out = a;
    return KN_OK;
}

static kn_status arena_renew(void *policy, uint64_t device_bytes) {
    arena *a = policy;
    kn_sim_drain(a->sim);
    kn_pool_destroy(a->pool);
    a->pool = NULL;
    device.capacity_bytes = device_bytes;
    kn__arena_calls_reset();
    return kn_pool_create(&a->pool, a->device, &a->options);
}

static void arena_configure(void *policy, const kn_pool_options *options) {
    arena *a = policy;
    a->options = *options;
    a->options.name = "replay";
}

static inline kn_status alloc_step(void *policy, void **out, const kn__step *step) {
    const arena *a = policy;
    return kn_alloc(out, a->pool, step->size, a->streams[step->stream]);
}

static inline kn_status free_step(void *policy, const kn__step *step, void *ptr) {
    (void)step;
    return kn_free(((arena *)policy)->pool, ptr);
}

static inline kn_status use_step(void *policy, const kn__step *step, void *ptr) {
    const arena *a = policy;
    return kn_block_use(a->pool, ptr, a->streams[step->stream]);
}

static kn_status arena_run(void *policy, const kn__step *steps, size_t from, size_t to,
                           void **slots, size_t *done) {
    return kn__run_steps(policy, steps, from, to, slots, done, alloc_step, free_step, use_step);
}

static void arena_free_one(void *policy, uint32_t block, void *ptr) {
    (void)block;
    kn_free(((arena *)policy)->pool, ptr);
}

static void arena_work_is_done(void *policy) { kn_sim_drain(((arena *)policy)->sim); }

static void arena_counts(void *policy, kn__counts *out) {
    const arena *a = policy;
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, a->pool);
    const uint64_t *n = device.calls.n;
    *out = (kn__counts){.device_allocs = n[KN__CALL_CREATE] + n[KN__CALL_ALLOC],
                        .device_frees = n[KN__CALL_RELEASE] + n[KN__CALL_FREE],
                        .maps = n[KN__CALL_MAP],
                        .calls = device.calls,
                        .syncs = stats.n_syncs,
                        .events = stats.n_events,
                        .reserved_bytes = stats.reserved_bytes,
                        .reserved_bytes_max = stats.reserved_bytes_max};
}

kn_pool *kn__arena_pool(void *policy) { return ((arena *)policy)->pool; }
kn_stream kn__arena_stream(const void *policy, uint32_t stream) {
    return ((const arena *)policy)->streams[stream];
}
void kn__arena_calls_reset(void) { device.calls = (kn__driver_calls){.n = {0}}; }

const kn__policy kn__policy_arena = {.name = "arena",
                                     .create = arena_create,
                                     .destroy = arena_destroy,
                                     .configure = arena_configure,
                                     .renew = arena_renew,
                                     .run = arena_run,
                                     .free_one = arena_free_one,
                                     .work_is_done = arena_work_is_done,
                                     .counts = arena_counts};
