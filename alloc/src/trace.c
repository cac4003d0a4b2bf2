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
_Static_assert(sizeof(kn_trace_record) == 16, "a record's layout is the file's");

enum { DRAIN_EVERY_NS = 10000000 };
enum { SHORT_TICKS = 1 << 14, SHORT_TURNS = 64 }; /* so many of those: nobody has the turn */

static struct {
    pthread_mutex_t lock; /* guards all below; a leaf: nothing is called with it held */
    pthread_cond_t wake;
    kn__ring *rings;
    uint32_t n_threads; /* that ever had a ring */
    uint32_t thread;    /* whose the records at the file's end are */
    int fd;
    bool running, stop;
    int error; /* errno of the write that failed; 0: none */
    uint64_t n_records, n_events, n_lost;
    pthread_t drainer;
    char path[256]; /* for messages */
} trace = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

#define NO_POOL ((kn_pool *)8)
static _Atomic(kn_pool *) only_pool; /* NULL: all */
static _Atomic uint64_t n_ringless;  /* events of threads that got no ring */
static _Atomic uint32_t pools_seen;  /* numbers given out */
static atomic_bool half_full;        /* a ring is half full */
_Atomic uint64_t kn__trace_turn = 2;

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

static uint64_t count_events(const kn_trace_record *records, size_t n) {
    uint64_t n_events = 0;
    for (size_t i = 0; i < n; i++) n_events += kn_trace_kind_of(&records[i]) < KN_TRACE_END;
    return n_events;
}

/* After a failure nothing more is written, so that the file holds whole records up to one point. */
static void put(const kn_trace_record *records, size_t n) {
    size_t whole = trace.error ? 0 : write_all(records, n * sizeof *records) / sizeof *records;
    trace.n_events += count_events(records, whole);
    trace.n_records += whole;
    if (whole == n) return;
    lose(count_events(records + whole, n - whole), errno);
    off_t end = (off_t)(sizeof(kn_trace_header) + trace.n_records * sizeof *records);
    if (ftruncate(trace.fd, end) < 0) return; /* the reader sees the odd bytes at the end */
}

static void put_of_thread(uint32_t thread, const kn_trace_record *records, size_t n) {
    if (thread != trace.thread) {
        put(&(kn_trace_record){KN_TRACE_THREAD | (uint64_t)thread << 8, 0}, 1);
        trace.thread = thread;
    }
    put(records, n);
}

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void put_clock(void) {
    kn_trace_record records[] = {{KN_TRACE_TIME, kn__trace_ticks()},
                                 {KN_TRACE_CLOCK, clock_ns(CLOCK_MONOTONIC)}};
    put_of_thread(0, records, 2);
}

/* Rings. */

/* All rings say everything again. */
static void renew_all(void) { atomic_fetch_add(&kn__trace_turn, 2); }

/* In pieces, so that a writer whose ring was full soon goes on. */
static void drain(kn__ring *ring) {
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    while (tail < head) {
        size_t at = tail % KN__RING_RECORDS, n = head - tail;
        if (n > KN__RING_RECORDS - at) n = KN__RING_RECORDS - at;
        if (n > KN__RING_PIECE) n = KN__RING_PIECE;
        if (trace.running) put_of_thread(ring->thread, &ring->records[at], n);
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

static uint64_t wait_until_drained(kn__ring *ring, uint64_t head) {
    for (int n_waits = 0;; n_waits++) {
        uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
        if (head - tail <= KN__RING_RECORDS / 2) return tail;
        if (pthread_mutex_trylock(&trace.lock) == 0) {
            drain(ring);
            pthread_mutex_unlock(&trace.lock);
        } else {
            wait_for_room(n_waits);
        }
    }
}

/* Room for a stride and the slack. */
static void make_room(kn__ring *ring) {
    enum { ROOM = KN__RING_RECORDS - KN__RING_STRIDE - KN__RING_SLACK };
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
    if (head < ring->room_until) return;
    if (head - tail >= ROOM) tail = wait_until_drained(ring, head);
    if (head - tail >= KN__RING_RECORDS / 2) {
        atomic_store_explicit(&half_full, true, memory_order_relaxed);
        pthread_cond_signal(&trace.wake);
    }
    uint64_t quarter = head + KN__RING_RECORDS / 4;
    ring->room_until = quarter < tail + ROOM ? quarter : tail + ROOM;
}

/* The next turn, or what it is when nobody has it any more. */
static uint64_t take_turn(const kn__ring *ring) {
    uint64_t turn = atomic_load_explicit(&kn__trace_turn, memory_order_acquire);
    if (turn & 1) return turn;
    if (ring->n_short > SHORT_TURNS) return atomic_fetch_or(&kn__trace_turn, 1) | 1;
    return atomic_fetch_add(&kn__trace_turn, 2) + 2;
}

static void renew(kn__ring *ring) {
    uint64_t ticks;
    do {
        ring->turn = take_turn(ring);
        ticks = kn__trace_ticks();
        bool soon = ticks - ring->renewed_ticks < SHORT_TICKS;
        ring->n_short = soon ? ring->n_short + 1 : 0;
        ring->renewed_ticks = ticks;
    } while (!(ring->turn & 1) && !kn__ring_has_turn(ring));
    ring->stride = ring->turn & 1 ? 1 : KN__RING_STRIDE;
    ring->pool = NULL;
    if (ticks > ring->time_ticks) ring->time_ticks = ticks; /* another core's may be behind */
    kn__ring_put(ring, KN_TRACE_TIME, ring->time_ticks);
}

static void say_stream(kn__ring *ring, kn_pool *pool, kn_stream stream) {
    ring->pool = pool;
    ring->stream = stream;
    kn__ring_put(ring, KN_TRACE_STREAM | (uint64_t)pool->trace_id << 8,
                 (uint64_t)(uintptr_t)stream);
}

static kn__ring *ring_make(void) {
    kn__thread *self = kn__thread_get();
    kn__ring *ring = self ? aligned_alloc(_Alignof(kn__ring), sizeof *ring) : NULL;
    if (!ring) return NULL;
    memset(ring, 0, offsetof(kn__ring, records));
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

/* Noting an event. */

/* The thread's ring, all that an event leaves unsaid being said. NULL: there is nothing to say. */
static kn__ring *ring_for(kn_pool *pool, kn_stream stream, bool any_stream, bool due) {
    kn_pool *only = atomic_load_explicit(&only_pool, memory_order_relaxed);
    if (only && only != pool) return NULL;
    kn__ring *ring = kn__self ? kn__self->ring : NULL;
    if (!ring && !(ring = ring_make())) {
        atomic_fetch_add(&n_ringless, 1);
        return NULL;
    }
    make_room(ring);
    due = due || ring->turn != atomic_load_explicit(&kn__trace_turn, memory_order_acquire);
    if (due) renew(ring);
    if (ring->pool != pool || (!any_stream && ring->stream != stream)) {
        say_stream(ring, pool, any_stream ? ring->stream : stream);
    }
    if (due) ring->alarm = atomic_load_explicit(&ring->head, memory_order_relaxed) + ring->stride;
    return ring;
}

static __attribute__((noinline, cold)) void note_slow(kn_pool *pool, kn_trace_kind kind,
                                                      uint64_t ptr, uint64_t size, kn_stream stream,
                                                      bool any_stream) {
    kn__ring *ring = ring_for(pool, stream, any_stream, false);
    if (!ring || kn__ring_push(ring, kind, ptr, size)) return;
    (void)ring_for(pool, stream, any_stream, true);
    (void)kn__ring_push(ring, kind, ptr, size);
}

static inline void note(kn_pool *pool, kn_trace_kind kind, uint64_t ptr, uint64_t size,
                        kn_stream stream) {
    bool any_stream = kind != KN_TRACE_ALLOC && kind != KN_TRACE_USE;
    kn__ring *ring = kn__self ? kn__self->ring : NULL;
    if (KN__LIKELY(ring &&
                   ring->turn == atomic_load_explicit(&kn__trace_turn, memory_order_acquire) &&
                   ring->pool == pool && (any_stream || ring->stream == stream)) &&
        KN__LIKELY(kn__ring_push(ring, kind, ptr, size))) {
        return;
    }
    note_slow(pool, kind, ptr, size, stream, any_stream);
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

/* The observer. Where another is attached each function passes on to it what it hears. */

static uint32_t note_alloc(kn_pool *pool, void *ptr, size_t size, kn_stream stream) {
    (void)size;
    note(pool, KN_TRACE_ALLOC, (uintptr_t)ptr, requested_bytes(pool, ptr), stream);
    return 0;
}

static void note_free(kn_pool *pool, void *ptr, size_t size, uint32_t owner) {
    (void)owner;
    note(pool, KN_TRACE_FREE, (uintptr_t)ptr, size, NULL);
}

static uint32_t on_alloc(kn_pool *pool, void *ptr, size_t size, kn_stream stream) {
    note_alloc(pool, ptr, size, stream);
    const kn_observer *next = kn__observer_behind();
    return next && next->on_alloc ? next->on_alloc(pool, ptr, size, stream) : 0;
}

static void on_free(kn_pool *pool, void *ptr, size_t size, uint32_t owner) {
    note_free(pool, ptr, size, owner);
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
    kn__ring *ring = ring_for(pool, NULL, true, false);
    if (!ring) return;
    memcpy(name, pool->name, strnlen(pool->name, sizeof name));
    for (uint64_t i = 0; i < 3; i++) kn__ring_put(ring, KN_TRACE_NAME | i << 8, name[i]);
    note(pool, KN_TRACE_POOL, 0, 0, NULL);
}

/* Where another was before: no ring may take it for that. */
static void on_pool_create(kn_pool *pool) {
    renew_all();
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

static const kn_observer tap_alone = {.on_alloc = note_alloc,
                                      .on_free = note_free,
                                      .on_reserve = on_reserve,
                                      .on_oom = on_oom,
                                      .on_pool_create = on_pool_create,
                                      .on_pool_destroy = on_pool_destroy,
                                      .on_use = on_use};
static const kn_observer tap_in_front = {.on_call_begin = on_call_begin,
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
        bool late = false;
        if (!atomic_exchange(&half_full, false)) {
            late = pthread_cond_timedwait(&trace.wake, &trace.lock, &until) == ETIMEDOUT;
        }
        if (late) renew_all();
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
    int error = pthread_create(&trace.drainer, NULL, drain_loop, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Begin and end. */

static kn_status open_file(const char *path) {
    kn_trace_header header = {.magic = KN_TRACE_MAGIC,
                              .version = KN_TRACE_VERSION,
                              .record_bytes = sizeof(kn_trace_record),
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

static kn_status begin_locked(const char *path, kn_pool *only) {
    if (trace.running) {
        return KN_FAIL(KN_ERR_INVALID, "kn_trace_begin: a trace runs already, into %s", trace.path);
    }
    snprintf(trace.path, sizeof trace.path, "%s", path);
    KN_TRY(open_file(path));
    drain_all(); /* what came too late for the last trace */
    trace.stop = false;
    trace.error = 0;
    trace.n_records = trace.n_events = trace.n_lost = 0;
    trace.thread = UINT32_MAX;
    atomic_store(&n_ringless, 0);
    int error = start_thread();
    if (error) {
        return KN_FAIL(KN_ERR_INTERNAL, "kn_trace_begin: no thread to write %s: %s", path,
                       strerror(error));
    }
    trace.running = true;
    put_clock();
    atomic_store(&only_pool, only);
    renew_all();
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
    kn_status status = begin_locked(path, options->pool);
    if (status < 0 && !trace.running) close_file();
    pthread_mutex_unlock(&trace.lock);
    KN_TRY(status);
    kn__registry_lock(); /* so that no pool is made between the two */
    kn__pools_visit(note_pool, NULL);
    kn__observer_tap(&tap_alone, &tap_in_front);
    kn__registry_unlock();
    return KN_OK;
}

static kn_status end_locked(void) {
    drain_all();
    put_clock();
    trace.n_lost += atomic_exchange(&n_ringless, 0);
    put(&(kn_trace_record){KN_TRACE_END | trace.n_lost << 8, trace.n_events}, 1);
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
    kn__observer_tap(NULL, NULL);
    pthread_join(trace.drainer, NULL);
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
