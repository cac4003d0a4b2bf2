/* What ran on the GPU under each scope: a leaf a name, beside the scopes below it.
 *
 * Written by the drain alone (under its lock), read by reports while it goes on. Leaves never move
 * or die.
 */
#ifndef KNET_KERNEL_H
#define KNET_KERNEL_H

#include "tree.h"

typedef struct kn__kernel kn__kernel;
struct kn__kernel {
    kn__kernel *next; /* of the same node */
    kn__count gpu_ns, n;
    char name[]; /* our copy: a module's own may go with it */
};

/* Adds a record to the leaf of this name; `name` NULL is "(unnamed)". Without memory the time goes
 * to a leaf of the node that exists, or is lost: then false. */
bool kn__kernel_add(kn__node *node, const char *name, uint64_t gpu_ns);

#endif
