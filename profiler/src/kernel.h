/* What ran on the GPU under each scope: a leaf a name, beside the scopes below it.
 *
 * Written by the drain alone (under its lock), read by reports while it runs. Leaves never move
 * or die.
 */
#ifndef KN_PROFILER_KERNEL_H
#define KN_PROFILER_KERNEL_H

#include "tree.h"

typedef struct kn__kernel kn__kernel;
struct kn__kernel {
    kn__kernel *next; /* of the same node */
    const kn__tree_node *node;
    const kn__tree_node *captured; /* of a CUDA graph: the scope it was captured in */
    kn__count gpu_ns, n, bytes;
    char name[]; /* our copy: a module's own may go with it */
};

/* A piece of GPU work. */
typedef struct kn__gpu_work {
    const char *name; /* NULL: "(unnamed)" */
    const kn__tree_node *captured;
    uint64_t gpu_ns, bytes;
} kn__gpu_work;

/* In place of a scope: of a graph that was captured before the timer was on, and of a node there
 * was no room for. */
extern kn__tree_node kn__captured_before, kn__captured_lost;

/* Adds a piece of work to the leaf of its name. Without memory it goes to a leaf of the node that
 * exists, or is lost: then false. */
bool kn__kernel_add(kn__tree_node *node, const kn__gpu_work *work);

#endif
