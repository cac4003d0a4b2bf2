#include "trace.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "budget.h"
#include "checked.h"
#include "file.h"
#include "json.h"
#include "now.h"

enum { EVENTS = 1 << 13, TAIL_BYTES = 256, OUT_BYTES = 1 << 16 };

/* node NULL: live bytes at `start`, in `end`. */
typedef struct event {
    const kn__node *node;
    uint64_t start, end;
} event;

/* Written by its thread, which alone empties it while it runs; the end of the process takes what is
 * left. */
struct kn__trace_buffer {
    kn__count n;        /* events there are */
    uint64_t n_written; /* under the lock */
    long tid;
    event events[EVENTS];
};

static atomic_bool on;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects all below */
static int fd = -1;
static int write_error;
static char path_text[KN__PATH_EXPANDED_BYTES];
static uint64_t bytes, bytes_max, n_skipped;
static uint64_t n_put; /* events in `out` */
static uint64_t start_ticks, start_realtime_ns;
static double tick_ns;
static kn__text out;

static _Atomic(uint64_t) n_without_buffer; /* events of threads there was no room for */

bool kn__trace_is_on(void) { return atomic_load_explicit(&on, memory_order_relaxed); }

/* --- text; by hand, as this is most of the cost of an event --- */

static void put_number(uint64_t value) {
    char digits[20];
    size_t at = sizeof digits;
    do digits[--at] = (char)('0' + value % 10);
    while (value /= 10);
    kn__text_add(&out, digits + at, sizeof digits - at);
}

/* Microseconds with three places: as a double they would lose nanoseconds. */
static void put_us(uint64_t ns) {
    char rest[4] = {'.', (char)('0' + ns / 100 % 10), (char)('0' + ns / 10 % 10),
                    (char)('0' + ns % 10)};
    put_number(ns / 1000);
    kn__text_add(&out, rest, sizeof rest);
}

#define PUT(literal) kn__text_add(&out, literal, sizeof literal - 1)

static void put_span(uint64_t start_ns, uint64_t spent_ns, uint64_t pid, uint64_t tid) {
    PUT(",\"pid\":");
    put_number(pid);
    PUT(",\"tid\":");
    put_number(tid);
    PUT(",\"ts\":");
    put_us(start_ns);
    PUT(",\"dur\":");
    put_us(spent_ns);
}

static uint64_t since_start(uint64_t ticks) {
    return ticks > start_ticks ? kn__clock_ns(ticks - start_ticks, tick_ns) : 0;
}

static void put_scope(const event *e, long tid) {
    PUT(",\n{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":");
    kn__text_json(&out, e->node->label);
    uint64_t start = since_start(e->start), end = since_start(e->end);
    put_span(start, end > start ? end - start : 0, (uint64_t)getpid(), (uint64_t)tid);
    PUT("}");
}

static void put_memory(const event *e) {
    PUT(",\n{\"ph\":\"C\",\"name\":\"live bytes\",\"pid\":");
    put_number((uint64_t)getpid());
    PUT(",\"ts\":");
    put_us(since_start(e->start));
    PUT(",\"args\":{\"bytes\":");
    put_number(e->end);
    PUT("}}");
}

static void put_record(const kn__record *r) {
    bool copy = r->name && strncmp(r->name, "[memcpy", 7) == 0;
    bool set = r->name && strncmp(r->name, "[memset", 7) == 0;
    uint64_t start = r->start_ns > start_realtime_ns ? r->start_ns - start_realtime_ns : 0;
    PUT(",\n{\"ph\":\"X\",\"cat\":\"");
    kn__text_puts(&out, copy ? "gpu_memcpy" : set ? "gpu_memset" : "kernel");
    PUT("\",\"name\":");
    kn__text_json(&out, r->name ? r->name : "(unnamed)");
    put_span(start, r->end_ns - r->start_ns, r->device, r->stream);
    PUT(",\"args\":{\"correlation\":");
    put_number(r->id);
    PUT("}}");
}

/* --- file --- */

/* Writes the text that was put; beyond the bound, or after a failure, it is counted and dropped. */
static void write_out(void) {
    bool fits = bytes + out.length + TAIL_BYTES <= bytes_max;
    if (!fits || write_error || out.failed) {
        n_skipped += n_put;
    } else {
        write_error = kn__write_all(fd, out.data, out.length);
        bytes += out.length;
    }
    out.length = n_put = 0;
}

static void flush_locked(struct kn__trace_buffer *b) {
    uint64_t n = KN__LOAD(b->n);
    KN_ASSERT(b->n_written <= n && n <= EVENTS);
    if (tick_ns == 0) tick_ns = kn__clock_tick_ns(); /* one rate for the whole trace */
    for (uint64_t i = b->n_written; i < n; i++) {
        const event *e = &b->events[i];
        e->node ? put_scope(e, b->tid) : put_memory(e);
    }
    n_put += n - b->n_written;
    if (n > b->n_written) write_out();
    b->n_written = n;
}

void kn__trace_flush(kn__tree *tree) {
    struct kn__trace_buffer *b = tree->trace;
    if (!b) return;
    pthread_mutex_lock(&lock);
    if (fd >= 0) flush_locked(b);
    b->n_written = 0;
    KN__STORE(b->n, 0);
    b->tid = 0; /* the next thread that takes the tree has another one */
    pthread_mutex_unlock(&lock);
}

static struct kn__trace_buffer *make_buffer(kn__tree *tree) {
    if (!kn__budget_take(sizeof(struct kn__trace_buffer))) return NULL;
    struct kn__trace_buffer *b = malloc(sizeof *b);
    if (!b) return NULL;
    b->n = b->n_written = 0;
    b->tid = 0;
    KN__STORE(tree->trace, b);
    return b;
}

static void add_event(kn__tree *tree, event e) {
    struct kn__trace_buffer *b = tree->trace ? tree->trace : make_buffer(tree);
    if (!b) {
        atomic_fetch_add_explicit(&n_without_buffer, 1, memory_order_relaxed);
        return;
    }
    if (b->n == EVENTS) kn__trace_flush(tree);
    if (!b->tid) b->tid = (long)gettid();
    KN_ASSERT(b->n < EVENTS);
    b->events[b->n] = e;
    KN__STORE(b->n, b->n + 1);
}

void kn__trace_scope(kn__tree *tree, const kn__node *node, uint64_t start, uint64_t end) {
    if (kn__trace_is_on()) add_event(tree, (event){node, start, end});
}

void kn__trace_memory(kn__tree *tree, int64_t live) {
    if (!kn__trace_is_on()) return;
    add_event(tree, (event){NULL, kn__clock_now(), live > 0 ? (uint64_t)live : 0});
}

void kn__trace_record(const kn__record *record) {
    if (!kn__trace_is_on()) return;
    pthread_mutex_lock(&lock);
    if (fd >= 0) {
        put_record(record);
        n_put++;
        if (out.length >= OUT_BYTES) write_out();
    }
    pthread_mutex_unlock(&lock);
}

/* --- start and finish --- */

kn_status kn__trace_start(const char *path, uint64_t max) {
    if (!kn__path_expand(path_text, sizeof path_text, path)) {
        return KN_FAIL(KN_ERR_IO, "the trace's path %.64s... is too long", path);
    }
    fd = kn__open_output(path_text);
    if (fd < 0) {
        return KN_FAIL(KN_ERR_IO, "cannot write the trace to %s: %s", path_text, strerror(errno));
    }
    pthread_mutex_lock(&lock);
    bytes = n_skipped = 0;
    write_error = 0;
    bytes_max = max ? max : KN__TRACE_BYTES_MAX;
    start_ticks = kn__clock_now();
    start_realtime_ns = kn__now_ns(CLOCK_REALTIME);
    PUT("{\"schemaVersion\":1,\"deviceProperties\":[],\"displayTimeUnit\":\"ms\","
        "\"baseTimeNanoseconds\":");
    put_number(start_realtime_ns);
    PUT(",\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":");
    put_number((uint64_t)getpid());
    PUT(",\"args\":{\"name\":\"knet\"}}");
    write_out();
    pthread_mutex_unlock(&lock);
    atomic_store(&on, true);
    return KN_OK;
}

/* Scopes of this thread that nothing will end any more. */
static void add_open_scopes(void) {
    kn__tree *tree = kn__tree_mine;
    uint64_t now = kn__clock_now();
    for (kn__node *node = tree ? tree->current : NULL; node && node->parent; node = node->parent) {
        add_event(tree, (event){node, node->start, now});
    }
}

kn_status kn__trace_finish(void) {
    if (kn__trace_is_on()) add_open_scopes();
    pthread_mutex_lock(&lock);
    if (fd < 0) {
        pthread_mutex_unlock(&lock);
        return KN_OK;
    }
    for (kn__tree *tree = kn__tree_first(); tree; tree = tree->next) {
        struct kn__trace_buffer *b = KN__LOAD(tree->trace);
        if (b) flush_locked(b);
    }
    atomic_store(&on, false);
    write_out();
    PUT("\n],\"knetEventsSkipped\":");
    put_number(n_skipped + atomic_load(&n_without_buffer));
    PUT("}\n");
    bytes_max += TAIL_BYTES;
    write_out();
    if (close(fd) != 0 && !write_error) write_error = errno;
    fd = -1;
    kn__text_release(&out);
    int error = write_error;
    pthread_mutex_unlock(&lock);
    if (!error) return KN_OK;
    return KN_FAIL(KN_ERR_IO, "cannot write the trace to %s: %s", path_text, strerror(error));
}

void kn__trace_pause(bool paused) {
    pthread_mutex_lock(&lock);
    if (fd >= 0) atomic_store(&on, !paused);
    pthread_mutex_unlock(&lock);
}

void kn__trace_forget(void) {
    atomic_store(&on, false);
    fd = -1;
}
