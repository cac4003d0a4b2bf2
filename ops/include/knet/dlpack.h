/* DLPack: tensors shared with NumPy, PyTorch, CuPy, JAX and TensorFlow without a copy.
 *
 * The structs are those of dlpack.h (github.com/dmlc/dlpack), which programs include beside this
 * header: version 0.8, in Python the capsule "dltensor", and version 1, "dltensor_versioned".
 *
 *     struct DLManagedTensor *m = NULL;
 *     KN_TRY(kn_dlpack_export(&m, x));          // the receiver calls m->deleter(m)
 *     kn_tensor *y = kn_dlpack_import(m);       // y owns m
 *
 * Both sides see each other's writes; backward does not notice a write by the other side to a value
 * that it saved. On CUDA data is ready for work on kn_frame_stream(), and must be so when imported.
 */
#ifndef KNET_DLPACK_H
#define KNET_DLPACK_H

#include <knet/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

struct DLManagedTensor;
struct DLManagedTensorVersioned;

/* Exports t's data, which lives until the receiver calls the deleter, from any thread. Errors:
 * INVALID for a tensor that has ended, UNSUPPORTED for a simulated device. */
KN_API KN_MUST_CHECK kn_status kn_dlpack_export(struct DLManagedTensor **out, kn_tensor *t);
KN_API KN_MUST_CHECK kn_status kn_dlpack_export_versioned(struct DLManagedTensorVersioned **out,
                                                          kn_tensor *t);

/* Makes a tensor of the data, on the device where it is. It is copied, on the host, where strides
 * are not row-major, elements not aligned, or writes not allowed. Takes `managed`: its deleter is
 * called after the last use; on failure it stays the caller's. On a GPU that is when the last
 * tensor ends: work that was enqueued before may still read, so the owner reuses the memory in the
 * order of the frames' streams, as PyTorch's pools and ours do. Errors: DTYPE for elements that no
 * kn_dtype fits; UNSUPPORTED for another kind of device or version, or strides on a GPU; DEVICE for
 * a GPU that is not there; SHAPE for dimensions that are negative or too large; FORMAT for
 * inconsistent fields. */
KN_API kn_tensor *kn_dlpack_import(struct DLManagedTensor *managed);
KN_API kn_tensor *kn_dlpack_import_versioned(struct DLManagedTensorVersioned *managed);

#include <knet/sites/dlpack.h>

#ifdef __cplusplus
}
#endif
#endif
