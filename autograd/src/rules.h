/* The gradient rules of ops with kernels of their own, declared from ops.def: EACH rules give the
 * gradient of one input, ALL rules deliver all. */
#ifndef KN_RULES_SRC_H
#define KN_RULES_SRC_H

#include "tape.h"

/* t, of 16 bits in f32: what a gradient is computed from may not fit where the gradient does. */
static inline kn_tensor *kn__wide(kn_tensor *t) {
    bool is_half = t && t != KN_NONE && !(KN_CLASS_REAL >> t->dtype & 1);
    return is_half ? kn_cast(t, KN_F32) : t;
}

#define RULE_DECLARED_EACH(f) kn_tensor *kn__rule_##f(kn__back *b, int i);
#define RULE_DECLARED_ALL(f) kn_status kn__rule_##f(kn__back *b);
#define RULE_DECLARED_NOGRAD
#define KN_OP(name, in, out, attr, infer, kernel, rule, ...) RULE_DECLARED_##rule
#include <knet/ops.def>

#endif
