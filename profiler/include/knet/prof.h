/* The timer: scopes in any C or C++ program, one table at exit.
 *
 *     {
 *         KN_SCOPE("load batch");            // closed on every way out of the block
 *         read_batch(file, &batch);
 *     }
 *     kn_step();                             // one iteration done
 *
 * Run with KNET_TIMER=1 to get the table on stderr at exit, with KNET_TIMER=help for the list of
 * words, or with AUTOGRAD_TIMER=1 for the table of forward and backward operations alone. With the
 * variable unset a scope costs one predictable branch; with KN_NO_SCOPES defined, no instruction.
 * Each thread has its own tree; reports merge the trees by path. Scopes that are open when a thread
 * ends are closed then.
 *
 * Units: reports are in nanoseconds and bytes. Errors: scopes and steps have none; a scope for
 * which there is no memory, a scope deeper than 200, and paths beyond the first 100,000 are not
 * recorded, and the report counts them. Threads: a scope belongs to its thread; any thread may call
 * the other functions. A child made by fork() is not timed.
 */
#ifndef KNET_PROF_H
#define KNET_PROF_H

#include <knet/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One opening of a scope, on the thread that opened it; {0}: it is not recorded. */
typedef struct kn_scope {
    uint64_t start; /* not for users: ticks of the timer's clock */
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
KN_PROF_API_ kn_scope kn_scope_begin_here_on_(const char *label_where);
KN_PROF_API_ kn_scope kn_scope_begin_copied_on_(const char *label_where);
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
 * the timer copies it at its first use. */
static inline kn_scope kn_scope_begin(const char *label) {
    kn_scope off = {0};
    return kn_prof_is_on_(KN_PROF_ALL_) ? kn_scope_begin_on_(label) : off;
}

/* The same for a label whose bytes never change while the process lives, or while the library that
 * contains them is loaded, such as a literal. Faster: the timer compares addresses where it can. */
static inline kn_scope kn_scope_begin_static(const char *label) {
    kn_scope off = {0};
    return kn_prof_is_on_(KN_PROF_ALL_) ? kn_scope_begin_static_on_(label) : off;
}

/* For an autograd: the scope of a forward operation ("conv"), of its derivative by the i-th
 * argument ("conv[1]"), "record" or "sum_outgrads". AUTOGRAD_TIMER=1 records these alone,
 * KNET_TIMER=1 these and all others. The label as for kn_scope_begin_static. */
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

/* Marks the end of one iteration. The report counts the iterations and gives the time of one. */
KN_API void kn_step(void);

/* Pauses the timer until kn_prof_resume. During the pause scopes cost as little as with the timer
 * off, GPU work is not counted, and the report's total time excludes the pause. An open scope stays
 * open and its time includes the pause; kn_step still counts; allocations belong to the open scope.
 * CUPTI 13.1 update 1 or later stops recording too; older versions keep recording, and the timer
 * ignores their records. Pauses don't nest: one resume ends any number of them. No-op in a child of
 * fork(). */
KN_API void kn_prof_pause(void);
KN_API void kn_prof_resume(void);

/* Writes the report now, with the options of KNET_TIMER. "-" is stderr; "%p" in a path is replaced
 * by the process id, "%r" by the rank, "%%" by a percent sign. The path's suffix selects the
 * format: .json, .csv, .folded (stacks), .svg (flame graph), .html (a page for a browser), .prom
 * (Prometheus text), else the table. Open scopes count up to now. The report at exit is still
 * written. Errors: INVALID for a path that is NULL or empty; IO, with the path, after which the
 * report goes to stderr; UNSUPPORTED if the timer is off, in a child of fork(), and for .pftrace,
 * which is a trace. */
KN_API KN_MUST_CHECK kn_status kn_prof_report(const char *path);

/* Adds "key=value" to what reports say of the run: a commit, a data set, an option. Ops note their
 * math mode as "math", loaders "batch". Notes are the line "run:" of the table (unless
 * "math=strict" is the only one), "notes" of "run" in JSON and HTML, labels "note_KEY" of
 * knet_run_info in metrics (in KEY "__2D" is the byte 0x2d, which a label's name can't have), the
 * title of a flame graph, and labels of the process in traces, written at their end if trace_max=
 * leaves room. CSV, folded stacks and tables of columns=2018 have no place for them. knet diff
 * warns about runs that differ there. A second value of a key replaces the first; NULL removes it.
 * The texts are copied. May be called from any thread, with the timer off too. Errors: INVALID for
 * a key that is NULL, empty, longer than 31 bytes or has '=', ',' or a control character in it, for
 * a value longer than 127 bytes, and for a 17th key. */
KN_API KN_MUST_CHECK kn_status kn_prof_note(const char *key, const char *value);

/* Records scopes and the owner of each block of memory, without a report at exit, so that
 * out-of-memory errors and snapshots name the owners. Blocks allocated before have no owner. No-op
 * if KNET_TIMER records memory already; if a report is written at exit, only its scopes are
 * recorded. Errors: INVALID if another observer is attached to the allocator; UNSUPPORTED in a
 * child of fork(). */
KN_API KN_MUST_CHECK kn_status kn_prof_owners_on(void);

/* Not for users: of a process that ends without destructors. Writes the report of the exit, once,
 * or waits for the thread that writes it; no-op on that thread, and in a child of fork() or
 * vfork(). kn_prof_exits_: whether it would write or wait. */
KN_API void kn_prof_exit_(void);
KN_API bool kn_prof_exits_(void);

/* Not for users: joins two words. */
#define KN_CAT_(a, b) a##b
#define KN_CAT(a, b) KN_CAT_(a, b)
/* A variable whose destructor is `end`, in C and in C++ (gcc, clang, nvcc). */
#define KN_AT_EXIT(end, type) __attribute__((unused, cleanup(end))) type KN_CAT(kn_at_, __COUNTER__)
/* Not for users: the same, for KN_SCOPE alone; the place in the source follows the label's zero
 * byte.
 */
static inline kn_scope kn_scope_begin_here_(const char *label_where) {
    kn_scope off = {0};
    return kn_prof_is_on_(KN_PROF_ALL_) ? kn_scope_begin_here_on_(label_where) : off;
}
#ifdef __FILE_NAME__
#define KN_FILE_ __FILE_NAME__
#else
#define KN_FILE_ __FILE__
#endif
#define KN_TEXT_(x) #x
#define KN_TEXT_OF_(x) KN_TEXT_(x)

/* A scope until the end of the block, however the block is left. The label is a literal. It is a
 * declaration: put it before any goto of its block. A scope that longjmp leaves open is closed when
 * the same block is entered again. Traces show its file and line. */
#define KN_SCOPE(label)                                                                            \
    KN_AT_EXIT(kn_scope_end, kn_scope) =                                                           \
        kn_scope_begin_here_("" label "\0" KN_FILE_ ":" KN_TEXT_OF_(__LINE__))

#ifdef __cplusplus
}
#endif
#endif
