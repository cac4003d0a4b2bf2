/* The generator: its state is a tensor, so that a captured step draws new numbers each time it
 * runs. */
#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "run.h"

struct kn_rng {
    kn_tensor *state; /* a slot: I64[2], (seed, offset); on the device that drew last */
    _Atomic int refs; /* the user's, and those of kn_rng_retain */
};
static _Thread_local kn_draw_watch *watching;

static kn_status state_make(kn_rng *rng, uint64_t seed) {
    KN_FRAME(.device = kn_device_host());
    int64_t words[2] = {0};
    memcpy(words, &seed, sizeof seed);
    return kn_hold(&rng->state, kn_tensor_from(words, KN_I64, KN_SHAPE(2)));
}

kn_status kn_rng_create(kn_rng **out, uint64_t seed) {
    if (!out) return KN_FAIL(KN_ERR_INVALID, "kn_rng_create: out is NULL");
    *out = NULL;
    KN_TRY(kn_check());
    KN_TRY(kn__capture_forbids(kn__ops_self, "kn_rng_create"));
    kn_rng *rng = calloc(1, sizeof *rng);
    if (!rng) return KN_FAIL(KN_ERR_OOM, "kn_rng_create: no host memory");
    rng->refs = 1;
    kn_status status = state_make(rng, seed);
    if (status < 0) {
        free(rng);
        return status;
    }
    *out = rng;
    return KN_OK;
}

kn_rng *kn_rng_retain(kn_rng *rng) {
    atomic_fetch_add_explicit(&rng->refs, 1, memory_order_relaxed);
    return rng;
}

void kn_rng_destroy(kn_rng *rng) {
    if (!rng || atomic_fetch_sub_explicit(&rng->refs, 1, memory_order_acq_rel) > 1) return;
    kn_unhold(&rng->state);
    free(rng);
}

kn_status kn_rng_state_get(uint64_t *seed, uint64_t *offset, kn_rng *rng) {
    if (!rng || !seed || !offset)
        return KN_FAIL(KN_ERR_INVALID, "kn_rng_state_get: %s is NULL",
                       !rng    ? "rng"
                       : !seed ? "seed"
                               : "offset");
    KN_TRY(kn__capture_forbids(kn__ops_self, "kn_rng_state_get"));
    uint64_t words[2];
    KN_TRY(kn_copy_out(words, sizeof words, rng->state));
    *seed = words[0];
    *offset = words[1];
    return KN_OK;
}

kn_status kn_rng_state_set(kn_rng *rng, uint64_t seed, uint64_t offset) {
    KN_TRY(kn_check());
    if (!rng) return KN_FAIL(KN_ERR_INVALID, "kn_rng_state_set: rng is NULL");
    KN_TRY(kn__capture_forbids(kn__ops_self, "kn_rng_state_set"));
    uint64_t words[2] = {seed, offset};
    return kn_copy_into(rng->state, words, sizeof words); /* where captured steps read it */
}

static kn_status state_move(kn_rng *rng, kn_device *device) {
    KN_FRAME(.record = KN_OFF);
    return kn_hold(&rng->state, kn_to(rng->state, device));
}

static kn_status state_to(kn_rng *rng, kn_device *device) {
    if (rng->state->storage->device == device) return KN_OK;
    kn__ops_thread *self = kn__ops_thread_get();
    if (!self) return kn_check();
    kn__plan *plan = self->capture;
    self->capture = NULL; /* as if moved before the step */
    kn_status status = state_move(rng, device);
    self->capture = plan;
    return status;
}

/* --- a plan reads the state where it was: it fits until the state moves to another device --- */

typedef struct place {
    const kn_rng *rng;
    const kn_storage *storage;
} place;

static bool is_in_place(const void *ctx) {
    const place *p = ctx;
    return p->rng->state->storage == p->storage;
}

static void no_effect(void *ctx) { (void)ctx; }

/* Once a plan. */
static void place_note(const kn_rng *rng) {
    const kn__plan *plan = kn__ops_self->capture;
    for (int i = 0; plan && i < plan->n_effects; i++)
        if (plan->effects[i].effect.of == rng) return;
    if (!plan) return;
    place *p = malloc(sizeof *p);
    if (p) *p = (place){rng, rng->state->storage};
    kn_capture_effect_add((kn_capture_effect){no_effect, free, NULL, is_in_place, rng, p});
}

static bool is_state(const kn_op_call *call, const kn_tensor *state) {
    if (state->dtype == KN_I64 && state->n == 2) return true;
    return kn_op_call_fail(call, KN_ERR_SHAPE, "state must be i64 [2]");
}

bool kn__infer_rng_take(kn_op_call *call) {
    return is_state(call, call->in[0]) && kn__like(call, 0, call->in[0]);
}

kn_draw_watch *kn_draw_watch_set(kn_draw_watch *watch) {
    kn_draw_watch *before = watching;
    watching = watch;
    return before;
}

static kn_status watch_call(kn_rng *rng) {
    for (kn_draw_watch *w = watching; w; w = w->outer) KN_TRY(w->fn(w, rng));
    return KN_OK;
}

kn_tensor *kn_rng_take(kn_rng *rng, kn_device *device, int64_t n) {
    if (kn_pending()) return NULL;
    if (!rng) return kn_op_fail(KN_OP_rng_take, KN_ERR_INVALID, "rng is NULL");
    kn_status status = watching ? watch_call(rng) : KN_OK;
    if (status == KN_OK) status = state_to(rng, device);
    if (status < 0) return kn_error_defer(status);
    place_note(rng);
    rng->state->storage->version++;
    kn_attr_scalars attr = {(double)n, 0};
    kn_tensor *taken = KN_CALL(rng_take, &attr, rng->state);
    if (taken) rng->state->storage->stream = taken->storage->stream; /* it was written there */
    return taken;
}

/* --- values made from nothing: place and dtype are the frame's --- */

bool kn__infer_random(kn_op_call *call) {
    const kn_attr_make *attr = call->attr;
    call->dtype = (uint8_t)attr->dtype;
    return is_state(call, call->in[0]) && kn__shaped(call, 0, attr->n_dims, attr->dim);
}

/* Elements of the shape; -1: the error is pending. */
static int64_t elements_of(kn_op op, const kn_shape *shape) {
    int64_t n = kn__shape_numel(shape);
    if (n >= 0) return n;
    kn__fail_shape(kn__name_in_errors(op), shape);
    kn_error_op(kn__name_in_errors(op));
    return n;
}

/* kn_rng_take for op, which its errors name. */
static kn_tensor *take_for(kn_op op, kn_rng *rng, kn_device *device, int64_t n) {
    if (!rng) return kn_op_fail(op, KN_ERR_INVALID, "rng is NULL");
    return kn_rng_take(rng, device, n);
}

/* Runs op on the frame's device with a state of its own. */
static kn_tensor *draw_by(kn_op op, void *attr, int64_t n, kn_rng *rng) {
    kn_tensor *state = n < 0 ? NULL : take_for(op, rng, kn_frame_device(), n);
    if (!state) return NULL;
    kn_tensor *x = kn_op_call_run(op, attr, &state, 1);
    kn_drop(state);
    return x;
}

static kn_tensor *draw_as(kn_op op, kn_dtype dtype, const kn_shape *shape, double a, double b,
                          kn_rng *rng) {
    if (kn_pending()) return NULL;
    int64_t n = elements_of(op, shape);
    kn_attr_make attr = {.a = a, .b = b, .n_dims = shape->n_dims, .dtype = (int32_t)dtype};
    memcpy(attr.dim, shape->dim, sizeof attr.dim);
    return draw_by(op, &attr, n, rng);
}

static kn_tensor *draw(kn_op op, const kn_shape *shape, double a, double b, kn_rng *rng) {
    return draw_as(op, kn_frame_dtype(), shape, a, b, rng);
}

kn_tensor *kn_uniform(kn_shape shape, double lo, double hi, kn_rng *rng) {
    if (!(lo <= hi)) return kn_op_fail(KN_OP_uniform, KN_ERR_INVALID, "lo is %g, hi is %g", lo, hi);
    double most = kn_frame_dtype() == KN_F64 ? DBL_MAX : FLT_MAX;
    if (!(hi - lo <= most))
        return kn_op_fail(KN_OP_uniform, KN_ERR_INVALID, "from %g to %g: further than %s reaches",
                          lo, hi, kn_dtype_name(kn_frame_dtype()));
    return draw(KN_OP_uniform, &shape, lo, hi, rng);
}

kn_tensor *kn_normal(kn_shape shape, double mean, double stddev, kn_rng *rng) {
    if (!(stddev >= 0)) return kn_op_fail(KN_OP_normal, KN_ERR_INVALID, "stddev is %g", stddev);
    return draw(KN_OP_normal, &shape, mean, stddev, rng);
}

kn_tensor *kn_exponential(kn_shape shape, double rate, kn_rng *rng) {
    if (!(rate > 0))
        return kn_op_fail(KN_OP_exponential, KN_ERR_INVALID, "rate is %g; it must be above 0",
                          rate);
    return draw(KN_OP_exponential, &shape, rate, 0, rng);
}

kn_tensor *kn_bernoulli(kn_shape shape, double p, kn_rng *rng) {
    if (!(p >= 0 && p <= 1))
        return kn_op_fail(KN_OP_bernoulli, KN_ERR_INVALID, "p is %g; it must be in 0 … 1", p);
    return draw(KN_OP_bernoulli, &shape, p, 0, rng);
}

kn_tensor *kn_integers(kn_shape shape, int64_t lo, int64_t hi, kn_rng *rng) {
    const int64_t most = INT64_C(1) << 53;
    if (lo >= hi || lo < -most || hi > most) {
        return kn_op_fail(KN_OP_integers, KN_ERR_INVALID,
                          "lo is %lld, hi is %lld; lo must be below hi, both at most 2^53 in size",
                          (long long)lo, (long long)hi);
    }
    return draw_as(KN_OP_integers, KN_I64, &shape, (double)lo, (double)hi, rng);
}

kn_tensor *kn_permutation(int64_t n, kn_rng *rng) {
    if (n < 0 || n > INT64_C(1) << 31) {
        return kn_op_fail(KN_OP_permutation, KN_ERR_INVALID, "n is %lld, not in 0 … 2^31",
                          (long long)n);
    }
    kn_attr_make attr = {.dim = {n}, .n_dims = 1, .dtype = KN_I64};
    return draw_by(KN_OP_permutation, &attr, n < 64 ? 64 : n, rng); /* four counters at least */
}

kn_tensor *kn_shuffle(kn_tensor *x, int axis, kn_rng *rng) {
    KN__AS("shuffle", "x");
    if (!kn__check_readable(KN_OP_index_select, &x, 1)) return NULL;
    if (axis < -x->n_dims || axis >= x->n_dims)
        return kn__fail_invalid(KN_OP_index_select, x, "axis is %d, x has %d dimensions", axis,
                                x->n_dims);
    kn_tensor *order = kn_permutation(x->dim[axis < 0 ? axis + x->n_dims : axis], rng);
    return order ? kn_index_select(x, order, axis) : NULL;
}

/* --- indices in proportion to weights, which are f64 and at most 1 --- */

/* The first index whose weight and those before it add up to more than u of their sum. In f64
 * (1 - 2^-53)·sum is below the sum, and an index without weight is never the first. The last one
 * for a row without weights. */
static kn_tensor *with_replacement(kn_tensor *weights, kn_shape shape, kn_rng *rng) {
    double last = (double)weights->dim[weights->n_dims - 1] - 1;
    kn_tensor *sums = kn_cumsum(weights, -1);
    kn_tensor *total = sums ? kn_unsqueeze(kn_select(sums, -1, -1), -1) : NULL;
    kn_tensor *u = kn_mul(kn_uniform(shape, 0, 1, rng), total);
    return u ? kn_clamp(kn_search_sorted(sums, u, true), 0, last) : NULL;
}

/* Those of the largest weight/e, e exponential. */
static kn_tensor *without_replacement(kn_tensor *weights, int64_t n, kn_rng *rng) {
    kn_tensor *e = kn_exponential(kn_tensor_shape(weights), 1, rng), *places = NULL;
    kn_tensor *keys = kn_div(weights, e);
    if (!keys) return NULL;
    kn_status status = kn_topk(NULL, &places, keys, n, -1, false);
    return status < 0 ? kn_error_defer(status) : places;
}

kn_tensor *kn_multinomial(kn_tensor *weights, int64_t n, bool replace, kn_rng *rng) {
    KN__AS("multinomial", "weights");
    const kn_op op = KN_OP_uniform;
    int last = -1;
    if (!kn__axis_of(&last, op, weights)) return NULL;
    int64_t classes = weights->dim[last];
    if (n < 0 || (n > 0 && classes == 0) || (!replace && n > classes))
        return kn__fail_shapes(op, weights, "n is %lld, of %lld indices%s", (long long)n,
                               (long long)classes, replace ? "" : " without replacement");
    if (!rng) return kn_op_fail(op, KN_ERR_INVALID, "rng is NULL");
    kn_shape shape = kn_tensor_shape(weights);
    shape.dim[last] = n;
    if (n == 0) return kn__filled(weights, 0, KN_I64, shape);
    KN__FRAME_INSIDE(.device = weights->storage->device, .dtype = KN_F64, .record = KN_OFF);
    kn_tensor *wide = kn_cast(weights, KN_F64);
    if (wide) wide = kn_div(wide, kn_max(wide, KN_SHAPE(-1), true)); /* no sum overflows */
    if (!wide) return NULL;
    kn_tensor *y = replace ? with_replacement(wide, shape, rng) : without_replacement(wide, n, rng);
    return kn__given(y);
}

/* --- normal numbers of an interval --- */

bool kn__infer_truncated(kn_op_call *call) {
    const kn_attr_truncated *attr = call->attr;
    call->dtype = (uint8_t)attr->dtype;
    return is_state(call, call->in[0]) && kn__shaped(call, 0, attr->n_dims, attr->dim);
}

/* P(normal < x) */
static double below(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }

/* The lower tail has all digits, the upper one is its mirror image. */
kn__truncated kn__truncated_of(const kn_attr_truncated *attr) {
    kn__truncated t = {attr->mean, attr->stddev, attr->lo, attr->hi, 0, 0, 0};
    double lo = (attr->lo - attr->mean) / attr->stddev, hi = (attr->hi - attr->mean) / attr->stddev;
    t.mirrored = lo > 0;
    t.p_lo = t.mirrored ? below(-hi) : below(lo);
    t.p_hi = t.mirrored ? below(-lo) : below(hi);
    return t;
}

kn_tensor *kn_truncated_normal(kn_shape shape, double mean, double stddev, double lo, double hi,
                               kn_rng *rng) {
    if (kn_pending()) return NULL;
    kn_attr_truncated attr = {.mean = mean,
                              .stddev = stddev,
                              .lo = lo,
                              .hi = hi,
                              .n_dims = shape.n_dims,
                              .dtype = (int32_t)kn_frame_dtype()};
    memcpy(attr.dim, shape.dim, sizeof attr.dim);
    if (!(stddev > 0) || !(lo < hi)) {
        return kn_op_fail(
            KN_OP_truncated_normal, KN_ERR_INVALID,
            "stddev is %g, lo is %g, hi is %g; stddev must be above 0 and lo below hi", stddev, lo,
            hi);
    }
    kn__truncated t = kn__truncated_of(&attr);
    if (!(t.p_lo < t.p_hi)) {
        return kn_op_fail(KN_OP_truncated_normal, KN_ERR_INVALID,
                          "%g … %g is too far from mean %g with deviation %g", lo, hi, mean,
                          stddev);
    }
    return draw_by(KN_OP_truncated_normal, &attr, elements_of(KN_OP_truncated_normal, &shape), rng);
}

/* --- dropout: its own adjoint, by the same state --- */

bool kn__infer_dropout(kn_op_call *call) {
    return is_state(call, call->in[1]) && kn__like(call, 0, call->in[0]);
}

kn_tensor *kn_dropout(kn_tensor *x, double p, kn_rng *rng) {
    kn_attr_scalars attr = {p, 0};
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_dropout, &attr, KN_LIST_(x, x), 1);
    if (!kn__check_readable(KN_OP_dropout, &x, 1)) return NULL;
    if (!(p >= 0 && p <= 1)) {
        kn_op_call_fail(&call, KN_ERR_INVALID, "p is %g; it must be in 0 … 1", p);
        return NULL;
    }
    if (p == 0) return kn__op_same(x);
    kn_tensor *state = take_for(KN_OP_dropout, rng, x->storage->device, x->n);
    return state ? KN_CALL(dropout, &attr, x, state) : NULL;
}
