/* The page of `knet replay --html`: the addresses of blocks over time, for each trace and policy.
 * One file that loads nothing, of at most 1 MiB. */
#ifndef KN_REPLAY_PAGE_H
#define KN_REPLAY_PAGE_H

#include "replay.h"
#include "text.h"

typedef struct kn__replay_page {
    kn__text plays; /* of the page's data */
    int plays_max;  /* that it will have; they share its bytes */
    int n_plays;
} kn__replay_page;

/* `places` has a record for each block; the order of the blocks is lost. The blocks that take the
 * most bytes for the longest are drawn, as many as the page holds. */
void kn__replay_page_add(kn__replay_page *page, const char *file, const kn__trace *trace,
                         const kn__played *played, kn__block_life *places, double driver_us);
/* False after a message. */
bool kn__replay_page_write(const kn__replay_page *page, const char *path);
void kn__replay_page_release(kn__replay_page *page);

#endif
