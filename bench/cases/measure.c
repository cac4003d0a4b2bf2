#include <knet/tape.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "cases.h"

/* Whether the calls ran; a device works behind the host's back, so it is waited for. */
static bool run_all(cases_fn fn, const void *ctx, long n) {
    if (!fn(ctx, n)) return false;
    return !cases_on_device() || kn_stream_sync(kn_frame_device(), kn_frame_stream()) == KN_OK;
}

static double least_of(cases_fn fn, const void *ctx, double budget_ns, double sample_ns) {
    double least = INFINITY, total = 0;
    long n = 1;
    while (total < budget_ns) {
        uint64_t start = bench_now_ns();
        if (!run_all(fn, ctx, n)) return 0;
        double ns = (double)(bench_now_ns() - start);
        total += ns;
        least = fmin(least, ns / (double)n);
        if (ns < sample_ns / 2) n = (long)fmin((double)n * 10, ceil(sample_ns / (ns / (double)n)));
    }
    return least;
}

bool cases_on_device(void) { return kn_frame_device() != kn_device_host(); }

double cases_least(cases_fn fn, const void *ctx, double budget_ns) {
    return least_of(fn, ctx, budget_ns, cases_on_device() ? 2e6 : 2e5);
}

/* --- ours --- */

typedef struct work {
    const bench_case *c;
    kn_tensor *const *x;
} work;

static bool forward(const void *ctx, long n) {
    const work *w = ctx;
    bool good = true;
    for (long i = 0; i < n && good; i++) {
        KN_FRAME();
        good = w->c->run(w->x) != NULL;
    }
    return good;
}

static bool has_gradient(const bench_input *in) {
    return (in->dtype == KN_F32 || in->dtype == KN_F64) && (in->kind == 'n' || in->kind == 'u');
}

static bool both_once(const work *w) {
    kn_tensor *x[CASES_IN_MAX], *wanted[CASES_IN_MAX], *dx[CASES_IN_MAX];
    int n_wanted = 0;
    KN_TAPE();
    for (int i = 0; i < CASES_IN_MAX; i++) {
        x[i] = w->x[i];
        if (x[i] && has_gradient(&w->c->in[i])) wanted[n_wanted++] = x[i] = kn_watch(x[i]);
    }
    kn_tensor *loss = kn_sum(w->c->run(x), KN_ALL, false);
    return kn_gradients(dx, loss, wanted, n_wanted, NULL) == KN_OK;
}

static bool both(const void *ctx, long n) {
    for (long i = 0; i < n; i++)
        if (!both_once(ctx)) return false;
    return true;
}

double cases_forward(const bench_case *c, kn_tensor *const x[], double budget_ns) {
    return cases_least(forward, &(work){c, x}, budget_ns);
}

double cases_both(const bench_case *c, kn_tensor *const x[], double budget_ns) {
    return cases_least(both, &(work){c, x}, budget_ns);
}

/* --- a copy --- */

enum { THREADS_MAX = 64 };

typedef struct part {
    char *to;
    const char *from;
    size_t bytes;
    long n;
} part;

static void *copy_part(void *ctx) {
    part *p = ctx;
    for (long i = 0; i < p->n; i++) {
        memcpy(p->to, p->from, p->bytes);
        __asm__ volatile("" : : "r"(p->to) : "memory"); /* every copy is made */
    }
    return NULL;
}

typedef struct copy {
    char *to, *from;
    size_t bytes;
} copy;

static bool copy_all(const void *ctx, long n) {
    const copy *c = ctx;
    int threads = kn_frame_threads() < THREADS_MAX ? kn_frame_threads() : THREADS_MAX;
    size_t share = c->bytes / (size_t)threads;
    pthread_t thread[THREADS_MAX];
    part p[THREADS_MAX];
    int n_started = 1;
    for (int i = 0; i < threads; i++)
        p[i] = (part){c->to + (size_t)i * share, c->from + (size_t)i * share, share, n};
    while (n_started < threads &&
           pthread_create(&thread[n_started], NULL, copy_part, &p[n_started]) == 0)
        n_started++;
    copy_part(&p[0]);
    for (int i = 1; i < n_started; i++) pthread_join(thread[i], NULL);
    return n_started == threads;
}

static bool copy_on_device(const void *ctx, long n) {
    const copy *c = ctx;
    kn_device *device = kn_frame_device();
    bool good = true;
    for (long i = 0; i < n && good; i++)
        good = kn_device_copy(device, c->to, device, c->from, c->bytes, kn_frame_stream()) == KN_OK;
    return good;
}

static double copy_ns_on_device(copy c, double budget_ns) {
    kn_pool *pool = kn_device_pool(kn_frame_device());
    void *to = NULL, *from = NULL;
    double ns = 0;
    if (kn_alloc(&to, pool, c.bytes, kn_frame_stream()) == KN_OK &&
        kn_alloc(&from, pool, c.bytes, kn_frame_stream()) == KN_OK) {
        c.to = to, c.from = from;
        ns = cases_least(copy_on_device, &c, budget_ns);
    }
    kn_free(pool, to);
    kn_free(pool, from);
    return ns;
}

double cases_copy(double bytes, double budget_ns) {
    copy c = {.bytes = (size_t)bytes / 2};
    if (cases_on_device()) return copy_ns_on_device(c, budget_ns);
    c.to = malloc(c.bytes);
    c.from = malloc(c.bytes);
    double ns = 0;
    if (c.to && c.from) {
        memset(c.to, 1, c.bytes);
        memset(c.from, 2, c.bytes);
        /* Long samples hide the start of the threads. */
        ns = least_of(copy_all, &c, fmax(budget_ns, 8e6), 2e6);
    }
    free(c.to);
    free(c.from);
    return ns;
}
