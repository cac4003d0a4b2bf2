/* The timer's life: what the environment asks for at start-up, the report at exit. */
#include <errno.h>
#include <knet/prof.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "activity.h"
#include "cancel.h"
#include "counter.h"
#include "cupti_source.h"
#include "env.h"
#include "export.h"
#include "file.h"
#include "hash.h"
#include "html.h"
#include "json.h"
#include "kept_stderr.h"
#include "labels.h"
#include "live.h"
#include "memory.h"
#include "metrics.h"
#include "nvtx.h"
#include "readout.h"
#include "recorder.h"
#include "run_info.h"
#include "scope.h"
#include "steps.h"
#include "table.h"
#include "take.h"
#include "timer_words.h"
#include "trace.h"
#include "user_locale.h"
#include "watch.h"

/* Here, because every scope reads it: a static library then links this file, and with it the start.
 */
int kn_prof_on_;

static kn__config config;
static atomic_bool report_at_exit; /* until it is written; false in a forked child */
static bool
    is_child; /* of a program under `knet run`: writes nothing without a scope or a counter */
static pid_t started_as;
static atomic_int finisher; /* thread that writes the report of the exit; 0: none yet */
static bool passed_on;      /* to the program of `knet run`: no report of this process */

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER; /* of kn_prof_owners_on */
static bool clock_started, observing;

static pthread_mutex_t report_lock = PTHREAD_MUTEX_INITIALIZER; /* one report at a time */

/* Time that was measured: all, or that of the steps that the words name. */
static pthread_mutex_t measured_lock = PTHREAD_MUTEX_INITIALIZER; /* protects the two below */
static uint64_t measured_ns, measured_since_ns;                   /* since 0: not now */

/* Scopes that are wanted, and why none are recorded for a while. */
enum { OUTSIDE_STEPS = 1, PAUSED = 2 };
static pthread_mutex_t switch_lock = PTHREAD_MUTEX_INITIALIZER; /* protects the two below */
static int wanted;
static unsigned off_because;

static void set_switch(void) {
    __atomic_store_n(&kn_prof_on_, off_because ? wanted & KN_PROF_STEPS_ : wanted,
                     __ATOMIC_RELAXED);
}

static void want(int which) {
    pthread_mutex_lock(&switch_lock);
    wanted |= which;
    set_switch();
    pthread_mutex_unlock(&switch_lock);
}

static void say(kn__text *text) {
    if (text->length && kn__text_write(text, "-") < 0) text->length = 0; /* stderr is closed */
    kn__text_release(text);
}

/* The child has the parent's scopes, but one thread, and its report would be the parent's again. */
static void forget_in_child(void) {
    atomic_store(&kn__forked, true);
    __atomic_store_n(&kn_prof_on_, 0, __ATOMIC_RELAXED);
    kn__memory_stop();
    kn__counters_follow(false);
    kn__trace_forget();
    kn__watch_forget();
    kn__live_forget();
    kn__stderr_forget();
    report_at_exit = false;
}

static void start_clock(kn__clock_kind kind) {
    if (clock_started) return;
    clock_started = true;
    kn__counters_follow(true);
    kn__clock_start(kind);
    if (kn__clock_used != KN__CLOCK_TSC) atomic_fetch_or(&kn__prof_extras, KN__PROF_SLOW_CLOCK);
    measured_since_ns = kn__clock_monotonic_ns();
    pthread_atfork(NULL, NULL, forget_in_child);
}

/* --- writing --- */

static uint64_t measured_so_far(void) {
    pthread_mutex_lock(&measured_lock);
    uint64_t since = measured_since_ns, ns = measured_ns;
    pthread_mutex_unlock(&measured_lock);
    return ns + (since ? kn__clock_monotonic_ns() - since : 0);
}

static int terminal_width(const char *path) {
    if (config.width >= 0) return config.width;
    struct winsize size;
    if (strcmp(path, "-") != 0 || !isatty(STDERR_FILENO)) return 0;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* What each thread did, or each group of threads that ran after one another. */
static void add_threads(kn__text *text, kn__table_options options) {
    uint64_t now = kn__clock_now();
    double tick_ns = kn__clock_tick_ns_least();
    int number = 0;
    options.bare = true;
    for (const kn__tree *tree = kn__tree_first(); tree; tree = tree->next) {
        kn__report report;
        number++;
        if (kn__report_take_tree(&report, tree, now, tick_ns) >= 0 && report.root.first) {
            kn__report_sort(&report, config.sort);
            report.wall_ns = measured_so_far();
            kn__text_printf(text, " thread %d\n", number);
            kn__table_add(text, &report, &options);
        }
        kn__report_release(&report);
    }
}

static void add_table(kn__text *text, const kn__report *report, const char *path) {
    kn__table_options options = {.width = terminal_width(path),
                                 .depth = config.depth,
                                 .top = config.top,
                                 .min = config.min,
                                 .ascii = config.ascii,
                                 .columns_2018 = config.columns_2018,
                                 .spread = config.columns_spread,
                                 .bare = config.columns_2018};
    kn__table_add(text, report, &options);
    if (config.by_thread) add_threads(text, options);
}

/* With the events, the objects of the profile and of the trace are one. */
static void add_json(kn__text *text, const kn__report *report, const char *path) {
    kn__text events = {0};
    kn__json_add(text, report);
    if (strcmp(path, config.json) == 0) kn__trace_take(&events);
    if (events.length && !events.failed && text->length > 2) {
        text->length -= 2; /* "}\n" */
        events.data[0] = ',';
        kn__text_puts(text, "\n");
        kn__text_add(text, events.data, events.length);
    }
    kn__text_release(&events);
}

static void add_csv(kn__text *text, const kn__report *report, const char *path) {
    (void)path;
    kn__csv_add(text, report);
}

static void add_folded(kn__text *text, const kn__report *report, const char *path) {
    (void)path;
    kn__folded_add(text, report, config.weight);
}

static void add_flame(kn__text *text, const kn__report *report, const char *path) {
    (void)path;
    kn__flame_add(text, report, config.weight);
}

static void add_html(kn__text *text, const kn__report *report, const char *path) {
    (void)path;
    kn__html_add(text, report);
}

static void add_metrics(kn__text *text, const kn__report *report, const char *path) {
    (void)path;
    kn__metrics_add(text, report);
}

/* The forms of a report: the file that the words name, and the end of a name that asks for it. */
typedef struct target {
    const char *file, *end;
    void (*add)(kn__text *text, const kn__report *report, const char *path);
} target;

static const target targets[] = {
    {config.out, "", add_table},           {config.json, ".json", add_json},
    {config.csv, ".csv", add_csv},         {config.folded, ".folded", add_folded},
    {config.flame, ".svg", add_flame},     {config.html, ".html", add_html},
    {config.metrics, ".prom", add_metrics}};
enum { N_TARGETS = sizeof targets / sizeof *targets };

static void say_failure(kn_status status);

typedef kn_status (*write_fn)(const kn__text *text, const char *path);

static kn_status write_report(kn__report *report, const char *path, const target *as,
                              write_fn write_text) {
    char full[KN__PATH_EXPANDED_BYTES];
    kn__text text = {0};
    if (as->add == add_html && !report->timeline) say_failure(kn__trace_shown(report));
    as->add(&text, report, path);
    if (path == as->file) path = kn__path_from_start(full, path);
    kn_status status = write_text(&text, path);
    kn__text_release(&text);
    return status;
}

/* By the end of the name; the table, if it says nothing. */
static const target *target_of(const char *path) {
    size_t length = strlen(path);
    for (int i = N_TARGETS - 1; i > 0; i--) {
        size_t n = strlen(targets[i].end);
        if (length > n && strcmp(path + length - n, targets[i].end) == 0) return &targets[i];
    }
    return &targets[0];
}

/* A report's memory is not the program's. */
static void lock_report(void) {
    kn__mute();
    pthread_mutex_lock(&report_lock);
}

static void unlock_report(void) {
    pthread_mutex_unlock(&report_lock);
    kn__unmute();
}

static kn_status take_report(kn__report *report) {
    uint64_t wall_ns = measured_so_far(), now = kn__clock_now();
    KN_TRY(kn__report_take(report, now, kn__clock_tick_ns_least()));
    report->wall_ns = wall_ns;
    kn__run_info_read(report, &config);
    kn__steps_read(&report->steps);
    kn__trace_skipped(&report->n_events_skipped, &report->n_events_unbuffered);
    report->has_memory = report->has_memory && config.memory; /* owners_on does not undo nomem */
    kn__report_sort(report, config.sort);
    return KN_OK;
}

/* Another thread of the parent may have held any of our locks at the fork. */
static kn_status child_can_not(const char *function) {
    return KN_FAIL(KN_ERR_UNSUPPORTED, "%s: the timer does not work in a child of fork()",
                   function);
}

kn_status kn__prof_with_report(const char *who, kn_status (*fn)(void *ctx, kn__report **report),
                               void *ctx) {
    if (atomic_load(&kn__forked)) return child_can_not(who);
    if (!clock_started) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "%s: the timer is off; set KNET_TIMER=1", who);
    }
    KN__CANCEL_LATER();
    lock_report();
    kn__report *report = malloc(sizeof *report);
    kn_status status = report ? take_report(report) : KN_FAIL(KN_ERR_OOM, "%s: no memory", who);
    if (status >= 0) status = fn(ctx, &report);
    if (report) kn__report_release(report);
    free(report);
    unlock_report();
    return status;
}

static kn_status report_write(void *ctx, kn__report **report) {
    return write_report(*report, ctx, target_of(ctx), kn__text_write);
}

kn_status kn_prof_report(const char *path) {
    if (!path || !*path) return KN_FAIL(KN_ERR_INVALID, "kn_prof_report: the path is empty");
    if (kn__trace_is_perfetto(path)) {
        return KN_FAIL(KN_ERR_UNSUPPORTED,
                       "kn_prof_report: %s is the name of a trace, which KNET_TIMER=trace=FILE "
                       "writes while the program runs",
                       path);
    }
    return kn__prof_with_report("kn_prof_report", report_write, (void *)(uintptr_t)path);
}

/* --- start and end --- */

static kn_status observe(void) {
    KN_TRY(kn__memory_start(true));
    observing = true;
    atomic_fetch_or(&kn__prof_extras, KN__PROF_MEM);
    return KN_OK;
}

/* Where a report comes at exit, KNET_TIMER's words have said which scopes are in it. */
kn_status kn_prof_owners_on(void) {
    if (atomic_load(&kn__forked)) return child_can_not("kn_prof_owners_on");
    pthread_mutex_lock(&start_lock);
    kn_status status = KN_OK;
    start_clock(config.clock);
    if (!observing) status = observe();
    if (status >= 0 && !report_at_exit) want(KN_PROF_ALL_ | KN_PROF_GRAD_);
    pthread_mutex_unlock(&start_lock);
    return status;
}

static void say_failure(kn_status status) {
    if (status >= 0) return;
    kn__text text = {0};
    kn__text_printf(&text, "KNET_TIMER: %s\n", kn_last_error()->message);
    say(&text);
}

static bool is_traced(void) { return config.trace[0] || (config.events && config.json[0]); }
static bool is_shown(void) { return config.timeline && config.html[0]; }

static void start_trace(void) {
    kn__trace_keep(config.trace_steps, config.trace_slow_ns);
    kn__trace_show(is_shown(), !is_traced());
    kn_status status = kn__trace_start(config.trace[0] ? config.trace : NULL, config.trace_max);
    if (status >= 0) atomic_fetch_or(&kn__prof_extras, KN__PROF_TRACE);
    say_failure(status);
}

/* Of a report that a later one follows: each reason once, until the file is written again. */
static void say_failure_once(kn_status status, int i) {
    static uint64_t reported[N_TARGETS]; /* hash of the reason; 0: none */
    uint64_t reason = status < 0 ? kn__hash_text(0, kn_last_error()->message) : 0;
    if (reason != reported[i]) say_failure(status);
    reported[i] = reason;
}

/* Every output that was asked for, whatever becomes of the others; returns the first failure of the
 * last report. */
static kn_status write_all_reports(kn__report *report, bool is_last) {
    write_fn write_text = is_last ? kn__text_write : kn__text_write_only;
    kn_status first = KN_OK;
    for (int i = 0; i < N_TARGETS; i++) {
        if (!targets[i].file[0]) continue; /* not asked for, or another process's */
        kn_status status = write_report(report, targets[i].file, &targets[i], write_text);
        if (!is_last) {
            say_failure_once(status, i);
        } else if (first >= 0) {
            first = status;
        }
    }
    return first;
}

static void make_report(bool is_last) {
    kn__report report;
    KN__CANCEL_LATER();
    lock_report();
    kn_status status = take_report(&report);
    if (status >= 0) status = write_all_reports(&report, is_last);
    if (status != KN_ERR_IO) say_failure(status); /* an IO error has told its reason already */
    kn__report_release(&report);
    unlock_report();
}

static void report_now(void) { make_report(false); }

static bool has_scopes(void) {
    const kn__tree *tree = kn__tree_first();
    while (tree && !KN__LOAD(tree->root.first_child)) tree = tree->next;
    return tree != NULL;
}

static void say_steps_missing(void) {
    uint64_t seen = kn__steps_seen();
    if (seen + 1 > config.first_step || config.first_step == 1 || has_scopes()) return;
    kn__text text = {0};
    kn__text_printf(&text,
                    "KNET_TIMER: nothing was measured: the program ended after %llu steps, before "
                    "step %llu\n",
                    (unsigned long long)seen, (unsigned long long)config.first_step);
    say(&text);
}

/* All that comes at exit. */
static void finish_now(void) {
    kn__activity_stop();
    say_failure(kn__recorder_finish());
    say_failure(kn__trace_finish());
    if (passed_on) return;
    say_steps_missing();
    make_report(true);
}

static int scopes_wanted(void) {
    return config.grad_only ? KN_PROF_GRAD_ : KN_PROF_ALL_ | KN_PROF_GRAD_;
}

/* Scopes that are open stay open; of the memory nothing is lost, it only has no owner. */
static void allow(bool on, unsigned reason) {
    KN__CANCEL_LATER();
    pthread_mutex_lock(&switch_lock);
    off_because = on ? off_because & ~reason : off_because | reason;
    on = !off_because;
    set_switch();
    pthread_mutex_lock(&measured_lock);
    uint64_t now = kn__clock_monotonic_ns(); /* under the lock: pauses come in order */
    if (measured_since_ns) measured_ns += now - measured_since_ns;
    measured_since_ns = on && clock_started ? now : 0;
    pthread_mutex_unlock(&measured_lock);
    kn__trace_pause(!on);
    kn__activity_pause(!on);
    pthread_mutex_unlock(&switch_lock);
}

/* Memory first, so that its questions to devices are no rows. */
static void measure(bool on) {
    if (on) kn__memory_measure(true);
    allow(on, OUTSIDE_STEPS);
    if (!on) kn__memory_measure(false);
}

void kn_prof_pause(void) {
    if (!atomic_load(&kn__forked)) allow(false, PAUSED);
}

void kn_prof_resume(void) {
    if (!atomic_load(&kn__forked)) allow(true, PAUSED);
}

static void start_steps(void) {
    kn__step_plan plan = {config.first_step, config.last_step, config.every_steps};
    kn__steps_start(&plan, measure, report_now);
    want(KN_PROF_STEPS_ | scopes_wanted());
    if (plan.first > 1 || plan.last) measure(plan.first == 1);
    if (config.every_ns || config.signal) {
        say_failure(kn__watch_start(config.every_ns, config.signal, report_now, finish_now));
    }
}

static void start_gpu(void) {
    kn__cupti_tier tier = config.tier == KN__TIER_GPU_LITE ? KN__CUPTI_GRAPHS
                          : config.tier == KN__TIER_FULL   ? KN__CUPTI_CALLS
                                                           : KN__CUPTI_KERNELS;
    kn__cupti_options options = {config.cupti, tier, config.memory, config.record};
    kn_status status = kn__activity_start(kn__cupti_source(&options));
    if (!is_child) say_failure(status);
}

static void add_live(kn__text *text) {
    kn__report report;
    lock_report();
    if (take_report(&report) >= 0) kn__json_add(text, &report);
    kn__report_release(&report);
    unlock_report();
}

static void start_live(void) { kn__live_start(add_live); }

/* Reports what fails to start and continues with the rest. */
static void start_tables(void) {
    say_failure(config.memory ? observe() : kn__memory_start(false));
    if (is_traced() || is_shown()) start_trace();
    start_steps();
    if (config.live && !getauxval(AT_SECURE)) kn__tree_on_first = start_live;
    kn__stderr_keep();
    report_at_exit = true;
}

void kn__timer_pass_on(void) { passed_on = true; }

/* `knet run` is another process than this one, which the program started. */
static bool is_child_of_run(void) {
    const char *run = getenv("KNET_RUN");
    return run && strtol(run, NULL, 10) != (long)getpid();
}

static void start_all(void) {
    started_as = getpid();
    kn__text messages = {0};
    kn__labels_start("kn_prof_on_", &kn_prof_on_);
    bool is_secure = getauxval(AT_SECURE);
    kn__config_read(&config, getenv("KNET_TIMER"), getenv("AUTOGRAD_TIMER"), is_secure, &messages);
    if (!config.unicode && !kn__locale_is_utf8()) config.ascii = true;
    is_child = is_child_of_run();
    if (is_child) kn__config_for_child(&config);
    if (config.help && !is_child) kn__config_help(&messages);
    if (is_child)
        kn__text_release(&messages); /* the first process has said it */
    else
        say(&messages);
    kn__budget_set(config.buffer_bytes);
    if (config.tier != KN__TIER_OFF) start_clock(config.clock);
    if (config.tier >= KN__TIER_GPU_LITE) start_gpu();
    /* After CUPTI: 13.0 crashes when it comes second. It loads the library that the environment
     * names, which the caller of a setuid program chooses. */
    bool listening = !is_secure && kn__nvtx_start();
    if (config.tier == KN__TIER_OFF && !listening) return;
    start_clock(config.clock);
    if (listening) {
        atomic_fetch_or(&kn__prof_extras, KN__PROF_NVTX);
        want(KN_PROF_ALL_ | KN_PROF_GRAD_);
    }
    if (config.tier >= KN__TIER_CPU) start_tables();
}

__attribute__((constructor)) static void start(void) {
    kn__start_remember();
    kn__mute();
    start_all();
    kn__unmute();
}

/* By exit() in a signal handler that has interrupted an allocation. */
static void leave_out_stuck_memory(void) {
    kn__text text = {0};
    if (!observing || kn__memory_at_rest()) return;
    kn__memory_stop();
    kn__text_puts(&text,
                  "KNET_TIMER: the report is without memory: the program ended inside an "
                  "allocation, as when a signal handler exits\n");
    say(&text);
}

static void leave_out_stuck_trace(void) {
    kn__text text = {0};
    kn__steps_leave();
    if (!kn__trace_leave()) return;
    kn__text_puts(&text,
                  "KNET_TIMER: the trace lacks its end: the program ended while it wrote "
                  "events, as when a signal handler exits\n");
    say(&text);
}

/* Of a process that ends: what follows is not timed, nor are children that other threads fork from
 * here on, whose forget_in_child is unregistered. */
static void stop_for_good(void) {
    __atomic_store_n(&kn_prof_on_, 0, __ATOMIC_RELAXED);
    kn__memory_stop();
    report_at_exit = false;
}

/* The first process may be a shell whose program has all the scopes. */
static void say_left_out(void) {
    if (!config.left_out[0]) return;
    kn__text text = {0};
    kn__text_printf(&text,
                    "KNET_TIMER: %s is of the first process alone, without process %ld (%s); put "
                    "%%p into the name for a file of each\n",
                    config.left_out, (long)getpid(), program_invocation_short_name);
    say(&text);
}

static void finish_report(void) {
    if (!report_at_exit) return;
    kn__mute(); /* for good */
    kn__stderr_reopen();
    leave_out_stuck_memory();
    leave_out_stuck_trace();
    kn__live_stop();
    kn__watch_stop();
    if (is_child && kn__tree_threads() == 0 && !kn__counters_exist()) {
        kn__activity_stop();
        return;
    }
    say_left_out();
    finish_now();
    kn__watch_finish();
}

/* Two threads may end the process at once: the second, which would end it before the report is
 * written, waits. Under `knet run` an alarm limits that. */
__attribute__((destructor)) static void finish(void) {
    int first = 0, self = gettid();
    if (atomic_compare_exchange_strong(&finisher, &first, self)) {
        finish_report();
        stop_for_good();
    } else if (first != self && getpid() == started_as) {
        while (atomic_load(&report_at_exit)) usleep(1000);
    }
}

bool kn_prof_exits_(void) {
    return atomic_load(&report_at_exit) && getpid() == started_as &&
           atomic_load(&finisher) != gettid();
}

void kn_prof_exit_(void) {
    if (kn_prof_exits_()) finish();
}
