/* How to convolve: by our direct sums, by oneDNN's, or by Winograd's transforms; by shape. */
#ifndef KN_CONV_ROUTE_H
#define KN_CONV_ROUTE_H

#include "host/conv/conv_plan.h"
#include "kernel.h"

/* KN_CONV_TABLED: as the model in conv_route.c says, so that a shape has the same bits on all
 * processors of an instruction set. KN_CONV_MEASURED: by the times of all at the first call of a
 * shape; later calls, and the first one's result, are the fastest one's. The others are one way
 * wherever it can: our direct sums, oneDNN's, and our Winograd transforms. */
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
/* Whether the forward pass takes Winograd's transforms less time than oneDNN. INVALID as above. */
KN_MUST_CHECK kn_status kn__conv_winograd_pays(bool *out, const kn__conv_sizes *s);
void kn__conv_note(const kn_op_call *call, kn__conv_pass pass, const kn__conv_sizes *s,
                   kn__conv_route way);
extern pthread_mutex_t kn__conv_routes_lock __attribute__((visibility("hidden")));

#endif
