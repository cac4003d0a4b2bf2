#include <knet/status.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "cancel.h"
#include "checked.h"
#include "device/registry.h"
#include "device/thread.h"

/* Apart from the thread's state, so that a failure stays pending where no memory can be had. */
static _Thread_local kn_status pending __attribute__((tls_model("initial-exec")));

static const kn_error no_error = {.status = KN_OK};
static const kn_error lost_error = {
    .status = KN_ERR_OOM,
    .message = "an error was lost: no host memory to keep its message",
};
static _Thread_local bool lost __attribute__((tls_model("initial-exec")));

const char *kn_status_text(kn_status status) {
    switch (status) {
#define X(name, value, text)                                                                       \
    case name:                                                                                     \
        return text;
        KN_STATUS_LIST(X)
#undef X
    }
    return "unknown status";
}

/* is_place: no call around this one gives another. */
static void record(const char *file, int line, bool is_place, kn_status status, const char *fmt,
                   va_list args) {
    kn__thread *self = kn__thread_get();
    lost = !self;
    if (!self) return;
    kn_error *error = &self->error;
    char message[sizeof error->message]; /* the arguments may point into the last message */
    vsnprintf(message, sizeof message, fmt, args);
    *error = (kn_error){.status = status, .line = line, .file = file};
    __builtin_memcpy(error->message, message, sizeof message);
    self->error_has_site = is_place;
}

const kn_error *kn_last_error(void) {
    if (lost) return &lost_error;
    return kn__self ? &kn__self->error : &no_error;
}

kn_status kn_pending(void) { return pending; }

kn_status kn_check(void) {
    kn_status status = pending;
    pending = KN_OK;
    return status;
}

/* The bodies of functions that differ in is_place. */
#define FAIL(is_place)                                                                             \
    KN_ASSERT(status < 0);                                                                         \
    va_list args;                                                                                  \
    va_start(args, fmt);                                                                           \
    record(file, line, is_place, status, fmt, args);                                               \
    va_end(args)

kn_status kn_fail_at(const char *file, int line, kn_status status, const char *fmt, ...) {
    FAIL(true);
    return status;
}

kn_status kn_fail_within_at(const char *file, int line, kn_status status, const char *fmt, ...) {
    FAIL(false);
    return status;
}

void *kn_fail_null_at(const char *file, int line, kn_status status, const char *fmt, ...) {
    if (pending) return NULL;
    FAIL(true);
    pending = status;
    return NULL;
}

void *kn_fail_null_within_at(const char *file, int line, kn_status status, const char *fmt, ...) {
    if (pending) return NULL;
    FAIL(false);
    pending = status;
    return NULL;
}

void *kn_error_defer(kn_status status) {
    if (!pending && status < 0) pending = status;
    return NULL;
}

void kn_error_op(const char *op) {
    if (kn__self && !kn__self->error.op) kn__self->error.op = op;
}

void kn_error_site(const char *file, int line) {
    if (!kn__self || kn__self->error_has_site) return;
    kn__self->error.file = file;
    kn__self->error.line = line;
    kn__self->error_has_site = true;
}

kn_status kn_located_status(kn_status status, const char *file, int line) {
    if (status < 0) kn_error_site(file, line);
    return status;
}

void *kn_located_as(const void *object, const char *file, int line) {
    if (!object && pending) kn_error_site(file, line);
    return (void *)(uintptr_t)object;
}

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER; /* function and context are a pair */
static kn_log_fn log_callback;
static void *log_ctx;

void kn__log_fork_child(void) { log_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; }

void kn_log_attach(kn_log_fn log_fn, void *ctx) {
    pthread_mutex_lock(&log_lock);
    log_callback = log_fn;
    log_ctx = ctx;
    pthread_mutex_unlock(&log_lock);
}

bool kn_log_try_attach(kn_log_fn log_fn, void *ctx) {
    pthread_mutex_lock(&log_lock);
    bool free = !log_callback;
    if (free) {
        log_callback = log_fn;
        log_ctx = ctx;
    }
    pthread_mutex_unlock(&log_lock);
    return free;
}

void kn_log_write(int level, const char *fmt, ...) {
    pthread_mutex_lock(&log_lock);
    kn_log_fn log_fn = log_callback;
    void *ctx = log_ctx;
    pthread_mutex_unlock(&log_lock);
    if (!log_fn) return;
    char text[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    KN__CANCEL_LATER(); /* the caller may hold locks */
    log_fn(ctx, level, text);
}
