/* Does `knet diff` find a slower op, and only that? Profiles of an MLP's training on one thread,
 * while two other processes keep a processor busy each. A side of a pair has 300 steps, in five
 * runs; the runs of all sides take turns, as the speed of a shared machine changes from minute to
 * minute. In one side of a pair the gradient of a weight, a quarter of the step, takes a fifth
 * longer; the two sides of other pairs are alike. Most sides belong to three pairs: one with the
 * like side before, one with the next, one with a slower side.
 *
 *     bench_diff [--quick]
 *
 * diff_found: slower sides for which the row is listed as worse, of 100 pairs; the baseline is the
 * least that we allow. diff_false: pairs of like sides with any row listed as worse, in 200 pairs,
 * beside the most that we allow. --quick: 20 pairs each. Pairs that go wrong are printed on stderr.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "diff.h"
#include "merge.h"
#include "neighbours.h"
#include "peer.h"
#include "read.h"
#include "slow_op.h"
#include "steps.h"

enum {
    RUNS = 5,
    STEPS = 300 / RUNS,
    FOUND_PAIRS = 100,
    FALSE_PAIRS = 200,
    QUICK_PAIRS = 20,
    PATH_BYTES = 1024
};

static const char SLOWER_BY[] = "0.2"; /* of its time */

static bool read_run(kn__report *out, const char *path) {
    static char bytes[1 << 22];
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(bytes, 1, sizeof bytes, file) : 0;
    if (file) fclose(file);
    unlink(path);
    return kn__report_parse(out, path, bytes, n) >= 0;
}

/* Adds a run, in a process of its own; false: it left no profile. */
static bool run(kn__report *side, const char *part) {
    char self[] = "/proc/self/exe", serve[] = "--serve", path[64], variable[128], slow[16];
    snprintf(path, sizeof path, "/tmp/knet_bench_diff.%d.json", (int)getpid());
    snprintf(variable, sizeof variable, "KNET_TIMER=out=/dev/null,json=%s", path);
    snprintf(slow, sizeof slow, "%s", part);
    peer p;
    kn__report report;
    peer_start(&p, (char *[]){self, serve, slow, NULL}, variable);
    double ns = peer_ask(&p, "mlp %d", STEPS);
    peer_stop(&p);
    kn__report_init(&report);
    bool is_read = !isnan(ns) && read_run(&report, path);
    bool ok = is_read && kn__report_merge(side, &report) >= 0;
    kn__report_release(&report);
    return ok;
}

typedef struct pair {
    bool is_slower; /* the second side */
    const kn__report *sides[2];
} pair;

static bool is_slow_row(const kn__change *change) {
    char path[PATH_BYTES];
    kn__report_path(path, sizeof path, change->row);
    return strncmp(path, SLOW_ROW, strlen(path)) == 0 || strstr(path, SLOW_ROW);
}

typedef struct outcome {
    bool found;   /* the slow row, or one that contains it */
    int n_others; /* worse rows besides */
} outcome;

static outcome outcome_of(const pair *p, const kn__diff *diff) {
    outcome result = {0};
    for (int i = 0; i < diff->n; i++) {
        const kn__change *change = &diff->changes[i];
        if (change->weight <= 0 || change->neutral) continue;
        bool is_it = p->is_slower && is_slow_row(change);
        result.found |= is_it;
        result.n_others += !is_it;
    }
    return result;
}

static outcome judge(const pair *p) {
    const kn__diff_options options = {.threshold = 0.05, .share = 0.005};
    const kn__report *a = p->sides[0], *b = p->sides[1];
    kn__diff diff;
    if (kn__diff_make(&diff, a, b, &options) < 0) return (outcome){0};
    outcome result = outcome_of(p, &diff);
    if (result.n_others || result.found != p->is_slower) {
        kn__text text = {0};
        kn__diff_add_table(&text, &diff, a, b, &options);
        fprintf(stderr, "bench_diff: slower by %s:\n%s", p->is_slower ? SLOWER_BY : "0",
                text.data ? text.data : "");
        kn__text_release(&text);
    }
    kn__diff_release(&diff);
    return result;
}

typedef struct sides {
    int n_alike, n_slower;      /* pairs */
    kn__report *alike, *slower; /* n_alike + 1, n_slower */
} sides;

/* false: a run left no profile. */
static bool run_all(const sides *s) {
    for (int round = 0; round < RUNS; round++) {
        for (int i = 0; i <= s->n_alike; i++) {
            if (!run(&s->alike[i], "0")) return false;
            if (i < s->n_slower && !run(&s->slower[i], SLOWER_BY)) return false;
        }
    }
    return true;
}

static void emit(const sides *s) {
    int n_found = 0, n_false = 0, n_others = 0;
    for (int i = 0; i < s->n_slower; i++) {
        outcome result = judge(&(pair){true, {&s->alike[i], &s->slower[i]}});
        n_found += result.found;
        n_others += result.n_others > 0;
    }
    for (int i = 0; i < s->n_alike; i++)
        n_false += judge(&(pair){false, {&s->alike[i], &s->alike[i + 1]}}).n_others > 0;
    fprintf(stderr, "bench_diff: %d of the slower runs list other rows too\n", n_others);
    bench_emit("prof", "diff_found", n_found, "pairs", 0.95 * s->n_slower);
    bench_emit("prof", "diff_false", n_false, "pairs", fmax(1, s->n_alike / 200.0));
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--serve") == 0) {
        slow_op_by(atof(argv[2]));
        return steps_serve(1, "cpu", false);
    }
    bench_init(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    sides s = {.n_alike = bench_quick() ? QUICK_PAIRS : FALSE_PAIRS,
               .n_slower = bench_quick() ? QUICK_PAIRS : FOUND_PAIRS};
    int n = s.n_alike + 1 + s.n_slower;
    s.alike = calloc((size_t)n, sizeof *s.alike);
    if (!s.alike) return 1;
    s.slower = s.alike + s.n_alike + 1;
    for (int i = 0; i < n; i++) kn__report_init(&s.alike[i]);
    pid_t neighbours[NEIGHBOURS];
    neighbours_start(neighbours);
    bool ok = run_all(&s);
    neighbours_stop(neighbours);
    if (ok) emit(&s);
    if (!ok) fprintf(stderr, "bench_diff: a run left no profile\n");
    for (int i = 0; i < n; i++) kn__report_release(&s.alike[i]);
    free(s.alike);
    return !ok;
}
