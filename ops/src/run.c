#include "run.h"

#include <stdio.h>

static inline kn_device *device_of(const kn_tensor *t) { return t->storage->device; }

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

/* A block that its own stream does not know to be in use says so before anybody frees it. */
static kn_status use(kn__ops_thread *self, const kn_storage *s, kn_stream stream) {
    if (s->device == self->host || !s->data) return KN_OK;
    return kn_block_use(s->pool, s->data, stream);
}

static kn_status await_all(kn__ops_thread *self, const kn_op_call *call, kn_stream stream) {
    for (int i = 0; i < call->n_in; i++) {
        if (call->in[i] != &kn__none) KN_TRY(kn__await_writer(self, call->in[i]->storage, stream));
    }
    return KN_OK;
}

static kn_status use_all(kn__ops_thread *self, const kn_op_call *call, kn_stream stream) {
    for (int i = 0; i < call->n_in; i++) {
        const kn_tensor *t = call->in[i];
        if (t != &kn__none && t->storage->stream != stream) {
            KN_TRY(use(self, t->storage, stream));
        }
    }
    return KN_OK;
}

void *kn_op_data(kn_tensor *t) {
    kn__ops_thread *self = kn__ops_thread_get();
    if (!self || kn_pending()) return NULL;
    if (!kn__is_whole(t)) return kn_error_defer(kn__fail_unreadable("kn_data: t", t));
    const kn_storage *s = t->storage;
    if (s->device == self->host) return t->data;
    kn_stream stream = NULL;
    kn_status status = KN_OK;
    if (self->frame && self->frame->device == s->device)
        stream = self->frame->stream;
    else
        status = kn_stream_of_thread(&stream, s->device);
    if (status == KN_OK) status = kn__await_writer(self, s, stream);
    if (status == KN_OK && s->stream != stream) status = use(self, s, stream);
    return status == KN_OK ? t->data : kn_error_defer(status);
}

/* --- scratch --- */

kn_status kn__scratch(void **out, const kn_kernel_call *call, size_t size_bytes) {
    return kn_alloc(out, call->out->storage->pool, size_bytes, call->stream);
}

void kn__scratch_end(const kn_kernel_call *call, void *ptr) {
    kn_free(call->out->storage->pool, ptr);
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

static kn_status run_kernel(kn__ops_thread *self, kn_op_call *call, kn_device *device,
                            kn_stream stream) {
    const kn_kernel_fn *kernels =
        device == self->host ? kn__host_kernels : kn__device_kernels(device);
    if (!kernels) return kn_last_error()->status;
    kn_kernel_fn kernel = kernels[call->op];
    if (!kernel) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_%s: %s has no kernel for it", kn_op_name(call->op),
                       kn_device_name(device));
    }
    kn_kernel_call kernel_call = {call->op,  call->n_in,           call->in,         call->out,
                                  call->aux, call->attr,           call->accumulate, device,
                                  stream,    self->frame->threads, self->frame->math};
    if (device == self->host) return kernel(&kernel_call);
    KN_TRY(await_all(self, call, stream));
    KN_TRY(kernel(&kernel_call));
    return use_all(self, call, stream);
}

kn_status kn__claim(kn__ops_thread *self, kn_storage *s, kn_stream stream) {
    KN_TRY(kn__await_writer(self, s, stream));
    if (s->stream != stream) {
        KN_TRY(use(self, s, stream));
        s->stream = stream;
    }
    s->version++;
    return KN_OK;
}

static kn_status run(kn__ops_thread *self, kn_op_call *call, kn_device *device) {
    kn_pool *pool = NULL;
    kn_stream stream = NULL;
    bool given = call->out != NULL;
    if (kn__place(&pool, &stream, self, device) < 0) return kn_check();
    if (given) {
        if (!kn__is_whole(call->out)) {
            return KN_FAIL(KN_ERR_INVALID, "the result's tensor has no data");
        }
        KN_TRY(kn__claim(self, call->out->storage, stream));
    } else {
        call->out = kn__tensor_make(self, pool, device, stream, call->dtype, &call->shape);
        if (!call->out) return kn_check();
    }
    if (call->aux) {
        KN_TRY(kn__claim(self, call->aux->storage, stream));
    } else if (call->want_aux) {
        call->aux = kn__tensor_make(self, pool, device, stream, call->aux_dtype, &call->aux_shape);
        if (!call->aux) return kn_check();
    }
    if (call->out->n) KN_TRY(run_kernel(self, call, device, stream));
    if (given || !kn_op_recording(call->in, call->n_in)) return KN_OK;
    return kn__recorder->record(self->frame->tape, call);
}

static void *failed(kn_op_call *call, bool given, kn_status status) {
    kn_error_op(kn_op_name(call->op));
    kn_error_defer(status);
    kn_drop(call->aux);
    if (!given) kn_drop(call->out);
    call->out = call->aux = NULL;
    return NULL;
}

kn_tensor *kn_op_run(kn_op_call *call) {
    kn__ops_thread *self = kn__ops_thread_get();
    if (!self || kn_pending()) return NULL;
    if (!self->frame) {
        kn__no_frame();
        kn_error_op(kn_op_name(call->op));
        return NULL;
    }
    kn_device *device = call->device ? call->device : device_of(call->in[0]);
    bool given = call->out != NULL;
    kn_scope scope = kn_scope_begin_grad(kn_op_name(call->op));
    kn_status status = run(self, call, device);
    kn_scope_end(&scope);
    return __builtin_expect(status < 0, 0) ? failed(call, given, status) : call->out;
}

kn_tensor *kn__op_same(kn_tensor *x) {
    return kn__op_view(KN_OP_reshape, x, kn_tensor_shape(x), 0, NULL, 0);
}

kn_tensor *kn__op_view(kn_op op, kn_tensor *x, kn_shape shape, int64_t offset, const void *attr,
                       size_t attr_bytes) {
    kn_tensor *y = kn_tensor_view(x, shape, offset);
    if (!y) {
        if (kn_pending()) kn_error_op(kn_op_name(op));
        return NULL;
    }
    if (!kn_op_recording(&x, 1)) return y;
    kn_op_call call = {.op = op,
                       .n_in = 1,
                       .in = &x,
                       .out = y,
                       .attr = attr,
                       .attr_bytes = attr_bytes,
                       .dtype = (kn_dtype)x->dtype,
                       .shape = shape};
    kn_status status = kn__recorder->record(kn__ops_self->frame->tape, &call);
    return status < 0 ? failed(&call, false, status) : y;
}
