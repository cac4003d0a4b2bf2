/* Who convolves: our kernels or oneDNN, by shape. */
#ifndef KN_CONV_ROUTE_H
#define KN_CONV_ROUTE_H

#include "host/conv/conv_plan.h"
#include "kernel.h"

/* KN_CONV_TABLED: as the model in conv_route.c says, so that a shape has the same bits on all
 * processors of an instruction set. KN_CONV_MEASURED: by the times of all at the first call of a
 * shape; later calls, and the first one's result, are the fastest one's. The others are one way
 * wherever it can: our kernels, oneDNN's direct sums, and its Winograd transforms (where they are
 * right). */
typedef enum kn__conv_route {
    KN_CONV_TABLED,
    KN_CONV_OURS,
    KN_CONV_DNNL,
    KN_CONV_WINOGRAD,
    KN_CONV_MEASURED
} kn__conv_route;

/* In place of the environment variable KNET_CONV_ROUTE (table, ours, onednn, winograd, measure),
 * for tests and benchmarks; discards measured routes. */
void kn__conv_prefer(kn__conv_route way);

/* One of the three, or KN_CONV_MEASURED: measure them, and note the fastest one. INVALID:
 * the environment variable has an unknown word. */
KN_MUST_CHECK kn_status kn__conv_way(kn__conv_route *out, const kn_op_call *call,
                                     kn__conv_pass pass, const kn__conv_sizes *s);
/* Whether oneDNN does the pass in bf16. INVALID as above. */
KN_MUST_CHECK kn_status kn__conv_takes_bf16(bool *out, const kn_op_call *call, kn__conv_pass pass,
                                            const kn__conv_sizes *s);
/* Whether Winograd's way of the forward pass is the faster one of oneDNN's two. */
bool kn__conv_winograd_pays(const kn__conv_sizes *s);
/* Whether oneDNN's gradients by Winograd's way are right: those of x are wrong (2.6) where the
 * paddings of the top and the bottom differ. */
static inline bool kn__conv_winograd_is_right(kn__conv_pass pass, const kn__conv_sizes *s) {
    return pass != KN_PASS_DATA || s->padding[1] == s->padding_end[1];
}
void kn__conv_note(const kn_op_call *call, kn__conv_pass pass, const kn__conv_sizes *s,
                   kn__conv_route way);
extern pthread_mutex_t kn__conv_routes_lock __attribute__((visibility("hidden")));

#endif
