/* libknet_torch.so on a large device: whole traces, and failures of the driver's calls. */
#include "mix.h"
#include "replay.h"
#include "torch_fixture.h"

/* --- traces --- */

/* A training step: activations live until the backward pass, in sizes that repeat by layer. */
static void make_step(kn__trace *out) {
    enum { LAYERS = 24, SAVED = 8 };
    uint64_t saved[LAYERS * SAVED], next = 0, seed = 7;
    kn__builder b;
    kn__builder_init(&b, "step");
    for (int i = 0; i < LAYERS; i++) assert_ok(kn__build_alloc(&b, ++next, 12 * MiB, 0));
    for (int i = 0; i < LAYERS * SAVED; i++) {
        uint64_t size = (1 + (uint64_t)i % SAVED) * 700 * 1024 + 512 * (kn__splitmix(&seed) % 4);
        assert_ok(kn__build_alloc(&b, saved[i] = ++next, size, 0));
        assert_ok(kn__build_alloc(&b, ++next, size / 2, 0));
        assert_ok(kn__build_alloc(&b, ++next, 4 * (1 + kn__splitmix(&seed) % 900), 0));
        assert_ok(kn__build_free(&b, next, 0));
        assert_ok(kn__build_free(&b, next - 1, 0));
    }
    for (int i = LAYERS * SAVED; i-- > 0;) {
        uint64_t size = (1 + (uint64_t)i % SAVED) * 700 * 1024;
        assert_ok(kn__build_alloc(&b, ++next, size, 0));
        assert_ok(kn__build_free(&b, saved[i], 0));
        assert_ok(kn__build_free(&b, next, 0));
    }
    assert_ok(kn__build_finish(out, &b));
}

/* Plays the steps, then frees the live blocks. */
static void play(const kn__trace *trace, void **blocks) {
    for (size_t i = 0; i < trace->n_steps; i++) {
        const kn__step *s = &trace->steps[i];
        if (s->kind == KN__STEP_ALLOC) {
            blocks[s->block] = must(s->size, NULL);
        } else if (s->kind == KN__STEP_FREE) {
            assert_int_equal(torch_free(blocks[s->block]), blocks[s->block] != NULL);
            blocks[s->block] = NULL;
        }
    }
}

static void drop_all(const kn__trace *trace, void **blocks) {
    for (uint32_t i = 0; i < trace->n_blocks; i++) {
        if (blocks[i]) assert_true(torch_free(blocks[i]));
        blocks[i] = NULL;
    }
}

/* Once the pool has seen the step twice, no call reaches the driver; the host never waits. */
static void check_trace(const kn__trace *trace, double most) {
    void **blocks = calloc(trace->n_blocks, sizeof *blocks);
    assert_non_null(blocks);
    kn_pool_peaks_reset(torch_pool(0));
    uint64_t n_syncs = stats_now().n_syncs, n_calls = 0;
    for (int step = 0; step < 5; step++) {
        if (step == 3) n_calls = fake_cuda_count().n_calls;
        play(trace, blocks);
        drop_all(trace, blocks);
    }
    double ratio = (double)stats_now().reserved_bytes_max / (double)stats_now().live_bytes_max;
    if (ratio > most) fail_msg("reserved is %.4f of live; the goal is %.2f", ratio, most);
    assert_int_equal(fake_cuda_count().n_calls - n_calls, 0);
    assert_int_equal(stats_now().n_syncs, n_syncs);
    free(blocks);
}

static void steady_step_never_reaches_the_driver(void **state) {
    (void)state;
    kn__trace trace;
    make_step(&trace);
    check_trace(&trace, 1.03);
    kn__trace_release(&trace);
}

/* $KNET_TRACES/NAME, where the recorded traces are. */
static void play_recorded(const char *name, double most) {
    char path[4096];
    kn__trace trace;
    const char *folder = getenv("KNET_TRACES");
    if (!folder) skip();
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (kn__trace_read(&trace, path, false) < 0) skip();
    check_trace(&trace, most);
    kn__trace_release(&trace);
}

static void recorded_gpt_step_stays_compact(void **state) {
    (void)state;
    play_recorded("gpt-ctx256-step.csv.gz", 1.03);
}

static void recorded_resnet_step_stays_compact(void **state) {
    (void)state;
    play_recorded("resnet50.csv.gz", 1.03);
}

/* --- failures of the driver --- */

static bool step_succeeds(kn_stream s, kn_stream other) {
    void *ptrs[6] = {NULL};
    static const size_t sizes[6] = {300, 3 * MiB, 8 * MiB, 70000, 5000, 20 * MiB};
    bool all = true;
    for (int i = 0; i < 6; i++) {
        torch_outcome outcome = torch_alloc(&ptrs[i], sizes[i], 0, i % 2 ? s : other);
        assert_int_not_equal(outcome, TORCH_NULL);
        all &= outcome == TORCH_OK;
        if (ptrs[i]) all &= torch_record_stream(ptrs[i], i % 2 ? other : s) == TORCH_OK;
    }
    for (int i = 0; i < 6; i++) assert_int_equal(torch_free(ptrs[i]), ptrs[i] != NULL);
    assert_ok(kn_pool_check(torch_pool(0)));
    return all & (torch_reset() == TORCH_OK);
}

/* By OUT_OF_MEMORY, and by an error of another kind. */
static void any_call_of_the_driver_may_fail(void **state) {
    (void)state;
    static const cu_result results[] = {2, 700};
    kn_stream s = new_stream(), other = new_stream();
    for (int r = 0; r < 2; r++) {
        int n_failed = 0, n = 1;
        for (bool reached = true; reached; n++) {
            fake_cuda_fail(NULL, n, 1, results[r]);
            (void)step_succeeds(s, other);
            reached = fake_cuda_has_failed();
            n_failed += reached;
            fake_cuda_fail(NULL, 1, 0, 0);
            if (!step_succeeds(s, other)) fail_msg("after call %d: %s", n, torch_what());
        }
        assert_true(n_failed > 20);
    }
    drop_stream(s);
    drop_stream(other);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    fake_cuda_machine_get()->capacity_bytes = (uint64_t)80 << 30;
    torch_load(argv[1]);
    return RUN_TESTS(TORCH_TEST(steady_step_never_reaches_the_driver),
                     TORCH_TEST(recorded_gpt_step_stays_compact),
                     TORCH_TEST(recorded_resnet_step_stays_compact),
                     TORCH_TEST(any_call_of_the_driver_may_fail));
}
