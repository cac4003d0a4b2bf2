/* Weights in oneDNN's layouts, or Winograd's numbers of them, kept with the data they were made of
 * until it changes or ends. */
#ifndef KN_CONV_WEIGHTS_H
#define KN_CONV_WEIGHTS_H

#include "host/conv/conv_plan.h"

/* Fills `blocked` from w's data. */
typedef kn_status (*kn__weights_fn)(void *ctx, char *blocked);

/* One layout of weights, of a version of their storage. The storage and every pass that reads it
 * use it: the last one frees it. */
typedef struct kn__kept_weights {
    char *data;
    struct kn__kept_weights *next;
    kn_pool *pool;
    _Atomic int users;
    uint32_t version;
    kn_tensor w;       /* its header: views of one storage may begin at the same place */
    kn__layout layout; /* NULL: Winograd's numbers, of a window that moves by `stride` */
    int64_t stride;
} kn__kept_weights;

/* *out: w's data in a layout of so many bytes (NULL: Winograd's numbers, of a window that moves by
 * `stride`), made by `make` at the first call; NULL where it can't be kept with w, whose data is no
 * pool's or closed. Any thread. To be given back after the last read: another thread may export the
 * weights meanwhile. */
kn_status kn__conv_weights_take(kn__kept_weights **out, const kn_tensor *w, kn__layout_ref layout,
                                int64_t stride, size_t bytes, kn__weights_fn make, void *ctx);
/* NULL: nothing. */
void kn__conv_weights_give(kn__kept_weights *one);
/* Protects all that is kept, and is held while weights are made: who wants the same then finds
 * them. */
extern pthread_mutex_t kn__conv_weights_lock __attribute__((visibility("hidden")));
/* Ends the copies kept of this data of a pool, which changes. */
void kn__conv_weights_drop(kn_storage *s);
/* The same, and keeps none from now on: others may write to the data. */
kn_status kn__conv_weights_close(kn_storage *s);

#endif
