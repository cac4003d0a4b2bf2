/* A plan: the expressions that one pass computes (fuse.h has the vocabulary). fuse.c says when;
 * here is what, fuse_plan.c chooses and prepares it for the host, fuse_chain.c for GPUs,
 * fuse_show.c names it for the timer. */
#ifndef KN_FUSE_PLAN_H
#define KN_FUSE_PLAN_H

#include <knet/prof.h>

#include "fuse.h"
#include "host/host.h"
#include "host/pointwise/fused.h"

enum { KN__NOWHERE = -1 };
enum { KN__PLAIN_OF = UINT16_MAX }; /* in place of an op: in[0]'s data in plain order */

typedef struct kn__fuse_operand {
    kn_storage *storage; /* NULL: absent */
    void *data;          /* NULL: the storage's, once it is computed */
    int64_t n;           /* of its tensor */
    /* In elements, along the expression's dimensions; 0: repeated. Unset where it is dense. Of a
     * part: where it begins in the whole. */
    int64_t stride[KN_DIMS_MAX];
    uint8_t dtype;
    bool dense;    /* its elements lie like the expression's */
    bool of_input; /* as of a tensor */
} kn__fuse_operand;

struct kn__expr {
    kn__expr *prev, *next; /* the thread's pending ones, the oldest first; next: the free list */
    kn__ops_thread *thread;
    kn_storage *storage;
    int64_t n, dim[KN_DIMS_MAX];
    uint16_t op;
    uint8_t n_in, r;           /* result r of the call */
    uint8_t dtype, to, n_dims; /* T and the result's dtype */
    bool keeps;                /* asked for, or computed once, as a step whose tile is lost */
    uint64_t serial;           /* later ones have higher numbers */
    int place;                 /* among the steps of the plan in work */
    int threads;
    uint32_t mark;                 /* of the last count of steps */
    int64_t part_dim[KN_DIMS_MAX]; /* of a whole's parts */
    double p, q;
    int64_t row;  /* in its pass rows of so many elements are reduced: fuse_rows.c; 0: none are */
    bool by_rows; /* it has an element for each of them */
    kn__recipe recipe; /* of a reduction */
    kn__fuse_operand in[KN__ROW_OPERANDS];
};

typedef struct kn__fuse_plan {
    bool closes;                       /* a reduction reads the last one's tiles */
    kn__expr *expr[KN__FUSED_STEPS];   /* each after those it reads; the last one was asked for */
    int uses[KN__FUSED_STEPS];         /* as an operand of these */
    int last[KN__FUSED_STEPS];         /* the step that reads it last */
    bool stored[KN__FUSED_STEPS];      /* its data is kept */
    void *data[KN__FUSED_STEPS];       /* of those, by kn__fuse_plan_memory; else NULL */
    kn_storage *from[KN__FUSED_STEPS]; /* the data was an operand's, which ends; NULL: it is new */
    int n;
    kn__expr *whole; /* whose parts the last steps write; NULL: no parts */
    void *whole_data;
    kn__expr part[KN__ROW_OPERANDS]; /* their copies, which are steps too */
} kn__fuse_plan;

static inline bool kn__is_view(const kn__expr *e) { return e->op == KN_OP_slice; }
static inline bool kn__is_whole_of_parts(const kn__expr *e) { return e->op == KN_OP_slice_back; }
/* Whether no other's plan takes it in. */
static inline bool kn__is_apart(const kn__expr *e) {
    return kn__is_whole_of_parts(e) || e->op == KN__PLAIN_OF;
}
/* Whether step i copies a part into its place. */
static inline bool kn__is_part(const kn__fuse_plan *p, int i) {
    return p->whole && p->expr[i]->storage == p->whole->storage;
}
/* Whether there are no zeros beside the parts. */
static inline bool kn__plan_covers(const kn__fuse_plan *p) {
    return !p->whole || p->part[0].n * p->whole->n_in == p->whole->n;
}
/* What the plan was asked for. */
static inline kn__expr *kn__plan_root(const kn__fuse_plan *p) {
    return p->whole ? p->whole : p->expr[p->n - 1];
}
static inline void *kn__operand_data(const kn__fuse_operand *x) {
    return x->data ? x->data : x->storage->data;
}
/* Of the array whose row-major dimensions these are. */
static inline void kn__row_major(int64_t stride[], int n_dims, const int64_t dim[]) {
    int64_t step = 1;
    for (int d = n_dims - 1; d >= 0; d--) {
        stride[d] = step;
        step *= dim[d];
    }
}

/* The tensor that made the storage; NULL: it is gone. */
static inline kn_tensor *kn__expr_header(kn_storage *s) {
    kn_tensor *t = (kn_tensor *)(void *)((char *)s - offsetof(kn_tensor, own));
    return t->storage == s ? t : NULL;
}

/* fuse.c: gives t, a result of the call, storage without data, and an expression without operands.
 * NULL: an error is recorded. */
kn__expr *kn__expr_make(kn__ops_thread *self, const kn_op_call *call, kn_tensor *t);
/* Sets an operand of e to t, or KN_NONE; of a pending view to the tensor it shows. */
void kn__operand_set(kn__fuse_operand *to, kn_tensor *t, const kn__expr *e);
/* Whether one plan can compute the inputs and `more` steps; those of other shapes, except one
 * element for each of its rows, are computed first, and then the largest. */
kn_status kn__fuse_fit(kn__ops_thread *self, const kn_op_call *call, int64_t n, int64_t row,
                       int more);

/* --- fuse_rows.c: reductions of short rows --- */

/* Whether the call is one that waits, as rows do. */
bool kn__fuse_takes_reduction(const kn_op_call *call, bool all);
kn_status kn__fuse_defer_reduction(kn__ops_thread *self, const kn_op_call *call);
/* Before `out` is made of the call's inputs: the rows of its pass. Pending inputs that don't go
 * with them are computed. */
kn_status kn__fuse_find_rows(int64_t *row, bool *by_rows, const kn_op_call *call,
                             const kn_tensor *out);
static inline bool kn__is_reduction(const kn__expr *e) {
    return e->row && kn_op_table[e->op].host == kn__host.reduce;
}

/* Steps that compute the pending ones of these. */
int kn__fuse_steps(kn__ops_thread *self, kn_tensor *const t[], int n);

/* fuse_view.c: slices of what has no data yet, or that are read by other expressions alone; and
 * gradients that are put together of slices. */
bool kn__fuse_takes_slice(const kn_op_call *call, bool all);
kn_status kn__fuse_defer_slice(kn__ops_thread *self, const kn_op_call *call);
bool kn__fuse_takes_part(const kn_op_call *call);
kn_status kn__fuse_defer_part(kn__ops_thread *self, const kn_op_call *call);

/* The view's elements, copied to y on the host. */
void kn__view_copy(const kn__expr *e, void *y);

/* root, and the pending ones that it reads. closes: a reduction reads it by tiles. */
void kn__fuse_plan_make(kn__fuse_plan *p, kn__expr *root, bool closes);
/* Allocates the stored results; all or none. OOM: the error is the pool's. */
kn_status kn__fuse_plan_memory(kn__fuse_plan *p);
void kn__fuse_plan_memory_free(kn__fuse_plan *p);
/* Everything that a pass of the host needs; the plan has its memory. */
void kn__pass_make(kn__fused *f, const kn__fuse_plan *p);
/* fuse_chain.c: runs it on a device that compiles kernels: as one kernel, or step by step while
 * that is being compiled and where it can't be. */
kn_status kn__chain_run(const kn__fuse_plan *p);
/* Whether the device compiles kernels. */
bool kn__chain_device(const kn_device *device);

/* What the timer calls its pass: "add+gelu+mul", a zero byte, the places of the calls, which may be
 * none, and a zero byte. Returns how many bytes. */
enum { KN__FUSED_LABEL_BYTES = 160 };
size_t kn__fuse_plan_label(char text[KN__FUSED_LABEL_BYTES], const kn__fuse_plan *p);
kn_scope kn__fuse_label_begin(const char *label);
/* Bytes that its pass reads and writes. */
uint64_t kn__fuse_plan_bytes(const kn__fuse_plan *p);
/* The scope of its pass; its end tells the timer what the pass moved. */
kn_scope kn__fuse_plan_scope_begin(const kn__fuse_plan *p);
void kn__fuse_plan_scope_end(kn_scope *scope, const kn__fuse_plan *p);

#endif
