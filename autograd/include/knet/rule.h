/* What the table of gradient rules and the open tape say about themselves: for tests and tools. Not
 * a stable interface. */
#ifndef KNET_RULE_H
#define KNET_RULE_H

#include <knet/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum kn_rule_state {
    KN_RULE_MISSING = 0, /* recording such a call is an UNSUPPORTED error */
    KN_RULE_NOGRAD,      /* results are constants by declaration */
    KN_RULE_GRADIENT
} kn_rule_state;
KN_API kn_rule_state kn_op_rule(int op); /* a kn_op of op.h */

/* Of this thread's open tape; 0 and KN_OK without one. */
KN_API int64_t kn_tape_nodes(void);
/* Walks the tape and checks its invariants. */
KN_API KN_MUST_CHECK kn_status kn_tape_check(void);

#ifdef __cplusplus
}
#endif
#endif
