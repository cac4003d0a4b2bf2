#include "host/pointwise/fused.h"

/* Elements a thread takes at a time: enough work to be worth waking it. */
int64_t kn__row_grain(kn_op op, kn_dtype dtype, int order) {
    bool f32 = dtype == KN_F32;
    switch ((int)op - order) {
#define KN_RARE1(name, ...) case KN_OP_##name:
#define KN_RARE2(name, ...) case KN_OP_##name:
#include <knet/ops.def>
        case KN_OP_pow:
            return 2048;
        case KN_OP_pow_scalar: /* mostly a product or a root */
            return f32 ? 16384 : 4096;
        case KN_OP_exp:
        case KN_OP_log:
        case KN_OP_tanh:
        case KN_OP_sigm:
        case KN_OP_exp2:
        case KN_OP_elu:
        case KN_OP_selu:
            return order ? 32768 : f32 ? 16384 : 4096;
        case KN_OP_lgamma:
            if (!f32 || order) return 2048;
            return 8192;
        case KN_OP_expm1:
        case KN_OP_log1p:
        case KN_OP_log2:
        case KN_OP_log10:
        case KN_OP_sin:
        case KN_OP_cos:
        case KN_OP_erf:
        case KN_OP_erfc:
        case KN_OP_gate:
        case KN_OP_gelu:
        case KN_OP_gelu_tanh:
        case KN_OP_silu:
        case KN_OP_mish:
        case KN_OP_softplus:
        case KN_OP_logsigmoid:
#define KN_VECTOR1(name, ...) case KN_OP_##name:
#define KN_VECTOR2(name, ...) case KN_OP_##name:
#include <knet/ops.def>
            return f32 ? 8192 : 2048;
        default:
            return 32768;
    }
}
