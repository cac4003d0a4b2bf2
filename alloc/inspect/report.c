/* What KNET_ALLOC asks for: begun when the library is loaded, written when a pool is destroyed,
 * when memory runs out and at exit. */
#include <knet/stacks.h>
#include <knet/trace.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "at_rest.h"
#include "device/registry.h"
#include "file.h"
#include "inspect/census.h"
#include "inspect/config.h"
#include "pool/pools.h"

static kn__alloc_config config;
static pid_t reader; /* a child of fork() reports failed allocations alone */
static pthread_mutex_t files = PTHREAD_MUTEX_INITIALIZER; /* reports are written one by one */
static bool stats_begun, snapshot_begun, oom_begun, trace_begun;

const kn_pool_options *kn__inspect_options(void) { return &config.pool; }

/* An error's message and names around it. */
KN_PRINTF(1, 2) static void say(const char *fmt, ...) {
    char text[sizeof((kn_error *)0)->message + 256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    (void)kn__stderr_write(text, strlen(text));
}

void kn__inspect_options_misfit(const kn_device *device, const kn_error *why, const char *lost) {
    say("KNET_ALLOC: %s; the pool of %s has no %s\n", why->message, kn_device_name(device), lost);
}

static void say_failure(kn_status status) {
    if (status < 0) say("KNET_ALLOC: %s\n", kn_last_error()->message);
}

static void fork_child(void) { files = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; }

__attribute__((constructor)) static void start(void) {
    char text[8192], path[1024];
    kn__writer messages = kn__writer_of(text, sizeof text);
    kn__start_remember();
    /* Not in a setuid program, whose files its user must not choose. */
    kn__alloc_config_read(&config, secure_getenv("KNET_ALLOC"), &messages);
    reader = getpid();
    pthread_atfork(NULL, NULL, fork_child);
    if (config.help) kn__alloc_config_help(&messages);
    (void)kn__stderr_write(messages.text.data, messages.text.length);
    if (config.stacks) say_failure(kn_stacks_begin(NULL));
    if (!config.trace[0]) return;
    if (kn__path_expand(path, sizeof path, config.trace)) {
        kn_status status = kn_trace_begin(path, NULL);
        trace_begun = status == KN_OK;
        say_failure(status);
    } else {
        say("KNET_ALLOC: trace: the path is too long\n");
    }
}

/* The first report replaces the file of another run, the others are appended to it. */
static void report(kn_pool *pool, const char *path, bool *begun, const char *name,
                   kn_status (*write_fn)(kn_pool *, const char *, bool, const char *)) {
    char full[KN__PATH_EXPANDED_BYTES];
    pthread_mutex_lock(&files);
    kn_status status = write_fn(pool, kn__path_from_start(full, path), *begun, name);
    if (status == KN_OK) *begun = true;
    say_failure(status);
    pthread_mutex_unlock(&files);
}

static bool can_be_read(const kn_pool *pool) {
    if (kn__pool_at_rest(pool)) return true;
    say("KNET_ALLOC: no report of pool %s: the program ended inside a call of it, as when a signal "
        "handler exits\n",
        pool->name);
    return false;
}

/* The pool is destroyed or the process ends. */
static void report_pool(kn_pool *pool, bool at_exit) {
    if ((!config.stats[0] && !config.snapshot[0]) || getpid() != reader) return;
    if (at_exit && !can_be_read(pool)) return;
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, pool);
    if (!stats.n_allocs && !stats.n_ooms) return; /* it was never used */
    if (config.stats[0]) report(pool, config.stats, &stats_begun, "stats", kn__pool_print);
    if (config.snapshot[0] && at_exit) {
        report(pool, config.snapshot, &snapshot_begun, "snapshot", kn__pool_snapshot);
    }
}

/* There may be no host memory: the longest text fits. */
static kn_status write_oom(kn_pool *pool, const char *path, bool append, const char *function) {
    static kn__oom oom;
    static char text[32 << 10];
    kn__writer w = kn__writer_of(text, sizeof text);
    w.json = true;
    kn__oom_read(&oom, pool);
    kn__oom_write(&w, NULL, pool, &oom);
    return kn__writer_save(&w, path, append, function);
}

/* The report is of the pool's last failed allocation, if the thread has had such an error since its
 * last report. When threads fail at once, two may report the later failure. */
void kn__inspect_oom_report(kn_pool *pool) {
    bool due = kn__oom_due;
    kn__oom_due = false;
    if (!due || !config.oom[0]) return;
    kn_error error = *kn_last_error(); /* what the program is to see, should the file fail */
    report(pool, config.oom, &oom_begun, "out of memory", write_oom);
    if (error.status < 0)
        kn_fail_within_at(error.file, error.line, error.status, "%s", error.message);
}

enum { LIVE_TAGS_SHOWN = 16 };

static void log_live(kn_pool *pool) {
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, pool);
    if (!stats.live_bytes) return;
    kn_log_write(1, "kn_pool_destroy: pool %s: %llu bytes are still live", pool->name,
                 (unsigned long long)stats.live_bytes);
    kn_tag_stats tags[LIVE_TAGS_SHOWN];
    size_t n = kn_pool_tags(tags, LIVE_TAGS_SHOWN, pool);
    for (size_t i = 0; i < n && i < LIVE_TAGS_SHOWN && tags[i].live_bytes; i++) {
        kn_log_write(1, "kn_pool_destroy: pool %s: of these, %llu are of the tag '%s'", pool->name,
                     (unsigned long long)tags[i].live_bytes, tags[i].name);
    }
}

void kn__inspect_destroy(kn_pool *pool) {
    log_live(pool);
    report_pool(pool, false);
}

static void report_at_exit(void *ctx, kn_pool *pool) {
    (void)ctx;
    report_pool(pool, true);
}

/* The trace ends here, whoever began it: in later destructors its handlers of forks are gone, and
 * a lock that was taken for a fork of another thread would stay so. */
__attribute__((destructor)) static void finish(void) {
    kn_status status = kn_trace_end();
    if (trace_begun)
        say_failure(status);
    else if (status < 0)
        kn_log_write(0, "%s", kn_last_error()->message);
    if (!config.stats[0] && !config.snapshot[0]) return;
    kn__registry_lock();
    kn__pools_visit(report_at_exit, NULL);
    kn__registry_unlock();
}
