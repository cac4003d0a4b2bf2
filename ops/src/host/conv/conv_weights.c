#include "host/conv/conv_weights.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "run.h"

typedef struct keeper {
    kn_owner owner; /* first: the storage's, freed by it */
    kn__kept_weights *first;
    bool closed; /* others may write to the data: nothing is kept */
} keeper;

pthread_mutex_t kn__conv_weights_lock = PTHREAD_MUTEX_INITIALIZER;

void kn__conv_weights_give(kn__kept_weights *one) {
    if (!one || atomic_fetch_sub_explicit(&one->users, 1, memory_order_acq_rel) > 1) return;
    kn__layout_destroy(one->layout);
    kn_free(one->pool, one->data);
    free(one);
}

static void keeper_end(void *ctx) {
    keeper *k = ctx;
    while (k->first) {
        kn__kept_weights *one = k->first;
        k->first = one->next;
        kn__conv_weights_give(one);
    }
}

static keeper *keeper_of(kn_storage *s) {
    if (s->owner) return (keeper *)(void *)s->owner;
    keeper *k = calloc(1, sizeof *k);
    if (!k) return KN_FAIL_NULL(KN_ERR_OOM, "weights: no %zu bytes", sizeof *k);
    k->owner = (kn_owner){keeper_end, k};
    s->owner = &k->owner;
    return k;
}

/* Older versions are never read: the weights were written since. */
static void drop_old(keeper *k, uint32_t version) {
    for (kn__kept_weights **at = &k->first; *at;) {
        kn__kept_weights *one = *at;
        if (one->version == version) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        kn__conv_weights_give(one);
    }
}

static kn_status add(keeper *k, const kn_tensor *w, kn__layout_ref layout, int64_t stride,
                     size_t bytes, kn__weights_fn make, void *ctx) {
    const kn_storage *s = w->storage;
    kn__kept_weights *one = calloc(1, sizeof *one);
    if (!one) return KN_FAIL(KN_ERR_OOM, "weights: no %zu bytes", sizeof *one);
    atomic_init(&one->users, 1);
    one->pool = s->pool;
    one->version = s->version;
    one->w = *w, one->stride = stride;
    void *data = NULL;
    kn_status status = kn_alloc(&data, s->pool, bytes, s->stream);
    one->data = data;
    if (status == KN_OK && layout && kn__layout_copy(&one->layout, layout) != dnnl_success)
        status = KN_FAIL(KN_ERR_OOM, "weights: no memory for a layout");
    if (status == KN_OK) status = make(ctx, one->data);
    if (status < 0) {
        kn__conv_weights_give(one);
        return status;
    }
    one->next = k->first;
    k->first = one;
    return KN_OK;
}

static bool is_of(const kn__kept_weights *one, const kn_tensor *w, kn__layout_ref layout,
                  int64_t stride) {
    if (one->w.data != w->data || !kn__same_shape(&one->w, w)) return false;
    if (!layout || !one->layout) return !layout && !one->layout && one->stride == stride;
    return dnnl_memory_desc_equal(one->layout, layout);
}

static kn_status find_locked(kn__kept_weights **out, const kn_tensor *w, kn__layout_ref layout,
                             int64_t stride, size_t bytes, kn__weights_fn make, void *ctx) {
    kn_storage *s = w->storage;
    keeper *k = keeper_of(s);
    if (!k) return kn_pending();
    if (k->closed) return KN_OK;
    drop_old(k, s->version);
    kn__kept_weights *one = k->first;
    while (one && !is_of(one, w, layout, stride)) one = one->next;
    if (!one) {
        KN_TRY(add(k, w, layout, stride, bytes, make, ctx));
        one = k->first;
    }
    atomic_fetch_add_explicit(&one->users, 1, memory_order_relaxed);
    *out = one;
    return KN_OK;
}

kn_status kn__conv_weights_take(kn__kept_weights **out, const kn_tensor *w, kn__layout_ref layout,
                                int64_t stride, size_t bytes, kn__weights_fn make, void *ctx) {
    *out = NULL;
    if (!w->storage->pool) return KN_OK;
    pthread_mutex_lock(&kn__conv_weights_lock);
    kn_status status = find_locked(out, w, layout, stride, bytes, make, ctx);
    pthread_mutex_unlock(&kn__conv_weights_lock);
    return status;
}

void kn__conv_weights_drop(kn_storage *s) {
    pthread_mutex_lock(&kn__conv_weights_lock);
    keeper_end(s->owner);
    pthread_mutex_unlock(&kn__conv_weights_lock);
}

kn_status kn__conv_weights_close(kn_storage *s) {
    if (!s->pool) return KN_OK;
    pthread_mutex_lock(&kn__conv_weights_lock);
    keeper *k = keeper_of(s);
    if (k) {
        keeper_end(k);
        k->closed = true;
    }
    pthread_mutex_unlock(&kn__conv_weights_lock);
    return k ? KN_OK : kn_pending();
}
