/* Which tensors of a file are cast to the program's dtype. */
#include <knet/op.h>
#include <math.h>

#include "checkpoint.h"

static bool is_float(kn_dtype dtype) { return KN_CLASS_FLOAT >> dtype & 1; }

/* Of the file's elements, finite as they are; refused where the cast makes them infinite. */
static kn_status range_check(kn_file *f, int i, const char *path, const kn_named *want) {
    KN_FRAME(.device = kn_device_host(), .record = KN_OFF);
    kn_dtype dtype = kn_tensor_dtype(want->tensor);
    kn_tensor *from = kn_file_read(f, kn_file_name(f, i));
    kn_tensor *to = kn_cast(kn_cast(from, dtype), KN_F64);
    const double *before = kn_data(kn_cast(from, KN_F64)), *after = kn_data(to);
    KN_TRY(kn_check());
    for (int64_t k = 0; k < kn_tensor_numel(to); k++)
        if (isinf(after[k]) && isfinite(before[k]))
            return KN_FAIL(KN_ERR_INVALID, "%s: '%s' has %g, which is beyond the range of %s", path,
                           want->name, before[k], kn_dtype_name(dtype));
    return KN_OK;
}

/* Whether all numbers of the dtype are in the range of the other. */
static bool range_has(kn_dtype other, kn_dtype dtype) {
    return other == KN_F64 || dtype == KN_F16 || (other == KN_F32 && dtype == KN_BF16);
}

/* Not cast are those of a run that might continue with other bits. */
kn_status kn__cast_check(kn_file *f, int i, const char *path, const kn_named *want) {
    kn_dtype dtype = kn_file_dtype(f, i), expected = kn_tensor_dtype(want->tensor);
    if (dtype == expected) return KN_OK;
    bool is_run = kn_file_metadata(f, KN__METHOD) != NULL,
         floats = is_float(dtype) && is_float(expected);
    if (floats && !is_run)
        return range_has(expected, dtype) ? KN_OK : range_check(f, i, path, want);
    return KN_FAIL(KN_ERR_INVALID, "%s: '%s' is %s; the program's is %s%s", path, want->name,
                   dtype ? kn_dtype_name(dtype) : "of an unknown dtype", kn_dtype_name(expected),
                   floats ? " (a file with an optimiser's state is not cast)" : "");
}
