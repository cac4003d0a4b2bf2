/* Initial values of parameters, by their options and by name. */
#include <fnmatch.h>

#include "mix.h"
#include "params.h"

kn_init kn_init_xavier(void) { return (kn_init){KN_INIT_XAVIER, 1, 0}; }
kn_init kn_init_uniform(double lo, double hi) { return (kn_init){KN_INIT_UNIFORM, lo, hi}; }
kn_init kn_init_normal(double mean, double stddev) {
    return (kn_init){KN_INIT_NORMAL, mean, stddev};
}

kn_init kn_init_xavier_normal(void) { return (kn_init){KN_INIT_XAVIER_NORMAL, 1, 0}; }
kn_init kn_init_he(void) { return (kn_init){KN_INIT_HE, 1, 0}; }
kn_init kn_init_he_normal(void) { return (kn_init){KN_INIT_HE_NORMAL, 1, 0}; }
kn_init kn_init_truncated_normal(double mean, double stddev) {
    return (kn_init){KN_INIT_TRUNCATED_NORMAL, mean, stddev};
}
kn_init kn_init_orthogonal(double gain) { return (kn_init){KN_INIT_ORTHOGONAL, gain, 0}; }
kn_init kn_init_bilinear(void) { return (kn_init){KN_INIT_BILINEAR, 0, 0}; }

/* --- one parameter --- */

/* Of w [O,I,window…]; other shapes count as they stand: a vector is its own fan. */
static void fans_of(double *in, double *out, const kn_shape *s) {
    double window = 1;
    for (int i = 2; i < s->n_dims; i++) window *= (double)s->dim[i];
    *out = s->n_dims > 0 ? (double)s->dim[0] * window : 1;
    *in = s->n_dims > 1 ? (double)s->dim[1] * window : *out;
}

/* sqrt(variance/fan), times the gain; 0 where there are no elements, or no such shape. */
static double spread_of(const kn_shape *s, const kn_init *init, double variance) {
    double in, out;
    fans_of(&in, &out, s);
    bool is_he = init->kind == KN_INIT_HE || init->kind == KN_INIT_HE_NORMAL;
    double fan = is_he ? in : in + out;
    return fan > 0 ? init->a * __builtin_sqrt(variance / fan) : 0;
}

static kn_tensor *initial_value(kn_params *set, kn_shape shape, kn_init init) {
    switch (init.kind) {
        case KN_INIT_ZEROS:
            return kn_zeros(shape);
        case KN_INIT_CONSTANT:
            return kn_full(shape, init.a);
        case KN_INIT_UNIFORM:
            return kn_uniform(shape, init.a, init.b, set->rng);
        case KN_INIT_NORMAL:
            return kn_normal(shape, init.a, init.b, set->rng);
        case KN_INIT_XAVIER:
        case KN_INIT_HE: {
            double bound = spread_of(&shape, &init, 6); /* three times the variance */
            return kn_uniform(shape, -bound, bound, set->rng);
        }
        case KN_INIT_XAVIER_NORMAL:
        case KN_INIT_HE_NORMAL:
            return kn_normal(shape, 0, spread_of(&shape, &init, 2), set->rng);
        case KN_INIT_TRUNCATED_NORMAL:
            return kn_truncated_normal(shape, init.a, init.b, init.a - 2 * init.b,
                                       init.a + 2 * init.b, set->rng);
        case KN_INIT_ORTHOGONAL:
            return kn_orthogonal(shape, init.a, set->rng);
        case KN_INIT_BILINEAR:
            return kn_bilinear_filter(shape);
        default:
            return KN_FAIL_NULL(KN_ERR_INVALID, "%d is not a kind of initial value", init.kind);
    }
}

/* A parameter's numbers depend on the seed and on its serial number alone. */
kn_status kn__param_value(kn_tensor **out, kn_params *set, int serial, kn_shape shape,
                          kn_init init) {
    KN_SCOPE("weights");
    uint64_t key = kn__mix(set->seed + KN__GOLDEN * (uint64_t)(serial + 1));
    KN_TRY(kn_rng_state_set(set->rng, key, 0));
    KN_FRAME(.device = set->device, .pool = set->pool, .dtype = set->dtype, .record = KN_OFF,
             .autocast = KN_OFF);
    kn_tensor *w = initial_value(set, shape, init);
    if (!w)
        return kn_check(); /* before the frame ends: an outermost frame clears the pending error */
    KN_TRY(kn_tensor_compute(w));
    *out = kn_tensor_detach_frame(w);
    return KN_OK;
}

/* --- by name --- */

static kn_status init_again(kn__param *p, kn_init init) {
    kn_tensor *value = NULL;
    KN_TRY(kn__param_value(&value, p->set, p->serial, kn_tensor_shape(p->w), init));
    kn_status status = kn_set_into(p->w, value, 0, NULL);
    kn_tensor_release(value);
    return status;
}

/* Whether the kind's numbers depend on the rows and columns of a matrix. A vector has neither: it
 * scales a norm, or holds all matrices of a recurrent layer. */
static bool needs_matrix(int kind) {
    return (kind >= KN_INIT_XAVIER && kind <= KN_INIT_HE_NORMAL) || kind == KN_INIT_ORTHOGONAL ||
           kind == KN_INIT_BILINEAR;
}

static kn_status matrices_check(const kn_params *set, const char *pattern) {
    char text[128];
    for (const kn_params *part = set; part; part = part->next)
        for (int i = 0; i < part->n; i++) {
            const kn__param *p = part->param[i];
            kn_shape shape = kn_tensor_shape(p->w);
            if (shape.n_dims > 1 || fnmatch(pattern, p->name, 0) != 0) continue;
            return KN_FAIL(KN_ERR_INVALID,
                           "kn_params_init: %s is %s; this kind of initial value wants 2 "
                           "dimensions or more: use a pattern narrower than '%s'",
                           p->name, kn_shape_text(text, sizeof text, shape), pattern);
        }
    return KN_OK;
}

static kn_status part_init(int *n, kn_params *part, const char *pattern, kn_init init) {
    KN_FRAME(.device = part->device, .pool = part->pool, .record = KN_OFF);
    for (int i = 0; i < part->n; i++) {
        kn__param *p = part->param[i];
        if (fnmatch(pattern, p->name, 0) != 0) continue;
        kn_status status = init_again(p, init);
        const kn_error why = *kn_last_error();
        if (status < 0) return KN_FAIL(status, "kn_params_init: %s: %s", p->name, why.message);
        ++*n;
    }
    return KN_OK;
}

kn_status kn_params_init(kn_params *params, const char *pattern, kn_init init) {
    int n = 0;
    KN_TRY(kn_check());
    if (!params || !pattern)
        return KN_FAIL(KN_ERR_INVALID, "kn_params_init: %s is NULL", params ? "pattern" : "params");
    if (kn_capture_records())
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_params_init: inside a captured step, whose replays would do it again: "
                       "call it before the step");
    KN_TRY(kn__params_own("kn_params_init", params));
    if (needs_matrix(init.kind)) KN_TRY(matrices_check(params, pattern));
    for (kn_params *part = params; part; part = part->next)
        KN_TRY(part_init(&n, part, pattern, init));
    if (n) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID, "kn_params_init: no parameter's name fits '%s'", pattern);
}
