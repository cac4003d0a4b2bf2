/* Data: seeded minibatches of a data set in memory (dataset.h): images, tables, texts, arrays.
 *
 *     for (kn_batch b; kn_loader_next(loader, &b);) {
 *         …                                      // b.x [B,C,H,W] f32 in 0 … 1, b.y [B] i64
 *     }
 *     KN_TRY(kn_check());                        // a read error, say
 *
 * The order of an epoch and what augmentation does to it depend on the seed and the epoch's number
 * alone, with or without a thread that prefetches; a child of fork continues without that thread.
 * Threads: one at a time.
 */
#ifndef KNET_DATA_H
#define KNET_DATA_H

#include <knet/dataset.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A source of minibatches. */
typedef struct kn_loader kn_loader;
/* A minibatch; borrowed until the next kn_loader_next. */
typedef struct kn_batch {
    kn_tensor *x;     /* [B,…]: images, say */
    kn_tensor *y;     /* [B] labels, or [B,…]; NULL: the data has none */
    int64_t n, index; /* number of samples; place in the epoch, from 0 */
} kn_batch;

/* Random changes of training images, f32 [C,H,W]; others for each sample and epoch. */
typedef struct kn_augment {
    int flip;             /* 1: half of them are mirrored left to right */
    int64_t crop;         /* moved by up to so many pixels each way; zeros come in from the edges */
    uint64_t reserved[3]; /* zero */
} kn_augment;
/* Options of kn_loader_create; may be NULL. */
typedef struct kn_loader_options {
    int64_t batch;     /* 0: 100 */
    uint64_t seed;     /* of the shuffle; a new order every epoch; the test split is not shuffled */
    kn_device *device; /* NULL: the host */
    /* of n_ranks, each of which gets equally many samples; of a test split with `partial` the first
     * ranks get one more where that leaves none out */
    int rank;
    int n_ranks;               /* 0: one */
    kn_split split;            /* KN_TRAIN is the default */
    int partial;               /* 1: also the last, smaller batch */
    const kn_augment *augment; /* of the training split; read at once; NULL: none */
    int prefetch;              /* 1: a thread fills the next batch: for GPUs, or slow data */
    /* 1: sequences one after the other, x [sum of lengths]; 0: x [B,longest], padded with zeros at
     * the ends */
    int packed;
    /* 1: the training split is not shuffled; its order is that of the data. 2: nor is it; each of
     * `batch` rows reads a part of its own of the data: a row's sample follows that of the same row
     * in the batch before, as texts want that are longer than a sample */
    int ordered;
    uint64_t reserved[1]; /* zero */
} kn_loader_options;

/* Reads DIR/{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz] whole, or, where DIR has any of them,
 * CIFAR-10's data_batch_{1..5}.bin and test_batch.bin, or CIFAR-100's train.bin and test.bin (fine
 * labels), as [3,32,32], or, where it has none of these, DIR/{train,test}/CLASS/IMAGE as PNG and
 * JPEG files. Errors: IO for a file that
 * can't be read, FORMAT for a file that is not idx, is truncated, or whose images and labels don't
 * agree; each names the file and the value. INVALID for options that don't fit the data. */
KN_API KN_MUST_CHECK kn_status kn_loader_create(kn_loader **out, const char *dir,
                                                const kn_loader_options *options);
/* Shares a data set. Errors: INVALID for options that don't fit it. */
KN_API KN_MUST_CHECK kn_status kn_loader_create_from(kn_loader **out, kn_dataset *data,
                                                     const kn_loader_options *options);
/* Makes up n images [1,28,28] of ten separable classes; needs no files. */
KN_API KN_MUST_CHECK kn_status kn_loader_create_synthetic(kn_loader **out, int64_t n,
                                                          const kn_loader_options *options);
/* Destroys the loader and its batch. No-op on NULL. */
KN_API void kn_loader_destroy(kn_loader *loader);
/* Reads the next batch. False at the end of the epoch (the next call begins another), or on an
 * error, which is then pending. */
KN_API bool kn_loader_next(kn_loader *loader, kn_batch *batch);
/* Ends the epoch early: the next call begins another. */
KN_API void kn_loader_rewind(kn_loader *loader);
/* Reads the next batch; after the last one of an epoch, the first of the next. False on an error
 * alone, which is then pending. */
KN_API bool kn_loader_cycle(kn_loader *loader, kn_batch *batch);
/* Epochs have at most n batches from the next one on: a part of a shuffled one, another each time.
 * 0: all. */
KN_API void kn_loader_take(kn_loader *loader, int64_t n);
/* Of sequences: the lengths of the last batch's, [n], on the host; borrowed until the next one.
 * Else NULL. For kn_rnn_options.lengths. */
KN_API const int64_t *kn_loader_lengths(const kn_loader *loader);
/* Where the loader is, for checkpoints: a loader with the same data and options that is set to it
 * gives the same batches from here on. */
typedef struct kn_loader_place {
    uint64_t seed, offset;   /* of the shuffle's random numbers when the epoch began */
    int64_t index;           /* of the next batch, counted over all ranks */
    int64_t n_images, batch; /* of its data and options: these must agree */
} kn_loader_place;
/* Gives the place of the next batch. */
KN_API KN_MUST_CHECK kn_status kn_loader_place_get(kn_loader_place *out, kn_loader *loader);
/* The place may be another number of ranks': its batches are divided among these, rounded down;
 * where the others had all samples, the epoch is at its end. Errors: INVALID for the place of other
 * data, or of other batches. */
KN_API KN_MUST_CHECK kn_status kn_loader_place_set(kn_loader *loader, const kn_loader_place *place);
KN_API int64_t kn_loader_batches(const kn_loader *loader); /* of the epoch, or the next one */
KN_API int64_t kn_loader_images(const kn_loader *loader);  /* samples, of all ranks */
KN_API int64_t
kn_loader_classes(const kn_loader *loader); /* the largest label, plus one; 0: none */
/* The data; borrowed. */
KN_API kn_dataset *kn_loader_dataset(kn_loader *loader);

#include <knet/sites/data.h>

#ifdef __cplusplus
}
#endif
#endif
