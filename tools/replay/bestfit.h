/* Exact best fit, lowest address first, in one range of addresses that grows at its end by 2 MiB
 * and never shrinks: the reference for pools. It has no lock and calls no device; addresses are
 * offsets from the start of the range.
 *
 * A run is a part of the range, free or taken, and has a number. Free runs are kept in lists, such
 * as one for each stream; free neighbours in the same list are merged.
 */
#ifndef KN_BESTFIT_H
#define KN_BESTFIT_H

#include <knet/status.h>

enum { KN__RUN_NONE = 0, KN__BESTFIT_BINS = 16 * 48 };

typedef struct kn__run {
    uint64_t at, size; /* bytes, multiples of 512 */
    uint32_t left, right;
    uint32_t next, prev, bin; /* of a free run: in its bin */
    uint16_t list;
    bool is_free;
} kn__run;

typedef struct kn__bestfit {
    uint64_t bytes_max, end; /* of the range: limit and size */
    kn__run *runs;
    uint32_t n_runs, room, spare, last; /* `spare` heads the unused records */
    uint32_t n_lists;
    uint32_t *bins; /* KN__BESTFIT_BINS for each list */
    uint64_t *full; /* a bit for each bin that is not empty */
} kn__bestfit;

KN_MUST_CHECK kn_status kn__bestfit_init(kn__bestfit *b, uint32_t n_lists);
void kn__bestfit_release(kn__bestfit *b);
/* Empties the range and lets it grow to bytes_max. */
void kn__bestfit_reset(kn__bestfit *b, uint64_t bytes_max);

/* Takes the smallest run of `list` that holds `size` and adds the remainder to list `rest`. *out is
 * KN__RUN_NONE if no run is large enough. Errors: OOM, of the host. */
KN_MUST_CHECK kn_status kn__bestfit_take(uint32_t *out, kn__bestfit *b, uint32_t list,
                                         uint32_t rest, uint64_t size);
/* Lengthens the range so that it ends in a free run of `size` or more, in the list. Errors: OOM. */
KN_MUST_CHECK kn_status kn__bestfit_grow(kn__bestfit *b, uint32_t list, uint64_t size);
/* Frees a run into the list. */
void kn__bestfit_free(kn__bestfit *b, uint32_t run, uint32_t list);

static inline uint64_t kn__bestfit_round(uint64_t size) { return (size + 511) / 512 * 512; }

#endif
