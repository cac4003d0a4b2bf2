#include "host/conv/conv_layout.h"

#include <string.h>

#include "fuse.h"
#include "host/base/loops.h"
#include "host/conv/conv_dnnl.h"
#include "run.h"

int64_t kn__layout_block(void) {
    const kn__loop_table *loops = kn__loops(KN_F32);
    if (!kn__dnnl_engine()) return 0;
    return loops == kn__loops_isa(KN_F32, 4) ? 16 : (loops == kn__loops_isa(KN_F32, 3) ? 8 : 0);
}

void kn__layout_plain(void *to, void *from, kn_dtype dtype, const int64_t dim[4], int threads) {
    int64_t block = kn__layout_block(), plane = dim[2] * dim[3];
    kn_tensor x = {.dtype = (uint8_t)dtype,
                   .n_dims = 3,
                   .dim = {dim[0] * dim[1] / block, plane, block},
                   .data = from},
              y = {.dtype = (uint8_t)dtype,
                   .n_dims = 3,
                   .dim = {dim[0] * dim[1] / block, block, plane},
                   .data = to};
    const kn_attr_transpose attr = {.axis = {0, 2, 1}};
    kn_tensor *in[] = {&x};
    kn_op_call call = {
        .threads = threads, .in = in, .n_in = 1, .out = {&y}, .attr = (void *)(uintptr_t)&attr};
    (void)!kn__host_transpose(&call); /* which has no way to fail */
}

static bool in_blocks(const kn_tensor *t) { return t->layout == KN_LAYOUT_BLOCKS; }

static bool has_blocks(unsigned dtype) {
    return dtype == KN_F32 || (dtype == KN_BF16 && kn__dnnl_has_bf16());
}

/* Groups of whole blocks, or of a plane each. */
static bool conv_fits(const kn_op_call *call, int64_t block) {
    const kn_attr_conv *attr = call->attr;
    const kn_tensor *x = call->in[0], *w = call->in[1];
    int64_t groups = attr->groups;
    bool has_residual = call->op == KN_OP_conv_act && call->in[3] != KN_NONE;
    if (x->n_dims != 4 || w->n_dims != 4 || !x->n || !w->n || attr->flip || w->dim[0] % block)
        return false;
    if (has_residual && !in_blocks(call->in[3])) return false;
    if (groups == 1) return true;
    if (groups < 1 || !in_blocks(x)) return false;
    return (w->dim[0] == groups && w->dim[1] == 1) ||
           (w->dim[0] % (groups * block) == 0 && w->dim[1] % block == 0);
}

static bool convolves(const kn_op_call *call) {
    return call->op == KN_OP_conv || call->op == KN_OP_conv_act;
}

static bool pool_fits(const kn_op_call *call) {
    const kn_attr_pool *attr = call->attr;
    return in_blocks(call->in[0]) && attr->n_spatial == 2 && !attr->skip_nan;
}

/* Pointwise: every input in blocks, all of one shape, or a number. */
static bool row_fits(const kn_op_call *call) {
    const kn_op_info *info = &kn_op_table[call->op];
    const kn_tensor *full = NULL;
    if (info->order || !has_blocks(call->dtype) || info->out[0] != KN_OUT_T) return false;
    for (int i = 0; i < call->n_in; i++) {
        const kn_tensor *t = call->in[i];
        if (t == KN_NONE) return false;
        if (t->n == 1 && !in_blocks(t)) continue;
        if (!in_blocks(t) || (full && !kn__same_shape(t, full))) return false;
        full = t;
    }
    return full != NULL;
}

bool kn__layout_takes(const kn__ops_thread *self, const kn_op_call *call) {
    if (!self->frame->layout || self->capture || self->plain_layouts ||
        call->device != self->host || call->given || call->want != 1 || !kn__layout_block())
        return false;
    if (kn_op_table[call->op].row) return row_fits(call);
    if (!call->n_in || !has_blocks(call->in[0]->dtype)) return false;
    if (call->op == KN_OP_cast)
        return in_blocks(call->in[0]) && has_blocks((unsigned)((kn_attr_cast *)call->attr)->dtype);
    if (convolves(call)) return conv_fits(call, kn__layout_block());
    if (call->op == KN_OP_maxpool || call->op == KN_OP_avgpool) return pool_fits(call);
    return call->op == KN_OP_batchnorm_eval && in_blocks(call->in[0]);
}

/* t, or what has its data in blocks under t's shape. */
static kn_status stand_in(kn_tensor **out, kn_tensor *own, kn_tensor *t) {
    kn_storage *source = kn__fuse_source(t);
    *out = t;
    if (t == KN_NONE) return KN_OK;
    if (!source) return kn__compute(t);
    *own = (kn_tensor){.dtype = t->dtype, .n_dims = t->n_dims, .n = t->n};
    memcpy(own->dim, t->dim, sizeof own->dim);
    own->storage = source;
    own->data = source->data;
    *out = own;
    return KN_OK;
}

static kn_status batchnorm_blocks(kn_op_call *call) {
    if (kn__is_half(call->dtype)) return kn__widened(call, batchnorm_blocks);
    return kn__host_batchnorm_blocks(call, kn__layout_block());
}

static kn_status run_blocks(bool *taken, kn_op_call *call, bool from_blocks) {
    *taken = true;
    if (convolves(call))
        return kn__host_conv_blocks(taken, call, from_blocks, kn__ops_self->frame->layout == 2);
    if (call->op == KN_OP_batchnorm_eval) return batchnorm_blocks(call);
    if (kn_op_table[call->op].row || call->op == KN_OP_cast)
        return kn_op_table[call->op].host(call);
    return kn__host_pool_blocks(call, kn__layout_block());
}

/* The call on inputs as they are, into y. */
static kn_status run_into(bool *taken, kn_op_call *call, kn_tensor *y) {
    kn_tensor own[5], *in[5] = {NULL};
    kn_op_call inner = *call;
    for (int i = 0; i < call->n_in; i++) KN_TRY(stand_in(&in[i], &own[i], call->in[i]));
    inner.in = in;
    inner.out[0] = y;
    kn_status status = run_blocks(taken, &inner, in[0] == &own[0]);
    kn__work_end(&inner, 0);
    return status;
}

kn_status kn__layout_run(bool *taken, kn__ops_thread *self, kn_op_call *call) {
    kn_tensor *t = call->out[0], *y = kn__header_new(self);
    *taken = false;
    if (!y) return kn_pending();
    y->dtype = t->dtype;
    y->n_dims = t->n_dims;
    y->n = t->n;
    memcpy(y->dim, t->dim, sizeof y->dim);
    kn_status status =
        kn__storage_make(y, call->pool, call->device, call->stream) ? KN_OK : kn_pending();
    if (status == KN_OK) status = run_into(taken, call, y);
    if (status == KN_OK && *taken) status = kn__fuse_defer_plain(self, call, t, y->storage);
    self->n_layouts += *taken;
    kn_tensor_release(y);
    return status;
}
