/* Data in and out of tensors, and between devices. */
#include <stdio.h>
#include <string.h>

#include "capture.h"
#include "convert.h"
#include "fuse.h"
#include "run.h"

static kn_status copy(kn__ops_thread *self, kn_device *to, void *dst, kn_device *from,
                      const void *src, size_t size_bytes, kn_stream stream) {
    if (!size_bytes) return KN_OK;
    if (to == self->host && from == self->host) {
        memmove(dst, src, size_bytes); /* data may be that of a view of t */
        return KN_OK;
    }
    return kn_device_copy(to, dst, from, src, size_bytes, stream);
}

static size_t size_of(const kn_tensor *t) {
    return (size_t)t->n * kn_dtype_bytes((kn_dtype)t->dtype);
}

static kn_tensor *new_from(kn__ops_thread *self, kn_device *device, const void *data,
                           kn_dtype dtype, kn_shape shape) {
    kn_tensor *t = kn_tensor_new(device, dtype, shape);
    if (!t) return NULL;
    kn_status status =
        copy(self, device, t->data, self->host, data, size_of(t), t->storage->stream);
    if (status == KN_OK) return t;
    kn_drop(t);
    return kn_error_defer(status);
}

kn_tensor *kn__constant_from(kn_device *device, const void *data, kn_dtype dtype, kn_shape shape) {
    kn__ops_thread *self = kn__ops_thread_get();
    if (!self || kn_pending()) return NULL;
    kn__plan *plan = self->capture;
    self->capture = NULL; /* as if made before the step: plans keep such tensors */
    kn_tensor *t = new_from(self, device, data, dtype, shape);
    self->capture = plan;
    return t;
}

kn_tensor *kn_tensor_from(const void *data, kn_dtype dtype, kn_shape shape) {
    kn__ops_thread *self = kn__ops_thread_get();
    if (!self || kn_pending()) return NULL;
    if (!data && kn__shape_numel(&shape) > 0) {
        return KN_FAIL_NULL(KN_ERR_INVALID, "kn_tensor_from: data is NULL");
    }
    if (self->capture) return kn_error_defer(kn__capture_forbids(self, "kn_tensor_from"));
    return new_from(self, kn_frame_device(), data, dtype, shape);
}

/* --- reading --- */

static kn_status readable(const char *who, kn_tensor *t) {
    KN_TRY(kn_check());
    KN_TRY(kn__capture_forbids(kn__ops_self, who));
    if (kn__is_whole(t)) return kn__compute(t);
    char name[32];
    snprintf(name, sizeof name, "%s: t", who);
    return kn__fail_unreadable(name, t);
}

/* Waits for the tensor's own stream, and for nothing else. */
static kn_status read_out(kn__ops_thread *self, void *out, kn_tensor *t) {
    const kn_storage *s = t->storage;
    KN_TRY(copy(self, self->host, out, s->device, t->data, size_of(t), s->stream));
    return s->device == self->host ? KN_OK : kn_stream_sync(s->device, s->stream);
}

kn_status kn_item(double *out, kn_tensor *t) {
    KN_TRY(readable("kn_item", t));
    if (!out) return KN_FAIL(KN_ERR_INVALID, "kn_item: out is NULL");
    if (t->n != 1) {
        char text[256];
        return KN_FAIL(KN_ERR_SHAPE, "kn_item: t %s has %lld elements, not one",
                       kn_shape_text(text, sizeof text, kn_tensor_shape(t)), (long long)t->n);
    }
    kn__ops_thread *self = kn__ops_thread_get();
    if (!self) return kn_check();
    uint64_t bytes = 0;
    KN_TRY(read_out(self, &bytes, t));
    *out = kn__as_double(&bytes, (kn_dtype)t->dtype);
    return KN_OK;
}

kn_status kn_copy_out(void *out, size_t out_bytes, kn_tensor *t) {
    KN_TRY(readable("kn_copy_out", t));
    if (!out && out_bytes) return KN_FAIL(KN_ERR_INVALID, "kn_copy_out: out is NULL");
    if (out_bytes != size_of(t)) {
        char text[256];
        return KN_FAIL(KN_ERR_SHAPE, "kn_copy_out: out has %zu bytes, t %s %s has %zu", out_bytes,
                       kn_shape_text(text, sizeof text, kn_tensor_shape(t)),
                       kn_dtype_name((kn_dtype)t->dtype), size_of(t));
    }
    kn__ops_thread *self = kn__ops_thread_get();
    return self ? read_out(self, out, t) : kn_check();
}

kn_status kn_copy_into(kn_tensor *t, const void *data, size_t data_bytes) {
    KN_TRY(readable("kn_copy_into", t));
    if (!data && data_bytes) return KN_FAIL(KN_ERR_INVALID, "kn_copy_into: data is NULL");
    if (data_bytes != size_of(t)) {
        char text[256];
        return KN_FAIL(KN_ERR_SHAPE, "kn_copy_into: data has %zu bytes, t %s %s has %zu",
                       data_bytes, kn_shape_text(text, sizeof text, kn_tensor_shape(t)),
                       kn_dtype_name((kn_dtype)t->dtype), size_of(t));
    }
    kn__ops_thread *self = kn__ops_thread_get();
    if (!self) return kn_check();
    kn_storage *s = t->storage;
    if (self->pending) KN_TRY(kn__fuse_before_write(self, s));
    KN_TRY(kn__await_readers(self, s, s->stream));
    s->version++;
    return copy(self, s->device, t->data, self->host, data, data_bytes, s->stream);
}

const void *kn_data(kn_tensor *t) { return kn_op_data(t); }

void *kn_data_mut(kn_tensor *t) {
    void *data = kn_op_data(t);
    if (!t || !kn__is_whole(t) || kn_pending()) return NULL;
    kn_storage *s = t->storage;
    kn__ops_thread *self = kn__ops_self;
    if (self->pending) {
        kn_status status = kn__fuse_before_write(self, s);
        if (status < 0) return kn_error_defer(status);
    }
    kn_stream stream = s->stream;
    if (s->device != self->host) {
        if (self->frame && self->frame->device == s->device)
            stream = self->frame->stream;
        else if (kn_stream_of_thread(&stream, s->device) < 0)
            return NULL; /* kn_op_data had it */
    }
    kn_status status = kn__await_readers(self, s, stream);
    if (status < 0) return kn_error_defer(status);
    s->version++;
    s->stream = stream;
    return data;
}

/* --- between devices --- */

static bool is_direct(const kn_device *a, const kn_device *b) {
    return kn_device_kind_get(a) == KN_DEVICE_CUDA && kn_device_kind_get(b) == KN_DEVICE_CUDA;
}

static kn_status follow(kn__ops_thread *self, kn_stream stream, kn_device *device,
                        kn_stream other) {
    kn_event *event = NULL;
    KN_TRY(kn__thread_event(&event, self, device));
    KN_TRY(kn_event_record(event, other));
    return kn_event_wait(event, stream);
}

/* The copy runs on x's stream, after earlier users of y's memory; the host doesn't wait. */
static kn_status move_direct(kn__ops_thread *self, kn_tensor *y, kn_tensor *x) {
    kn_device *from = x->storage->device, *to = y->storage->device;
    kn_stream source = x->storage->stream, target = y->storage->stream;
    if (!x->n) return KN_OK;
    KN_TRY(follow(self, source, to, target));
    KN_TRY(copy(self, to, y->data, from, x->data, size_of(x), source));
    return follow(self, target, from, source);
}

/* The host's streams are program order: data copied to it must have arrived. */
static kn_status move(kn__ops_thread *self, kn_tensor *y, kn_tensor *x) {
    kn_device *from = x->storage->device, *to = y->storage->device;
    kn_device *gpu = from == self->host ? to : from;
    kn_stream stream = y->storage->stream;
    if (from != self->host && to != self->host) return move_direct(self, y, x);
    if (gpu == from) {
        stream = x->storage->stream; /* in order after its writer */
    }
    KN_TRY(copy(self, to, y->data, from, x->data, size_of(x), stream));
    return to == self->host && x->n ? kn_stream_sync(from, stream) : KN_OK;
}

static kn_tensor *moved(kn__ops_thread *self, kn_tensor *x, kn_device *device) {
    kn_tensor *y = kn_tensor_new(device, (kn_dtype)x->dtype, kn_tensor_shape(x));
    if (!y) return NULL;
    kn_status status = move(self, y, x);
    if (status == KN_OK && kn_op_recording(&x, 1)) {
        kn_attr_to attr = {device, x->storage->device};
        kn_op_call call;
        kn_op_call_init(&call, KN_OP_to, &attr, &x, 1);
        call.n_out = 1;
        call.out[0] = y;
        status = kn__recorder->record(self->frame->tape, &call);
    }
    if (status == KN_OK) return y;
    kn_drop(y);
    kn_error_op("to");
    return kn_error_defer(status);
}

kn_tensor *kn_to(kn_tensor *x, kn_device *device) {
    if (!kn__check_readable(KN_OP_to, &x, 1)) return NULL;
    if (!device) return kn_op_fail(KN_OP_to, KN_ERR_INVALID, "device is NULL");
    if (x->storage->device == device) return kn__op_same(x);
    kn__ops_thread *self = kn__ops_thread_get();
    if (!self || kn_pending()) return NULL;
    kn_status status = kn__capture_forbids(self, "kn_to");
    if (status == KN_OK) status = kn__compute(x);
    if (status < 0) return kn_error_defer(status);
    if (x->storage->device != self->host && device != self->host &&
        !is_direct(x->storage->device, device)) { /* by the host */
        kn_tensor *between = kn_to(x, self->host);
        return between ? kn_to(between, device) : NULL;
    }
    kn_scope scope = kn_scope_begin_static("to");
    kn_tensor *y = moved(self, x, device);
    kn_scope_end(&scope);
    return y;
}
