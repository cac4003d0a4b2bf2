#include "replays.h"

#include <knet/capture.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "layer.h"
#include "mix.h"

/* Replays pay where ops are small, and memory that is kept must be small beside a prediction's. */
enum {
    PLANS = 4, /* that are kept */
    HOST_MAX = 32 * 1024,
    GPU_MAX = 1 << 20, /* bytes of one, on the host without work space */
    CALLS_MIN = 2,     /* of one */
};

typedef struct plan {
    uint64_t key, used;  /* the prediction it is for; when it was used last, 0: never */
    kn_capture *capture; /* NULL: one prediction has run, or it is not captured */
    bool is_refused;
} plan;

struct kn__replays {
    _Atomic bool is_off;  /* predictions of less than CALLS_MIN calls, whatever their shape */
    pthread_mutex_t lock; /* a capture serves one thread at a time: others run as they are */
    uint64_t clock;
    plan plan[PLANS];
};

/* --- life cycle --- */

static void plan_end(plan *p) {
    kn_capture_destroy(p->capture);
    *p = (plan){.capture = NULL};
}

static void replays_end(kn__replays *r) {
    for (int i = 0; i < PLANS; i++) plan_end(&r->plan[i]);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

kn_status kn__replays_begin(kn_layer *root) {
    kn__replays *r = calloc(1, sizeof *r);
    if (!r || pthread_mutex_init(&r->lock, NULL) != 0) {
        free(r);
        return KN_FAIL(KN_ERR_OOM, "kn_freeze: no host memory");
    }
    root->root->replays = r;
    root->root->replays_end = replays_end;
    return KN_OK;
}

/* --- which prediction a plan is for --- */

static uint64_t with(uint64_t key, uint64_t value) {
    key = (key ^ value) * KN__GOLDEN;
    return key ^ key >> 32;
}

static uint64_t with_place(uint64_t key, const kn_tensor *t) {
    if (!t) return with(key, 0);
    return with(with(key, (uintptr_t)t->storage), (uintptr_t)t->data);
}

static uint64_t with_form(uint64_t key, const kn_tensor *t) {
    if (!t) return with(key, 0);
    key = with(with(key, (uintptr_t)kn_tensor_device(t)), t->dtype + 16u * t->n_dims);
    for (int d = 0; d < t->n_dims; d++) key = with(key, (uint64_t)t->dim[d]);
    return key;
}

static uint64_t with_bytes(uint64_t key, const void *bytes, size_t n) {
    const char *from = bytes;
    for (size_t at = 0; at < n; at += sizeof key) {
        uint64_t part = 0;
        memcpy(&part, from + at, n - at < sizeof part ? n - at : sizeof part);
        key = with(key, part);
    }
    return key;
}

/* False: a layer that trains. */
static bool layer_add(void *ctx, kn_layer *layer) {
    uint64_t *key = ctx;
    if (kn_layer_is_training(layer)) return false;
    *key = with(with(*key, (uintptr_t)layer), (uintptr_t)layer->device);
    *key = with(*key, kn__layer_folds(layer));
    for (int i = 0; i < layer->n_state; i++) *key = with_place(*key, layer->state[i].w);
    return true;
}

/* Of all that a replay would not look at again. False: it isn't captured. */
static bool key_of(uint64_t *out, kn_layer *net, const kn__predict *predict,
                   const kn_batch *batch) {
    kn_params *params = net->root->params;
    uint64_t key = with_form(with_form((uint64_t)batch->n, batch->x), batch->y);
    key = with(with(key, (uint64_t)kn_frame_threads()), (uint64_t)kn_frame_math());
    key = with(with(key, (uint64_t)kn_frame_dtype()), kn_frame_fuses());
    key = with_bytes(key, predict->self, predict->self_bytes);
    for (int i = 0; i < kn_params_count(params); i++)
        key = with_place(key, kn_params_at(params, i, NULL));
    if (!kn_layer_walk(net, layer_add, &key)) return false;
    *out = kn__mix(key);
    return true;
}

/* Whether results may lie in memory that a plan keeps, and inputs can be read by another call. */
static bool may_replay(const kn_layer *root, const kn_batch *batch) {
    const kn__replays *r = root->root->replays;
    if (!r || atomic_load_explicit(&r->is_off, memory_order_relaxed)) return false;
    if (kn_pending() || kn_capture_records() || !kn__layer_is_frozen(root) ||
        kn_tensor_problem(batch->x))
        return false;
    if (batch->y && kn_tensor_problem(batch->y)) return false;
    kn_device *device = kn_tensor_device(batch->x);
    return kn_frame_device() == device && kn_frame_pool() == kn_device_pool(device);
}

/* The plan for this key, or a new one in place of that not used for longest. */
static plan *plan_of(kn__replays *r, uint64_t key) {
    plan *oldest = &r->plan[0];
    for (int i = 0; i < PLANS; i++) {
        plan *p = &r->plan[i];
        if (p->used && p->key == key) return p;
        if (p->used < oldest->used) oldest = p;
    }
    plan_end(oldest);
    oldest->key = key;
    return oldest;
}

/* --- predictions --- */

static void refuse(plan *p) {
    kn_capture_destroy(p->capture);
    p->capture = NULL;
    p->is_refused = true;
}

static size_t most_of(const kn_tensor *t) {
    return kn_tensor_device(t) == kn_device_host() ? HOST_MAX : GPU_MAX;
}

static int inputs_of(kn_tensor *in[2], const kn_batch *batch) {
    in[0] = batch->x;
    in[1] = batch->y;
    return batch->y ? 2 : 1;
}

/* Convolutions that leave results in blocks don't in a plan, and take more time then. */
static kn_tensor *run_first(plan *p, const kn__predict *predict, const kn_batch *batch) {
    uint64_t n_layouts = kn_layout_calls();
    kn_tensor *y = predict->run(predict->ctx, batch);
    size_t bytes = y ? (size_t)y->n * kn_dtype_bytes((kn_dtype)y->dtype) : 0;
    p->is_refused =
        kn_layout_calls() != n_layouts || bytes > most_of(batch->x) / 4 || !y || !y->n_dims;
    return y;
}

static kn_status record(kn_capture *capture, const kn__predict *predict, const kn_batch *batch) {
    kn_tensor *in[2];
    KN_TRY(kn_capture_begin(capture, in, inputs_of(in, batch)));
    kn_tensor *y = predict->run(predict->ctx, batch);
    KN_TRY(kn_check()); /* a capture that is destroyed ends its recording */
    return kn_capture_end(capture, &y, 1);
}

/* Work of other streams may still read a result that the caller has freed, so on a GPU it is a
 * copy. NULL: no memory; no error is pending. */
static kn_tensor *result_of(kn_capture *capture) {
    kn_tensor *out = kn_capture_out(capture, 0);
    bool on_host = kn_tensor_device(out) == kn_device_host();
    kn_tensor *y = on_host ? kn_tensor_alias(out) : kn_concat(&out, 1, 0);
    if (!y) (void)!kn_check();
    return y;
}

/* NULL: not captured. */
static kn_tensor *run_recorded(kn__replays *r, plan *p, const kn__predict *predict,
                               const kn_batch *batch) {
    kn_capture_stats stats = {.n_calls = 0};
    kn_status status = kn_capture_create(&p->capture, &(kn_capture_options){.plans_max = 1});
    if (status == KN_OK) status = record(p->capture, predict, batch);
    kn_tensor *y = status == KN_OK ? result_of(p->capture) : NULL;
    if (y) kn_capture_stats_read(&stats, sizeof stats, p->capture);
    bool is_short = y && stats.n_calls < CALLS_MIN;
    if (is_short) atomic_store(&r->is_off, true);
    if (!y || is_short || stats.plan_bytes > most_of(batch->x)) refuse(p);
    return y;
}

/* NULL: the result that would be overwritten is still read, or the replay failed. */
static kn_tensor *run_replay(const plan *p, const kn_batch *batch) {
    kn_tensor *in[2], *out = kn_capture_out(p->capture, 0);
    bool on_host = kn_tensor_device(out) == kn_device_host();
    if (on_host && !kn_tensor_is_unshared(out)) return NULL;
    kn_status status = kn_capture_launch(p->capture, in, inputs_of(in, batch));
    return status == KN_OK ? result_of(p->capture) : NULL;
}

/* NULL: it has to run as it is; or the error is pending. */
static kn_tensor *run_plan(kn__replays *r, plan *p, const kn__predict *predict,
                           const kn_batch *batch) {
    bool is_first = !p->used;
    p->used = ++r->clock;
    if (is_first) return run_first(p, predict, batch);
    if (p->is_refused) return NULL;
    return p->capture ? run_replay(p, batch) : run_recorded(r, p, predict, batch);
}

kn_tensor *kn__replays_run(const kn_layer *root, const kn__predict *predict,
                           const kn_batch *batch) {
    kn__replays *r = root->root->replays;
    kn_tensor *y = NULL;
    uint64_t key;
    bool may = may_replay(root, batch) && key_of(&key, &root->root->base, predict, batch);
    if (may && pthread_mutex_trylock(&r->lock) == 0) {
        y = run_plan(r, plan_of(r, key), predict, batch);
        pthread_mutex_unlock(&r->lock);
    }
    return y || kn_pending() ? y : predict->run(predict->ctx, batch);
}
