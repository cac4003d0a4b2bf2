#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "budget.h"
#include "checked.h"
#include "cupti_records.h"
#include "cupti_session.h"
#include "recorder.h"

enum {
    /* CUPTI fills one for each thread that launches, while the drain has another of each. */
    BUFFER_BYTES = 1 << 16,
    BATCH = 256
};

/* --- buffers: free -> CUPTI -> full -> drained -> free --- */

typedef struct buffer {
    struct buffer *next;
    size_t used;
} buffer;

/* Half of the timer's memory is CUPTI's from the start, and no more: neither the records nor the
 * launches that they belong to can take the others' room. Buffers lie side by side, untouched pages
 * take no memory. */
static pthread_mutex_t buffers_lock = PTHREAD_MUTEX_INITIALIZER; /* protects all below */
static uint8_t *arena;
static buffer *buffers;
static size_t n_buffers, n_made, n_full;
static buffer *free_list, *full_list;

kn_status kn__cupti_reserve(void) {
    if (arena) return KN_OK;
    size_t wanted = kn__budget_limit() / 2 / BUFFER_BYTES;
    buffers = calloc(wanted, sizeof *buffers);
    void *bytes = mmap(NULL, wanted * BUFFER_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!buffers || bytes == MAP_FAILED) {
        free(buffers);
        return KN_FAIL(KN_ERR_UNSUPPORTED, "no GPU times: no memory for CUPTI's buffers");
    }
    arena = bytes;
    while (n_buffers < wanted && kn__budget_take(BUFFER_BYTES)) n_buffers++;
    return KN_OK;
}

static uint8_t *bytes_of(const buffer *b) { return arena + (size_t)(b - buffers) * BUFFER_BYTES; }

static buffer *take_buffer_locked(void) {
    buffer *b = free_list;
    KN_ASSERT(n_made <= n_buffers && n_full <= n_made);
    if (b) {
        free_list = b->next;
    } else if (n_made < n_buffers) {
        b = &buffers[n_made++];
    } else {
        kn__budget_note_full();
    }
    return b;
}

/* On the launching thread. With none left CUPTI drops records and counts them. */
void CUPTIAPI kn__cupti_request(uint8_t **bytes, size_t *size, size_t *max_records) {
    *bytes = NULL;
    *size = *max_records = 0; /* as many records as fit */
    if (atomic_load(&kn__forked)) return;
    pthread_mutex_lock(&buffers_lock);
    buffer *b = take_buffer_locked();
    pthread_mutex_unlock(&buffers_lock);
    if (!b) return;
    *bytes = bytes_of(b);
    *size = BUFFER_BYTES;
}

static buffer *buffer_of(const uint8_t *bytes) {
    size_t at = (size_t)(bytes - arena);
    return bytes >= arena && at < n_made * BUFFER_BYTES ? &buffers[at / BUFFER_BYTES] : NULL;
}

void CUPTIAPI kn__cupti_complete(CUcontext context, uint32_t stream, uint8_t *bytes, size_t size,
                                 size_t used) {
    (void)context, (void)stream, (void)size;
    if (atomic_load(&kn__forked)) return;
    pthread_mutex_lock(&buffers_lock);
    buffer *b = buffer_of(bytes);
    if (b) {
        KN_ASSERT(used <= BUFFER_BYTES && n_full < n_made);
        b->used = used;
        b->next = full_list;
        full_list = b;
        n_full++;
    }
    bool many = 4 * n_full >= n_buffers;
    pthread_mutex_unlock(&buffers_lock);
    if (many) kn__cupti_wake();
}

/* CUPTI expects zeroed buffers: an attribute promises them. */
static void recycle(buffer *b) {
    KN_ASSERT(b >= buffers && b < buffers + n_buffers);
    memset(bytes_of(b), 0, b->used);
    pthread_mutex_lock(&buffers_lock);
    b->next = free_list;
    free_list = b;
    pthread_mutex_unlock(&buffers_lock);
}

/* --- records --- */

static uint64_t n_zero_nodes; /* kernels of graphs without a time; the drain's, as the next */
static uint64_t n_incomplete; /* records that CUPTI handed over before they were written */

static void note_length(kn__record_sizes *seen, const CUpti_Activity *from, const void *to) {
    ptrdiff_t length = (const unsigned char *)to - (const unsigned char *)from;
    if ((int)from->kind < KN__KINDS_MAX && length > 0) seen->of[from->kind] = (uint16_t)length;
}

/* The lengths of our headers, but for those that were seen. */
static kn__record_sizes known_lengths(const kn__record_sizes *seen) {
    kn__record_sizes known = *kn__cupti_sizes();
    for (int i = 0; i < KN__KINDS_MAX; i++) {
        if (seen->of[i]) known.of[i] = seen->of[i];
    }
    return known;
}

/* CUPTI's own walk ends at a record that is not complete: continues after it. */
static CUpti_Activity *skip_incomplete(const buffer *b, CUpti_Activity *before,
                                       const kn__record_sizes *seen) {
    uint8_t *bytes = bytes_of(b), *bad = bytes;
    kn__record_sizes known = known_lengths(seen);
    if (before) bad = (uint8_t *)before + known.of[(int)before->kind % KN__KINDS_MAX];
    n_incomplete++;
    return kn__cupti_skip(bytes, b->used, bad, &known);
}

typedef struct walker {
    const buffer *buffer;
    CUpti_Activity *at;
    kn__record_sizes seen;
} walker;

static bool step(walker *w) {
    CUpti_Activity *before = w->at;
    CUptiResult result =
        kn__cupti.cuptiActivityGetNextRecord(bytes_of(w->buffer), w->buffer->used, &w->at);
    if (result == CUPTI_SUCCESS) {
        if (before) note_length(&w->seen, before, w->at);
        return true;
    }
    if (result == CUPTI_ERROR_INVALID_KIND) {
        w->at = skip_incomplete(w->buffer, before, &w->seen);
        if (w->at) return true;
    } else if (before && !w->seen.of[before->kind]) {
        note_length(&w->seen, before, bytes_of(w->buffer) + w->buffer->used);
    }
    return false;
}

static void walk(const buffer *b, kn__record_fn fn, void *sink) {
    kn__record batch[BATCH];
    walker w = {.buffer = b};
    KN_ASSERT(b->used <= BUFFER_BYTES);
    size_t n = 0;
    while (step(&w)) {
        if (!kn__cupti_read(&batch[n], w.at)) continue;
        n_zero_nodes += batch[n].graph_node && !batch[n].end_ns;
        if (++n == BATCH) {
            fn(sink, batch, n);
            n = 0;
        }
    }
    if (n) fn(sink, batch, n);
    if (kn__cupti.recording) kn__recorder_buffer(bytes_of(b), b->used, &w.seen);
}

void kn__cupti_drain(void *ctx, kn__record_fn fn, void *sink) {
    (void)ctx;
    kn__cupti.cuptiActivityFlushAll(0); /* no lock of ours is needed by the callbacks it makes */
    pthread_mutex_lock(&buffers_lock);
    buffer *list = full_list;
    full_list = NULL;
    n_full = 0;
    pthread_mutex_unlock(&buffers_lock);
    for (buffer *b = list, *next; b; b = next) {
        next = b->next;
        walk(b, fn, sink);
        recycle(b);
    }
}

uint64_t kn__cupti_dropped(void *ctx) {
    static uint64_t total; /* CUPTI counts since it was last asked */
    size_t n = 0;
    (void)ctx;
    if (kn__cupti.cuptiActivityGetNumDroppedRecords(NULL, 0, &n) == CUPTI_SUCCESS) total += n;
    return total + n_incomplete;
}

uint64_t kn__cupti_zero_nodes(void) { return n_zero_nodes; }
