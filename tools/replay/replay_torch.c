/* PyTorch's memory snapshots: torch.cuda.memory._snapshot(), pickled. The history of the device
 * with the most events is played; blocks that the snapshot shows and the history does not are taken
 * to have lived all the time. */
#include <inttypes.h>
#include <stdio.h>

#include "replay_pickle.h"

/* One list of words: keys and the values they have. */
#define WORD_LIST(X)                                                                               \
    X(device_traces)                                                                               \
    X(segments)                                                                                    \
    X(blocks)                                                                                      \
    X(action)                                                                                      \
    X(addr)                                                                                        \
    X(address)                                                                                     \
    X(size)                                                                                        \
    X(requested_size)                                                                              \
    X(stream)                                                                                      \
    X(device)                                                                                      \
    X(state)                                                                                       \
    X(active_allocated)                                                                            \
    X(alloc)                                                                                       \
    X(free)                                                                                        \
    X(free_requested)                                                                              \
    X(oom)
typedef enum word {
#define X(name) W_##name,
    WORD_LIST(X)
#undef X
} word;
static const char *const WORDS[] = {
#define X(name) #name,
    WORD_LIST(X)
#undef X
        NULL};

static kn_status get_int(uint64_t *out, const kn__pickle *p, kn__value dict, word key) {
    kn__value v;
    if (!kn__pickle_get(p, dict, (uint16_t)key, &v)) {
        return kn__build_fail(p->b, "an entry has no '%s'", WORDS[key]);
    }
    if (v.kind != KN__VALUE_INT || v.negative) {
        return kn__build_fail(p->b, "an entry's '%s' is not a whole number from 0 on", WORDS[key]);
    }
    *out = v.bits;
    return KN_OK;
}

static bool get_word(const kn__pickle *p, kn__value dict, word key, uint64_t *out) {
    kn__value v;
    if (!kn__pickle_get(p, dict, (uint16_t)key, &v) || v.kind != KN__VALUE_WORD) return false;
    *out = v.bits;
    return true;
}

/* When the program frees is what matters: "free_completed" is PyTorch's own business. */
static kn_status read_event(const kn__pickle *p, kn__value entry) {
    uint64_t action = 0, ptr = 0, size = 0, stream = 0;
    if (!get_word(p, entry, W_action, &action)) {
        return kn__build_fail(p->b, "an event has no action");
    }
    p->b->trace.n_ooms += action == W_oom;
    bool is_free = action == W_free_requested || action == W_free;
    if (action != W_alloc && !is_free) return KN_OK;
    KN_TRY(get_int(&ptr, p, entry, W_addr));
    KN_TRY(get_int(&size, p, entry, W_size));
    if (is_free) return kn__build_free(p->b, ptr, size);
    KN_TRY(get_int(&stream, p, entry, W_stream));
    return kn__build_alloc(p->b, ptr, size, stream);
}

static kn_status read_block(const kn__pickle *p, kn__value block, uint64_t *next) {
    uint64_t state = 0, ptr, size = 0;
    KN_TRY(get_int(&size, p, block, W_size));
    ptr = *next; /* older snapshots give no address */
    kn__value given;
    if (kn__pickle_get(p, block, W_address, &given)) KN_TRY(get_int(&ptr, p, block, W_address));
    *next = ptr + size;
    if (!get_word(p, block, W_state, &state) || state != W_active_allocated) return KN_OK;
    if (kn__pickle_get(p, block, W_requested_size, &given)) {
        KN_TRY(get_int(&size, p, block, W_requested_size));
    }
    return kn__build_before(p->b, ptr, size);
}

static kn_status read_segment(const kn__pickle *p, kn__value segment, size_t device) {
    uint64_t of_device = 0, next = 0;
    kn__value given;
    if (kn__pickle_get(p, segment, W_device, &given)) {
        KN_TRY(get_int(&of_device, p, segment, W_device));
        if (of_device != device) return KN_OK;
    }
    KN_TRY(get_int(&next, p, segment, W_address));
    size_t n;
    if (!kn__pickle_get(p, segment, W_blocks, &given)) return KN_OK;
    const kn__value *blocks = kn__pickle_items(p, given, &n);
    for (size_t i = 0; i < n; i++) KN_TRY(read_block(p, blocks[i], &next));
    return KN_OK;
}

/* The list of the busiest device. */
static kn_status choose_device(size_t *out, const kn__value **events, size_t *n_events,
                               const kn__pickle *p) {
    kn__value traces;
    size_t n = 0, n_busy = 0;
    *n_events = 0;
    if (!kn__pickle_get(p, p->root, W_device_traces, &traces)) {
        return kn__build_fail(p->b, "the pickle is not a memory snapshot: it has no device_traces");
    }
    const kn__value *lists = kn__pickle_items(p, traces, &n);
    for (size_t i = 0; i < n; i++) {
        size_t length;
        const kn__value *items = kn__pickle_items(p, lists[i], &length);
        n_busy += length > 0;
        if (length <= *n_events) continue;
        *out = i;
        *n_events = length;
        *events = items;
    }
    if (*n_events == 0) {
        return kn__build_fail(p->b,
                              "the snapshot holds no history; record one with "
                              "torch.cuda.memory._record_memory_history()");
    }
    if (n_busy > 1) {
        snprintf(p->b->trace.about, sizeof p->b->trace.about, "device %zu, the busiest of %zu",
                 *out, n_busy);
    }
    return KN_OK;
}

static kn_status build(const kn__pickle *p) {
    const kn__value *events = NULL;
    size_t device = 0, n = 0;
    kn__value segments;
    KN_TRY(choose_device(&device, &events, &n, p));
    for (size_t i = 0; i < n; i++) KN_TRY(read_event(p, events[i]));
    if (!kn__pickle_get(p, p->root, W_segments, &segments)) return KN_OK;
    const kn__value *list = kn__pickle_items(p, segments, &n);
    for (size_t i = 0; i < n; i++) KN_TRY(read_segment(p, list[i], device));
    return KN_OK;
}

kn_status kn__read_torch(kn__builder *b, kn__input *in) {
    kn__pickle p = {.b = b, .in = in, .words = WORDS};
    b->trace.format = "PyTorch snapshot";
    b->late_start = true;
    kn_status status = kn__pickle_read(&p);
    if (status == KN_OK) status = build(&p);
    kn__pickle_release(&p);
    return status;
}
