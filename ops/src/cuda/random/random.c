/* Random ops: their state is read by the kernels, from device memory. */
#include "cuda/base/module.h"
#include "philox.h"

kn_status kn__cuda_rng_take(kn_op_call *call) {
    const kn_attr_scalars *attr = call->attr;
    int64_t advance = (int64_t)kn__philox_counters((int64_t)attr->a);
    return KN__CUDA_NAMED(
        "rng_take_kernel",
        kn__launch_rng_take(call->out[0]->data, call->in[0]->data, advance, call->stream));
}

kn_status kn__cuda_uniform(kn_op_call *call) {
    const kn_attr_make *attr = call->attr;
    const kn_tensor *out = call->out[0];
    return KN__CUDA_NAMED("uniform_kernel",
                          kn__launch_uniform(out->data, (kn_dtype)out->dtype, out->n, attr->a,
                                             attr->b, call->in[0]->data, call->stream));
}

kn_status kn__cuda_normal(kn_op_call *call) {
    const kn_attr_make *attr = call->attr;
    const kn_tensor *out = call->out[0];
    return KN__CUDA_NAMED("normal_kernel",
                          kn__launch_normal(out->data, (kn_dtype)out->dtype, out->n, attr->a,
                                            attr->b, call->in[0]->data, call->stream));
}

kn_status kn__cuda_dropout(kn_op_call *call) {
    const kn_attr_scalars *attr = call->attr;
    const kn_tensor *out = call->out[0];
    return KN__CUDA_NAMED("dropout_kernel",
                          kn__launch_dropout(out->data, call->in[0]->data, (kn_dtype)out->dtype,
                                             out->n, attr->a, call->in[1]->data, call->stream));
}

kn_status kn__cuda_exponential(kn_op_call *call) {
    const kn_attr_make *attr = call->attr;
    const kn_tensor *out = call->out[0];
    return KN__CUDA_NAMED("exponential_kernel",
                          kn__launch_exponential(out->data, (kn_dtype)out->dtype, out->n, attr->a,
                                                 call->in[0]->data, call->stream));
}

kn_status kn__cuda_bernoulli(kn_op_call *call) {
    const kn_attr_make *attr = call->attr;
    const kn_tensor *out = call->out[0];
    return KN__CUDA_NAMED("bernoulli_kernel",
                          kn__launch_bernoulli(out->data, (kn_dtype)out->dtype, out->n, attr->a,
                                               call->in[0]->data, call->stream));
}

kn_status kn__cuda_integers(kn_op_call *call) {
    const kn_attr_make *attr = call->attr;
    const kn_tensor *out = call->out[0];
    int64_t lo = (int64_t)attr->a;
    uint64_t range = (uint64_t)((int64_t)attr->b - lo);
    return KN__CUDA_NAMED("integers_kernel", kn__launch_integers(out->data, out->n, lo, range,
                                                                 call->in[0]->data, call->stream));
}

kn_status kn__cuda_permutation(kn_op_call *call) {
    const kn_tensor *out = call->out[0];
    return KN__CUDA_NAMED(
        "permutation_kernel",
        kn__launch_permutation(out->data, out->n, call->in[0]->data, call->stream));
}

kn_status kn__cuda_truncated_normal(kn_op_call *call) {
    const kn_tensor *out = call->out[0];
    kn__truncated t = kn__truncated_of(call->attr);
    return KN__CUDA_NAMED("truncated_normal_kernel",
                          kn__launch_truncated_normal(out->data, (kn_dtype)out->dtype, out->n, &t,
                                                      call->in[0]->data, call->stream));
}
