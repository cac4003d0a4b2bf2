/* Data sets in memory: samples of arrays, files and folders, for the loaders of data.h.
 *
 *     kn_dataset *file = NULL, *all = NULL, *train = NULL, *test = NULL;
 *     KN_TRY(kn_dataset_read_csv(&file, "iris.csv", NULL));
 *     KN_TRY(kn_dataset_shuffle(&all, file, 1));
 *     int64_t n = kn_dataset_size(all);
 *     KN_TRY(kn_dataset_take(&train, all, 0, n - 30));
 *     KN_TRY(kn_dataset_take(&test, all, n - 30, 30));
 *     KN_TRY(kn_loader_create_from(&loader, train, &(kn_loader_options){.batch = 10}));
 *
 * A sample is x and, unless the set has none, y: each of any dtype and shape.
 * Images are kept as bytes and become f32 in 0 … 1 in a batch. The x of a *sequence* is a row of
 * numbers of its own length. Readers check a file as a whole; a FORMAT error names the file, the
 * line or byte, and the value. Loaders share the set. Threads: any number may read; create and
 * destroy need exclusive access.
 */
#ifndef KNET_DATASET_H
#define KNET_DATASET_H

#include <knet/ops.h>
#include <knet/vocab.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Samples in memory. */
typedef struct kn_dataset kn_dataset;

/* The part of the data: train- or t10k- files, the folders "train" and "test". */
typedef enum kn_split { KN_TRAIN = 0, KN_TEST = 1 } kn_split;

/* --- from memory --- */
/* Copies x [n,…] and y [n,…], which may be NULL, of any dtype and device. Labels of dtype KN_I64
 * [n] are classes 0 … n_classes - 1; n_classes 0: the largest label, plus one. Errors: SHAPE if x
 * and y have another n, or none; INVALID for a label that is negative or too large. */
KN_API KN_MUST_CHECK kn_status kn_dataset_create(kn_dataset **out, kn_tensor *x, kn_tensor *y,
                                                 int64_t n_classes);
/* n sequences of numbers, of which the i-th is values[offset[i]] … values[offset[i+1] - 1]; labels
 * [n], or NULL. Copies. Errors: INVALID if offsets fall, or don't begin with 0. */
KN_API KN_MUST_CHECK kn_status kn_dataset_create_sequences(kn_dataset **out, const int64_t values[],
                                                           const int64_t offset[], int64_t n,
                                                           const int64_t labels[]);
/* Options of kn_dataset_create_synthetic. */
typedef struct kn_synthetic_options {
    kn_shape shape;       /* of a sample, required */
    int64_t n_classes;    /* 0: 10 */
    int64_t words;        /* samples are KN_I64 in 0 … words - 1; 0: f32 in 0 … 1 */
    kn_split split;       /* the splits have the same classes and other samples */
    uint64_t seed;        /* of both */
    uint64_t reserved[4]; /* zero */
} kn_synthetic_options;
/* Makes up n samples of separable classes. */
KN_API KN_MUST_CHECK kn_status kn_dataset_create_synthetic(kn_dataset **out, int64_t n,
                                                           const kn_synthetic_options *options);
/* Samples first … first + n - 1 of another set, which it shares. */
KN_API KN_MUST_CHECK kn_status kn_dataset_take(kn_dataset **out, kn_dataset *from, int64_t first,
                                               int64_t n);
/* Copies of samples index[0] … index[n - 1] of another set, in that order; one may come several
 * times. INVALID for n below 1, and an index outside of the set. */
KN_API KN_MUST_CHECK kn_status kn_dataset_pick(kn_dataset **out, kn_dataset *from,
                                               const int64_t index[], int64_t n);
/* Copies of all samples in a random order, which follows from the seed: to split a sorted set. */
KN_API KN_MUST_CHECK kn_status kn_dataset_shuffle(kn_dataset **out, kn_dataset *from,
                                                  uint64_t seed);
/* The samples of another set, which it shares, with an x of shape `x` and a y of shape `y`; NULL:
 * as they are. So the 784 numbers of a row become an image [1,28,28], as with Knet's xsize. Errors:
 * SHAPE for another number of elements, and for more than 7 dimensions, as the batch is one more;
 * UNSUPPORTED for the x of sequences and the y of classes. */
KN_API KN_MUST_CHECK kn_status kn_dataset_reshape(kn_dataset **out, kn_dataset *from,
                                                  const kn_shape *x, const kn_shape *y);
/* Destroys the set; loaders and parts of it stay valid. No-op on NULL. */
KN_API void kn_dataset_destroy(kn_dataset *data);

/* --- from files --- */
/* Reads labelled images: idx files of the MNIST family (plain or gzip), CIFAR-10's or CIFAR-100's
 * binary files (kn_loader_create names them), else what kn_dataset_read_folder finds in DIR/train
 * or DIR/test. The test has the classes, the size and the channels of DIR/train; a class that only
 * DIR/test has is a FORMAT error. */
KN_API KN_MUST_CHECK kn_status kn_dataset_read_images(kn_dataset **out, const char *dir,
                                                      kn_split split);
/* Options of kn_dataset_read_folder; may be NULL. */
typedef struct kn_folder_options {
    int64_t height, width; /* images are scaled to it, bilinearly; 0: the first image's */
    int64_t channels;      /* 1: grey, 3: colour; 0: the first image's */
    uint64_t reserved[4];  /* zero */
} kn_folder_options;
/* Reads DIR/CLASS/IMAGE, PNG or JPEG: classes in the order of their names' bytes, images too.
 * Pixels are the bytes of the file: of 16 bits the upper 8, without gamma and transparency; grey of
 * colour is 0.299 R + 0.587 G + 0.114 B, and CMYK becomes RGB. Errors: UNSUPPORTED for a format
 * whose library this build lacks. */
KN_API KN_MUST_CHECK kn_status kn_dataset_read_folder(kn_dataset **out, const char *dir,
                                                      const kn_folder_options *options);
/* Reads two arrays of an NPZ or safetensors file, as kn_dataset_create. y_name NULL: no labels.
 * Labels of every integer dtype and of KN_BOOL become KN_I64. Errors: as kn_file_read. */
KN_API KN_MUST_CHECK kn_status kn_dataset_read_npz(kn_dataset **out, const char *path,
                                                   const char *x_name, const char *y_name);
/* Options of kn_dataset_read_csv; may be NULL. */
typedef struct kn_csv_options {
    char delimiter; /* 0: ',' */
    int target;     /* the column of y, from 1; negative: from the right; 0: the last one */
    int no_target;  /* 1: all columns are x */
    int regression; /* 1: y is f32 [n,1]; 0: a class */
    /* 1: the first line has names, -1: it has not; 0: it has, if a column of x in it is a text */
    int header;
    /* 1: fields of x that are empty, NA or NaN are NaN; 0: they are an error, as in a target
     * always, where NA and NaN are classes only if another class is a text */
    int missing;
    uint64_t reserved[4]; /* zero */
} kn_csv_options;
/* Reads lines of numbers: x f32 [n,columns]. The classes of y may be any text, without the spaces
 * at its ends; they are numbered by their order as numbers if all are decimals of up to 15 digits
 * ("1" and "1.0" are then one class), else as text. Fields may be quoted; lines end in LF, CR LF or
 * CR; empty lines and a byte-order mark are skipped. Errors: IO; FORMAT with the line of a field
 * that is missing or no number, or beyond the range of f32, for a file of the target alone, which
 * may have another delimiter, and for a zero byte; INVALID for a target that the file doesn't have.
 */
KN_API KN_MUST_CHECK kn_status kn_dataset_read_csv(kn_dataset **out, const char *path,
                                                   const kn_csv_options *options);
/* Reads a text as samples of `length` words or characters: x [length], and y the same, one further
 * on. Makes *vocab of it if that is NULL, by `options` (NULL: characters). A byte-order mark is
 * skipped. Checkpoints with a loader of the set hold the vocabulary. Errors: IO; FORMAT for a text
 * without a sample, and for a zero byte, which no text has. */
KN_API KN_MUST_CHECK kn_status kn_dataset_read_text(kn_dataset **out, kn_vocab **vocab,
                                                    const char *path, int64_t length,
                                                    const kn_vocab_options *options);
/* Options of kn_dataset_read_imdb; may be NULL. */
typedef struct kn_imdb_options {
    int64_t words;  /* words beyond the most frequent ones are unknown; 0: all */
    int64_t length; /* of longer reviews the last words; 0: all */
    /* of the raw folders: made of the training reviews unless it is one; NULL: not wanted */
    kn_vocab **vocab;
    uint64_t reserved[4]; /* zero */
} kn_imdb_options;
/* Reads film reviews (Maas et al. 2011) as sequences with class 0, negative, or 1: Keras's
 * imdb.npz, or the folder aclImdb with its train/pos, train/neg …. Words of the NPZ file have
 * Keras's numbers plus 3, after 0 padding, 1 start and 2 unknown, as there. Byte-order marks of the
 * folder's texts are skipped. Errors: IO; FORMAT with the review of a label other than 0 and 1, and
 * for a zero byte in a text. */
KN_API KN_MUST_CHECK kn_status kn_dataset_read_imdb(kn_dataset **out, const char *path,
                                                    kn_split split, const kn_imdb_options *options);

/* --- contents --- */
KN_API int64_t kn_dataset_size(const kn_dataset *data);    /* samples */
KN_API int64_t kn_dataset_classes(const kn_dataset *data); /* 0: y is no class */
/* The name of a class; NULL if classes have none. */
KN_API const char *kn_dataset_class_name(const kn_dataset *data, int64_t i);
/* The shape of a sample's x; of sequences [longest]. */
KN_API kn_shape kn_dataset_shape(const kn_dataset *data);
KN_API int kn_dataset_is_sequence(const kn_dataset *data); /* whether samples have lengths */
/* Copies of x [n,…] and y [n,…] of all samples, as batches have them: to find means and spreads,
 * and to make another set with kn_dataset_create. y: NULL without an error if there is none.
 * UNSUPPORTED for the x of sequences. */
KN_API kn_tensor *kn_dataset_x(const kn_dataset *data);
KN_API kn_tensor *kn_dataset_y(const kn_dataset *data);
/* A hash of dtypes and shapes, of all classes and lengths, and of up to a MiB of x and y: one that
 * differs is of other data. Milliseconds. */
KN_API uint64_t kn_dataset_hash(const kn_dataset *data);

#include <knet/sites/dataset.h>

#ifdef __cplusplus
}
#endif
#endif
