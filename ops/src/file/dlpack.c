#include <inttypes.h>
#include <knet/dlpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/host.h"
#include "run.h"

/* --- the structs of DLPack's binary interface --- */

enum { CPU = 1, CUDA = 2, CUDA_HOST = 3, CUDA_MANAGED = 13 }; /* device types */
enum { CODE_INT = 0, CODE_UINT = 1, CODE_FLOAT = 2, CODE_BFLOAT = 4, CODE_BOOL = 6 };
enum { MAJOR = 1, MINOR = 0, READ_ONLY = 1 };

typedef struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t n_dims;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides; /* strides in elements; NULL: row-major */
    uint64_t byte_offset;
} dl_tensor;

typedef struct DLManagedTensor {
    dl_tensor tensor;
    void *ctx;
    void (*deleter)(struct DLManagedTensor *self);
} managed_old;

typedef struct DLManagedTensorVersioned {
    struct {
        uint32_t major, minor;
    } version;
    void *ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    dl_tensor tensor;
} managed_new;

_Static_assert(sizeof(dl_tensor) == 48 && sizeof(managed_old) == 64 && sizeof(managed_new) == 80,
               "the layout of 64-bit systems");

static const struct {
    kn_dtype dtype;
    uint8_t code, bits;
} dtypes[] = {{KN_F32, CODE_FLOAT, 32},   {KN_F64, CODE_FLOAT, 64}, {KN_F16, CODE_FLOAT, 16},
              {KN_BF16, CODE_BFLOAT, 16}, {KN_I64, CODE_INT, 64},   {KN_I32, CODE_INT, 32},
              {KN_U8, CODE_UINT, 8},      {KN_BOOL, CODE_BOOL, 8}};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

/* --- export --- */

typedef struct exported {
    union {
        managed_old old;
        managed_new new;
    } managed; /* first: the receiver has its address */
    kn_tensor *t;
    int64_t shape[KN_DIMS_MAX], strides[KN_DIMS_MAX];
} exported;

static void exported_end(exported *e) {
    kn_tensor_release(e->t);
    free(e);
}

static void end_old(managed_old *m) { exported_end((exported *)m); }
static void end_new(managed_new *m) { exported_end((exported *)m); }

static kn_status find_device(dl_tensor *out, const char *who, const kn_device *device) {
    out->device.id = 0;
    out->device.type = CPU;
    if (kn_device_kind_get(device) == KN_DEVICE_HOST) return KN_OK;
    out->device.type = CUDA;
    if (sscanf(kn_device_name(device), "cuda:%d", &out->device.id) == 1) return KN_OK;
    return KN_FAIL(KN_ERR_UNSUPPORTED, "%s: DLPack has no device like %s", who,
                   kn_device_name(device));
}

static kn_status fill_tensor(dl_tensor *out, exported *e, const char *who, kn_tensor *t) {
    KN_TRY(kn_check());
    if (!kn__is_whole(t)) {
        char name[48];
        snprintf(name, sizeof name, "%s: t", who);
        return kn__fail_unreadable(name, t);
    }
    KN_TRY(find_device(out, who, kn_tensor_device(t)));
    out->data = kn_op_data(t);
    KN_TRY(kn_check());
    if (out->device.type == CPU) KN_TRY(kn__host.kept_weights_close(t->storage));
    int64_t stride = 1;
    for (int i = t->n_dims - 1; i >= 0; i--) {
        e->shape[i] = t->dim[i];
        e->strides[i] = stride;
        stride *= t->dim[i] ? t->dim[i] : 1;
    }
    out->n_dims = t->n_dims;
    out->shape = e->shape;
    out->strides = e->strides;
    for (int i = 0; i < N_DTYPES; i++) {
        if (dtypes[i].dtype != (kn_dtype)t->dtype) continue;
        out->dtype.code = dtypes[i].code;
        out->dtype.bits = dtypes[i].bits;
    }
    out->dtype.lanes = 1;
    /* Of its own: kn_backward may consume t, and t's frame end. */
    kn_tensor *alias = kn_tensor_alias(t);
    if (!alias) return kn_check();
    e->t = kn_tensor_detach_frame(alias);
    return KN_OK;
}

static kn_status export_as(exported **out, const char *who, kn_tensor *t, bool is_new) {
    exported *e = calloc(1, sizeof *e);
    if (!e) return KN_FAIL(KN_ERR_OOM, "%s: no memory", who);
    dl_tensor *tensor = is_new ? &e->managed.new.tensor : &e->managed.old.tensor;
    kn_status status = fill_tensor(tensor, e, who, t);
    if (status == KN_OK)
        *out = e;
    else
        free(e);
    return status;
}

kn_status kn_dlpack_export(struct DLManagedTensor **out, kn_tensor *t) {
    exported *e = NULL;
    if (!out) return KN_FAIL(KN_ERR_INVALID, "kn_dlpack_export: out is NULL");
    KN_TRY(export_as(&e, "kn_dlpack_export", t, false));
    e->managed.old.deleter = end_old;
    *out = &e->managed.old;
    return KN_OK;
}

kn_status kn_dlpack_export_versioned(struct DLManagedTensorVersioned **out, kn_tensor *t) {
    exported *e = NULL;
    if (!out) return KN_FAIL(KN_ERR_INVALID, "kn_dlpack_export_versioned: out is NULL");
    KN_TRY(export_as(&e, "kn_dlpack_export_versioned", t, true));
    e->managed.new.version.major = MAJOR;
    e->managed.new.version.minor = MINOR;
    e->managed.new.deleter = end_new;
    *out = &e->managed.new;
    return KN_OK;
}

/* --- import --- */

typedef struct incoming {
    const char *who; /* the public function, for messages */
    kn_device *device;
    kn_dtype dtype;
    kn_shape shape;
    int64_t n;
    char *data;
    bool plain; /* row-major, aligned */
} incoming;

static kn_status read_dtype(incoming *in, const dl_tensor *t) {
    for (int i = 0; i < N_DTYPES; i++)
        if (dtypes[i].code == t->dtype.code && dtypes[i].bits == t->dtype.bits &&
            t->dtype.lanes == 1)
            in->dtype = dtypes[i].dtype;
    if (in->dtype) return KN_OK;
    return KN_FAIL(KN_ERR_DTYPE, "%s: no dtype has code %d, %d bits and %d lanes", in->who,
                   t->dtype.code, t->dtype.bits, t->dtype.lanes);
}

static kn_status read_device(incoming *in, const dl_tensor *t) {
    char name[32];
    in->device = kn_device_host();
    if (t->device.type == CPU || t->device.type == CUDA_HOST) return KN_OK;
    snprintf(name, sizeof name, "cuda:%d", t->device.id);
    if (t->device.type == CUDA || t->device.type == CUDA_MANAGED)
        return kn_device_find(&in->device, name);
    return KN_FAIL(KN_ERR_UNSUPPORTED, "%s: device type %d", in->who, t->device.type);
}

/* The bytes from the first element to the farthest ones, before and after it, can be counted. */
static kn_status check_strides(const incoming *in, const dl_tensor *t) {
    int64_t reach[2] = {0, 0}, size = (int64_t)kn_dtype_bytes(in->dtype);
    for (int i = 0; i < t->n_dims; i++) {
        int64_t far = 0, bytes = 0;
        bool fits = !__builtin_mul_overflow(t->shape[i] - 1, t->strides[i], &far);
        int64_t *side = &reach[far > 0];
        fits = fits && !__builtin_add_overflow(*side, far, side) &&
               !__builtin_mul_overflow(*side, size, &bytes);
        if (!fits)
            return KN_FAIL(KN_ERR_FORMAT,
                           "%s: dimension %d of %" PRId64 " with stride %" PRId64
                           " reaches beyond all memory",
                           in->who, i, t->shape[i], t->strides[i]);
    }
    return KN_OK;
}

static kn_status read_shape(incoming *in, const dl_tensor *t) {
    if (t->n_dims < 0 || t->n_dims > KN_DIMS_MAX || (t->n_dims && !t->shape))
        return KN_FAIL(KN_ERR_FORMAT, "%s: %d dimensions%s", in->who, t->n_dims,
                       t->shape ? "" : " without a shape");
    in->shape.n_dims = t->n_dims;
    for (int i = 0; i < t->n_dims; i++) in->shape.dim[i] = t->shape[i];
    in->n = kn__shape_numel(&in->shape);
    if (in->n < 0) {
        char text[256];
        return KN_FAIL(KN_ERR_SHAPE, "%s: shape %s is negative or too large", in->who,
                       kn_shape_text(text, sizeof text, in->shape));
    }
    if (in->n && !t->data) return KN_FAIL(KN_ERR_FORMAT, "%s: data is NULL", in->who);
    if (in->n && t->strides) KN_TRY(check_strides(in, t));
    in->data = in->n ? (char *)t->data + t->byte_offset : NULL;
    in->plain = (uintptr_t)in->data % kn_dtype_bytes(in->dtype) == 0;
    int64_t stride = 1;
    for (int i = t->n_dims - 1; i >= 0 && in->n && t->strides; i--) {
        in->plain &= t->shape[i] == 1 || t->strides[i] == stride;
        stride *= t->shape[i];
    }
    return KN_OK;
}

/* Row-major, whatever the strides. */
static void gather(char *out, const incoming *in, const dl_tensor *t) {
    size_t bytes = kn_dtype_bytes(in->dtype);
    int64_t index[KN_DIMS_MAX] = {0}, row_major[KN_DIMS_MAX], stride = 1;
    for (int i = t->n_dims - 1; i >= 0; i--) {
        row_major[i] = stride;
        stride *= t->shape[i];
    }
    const int64_t *strides = t->strides ? t->strides : row_major;
    for (int64_t k = 0; k < in->n; k++) {
        int64_t at = 0;
        for (int i = 0; i < t->n_dims; i++) at += index[i] * strides[i];
        memcpy(out + (size_t)k * bytes, in->data + at * (int64_t)bytes, bytes);
        for (int i = t->n_dims - 1; i >= 0 && ++index[i] == t->shape[i]; i--) index[i] = 0;
    }
}

static kn_tensor *copied(const incoming *in, const dl_tensor *t, kn_owner owner) {
    if (in->device != kn_device_host())
        return KN_FAIL_NULL(KN_ERR_UNSUPPORTED, "%s: on a GPU only row-major, writable data",
                            in->who);
    kn_tensor *y = kn_tensor_new(in->device, in->dtype, in->shape);
    if (!y) return NULL;
    gather(y->data, in, t);
    if (owner.release_fn) owner.release_fn(owner.ctx);
    return y;
}

static kn_tensor *import_as(const char *who, const dl_tensor *t, bool read_only, kn_owner owner) {
    incoming in = {.who = who};
    if (kn_pending()) return NULL;
    kn_status status = read_dtype(&in, t);
    if (status == KN_OK) status = read_device(&in, t);
    if (status == KN_OK) status = read_shape(&in, t);
    if (status < 0) return kn_error_defer(status);
    if (!in.plain || read_only) return copied(&in, t, owner);
    return kn_tensor_adopt(in.device, in.dtype, in.shape, in.data, owner);
}

static void release_old(void *ctx) {
    managed_old *m = ctx;
    if (m->deleter) m->deleter(m);
}

static void release_new(void *ctx) {
    managed_new *m = ctx;
    if (m->deleter) m->deleter(m);
}

kn_tensor *kn_dlpack_import(struct DLManagedTensor *managed) {
    if (!managed) return KN_FAIL_NULL(KN_ERR_INVALID, "kn_dlpack_import: managed is NULL");
    return import_as("kn_dlpack_import", &managed->tensor, false, (kn_owner){release_old, managed});
}

kn_tensor *kn_dlpack_import_versioned(struct DLManagedTensorVersioned *managed) {
    if (!managed)
        return KN_FAIL_NULL(KN_ERR_INVALID, "kn_dlpack_import_versioned: managed is NULL");
    if (managed->version.major != MAJOR)
        return KN_FAIL_NULL(KN_ERR_UNSUPPORTED,
                            "kn_dlpack_import_versioned: version %u.%u; 1 is known",
                            managed->version.major, managed->version.minor);
    return import_as("kn_dlpack_import_versioned", &managed->tensor, managed->flags & READ_ONLY,
                     (kn_owner){release_new, managed});
}
