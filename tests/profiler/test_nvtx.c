/* Scopes as NVTX ranges, as a tool sees them. */
#include <sys/stat.h>
#include <unistd.h>

#include "outcome.h"
#include "test.h"

static const char *program, *listener;
static const char *library_calls, *device; /* NULL: a build without CUDA */

static uid_t run_as;    /* 0: whoever we are */
static char seen[8192]; /* what the listener wrote in the last run */

typedef struct environment {
    const char *timer, *injection;
    char path[32];
    int fd; /* of the listener's file */
} environment;

static void prepare(const void *ctx) {
    const environment *e = ctx;
    set_variable("KNET_TIMER", e->timer);
    set_variable("NVTX_INJECTION64_PATH", e->injection);
    setenv("KNET_TEST_NVTX", e->path, 1);
    setenv("CUBLAS_NVTX_LEVEL", "2", 1);
    setenv("CUBLASLT_NVTX_LEVEL", "2", 1);
    setenv("CUDNN_NVTX_LEVEL", "2", 1);
    if (run_as && (fchown(e->fd, run_as, run_as) != 0 || setuid(run_as) != 0)) _exit(96);
}

static outcome run_program(const char *which, const char *way, const char *timer,
                           const char *injection) {
    static outcome o;
    environment e = {timer, injection, "/tmp/knet-nvtx-XXXXXX", -1};
    const char *const argv[] = {which, way, device, NULL};
    e.fd = mkstemp(e.path);
    assert_true(e.fd >= 0);
    run_child(&o, argv, prepare, &e);
    snprintf(seen, sizeof seen, "%s", read_file(e.path));
    close(e.fd);
    unlink(e.path);
    return o;
}

static outcome run(const char *way, const char *timer, const char *injection) {
    return run_program(program, way, timer, injection);
}

static int value(const char *key) {
    const char *line = strstr(seen, key);
    if (!line) fail_msg("no %s in\n%s", key, seen);
    return atoi(line + strlen(key));
}

static void a_tool_gets_ranges_without_the_timer(void **state) {
    (void)state;
    outcome o = run("plain", NULL, listener);
    assert_int_equal(o.code, 0);
    assert_string_equal(o.err, ""); /* the timer is off: no table */
    assert_int_equal(value("domains "), 1);
    assert_int_equal(value("step: "), 3);
    assert_int_equal(value("forward: "), 3);
    assert_int_equal(value("conv[1]: "), 3);
    assert_int_equal(value("pushed "), 9);
    assert_int_equal(value("popped "), 9);
}

static void a_label_is_registered_once(void **state) {
    (void)state;
    run("plain", NULL, listener);
    assert_int_equal(value("registered "), 3);
}

static void table_and_ranges_go_together(void **state) {
    (void)state;
    outcome o = run("plain", "1", listener);
    assert_int_equal(value("pushed "), 9);
    assert_non_null(strstr(o.err, "Section"));
    o = run("plain", "nvtx", listener);
    assert_int_equal(value("pushed "), 9);
    assert_string_equal(o.err, "");
}

static void live_bytes_are_a_counter_of_the_tool(void **state) {
    (void)state;
    run("memory", "1", listener);
    if (strstr(seen, "no counters")) skip();
    assert_int_equal(value("counters "), 1);
    assert_int_equal(value("samples "), 2);
    assert_int_equal(value("largest sample "), 3 << 20);
    assert_int_equal(value("last sample "), 0);
    run("memory", "nomem", listener);
    assert_int_equal(value("counters "), 1);
    assert_int_equal(value("samples "), 0);
    setenv("KNET_TEST_NVTX_NO_COUNTERS", "1", 1);
    run("memory", "1", listener);
    unsetenv("KNET_TEST_NVTX_NO_COUNTERS");
    assert_int_equal(value("samples "), 0);
}

static void a_pool_is_a_heap_of_the_tool(void **state) {
    (void)state;
    run("heap", "1", listener);
    if (strstr(seen, "no heaps")) skip();
    assert_int_equal(value("heaps "), 1);
    assert_int_equal(value("blocks "), 3);
    assert_int_equal(value("block bytes "), 4096 + 8192 + 256);
    assert_int_equal(value("blocks ended "), 2);
    assert_int_equal(value("heaps ended "), 1);
    run("heap", "nomem", listener);
    assert_int_equal(value("heaps "), 0);
    assert_int_equal(value("blocks "), 0);
}

static void scopes_of_a_thread_that_ends_are_popped(void **state) {
    (void)state;
    run("thread", NULL, listener);
    assert_int_equal(value("pushed "), 2);
    assert_int_equal(value("popped "), 2);
}

static void a_tool_that_fails_to_load_is_ignored(void **state) {
    (void)state;
    outcome o = run("plain", "1", "/nowhere/tool.so");
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.err, "Section"));
    o = run("plain", NULL, "/nowhere/tool.so");
    assert_string_equal(o.err, "");
}

/* Who may not be trusted runs a program of root's: what he names must not be loaded into it. */
static void a_setuid_program_loads_no_tool(void **state) {
    (void)state;
    enum { NOBODY = 65534 };
    char dir[] = "/tmp/knet-setuid-XXXXXX", copy[64], tool[64];
    if (geteuid() != 0) skip();
    assert_non_null(mkdtemp(dir));
    snprintf(copy, sizeof copy, "%s/program", dir);
    snprintf(tool, sizeof tool, "%s/tool.so", dir);
    copy_file(copy, program);
    copy_file(tool, listener);
    chmod(dir, 0755);
    run_as = NOBODY;
    outcome o = run_program(copy, "plain", NULL, tool);
    bool can_run = o.code == 0; /* the libraries may be in an unreadable folder */
    int pushed = can_run ? value("pushed ") : 0;
    chmod(copy, 04755);
    o = run_program(copy, "plain", NULL, tool);
    run_as = 0;
    unlink(copy), unlink(tool), rmdir(dir);
    if (!can_run) skip();
    assert_int_equal(pushed, 9);
    assert_int_equal(o.code, 0);
    assert_string_equal(seen, "");
}

/* The libraries' own ranges are the judge: whatever they say was called was called in a scope. */
static void every_library_call_is_in_a_scope_of_its_name(void **state) {
    (void)state;
    if (!library_calls) skip();
    outcome o = run_program(library_calls, "wrapped", "nvtx", listener);
    assert_int_equal(o.code, 0);
    assert_true(value("library calls ") > 0);
    const char *bare = strstr(seen, "bare call of ");
    if (bare) fail_msg("%s", bare);
    assert_int_equal(value("bare "), 0);
    assert_true(value("cudnnBackendExecute: ") > 0);
    assert_true(value("cublasLtMatmul: ") > 0);
}

static void a_library_call_without_a_scope_is_seen(void **state) {
    (void)state;
    if (!library_calls) skip();
    run_program(library_calls, "bare", "nvtx", listener);
    assert_int_equal(value("bare "), 1);
    assert_non_null(strstr(seen, "bare call of cublasLtGetVersion"));
}

int main(int argc, char **argv) {
    if (argc < 3) return 1;
    program = argv[1];
    listener = argv[2];
    library_calls = argc > 4 ? argv[3] : NULL;
    device = argc > 4 ? argv[4] : NULL;
    return RUN_TESTS(
        TEST(a_tool_gets_ranges_without_the_timer), TEST(a_label_is_registered_once),
        TEST(table_and_ranges_go_together), TEST(live_bytes_are_a_counter_of_the_tool),
        TEST(a_pool_is_a_heap_of_the_tool), TEST(scopes_of_a_thread_that_ends_are_popped),
        TEST(a_tool_that_fails_to_load_is_ignored), TEST(a_setuid_program_loads_no_tool),
        TEST(every_library_call_is_in_a_scope_of_its_name),
        TEST(a_library_call_without_a_scope_is_seen));
}
