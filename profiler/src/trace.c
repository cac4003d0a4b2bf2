#include "trace.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "budget.h"
#include "checked.h"
#include "file.h"
#include "left.h"
#include "mute.h"
#include "now.h"
#include "thread.h"
#include "trace_file.h"
#include "trace_kept.h"
#include "trace_shown.h"

enum { EVENTS = 1 << 12, WRITE_EVERY_NS = 1000000000 };

/* Events of one thread. Written by it alone until they are queued; the end of the process reads
 * the rest. */
typedef struct chunk {
    struct chunk *next;
    struct kn__trace_buffer *of;
    kn__count n;        /* events there are */
    uint64_t n_written; /* under the file's lock */
    long tid;
    char name[KN__TRACE_NAME_BYTES];
    kn__trace_event events[EVENTS];
} chunk;

/* A tree's; never freed. */
struct kn__trace_buffer {
    chunk *now;              /* of the thread: KN__STORE; NULL: none yet */
    uint64_t trace;          /* the number of the trace that has seen it, as below */
    kn__trace_thread thread; /* under the file's lock */
};

static atomic_bool on;
static _Atomic(uint64_t) n_unbuffered; /* events that there was no memory for */

/* Chunks that wait to be written, the oldest first, and those that are free. This lock is held for
 * some instructions alone, and by the program's threads with signals blocked. */
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER; /* protects all of `queue` */
static struct {
    chunk *first, *last, *free;
    size_t n_made; /* never freed */
    bool ending, has_writer;
} queue;
static pthread_cond_t queued = PTHREAD_COND_INITIALIZER;
static pthread_t writer;

static pthread_mutex_t lock = KN__LEFT_MUTEX; /* protects all below; taken first */
static char path_text[KN__PATH_EXPANDED_BYTES];
static uint64_t n_traces;
static kn__trace_file file = {.to.fd = -1};
static bool in_memory;                      /* events for the profile */
static kn__kept_file complete = {.fd = -1}; /* these, once all are written */

/* The last steps alone. Full chunks stay in the queue then, and no thread writes them. */
static struct {
    uint64_t n, slow_ns; /* constant while the trace is on; n 0: everything is written */
    uint64_t ends[KN__TRACE_STEPS_MAX + 1]; /* of steps, in ticks; a ring */
    uint64_t n_steps, n_forgotten;
    uint64_t from_ns, until_ns; /* of CLOCK_REALTIME: of the last write */
    kn__kept records;
} keep;

static bool is_shown, is_only_shown; /* constant while the trace is on */

bool kn__trace_is_on(void) { return atomic_load_explicit(&on, memory_order_relaxed); }

/* --- file --- */

/* A tree serves one thread after the other. */
static void see_thread(struct kn__trace_buffer *b, long tid, const char *name) {
    if (b->trace == n_traces && b->thread.tid == tid) return;
    b->trace = n_traces;
    kn__trace_put_thread(&file.writer, &b->thread, tid, name);
}

static void write_events(struct kn__trace_buffer *b, const kn__trace_event *events, size_t n) {
    kn__trace_file_events(&file, &b->thread, events, n);
    if (is_shown) kn__shown_events(&b->thread, events, n);
}

static void write_chunk(chunk *c) {
    uint64_t n = KN__LOAD(c->n), from = c->n_written;
    KN_ASSERT(from <= n && n <= EVENTS);
    c->n_written = n;
    if (n == from || file.to.fd < 0) return;
    if (file.writer.clock.tick_ns == 0)
        file.writer.clock.tick_ns = kn__clock_tick_ns(); /* one for all of it */
    see_thread(c->of, c->tid, c->name);
    write_events(c->of, c->events + from, (size_t)(n - from));
}

static chunk *take_queued(void) {
    KN__SIGNALS_LATER();
    pthread_mutex_lock(&queue_lock);
    chunk *c = queue.first;
    if (c) queue.first = c->next;
    pthread_mutex_unlock(&queue_lock);
    return c;
}

static void free_chunk(chunk *c) {
    KN__SIGNALS_LATER();
    pthread_mutex_lock(&queue_lock);
    c->next = queue.free;
    queue.free = c;
    pthread_mutex_unlock(&queue_lock);
}

/* The oldest chunk that waits; false: none does. Under the lock of the file, so that the events of
 * a thread stay in order. */
static bool write_queued(void) {
    chunk *c = take_queued();
    if (!c) return false;
    write_chunk(c);
    free_chunk(c);
    return true;
}

static void write_since(uint64_t from);

/* Every so often what threads have collected is written too: a program that is killed loses no more
 * than that. */
static void *write_on(void *arg) {
    uint64_t due = kn__now_ns(CLOCK_MONOTONIC) + WRITE_EVERY_NS;
    pthread_mutex_lock(&queue_lock);
    while (!queue.ending) {
        struct timespec until = kn__time_after((struct timespec){0}, due);
        bool is_due = kn__now_ns(CLOCK_MONOTONIC) >= due;
        if (!queue.first && !is_due) {
            pthread_cond_clockwait(&queued, &queue_lock, CLOCK_MONOTONIC, &until);
            continue;
        }
        pthread_mutex_unlock(&queue_lock);
        if (!kn__left_lock(&lock)) return arg;
        is_due ? write_since(0) : (void)write_queued();
        pthread_mutex_unlock(&lock);
        if (is_due) due = kn__now_ns(CLOCK_MONOTONIC) + WRITE_EVERY_NS;
        pthread_mutex_lock(&queue_lock);
    }
    pthread_mutex_unlock(&queue_lock);
    return arg;
}

/* --- the last steps --- */

void kn__trace_keep(uint64_t n, uint64_t slow_ns) {
    keep.n = !n && slow_ns ? 1 : n;
    keep.slow_ns = slow_ns;
    keep.n_steps = keep.n_forgotten = keep.from_ns = keep.until_ns = 0;
}

static uint64_t time_of(const kn__trace_event *e) {
    return kn__trace_has_time(e) ? e->end & ~KN__TRACE_RANGE : e->start;
}

/* Where the last steps begin, in ticks. */
static uint64_t kept_from(void) {
    if (keep.n_steps <= keep.n) return file.writer.clock.start_ticks;
    return keep.ends[(keep.n_steps - 1 - keep.n) % (KN__TRACE_STEPS_MAX + 1)];
}

/* Chunks that are older than that. */
static void forget_before(uint64_t from) {
    for (;;) {
        KN__SIGNALS_LATER();
        pthread_mutex_lock(&queue_lock);
        chunk *c = queue.first;
        bool is_old = c && (c->n == 0 || time_of(&c->events[c->n - 1]) < from);
        if (is_old) queue.first = c->next;
        pthread_mutex_unlock(&queue_lock);
        if (!is_old) return;
        free_chunk(c);
    }
}

/* There is no memory for another chunk: the oldest one goes. */
static void forget_oldest(void) {
    if (!kn__left_lock(&lock)) return;
    chunk *c = take_queued();
    if (c) {
        keep.n_forgotten += c->n - c->n_written;
        free_chunk(c);
    }
    pthread_mutex_unlock(&lock);
}

static void write_from(chunk *c, uint64_t from) {
    uint64_t n = KN__LOAD(c->n);
    while (c->n_written < n && time_of(&c->events[c->n_written]) < from) c->n_written++;
    write_chunk(c);
}

static void put_record(const kn__record *record, uint32_t launch);

/* The chunk that a thread fills, if none waits; NULL: `waits`, the oldest, was taken. */
static chunk *now_or_queued(chunk **waits, struct kn__trace_buffer *b) {
    KN__SIGNALS_LATER();
    pthread_mutex_lock(&queue_lock);
    chunk *now = b->now;
    *waits = queue.first;
    if (*waits) queue.first = (*waits)->next;
    pthread_mutex_unlock(&queue_lock);
    return *waits ? NULL : now;
}

/* The chunk that a thread fills, once none waits: then all of its events before that one's are
 * written. It is not freed as long as this thread has the file's lock. */
static chunk *write_before_now(struct kn__trace_buffer *b, uint64_t from) {
    chunk *waits, *now;
    for (now = now_or_queued(&waits, b); waits; now = now_or_queued(&waits, b)) {
        write_from(waits, from);
        free_chunk(waits);
    }
    return now;
}

/* What threads have collected. */
static void write_since(uint64_t from) {
    for (kn__tree *tree = kn__tree_first(); tree; tree = tree->next) {
        struct kn__trace_buffer *b = KN__LOAD(tree->trace);
        chunk *now = b ? write_before_now(b, from) : NULL;
        if (now) write_from(now, from);
    }
    kn__trace_file_flush(&file);
}

static void put_kept_records(void) {
    kn__record record;
    uint32_t launch;
    for (size_t i = 0; kn__kept_at(&keep.records, i, &record, &launch); i++) {
        if (record.end_ns >= keep.from_ns) put_record(&record, launch);
    }
    kn__kept_clear(&keep.records);
}

/* All events that ended since then and were not written; older ones were overwritten. */
static void write_kept(uint64_t from) {
    if (file.writer.clock.tick_ns == 0) file.writer.clock.tick_ns = kn__clock_tick_ns();
    keep.from_ns = file.writer.clock.start_realtime_ns + kn__trace_since(&file.writer.clock, from);
    keep.until_ns = kn__now_ns(CLOCK_REALTIME);
    write_since(from);
    put_kept_records();
    kn__trace_file_flush(&file);
    atomic_fetch_add(&n_unbuffered, keep.n_forgotten);
    keep.n_forgotten = 0;
}

void kn__trace_step(uint64_t spent_ns) {
    if (!keep.n || !kn__trace_is_on() || !kn__left_lock(&lock)) return;
    kn__mute();
    keep.ends[keep.n_steps++ % (KN__TRACE_STEPS_MAX + 1)] = kn__clock_now();
    forget_before(kept_from());
    if (file.to.fd >= 0 && keep.slow_ns && spent_ns > keep.slow_ns) write_kept(kept_from());
    pthread_mutex_unlock(&lock);
    kn__unmute();
}

/* --- the threads of the program --- */

static chunk *take_free(void) {
    KN__SIGNALS_LATER();
    pthread_mutex_lock(&queue_lock);
    chunk *c = queue.free;
    if (c) queue.free = c->next;
    pthread_mutex_unlock(&queue_lock);
    return c;
}

/* All chunks together have a quarter of the timer's memory, whatever the rest takes: CUPTI's
 * buffers have half of it from the start. */
static chunk *make_chunk(void) {
    KN__SIGNALS_LATER();
    pthread_mutex_lock(&queue_lock);
    bool has_room = (queue.n_made + 1) * sizeof(chunk) <= kn__budget_limit() / 4 &&
                    kn__budget_take(sizeof(chunk));
    chunk *made = has_room ? malloc(sizeof(chunk)) : NULL;
    if (has_room && !made) kn__budget_return(sizeof(chunk));
    queue.n_made += made != NULL;
    pthread_mutex_unlock(&queue_lock);
    return made;
}

static chunk *next_chunk(struct kn__trace_buffer *b) {
    chunk *c = take_free();
    if (!c) c = make_chunk();
    if (!c) return NULL;
    c->next = NULL;
    c->of = b;
    c->n = c->n_written = 0;
    c->tid = (long)gettid();
    if (prctl(PR_GET_NAME, c->name) != 0) c->name[0] = '\0';
    return c;
}

/* The chunk that the thread has filled waits for the writer. */
static chunk *fill_next(struct kn__trace_buffer *b, chunk *next) {
    KN__SIGNALS_LATER();
    pthread_mutex_lock(&queue_lock);
    chunk *c = b->now;
    if (c) {
        c->next = NULL;
        *(queue.first ? &queue.last->next : &queue.first) = c;
        queue.last = c;
    }
    KN__STORE(b->now, next);
    pthread_cond_signal(&queued);
    pthread_mutex_unlock(&queue_lock);
    return next;
}

/* The writer is behind and there is no memory: this thread waits for its turn and writes. */
static void write_all_queued(void) {
    while (write_queued()) {
    }
}

static chunk *write_mine(chunk *c) {
    if (!kn__left_lock(&lock)) return NULL;
    write_all_queued();
    write_chunk(c);
    c->n_written = 0;
    KN__STORE(c->n, 0);
    pthread_mutex_unlock(&lock);
    return c;
}

static bool has_writer(void) {
    KN__SIGNALS_LATER();
    pthread_mutex_lock(&queue_lock);
    bool has = queue.has_writer;
    pthread_mutex_unlock(&queue_lock);
    return has;
}

static struct kn__trace_buffer *make_buffer(kn__tree *tree) {
    if (!kn__budget_take(sizeof(struct kn__trace_buffer))) return NULL;
    struct kn__trace_buffer *b = calloc(1, sizeof *b);
    if (b) KN__STORE(tree->trace, b);
    return b;
}

/* Of a thread that has none: where there is no memory, one that waits is written first. */
static chunk *first_chunk(struct kn__trace_buffer *b) {
    chunk *c = next_chunk(b);
    if (c) return c;
    if (keep.n) {
        forget_oldest();
    } else if (kn__left_lock(&lock)) {
        write_all_queued();
        pthread_mutex_unlock(&lock);
    }
    return next_chunk(b);
}

/* A full chunk waits for the writer once there is another one. */
static chunk *find_chunk(kn__tree *tree) {
    struct kn__trace_buffer *b = tree->trace ? tree->trace : make_buffer(tree);
    if (!b) return NULL;
    chunk *c = b->now;
    if (!c) return fill_next(b, first_chunk(b));
    chunk *next = keep.n || has_writer() ? next_chunk(b) : NULL;
    if (!next && keep.n) {
        forget_oldest();
        next = next_chunk(b);
    }
    return next ? fill_next(b, next) : write_mine(c);
}

static chunk *find_room(kn__tree *tree) {
    chunk *now = tree->trace ? tree->trace->now : NULL;
    if (now && now->n < EVENTS) return now;
    kn__mute();
    chunk *found = find_chunk(tree);
    kn__unmute();
    return found;
}

static void add_event(kn__tree *tree, kn__trace_event e) {
    chunk *c = find_room(tree);
    if (!c) {
        atomic_fetch_add_explicit(&n_unbuffered, 1, memory_order_relaxed);
        return;
    }
    KN_ASSERT(c->n < EVENTS);
    c->events[c->n] = e;
    KN__STORE(c->n, c->n + 1);
}

void kn__trace_flush(kn__tree *tree) {
    struct kn__trace_buffer *b = tree->trace;
    if (b && b->now) fill_next(b, NULL); /* the next thread that takes the tree has another name */
}

void kn__trace_scope(kn__tree *tree, const kn__tree_node *node, uint64_t start, uint64_t end) {
    if (kn__trace_is_on()) add_event(tree, (kn__trace_event){&node->name, start, end});
}

void kn__trace_memory(kn__tree *tree, int64_t live) {
    if (!kn__trace_is_on()) return;
    add_event(tree, (kn__trace_event){NULL, kn__clock_now(), live > 0 ? (uint64_t)live : 0});
}

void kn__trace_counter_sample(kn__tree *tree, kn__trace_event sample) {
    if (!kn__trace_is_on()) return;
    if (tree) {
        add_event(tree, sample);
    } else {
        atomic_fetch_add_explicit(&n_unbuffered, 1, memory_order_relaxed);
    }
}

void kn__trace_launch(kn__tree *tree, uint32_t id) {
    if (kn__trace_is_on()) {
        add_event(tree, (kn__trace_event){&kn__trace_launched, kn__clock_now(), id});
    }
}

/* --- GPUs --- */

static void put_record(const kn__record *record, uint32_t launch) {
    if (is_shown) kn__shown_record(record, launch);
    kn__trace_file_record(&file, record, launch);
}

/* Of the steps that were written last, a record may come late. */
static bool is_written_now(const kn__record *record) {
    return !keep.n || (record->end_ns >= keep.from_ns && record->start_ns < keep.until_ns);
}

void kn__trace_record(const kn__record *record, uint32_t launch) {
    if (!kn__trace_is_on() || !kn__left_lock(&lock)) return;
    if (file.to.fd >= 0 && is_written_now(record)) {
        put_record(record, launch);
    } else if (file.to.fd >= 0) {
        atomic_fetch_add(&n_unbuffered, !kn__kept_add(&keep.records, record, launch));
    }
    pthread_mutex_unlock(&lock);
}

/* --- start and finish --- */

static void start_file(uint64_t max) {
    atomic_store(&n_unbuffered, 0);
    n_traces++;
    kn__shown_release();
    file.writer.clock = (kn__trace_clock){kn__clock_now(), kn__now_ns(CLOCK_REALTIME),
                                          kn__now_ns(CLOCK_BOOTTIME), 0};
    file.writer.pid = (long)getpid();
    file.writer.format = is_only_shown                      ? &kn__trace_none
                         : kn__trace_is_perfetto(path_text) ? &kn__trace_perfetto
                                                            : &kn__trace_json;
    uint64_t most = in_memory ? KN__TRACE_EVENTS_BYTES_MAX : KN__TRACE_BYTES_MAX;
    kn__trace_file_start(&file, max ? max : most);
}

/* Without a thread of its own the program's threads write. */
static void start_writer(void) {
    queue.ending = false;
    queue.has_writer = !keep.n && kn__thread_start(&writer, write_on, NULL) == 0;
}

static kn_status open_file(const char *path) {
    in_memory = !path;
    if (!kn__path_expand(path_text, sizeof path_text, path ? path : "memory")) {
        return KN_FAIL(KN_ERR_IO, "the trace's path %.64s... is too long", path);
    }
    file.to =
        kn__kept_file_of(in_memory ? kn__above_streams(memfd_create("knet events", MFD_CLOEXEC))
                                   : kn__open_output(path_text));
    if (file.to.fd >= 0) return KN_OK;
    return KN_FAIL(KN_ERR_IO, "cannot write the trace to %s: %s", path_text,
                   kn__output_error(errno));
}

void kn__trace_show(bool shown, bool only) {
    is_shown = shown;
    is_only_shown = shown && only;
}

kn_status kn__trace_start(const char *path, uint64_t max) {
    KN_TRY(open_file(path));
    pthread_mutex_lock(&lock);
    start_file(max);
    pthread_mutex_lock(&queue_lock);
    start_writer();
    pthread_mutex_unlock(&queue_lock);
    pthread_mutex_unlock(&lock);
    atomic_store(&on, true);
    return KN_OK;
}

/* Scopes that nothing will end any more. The thread may have had no event yet. */
static void write_open_scopes(const kn__tree *tree) {
    kn__trace_event events[KN__DEPTH_MAX];
    struct kn__trace_buffer unseen = {0}, *b = KN__LOAD(tree->trace);
    char name[KN__TRACE_NAME_BYTES];
    long tid = KN__LOAD(tree->tid);
    int n = kn__tree_open(events, tree);
    if (n == 0) return;
    if (!b) b = &unseen;
    kn__thread_name(name, sizeof name, tid);
    see_thread(b, tid, name);
    write_events(b, events, (size_t)n);
}

static void stop_writer(void) {
    pthread_mutex_lock(&queue_lock);
    bool has = queue.has_writer;
    queue.has_writer = false;
    queue.ending = true;
    pthread_cond_signal(&queued);
    pthread_mutex_unlock(&queue_lock);
    if (has) pthread_join(writer, NULL);
}

static int finish_file(void) {
    uint64_t from = keep.slow_ns ? UINT64_MAX : kept_from();
    write_kept(from);
    if (atomic_exchange(&on, false) && !keep.slow_ns) {
        write_since(from); /* what came meanwhile */
        for (kn__tree *tree = kn__tree_first(); tree; tree = tree->next) write_open_scopes(tree);
    }
    kn__trace_file_flush(&file);
    kn__trace_file_end(&file, file.n_skipped + atomic_load(&n_unbuffered));
    complete = in_memory ? file.to : kn__kept_file_of(-1);
    int closed = in_memory ? 0 : kn__kept_file_close(&file.to);
    if (!file.error) file.error = closed;
    file.to.fd = -1;
    kn__kept_release(&keep.records);
    return file.error;
}

bool kn__trace_leave(void) {
    if (!kn__left_mine(&lock)) return false;
    atomic_store(&on, false);
    return true;
}

kn_status kn__trace_finish(void) {
    stop_writer();
    if (!kn__left_lock(&lock)) return KN_OK;
    int error = file.to.fd >= 0 ? finish_file() : 0;
    pthread_mutex_unlock(&lock);
    if (!error) return KN_OK;
    return KN_FAIL(KN_ERR_IO, "cannot write the trace to %s: %s", path_text, strerror(error));
}

void kn__trace_skipped(uint64_t *all, uint64_t *unbuffered) {
    bool locked = kn__left_lock(&lock);
    *unbuffered = is_only_shown ? 0 : atomic_load(&n_unbuffered);
    *all = *unbuffered + (is_only_shown || file.error ? 0 : file.n_skipped);
    if (locked) pthread_mutex_unlock(&lock);
}

void kn__trace_take(kn__text *text) {
    char part[4096];
    ssize_t n;
    if (!kn__kept_file_is_open(&complete) || lseek(complete.fd, 0, SEEK_SET) != 0) return;
    while ((n = read(complete.fd, part, sizeof part)) > 0) kn__text_add(text, part, (size_t)n);
    (void)kn__kept_file_close(&complete);
}

kn_status kn__trace_shown(kn__report *report) {
    if (!is_shown || !kn__left_lock(&lock)) return KN_OK;
    if (file.to.fd >= 0 && !keep.n) write_since(0);
    kn__timeline *line = kn__timeline_make(report);
    if (line) line->n_before = atomic_load(&n_unbuffered);
    kn_status status = line ? kn__shown_add(line, &file.writer.clock, file.writer.pid)
                            : KN_FAIL(KN_ERR_OOM, "no memory for the timeline of a page");
    pthread_mutex_unlock(&lock);
    return status;
}

void kn__trace_pause(bool paused) {
    if (!kn__left_lock(&lock)) return;
    if (file.to.fd >= 0) atomic_store(&on, !paused);
    pthread_mutex_unlock(&lock);
}

void kn__trace_forget(void) {
    atomic_store(&on, false);
    file.to.fd = -1;
}
