/* Minibatches: order, buffers, tensors, places. What fills a buffer is gather.c, the thread that
 * does so ahead of time prefetch.c. */
#include "loader.h"

#include <inttypes.h>
#include <knet/op.h>
#include <stdio.h>
#include <stdlib.h>

/* --- life cycle --- */
static kn_status options_check(kn_loader_options *o) {
    if (o->reserved[0]) return KN_FAIL(KN_ERR_INVALID, "kn_loader_options: reserved is not zero");
    for (int i = 0; o->augment && i < 3; i++)
        if (o->augment->reserved[i])
            return KN_FAIL(KN_ERR_INVALID, "kn_augment: reserved is not zero");
    if (!o->batch) o->batch = 100;
    if (!o->device) o->device = kn_device_host();
    if (!o->n_ranks && !o->rank) o->n_ranks = 1;
    if (o->batch < 1)
        return KN_FAIL(KN_ERR_INVALID, "batch %" PRId64 ": must be 1 or more", o->batch);
    if (o->n_ranks < 1)
        return KN_FAIL(KN_ERR_INVALID, "n_ranks %d: must be 1 or more; rank is %d", o->n_ranks,
                       o->rank);
    if (o->rank < 0 || o->rank >= o->n_ranks)
        return KN_FAIL(KN_ERR_INVALID, "rank %d of %d: must be from 0 to %d", o->rank, o->n_ranks,
                       o->n_ranks - 1);
    if (o->split != KN_TRAIN && o->split != KN_TEST)
        return KN_FAIL(KN_ERR_INVALID, "split %d: must be KN_TRAIN or KN_TEST", (int)o->split);
    return KN_OK;
}

static int64_t batches_of(const kn_loader_options *o, int64_t n) {
    return n / o->batch + (o->partial && n % o->batch > 0);
}

static kn_status fits_data(const kn_loader *l) {
    const kn_loader_options *o = &l->options;
    const kn_dataset *d = l->data;
    char text[128];
    if (batches_of(o, d->n / o->n_ranks) == 0 || d->n > UINT32_MAX)
        return KN_FAIL(KN_ERR_INVALID,
                       "batch %" PRId64 " of %d rank%s: the data has only %" PRId64 " sample%s%s",
                       o->batch, o->n_ranks, o->n_ranks == 1 ? "" : "s", d->n, d->n == 1 ? "" : "s",
                       o->partial ? "" : "; set a smaller .batch, or .partial");
    if (o->packed && !d->offset)
        return KN_FAIL(KN_ERR_INVALID, "packed: the data has no sequences");
    if (!o->augment) return KN_OK;
    if (d->x_dtype != KN_F32 || d->x_shape.n_dims != 3 || d->offset)
        return KN_FAIL(KN_ERR_INVALID, "augment: samples are %s %s; images are f32 [C,H,W]",
                       kn_dtype_name(d->x_dtype), kn_shape_text(text, sizeof text, d->x_shape));
    int64_t crop = o->augment->crop, height = d->x_shape.dim[1], width = d->x_shape.dim[2];
    if (crop < 0 || crop >= height || crop >= width)
        return KN_FAIL(KN_ERR_INVALID,
                       "augment: crop %" PRId64 "; images have %" PRId64 "x%" PRId64 " pixels",
                       crop, height, width);
    return KN_OK;
}

/* The samples of the largest batch. */
static int64_t n_max(const kn_loader *l) {
    return l->options.batch < l->n_mine ? l->options.batch : l->n_mine;
}

/* The largest batch: its bytes of x. */
static size_t x_bytes_max(const kn_loader *l) {
    size_t n = (size_t)n_max(l);
    for (int i = 0; i < l->data->x_shape.n_dims; i++) n *= (size_t)l->data->x_shape.dim[i];
    return n * kn_dtype_bytes(l->data->x_dtype);
}

static size_t y_bytes_max(const kn_loader *l) { return (size_t)n_max(l) * l->data->y_bytes; }

/* Page-locked memory, which the device fetches while the host fills the other one. */
static kn_status pinned_alloc(kn__batch_buffer *b, const kn_loader *l) {
    kn_pool *pool = kn_device_pinned_pool(l->options.device);
    if (!pool) return kn_check();
    KN_TRY(kn_alloc(&b->pinned, pool, y_bytes_max(l) + x_bytes_max(l) + 1, NULL));
    b->y = b->pinned;
    b->x = (char *)b->pinned + y_bytes_max(l);
    return kn_event_create(&b->fetched, l->options.device);
}

/* The pool keeps the memory from others until the device has fetched it. */
static void buffer_free(kn__batch_buffer *b, kn_device *device) {
    if (b->pinned) kn_free(kn_device_pinned_pool(device), b->pinned);
    kn_event_destroy(b->fetched);
    free(b->lengths);
    kn_unhold(&b->x_tensor);
    kn_unhold(&b->y_tensor);
}

static bool on_host(const kn_loader *l) {
    return kn_device_kind_get(l->options.device) == KN_DEVICE_HOST;
}

static kn_status buffers_alloc(kn_loader *l) {
    const kn_dataset *d = l->data;
    l->n_buffers = l->options.prefetch || !on_host(l) ? 2 : 1;
    l->order = malloc((size_t)d->n * sizeof *l->order);
    l->scratch = l->options.augment ? malloc(x_bytes_max(l) / (size_t)n_max(l)) : NULL;
    if (!l->order || (l->options.augment && !l->scratch))
        return KN_FAIL(KN_ERR_OOM, "no memory to order %" PRId64 " samples", d->n);
    for (int64_t i = 0; i < d->n; i++) l->order[i] = (uint32_t)i;
    for (int i = 0; i < l->n_buffers; i++) {
        kn__batch_buffer *b = &l->buffer[i];
        b->index = -1;
        if (d->offset) b->lengths = malloc((size_t)n_max(l) * sizeof *b->lengths);
        if (d->offset && !b->lengths) return KN_FAIL(KN_ERR_OOM, "no memory for lengths");
        if (!on_host(l)) KN_TRY(pinned_alloc(b, l));
    }
    return KN_OK;
}

static kn_status loader_create(kn_loader **out, kn_dataset *data, kn_loader_options options) {
    kn_status status = KN_OK;
    kn_loader *l = calloc(1, sizeof *l);
    if (!l) return KN_FAIL(KN_ERR_OOM, "no memory for a loader");
    l->options = options;
    l->data = kn__dataset_share(data);
    l->n_mine = data->n / options.n_ranks;
    if (options.split == KN_TEST && options.partial)
        l->n_mine += options.rank < data->n % options.n_ranks;
    l->n_all = batches_of(&options, l->n_mine);
    l->n_batches = l->n_next = l->n_all;
    KN_TRY_GOTO(status, fits_data(l));
    if (options.augment) {
        l->augment = *options.augment;
        l->options.augment = options.split == KN_TRAIN ? &l->augment : NULL;
    }
    KN_TRY_GOTO(status, buffers_alloc(l));
    KN_TRY_GOTO(status, kn_rng_create(&l->rng, options.seed));
    if (options.prefetch) KN_TRY_GOTO(status, kn__prefetch_start(l));
    *out = l;
    return KN_OK;
cleanup:
    kn_loader_destroy(l);
    return status;
}

kn_status kn_loader_create_from(kn_loader **out, kn_dataset *data,
                                const kn_loader_options *options) {
    kn_loader_options o = options ? *options : (kn_loader_options){0};
    if (!data) return KN_FAIL(KN_ERR_INVALID, "kn_loader_create_from: data is NULL");
    KN_TRY(options_check(&o));
    return loader_create(out, data, o);
}

kn_status kn_loader_create(kn_loader **out, const char *dir, const kn_loader_options *options) {
    KN_SCOPE("read data");
    kn_loader_options o = options ? *options : (kn_loader_options){0};
    kn_dataset *data = NULL;
    KN_TRY(options_check(&o));
    KN_TRY(kn_dataset_read_images(&data, dir, o.split));
    kn_status status = loader_create(out, data, o);
    kn_dataset_destroy(data);
    return status;
}

kn_status kn_loader_create_synthetic(kn_loader **out, int64_t n, const kn_loader_options *options) {
    KN_SCOPE("make data");
    kn_loader_options o = options ? *options : (kn_loader_options){0};
    kn_dataset *data = NULL;
    KN_TRY(options_check(&o));
    KN_TRY(kn_dataset_create_synthetic(
        &data, n, &(kn_synthetic_options){.shape = KN_SHAPE(1, 28, 28), .split = o.split}));
    kn_status status = loader_create(out, data, o);
    kn_dataset_destroy(data);
    return status;
}

void kn_loader_destroy(kn_loader *l) {
    if (!l) return;
    kn__prefetch_stop(l);
    kn_unhold(&l->x_part);
    kn_unhold(&l->y_part);
    kn_rng_destroy(l->rng);
    for (int i = 0; i < 2; i++) buffer_free(&l->buffer[i], l->options.device);
    kn_dataset_destroy(l->data);
    free(l->scratch);
    free(l->order);
    free(l);
}

/* A new length counts once no epoch is under way. */
static void index_set(kn_loader *l, int64_t index) {
    l->index = index;
    if (index == 0) l->n_batches = l->n_next;
}

void kn_loader_rewind(kn_loader *l) {
    kn__prefetch_drop(l);
    index_set(l, 0);
}

void kn_loader_take(kn_loader *l, int64_t n) {
    l->n_next = n > 0 && n < l->n_all ? n : l->n_all;
    index_set(l, l->index);
}

int64_t kn_loader_batches(const kn_loader *l) { return l->n_batches; }
int64_t kn_loader_images(const kn_loader *l) { return l->data->n; }
int64_t kn_loader_classes(const kn_loader *l) { return l->data->n_classes; }
kn_dataset *kn_loader_dataset(kn_loader *l) { return l->data; }

void kn__loader_note(const kn_loader *l) {
    char batch[24];
    snprintf(batch, sizeof batch, "%" PRId64, l->options.batch);
    (void)!kn_prof_note("batch", batch); /* of 16 other keys it is left out */
}

const int64_t *kn_loader_lengths(const kn_loader *l) {
    return l->current ? l->current->lengths : NULL;
}

/* --- batches --- */
/* Row i of a rank's batch b is sample i·batches + b of the rank's part; a last, smaller batch has
 * the rest. */
static void rows_order(kn_loader *l) {
    int64_t batch = l->options.batch, n = l->n_mine / batch, ranks = l->options.n_ranks;
    for (int64_t i = 0; i < l->data->n; i++) l->order[i] = (uint32_t)i;
    for (int64_t r = 0; r < ranks; r++) {
        for (int64_t k = 0; k < l->n_mine; k++) {
            int64_t at = k < n * batch ? k % batch * n + k / batch : k;
            l->order[k * ranks + r] = (uint32_t)(r * l->n_mine + at);
        }
    }
}

/* Fisher and Yates, from the identity, so that an epoch's order doesn't depend on the one before.
 * Epochs in the data's order draw their numbers too: augmentation follows from them. */
static kn_status shuffle(kn_loader *l) {
    KN_SCOPE("shuffle");
    uint64_t seed = 0;
    KN_TRY(kn_rng_state_get(&seed, &l->epoch_offset, l->rng));
    KN_FRAME(.device = kn_device_host(), .dtype = KN_F64, .record = KN_OFF);
    const double *u = kn_data(kn_uniform(KN_SHAPE(l->data->n), 0, 1, l->rng));
    if (!u) return kn_check();
    if (l->options.ordered == 2) {
        rows_order(l);
        return KN_OK;
    }
    for (int64_t i = 0; i < l->data->n; i++) {
        int64_t j = l->options.ordered ? i : (int64_t)(u[i] * (double)(i + 1));
        l->order[i] = l->order[j];
        l->order[j] = (uint32_t)i;
    }
    return KN_OK;
}

/* [n, shape…] */
static kn_shape batch_shape(int64_t n, kn_shape sample) {
    kn_shape s = {.n_dims = sample.n_dims + 1};
    s.dim[0] = n;
    for (int i = 0; i < sample.n_dims; i++) s.dim[i + 1] = sample.dim[i];
    return s;
}

/* The tensors are made once and rewritten; the frame is this function's, the slots keep them. */
static kn_status tensors_make(kn_loader *l) {
    const kn_loader_options *o = &l->options;
    const kn_dataset *d = l->data;
    KN_FRAME(.device = o->device, .record = KN_OFF);
    for (int i = 0; i < (on_host(l) ? l->n_buffers : 1); i++) {
        kn__batch_buffer *b = &l->buffer[i];
        KN_TRY(kn_hold(&b->x_tensor,
                       kn_tensor_new(o->device, d->x_dtype, batch_shape(n_max(l), d->x_shape))));
        if (!d->y) continue;
        KN_TRY(kn_hold(&b->y_tensor,
                       kn_tensor_new(o->device, d->y_dtype, batch_shape(n_max(l), d->y_shape))));
    }
    return KN_OK;
}

/* Makes a buffer ready for being filled: nothing else uses it. */
static kn_status buffer_ready(kn__batch_buffer *b) {
    if (b->pinned) return kn_event_sync(b->fetched); /* of the last batch but one */
    b->x = kn_data_mut(b->x_tensor);
    if (b->y_tensor) b->y = kn_data_mut(b->y_tensor);
    return kn_check();
}

/* Enqueues the copies of a batch. */
static kn_status batch_send(kn_loader *l, kn__batch_buffer *b, kn_tensor *x, kn_tensor *y) {
    kn_device *device = l->options.device, *host = kn_device_host();
    kn_stream stream = kn_frame_stream();
    kn_status status = kn_device_copy(device, kn_data_mut(x), host, b->x, b->x_bytes, stream);
    if (status == KN_OK && y && b->y_bytes)
        status = kn_device_copy(device, kn_data_mut(y), host, b->y, b->y_bytes, stream);
    kn_status used = kn_block_use(kn_device_pinned_pool(device), b->pinned, stream);
    KN_TRY(status);
    KN_TRY(used);
    return kn_event_record(b->fetched, stream);
}

/* *out: the tensor, or a view of the part of it that the batch fills. */
static kn_status view_of(kn_tensor **out, kn_tensor **slot, kn_tensor *whole, kn_shape shape) {
    kn_shape full = kn_tensor_shape(whole);
    bool same = full.n_dims == shape.n_dims;
    for (int i = 0; same && i < shape.n_dims; i++) same = full.dim[i] == shape.dim[i];
    *out = whole;
    if (same) return KN_OK;
    KN_TRY(kn_hold(slot, kn_tensor_view(whole, shape, 0)));
    *out = *slot;
    return KN_OK;
}

static kn_shape x_shape_of(const kn_loader *l, const kn__batch_buffer *b) {
    if (l->data->offset && l->options.packed) return KN_SHAPE(b->total);
    if (l->data->offset) return KN_SHAPE(b->n, b->longest);
    return batch_shape(b->n, l->data->x_shape);
}

static kn_status batch_give(kn_loader *l, kn__batch_buffer *b, kn_batch *batch) {
    kn__batch_buffer *holder = on_host(l) ? b : &l->buffer[0];
    KN_FRAME(.device = l->options.device, .record = KN_OFF);
    if (!on_host(l)) KN_TRY(batch_send(l, b, holder->x_tensor, holder->y_tensor));
    *batch = (kn_batch){.n = b->n, .index = l->index};
    KN_TRY(view_of(&batch->x, &l->x_part, holder->x_tensor, x_shape_of(l, b)));
    if (!holder->y_tensor) return KN_OK;
    return view_of(&batch->y, &l->y_part, holder->y_tensor, batch_shape(b->n, l->data->y_shape));
}

static kn_status batch_next(kn_loader *l, kn_batch *batch) {
    if (!l->buffer[0].x_tensor) KN_TRY(tensors_make(l));
    if (l->index == 0 && l->options.split == KN_TRAIN) KN_TRY(shuffle(l));
    kn__batch_buffer *b = &l->buffer[l->index % l->n_buffers];
    if (!kn__prefetch_wait(l, l->index)) {
        KN_TRY(buffer_ready(b));
        kn__batch_gather(l, b, l->index);
    }
    l->current = b;
    KN_TRY(batch_give(l, b, batch));
    l->index++;
    if (!l->options.prefetch || l->index == l->n_batches) return KN_OK;
    b = &l->buffer[l->index % 2];
    KN_TRY(buffer_ready(b));
    kn__prefetch_begin(l, b, l->index);
    return KN_OK;
}

bool kn_loader_next(kn_loader *l, kn_batch *batch) {
    KN_SCOPE("load");
    if (kn_pending() < 0) return false;
    if (l->index >= l->n_batches) {
        kn_loader_rewind(l);
        return false;
    }
    kn_status status = batch_next(l, batch);
    if (status < 0) kn_error_defer(status);
    return status == KN_OK;
}

bool kn_loader_cycle(kn_loader *l, kn_batch *batch) {
    return kn_loader_next(l, batch) || (!kn_pending() && kn_loader_next(l, batch));
}

/* --- places --- */
kn_status kn_loader_place_get(kn_loader_place *out, kn_loader *l) {
    if (!out || !l)
        return KN_FAIL(KN_ERR_INVALID, "kn_loader_place_get: %s is NULL", out ? "loader" : "out");
    kn_loader_place place = {
        .index = l->index * l->options.n_ranks, .n_images = l->data->n, .batch = l->options.batch};
    KN_TRY(kn_rng_state_get(&place.seed, &place.offset, l->rng));
    if (l->index > 0 && l->options.split == KN_TRAIN) place.offset = l->epoch_offset;
    *out = place;
    return KN_OK;
}

int64_t kn__loader_batch_of(const kn_loader *l, int64_t index) {
    const kn_loader_options *o = &l->options;
    int64_t n = l->data->n, all = n / o->batch + (n % o->batch > 0);
    /* Other last batches may be more, but fewer than two for each sample. */
    if (o->partial && index >= all && index < 2 * n) return l->n_batches;
    int64_t batch = index / o->n_ranks;
    return index >= 0 && batch <= l->n_batches ? batch : -1;
}

kn_status kn_loader_place_set(kn_loader *l, const kn_loader_place *place) {
    if (!l || !place)
        return KN_FAIL(KN_ERR_INVALID, "kn_loader_place_set: %s is NULL", l ? "place" : "loader");
    if (place->n_images != l->data->n || place->batch != l->options.batch)
        return KN_FAIL(KN_ERR_INVALID,
                       "the place is of %" PRId64 " samples in batches of %" PRId64
                       "; the loader has %" PRId64 " in batches of %" PRId64,
                       place->n_images, place->batch, l->data->n, l->options.batch);
    int64_t index = kn__loader_batch_of(l, place->index);
    if (index < 0)
        return KN_FAIL(KN_ERR_INVALID, "the place is batch %" PRId64 " of %" PRId64, place->index,
                       l->n_batches);
    kn__prefetch_drop(l);
    KN_TRY(kn_rng_state_set(l->rng, place->seed, place->offset));
    if (index > 0 && l->options.split == KN_TRAIN) KN_TRY(shuffle(l));
    index_set(l, index);
    l->set_index = place->index;
    return KN_OK;
}
