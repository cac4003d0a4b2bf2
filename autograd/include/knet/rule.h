/* The table of gradient rules and the open tape, as tests and tools see them. Not a stable
 * interface: it may change in any version.
 *
 * A rule gives the gradients of an op's inputs; ops.def names it. A tape holds a node for each
 * recorded call, in the order of the calls, and one for each tensor whose gradient is wanted.
 *
 *     if (kn_op_rule(KN_OP_conv) != KN_RULE_GRADIENT) …
 *     KN_TRY(kn_tape_check());          // after each pass of a test
 */
#ifndef KNET_RULE_H
#define KNET_RULE_H

#include <knet/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How an op's calls are recorded. */
typedef enum kn_rule_state {
    KN_RULE_MISSING = 0, /* recording such a call is an UNSUPPORTED error */
    KN_RULE_NOGRAD,      /* results are constants by declaration */
    KN_RULE_GRADIENT     /* a node of the tape; backward runs its rule */
} kn_rule_state;
/* The state of an op, a kn_op of op.h: less than KN_OP_COUNT, which is not checked. */
KN_API kn_rule_state kn_op_rule(int op);

/* The number of nodes of this thread's open tape, leaves included; 0 without a tape. */
KN_API int64_t kn_tape_nodes(void);
/* Walks this thread's open tape: nodes are linked both ways and counted, and results and edges lead
 * to nodes of the same tape. KN_OK without a tape. Takes time linear in the nodes. Errors:
 * INTERNAL, with the number of the first node that is damaged. */
KN_API KN_MUST_CHECK kn_status kn_tape_check(void);

#ifdef __cplusplus
}
#endif
#endif
