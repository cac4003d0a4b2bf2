/* What runs: an event for each kernel, and for each pass that computes several ops at once. For
 * tools that draw a step (`knet explain`); not a stable interface. Events come while the timer is
 * on (KNET_TIMER, kn_prof_owners_on), on the thread that runs the kernel, inside the kernel's
 * scope: kn_prof_open_path names it. */
#ifndef KNET_OP_WATCH_H
#define KNET_OP_WATCH_H

#include <knet/op.h>

enum { KN_OP_EVENT_IN = 32, KN_OP_EVENT_OUT = 16 };

/* A kernel that has run. */
typedef struct kn_op_event {
    const char *name; /* "conv", "add+gelu+mul" */
    int n_ops;        /* that it computes */
    int n_in, n_out;  /* of the lists below */
    /* The storage it read; storage that a tensor gives back is used again by later ones. More
     * inputs than there is room for are left out. */
    const kn_storage *in[KN_OP_EVENT_IN];
    const kn_storage *out[KN_OP_EVENT_OUT]; /* likewise */
    /* one of its results; NULL: its header is gone. A call's has its place in the source (file,
     * line) when the call has returned */
    const kn_tensor *y;
    const char *where;           /* of a pass: "net.c:12,14"; else NULL */
    uint64_t flops, moved_bytes; /* as the timer's rates count them */
} kn_op_event;

/* Called with each event and the ctx of kn_op_watch. */
typedef void (*kn_op_watch_fn)(void *ctx, const kn_op_event *event);
/* Calls fn for each kernel from now on. NULL: for none. Not while other threads run ops. */
KN_API void kn_op_watch(kn_op_watch_fn fn, void *ctx);
#endif
