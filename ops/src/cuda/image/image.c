/* Ops of images: from a call to its launches. */
#include "image_call.h"

#include "cuda/base/module.h"

static kn_status resize(kn_op_call *call, bool back) {
    const kn_tensor *x = call->in[0];
    kn__resize r = kn__resize_of(call->attr);
    void *work;
    KN_TRY(kn__work(&work, call, kn__resize_bytes(&r, back)));
    return KN__CUDA_NAMED(back ? "resize_back_kernel" : "resize_kernel",
                          kn__launch_resize(call->out[0]->data, x->data, (kn_dtype)x->dtype,
                                            x->dim[0] * x->dim[1], &r, back, work, call->stream));
}

kn_status kn__cuda_resize(kn_op_call *call) { return resize(call, false); }
kn_status kn__cuda_resize_back(kn_op_call *call) { return resize(call, true); }

kn_status kn__cuda_grid_sample(kn_op_call *call) {
    const kn_tensor *x = call->in[0], *grid = call->in[1];
    kn__grid g = kn__grid_of(call->attr, x, grid);
    return KN__CUDA_NAMED("grid_sample_kernel",
                          kn__launch_grid_sample(call->out[0]->data, x->data, grid->data,
                                                 (kn_dtype)x->dtype, &g, call->stream));
}

kn_status kn__cuda_grid_sample_back(kn_op_call *call) {
    const kn_tensor *x = call->in[0], *grid = call->in[1];
    kn__grid g = kn__grid_of(call->attr, x, grid);
    void *dx = call->out[0] ? call->out[0]->data : NULL;
    void *dgrid = call->out[1] ? call->out[1]->data : NULL;
    void *work = NULL;
    if (dx) KN_TRY(kn__zeros(call, 0));
    if (g.batch * g.places == 0) dx = NULL;
    if (dx) KN_TRY(kn__work(&work, call, kn__grid_back_bytes(&g, (kn_dtype)x->dtype)));
    return KN__CUDA_NAMED(
        "grid_sample_back_kernel",
        kn__launch_grid_sample_back(dx, dgrid, x->data, grid->data, call->in[2]->data,
                                    (kn_dtype)x->dtype, &g, work, call->stream));
}
