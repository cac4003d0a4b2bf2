/* Replays of traces on the simulated device, for each trace:
 *
 *   _ns        time of an operation, beside exact best fit with no lock
 *   _reserved  on a device of eight times the peak, beside the peak of live bytes
 *   _fits      the smallest device on which the trace completes, beside that peak
 *   _plan      bytes reserved in a step that a plan serves (<knet/plan.h>), beside that peak
 *   _plan_ns   time of an operation of that step, beside the pool's; both for traces of one stream
 *   _lab_ms    all policies as `knet replay --policy all` plays them, beside half a second
 *
 * The traces: a transformer's and a convolution net's training steps, made here from a seed, and
 * every file in $KNET_TRACES, or in ../shared/traces. */
#include <dirent.h>
#include <knet/plan.h>
#include <knet/sim.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "mix.h"
#include "replay.h"

static void must(kn_status status) {
    if (status == KN_OK) return;
    fprintf(stderr, "bench_replay: %s\n", kn_last_error()->message);
    exit(1);
}

/* Making traces up. */

typedef struct maker {
    kn__builder b;
    uint64_t next, seed;
} maker;

static uint64_t below(maker *m, uint64_t n) { return kn__splitmix(&m->seed) % n; }

static uint64_t make(maker *m, uint64_t n_floats) {
    must(kn__build_alloc(&m->b, ++m->next, n_floats * 4, 0));
    return m->next;
}

static void drop(maker *m, uint64_t block) { must(kn__build_free(&m->b, block, 0)); }

static void temporary(maker *m, uint64_t n_floats) { drop(m, make(m, n_floats)); }

static void maker_init(maker *m, const char *name) {
    kn__builder_init(&m->b, name);
    m->b.at = m->next = 0;
    m->seed = 1;
}

enum { LAYERS = 24, SAVED = 11, STAGES = 16 };
typedef struct shape {
    uint64_t rows, width, heads, vocabulary, sequence;
} shape;

/* What a layer leaves for its backward pass: norms, projections, scores, the wide middle. */
static void layer_forward(maker *m, const shape *s, uint64_t saved[SAVED]) {
    const uint64_t x = s->rows * s->width, scores = s->rows * s->sequence * s->heads;
    const uint64_t sizes[SAVED] = {
        x,     s->rows * 2,           3 * x, scores, scores, x, x, s->rows * 2, 4 * x,
        4 * x, s->rows * s->width / 4};
    for (int i = 0; i < SAVED; i++) {
        saved[i] = make(m, sizes[i]);
        if (below(m, 3)) temporary(m, sizes[i]);
        if (below(m, 2)) temporary(m, 1 + below(m, 300));
    }
}

static void layer_backward(maker *m, const shape *s, const uint64_t saved[SAVED], uint64_t *dx) {
    const uint64_t x = s->rows * s->width;
    for (int i = SAVED; i-- > 0;) {
        uint64_t d = make(m, i == 8 || i == 9 ? 4 * x : i == 3 || i == 4 ? x * 2 : x);
        if (below(m, 2)) temporary(m, x);
        drop(m, saved[i]);
        drop(m, *dx);
        *dx = d;
    }
}

static uint64_t weight_floats(const shape *s, int i) {
    static const uint64_t of_width2[] = {3, 1, 4, 4};
    return i % 6 < 4 ? of_width2[i % 6] * s->width * s->width : s->width * 2;
}

/* Training steps of a decoder, the sequence's length changing from step to step. */
static void make_transformer(kn__trace *out) {
    static uint64_t saved[LAYERS][SAVED];
    shape s = {.width = 1024, .heads = 16, .vocabulary = 32000};
    maker m;
    maker_init(&m, "transformer");
    for (int i = 0; i < LAYERS * 6; i++) (void)make(&m, weight_floats(&s, i));
    for (int step = 0; step < 4; step++) {
        s.sequence = 256 + 64 * below(&m, 5);
        s.rows = 4 * s.sequence;
        for (int i = 0; i < LAYERS; i++) layer_forward(&m, &s, saved[i]);
        uint64_t logits = make(&m, s.rows * s.vocabulary), dx = make(&m, s.rows * s.vocabulary);
        drop(&m, logits);
        for (int i = LAYERS; i-- > 0;) {
            layer_backward(&m, &s, saved[i], &dx);
            for (int k = 0; k < 6 && step == 0; k++) { /* gradients and both moments stay */
                (void)make(&m, weight_floats(&s, k));
                (void)make(&m, 2 * weight_floats(&s, k));
            }
        }
        drop(&m, dx);
        for (int i = 0; i < LAYERS * 6; i++) temporary(&m, weight_floats(&s, i));
    }
    must(kn__build_finish(out, &m.b));
}

/* Training steps of a net of convolutions: planes shrink as channels grow, and each convolution
 * takes a workspace that depends on the algorithm chosen. */
static void make_convnet(kn__trace *out) {
    uint64_t saved[STAGES][3];
    maker m;
    maker_init(&m, "convnet");
    for (int i = 0; i < STAGES; i++) (void)make(&m, (uint64_t)((64 << i / 4) * (64 << i / 4) * 9));
    for (int step = 0; step < 8; step++) {
        uint64_t batch = 16 + 16 * below(&m, 3), dx = 0;
        for (int i = 0; i < STAGES; i++) {
            uint64_t side = 112 >> i / 4, plane = batch * (uint64_t)(64 << i / 4) * side * side;
            for (int k = 0; k < 3; k++) {
                saved[i][k] = make(&m, k == 2 ? plane / 32 + 1 : plane); /* a mask of bits */
                temporary(&m, plane / (1 + below(&m, 8)) + 1);
            }
            temporary(&m, 128);
        }
        for (int i = STAGES; i-- > 0;) {
            uint64_t side = 112 >> i / 4, plane = batch * (uint64_t)(64 << i / 4) * side * side;
            for (int k = 3; k-- > 0;) {
                uint64_t d = make(&m, plane);
                temporary(&m, plane * 9 / (4 + below(&m, 30)) + 1);
                drop(&m, saved[i][k]);
                if (dx) drop(&m, dx);
                dx = d;
            }
        }
        drop(&m, dx);
    }
    must(kn__build_finish(out, &m.b));
}

/* Figures. */

static void emit(const char *trace, const char *what, double value, const char *unit,
                 double baseline) {
    char metric[192];
    snprintf(metric, sizeof metric, "%s_%s", trace, what);
    bench_emit("replay", metric, value, unit, baseline);
}

/* One step: the whole trace, and the blocks that it leaves. */
static void plan_step(kn_plan *plan, const kn__trace *trace, void **blocks) {
    must(kn_plan_begin(plan));
    for (size_t i = 0; i < trace->n_steps; i++) {
        const kn__step *s = &trace->steps[i];
        if (s->kind == KN__STEP_ALLOC) {
            must(kn_plan_alloc(&blocks[s->block], plan, s->size, NULL));
        } else if (s->kind == KN__STEP_FREE) {
            must(kn_plan_free(plan, blocks[s->block]));
            blocks[s->block] = NULL;
        }
    }
    for (uint32_t i = 0; i < trace->n_blocks; i++) {
        must(kn_plan_free(plan, blocks[i]));
        blocks[i] = NULL;
    }
    must(kn_plan_end(plan));
}

/* A simulated device lives as long as the process, and so does its pool here. */
static kn_pool *plan_pool(uint64_t capacity_bytes) {
    static int n_made;
    char name[24];
    kn_sim *sim = NULL;
    kn_device *device = NULL;
    kn_sim_options options = {.capacity_bytes = capacity_bytes, .instant = true};
    must(kn_sim_create(&sim, &options));
    snprintf(name, sizeof name, "plan:%d", ++n_made);
    must(kn_device_register(&device, name, kn_sim_driver(sim), sim));
    kn_pool *pool = kn_device_pool(device);
    if (!pool) must(kn_check());
    return pool;
}

static void bench_plan(const char *name, const kn__trace *trace, double pool_ns) {
    kn_plan *plan = NULL;
    kn_plan_stats stats;
    kn_pool_stats held;
    uint64_t best = UINT64_MAX;
    kn_pool *pool = plan_pool(8 * trace->peak_live_bytes + ((uint64_t)1 << 30));
    void **blocks = calloc(trace->n_blocks, sizeof *blocks);
    if (!blocks) return;
    must(kn_plan_create(&plan, pool, NULL));
    plan_step(plan, trace, blocks);
    kn_pool_peaks_reset(pool);
    for (int i = 0; i < (bench_quick() ? 7 : 51); i++) {
        uint64_t start = bench_now_ns();
        plan_step(plan, trace, blocks);
        uint64_t ns = bench_now_ns() - start;
        if (ns < best) best = ns;
    }
    kn_plan_stats_read(&stats, sizeof stats, plan);
    kn_pool_stats_read(&held, sizeof held, pool);
    if (stats.n_mismatches) fprintf(stderr, "bench_replay: %s: %s\n", name, stats.mismatch);
    emit(name, "plan", (double)held.reserved_bytes_max, "bytes", (double)trace->peak_live_bytes);
    emit(name, "plan_ns", (double)best / (double)(2 * trace->n_blocks), "ns", pool_ns);
    kn_plan_destroy(plan);
    free(blocks);
}

static void bench_lab(const char *name, const kn__trace *trace) {
    static kn__played played;
    uint64_t start = bench_now_ns();
    for (int i = 0; kn__policy_names[i]; i++) {
        if (strcmp(kn__policy_names[i], "plan") == 0) continue; /* "all" leaves it out */
        must(kn__play(&played, trace, kn__policy_names[i], NULL));
    }
    emit(name, "lab_ms", (double)(bench_now_ns() - start) / 1e6, "ms", 500);
}

static void bench_trace(const char *name, kn__trace *trace) {
    static kn__played arena, bestfit;
    kn__play_options options = {.repeats = bench_quick() ? 7 : 51};
    uint64_t fits = 0;
    must(kn__play(&arena, trace, "arena", &options));
    must(kn__play(&bestfit, trace, "bestfit", &options));
    if (arena.oom) {
        fprintf(stderr, "bench_replay: %s: %s\n", name, arena.oom_text);
    } else {
        double peak = (double)arena.peak_live_bytes;
        must(kn__play_fits(&fits, trace, "arena", &options));
        emit(name, "ns", arena.ns_per_op, "ns", bestfit.ns_per_op);
        emit(name, "reserved", (double)arena.counts.reserved_bytes_max, "bytes", peak);
        emit(name, "fits", fits ? (double)fits : (double)NAN, "bytes", peak);
        bench_lab(name, trace);
        if (trace->n_streams == 1) bench_plan(name, trace, arena.ns_per_op);
    }
    kn__trace_release(trace);
}

/* The file's name up to its first dot, with what JSON would mind taken out. */
static void bench_file(const char *dir, const char *file) {
    char path[4096], name[128];
    kn__trace trace;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(file, "."), file);
    for (char *c = name; *c; c++) {
        if (*c < ' ' || *c == '"' || *c == '\\') *c = '_';
    }
    if (kn__trace_read(&trace, path, false) == KN_OK) {
        bench_trace(name, &trace);
    } else {
        fprintf(stderr, "bench_replay: left out: %s\n", kn_last_error()->message);
    }
}

static int shown(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static void bench_folder(void) {
    const char *named = getenv("KNET_TRACES"), *dir = named ? named : "../shared/traces";
    struct dirent **files = NULL;
    int n = scandir(dir, &files, shown, alphasort);
    if (n < 0 && named) perror(dir);
    for (int i = 0; i < n; i++) {
        bench_file(dir, files[i]->d_name);
        free(files[i]);
    }
    free(files);
}

int main(int argc, char **argv) {
    kn__trace trace;
    bench_init(argc, argv);
    make_transformer(&trace);
    bench_trace("transformer", &trace);
    make_convnet(&trace);
    bench_trace("convnet", &trace);
    bench_folder();
    return 0;
}
