#include <knet/status.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A thread's error state lives on the heap, behind one pointer of thread-local storage. */
typedef struct error_state {
    kn_error last;
    bool pending;
    bool has_site; /* the call site was given by the user's own call, not by library code */
} error_state;

static _Thread_local bool
    pending_flag; /* a copy of state->pending that needs no allocation to read */
static _Thread_local error_state state;

static void record(const char *file, int line, kn_status status, const char *fmt, va_list args) {
    state.last.status = status;
    state.last.file = file;
    state.last.line = line;
    state.last.op = NULL;
    state.has_site = false;
    vsnprintf(state.last.message, sizeof state.last.message, fmt, args);
}

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

const kn_error *kn_last_error(void) { return &state.last; }

kn_status kn_pending(void) { return pending_flag ? state.last.status : KN_OK; }

kn_status kn_check(void) {
    kn_status status = kn_pending();
    pending_flag = false;
    return status;
}

kn_status kn_fail_at(const char *file, int line, kn_status status, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    record(file, line, status, fmt, args);
    va_end(args);
    return status;
}

void *kn_fail_null_at(const char *file, int line, kn_status status, const char *fmt, ...) {
    if (pending_flag) return NULL;
    va_list args;
    va_start(args, fmt);
    record(file, line, status, fmt, args);
    va_end(args);
    pending_flag = true;
    return NULL;
}

void kn_error_op(const char *op) {
    if (!state.last.op) state.last.op = op;
}

void *kn_error_defer(kn_status status) {
    (void)status;
    pending_flag = true;
    return NULL;
}

void kn_error_site(const char *file, int line) {
    if (state.has_site) return;
    state.last.file = file;
    state.last.line = line;
    state.has_site = true;
}
