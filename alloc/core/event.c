#include "core/epoch.h"

kn_status kn__event_take(kn_pool *pool, void **out) {
    if (pool->n_events_kept) {
        *out = pool->events[--pool->n_events_kept];
        return KN_OK;
    }
    return pool->driver->event_create(pool->impl, out);
}

void kn__event_put(kn_pool *pool, void *event) {
    KN_ASSERT(event && pool->n_events_kept <= pool->events_room);
    if (pool->n_events_kept == pool->events_room) {
        uint32_t room = pool->events_room ? 2 * pool->events_room : 16;
        void **events = kn__meta_grow(&pool->meta, pool->events, pool->events_room * sizeof *events,
                                      room * sizeof *events);
        if (!events) {
            pool->driver->event_destroy(pool->impl, event);
            return;
        }
        pool->events = events;
        pool->events_room = room;
    }
    pool->events[pool->n_events_kept++] = event;
}

void kn__events_destroy(kn_pool *pool) {
    while (pool->n_events_kept) {
        pool->driver->event_destroy(pool->impl, pool->events[--pool->n_events_kept]);
    }
}
