/* The trace: an observer in front of the one that others attach, a ring of events for each thread,
 * and a thread that takes the events to the file.
 *
 * Being an observer it costs nothing where no trace runs. A ring has one writer, its thread, and
 * one reader, who holds `trace.lock`. A ring lives until its thread ends. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "observe.h"
#include "pool_types.h"
#include "trace_ring.h"

_Static_assert(sizeof(kn_trace_header) == 64, "the header's layout is the file's");
_Static_assert(sizeof(kn_trace_event) == 40, "an event's layout is the file's");

enum { DRAIN_EVERY_NS = 50000000 };

static struct {
    pthread_mutex_t lock; /* guards all below; a leaf: nothing is called with it held */
    pthread_cond_t wake;
    kn__ring *rings;
    uint32_t n_threads; /* that ever had a ring */
    int fd;
    bool running, stop;
    int error; /* errno of the write that failed; 0: none */
    uint64_t n_events, n_lost;
    pthread_t thread;
    char path[256]; /* for messages */
} trace = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

#define NO_POOL ((kn_pool *)8)
static _Atomic(kn_pool *) only_pool; /* NULL: all */
static _Atomic uint64_t n_ringless;  /* events of threads that got no ring */
static _Atomic uint32_t pools_seen;  /* numbers given out */

/* The file. Under the lock. */

static void lose(uint64_t n_events, int error) {
    trace.n_lost += n_events;
    if (trace.error) return;
    trace.error = error;
    kn_log_write(0, "trace %s: can't be written: %s; events are lost from here on", trace.path,
                 strerror(error));
}

/* Bytes written; fewer than asked for only after an error, left in errno. */
static size_t write_all(const void *data, size_t size_bytes) {
    size_t done = 0;
    while (done < size_bytes) {
        ssize_t n = write(trace.fd, (const char *)data + done, size_bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) break;
        done += (size_t)n;
    }
    return done;
}

/* After a failure nothing more is written, so that the file holds whole events up to one point. */
static void put(const kn_trace_event *events, size_t n) {
    if (n == 0) return;
    if (trace.error) {
        trace.n_lost += n;
        return;
    }
    size_t whole = write_all(events, n * sizeof *events) / sizeof *events;
    trace.n_events += whole;
    if (whole == n) return;
    lose(n - whole, errno);
    off_t end = (off_t)(sizeof(kn_trace_header) + trace.n_events * sizeof *events);
    if (ftruncate(trace.fd, end) < 0) return; /* the reader sees the odd bytes at the end */
}

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void put_clock(void) {
    kn_trace_event event = {.time_ticks = kn__trace_ticks(),
                            .ptr = clock_ns(CLOCK_MONOTONIC),
                            .pool_kind = KN_TRACE_CLOCK};
    put(&event, 1);
}

/* Rings. */

/* In pieces, so that a writer whose ring was full soon goes on. */
static void drain(kn__ring *ring) {
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    while (tail < head) {
        size_t at = tail % KN__RING_EVENTS, n = head - tail;
        if (n > KN__RING_EVENTS - at) n = KN__RING_EVENTS - at;
        if (n > KN__RING_EVENTS / 4) n = KN__RING_EVENTS / 4;
        if (trace.running) put(&ring->events[at], n);
        atomic_store_explicit(&ring->tail, tail += n, memory_order_release);
    }
}

static void drain_all(void) {
    for (kn__ring *ring = trace.rings; ring; ring = ring->next) drain(ring);
}

/* Who holds the lock drains this ring too, or soon. A slow disk is no reason to keep a core busy.
 */
static void wait_for_room(int n_waits) {
    if (n_waits < 64) {
        sched_yield();
    } else {
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
}

uint64_t kn__ring_full(kn__ring *ring) {
    uint64_t tail, head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    for (int n_waits = 0;; n_waits++) {
        tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
        if (head - tail < KN__RING_EVENTS) return tail;
        if (pthread_mutex_trylock(&trace.lock) == 0) {
            drain(ring);
            pthread_mutex_unlock(&trace.lock);
        } else {
            wait_for_room(n_waits);
        }
    }
}

void kn__ring_half_full(void) { pthread_cond_signal(&trace.wake); }

static __attribute__((noinline)) kn__ring *ring_make(void) {
    kn__thread *self = kn__thread_get();
    kn__ring *ring = self ? aligned_alloc(_Alignof(kn__ring), sizeof *ring) : NULL;
    if (!ring) return NULL;
    memset(ring, 0, offsetof(kn__ring, events));
    pthread_mutex_lock(&trace.lock);
    ring->thread = ++trace.n_threads;
    ring->next = trace.rings;
    trace.rings = ring;
    pthread_mutex_unlock(&trace.lock);
    return self->ring = ring;
}

void kn__thread_end_trace(kn__thread *thread) {
    kn__ring *ring = thread->ring;
    if (!ring) return;
    thread->ring = NULL;
    pthread_mutex_lock(&trace.lock);
    drain(ring);
    kn__ring **link = &trace.rings;
    while (*link != ring) link = &(*link)->next;
    *link = ring->next;
    pthread_mutex_unlock(&trace.lock);
    free(ring);
}

/* The observer. Each function hears, and passes on to the one behind it. */

static inline void note(kn_pool *pool, kn_trace_kind kind, uint64_t ptr, uint64_t size,
                        kn_stream stream) {
    kn_pool *only = atomic_load_explicit(&only_pool, memory_order_relaxed);
    if (only && only != pool) return;
    kn__ring *ring = kn__self ? kn__self->ring : NULL;
    if (KN__UNLIKELY(!ring) && !(ring = ring_make())) {
        atomic_fetch_add(&n_ringless, 1);
        return;
    }
    kn__ring_push(ring, (kn_trace_event){.ptr = ptr,
                                         .size = size,
                                         .stream = (uint64_t)(uintptr_t)stream,
                                         .pool_kind = pool->trace_id << 8 | (uint32_t)kind});
}

/* The observer is told of rounded bytes; a replay wants what was asked for. The block is live and
 * this thread's, so its record holds still. */
static inline size_t requested_bytes(const kn_pool *pool, const void *ptr) {
    uintptr_t entry = kn__page_get(pool, ptr);
    if (entry & KN__TAG_SLAB) {
        const kn__slab *slab = (const kn__slab *)(entry - KN__TAG_SLAB);
        const kn__slot *slot = &slab->slots[kn__slab_index(slab, ptr)];
        return kn__slot_requested(atomic_load_explicit(&slot->use, memory_order_relaxed));
    }
    const kn__block *block = (const kn__block *)entry;
    return block->size - block->slack;
}

static uint32_t on_alloc(kn_pool *pool, void *ptr, size_t size, kn_stream stream) {
    note(pool, KN_TRACE_ALLOC, (uintptr_t)ptr, requested_bytes(pool, ptr), stream);
    const kn_observer *next = kn__observer_behind();
    return next && next->on_alloc ? next->on_alloc(pool, ptr, size, stream) : 0;
}

static void on_free(kn_pool *pool, void *ptr, size_t size, uint32_t owner) {
    note(pool, KN_TRACE_FREE, (uintptr_t)ptr, size, NULL);
    const kn_observer *next = kn__observer_behind();
    if (next && next->on_free) next->on_free(pool, ptr, size, owner);
}

static void on_use(kn_pool *pool, void *ptr, kn_stream stream) {
    note(pool, KN_TRACE_USE, (uintptr_t)ptr, 0, stream);
    const kn_observer *next = kn__observer_behind();
    if (next && next->on_use) next->on_use(pool, ptr, stream);
}

static void on_reserve(kn_pool *pool, int64_t delta, uint64_t reserved) {
    note(pool, delta > 0 ? KN_TRACE_GROW : KN_TRACE_TRIM, reserved,
         delta > 0 ? (uint64_t)delta : -(uint64_t)delta, NULL);
    const kn_observer *next = kn__observer_behind();
    if (next && next->on_reserve) next->on_reserve(pool, delta, reserved);
}

static void on_oom(kn_pool *pool, size_t wanted) {
    note(pool, KN_TRACE_OOM, 0, wanted, NULL);
    const kn_observer *next = kn__observer_behind();
    if (next && next->on_oom) next->on_oom(pool, wanted);
}

static void note_pool(void *ctx, kn_pool *pool) {
    uint64_t name[3] = {0};
    (void)ctx;
    if (!pool->trace_id) pool->trace_id = atomic_fetch_add(&pools_seen, 1) + 1;
    memcpy(name, pool->name, strnlen(pool->name, sizeof name));
    note(pool, KN_TRACE_POOL, name[0], name[1], (kn_stream)(uintptr_t)name[2]);
}

static void on_pool_create(kn_pool *pool) {
    note_pool(NULL, pool);
    const kn_observer *next = kn__observer_behind();
    if (next && next->on_pool_create) next->on_pool_create(pool);
}

static void on_pool_destroy(kn_pool *pool) {
    note(pool, KN_TRACE_POOL_GONE, 0, 0, NULL);
    kn_pool *only = pool; /* another may come to be at its address */
    atomic_compare_exchange_strong(&only_pool, &only, NO_POOL);
    const kn_observer *next = kn__observer_behind();
    if (next && next->on_pool_destroy) next->on_pool_destroy(pool);
}

static void on_call_begin(const char *name) {
    const kn_observer *next = kn__observer_behind();
    if (next && next->on_call_begin) next->on_call_begin(name);
}

static void on_call_end(const char *name) {
    const kn_observer *next = kn__observer_behind();
    if (next && next->on_call_end) next->on_call_end(name);
}

static bool owner_name(uint32_t owner, char *out, size_t out_bytes) {
    const kn_observer *next = kn__observer_behind();
    return next && next->owner_name && next->owner_name(owner, out, out_bytes);
}

static const kn_observer tap = {.on_call_begin = on_call_begin,
                                .on_call_end = on_call_end,
                                .on_alloc = on_alloc,
                                .on_free = on_free,
                                .on_reserve = on_reserve,
                                .on_oom = on_oom,
                                .on_pool_create = on_pool_create,
                                .on_pool_destroy = on_pool_destroy,
                                .owner_name = owner_name,
                                .on_use = on_use};

/* The thread that drains. */

static void *drain_loop(void *ctx) {
    (void)ctx;
    pthread_mutex_lock(&trace.lock);
    while (!trace.stop) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += DRAIN_EVERY_NS;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&trace.wake, &trace.lock, &until);
        drain_all();
    }
    pthread_mutex_unlock(&trace.lock);
    return NULL;
}

/* Signals are for the program's threads. */
static int start_thread(void) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&trace.thread, NULL, drain_loop, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Begin and end. */

static kn_status open_file(const char *path) {
    kn_trace_header header = {.magic = KN_TRACE_MAGIC,
                              .version = KN_TRACE_VERSION,
                              .event_bytes = sizeof(kn_trace_event),
                              .byte_order = 0x01020304,
                              .process = (uint32_t)getpid(),
                              .begin_ns = clock_ns(CLOCK_REALTIME)};
    trace.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (trace.fd >= 0 && write_all(&header, sizeof header) == sizeof header) return KN_OK;
    return KN_FAIL(KN_ERR_IO, "kn_trace_begin: %s can't be written: %s", path, strerror(errno));
}

static void close_file(void) {
    if (trace.fd >= 0) close(trace.fd);
    trace.fd = -1;
}

static kn_status begin_locked(const char *path) {
    if (trace.running) {
        return KN_FAIL(KN_ERR_INVALID, "kn_trace_begin: a trace runs already, into %s", trace.path);
    }
    snprintf(trace.path, sizeof trace.path, "%s", path);
    KN_TRY(open_file(path));
    drain_all(); /* what came too late for the last trace */
    trace.stop = false;
    trace.error = 0;
    trace.n_events = trace.n_lost = 0;
    atomic_store(&n_ringless, 0);
    int error = start_thread();
    if (error) {
        return KN_FAIL(KN_ERR_INTERNAL, "kn_trace_begin: no thread to write %s: %s", path,
                       strerror(error));
    }
    trace.running = true;
    put_clock();
    return KN_OK;
}

kn_status kn_trace_begin(const char *path, const kn_trace_options *options) {
    static const kn_trace_options defaults = {0};
    if (!options) options = &defaults;
    if (!path || !*path) return KN_FAIL(KN_ERR_INVALID, "kn_trace_begin: the path is empty");
    for (int i = 0; i < 4; i++) {
        if (!options->reserved[i]) continue;
        return KN_FAIL(KN_ERR_INVALID, "kn_trace_begin: options.reserved[%d] must be zero", i);
    }
    pthread_mutex_lock(&trace.lock);
    kn_status status = begin_locked(path);
    if (status < 0 && !trace.running) close_file();
    pthread_mutex_unlock(&trace.lock);
    KN_TRY(status);
    atomic_store(&only_pool, options->pool);
    kn__registry_lock(); /* so that no pool is made between the two */
    kn__pools_visit(note_pool, NULL);
    kn__observer_tap(&tap);
    kn__registry_unlock();
    return KN_OK;
}

static kn_status end_locked(void) {
    drain_all();
    put_clock();
    trace.n_lost += atomic_exchange(&n_ringless, 0);
    kn_trace_event event = {.time_ticks = kn__trace_ticks(),
                            .ptr = trace.n_events,
                            .size = trace.n_lost,
                            .pool_kind = KN_TRACE_END};
    put(&event, 1);
    if (close(trace.fd) < 0) lose(0, errno);
    trace.fd = -1;
    trace.running = false;
    if (!trace.n_lost && !trace.error) return KN_OK;
    return KN_FAIL(KN_ERR_IO, "trace %s: %llu events were lost, %llu are in the file: %s",
                   trace.path, (unsigned long long)trace.n_lost, (unsigned long long)trace.n_events,
                   trace.error ? strerror(trace.error) : "no host memory for a thread's events");
}

kn_status kn_trace_end(void) {
    pthread_mutex_lock(&trace.lock);
    bool ours = trace.running && !trace.stop; /* of two that end it, one waits for the thread */
    trace.stop = trace.stop || ours;
    pthread_cond_signal(&trace.wake);
    pthread_mutex_unlock(&trace.lock);
    if (!ours) return KN_OK;
    kn__observer_tap(NULL);
    pthread_join(trace.thread, NULL);
    pthread_mutex_lock(&trace.lock);
    kn_status status = end_locked();
    pthread_mutex_unlock(&trace.lock);
    return status;
}

void kn_trace_stats_read(kn_trace_stats *out, size_t out_bytes) {
    kn_trace_stats stats;
    pthread_mutex_lock(&trace.lock);
    stats.n_events = trace.n_events;
    stats.n_lost = trace.n_lost + atomic_load(&n_ringless);
    pthread_mutex_unlock(&trace.lock);
    memset(out, 0, out_bytes);
    memcpy(out, &stats, out_bytes < sizeof stats ? out_bytes : sizeof stats);
}

/* fork and exit. */

static void fork_prepare(void) { pthread_mutex_lock(&trace.lock); }
static void fork_parent(void) { pthread_mutex_unlock(&trace.lock); }

static void fork_child(void) {
    if (trace.running) {
        kn__observer_untap_child();
        close_file();
        trace.running = false;
    }
    pthread_cond_init(&trace.wake, NULL); /* its waiter is not here */
    pthread_mutex_unlock(&trace.lock);
}

/* Before the registry's constructor, so that at a fork this lock is taken after all others. */
__attribute__((constructor(200))) static void watch_forks(void) {
    pthread_cond_init(&trace.wake, NULL);
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

__attribute__((destructor)) static void end_at_exit(void) {
    if (kn_trace_end() < 0) kn_log_write(0, "%s", kn_last_error()->message);
}
