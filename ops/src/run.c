#include "run.h"

#include <string.h>

#include "capture.h"
#include "fuse.h"
#include "host/host.h"
#include "work.h"

kn_status kn__place(kn_pool **pool, kn_stream *stream, kn__ops_thread *self, kn_device *device) {
    const kn__frame *frame = self->frame;
    if (frame->device == device) {
        *pool = frame->pool;
        *stream = frame->stream;
        return KN_OK;
    }
    *pool = kn_device_pool(device);
    if (!*pool) return kn_pending();
    kn_status status = kn_stream_of_thread(stream, device);
    if (status < 0) kn_error_defer(status);
    return status;
}

/* --- streams: the host's is program order, so all this is for the other devices --- */

kn_status kn__await_writer(kn__ops_thread *self, const kn_storage *s, kn_stream stream) {
    if (s->device == self->host || s->stream == stream) return KN_OK;
    kn_event *event = NULL;
    KN_TRY(kn__thread_event(&event, self, s->device));
    KN_TRY(kn_event_record(event, s->stream));
    return kn_event_wait(event, stream);
}

static _Atomic(bool) streams_cross; /* a tensor was used on another stream than its writer's */

/* A block that its own stream does not know to be in use says so before anybody frees it. */
kn_status kn__use(kn__ops_thread *self, const kn_storage *s, kn_stream stream) {
    if (s->device == self->host || s->stream == stream || !s->data) return KN_OK;
    atomic_store_explicit(&streams_cross, true, memory_order_relaxed);
    return s->pool ? kn_block_use(s->pool, s->data, stream)
                   : kn__region_call(kn_block_use, s, stream);
}

kn_status kn__await_readers(kn__ops_thread *self, const kn_storage *s, kn_stream stream) {
    if (s->device == self->host || !s->data) return KN_OK;
    if (!atomic_load_explicit(&streams_cross, memory_order_relaxed)) return KN_OK;
    return s->pool ? kn_block_await(s->pool, s->data, stream)
                   : kn__region_call(kn_block_await, s, stream);
}

static kn_status await_all(kn__ops_thread *self, const kn_op_call *call) {
    for (int i = 0; i < call->n_in; i++) {
        if (call->in[i] == &kn__none) continue;
        KN_TRY(kn__await_writer(self, call->in[i]->storage, call->stream));
    }
    return KN_OK;
}

static kn_status use_all(kn__ops_thread *self, const kn_op_call *call) {
    for (int i = 0; i < call->n_in; i++) {
        const kn_tensor *t = call->in[i];
        if (t != &kn__none) KN_TRY(kn__use(self, t->storage, call->stream));
    }
    return KN_OK;
}

void *kn_op_data(kn_tensor *t) {
    kn__ops_thread *self = kn__ops_thread_get();
    if (!self || kn_pending()) return NULL;
    if (!kn__is_whole(t)) return kn_error_defer(kn__fail_unreadable("kn_data: t", t));
    if (self->capture) return kn_error_defer(kn__capture_forbids(self, "kn_data"));
    const kn_storage *s = t->storage;
    kn_status status = kn__compute(t);
    if (status < 0) return kn_error_defer(status);
    if (s->device == self->host) return t->data;
    kn_stream stream = NULL;
    if (self->frame && self->frame->device == s->device)
        stream = self->frame->stream;
    else
        status = kn_stream_of_thread(&stream, s->device);
    if (status == KN_OK) status = kn__await_writer(self, s, stream);
    if (status == KN_OK) status = kn__use(self, s, stream);
    return status == KN_OK ? t->data : kn_error_defer(status);
}

kn_status kn__claim(kn__ops_thread *self, kn_storage *s, kn_stream stream) {
    if (__builtin_expect(self->pending != NULL, 0)) KN_TRY(kn__fuse_before_write(self, s));
    if (__builtin_expect(self->capture != NULL, 0)) self->capture->hooks->claims(self->capture, s);
    KN_TRY(kn__await_writer(self, s, stream));
    KN_TRY(kn__await_readers(self, s, stream));
    if (s->stream != stream) {
        KN_TRY(kn__use(self, s, stream));
        s->stream = stream;
    }
    s->version++;
    if (__builtin_expect(s->owner && s->pool, 0)) kn__host.kept_weights_drop(s);
    return KN_OK;
}

/* --- for infer: results' headers --- */

static __attribute__((noinline)) bool fail_given(const kn_op_call *call, int r, int64_t n,
                                                 unsigned dtype) {
    const kn_tensor *t = call->out[r];
    char text[256];
    return kn_op_call_fail(call, t->n == n ? KN_ERR_DTYPE : KN_ERR_SHAPE,
                           "a result of %lld elements %s does not fit into %s %s", (long long)n,
                           kn_dtype_name((kn_dtype)dtype),
                           kn_shape_text(text, sizeof text, kn_tensor_shape(t)),
                           kn_dtype_name((kn_dtype)t->dtype));
}

/* Whether the tensor that result r is written into has n elements and the right dtype. */
static inline bool fits_given(const kn_op_call *call, int r, int64_t n, unsigned dtype) {
    const kn_tensor *t = call->out[r];
    return (t->n == n && t->dtype == dtype) || fail_given(call, r, n, dtype);
}

static inline uint8_t dtype_of(const kn_op_call *call, int r) {
    uint8_t own = kn_op_table[call->op].out[r];
    if (own == KN_OUT_COMPUTED) return kn__computed(call->dtype);
    return own == KN_OUT_T ? call->dtype : own;
}

/* False: no header to fill in; *ok says whether that is right. */
static inline __attribute__((always_inline)) bool header(bool *ok, kn_op_call *call, int r,
                                                         int64_t n) {
    *ok = true;
    if (!(call->want >> r & 1)) return false;
    if (__builtin_expect(call->given >> r & 1, 0)) {
        *ok = fits_given(call, r, n, dtype_of(call, r));
        return false;
    }
    kn_tensor *t = call->out[r] = kn__header_new(kn__ops_self);
    if (!t) return *ok = false;
    t->dtype = dtype_of(call, r);
    t->n = n;
    return true;
}

static inline void copy_dims(kn_tensor *t, const kn_tensor *x) {
    t->n_dims = x->n_dims;
    memcpy(t->dim, x->dim, sizeof t->dim); /* all of them: one cache line, no loop */
}

static inline __attribute__((always_inline)) bool like(kn_op_call *call, int r,
                                                       const kn_tensor *x) {
    bool ok;
    if (!header(&ok, call, r, x->n)) return ok;
    copy_dims(call->out[r], x);
    return true;
}

bool kn__like(kn_op_call *call, int r, const kn_tensor *x) { return like(call, r, x); }

/* -1, the error pending, when no tensor can have the shape. */
static int64_t numel(kn_op op, int n_dims, const int64_t dim[]) {
    kn_shape shape = {.n_dims = n_dims};
    for (int i = 0; i < n_dims && i < KN_DIMS_MAX; i++) shape.dim[i] = dim[i];
    int64_t n = kn__shape_numel(&shape);
    if (n < 0) kn__fail_shape(kn__name_in_errors(op), &shape);
    return n;
}

bool kn__shaped(kn_op_call *call, int r, int n_dims, const int64_t dim[]) {
    bool ok;
    int64_t n = numel((kn_op)call->op, n_dims, dim);
    if (n < 0) return false;
    if (!header(&ok, call, r, n)) return ok;
    kn_tensor *t = call->out[r];
    t->n_dims = (uint8_t)n_dims;
    for (int i = 0; i < n_dims; i++) t->dim[i] = dim[i];
    return true;
}

bool kn__view(kn_op_call *call, int r, kn_tensor *x, int n_dims, const int64_t dim[],
              int64_t offset) {
    KN_ASSERT(!call->given && x->layout == KN_LAYOUT_PLAIN);
    if (!kn__shaped(call, r, n_dims, dim)) return false;
    kn_tensor *t = call->out[r];
    if (!t) return true;
    KN_ASSERT(offset >= 0 && offset + t->n <= x->n);
    kn__header_share(t, x, offset);
    call->is_view = 1;
    return true;
}

/* --- infer of rows --- */

static __attribute__((noinline)) bool infer_broadcast(kn_op_call *call) {
    kn_shape shape = kn_tensor_shape(call->in[0]);
    for (int i = 1; i < call->n_in; i++) {
        if (!kn__broadcast_shape(&shape, call->in[i])) {
            return kn_op_call_fail(call, KN_ERR_SHAPE, "shapes don't broadcast");
        }
    }
    return kn__shaped(call, 0, shape.n_dims, shape.dim);
}

static inline bool are_alike(kn_tensor *const in[], int n_in) {
    for (int i = 1; i < n_in; i++) {
        if (!kn__same_shape(in[0], in[i])) return false;
    }
    return true;
}

bool kn__infer_row(kn_op_call *call) {
    if (!are_alike(call->in, call->n_in)) return infer_broadcast(call);
    call->flat = 1;
    return like(call, 0, call->in[0]);
}

/* Whether all inputs broadcast to the shape of `full`; flat: they have it. */
static __attribute__((noinline)) bool find_flat(kn_op_call *call, const kn_tensor *full) {
    call->flat = 1;
    for (int i = 0; i < call->n_in; i++) {
        const kn_tensor *t = call->in[i];
        if (t == &kn__none || kn__same_shape(t, full)) continue;
        kn_shape shape = kn_tensor_shape(full);
        call->flat = 0;
        if (kn__broadcast_shape(&shape, t) && shape.n_dims == full->n_dims &&
            !memcmp(shape.dim, full->dim, (size_t)full->n_dims * sizeof full->dim[0])) {
            continue;
        }
        return kn_op_call_fail(call, KN_ERR_SHAPE, "shapes don't broadcast to g's");
    }
    return true;
}

/* g, or the first u that is there, has the shape of the results; the others broadcast to it. */
bool kn__infer_row_back(kn_op_call *call) {
    const kn_tensor *full = call->in[0];
    for (int i = 1; full == &kn__none && i < call->n_in; i++) full = call->in[i];
    if (!call->flat && !find_flat(call, full)) return false;
    for (unsigned left = call->want; left; left &= left - 1) {
        if (!kn__like(call, __builtin_ctz(left), full)) return false;
    }
    return true;
}

/* --- the call --- */

bool kn_op_recording(kn_tensor *const in[], int n_in) {
    const kn__ops_thread *self = kn__ops_self;
    if (!self || !self->frame || !self->frame->recording) return false;
    for (int i = 0; i < n_in; i++) {
        if (in[i] && in[i]->grad) return true;
    }
    return false;
}

static __attribute__((noinline)) bool check_all(kn_op_call *call, bool *wants_grad) {
    if (!kn__check_inputs(call)) return false;
    kn_edge any = 0;
    for (int i = 0; i < call->n_in; i++) {
        any |= call->edge ? call->edge[i] : call->in[i]->grad;
        if (call->in[i]->state == KN_TENSOR_PENDING && !kn__fuse_is_mine(call->in[i])) return false;
    }
    *wants_grad = any != 0;
    return true;
}

/* What nearly every call has: all inputs there, of one class, dtype and device. */
static inline __attribute__((always_inline)) bool check_quick(kn_op_call *call,
                                                              kn_tensor *const in[], int n_in,
                                                              uint16_t class, bool *wants_grad) {
    const kn_tensor *x = in[0];
    if (__builtin_expect(!x || x->state || !(class >> x->dtype & 1), 0)) {
        return check_all(call, wants_grad);
    }
    kn_device *device = x->storage->device;
    kn_edge any = x->grad;
    for (int i = 1; i < n_in; i++) {
        const kn_tensor *t = in[i];
        if (__builtin_expect(!t || t->state || t->dtype != x->dtype || t->storage->device != device,
                             0)) {
            return check_all(call, wants_grad);
        }
        any |= t->grad;
    }
    call->dtype = x->dtype;
    call->device = device;
    *wants_grad = any != 0;
    return true;
}

static __attribute__((noinline)) kn_status run_elsewhere(kn__ops_thread *self, kn_op_call *call) {
    kn_kernel_fn kernel = kn__device_kernel(call->device, (kn_op)call->op);
    if (!kernel) return kn_last_error()->status;
    KN_TRY(await_all(self, call));
    kn__plan *plan = self->capture;
    KN_TRY(plan ? plan->hooks->call(plan, call, kernel) : kernel(call));
    return use_all(self, call);
}

static inline bool check(kn_op_call *call, const kn_op_info *info, bool *wants_grad) {
    if (__builtin_expect(!info->uniform || call->edge, 0)) return check_all(call, wants_grad);
    return check_quick(call, call->in, call->n_in, info->uniform, wants_grad);
}

static inline kn_status run_kernel(kn__ops_thread *self, kn_op_call *call, const kn_op_info *info) {
    if (__builtin_expect(call->device != self->host, 0)) return run_elsewhere(self, call);
    if (__builtin_expect(self->capture != NULL, 0) && info->host)
        return self->capture->hooks->call(self->capture, call, info->host);
    if (__builtin_expect(info->host != NULL, 1)) return info->host(call);
    return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_%s: %s has no kernel for it", info->name,
                   kn_device_name(call->device));
}

static __attribute__((noinline)) void *failed(kn_op_call *call, const kn_op_info *info,
                                              kn_status status) {
    for (int r = 0; r < call->n_out; r++) {
        if (!(call->want >> r & 1) || call->given >> r & 1) continue;
        kn_tensor_release(call->out[r]);
        call->out[r] = NULL;
    }
    const char *const *as = kn__ops_self->as;
    kn_error_op(as ? as[0] : info->name);
    return kn_error_defer(status);
}

static inline kn_status failure(void) {
    kn_status pending = kn_pending();
    return pending ? pending : kn_last_error()->status;
}

static inline kn_status place(kn__ops_thread *self, kn_op_call *call) {
    const kn__frame *frame = self->frame;
    call->threads = frame->threads;
    call->math = (uint8_t)frame->math;
    if (__builtin_expect(frame->device == call->device, 1)) {
        call->pool = frame->pool;
        call->stream = frame->stream;
        return KN_OK;
    }
    return kn__place(&call->pool, &call->stream, self, call->device);
}

/* Kept in a register, not computed anew at each use. */
static inline const kn_op_info *info_of(unsigned op) {
    const kn_op_info *info = &kn_op_table[op];
    __asm__("" : "+r"(info));
    return info;
}

static inline const char *label_of(const kn_op_call *call, const kn_op_info *info) {
    if (!info->labels) return info->name;
    return info->labels[call->want + ((unsigned)kn_prof_is_on_(KN_PROF_ALL_) << info->row)];
}

const char *kn__label_of(const kn_op_call *call) { return label_of(call, &kn_op_table[call->op]); }

static inline kn_scope begin_scope(const kn_op_call *call, const kn_op_info *info) {
    kn_scope off = {0};
    return kn_prof_is_on_(KN_PROF_GRAD_) ? kn_scope_begin_grad(label_of(call, info)) : off;
}

static inline void end_scope(kn_scope *scope, const kn_op_call *call) {
    if (__builtin_expect(scope->start != 0, 0)) kn__end_scope(scope, call);
}

/* Whether result r alone is written into its tensor: kernels may write all results at once. */
static inline __attribute__((unused)) bool is_alone(const kn_op_call *call, int r) {
    for (unsigned left = call->given & ~(1u << r); left; left &= left - 1) {
        if (call->out[__builtin_ctz(left)] == call->out[r]) return false;
    }
    return true;
}

/* Memory for the results, the kernel, the record. */
static kn_status fill_many(kn__ops_thread *self, kn_op_call *call, const kn_op_info *info) {
    int64_t n = 0;
    for (unsigned left = call->want; left; left &= left - 1) {
        int r = __builtin_ctz(left);
        kn_tensor *t = call->out[r];
        if (call->given >> r & 1) {
            KN_ASSERT(is_alone(call, r));
            KN_TRY(kn__claim(self, t->storage, call->stream));
        } else if (!call->is_view && !kn__storage_make(t, call->pool, call->device, call->stream)) {
            return kn_pending();
        }
        n |= t->n;
    }
    return n && !call->is_view ? run_kernel(self, call, info) : KN_OK;
}

/* The general case: several results, given ones, and those that only the tape wants. */
static inline __attribute__((always_inline)) kn_tensor *run_many(kn__ops_thread *self,
                                                                 kn_op_call *call,
                                                                 const kn_op_info *info,
                                                                 bool record) {
    uint8_t asked = call->want, made = asked;
    if (record) call->want = made |= info->out_needs;
    for (int r = 0; r < info->n_out; r++) {
        if (!(call->given >> r & 1)) call->out[r] = NULL;
    }
    if (!info->infer(call)) return failed(call, info, failure());
    kn_scope scope = {0};
    if (!call->is_view) scope = begin_scope(call, info);
    kn_status status = fill_many(self, call, info);
    if (call->n_work) kn__work_end(call, 0);
    if (status == KN_OK && record) {
        call->want = asked; /* the others have no readers but the tape */
        status = kn__recorder->record(self->frame->tape, call);
        call->want = made;
    }
    end_scope(&scope, call);
    if (__builtin_expect(status < 0, 0)) return failed(call, info, status);
    kn_tensor *first = call->out[__builtin_ctz(asked)];
    for (unsigned left = made & ~call->given; left && !call->loose; left &= left - 1) {
        int r = __builtin_ctz(left);
        if (asked >> r & 1) {
            if (!kn__frame_own(self, call->out[r])) first = NULL;
        } else {
            kn_tensor_release(call->out[r]); /* the tape has its own reference */
            call->out[r] = NULL;
        }
    }
    return first;
}

/* The one result of a call: its memory, the kernel, the record. */
static inline __attribute__((always_inline)) kn_tensor *fill_one(kn__ops_thread *self,
                                                                 kn_op_call *call,
                                                                 const kn_op_info *info,
                                                                 kn_tensor *t, const char *label,
                                                                 bool record, bool loose) {
    kn_scope scope = kn_scope_begin_grad(label);
    kn_status status = KN_OK;
    if (!kn__storage_make(t, call->pool, call->device, call->stream))
        status = kn_pending();
    else if (t->n)
        status = run_kernel(self, call, info);
    if (__builtin_expect(call->n_work, 0)) kn__work_end(call, 0);
    if (status == KN_OK && record) status = kn__recorder->record(self->frame->tape, call);
    end_scope(&scope, call);
    if (__builtin_expect(status < 0, 0)) return failed(call, info, status);
    return loose ? t : kn__frame_own(self, t);
}

/* A result on an input's data, made by infer. */
static kn_tensor *own_view(kn__ops_thread *self, kn_op_call *call, const kn_op_info *info,
                           kn_tensor *t, bool record) {
    kn_status status = record ? kn__recorder->record(self->frame->tape, call) : KN_OK;
    if (status < 0) return failed(call, info, status);
    return call->loose ? t : kn__frame_own(self, t);
}

/* Results that are computed when they are first read. */
static __attribute__((noinline)) kn_tensor *put_off(kn__ops_thread *self, kn_op_call *call,
                                                    const kn_op_info *info, bool record) {
    memset(call->out, 0, sizeof call->out);
    if (!info->infer(call)) return failed(call, info, failure());
    kn_status status = kn__fuse_defer(self, call);
    if (status == KN_OK && record) status = kn__recorder->record(self->frame->tape, call);
    if (status < 0) return failed(call, info, status);
    kn_tensor *first = call->out[__builtin_ctz(call->want)];
    for (unsigned left = call->loose ? 0 : call->want; left; left &= left - 1) {
        if (!kn__frame_own(self, call->out[__builtin_ctz(left)])) first = NULL;
    }
    return first;
}

/* A call whose result stays in the library's layout. *taken: it is. */
static __attribute__((noinline)) kn_tensor *keep_layout(bool *taken, kn__ops_thread *self,
                                                        kn_op_call *call, const kn_op_info *info) {
    memset(call->out, 0, sizeof call->out);
    *taken = true;
    if (!info->infer(call)) return failed(call, info, failure());
    kn_tensor *t = call->out[0];
    kn_scope scope = begin_scope(call, info);
    kn_status status = kn__host.layout_run(taken, self, call);
    end_scope(&scope, call);
    if (status < 0) {
        *taken = true;
        return failed(call, info, status);
    }
    if (*taken) return call->loose ? t : kn__frame_own(self, t);
    kn_tensor_release(t);
    return NULL;
}

/* A result that is put off, and gets one part more. */
static __attribute__((noinline)) kn_tensor *join(kn_op_call *call, const kn_op_info *info) {
    if (!info->infer(call)) return failed(call, info, failure());
    kn_status status = kn__fuse_join(call);
    return status == KN_OK ? call->out[0] : failed(call, info, status);
}

kn_tensor *kn_op_run(kn_op_call *call) {
    kn__ops_thread *self = kn__ops_thread_get();
    if (__builtin_expect(!self || kn_pending(), 0)) return NULL;
    const kn_op_info *info = info_of(call->op);
    if (__builtin_expect(!self->frame, 0)) {
        kn__no_frame();
        kn_error_op(info->name);
        return NULL;
    }
    if (__builtin_expect(self->frame->autocast, 0) && !call->loose && !call->edge) {
        return kn__run_autocast(self, call);
    }
    bool wants_grad = false;
    if (!call->loose && !check(call, info, &wants_grad)) return NULL;
    if (__builtin_expect(!call->device, 0)) call->device = self->frame->device;
    if (__builtin_expect(info->flags & KN_FLAG_F32 && kn__is_half(call->dtype), 0))
        return kn__run_f32(call);
    call->n_out = info->n_out;
    if (__builtin_expect(place(self, call) < 0, 0)) {
        kn_error_op(info->name);
        return NULL;
    }
    bool record = wants_grad && self->frame->recording && !call->given;
    if (__builtin_expect(self->frame->fuse || self->frame->layout || self->pending, 0)) {
        if (kn__fuse_joins(self, call)) return join(call, info);
        if (!record && kn__host.layout_takes(self, call)) {
            bool taken = false;
            kn_tensor *t = keep_layout(&taken, self, call, info);
            if (taken) return t;
        }
        if (kn__fuse_takes(self, call)) return put_off(self, call, info, record);
        kn_status status = kn__fuse_before(self, call);
        if (status < 0) {
            kn_error_op(info->name);
            return kn_error_defer(status);
        }
    }
    unsigned want = call->want;
    if (call->given || want & (want - 1) || (record && info->n_out > 1)) {
        return run_many(self, call, info, record);
    }
    int r = __builtin_ctz(want);
    if (info->n_out > 1) memset(call->out, 0, sizeof call->out);
    call->out[r] = NULL;
    if (!info->infer(call)) return failed(call, info, failure());
    kn_tensor *t = call->out[r];
    if (call->is_view) return own_view(self, call, info, t, record);
    return fill_one(self, call, info, t, label_of(call, info), record, call->loose);
}

/* kn_op_run for rows, the commonest ops: how many inputs there are is a constant, and what such a
 * call never has is left out. */
static inline __attribute__((always_inline)) kn_tensor *run_row(kn_op op, kn_tensor *const x[],
                                                                int n_in, kn_attr_scalars *attr) {
    kn_tensor *in[3]; /* a second list: x's stays in registers */
    for (int i = 0; i < n_in; i++) in[i] = x[i];
    kn__ops_thread *self = kn__ops_self;
    const kn_op_info *info = info_of(op);
    if (__builtin_expect(!self || !self->frame || kn_pending() || !info->uniform ||
                             self->frame->fuse || self->frame->autocast || self->pending,
                         0)) {
        return kn_op_call_run(op, attr, in, n_in);
    }
    kn_op_call call;
    kn_op_call_init(&call, op, attr, in, n_in);
    bool wants_grad = false;
    if (!check_quick(&call, x, n_in, info->uniform, &wants_grad)) return NULL;
    call.n_out = 1;
    if (__builtin_expect(place(self, &call) < 0, 0)) {
        kn_error_op(info->name);
        return NULL;
    }
    kn_tensor *t;
    if (__builtin_expect(are_alike(x, n_in), 1)) {
        call.flat = 1;
        call.out[0] = t = kn__header_new(self);
        if (!t) return failed(&call, info, failure());
        t->dtype = info->out[0] == KN_OUT_T ? call.dtype : info->out[0];
        t->n = x[0]->n;
        copy_dims(t, x[0]);
    } else {
        call.out[0] = NULL;
        if (!infer_broadcast(&call)) return failed(&call, info, failure());
        t = call.out[0];
    }
    bool record = wants_grad && self->frame->recording;
    return fill_one(self, &call, info, t, info->name, record, false);
}

kn_tensor *kn__row1(kn_op op, kn_tensor *x, kn_attr_scalars *attr) {
    return run_row(op, (kn_tensor *const[]){x}, 1, attr);
}

kn_tensor *kn__row2(kn_op op, kn_tensor *x, kn_tensor *y, kn_attr_scalars *attr) {
    return run_row(op, (kn_tensor *const[]){x, y}, 2, attr);
}

kn_tensor *kn__row3(kn_op op, kn_tensor *x, kn_tensor *y, kn_tensor *w, kn_attr_scalars *attr) {
    return run_row(op, (kn_tensor *const[]){x, y, w}, 3, attr);
}

kn_tensor *kn__op_same(kn_tensor *x) {
    kn_attr_shape attr = {.n_dims = x->n_dims};
    memcpy(attr.dim, x->dim, sizeof attr.dim);
    return KN_CALL(reshape, &attr, x);
}
