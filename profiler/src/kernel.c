#include "kernel.h"

#include <stdlib.h>
#include <string.h>

enum { TABLE_MIN = 256 };

/* Names by their address first: a driver hands out the same pointer for the same kernel, unless its
 * module was unloaded and another one came to lie there. */
typedef struct name_entry {
    const char *address, *copy;
} name_entry;

static name_entry *names;
static size_t n_names, n_name_slots;
static kn__kernel **kernels;
static size_t n_kernels, n_kernel_slots;

static size_t mix(uint64_t h) {
    h *= 0x9E3779B97F4A7C15u;
    return (size_t)(h ^ h >> 29);
}

static size_t hash_text(const char *text) {
    uint64_t h = 0xCBF29CE484222325u;
    for (const char *c = text; *c; c++) h = (h ^ (unsigned char)*c) * 0x100000001B3u;
    return mix(h);
}

static name_entry *find_name(const char *address) {
    size_t mask = n_name_slots - 1;
    for (size_t i = mix((uint64_t)(uintptr_t)address) & mask;; i = (i + 1) & mask) {
        if (!names[i].address || names[i].address == address) return &names[i];
    }
}

static bool grow_names(void) {
    name_entry *old = names;
    size_t n_old = n_name_slots, n = n_old ? 2 * n_old : TABLE_MIN;
    name_entry *bigger = calloc(n, sizeof *bigger);
    if (!bigger) return false;
    names = bigger;
    n_name_slots = n;
    for (size_t i = 0; i < n_old; i++) {
        if (old[i].address) *find_name(old[i].address) = old[i];
    }
    free(old);
    return true;
}

/* A copy that is the same for the same text at the same address. */
static const char *intern(const char *name) {
    if (2 * n_names >= n_name_slots && !grow_names()) return NULL;
    name_entry *entry = find_name(name);
    if (entry->address && strcmp(entry->copy, name) == 0) return entry->copy;
    char *copy = strdup(name);
    if (!copy) return NULL;
    n_names += !entry->address;
    *entry = (name_entry){name, copy};
    return copy;
}

static kn__kernel **find_slot(const kn__node *node, const char *name) {
    size_t mask = n_kernel_slots - 1;
    size_t h = hash_text(name) ^ mix((uint64_t)(uintptr_t)node);
    for (size_t i = h & mask;; i = (i + 1) & mask) {
        kn__kernel *k = kernels[i];
        if (!k || (k->node == node && (k->name == name || strcmp(k->name, name) == 0))) {
            return &kernels[i];
        }
    }
}

static bool grow_kernels(void) {
    kn__kernel **old = kernels;
    size_t n_old = n_kernel_slots, n = n_old ? 2 * n_old : TABLE_MIN;
    kn__kernel **bigger = calloc(n, sizeof *bigger);
    if (!bigger) return false;
    kernels = bigger;
    n_kernel_slots = n;
    for (size_t i = 0; i < n_old; i++) {
        if (old[i]) *find_slot(old[i]->node, old[i]->name) = old[i];
    }
    free(old);
    return true;
}

static kn__kernel *make_kernel(kn__node *node, const char *name) {
    kn__kernel *k = calloc(1, sizeof *k);
    if (!k) return NULL;
    *k = (kn__kernel){.name = name, .node = node, .next = node->kernels};
    KN__STORE(node->kernels, k);
    return k;
}

static kn__kernel *find_kernel(kn__node *node, const char *name) {
    if (2 * n_kernels >= n_kernel_slots && !grow_kernels()) return NULL;
    kn__kernel **slot = find_slot(node, name);
    if (*slot) return *slot;
    *slot = make_kernel(node, name);
    n_kernels += *slot != NULL;
    return *slot;
}

/* The leaf used last is tried first: the same scope runs the same kernel again and again. */
bool kn__kernel_add(kn__node *node, const char *name, uint64_t gpu_ns) {
    kn__kernel *k = node->last_kernel;
    if (!name) name = "(unnamed)";
    if (!k || strcmp(k->name, name) != 0) {
        const char *copy = intern(name);
        k = copy ? find_kernel(node, copy) : NULL;
        if (!k) k = node->kernels;
        if (!k) return false;
        node->last_kernel = k;
    }
    KN__STORE(k->gpu_ns, k->gpu_ns + gpu_ns);
    KN__STORE(k->n, k->n + 1);
    return true;
}
