/* libknet_malloc: the memory that a program takes by malloc and its kin, as a heap of the timer's.
 * `knet run --malloc` preloads it, so each call of the program and its libraries comes here first
 * and is passed on to the allocator that they would have had.
 *
 * A block is longer than the program asked for by a tail, in which its size and owner are. A block
 * without a tail of ours came from elsewhere and is passed on unchanged. */
#include <dlfcn.h>
#include <errno.h>
#include <knet/prof_heap.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "mix.h"

typedef struct tail {
    size_t bytes;
    uint32_t owner, check;
} tail;

static struct {
    void *(*malloc)(size_t);
    void (*free)(void *);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*memalign)(size_t, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    size_t (*usable)(void *);
} next;

static atomic_bool resolved;
static bool has_tails; /* the next allocator can tell how long a block is */
static uint64_t secret;
static _Atomic(kn_prof_heap *) heap;
static _Thread_local bool resolving, forking;

KN_API void *malloc(size_t bytes);
KN_API void free(void *ptr);
KN_API void *calloc(size_t n, size_t bytes);
KN_API void *realloc(void *ptr, size_t bytes);
KN_API void *memalign(size_t align, size_t bytes);
KN_API void *aligned_alloc(size_t align, size_t bytes);
KN_API int posix_memalign(void **out, size_t align, size_t bytes);
KN_API void *valloc(size_t bytes);
KN_API void *pvalloc(size_t bytes);
KN_API size_t malloc_usable_size(void *ptr);
KN_API void free_sized(void *ptr, size_t bytes);
KN_API void free_aligned_sized(void *ptr, size_t align, size_t bytes);

/* --- memory while dlsym looks for the next allocator, which may allocate itself --- */

enum { EARLY_BYTES = 32768, EARLY_ALIGN = 16 };
static _Alignas(EARLY_ALIGN) unsigned char early[EARLY_BYTES]; /* each block after its size */
static atomic_size_t early_used;

static bool is_early(const void *ptr) { return (uintptr_t)ptr - (uintptr_t)early < sizeof early; }

static void *take_early(size_t bytes) {
    if (bytes > EARLY_BYTES) return NULL;
    size_t room = EARLY_ALIGN + (bytes + EARLY_ALIGN - 1) / EARLY_ALIGN * EARLY_ALIGN;
    size_t at = atomic_fetch_add(&early_used, room);
    if (at + room > EARLY_BYTES) return NULL;
    memcpy(early + at, &bytes, sizeof bytes);
    return early + at + EARLY_ALIGN;
}

static size_t early_bytes(const void *ptr) {
    size_t bytes;
    memcpy(&bytes, (const unsigned char *)ptr - EARLY_ALIGN, sizeof bytes);
    return bytes;
}

/* --- the next allocator --- */

static void find(void *out_fn, const char *name) {
    void *symbol = dlsym(RTLD_NEXT, name);
    memcpy(out_fn, &symbol, sizeof symbol);
}

static bool same_library(void *a, void *b) {
    Dl_info of_a, of_b;
    return a && b && dladdr(a, &of_a) && dladdr(b, &of_b) && of_a.dli_fbase == of_b.dli_fbase;
}

static void read_secret(void) {
    const void *random = (const void *)(uintptr_t)getauxval(AT_RANDOM);  // NOLINT
    if (random) memcpy(&secret, random, sizeof secret);
}

/* Its allocator takes memory by malloc before it can tell how long a block is. */
static bool has_sanitizer(void) {
    static const char *const names[] = {"__tsan_init", "__lsan_init", "__asan_init"};
    for (int i = 0; i < 3; i++) {
        if (dlsym(RTLD_DEFAULT, names[i])) return true;
    }
    return false;
}

/* More than one thread may come here at once: all find the same. */
static void resolve(void) {
    resolving = true;
    find(&next.malloc, "malloc");
    find(&next.free, "free");
    find(&next.calloc, "calloc");
    find(&next.realloc, "realloc");
    find(&next.memalign, "memalign");
    find(&next.posix_memalign, "posix_memalign");
    find(&next.usable, "malloc_usable_size");
    has_tails = same_library((void *)(uintptr_t)next.malloc, (void *)(uintptr_t)next.usable) &&
                next.memalign && !has_sanitizer();
    read_secret();
    resolving = false;
    atomic_store(&resolved, true);
}

/* Whether calls can be passed on; not while this thread resolves. */
static inline bool ready(void) {
    if (__builtin_expect(atomic_load_explicit(&resolved, memory_order_acquire), 1)) return true;
    if (resolving) return false;
    resolve();
    return true;
}

/* --- tails --- */

static uint32_t check_of(const void *block, const tail *t) {
    uint64_t x = ((uint64_t)(uintptr_t)block ^ secret) * KN__GOLDEN;
    x = (x ^ x >> 29 ^ t->bytes ^ (uint64_t)t->owner << 32) * 0xBF58476D1CE4E5B9u;
    return (uint32_t)(x >> 32);
}

static unsigned char *tail_at(void *block) {
    return (unsigned char *)block + next.usable(block) - sizeof(tail);
}

/* False: the block is not one of ours. */
static bool read_tail(tail *out, void *block) {
    if (!has_tails || next.usable(block) < sizeof *out) return false;
    memcpy(out, tail_at(block), sizeof *out);
    return out->check == check_of(block, out);
}

/* How much to ask the next allocator for; where that is too much, as it is, to fail as it would. */
static size_t with_tail(size_t bytes) {
    return has_tails && bytes <= PTRDIFF_MAX - sizeof(tail) ? bytes + sizeof(tail) : bytes;
}

static void *count(void *block, size_t bytes) {
    if (!block || !has_tails) return block;
    tail t = {bytes, KN_PROF_NO_OWNER, 0};
    kn_prof_heap *to = atomic_load_explicit(&heap, memory_order_acquire);
    if (to && !forking) t.owner = kn_prof_heap_alloc(to, block, bytes);
    t.check = check_of(block, &t);
    memcpy(tail_at(block), &t, sizeof t);
    return block;
}

static void uncount(void *shown, tail t) {
    kn_prof_heap *from = atomic_load_explicit(&heap, memory_order_acquire);
    if (from && !forking) kn_prof_heap_free(from, shown, t.bytes, t.owner);
}

/* The block's next user may be another allocator's client. */
static void wipe_tail(void *block) { memset(tail_at(block), 0, sizeof(tail)); }

/* --- what programs call --- */

void *malloc(size_t bytes) {
    if (!ready()) return take_early(bytes);
    if (!has_tails) return next.malloc(bytes); /* a jump: LeakSanitizer looks at the caller */
    return count(next.malloc(with_tail(bytes)), bytes);
}

void free(void *ptr) {
    tail t;
    if (!ptr || is_early(ptr) || !ready()) return;
    if (read_tail(&t, ptr)) {
        int error = errno;
        uncount(ptr, t);
        wipe_tail(ptr);
        errno = error;
    }
    next.free(ptr);
}

void *calloc(size_t n, size_t bytes) {
    size_t all;
    if (!ready()) return __builtin_mul_overflow(n, bytes, &all) ? NULL : take_early(all);
    if (__builtin_mul_overflow(n, bytes, &all)) return next.calloc(n, bytes); /* which fails */
    return count(next.calloc(1, with_tail(all)), all);
}

static void *move_early(void *ptr, size_t bytes) {
    void *to = malloc(bytes);
    size_t before = early_bytes(ptr);
    if (to) memcpy(to, ptr, before < bytes ? before : bytes);
    return to;
}

void *realloc(void *ptr, size_t bytes) {
    tail t;
    if (!ptr) return malloc(bytes);
    if (is_early(ptr)) return move_early(ptr, bytes);
    if (!ready()) return NULL;
    bool ours = read_tail(&t, ptr);
    if (!bytes) { /* the next allocator frees, or doesn't */
        if (ours) uncount(ptr, t);
        if (ours) wipe_tail(ptr);
        return next.realloc(ptr, 0);
    }
    if (!ours) return next.realloc(ptr, bytes);
    void *moved = next.realloc(ptr, with_tail(bytes));
    if (!moved) return NULL;
    uncount(NULL, t); /* not temporary: the block lives on */
    return count(moved, bytes);
}

/* memalign of some allocators leaves errno alone when it fails; callers of its kin look at it. */
void *memalign(size_t align, size_t bytes) {
    if (!ready()) return NULL;
    int before = errno;
    void *block = next.memalign(align, with_tail(bytes));
    bool power = align && !(align & (align - 1));
    if (!block && errno == before) errno = power ? ENOMEM : EINVAL;
    return count(block, bytes);
}

void *aligned_alloc(size_t align, size_t bytes) { return memalign(align, bytes); }

int posix_memalign(void **out, size_t align, size_t bytes) {
    if (!ready()) return ENOMEM;
    int error = next.posix_memalign(out, align, with_tail(bytes));
    if (!error) count(*out, bytes);
    return error;
}

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

void *valloc(size_t bytes) { return memalign(page_bytes(), bytes); }

void *pvalloc(size_t bytes) {
    size_t page = page_bytes();
    if (bytes > PTRDIFF_MAX - page) return memalign(page, bytes);
    return memalign(page, (bytes + page - 1) / page * page);
}

/* The program may write as many. */
size_t malloc_usable_size(void *ptr) {
    tail t;
    if (!ptr) return 0;
    if (is_early(ptr)) return early_bytes(ptr);
    if (!ready()) return 0;
    size_t usable = next.usable ? next.usable(ptr) : 0;
    return read_tail(&t, ptr) ? usable - sizeof t : usable;
}

void free_sized(void *ptr, size_t bytes) {
    (void)bytes;
    free(ptr);
}

void free_aligned_sized(void *ptr, size_t align, size_t bytes) {
    (void)align, (void)bytes;
    free(ptr);
}

/* --- start, and fork: the child's other threads are gone, with any lock of the timer's --- */

static void before_fork(void) { forking = true; }
static void after_fork(void) { forking = false; }
static void in_child(void) {
    atomic_store(&heap, NULL);
    forking = false;
}

/* The timer's own start came before: this library needs it. */
__attribute__((constructor)) static void start(void) {
    pthread_atfork(before_fork, after_fork, in_child);
    atomic_store(&heap, kn_prof_heap_get("malloc"));
}
