#include "kernel.h"

#include <stdlib.h>
#include <string.h>

#include "budget.h"
#include "checked.h"

enum { NAMES_MIN = 256 };

/* Leaves by node and the address of the name first: a driver hands out the same pointer for the
 * same kernel, unless its module was unloaded and another one came to lie there; so the text is
 * compared. */
typedef struct known {
    uint64_t key;
    const char *address;
    kn__kernel *kernel;
} known;

kn__tree_node kn__captured_before = {.label = "(captured before the timer was on)"};
kn__tree_node kn__captured_lost = {.label = "(captured, the scope was not kept)"};

static kn__hash names;

static uint64_t key_of(const kn__tree_node *node, const kn__tree_node *captured,
                       const char *address) {
    return kn__hash_pair((uintptr_t)node + 3 * (uintptr_t)captured, (uintptr_t)address);
}

static kn__kernel *make_kernel(kn__tree_node *node, const kn__tree_node *captured,
                               const char *name) {
    size_t length = strlen(name) + 1;
    if (!kn__budget_take(sizeof(kn__kernel) + length)) return NULL;
    kn__kernel *k = calloc(1, sizeof *k + length);
    if (!k) return NULL;
    memcpy(k->name, name, length);
    k->node = node;
    k->captured = captured;
    k->next = node->kernels;
    KN__STORE(node->kernels, k);
    return k;
}

/* The node's leaf of this text, wherever the name lay before. */
static kn__kernel *find_by_text(kn__tree_node *node, const kn__tree_node *captured,
                                const char *name) {
    for (kn__kernel *k = node->kernels; k; k = k->next) {
        if (k->captured == captured && strcmp(k->name, name) == 0) return k;
    }
    return make_kernel(node, captured, name);
}

static bool is_same(const known *at, const kn__tree_node *node, const kn__tree_node *captured,
                    const char *name) {
    return at->address == name && at->kernel->node == node && at->kernel->captured == captured;
}

/* The name's slot; a free one: it was not seen at this address. */
static inline known *find_known(const kn__tree_node *node, const kn__tree_node *captured,
                                const char *name) {
    known *at = kn__hash_find(&names, sizeof *at, key_of(node, captured, name));
    while (at->key && !is_same(at, node, captured, name)) {
        at = kn__hash_after(&names, sizeof *at, at);
    }
    return at;
}

/* Without memory it is found by its text the next time too. */
static void remember(kn__kernel *k, const char *name) {
    if (kn__hash_is_full(&names) && !kn__budget_grow(&names, sizeof(known), NAMES_MIN)) return;
    known *at = find_known(k->node, k->captured, name);
    kn__hash_use(&names, at, key_of(k->node, k->captured, name));
    at->address = name;
    at->kernel = k;
}

/* A name not seen at this address. Not inlined: the other path needs no registers saved. */
static __attribute__((noinline)) kn__kernel *find_new(kn__tree_node *node,
                                                      const kn__tree_node *captured,
                                                      const char *name) {
    kn__kernel *k = find_by_text(node, captured, name);
    if (k) remember(k, name);
    return k;
}

static kn__kernel *find_kernel(kn__tree_node *node, const kn__tree_node *captured,
                               const char *name) {
    const known *at = names.n_slots ? find_known(node, captured, name) : NULL;
    bool is_known = at && at->key && strcmp(at->kernel->name, name) == 0;
    return is_known ? at->kernel : find_new(node, captured, name);
}

bool kn__kernel_add(kn__tree_node *node, const kn__gpu_work *work) {
    kn__kernel *k = find_kernel(node, work->captured, work->name ? work->name : "(unnamed)");
    if (!k) k = node->kernels;
    if (!k) return false;
    KN_ASSERT(k->node == node);
    KN__STORE(k->gpu_ns, k->gpu_ns + work->gpu_ns);
    KN__STORE(k->bytes, k->bytes + work->bytes);
    KN__STORE(k->n, k->n + 1);
    return true;
}
