/* kn_gradcheck: gradients against central differences.
 *
 * f's result is weighed by fixed pseudo-random numbers u, F(x) = Σ u·f(x), so one number is
 * differentiated. Order 2 does the same to G(x) = Σ v·∂F/∂x. The difference quotient uses four
 * points: its error is of fourth order in h. */
#include <float.h>
#include <knet/tape.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "mix.h"
#include "tape.h"

enum { ELEMENTS_MAX = 512 }; /* of one input that are checked */

typedef struct check {
    kn_gradcheck_fn f;
    void *ctx;
    kn_tensor *const *x;
    int n_x, order;
    double rtol, atol;
    kn_tensor **point; /* the inputs of the call being made */
} check;

/* Numbers in ±[0.5, 1.5): none is so small that its element goes unchecked. */
static double weight(int64_t i) {
    uint64_t z = kn__mix((uint64_t)(i + 1) * KN__GOLDEN);
    double u = kn__uniform(z);
    return z & 1 ? 0.5 + u : -0.5 - u;
}

static kn_tensor *weighed(kn_tensor *y, int64_t first) {
    if (!y) return NULL;
    if (y->dtype != KN_F64) {
        return KN_FAIL_NULL(KN_ERR_DTYPE, "kn_gradcheck: f gave %s; it works in f64",
                            kn_dtype_name((kn_dtype)y->dtype));
    }
    double *u = malloc(((size_t)y->n + 1) * sizeof *u);
    if (!u) return KN_FAIL_NULL(KN_ERR_OOM, "kn_gradcheck: no host memory");
    for (int64_t i = 0; i < y->n; i++) u[i] = weight(first + i);
    kn_tensor *w = kn_tensor_from(u, KN_F64, kn_tensor_shape(y));
    free(u);
    return kn_sum(kn_mul(y, w), KN_ALL, false);
}

/* In a frame of its own: kn_keep and kn_drop in f leave the watched inputs where they are. */
static kn_tensor *result_of(const check *c, kn_tensor *const x[]) {
    KN_FRAME();
    return kn_keep(c->f(c->ctx, x));
}

/* The number that is differentiated, at the point's watched inputs, on the open tape. */
static kn_status value(kn_tensor **out, const check *c, kn_tensor *const x[]) {
    kn_tensor *y = result_of(c, x);
    KN_TRY(kn_check());
    if (!y) return KN_FAIL(KN_ERR_INVALID, "kn_gradcheck: f gave no tensor");
    kn_tensor *F = weighed(y, 0);
    if (!F) return kn_check();
    *out = F;
    if (c->order == 1) return KN_OK;
    kn_tensor **dx = calloc((size_t)c->n_x, sizeof *dx);
    if (!dx) return KN_FAIL(KN_ERR_OOM, "kn_gradcheck: no host memory");
    kn_gradients_options again = {.again = 1};
    kn_status status = kn_gradients(dx, F, x, c->n_x, &again);
    kn_tensor *G = NULL;
    int64_t first = 1000;
    for (int i = 0; status == KN_OK && i < c->n_x; i++) {
        kn_tensor *term = weighed(dx[i], first);
        G = G ? kn_add(G, term) : term;
        first += x[i]->n;
    }
    free(dx);
    *out = G;
    return status < 0 ? status : kn_check();
}

static kn_status watch_all(kn_tensor *watched[], const check *c) {
    for (int i = 0; i < c->n_x; i++) {
        watched[i] = kn_watch(c->point[i]);
        if (!watched[i]) return kn_check();
    }
    return KN_OK;
}

static kn_status evaluate(double *out, const check *c, kn_tensor *watched[]) {
    KN_TAPE(.device = kn_device_host(), .dtype = KN_F64, .threads = 1); /* the work is tiny */
    KN_TRY(kn_check());
    KN_TRY(watch_all(watched, c));
    kn_tensor *F = NULL;
    KN_TRY(value(&F, c, watched));
    return kn_item(out, F);
}

/* The gradients, copied out: of input i at grads[i]. */
static kn_status analytic(double *const grads[], const check *c, kn_tensor *watched[],
                          kn_tensor *dx[]) {
    KN_TAPE(.device = kn_device_host(), .dtype = KN_F64, .threads = 1); /* the work is tiny */
    KN_TRY(kn_check());
    KN_TRY(watch_all(watched, c));
    kn_tensor *F = NULL;
    KN_TRY(value(&F, c, watched));
    KN_TRY(kn_gradients(dx, F, watched, c->n_x, NULL));
    for (int i = 0; i < c->n_x; i++) {
        KN_TRY(kn_copy_out(grads[i], (size_t)dx[i]->n * sizeof(double), dx[i]));
    }
    return KN_OK;
}

/* --- differences --- */

static kn_status at(double *out, const check *c, kn_tensor *watched[], double *element, double x) {
    double old = *element;
    *element = x;
    kn_status status = evaluate(out, c, watched);
    *element = old;
    return status;
}

static kn_status difference(double *out, const check *c, kn_tensor *watched[], double *element) {
    double x = *element, h = 1e-3 * fmax(1, fabs(x)), f[4];
    static const double steps[4] = {-2, -1, 1, 2};
    for (int k = 0; k < 4; k++) KN_TRY(at(&f[k], c, watched, element, x + steps[k] * h));
    *out = (8 * (f[2] - f[1]) - (f[3] - f[0])) / (12 * h);
    return KN_OK;
}

/* The k-th of the elements that are checked, of n: all of a small input; of a larger one the first,
 * the last, and one anywhere in each of the runs between, since an even distance would leave out
 * whole columns. */
static int64_t element_at(int64_t k, int64_t n) {
    if (n <= ELEMENTS_MAX || k == 0) return k;
    if (k == ELEMENTS_MAX - 1) return n - 1;
    int64_t from = k * n / ELEMENTS_MAX, to = (k + 1) * n / ELEMENTS_MAX;
    return from + (int64_t)(kn__mix((uint64_t)k * KN__GOLDEN) % (uint64_t)(to - from));
}

static kn_status check_input(const check *c, kn_tensor *watched[], const double *grad, int i) {
    kn_tensor *x = c->point[i];
    double *data = x->data;
    for (int64_t k = 0; k < x->n && k < ELEMENTS_MAX; k++) {
        int64_t j = element_at(k, x->n);
        double want;
        KN_TRY(difference(&want, c, watched, &data[j]));
        if (fabs(grad[j] - want) <= c->atol + c->rtol * fabs(want)) continue;
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_gradcheck: order %d, x[%d] element %lld: the gradient is %.12g, "
                       "differences give %.12g",
                       c->order, i, (long long)j, grad[j], want);
    }
    return KN_OK;
}

/* --- the call --- */

static kn_status check_arguments(kn_gradcheck_fn f, kn_tensor *const x[], int n_x, int order) {
    if (!f || !x) return KN_FAIL(KN_ERR_INVALID, "kn_gradcheck: %s is NULL", f ? "x" : "f");
    if (n_x < 1 || order < 1 || order > 2) {
        return KN_FAIL(KN_ERR_INVALID, "kn_gradcheck: n_x is %d, order is %d (1 or 2)", n_x, order);
    }
    if (kn_frame_tape()) {
        return KN_FAIL(KN_ERR_INVALID, "kn_gradcheck opens tapes of its own; one is open already");
    }
    for (int i = 0; i < n_x; i++) {
        const char *problem = kn_tensor_problem(x[i]);
        if (problem) return KN_FAIL(KN_ERR_INVALID, "kn_gradcheck: x[%d] %s", i, problem);
        if (x[i]->dtype != KN_F64 || x[i]->storage->device != kn_device_host()) {
            return KN_FAIL(KN_ERR_DTYPE, "kn_gradcheck: x[%d] is not f64 on the host", i);
        }
    }
    return KN_OK;
}

typedef struct buffers {
    kn_tensor **point, **watched, **dx;
    double **grads;
} buffers;

static void buffers_free(buffers *b, int n_x) {
    for (int i = 0; b->grads && i < n_x; i++) free(b->grads[i]);
    free(b->grads);
    free(b->dx);
    free(b->watched);
    free(b->point);
}

/* Copies of the inputs, because they are moved about. */
static kn_status buffers_make(buffers *b, kn_tensor *const x[], int n_x) {
    size_t n = (size_t)n_x;
    b->point = calloc(n, sizeof *b->point);
    b->watched = calloc(n, sizeof *b->watched);
    b->dx = calloc(n, sizeof *b->dx);
    b->grads = calloc(n, sizeof *b->grads);
    bool enough = b->point && b->watched && b->dx && b->grads;
    for (int i = 0; enough && i < n_x; i++) {
        b->grads[i] = calloc((size_t)x[i]->n + 1, sizeof **b->grads);
        enough = b->grads[i] != NULL;
        KN_TRY(kn_tensor_compute(x[i]));
        b->point[i] = kn_tensor_from(x[i]->data, KN_F64, kn_tensor_shape(x[i]));
        if (!b->point[i]) return kn_check();
    }
    return enough ? KN_OK : KN_FAIL(KN_ERR_OOM, "kn_gradcheck: no host memory");
}

kn_status kn_gradcheck(kn_gradcheck_fn f, void *ctx, kn_tensor *const x[], int n_x, int order,
                       double rtol, double atol) {
    KN_TRY(kn_check());
    KN_TRY(check_arguments(f, x, n_x, order));
    KN_FRAME(.device = kn_device_host(), .dtype = KN_F64);
    KN_TRY(kn_check());
    buffers b = {0};
    kn_status status = buffers_make(&b, x, n_x);
    check c = {f, ctx, x, n_x, order, rtol, atol, b.point};
    if (status == KN_OK) status = analytic(b.grads, &c, b.watched, b.dx);
    for (int i = 0; status == KN_OK && i < n_x; i++) {
        status = check_input(&c, b.watched, b.grads[i], i);
    }
    buffers_free(&b, n_x);
    return status;
}
