/* The op table's names. */
#include <knet/op.h>

const char *kn_op_name(kn_op op) {
    static const char *const names[KN_OP_COUNT] = {
#define KN_UNARY(name, formula, saves, gradient) #name, #name "_back",
#define KN_BINARY(name, formula) #name,
#define KN_COMPARE(name, formula) #name,
#define KN_KERNEL(name, host, cuda) #name,
#include <knet/ops.def>
    };
    KN_ASSERT((int)op >= 0 && op < KN_OP_COUNT);
    return names[op];
}
