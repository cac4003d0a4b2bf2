/* Filling a batch from the samples. */
#include <string.h>

#include "loader.h"
#include "mix.h"

static void pixels_convert(float *restrict to, const uint8_t *restrict from, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = (float)from[i] * (1.0f / 255.0f);
}

/* Which sample is this rank's i-th of the epoch. */
static int64_t sample_at(const kn_loader *l, int64_t i) {
    return l->order[i * l->options.n_ranks + l->options.rank];
}

/* The next samples lie anywhere in memory, where the processor can't foresee them: asking for them
 * two ahead halves the time of a batch. */
static void sample_prefetch(const char *sample, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i += 64) __builtin_prefetch(sample + i);
}

/* --- augmentation --- */

/* Row by row: to[x] = from[x + dx], or of the mirrored row; zeros beyond the edges. */
static void row_move(float *to, const float *from, int64_t width, int64_t dx, bool flip) {
    for (int64_t x = 0; x < width; x++) {
        int64_t at = (flip ? width - 1 - x : x) + dx;
        to[x] = at >= 0 && at < width ? from[at] : 0;
    }
}

static void image_move(float *to, const float *from, const kn_shape *s, int64_t dx, int64_t dy,
                       bool flip) {
    int64_t height = s->dim[1], width = s->dim[2];
    for (int64_t i = 0; i < s->dim[0] * height; i++) {
        int64_t y = i % height + dy;
        if (y < 0 || y >= height)
            memset(to + i * width, 0, (size_t)width * sizeof *to);
        else
            row_move(to + i * width, from + (i + dy) * width, width, dx, flip);
    }
}

/* The changes of a sample follow from the seed, the epoch and its place in it. The place is hashed:
 * else the sequence of one sample would be that of the one before, from its second number on. */
static void image_augment(const kn_loader *l, float *image, int64_t place) {
    const kn_augment *a = l->options.augment;
    const kn_shape *s = &l->data->x_shape;
    uint64_t epoch = kn__mix(l->options.seed ^ kn__mix(l->epoch_offset + KN__GOLDEN));
    uint64_t state = kn__mix(epoch + (uint64_t)place * KN__GOLDEN);
    uint64_t range = 2 * (uint64_t)a->crop + 1;
    int64_t dx = (int64_t)(kn__splitmix(&state) % range) - a->crop;
    int64_t dy = (int64_t)(kn__splitmix(&state) % range) - a->crop;
    bool flip = a->flip && kn__splitmix(&state) >> 63;
    if (!dx && !dy && !flip) return;
    memcpy(l->scratch, image, (size_t)(s->dim[0] * s->dim[1] * s->dim[2]) * sizeof *image);
    image_move(image, l->scratch, s, dx, dy, flip);
}

/* --- samples of one shape --- */

static void whole_gather(const kn_loader *l, kn__batch_buffer *b, int64_t first) {
    const kn_dataset *d = l->data;
    size_t x_bytes = d->x_bytes * (d->is_bytes ? sizeof(float) : 1);
    for (int64_t i = 0; i < b->n; i++) {
        const char *x = (char *)d->x + (size_t)sample_at(l, first + i) * d->x_bytes;
        if (first + i + 2 < l->n_mine)
            sample_prefetch((char *)d->x + (size_t)sample_at(l, first + i + 2) * d->x_bytes,
                            d->x_bytes);
        void *to = (char *)b->x + (size_t)i * x_bytes;
        if (d->is_bytes)
            pixels_convert(to, (const uint8_t *)x, (int64_t)d->x_bytes);
        else
            memcpy(to, x, x_bytes);
        if (l->options.augment)
            image_augment(l, to, (first + i) * l->options.n_ranks + l->options.rank);
    }
    b->x_bytes = (size_t)b->n * x_bytes;
}

/* --- sequences --- */

static void sequences_measure(const kn_loader *l, kn__batch_buffer *b, int64_t first) {
    const int64_t *offset = l->data->offset;
    b->longest = b->total = 0;
    for (int64_t i = 0; i < b->n; i++) {
        int64_t sample = sample_at(l, first + i);
        b->lengths[i] = offset[sample + 1] - offset[sample];
        b->total += b->lengths[i];
        if (b->lengths[i] > b->longest) b->longest = b->lengths[i];
    }
}

static void sequences_gather(const kn_loader *l, kn__batch_buffer *b, int64_t first) {
    const kn_dataset *d = l->data;
    bool packed = l->options.packed;
    sequences_measure(l, b, first);
    int64_t *to = b->x;
    for (int64_t i = 0; i < b->n; i++) {
        const int64_t *from = (int64_t *)d->x + d->offset[sample_at(l, first + i)];
        if (b->lengths[i]) memcpy(to, from, (size_t)b->lengths[i] * sizeof *to);
        to += b->lengths[i];
        if (packed) continue;
        int64_t rest = b->longest - b->lengths[i];
        if (rest) memset(to, 0, (size_t)rest * sizeof *to);
        to += rest;
    }
    b->x_bytes = (size_t)(to - (int64_t *)b->x) * sizeof *to;
}

void kn__batch_gather(const kn_loader *l, kn__batch_buffer *b, int64_t index) {
    const kn_dataset *d = l->data;
    int64_t first = index * l->options.batch, left = l->n_mine - first;
    b->n = left < l->options.batch ? left : l->options.batch;
    b->index = index;
    if (d->offset)
        sequences_gather(l, b, first);
    else
        whole_gather(l, b, first);
    b->y_bytes = (size_t)b->n * d->y_bytes;
    for (int64_t i = 0; d->y && i < b->n; i++)
        memcpy((char *)b->y + (size_t)i * d->y_bytes,
               (char *)d->y + (size_t)sample_at(l, first + i) * d->y_bytes, d->y_bytes);
}
