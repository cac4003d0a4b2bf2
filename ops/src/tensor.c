#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "checked.h"
#include "fuse.h"
#include "kernel.h"
#include "run.h"
#include "thread.h"

enum { ENDED_MAX = 4096 }; /* records of ended tensors: more go back to malloc */

/* --- shapes --- */

char *kn_shape_text(char *out, size_t out_bytes, kn_shape shape) {
    size_t at = 0;
    int n_dims = shape.n_dims;
    if (n_dims < 0 || n_dims > KN_DIMS_MAX) { /* KN_ALL, or a mistake */
        snprintf(out, out_bytes, "a shape of %d dimensions", n_dims);
        return out;
    }
    for (int i = 0; i < n_dims && at < out_bytes; i++) {
        at += (size_t)snprintf(out + at, out_bytes - at, "%c%lld", i ? ',' : '[',
                               (long long)shape.dim[i]);
    }
    if (at < out_bytes) snprintf(out + at, out_bytes - at, "%s", n_dims ? "]" : "[]");
    return out;
}

int64_t kn__shape_numel(const kn_shape *shape) {
    if (shape->n_dims < 0 || shape->n_dims > KN_DIMS_MAX) return -1;
    int64_t n = 1;
    bool empty = false;
    for (int i = 0; i < shape->n_dims; i++) {
        int64_t d = shape->dim[i];
        if (d < 0) return -1;
        if (d == 0)
            empty = true;
        else if (__builtin_mul_overflow(n, d, &n) || n > INT64_MAX / 16)
            return -1;
    }
    return empty ? 0 : n;
}

kn_shape kn_tensor_shape(const kn_tensor *t) {
    kn_shape shape = KN_SCALAR;
    if (!t) return shape;
    shape.n_dims = t->n_dims;
    memcpy(shape.dim, t->dim, sizeof shape.dim);
    return shape;
}

int64_t kn_tensor_numel(const kn_tensor *t) { return t ? t->n : 0; }
kn_dtype kn_tensor_dtype(const kn_tensor *t) { return t ? (kn_dtype)t->dtype : (kn_dtype)0; }
kn_device *kn_tensor_device(const kn_tensor *t) {
    return kn__is_whole(t) ? t->storage->device : NULL;
}

/* --- headers and storage --- */

_Static_assert(offsetof(kn_tensor, dim) == 64, "the first cache line");

kn_tensor *kn__record_other(kn__ops_thread *self) {
    (void)self;
    kn_tensor *t = kn__record_new();
    return t ? t : KN_FAIL_NULL(KN_ERR_OOM, "no host memory for a tensor's header");
}

/* Shape, file and line stay for the message. */
static void record_end(kn_tensor *t) {
    kn__ops_thread *self = kn__ops_self;
    t->grad = 0;
    if (!self || kn__any_records()) {
        kn__records_leave(t, &t->grad, 1);
        return;
    }
    *self->ended_last = (kn_edge)t;
    self->ended_last = &t->grad;
    if (++self->n_ended <= ENDED_MAX) return;
    t = self->ended;
    self->ended = (kn_tensor *)t->grad;
    self->n_ended--;
    free(t);
}

static void set_shape(kn_tensor *t, const kn_shape *shape, int64_t n) {
    t->n_dims = (uint8_t)shape->n_dims;
    memcpy(t->dim, shape->dim, sizeof t->dim);
    t->n = n;
}

/* True when the caller held the last reference. The last owner needs no atomic write. */
static inline bool unref(_Atomic uint32_t *refs) {
    if (atomic_load_explicit(refs, memory_order_acquire) == 1) return true;
    return atomic_fetch_sub_explicit(refs, 1, memory_order_acq_rel) == 1;
}

static inline void ref(_Atomic uint32_t *refs, uint32_t n) {
    atomic_fetch_add_explicit(refs, n, memory_order_relaxed);
}

enum { USER = 2, HEADER = 1 }; /* what a tensor on the data, and the header round it, count for */

static void data_free(kn_storage *s) {
    if (s->owner) {
        if (s->owner->release_fn) s->owner->release_fn(s->owner->ctx);
        free(s->owner);
    }
    if (s->pool) kn_free(s->pool, s->data);
}

static void storage_unref(kn_storage *s, uint32_t n) {
    uint32_t before = atomic_load_explicit(&s->refs, memory_order_acquire);
    if (before == n)
        atomic_store_explicit(&s->refs, 0, memory_order_relaxed);
    else
        before = atomic_fetch_sub_explicit(&s->refs, n, memory_order_acq_rel);
    uint32_t after = before - n;
    if (after < USER && before >= USER) {
        if (s->data)
            data_free(s);
        else if (s->expr)
            kn__expr_drop(s->expr);
    }
    if (after == 0) record_end((kn_tensor *)(void *)((char *)s - offsetof(kn_tensor, own)));
}

void kn__storage_share(kn_storage *s) { ref(&s->refs, USER); }
void kn__storage_drop(kn_storage *s) { storage_unref(s, USER); }

/* Data of a pool that only the tensor of this header uses: nearly every one. */
static inline bool is_sole_user(const kn_storage *s) {
    return atomic_load_explicit(&s->refs, memory_order_acquire) == USER + HEADER && s->data &&
           s->pool && !s->owner;
}

static __attribute__((noinline)) void end_shared(kn_tensor *t, kn_storage *s) {
    if (s) storage_unref(s, USER);
    storage_unref(&t->own, HEADER);
}

kn_tensor *kn_tensor_retain(kn_tensor *t) {
    KN_ASSERT(!t || t->state != KN_TENSOR_ENDED);
    if (t && t != &kn__none) ref(&t->refs, 1);
    return t;
}

/* KN_NONE has no references, so only the last owner's way does not look for it. */
static inline bool unref_tensor(kn_tensor *t) {
    return atomic_load_explicit(&t->refs, memory_order_acquire) == 1 ||
           (t != &kn__none && unref(&t->refs));
}

void kn_tensor_release(kn_tensor *t) {
    KN_ASSERT(!t || t->state != KN_TENSOR_ENDED);
    if (!t || !unref_tensor(t)) return;
    if (t->grad && kn__recorder) kn__recorder->grad_release(t);
    kn_storage *s = t->storage;
    atomic_store_explicit(&t->refs, 0, memory_order_relaxed);
    t->state = KN_TENSOR_ENDED;
    t->storage = NULL;
    t->data = NULL;
    if (s == &t->own && is_sole_user(s)) {
        kn_free(s->pool, s->data);
        atomic_store_explicit(&s->refs, 0, memory_order_relaxed);
        record_end(t);
    } else {
        end_shared(t, s);
    }
}

void kn__tensor_forget(kn_tensor *t) {
    kn_storage *s = t->storage;
    if (atomic_load_explicit(&t->refs, memory_order_acquire) != t->again_refs + 1u) return;
    if (!s || s->version) return; /* forgotten already, or not as it was made */
    t->storage = NULL;
    t->data = NULL;
    t->state = KN_TENSOR_FORGOTTEN;
    storage_unref(s, USER);
}

kn_status kn_tensor_restore(kn_tensor *t, kn_tensor *from) {
    KN_ASSERT(t->state == KN_TENSOR_FORGOTTEN && t->n == from->n && t->dtype == from->dtype);
    KN_TRY(kn__compute(from));
    kn__header_share(t, from, 0);
    t->state = KN_TENSOR_LIVE;
    return KN_OK;
}

void *kn__fail_memory(const kn_tensor *t) {
    char text[256];
    return kn_error_defer(KN_FAIL(KN_ERR_OOM, "no memory for a tensor %s %s: %s",
                                  kn_shape_text(text, sizeof text, kn_tensor_shape(t)),
                                  kn_dtype_name((kn_dtype)t->dtype), kn_last_error()->message));
}

void *kn__fail_shape(const char *name, const kn_shape *shape) {
    const char *start = name ? "kn_" : "", *stop = name ? ": " : "";
    if (!name) name = "";
    if (shape->n_dims < 0 || shape->n_dims > KN_DIMS_MAX) {
        return KN_FAIL_NULL(KN_ERR_SHAPE,
                            "%s%s%sa shape has %d dimensions; at most %d are possible", start, name,
                            stop, shape->n_dims, KN_DIMS_MAX);
    }
    char text[256];
    return KN_FAIL_NULL(KN_ERR_SHAPE, "%s%s%sshape %s is negative or too large", start, name, stop,
                        kn_shape_text(text, sizeof text, *shape));
}

/* A header of that dtype and shape, with a place for its data. */
static kn_tensor *header_of(kn_pool **pool, kn_stream *stream, kn_device *device, kn_dtype dtype,
                            const kn_shape *shape) {
    kn__ops_thread *self = kn__ops_thread_get();
    if (!self || kn_pending()) return NULL;
    if (!self->frame) return kn__no_frame();
    if (!kn_dtype_bytes(dtype)) {
        return KN_FAIL_NULL(KN_ERR_DTYPE, "%d is no dtype", (int)dtype);
    }
    if (kn__place(pool, stream, self, device) < 0) return NULL;
    int64_t n = kn__shape_numel(shape);
    if (n < 0) return kn__fail_shape(NULL, shape);
    kn_tensor *t = kn__header_new(self);
    if (!t) return NULL;
    t->dtype = (uint8_t)dtype;
    set_shape(t, shape, n);
    return t;
}

kn_tensor *kn_tensor_new(kn_device *device, kn_dtype dtype, kn_shape shape) {
    kn_pool *pool = NULL;
    kn_stream stream = NULL;
    kn_tensor *t = header_of(&pool, &stream, device, dtype, &shape);
    if (!t) return NULL;
    if (kn__storage_make(t, pool, device, stream)) {
        kn__plan *plan = kn__ops_self->capture;
        if (plan) plan->hooks->made(plan, t->storage, KN_OP_COUNT);
        return kn__frame_own(kn__ops_self, t);
    }
    kn_tensor_release(t);
    return NULL;
}

kn_tensor *kn_tensor_adopt(kn_device *device, kn_dtype dtype, kn_shape shape, void *data,
                           kn_owner owner) {
    kn_pool *pool = NULL;
    kn_stream stream = NULL;
    kn_tensor *t = header_of(&pool, &stream, device, dtype, &shape);
    if (!t) return NULL;
    kn__ops_thread *self = kn__ops_self;
    kn_owner *own = malloc(sizeof *own);
    if (!own || (self->n_owned == self->owned_cap && !kn__owned_grow(self))) {
        free(own);
        kn_tensor_release(t);
        return KN_FAIL_NULL(KN_ERR_OOM, "no host memory for a tensor's owner");
    }
    *own = owner;
    bool empty = !data || !t->n;
    t->own = (kn_storage){.device = device, .data = empty ? NULL : data, .stream = stream};
    t->own.size_bytes = (size_t)t->n * kn__dtype_size[dtype];
    t->own.owner = own;
    atomic_store_explicit(&t->own.refs, USER + HEADER, memory_order_relaxed);
    t->storage = &t->own;
    t->data = t->own.data;
    kn__frame_own(self, t);
    if (!empty) return t;
    if (owner.release_fn) owner.release_fn(owner.ctx); /* nothing to use */
    free(own);
    return t;
}

void kn__header_share(kn_tensor *view, kn_tensor *t, int64_t offset) {
    ref(&t->storage->refs, USER);
    view->storage = t->storage;
    view->data = t->data ? (char *)t->data + (size_t)offset * kn__dtype_size[t->dtype] : NULL;
    view->dtype = t->dtype;
    view->layout = t->layout;
    view->of_input = kn__is_of_input(kn__ops_self->capture, t);
}

static kn_tensor *header_on(kn_tensor *t, const kn_shape *shape, int64_t n, int64_t offset) {
    kn__ops_thread *self = kn__ops_thread_get();
    if (!self || kn_pending()) return NULL;
    if (!self->frame) return kn__no_frame();
    kn_status status = kn__compute(t);
    if (status < 0) return kn_error_defer(status);
    kn_tensor *view = kn__header_new(self);
    if (!view) return NULL;
    kn__header_share(view, t, offset);
    set_shape(view, shape, n);
    return kn__frame_own(self, view);
}

kn_tensor *kn_tensor_view(kn_tensor *t, kn_shape shape, int64_t offset) {
    KN_ASSERT(kn__is_whole(t) && t->layout == KN_LAYOUT_PLAIN);
    int64_t n = kn__shape_numel(&shape);
    if (n < 0) return kn__fail_shape(NULL, &shape);
    KN_ASSERT(offset >= 0 && offset + n <= t->n);
    return header_on(t, &shape, n, offset);
}

kn_tensor *kn_tensor_alias(kn_tensor *t) {
    KN_ASSERT(kn__is_whole(t));
    kn_shape shape = kn_tensor_shape(t);
    return header_on(t, &shape, t->n, 0);
}

kn_status kn_tensor_compute(kn_tensor *t) { return kn__compute(t); }

kn_status kn_compute(kn_tensor *const t[], int n) {
    KN_TRY(kn_check());
    if (n < 0) return KN_FAIL(KN_ERR_INVALID, "kn_compute: n is %d", n);
    if (!t && n > 0) return KN_FAIL(KN_ERR_INVALID, "kn_compute: t is NULL");
    for (int i = 0; i < n; i++) {
        if (!kn__is_whole(t[i])) return kn__fail_unreadable("kn_compute: t", t[i]);
        KN_TRY(kn__fuse_keep(t[i]));
    }
    for (int i = n; i-- > 0;) KN_TRY(kn__compute(t[i]));
    return KN_OK;
}

void kn_tensor_consume(kn_tensor *t) {
    if (!kn__is_whole(t)) return;
    kn_storage *s = t->storage;
    t->storage = NULL;
    t->data = NULL;
    t->state = KN_TENSOR_CONSUMED;
    storage_unref(s, USER);
}

const char *kn_tensor_problem(const kn_tensor *t) {
    if (!t) return "is NULL";
    if (t == &kn__none) return "is KN_NONE";
    if (t->storage) return NULL;
    return t->state == KN_TENSOR_CONSUMED
               ? "was consumed by kn_backward or kn_gradients; a slot (kn_hold) keeps it"
               : "has ended with its frame or by kn_drop; kn_keep or a slot (kn_hold) keeps it";
}

kn_status kn__fail_unreadable(const char *name, const kn_tensor *t) {
    char shape[256] = "", site[256] = "";
    bool known = t && t != &kn__none;
    if (known) kn_shape_text(shape, sizeof shape, kn_tensor_shape(t));
    if (known && t->file) snprintf(site, sizeof site, " (%s:%d)", t->file, t->line);
    return KN_FAIL(KN_ERR_INVALID, "%s%s%s%s %s", name, known ? " " : "", shape, site,
                   kn_tensor_problem(t));
}

/* --- slots --- */

kn_status kn_hold(kn_tensor **slot, kn_tensor *t) {
    KN_TRY(kn_check());
    if (!slot || !t) return KN_FAIL(KN_ERR_INVALID, "kn_hold: %s is NULL", slot ? "t" : "slot");
    if (t->state == KN_TENSOR_ENDED) return kn__fail_unreadable("kn_hold: t", t);
    KN_TRY(kn__compute(t));
    kn_tensor *old = *slot;
    kn_tensor_retain(t);
    if (t != &kn__none) ref(&t->holds, 1);
    *slot = t;
    kn_unhold(&old);
    return KN_OK;
}

void kn_unhold(kn_tensor **slot) {
    kn_tensor *t = *slot;
    *slot = NULL;
    if (!t || t == &kn__none) return;
    atomic_fetch_sub_explicit(&t->holds, 1, memory_order_relaxed);
    kn_tensor_release(t);
}

static __attribute__((noinline)) kn_tensor *locate_error(const char *file, int line) {
    if (kn_pending()) kn_error_site(file, line);
    return NULL;
}

kn_tensor *kn_located(kn_tensor *t, const char *file, int line) {
    if (!t) return locate_error(file, line);
    if (t->file) return t;
    t->line = line;
    t->file = file;
    return t;
}
