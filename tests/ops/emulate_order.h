/* In which order the emulated GPU (emulate.h) runs threads and blocks. A kernel may rely on none
 * but what its barriers say, so the suite runs in several. */
#ifndef KNET_EMULATE_ORDER_H
#define KNET_EMULATE_ORDER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct emulate_order {
    /* A warp runs until a barrier of the block stops all its threads; then the next does. So the
     * last warp to reach a barrier is ahead of all others up to the next one. Otherwise each thread
     * runs up to its next barrier or shuffle, in turn. */
    int warp_ahead;
    int threads_reversed, blocks_reversed; /* the last thread (warp, block) first */
    unsigned blocks_max;                   /* of grid-stride loops */
    int64_t index_max;                     /* elements that one launch with 32-bit indices takes */
} emulate_order;

extern emulate_order kn_emulate_order;

#ifdef __cplusplus
}
#endif

#endif
