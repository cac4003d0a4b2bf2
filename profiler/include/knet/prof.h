/* The timer: scopes in any C or C++ program, one table at exit.
 *
 *     {
 *         KN_SCOPE("load batch");            // closed on every way out of the block
 *         read_batch(file, &batch);
 *     }
 *     kn_step();                             // one iteration done
 *
 * Run with KNET_TIMER=1 to get the table on stderr at exit, KNET_TIMER=help for the rest of its
 * words; AUTOGRAD_TIMER=1 gives the table of forward and backward operations alone. Unset, a scope
 * costs one predictable branch; compiled with KN_NO_SCOPES defined, nothing. One tree a thread,
 * merged by path in reports. Scopes that a thread leaves open when it ends are closed at that
 * moment.
 *
 * Units: reports are in nanoseconds and bytes. Errors: scopes and steps have none; a scope that
 * finds no memory, or is more than 200 deep, or one of more than 100,000 paths, is not recorded,
 * and the report says how many there were. Threads: a scope belongs to its thread; everything else
 * may be called from any thread. A child made by fork() is not timed.
 */
#ifndef KNET_PROF_H
#define KNET_PROF_H

#include <knet/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One opening of a scope, on the thread that opened it; {0}: it is not recorded. */
typedef struct kn_scope {
    uint64_t start; /* in ticks of the timer's clock, whose length only the timer knows */
} kn_scope;

/* Not for users: which scopes are recorded (KN_PROF_…). */
extern KN_API int kn_prof_on_;
enum { KN_PROF_ALL_ = 1, KN_PROF_GRAD_ = 2, KN_PROF_STEPS_ = 4 };
#if defined(__GNUC__) && !defined(__clang__)
#define KN_PROF_API_ KN_API __attribute__((noplt)) /* called often: without the detour of a PLT */
#else
#define KN_PROF_API_ KN_API
#endif
KN_PROF_API_ kn_scope kn_scope_begin_on_(const char *label);
KN_PROF_API_ kn_scope kn_scope_begin_static_on_(const char *label);
KN_PROF_API_ kn_scope kn_scope_begin_block_on_(const char *label);
KN_PROF_API_ void kn_scope_end_on_(kn_scope *scope);

static inline bool kn_prof_is_on_(int which) {
#ifdef KN_NO_SCOPES /* defined before this header: scopes of this file are compiled to nothing */
    (void)which;
    return false;
#else
    return __builtin_expect(__atomic_load_n(&kn_prof_on_, __ATOMIC_RELAXED) & which, 0) != 0;
#endif
}

/* Opens a scope inside the innermost one of this thread. The label may be any string, but not NULL;
 * it is copied at first sight. */
static inline kn_scope kn_scope_begin(const char *label) {
    kn_scope off = {0};
    return kn_prof_is_on_(KN_PROF_ALL_) ? kn_scope_begin_on_(label) : off;
}

/* The same for a label whose bytes never change while the process lives, or while the library that
 * they are in is loaded, such as a literal: compared by address alone where that can't deceive. */
static inline kn_scope kn_scope_begin_static(const char *label) {
    kn_scope off = {0};
    return kn_prof_is_on_(KN_PROF_ALL_) ? kn_scope_begin_static_on_(label) : off;
}

/* For an autograd: the scope of a forward operation ("conv"), of its derivative by the i-th
 * argument ("conv[1]"), "record" or "sum_outgrads". AUTOGRAD_TIMER=1 records these alone,
 * KNET_TIMER=1 these among the others. The label as for kn_scope_begin_static. */
static inline kn_scope kn_scope_begin_grad(const char *label) {
    kn_scope off = {0};
    return kn_prof_is_on_(KN_PROF_GRAD_) ? kn_scope_begin_static_on_(label) : off;
}

/* Closes the scope and all scopes opened inside it. Closing it again changes nothing. */
static inline void kn_scope_end(kn_scope *scope) {
#ifdef KN_NO_SCOPES
    (void)scope;
#else
    if (__builtin_expect(scope->start != 0, 0)) kn_scope_end_on_(scope);
#endif
}

/* Marks the end of one iteration; the report says how many there were and how long one took. */
KN_API void kn_step(void);

/* Records nothing until kn_prof_resume: scopes cost as little as with the timer off, GPU work
 * launched meanwhile is not counted, and the report's total time excludes the pause. An open scope
 * stays open and its time includes the pause; kn_step still counts; memory allocated meanwhile
 * belongs to the open scope. With CUPTI 13.1 update 1 or later its records are switched off too;
 * those of older ones cost what they did and are ignored. Not counted: one resume ends any number
 * of pauses. Nothing happens in a child of fork(). */
KN_API void kn_prof_pause(void);
KN_API void kn_prof_resume(void);

/* Writes the report now, as KNET_TIMER's words say; "-" is stderr, "%p" in a path the process id,
 * and its end says the form: .json, .csv, .folded (stacks), .svg (flame graph), else the table.
 * Scopes that are open count up to now. The report at exit comes all the same. Errors: IO, naming
 * the path; the report is then written to stderr, never lost. UNSUPPORTED when the timer is off,
 * and in a child of fork(). */
KN_API KN_MUST_CHECK kn_status kn_prof_report(const char *path);

/* Records scopes and who owns each block of memory, with no report at exit: for a program that
 * wants the owners named in out-of-memory errors and snapshots. Blocks allocated before have no
 * owner. Nothing to do when KNET_TIMER asked for memory already; where a report comes at exit, only
 * the scopes it asked for are recorded. Errors: INVALID when another observer is attached to the
 * allocator; UNSUPPORTED in a child of fork(). */
KN_API KN_MUST_CHECK kn_status kn_prof_owners_on(void);

#define KN_CAT_(a, b) a##b
#define KN_CAT(a, b) KN_CAT_(a, b)
/* gcc, clang, nvcc; C and C++ */
#define KN_AT_EXIT(end, type) __attribute__((unused, cleanup(end))) type KN_CAT(kn_at_, __COUNTER__)
/* Not for users: the same, for KN_SCOPE alone. */
static inline kn_scope kn_scope_begin_block_(const char *label) {
    kn_scope off = {0};
    return kn_prof_is_on_(KN_PROF_ALL_) ? kn_scope_begin_block_on_(label) : off;
}

/* A scope until the end of the block; a declaration: put it before any goto of its block. Takes a
 * literal. One that longjmp leaves open is closed when the same block is entered again. */
#define KN_SCOPE(label) KN_AT_EXIT(kn_scope_end, kn_scope) = kn_scope_begin_block_("" label "")

#ifdef __cplusplus
}
#endif
#endif
