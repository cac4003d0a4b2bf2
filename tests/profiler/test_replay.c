/* Raw records of GPU work kept in a file and played again: by our own reading of the buffers and by
 * that of the real libcupti. */
#include <cupti.h>
#include <dlfcn.h>
#include <unistd.h>

#include "cupti_records.h"
#include "outcome.h"
#include "player.h"
#include "recorder.h"
#include "test.h"
#include "timer_fixture.h"

static const char *program, *mock, *fixture, *of_a_card;
static char recording[] = "/tmp/knet-recording-XXXXXX";
typedef struct environment {
    const char *timer, *words;
} environment;

static void prepare(const void *ctx) {
    const environment *e = ctx;
    setenv("KNET_TIMER", e->timer, 1);
    setenv("MOCK_CUPTI", e->words, 1);
    relax_sanitizer();
}

/* The program as it runs on a machine with a GPU, but for the GPU. */
static void record(const char *what, const char *words) {
    static outcome o;
    char timer[1024];
    const char *const argv[] = {program, mock, what, NULL};
    snprintf(timer, sizeof timer, "gpu,out=/dev/null,cupti=%s,record=%s", mock, recording);
    run_child(&o, argv, prepare, &(environment){timer, words});
    assert_int_equal(o.code, 6);
}

static CUptiResult (*next_record)(uint8_t *, size_t, CUpti_Activity **);

static void *walk_by_cupti(void *bytes, size_t used, void *at) {
    CUpti_Activity *record = at;
    return next_record(bytes, used, &record) == CUPTI_SUCCESS ? record : NULL;
}

static bool has_cupti(void) {
    void *library = dlopen("libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
    if (library) *(void **)(void *)&next_record = dlsym(library, "cuptiActivityGetNextRecord");
    return next_record != NULL;
}

/* Under a scope of its own, so that each run starts from nothing. */
static void play(const char *path, walk_fn walk, const char *label) {
    kn_scope scope = kn_scope_begin(label);
    assert_ok(kn__activity_start(player_source(path, walk)));
    while (player_has_more()) kn__activity_drain();
    kn__activity_stop();
    kn_scope_end(&scope);
    take_report(&report);
}

static void assert_same(const kn__row *a, const kn__row *b) {
    assert_int_equal(a->gpu_ns, b->gpu_ns);
    assert_int_equal(a->n_gpu, b->n_gpu);
    assert_int_equal(a->gpu_bytes, b->gpu_bytes);
    const kn__row *x = a->first, *y = b->first;
    for (; x && y; x = x->next, y = y->next) {
        assert_string_equal(x->label, y->label);
        assert_same(x, y);
    }
    assert_true(!x && !y);
}

static void assert_trained(const kn__row *train) {
    assert_non_null(train);
    assert_int_equal(train->gpu_ns, 2000000 + 250000 + 500 + 700);
    assert_int_equal(train->n_gpu, 1252);
    assert_int_equal(train->gpu_bytes, 250 * 4096 + 512);
}

static void a_recording_plays_as_it_was(void **state) {
    (void)state;
    static const char *const ways[] = {"", "driver,late", "wrap,split"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char label[32], path[128];
        record("1", ways[i]);
        snprintf(label, sizeof label, "as it was %zu", i);
        play(recording, NULL, label);
        snprintf(path, sizeof path, "%s/train", label);
        assert_trained(find_row(&report, path));
        snprintf(path, sizeof path, "%s/train/gemm/_ZN7cutlass6KernelI4GemmLi128EEEvT_", label);
        assert_int_equal(find_row(&report, path)->n_gpu, 1000);
        assert_int_equal(report.balance.pending + report.balance.dropped, 0);
        kn__report_release(&report);
    }
}

static void children_that_exit_leave_the_recording_whole(void **state) {
    (void)state;
    record("forks", "");
    play(recording, NULL, "with children");
    const kn__row *train = find_row(&report, "with children/train");
    assert_non_null(train);
    assert_int_equal(train->n_gpu, 60000);
    assert_int_equal(report.balance.n_unattributed, 0);
}

/* The first slot was not completed; what lies in it looks like a record, but leads to none. */
static void bytes_in_an_incomplete_record_are_ignored(void **state) {
    (void)state;
    const kn__record_sizes *sizes = kn__cupti_sizes();
    size_t size = sizes->of[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL];
    static _Alignas(8) unsigned char bytes[4096];
    uint32_t set = CUPTI_ACTIVITY_KIND_MEMSET, unknown = KN__KINDS_MAX - 1;
    uint32_t kernel = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    memcpy(bytes + 8, &set, sizeof set);
    memcpy(bytes + 8 + sizes->of[set], &unknown, sizeof unknown);
    for (size_t i = 1; i < 4; i++) memcpy(bytes + i * size, &kernel, sizeof kernel);
    assert_ptr_equal(kn__cupti_next(bytes, 4 * size, NULL, sizes), bytes + size);
    assert_ptr_equal(kn__cupti_next(bytes, 4 * size, bytes + size, sizes), bytes + 2 * size);
    memset(bytes + 3 * size, 0, size); /* the last one neither */
    assert_null(kn__cupti_next(bytes, 4 * size, bytes + 2 * size, sizes));
}

static void both_readers_agree(void **state) {
    (void)state;
    if (!has_cupti()) skip();
    static const char *const what[] = {"1", "4", "graph", "memory", "calls"};
    for (size_t i = 0; i < sizeof what / sizeof *what; i++) {
        char ours[32], theirs[32];
        record(what[i], "late");
        snprintf(ours, sizeof ours, "ours %zu", i);
        snprintf(theirs, sizeof theirs, "theirs %zu", i);
        play(recording, NULL, ours);
        kn__report_release(&report);
        play(recording, walk_by_cupti, theirs);
        kn__report_sort(&report, KN__SORT_NAME);
        assert_true(find_row(&report, ours)->n_gpu > 0);
        assert_same(find_row(&report, ours), find_row(&report, theirs));
        kn__report_release(&report);
    }
}

/* A recording of a card, given to the program: there is work in it, and it is joined the same. */
static void both_readers_agree_on_the_given_file(void **state) {
    (void)state;
    assert_true(has_cupti());
    play(fixture, NULL, "ours");
    kn__report_release(&report);
    play(fixture, walk_by_cupti, "theirs");
    kn__report_sort(&report, KN__SORT_NAME);
    const kn__row *ours = find_row(&report, "ours"), *theirs = find_row(&report, "theirs");
    assert_true(ours && theirs && ours->n_gpu > 0);
    print_message("%llu records, %llu ns of GPU time\n", (unsigned long long)ours->n_gpu,
                  (unsigned long long)ours->gpu_ns);
    assert_same(ours, theirs);
}

/* A file in the tree: later versions must read it too. */
static void an_old_recording_can_still_be_played(void **state) {
    (void)state;
    play(fixture, NULL, "old");
    const kn__row *kernel = find_row(&report, "old/train/saxpy");
    assert_non_null(kernel);
    assert_int_equal(kernel->n_gpu, 19);
    assert_int_equal(kernel->gpu_ns, 19000);
}

/* Of an H200: a step of an MLP as it is, and two of its captures, each launched three times. */
static void a_recording_of_a_card_is_read_as_cupti_reads_it(void **state) {
    (void)state;
    play(of_a_card, NULL, "ours");
    const kn__row *all = find_row(&report, "ours");
    assert_non_null(all);
    assert_int_equal(all->n_gpu, 47);
    assert_int_equal(all->gpu_ns, 162365);
    kn__report_release(&report);
    if (!has_cupti()) return;
    play(of_a_card, walk_by_cupti, "theirs");
    kn__report_sort(&report, KN__SORT_NAME);
    assert_same(find_row(&report, "ours"), find_row(&report, "theirs"));
}

static void a_truncated_recording_plays_to_its_end(void **state) {
    (void)state;
    record("1", "");
    FILE *file = fopen(recording, "rb");
    static char bytes[1 << 20];
    size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    uint64_t before = 0;
    for (int i = 0; i < 40; i++) {
        size_t cut = 12 + (size_t)test_random_below(n - 12);
        assert_int_equal(truncate(recording, (off_t)cut), 0);
        play(recording, NULL, "cut");
        const kn__row *row = find_row(&report, "cut");
        assert_true(row->n_gpu >= before && row->n_gpu <= before + 1252);
        before = row->n_gpu;
        kn__report_release(&report);
        file = fopen(recording, "wb");
        assert_int_equal(fwrite(bytes, 1, n, file), n);
        fclose(file);
    }
}

/* Lengths and kinds of chunks and records may be anything; names and paths too. */
static void any_bytes_are_played_without_harm(void **state) {
    (void)state;
    record("graph", "");
    FILE *file = fopen(recording, "rb");
    static char bytes[1 << 20], copy[1 << 20];
    size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    for (int i = 0; i < 200; i++) {
        memcpy(copy, bytes, n);
        for (int j = 0; j < 8; j++)
            copy[12 + test_random_below(n - 12)] = (char)test_random_below(256);
        file = fopen(recording, "wb");
        assert_int_equal(fwrite(copy, 1, n, file), n);
        fclose(file);
        play(recording, NULL, "harm");
        kn__report_release(&report);
    }
}

/* Adds to what the recording says of the length of each kind of record. */
static void change_sizes(int by) {
    static char bytes[1 << 20];
    FILE *file = fopen(recording, "rb");
    size_t n = fread(bytes, 1, sizeof bytes, file), n_changed = 0;
    fclose(file);
    uint32_t head[2]; /* kind and bytes of a chunk */
    for (size_t at = 12; at + sizeof head <= n; at += sizeof head + head[1]) {
        memcpy(head, &bytes[at], sizeof head);
        kn__record_sizes sizes;
        if (head[1] != sizeof sizes || at + sizeof head + sizeof sizes > n) continue;
        memcpy(&sizes, &bytes[at + sizeof head], sizeof sizes);
        for (int kind = 0; kind < KN__KINDS_MAX; kind++) {
            if (sizes.of[kind]) sizes.of[kind] = (uint16_t)(sizes.of[kind] + by);
        }
        memcpy(&bytes[at + sizeof head], &sizes, sizeof sizes);
        n_changed++;
    }
    assert_true(n_changed > 0);
    file = fopen(recording, "wb");
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
}

static void records_of_lengths_that_can_not_be_are_not_read(void **state) {
    (void)state;
    const int wrong[] = {1, -3, -64};
    for (int i = 0; i < 3; i++) {
        record("1", "");
        change_sizes(wrong[i]);
        play(recording, NULL, "lengths");
        const kn__row *row = find_row(&report, "lengths");
        assert_true(!row || row->n_gpu == 0);
        kn__report_release(&report);
    }
}

static void other_files_are_refused(void **state) {
    (void)state;
    assert_fails(kn__activity_start(player_source("/nowhere/recording", NULL)), KN_ERR_IO,
                 "/nowhere/recording");
    assert_fails(kn__activity_start(player_source("/dev/null", NULL)), KN_ERR_FORMAT,
                 "not a recording");
    assert_fails(kn__activity_start(player_source(program, NULL)), KN_ERR_FORMAT,
                 "not a recording");
}

static void a_recording_that_cannot_be_written_is_reported(void **state) {
    (void)state;
    kn__record_sizes none = {{0}};
    assert_fails(kn__recorder_start("/nowhere/recording", 1), KN_ERR_IO, "/nowhere/recording");
    assert_ok(kn__recorder_finish());
    if (access("/dev/full", W_OK) != 0) skip();
    assert_ok(kn__recorder_start("/dev/full", 1));
    static char bytes[1 << 16];
    for (int i = 0; i < 4; i++) kn__recorder_buffer(bytes, sizeof bytes, &none);
    assert_fails(kn__recorder_finish(), KN_ERR_IO, "not complete");
}

/* `compare FILE` reads a recording both ways, and runs nothing else. */
int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "compare") == 0) {
        fixture = argv[2];
        return RUN_TESTS(
            TEST_WITH(both_readers_agree_on_the_given_file, timer_setup, timer_teardown));
    }
    if (argc < 5) return 1;
    program = argv[1];
    mock = argv[2];
    fixture = argv[3];
    of_a_card = argv[4];
    int fd = mkstemp(recording);
    if (fd < 0) return 1;
    close(fd);
    const struct CMUnitTest tests[] = {
        TEST_WITH(a_recording_plays_as_it_was, timer_setup, timer_teardown),
        TEST_WITH(children_that_exit_leave_the_recording_whole, timer_setup, timer_teardown),
        TEST_WITH(a_recording_of_a_card_is_read_as_cupti_reads_it, timer_setup, timer_teardown),
        TEST(bytes_in_an_incomplete_record_are_ignored),
        TEST_WITH(both_readers_agree, timer_setup, timer_teardown),
        TEST_WITH(an_old_recording_can_still_be_played, timer_setup, timer_teardown),
        TEST_WITH(a_truncated_recording_plays_to_its_end, timer_setup, timer_teardown),
        TEST_WITH(any_bytes_are_played_without_harm, timer_setup, timer_teardown),
        TEST_WITH(records_of_lengths_that_can_not_be_are_not_read, timer_setup, timer_teardown),
        TEST_WITH(other_files_are_refused, timer_setup, timer_teardown),
        TEST_WITH(a_recording_that_cannot_be_written_is_reported, timer_setup, timer_teardown),
    };
    int failed = cmocka_run_group_tests_name("profiler.replay", tests, NULL, NULL);
    unlink(recording);
    return failed;
}
