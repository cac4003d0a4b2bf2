/* A reference: caching by size class alone, as Knet.jl does it. A size is rounded up to the next
 * floor(2^(k/3)); a freed block serves its class on its stream again and nothing else. Where the
 * device is full all that is cached goes back to it. */
#include <math.h>

#include "replay_policy.h"

enum { N_CLASSES = 3 * 47 + 1 };
static const uintptr_t BASE = (uintptr_t)1 << 44;

typedef struct classes {
    uint64_t device_bytes, class_bytes[N_CLASSES];
    uint32_t n_streams, n_blocks;
    struct cached {
        void **at;
        size_t n, room;
    } * cached;         /* by stream and class */
    uint16_t *class_of; /* by block */
    uint16_t *stream_of;
    uintptr_t next;
    kn__counts counts;
} classes;

static void classes_destroy(void *policy) {
    classes *c = policy;
    if (!c) return;
    for (size_t i = 0; c->cached && i < (size_t)c->n_streams * N_CLASSES; i++) {
        free(c->cached[i].at);
    }
    free(c->cached);
    free(c->class_of);
    free(c->stream_of);
    free(c);
}

static kn_status classes_create(void **out, const kn__trace *trace) {
    classes *c = calloc(1, sizeof *c);
    if (!c) return KN_FAIL(KN_ERR_OOM, "no memory for the policy");
    c->n_streams = trace->n_streams;
    c->n_blocks = trace->n_blocks;
    for (int k = 0; k < N_CLASSES; k++) c->class_bytes[k] = (uint64_t)floor(exp2(k / 3.0));
    c->cached = calloc((size_t)c->n_streams * N_CLASSES, sizeof *c->cached);
    c->class_of = calloc(c->n_blocks, sizeof *c->class_of);
    c->stream_of = calloc(c->n_blocks, sizeof *c->stream_of);
    if (!c->cached || !c->class_of || !c->stream_of) {
        classes_destroy(c);
        return KN_FAIL(KN_ERR_OOM, "no memory for the policy");
    }
    *out = c;
    return KN_OK;
}

static kn_status classes_renew(void *policy, uint64_t device_bytes) {
    classes *c = policy;
    c->device_bytes = device_bytes;
    for (size_t i = 0; i < (size_t)c->n_streams * N_CLASSES; i++) c->cached[i].n = 0;
    c->counts = (kn__counts){0};
    c->next = BASE;
    return KN_OK;
}

static unsigned class_of(const classes *c, uint64_t size) {
    unsigned k = 3u * (unsigned)(63 - __builtin_clzll(size)); /* 2^(k/3) <= size */
    while (c->class_bytes[k] < size) k++;
    return k;
}

static void give_all_back(classes *c) {
    for (size_t i = 0; i < (size_t)c->n_streams * N_CLASSES; i++) {
        uint64_t bytes = c->cached[i].n * c->class_bytes[i % N_CLASSES];
        c->counts.device_frees += c->cached[i].n;
        c->counts.reserved_bytes -= bytes;
        kn__calls_add(&c->counts.calls, KN__CALL_FREE, c->cached[i].n, bytes);
        c->cached[i].n = 0;
    }
}

static kn_status take_from_device(classes *c, void **out, uint64_t bytes) {
    if (c->counts.reserved_bytes + bytes > c->device_bytes) give_all_back(c);
    if (c->counts.reserved_bytes + bytes > c->device_bytes) {
        return KN_FAIL(KN_ERR_OOM,
                       "%llu bytes asked for, %llu reserved with nothing cached, the device has "
                       "%llu",
                       (unsigned long long)bytes, (unsigned long long)c->counts.reserved_bytes,
                       (unsigned long long)c->device_bytes);
    }
    c->counts.device_allocs++;
    kn__calls_add(&c->counts.calls, KN__CALL_ALLOC, 1, bytes);
    c->counts.reserved_bytes += bytes;
    if (c->counts.reserved_bytes > c->counts.reserved_bytes_max) {
        c->counts.reserved_bytes_max = c->counts.reserved_bytes;
    }
    *out = (void *)c->next;
    c->next += (bytes + 511) / 512 * 512;
    return KN_OK;
}

static inline kn_status alloc_step(void *policy, void **out, const kn__step *step) {
    classes *c = policy;
    unsigned size_class = class_of(c, step->size);
    struct cached *cached = &c->cached[(size_t)step->stream * N_CLASSES + size_class];
    c->class_of[step->block] = (uint16_t)size_class;
    c->stream_of[step->block] = step->stream;
    if (cached->n == 0) return take_from_device(c, out, c->class_bytes[size_class]);
    *out = cached->at[--cached->n];
    return KN_OK;
}

static kn_status put(classes *c, uint32_t block, void *ptr) {
    struct cached *cached =
        &c->cached[(size_t)c->stream_of[block] * N_CLASSES + c->class_of[block]];
    if (cached->n == cached->room) {
        size_t room = cached->room ? 2 * cached->room : 16;
        void **at = realloc(cached->at, room * sizeof *at);
        if (!at) return KN_FAIL(KN_ERR_OOM, "no host memory for the policy");
        cached->at = at;
        cached->room = room;
    }
    cached->at[cached->n++] = ptr;
    return KN_OK;
}

static inline kn_status free_step(void *policy, const kn__step *step, void *ptr) {
    return put(policy, step->block, ptr);
}

static inline kn_status use_step(void *policy, const kn__step *step, void *ptr) {
    (void)policy, (void)step, (void)ptr;
    return KN_OK;
}

static kn_status classes_run(void *policy, const kn__step *steps, size_t from, size_t to,
                             void **slots, size_t *done) {
    return kn__run_steps(policy, steps, from, to, slots, done, alloc_step, free_step, use_step);
}

static void classes_free_one(void *policy, uint32_t block, void *ptr) {
    (void)put(policy, block, ptr);
}

static void classes_counts(void *policy, kn__counts *out) { *out = ((classes *)policy)->counts; }

const kn__policy kn__policy_classes = {.name = "classes",
                                       .create = classes_create,
                                       .destroy = classes_destroy,
                                       .renew = classes_renew,
                                       .run = classes_run,
                                       .free_one = classes_free_one,
                                       .counts = classes_counts};
