/* The timer's life: what the environment asks for at start-up, the report at exit. */
#include <errno.h>
#include <knet/prof.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "env.h"
#include "json.h"
#include "memory.h"
#include "nvtx.h"
#include "scope.h"
#include "table.h"

static kn__config config;
static bool report_at_exit; /* false again in a forked child */
static uint64_t start_ns;

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER; /* of kn_prof_owners_on */
static bool clock_started, observing;

static pthread_mutex_t steps_lock = PTHREAD_MUTEX_INITIALIZER; /* protects steps, last_step_ns */
static kn__steps steps = {.min_ns = UINT64_MAX};
static uint64_t last_step_ns;

static bool is_on(void) { return __atomic_load_n(&kn_prof_on_, __ATOMIC_RELAXED) != 0; }
static void turn_on(int which) { __atomic_or_fetch(&kn_prof_on_, which, __ATOMIC_RELAXED); }

static void say(kn__text *text) {
    if (text->length && kn__text_write(text, "-") < 0) text->length = 0; /* stderr is closed */
    kn__text_release(text);
}

/* The child has the parent's scopes, but one thread, and its report would be the parent's again. */
static void forget_in_child(void) {
    __atomic_store_n(&kn_prof_on_, 0, __ATOMIC_RELAXED);
    kn__memory_stop();
    report_at_exit = false;
}

static void start_clock(kn__clock_kind kind) {
    if (clock_started) return;
    clock_started = true;
    kn__clock_start(kind);
    if (kn__clock_used != KN__CLOCK_TSC) atomic_fetch_or(&kn__prof_extras, KN__PROF_SLOW_CLOCK);
    start_ns = kn__clock_monotonic_ns();
    pthread_atfork(NULL, NULL, forget_in_child);
}

/* ---- writing ---- */

static int terminal_width(const char *path) {
    if (config.width >= 0) return config.width;
    struct winsize size;
    if (strcmp(path, "-") != 0 || !isatty(STDERR_FILENO)) return 0;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

static void fill_steps(kn__report *report) {
    pthread_mutex_lock(&steps_lock);
    report->steps = steps;
    pthread_mutex_unlock(&steps_lock);
    if (!report->steps.n_timed) report->steps.min_ns = 0;
}

static bool is_json(const char *path) {
    size_t length = strlen(path);
    return length > 5 && strcmp(path + length - 5, ".json") == 0;
}

static kn_status write_report(const kn__report *report, const char *path, bool json) {
    kn__text text = {0};
    if (json) {
        kn__json_add(&text, report);
    } else {
        kn__table_options options = {.width = terminal_width(path),
                                     .depth = config.depth,
                                     .ascii = config.ascii,
                                     .columns_2018 = config.columns_2018,
                                     .bare = config.columns_2018};
        kn__table_add(&text, report, &options);
    }
    kn_status status = kn__text_write(&text, path);
    kn__text_release(&text);
    return status;
}

static kn_status take_report(kn__report *report) {
    if (kn__tree_mine) kn__memory_fold(kn__tree_mine);
    uint64_t wall_ns = kn__clock_monotonic_ns() - start_ns, now = kn__clock_now();
    KN_TRY(kn__report_take(report, now, kn__clock_tick_ns()));
    report->wall_ns = wall_ns;
    fill_steps(report);
    kn__report_sort(report, config.sort);
    return KN_OK;
}

kn_status kn_prof_report(const char *path) {
    if (!path) return KN_FAIL(KN_ERR_INVALID, "kn_prof_report: the path is NULL");
    if (!clock_started) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_prof_report: the timer is off; set KNET_TIMER=1");
    }
    kn__report report;
    kn_status status = take_report(&report);
    if (status >= 0) status = write_report(&report, path, is_json(path));
    kn__report_release(&report);
    return status;
}

/* ---- start and end ---- */

static kn_status observe(void) {
    KN_TRY(kn__memory_start(true));
    observing = true;
    atomic_fetch_or(&kn__prof_extras, KN__PROF_MEM);
    return KN_OK;
}

kn_status kn_prof_owners_on(void) {
    pthread_mutex_lock(&start_lock);
    kn_status status = KN_OK;
    start_clock(config.clock);
    if (!observing) status = observe();
    if (status >= 0) turn_on(KN_PROF_ALL_ | KN_PROF_GRAD_);
    pthread_mutex_unlock(&start_lock);
    return status;
}

static void start_tables(void) {
    kn_status status = config.memory ? observe() : kn__memory_start(false);
    if (status < 0) {
        kn__text text = {0};
        kn__text_printf(&text, "KNET_TIMER: no memory columns: %s\n", kn_last_error()->message);
        say(&text);
    }
    turn_on(config.grad_only ? KN_PROF_GRAD_ : KN_PROF_ALL_ | KN_PROF_GRAD_);
    report_at_exit = true;
}

__attribute__((constructor)) static void start(void) {
    kn__text messages = {0};
    kn__config_read(&config, getenv("KNET_TIMER"), getenv("AUTOGRAD_TIMER"), &messages);
    if (config.help) kn__config_help(&messages);
    say(&messages);
    bool listening = kn__nvtx_start();
    if (config.tier == KN__TIER_OFF && !listening) return;
    start_clock(config.clock);
    if (listening) {
        atomic_fetch_or(&kn__prof_extras, KN__PROF_NVTX);
        turn_on(KN_PROF_ALL_ | KN_PROF_GRAD_);
    }
    if (config.tier == KN__TIER_CPU) start_tables();
}

static void report_failure(kn_status status) {
    if (status >= 0 || status == KN_ERR_IO) return; /* an IO error has told its reason already */
    kn__text text = {0};
    kn__text_printf(&text, "KNET_TIMER: %s\n", kn_last_error()->message);
    say(&text);
}

__attribute__((destructor)) static void finish(void) {
    if (!report_at_exit) return;
    int error = errno;
    kn__report report;
    kn_status status = take_report(&report);
    if (status >= 0) {
        kn_status table = write_report(&report, config.out, false);
        kn_status json = config.json[0] ? write_report(&report, config.json, true) : KN_OK;
        status = table < 0 ? table : json;
    }
    report_failure(status);
    kn__report_release(&report);
    errno = error;
}

void kn_step(void) {
    if (!is_on()) return;
    uint64_t now = kn__clock_monotonic_ns();
    pthread_mutex_lock(&steps_lock);
    if (steps.n++) {
        uint64_t spent = now - last_step_ns;
        steps.n_timed++;
        steps.sum_ns += spent;
        if (spent < steps.min_ns) steps.min_ns = spent;
        if (spent > steps.max_ns) steps.max_ns = spent;
    }
    last_step_ns = now;
    pthread_mutex_unlock(&steps_lock);
}
