/* A plan: the expressions that one pass computes (fuse.h has the vocabulary). fuse.c says when;
 * here is what, fuse_plan.c chooses and prepares it for the host, fuse_chain.c for GPUs,
 * fuse_show.c names it for the timer. */
#ifndef KN_FUSE_PLAN_H
#define KN_FUSE_PLAN_H

#include <knet/prof.h>

#include "fuse.h"
#include "host/pointwise/fused.h"

enum { KN__NOWHERE = -1 };

typedef struct kn__operand {
    kn_storage *storage; /* NULL: absent */
    void *data;          /* NULL: the storage's, once it is computed */
    int64_t n, dim[KN_DIMS_MAX];
    uint8_t dtype, n_dims;
} kn__operand;

struct kn__expr {
    kn__expr *prev, *next; /* the thread's pending ones, the oldest first; next: the free list */
    kn__ops_thread *thread;
    kn_storage *storage;
    int64_t n, dim[KN_DIMS_MAX];
    uint16_t op;
    uint8_t n_in, r;           /* result r of the call */
    uint8_t dtype, to, n_dims; /* T and the result's dtype */
    uint8_t size;              /* at most so many steps compute it */
    bool keeps;                /* asked for, or computed once, as a step whose tile is lost */
    int place;                 /* among the steps of the plan in work */
    int threads;
    double p, q;
    kn__operand in[KN__ROW_OPERANDS];
};

typedef struct kn__fuse_plan {
    bool closes;                     /* a reduction reads the last one's tiles */
    kn__expr *expr[KN__FUSED_STEPS]; /* each after those it reads; the last one was asked for */
    int uses[KN__FUSED_STEPS];       /* as an operand of these */
    int last[KN__FUSED_STEPS];       /* the step that reads it last */
    bool stored[KN__FUSED_STEPS];    /* its data is kept */
    void *data[KN__FUSED_STEPS];     /* of those, by kn__fuse_plan_memory; else NULL */
    int n;
} kn__fuse_plan;

/* The tensor that made the storage; NULL: it is gone. */
static inline kn_tensor *kn__expr_header(kn_storage *s) {
    kn_tensor *t = (kn_tensor *)(void *)((char *)s - offsetof(kn_tensor, own));
    return t->storage == s ? t : NULL;
}

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
