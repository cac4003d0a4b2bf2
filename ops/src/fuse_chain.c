/* Plans on GPUs: one kernel that the module compiles, or the kernels of the single ops. */
#include <string.h>

#include "fuse_plan.h"
#include "run.h"

_Static_assert((int)KN__CHAIN_STEPS == (int)KN__FUSED_STEPS, "a plan is a chain");
_Static_assert((int)KN__CHAIN_INPUTS == (int)KN__ROW_OPERANDS, "a step has as many inputs");
_Static_assert((int)KN__CHAIN_DIMS == (int)KN_DIMS_MAX, "of any tensor");

bool kn__chain_device(const kn_device *device) {
    if (kn_device_kind_get(device) != KN_DEVICE_CUDA) return false;
    const kn__cuda_exports *module = kn__cuda_module();
    return module && module->chains();
}

void kn_fuse_wait(void) {
    const kn__cuda_exports *module = kn__cuda_module_loaded();
    if (module) module->chains_wait();
}

/* --- as a chain --- */

typedef struct builder {
    kn__chain chain;
    kn__chain_args args;
    int n_dims, n_parts;      /* of the index space; written by strides */
    int64_t dim[KN_DIMS_MAX]; /* of the index space; those of args have 32 bits */
} builder;

/* Strides along e's dimensions as those along the root's, which may have more in front; those of
 * dimensions of 1 are 0. */
static void strides_of(int64_t to[KN_DIMS_MAX], const int64_t stride[], const kn__expr *e,
                       const builder *b) {
    int lead = b->n_dims - e->n_dims;
    memset(to, 0, KN_DIMS_MAX * sizeof *to);
    for (int d = 0; d < e->n_dims; d++) to[lead + d] = e->dim[d] == 1 ? 0 : stride[d];
}

static uint8_t kind_of(const kn__fuse_operand *x, const int64_t stride[KN_DIMS_MAX]) {
    if (x->dense) return KN__CHAIN_DENSE;
    for (int d = 0; d < KN_DIMS_MAX; d++) {
        if (stride[d]) return KN__CHAIN_STRIDED;
    }
    return KN__CHAIN_SINGLE;
}

/* The number of an operand, which may be there already; -1: there are too many. */
static int add_operand(builder *b, const kn__fuse_operand *x, const kn__expr *e) {
    kn__chain *c = &b->chain;
    int64_t stride[KN_DIMS_MAX] = {0};
    if (!x->dense) strides_of(stride, x->stride, e, b);
    uint8_t kind = kind_of(x, stride);
    for (int k = 0; k < c->n_operands; k++) {
        if (b->args.in[k] == kn__operand_data(x) && c->dtype[k] == x->dtype && c->kind[k] == kind &&
            memcmp(b->args.stride[k], stride, sizeof stride) == 0) {
            return k;
        }
    }
    if (c->n_operands == KN__CHAIN_OPERANDS) return -1;
    int k = c->n_operands++;
    c->dtype[k] = x->dtype, c->kind[k] = kind;
    b->args.in[k] = kn__operand_data(x);
    memcpy(b->args.stride[k], stride, sizeof stride);
    return k;
}

/* Where step i's result, a part, lies in the whole. */
static void add_part(builder *b, const kn__fuse_plan *p, int i) {
    int64_t stride[KN_DIMS_MAX], at = 0;
    const kn__expr *part = p->expr[i];
    kn__row_major(stride, p->whole->n_dims, p->whole->dim);
    for (int d = 0; d < part->n_dims; d++) at += part->in[0].stride[d] * stride[d];
    strides_of(b->args.part_stride[b->n_parts], stride, part, b);
    b->args.out[i] = (char *)p->whole_data + at * (int64_t)kn__dtype_size[part->to];
    b->chain.step[i].stored = 1;
    b->chain.step[i].part = (uint8_t)++b->n_parts;
}

/* The strides of an operand or, after all of them, of a part. */
static int64_t *nth_stride(builder *b, int k) {
    int n = b->chain.n_operands;
    return k < n ? b->args.stride[k] : b->args.part_stride[k - n];
}

static bool is_mergeable(builder *b, int outer, int inner) {
    for (int k = 0; k < b->chain.n_operands + b->n_parts; k++) {
        const int64_t *stride = nth_stride(b, k);
        bool is_strided = k >= b->chain.n_operands || b->chain.kind[k] == KN__CHAIN_STRIDED;
        if (is_strided && stride[outer] != stride[inner] * b->dim[inner]) return false;
    }
    return true;
}

/* As few dimensions as the strided operands allow. Returns whether 32 bits hold an index. */
static bool merge_dims(builder *b, const kn__expr *root) {
    int n = 0, n_strides = b->chain.n_operands + b->n_parts;
    for (int d = 0; d < root->n_dims; d++) {
        int64_t size = root->dim[d];
        if (size == 1) continue;
        b->dim[n] = size;
        for (int k = 0; k < n_strides; k++) nth_stride(b, k)[n] = nth_stride(b, k)[d];
        if (n && is_mergeable(b, n - 1, n)) {
            b->dim[n - 1] *= size;
            for (int k = 0; k < n_strides; k++) nth_stride(b, k)[n - 1] = nth_stride(b, k)[n];
        } else {
            n++;
        }
    }
    for (int d = 0; d < n; d++) b->args.dim[d] = (uint32_t)b->dim[d];
    b->chain.n_dims = (uint8_t)n;
    return root->n <= UINT32_MAX;
}

static bool add_step(builder *b, const kn__fuse_plan *p, int i) {
    const kn__expr *e = p->expr[i];
    kn__chain_step *s = &b->chain.step[i];
    if (e->n_dims > b->n_dims) return false;
    *s = (kn__chain_step){.op = e->op, .dtype = e->dtype, .to = e->to, .r = e->r};
    s->n_in = e->n_in, s->stored = p->stored[i];
    b->args.out[i] = p->data[i];
    b->args.p[i].real = e->p, b->args.q[i].real = e->q;
    if (kn__is_part(p, i)) add_part(b, p, i);
    for (int k = 0; k < e->n_in; k++) {
        const kn__fuse_operand *x = &e->in[k];
        int at = KN__CHAIN_ABSENT;
        if (x->storage && x->storage->expr)
            at = x->storage->expr->place;
        else if (x->storage && (at = add_operand(b, x, e)) >= 0)
            at += KN__CHAIN_STEPS;
        if (at < 0) return false;
        s->in[k] = (uint8_t)at;
    }
    return true;
}

/* False: it is too large for a kernel, or leaves zeros beside its parts. */
static bool build(builder *b, const kn__fuse_plan *p) {
    const kn__expr *root = p->expr[p->n - 1];
    memset(b, 0, sizeof *b);
    if (kn__is_view(root) || !kn__plan_covers(p)) return false;
    b->n_dims = root->n_dims;
    b->args.n = root->n;
    b->chain.n_steps = (uint8_t)p->n;
    for (int i = 0; i < p->n; i++) {
        if (!add_step(b, p, i)) return false;
    }
    bool is_strided = p->whole != NULL;
    for (int k = 0; k < b->chain.n_operands; k++) {
        is_strided |= b->chain.kind[k] == KN__CHAIN_STRIDED;
    }
    return !is_strided || merge_dims(b, root);
}

/* --- step by step --- */

static void shape_from(kn_tensor *t, int n_dims, const int64_t dim[]) {
    t->n_dims = (uint8_t)n_dims;
    memcpy(t->dim, dim, sizeof t->dim);
}

static void call_init(kn_op_call *call, const kn__expr *e, kn_op op, void *attr, kn_tensor **in,
                      int n_in) {
    kn_op_call_init(call, op, attr, in, n_in);
    memset(call->out, 0, sizeof call->out);
    call->n_out = kn_op_table[op].n_out;
    call->dtype = e->dtype;
    call->threads = e->threads, call->math = 0;
    call->device = e->storage->device, call->pool = e->storage->pool;
    call->stream = e->storage->stream;
}

static kn_status call_kernel(kn_op_call *call) {
    kn_kernel_fn kernel = kn__device_kernel(call->device, (kn_op)call->op);
    return kernel ? kernel(call) : kn_last_error()->status;
}

/* The elements of a strided operand one after the other. */
static kn_status copy_strided(void *to, const kn__expr *e, const kn__fuse_operand *x) {
    kn_attr_strided attr = {.n_dims = e->n_dims};
    kn_tensor in = {.n = x->n, .dtype = x->dtype, .data = kn__operand_data(x)};
    kn_tensor out = {.n = e->n, .dtype = x->dtype, .data = to}, *inputs[] = {&in};
    memcpy(attr.dim, e->dim, sizeof attr.dim);
    memcpy(attr.stride, x->stride, sizeof attr.stride);
    shape_from(&out, e->n_dims, e->dim);
    kn_op_call call;
    call_init(&call, e, KN_OP_strided, &attr, inputs, 1);
    call.out[0] = &out;
    return call_kernel(&call);
}

/* Whether x is an array that is broadcast; t: its shape. */
static bool is_array(kn_tensor *t, const kn__expr *e, const kn__fuse_operand *x) {
    int64_t dense[KN_DIMS_MAX];
    t->n_dims = e->n_dims;
    for (int d = 0; d < e->n_dims; d++) t->dim[d] = x->stride[d] ? e->dim[d] : 1;
    kn__row_major(dense, e->n_dims, t->dim);
    for (int d = 0; d < e->n_dims; d++) {
        if (t->dim[d] != 1 && dense[d] != x->stride[d]) return false;
    }
    return true;
}

/* t: operand x of e; *copy: memory for the time of the call, or NULL. */
static kn_status header_of(kn_tensor *t, void **copy, const kn__expr *e, const kn__fuse_operand *x,
                           void *const data[]) {
    bool is_step = x->storage->expr != NULL;
    *t = (kn_tensor){.n = x->n, .dtype = x->dtype};
    t->data = is_step ? data[x->storage->expr->place] : kn__operand_data(x);
    if (!is_step && !x->dense && is_array(t, e, x)) return KN_OK;
    t->n = e->n;
    shape_from(t, e->n_dims, e->dim);
    if (is_step || x->dense) return KN_OK;
    const kn_storage *s = e->storage;
    KN_TRY(kn_alloc(copy, s->pool, (size_t)t->n * kn__dtype_size[t->dtype], s->stream));
    t->data = *copy;
    return copy_strided(*copy, e, x);
}

static kn_status run_row(const kn__expr *e, kn_tensor **inputs, void *y) {
    kn_tensor out = {.n = e->n, .dtype = e->to, .data = y};
    kn_attr_scalars scalars = {e->p, e->q};
    kn_attr_cast cast = {e->to};
    shape_from(&out, e->n_dims, e->dim);
    kn_op_call call;
    call_init(&call, e, (kn_op)e->op, e->op == KN_OP_cast ? (void *)&cast : &scalars, inputs,
              e->n_in);
    call.want = (uint8_t)(1u << e->r);
    call.flat = 1;
    call.out[e->r] = &out;
    for (int k = 0; k < e->n_in; k++) {
        if (inputs[k] != KN_NONE && inputs[k]->n != e->n) call.flat = 0;
    }
    return call_kernel(&call);
}

static kn_status run_step(const kn__expr *e, void *const data[], void *y) {
    if (kn__is_view(e)) return copy_strided(y, e, &e->in[0]);
    kn_tensor in[KN__ROW_OPERANDS], *inputs[KN__ROW_OPERANDS];
    void *copy[KN__ROW_OPERANDS] = {NULL};
    kn_status status = KN_OK;
    for (int k = 0; k < e->n_in; k++) {
        inputs[k] = e->in[k].storage ? &in[k] : KN_NONE;
        if (e->in[k].storage && status == KN_OK)
            status = header_of(&in[k], &copy[k], e, &e->in[k], data);
    }
    if (status == KN_OK) status = run_row(e, inputs, y);
    for (int k = 0; k < e->n_in; k++) {
        if (copy[k]) kn_free(e->storage->pool, copy[k]);
    }
    return status;
}

/* The first part with zeros around it; others are added. */
static kn_status run_part(const kn__fuse_plan *p, int i, void *const data[]) {
    const kn__expr *part = p->expr[i], *whole = p->whole;
    kn_attr_box box;
    kn_tensor g, out = {.n = whole->n, .dtype = whole->to, .data = p->whole_data}, *inputs[] = {&g};
    void *copy = NULL;
    memcpy(box.start, part->in[0].stride, sizeof box.start);
    memcpy(box.size, whole->dim, sizeof box.size);
    KN_TRY(header_of(&g, &copy, part, &part->in[0], data));
    shape_from(&out, whole->n_dims, whole->dim);
    kn_op_call call;
    call_init(&call, whole, KN_OP_slice_back, &box, inputs, 1);
    call.accumulate = part != &p->part[0];
    call.given = call.accumulate;
    call.out[0] = &out;
    return call_kernel(&call);
}

/* Values that aren't stored have memory from their step to the last that reads them. */
static kn_status run_steps(const kn__fuse_plan *p) {
    void *data[KN__FUSED_STEPS];
    kn_status status = KN_OK;
    memcpy(data, p->data, sizeof data);
    for (int i = 0; i < p->n && status == KN_OK; i++) {
        const kn_storage *s = p->expr[i]->storage;
        if (kn__is_part(p, i)) {
            status = run_part(p, i, data);
        } else {
            if (!data[i]) status = kn_alloc(&data[i], s->pool, s->size_bytes, s->stream);
            if (status == KN_OK) status = run_step(p->expr[i], data, data[i]);
        }
        for (int k = 0; k <= i; k++) {
            if (p->last[k] != i || p->data[k] || !data[k]) continue;
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
    const kn_storage *s = kn__plan_root(p)->storage;
    const kn__cuda_exports *module = kn__cuda_module();
    if (!module) return kn_last_error()->status;
    builder b;
    bool launched = false;
    if (p->n > 1 && build(&b, p))
        KN_TRY(module->chain(&launched, &b.chain, &b.args, s->device, s->stream));
    return launched ? KN_OK : run_steps(p);
}
