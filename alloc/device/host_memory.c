/* Segments of host memory.
 *
 * Pages are mapped aligned to huge pages, and madvise asks the kernel for huge pages. If the
 * process has jemalloc, segments come from an arena of ours in it, whose extents are these pages,
 * so that jemalloc's statistics include them. jemalloc can't be loaded late (static thread-local
 * storage), and linking it would replace the user's malloc; so the references are weak. Without
 * jemalloc the pages are the segments. Both return memory to the system at once: pages are
 * unmapped, or purged by jemalloc, which keeps the addresses for later segments. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/drivers.h"
#include "device/observe.h"

/* Public functions of jemalloc; NULL in most processes. */
__attribute__((weak)) void *mallocx(size_t size, int flags);
__attribute__((weak)) void dallocx(void *ptr, int flags);
__attribute__((weak)) int mallctl(const char *name, void *old, size_t *old_bytes, void *new_value,
                                  size_t new_bytes);

enum { HUGE_SHIFT = 21 };
static const size_t HUGE_PAGE = (size_t)1 << HUGE_SHIFT;

/* The kernel refuses what the machine can't have (MAP_NORESERVE would end the process later). */
static void *pages_map(size_t size, size_t alignment) {
    if (alignment < HUGE_PAGE) alignment = HUGE_PAGE;
    size_t padded = size + alignment;
    void *raw = NULL;
    KN__CALL("mmap",
             raw = mmap(NULL, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (raw == MAP_FAILED) return NULL;
    uintptr_t start = (uintptr_t)raw, aligned = (start + alignment - 1) & ~(alignment - 1);
    if (aligned > start) munmap(raw, aligned - start);
    size_t tail = start + padded - (aligned + size);
    if (tail) munmap((void *)(aligned + size), tail);
    madvise((void *)aligned, size, MADV_HUGEPAGE);
    return (void *)aligned;
}

static void pages_unmap(void *ptr, size_t size) { KN__CALL("munmap", munmap(ptr, size)); }

/* The extent hooks; the layout is jemalloc's public extent_hooks_t. */

typedef struct hooks hooks;
struct hooks {
    void *(*alloc)(hooks *, void *new_addr, size_t size, size_t alignment, bool *zero, bool *commit,
                   unsigned arena);
    /* All NULL. jemalloc tells arenas apart where their mappings start: one whose start is unmapped
     * while the rest stays merges with what another arena maps there. So none is unmapped. */
    void (*dalloc)(void), (*destroy)(void), (*commit)(void), (*decommit)(void), (*purge_lazy)(void);
    bool (*purge_forced)(hooks *, void *addr, size_t size, size_t offset, size_t length,
                         unsigned arena);
    bool (*split)(hooks *, void *addr, size_t size, size_t size_a, size_t size_b, bool committed,
                  unsigned arena);
    bool (*merge)(hooks *, void *addr_a, size_t size_a, void *addr_b, size_t size_b, bool committed,
                  unsigned arena);
};

static void *extent_alloc(hooks *h, void *new_addr, size_t size, size_t alignment, bool *zero,
                          bool *commit, unsigned arena) {
    (void)h, (void)arena;
    if (new_addr) return NULL; /* the address can't be chosen */
    void *ptr = pages_map(size, alignment);
    if (ptr) *zero = *commit = true;
    return ptr;
}

static bool extent_purge(hooks *h, void *addr, size_t size, size_t offset, size_t length,
                         unsigned arena) {
    (void)h, (void)size, (void)arena;
    return madvise((char *)addr + offset, length, MADV_DONTNEED) != 0;
}

static bool extent_split(hooks *h, void *addr, size_t size, size_t size_a, size_t size_b,
                         bool committed, unsigned arena) {
    (void)h, (void)addr, (void)size, (void)size_a, (void)size_b, (void)committed, (void)arena;
    return false; /* success: pages can be purged in any pieces */
}

static bool extent_merge(hooks *h, void *addr_a, size_t size_a, void *addr_b, size_t size_b,
                         bool committed, unsigned arena) {
    (void)h, (void)addr_a, (void)size_a, (void)addr_b, (void)size_b, (void)committed, (void)arena;
    return false;
}

static hooks our_hooks = {.alloc = extent_alloc,
                          .purge_forced = extent_purge,
                          .split = extent_split,
                          .merge = extent_merge};

/* --- the arena --- */

static pthread_once_t arena_once = PTHREAD_ONCE_INIT;
static bool arena_made;
static _Atomic uint64_t given_bytes;
static unsigned arena_index;

static void arena_make(void) {
    if (!mallocx || !dallocx || !mallctl) return;
    hooks *h = &our_hooks;
    size_t size = sizeof arena_index;
    if (mallctl("arenas.create", &arena_index, &size, &h, sizeof h) != 0) return;
    char name[64];
    ptrdiff_t now = 0; /* keep no freed pages */
    snprintf(name, sizeof name, "arena.%u.dirty_decay_ms", arena_index);
    (void)mallctl(name, NULL, NULL, &now, sizeof now);
    arena_made = true;
}

static bool have_arena(void) {
    pthread_once(&arena_once, arena_make);
    return arena_made;
}

/* MALLOCX_ARENA(index) | MALLOCX_TCACHE_NONE | MALLOCX_LG_ALIGN(HUGE_SHIFT) */
static int arena_flags(void) { return (int)((arena_index + 1) << 20 | 1u << 8 | HUGE_SHIFT); }

kn_status kn__host_memory_alloc(void **out, size_t size_bytes) {
    bool arena = have_arena();
    void *ptr = arena ? mallocx(size_bytes, arena_flags()) : pages_map(size_bytes, HUGE_PAGE);
    if (!ptr) {
        return KN_FAIL(KN_ERR_OOM, "cpu: %s of %zu bytes failed", arena ? "mallocx" : "mmap",
                       size_bytes);
    }
    atomic_fetch_add(&given_bytes, size_bytes);
    *out = ptr;
    return KN_OK;
}

void kn__host_memory_free(void *ptr, size_t size_bytes) {
    atomic_fetch_sub(&given_bytes, size_bytes);
    if (have_arena()) {
        dallocx(ptr, arena_flags());
    } else {
        pages_unmap(ptr, size_bytes);
    }
}

kn_status kn__host_memory_drop(void *ptr, size_t size_bytes) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)ptr;
    uintptr_t from = (at + page - 1) / page * page, end = (at + size_bytes) / page * page;
    if (end <= from) return KN_OK;
    int failed = 0;
    KN__CALL("madvise", failed = madvise((void *)from, end - from, MADV_DONTNEED));
    if (!failed) return KN_OK;
    return KN_FAIL(KN_ERR_INTERNAL, "cpu: madvise of %zu bytes: %s", size_bytes, strerror(errno));
}

/* A counter of our arena; 0 if jemalloc was built without statistics. */
static uint64_t arena_stat(const char *what) {
    char name[64];
    size_t value = 0, bytes = sizeof value;
    snprintf(name, sizeof name, "stats.arenas.%u.%s", arena_index, what);
    return mallctl(name, &value, &bytes, NULL, 0) == 0 ? value : 0;
}

/* jemalloc rounds sizes up to its classes and allocates metadata; mmap has neither. */
uint64_t kn__host_memory_overhead(void) {
    if (!have_arena()) return 0;
    uint64_t epoch = 1;
    (void)mallctl("epoch", NULL, NULL, &epoch, sizeof epoch); /* refreshes the counters */
    uint64_t mapped = arena_stat("mapped"), given = atomic_load(&given_bytes);
    return arena_stat("base") + (mapped > given ? mapped - given : 0);
}

void kn__host_memory_name(char *out, size_t out_bytes) {
    const char *version = NULL;
    size_t size = sizeof version;
    if (have_arena() && mallctl("version", &version, &size, NULL, 0) == 0) {
        snprintf(out, out_bytes, "jemalloc %.*s", (int)strcspn(version, "-"), version);
    } else {
        snprintf(out, out_bytes, "mmap");
    }
}
