/* Plans on GPUs: one kernel that the module compiles, or the kernels of the single ops. */
#include <string.h>

#include "fuse_plan.h"
#include "run.h"

_Static_assert((int)KN__CHAIN_STEPS == (int)KN__FUSED_STEPS, "a plan is a chain");
_Static_assert((int)KN__CHAIN_INPUTS == (int)KN__ROW_OPERANDS, "a step has as many inputs");
_Static_assert((int)KN__CHAIN_DIMS == (int)KN_DIMS_MAX, "of any tensor");

bool kn__chain_device(const kn_device *device) {
    if (kn_device_kind_get(device) != KN_DEVICE_CUDA) return false;
    const kn_cuda_module *module = kn__cuda_module();
    return module && module->chains();
}

void kn_fuse_wait(void) {
    const kn_cuda_module *module = kn__cuda_module_loaded();
    if (module) module->chains_wait();
}

static void *data_of(const kn__operand *x) { return x->data ? x->data : x->storage->data; }

/* --- as a chain --- */

typedef struct builder {
    kn__chain chain;
    kn__chain_args args;
    const kn__expr *root;
    int64_t dim[KN_DIMS_MAX]; /* of the index space; those of args have 32 bits */
} builder;

/* The last dimensions of x are the last ones of the root; 0 where x is broadcast. */
static void strides_of(int64_t stride[KN_DIMS_MAX], const kn__operand *x, int n_dims) {
    int64_t step = 1;
    memset(stride, 0, KN_DIMS_MAX * sizeof *stride);
    for (int d = x->n_dims - 1, at = n_dims - 1; d >= 0 && at >= 0; d--, at--) {
        stride[at] = x->dim[d] == 1 ? 0 : step;
        step *= x->dim[d];
    }
}

/* The number of an operand, which may be there already; -1: there are too many. */
static int add_operand(builder *b, const kn__operand *x) {
    kn__chain *c = &b->chain;
    const kn__expr *root = b->root;
    uint8_t kind = x->n == root->n ? KN__CHAIN_DENSE
                   : x->n == 1     ? KN__CHAIN_SINGLE
                                   : KN__CHAIN_STRIDED;
    int64_t stride[KN_DIMS_MAX] = {0};
    if (kind == KN__CHAIN_STRIDED) strides_of(stride, x, root->n_dims);
    for (int k = 0; k < c->n_operands; k++) {
        if (b->args.in[k] == data_of(x) && c->dtype[k] == x->dtype && c->kind[k] == kind &&
            memcmp(b->args.stride[k], stride, sizeof stride) == 0) {
            return k;
        }
    }
    if (c->n_operands == KN__CHAIN_OPERANDS) return -1;
    int k = c->n_operands++;
    c->dtype[k] = x->dtype, c->kind[k] = kind;
    b->args.in[k] = data_of(x);
    memcpy(b->args.stride[k], stride, sizeof stride);
    return k;
}

static bool is_mergeable(const builder *b, int outer, int inner) {
    for (int k = 0; k < b->chain.n_operands; k++) {
        const int64_t *stride = b->args.stride[k];
        if (stride[outer] != stride[inner] * b->dim[inner]) return false;
    }
    return true;
}

/* As few dimensions as the strided operands allow. Returns whether 32 bits hold an index. */
static bool merge_dims(builder *b) {
    int n = 0;
    for (int d = 0; d < b->root->n_dims; d++) {
        int64_t size = b->root->dim[d];
        if (size == 1) continue;
        b->dim[n] = size;
        for (int k = 0; k < b->chain.n_operands; k++) b->args.stride[k][n] = b->args.stride[k][d];
        if (n && is_mergeable(b, n - 1, n)) {
            b->dim[n - 1] *= size;
            for (int k = 0; k < b->chain.n_operands; k++)
                b->args.stride[k][n - 1] = b->args.stride[k][n];
        } else {
            n++;
        }
    }
    for (int d = 0; d < n; d++) b->args.dim[d] = (uint32_t)b->dim[d];
    b->chain.n_dims = (uint8_t)n;
    return b->root->n <= UINT32_MAX;
}

/* False: it is too large for a kernel. */
static bool build(builder *b, const kn__fuse_plan *p) {
    memset(b, 0, sizeof *b);
    b->root = p->expr[p->n - 1];
    b->args.n = b->root->n;
    b->chain.n_steps = (uint8_t)p->n;
    bool is_strided = false;
    for (int i = 0; i < p->n; i++) {
        const kn__expr *e = p->expr[i];
        kn__chain_step *s = &b->chain.step[i];
        *s = (kn__chain_step){.op = e->op, .dtype = e->dtype, .to = e->to, .r = e->r};
        s->n_in = e->n_in, s->stored = p->stored[i];
        b->args.out[i] = p->data[i];
        b->args.p[i].real = e->p, b->args.q[i].real = e->q;
        for (int k = 0; k < e->n_in; k++) {
            const kn__operand *x = &e->in[k];
            int at = KN__CHAIN_ABSENT;
            if (x->storage && x->storage->expr)
                at = x->storage->expr->place;
            else if (x->storage && (at = add_operand(b, x)) >= 0)
                at += KN__CHAIN_STEPS;
            if (at < 0) return false;
            s->in[k] = (uint8_t)at;
        }
    }
    for (int k = 0; k < b->chain.n_operands; k++) {
        is_strided |= b->chain.kind[k] == KN__CHAIN_STRIDED;
    }
    return !is_strided || merge_dims(b);
}

/* --- step by step --- */

static void shape_from(kn_tensor *t, int n_dims, const int64_t dim[]) {
    t->n_dims = (uint8_t)n_dims;
    memcpy(t->dim, dim, sizeof t->dim);
}

static void header_of(kn_tensor *t, const kn__expr *e, const kn__operand *x, void *const data[]) {
    *t = (kn_tensor){.n = x->n, .dtype = x->dtype};
    bool is_step = x->storage->expr != NULL, same = x->n == e->n;
    t->data = is_step ? data[x->storage->expr->place] : data_of(x);
    shape_from(t, same ? e->n_dims : x->n_dims, same ? e->dim : x->dim);
}

static kn_status run_step(const kn__expr *e, void *const data[]) {
    kn_tensor in[KN__ROW_OPERANDS], out = {.n = e->n, .dtype = e->to, .data = data[e->place]};
    kn_tensor *inputs[KN__ROW_OPERANDS];
    kn_attr_scalars scalars = {e->p, e->q};
    kn_attr_cast cast = {e->to};
    kn_op_call call;
    shape_from(&out, e->n_dims, e->dim);
    kn_op_call_init(&call, (kn_op)e->op, e->op == KN_OP_cast ? (void *)&cast : &scalars, inputs,
                    e->n_in);
    memset(call.out, 0, sizeof call.out);
    call.n_out = kn_op_table[e->op].n_out;
    call.want = (uint8_t)(1u << e->r);
    call.dtype = e->dtype;
    call.flat = 1;
    call.threads = e->threads, call.math = 0;
    call.device = e->storage->device, call.pool = e->storage->pool;
    call.stream = e->storage->stream;
    call.out[e->r] = &out;
    for (int k = 0; k < e->n_in; k++) {
        inputs[k] = KN_NONE;
        if (!e->in[k].storage) continue;
        header_of(&in[k], e, &e->in[k], data);
        inputs[k] = &in[k];
        if (in[k].n != e->n) call.flat = 0;
    }
    kn_kernel_fn kernel = kn__device_kernel(call.device, (kn_op)call.op);
    return kernel ? kernel(&call) : kn_last_error()->status;
}

/* Values that aren't stored have memory from their step to the last that reads them. */
static kn_status run_steps(const kn__fuse_plan *p) {
    void *data[KN__FUSED_STEPS];
    kn_status status = KN_OK;
    memcpy(data, p->data, sizeof data);
    for (int i = 0; i < p->n && status == KN_OK; i++) {
        const kn_storage *s = p->expr[i]->storage;
        if (!data[i]) status = kn_alloc(&data[i], s->pool, s->size_bytes, s->stream);
        if (status == KN_OK) status = run_step(p->expr[i], data);
        for (int k = 0; k <= i; k++) {
            if (p->last[k] != i || p->data[k]) continue;
            kn_free(s->pool, data[k]);
            data[k] = NULL;
        }
    }
    for (int i = 0; i < p->n; i++) {
        if (status < 0 && !p->data[i] && data[i]) kn_free(p->expr[i]->storage->pool, data[i]);
    }
    return status;
}

/* --- running --- */

kn_status kn__chain_run(const kn__fuse_plan *p) {
    const kn_storage *s = p->expr[p->n - 1]->storage;
    const kn_cuda_module *module = kn__cuda_module();
    if (!module) return kn_last_error()->status;
    builder b;
    bool launched = false;
    if (p->n > 1 && build(&b, p))
        KN_TRY(module->chain(&launched, &b.chain, &b.args, s->device, s->stream));
    return launched ? KN_OK : run_steps(p);
}
