/* The timer's scopes as numbers: by path, all of them, or one row for each label.
 *
 *     kn_prof_row row;
 *     KN_TRY(kn_prof_read(&row, sizeof row, "train/forward/conv"));
 *     printf("%llu calls, %llu ns\n", (unsigned long long)row.n_calls, …);
 *     KN_TRY(kn_prof_reset());                       // the next read counts from here
 *
 * A row sums up all threads; an open scope counts up to now. Each call makes a report, which takes
 * milliseconds for thousands of rows. Errors: UNSUPPORTED where the timer is off, and in a child of
 * fork(). Threads: any.
 */
#ifndef KNET_PROF_READ_H
#define KNET_PROF_READ_H

#include <knet/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A scope. Amounts include the scopes inside, but for own_ns and those of flattened rows; they
 * count from the last kn_prof_reset on. */
typedef struct kn_prof_row {
    /* "train/forward/conv"; valid until the callback returns, of kn_prof_read while its argument is
     */
    const char *path;
    int depth;                                   /* 1 for the top level, and for flattened rows */
    uint64_t n_calls;                            /* open ones too */
    uint64_t time_ns;                            /* wall time */
    uint64_t own_ns;                             /* without the scopes inside */
    uint64_t gpu_ns;                             /* of kernels and copies, with KNET_TIMER=gpu */
    uint64_t n_allocs, alloc_bytes, freed_bytes; /* through pools */
    int64_t held_bytes;                          /* of its blocks, live now; not since the reset */
} kn_prof_row;

/* The row of a path: the scope's if there is a range of it too. out_bytes: sizeof *out. Errors:
 * INVALID if no such scope was opened, and for NULL. */
KN_API KN_MUST_CHECK kn_status kn_prof_read(kn_prof_row *out, size_t out_bytes, const char *path);
/* Returns true to continue with the next row. */
typedef bool (*kn_prof_visit_fn)(void *ctx, const kn_prof_row *row);
/* Calls fn for each row, parents first, in the order of first sight. */
KN_API KN_MUST_CHECK kn_status kn_prof_visit(kn_prof_visit_fn fn, void *ctx);
/* The same for one row of each label, with the own amounts of all scopes of that label. */
KN_API KN_MUST_CHECK kn_status kn_prof_visit_flat(kn_prof_visit_fn fn, void *ctx);
/* The functions above count from here on. The report at exit still has everything. */
KN_API KN_MUST_CHECK kn_status kn_prof_reset(void);

/* The scopes that this thread has open, "train/forward/conv", cut to out_bytes; "" if none is
 * recorded. *open_ns, unless NULL: how long the innermost one has been open. Fast: it makes no
 * report. Returns out. */
KN_API char *kn_prof_open_path(char *out, size_t out_bytes, uint64_t *open_ns);
/* A scope that is open. */
typedef struct kn_prof_open {
    const char *label; /* valid until the process ends */
    uint64_t start;    /* another number at each opening */
} kn_prof_open;
/* The scopes that this thread has open: fills out[0 … n_max - 1], the outermost first, and returns
 * how many are open. */
KN_API int kn_prof_open_scopes(kn_prof_open *out, int n_max);

#ifdef __cplusplus
}
#endif
#endif
