/* Status codes, errors and the log: what every library of Knet.c reports failure with.
 *
 * Functions that can fail return kn_status: KN_OK or a negative code. Functions that return an
 * object return NULL and leave the error *pending* on the calling thread; while one is pending, ops
 * do nothing and return NULL, and the next status function that computes returns it. Returning it,
 * like kn_check(), *takes* it. The text stays readable in kn_last_error() until the thread's next
 * failure.
 *
 *     kn_tensor *y = kn_relu(kn_linear(x, w, b)); // NULL if either failed
 *     KN_TRY(kn_check());                         // the first error: its op, shapes and line
 */
#ifndef KNET_STATUS_H
#define KNET_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exports a function from a shared library. */
#define KN_API __attribute__((visibility("default")))
/* Warns if a caller ignores the result. */
#define KN_MUST_CHECK __attribute__((warn_unused_result))
/* Checks arguments against a format, as for printf. */
#define KN_PRINTF(fmt_arg, first) __attribute__((format(printf, fmt_arg, first)))

#ifdef __cplusplus
extern "C" {
#endif

/* One list of codes: X(name, value, text). Values never change; new codes are appended. */
#define KN_STATUS_LIST(X)                                                                          \
    X(KN_OK, 0, "ok")                                                                              \
    X(KN_ERR_INVALID, -1, "invalid argument")                                                      \
    X(KN_ERR_SHAPE, -2, "shapes do not fit")                                                       \
    X(KN_ERR_DTYPE, -3, "dtypes do not fit")                                                       \
    X(KN_ERR_DEVICE, -4, "device missing or devices do not fit")                                   \
    X(KN_ERR_OOM, -5, "out of memory")                                                             \
    X(KN_ERR_UNSUPPORTED, -6, "not supported")                                                     \
    X(KN_ERR_IO, -7, "input or output failed")                                                     \
    X(KN_ERR_FORMAT, -8, "malformed data")                                                         \
    X(KN_ERR_CUDA, -9, "a CUDA library failed")                                                    \
    X(KN_ERR_INTERNAL, -10, "internal error")                                                      \
    X(KN_ERR_PEER, -11, "another rank failed or left")

/* Success, or the kind of an error. */
typedef enum kn_status {
#define X(name, value, text) name = (value),
    KN_STATUS_LIST(X)
#undef X
} kn_status;

/* An error as a value: copy it to hand it to another thread. */
typedef struct kn_error {
    kn_status status;   /* KN_OK: no error */
    int line;           /* call site; 0 when unknown */
    const char *file;   /* call site, static storage; NULL when unknown */
    const char *op;     /* name of the op that failed, static storage; NULL if it was no op */
    char message[2048]; /* the reason, with the values */
} kn_error;

/* The text of a status code, never NULL. */
KN_API const char *kn_status_text(kn_status status);

/* Returns this thread's last error, borrowed until the thread's next failure. Never NULL; its
 * status is KN_OK if nothing has failed. */
KN_API const kn_error *kn_last_error(void);

/* Returns this thread's pending error and clears it; KN_OK if nothing is pending. */
KN_API KN_MUST_CHECK kn_status kn_check(void);

/* Returns this thread's pending error and keeps it pending; KN_OK if nothing is pending. */
KN_API kn_status kn_pending(void);

/* Records an error and returns its status; for functions that return a status. `status` must be
 * negative. */
KN_API kn_status kn_fail_at(const char *file, int line, kn_status status, const char *fmt, ...)
    KN_PRINTF(4, 5);

/* Records an error, makes it pending and returns NULL; for functions that return an object. An
 * error that is pending already stays: the first failure explains the later ones. */
KN_API void *kn_fail_null_at(const char *file, int line, kn_status status, const char *fmt, ...)
    KN_PRINTF(4, 5);

/* The same, for libraries: the place is only kept where no call around them gives one. */
KN_API kn_status kn_fail_within_at(const char *file, int line, kn_status status, const char *fmt,
                                   ...) KN_PRINTF(4, 5);
KN_API void *kn_fail_null_within_at(const char *file, int line, kn_status status, const char *fmt,
                                    ...) KN_PRINTF(4, 5);

/* For op implementers: adds the op's name to this thread's last error, unless it has one. */
KN_API void kn_error_op(const char *op);

/* For op implementers: makes the thread's last error, which a status function has just returned,
 * pending. Returns NULL. */
KN_API void *kn_error_defer(kn_status status);

/* For op implementers: gives the pending error a call site, unless it has one from an inner call.
 */
KN_API void kn_error_site(const char *file, int line);

/* The log callback: one for the process. level: 0 error, 1 warning, 2 information. Any thread may
 * call it; it must not call into Knet.c. */
typedef void (*kn_log_fn)(void *ctx, int level, const char *text);
/* Attaches the callback; NULL detaches it. Libraries never print: without a callback they drop the
 * messages. */
KN_API void kn_log_attach(kn_log_fn log_fn, void *ctx);
/* The same if no callback is attached; else returns false and changes nothing. */
KN_API bool kn_log_try_attach(kn_log_fn log_fn, void *ctx);

/* For library code: formats one line and passes it to the log callback. */
KN_API void kn_log_write(int level, const char *fmt, ...) KN_PRINTF(2, 3);

/* An error at this place. With KN_NO_CALL_SITES, see below, the place is that of the call around
 * it.
 */
#ifdef KN_NO_CALL_SITES
#define KN_FAIL(...) kn_fail_within_at(__FILE__, __LINE__, __VA_ARGS__)
#define KN_FAIL_NULL(...) kn_fail_null_within_at(__FILE__, __LINE__, __VA_ARGS__)
#else
#define KN_FAIL(...) kn_fail_at(__FILE__, __LINE__, __VA_ARGS__)
#define KN_FAIL_NULL(...) kn_fail_null_at(__FILE__, __LINE__, __VA_ARGS__)
#endif

/* Returns from the function if expr is an error. */
#define KN_TRY(expr)                                                                               \
    do {                                                                                           \
        kn_status kn_s_ = (expr);                                                                  \
        if (kn_s_ < 0) return kn_s_;                                                               \
    } while (0)

/* Assigns expr to status and jumps to the label cleanup if it is an error. */
#define KN_TRY_GOTO(status, expr)                                                                  \
    do {                                                                                           \
        (status) = (expr);                                                                         \
        if ((status) < 0) goto cleanup;                                                            \
    } while (0)

/* For options: "not this feature", where zero means "default". */
#define KN_OFF (-1)

/* The place of a call: KN_LOCATED… hand a call's result on, and give the error of a failed one its
 * file and line, unless it has a place from inside. The files in knet/sites make macros of their
 * names of the functions of ops, autograd, comm and train that return a status, a tensor or a
 * layer. A library on top of Knet.c whose errors shall have the places of its own callers defines
 * KN_NO_CALL_SITES in its sources, before the headers, and in its header does the same:
 *     #define my_step(...) KN_LOCATED_STATUS((my_step)(__VA_ARGS__))
 * Of a call through a pointer to a function the place is not known. */
#ifdef KN_NO_CALL_SITES
#define KN_LOCATED_STATUS(call) call
#define KN_LOCATED_AS(type, call) call
#define KN_LOCATED(call) call
#else
/* of a call that returns a kn_status; a pointer to a type; a tensor, which notes where it was made
 */
#define KN_LOCATED_STATUS(call) kn_located_status(call, __FILE__, __LINE__)
#define KN_LOCATED_AS(type, call) KN_LOCATED_AS_(type, call)
#define KN_LOCATED(call) kn_located(call, __FILE__, __LINE__)
#endif
/* Not for users. */
KN_API KN_MUST_CHECK kn_status kn_located_status(kn_status status, const char *file, int line);
KN_API void *kn_located_as(const void *object, const char *file, int line);
#ifdef __cplusplus
extern "C++" {
template <class T>
inline T *kn_located_as_(T *object, const char *file, int line) {
    kn_located_as(object, file, line);
    return object;
}
}
#define KN_LOCATED_AS_(type, call) kn_located_as_(call, __FILE__, __LINE__)
#else
#define KN_LOCATED_AS_(type, call) ((type *)kn_located_as(call, __FILE__, __LINE__))
#endif

#ifdef __cplusplus
}
#endif
#endif
