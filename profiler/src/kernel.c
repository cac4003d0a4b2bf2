#include "kernel.h"

#include <stdlib.h>
#include <string.h>

#include "budget.h"
#include "mix.h"

enum { TABLE_MIN = 256 };

/* Leaves by node and the address of the name first: a driver hands out the same pointer for the
 * same kernel, unless its module was unloaded and another one came to lie there; so the text is
 * compared. */
typedef struct entry {
    const kn__node *node, *captured;
    const char *address;
    kn__kernel *kernel;
} entry;

kn__node kn__captured_before = {.label = "(captured before the timer was on)"};
kn__node kn__captured_lost = {.label = "(captured, the scope was not kept)"};

static entry *entries;
static size_t n_entries, n_slots;

static entry *find_slot(const kn__node *node, const kn__node *captured, const char *address) {
    uint64_t h = (uint64_t)(uintptr_t)node * KN__GOLDEN ^ (uint64_t)(uintptr_t)address;
    h += (uint64_t)(uintptr_t)captured * 0xC2B2AE3D27D4EB4Fu;
    h *= 0xD6E8FEB86659FD93u;
    size_t mask = n_slots - 1;
    for (size_t i = (size_t)(h ^ h >> 32) & mask;; i = (i + 1) & mask) {
        entry *e = &entries[i];
        if (!e->node) return e;
        if (e->node == node && e->address == address && e->captured == captured) return e;
    }
}

static bool grow(void) {
    entry *old = entries;
    size_t n_old = n_slots, n = n_old ? 2 * n_old : TABLE_MIN;
    entry *bigger =
        kn__budget_take((n - n_old) * sizeof *bigger) ? calloc(n, sizeof *bigger) : NULL;
    if (!bigger) return false;
    entries = bigger;
    n_slots = n;
    for (size_t i = 0; i < n_old; i++) {
        if (old[i].node) *find_slot(old[i].node, old[i].captured, old[i].address) = old[i];
    }
    free(old);
    return true;
}

static kn__kernel *make_kernel(kn__node *node, const kn__node *captured, const char *name) {
    size_t length = strlen(name) + 1;
    if (!kn__budget_take(sizeof(kn__kernel) + length)) return NULL;
    kn__kernel *k = calloc(1, sizeof *k + length);
    if (!k) return NULL;
    memcpy(k->name, name, length);
    k->captured = captured;
    k->next = node->kernels;
    KN__STORE(node->kernels, k);
    return k;
}

/* The node's leaf of this text, wherever the name lay before. */
static kn__kernel *find_by_text(kn__node *node, const kn__node *captured, const char *name) {
    for (kn__kernel *k = node->kernels; k; k = k->next) {
        if (k->captured == captured && strcmp(k->name, name) == 0) return k;
    }
    return make_kernel(node, captured, name);
}

static kn__kernel *find_kernel(kn__node *node, const kn__node *captured, const char *name) {
    if (2 * n_entries >= n_slots && !grow() && n_entries + 1 >= n_slots) return NULL;
    entry *e = find_slot(node, captured, name);
    if (e->kernel && strcmp(e->kernel->name, name) == 0) return e->kernel;
    kn__kernel *k = find_by_text(node, captured, name);
    if (!k) return NULL;
    n_entries += !e->node;
    *e = (entry){node, captured, name, k};
    return k;
}

bool kn__kernel_add(kn__node *node, const kn__work *work) {
    kn__kernel *k = find_kernel(node, work->captured, work->name ? work->name : "(unnamed)");
    if (!k) k = node->kernels;
    if (!k) return false;
    KN__STORE(k->gpu_ns, k->gpu_ns + work->gpu_ns);
    KN__STORE(k->bytes, k->bytes + work->bytes);
    KN__STORE(k->n, k->n + 1);
    return true;
}
