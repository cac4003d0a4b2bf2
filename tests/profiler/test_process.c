/* The timer in whole programs: the reports, their places, and no other change of the output. */
#include <cjson/cJSON.h>
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

static const char *program, *plugins[2];
static char dir[] = "/tmp/knet-timer-XXXXXX";

static rlim_t file_bytes_max; /* a disk that fills up; 0: it doesn't */
static bool no_reader;        /* of stderr */
static bool no_stdout;        /* it is closed */

typedef struct outcome {
    int code, signal;
    char out[4096], err[65536];
} outcome;

static void read_all(FILE *file, char *out, size_t size) {
    rewind(file);
    out[fread(out, 1, size - 1, file)] = '\0';
    fclose(file);
}

/* Runs the program in its own directory; `timer` and `autograd` NULL: the variable is unset. */
static void run_with(outcome *o, const char *way, const char *timer, const char *autograd) {
    FILE *out = tmpfile(), *err = tmpfile();
    assert_true(out && err);
    pid_t child = fork();
    if (child == 0) {
        if (chdir(dir) != 0) _exit(98);
        timer ? setenv("KNET_TIMER", timer, 1) : unsetenv("KNET_TIMER");
        autograd ? setenv("AUTOGRAD_TIMER", autograd, 1) : unsetenv("AUTOGRAD_TIMER");
        struct rlimit limit = {file_bytes_max, RLIM_INFINITY};
        if (file_bytes_max) setrlimit(RLIMIT_FSIZE, &limit);
        if (strcmp(way, "hup ignored") == 0) signal(SIGHUP, SIG_IGN);
        int ends[2] = {-1, fileno(err)};
        if (no_reader && pipe(ends) != 0) _exit(96);
        if (no_reader) close(ends[0]);
        no_stdout ? close(1) : dup2(fileno(out), 1);
        dup2(ends[1], 2);
        execl(program, program, way, plugins[0], plugins[1], (char *)NULL);
        _exit(97);
    }
    int status = 0;
    waitpid(child, &status, 0);
    o->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    o->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    read_all(out, o->out, sizeof o->out);
    read_all(err, o->err, sizeof o->err);
}

static outcome run(const char *way, const char *timer) {
    static outcome o;
    run_with(&o, way, timer, NULL);
    return o;
}

static int occurrences(const char *text, const char *what) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) n++;
    return n;
}

static void assert_row(const char *table, const char *label, const char *n_calls) {
    const char *line = strstr(table, label);
    if (!line) fail_msg("no row \"%s\" in\n%s", label, table);
    char count[16] = "";
    sscanf(line + strlen(label), " %15s", count);
    assert_string_equal(count, n_calls);
}

static void without_the_variable_nothing_is_printed(void **state) {
    (void)state;
    static const char *const off[] = {NULL, "", "0", "off"};
    for (size_t i = 0; i < 4; i++) {
        outcome o = run("plain", off[i]);
        assert_int_equal(o.code, 0);
        assert_string_equal(o.out, "");
        assert_string_equal(o.err, "");
    }
}

static void one_prints_the_table_at_exit(void **state) {
    (void)state;
    outcome o = run("plain", "1");
    assert_int_equal(o.code, 0);
    assert_string_equal(o.out, "");
    assert_row(o.err, "\n step ", "3");
    assert_row(o.err, "\n   forward ", "3");
    assert_row(o.err, "\n   conv[1] ", "3");
    assert_non_null(strstr(o.err, "3 steps"));
    assert_int_equal(occurrences(o.err, "Section"), 1);
}

static void exit_inside_a_scope_keeps_the_code_and_the_table(void **state) {
    (void)state;
    outcome o = run("exit", "1");
    assert_int_equal(o.code, 5);
    assert_row(o.err, "\n outer ", "1");
    assert_row(o.err, "\n   inner ", "1");
}

static void scopes_of_a_thread_that_ended_are_in_the_table(void **state) {
    (void)state;
    outcome o = run("thread", "1");
    assert_int_equal(o.code, 0);
    assert_row(o.err, "\n open in thread ", "1");
    assert_row(o.err, "\n   inner ", "1");
}

static void threads_may_run_on_while_the_table_is_printed(void **state) {
    (void)state;
    outcome o = run("running", "1");
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.err, "\n running "));
    assert_row(o.err, "\n main ", "1");
}

static void a_forked_child_prints_nothing(void **state) {
    (void)state;
    outcome o = run("fork", "1");
    assert_int_equal(o.code, 7);
    assert_int_equal(occurrences(o.err, "Section"), 1);
    assert_row(o.err, "\n parent ", "1");
    assert_null(strstr(o.err, "child"));
}

static void memory_columns_show_the_allocations_of_a_scope(void **state) {
    (void)state;
    outcome o = run("memory", "1");
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.err, "high-water mark 3.00 MiB live"));
    assert_non_null(strstr(o.err, "at the high-water mark of 3.00 MiB: 3.00 MiB allocating"));
    o = run("memory", "nomem");
    assert_null(strstr(o.err, "MiB"));
    assert_non_null(strstr(o.err, "allocating"));
}

static void a_wrong_word_is_reported_and_the_program_continues(void **state) {
    (void)state;
    outcome o = run("plain", "cpu,fsat");
    assert_int_equal(o.code, 0);
    assert_int_equal(strncmp(o.err, "KNET_TIMER: \"fsat\" is not a word", 32), 0);
    assert_row(o.err, "\n step ", "3");
}

static void help_prints_the_grammar(void **state) {
    (void)state;
    outcome o = run("plain", "help,0");
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.err, "sort=time|calls"));
    assert_null(strstr(o.err, "Section"));
}

static void read_path(const char *name, char *out, size_t size) {
    char path[4200]; /* the name may be all that a program printed */
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s is missing", path);
    read_all(file, out, size);
    unlink(path);
}

static cJSON *read_json(const char *name) {
    static char text[1 << 20];
    read_path(name, text, sizeof text);
    cJSON *json = cJSON_Parse(text);
    assert_non_null(json);
    return json;
}

static void reports_go_where_the_words_say(void **state) {
    (void)state;
    outcome o = run("plain",
                    "out=table.txt,json=data.json,csv=data.csv,folded=data.folded,"
                    "flame=data.svg,trace=trace.%p.json,trace=trace.json");
    static char text[65536];
    assert_string_equal(o.err, "");
    read_path("trace.json", text, sizeof text);
    assert_int_equal(occurrences(text, "\"name\":\"forward\""), 3);
    read_path("data.csv", text, sizeof text);
    assert_non_null(strstr(text, "\n\"step/forward\",2,scope,3,"));
    read_path("data.folded", text, sizeof text);
    assert_non_null(strstr(text, "step;forward "));
    read_path("data.svg", text, sizeof text);
    assert_non_null(strstr(text, "</svg>"));
    read_path("table.txt", text, sizeof text);
    assert_row(text, "\n step ", "3");
    read_path("data.json", text, sizeof text);
    cJSON *json = cJSON_Parse(text);
    assert_non_null(json);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(json, "scopes")), 1);
    cJSON_Delete(json);
}

static void an_output_that_cannot_be_written_goes_to_stderr_with_the_reason(void **state) {
    (void)state;
    static const char *const words[] = {"out=/nowhere/table.txt", "out=/", "out=/dev/full",
                                        "out=/dev/null,json=/nowhere/data.json"};
    for (size_t i = 0; i < 4; i++) {
        outcome o = run("plain", words[i]);
        assert_int_equal(o.code, 0);
        assert_non_null(strstr(o.err, "cannot write the timer's report to /"));
        assert_non_null(strstr(o.err, "forward"));
    }
}

static void a_report_can_be_written_before_the_end(void **state) {
    (void)state;
    outcome o = run("report", "out=/dev/null");
    assert_int_equal(o.code, 0);
    o.out[strcspn(o.out, "\n")] = '\0';
    static char text[65536];
    read_path(o.out, text, sizeof text);
    assert_non_null(strstr(text, "\"schema\":\"knet.prof\""));
    o = run("report", NULL);
    assert_int_equal(o.code, 1);
    assert_non_null(strstr(o.out, "the timer is off"));
    assert_string_equal(o.err, "");
}

static void only_the_steps_asked_for_are_measured(void **state) {
    (void)state;
    outcome o = run("steps", "steps=4-6,trace=trace.json");
    assert_int_equal(o.code, 0);
    assert_row(o.err, "\n step ", "3");
    assert_row(o.err, "\n   half ", "3");
    assert_non_null(strstr(o.err, ", 3 steps of "));
    static char text[65536];
    read_path("trace.json", text, sizeof text);
    assert_int_equal(occurrences(text, "\"name\":\"half\""), 3);
    assert_row(run("steps", "skip=9").err, "\n step ", "1");
    assert_row(run("steps", "skip=0").err, "\n step ", "10");
    assert_row(run("steps", "steps=10").err, "\n step ", "1");
}

static void a_resume_does_not_bring_other_steps_back(void **state) {
    (void)state;
    outcome o = run("pause", "steps=5-");
    assert_int_equal(o.code, 0);
    assert_null(strstr(o.err, "\n after "));
}

/* The start of the first step is unknown. */
static void the_first_step_has_no_time(void **state) {
    (void)state;
    outcome o = run("steps", "json=data.json,out=/dev/null");
    assert_int_equal(o.code, 0);
    cJSON *json = read_json("data.json");
    const cJSON *steps = cJSON_GetObjectItem(json, "steps");
    assert_int_equal(cJSON_GetObjectItem(steps, "n")->valuedouble, 10);
    assert_int_equal(cJSON_GetObjectItem(steps, "n_timed")->valuedouble, 9);
    cJSON_Delete(json);
}

static void steps_that_never_ran_are_reported(void **state) {
    (void)state;
    outcome o = run("steps", "steps=20-30");
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.err, "nothing was measured: the program ended after 10 steps"));
    assert_int_equal(occurrences(o.err, "Section"), 1);
}

static void reports_come_every_so_many_steps_and_at_exit(void **state) {
    (void)state;
    outcome o = run("steps", "every=4steps");
    assert_int_equal(occurrences(o.err, "Section"), 3);
    assert_row(o.err, "\n step ", "4"); /* the first of them */
}

static void a_report_is_written_after_an_interval(void **state) {
    (void)state;
    outcome o = run("wait", "every=30ms,out=early.txt");
    assert_int_equal(o.code, 0);
    static char text[65536];
    read_path("early.txt", text, sizeof text);
    assert_row(text, "\n waiting ", "1");
}

static void a_signal_asks_for_a_report(void **state) {
    (void)state;
    outcome o = run("signal", "signal=USR2,out=early.txt");
    assert_int_equal(o.code, 0);
    static char text[65536];
    read_path("early.txt", text, sizeof text);
    assert_row(text, "\n signalled ", "1");
    o = run("signal", "1"); /* no signal= word: the signal has its default effect */
    assert_int_equal(o.code, -1);
}

static void a_signal_that_ends_the_program_ends_it_after_the_report(void **state) {
    (void)state;
    static const struct {
        const char *way, *words;
        int number;
    } cases[] = {{"term", "signal=TERM,ascii,json=data.json,trace=trace.json", SIGTERM},
                 {"int", "signal=INT,ascii,json=data.json,trace=trace.json", SIGINT},
                 {"hup", "signal=HUP,ascii,json=data.json,trace=trace.json", SIGHUP}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        outcome o = run(cases[i].way, cases[i].words);
        assert_int_equal(o.signal, cases[i].number);
        assert_int_equal(occurrences(o.err, "Section"), 1);
        assert_row(o.err, "\n ended ", "1");
        cJSON_Delete(read_json("data.json"));
        cJSON_Delete(read_json("trace.json"));
    }
    outcome o = run("term", "1");
    assert_int_equal(o.signal, SIGTERM);
    assert_int_equal(occurrences(o.err, "Section"), 0);
}

static void a_signal_interrupts_no_call_of_the_program(void **state) {
    (void)state;
    outcome o = run("read", "signal=USR2,out=/dev/null");
    assert_int_equal(o.code, 0);
}

static void unlink_file(const char *name) {
    char path[64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    unlink(path);
}

static void make_pipe(void) {
    char path[64];
    snprintf(path, sizeof path, "%s/pipe", dir);
    assert_int_equal(mkfifo(path, 0666), 0);
}

static void a_second_interrupt_does_not_wait_for_the_report(void **state) {
    (void)state;
    make_pipe(); /* without a reader */
    outcome o = run("int twice", "signal=INT,out=pipe");
    assert_int_equal(o.signal, SIGINT);
    unlink_file("pipe");
}

static void wait_for_file(const char *name) {
    char path[64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    for (int i = 0; i < 2000 && access(path, F_OK) != 0; i++) usleep(5000);
}

static void a_signal_during_the_last_report_waits_for_it(void **state) {
    (void)state;
    static char text[65536];
    make_pipe();
    outcome o = run("term at exit", "signal=TERM,out=pipe");
    assert_int_equal(o.signal, SIGTERM);
    wait_for_file("early.txt");
    read_path("early.txt", text, sizeof text);
    assert_int_equal(occurrences(text, "Section"), 1);
    assert_row(text, "\n ended ", "1");
    unlink_file("pipe");
}

static void an_ignored_signal_ends_no_program(void **state) {
    (void)state;
    outcome o = run("hup ignored", "signal=HUP,out=early.txt");
    assert_int_equal(o.code, 0);
    static char text[65536];
    read_path("early.txt", text, sizeof text);
    assert_row(text, "\n signalled ", "1");
}

static void a_signal_ends_a_child_as_ever(void **state) {
    (void)state;
    outcome o = run("child term", "signal=TERM");
    assert_int_equal(o.code, 7);
}

static int n_files(void) {
    int n = 0;
    DIR *all = opendir(dir);
    while (readdir(all)) n++;
    closedir(all);
    return n - 2;
}

/* `name` long: there can be no file beside it, and the old one is written over. */
static void fill_the_disk(const char *name) {
    static char before[1 << 20], after[1 << 20];
    char path[400], words[400];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    snprintf(words, sizeof words, "out=%s", name);
    run("plain", words);
    chmod(path, 0640);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    read_all(file, before, sizeof before);
    file_bytes_max = strlen(before) + 100;
    outcome o = run("nodes", words);
    file_bytes_max = 0;
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.err, "cannot write the timer's report to "));
    assert_non_null(strstr(o.err, "Section"));
    file = fopen(path, "rb");
    assert_non_null(file);
    read_all(file, after, sizeof after);
    assert_string_equal(before, after);
    assert_int_equal(n_files(), 1);
    run("steps", words); /* there is room again, and less to write */
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    read_path(name, after, sizeof after);
    assert_row(after, "\n step ", "10");
    assert_true(strlen(after) < strlen(before)); /* nothing of the longer one is left */
}

static void a_full_disk_leaves_the_older_report(void **state) {
    (void)state;
    char name[251];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    fill_the_disk("table.txt");
    fill_the_disk(name);
}

static void a_full_disk_ends_the_trace_alone(void **state) {
    (void)state;
    static char text[65536];
    file_bytes_max = 4096;
    outcome o = run("nodes", "trace=trace.json,json=/dev/null,out=/dev/null");
    file_bytes_max = 0;
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.err, "cannot write the trace to trace.json: File too large"));
    read_path("trace.json", text, sizeof text);
}

static void a_reader_that_has_gone_ends_the_table_alone(void **state) {
    (void)state;
    no_reader = true;
    outcome o = run("plain", "json=data.json");
    no_reader = false;
    assert_int_equal(o.signal, 0);
    assert_int_equal(o.code, 0);
    cJSON_Delete(read_json("data.json"));
}

static void a_trace_never_becomes_the_standard_output(void **state) {
    (void)state;
    no_stdout = true;
    outcome o = run("eight threads", "trace=trace.json,out=/dev/null"); /* prints a number */
    no_stdout = false;
    assert_int_equal(o.code, 0);
    char path[64];
    static char text[64 << 20];
    snprintf(path, sizeof path, "%s/trace.json", dir);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    read_all(file, text, sizeof text);
    cJSON *json = cJSON_Parse(text);
    assert_non_null(json);
    cJSON_Delete(json);
    unlink(path);
}

static void a_report_may_go_through_a_link(void **state) {
    (void)state;
    static char text[65536];
    char link[64];
    snprintf(link, sizeof link, "%s/link.txt", dir);
    for (int i = 0; i < 2; i++) { /* to a file that is not there yet, and to one that is */
        if (!i) assert_int_equal(symlink("target.txt", link), 0);
        outcome o = run("plain", "out=link.txt");
        assert_string_equal(o.err, "");
        struct stat info;
        assert_int_equal(lstat(link, &info), 0);
        assert_true(S_ISLNK(info.st_mode));
    }
    read_path("target.txt", text, sizeof text);
    assert_row(text, "\n step ", "3");
    unlink(link);
}

static void the_bound_of_memory_holds_and_dropped_records_are_counted(void **state) {
    (void)state;
    static char text[8 << 20];
    outcome o = run("nodes", "buf=1M,out=table.txt");
    assert_int_equal(o.code, 0);
    read_path("table.txt", text, sizeof text);
    int n = occurrences(text, "\n scope ");
    assert_in_range(n, 1000, 6000);
    const char *told = strstr(text, " scopes not recorded");
    assert_non_null(told);
    while (told[-1] != ' ') told--;
    assert_int_equal(atoi(told), 20000 - n);
    o = run("nodes", "out=table.txt");
    read_path("table.txt", text, sizeof text);
    assert_int_equal(occurrences(text, "\n scope "), 20000);
}

static void each_thread_has_a_table_when_asked(void **state) {
    (void)state;
    outcome o = run("two threads", "threads");
    assert_int_equal(occurrences(o.err, "Section"), 3);
    assert_int_equal(occurrences(o.err, "\n in a thread "), 2);
    assert_int_equal(occurrences(o.err, "\n main "), 2);
    assert_non_null(strstr(o.err, "\n thread 2\n"));
}

static void the_rank_of_the_process_may_be_in_a_name(void **state) {
    (void)state;
    setenv("SLURM_PROCID", "7", 1);
    outcome o = run("plain", "out=rank-%r.txt");
    unsetenv("SLURM_PROCID");
    assert_string_equal(o.err, "");
    static char text[65536];
    read_path("rank-7.txt", text, sizeof text);
    assert_row(text, "\n step ", "3");
    o = run("plain", "out=rank-%r.txt");
    read_path("rank-0.txt", text, sizeof text);
    setenv("RANK", "3/../x", 1); /* no number: nothing that a path could be made of */
    o = run("plain", "out=rank-%r.txt");
    unsetenv("RANK");
    assert_string_equal(o.err, "");
    read_path("rank-0.txt", text, sizeof text);
}

static void autograd_timer_shows_gradient_scopes_alone(void **state) {
    (void)state;
    outcome o;
    run_with(&o, "plain", NULL, "1");
    assert_row(o.err, "\n conv[1] ", "3");
    assert_null(strstr(o.err, "forward"));
    run_with(&o, "plain", "1", "1");
    assert_row(o.err, "\n   conv[1] ", "3");
    assert_non_null(strstr(o.err, "forward"));
}

static void a_pause_is_not_measured(void **state) {
    (void)state;
    outcome o = run("pause", "1,ascii");
    assert_int_equal(o.code, 0);
    assert_row(o.err, "\n   before ", "1");
    assert_row(o.err, "\n   after ", "1");
    assert_null(strstr(o.err, "while it is off"));
    o = run("pause", "1,json=pause.json");
    static char text[1 << 16];
    read_path("pause.json", text, sizeof text);
    cJSON *json = cJSON_Parse(text);
    const cJSON *all = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "scopes"), 0);
    double all_ns = cJSON_GetObjectItem(all, "time_ns")->valuedouble;
    assert_true(all_ns >= 50e6); /* the open scope counts the pause of 50 ms, the total does not */
    assert_true(cJSON_GetObjectItem(json, "wall_ns")->valuedouble < all_ns);
    cJSON_Delete(json);
    o = run("pause", NULL);
    assert_int_equal(o.code, 0);
    assert_string_equal(o.err, "");
}

static void owners_without_the_variable_print_no_report(void **state) {
    (void)state;
    outcome o = run("owners", NULL);
    assert_int_equal(o.code, 0);
    assert_string_equal(o.err, "");
    o = run("owners", "1");
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.err, "3.00 MiB allocating"));
}

static void owners_go_with_every_word(void **state) {
    (void)state;
    outcome o = run("owners", "1,nomem");
    assert_int_equal(o.code, 0);
    assert_row(o.err, "\n allocating ", "1");
    assert_null(strstr(o.err, "MiB")); /* as the words say */
    run_with(&o, "owners", NULL, "1");
    assert_int_equal(o.code, 0);
    assert_int_equal(occurrences(o.err, "Section"), 1);
    assert_null(strstr(o.err, "\n allocating ")); /* it is no gradient scope */
}

static void a_forked_child_can_have_no_report(void **state) {
    (void)state;
    outcome o = run("fork report", "1");
    assert_int_equal(o.code, 7);
    assert_int_equal(occurrences(o.err, "Section"), 1);
}

static double number(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsNumber(item)) fail_msg("no number %s", key);
    return item->valuedouble;
}

static const cJSON *nth(const cJSON *object, const char *list, int i) {
    return cJSON_GetArrayItem(cJSON_GetObjectItem(object, list), i);
}

static void the_mark_of_a_pool_is_its_own(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) {
        outcome o = run("eight threads", "json=data.json,out=/dev/null");
        assert_int_equal(o.code, 0);
        cJSON *json = read_json("data.json");
        const cJSON *memory = cJSON_GetObjectItem(json, "memory");
        double mark = strtod(o.out, NULL);
        assert_true(number(nth(memory, "pools", 0), "live_bytes_max") == mark);
        assert_true(number(memory, "live_bytes_max") == mark);
        assert_true(number(nth(json, "scopes", 0), "peak_bytes") <= mark);
        cJSON_Delete(json);
    }
}

static void a_scope_shows_the_memory_of_its_threads(void **state) {
    (void)state;
    outcome o = run("hold", NULL);
    assert_int_equal(o.code, 0);
    cJSON *json = read_json("held.json");
    const cJSON *parallel = nth(json, "scopes", 0);
    assert_string_equal(cJSON_GetObjectItem(parallel, "label")->valuestring, "parallel");
    assert_true(number(parallel, "peak_bytes") == 320 << 20);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(parallel, "peak_exact")));
    cJSON_Delete(json);
}

static void labels_of_unloaded_plugins_stay_their_own(void **state) {
    (void)state;
    outcome o = run("plugins", "1");
    assert_int_equal(o.code, 0);
    assert_row(o.err, "\n alpha ", "3");
    assert_row(o.err, "\n gamma ", "3");
    assert_int_equal(occurrences(o.err, "alpha"), 1);
    o = run("plugins", "nomem");
    assert_row(o.err, "\n alpha ", "3");
    assert_row(o.err, "\n gamma ", "3");
}

static void scopes_left_by_longjmp_do_not_nest(void **state) {
    (void)state;
    outcome o = run("jump", "1");
    assert_int_equal(o.code, 0);
    assert_row(o.err, "\n outer ", "1");
    assert_row(o.err, "\n   inner ", "1.00k");
    assert_row(o.err, "\n     innermost ", "1.00k");
    assert_int_equal(occurrences(o.err, "inner "), 1);
    o = run("recursion", "1"); /* the same block, entered inside itself */
    assert_int_equal(occurrences(o.err, "recursion "), 20);
    assert_row(o.err, "\n       recursion ", "10");
}

static void both_clocks_work(void **state) {
    (void)state;
    static const char *const words[] = {"clock=tsc", "clock=monotonic"};
    for (size_t i = 0; i < 2; i++) {
        outcome o = run("plain", words[i]);
        assert_int_equal(o.code, 0);
        assert_row(o.err, "\n   forward ", "3");
    }
}

int main(int argc, char **argv) {
    if (argc < 4 || !mkdtemp(dir)) return 1;
    program = argv[1];
    plugins[0] = argv[2];
    plugins[1] = argv[3];
    int failed = RUN_TESTS(
        TEST(without_the_variable_nothing_is_printed), TEST(one_prints_the_table_at_exit),
        TEST(exit_inside_a_scope_keeps_the_code_and_the_table),
        TEST(scopes_of_a_thread_that_ended_are_in_the_table),
        TEST(threads_may_run_on_while_the_table_is_printed), TEST(a_forked_child_prints_nothing),
        TEST(memory_columns_show_the_allocations_of_a_scope),
        TEST(a_wrong_word_is_reported_and_the_program_continues), TEST(help_prints_the_grammar),
        TEST(reports_go_where_the_words_say),
        TEST(an_output_that_cannot_be_written_goes_to_stderr_with_the_reason),
        TEST(a_report_can_be_written_before_the_end),
        TEST(autograd_timer_shows_gradient_scopes_alone), TEST(a_pause_is_not_measured),
        TEST(owners_without_the_variable_print_no_report), TEST(owners_go_with_every_word),
        TEST(a_forked_child_can_have_no_report), TEST(the_mark_of_a_pool_is_its_own),
        TEST(labels_of_unloaded_plugins_stay_their_own), TEST(scopes_left_by_longjmp_do_not_nest),
        TEST(a_scope_shows_the_memory_of_its_threads), TEST(both_clocks_work),
        TEST(only_the_steps_asked_for_are_measured), TEST(steps_that_never_ran_are_reported),
        TEST(a_resume_does_not_bring_other_steps_back), TEST(the_first_step_has_no_time),
        TEST(reports_come_every_so_many_steps_and_at_exit),
        TEST(a_report_is_written_after_an_interval), TEST(a_signal_asks_for_a_report),
        TEST(a_signal_that_ends_the_program_ends_it_after_the_report),
        TEST(a_signal_interrupts_no_call_of_the_program),
        TEST(a_second_interrupt_does_not_wait_for_the_report),
        TEST(a_signal_during_the_last_report_waits_for_it), TEST(an_ignored_signal_ends_no_program),
        TEST(a_signal_ends_a_child_as_ever), TEST(a_full_disk_leaves_the_older_report),
        TEST(a_full_disk_ends_the_trace_alone), TEST(a_trace_never_becomes_the_standard_output),
        TEST(a_reader_that_has_gone_ends_the_table_alone), TEST(a_report_may_go_through_a_link),
        TEST(the_bound_of_memory_holds_and_dropped_records_are_counted),
        TEST(each_thread_has_a_table_when_asked), TEST(the_rank_of_the_process_may_be_in_a_name));
    rmdir(dir);
    return failed;
}
