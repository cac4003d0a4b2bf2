/* Where the reports of a program go, when, and what happens when they can't. */
#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"
#include "timed_run.h"

static void remove_file(const char *name) {
    char path[64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    remove(path);
}

static void reports_go_where_the_words_say(void **state) {
    (void)state;
    outcome o = run("plain",
                    "out=table.txt,json=data.json,csv=data.csv,folded=data.folded,"
                    "flame=data.svg,trace=trace.%p.json,trace=trace.json");
    assert_string_equal(o.err, "");
    const char *text = written("trace.json");
    assert_int_equal(occurrences(text, "\"name\":\"forward\""), 3);
    text = written("data.csv");
    assert_non_null(strstr(text, "\n\"step/forward\",2,scope,3,"));
    text = written("data.folded");
    assert_non_null(strstr(text, "step;forward "));
    text = written("data.svg");
    assert_non_null(strstr(text, "</svg>"));
    text = written("table.txt");
    assert_row(text, "\n step ", "3");
    cJSON *json = written_json("data.json");
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

static void a_trace_that_lacks_events_is_told_of_with_the_word(void **state) {
    (void)state;
    outcome o = run("nodes", "json=data.json,trace=trace.json,trace_max=20000");
    cJSON *trace = written_json("trace.json"), *profile = written_json("data.json");
    double n = number(trace, "knetEventsSkipped");
    char line[120];
    snprintf(line, sizeof line, "\n the trace lacks %.0f events: raise KNET_TIMER=trace_max=\n", n);
    assert_true(n > 0);
    assert_non_null(strstr(o.err, line));
    assert_true(number(profile, "events_skipped") == n);
    cJSON_Delete(trace);
    cJSON_Delete(profile);
    o = run("nodes", "trace=trace.json");
    assert_null(strstr(o.err, "the trace lacks"));
    (void)written("trace.json");
}

/* The last measured step is one of them, the step before the first is not. */
static void the_trace_of_some_steps_has_the_measured_ones(void **state) {
    (void)state;
    static const struct {
        const char *words;
        int n;
    } cases[] = {{"steps=3-5,trace=trace.json,trace_last=2", 2},
                 {"steps=3-5,trace=trace.json,trace_last=9", 3},
                 {"steps=3-5,trace=trace.json,trace_slow=100us", 3},
                 {"steps=3-5,trace=trace.json,trace_slow=1h", 0}};
    for (size_t i = 0; i < 4; i++) {
        outcome o = run("steps", cases[i].words);
        assert_int_equal(o.code, 0);
        assert_int_equal(occurrences(written("trace.json"), "\"name\":\"half\""), cases[i].n);
    }
}

static void files_are_where_the_program_was_started(void **state) {
    (void)state;
    outcome o = run("folder", "out=table.txt,json=./data.%p.json,json=data.json,trace=trace.json");
    assert_int_equal(o.code, 0);
    assert_string_equal(o.err, "");
    assert_row(written("table.txt"), "\n step ", "3");
    assert_non_null(strstr(written("data.json"), "\"forward\""));
    assert_non_null(strstr(written("trace.json"), "\"forward\""));
    remove_file("gone");
}

/* A reason is reported again once a report was written in between. */
static void only_the_last_report_goes_to_stderr_and_earlier_ones_say_why_once(void **state) {
    (void)state;
    outcome o = run("steps", "every=1steps,out=/nowhere/table.txt,json=/nowhere/data.json");
    assert_int_equal(o.code, 0);
    assert_int_equal(occurrences(o.err, "Section"), 1);
    assert_int_equal(occurrences(o.err, "cannot write the timer's report to /nowhere/table"), 2);
    assert_int_equal(occurrences(o.err, "cannot write the timer's report to /nowhere/data"), 2);
    o = run("folder", "every=1steps,out=sub/table.txt");
    assert_int_equal(o.code, 0);
    assert_int_equal(occurrences(o.err, "Section"), 1);
    assert_int_equal(occurrences(o.err, "cannot write the timer's report to "), 3);
    assert_row(written("gone/table.txt"), "\n step ", "3");
    remove_file("gone");
}

static void steps_that_never_come_are_told_of(void **state) {
    (void)state;
    static const char *const words[] = {"skip=10", "steps=11-", "skip=20"};
    for (int i = 0; i < 3; i++) {
        outcome o = run("steps", words[i]);
        assert_non_null(strstr(o.err, "nothing was measured: the program ended after 10 steps"));
    }
    outcome o = run("steps", "skip=9");
    assert_null(strstr(o.err, "nothing was measured"));
}

static void a_report_can_be_written_before_the_end(void **state) {
    (void)state;
    outcome o = run("report", "out=/dev/null");
    assert_int_equal(o.code, 0);
    o.out[strcspn(o.out, "\n")] = '\0';
    const char *text = written(o.out);
    assert_non_null(strstr(text, "\"schema\":\"knet.prof\""));
    assert_non_null(strstr(text, "\"notes\":\"data=new, commit=a \\\"b\\\"\""));
    o = run("bad notes", NULL);
    assert_string_equal(o.out, "8 kn_prof_note: k16 is one key more than 16\n");
    o = run("report", NULL);
    assert_int_equal(o.code, 1);
    assert_non_null(strstr(o.out, "the timer is off"));
    assert_string_equal(o.err, "");
}

static void every_output_but_csv_and_stacks_has_the_notes(void **state) {
    (void)state;
    outcome o = run("report",
                    "out=table.txt,json=data.json,flame=data.svg,html=data.html,metrics=data.prom,"
                    "trace=trace.json,csv=data.csv,folded=data.folded");
    assert_int_equal(o.code, 0);
    o.out[strcspn(o.out, "\n")] = '\0';
    remove_file(o.out);
    assert_non_null(strstr(written("table.txt"), "\n run: data=new, commit=a \"b\"\n"));
    assert_non_null(strstr(written("data.json"), "\"notes\":\"data=new, commit=a \\\"b\\\"\""));
    assert_non_null(strstr(written("data.html"), "\"notes\":\"data=new, commit=a \\\"b\\\"\""));
    assert_non_null(strstr(written("data.svg"), "<title>run: data=new, commit=a \"b\"</title>"));
    assert_non_null(
        strstr(written("data.prom"), ",note_data=\"new\",note_commit=\"a \\\"b\\\"\"} 1\n"));
    assert_non_null(strstr(written("trace.json"),
                           "\"args\":{\"labels\":\"data=new, commit=a \\\"b\\\"\"}}\n],"));
    assert_null(strstr(written("data.csv"), "commit"));
    assert_null(strstr(written("data.folded"), "commit"));
    o = run("plain", "out=table.txt,trace=trace.json");
    assert_null(strstr(written("table.txt"), " run: "));
    assert_null(strstr(written("trace.json"), "process_labels"));
}

/* A trace is JSON, and within its bound, whether its notes fit or not. */
static void notes_that_exceed_the_bound_of_a_trace_are_left_out(void **state) {
    (void)state;
    int n_noted = 0, n_without = 0;
    for (int bound = 500; bound <= 2000; bound += 100) {
        char words[64];
        snprintf(words, sizeof words, "out=/dev/null,trace=trace.json,trace_max=%d", bound);
        outcome o = run("report", words);
        assert_int_equal(o.code, 0);
        o.out[strcspn(o.out, "\n")] = '\0';
        remove_file(o.out);
        const char *text = written("trace.json");
        assert_true(strlen(text) <= (size_t)bound);
        *(strstr(text, "process_labels") ? &n_noted : &n_without) += 1;
        cJSON *json = cJSON_Parse(text);
        assert_non_null(json);
        cJSON_Delete(json);
    }
    assert_true(n_noted > 5 && n_without > 0);
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
    const char *text = written("early.txt");
    assert_row(text, "\n waiting ", "1");
}

static void a_signal_asks_for_a_report(void **state) {
    (void)state;
    outcome o = run("signal", "signal=USR2,out=early.txt");
    assert_int_equal(o.code, 0);
    const char *text = written("early.txt");
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
        cJSON_Delete(written_json("data.json"));
        assert_int_equal(occurrences(written("trace.json"), "\"name\":\"ended\""), 1);
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
    remove_file("pipe");
}

static void wait_for_file(const char *name) {
    char path[64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    for (int i = 0; i < 2000 && access(path, F_OK) != 0; i++) usleep(5000);
}

static void a_signal_during_the_last_report_waits_for_it(void **state) {
    (void)state;
    make_pipe();
    outcome o = run("term at exit", "signal=TERM,out=pipe");
    assert_int_equal(o.signal, SIGTERM);
    wait_for_file("early.txt");
    const char *text = written("early.txt");
    assert_int_equal(occurrences(text, "Section"), 1);
    assert_row(text, "\n ended ", "1");
    remove_file("pipe");
}

static void an_ignored_signal_ends_no_program(void **state) {
    (void)state;
    outcome o = run("hup ignored", "signal=HUP,out=early.txt");
    assert_int_equal(o.code, 0);
    const char *text = written("early.txt");
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
    char path[400], words[400];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    snprintf(words, sizeof words, "out=%s", name);
    run("plain", words);
    chmod(path, 0640);
    char *before = strdup(read_file(path));
    file_bytes_max = strlen(before) + 100;
    outcome o = run("nodes", words);
    file_bytes_max = 0;
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.err, "cannot write the timer's report to "));
    assert_non_null(strstr(o.err, "Section"));
    assert_string_equal(before, read_file(path));
    assert_int_equal(n_files(), 1);
    run("steps", words); /* there is room again, and less to write */
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    const char *after = written(name);
    assert_row(after, "\n step ", "10");
    assert_true(strlen(after) < strlen(before)); /* nothing of the longer one is left */
    free(before);
}

static void a_full_disk_leaves_the_older_report(void **state) {
    (void)state;
    if (getenv("GCOV_ERROR_FILE")) skip(); /* counts of lines are files too */
    char name[251];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    fill_the_disk("table.txt");
    fill_the_disk(name);
}

static void a_full_disk_ends_the_trace_alone(void **state) {
    (void)state;
    if (getenv("GCOV_ERROR_FILE")) skip(); /* counts of lines are files too */
    file_bytes_max = 4096;
    outcome o = run("nodes", "trace=trace.json,json=/dev/null,out=/dev/null");
    file_bytes_max = 0;
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.err, "cannot write the trace to trace.json: File too large"));
    assert_non_null(written("trace.json"));
}

static void a_reader_that_has_gone_ends_the_table_alone(void **state) {
    (void)state;
    no_reader = true;
    outcome o = run("plain", "json=data.json");
    no_reader = false;
    assert_int_equal(o.signal, 0);
    assert_int_equal(o.code, 0);
    cJSON_Delete(written_json("data.json"));
}

static void a_trace_never_becomes_the_standard_output(void **state) {
    (void)state;
    no_stdout = true;
    outcome o = run("eight threads", "trace=trace.json,out=/dev/null"); /* prints a number */
    no_stdout = false;
    assert_int_equal(o.code, 0);
    cJSON_Delete(written_json("trace.json"));
}

static void a_report_may_go_through_a_link(void **state) {
    (void)state;
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
    const char *text = written("target.txt");
    assert_row(text, "\n step ", "3");
    unlink(link);
}

static void the_bound_of_memory_holds_and_dropped_records_are_counted(void **state) {
    (void)state;
    outcome o = run("nodes", "buf=1M,out=table.txt");
    assert_int_equal(o.code, 0);
    const char *text = written("table.txt");
    int n = occurrences(text, "\n scope ");
    assert_in_range(n, 1000, 6000);
    const char *told = strstr(text, " scopes not recorded");
    assert_non_null(told);
    while (told[-1] != ' ') told--;
    assert_int_equal(atoi(told), 20000 - n);
    o = run("nodes", "out=table.txt");
    text = written("table.txt");
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
    const char *text = written("rank-7.txt");
    assert_row(text, "\n step ", "3");
    o = run("plain", "out=rank-%r.txt");
    text = written("rank-0.txt");
    setenv("RANK", "3/../x", 1); /* no number: nothing that a path could be made of */
    o = run("plain", "out=rank-%r.txt");
    unsetenv("RANK");
    assert_string_equal(o.err, "");
    text = written("rank-0.txt");
}

int main(int argc, char **argv) {
    if (!timed_run_init(argc, argv)) return 1;
    int failed = RUN_TESTS(
        TEST(reports_go_where_the_words_say),
        TEST(an_output_that_cannot_be_written_goes_to_stderr_with_the_reason),
        TEST(a_trace_that_lacks_events_is_told_of_with_the_word),
        TEST(the_trace_of_some_steps_has_the_measured_ones),
        TEST(files_are_where_the_program_was_started),
        TEST(only_the_last_report_goes_to_stderr_and_earlier_ones_say_why_once),
        TEST(steps_that_never_come_are_told_of), TEST(a_report_can_be_written_before_the_end),
        TEST(every_output_but_csv_and_stacks_has_the_notes),
        TEST(notes_that_exceed_the_bound_of_a_trace_are_left_out),
        TEST(reports_come_every_so_many_steps_and_at_exit),
        TEST(a_report_is_written_after_an_interval), TEST(a_signal_asks_for_a_report),
        TEST(a_signal_that_ends_the_program_ends_it_after_the_report),
        TEST(a_signal_interrupts_no_call_of_the_program),
        TEST(a_second_interrupt_does_not_wait_for_the_report),
        TEST(a_signal_during_the_last_report_waits_for_it), TEST(an_ignored_signal_ends_no_program),
        TEST(a_signal_ends_a_child_as_ever), TEST(a_full_disk_leaves_the_older_report),
        TEST(a_full_disk_ends_the_trace_alone), TEST(a_reader_that_has_gone_ends_the_table_alone),
        TEST(a_trace_never_becomes_the_standard_output), TEST(a_report_may_go_through_a_link),
        TEST(the_bound_of_memory_holds_and_dropped_records_are_counted),
        TEST(each_thread_has_a_table_when_asked), TEST(the_rank_of_the_process_may_be_in_a_name));
    timed_run_release();
    return failed;
}
