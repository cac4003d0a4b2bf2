#include "timed_run.h"

#include <signal.h>
#include <unistd.h>

#include "test.h"

char dir[] = "/tmp/knet-timer-XXXXXX";
rlim_t file_bytes_max;
bool no_reader, no_stdout, no_stderr;
static const char *program, *plugins[2];

bool timed_run_init(int argc, char **argv) {
    if (argc < 4 || !mkdtemp(dir)) return false;
    program = argv[1];
    plugins[0] = argv[2];
    plugins[1] = argv[3];
    return true;
}

void timed_run_release(void) { rmdir(dir); }

typedef struct environment {
    const char *way, *timer, *autograd;
} environment;

static void prepare(const void *ctx) {
    const environment *e = ctx;
    struct rlimit limit = {file_bytes_max, RLIM_INFINITY};
    int ends[2];
    if (chdir(dir) != 0) _exit(98);
    set_variable("KNET_TIMER", e->timer);
    set_variable("AUTOGRAD_TIMER", e->autograd);
    if (file_bytes_max) setrlimit(RLIMIT_FSIZE, &limit);
    if (strcmp(e->way, "hup ignored") == 0) signal(SIGHUP, SIG_IGN);
    if (no_stdout) close(STDOUT_FILENO);
    if (no_stderr) close(STDERR_FILENO);
    if (!no_reader) return;
    if (pipe(ends) != 0) _exit(96);
    close(ends[0]);
    dup2(ends[1], STDERR_FILENO);
}

/* Every row, on a line of its own, where the words don't say else. */
static const char *with_all_rows(char *out, size_t out_bytes, const char *words) {
    static const char *const no_table[] = {"", "0", "off"};
    for (size_t i = 0; i < 3; i++) {
        if (!words || strcmp(words, no_table[i]) == 0) return words;
    }
    snprintf(out, out_bytes, "min=0,%s", words);
    return out;
}

outcome run_with(const char *way, const char *timer, const char *autograd) {
    static outcome o;
    char all[8192], all_grad[8192];
    timer = with_all_rows(all, sizeof all, timer);
    autograd = with_all_rows(all_grad, sizeof all_grad, autograd);
    const char *const argv[] = {program, way, plugins[0], plugins[1], NULL};
    run_child(&o, argv, prepare, &(environment){way, timer, autograd});
    return o;
}

outcome run(const char *way, const char *timer) { return run_with(way, timer, NULL); }

const char *written(const char *name) {
    char path[4200]; /* the name may be all that a program printed */
    snprintf(path, sizeof path, "%s/%s", dir, name);
    const char *text = read_file(path);
    if (!text) fail_msg("%s is missing", path);
    unlink(path);
    return text;
}

cJSON *written_json(const char *name) {
    cJSON *json = cJSON_Parse(written(name));
    assert_non_null(json);
    return json;
}
