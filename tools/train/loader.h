/* The inside of a loader. */
#ifndef KN_LOADER_H
#define KN_LOADER_H

#include <knet/data.h>

#include "dataset.h"

/* Room for a batch: the tensor's own memory on the host, else page-locked memory. */
typedef struct kn__batch_buffer {
    void *x, *y;                      /* written by kn__batch_gather */
    int64_t *lengths;                 /* [batch] of sequences; else NULL */
    int64_t n, longest, total, index; /* samples; of their lengths; place in the epoch */
    size_t x_bytes, y_bytes;          /* filled */
    kn_tensor *x_tensor, *y_tensor;   /* slots; of a device only the first buffer's */
    void *pinned;
    kn_event *fetched;
} kn__batch_buffer;

typedef struct kn__prefetch kn__prefetch;

struct kn_loader {
    kn_loader_options options;
    kn_augment augment;
    kn_dataset *data;
    int64_t n_mine, n_all; /* samples and batches of this rank */
    int64_t n_batches;     /* of the epoch */
    int64_t n_next;        /* of the next ones */
    int64_t index;         /* of the next batch */
    int64_t set_index;     /* of the place that was set last, over all of its ranks */
    uint64_t epoch_offset; /* of rng before the shuffle of the epoch */
    uint32_t *order;       /* [n]: the epoch's permutation, the same on every rank */
    kn_rng *rng;
    kn__batch_buffer buffer[2];
    int n_buffers;
    const kn__batch_buffer *current; /* of the last batch; NULL: none yet */
    kn_tensor *x_part, *y_part;      /* slots: views of a batch that doesn't fill its tensors */
    float *scratch;                  /* an image, for augmentation */
    kn__prefetch *prefetch;
};

/* Fills the buffer with batch `index` of the epoch; any thread. */
void kn__batch_gather(const kn_loader *l, kn__batch_buffer *b, int64_t index);

/* This rank's batch at a place, which another number of ranks saved, perhaps: where they had all
 * samples it is the end of the epoch. -1: no epoch has the place. */
int64_t kn__loader_batch_of(const kn_loader *l, int64_t index);

/* Notes the batch for reports, which tell what batch would fit into other memory. */
void kn__loader_note(const kn_loader *l);

/* --- the thread; all from the loader's own. A child of fork has none: it fills its batches itself
 * --- */
kn_status kn__prefetch_start(kn_loader *l);
/* Ends and joins it; no-op without one. */
void kn__prefetch_stop(kn_loader *l);
/* Begins to fill the buffer, which is ready for it. */
void kn__prefetch_begin(kn_loader *l, kn__batch_buffer *b, int64_t index);
/* Waits for the batch that was begun; returns whether it was this one. */
bool kn__prefetch_wait(kn_loader *l, int64_t index);
/* Waits, and forgets it. */
void kn__prefetch_drop(kn_loader *l);

#endif
