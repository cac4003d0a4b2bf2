/* Data sets of files of tensors. */
#include <knet/file.h>
#include <knet/op.h>
#include <stdlib.h>

#include "checked.h"
#include "dataset.h"

static bool is_label_dtype(kn_dtype dtype) {
    return dtype == KN_I32 || dtype == KN_U8 || dtype == KN_BOOL;
}

/* Labels in a column [n,1] are labels too. */
static kn_tensor *labels_read(kn_file *f, const char *name) {
    kn_tensor *y = kn_file_read(f, name);
    if (y && is_label_dtype(kn_tensor_dtype(y))) y = kn_cast(y, KN_I64);
    kn_shape s = kn_tensor_shape(y);
    bool column = y && kn_tensor_dtype(y) == KN_I64 && s.n_dims == 2 && s.dim[1] == 1;
    return column ? kn_reshape(y, KN_SHAPE(s.dim[0])) : y;
}

static kn_status arrays_read(kn_dataset **out, kn_file *f, const char *path, const char *x_name,
                             const char *y_name) {
    KN_FRAME(.device = kn_device_host(), .record = KN_OFF);
    kn_tensor *x = kn_file_read(f, x_name);
    kn_tensor *y = x && y_name ? labels_read(f, y_name) : NULL;
    KN_TRY(kn_check());
    kn_status status = kn_dataset_create(out, x, y, 0);
    return status < 0 ? kn__dataset_read_failed(status, path) : KN_OK;
}

kn_status kn_dataset_read_npz(kn_dataset **out, const char *path, const char *x_name,
                              const char *y_name) {
    kn_file *f = NULL;
    if (!x_name) return KN_FAIL(KN_ERR_INVALID, "kn_dataset_read_npz: x_name is NULL");
    KN_TRY(kn_file_open(&f, path));
    kn_status status = arrays_read(out, f, path, x_name, y_name);
    kn_file_close(f);
    return status;
}
