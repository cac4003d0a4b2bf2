/* The search for the smallest device on which a trace completes. */
#include "replay_policy.h"

/* Halves [low, high] until one size is left; `high` completes. */
static kn_status bisect(uint64_t *fits, uint64_t low, uint64_t high, kn__completes_fn completes,
                        void *ctx) {
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        bool done;
        KN_TRY(completes(ctx, &done, middle));
        if (done) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    *fits = high;
    return KN_OK;
}

/* Tries the size found and the next larger ones. A failure moves the result above it. */
static kn_status confirm(uint64_t *fits, uint64_t high, kn__completes_fn completes, void *ctx) {
    int n_in_a_row = 0;
    for (uint64_t at = *fits; at <= high && n_in_a_row < KN__FITS_IN_A_ROW; at++) {
        bool done;
        KN_TRY(completes(ctx, &done, at));
        n_in_a_row = done ? n_in_a_row + 1 : 0;
        if (!done) *fits = at + 1;
    }
    if (*fits > high) *fits = 0;
    return KN_OK;
}

kn_status kn__fits_search(uint64_t *fits, uint64_t low, uint64_t high, kn__completes_fn completes,
                          void *ctx) {
    bool done = false;
    *fits = 0;
    if (low <= high) KN_TRY(completes(ctx, &done, high));
    if (!done) return KN_OK;
    KN_TRY(bisect(fits, low, high, completes, ctx));
    return confirm(fits, high, completes, ctx);
}
