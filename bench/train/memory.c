/* Optimiser, input pipeline and memory of training, on two threads:
 *   optim/adam_bandwidth    Adam over 3.9 M parameters, at 28 bytes an element, beside the copy of
 *                           large blocks by two threads (GB/s)
 *   optim/adam_small_us     Adam over 51 k parameters; the baseline is the goal
 *   optim/lamb_adam         LAMB's step over 3.9 M parameters beside Adam's
 *   data/prefetch           LeNet's step with a loader that prefetches, beside one repeated batch
 *   data/no_prefetch        the same with a loader that doesn't
 *   train/peak_<model>      most live bytes of a step, beside what PyTorch's profiler reports
 *   train/checkpointed_peak the same of a VGG-style net whose blocks recompute, beside PyTorch's
 *                           plain step; checkpointed_plain: beside ours; checkpointed_time
 *   train/lenet_tuned       LeNet's step beside PyTorch's best: channels last, jemalloc
 *
 *     bench_memory [--quick] [adam|prefetch|peak|checkpointed|tuned…] */
#include <knet/models.h>
#include <knet/optim.h>
#include <knet/tape.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "peer.h"
#include "steps.h"

static void must(kn_status status) {
    if (status == KN_OK) return;
    fprintf(stderr, "bench_memory: %s\n", kn_last_error()->message);
    exit(1);
}

/* --- Adam --- */

enum { COPY_BYTES = 128 << 20 };

typedef struct copier {
    char *to, *from;
    long n;
} copier;

static void *copy_half(void *arg) {
    const copier *c = arg;
    for (long i = 0; i < c->n; i++) memcpy(c->to, c->from, COPY_BYTES / 2);
    return NULL;
}

static void copy(void *ctx, long n) {
    char *block = ctx;
    pthread_t other;
    copier half[2] = {{block, block + COPY_BYTES, n},
                      {block + COPY_BYTES / 2, block + COPY_BYTES / 2 * 3, n}};
    if (pthread_create(&other, NULL, copy_half, &half[1]) != 0) exit(1);
    copy_half(&half[0]);
    pthread_join(other, NULL);
}

static void optim_steps(void *ctx, long n) {
    for (long i = 0; i < n; i++) must(kn_optim_step(ctx));
}

/* A set of this many elements in matrices, with gradients. */
typedef kn_status (*adam_like)(kn_optim **, kn_params *, double, const kn_adam_options *);
static kn_optim *adam_open(kn_params **params, adam_like create, int64_t n, int parts) {
    kn_optim *adam = NULL;
    must(kn_params_create(params, NULL));
    for (int i = 0; i < parts; i++)
        (void)kn_param(*params, KN_SHAPE(n / parts), kn_init_normal(0, 1), "w%d", i);
    must(kn_check());
    must(create(&adam, *params, 1e-3, NULL));
    KN_TAPE();
    kn_tensor *loss = NULL;
    for (int i = 0; i < parts; i++) {
        kn_tensor *w = kn_params_at(*params, i, NULL), *sum = kn_sum(kn_mul(w, w), KN_ALL, false);
        loss = loss ? kn_add(loss, sum) : sum;
    }
    must(kn_backward(loss));
    return adam;
}

static void bench_adam(void) {
    enum { LARGE = 3900000, SMALL = 51000 };
    kn_params *large = NULL, *small = NULL, *whole = NULL;
    kn_optim *a = adam_open(&large, kn_adam_create, LARGE, 20);
    kn_optim *b = adam_open(&small, kn_adam_create, SMALL, 4);
    kn_optim *lamb = adam_open(&whole, kn_lamb_create, LARGE, 20);
    char *block = malloc(2 * (size_t)COPY_BYTES);
    if (!block) exit(1);
    memset(block, 1, 2 * (size_t)COPY_BYTES);
    bench_result r = bench_pair(optim_steps, a, copy, block);
    double ours = 28.0 * LARGE / r.a_ns, copied = 2.0 * COPY_BYTES / r.b_ns;
    bench_emit_ratio("optim", "adam_bandwidth", ours, "GB/s", copied, ours / copied);
    bench_emit("optim", "adam_small_us", bench_ns(optim_steps, b) * 1e-3, "us", 10);
    r = bench_pair(optim_steps, lamb, optim_steps, a);
    bench_emit_ratio("optim", "lamb_adam", r.a_ns * 1e-6, "ms", r.b_ns * 1e-6, r.ratio);
    free(block);
    kn_optim_destroy(lamb);
    kn_params_destroy(whole);
    kn_optim_destroy(a);
    kn_optim_destroy(b);
    kn_params_destroy(large);
    kn_params_destroy(small);
}

/* --- a model and its steps --- */

typedef struct net {
    kn_params *params;
    kn_model *model;
    kn_optim *sgd;
    kn_loader *loader;
    kn_batch batch; /* a repeated one */
} net;

static void net_open(net *n, const char *name, const kn_model_kind *kind, kn_loader_options o,
                     kn_shape sample) {
    kn_dataset *data = NULL;
    *n = (net){0};
    must(kn_params_create(&n->params, NULL));
    must(kind ? kn_model_create_kind(&n->model, kind, n->params)
              : kn_model_create(&n->model, name, n->params));
    must(kn_sgd_create(&n->sgd, n->params, 0.01, NULL));
    must(
        kn_dataset_create_synthetic(&data, 64 * o.batch, &(kn_synthetic_options){.shape = sample}));
    must(kn_loader_create_from(&n->loader, data, &o));
    kn_dataset_destroy(data);
    if (!kn_loader_next(n->loader, &n->batch)) must(kn_check());
}

static void net_close(net *n) {
    kn_loader_destroy(n->loader);
    kn_optim_destroy(n->sgd);
    kn_model_destroy(n->model);
    kn_params_destroy(n->params);
}

static void step(net *n, const kn_batch *batch) {
    KN_TAPE();
    must(kn_backward(kn_model_loss(n->model, batch)));
    must(kn_optim_step(n->sgd));
}

static void repeated_steps(void *ctx, long n) {
    net *at = ctx;
    for (long i = 0; i < n; i++) step(at, &at->batch);
}

static void loaded_steps(void *ctx, long n) {
    net *at = ctx;
    for (long i = 0; i < n; i++) {
        kn_batch batch;
        if (!kn_loader_cycle(at->loader, &batch)) must(kn_check());
        step(at, &batch);
    }
}

static void bench_prefetch(void) {
    net loaded, repeated, plain;
    kn_shape image = KN_SHAPE(1, 28, 28);
    net_open(&loaded, "lenet", NULL, (kn_loader_options){.batch = 128, .prefetch = 1}, image);
    net_open(&repeated, "lenet", NULL, (kn_loader_options){.batch = 128}, image);
    bench_result r = bench_pair(loaded_steps, &loaded, repeated_steps, &repeated);
    bench_emit_ratio("data", "prefetch", r.a_ns * 1e-6, "ms", r.b_ns * 1e-6, r.ratio);
    net_open(&plain, "lenet", NULL, (kn_loader_options){.batch = 128}, image);
    r = bench_pair(loaded_steps, &plain, repeated_steps, &repeated);
    bench_emit_ratio("data", "no_prefetch", r.a_ns * 1e-6, "ms", r.b_ns * 1e-6, r.ratio);
    net_close(&plain);
    net_close(&loaded);
    net_close(&repeated);
}

/* --- memory --- */

static uint64_t peak_of(net *n) {
    kn_pool *pool = kn_device_pool(kn_device_host());
    kn_pool_stats stats;
    step(n, &n->batch);
    kn_pool_peaks_reset(pool);
    step(n, &n->batch);
    kn_pool_stats_read(&stats, sizeof stats, pool);
    return stats.live_bytes_max;
}

static void bench_peak(const char *name, int64_t batch, peer *torch) {
    net n;
    char metric[64];
    net_open(&n, name, NULL, (kn_loader_options){.batch = batch}, KN_SHAPE(1, 28, 28));
    double ours = (double)peak_of(&n), theirs = peer_ask(torch, "%s_peak 1", name);
    snprintf(metric, sizeof metric, "peak_%s", name);
    bench_emit("train", metric, ours / (1 << 20), "MiB", theirs / (1 << 20));
    net_close(&n);
}

static void torch_start(peer *torch) {
    static char script[] = PEER_SCRIPT, two[] = "2";
    peer_start(torch, (char *[]){peer_python(), script, two, NULL}, PEER_BLAS);
}

static void bench_peaks(void) {
    peer torch;
    torch_start(&torch);
    bench_peak("lenet", 128, &torch);
    bench_peak("mlp", 100, &torch);
    peer_stop(&torch);
}

/* The VGG-style net of DeepLearningFrameworks: two blocks of two convolutions and a pool. */
static kn_status vgg_init(kn_layer *root, bool recompute) {
    static const int64_t widths[] = {3, 50, 100};
    kn_layer_conv_options same = {.conv = {.padding = {1, 1}}};
    char name[16];
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "block%d", i + 1);
        kn_layer *block = kn_layer_sequential(root, name);
        same.act = kn_relu;
        kn_layer_conv(block, "conv1", widths[i], widths[i + 1], KN_SHAPE(3, 3), &same);
        same.act = NULL;
        kn_layer_conv(block, "conv2", widths[i + 1], widths[i + 1], KN_SHAPE(3, 3), &same);
        kn_layer_maxpool(block, "pool", KN_SHAPE(2, 2), NULL);
        kn_layer_act(block, "relu", kn_relu);
        kn_layer_dropout(block, "drop", 0.25);
        if (block) kn_layer_recompute_set(block, recompute);
    }
    kn_layer_flatten(root, "flatten");
    kn_layer_linear(root, "fc1", 6400, 512, &(kn_layer_linear_options){.act = kn_relu});
    kn_layer_dropout(root, "drop", 0.5);
    kn_layer_linear(root, "fc2", 512, 10, NULL);
    return kn_check();
}
static kn_status plain_init(void *model, kn_layer *root) {
    (void)model;
    return vgg_init(root, false);
}
static kn_status again_init(void *model, kn_layer *root) {
    (void)model;
    return vgg_init(root, true);
}

static void bench_checkpointed(void) {
    static const kn_model_kind plain_kind = {.name = "vgg", .init = plain_init};
    static const kn_model_kind again_kind = {.name = "vgg", .init = again_init};
    const kn_loader_options options = {.batch = 64};
    net plain, again;
    peer torch;
    torch_start(&torch);
    double theirs = peer_ask(&torch, "vgg_peak 1");
    peer_stop(&torch);
    net_open(&again, NULL, &again_kind, options, KN_SHAPE(3, 32, 32));
    double most = (double)peak_of(&again);
    net_close(&again);
    net_open(&plain, NULL, &plain_kind, options, KN_SHAPE(3, 32, 32));
    double base = (double)peak_of(&plain);
    bench_emit("train", "checkpointed_peak", most / (1 << 20), "MiB", theirs / (1 << 20));
    bench_emit("train", "checkpointed_plain", most / (1 << 20), "MiB", base / (1 << 20));
    net_open(&again, NULL, &again_kind, options, KN_SHAPE(3, 32, 32));
    bench_result r = bench_pair(repeated_steps, &again, repeated_steps, &plain);
    bench_emit_ratio("train", "checkpointed_time", r.a_ns * 1e-6, "ms", r.b_ns * 1e-6, r.ratio);
    net_close(&again);
    net_close(&plain);
}

/* --- beside PyTorch's best --- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void tuned_rounds(peer *ours, peer *tuned) {
    enum { ROUNDS = 9, STEPS = 10 };
    double a[ROUNDS], b[ROUNDS], ratio[ROUNDS];
    peer_ask(ours, "lenet %d", STEPS);
    peer_ask(tuned, "lenet_tuned %d", STEPS);
    for (int i = 0; i < ROUNDS; i++) {
        a[i] = peer_ask(ours, "lenet %d", STEPS);
        b[i] = peer_ask(tuned, "lenet_tuned %d", STEPS);
        ratio[i] = a[i] / b[i];
    }
    qsort(a, ROUNDS, sizeof *a, by_value);
    bool known = !isnan(b[0]);
    if (known) qsort(b, ROUNDS, sizeof *b, by_value);
    if (known) qsort(ratio, ROUNDS, sizeof *ratio, by_value);
    bench_emit_ratio("train", "lenet_tuned", a[ROUNDS / 2] * 1e-6, "ms", b[ROUNDS / 2] * 1e-6,
                     known ? ratio[ROUNDS / 2] : (double)NAN);
}

static void bench_tuned(void) {
    char self[] = "/proc/self/exe", serve[] = "--serve", two[] = "2", cpu[] = "cpu", f32[] = "f32";
    char env[] = "/usr/bin/env", script[] = PEER_SCRIPT;
    char blas[] = PEER_BLAS, jemalloc[] = "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
    char keep[] =
        "MALLOC_CONF=oversize_threshold:1,background_thread:true,metadata_thp:auto,"
        "dirty_decay_ms:-1,muzzy_decay_ms:-1";
    peer ours, tuned;
    peer_start(&ours, (char *[]){self, serve, two, cpu, f32, NULL}, NULL);
    peer_start(&tuned, (char *[]){env, blas, jemalloc, keep, peer_python(), script, two, NULL},
               NULL);
    tuned_rounds(&ours, &tuned);
    peer_stop(&ours);
    peer_stop(&tuned);
}

/* Is this part named on the command line, or none? */
static bool wanted(int argc, char **argv, const char *part) {
    bool named = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], part) == 0) return true;
        named = named || argv[i][0] != '-';
    }
    return !named;
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "--serve") == 0)
        return steps_serve(atoi(argv[2]), argv[3], false);
    bench_init(argc > 1 && argv[1][0] == '-' ? 2 : 1, argv); /* the rest are parts */
    signal(SIGPIPE, SIG_IGN);
    setenv("OMP_NUM_THREADS", "2", 1);
    unsetenv("OPENBLAS_CORETYPE");
    unsetenv("OPENBLAS_L2_SIZE");
    KN_FRAME(.threads = 2);
    if (wanted(argc, argv, "adam")) bench_adam();
    if (wanted(argc, argv, "prefetch")) bench_prefetch();
    if (wanted(argc, argv, "checkpointed")) bench_checkpointed();
    if (wanted(argc, argv, "peak")) bench_peaks();
    if (wanted(argc, argv, "tuned")) bench_tuned();
    return 0;
}
