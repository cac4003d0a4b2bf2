/* The list of steps: building it, which formats there are, and the peak. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "replay.h"
#include "replay_formats.h"

static const uint64_t SIZE_MAX_BYTES = (uint64_t)1 << 46; /* of a block: the pool's own bound */
static const uint64_t LIVE_MAX_BYTES = (uint64_t)1 << 60;

/* A pointer of the trace. Those freed are kept, to tell a second free from a free of a stranger. */
typedef struct seen {
    uint64_t key, ptr, at; /* where it was allocated, or freed, last */
    uint32_t block;
    uint16_t stream;
    uint8_t state;
} seen;
enum { UNSEEN = 0, LIVE, FREED, SEEN_MIN = 1024 };

/* Errors. */

kn_status kn__build_fail(const kn__builder *b, const char *fmt, ...) {
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (b->lines) return KN_FAIL(KN_ERR_FORMAT, "%s:%" PRIu64 ": %s", b->path, b->at, text);
    return KN_FAIL(KN_ERR_FORMAT, "%s: byte %" PRIu64 ": %s", b->path, b->at, text);
}

static kn_status no_memory(const kn__builder *b) {
    return KN_FAIL(KN_ERR_OOM, "%s: no memory for a trace of this length", b->path);
}

/* Life. */

void kn__builder_init(kn__builder *b, const char *path) {
    memset(b, 0, sizeof *b);
    b->path = path;
}

void kn__builder_release(kn__builder *b) {
    kn__trace_release(&b->trace);
    kn__hash_release(&b->seen);
    free(b->before);
    memset(b, 0, sizeof *b);
}

void kn__trace_release(kn__trace *trace) {
    free(trace->steps);
    trace->steps = NULL;
    trace->n_steps = trace->room = 0;
}

/* Pointers seen. */

/* The pointer's slot, or the free one where it belongs. */
static seen *slot_of(const kn__builder *b, uint64_t ptr) {
    seen *s = kn__hash_find(&b->seen, sizeof *s, kn__hash_pair(0, ptr));
    while (s->key && s->ptr != ptr) s = kn__hash_after(&b->seen, sizeof *s, s);
    return s;
}

/* The pointer's slot if it was seen before, else NULL. */
static seen *find(const kn__builder *b, uint64_t ptr) {
    seen *s = b->seen.n_slots ? slot_of(b, ptr) : NULL;
    return s && s->state != UNSEEN ? s : NULL;
}

/* The pointer's slot, which is UNSEEN when it is new. */
static kn_status find_or_add(seen **out, kn__builder *b, uint64_t ptr) {
    if (kn__hash_is_full(&b->seen) && !kn__hash_grow(&b->seen, sizeof(seen), SEEN_MIN)) {
        return no_memory(b);
    }
    *out = slot_of(b, ptr);
    kn__hash_use(&b->seen, *out, kn__hash_pair(0, ptr));
    (*out)->ptr = ptr;
    return KN_OK;
}

/* It is live from here on, as the next block. */
static void set_live(kn__builder *b, seen *s, uint32_t stream) {
    s->at = b->at;
    s->block = b->trace.n_blocks++;
    s->stream = (uint16_t)stream;
    s->state = LIVE;
}

/* Steps. */

static kn_status push(const kn__builder *b, kn__step **steps, size_t *n, size_t *room,
                      kn__step step) {
    if (*n == KN__STEPS_MAX) {
        return kn__build_fail(b, "more than %d events; cut the trace", KN__STEPS_MAX);
    }
    if (*n == *room) {
        size_t wider = *room ? 2 * *room : 1024;
        kn__step *grown = realloc(*steps, wider * sizeof **steps);
        if (!grown) return no_memory(b);
        *steps = grown;
        *room = wider;
    }
    (*steps)[(*n)++] = step;
    return KN_OK;
}

static kn_status add(kn__builder *b, kn__step_kind kind, uint32_t block, uint64_t size,
                     uint32_t stream) {
    kn__step step = {
        .size = size, .block = block, .stream = (uint16_t)stream, .kind = (uint8_t)kind};
    return push(b, &b->trace.steps, &b->trace.n_steps, &b->trace.room, step);
}

static kn_status stream_number(uint32_t *out, kn__builder *b, uint64_t handle) {
    kn__trace *t = &b->trace;
    *out = b->stream_recent;
    if (*out < t->n_streams && b->stream_handle[*out] == handle) return KN_OK;
    for (*out = 0; *out < t->n_streams && b->stream_handle[*out] != handle;) ++*out;
    if (*out == KN__STREAMS_MAX) {
        return kn__build_fail(b, "stream 0x%" PRIx64 " is one more than %d", handle,
                              KN__STREAMS_MAX);
    }
    if (*out == t->n_streams) {
        b->stream_handle[t->n_streams] = handle;
        t->null_stream[t->n_streams++] = handle == 0;
    }
    b->stream_recent = *out;
    return KN_OK;
}

static kn_status check_size(const kn__builder *b, uint64_t size) {
    if (size <= SIZE_MAX_BYTES) return KN_OK;
    return kn__build_fail(b, "%" PRIu64 " bytes are more than any device has", size);
}

kn_status kn__build_alloc(kn__builder *b, uint64_t ptr, uint64_t size, uint64_t stream) {
    uint32_t number;
    seen *s = NULL;
    KN_TRY(check_size(b, size));
    if (size == 0) return KN_OK; /* there is no block */
    KN_TRY(find_or_add(&s, b, ptr));
    if (s->state == LIVE) {
        if (!b->lenient) {
            return kn__build_fail(b, "0x%" PRIx64 " is allocated again, live since %s %" PRIu64,
                                  ptr, b->lines ? "line" : "byte", s->at);
        }
        b->trace.n_passed_over++; /* its free is missing */
        KN_TRY(add(b, KN__STEP_FREE, s->block, 0, 0));
    }
    KN_TRY(stream_number(&number, b, stream));
    KN_TRY(add(b, KN__STEP_ALLOC, b->trace.n_blocks, size, number));
    set_live(b, s, number);
    return KN_OK;
}

kn_status kn__build_before(kn__builder *b, uint64_t ptr, uint64_t size) {
    uint32_t number;
    seen *s = NULL;
    KN_TRY(check_size(b, size));
    KN_TRY(find_or_add(&s, b, ptr));
    if (s->state != UNSEEN || size == 0) return KN_OK;
    KN_TRY(stream_number(&number, b, b->stream_handle[b->stream_recent]));
    kn__step step = {.size = size,
                     .block = b->trace.n_blocks,
                     .stream = (uint16_t)number,
                     .kind = KN__STEP_ALLOC};
    KN_TRY(push(b, &b->before, &b->n_before, &b->before_room, step));
    set_live(b, s, number);
    return KN_OK;
}

static kn_status not_live(kn__builder *b, const seen *s, const char *what, uint64_t ptr) {
    if (b->lenient) {
        b->trace.n_passed_over++;
        return KN_OK;
    }
    if (s) {
        return kn__build_fail(b, "%s of 0x%" PRIx64 ", which was freed at %s %" PRIu64, what, ptr,
                              b->lines ? "line" : "byte", s->at);
    }
    return kn__build_fail(b,
                          "%s of 0x%" PRIx64
                          ", which was not allocated before; --partial plays a trace that begins "
                          "late",
                          what, ptr);
}

kn_status kn__build_free(kn__builder *b, uint64_t ptr, uint64_t size) {
    if (ptr == 0) return KN_OK;
    seen *s = find(b, ptr);
    if (!s && size && (b->late_start || b->lenient)) {
        KN_TRY(kn__build_before(b, ptr, size));
        s = find(b, ptr);
    }
    if (!s || s->state != LIVE) return not_live(b, s, "free", ptr);
    s->state = FREED;
    s->at = b->at;
    return add(b, KN__STEP_FREE, s->block, 0, 0);
}

kn_status kn__build_use(kn__builder *b, uint64_t ptr, uint64_t stream) {
    uint32_t number;
    const seen *s = find(b, ptr);
    if (!s && b->late_start) { /* nothing says how large it is */
        b->trace.n_passed_over++;
        return KN_OK;
    }
    if (!s || s->state != LIVE) return not_live(b, s, "use", ptr);
    KN_TRY(stream_number(&number, b, stream));
    return add(b, KN__STEP_USE, s->block, 0, number);
}

bool kn__build_stream_of(kn__builder *b, uint64_t ptr, uint64_t *stream) {
    const seen *s = find(b, ptr);
    if (!s || s->state != LIVE) return false;
    *stream = b->stream_handle[s->stream];
    return true;
}

/* The end of building. */

/* Blocks that were live before come first. */
static kn_status join_before(kn__builder *b) {
    kn__trace *t = &b->trace;
    if (b->n_before == 0) return KN_OK;
    size_t n = b->n_before + t->n_steps;
    kn__step *steps = realloc(b->before, n * sizeof *steps);
    if (!steps) return no_memory(b);
    b->before = NULL;
    if (t->n_steps) memcpy(steps + b->n_before, t->steps, t->n_steps * sizeof *steps);
    free(t->steps);
    t->steps = steps;
    t->n_steps = t->room = n;
    t->n_before = b->n_before;
    return KN_OK;
}

static kn_status find_peak(kn__builder *b) {
    kn__trace *t = &b->trace;
    uint64_t live = 0;
    uint64_t *sizes = calloc((size_t)t->n_blocks + 1, sizeof *sizes);
    if (!sizes) return no_memory(b);
    for (size_t i = 0; i < t->n_steps && live <= LIVE_MAX_BYTES; i++) {
        const kn__step *step = &t->steps[i];
        if (step->kind == KN__STEP_FREE) live -= sizes[step->block];
        if (step->kind != KN__STEP_ALLOC) continue;
        sizes[step->block] = step->size;
        live += step->size;
        t->total_bytes += step->size;
        if (live <= t->peak_live_bytes) continue;
        t->peak_live_bytes = live;
        t->peak_at = i;
    }
    free(sizes);
    if (live <= LIVE_MAX_BYTES) return KN_OK;
    return KN_FAIL(KN_ERR_FORMAT, "%s: more than 2^60 bytes would be live", b->path);
}

kn_status kn__build_finish(kn__trace *out, kn__builder *b) {
    kn_status status = KN_OK;
    if (b->trace.n_blocks == 0) {
        status = KN_FAIL(KN_ERR_FORMAT, "%s: the trace has no allocation", b->path);
    }
    if (status == KN_OK) status = join_before(b);
    if (status == KN_OK) status = find_peak(b);
    if (status == KN_OK) {
        *out = b->trace;
        b->trace.steps = NULL;
    }
    kn__builder_release(b);
    return status;
}

/* Formats. */

static kn_status unknown_format(const char *path, const unsigned char *bytes, size_t n) {
    char shown[64];
    size_t used = 0;
    for (size_t i = 0; i < n && i < 12; i++) {
        int c = bytes[i];
        used += (size_t)snprintf(shown + used, sizeof shown - used,
                                 c >= 0x20 && c < 0x7f && c != '\\' ? "%c" : "\\x%02x", c);
    }
    if (n == 0) return KN_FAIL(KN_ERR_FORMAT, "%s: the file is empty", path);
    return KN_FAIL(KN_ERR_FORMAT,
                   "%s: not a trace of a known format (it begins with \"%s\"); known are Knet.c's "
                   "own, RMM's CSV and PyTorch's memory snapshots, plain or gzip",
                   path, shown);
}

static bool looks_like_csv(const unsigned char *bytes, size_t n) {
    const unsigned char *line_end = memchr(bytes, '\n', n);
    size_t length = line_end ? (size_t)(line_end - bytes) : n;
    return memmem(bytes, length, "Action", 6) && memchr(bytes, ',', length);
}

static kn_status read_any(kn__builder *b, kn__input *in) {
    const unsigned char *bytes;
    size_t n;
    KN_TRY(kn__input_peek(&bytes, &n, in, 256));
    if (n >= 8 && memcmp(bytes, "kntrace", 8) == 0) return kn__read_kntrace(b, in);
    if (n >= 2 && bytes[0] == 0x80) return kn__read_torch(b, in);
    if (looks_like_csv(bytes, n)) return kn__read_csv(b, in);
    return unknown_format(b->path, bytes, n);
}

kn_status kn__trace_read(kn__trace *out, const char *path, bool partial) {
    kn__builder b;
    kn__input *in = malloc(sizeof *in);
    kn__builder_init(&b, kn__input_name(path));
    b.lenient = partial;
    kn_status status = KN_OK;
    if (!in) {
        status = no_memory(&b);
        goto cleanup;
    }
    in->file = NULL;
    KN_TRY_GOTO(status, kn__input_open(in, path));
    KN_TRY_GOTO(status, read_any(&b, in));
    status = kn__build_finish(out, &b);
cleanup:
    if (in) kn__input_close(in);
    free(in);
    kn__builder_release(&b);
    return status;
}
