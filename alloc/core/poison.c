#include "core/poison.h"

#include <string.h>

#if defined KN__ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(ptr, bytes) ((void)(ptr), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(ptr, bytes) ((void)(ptr), (void)(bytes))
#endif
#if defined __has_include && __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#else /* as the header says them where no memcheck runs */
#define VALGRIND_MAKE_MEM_NOACCESS(ptr, bytes) ((void)(ptr), (void)(bytes), 0)
#define VALGRIND_MAKE_MEM_UNDEFINED(ptr, bytes) ((void)(ptr), (void)(bytes), 0)
#define VALGRIND_MAKE_MEM_DEFINED(ptr, bytes) ((void)(ptr), (void)(bytes), 0)
#endif

enum { PATTERN = 0xdd };

kn__poison kn__poison_kind(void) {
    char probe = 0;
#if defined KN__ASAN
    return KN__POISON_ASAN;
#endif
    if (VALGRIND_MAKE_MEM_DEFINED(&probe, sizeof probe)) return KN__POISON_MEMCHECK;
    return KN_CHECKED >= 3 ? KN__POISON_PATTERN : KN__POISON_NONE;
}

static void mark(const kn_pool *pool, void *ptr, size_t bytes) {
    if (pool->poison == KN__POISON_ASAN) ASAN_POISON_MEMORY_REGION(ptr, bytes);
    if (pool->poison == KN__POISON_MEMCHECK) (void)VALGRIND_MAKE_MEM_NOACCESS(ptr, bytes);
    if (pool->poison == KN__POISON_PATTERN) memset(ptr, PATTERN, bytes);
}

static void expect_pattern(const kn_pool *pool, const char *ptr, size_t from, size_t to,
                           const char *what) {
    if (pool->poison != KN__POISON_PATTERN) return;
    size_t i = from;
    while (i < to && (unsigned char)ptr[i] == PATTERN) i++;
    if (i == to) return;
    kn_log_write(0, "pool %s: %s: byte %zu of the block at %p", pool->name, what, i,
                 (const void *)ptr);
    kn__assert_failed(what, __FILE__, __LINE__, __func__);
}

void kn__poison_off(const kn_pool *pool, void *ptr, size_t requested, size_t live) {
    expect_pattern(pool, ptr, 0, live, "a block was written after kn_free");
    if (pool->poison == KN__POISON_ASAN) ASAN_UNPOISON_MEMORY_REGION(ptr, requested);
    if (pool->poison == KN__POISON_MEMCHECK) (void)VALGRIND_MAKE_MEM_UNDEFINED(ptr, requested);
}

void kn__poison_on(const kn_pool *pool, void *ptr, size_t requested, size_t live) {
    expect_pattern(pool, ptr, requested, live, "a block was written behind its end");
    mark(pool, ptr, live);
}

void kn__poison_segment(const kn_pool *pool, void *ptr, size_t bytes) { mark(pool, ptr, bytes); }

void kn__poison_segment_gone(const kn_pool *pool, void *ptr, size_t bytes) {
    if (pool->poison == KN__POISON_ASAN) ASAN_UNPOISON_MEMORY_REGION(ptr, bytes);
    if (pool->poison == KN__POISON_MEMCHECK) (void)VALGRIND_MAKE_MEM_DEFINED(ptr, bytes);
}
