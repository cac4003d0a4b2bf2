/* The simulated device. A stream is a queue of items that run when the test lets them. Vector
 * clocks tell which work is ordered before which, so that reuse too early is detected when it is
 * enqueued, whatever order the test then runs. */
#include <knet/sim.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/drivers.h"
#include "device/observe.h"

enum { STREAMS = 4096, THREADS = 4096, SLOTS = STREAMS + THREADS, PER_THREAD = 2 };

static const uintptr_t BASE = (uintptr_t)1 << 44;
static const size_t ALIGN = (size_t)2 << 20;

typedef enum item_kind { WORK, RECORD, WAIT } item_kind;
typedef struct queue queue;

/* By queue: how many of its items are ordered before a point. */
typedef struct vclock {
    uint64_t *counts;
    size_t n;
} vclock;

typedef struct sim_event {
    queue *queue; /* of the last record */
    uint64_t recorded, reached;
    vclock clock;           /* of the queue at that record */
    struct sim_event *next; /* of all events, destroyed ones too */
} sim_event;

typedef struct item {
    item_kind kind;
    uint64_t index; /* in its queue, from 1 */
    const char *ptr;
    size_t size;
    uint64_t user;
    sim_event *event;
    uint64_t serial; /* of the event's record */
} item;

struct queue {
    size_t index; /* among all queues, those of destroyed streams too */
    item *items;  /* those that have not run: [head, head + n) */
    size_t head, n, room;
    uint64_t n_enqueued;
    vclock clock;   /* of the next item */
    bool capturing; /* recording, waiting and being waited for are violations */
    bool held, foreign;
};

typedef struct extent {
    char *ptr;
    size_t size;
    uint64_t handle; /* 0: a segment */
    bool access;     /* work may use it */
} extent;

typedef struct handle {
    size_t size; /* 0: destroyed */
    bool mapped;
} handle;

struct kn_sim {
    pthread_mutex_t lock;
    kn_device_driver driver;
    uint64_t capacity, bytes, objects, now_ns;
    uintptr_t next_address;
    queue **queues;
    size_t n_queues;
    _Atomic(queue *) streams[SLOTS]; /* by number: created ones, then one a thread */
    extent *extents;                 /* by address */
    size_t n_extents, extents_room;
    handle *handles; /* by number */
    size_t n_handles, handles_room;
    uint64_t unused_handle; /* no lower one is unused */
    sim_event *events;
    uint64_t calls[KN_SIM_CALLS];
    kn_sim_call fail_call;
    uint64_t fail_in;
    bool fail_forever;
    bool instant;
    uint64_t n_violations;
    char violation[256];
};

/* Without host memory the checks would be wrong, so it traps. */
static void *grown(void *ptr, size_t size_bytes) {
    void *p = realloc(ptr, size_bytes);
    if (!p) __builtin_trap();
    return p;
}

/* An array with room for item n. */
static void *roomy(void *ptr, size_t n, size_t *room, size_t item_bytes) {
    if (n < *room) return ptr;
    *room = *room ? 2 * *room : 64;
    return grown(ptr, *room * item_bytes);
}

static const char *const CALL_NAMES[KN_SIM_CALLS] = {
    "any",          "segment_alloc", "range_reserve", "handle_create", "handle_map",
    "handle_unmap", "range_access",  "copy",          "stream_create", "stream_sync",
    "stream_check", "device_sync",   "event_create",  "event_record",  "event_query",
    "event_wait",   "event_sync",    "info_read",     "pinned_alloc"};

KN_PRINTF(2, 3) static void violate(kn_sim *sim, const char *fmt, ...) {
    if (sim->n_violations++) return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(sim->violation, sizeof sim->violation, fmt, args);
    va_end(args);
}

/* Locks the device until the end of the block. */
#define LOCKED(sim) kn_sim *const locked_ __attribute__((cleanup(unlock), unused)) = lock(sim)

static kn_sim *lock(kn_sim *sim) {
    pthread_mutex_lock(&sim->lock);
    return sim;
}

static void unlock(kn_sim *const *sim) { pthread_mutex_unlock(&(*sim)->lock); }

/* First statement of a driver function: notifies the observer and locks the device, to its end. */
#define CALLED(impl, call)                                                                         \
    kn_sim *sim = (impl);                                                                          \
    const kn_sim_call called_ __attribute__((cleanup(call_end), unused)) = call_begin(call);       \
    LOCKED(sim)
/* The same in a function that can be scripted to fail. */
#define ENTER(impl, call)                                                                          \
    CALLED(impl, call);                                                                            \
    KN_TRY(scripted(sim, call))

static kn_sim_call call_begin(kn_sim_call call) {
    const kn_observer *observer = kn__observer();
    if (observer && observer->on_call_begin) observer->on_call_begin(CALL_NAMES[call]);
    return call;
}

static void call_end(const kn_sim_call *call) {
    const kn_observer *observer = kn__observer();
    if (observer && observer->on_call_end) observer->on_call_end(CALL_NAMES[*call]);
}

static kn_status scripted(kn_sim *sim, kn_sim_call call) {
    sim->calls[call]++;
    sim->calls[KN_SIM_ANY]++;
    if (!sim->fail_in || (sim->fail_call != KN_SIM_ANY && sim->fail_call != call)) return KN_OK;
    if (sim->fail_in > 1) {
        sim->fail_in--;
        return KN_OK;
    }
    if (!sim->fail_forever) sim->fail_in = 0;
    bool memory =
        call == KN_SIM_SEGMENT_ALLOC || call == KN_SIM_HANDLE_CREATE || call == KN_SIM_PINNED_ALLOC;
    return KN_FAIL(memory ? KN_ERR_OOM : KN_ERR_CUDA, "sim: scripted failure of %s",
                   CALL_NAMES[call]);
}

/* Memory. */

static size_t extent_index(const kn_sim *sim, const char *ptr) { /* first that ends after ptr */
    size_t lo = 0, hi = sim->n_extents;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (sim->extents[mid].ptr + sim->extents[mid].size > ptr) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return lo;
}

static void extent_add(kn_sim *sim, char *ptr, size_t size, uint64_t number) {
    size_t i = extent_index(sim, ptr);
    if (i < sim->n_extents && sim->extents[i].ptr < ptr + size) {
        violate(sim, "memory at %p is mapped over memory at %p", (void *)ptr,
                (void *)sim->extents[i].ptr);
    }
    sim->extents = roomy(sim->extents, sim->n_extents, &sim->extents_room, sizeof *sim->extents);
    memmove(&sim->extents[i + 1], &sim->extents[i], (sim->n_extents - i) * sizeof *sim->extents);
    sim->extents[i] = (extent){ptr, size, number, number == 0};
    sim->n_extents++;
}

static void check_memory(kn_sim *sim, const char *ptr, size_t size, const char *who) {
    const char *at = ptr, *end = ptr + size;
    for (size_t i = extent_index(sim, at); at < end; i++) {
        bool mapped = i < sim->n_extents && sim->extents[i].ptr <= at;
        if (!mapped || !sim->extents[i].access) {
            violate(sim, "%s %p, which is %s", who, (const void *)ptr,
                    mapped ? "mapped without access" : "not allocated");
            return;
        }
        at = sim->extents[i].ptr + sim->extents[i].size;
    }
}

/* Work that may still use the bytes. With `after`, ignores work of that queue and of the same user,
 * and work that is ordered before the queue's next item. */
static const item *find_work(const kn_sim *sim, const char *ptr, size_t size, const queue *after,
                             uint64_t user) {
    for (size_t q = 0; q < sim->n_queues; q++) {
        const queue *other = sim->queues[q];
        if (other == after) continue;
        uint64_t ordered = after && q < after->clock.n ? after->clock.counts[q] : 0;
        for (size_t i = 0; i < other->n; i++) {
            const item *t = &other->items[other->head + i];
            if (t->kind != WORK || t->index <= ordered) continue;
            if (after && t->user == user) continue;
            if (t->ptr < ptr + size && ptr < t->ptr + t->size) return t;
        }
    }
    return NULL;
}

static void extent_remove(kn_sim *sim, char *ptr, size_t size) {
    size_t i = extent_index(sim, ptr);
    if (i == sim->n_extents || sim->extents[i].ptr != ptr || sim->extents[i].size != size) {
        violate(sim, "free or unmap of %zu bytes at %p, which is not one segment or mapping", size,
                (void *)ptr);
        return;
    }
    const item *work = find_work(sim, ptr, size, NULL, 0);
    if (work) {
        violate(sim, "memory at %p is freed or unmapped under work of user %llu", (void *)ptr,
                (unsigned long long)work->user);
    }
    sim->n_extents--;
    memmove(&sim->extents[i], &sim->extents[i + 1], (sim->n_extents - i) * sizeof *sim->extents);
}

static kn_status bytes_add(kn_sim *sim, size_t size) {
    if (size > sim->capacity - sim->bytes) {
        return KN_FAIL(KN_ERR_OOM, "sim: %zu bytes requested, %llu of %llu are free", size,
                       (unsigned long long)(sim->capacity - sim->bytes),
                       (unsigned long long)sim->capacity);
    }
    sim->bytes += size;
    sim->objects++;
    return KN_OK;
}

static char *addresses(kn_sim *sim, size_t size) {
    char *ptr = (char *)sim->next_address; /* never reused: stale pointers stay stale */
    sim->next_address += (size + ALIGN - 1) / ALIGN * ALIGN + ALIGN;
    return ptr;
}

static kn_status sim_free_bytes(void *impl, uint64_t *out) {
    kn_sim *sim = impl;
    LOCKED(sim);
    *out = sim->capacity - sim->bytes;
    return KN_OK;
}

static kn_status sim_segment_alloc(void *impl, void **out, size_t size_bytes) {
    ENTER(impl, KN_SIM_SEGMENT_ALLOC);
    KN_TRY(bytes_add(sim, size_bytes));
    *out = addresses(sim, size_bytes);
    extent_add(sim, *out, size_bytes, 0);
    return KN_OK;
}

static void sim_segment_free(void *impl, void *ptr, size_t size_bytes) {
    CALLED(impl, KN_SIM_ANY);
    extent_remove(sim, ptr, size_bytes);
    sim->bytes -= size_bytes;
    sim->objects--;
}

/* Real memory: the CPU may use it. */
static kn_status sim_pinned_alloc(void *impl, void **out, size_t size_bytes) {
    ENTER(impl, KN_SIM_PINNED_ALLOC);
    KN_TRY(kn__host_memory_alloc(out, size_bytes));
    extent_add(sim, *out, size_bytes, 0);
    sim->objects++;
    return KN_OK;
}

static void sim_pinned_free(void *impl, void *ptr, size_t size_bytes) {
    CALLED(impl, KN_SIM_ANY);
    extent_remove(sim, ptr, size_bytes);
    sim->objects--;
    kn__host_memory_free(ptr, size_bytes);
}

static kn_status sim_range_reserve(void *impl, void **out, size_t size_bytes) {
    ENTER(impl, KN_SIM_RANGE_RESERVE);
    *out = addresses(sim, size_bytes);
    sim->objects++;
    return KN_OK;
}

static void sim_range_release(void *impl, void *ptr, size_t size_bytes) {
    CALLED(impl, KN_SIM_ANY);
    size_t i = extent_index(sim, ptr);
    if (i < sim->n_extents && sim->extents[i].ptr < (char *)ptr + size_bytes) {
        violate(sim, "the range at %p is released with memory mapped in it", ptr);
    }
    sim->objects--;
}

static handle *handle_of(kn_sim *sim, uint64_t number, size_t size) {
    handle *h = number && number <= sim->n_handles ? &sim->handles[number - 1] : NULL;
    if (h && h->size == size) return h;
    violate(sim, "handle %llu of %zu bytes does not exist", (unsigned long long)number, size);
    return NULL;
}

static kn_status sim_handle_create(void *impl, uint64_t *out, size_t size_bytes) {
    ENTER(impl, KN_SIM_HANDLE_CREATE);
    KN_TRY(bytes_add(sim, size_bytes));
    uint64_t i = sim->unused_handle;
    while (i < sim->n_handles && sim->handles[i].size) i++;
    sim->handles = roomy(sim->handles, i, &sim->handles_room, sizeof *sim->handles);
    sim->handles[i] = (handle){.size = size_bytes};
    if (i == sim->n_handles) sim->n_handles++;
    sim->unused_handle = i + 1;
    *out = i + 1;
    return KN_OK;
}

static void sim_handle_destroy(void *impl, uint64_t number, size_t size_bytes) {
    CALLED(impl, KN_SIM_ANY);
    handle *h = handle_of(sim, number, size_bytes);
    if (!h) return;
    if (h->mapped) {
        violate(sim, "handle %llu is destroyed while mapped", (unsigned long long)number);
    }
    h->size = 0;
    if (number <= sim->unused_handle) sim->unused_handle = number - 1;
    sim->bytes -= size_bytes;
    sim->objects--;
}

static kn_status sim_handle_map(void *impl, void *at, size_t size_bytes, uint64_t number) {
    ENTER(impl, KN_SIM_HANDLE_MAP);
    handle *h = handle_of(sim, number, size_bytes);
    if (h && h->mapped) violate(sim, "handle %llu is mapped twice", (unsigned long long)number);
    if (h) h->mapped = true;
    extent_add(sim, at, size_bytes, number);
    return KN_OK;
}

/* Before range_access it can't be scripted to fail: it undoes a map. */
static kn_status sim_handle_unmap(void *impl, void *at, size_t size_bytes) {
    CALLED(impl, KN_SIM_HANDLE_UNMAP);
    size_t i = extent_index(sim, at);
    const extent *mapped =
        i < sim->n_extents && sim->extents[i].ptr == at ? &sim->extents[i] : NULL;
    if (!mapped || mapped->access) KN_TRY(scripted(sim, KN_SIM_HANDLE_UNMAP));
    if (mapped && mapped->handle) sim->handles[mapped->handle - 1].mapped = false;
    extent_remove(sim, at, size_bytes);
    return KN_OK;
}

static kn_status sim_range_access(void *impl, void *ptr, size_t size_bytes) {
    ENTER(impl, KN_SIM_RANGE_ACCESS);
    char *at = ptr, *end = at + size_bytes;
    for (size_t i = extent_index(sim, at); at < end; i++) {
        if (i == sim->n_extents || sim->extents[i].ptr != at || !sim->extents[i].handle) break;
        sim->extents[i].access = true;
        at += sim->extents[i].size;
    }
    if (at != end) {
        violate(sim, "range_access of %zu bytes at %p, which are not whole mapped handles",
                size_bytes, ptr);
    }
    return KN_OK;
}

/* Streams. */

static kn_stream stream_handle(size_t number) { return (kn_stream)(uintptr_t)(number * 16); }

static size_t thread_number(void) {
    static atomic_size_t n_threads; /* that have a number */
    static _Thread_local size_t number;
    if (!number) number = ++n_threads;
    return number;
}

static size_t stream_number(kn_stream stream) {
    if ((uintptr_t)stream == PER_THREAD) return STREAMS + thread_number();
    return (uintptr_t)stream / 16; /* 0: NULL and cudaStreamLegacy */
}

static queue *queue_new(kn_sim *sim) {
    queue *q = calloc(1, sizeof *q);
    if (!q) __builtin_trap();
    q->index = sim->n_queues;
    sim->queues = grown(sim->queues, (sim->n_queues + 1) * sizeof *sim->queues);
    return sim->queues[sim->n_queues++] = q;
}

/* Needs no lock, because queues are not freed. NULL if there is no such stream. */
static queue *queue_find(kn_sim *sim, kn_stream stream) {
    size_t number = stream_number(stream);
    return number < SLOTS ? sim->streams[number] : NULL;
}

static queue *queue_of(kn_sim *sim, kn_stream stream) {
    queue *q = queue_find(sim, stream);
    size_t number = stream_number(stream);
    bool own = (uintptr_t)stream == PER_THREAD && number < SLOTS;
    if (!q && own) sim->streams[number] = q = queue_new(sim);
    if (!q) violate(sim, "stream %p does not exist", (void *)stream);
    return q ? q : sim->queues[0];
}

static void clock_fit(vclock *clock, size_t n) {
    if (clock->n >= n) return;
    clock->counts = grown(clock->counts, n * sizeof *clock->counts);
    memset(clock->counts + clock->n, 0, (n - clock->n) * sizeof *clock->counts);
    clock->n = n;
}

/* Adds what is ordered before `other`. */
static void clock_join(vclock *clock, const vclock *other) {
    clock_fit(clock, other->n);
    for (size_t i = 0; i < other->n; i++) {
        if (other->counts[i] > clock->counts[i]) clock->counts[i] = other->counts[i];
    }
}

/* Runs the oldest item; false if there is none, or if it waits. */
static bool step(queue *q) {
    if (!q->n) return false;
    item *t = &q->items[q->head];
    if (t->kind == WAIT && t->event->reached < t->serial) return false;
    if (t->kind == RECORD && t->event->reached < t->serial) t->event->reached = t->serial;
    q->head++;
    q->n--;
    return true;
}

/* Runs the queue until it is empty, or until the event is reached. */
static void run(kn_sim *sim, queue *q, const sim_event *event, uint64_t serial) {
    while (q->n && !(event && event->reached >= serial)) {
        if (step(q)) continue;
        const item *blocked = &q->items[q->head];
        sim_event *other = blocked->event;
        run(sim, other->queue, other, blocked->serial);
        if (other->reached < blocked->serial) {
            violate(sim, "a stream waits for an event that is never reached");
            return;
        }
    }
}

static void run_all(kn_sim *sim) {
    for (size_t i = 0; i < sim->n_queues; i++) run(sim, sim->queues[i], NULL, 0);
}

/* On an instant device: runs all that waits for no held stream. */
static void keep_up(kn_sim *sim) {
    for (bool progress = sim->instant; progress;) {
        progress = false;
        for (size_t i = 0; i < sim->n_queues; i++) {
            while (!sim->queues[i]->held && step(sim->queues[i])) progress = true;
        }
    }
}

static void enqueue(kn_sim *sim, queue *q, item t) {
    if (q->head + q->n == q->room) {
        if (q->head) memmove(q->items, q->items + q->head, q->n * sizeof *q->items);
        q->head = 0;
        q->items = roomy(q->items, 2 * q->n, &q->room, sizeof *q->items);
    }
    t.index = ++q->n_enqueued;
    q->items[q->head + q->n++] = t;
    clock_fit(&q->clock, q->index + 1);
    q->clock.counts[q->index] = q->n_enqueued;
    keep_up(sim);
}

static kn_status sim_stream_create(void *impl, kn_stream *out) {
    ENTER(impl, KN_SIM_STREAM_CREATE);
    size_t number = 1; /* the lowest unused: handles are reused soon */
    while (number < STREAMS && sim->streams[number]) number++;
    if (number == STREAMS) return KN_FAIL(KN_ERR_OOM, "sim: more than %d streams", STREAMS);
    sim->streams[number] = queue_new(sim);
    sim->objects++;
    *out = stream_handle(number);
    return KN_OK;
}

/* The queue stays: its work continues. */
static void sim_stream_destroy(void *impl, kn_stream stream) {
    CALLED(impl, KN_SIM_ANY);
    if (kn__stream_is_default(stream)) violate(sim, "a default stream is destroyed");
    (void)queue_of(sim, stream);
    sim->streams[stream_number(stream) % SLOTS] = NULL;
    sim->objects--;
}

static void not_captured(kn_sim *sim, const queue *q, kn_sim_call call) {
    if (q->capturing) violate(sim, "%s while the stream is being captured", CALL_NAMES[call]);
}

static kn_status sim_stream_sync(void *impl, kn_stream stream) {
    ENTER(impl, KN_SIM_STREAM_SYNC);
    not_captured(sim, queue_of(sim, stream), KN_SIM_STREAM_SYNC);
    run(sim, queue_of(sim, stream), NULL, 0);
    return KN_OK;
}

static kn_status sim_device_sync(void *impl) {
    ENTER(impl, KN_SIM_DEVICE_SYNC);
    for (size_t i = 0; i < sim->n_queues; i++) {
        not_captured(sim, sim->queues[i], KN_SIM_DEVICE_SYNC);
    }
    run_all(sim);
    return KN_OK;
}

static bool sim_stream_capturing(void *impl, kn_stream stream) {
    CALLED(impl, KN_SIM_ANY);
    return queue_of(sim, stream)->capturing;
}

/* Without the lock if the stream exists: pools call it at each allocation. */
static uint64_t sim_stream_id(void *impl, kn_stream stream) {
    const queue *q = queue_find(impl, stream);
    if (q) return q->index + 1;
    CALLED(impl, KN_SIM_ANY);
    return queue_of(sim, stream)->index + 1;
}

static kn_status sim_stream_check(void *impl, kn_stream stream) {
    ENTER(impl, KN_SIM_STREAM_CHECK);
    if (!queue_of(sim, stream)->foreign) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID, "sim: stream %p belongs to another context", (void *)stream);
}

/* Events. */

static kn_status sim_event_create(void *impl, void **out) {
    ENTER(impl, KN_SIM_EVENT_CREATE);
    sim_event *event = calloc(1, sizeof *event);
    if (!event) __builtin_trap();
    event->next = sim->events;
    sim->events = event;
    sim->objects++;
    *out = event;
    return KN_OK;
}

/* The record is not freed: streams may still wait for it. */
static void sim_event_destroy(void *impl, void *event) {
    CALLED(impl, KN_SIM_ANY);
    (void)event;
    sim->objects--;
}

static kn_status sim_event_record(void *impl, void *native, kn_stream stream) {
    ENTER(impl, KN_SIM_EVENT_RECORD);
    sim_event *event = native;
    queue *q = queue_of(sim, stream);
    not_captured(sim, q, KN_SIM_EVENT_RECORD);
    event->queue = q;
    enqueue(sim, q, (item){.kind = RECORD, .event = event, .serial = ++event->recorded});
    event->clock.n = 0;
    clock_join(&event->clock, &q->clock);
    return KN_OK;
}

static kn_status sim_event_query(void *impl, void *native, bool *done) {
    ENTER(impl, KN_SIM_EVENT_QUERY);
    const sim_event *event = native;
    *done = event->reached == event->recorded;
    return KN_OK;
}

static kn_status sim_event_wait(void *impl, void *native, kn_stream stream) {
    ENTER(impl, KN_SIM_EVENT_WAIT);
    sim_event *event = native;
    queue *q = queue_of(sim, stream);
    if (!event->recorded) return KN_OK;
    not_captured(sim, q, KN_SIM_EVENT_WAIT);
    clock_join(&q->clock, &event->clock);
    enqueue(sim, q, (item){.kind = WAIT, .event = event, .serial = event->recorded});
    return KN_OK;
}

static kn_status sim_event_sync(void *impl, void *native) {
    ENTER(impl, KN_SIM_EVENT_SYNC);
    const sim_event *event = native;
    if (event->recorded) run(sim, event->queue, event, event->recorded);
    return KN_OK;
}

/* Copies move no bytes; they check their addresses. */

static void work(kn_sim *sim, queue *q, const void *ptr, size_t size, uint64_t user) {
    const item *other = find_work(sim, ptr, size, q, user);
    if (other) {
        violate(sim, "bytes at %p are used for user %llu while work of user %llu may use them", ptr,
                (unsigned long long)user, (unsigned long long)other->user);
    }
    check_memory(sim, ptr, size, "work uses");
    enqueue(sim, q, (item){.kind = WORK, .ptr = ptr, .size = size, .user = user});
}

static kn_status sim_copy(void *impl, void *dst, const void *src, size_t size_bytes, bool from_host,
                          bool to_host, kn_stream stream) {
    ENTER(impl, KN_SIM_COPY);
    (void)queue_of(sim, stream);
    if (!to_host) check_memory(sim, dst, size_bytes, "a copy writes to");
    if (!from_host) check_memory(sim, src, size_bytes, "a copy reads from");
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
    out->granularity_bytes = sim->driver.range_reserve ? ALIGN : 0;
    snprintf(out->model, sizeof out->model, "simulated device");
    snprintf(out->driver, sizeof out->driver, "sim");
    return KN_OK;
}

/* For tests. */

static const kn_device_driver VIRTUAL = {
    .kind = KN_DEVICE_SIM,
    .info_read = sim_info_read,
    .free_bytes = sim_free_bytes,
    .segment_alloc = sim_segment_alloc,
    .segment_free = sim_segment_free,
    .pinned_alloc = sim_pinned_alloc,
    .pinned_free = sim_pinned_free,
    .range_reserve = sim_range_reserve,
    .range_release = sim_range_release,
    .handle_create = sim_handle_create,
    .handle_destroy = sim_handle_destroy,
    .handle_map = sim_handle_map,
    .handle_unmap = sim_handle_unmap,
    .range_access = sim_range_access,
    .copy = sim_copy,
    .fill = sim_fill,
    .stream_create = sim_stream_create,
    .stream_destroy = sim_stream_destroy,
    .stream_sync = sim_stream_sync,
    .device_sync = sim_device_sync,
    .stream_id = sim_stream_id,
    .stream_check = sim_stream_check,
    .stream_capturing = sim_stream_capturing,
    .event_create = sim_event_create,
    .event_destroy = sim_event_destroy,
    .event_record = sim_event_record,
    .event_query = sim_event_query,
    .event_wait = sim_event_wait,
    .event_sync = sim_event_sync,
};

kn_status kn_sim_create(kn_sim **out, const kn_sim_options *options) {
    static const kn_sim_options defaults = {0};
    if (!options) options = &defaults;
    for (int i = 0; i < 4; i++) {
        if (!options->reserved[i]) continue;
        return KN_FAIL(KN_ERR_INVALID, "kn_sim_create: options.reserved[%d] must be zero", i);
    }
    kn_sim *sim = calloc(1, sizeof *sim);
    if (!sim) return KN_FAIL(KN_ERR_OOM, "kn_sim_create: no host memory");
    sim->driver = VIRTUAL;
    if (options->plain) sim->driver.range_reserve = NULL;
    if (options->no_stream_ids) sim->driver.stream_id = NULL;
    sim->capacity = options->capacity_bytes ? options->capacity_bytes : (uint64_t)64 << 30;
    sim->next_address = BASE;
    sim->instant = options->instant;
    pthread_mutex_init(&sim->lock, NULL);
    sim->streams[0] = queue_new(sim); /* the default stream */
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
    for (sim_event *event = sim->events, *next; event; event = next) {
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
    work(sim, queue_of(sim, stream), ptr, size_bytes, user);
}

void kn_sim_capture(kn_sim *sim, kn_stream stream, bool on) {
    LOCKED(sim);
    queue_of(sim, stream)->capturing = on;
}

void kn_sim_foreign(kn_sim *sim, kn_stream stream) {
    LOCKED(sim);
    queue_of(sim, stream)->foreign = true;
}

void kn_sim_hold(kn_sim *sim, kn_stream stream, bool on) {
    LOCKED(sim);
    queue_of(sim, stream)->held = on;
    keep_up(sim);
}

bool kn_sim_step(kn_sim *sim, kn_stream stream) {
    LOCKED(sim);
    bool ran = step(queue_of(sim, stream));
    keep_up(sim);
    return ran;
}

void kn_sim_drain(kn_sim *sim) {
    LOCKED(sim);
    run_all(sim);
}

size_t kn_sim_pending(kn_sim *sim, kn_stream stream) {
    LOCKED(sim);
    return queue_of(sim, stream)->n;
}

kn_stream kn_sim_stream_of_thread(kn_sim *sim) {
    LOCKED(sim);
    (void)queue_of(sim, (kn_stream)PER_THREAD);
    return stream_handle(stream_number((kn_stream)PER_THREAD));
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
