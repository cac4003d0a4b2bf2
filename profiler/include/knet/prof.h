/* The timer: scopes in any C or C++ program, one table at exit.
 *
 *     { KN_SCOPE("load batch"); read_batch(file, &batch); }   // closed on every way out of the
 * block kn_step();                                              // one iteration done
 *
 * Run with KNET_TIMER=1 to get the table on stderr at exit, KNET_TIMER=help for the rest of its
 * words. Unset, a scope costs one predictable branch. One tree a thread, merged by path in reports.
 * Scopes that a thread leaves open when it ends are closed at that moment. Threads: a scope belongs
 * to its thread; everything else may be called from any thread.
 */
#ifndef KNET_PROF_H
#define KNET_PROF_H

#include <knet/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A mark on the thread's stack of scopes; {0, 0} when the timer is off. */
typedef struct kn_scope {
    uint32_t depth, serial;
} kn_scope;

/* Not for users: whether scopes are recorded. */
extern KN_API int kn_prof_on_;
KN_API kn_scope kn_scope_begin_on_(const char *label);
KN_API kn_scope kn_scope_begin_static_on_(const char *label);
KN_API void kn_scope_end_on_(kn_scope *scope);

/* Opens a scope. The label may be any string; it is copied at first sight. */
static inline kn_scope kn_scope_begin(const char *label) {
    kn_scope off = {0, 0};
    return __builtin_expect(kn_prof_on_, 0) ? kn_scope_begin_on_(label) : off;
}

/* The same for a label whose bytes never change while the process lives, such as a literal:
 * compared by address first. */
static inline kn_scope kn_scope_begin_static(const char *label) {
    kn_scope off = {0, 0};
    return __builtin_expect(kn_prof_on_, 0) ? kn_scope_begin_static_on_(label) : off;
}

/* Closes the scope and all opened inside it that are still open. Closing twice is nothing. */
static inline void kn_scope_end(kn_scope *scope) {
    if (__builtin_expect(scope->serial != 0, 0)) kn_scope_end_on_(scope);
}

/* Marks the end of one iteration. */
KN_API void kn_step(void);

/* Writes the report now, as KNET_TIMER's words say; "-" is stderr, "*.json" the JSON form. Errors:
 * IO, naming the path; the report is then written to stderr, never lost. UNSUPPORTED when the timer
 * is off. */
KN_API KN_MUST_CHECK kn_status kn_prof_report(const char *path);

#define KN_CAT_(a, b) a##b
#define KN_CAT(a, b) KN_CAT_(a, b)
/* gcc, clang, nvcc; C and C++ */
#define KN_AT_EXIT(end, type) __attribute__((unused, cleanup(end))) type KN_CAT(kn_at_, __COUNTER__)
/* A scope until the end of the block; a declaration: put it before any goto of its block. Takes a
 * literal. */
#define KN_SCOPE(label) KN_AT_EXIT(kn_scope_end, kn_scope) = kn_scope_begin_static("" label "")

#ifdef __cplusplus
}
#endif
#endif
