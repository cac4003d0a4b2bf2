/* Whole programs under KNET_ALLOC: test_report PROGRAM. And some of its own, which it runs in the
 * same way: test_report PROGRAM NAME. */
#include <cjson/cJSON.h>
#include <fcntl.h>
#include <grp.h>
#include <knet/observer.h>
#include <knet/pool.h>
#include <knet/trace.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

static const char *program;
static char dir[] = "/tmp/knet_report_XXXXXX";

typedef struct ran {
    char out[4096], err[16384];
} ran;

static size_t slurp(char *text, size_t bytes, const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    memset(text, 0, bytes);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t n = fread(text, 1, bytes - 1, file);
    text[n] = '\0';
    fclose(file);
    return n;
}

/* In the test's folder. */
static ran run_program(const char *path, const char *words, const char *arguments) {
    ran r;
    char command[4096];
    snprintf(command, sizeof command, "cd %s && KNET_ALLOC='%s' '%s' %s >out 2>err", dir, words,
             path, arguments);
    int code = system(command);
    slurp(r.out, sizeof r.out, "out");
    slurp(r.err, sizeof r.err, "err");
    if (!WIFEXITED(code) || WEXITSTATUS(code) != 0) fail_msg("%s: %d: %s", command, code, r.err);
    return r;
}

static ran run(const char *words, const char *arguments) {
    return run_program(program, words, arguments);
}

static void run_own(const char *words, const char *name) {
    char self[1024] = "", arguments[64];
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(arguments, sizeof arguments, "- %s", name);
    (void)run_program(self, words, arguments);
}

static int occurrences(const char *text, const char *piece) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, piece)); at++) n++;
    return n;
}

static double number(const cJSON *object, const char *name) {
    const cJSON *item = cJSON_GetObjectItem(object, name);
    if (!cJSON_IsNumber(item)) fail_msg("no number %s", name);
    return item->valuedouble;
}

static void without_words_nothing_is_printed(void **state) {
    (void)state;
    assert_string_equal(run("", "").err, "");
    assert_string_equal(run("limit=1GiB,decay=1h", "named").err, "");
}

static void wrong_words_are_reported_and_ignored(void **state) {
    (void)state;
    ran r = run("stast,limit=lots", "");
    assert_int_equal(occurrences(r.err, "\n"), 2);
    assert_non_null(strstr(r.err, "KNET_ALLOC: \"stast\" is ignored: there is no such word"));
    assert_non_null(strstr(r.err, "KNET_ALLOC: \"limit=lots\" is ignored: limit=SIZE takes"));
}

static void help_is_printed_and_the_program_runs(void **state) {
    (void)state;
    ran r = run("help,stats", "");
    assert_non_null(strstr(r.err, "KNET_ALLOC is a list of words"));
    assert_non_null(strstr(r.err, "pool sim on sim"));
}

static void limits_hold_for_default_pools(void **state) {
    (void)state;
    ran r = run("limit=32MiB", "oom named"); /* not for the one of its own */
    assert_non_null(strstr(r.out, "of a limit of 32.0 MiB"));
    r = run("fraction=0.25", "oom");
    assert_non_null(strstr(r.out, "of a limit of 16.0 GiB"));
}

static void options_that_do_not_fit_the_device_are_reported_and_ignored(void **state) {
    (void)state;
    ran r = run("limit=65GiB", "oom");
    assert_int_equal(occurrences(r.err, "\n"), 1);
    assert_non_null(strstr(r.err,
                           "KNET_ALLOC: kn_pool_create: limit_bytes is 69793218560, but sim "
                           "has 68719476736 bytes; the pool of sim has no limit"));
    assert_non_null(strstr(r.out, "no limit"));
    r = run("limit=65GiB,fraction=0.25", "oom"); /* the other words hold */
    assert_int_equal(occurrences(r.err, "\n"), 1);
    assert_non_null(strstr(r.out, "of a limit of 16.0 GiB"));
    r = run("fraction=0.25,soft_limit=20GiB", "oom");
    assert_int_equal(occurrences(r.err, "\n"), 1);
    assert_non_null(strstr(r.err, "the pool of sim has no soft_limit\n"));
    assert_non_null(strstr(r.out, "of a limit of 16.0 GiB"));
    r = run("limit=65GiB,fraction=0.25,soft_limit=20GiB", /* a reason for each, on small stacks */
            TEST_SANITIZED ? "oom" : "small oom");
    assert_int_equal(occurrences(r.err, "\n"), 2);
    assert_non_null(strstr(r.err,
                           "limit_bytes is 69793218560, but sim has 68719476736 bytes; the "
                           "pool of sim has no limit\n"));
    assert_non_null(strstr(r.err,
                           "soft_limit_bytes is 21474836480, above device_fraction 0.25 of "
                           "sim, which is 17179869184; the pool of sim has no soft_limit\n"));
    assert_non_null(strstr(r.out, "of a limit of 16.0 GiB"));
}

static void stats_are_a_table_for_each_pool(void **state) {
    (void)state;
    ran r = run("stats", "named oom exit");
    const char *own = strstr(r.err, "pool own on sim\n");
    const char *other = strstr(r.err, "pool sim on sim\n");
    assert_true(own && other && own < other); /* it went first */
    assert_int_equal(occurrences(r.err, "pool "), 2);
    const char *limit = strstr(r.err, "\n  limit                  1.00 GiB");
    assert_true(limit && limit < other); /* the other has none */
    assert_int_equal(occurrences(r.err, "\n  limit "), 1);
    for (const char *const *row =
             (const char *const[]){"now         peak", "live", "3.00 MiB",
                                   "allocations               ", "slots of", "512", "stream",
                                   "ladder", "grow", "wait", "larger", NULL};
         *row; row++) {
        if (!strstr(other, *row)) fail_msg("no \"%s\" in %s", *row, other);
    }
    r = run("stats=stats.txt", "fork");
    assert_string_equal(r.err, "");
    slurp(r.err, sizeof r.err, "stats.txt");
    assert_int_equal(occurrences(r.err, "pool sim"), 1);
    r = run("stats", "fork");
    assert_int_equal(occurrences(r.err, "pool sim"), 1); /* the child writes none */
}

static void stats_are_a_line_of_json_for_each_pool(void **state) {
    (void)state;
    char text[16384];
    (void)run("stats=stats.json", "named exit");
    slurp(text, sizeof text, "stats.json");
    char *second = strchr(text, '\n');
    assert_non_null(second);
    *second++ = '\0';
    cJSON *own = cJSON_Parse(text), *other = cJSON_Parse(second);
    assert_true(own && other);
    assert_string_equal(cJSON_GetObjectItem(own, "pool")->valuestring, "own");
    assert_true(number(own, "live_bytes") == 0 && number(own, "n_allocs") == 1);
    assert_true(number(other, "live_bytes") == 512 + 3 * 1048576.0);
    assert_true(number(other, "live_bytes_max") == 512 + 3 * 1048576.0);
    assert_true(number(other, "requested_bytes") == 300 + 3 * 1048576.0);
    assert_true(number(other, "live_blocks") == 2);
    const cJSON *class = cJSON_GetArrayItem(cJSON_GetObjectItem(other, "classes"), 0);
    assert_true(number(class, "bytes") == 512 && number(class, "live") == 1);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(other, "streams")), 1);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(other, "ladder")), 11);
    cJSON_Delete(own);
    cJSON_Delete(other);
}

static void snapshot_has_every_live_block_at_exit(void **state) {
    (void)state;
    char text[16384];
    (void)run("snapshot=snapshot.json", "exit oom");
    slurp(text, sizeof text, "snapshot.json");
    cJSON *root = cJSON_Parse(text);
    assert_non_null(root);
    assert_int_equal(occurrences(text, "\"state\":\"live\""), 1);
    assert_int_equal(occurrences(text, "\"requested\":300"), 1);
    const cJSON *oom = cJSON_GetObjectItem(root, "last_oom");
    assert_true(number(oom, "requested_bytes") == 137438953472.0);
    cJSON_Delete(root);
}

static void stacks_are_in_the_snapshot_at_exit(void **state) {
    (void)state;
    char text[32768];
    (void)run("stacks,snapshot=snapshot.json", "exit oom");
    slurp(text, sizeof text, "snapshot.json");
    cJSON *root = cJSON_Parse(text);
    assert_non_null(root);
    const cJSON *stacks = cJSON_GetObjectItem(root, "stacks");
    assert_true(cJSON_GetArraySize(stacks) > 0);
    assert_true(cJSON_GetArraySize(cJSON_GetObjectItem(stacks->child, "frames")) > 0);
    cJSON_Delete(root);
}

static void every_failed_allocation_is_a_line_of_json(void **state) {
    (void)state;
    char text[16384];
    (void)run("oom=oom.json,limit=64MiB", "oom");
    slurp(text, sizeof text, "oom.json");
    assert_int_equal(occurrences(text, "\n"), 2);
    *strchr(text, '\n') = '\0';
    cJSON *root = cJSON_Parse(text);
    assert_non_null(root);
    assert_string_equal(cJSON_GetObjectItem(root, "pool")->valuestring, "sim");
    assert_true(number(root, "requested_bytes") == 137438953472.0);
    assert_true(number(root, "limit_bytes") == 64 * 1048576.0);
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(root, "soft_limit_bytes")));
    assert_true(number(cJSON_GetObjectItem(root, "stats"), "n_allocs") == 2);
    cJSON_Delete(root);
}

static void trace_has_the_whole_run(void **state) {
    (void)state;
    char command[256];
    (void)run("trace=run.%p.kntrace", "");
    snprintf(command, sizeof command, "cd %s && mv run.[0-9]*.kntrace whole", dir);
    assert_int_equal(system(command), 0);
    kn_trace_header header;
    char text[4096];
    size_t bytes = slurp(text, sizeof text, "whole");
    assert_true(bytes >= sizeof header + 8 * sizeof(kn_trace_record));
    assert_int_equal((bytes - sizeof header) % sizeof(kn_trace_record), 0);
    memcpy(&header, text, sizeof header);
    assert_string_equal(header.magic, KN_TRACE_MAGIC);
}

static void files_that_cannot_be_written_are_reported(void **state) {
    (void)state;
    ran r = run("stats=none/a,snapshot=none/b,oom=none/c,trace=none/d", "oom");
    assert_non_null(strstr(r.err, "KNET_ALLOC: stats: "));
    assert_int_equal(occurrences(r.out, "pool sim: out of memory: "), 2); /* the error stays */
    assert_non_null(strstr(r.err, "/none/b: No such file"));
    assert_int_equal(occurrences(r.err, "/none/c: No such file"), 2); /* once for each */
    assert_int_equal(occurrences(r.err, "cannot write none/d"), 1);
}

static void trace_that_lost_events_says_so_at_exit(void **state) {
    (void)state;
    ran r = run("trace=t", "full");
    assert_int_equal(occurrences(r.err, "KNET_ALLOC: trace "), 1);
    assert_non_null(strstr(r.err, " events were lost, "));
    assert_non_null(strstr(r.err, "File too large"));
}

/* --- programs of our own --- */

static const size_t TOO_MUCH = (size_t)1 << 37;

static kn_pool *sim_pool(void) {
    kn_device *device = NULL;
    assert_ok(kn_device_find(&device, "sim"));
    kn_pool *pool = kn_device_pool(device);
    assert_non_null(pool);
    return pool;
}

static bool said(const char *text) { return strstr(kn_last_error()->message, text) != NULL; }

static bool fails(kn_pool *pool) {
    void *none = NULL;
    return kn_alloc(&none, pool, TOO_MUCH, NULL) == KN_ERR_OOM && said("128 GiB asked for");
}

static bool allocates(kn_pool *pool) {
    void *ptr = NULL;
    return kn_alloc(&ptr, pool, 1 << 20, NULL) == KN_OK && kn_free(pool, ptr) == KN_OK;
}

enum { THREADS = 6, FAILURES = 10 };

static pthread_barrier_t start;

static void *fail_often(void *pool) {
    pthread_barrier_wait(&start); /* the first reports are all due at once */
    for (int i = 0; i < FAILURES; i++) {
        if (!fails(pool)) return pool;
    }
    return NULL;
}

static void threads_fail_at_once(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    kn_pool *pool = sim_pool();
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, fail_often, pool), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
}

/* Before the folder exists, and then with the report of another run in it. */
static void an_allocation_fails_twice(void **state) {
    (void)state;
    kn_pool *pool = sim_pool();
    assert_true(fails(pool));
    assert_int_equal(mkdir("late", 0700), 0);
    FILE *file = fopen("late/oom.json", "w");
    assert_non_null(file);
    fputs("older\n", file);
    fclose(file);
    assert_true(fails(pool));
}

/* The pool is not asked for these: there is no report of it. */
static void sizes_beyond_all_devices_fail(void **state) {
    (void)state;
    void *none = NULL;
    kn_pool *pool = sim_pool();
    assert_int_equal(kn_alloc(&none, pool, (size_t)1 << 44, NULL), KN_ERR_OOM);
    assert_true(fails(pool));
    assert_int_equal(kn_alloc(&none, pool, (size_t)1 << 44, NULL), KN_ERR_OOM);
}

/* Each character takes six in JSON. */
static bool name_of(uint32_t owner, char *out, size_t out_bytes) {
    memset(out, 1, out_bytes - 1);
    out[0] = (char)('a' + owner);
    out[out_bytes - 1] = '\0';
    return true;
}

static uint32_t owner_of(kn_pool *pool, void *ptr, size_t size, kn_stream stream) {
    (void)pool, (void)ptr, (void)stream;
    return (uint32_t)(size >> 21);
}

static const kn_observer OBSERVER = {.on_alloc = owner_of, .owner_name = name_of};

static kn_pool *pool_of_long_names(void) {
    char name[64];
    kn_pool *pool = sim_pool();
    assert_ok(kn_observer_attach(&OBSERVER));
    for (uint32_t i = 1; i < 20; i++) {
        void *ptr = NULL;
        (void)name_of(i, name, sizeof name);
        KN_TAG(name);
        assert_ok(kn_alloc(&ptr, pool, (size_t)i << 21, NULL));
    }
    for (size_t size = 1; size < 80; size++) { /* of all classes */
        void *ptr = NULL;
        assert_ok(kn_alloc(&ptr, pool, size * 800, NULL));
    }
    return pool;
}

static void the_longest_names_fail(void **state) {
    (void)state;
    assert_true(fails(pool_of_long_names()));
    assert_true(said("; held by ") && said("; tagged "));
}

typedef struct slow {
    kn_pool *pool;
    bool (*fn)(kn_pool *pool);
    bool ok;
    atomic_bool returned;
} slow;

static void *run_slow(void *ctx) {
    slow *s = ctx;
    s->ok = s->fn(s->pool);
    atomic_store(&s->returned, true);
    return NULL;
}

/* Starts it, and returns when its report has filled a pipe of one page. */
static pthread_t begin_slow(slow *s, int *full) {
    pthread_t thread;
    char first;
    *full = open("fifo", O_RDWR);
    assert_true(*full >= 0 && fcntl(*full, F_SETPIPE_SZ, 4096) == 4096);
    assert_int_equal(pthread_create(&thread, NULL, run_slow, s), 0);
    assert_int_equal(read(*full, &first, 1), 1);
    return thread;
}

static void end_slow(slow *s, pthread_t thread, int full) {
    char text[4096];
    assert_false(atomic_load(&s->returned));
    int fd = open("fifo", O_RDONLY);
    close(full);
    while (read(fd, text, sizeof text) > 0) {
    }
    close(fd);
    pthread_join(thread, NULL);
    assert_true(s->ok);
}

static void an_allocation_returns_while_another_one_reports(void **state) {
    (void)state;
    int full;
    slow s = {.pool = pool_of_long_names(), .fn = fails}; /* whose report is longer than a page */
    pthread_t thread = begin_slow(&s, &full);
    pthread_cancel(thread); /* it writes all of its report first */
    assert_true(allocates(s.pool));
    end_slow(&s, thread, full);
}

static bool destroys(kn_pool *pool) {
    kn_pool_destroy(pool);
    return true;
}

/* The child has no copy of the thread that is writing. */
static void a_child_reports_while_its_parent_does(void **state) {
    (void)state;
    int full, status = -1;
    slow s = {.fn = destroys};
    assert_ok(kn_pool_create(&s.pool, kn_device_host(), NULL));
    for (size_t size = 1; size < 160; size++) {
        void *ptr = NULL;
        assert_ok(kn_alloc(&ptr, s.pool, size * 400, NULL));
    }
    pthread_t thread = begin_slow(&s, &full);
    pid_t pid = fork();
    if (pid == 0) {
        void *none = NULL;
        kn_pool *pool = NULL;
        kn_pool_options options = {.limit_bytes = 1 << 20};
        if (kn_pool_create(&pool, kn_device_host(), &options) < 0) _exit(1);
        _exit(kn_alloc(&none, pool, 1 << 21, NULL) == KN_ERR_OOM ? 0 : 1);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    end_slow(&s, thread, full);
}

static const struct CMUnitTest OWN[] = {TEST(threads_fail_at_once),
                                        TEST(an_allocation_fails_twice),
                                        TEST(sizes_beyond_all_devices_fail),
                                        TEST(the_longest_names_fail),
                                        TEST(an_allocation_returns_while_another_one_reports),
                                        TEST(a_child_reports_while_its_parent_does)};

static int run_one(const char *name) {
    alarm(300); /* not for ever, should one thread wait for another */
    for (size_t i = 0; i < sizeof OWN / sizeof *OWN; i++) {
        const struct CMUnitTest one[] = {OWN[i]};
        if (strcmp(OWN[i].name, name) == 0) return cmocka_run_group_tests(one, NULL, NULL);
    }
    return 1;
}

/* --- the files of these --- */

static int n_lines_of_json(const char *name) {
    static char text[1 << 20];
    int n = 0;
    slurp(text, sizeof text, name);
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1, n++) {
        *end = '\0';
        cJSON *root = cJSON_Parse(line);
        if (!root) fail_msg("line %d of %s: %s", n, name, line);
        assert_true(number(root, "requested_bytes") >= 2097152.0);
        cJSON_Delete(root);
    }
    return n;
}

static void make_older(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("older\n", file);
    fclose(file);
}

static void threads_that_fail_at_once_leave_a_line_each(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++) {
        make_older("threads.json");
        run_own("oom=threads.json,limit=64MiB", "threads_fail_at_once");
        assert_int_equal(n_lines_of_json("threads.json"), THREADS * FAILURES);
    }
}

static void a_report_that_failed_leaves_the_next_one_the_first(void **state) {
    (void)state;
    run_own("oom=late/oom.json,limit=64MiB", "an_allocation_fails_twice");
    assert_int_equal(n_lines_of_json("late/oom.json"), 1);
}

static void each_report_is_written_once(void **state) {
    (void)state;
    run_own("oom=sizes.json", "sizes_beyond_all_devices_fail");
    assert_int_equal(n_lines_of_json("sizes.json"), 3); /* absurd sizes too */
}

static void the_longest_names_fit_a_report(void **state) {
    (void)state;
    run_own("oom=names.json", "the_longest_names_fail");
    assert_int_equal(n_lines_of_json("names.json"), 1);
}

static void a_slow_file_blocks_only_its_writer(void **state) {
    (void)state;
    char path[256];
    snprintf(path, sizeof path, "%s/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    run_own("oom=fifo,limit=1GiB", "an_allocation_returns_while_another_one_reports");
    run_own("stats=fifo,oom=child.json", "a_child_reports_while_its_parent_does");
    assert_int_equal(n_lines_of_json("child.json"), 1);
}

/* Runs as an unprivileged user. Returns the exit code, or -1. */
static int run_as_nobody(const char *name, const char *words) {
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        if (chdir(dir) != 0 || setgroups(0, NULL) != 0) _exit(99);
        if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) _exit(99);
        setenv("KNET_ALLOC", words, 1);
        execl(name, name, (char *)NULL);
        _exit(99);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return -1;
    return WEXITSTATUS(status);
}

static bool there(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

/* Their user must not choose files that are written with the rights of another. */
static void setuid_programs_write_no_files(void **state) {
    (void)state;
    char command[4096];
    struct statvfs fs;
    snprintf(command, sizeof command,
             "cd %s && chmod 777 . && cp '%s' plain && cp plain setuid && chmod 4755 setuid", dir,
             program);
    bool can = geteuid() == 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0 &&
               statvfs(dir, &fs) == 0 && !(fs.f_flag & ST_NOSUID) && system(command) == 0;
    if (!can || run_as_nobody("./plain", "stats=plain.txt") != 0) skip();
    assert_true(there("plain.txt"));
    int code = run_as_nobody("./setuid", "stats=a.txt,snapshot=b.txt,trace=c.txt,oom=d.txt");
    assert_int_equal(code, 0);
    assert_false(there("a.txt") || there("b.txt") || there("c.txt") || there("d.txt"));
}

static void files_are_where_the_program_was_started(void **state) {
    (void)state;
    static const char *const names[] = {"from.txt", "from.json", "from.oom", "from.kntrace"};
    run("stats=from.txt,snapshot=from.json,oom=./from.oom,trace=from.kntrace", "folder oom");
    for (int i = 0; i < 4; i++) {
        if (!there(names[i])) fail_msg("there is no %s", names[i]);
    }
}

static void without_a_stderr_nothing_enters_a_file_of_the_program(void **state) {
    (void)state;
    char data[256];
    (void)run("stats,trace=none/a", "data 2>&- #");
    assert_true(there("data"));
    assert_int_equal(slurp(data, sizeof data, "data"), 0);
}

int main(int argc, char **argv) {
    if (argc > 2) return run_one(argv[2]);
    if (argc < 2 || !mkdtemp(dir)) return 1;
    program = argv[1];
    int failed = RUN_TESTS(
        TEST(without_words_nothing_is_printed), TEST(wrong_words_are_reported_and_ignored),
        TEST(help_is_printed_and_the_program_runs), TEST(limits_hold_for_default_pools),
        TEST(options_that_do_not_fit_the_device_are_reported_and_ignored),
        TEST(stats_are_a_table_for_each_pool), TEST(stats_are_a_line_of_json_for_each_pool),
        TEST(snapshot_has_every_live_block_at_exit), TEST(stacks_are_in_the_snapshot_at_exit),
        TEST(every_failed_allocation_is_a_line_of_json), TEST(trace_has_the_whole_run),
        TEST(files_that_cannot_be_written_are_reported),
        TEST(trace_that_lost_events_says_so_at_exit),
        TEST(threads_that_fail_at_once_leave_a_line_each),
        TEST(a_report_that_failed_leaves_the_next_one_the_first), TEST(each_report_is_written_once),
        TEST(the_longest_names_fit_a_report), TEST(a_slow_file_blocks_only_its_writer),
        TEST(files_are_where_the_program_was_started),
        TEST(without_a_stderr_nothing_enters_a_file_of_the_program),
        TEST(setuid_programs_write_no_files));
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) || failed;
}
