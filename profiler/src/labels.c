#include "labels.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "checked.h"

enum { OBJECTS_MAX = 512, RANGES_MAX = 64 };

typedef struct range {
    uintptr_t start, end;
} range;

static uintptr_t lasting[OBJECTS_MAX]; /* where the objects' program headers are */
static int n_lasting;

/* Of libraries that may be unloaded; only ever added to. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static range vanishing[RANGES_MAX];
static atomic_int n_vanishing;

static bool is_inside(uintptr_t address, const struct dl_phdr_info *info) {
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + p->p_vaddr;
        if (p->p_type == PT_LOAD && address - start < p->p_memsz) return true;
    }
    return false;
}

/* A symbol that the timer exports. */
typedef struct symbol {
    const char *name;
    const void *address;
} symbol;

/* Whether it is in a library that the program was started with. */
static bool came_with_program(const symbol *ours) {
    void *program = dlopen(NULL, RTLD_LAZY);
    bool found = program && dlsym(program, ours->name) == ours->address;
    if (program) dlclose(program);
    return found;
}

/* The first object is the executable. */
static int note_object(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    lasting[n_lasting++] = (uintptr_t)info->dlpi_phdr;
    bool all = n_lasting > 1 || is_inside((uintptr_t)lasting, info) || came_with_program(arg);
    return !all || n_lasting == OBJECTS_MAX;
}

void kn__labels_start(const char *name, const void *address) {
    dl_iterate_phdr(note_object, &(symbol){name, address});
}

bool kn__label_may_vanish(const char *label) {
    int n = atomic_load_explicit(&n_vanishing, memory_order_acquire);
    for (int i = 0; i < n; i++) {
        if ((uintptr_t)label - vanishing[i].start < vanishing[i].end - vanishing[i].start) {
            return true;
        }
    }
    return n == RANGES_MAX; /* no room for more: none is trusted */
}

/* --- the library of a label --- */

typedef struct search {
    uintptr_t address;
    range found; /* end 0: none that may be unloaded */
} search;

static bool stays_loaded(const struct dl_phdr_info *info) {
    for (int i = 0; i < n_lasting; i++) {
        if (lasting[i] == (uintptr_t)info->dlpi_phdr) return true;
    }
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_DYNAMIC) continue;
        const ElfW(Dyn) *d = (const void *)(info->dlpi_addr + p->p_vaddr);  // NOLINT
        for (; d->d_tag != DT_NULL; d++) {
            if (d->d_tag == DT_FLAGS_1 && d->d_un.d_val & DF_1_NODELETE) return true;
        }
    }
    return false;
}

static int look_into(struct dl_phdr_info *info, size_t size, void *arg) {
    search *s = arg;
    range all = {UINTPTR_MAX, 0};
    bool inside = is_inside(s->address, info);
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + p->p_vaddr;
        if (p->p_type != PT_LOAD) continue;
        if (start < all.start) all.start = start;
        if (start + p->p_memsz > all.end) all.end = start + p->p_memsz;
    }
    if (inside && !stays_loaded(info)) s->found = all;
    return inside;
}

static void note_range(range r) {
    pthread_mutex_lock(&lock);
    int n = atomic_load_explicit(&n_vanishing, memory_order_relaxed);
    if (n < RANGES_MAX) {
        KN_ASSERT(r.start < r.end);
        vanishing[n] = r;
        atomic_store_explicit(&n_vanishing, n + 1, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
}

bool kn__label_may_vanish_new(const char *label) {
    search s = {.address = (uintptr_t)label};
    dl_iterate_phdr(look_into, &s);
    if (!s.found.end) return false;
    if (!kn__label_may_vanish(label)) note_range(s.found);
    return true;
}
