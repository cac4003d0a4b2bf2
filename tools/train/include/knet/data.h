/* Data: labelled images from MNIST's idx files (plain or gzip), or made up, in seeded minibatches.
 *
 *     for (kn_batch b; kn_loader_next(loader, &b);) {
 *         …                                      // b.x [B,1,28,28] f32 in 0 … 1, b.y [B] i64
 *     }
 *     KN_TRY(kn_check());                        // a read error, say
 *
 * A loader reads its files whole when it is created; the order of an epoch depends on the seed and
 * the epoch's number alone. Threads: one at a time.
 */
#ifndef KNET_DATA_H
#define KNET_DATA_H

#include <knet/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A source of minibatches. */
typedef struct kn_loader kn_loader;
/* A minibatch; borrowed until the next kn_loader_next. */
typedef struct kn_batch {
    kn_tensor *x;     /* images */
    kn_tensor *y;     /* labels */
    int64_t n, index; /* number of images; place in the epoch, from 0 */
} kn_batch;

/* The part of the data: train- or t10k- files. */
typedef enum kn_split { KN_TRAIN = 0, KN_TEST = 1 } kn_split;
/* Options of kn_loader_create; may be NULL. */
typedef struct kn_loader_options {
    int64_t batch;     /* 0: 100 */
    uint64_t seed;     /* of the shuffle; a new order every epoch; the test split is not shuffled */
    kn_device *device; /* NULL: the host */
    int rank, n_ranks; /* every rank gets equally many batches; 0, 0: one rank */
    kn_split split;    /* KN_TRAIN is the default */
    int partial;       /* 1: also the last, smaller batch */
    uint64_t reserved[4]; /* zero */
} kn_loader_options;

/* Reads DIR/{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz] whole. Errors: IO for a file that
 * can't be read, FORMAT for a file that is not idx, is truncated, or whose images and labels don't
 * agree; each names the file and the value. INVALID for options that don't fit the data. */
KN_API KN_MUST_CHECK kn_status kn_loader_create(kn_loader **out, const char *dir,
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
KN_API int64_t kn_loader_batches(const kn_loader *loader); /* of one epoch */
KN_API int64_t kn_loader_images(const kn_loader *loader);  /* of the whole split, all ranks */
KN_API int64_t kn_loader_classes(const kn_loader *loader); /* the largest label, plus one */

#ifdef __cplusplus
}
#endif
#endif
