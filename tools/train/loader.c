#include <inttypes.h>
#include <knet/data.h>
#include <knet/op.h>
#include <stdlib.h>

#include "dataset.h"

/* Page-locked memory for a batch, which the device fetches while the host fills the other one. */
typedef struct staging {
    int64_t *y; /* [batch], or NULL */
    float *x;   /* [batch,1,H,W], in the same block */
    kn_event *fetched;
} staging;

struct kn_loader {
    kn_loader_options options;
    kn__dataset data;
    int64_t n_mine, n_batches; /* images and batches of this rank */
    int64_t index;             /* of the next batch */
    uint32_t *order;           /* [n]: the epoch's permutation, the same on every rank */
    kn_rng *rng;
    kn_tensor *x, *y;           /* slots: [batch,1,H,W] f32, [batch] i64; rewritten by each next */
    kn_tensor *x_part, *y_part; /* slots: views of the last, smaller batch */
    staging staging[2];         /* where the device's memory is out of the host's reach; by turns */
};

/* --- life cycle --- */
static kn_status options_check(kn_loader_options *o) {
    for (int i = 0; i < 4; i++)
        if (o->reserved[i])
            return KN_FAIL(KN_ERR_INVALID, "kn_loader_options: reserved is not zero");
    if (!o->batch) o->batch = 100;
    if (!o->device) o->device = kn_device_host();
    if (!o->n_ranks && !o->rank) o->n_ranks = 1;
    if (o->batch < 1)
        return KN_FAIL(KN_ERR_INVALID, "batch %" PRId64 ": must be 1 or more", o->batch);
    if (o->rank < 0 || o->rank >= o->n_ranks)
        return KN_FAIL(KN_ERR_INVALID, "rank %d of %d: must be from 0 to %d", o->rank, o->n_ranks,
                       o->n_ranks - 1);
    if (o->split != KN_TRAIN && o->split != KN_TEST)
        return KN_FAIL(KN_ERR_INVALID, "split %d: must be KN_TRAIN or KN_TEST", (int)o->split);
    return KN_OK;
}

static kn_status staging_alloc(staging *s, const kn_loader *l) {
    kn_pool *pool = kn_device_pinned_pool(l->options.device);
    if (!pool) return kn_check();
    size_t n = (size_t)l->options.batch, n_pixels = (size_t)(l->data.height * l->data.width);
    void *block = NULL;
    KN_TRY(kn_alloc(&block, pool, n * (sizeof *s->y + n_pixels * sizeof *s->x), NULL));
    s->y = block;
    s->x = (float *)(void *)(s->y + n);
    return kn_event_create(&s->fetched, l->options.device);
}

/* The pool keeps the memory from others until the device has fetched it. */
static void staging_free(staging *s, kn_device *device) {
    if (s->y) kn_free(kn_device_pinned_pool(device), s->y);
    kn_event_destroy(s->fetched);
}

static kn_status buffers_alloc(kn_loader *l) {
    const kn_loader_options *o = &l->options;
    l->order = malloc((size_t)l->data.n * sizeof *l->order);
    if (!l->order) return KN_FAIL(KN_ERR_OOM, "no memory to order %" PRId64 " images", l->data.n);
    for (int64_t i = 0; i < l->data.n; i++) l->order[i] = (uint32_t)i;
    if (kn_device_kind_get(o->device) == KN_DEVICE_HOST) return KN_OK;
    for (int i = 0; i < 2; i++) KN_TRY(staging_alloc(&l->staging[i], l));
    return KN_OK;
}

/* Takes data. */
static kn_status loader_create(kn_loader **out, kn__dataset data, kn_loader_options options) {
    kn_status status = KN_OK;
    kn_loader *l = calloc(1, sizeof *l);
    if (!l) {
        kn__dataset_release(&data);
        return KN_FAIL(KN_ERR_OOM, "no memory for a loader");
    }
    l->options = options;
    l->data = data;
    l->n_mine = data.n / options.n_ranks;
    l->n_batches = (l->n_mine + (options.partial ? options.batch - 1 : 0)) / options.batch;
    if (l->n_batches == 0 || data.n > UINT32_MAX) {
        status = KN_FAIL(KN_ERR_INVALID,
                         "batch %" PRId64 " of %d rank%s: the data has only %" PRId64 " images",
                         options.batch, options.n_ranks, options.n_ranks == 1 ? "" : "s", data.n);
        goto cleanup;
    }
    KN_TRY_GOTO(status, buffers_alloc(l));
    KN_TRY_GOTO(status, kn_rng_create(&l->rng, options.seed));
    *out = l;
    return KN_OK;
cleanup:
    kn_loader_destroy(l);
    return status;
}

kn_status kn_loader_create(kn_loader **out, const char *dir, const kn_loader_options *options) {
    KN_SCOPE("read data");
    kn_loader_options o = options ? *options : (kn_loader_options){0};
    kn__dataset data = {0};
    KN_TRY(options_check(&o));
    KN_TRY(kn__dataset_read(&data, dir, o.split));
    return loader_create(out, data, o);
}

kn_status kn_loader_create_synthetic(kn_loader **out, int64_t n, const kn_loader_options *options) {
    KN_SCOPE("make data");
    kn_loader_options o = options ? *options : (kn_loader_options){0};
    kn__dataset data = {0};
    KN_TRY(options_check(&o));
    KN_TRY(kn__dataset_make(&data, n, o.split));
    return loader_create(out, data, o);
}

void kn_loader_destroy(kn_loader *l) {
    if (!l) return;
    kn_unhold(&l->x_part);
    kn_unhold(&l->y_part);
    kn_unhold(&l->x);
    kn_unhold(&l->y);
    kn_rng_destroy(l->rng);
    kn__dataset_release(&l->data);
    free(l->order);
    for (int i = 0; i < 2; i++) staging_free(&l->staging[i], l->options.device);
    free(l);
}

void kn_loader_rewind(kn_loader *l) { l->index = 0; }
int64_t kn_loader_batches(const kn_loader *l) { return l->n_batches; }
int64_t kn_loader_images(const kn_loader *l) { return l->data.n; }
int64_t kn_loader_classes(const kn_loader *l) { return l->data.n_classes; }

/* --- batches --- */
/* Fisher and Yates, from the identity, so that an epoch's order doesn't depend on the one before.
 */
static kn_status shuffle(kn_loader *l) {
    KN_SCOPE("shuffle");
    KN_FRAME(.device = kn_device_host(), .dtype = KN_F64, .record = KN_OFF);
    const double *u = kn_data(kn_uniform(KN_SHAPE(l->data.n), 0, 1, l->rng));
    if (!u) return kn_check();
    for (int64_t i = 0; i < l->data.n; i++) {
        int64_t j = (int64_t)(u[i] * (double)(i + 1));
        l->order[i] = l->order[j];
        l->order[j] = (uint32_t)i;
    }
    return KN_OK;
}

/* The tensors are made once and rewritten; the frame is this function's, the slots keep them. */
static kn_status tensors_make(kn_loader *l) {
    const kn_loader_options *o = &l->options;
    kn_shape shape = KN_SHAPE(o->batch, 1, l->data.height, l->data.width);
    KN_FRAME(.device = o->device, .record = KN_OFF);
    KN_TRY(kn_hold(&l->x, kn_tensor_new(o->device, KN_F32, shape)));
    KN_TRY(kn_hold(&l->y, kn_tensor_new(o->device, KN_I64, KN_SHAPE(o->batch))));
    int64_t rest = l->n_mine % o->batch;
    if (!o->partial || !rest) return KN_OK;
    shape.dim[0] = rest;
    KN_TRY(kn_hold(&l->x_part, kn_tensor_view(l->x, shape, 0)));
    return kn_hold(&l->y_part, kn_tensor_view(l->y, KN_SHAPE(rest), 0));
}

static void pixels_convert(float *restrict to, const uint8_t *restrict from, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = (float)from[i] * (1.0f / 255.0f);
}

/* Which image is this rank's i-th of the epoch. */
static int64_t image_at(const kn_loader *l, int64_t i) {
    return l->order[i * l->options.n_ranks + l->options.rank];
}

/* The next images lie anywhere in memory, where the processor can't foresee them: asking for them
 * two ahead halves the time of a batch. */
static void image_prefetch(const uint8_t *image, int64_t n_pixels) {
    for (int64_t i = 0; i < n_pixels; i += 64) __builtin_prefetch(image + i);
}

static void batch_gather(const kn_loader *l, float *x, int64_t *y, int64_t n) {
    int64_t n_pixels = l->data.height * l->data.width;
    int64_t first = l->index * l->options.batch;
    for (int64_t i = 0; i < n; i++) {
        int64_t image = image_at(l, first + i);
        if (first + i + 2 < l->n_mine)
            image_prefetch(l->data.images + image_at(l, first + i + 2) * n_pixels, n_pixels);
        pixels_convert(x + i * n_pixels, l->data.images + image * n_pixels, n_pixels);
        y[i] = l->data.labels[image];
    }
}

/* Enqueues the copies of n images and labels. */
static kn_status batch_send(staging *s, float *x, int64_t *y, int64_t n, const kn_loader *l) {
    kn_device *device = l->options.device, *host = kn_device_host();
    kn_stream stream = kn_frame_stream();
    size_t x_bytes = (size_t)(n * l->data.height * l->data.width) * sizeof *x;
    kn_status status = kn_device_copy(device, x, host, s->x, x_bytes, stream);
    if (status == KN_OK)
        status = kn_device_copy(device, y, host, s->y, (size_t)n * sizeof *y, stream);
    kn_status used = kn_block_use(kn_device_pinned_pool(device), s->y, stream);
    KN_TRY(status);
    KN_TRY(used);
    return kn_event_record(s->fetched, stream);
}

static kn_status batch_fill(kn_loader *l, int64_t n) {
    KN_FRAME(.device = l->options.device, .record = KN_OFF);
    float *x = kn_data_mut(l->x);
    int64_t *y = kn_data_mut(l->y);
    if (!x || !y) return kn_check();
    staging *s = &l->staging[l->index % 2];
    if (!s->y) {
        batch_gather(l, x, y, n);
        return KN_OK;
    }
    KN_TRY(kn_event_sync(s->fetched)); /* of the last batch but one */
    batch_gather(l, s->x, s->y, n);
    return batch_send(s, x, y, n, l);
}

static kn_status batch_next(kn_loader *l, kn_batch *batch) {
    const kn_loader_options *o = &l->options;
    if (!l->x) KN_TRY(tensors_make(l));
    if (l->index == 0 && o->split == KN_TRAIN) KN_TRY(shuffle(l));
    int64_t left = l->n_mine - l->index * o->batch;
    int64_t n = left < o->batch ? left : o->batch;
    KN_TRY(batch_fill(l, n));
    bool whole = n == o->batch;
    *batch = (kn_batch){
        .x = whole ? l->x : l->x_part, .y = whole ? l->y : l->y_part, .n = n, .index = l->index++};
    return KN_OK;
}

bool kn_loader_next(kn_loader *l, kn_batch *batch) {
    KN_SCOPE("load");
    if (kn_pending() < 0) return false;
    if (l->index == l->n_batches) {
        kn_loader_rewind(l);
        return false;
    }
    kn_status status = batch_next(l, batch);
    if (status < 0) kn_error_defer(status);
    return status == KN_OK;
}
