/* Training steps of LeNet (batch 128) and a small MLP (batch 100), SGD, on two threads, beside
 * PyTorch's and beside themselves with the timer on; in turn, a short run each, so that a slow
 * spell of the machine hits all alike. Last, LeNet's step while two other processes keep a
 * processor busy each: on the default number of threads beside the better of one and two.
 *
 *     bench_train [--quick]
 *     bench_train --device cuda --peer PYTHON SCRIPT
 *
 * On a GPU: steps in runs of 200 after a run to warm up, beside PyTorch's, with TF32 on both sides
 * and on neither; and with the timer on, with GPU times and without. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "neighbours.h"
#include "peer.h"
#include "steps.h"

enum { ROUNDS_MAX = 31 };

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Ignores NaNs in x; NAN if x has no number. */
static double median(const double *x, int n) {
    double known[ROUNDS_MAX];
    int m = 0;
    for (int i = 0; i < n; i++)
        if (!isnan(x[i])) known[m++] = x[i];
    qsort(known, (size_t)m, sizeof *known, by_value);
    return m ? known[m / 2] : (double)NAN;
}

typedef struct rounds {
    double ns[3][ROUNDS_MAX], ratio[2][ROUNDS_MAX]; /* ours, timed, peer's; ours/peer, timed/ours */
} rounds;

static void run(rounds *r, peer s[3], const char *model, int n_rounds, int n_steps) {
    for (int who = 0; who < 3; who++) peer_ask(&s[who], "%s %d", model, n_steps); /* warm up */
    for (int i = 0; i < n_rounds; i++) {
        for (int who = 0; who < 3; who++)
            r->ns[who][i] = peer_ask(&s[who], "%s %d", model, n_steps);
        r->ratio[0][i] = r->ns[0][i] / r->ns[2][i];
        r->ratio[1][i] = r->ns[1][i] / r->ns[0][i];
    }
}

static void emit(const rounds *r, const char *metric, int n_rounds) {
    bench_emit_ratio("train", metric, median(r->ns[0], n_rounds) * 1e-6, "ms",
                     median(r->ns[2], n_rounds) * 1e-6, median(r->ratio[0], n_rounds));
}

/* --- with busy neighbours --- */

static void run_busy(char *self, int n_rounds, int n_steps) {
    char serve[] = "--serve", threads[3][2] = {"0", "1", "2"}, cpu[] = "cpu", f32[] = "f32";
    peer s[3];
    rounds r;
    pid_t neighbours[NEIGHBOURS];
    for (int who = 0; who < 3; who++)
        peer_start(&s[who], (char *[]){self, serve, threads[who], cpu, f32, NULL},
                   "OMP_NUM_THREADS");
    neighbours_start(neighbours);
    run(&r, s, "lenet", n_rounds, n_steps);
    neighbours_stop(neighbours);
    for (int who = 0; who < 3; who++) peer_stop(&s[who]);
    double best = fmin(median(r.ns[1], n_rounds), median(r.ns[2], n_rounds));
    bench_emit("train", "lenet_busy", median(r.ns[0], n_rounds) * 1e-6, "ms", best * 1e-6);
}

/* --- on a GPU --- */

enum { DEVICE_STEPS = 200, DEVICE_ROUNDS = 9 };
enum { OURS, OURS_TF32, TIMED, TIMED_GPU, PEER, PEER_TF32, DEVICE_SIDES };

static void rounds_of(double out[DEVICE_SIDES], peer s[DEVICE_SIDES], const char *model) {
    double ns[DEVICE_SIDES][ROUNDS_MAX];
    for (int who = 0; who < DEVICE_SIDES; who++) peer_ask(&s[who], "%s %d", model, DEVICE_STEPS);
    for (int i = 0; i < DEVICE_ROUNDS; i++)
        for (int who = 0; who < DEVICE_SIDES; who++)
            ns[who][i] = peer_ask(&s[who], "%s %d", model, DEVICE_STEPS);
    for (int who = 0; who < DEVICE_SIDES; who++) out[who] = median(ns[who], DEVICE_ROUNDS) * 1e-6;
}

static void emit_device(const char *model, const char *what, double ms, double baseline_ms) {
    char metric[64];
    snprintf(metric, sizeof metric, "%s_%s", model, what);
    bench_emit("gpu_train", metric, ms, "ms", baseline_ms);
}

static int run_device(char *device, char *python, char *script) {
    static const char *const models[] = {"lenet", "mlp"};
    char self[] = "/proc/self/exe", serve[] = "--serve", two[] = "2", f32[] = "f32",
         tf32[] = "tf32";
    char *const ours[] = {self, serve, two, device, f32, NULL};
    double ms[DEVICE_SIDES], known = 0;
    peer s[DEVICE_SIDES];
    peer_start(&s[OURS], ours, NULL);
    peer_start(&s[OURS_TF32], (char *[]){self, serve, two, device, tf32, NULL}, NULL);
    peer_start(&s[TIMED], ours, "KNET_TIMER=1,out=/dev/null");
    peer_start(&s[TIMED_GPU], ours, "KNET_TIMER=gpu,out=/dev/null");
    peer_start(&s[PEER], (char *[]){python, script, two, device, f32, NULL}, NULL);
    peer_start(&s[PEER_TF32], (char *[]){python, script, two, device, tf32, NULL}, NULL);
    for (int i = 0; i < 2; i++) {
        rounds_of(ms, s, models[i]);
        emit_device(models[i], "step_ms", ms[OURS], ms[PEER]);
        emit_device(models[i], "step_ms_tf32", ms[OURS_TF32], ms[PEER_TF32]);
        emit_device(models[i], "timer", ms[TIMED], ms[OURS]);
        emit_device(models[i], "timer_gpu", ms[TIMED_GPU], ms[OURS]);
        for (int who = 0; who < DEVICE_SIDES; who++) known += ms[who];
    }
    for (int who = 0; who < DEVICE_SIDES; who++) peer_stop(&s[who]);
    if (isnan(known))
        fprintf(stderr, "bench_train: one side did not answer; its figures are missing\n");
    return isnan(known);
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "--serve") == 0)
        return steps_serve(atoi(argv[2]), argv[3], strcmp(argv[4], "tf32") == 0);
    if (argc == 6 && strcmp(argv[1], "--device") == 0) {
        signal(SIGPIPE, SIG_IGN);
        if (!steps_has_device(argv[2])) return 77;
        return run_device(argv[2], argv[4], argv[5]);
    }
    bench_init(argc, argv);
    signal(SIGPIPE, SIG_IGN); /* an absent peer is noticed by its missing answer */
    setenv("OMP_NUM_THREADS", "2", 1);
    unsetenv("OPENBLAS_CORETYPE");
    unsetenv("OPENBLAS_L2_SIZE");
    char self[] = "/proc/self/exe", serve[] = "--serve", two[] = "2";
    char script[] = PEER_SCRIPT, cpu[] = "cpu", f32[] = "f32";
    peer s[3];
    peer_start(&s[0], (char *[]){self, serve, two, cpu, f32, NULL}, NULL);
    peer_start(&s[1], (char *[]){self, serve, two, cpu, f32, NULL}, "KNET_TIMER=1,out=/dev/null");
    peer_start(&s[2], (char *[]){peer_python(), script, two, NULL}, PEER_BLAS);
    rounds lenet, mlp;
    int n_rounds = bench_quick() ? 5 : 21;
    run(&lenet, s, "lenet", n_rounds, 10);
    run(&mlp, s, "mlp", n_rounds, 200);
    emit(&lenet, "lenet_step_ms", n_rounds);
    emit(&mlp, "mlp_step_ms", n_rounds);
    bench_emit_ratio("train", "lenet_timer", median(lenet.ns[1], n_rounds) * 1e-6, "ms",
                     median(lenet.ns[0], n_rounds) * 1e-6, median(lenet.ratio[1], n_rounds));
    bench_emit_ratio("train", "mlp_timer", median(mlp.ns[1], n_rounds) * 1e-6, "ms",
                     median(mlp.ns[0], n_rounds) * 1e-6, median(mlp.ratio[1], n_rounds));
    for (int who = 0; who < 3; who++) peer_stop(&s[who]);
    run_busy(self, n_rounds, 10);
    if (isnan(median(lenet.ns[2], n_rounds)))
        fprintf(stderr, "bench_train: PyTorch is absent, so its figures are missing\n");
    return isnan(median(lenet.ns[0], n_rounds));
}
