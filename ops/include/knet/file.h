/* Files of tensors: NumPy's NPY and NPZ, and safetensors.
 *
 * A file is opened whatever its format: a tensor of an NPY file has the name "", one of an NPZ file
 * its member's name without ".npy".
 *
 *     kn_file *f = NULL;
 *     KN_TRY(kn_file_open(&f, "model.safetensors"));
 *     kn_tensor *w = kn_file_read(f, "layer1.weight");
 *     kn_file_close(f);                                  // w stays
 *
 * Reading converts integers that no kn_dtype fits: int8, int16 and uint16 become KN_I32; uint32 and
 * uint64 become KN_I64. It also swaps the bytes of big-endian NPY arrays.
 *
 * A file is checked as a whole before any tensor of it is read: sizes, offsets, overlaps, gaps,
 * names that occur twice. A FORMAT error names the file, the place and the values. Files are
 * written beside an older one, which they replace when they are complete. Threads: one at a time
 * for a kn_file.
 */
#ifndef KNET_FILE_H
#define KNET_FILE_H

#include <knet/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An open file. */
typedef struct kn_file kn_file;

/* Opens a file and reads its list of tensors, but no tensor. Errors: IO, FORMAT, OOM;
 * INVALID for a path that is NULL or empty. */
KN_API KN_MUST_CHECK kn_status kn_file_open(kn_file **out, const char *path);
/* The same for the bytes of a file in memory, borrowed until kn_file_close; `name` is for messages.
 */
KN_API KN_MUST_CHECK kn_status kn_file_open_bytes(kn_file **out, const void *bytes, size_t n_bytes,
                                                  const char *name);
/* Closes the file; tensors that were read stay. No-op on NULL. */
KN_API void kn_file_close(kn_file *f);

/* The number of tensors; the name, shape and dtype of each. Names are borrowed until the file is
 * closed. The dtype is the one that kn_file_read returns: KN_I32 for uint16. It is 0 if
 * kn_file_read has none to return, as for complex numbers and NumPy's records, and for more than 8
 * dimensions, where the shape is []. */
KN_API int kn_file_count(const kn_file *f);
KN_API const char *kn_file_name(const kn_file *f, int i);
KN_API kn_shape kn_file_shape(const kn_file *f, int i);
KN_API kn_dtype kn_file_dtype(const kn_file *f, int i);
/* The index of a name, or -1. */
KN_API int kn_file_find(const kn_file *f, const char *name);
/* The text of a key of a safetensors file's metadata, borrowed until the file is closed; NULL if it
 * is absent. */
KN_API const char *kn_file_metadata(const kn_file *f, const char *key);

/* Reads a tensor to the frame's device. On the host a tensor of a safetensors or NPY file is
 * mapped: pages are read when they are used, and writes stay in memory. Such a file must not be
 * shortened while its tensors live; replacing it is safe. Elements that are converted, not aligned
 * or in Fortran order are copied. Errors: INVALID for a name that the file lacks, and for a uint64
 * above INT64_MAX; DTYPE for complex numbers, texts, objects, 8-bit floats and other elements that
 * no kn_dtype fits; SHAPE for more than 8 dimensions; FORMAT for a wrong checksum or damaged
 * compression; OOM. */
KN_API kn_tensor *kn_file_read(kn_file *f, const char *name);
/* The bytes of a tensor as they are in the file, KN_U8 [bytes] on the host: for elements that
 * kn_file_read rejects, such as the pickled objects of an NPZ file. */
KN_API kn_tensor *kn_file_read_bytes(kn_file *f, const char *name);

/* Reads an NPY file. */
KN_API kn_tensor *kn_npy_load(const char *path);
/* Writes an NPY file. NumPy has no bf16: that is a DTYPE error. Errors of all that write, besides:
 * IO, with the path; OOM; INVALID for a path that is NULL or empty. */
KN_API KN_MUST_CHECK kn_status kn_npy_save(const char *path, kn_tensor *t);

/* A tensor and its name in a file. */
typedef struct kn_named {
    const char *name;  /* borrowed */
    kn_tensor *tensor; /* on any device */
} kn_named;
/* Options of kn_npz_save. */
typedef struct kn_npz_options {
    int compress;         /* 1: deflate, as np.savez_compressed does; 0: as np.savez */
    uint64_t reserved[4]; /* zero */
} kn_npz_options;
/* Writes an NPZ file. NULL options: the defaults. Errors: INVALID for a name that is empty, is
 * not UTF-8 or occurs twice. */
KN_API KN_MUST_CHECK kn_status kn_npz_save(const char *path, const kn_named tensors[], int n,
                                           const kn_npz_options *options);
/* Writes a safetensors file. `metadata` holds n_metadata pairs of a key and a text, or is NULL.
 * Tensors are ordered by the size of their elements and by name, so that each is aligned. Errors:
 * INVALID for a name or a key that occurs twice, and for texts that are not UTF-8. */
KN_API KN_MUST_CHECK kn_status kn_safetensors_save(const char *path, const kn_named tensors[],
                                                   int n, const char *const metadata[][2],
                                                   int n_metadata);

#include <knet/sites/file.h>

#ifdef __cplusplus
}
#endif
#endif
