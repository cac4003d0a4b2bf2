/* The models of the record beside PyTorch's, on two threads: training steps, inference, peak
 * memory, and the gain by the second thread. All sides take turns, some steps each, so that a slow
 * spell of the machine hits all.
 *
 *     bench_models [--quick] [MODEL…]
 *     bench_models --device cuda:0 strict|tf32|bf16 PYTHON SCRIPT SECONDS [MODEL…]
 *
 * Figures are models/<model>_train and _infer, ms beside PyTorch's; _tuned, the training step
 * beside PyTorch's best by hand (images in channels_last, jemalloc); _peak, MiB of a training step;
 * _threads, how many times faster a training step is on two threads than on one. Of ResNet-50 and
 * connect-four also, at larger batches, _frozen: inference by kn_freeze beside PyTorch as written,
 * _bf16: the same in bf16, where the processor multiplies it, beside PyTorch as written in f32, and
 * _best: _frozen beside its best by hand (traced, frozen, jemalloc). Without PyTorch there is no
 * baseline. Fast steps take nine turns, slow ones three. --quick: small models alone, in three.
 *
 * On a GPU: gpu_models/<model>_train_<math>, _infer_, _peak_, and _captured_, a captured training
 * step beside PyTorch's in a CUDA graph; each step is waited for. bf16 is mixed precision on both
 * sides. No model is begun after SECONDS.
 */
#include <knet/models.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "model_steps.h"
#include "peer.h"

enum { ROUNDS_MIN = 3, ROUNDS_MAX = 9, PAUSE_US = 10 * 1000 };
/* Of a side; the second where a step alone takes longer. */
static const double BUDGET_NS = 0.4e9, SLOW_BUDGET_NS = 1.5e9;

/* --- our side: as bench/peer/models.py --- */

/* A slow step that is asked for again needs no other to warm up. */
static double once_more(kn__model_steps *s, bool trains) {
    uint64_t start = bench_now_ns();
    kn_status status = trains ? kn__model_steps_train(s) : kn__model_steps_infer(s);
    return status == KN_OK ? (double)(bench_now_ns() - start) : -1;
}

/* The answer to a line: ns, or bytes of "peak"; negative: it failed. `again`: the same line as the
 * last. */
static double answer(kn__model_steps *s, const char *what, int64_t count, bool again) {
    kn__step_times times = {0};
    bool low = strcmp(what, "bf16") == 0, frozen = low || strcmp(what, "frozen") == 0;
    bool captured = strcmp(what, "captured") == 0;
    bool trains = !frozen && strcmp(what, "infer") != 0;
    int part = trains ? KN__STEPS_TRAIN : KN__STEPS_INFER;
    KN_FRAME(.autocast = low ? KN_BF16 : 0);
    double out = -1;
    if (again && count == 1) return once_more(s, trains);
    if (captured && !s->capture[KN__STEPS_TRAIN] && kn__model_steps_capture(s) < 0) return -1;
    kn_layer_thaw(kn_model_net(s->model));
    if (frozen && kn_freeze(s->model) < 0) return -1;
    if (kn__model_steps_warm_up(s, part) == KN_OK &&
        kn__model_steps_time(&times, s, part, count) == KN_OK)
        out = strcmp(what, "peak") ? times.ns[times.n / 2] : (double)times.live_max;
    free(times.ns);
    return out;
}

static int serve(int threads, const char *device_name, const char *math) {
    kn_device *device = NULL;
    if (kn_device_find(&device, device_name) < 0) {
        fprintf(stderr, "bench_models: %s\n", kn_last_error()->message);
        return 1;
    }
    char name[64], what[16], key[96], open[96] = "", last[16] = "";
    long count, batch;
    kn__model_steps s = {0};
    KN_FRAME(.threads = threads, .device = device, .record = KN_OFF,
             .math = strcmp(math, "tf32") == 0 ? KN_MATH_TF32 : KN_MATH_STRICT,
             .autocast = strcmp(math, "bf16") == 0 ? KN_BF16 : KN_OFF);
    while (scanf("%63s %15s %ld %ld", name, what, &count, &batch) == 4) {
        kn_status status = KN_OK;
        snprintf(key, sizeof key, "%s %ld", name, batch);
        if (strcmp(key, open) != 0) {
            kn__model_steps_close(&s);
            status = kn__model_steps_open(&s, name, batch, KN_F32);
            snprintf(open, sizeof open, "%s", key);
            last[0] = 0;
        }
        bool again = strcmp(what, last) == 0 && strcmp(what, "peak") != 0;
        double value = status == KN_OK ? answer(&s, what, count, again) : -1;
        snprintf(last, sizeof last, "%s", what);
        if (value < 0) fprintf(stderr, "bench_models: %s: %s\n", name, kn_last_error()->message);
        printf("%.0f\n", value < 0 ? (double)NAN : value);
        fflush(stdout);
    }
    kn__model_steps_close(&s);
    return 0;
}

/* --- the comparison --- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    if (isnan(x[0])) return (double)NAN;
    qsort(x, (size_t)n, sizeof *x, by_value);
    return x[n / 2];
}

/* PyTorch's threads spin for some milliseconds after their work, on our cores. */
static double ask(peer *p, const char *model, const char *what, long n, int64_t batch) {
    usleep(PAUSE_US);
    return peer_ask(p, "%s %s %ld %ld", model, what, n, (long)batch);
}

/* A process and the step that it times. */
typedef struct contender {
    peer *side;
    const char *what;
} contender;

enum { CONTENDERS_MAX = 4 };

/* ns of a step, by contender and round. */
typedef struct contest {
    int rounds;
    double ns[CONTENDERS_MAX][ROUNDS_MAX];
} contest;

/* n contenders take turns. A turn has as many steps as the first one takes in its budget. */
static void hold(contest *c, const contender *all, int n, const char *model, int64_t batch) {
    double once[CONTENDERS_MAX], sum = 0;
    for (int k = 0; k < n; k++) {
        once[k] = ask(all[k].side, model, all[k].what, 1, batch);
        sum += isnan(once[k]) ? once[0] : once[k];
    }
    double fitting = SLOW_BUDGET_NS * n / sum;
    c->rounds = bench_quick() || !(fitting > ROUNDS_MIN) ? ROUNDS_MIN
                : fitting > ROUNDS_MAX                   ? ROUNDS_MAX
                                                         : (int)fitting;
    long steps = isnan(once[0]) || once[0] <= 0 ? 1 : (long)(BUDGET_NS / once[0]) / c->rounds + 1;
    for (int i = 0; i < c->rounds; i++)
        for (int k = 0; k < n; k++)
            c->ns[k][i] = ask(all[k].side, model, all[k].what, steps, batch);
}

/* a's ms beside b's. */
static void emit(const contest *c, int a, int b, const char *model, const char *suffix) {
    double x[ROUNDS_MAX], y[ROUNDS_MAX], ratio[ROUNDS_MAX];
    char metric[96];
    for (int i = 0; i < c->rounds; i++) {
        x[i] = c->ns[a][i], y[i] = c->ns[b][i];
        ratio[i] = x[i] / y[i];
    }
    snprintf(metric, sizeof metric, "%s_%s", model, suffix);
    bench_emit_ratio("models", metric, median(x, c->rounds) * 1e-6, "ms",
                     median(y, c->rounds) * 1e-6, median(ratio, c->rounds));
}

typedef struct sides {
    peer ours, one_thread, torch, best;
} sides;

static void pair(contender a, contender b, const char *model, int64_t batch, const char *suffix) {
    contest c;
    hold(&c, (contender[]){a, b}, 2, model, batch);
    emit(&c, 0, 1, model, suffix);
}

/* Inference as a service would run it. */
static void frozen_run(sides *s, const char *model) {
    static const struct {
        const char *model;
        int64_t batch;
    } wanted[] = {{"resnet50", 32}, {"connect4", 128}};
    static const char *const whats[] = {"infer", "frozen", "bf16"};
    char suffix[32];
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (strcmp(wanted[i].model, model) != 0) continue;
        int64_t batch = wanted[i].batch;
        for (size_t k = 0; k < sizeof whats / sizeof *whats; k++) {
            snprintf(suffix, sizeof suffix, "b%d_%s", (int)batch, whats[k]);
            pair((contender){&s->ours, whats[k]}, (contender){&s->torch, "infer"}, model, batch,
                 suffix);
        }
        snprintf(suffix, sizeof suffix, "b%d_best", (int)batch);
        pair((contender){&s->ours, "frozen"}, (contender){&s->best, "frozen"}, model, batch,
             suffix);
    }
}

static void model_run(sides *s, const kn_model_kind *kind) {
    const char *name = kind->name;
    int64_t batch = kn__bench_batch(kind);
    const contender all[] = {
        {&s->ours, "train"}, {&s->torch, "train"}, {&s->best, "tuned"}, {&s->one_thread, "train"}};
    contest training;
    char metric[96];
    hold(&training, all, 4, name, batch);
    emit(&training, 0, 1, name, "train");
    emit(&training, 0, 2, name, "tuned");
    emit(&training, 3, 0, name, "threads");
    pair((contender){&s->ours, "infer"}, (contender){&s->torch, "infer"}, name, batch, "infer");
    double ours = ask(&s->ours, name, "peak", 1, batch);
    double theirs = ask(&s->torch, name, "peak", 1, batch);
    snprintf(metric, sizeof metric, "%s_peak", name);
    bench_emit("models", metric, ours / (1 << 20), "MiB", theirs / (1 << 20));
    frozen_run(s, name);
}

/* --- on a GPU --- */

/* A median over all steps. */
static void gpu_model_run(peer *ours, peer *theirs, const char *model, int64_t batch,
                          const char *math) {
    static const char *const whats[] = {"train", "infer", "peak", "captured"};
    char metric[96];
    for (size_t k = 0; k < sizeof whats / sizeof *whats; k++) {
        bool is_peak = strcmp(whats[k], "peak") == 0;
        double unit = is_peak ? 1 << 20 : 1e6, once = ask(ours, model, whats[k], 1, batch);
        long steps = is_peak ? 1 : 5 + (long)(0.3e9 / fmax(once, 3e6));
        double a = is_peak ? once : ask(ours, model, whats[k], steps, batch);
        double b = ask(theirs, model, whats[k], steps, batch);
        snprintf(metric, sizeof metric, "%s_%s_%s", model, whats[k], math);
        bench_emit("gpu_models", metric, a / unit, is_peak ? "MiB" : "ms", b / unit);
        if (isnan(a)) peer_stop(ours); /* a failed capture may have left it unusable */
        if (isnan(b)) peer_stop(theirs);
    }
}

static int run_device(char *device, char *math, char *python, char *script, double seconds,
                      char **models) {
    static char self[] = "/proc/self/exe", serving[] = "--serve", two[] = "2";
    peer ours, theirs;
    uint64_t begin = bench_now_ns();
    signal(SIGPIPE, SIG_IGN);
    peer_start(&ours, (char *[]){self, serving, two, device, math, NULL}, NULL);
    peer_start(&theirs, (char *[]){python, script, two, device, math, NULL}, NULL);
    for (int i = 0; kn_model_kind_at(i); i++) {
        const kn_model_kind *kind = kn_model_kind_at(i);
        bool is_named = !models[0];
        for (char **name = models; *name; name++) is_named |= strcmp(*name, kind->name) == 0;
        if (!is_named || (double)(bench_now_ns() - begin) > seconds * 1e9) continue;
        if (!ours.pid) /* it fell over the last model */
            peer_start(&ours, (char *[]){self, serving, two, device, math, NULL}, NULL);
        if (!theirs.pid)
            peer_start(&theirs, (char *[]){python, script, two, device, math, NULL}, NULL);
        gpu_model_run(&ours, &theirs, kind->name, kn__bench_batch(kind), math);
    }
    peer_stop(&ours);
    peer_stop(&theirs);
    return 0;
}

/* Named ones; without names all but the largest, or, quick, a few small ones. */
static bool wanted(const kn_model_kind *kind, int argc, char **argv) {
    static const char *const quick[] = {"softmax", "lenet", "vgg_cifar", "char_lstm", "tagger"};
    bool named = false;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-') continue;
        named = true;
        if (strcmp(argv[i], kind->name) == 0) return true;
    }
    if (named) return false;
    for (size_t i = 0; bench_quick() && i < sizeof quick / sizeof *quick; i++)
        if (strcmp(quick[i], kind->name) == 0) return true;
    return !bench_quick() && kind->facts->n_params < 40000000;
}

static bool names_known(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        int at = 0;
        while (kn_model_kind_at(at) && strcmp(kn_model_kind_at(at)->name, argv[i]) != 0) at++;
        if (kn_model_kind_at(at) || (i == 1 && argv[i][0] == '-')) continue;
        fprintf(stderr, "bench_models: no model is called %s\n", argv[i]);
        return false;
    }
    return true;
}

static void sides_start(sides *s) {
    static char self[] = "/proc/self/exe", serving[] = "--serve", one[] = "1", two[] = "2";
    static char script[] = PEER_SCRIPT;
    static char cpu[] = "cpu", strict[] = "strict";
    peer_start(&s->ours, (char *[]){self, serving, two, cpu, strict, NULL}, NULL);
    peer_start(&s->one_thread, (char *[]){self, serving, one, cpu, strict, NULL}, NULL);
    static char env[] = "/usr/bin/env", decay[] = "MALLOC_CONF=dirty_decay_ms:-1,muzzy_decay_ms:-1";
    static char jemalloc[] = "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
    peer_start(&s->torch, (char *[]){peer_python(), script, two, NULL}, PEER_BLAS);
    peer_start(&s->best, (char *[]){env, jemalloc, decay, peer_python(), script, two, NULL},
               PEER_BLAS);
}

int main(int argc, char **argv) {
    sides s;
    bool is_absent = false;
    if (argc == 5 && strcmp(argv[1], "--serve") == 0) return serve(atoi(argv[2]), argv[3], argv[4]);
    if (argc >= 7 && strcmp(argv[1], "--device") == 0)
        return run_device(argv[2], argv[3], argv[4], argv[5], atof(argv[6]), argv + 7);
    bench_init(argc > 1 && argv[1][0] == '-' ? 2 : 1, argv); /* the rest are names */
    if (!names_known(argc, argv)) return 2;
    signal(SIGPIPE, SIG_IGN); /* an absent peer is noticed by its missing answer */
    setenv("OMP_NUM_THREADS", "2", 1);
    unsetenv("OPENBLAS_CORETYPE");
    unsetenv("OPENBLAS_L2_SIZE");
    sides_start(&s);
    for (int i = 0; kn_model_kind_at(i); i++) {
        const kn_model_kind *kind = kn_model_kind_at(i);
        if (!wanted(kind, argc, argv)) continue;
        model_run(&s, kind);
        is_absent = is_absent || !s.torch.pid;
    }
    peer_stop(&s.ours);
    peer_stop(&s.one_thread);
    peer_stop(&s.torch);
    peer_stop(&s.best);
    if (is_absent) fprintf(stderr, "bench_models: PyTorch is absent, so its figures are missing\n");
    return 0;
}
