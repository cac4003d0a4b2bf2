/* Constants: names and sizes of dtypes; KN_NONE. */
#include "kernel.h"
#include "thread.h"

struct kn_tensor kn__none = {.owned = UINT32_MAX, .state = KN_TENSOR_CONSUMED};
kn_tensor *const KN_NONE = &kn__none;

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {[0] = {"no dtype", 0}, [KN_F32] = {"f32", 4},   [KN_F64] = {"f64", 8},
              [KN_F16] = {"f16", 2}, [KN_BF16] = {"bf16", 2}, [KN_I64] = {"i64", 8},
              [KN_I32] = {"i32", 4}, [KN_U8] = {"u8", 1},     [KN_BOOL] = {"bool", 1}};

static bool dtype_known(kn_dtype dtype) { return dtype >= KN_F32 && dtype <= KN_BOOL; }
const char *kn_dtype_name(kn_dtype dtype) { return dtypes[dtype_known(dtype) ? dtype : 0].name; }
size_t kn_dtype_bytes(kn_dtype dtype) { return dtypes[dtype_known(dtype) ? dtype : 0].bytes; }
