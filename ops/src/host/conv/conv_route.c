#include "host/conv/conv_route.h"

#include <pthread.h>
#include <stdatomic.h>

#include "host/base/chunks.h"
#include "host/base/loops.h"
#include "host/conv/conv_over.h"
#include "host/conv/conv_winograd.h"
#include "modes.h"

enum { FEW = 8, RUNS = 16, LEAST_BATCH = 4 };

/* --- the model --- */

/* ns of a million sums, of as many elements of images (Winograd: numbers of tiles), and of as many
 * of a third thing: copies of windows, weights that a run of images brings into place, numbers of
 * weights. */
typedef struct cost {
    double sums, images, others;
} cost;

typedef struct costs { /* by pass */
    cost ours[3], ours_few[3], dnnl[3], dnnl_few[3], winograd[3];
} costs;

/* Fitted by bench/nn/routes.py to 195 convolutions on two threads of a Zen 4 and of a Xeon and 345
 * on two of a Zen 5 (gcc 12, oneDNN 2.6.3, 2026-11), in the first one's ns; Winograd's to the Zen
 * 5's. Their routes take 1.02 to 1.04 times the best one's time on average. `few`: less than 8
 * channels or outputs. */
static const costs avx512 = {.ours = {{9.1, 19, 363}, {10.2, 0, 302}, {8.4, 95, 149}},
                             .ours_few = {{8.9, 53, 230}, {11.3, 186, 16}, {8.3, 163, 0}},
                             .dnnl = {{7.7, 168, 111}, {7.8, 170, 99}, {8.4, 120, 264}},
                             .dnnl_few = {{7.6, 196, 360}, {43.0, 254, 0}, {9.8, 97, 0}},
                             .winograd = {{9.9, 108, 242}, {10.2, 119, 228}, {9.4, 174, 193}}};
static const costs avx2 = {.ours = {{10.0, 13, 255}, {10.9, 0, 237}, {9.4, 77, 90}},
                           .ours_few = {{9.9, 32, 161}, {12.9, 101, 0}, {9.4, 123, 0}},
                           .dnnl = {{9.1, 139, 74}, {9.0, 143, 74}, {10.0, 95, 194}},
                           .dnnl_few = {{8.7, 110, 801}, {7.9, 716, 0}, {12.6, 79, 0}},
                           .winograd = {{11.2, 124, 185}, {11.5, 115, 185}, {10.7, 203, 142}}};

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* What the features of all routes are made of. */
typedef struct problem {
    const kn__conv_sizes *s;
    kn__conv_pass pass;
    int64_t channels, outputs; /* as oneDNN pads them */
    int64_t runs, images;      /* images: elements of x and y */
} problem;

static problem problem_of(const kn__conv_sizes *s, kn__conv_pass pass, bool wide) {
    int64_t block = wide && s->groups == 1 ? 16 : FEW;
    problem p = {.s = s, .pass = pass, .channels = s->channels, .outputs = s->outputs};
    if (p.channels > FEW) p.channels = kn__chunks(p.channels, block) * block;
    if (p.outputs > FEW) p.outputs = kn__chunks(p.outputs, block) * block;
    p.runs = smaller(s->batch, RUNS);
    p.images = s->batch * s->groups * (s->channels * s->in_plane + s->outputs * s->out_plane);
    return p;
}

static double cost_of(const cost *c, double sums, double images, double others) {
    return c->sums * sums + c->images * images + c->others * others;
}

static bool has_few(const kn__conv_sizes *s) { return smaller(s->channels, s->outputs) < FEW; }

/* Gradients by conv_direct spread images over threads, and of one they spread nothing. */
static bool one_thread(const problem *p, bool direct) {
    const kn__conv_sizes *s = p->s;
    if (p->pass == KN_PASS_WEIGHT) direct = s->window_size > 1 && s->out_plane >= 16;
    return p->pass != KN_PASS_FORWARD && direct && s->batch * s->groups == 1;
}

static double ours_cost(const problem *p, const costs *c) {
    const kn__conv_sizes *s = p->s;
    double copies = (double)(s->batch * s->groups * s->channels * s->window_size * s->out_plane);
    bool direct = s->window_size > 1 && s->stride[2] == 1 && s->out[2] >= 8; /* conv_direct */
    int64_t row = direct ? s->out[2] : s->out_plane;
    double sums = copies * (double)s->outputs * (double)(kn__chunks(row, 8) * 8) / (double)row;
    if (direct || (s->window_size == 1 && s->stride[2] == 1)) copies = 0;
    if (one_thread(p, direct)) sums *= 2; /* the model is of two */
    return cost_of(&(has_few(s) ? c->ours_few : c->ours)[p->pass], sums, (double)p->images, copies);
}

static double dnnl_cost(const problem *p, const costs *c) {
    const kn__conv_sizes *s = p->s;
    int64_t weights = s->groups * p->channels * p->outputs * s->window_size;
    double spread = (double)(kn__chunks(p->runs, 2) * 2) / (double)p->runs; /* over two threads */
    return spread * cost_of(&(has_few(s) ? c->dnnl_few : c->dnnl)[p->pass],
                            (double)(s->batch * weights * s->out_plane), (double)p->images,
                            (double)(weights * p->runs));
}

static double winograd_cost(const problem *p, const costs *c) {
    kn__winograd_work work = kn__winograd_work_of(p->s, p->pass);
    return cost_of(&c->winograd[p->pass], work.sums, work.images, work.weights);
}

static bool winograd_pays(const problem *p, const costs *c, double best) {
    return kn__winograd_fits(p->s) && !has_few(p->s) && winograd_cost(p, c) < best;
}

/* Planes each for itself, and gradients of groups, take the library less time whatever their sizes;
 * of few images our kernels spread groups over threads, the library doesn't. */
static kn__conv_route tabled(const kn__conv_sizes *s, kn__conv_pass pass) {
    if (pass == KN_PASS_FORWARD && s->batch < LEAST_BATCH && s->groups > 1) return KN_CONV_OURS;
    bool wide = kn__loops(KN_F32) == kn__loops_isa(KN_F32, 4);
    problem p = problem_of(s, pass, wide);
    const costs *c = wide ? &avx512 : &avx2;
    bool each = s->channels == 1 && s->outputs == 1;
    if (each) return s->groups % FEW == 0 ? KN_CONV_DNNL : KN_CONV_OURS;
    if (s->groups > 1 && (s->channels % FEW || s->outputs % FEW)) return KN_CONV_OURS;
    if (s->groups > 1 && pass != KN_PASS_FORWARD) return KN_CONV_DNNL;
    double ours = ours_cost(&p, c), dnnl = dnnl_cost(&p, c);
    if (winograd_pays(&p, c, dnnl < ours ? dnnl : ours)) return KN_CONV_WINOGRAD;
    return dnnl < ours ? KN_CONV_DNNL : KN_CONV_OURS;
}

/* --- measured routes --- */

enum { ROUTES_MAX = 256 }; /* the oldest goes first */
typedef struct route {
    kn__conv_sizes sizes;
    int32_t pass, threads;
    kn__conv_route way;
} route;

pthread_mutex_t kn__conv_routes_lock = PTHREAD_MUTEX_INITIALIZER; /* protects these three */
static route routes[ROUTES_MAX];
static int n_routes, next_route;

static bool same_sizes(const kn__conv_sizes *a, const kn__conv_sizes *b) {
    bool same = a->batch == b->batch && a->groups == b->groups && a->channels == b->channels &&
                a->outputs == b->outputs;
    for (int i = 0; i < 3 && same; i++)
        same = a->in[i] == b->in[i] && a->out[i] == b->out[i] && a->window[i] == b->window[i] &&
               a->stride[i] == b->stride[i] && a->padding[i] == b->padding[i] &&
               a->padding_end[i] == b->padding_end[i] && a->dilation[i] == b->dilation[i];
    return same;
}

/* KN_CONV_MEASURED: not yet. */
static kn__conv_route measured(const kn_op_call *call, kn__conv_pass pass,
                               const kn__conv_sizes *s) {
    kn__conv_route way = KN_CONV_MEASURED;
    pthread_mutex_lock(&kn__conv_routes_lock);
    for (int i = 0; i < n_routes && way == KN_CONV_MEASURED; i++) {
        const route *r = &routes[i];
        if (r->pass == (int32_t)pass && r->threads == call->threads && same_sizes(&r->sizes, s))
            way = r->way;
    }
    pthread_mutex_unlock(&kn__conv_routes_lock);
    return way;
}

void kn__conv_note(const kn_op_call *call, kn__conv_pass pass, const kn__conv_sizes *s,
                   kn__conv_route way) {
    pthread_mutex_lock(&kn__conv_routes_lock);
    routes[next_route] = (route){*s, (int32_t)pass, call->threads, way};
    next_route = (next_route + 1) % ROUTES_MAX;
    if (n_routes < ROUTES_MAX) n_routes++;
    pthread_mutex_unlock(&kn__conv_routes_lock);
}

/* --- the choice --- */

static atomic_int preferred = -1; /* the environment was not read yet, or it is wrong */

void kn__conv_prefer(kn__conv_route way) {
    pthread_mutex_lock(&kn__conv_routes_lock);
    n_routes = next_route = 0;
    pthread_mutex_unlock(&kn__conv_routes_lock);
    atomic_store(&preferred, (int)way);
}

static kn_status preference(kn__conv_route *out) {
    int way = atomic_load_explicit(&preferred, memory_order_relaxed);
    if (__builtin_expect(way < 0, 0)) {
        KN_TRY(kn__mode_conv_route(&way)); /* any thread's is the same */
        atomic_store_explicit(&preferred, way, memory_order_relaxed);
    }
    *out = (kn__conv_route)way;
    return KN_OK;
}

kn_status kn__conv_winograd_pays(bool *out, const kn__conv_sizes *s) {
    kn__conv_route way = KN_CONV_TABLED;
    KN_TRY(preference(&way));
    problem p = problem_of(s, KN_PASS_FORWARD, kn__loops(KN_F32) == kn__loops_isa(KN_F32, 4));
    *out = way != KN_CONV_OURS && way != KN_CONV_DNNL &&
           winograd_pays(&p, &avx512, dnnl_cost(&p, &avx512));
    return KN_OK;
}

/* Whether a second run would be wrong. */
static bool runs_once(const kn_op_call *call) {
    return call->accumulate & 1 || kn__conv_is_over(call);
}

/* oneDNN's gradients of f32 weights (2.6) are wrong there. */
static bool weights_are_wrong(kn__conv_pass pass, const kn__conv_sizes *s) {
    return pass == KN_PASS_WEIGHT && kn__conv_spatial(s) == 3 && s->stride[0] > 1 &&
           s->padding[0] > 2;
}

kn_status kn__conv_way(kn__conv_route *out, const kn_op_call *call, kn__conv_pass pass,
                       const kn__conv_sizes *s) {
    kn__conv_route way = KN_CONV_TABLED;
    KN_TRY(preference(&way));
    bool can = call->out[0]->dtype == KN_F32 && !s->flip && s->batch > 0;
    can = can && !weights_are_wrong(pass, s);
    *out = KN_CONV_OURS;
    if (way == KN_CONV_OURS || !can || !kn__dnnl_engine()) return KN_OK;
    if (way == KN_CONV_MEASURED) way = measured(call, pass, s);
    if (way == KN_CONV_TABLED || (way == KN_CONV_MEASURED && runs_once(call)))
        way = tabled(s, pass);
    *out = way;
    return KN_OK;
}

/* Whether some positions of the window along dimension d read padding alone. */
static bool reads_padding_alone(const kn__conv_sizes *s, int d) {
    for (int64_t k = 0; k < s->window[d]; k++) {
        /* the first place at or behind the input's first element */
        int64_t at = k * s->dilation[d] - s->padding[d], i = 0;
        if (at < 0) i = (-at + s->stride[d] - 1) / s->stride[d];
        if (i >= s->out[d] || at + i * s->stride[d] >= s->in[d]) return true;
    }
    return false;
}

/* oneDNN's gradients of bf16 weights (2.6) read scratch that nothing wrote where a part of the
 * window reads padding alone; those of three dimensions are wrong for some paddings. */
static bool bf16_weights_are_right(const kn__conv_sizes *s) {
    bool pads = false;
    for (int d = 0; d < 3; d++) {
        if (reads_padding_alone(s, d)) return false;
        pads |= s->padding[d] || s->padding_end[d];
    }
    return !pads || kn__conv_spatial(s) < 3;
}

kn_status kn__conv_takes_bf16(bool *out, const kn_op_call *call, kn__conv_pass pass,
                              const kn__conv_sizes *s) {
    kn__conv_route way = KN_CONV_TABLED;
    KN_TRY(preference(&way));
    *out = call->dtype == KN_BF16 && way != KN_CONV_OURS && !s->flip && s->batch > 0 &&
           kn__dnnl_has_bf16() && (pass != KN_PASS_WEIGHT || bf16_weights_are_right(s));
    return KN_OK;
}
