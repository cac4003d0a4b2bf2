/* The inside of a data set. */
#ifndef KN_DATASET_H
#define KN_DATASET_H

#include <dirent.h>
#include <knet/dataset.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

struct kn_dataset {
    _Atomic int refs;
    kn_dataset *whole;    /* the set that this one is a part of: it owns all; NULL: itself does */
    int64_t n, n_classes; /* n_classes 0: y is no class */
    kn_dtype x_dtype;     /* of batches */
    kn_dtype y_dtype;     /* 0: no y */
    kn_shape x_shape;     /* of a sample; of sequences [longest] */
    kn_shape y_shape;     /* of a sample */
    size_t x_bytes, y_bytes; /* of a sample as it is kept; of sequences: of a number */
    bool is_bytes;           /* x is kept as u8, and divided by 255 */
    void *x, *y;             /* malloc's */
    int64_t *offset;         /* of sequences: [n+1] places in x; NULL: all samples have x_shape */
    char **class_name;       /* [n_classes]; NULL: none */
    char *vocab;             /* of a text, as kn_vocab_text; NULL: none */
};

/* An empty set with one reference. NULL: the error is recorded. */
kn_dataset *kn__dataset_new(void);
/* Another reference. */
kn_dataset *kn__dataset_share(kn_dataset *data);
/* Sets y to copies of n labels, and n_classes to what `least` and they ask for. */
kn_status kn__dataset_label(kn_dataset *data, const int64_t labels[], int64_t least);
/* *out = data, or destroys it. */
kn_status kn__dataset_give(kn_dataset **out, kn_dataset *data, kn_status status);

/* Puts the file's name before the last error, unless it has it; INVALID of what a file holds
 * becomes FORMAT. */
kn_status kn__dataset_read_failed(kn_status status, const char *path);

/* Puts the place where to get a file after the last error, if it is one of a missing or wrong file
 * and names no place itself. where NULL: nothing. Returns status. */
kn_status kn__dataset_where(kn_status status, const char *where);
#define KN__FROM_DEBIAN                                                                            \
    "Debian's package dataset-fashion-mnist installs /usr/share/datasets/fashion-mnist (apt-get "  \
    "install dataset-fashion-mnist)"
#define KN__FROM_MNIST                                                                             \
    "MNIST is https://ossci-datasets.s3.amazonaws.com/mnist/train-images-idx3-ubyte.gz, and "      \
    "there "                                                                                       \
    "train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz"
#define KN__FROM_EITHER KN__FROM_DEBIAN "; " KN__FROM_MNIST
#define KN__FROM_CIFAR                                                                             \
    "https://www.cs.toronto.edu/~kriz/cifar.html has the binary versions of CIFAR-10 and "         \
    "CIFAR-100"
#define KN__FROM_IMDB                                                                              \
    "the NPZ file is https://storage.googleapis.com/tensorflow/tf-keras-datasets/imdb.npz, the "   \
    "folder of https://ai.stanford.edu/~amaas/data/sentiment"

/* Orders the entries of a folder by the bytes of their names, in every locale; for scandir. */
int kn__by_name(const struct dirent **a, const struct dirent **b);

/* Bytes of a regular file and a zero after them, malloc'd. Errors: IO, OOM. */
kn_status kn__file_whole(char **out, size_t *n_bytes, const char *path);
/* FORMAT for bytes of which one is zero: no text has one, compressed files and programs do. */
kn_status kn__text_check(const char *text, size_t n_bytes, const char *name);
/* Bytes of the byte-order mark, in UTF-8, that a file's text begins with: 3 or 0. */
static inline size_t kn__mark_bytes(const char *text, size_t n_bytes) {
    return n_bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

/* The readers, of bytes in memory; `name` is for messages. */
/* is_finite: infinite numbers are errors too. */
kn_status kn__csv_parse(kn_dataset **out, char *text, size_t n_bytes, const char *name,
                        const kn_csv_options *options, bool is_finite);

/* kn_dataset_read_images, whose error of a folder that isn't there names no place. */
kn_status kn__dataset_images(kn_dataset **out, const char *dir, kn_split split);
/* Images in the folders DIR/train and DIR/test; the test has the classes and the sizes of the
 * training images. */
kn_status kn__folders_read(kn_dataset **out, const char *dir, kn_split split);
bool kn__folders_are_there(const char *dir);

/* A decoded image: malloc'd bytes [channels,height,width]. */
typedef struct kn__picture {
    int64_t channels, height, width;
    uint8_t *pixels;
} kn__picture;
enum { KN__PICTURE_SIDE_MAX = 16384 };
/* Decodes PNG or JPEG, by its first bytes. channels: 1, 3, or 0: what the file has, without its
 * transparency. Errors: FORMAT, UNSUPPORTED, OOM. */
kn_status kn__picture_decode(kn__picture *out, const uint8_t *bytes, size_t n_bytes,
                             const char *name, int channels);

/* Lists of numbers in a pickle of a NumPy array of them: offset [n+1] and values, malloc'd. */
typedef struct kn__lists {
    int64_t n, *offset, *value;
} kn__lists;
kn_status kn__lists_read(kn__lists *out, const uint8_t *pickle, size_t n_bytes, const char *name);
void kn__lists_release(kn__lists *lists);

#endif
