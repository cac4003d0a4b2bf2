/* The simulated device's streams and events: queues that run when the test lets them. */
#include <stdlib.h>
#include <string.h>

#include "checked.h"
#include "device/drivers.h"
#include "device/sim_state.h"
#include "device/thread.h"

static kn_stream stream_handle(size_t number) { return (kn_stream)(uintptr_t)(number * 16); }

/* The number of a thread's own default stream is that of an ended thread in the end, which had
 * other queues. */
static atomic_bool taken[KN__SIM_THREADS];
static _Thread_local size_t own_number;   /* 0: none yet */
static _Thread_local uint64_t own_thread; /* of all that have had a number, from 1 */

static void return_number(kn__thread *thread) {
    (void)thread;
    if (own_number) atomic_store(&taken[own_number - KN__SIM_STREAMS], false);
    own_number = 0;
}

/* Those not used for longest come first: handles of threads that have ended keep their meaning. */
static size_t take_number(void) {
    static atomic_size_t next;
    static _Atomic uint64_t n_threads;
    for (size_t tries = 0; tries < KN__SIM_THREADS; tries++) {
        size_t i = next++ % KN__SIM_THREADS;
        if (atomic_exchange(&taken[i], true)) continue;
        own_thread = ++n_threads;
        kn__thread_at_end(KN__END_SIM, return_number);
        (void)kn__thread_get(); /* whose end returns it */
        return own_number = KN__SIM_STREAMS + i;
    }
    return KN__SIM_SLOTS; /* no stream */
}

static size_t stream_number(kn_stream stream) {
    if (stream == KN__SIM_PER_THREAD) return own_number ? own_number : take_number();
    return (uintptr_t)stream / 16; /* 0: NULL and cudaStreamLegacy */
}

kn__sim_queue *kn__sim_queue_new(kn_sim *sim) {
    kn__sim_queue *q = calloc(1, sizeof *q);
    if (!q) __builtin_trap();
    q->index = sim->n_queues;
    sim->queues = kn__sim_grown(sim->queues, (sim->n_queues + 1) * sizeof *sim->queues);
    return sim->queues[sim->n_queues++] = q;
}

/* Needs no lock, because queues are not freed. NULL if there is no such stream. */
static kn__sim_queue *queue_find(kn_sim *sim, kn_stream stream) {
    size_t number = stream_number(stream);
    kn__sim_queue *q = number < KN__SIM_SLOTS ? sim->streams[number] : NULL;
    bool of_ended = q && stream == KN__SIM_PER_THREAD && q->thread != own_thread;
    return of_ended ? NULL : q;
}

kn__sim_queue *kn__sim_queue_of(kn_sim *sim, kn_stream stream) {
    kn__sim_queue *q = queue_find(sim, stream);
    size_t number = stream_number(stream);
    bool own = stream == KN__SIM_PER_THREAD && number < KN__SIM_SLOTS;
    if (!q && own) {
        q = kn__sim_queue_new(sim);
        q->thread = own_thread;
        sim->streams[number] = q;
    }
    if (!q) kn__sim_violate(sim, "stream %p does not exist", (void *)stream);
    return q ? q : sim->queues[0];
}

static void clock_fit(kn__sim_clock *clock, size_t n) {
    if (clock->n >= n) return;
    clock->counts = kn__sim_grown(clock->counts, n * sizeof *clock->counts);
    memset(clock->counts + clock->n, 0, (n - clock->n) * sizeof *clock->counts);
    clock->n = n;
}

/* Adds the work that is ordered before `other`. */
static void clock_join(kn__sim_clock *clock, const kn__sim_clock *other) {
    clock_fit(clock, other->n);
    for (size_t i = 0; i < other->n; i++) {
        if (other->counts[i] > clock->counts[i]) clock->counts[i] = other->counts[i];
    }
}

static bool passed(kn__sim_point point) {
    return !point.queue || point.queue->n_enqueued - point.queue->n >= point.index;
}

/* Runs the oldest item; false if the queue is empty, or the item waits. */
bool kn__sim_step(kn__sim_queue *q) {
    if (!q->n) return false;
    kn__sim_item *t = &q->items[q->head];
    KN_ASSERT(t->index == q->n_enqueued - q->n + 1); /* oldest first, none left out */
    if (t->kind == KN__SIM_WAIT && !passed(t->until)) return false;
    q->head++;
    q->n--;
    return true;
}

/* Runs what must have run for the point to be passed. It ends: items wait for earlier ones only. */
static void run_until(const kn_sim *sim, kn__sim_point point) {
    if (passed(point)) return;
    kn__sim_queue *q = sim->queues[point.queue->index];
    while (!passed(point)) {
        if (!kn__sim_step(q)) run_until(sim, q->items[q->head].until);
    }
}

static void run(const kn_sim *sim, const kn__sim_queue *q) {
    run_until(sim, (kn__sim_point){q, q->n_enqueued});
}

void kn__sim_run_all(kn_sim *sim) {
    for (size_t i = 0; i < sim->n_queues; i++) run(sim, sim->queues[i]);
}

/* On an instant device: runs all that waits for no held stream. */
void kn__sim_keep_up(kn_sim *sim) {
    for (bool progress = sim->instant; progress;) {
        progress = false;
        for (size_t i = 0; i < sim->n_queues; i++) {
            while (!sim->queues[i]->held && kn__sim_step(sim->queues[i])) progress = true;
        }
    }
}

void kn__sim_enqueue(kn_sim *sim, kn__sim_queue *q, kn__sim_item t) {
    if (q->head + q->n == q->room) {
        if (q->head) memmove(q->items, q->items + q->head, q->n * sizeof *q->items);
        q->head = 0;
        q->items = kn__sim_roomy(q->items, 2 * q->n, &q->room, sizeof *q->items);
    }
    KN_ASSERT(q->head + q->n < q->room);
    t.index = ++q->n_enqueued;
    q->items[q->head + q->n++] = t;
    clock_fit(&q->clock, q->index + 1);
    q->clock.counts[q->index] = q->n_enqueued;
    kn__sim_keep_up(sim);
}

const kn__sim_item *kn__sim_find_work(const kn_sim *sim, const char *ptr, size_t size,
                                      const kn__sim_queue *after, uint64_t user) {
    for (size_t q = 0; q < sim->n_queues; q++) {
        const kn__sim_queue *other = sim->queues[q];
        if (other == after) continue;
        uint64_t ordered = after && q < after->clock.n ? after->clock.counts[q] : 0;
        for (size_t i = 0; i < other->n; i++) {
            const kn__sim_item *t = &other->items[other->head + i];
            if (t->kind != KN__SIM_WORK || t->index <= ordered) continue;
            if (after && t->user == user) continue;
            if (t->ptr < ptr + size && ptr < t->ptr + t->size) return t;
        }
    }
    return NULL;
}

static kn_status sim_stream_create(void *impl, kn_stream *out) {
    ENTER(impl, KN_SIM_STREAM_CREATE);
    size_t number = 1; /* the lowest unused: handles are reused soon */
    while (number < KN__SIM_STREAMS && sim->streams[number]) number++;
    if (number == KN__SIM_STREAMS) {
        return KN_FAIL(KN_ERR_OOM, "sim: more than %d streams", KN__SIM_STREAMS);
    }
    sim->streams[number] = kn__sim_queue_new(sim);
    KN_ASSERT(queue_find(sim, stream_handle(number)));
    sim->objects++;
    *out = stream_handle(number);
    return KN_OK;
}

/* The queue stays: its work continues. */
static void sim_stream_destroy(void *impl, kn_stream stream) {
    CALLED(impl, KN_SIM_ANY);
    if (kn__stream_is_default(stream)) kn__sim_violate(sim, "a default stream is destroyed");
    (void)kn__sim_queue_of(sim, stream);
    sim->streams[stream_number(stream) % KN__SIM_SLOTS] = NULL;
    sim->objects--;
}

static void not_captured(kn_sim *sim, const kn__sim_queue *q, kn_sim_call call) {
    if (q->capturing) {
        kn__sim_violate(sim, "%s while the stream is being captured", kn__sim_call_names[call]);
    }
}

static kn_status sim_stream_sync(void *impl, kn_stream stream) {
    ENTER(impl, KN_SIM_STREAM_SYNC);
    not_captured(sim, kn__sim_queue_of(sim, stream), KN_SIM_STREAM_SYNC);
    run(sim, kn__sim_queue_of(sim, stream));
    return KN_OK;
}

static kn_status sim_device_sync(void *impl) {
    ENTER(impl, KN_SIM_DEVICE_SYNC);
    for (size_t i = 0; i < sim->n_queues; i++) {
        not_captured(sim, sim->queues[i], KN_SIM_DEVICE_SYNC);
    }
    kn__sim_run_all(sim);
    return KN_OK;
}

static bool sim_stream_capturing(void *impl, kn_stream stream) {
    CALLED(impl, KN_SIM_ANY);
    return kn__sim_queue_of(sim, stream)->capturing;
}

/* As CUDA's, which can't be asked about a created stream that is captured. */
static uint64_t id_of(const kn__sim_queue *q, kn_stream stream) {
    return q->capturing && !kn__stream_is_default(stream) ? 0 : q->index + 1;
}

/* Without the lock if the stream exists: pools call it at each allocation. */
static uint64_t sim_stream_id(void *impl, kn_stream stream) {
    const kn__sim_queue *q = queue_find(impl, stream);
    if (q) return id_of(q, stream);
    CALLED(impl, KN_SIM_ANY);
    return id_of(kn__sim_queue_of(sim, stream), stream);
}

static kn_status sim_stream_check(void *impl, kn_stream stream) {
    ENTER(impl, KN_SIM_STREAM_CHECK);
    if (!kn__sim_queue_of(sim, stream)->foreign) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID, "sim: stream %p belongs to another context", (void *)stream);
}

/* --- events --- */

static kn_status sim_event_create(void *impl, void **out) {
    ENTER(impl, KN_SIM_EVENT_CREATE);
    kn__sim_event *event = calloc(1, sizeof *event);
    if (!event) __builtin_trap();
    event->next = sim->events;
    sim->events = event;
    sim->objects++;
    *out = event;
    return KN_OK;
}

/* The struct stays until the device goes, so that a mistaken use finds no freed memory. */
static void sim_event_destroy(void *impl, void *event) {
    CALLED(impl, KN_SIM_ANY);
    (void)event;
    sim->objects--;
}

static kn_status sim_event_record(void *impl, void *native, kn_stream stream) {
    ENTER(impl, KN_SIM_EVENT_RECORD);
    kn__sim_event *event = native;
    kn__sim_queue *q = kn__sim_queue_of(sim, stream);
    not_captured(sim, q, KN_SIM_EVENT_RECORD);
    kn__sim_enqueue(sim, q, (kn__sim_item){.kind = KN__SIM_RECORD});
    event->point = (kn__sim_point){q, q->n_enqueued};
    event->clock.n = 0;
    clock_join(&event->clock, &q->clock);
    return KN_OK;
}

static kn_status sim_event_query(void *impl, void *native, bool *done) {
    ENTER(impl, KN_SIM_EVENT_QUERY);
    const kn__sim_event *event = native;
    *done = passed(event->point);
    return KN_OK;
}

static kn_status sim_event_wait(void *impl, void *native, kn_stream stream) {
    ENTER(impl, KN_SIM_EVENT_WAIT);
    const kn__sim_event *event = native;
    kn__sim_queue *q = kn__sim_queue_of(sim, stream);
    if (!event->point.queue) return KN_OK;
    not_captured(sim, q, KN_SIM_EVENT_WAIT);
    clock_join(&q->clock, &event->clock);
    kn__sim_enqueue(sim, q, (kn__sim_item){.kind = KN__SIM_WAIT, .until = event->point});
    return KN_OK;
}

static kn_status sim_event_sync(void *impl, void *native) {
    ENTER(impl, KN_SIM_EVENT_SYNC);
    const kn__sim_event *event = native;
    run_until(sim, event->point);
    return KN_OK;
}

kn_stream kn__sim_handle_of_thread(void) {
    return stream_handle(stream_number(KN__SIM_PER_THREAD));
}

void kn__sim_streams_fill(kn_device_driver *out) {
    out->stream_create = sim_stream_create;
    out->stream_destroy = sim_stream_destroy;
    out->stream_sync = sim_stream_sync;
    out->device_sync = sim_device_sync;
    out->stream_id = sim_stream_id;
    out->stream_check = sim_stream_check;
    out->stream_capturing = sim_stream_capturing;
    out->event_create = sim_event_create;
    out->event_destroy = sim_event_destroy;
    out->event_record = sim_event_record;
    out->event_query = sim_event_query;
    out->event_wait = sim_event_wait;
    out->event_sync = sim_event_sync;
}
