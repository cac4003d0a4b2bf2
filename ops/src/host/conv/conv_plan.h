/* Plans: oneDNN's primitives for one convolution of a few images, with the layouts they want and
 * the reorders from and to ours. Made for one thread, then kept in a cache for all threads. */
#ifndef KN_CONV_PLAN_H
#define KN_CONV_PLAN_H

#include "host/base/dnnl.h"
#include "host/conv/conv.h"
#include "kernel.h"
#include "plan_cache.h"

enum { KN_SIDE_X, KN_SIDE_W, KN_SIDE_Y, KN_SIDES }; /* dx, dw, dy stand at their tensor's place */

typedef struct kn__side {
    int arg;                   /* oneDNN's name in this pass */
    kn__layout plain, blocked; /* ours; the library's choice */
    size_t bytes;              /* of the blocked form */
    dnnl_primitive_t reorder;  /* to blocked, of the result to plain; NULL: they agree */
} kn__side;

typedef struct kn__host_conv_key {
    int64_t pass, flags, images, groups, channels, outputs;
    struct {
        int64_t in, window, stride, padding, padding_end, dilation;
    } axis[3];
} kn__host_conv_key;

typedef struct kn__host_conv_plan {
    kn__cached_plan cached;
    kn__host_conv_key key;
    kn__side side[KN_SIDES];
    kn__layout bias, scratch;   /* NULL: none */
    dnnl_primitive_t primitive; /* NULL: the library has nothing better than we have */
    size_t scratch_bytes;
} kn__host_conv_plan;

static inline int kn__result_side(kn__conv_pass pass) {
    return pass == KN_PASS_FORWARD ? KN_SIDE_Y : (pass == KN_PASS_DATA ? KN_SIDE_X : KN_SIDE_W);
}

/* Dimensions, from the last on, up to the first one that is more than one element of everything. */
int kn__conv_spatial(const kn__conv_sizes *s);

/* What a plan is for, beyond its sizes. */
enum {
    KN_PLAN_BIAS = 1,
    KN_PLAN_FROM_BLOCKS = 2, /* forward: x, and y, in blocks of channels: conv_layout.h */
    KN_PLAN_TO_BLOCKS = 4,
    KN_PLAN_ADD = 8, /* forward to blocks: a residual is added, then relu */
    KN_PLAN_RELU = 16,
    /* weights are kept with the data in the library's layout, so that one may be chosen that takes
     * long to make */
    KN_PLAN_KEEP = 32,
    KN_PLAN_BF16 = 64 /* images, weights, bias; sums are f32, and so is a gradient of weights */
};
/* The plan for `images` images of this convolution, the caller's until kn__conv_plan_drop. */
kn_status kn__conv_plan_get(kn__host_conv_plan **out, kn__conv_pass pass, const kn__conv_sizes *s,
                            int64_t images, unsigned flags);
void kn__conv_plan_drop(kn__host_conv_plan *plan);

/* The library's status as ours, with its text and the sizes in the message. */
kn_status kn__dnnl_status(dnnl_status_t status, const char *function, const kn__conv_sizes *s);

enum { KN__HOST_CONV_PLANS = 256 }; /* the most that the cache holds */
extern kn__plan_cache kn__conv_plan_cache __attribute__((visibility("hidden")));
/* How many it holds. For tests. */
size_t kn__conv_plans(void);

#endif
