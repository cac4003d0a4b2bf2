/* Ops beside PyTorch's, forward, and forward with gradients; on two threads each, in turn. cases.h
 * says how to add a case.
 *
 *     bench_arrays [--quick] [--only TEXT] [--threads N]      TEXT: part of "family/name"
 *                  [--device cuda:0] [--math tf32] [--script PATH]
 *
 * PATH: PyTorch's side, where it isn't the source tree's. --math: both sides' products; strict
 * otherwise.
 * On a busy machine PyTorch's threads wait for each other: compare on one thread there. */
#include "cases.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "peer.h"

extern const bench_case *const __start_bench_cases[], *const __stop_bench_cases[];

enum { MODES = 2 };
typedef enum mode { FORWARD, BOTH } mode;
static const char *const mode_names[MODES] = {"fwd", "both"};

static kn_rng *rng;
static const char *script_path; /* PyTorch's side */
static peer torch;
static int n_rounds;
static double budget_ns, longest_ns; /* of one side in one round; of a figure's rounds */
static const char *math_suffix = ""; /* of names */

kn_rng *cases_rng(void) { return rng; }

/* --- inputs --- */

static uint64_t random_bits(void) {
    static uint64_t state = 88172645463325252U;
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static kn_status input_make(kn_tensor **slot, const bench_input *in) {
    KN_FRAME(.dtype = in->dtype == KN_F64 ? KN_F64 : KN_F32);
    if (in->kind == 'n') return kn_hold(slot, kn_normal(in->shape, in->lo, in->hi, rng));
    if (in->kind == 'u' || in->kind == 'c')
        return kn_hold(slot, kn_uniform(in->shape, in->lo, in->hi, rng));
    int64_t n = 1;
    for (int i = 0; i < in->shape.n_dims; i++) n *= in->shape.dim[i];
    int64_t *value = malloc((size_t)n * sizeof *value), lo = (int64_t)in->lo;
    if (!value) return KN_FAIL(KN_ERR_OOM, "no memory for an input");
    for (int64_t i = 0; i < n; i++)
        value[i] = lo + (int64_t)(random_bits() % (uint64_t)((int64_t)in->hi - lo));
    kn_status status = kn_hold(slot, kn_cast(kn_tensor_from(value, KN_I64, in->shape), in->dtype));
    free(value);
    return status;
}

/* " n:f32:0:1:32,256" for each. */
static void inputs_text(char *out, size_t out_bytes, const bench_case *c) {
    char shape[128];
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; i < CASES_IN_MAX && c->in[i].kind; i++) {
        const bench_input *in = &c->in[i];
        kn_shape_text(shape, sizeof shape, in->shape);
        shape[strlen(shape) - 1] = 0; /* without brackets */
        n += (size_t)snprintf(out + n, out_bytes - n, " %c:%s:%g:%g:%s", in->kind,
                              kn_dtype_name(in->dtype), in->lo, in->hi, shape + 1);
    }
}

/* --- figures --- */

typedef struct figure {
    double ours, theirs, copy; /* least ns */
} figure;

static double ask(const bench_case *c, mode m, const char *inputs) {
    return peer_ask(&torch, "%s %s %.0f%s", c->name, mode_names[m], budget_ns, inputs);
}

static double least(double a, double b) { return isnan(a) || b < a ? b : a; }

/* libgomp's threads spin for some milliseconds after a loop. They would take our threads' cores. */
static void let_peer_rest(void) {
    if (torch.pid) nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

/* The first round warms both sides up. False: ours failed. */
static bool measure(figure *f, const bench_case *c, mode m, kn_tensor *const x[]) {
    char inputs[512];
    bool copies = c->moved_bytes > 0 && m == FORWARD;
    uint64_t start = bench_now_ns();
    inputs_text(inputs, sizeof inputs, c);
    *f = (figure){INFINITY, (double)NAN, INFINITY};
    for (int i = -1; i < n_rounds; i++) {
        let_peer_rest();
        double ours = (m == FORWARD ? cases_forward : cases_both)(c, x, budget_ns);
        if (ours <= 0) return false;
        double theirs = ask(c, m, inputs);
        if (i < 0) continue;
        f->ours = least(f->ours, ours);
        f->theirs = least(f->theirs, theirs);
        if (copies) f->copy = least(f->copy, cases_copy(c->moved_bytes, budget_ns));
        if (i >= 2 && (double)(bench_now_ns() - start) > longest_ns) break;
    }
    return true;
}

static void emit(const figure *f, const bench_case *c, mode m) {
    char metric[96], family[32];
    bool plain = m == FORWARD && strcmp(c->family, "ops20") != 0;
    snprintf(family, sizeof family, "%s%s", cases_on_device() ? "gpu_" : "", c->family);
    snprintf(metric, sizeof metric, "%s%s%s%s", c->name, plain ? "" : "_",
             plain ? "" : mode_names[m], math_suffix);
    bench_emit(family, metric, f->ours / 1e3, "us", f->theirs / 1e3);
    if (isnan(f->theirs) && torch.pid)
        fprintf(stderr, "%s has no line for %s\n", script_path, c->name);
    if (!isfinite(f->copy)) return;
    snprintf(metric, sizeof metric, "%s_bandwidth", c->name);
    bench_emit(family, metric, c->moved_bytes / f->ours, "GB/s", c->moved_bytes / f->copy);
}

static kn_status run_modes(const bench_case *c, kn_tensor *x[]) {
    figure f;
    for (int i = 0; i < CASES_IN_MAX && c->in[i].kind; i++) KN_TRY(input_make(&x[i], &c->in[i]));
    if (c->setup) KN_TRY(c->setup());
    for (int m = FORWARD; m <= (c->both ? BOTH : FORWARD); m++) {
        if (!measure(&f, c, (mode)m, x)) return kn_check();
        emit(&f, c, (mode)m);
    }
    return KN_OK;
}

static bool run(const bench_case *c) {
    kn_tensor *x[CASES_IN_MAX] = {0};
    kn_status status = run_modes(c, x);
    if (c->teardown) c->teardown();
    for (int i = 0; i < CASES_IN_MAX; i++) kn_unhold(&x[i]);
    if (status < 0) fprintf(stderr, "%s: %s\n", c->name, kn_last_error()->message);
    return status == KN_OK;
}

/* Takes "name value" out of the arguments; returns `otherwise` if it isn't there. */
static char *take(int *argc, char **argv, const char *name, char *otherwise) {
    for (int i = 1; i + 1 < *argc; i++) {
        if (strcmp(argv[i], name) != 0) continue;
        char *value = argv[i + 1];
        for (int k = i; k + 2 < *argc; k++) argv[k] = argv[k + 2];
        *argc -= 2;
        return value;
    }
    return otherwise;
}

static bool is_wanted(const bench_case *c, const char *only) {
    char name[96];
    snprintf(name, sizeof name, "%s/%s", c->family, c->name);
    return strstr(name, only) != NULL;
}

int cases_main(int argc, char **argv, const char *script, cases_more_fn more) {
    char all[] = "", two[] = "2", cpu[] = "cpu", strict[] = "strict";
    const char *only = take(&argc, argv, "--only", all);
    char *threads = take(&argc, argv, "--threads", two);
    char *device_name = take(&argc, argv, "--device", cpu);
    char *math = take(&argc, argv, "--math", strict);
    kn_device *device = NULL;
    bool good = true, tf32 = strcmp(math, "tf32") == 0;
    script = script_path = take(&argc, argv, "--script", (char *)(uintptr_t)script);
    bench_init(argc, argv);
    if (kn_device_find(&device, device_name) < 0) {
        fprintf(stderr, "%s: skipped: %s\n", argv[0], kn_last_error()->message);
        return 77;
    }
    if (tf32) math_suffix = "_tf32";
    n_rounds = bench_quick() ? 4 : 12;
    budget_ns = bench_quick() ? 3e6 : 8e6;
    longest_ns = bench_quick() ? 2e9 : 6e9;
    signal(SIGPIPE, SIG_IGN); /* an absent peer is noticed by its missing answer */
    setenv("OMP_NUM_THREADS", threads, 1);
    unsetenv("OPENBLAS_CORETYPE");
    unsetenv("OPENBLAS_L2_SIZE");
    peer_start(
        &torch,
        (char *[]){peer_python(), (char *)(uintptr_t)script, threads, device_name, math, NULL},
        PEER_BLAS);
    KN_FRAME(.threads = atoi(threads), .device = device,
             .math = tf32 ? KN_MATH_TF32 : KN_MATH_STRICT);
    if (kn_rng_create(&rng, 1) < 0) return 1;
    for (const bench_case *const *c = __start_bench_cases; c < __stop_bench_cases; c++)
        if (is_wanted(*c, only)) good &= run(*c);
    if (!torch.pid) fprintf(stderr, "PyTorch is absent, so its figures are missing\n");
    peer_stop(&torch);
    if (more && !cases_on_device()) more(n_rounds, budget_ns, only);
    kn_rng_destroy(rng);
    return good ? 0 : 1;
}
