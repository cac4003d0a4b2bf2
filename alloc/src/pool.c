#include <knet/device_driver.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices.h"
#include "observe.h"
#include "thread.h"

enum { GRAIN = 256, CLASSES = 400, TABLE_BITS = 16 };

typedef struct block {
    struct block *next, *next_in_table;
    char *ptr;
    size_t size, requested;
    kn_stream stream;
    uint32_t owner;
    bool live;
} block;

struct kn_pool {
    kn_device *device;
    const kn_device_driver *driver;
    void *impl;
    kn_pool *link;
    char name[64];
    size_t limit;
    pthread_mutex_t lock;
    kn_pool_stats stats;
    block *free[CLASSES];
    block *table[1u << TABLE_BITS];
};

static unsigned class_of(size_t bytes) {
    size_t m = (bytes - 1) / GRAIN;
    unsigned e = m ? 63u - (unsigned)__builtin_clzll(m) : 0, shift = e > 3 ? e - 3 : 0;
    return (shift << 3) + (unsigned)(m >> shift);
}

static size_t class_size(unsigned class) {
    unsigned shift = class < 16 ? 0 : (class >> 3) - 1;
    return ((size_t)(class - (shift << 3)) + 1) * GRAIN << shift;
}

static block **bucket(kn_pool *pool, const void *ptr) {
    return &pool->table[(uintptr_t)ptr * 0x9E3779B97F4A7C15u >> (64 - TABLE_BITS)];
}

kn_status kn_pool_create(kn_pool **out, kn_device *device, const kn_pool_options *options) {
    static const kn_pool_options defaults = {0};
    if (!options) options = &defaults;
    kn_pool *pool = calloc(1, sizeof *pool);
    if (!pool) return KN_FAIL(KN_ERR_OOM, "kn_pool_create: no host memory");
    pool->device = device;
    pool->driver = kn_device_driver_get(device, &pool->impl);
    pool->limit = options->limit_bytes ? options->limit_bytes : SIZE_MAX;
    snprintf(pool->name, sizeof pool->name, "%s",
             options->name ? options->name : kn_device_name(device));
    pthread_mutex_init(&pool->lock, NULL);
    kn__pool_enlist(pool, device);
    const kn_observer *observer = kn__observer();
    if (observer && observer->on_pool_create) observer->on_pool_create(pool);
    *out = pool;
    return KN_OK;
}

static void release(kn_pool *pool, block *b) {
    pool->driver->segment_free(pool->impl, b->ptr, class_size(class_of(b->size)));
    pool->stats.reserved_bytes -= b->size;
}

void kn_pool_destroy(kn_pool *pool) {
    if (!pool) return;
    const kn_observer *observer = kn__observer();
    if (observer && observer->on_pool_destroy) observer->on_pool_destroy(pool);
    kn__pool_delist(pool, pool->device);
    for (size_t i = 0; i < 1u << TABLE_BITS; i++) {
        for (block *b = pool->table[i], *next; b; b = next) {
            next = b->next_in_table;
            if (b->ptr) release(pool, b);
            free(b);
        }
    }
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

kn_device *kn_pool_device(const kn_pool *pool) { return pool->device; }
const char *kn_pool_name(const kn_pool *pool) { return pool->name; }
kn_pool **kn__pool_link(kn_pool *pool) { return &pool->link; }
void kn__pool_stream_retire(kn_pool *pool, kn_stream stream) { (void)pool, (void)stream; }
void kn__thread_end_caches(kn__thread *thread) { (void)thread; }

static block *take(kn_pool *pool, unsigned class, kn_stream stream) {
    for (block **link = &pool->free[class]; *link; link = &(*link)->next) {
        block *b = *link;
        if (!pool->driver->ordered && b->stream != stream) continue;
        *link = b->next;
        return b;
    }
    return NULL;
}

static kn_status grow(block **out, kn_pool *pool, unsigned class) {
    size_t size = class_size(class);
    if (size > pool->limit || pool->stats.reserved_bytes > pool->limit - size) {
        return KN_FAIL(KN_ERR_OOM,
                       "pool %s: out of memory: %zu bytes asked for, live %llu, "
                       "reserved %llu, limit %zu",
                       pool->name, size, (unsigned long long)pool->stats.live_bytes,
                       (unsigned long long)pool->stats.reserved_bytes, pool->limit);
    }
    block *b = calloc(1, sizeof *b);
    if (!b) return KN_FAIL(KN_ERR_OOM, "pool %s: no host memory", pool->name);
    void *ptr = NULL;
    kn_status status = pool->driver->segment_alloc(pool->impl, &ptr, size);
    if (status < 0) {
        free(b);
        return status;
    }
    b->ptr = ptr;
    b->size = size;
    block **head = bucket(pool, ptr);
    b->next_in_table = *head;
    *head = b;
    pool->stats.reserved_bytes += size;
    pool->stats.n_device_allocs++;
    if (pool->stats.reserved_bytes > pool->stats.reserved_bytes_max) {
        pool->stats.reserved_bytes_max = pool->stats.reserved_bytes;
    }
    *out = b;
    return KN_OK;
}

kn_status kn_alloc(void **out, kn_pool *pool, size_t size_bytes, kn_stream stream) {
    *out = NULL;
    if (size_bytes == 0) return KN_OK;
    unsigned class = class_of(size_bytes);
    if (class >= CLASSES) return KN_FAIL(KN_ERR_OOM, "pool %s: %zu bytes", pool->name, size_bytes);
    pthread_mutex_lock(&pool->lock);
    block *b = take(pool, class, stream);
    kn_status status = b ? KN_OK : grow(&b, pool, class);
    if (status == KN_OK) {
        b->live = true;
        b->stream = stream;
        b->requested = size_bytes;
        pool->stats.n_allocs++;
        pool->stats.requested_bytes += size_bytes;
        pool->stats.live_bytes += b->size;
        if (pool->stats.live_bytes > pool->stats.live_bytes_max) {
            pool->stats.live_bytes_max = pool->stats.live_bytes;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    if (status < 0) return status;
    const kn_observer *observer = kn__observer();
    if (observer && observer->on_alloc) {
        b->owner = observer->on_alloc(pool, b->ptr, b->size, stream);
    }
    *out = b->ptr;
    return KN_OK;
}

static block *find(kn_pool *pool, const void *ptr) {
    block *b = *bucket(pool, ptr);
    while (b && b->ptr != ptr) b = b->next_in_table;
    return b;
}

kn_status kn_free(kn_pool *pool, void *ptr) {
    if (!ptr) return KN_OK;
    pthread_mutex_lock(&pool->lock);
    block *b = find(pool, ptr);
    bool live = b && b->live;
    size_t size = live ? b->size : 0;
    uint32_t owner = live ? b->owner : 0;
    if (live) {
        b->live = false;
        b->owner = 0;
        pool->stats.live_bytes -= b->size;
        pool->stats.requested_bytes -= b->requested;
        unsigned class = class_of(b->size);
        b->next = pool->free[class];
        pool->free[class] = b;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!live) {
        kn_log_write(0, "kn_free: %p is no live block of pool %s", ptr, pool->name);
        return KN_FAIL(KN_ERR_INVALID, "kn_free: %p is %s of pool %s", ptr,
                       b ? "a block freed already" : "no block", pool->name);
    }
    const kn_observer *observer = kn__observer();
    if (observer && observer->on_free) observer->on_free(pool, ptr, size, owner);
    return KN_OK;
}

kn_status kn_block_use(kn_pool *pool, void *ptr, kn_stream stream) {
    (void)ptr, (void)stream;
    if (pool->driver->ordered) return KN_OK;
    return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_block_use: pool %s", pool->name);
}

void kn_pool_stats_read(kn_pool_stats *out, size_t out_bytes, const kn_pool *pool) {
    kn_pool *p = (kn_pool *)(uintptr_t)pool;
    pthread_mutex_lock(&p->lock);
    memset(out, 0, out_bytes);
    memcpy(out, &p->stats, out_bytes < sizeof p->stats ? out_bytes : sizeof p->stats);
    pthread_mutex_unlock(&p->lock);
}

kn_status kn_pool_limit(kn_pool *pool, size_t limit_bytes) {
    pthread_mutex_lock(&pool->lock);
    pool->limit = limit_bytes ? limit_bytes : SIZE_MAX;
    pthread_mutex_unlock(&pool->lock);
    return KN_OK;
}

kn_status kn_pool_trim(kn_pool *pool, size_t keep_bytes) {
    pthread_mutex_lock(&pool->lock);
    for (unsigned class = 0; class < CLASSES; class ++) {
        while (pool->free[class] && pool->stats.reserved_bytes > keep_bytes) {
            block *b = pool->free[class];
            pool->free[class] = b->next;
            block **link = bucket(pool, b->ptr);
            while (*link != b) link = &(*link)->next_in_table;
            *link = b->next_in_table;
            release(pool, b);
            free(b);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return KN_OK;
}

kn_status kn_pool_snapshot(kn_pool *pool, const char *path) {
    FILE *file = fopen(path, "w");
    if (!file) return KN_FAIL(KN_ERR_IO, "kn_pool_snapshot: cannot write %s", path);
    fprintf(file, "{\"pool\":\"%s\"}\n", pool->name);
    return fclose(file) == 0 ? KN_OK : KN_FAIL(KN_ERR_IO, "kn_pool_snapshot: %s", path);
}

kn_status kn_pool_check(kn_pool *pool) {
    (void)pool;
    return KN_OK;
}

kn_status kn_pool_oom_attach(kn_pool *pool, kn_oom_fn fn, void *ctx) {
    (void)fn, (void)ctx;
    return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_pool_oom_attach: pool %s", pool->name);
}

void kn_pool_oom_detach(kn_pool *pool, kn_oom_fn fn, void *ctx) { (void)pool, (void)fn, (void)ctx; }
