/* Launches of a training step on a GPU, counted on a fake one; the baseline is the most that we
 * allow. */
#include <stdio.h>

#include "bench.h"
#include "launches.h"

static int emit(const char *model, const char *metric, double most) {
    int n = 0;
    if (launches_count(&n, model, KN_MATH_STRICT) < 0) {
        fprintf(stderr, "bench_launches: %s: %s\n", model, kn_last_error()->message);
        return 1;
    }
    bench_emit("gpu", metric, n, "launches", most);
    return 0;
}

int main(int argc, char **argv) {
    bench_init(argc, argv);
    int failed = emit("mlp", "launches_mlp", 9);
    return emit("lenet", "launches_lenet", 24) || failed;
}
