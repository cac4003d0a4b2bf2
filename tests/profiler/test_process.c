/* The timer in whole programs: their output, and no other change. */
#include <time.h>

#include "main_end.h"
#include "test.h"
#include "timed_run.h"

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
    o = run("exit in visitor", "1"); /* of kn_prof_visit */
    assert_int_equal(o.code, 6);
    assert_row(o.err, "\n outer ", "1");
}

static void scopes_of_a_thread_that_ended_are_in_the_table(void **state) {
    (void)state;
    outcome o = run("thread", "1");
    assert_int_equal(o.code, 0);
    assert_row(o.err, "\n open in thread ", "1");
    assert_row(o.err, "\n   inner ", "1");
}

/* None of the timer's threads keeps the process. */
static void main_may_end_by_pthread_exit(void **state) {
    (void)state;
    static const char *const words[] = {"1", "nolive", "nolive,every=1h", "nolive,signal=USR1",
                                        "nolive,trace=trace.json"};
    for (int i = 0; i < 5; i++) {
        outcome o = run("end main", words[i]);
        if (o.signal) fail_msg("KNET_TIMER=%s: signal %d", words[i], o.signal);
        assert_int_equal(o.code, 0);
        assert_row(o.err, "\n main ", "1");
        assert_row(o.err, "\n after main ", "1");
    }
    assert_int_equal(occurrences(written("trace.json"), "\"name\":\"after main\""), 1);
}

/* The initial thread has no arguments and no files then. */
static void a_report_after_main_has_the_command_and_comes_to_stdout(void **state) {
    (void)state;
    static const char *const words[] = {"out=/dev/stdout,json=data.json",
                                        "out=/dev/fd/1,json=data.json"};
    for (int i = 0; i < 2; i++) {
        outcome o = run("end main", words[i]);
        assert_string_equal(o.err, "");
        assert_row(o.out, "\n after main ", "1");
        cJSON *json = written_json("data.json");
        const cJSON *command = cJSON_GetObjectItem(cJSON_GetObjectItem(json, "run"), "command");
        assert_true(cJSON_IsString(command) && strstr(command->valuestring, " end main"));
        cJSON_Delete(json);
    }
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
    assert_non_null(strstr(o.err, "at the high-water mark of 3.00 MiB:\n  3.00MiB  allocating\n"));
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

static void only_the_steps_asked_for_are_measured(void **state) {
    (void)state;
    outcome o = run("steps", "steps=4-6,trace=trace.json");
    assert_int_equal(o.code, 0);
    assert_row(o.err, "\n step ", "3");
    assert_row(o.err, "\n   half ", "3");
    assert_non_null(strstr(o.err, ", 3 steps of "));
    const char *text = written("trace.json");
    assert_int_equal(occurrences(text, "\"name\":\"half\""), 3);
    assert_row(run("steps", "skip=9").err, "\n step ", "1");
    assert_row(run("steps", "skip=0").err, "\n step ", "10");
    assert_row(run("steps", "steps=10").err, "\n step ", "1");
}

static void high_water_marks_are_of_the_steps_asked_for(void **state) {
    (void)state;
    static const struct {
        const char *words, *mark, *owners;
    } cases[] = {{"1", "high-water mark 4.00 MiB live", "4.00 MiB:\n  3.00MiB  step\n"},
                 {"steps=4-6", "high-water mark 1.06 MiB live", "1.06 MiB:\n  1.00MiB  (outside"},
                 {"steps=6-7", "high-water mark 1.00 MiB live", "1.00 MiB:\n  1.00MiB  (outside"},
                 {"steps=1-2", "high-water mark 4.00 MiB live", "4.00 MiB:\n  3.00MiB  step\n"},
                 {"skip=3", "high-water mark 4.00 MiB live", "4.00 MiB:\n  3.00MiB  step\n"},
                 {"steps=3-9", "high-water mark 1.06 MiB live", "1.06 MiB:\n  1.00MiB  (outside"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        outcome o = run("steps of memory", cases[i].words);
        assert_int_equal(o.code, 0);
        assert_non_null(strstr(o.err, cases[i].mark));
        assert_non_null(strstr(o.err, cases[i].owners));
        if (i == 1) assert_non_null(strstr(o.err, " 128KiB / 100%")); /* allocated in these steps */
    }
}

static void a_trace_has_the_last_or_the_slow_steps(void **state) {
    (void)state;
    static const struct {
        const char *words;
        int n;
    } cases[] = {{"trace=trace.json,trace_last=3", 3},
                 {"trace=trace.json,trace_slow=1us", 9}, /* the first one's time is unknown */
                 {"trace=trace.json,trace_slow=1us,trace_last=2", 10},
                 {"trace=trace.json,trace_slow=1h", 0}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(run("steps", cases[i].words).code, 0);
        assert_int_equal(occurrences(written("trace.json"), "\"name\":\"half\""), cases[i].n);
    }
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
    cJSON *json = written_json("data.json");
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
    assert_non_null(strstr(o.err, " no scope was opened\n"));
    assert_int_equal(occurrences(o.err, "Section"), 0);
}

static void small_rows_are_summed_up_and_sole_children_joined(void **state) {
    (void)state;
    outcome o = run("exit", "min=0.1,ascii");
    assert_row(o.err, "\n outer > inner ", "1");
    o = run("nodes", "min=100%");
    assert_row(o.err, "\n (20000 below 100 %) ", "20.0k");
    o = run("nodes", "top=3");
    assert_row(o.err, "\n (19997 more) ", "20.0k");
    assert_int_equal(occurrences(o.err, "\n scope "), 3);
}

static void autograd_timer_shows_gradient_scopes_alone(void **state) {
    (void)state;
    outcome o = run_with("plain", NULL, "1");
    assert_row(o.err, "\n conv[1] ", "3");
    assert_null(strstr(o.err, "forward"));
    o = run_with("plain", "1", "1");
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
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    o = run("pause", "1,json=pause.json");
    clock_gettime(CLOCK_MONOTONIC, &end);
    const char *text = written("pause.json");
    cJSON *json = cJSON_Parse(text);
    const cJSON *all = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "scopes"), 0);
    double all_ns = cJSON_GetObjectItem(all, "time_ns")->valuedouble;
    assert_true(all_ns >= 50e6); /* the open scope counts the pause of 50 ms, the total does not */
    double outside_ns =
        1e9 * (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec);
    assert_true(cJSON_GetObjectItem(json, "wall_ns")->valuedouble + 50e6 <= outside_ns);
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
    assert_non_null(strstr(o.err, "3.00MiB  allocating"));
}

static void owners_go_with_every_word(void **state) {
    (void)state;
    outcome o = run("owners", "1,nomem");
    assert_int_equal(o.code, 0);
    assert_row(o.err, "\n allocating ", "1");
    assert_null(strstr(o.err, "MiB")); /* as the words say */
    o = run_with("owners", NULL, "1");
    assert_int_equal(o.code, 0);
    assert_non_null(strstr(o.err, " no scope was opened\n"));
    assert_null(strstr(o.err, "\n allocating ")); /* it is no gradient scope */
}

static void a_forked_child_can_have_no_report(void **state) {
    (void)state;
    outcome o = run("fork report", "1");
    assert_int_equal(o.code, 7);
    assert_int_equal(occurrences(o.err, " no scope was opened\n"), 1);
}

static void the_mark_of_a_pool_is_its_own(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) {
        outcome o = run("eight threads", "json=data.json,out=/dev/null");
        assert_int_equal(o.code, 0);
        cJSON *json = written_json("data.json");
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
    cJSON *json = written_json("held.json");
    const cJSON *parallel = nth(json, "scopes", 0);
    assert_string_equal(cJSON_GetObjectItem(parallel, "label")->valuestring, "parallel");
    assert_true(number(parallel, "peak_bytes") == 320 << 20);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(parallel, "peak_exact")));
    cJSON_Delete(json);
}

/* On the fast path, which opens no scope for the first time. */
static void a_row_counts_threads_that_take_turns(void **state) {
    (void)state;
    assert_int_equal(run("turns", "nomem,json=data.json,out=/dev/null").code, 0);
    cJSON *json = written_json("data.json");
    const cJSON *turn = nth(json, "scopes", 0), *row;
    assert_string_equal(cJSON_GetObjectItem(turn, "label")->valuestring, "turn");
    assert_true(number(turn, "n_threads") == 3);
    int n = 0;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(turn, "children")) { /* by time, which varies */
        bool is_last = !strcmp(cJSON_GetObjectItem(row, "label")->valuestring, "of the last");
        assert_true(number(row, "n_threads") == (is_last ? 1 : 3));
        assert_true(number(row, "n_calls") == (is_last ? 1 : 9));
        n += is_last ? 1 : 2;
    }
    assert_int_equal(n, 3);
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

static char **plugin_programs; /* main's arguments: of plug-ins, and a program without the timer */

static void with_timer(const void *ctx) {
    set_variable("KNET_TIMER", ctx);
    set_variable("AUTOGRAD_TIMER", NULL);
}

/* They were there before the timer, yet don't stay. */
static void labels_of_plugins_that_bring_the_timer_stay_their_own(void **state) {
    (void)state;
    for (int is_global = 0; is_global < 2; is_global++) {
        static outcome o;
        const char *argv[] = {plugin_programs[4], plugin_programs[2], plugin_programs[3],
                              plugin_programs[2], NULL},
                   *global[] = {argv[0], "global", argv[1], argv[2], argv[3], NULL};
        run_child(&o, is_global ? global : argv, with_timer, "min=0");
        assert_int_equal(o.code, 0);
        assert_row(o.err, "\n alpha ", "6");
        assert_row(o.err, "\n gamma ", "3");
    }
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

/* The path that an earlier recursion made is there when the abandoned block is entered again. */
static void recursions_left_by_longjmp_do_not_nest(void **state) {
    (void)state;
    for (int memory = 0; memory < 2; memory++) {
        outcome o = run("jump from recursion", memory ? "1" : "nomem");
        assert_int_equal(o.code, 0);
        assert_int_equal(occurrences(o.err, "recursion "), 4);
        assert_row(o.err, "\n recursion ", "101");
        assert_row(o.err, "\n   recursion ", "81");
        assert_row(o.err, "\n     recursion ", "61");
        assert_row(o.err, "\n       recursion ", "41");
        assert_row(o.err, "\n behind ", "1");
    }
}

static void plugins_left_by_longjmp_do_not_nest(void **state) {
    (void)state;
    outcome o = run("jump from plugin", "1");
    assert_int_equal(o.code, 0);
    assert_int_equal(occurrences(o.err, "alpha"), 1);
    assert_row(o.err, "\n alpha ", "1.00k");
    assert_row(o.err, "\n behind ", "1");
}

/* As programs of coreutils do in a handler of atexit. */
static void a_program_that_closes_its_stderr_has_its_table(void **state) {
    (void)state;
    assert_row(run("closed stderr", "1").err, "\n step ", "3");
    outcome o = run("closed files", "1");
    assert_string_equal(o.err, "");
    assert_string_equal(written("data"), ""); /* the number of the timer's file is the program's */
}

static void without_a_stderr_no_table_enters_a_file_of_the_program(void **state) {
    (void)state;
    no_stderr = true;
    outcome o = run("daemon", "1"); /* its first file has the number */
    no_stderr = false;
    assert_int_equal(o.code, 3);
    assert_string_equal(written("data"), "");
}

static void a_trace_never_enters_a_file_of_the_program(void **state) {
    (void)state;
    static const struct {
        const char *words, *message;
    } traces[] = {{"trace=trace.json", "cannot write the trace to trace.json: Bad file descr"},
                  {"trace=trace.json,trace_last=3", "cannot write the trace to trace.json: Bad"},
                  {"json=data.json,events", "cannot write the trace to memory: Bad file descr"}};
    for (size_t i = 0; i < sizeof traces / sizeof *traces; i++) {
        outcome o = run("daemon", traces[i].words);
        assert_int_equal(o.code, 0);
        assert_row(o.err, "\n step ", "3");
        assert_non_null(strstr(o.err, traces[i].message));
        assert_string_equal(written("data"), "");
        if (i < 2) assert_non_null(written("trace.json"));
    }
    cJSON *json = written_json("data.json");
    assert_non_null(row_at(json, "step/forward"));
    cJSON_Delete(json);
}

/* Who reads the stderr of a program doesn't wait for the daemon that it leaves behind. */
static void a_forked_child_has_no_other_stderr(void **state) {
    (void)state;
    assert_int_equal(run("fork and count", "1").code, 1);
    assert_int_equal(run("fork and count", NULL).code, 0);
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
    if (!timed_run_init(argc, argv) || argc < 5) return 1;
    plugin_programs = argv;
    int failed = RUN_TESTS(
        TEST(without_the_variable_nothing_is_printed), TEST(one_prints_the_table_at_exit),
        TEST(exit_inside_a_scope_keeps_the_code_and_the_table),
        TEST(scopes_of_a_thread_that_ended_are_in_the_table),
        TEST_MAIN_END(main_may_end_by_pthread_exit),
        TEST_MAIN_END(a_report_after_main_has_the_command_and_comes_to_stdout),
        TEST(threads_may_run_on_while_the_table_is_printed), TEST(a_forked_child_prints_nothing),
        TEST(memory_columns_show_the_allocations_of_a_scope),
        TEST(a_row_counts_threads_that_take_turns),
        TEST(a_wrong_word_is_reported_and_the_program_continues), TEST(help_prints_the_grammar),
        TEST(only_the_steps_asked_for_are_measured),
        TEST(high_water_marks_are_of_the_steps_asked_for),
        TEST(a_trace_has_the_last_or_the_slow_steps),
        TEST(a_resume_does_not_bring_other_steps_back), TEST(the_first_step_has_no_time),
        TEST(steps_that_never_ran_are_reported),
        TEST(small_rows_are_summed_up_and_sole_children_joined),
        TEST(autograd_timer_shows_gradient_scopes_alone), TEST(a_pause_is_not_measured),
        TEST(owners_without_the_variable_print_no_report), TEST(owners_go_with_every_word),
        TEST(a_forked_child_can_have_no_report), TEST(the_mark_of_a_pool_is_its_own),
        TEST(a_scope_shows_the_memory_of_its_threads),
        TEST(labels_of_unloaded_plugins_stay_their_own),
        TEST(labels_of_plugins_that_bring_the_timer_stay_their_own),
        TEST(scopes_left_by_longjmp_do_not_nest), TEST(recursions_left_by_longjmp_do_not_nest),
        TEST(plugins_left_by_longjmp_do_not_nest),
        TEST(a_program_that_closes_its_stderr_has_its_table),
        TEST(without_a_stderr_no_table_enters_a_file_of_the_program),
        TEST(a_trace_never_enters_a_file_of_the_program), TEST(a_forked_child_has_no_other_stderr),
        TEST(both_clocks_work));
    timed_run_release();
    return failed;
}
