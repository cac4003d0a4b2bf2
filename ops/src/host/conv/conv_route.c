#include "host/conv/conv_route.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "host/base/chunks.h"

enum { BLOCK = 16, LEAST_BATCH = 4 };

/* --- the rule --- */

/* Measured on Cascade Lake (2.5 GHz, AVX-512, one thread, oneDNN 2.6.3, gcc 12, 2026-11-21), time
 * of ours / the library's for forward, data, weights: 3x3 64 to 64 at 56x56 1.4, 2.3, 1.1; 512 to
 * 512 at 7x7 1.7, 2.5, 1.7; 16 to 32 at 16x16 1.0, 1.5, 1.1; 100 to 100 1.0, 1.4, 1.2; 50 to 100
 * 0.8, 1.1, 1.1; 5x5 20 to 50 0.5, 0.7, 0.6; 1x1 0.6 to 1.0; a plane each, 0.9, 2.2, 9; 7x7 stride
 * 2, 3 to 64 1.7, 0.4, 1.1. So: windows of some size over blocks of channels with little padding
 * (none forward), gradients of planes each for itself, and strided first layers. */
static bool is_faster(const kn_conv_sizes *s, kn_pass pass) {
    if (s->window_size == 1) return false;
    if (s->channels == 1 && s->outputs == 1)
        return pass != KN_PASS_FORWARD && s->groups % BLOCK == 0;
    if (s->channels == 3 && s->stride[2] > 1)
        return pass != KN_PASS_DATA && s->groups == 1 && s->outputs % BLOCK == 0;
    int64_t channels = kn__chunks(s->channels, BLOCK) * BLOCK;
    int64_t outputs = kn__chunks(s->outputs, BLOCK) * BLOCK;
    int64_t percent = pass == KN_PASS_FORWARD ? 100 : 130;
    return channels * outputs * 100 <= s->channels * s->outputs * percent;
}

/* Our kernels spread one image over threads, the library's runs can't. */
static kn_conv_way tabled(const kn_conv_sizes *s, kn_pass pass) {
    bool library = (pass != KN_PASS_FORWARD || s->batch >= LEAST_BATCH) && is_faster(s, pass);
    return library ? KN_CONV_DNNL : KN_CONV_OURS;
}

/* --- measured routes --- */

enum { ROUTES_MAX = 256 }; /* the oldest goes first */
typedef struct route {
    kn_conv_sizes sizes;
    int32_t pass, threads;
    kn_conv_way way;
} route;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects these three */
static route routes[ROUTES_MAX];
static int n_routes, next_route;

static bool same_sizes(const kn_conv_sizes *a, const kn_conv_sizes *b) {
    bool same = a->batch == b->batch && a->groups == b->groups && a->channels == b->channels &&
                a->outputs == b->outputs;
    for (int i = 0; i < 3 && same; i++)
        same = a->in[i] == b->in[i] && a->out[i] == b->out[i] && a->window[i] == b->window[i] &&
               a->stride[i] == b->stride[i] && a->padding[i] == b->padding[i] &&
               a->padding_end[i] == b->padding_end[i] && a->dilation[i] == b->dilation[i];
    return same;
}

/* KN_CONV_MEASURED: not yet. */
static kn_conv_way measured(const kn_op_call *call, kn_pass pass, const kn_conv_sizes *s) {
    kn_conv_way way = KN_CONV_MEASURED;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_routes && way == KN_CONV_MEASURED; i++) {
        const route *r = &routes[i];
        if (r->pass == (int32_t)pass && r->threads == call->threads && same_sizes(&r->sizes, s))
            way = r->way;
    }
    pthread_mutex_unlock(&lock);
    return way;
}

void kn__conv_note(const kn_op_call *call, kn_pass pass, const kn_conv_sizes *s, kn_conv_way way) {
    pthread_mutex_lock(&lock);
    routes[next_route] = (route){*s, (int32_t)pass, call->threads, way};
    next_route = (next_route + 1) % ROUTES_MAX;
    if (n_routes < ROUTES_MAX) n_routes++;
    pthread_mutex_unlock(&lock);
}

/* --- the choice --- */

static atomic_int preferred = -1; /* the environment was not read yet, or it is wrong */

void kn__conv_prefer(kn_conv_way way) {
    pthread_mutex_lock(&lock);
    n_routes = next_route = 0;
    pthread_mutex_unlock(&lock);
    atomic_store(&preferred, (int)way);
}

static int read_environment(void) {
    static const char *const words[] = {"table", "ours", "onednn", "measure"};
    const char *text = getenv("KNET_CONV_ROUTE");
    if (!text || !*text) return KN_CONV_TABLED;
    for (int i = 0; i < 4; i++) {
        if (strcmp(text, words[i]) == 0) return i;
    }
    return -1;
}

static kn_status preference(kn_conv_way *out) {
    int way = atomic_load_explicit(&preferred, memory_order_relaxed);
    if (__builtin_expect(way < 0, 0)) {
        way = read_environment(); /* any thread's is the same */
        if (way < 0) {
            return KN_FAIL(KN_ERR_INVALID,
                           "KNET_CONV_ROUTE is '%s'; it must be table, measure, ours or onednn",
                           getenv("KNET_CONV_ROUTE"));
        }
        atomic_store_explicit(&preferred, way, memory_order_relaxed);
    }
    *out = (kn_conv_way)way;
    return KN_OK;
}

kn_status kn__conv_way(kn_conv_way *out, const kn_op_call *call, kn_pass pass,
                       const kn_conv_sizes *s) {
    kn_conv_way way = KN_CONV_TABLED;
    KN_TRY(preference(&way));
    bool can = call->out[0]->dtype == KN_F32 && !s->flip && s->batch > 0;
    *out = KN_CONV_OURS;
    if (way == KN_CONV_OURS || !can || !kn__dnnl_engine()) return KN_OK;
    bool adds = call->accumulate & 1; /* twice would be wrong */
    if (way == KN_CONV_MEASURED) way = measured(call, pass, s);
    *out = way == KN_CONV_DNNL || way == KN_CONV_OURS ? way
           : way == KN_CONV_MEASURED && !adds         ? KN_CONV_MEASURED
                                                      : tabled(s, pass);
    return KN_OK;
}
