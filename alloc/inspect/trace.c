/* The trace: an observer, a ring of events for each thread, and a
 * thread that drains the rings into the file.
 *
 * As an observer it costs nothing while no trace is running. Only the drain thread writes events.
 * It blocks all signals, so a SIGXFSZ or SIGPIPE that a write raises never reaches the program. It
 * calls no function of the program and takes no lock but the trace's: threads may wait for it with
 * any other lock held. It holds that lock while it writes, so a thread also waits for a slow disk
 * when it has its first event, ends or forks. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cancel.h"
#include "checked.h"
#include "core/pool_state.h"
#include "device/observe.h"
#include "device/registry.h"
#include "file.h"
#include "helper.h"
#include "inspect/trace_ring.h"
#include "kept_file.h"
#include "now.h"
#include "pool/pools.h"

_Static_assert(sizeof(kn_trace_header) == 64, "the header's layout is the file's");
_Static_assert(sizeof(kn_trace_record) == 16, "a record's layout is the file's");

enum { DRAIN_EVERY_NS = 10000000 }; /* the most that a killed program loses, if the disk keeps up */

static struct {
    pthread_mutex_t lock; /* guards all below; taken after all other locks but the observer's */
    pthread_cond_t wake;  /* the drain thread waits for it */
    pthread_cond_t room;  /* threads with full rings wait for it, and kn_trace_flush */
    enum { OFF, RUNNING, STOPPING } state;
    kn__ring *rings;
    uint32_t n_threads; /* that have had a ring */
    kn__kept_file file;
    int error; /* errno of the write that failed; 0: none */
    uint64_t n_events, n_lost;
    uint64_t n_asked, n_flushed; /* flushes, ever */
    pthread_t drainer;
    char path[256]; /* for messages */
} trace = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .wake = PTHREAD_COND_INITIALIZER,
           .room = PTHREAD_COND_INITIALIZER,
           .file.fd = -1};

static _Atomic uint64_t generation; /* counts traces; a new file repeats time, pool and stream */
static _Atomic uint32_t only_pool;  /* number of the pool that is traced; 0: all */
static atomic_int unlogged;         /* errno for the log; 0: none */
static uint32_t n_pools;            /* numbers given so far; under the registry's lock */

/* The file. Under the lock. */

/* Returns the bytes written; on less than size_bytes, errno says why. */
static size_t write_all(const void *data, size_t size_bytes) {
    size_t done = 0;
    errno = EBADF;
    while (done < size_bytes && kn__kept_file_is_open(&trace.file)) {
        ssize_t n = write(trace.file.fd, (const char *)data + done, size_bytes - done);
        if (n < 0) break; /* never EINTR: the drain thread gets no signals */
        done += (size_t)n;
    }
    return done;
}

static uint64_t count_events(const kn_trace_record *records, size_t n) {
    uint64_t n_events = 0;
    for (size_t i = 0; i < n; i++) n_events += kn_trace_kind_of(&records[i]) < KN_TRACE_END;
    return n_events;
}

/* After a failure nothing more is written: the file has all records up to one point, and perhaps a
 * part of the next. */
static void put(const kn_trace_record *records, size_t n) {
    size_t size = n * sizeof *records, done = trace.error ? 0 : write_all(records, size);
    if (done < size && !trace.error) {
        trace.error = errno;
        atomic_store(&unlogged, trace.error);
    }
    size_t whole = done / sizeof *records;
    trace.n_events += count_events(records, whole);
    trace.n_lost += count_events(records + whole, n - whole);
}

static void put_clock(void) {
    put((kn_trace_record[]){{KN_TRACE_THREAD, 0},
                            {KN_TRACE_TIME, kn__trace_ticks()},
                            {KN_TRACE_CLOCK, kn__now_ns(CLOCK_MONOTONIC)}},
        3);
}

static void close_file(void) {
    int error = kn__kept_file_close(&trace.file);
    if (!trace.error) trace.error = error;
}

/* --- the drain thread --- */

/* Where no trace runs the records are dropped. */
static void drain(kn__ring *ring) {
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    KN_ASSERT(head - tail <= KN__RING_RECORDS);
    while (tail < head) {
        size_t at = tail % KN__RING_RECORDS, n = head - tail;
        if (n > KN__RING_RECORDS - at) n = KN__RING_RECORDS - at;
        if (trace.state != OFF) {
            put(&(kn_trace_record){KN_TRACE_THREAD | (uint64_t)ring->thread << 8, 0}, 1);
            put(&ring->records[at], n);
        }
        atomic_store_explicit(&ring->tail, tail += n, memory_order_release);
    }
}

static void drain_all(void) {
    for (kn__ring **link = &trace.rings, *ring; (ring = *link);) {
        drain(ring);
        if (ring->ended) {
            *link = ring->next;
            free(ring);
        } else {
            link = &ring->next;
        }
    }
    bool asked = trace.n_flushed < trace.n_asked;
    if (asked && trace.state == RUNNING) put_clock();
    trace.n_flushed = trace.n_asked;
    pthread_cond_broadcast(&trace.room);
}

/* The thread is there before the file: where none can be had an older file stays as it is. */
static struct {
    pthread_mutex_t lock; /* held by kn_trace_begin until it knows */
    bool opened;
} door = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_opened(void) {
    pthread_mutex_lock(&door.lock);
    bool opened = door.opened;
    pthread_mutex_unlock(&door.lock);
    return opened;
}

static void *drain_loop(void *ctx) {
    kn__helper_enter();
    if (!is_opened()) return ctx;
    pthread_mutex_lock(&trace.lock);
    while (trace.state != STOPPING) {
        uint64_t until = kn__now_ns(CLOCK_REALTIME) + DRAIN_EVERY_NS;
        struct timespec t = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
        drain_all(); /* before the wait: a thread with a full ring may have signalled already */
        pthread_cond_timedwait(&trace.wake, &trace.lock, &t);
    }
    drain_all();
    put_clock();
    put(&(kn_trace_record){KN_TRACE_END | trace.n_lost << 8, trace.n_events}, 1);
    close_file();
    pthread_mutex_unlock(&trace.lock);
    return ctx;
}

static int start_thread(void) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&trace.drainer, NULL, drain_loop, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* --- rings --- */

static kn__ring *my_ring(void) { return kn__self ? kn__self->ring : NULL; }

static void end_ring(kn__thread *thread) {
    if (!thread->ring) return;
    pthread_mutex_lock(&trace.lock);
    thread->ring->ended = true;
    if (trace.state == OFF) drain_all();
    pthread_mutex_unlock(&trace.lock);
    thread->ring = NULL;
}

static kn__ring *ring_create(void) {
    kn__thread *self = kn__thread_get();
    kn__ring *ring = self ? aligned_alloc(_Alignof(kn__ring), sizeof *ring) : NULL;
    if (!ring) return NULL;
    memset(ring, 0, offsetof(kn__ring, records));
    kn__thread_at_end(KN__END_TRACE, end_ring);
    pthread_mutex_lock(&trace.lock);
    ring->thread = ++trace.n_threads;
    ring->next = trace.rings;
    trace.rings = ring;
    pthread_mutex_unlock(&trace.lock);
    return self->ring = ring;
}

static uint64_t n_undrained(const kn__ring *ring) {
    return atomic_load_explicit(&ring->head, memory_order_relaxed) -
           atomic_load_explicit(&ring->tail, memory_order_acquire);
}

static void wait_for_room(const kn__ring *ring) {
    KN__CANCEL_LATER();
    pthread_mutex_lock(&trace.lock);
    while (trace.state != OFF && n_undrained(ring) > KN__RING_FULL) {
        pthread_cond_signal(&trace.wake);
        pthread_cond_wait(&trace.room, &trace.lock);
    }
    pthread_mutex_unlock(&trace.lock);
}

static void make_room(kn__ring *ring) {
    if (n_undrained(ring) >= KN__RING_RECORDS / 2) pthread_cond_signal(&trace.wake);
    if (n_undrained(ring) > KN__RING_FULL) wait_for_room(ring);
    ring->check_at = atomic_load_explicit(&ring->head, memory_order_relaxed) + KN__RING_STEP;
    int error = atomic_load(&unlogged) ? atomic_exchange(&unlogged, 0) : 0;
    if (error) kn_log_write(0, "trace: events are lost from here on: %s", strerror(error));
}

/* --- noting an event --- */

/* The ring has room, and the file has what an event of the pool and stream leaves unsaid. */
static inline bool is_ready(const kn__ring *ring, const kn_pool *pool, kn_stream stream) {
    return ring && ring->generation == atomic_load_explicit(&generation, memory_order_acquire) &&
           ring->pool == pool->trace_id && ring->stream == stream &&
           atomic_load_explicit(&ring->head, memory_order_relaxed) < ring->check_at;
}

/* Returns the thread's ring, ready. NULL: the event is not wanted, or lost. */
static __attribute__((noinline, cold)) kn__ring *ring_prepare(const kn_pool *pool,
                                                              kn_stream stream) {
    uint32_t only = atomic_load_explicit(&only_pool, memory_order_relaxed);
    if (only && only != pool->trace_id) return NULL;
    kn__ring *ring = my_ring() ? my_ring() : ring_create();
    if (!ring) {
        pthread_mutex_lock(&trace.lock);
        trace.n_lost++;
        pthread_mutex_unlock(&trace.lock);
        return NULL;
    }
    make_room(ring);
    uint64_t now = atomic_load_explicit(&generation, memory_order_acquire);
    if (ring->generation != now) ring->time_ticks = 0;
    ring->generation = now;
    ring->pool = pool->trace_id;
    ring->stream = stream;
    kn__ring_put(ring, KN_TRACE_STREAM | (uint64_t)ring->pool << 8, (uint64_t)(uintptr_t)stream);
    return ring;
}

static inline void note(const kn_pool *pool, kn_trace_kind kind, uint64_t ptr, uint64_t size,
                        kn_stream stream, uint64_t ticks) {
    kn__ring *ring = my_ring();
    if (KN__UNLIKELY(!is_ready(ring, pool, stream))) ring = ring_prepare(pool, stream);
    if (ring) kn__ring_put_event(ring, kind, ptr, size, ticks);
}

/* A pool's number is given once, under the registry's lock, and never given again. */
static uint32_t number_of(kn_pool *pool) {
    if (!pool->trace_id) pool->trace_id = ++n_pools;
    return pool->trace_id;
}

static void note_pool(void *ctx, kn_pool *pool) {
    uint64_t name[3] = {0};
    (void)ctx;
    (void)number_of(pool);
    kn__ring *ring = ring_prepare(pool, NULL);
    if (!ring) return;
    memcpy(name, pool->name, strnlen(pool->name, sizeof name));
    for (uint64_t i = 0; i < 3; i++) kn__ring_put(ring, KN_TRACE_NAME | i << 8, name[i]);
    note(pool, KN_TRACE_POOL, 0, 0, NULL, kn__trace_ticks());
}

/* The observer is given rounded bytes; a replay needs the bytes asked for. The block is live and
 * this thread's, so its record does not change. */
static inline size_t requested_bytes(const kn_pool *pool, const void *ptr) {
    uintptr_t entry = kn__page_get(&pool->pages, ptr);
    const kn__block *block = (const kn__block *)entry;
    const kn__slab *slab = (const kn__slab *)(entry - KN__PAGE_IS_SLAB);
    if (!(entry & KN__PAGE_IS_SLAB)) return block->size - block->slack;
    const kn__slot *slot = &slab->slots[kn__slab_index(slab, ptr)];
    return kn__slot_requested(atomic_load_explicit(&slot->use, memory_order_relaxed));
}

/* --- the observer --- */

static uint32_t on_alloc(kn_pool *pool, void *ptr, size_t size, kn_stream stream) {
    uint64_t ticks = kn__trace_ticks(); /* first: the rest is done while the clock is read */
    (void)size;
    note(pool, KN_TRACE_ALLOC, (uintptr_t)ptr, requested_bytes(pool, ptr), stream, ticks);
    return 0;
}

static void on_free(kn_pool *pool, void *ptr, size_t size, uint32_t owner) {
    uint64_t ticks = kn__trace_ticks();
    kn_stream last = my_ring() ? my_ring()->stream : NULL; /* a free has none of its own */
    (void)owner;
    note(pool, KN_TRACE_FREE, (uintptr_t)ptr, size, last, ticks);
}

static void on_use(kn_pool *pool, void *ptr, kn_stream stream) {
    note(pool, KN_TRACE_USE, (uintptr_t)ptr, 0, stream, kn__trace_ticks());
}

static void on_reserve(kn_pool *pool, int64_t delta, uint64_t reserved) {
    kn_trace_kind kind = delta > 0 ? KN_TRACE_GROW : KN_TRACE_TRIM;
    note(pool, kind, reserved, (uint64_t)(delta > 0 ? delta : -delta), NULL, kn__trace_ticks());
}

static void on_oom(kn_pool *pool, size_t wanted) {
    note(pool, KN_TRACE_OOM, 0, wanted < KN_TRACE_SIZE_MAX ? wanted : KN_TRACE_SIZE_MAX, NULL,
         kn__trace_ticks());
}

static void on_pool_create(kn_pool *pool) { note_pool(NULL, pool); }

static void on_pool_destroy(kn_pool *pool) {
    note(pool, KN_TRACE_POOL_GONE, 0, 0, NULL, kn__trace_ticks());
}

static const kn_observer tap = {.on_alloc = on_alloc,
                                .on_free = on_free,
                                .on_reserve = on_reserve,
                                .on_oom = on_oom,
                                .on_pool_create = on_pool_create,
                                .on_pool_destroy = on_pool_destroy,
                                .on_use = on_use};

/* --- begin and end --- */

/* Returns 0 or an errno. */
static int open_file(const char *path) {
    kn_trace_header header = {.magic = KN_TRACE_MAGIC,
                              .version = KN_TRACE_VERSION,
                              .record_bytes = sizeof(kn_trace_record),
                              .byte_order = 0x01020304,
                              .process = (uint32_t)getpid(),
                              .begin_ns = kn__now_ns(CLOCK_REALTIME)};
    trace.file = kn__kept_file_of(kn__open_output(path));
    return trace.file.fd < 0 ? errno : kn__kept_file_write(&trace.file, &header, sizeof header);
}

/* The drain thread and its file. */
static kn_status start(const char *path) {
    pthread_mutex_lock(&door.lock);
    int no_thread = start_thread(), error = no_thread ? 0 : open_file(path);
    door.opened = !error;
    pthread_mutex_unlock(&door.lock);
    if (no_thread) {
        return KN_FAIL(KN_ERR_INTERNAL, "kn_trace_begin: cannot start a thread to write %s: %s",
                       path, strerror(no_thread));
    }
    if (!error) return KN_OK;
    pthread_join(trace.drainer, NULL);
    return KN_FAIL(KN_ERR_IO, "kn_trace_begin: cannot write %s: %s", path, kn__output_error(error));
}

static kn_status begin_locked(const char *path) {
    if (trace.state != OFF) {
        return KN_FAIL(KN_ERR_INVALID, "kn_trace_begin: a trace runs already, into %s", trace.path);
    }
    KN_TRY(start(path));
    atomic_fetch_add(&generation, 1);
    drain_all(); /* drops events that came too late for the last trace */
    trace.error = 0;
    trace.n_events = trace.n_lost = 0;
    atomic_store(&unlogged, 0);
    snprintf(trace.path, sizeof trace.path, "%s", path);
    put_clock();
    trace.state = RUNNING;
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
    KN__CANCEL_LATER();
    pthread_mutex_lock(&trace.lock);
    kn_status status = begin_locked(path);
    if (status < 0 && trace.state == OFF) close_file();
    pthread_mutex_unlock(&trace.lock);
    KN_TRY(status);
    kn__registry_lock(); /* until the observer is in place: no pool is created meanwhile */
    atomic_store(&only_pool, options->pool ? number_of(options->pool) : 0);
    kn__pools_visit(note_pool, NULL);
    pthread_mutex_lock(&trace.lock);
    if (trace.state == RUNNING)
        kn__observer_set(KN__LAYER_TRACE, &tap); /* else it was ended already */
    pthread_mutex_unlock(&trace.lock);
    kn__registry_unlock();
    return KN_OK;
}

/* Under the lock. */
static kn_status lost_locked(void) {
    if (!trace.n_lost && !trace.error) return KN_OK;
    return KN_FAIL(KN_ERR_IO, "trace %s: %llu events were lost, %llu are in the file: %s",
                   trace.path, (unsigned long long)trace.n_lost, (unsigned long long)trace.n_events,
                   trace.error ? strerror(trace.error) : "no memory for a thread's events");
}

/* The drain thread writes them: a signal that a write raises must not reach the program. */
kn_status kn_trace_flush(void) {
    KN__CANCEL_LATER();
    pthread_mutex_lock(&trace.lock);
    bool running = trace.state == RUNNING;
    uint64_t mine = trace.n_asked += running;
    while (trace.state != OFF && trace.n_flushed < mine) {
        pthread_cond_signal(&trace.wake);
        pthread_cond_wait(&trace.room, &trace.lock);
    }
    kn_status status =
        running ? lost_locked() : KN_FAIL(KN_ERR_INVALID, "kn_trace_flush: no trace is running");
    pthread_mutex_unlock(&trace.lock);
    return status;
}

kn_status kn_trace_end(void) {
    KN__CANCEL_LATER();
    pthread_mutex_lock(&trace.lock);
    bool ours = trace.state == RUNNING;
    if (ours) {
        kn__observer_set(KN__LAYER_TRACE, NULL);
        trace.state = STOPPING;
        pthread_cond_signal(&trace.wake);
    }
    pthread_mutex_unlock(&trace.lock);
    if (!ours) return KN_OK;
    pthread_join(trace.drainer, NULL);
    pthread_mutex_lock(&trace.lock);
    kn_status status = lost_locked();
    trace.state = OFF;
    pthread_mutex_unlock(&trace.lock);
    return status;
}

void kn_trace_stats_read(kn_trace_stats *out, size_t out_bytes) {
    pthread_mutex_lock(&trace.lock);
    kn_trace_stats stats = {trace.n_events, trace.n_lost};
    pthread_mutex_unlock(&trace.lock);
    memset(out, 0, out_bytes);
    memcpy(out, &stats, out_bytes < sizeof stats ? out_bytes : sizeof stats);
}

/* --- fork and exit --- */

static void fork_prepare(void) { pthread_mutex_lock(&trace.lock); }
static void fork_parent(void) { pthread_mutex_unlock(&trace.lock); }

/* The child has one thread: no drain thread, and no thread that waits. */
static void fork_child(void) {
    trace.wake = trace.room = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    door.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    for (kn__ring *ring = trace.rings; ring; ring = ring->next) ring->ended = ring != my_ring();
    kn__observer_fork_child();
    kn__observer_set(KN__LAYER_TRACE, NULL);
    close_file();
    trace.state = OFF;
    pthread_mutex_unlock(&trace.lock);
}

/* Before the registry's constructor, so that at a fork this lock is taken after all others. */
__attribute__((constructor(200))) static void watch_forks(void) {
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}
