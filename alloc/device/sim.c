/* The simulated device: its life, and what tests do with it. */
#include <knet/sim.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/drivers.h"
#include "device/sim_state.h"

static const uintptr_t BASE = (uintptr_t)1 << 44;

/* --- copies: they move no bytes, and check their addresses --- */

static void work(kn_sim *sim, kn__sim_queue *q, const void *ptr, size_t size, uint64_t user) {
    const kn__sim_item *other = kn__sim_find_work(sim, ptr, size, q, user);
    if (other) {
        kn__sim_violate(sim,
                        "bytes at %p are used for user %llu while work of user %llu may use them",
                        ptr, (unsigned long long)user, (unsigned long long)other->user);
    }
    kn__sim_check_memory(sim, ptr, size, "work uses");
    kn__sim_enqueue(sim, q,
                    (kn__sim_item){.kind = KN__SIM_WORK, .ptr = ptr, .size = size, .user = user});
}

static kn_status sim_copy(void *impl, void *dst, const void *src, size_t size_bytes, bool from_host,
                          bool to_host, kn_stream stream) {
    ENTER(impl, KN_SIM_COPY);
    (void)kn__sim_queue_of(sim, stream);
    if (!to_host) kn__sim_check_memory(sim, dst, size_bytes, "a copy writes to");
    if (!from_host) kn__sim_check_memory(sim, src, size_bytes, "a copy reads from");
    return KN_OK;
}

static kn_status sim_fill(void *impl, void *dst, int byte, size_t size_bytes, kn_stream stream) {
    (void)byte;
    return sim_copy(impl, dst, dst, size_bytes, false, false, stream);
}

static kn_status sim_info_read(void *impl, kn_device_info *out) {
    ENTER(impl, KN_SIM_INFO_READ);
    out->total_bytes = sim->capacity;
    out->free_bytes = sim->capacity - sim->bytes;
    out->granularity_bytes = sim->driver.range_reserve ? KN__SIM_ALIGN : 0;
    snprintf(out->model, sizeof out->model, "simulated device");
    snprintf(out->driver, sizeof out->driver, "sim");
    return KN_OK;
}

/* --- for tests --- */

kn_status kn_sim_create(kn_sim **out, const kn_sim_options *options) {
    static const kn_sim_options defaults = {0};
    if (!options) options = &defaults;
    for (int i = 0; i < 4; i++) {
        if (!options->reserved[i]) continue;
        return KN_FAIL(KN_ERR_INVALID, "kn_sim_create: options.reserved[%d] must be zero", i);
    }
    kn_sim *sim = calloc(1, sizeof *sim);
    if (!sim) return KN_FAIL(KN_ERR_OOM, "kn_sim_create: no host memory");
    sim->driver = (kn_device_driver){
        .kind = KN_DEVICE_SIM, .info_read = sim_info_read, .copy = sim_copy, .fill = sim_fill};
    kn__sim_memory_fill(&sim->driver);
    kn__sim_streams_fill(&sim->driver);
    if (options->plain) sim->driver.range_reserve = NULL;
    if (options->no_stream_ids) sim->driver.stream_id = NULL;
    sim->capacity = options->capacity_bytes ? options->capacity_bytes : (uint64_t)64 << 30;
    sim->next_address = BASE;
    sim->instant = options->instant;
    pthread_mutex_init(&sim->lock, NULL);
    sim->streams[0] = kn__sim_queue_new(sim); /* the default stream */
    *out = sim;
    return KN_OK;
}

void kn_sim_destroy(kn_sim *sim) {
    if (!sim) return;
    for (size_t i = 0; i < sim->n_queues; i++) {
        free(sim->queues[i]->items);
        free(sim->queues[i]->clock.counts);
        free(sim->queues[i]);
    }
    for (kn__sim_event *event = sim->events, *next; event; event = next) {
        next = event->next;
        free(event->clock.counts);
        free(event);
    }
    free(sim->queues);
    free(sim->extents);
    free(sim->handles);
    pthread_mutex_destroy(&sim->lock);
    free(sim);
}

const kn_device_driver *kn_sim_driver(const kn_sim *sim) { return &sim->driver; }

void kn_sim_fail(kn_sim *sim, kn_sim_call call, uint64_t nth, bool forever) {
    LOCKED(sim);
    sim->fail_call = call;
    sim->fail_in = nth;
    sim->fail_forever = forever;
}

static uint64_t read_locked(kn_sim *sim, const uint64_t *value) {
    LOCKED(sim);
    return *value;
}

uint64_t kn_sim_calls(kn_sim *sim, kn_sim_call call) { return read_locked(sim, &sim->calls[call]); }
uint64_t kn_sim_bytes(kn_sim *sim) { return read_locked(sim, &sim->bytes); }
uint64_t kn_sim_objects(kn_sim *sim) { return read_locked(sim, &sim->objects); }
uint64_t kn_sim_now_ns(kn_sim *sim) { return read_locked(sim, &sim->now_ns); }

void kn_sim_advance_ns(kn_sim *sim, uint64_t ns) {
    LOCKED(sim);
    sim->now_ns += ns;
}

void kn_sim_work(kn_sim *sim, kn_stream stream, const void *ptr, size_t size_bytes, uint64_t user) {
    LOCKED(sim);
    work(sim, kn__sim_queue_of(sim, stream), ptr, size_bytes, user);
}

void kn_sim_capture(kn_sim *sim, kn_stream stream, bool on) {
    LOCKED(sim);
    kn__sim_queue_of(sim, stream)->capturing = on;
}

void kn_sim_foreign(kn_sim *sim, kn_stream stream) {
    LOCKED(sim);
    kn__sim_queue_of(sim, stream)->foreign = true;
}

void kn_sim_hold(kn_sim *sim, kn_stream stream, bool on) {
    LOCKED(sim);
    kn__sim_queue_of(sim, stream)->held = on;
    kn__sim_keep_up(sim);
}

bool kn_sim_step(kn_sim *sim, kn_stream stream) {
    LOCKED(sim);
    bool ran = kn__sim_step(kn__sim_queue_of(sim, stream));
    kn__sim_keep_up(sim);
    return ran;
}

void kn_sim_drain(kn_sim *sim) {
    LOCKED(sim);
    kn__sim_run_all(sim);
}

size_t kn_sim_pending(kn_sim *sim, kn_stream stream) {
    LOCKED(sim);
    return kn__sim_queue_of(sim, stream)->n;
}

kn_stream kn_sim_stream_of_thread(kn_sim *sim) {
    LOCKED(sim);
    (void)kn__sim_queue_of(sim, KN__SIM_PER_THREAD);
    return kn__sim_handle_of_thread();
}

uint64_t kn_sim_violations(kn_sim *sim, char *out, size_t out_bytes) {
    LOCKED(sim);
    if (out && out_bytes) snprintf(out, out_bytes, "%s", sim->violation);
    return sim->n_violations;
}

kn_status kn__sim_open(kn_device **out) {
    kn_sim *sim = NULL;
    KN_TRY(kn_sim_create(&sim, NULL));
    kn_status status = kn_device_register(out, "sim", kn_sim_driver(sim), sim);
    if (status < 0) kn_sim_destroy(sim);
    return status;
}
