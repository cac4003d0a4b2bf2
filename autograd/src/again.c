/* Which values backward computes again, in frames with .recompute; backward.c does.
 *
 * A node whose op is cheap, and whose inputs are there in backward anyway, can make its result
 * again: gelu of a product, which gelu's own gradient reads; relu of a batchnorm, from the
 * batchnorm's input. The node holds the inputs that this takes (`extra`). A tensor's again_refs
 * counts the references that nodes have to it; when there is no other, its data is freed: the
 * tensor is forgotten. The first rule that reads it in backward makes the data again, which stays
 * until the last reader is done.
 *
 * If an input is forgotten too, it is made first. It gets its data back only if a rule reads it
 * later. `again` counts the calls that all this takes, and has a limit, so that a chain of cheap
 * ops keeps a value in between.
 */
#include "tape.h"

enum { CALLS_MAX = 4 };

static size_t bytes_of(const kn_tensor *t) {
    return (size_t)t->n * kn_dtype_bytes((kn_dtype)t->dtype);
}

static bool is_cheap(const kn_op_call *call) {
    const kn_op_info *info = &kn_op_table[call->op];
    if (!(call->want & 1) || call->edge || call->is_view || call->n_in > KN_NEED_OUT) return false;
    return info->row ? info->order == 0 : (info->flags & KN_FLAG_AGAIN) != 0;
}

/* Of batchnorm the running statistics, which it changes: its result is made from the batch's. */
static bool is_effect(const kn_op_call *call, int i) {
    return call->op == KN_OP_batchnorm && (i == 1 || i == 2);
}

/* A constant that no rule saves may be written before backward, such as a running mean. */
int kn__again_plan(unsigned *extra, const kn_op_call *call, const kn_edge edges[], unsigned saves) {
    int calls = 1;
    unsigned more = 0;
    *extra = 0;
    if (!is_cheap(call) || !kn_frame_recomputes(bytes_of(call->out[0]))) return 0;
    for (int i = 0; i < call->n_in; i++) {
        const kn_tensor *t = call->in[i];
        const kn__node *maker = edges[i] ? kn__maker_of(t) : NULL;
        bool is_again = maker && maker->again;
        if (is_again) calls += maker->again;
        if (saves >> i & 1 || t == KN_NONE || is_effect(call, i)) continue;
        if (!edges[i] || !(is_again || t->is_kept || kn__edge_param(edges[i]))) return 0;
        more |= 1u << i;
    }
    if (calls > CALLS_MAX) return 0;
    *extra = more;
    return calls;
}

/* Tensors of other tapes and constants may be other threads' too: they are left alone. */
void kn__again_saved(kn__node *n) {
    kn__saved *saved = kn__node_saved(n);
    for (unsigned left = n->saves; left; left &= left - 1, saved++) {
        kn_tensor *t = saved->t;
        const kn__node *maker = kn__maker_of(t);
        if (!maker || maker->tape != n->tape) continue;
        if (!(n->extra >> __builtin_ctz(left) & 1)) t->is_kept = 1;
        saved->is_again = maker->again != 0;
        t->again_refs += saved->is_again; /* of more than 65535 it only looks as if others hold t */
    }
}
