#include "reference.h"

#include <knet/device_driver.h>
#include <pthread.h>
#include <stdlib.h>

#include "bestfit.h"

enum { GRAIN = 512 };

struct reference {
    pthread_mutex_t lock;
    kn_device *device;
    char *base; /* a segment of the whole device */
    kn__bestfit range;
    uint32_t *run_at; /* by grain of the range, where a block starts */
    uint64_t n_grains;
    const kn_stream *streams;
    kn_event *event;
};

kn_status reference_create(reference **out, kn_device *device, uint64_t capacity_bytes,
                           const kn_stream *streams, uint32_t n_streams) {
    kn_status status = KN_OK;
    void *impl = NULL, *base = NULL;
    const kn_device_driver *driver = kn_device_driver_get(device, &impl);
    reference *r = calloc(1, sizeof *r);
    if (!r) return KN_FAIL(KN_ERR_OOM, "no memory for the reference");
    r->device = device;
    r->streams = streams;
    pthread_mutex_init(&r->lock, NULL);
    KN_TRY_GOTO(status, kn__bestfit_init(&r->range, n_streams));
    kn__bestfit_reset(&r->range, capacity_bytes);
    KN_TRY_GOTO(status, kn_event_create(&r->event, device));
    KN_TRY_GOTO(status, driver->segment_alloc(impl, &base, capacity_bytes));
    r->base = base;
    *out = r;
cleanup:
    if (status < 0) reference_destroy(r);
    return status;
}

void reference_destroy(reference *r) {
    if (!r) return;
    void *impl = NULL;
    const kn_device_driver *driver = kn_device_driver_get(r->device, &impl);
    if (r->base) driver->segment_free(impl, r->base, r->range.bytes_max);
    kn_event_destroy(r->event);
    kn__bestfit_release(&r->range);
    free(r->run_at);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* Extends the table of blocks to the whole range. */
static kn_status cover(reference *r) {
    uint64_t n = r->range.end / GRAIN;
    if (n <= r->n_grains) return KN_OK;
    if (n < 2 * r->n_grains) n = 2 * r->n_grains;
    uint32_t *table = realloc(r->run_at, n * sizeof *table);
    if (!table) return KN_FAIL(KN_ERR_OOM, "no memory for the blocks");
    r->run_at = table;
    r->n_grains = n;
    return KN_OK;
}

/* Takes a block of the first other stream that has one. */
static kn_status steal(uint32_t *run, reference *r, uint64_t size, uint32_t stream) {
    for (uint32_t other = 0; other < r->range.n_lists && !*run; other++) {
        if (other == stream) continue;
        KN_TRY(kn__bestfit_take(run, &r->range, other, stream, size));
        if (!*run) continue;
        KN_TRY(kn_event_record(r->event, r->streams[other]));
        KN_TRY(kn_event_wait(r->event, r->streams[stream]));
    }
    return KN_OK;
}

static kn_status take(void **out, reference *r, uint64_t size, uint32_t stream) {
    uint32_t run;
    KN_TRY(kn__bestfit_take(&run, &r->range, stream, stream, size));
    if (!run) KN_TRY(steal(&run, r, size, stream));
    if (!run) {
        KN_TRY(kn__bestfit_grow(&r->range, stream, size));
        KN_TRY(cover(r));
        KN_TRY(kn__bestfit_take(&run, &r->range, stream, stream, size));
    }
    uint64_t at = r->range.runs[run].at;
    r->run_at[at / GRAIN] = run;
    *out = r->base + at;
    return KN_OK;
}

kn_status reference_alloc(void **out, reference *r, size_t size_bytes, uint32_t stream) {
    pthread_mutex_lock(&r->lock);
    kn_status status = take(out, r, kn__bestfit_round(size_bytes), stream);
    pthread_mutex_unlock(&r->lock);
    return status;
}

void reference_free(reference *r, void *ptr, uint32_t stream) {
    pthread_mutex_lock(&r->lock);
    kn__bestfit_free(&r->range, r->run_at[(uint64_t)((char *)ptr - r->base) / GRAIN], stream);
    pthread_mutex_unlock(&r->lock);
}
