/* What the environment asks for: begun when the library is loaded, written when a pool goes, when
 * memory runs out and at exit. */
#include <knet/trace.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "census.h"
#include "config.h"
#include "observe.h"

static kn__alloc_config config;
static pid_t reader; /* a child of fork() reports nothing: its parent does */
static atomic_bool stats_begun, snapshot_begun, oom_begun;

const kn__alloc_config *kn__alloc_config_get(void) { return &config; }

static void to_stderr(const char *text) {
    size_t left = strlen(text);
    while (left) {
        ssize_t n = write(STDERR_FILENO, text, left);
        if (n <= 0) return;
        text += n;
        left -= (size_t)n;
    }
}

void kn__config_say(const char *fmt, ...) {
    char text[2400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    to_stderr(text);
}

static void say_failure(kn_status status) {
    if (status < 0) kn__config_say("KNET_ALLOC: %s\n", kn_last_error()->message);
}

__attribute__((constructor)) static void start(void) {
    char text[8192];
    kn__writer messages = kn__writer_of(text, sizeof text);
    kn__alloc_config_read(&config, getenv("KNET_ALLOC"), &messages);
    reader = getpid();
    if (config.help) kn__alloc_config_help(&messages);
    to_stderr(text);
    if (!config.trace[0]) return;
    char path[1024];
    say_failure(kn__path_expand(path, sizeof path, config.trace) ? kn_trace_begin(path, NULL)
                                                                 : KN_ERR_IO);
}

void kn__config_report(kn_pool *pool, bool at_exit) {
    if (!config.stats[0] && !config.snapshot[0]) return;
    if (getpid() != reader) return;
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, pool);
    if (!stats.n_allocs && !stats.n_ooms) return; /* it was never used */
    if (config.stats[0]) {
        bool append = atomic_exchange(&stats_begun, true);
        say_failure(kn__pool_print(pool, config.stats, append, "stats"));
    }
    if (config.snapshot[0] && at_exit) {
        bool append = atomic_exchange(&snapshot_begun, true);
        say_failure(kn__pool_snapshot(pool, config.snapshot, append, "snapshot"));
    }
}

void kn__config_report_oom(kn_pool *pool) {
    static const char function[] = "out of memory";
    if (!config.oom[0]) return;
    char buffer[KN__WRITER_BYTES];
    kn__writer w;
    bool append = atomic_exchange(&oom_begun, true);
    kn_status status = kn__writer_open(&w, config.oom, append, function, buffer, sizeof buffer);
    if (status == KN_OK) {
        kn__oom_write_json(&w, pool, pool->last_oom);
        kn__write_text(&w, "\n");
        status = kn__writer_close(&w, config.oom, function);
    }
    say_failure(status);
}

static void report_at_exit(void *ctx, kn_pool *pool) {
    (void)ctx;
    kn__config_report(pool, true);
}

__attribute__((destructor)) static void finish(void) {
    if (!config.stats[0] && !config.snapshot[0]) return;
    kn__registry_lock();
    kn__pools_visit(report_at_exit, NULL);
    kn__registry_unlock();
}
