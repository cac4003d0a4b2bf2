#include "device/observe.h"

#include <pthread.h>

_Atomic(const kn_observer *) kn__observer_table;
static _Atomic(const kn_observer *) layers[KN__LAYERS];
static pthread_mutex_t layers_lock = PTHREAD_MUTEX_INITIALIZER;

static const kn_observer *layer_get(int layer) {
    return atomic_load_explicit(&layers[layer], memory_order_acquire);
}

/* --- the table of several layers --- */

#define CALL(layer, member, ...)                                                                   \
    do {                                                                                           \
        const kn_observer *observer_ = layer_get(layer);                                           \
        if (observer_ && observer_->member) observer_->member(__VA_ARGS__);                        \
    } while (0)
#define CALL_EACH(member, ...)                                                                     \
    for (int i_ = 0; i_ < KN__LAYERS; i_++) CALL(i_, member, __VA_ARGS__)

/* Owners are the program's. */
static uint32_t on_alloc(kn_pool *pool, void *ptr, size_t size, kn_stream stream) {
    CALL(KN__LAYER_STACKS, on_alloc, pool, ptr, size, stream);
    CALL(KN__LAYER_TRACE, on_alloc, pool, ptr, size, stream);
    const kn_observer *program = layer_get(KN__LAYER_PROGRAM);
    return program && program->on_alloc ? program->on_alloc(pool, ptr, size, stream) : 0;
}

static void on_free(kn_pool *pool, void *ptr, size_t size, uint32_t owner) {
    CALL_EACH(on_free, pool, ptr, size, owner);
}

static void on_use(kn_pool *pool, void *ptr, kn_stream stream) {
    CALL_EACH(on_use, pool, ptr, stream);
}

static void on_reserve(kn_pool *pool, int64_t delta, uint64_t reserved) {
    CALL_EACH(on_reserve, pool, delta, reserved);
}

static void on_oom(kn_pool *pool, size_t wanted) { CALL_EACH(on_oom, pool, wanted); }
static void on_pool_create(kn_pool *pool) { CALL_EACH(on_pool_create, pool); }

static void on_pool_destroy(kn_pool *pool) {
    for (int i = KN__LAYERS - 1; i >= 0; i--) CALL(i, on_pool_destroy, pool);
}

static void on_peaks_reset(kn_pool *pool, uint64_t live_max) {
    CALL_EACH(on_peaks_reset, pool, live_max);
}

static void on_call_begin(const char *name) { CALL_EACH(on_call_begin, name); }
static void on_call_end(const char *name) { CALL_EACH(on_call_end, name); }

static bool owner_name(uint32_t owner, char *out, size_t out_bytes) {
    const kn_observer *program = layer_get(KN__LAYER_PROGRAM);
    return program && program->owner_name && program->owner_name(owner, out, out_bytes);
}

static const kn_observer several = {.on_call_begin = on_call_begin,
                                    .on_call_end = on_call_end,
                                    .on_alloc = on_alloc,
                                    .on_free = on_free,
                                    .on_reserve = on_reserve,
                                    .on_oom = on_oom,
                                    .on_pool_create = on_pool_create,
                                    .on_pool_destroy = on_pool_destroy,
                                    .owner_name = owner_name,
                                    .on_use = on_use,
                                    .on_peaks_reset = on_peaks_reset};

/* --- who observes --- */

static void set_locked(kn__layer layer, const kn_observer *observer) {
    atomic_store(&layers[layer], observer);
    const kn_observer *table = NULL;
    for (int i = 0; i < KN__LAYERS; i++) {
        const kn_observer *next = layer_get(i);
        if (next) table = table ? &several : next;
    }
    atomic_store(&kn__observer_table, table);
}

void kn__observer_set(kn__layer layer, const kn_observer *observer) {
    pthread_mutex_lock(&layers_lock);
    set_locked(layer, observer);
    pthread_mutex_unlock(&layers_lock);
}

bool kn__observer_publish(const kn_observer *observer) {
    pthread_mutex_lock(&layers_lock);
    const kn_observer *before = layer_get(KN__LAYER_PROGRAM);
    bool taken = observer && before && before != observer;
    if (!taken) set_locked(KN__LAYER_PROGRAM, observer);
    pthread_mutex_unlock(&layers_lock);
    return !taken;
}

void kn__observer_fork_child(void) { layers_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; }
