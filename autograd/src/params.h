/* Parameter sets' inside: one flat arena of gradients, one slice a parameter.
 *
 * A *cycle* is the time from the first backward after a step to the next step. A slice whose cycle
 * is not the set's holds old numbers: whoever writes it first overwrites, whoever reads it first
 * fills it with zeros. So nothing clears gradients between steps. */
#ifndef KN_PARAMS_SRC_H
#define KN_PARAMS_SRC_H

#include <knet/op.h>
#include <knet/param.h>

#include "sparse.h"
#include "tape.h"

struct kn__param {
    kn_params *set;
    kn_tensor *w;    /* owned */
    kn_tensor *grad; /* view of the set's arena; NULL before the layout; owned */
    char *name;
    int64_t offset; /* of the slice, elements */
    int place;      /* of the slice among those of the set; empty ones share their offset */
    uint64_t cycle; /* of the last write */
    int index;      /* in the set, which changes as others move to other devices */
    int serial;  /* of creation, of all devices' parameters; the numbers of its values depend on it
                  */
    int n_users; /* in a hooked pass: edges to it that are left */
    uint64_t counted; /* the serial of that pass */
    uint64_t reached; /* the serial of the last hooked pass that gave it a gradient */
    bool is_frozen;   /* a constant: neither recorded nor moved */
    bool is_sparse;   /* its gradient is in `rows`; its slice is empty */
    kn__rows rows;
    int order; /* of first use in the first backward; INT_MAX: unused */
};

struct kn_params {
    _Atomic uint32_t refs; /* the user's, and one per optimiser and open tape that reads it */
    kn_device *device;
    kn_pool *pool; /* of values, gradients and optimiser state: the frame's at creation */
    kn_dtype dtype;
    uint64_t seed;
    kn_rng *rng;
    kn__param **param;
    int n, cap;
    int n_made;      /* serial number of the next parameter; of the head */
    int64_t numel;   /* of all parameters */
    kn_tensor *flat; /* the arena; NULL before the layout */
    uint64_t cycle;
    uint64_t n_begun;       /* 1 + how many passes have begun to write gradients */
    bool stepped;           /* the next backward begins a cycle; so does the first one */
    bool ordered;           /* the layout is final */
    struct kn_ema *swapped; /* the last averages in place of the weights; NULL: none are */
    int n_used;             /* in the first backward */
    bool has_frozen;        /* parameters, or had: steps look for them */
    bool in_pass;           /* linked in the running pass */
    bool is_scaled;         /* a loss scale divides the gradients */
    kn_params *touched;     /* next set of the running pass */
    kn_grad_ready_fn on_grad;
    void *on_grad_ctx;
    kn_grad_void_fn on_void;
    void *on_void_ctx;
    kn_params *head; /* the user's set; of that: itself */
    /* parameters of the user's set on another device, with an arena of their own; owned */
    kn_params *next;
};

kn_params *kn__params_retain(kn_params *set);
void kn__params_release(kn_params *set);

/* Makes an initial value for the parameter of that serial number: a tensor without a frame. */
kn_status kn__param_value(kn_tensor **out, kn_params *set, int serial, kn_shape shape,
                          kn_init init);
/* Room for one more parameter. */
bool kn__params_grow(kn_params *set);
/* Exchanges what two tensors of one shape refer to: users keep both. */
void kn__tensor_swap_place(kn_tensor *a, kn_tensor *b);
/* Fails where gradients or optimisers exist already. */
kn_status kn__params_movable(const char *name, const kn_params *params);
/* Fails where the parameters lie on several devices. */
kn_status kn__params_together(const char *name, const kn_params *params);

/* Fails where averages are in place of the weights. */
kn_status kn__params_own(const char *name, const kn_params *params);

/* Makes the arena if it isn't there. */
kn_status kn__params_layout(kn_params *set);
/* The layout is final from here on: optimiser state goes by its offsets. */
kn_status kn__params_fix(kn_params *set);
/* Whether slices can lie in the order of the parameters' `order`: INVALID where others read them
 * where they are. */
kn_status kn__params_order_check(const kn_params *set);
/* Puts them in that order, which is final then. */
kn_status kn__params_order_fix(kn_params *set);
/* No parameter has an order. */
void kn__params_order_forget(kn_params *set);
/* Begins a cycle if a step ended the last one. */
void kn__params_cycle_begin(kn_params *set);
/* The pass is one of the parameter's set: it begins a cycle if a step ended the last one. */
kn_status kn__param_touch(kn__param *p, kn__pass *pass);
/* Counts a parameter as used by the first backward, for the order of slices. */
void kn__param_used(kn__param *p);
/* The slice for a write of this pass; *fresh: overwrite it, else add to it. NULL: pending error. */
kn_tensor *kn__param_sink(kn__param *p, kn__pass *pass, bool *fresh);
/* Hooked passes: counts an edge to the parameter; an edge that has had its gradient, after the last
 * of which the hook is called. */
void kn__param_count(kn__param *p, kn__pass *pass);
void kn__param_done(kn__param *p, const kn__pass *pass);
/* The complete gradient; of a sparse parameter that of its rows. */
static inline kn_tensor *kn__param_grad(const kn__param *p) {
    return p->is_sparse ? p->rows.values : p->grad;
}
/* Ends a pass: arranges slices in the order of use after the first one that wrote any. Failed: the
 * gradients of this cycle are void, they read as zeros. */
void kn__params_pass_end(kn__pass *pass, bool failed);
/* The gradients of a set in this cycle, or of a parameter's set, are void: they read as zeros. */
void kn__params_void(kn_params *set);
void kn__param_void(kn__param *p);
/* Slices without a write in this cycle become zeros. */
kn_status kn__params_settle(kn_params *set);
/* While a step is captured, before a backward writes: replays begin a cycle if one begins now, and
 * are possible where the backward adds to the gradients of the same parameters as now. */
void kn__params_effect_begin(kn_params *set);
/* The same where gradients become zeros, whatever they are. */
void kn__params_effect_zero(kn_params *set);
/* The same where a pass that failed, or was refused, makes gradients void. */
void kn__params_effect_void(kn_params *set);
/* The same before gradients are read: where the same parameters have gradients of the cycle. */
void kn__params_effect_read(kn_params *set);
/* While a step is captured: its replays bring the set to the state that it has now. */
void kn__params_effect(kn_params *set);

#endif
