/* Takes memory in all ways that libc has, in NVTX ranges; knows nothing of the timer. The numbers
 * of bytes are sums that the test knows. usage: malloc_program [fork | threads | errors] */
#include <errno.h>
#include <malloc.h>
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what);                                     \
            exit(9);                                                                               \
        }                                                                                          \
    } while (0)

/* The compiler knows nothing of these. */
static void *(*volatile get)(size_t) = malloc;
static void (*volatile put)(void *) = free;
static void *(*volatile get_zeros)(size_t, size_t) = calloc;
static void *(*volatile change)(void *, size_t) = realloc;
static void *(*volatile get_aligned)(size_t, size_t) = aligned_alloc;
static void *(*volatile get_pages)(size_t) = pvalloc;
static char *(*volatile copy)(const char *) = strdup;

static void *kept, *before_main;

__attribute__((constructor)) static void start(void) { before_main = get(100); }

static void simple(void) {
    nvtxRangePushA("simple"); /* 3000 bytes in 3, at most 2000 at once */
    void *a = get(1000), *b = get(1000);
    put(a);
    a = get(1000);
    put(a);
    put(b);
    nvtxRangePop();
    nvtxRangePushA("kept"); /* 5000 in 1, never freed */
    kept = get(5000);
    memset(kept, 1, 5000);
    nvtxRangePop();
}

static void kin(void) {
    void *p = NULL;
    nvtxRangePushA("zeros"); /* 12 x 8 */
    unsigned char *zeros = get_zeros(12, 8);
    for (int i = 0; i < 96; i++) CHECK(!zeros[i]);
    put(zeros);
    nvtxRangePop();
    nvtxRangePushA("aligned"); /* 128, 256, 512, 100, 4096: five */
    CHECK(posix_memalign(&p, 64, 128) == 0 && (uintptr_t)p % 64 == 0);
    put(p);
    CHECK((p = aligned_alloc(128, 256)) && (uintptr_t)p % 128 == 0);
    put(p);
    CHECK((p = memalign(4096, 512)) && (uintptr_t)p % 4096 == 0);
    memset(p, 1, 512);
    put(p);
    CHECK((p = valloc(100)) && (uintptr_t)p % 4096 == 0);
    put(p);
    CHECK((p = pvalloc(100)) && (uintptr_t)p % 4096 == 0 && malloc_usable_size(p) >= 4096);
    memset(p, 1, 4096);
    put(p);
    nvtxRangePop();
    nvtxRangePushA("texts"); /* 11 */
    put(copy("ten bytes!"));
    nvtxRangePop();
}

static void changes(void) {
    nvtxRangePushA("changed"); /* 10, 20, 40, ... 10240: 11, in all 20470, at most 10240 */
    unsigned char *p = change(NULL, 10);
    memset(p, 7, 10);
    for (size_t n = 20; n <= 10240; n *= 2) CHECK((p = change(p, n)));
    for (int i = 0; i < 10; i++) CHECK(p[i] == 7);
    CHECK(!change(p, 0));
    nvtxRangePop();
    nvtxRangePushA("taken over"); /* 30 here, the block of 20 is the other's */
    p = get(20);
    nvtxRangePushA("by another");
    p = change(p, 30);
    nvtxRangePop();
    put(p);
    nvtxRangePop();
}

/* All of a block may be written, and a block of another allocator's may be freed. */
static void whole_blocks(void) {
    extern void *__libc_malloc(size_t);
    nvtxRangePushA("whole"); /* 100 + 3000 */
    for (size_t n = 100; n <= 3000; n += 2900) {
        void *p = get(n);
        size_t usable = malloc_usable_size(p);
        CHECK(usable >= n);
        memset(p, 1, usable);
        put(p);
    }
    nvtxRangePop();
    nvtxRangePushA("foreign"); /* nothing */
    void *foreign = __libc_malloc(100);
    memset(foreign, 1, 100);
    put(foreign);
    nvtxRangePop();
}

static void failures(void) {
    void *p = NULL;
    nvtxRangePushA("failures"); /* nothing */
    errno = 0;
    CHECK(!get(SIZE_MAX) && errno == ENOMEM);
    CHECK(!get(PTRDIFF_MAX - 8) && !get((size_t)PTRDIFF_MAX));
    CHECK(!get_zeros(SIZE_MAX / 2, 3) && !get_zeros(SIZE_MAX, 1));
    CHECK(posix_memalign(&p, 3, 8) == EINVAL && !p);
    CHECK(!pvalloc(SIZE_MAX));
    nvtxRangePop();
    p = get(10);
    nvtxRangePushA("still there"); /* nothing */
    CHECK(!change(p, SIZE_MAX - 4));
    errno = 77;
    put(p);
    put(NULL);
    CHECK(errno == 77);
    nvtxRangePop();
}

/* Of all allocators; some take any alignment. */
static void errors(void) {
    static const struct {
        size_t align, bytes;
        int error;
    } cases[] = {{3, 10, EINVAL}, {0, 10, EINVAL}, {64, SIZE_MAX - 100, ENOMEM}};
    for (int i = 0; i < 3; i++) {
        errno = 0;
        void *p = get_aligned(cases[i].align, cases[i].bytes);
        CHECK(p ? cases[i].error == EINVAL : errno == cases[i].error);
        put(p);
    }
    errno = 0;
    CHECK(!get_pages(SIZE_MAX) && errno == ENOMEM);
}

static void *work(void *arg) {
    for (int i = 0; i < 200; i++) {
        nvtxRangePushA("thread"); /* 200 x (64 + 128) a thread */
        void *a = get(64);
        a = change(a, 128);
        put(a);
        nvtxRangePop();
    }
    return arg;
}

static int with_fork(void) {
    nvtxRangePushA("parent"); /* 300 */
    void *p = get(300);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 100; i++) put(change(get(100), 1000));
        put(p);
        _exit(get(10) ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    put(p);
    nvtxRangePop();
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    CHECK(before_main);
    put(before_main);
    if (strcmp(what, "fork") == 0) return with_fork();
    if (strcmp(what, "threads") == 0) {
        pthread_t threads[16];
        for (int i = 0; i < 16; i++) CHECK(!pthread_create(&threads[i], NULL, work, NULL));
        for (int i = 0; i < 16; i++) pthread_join(threads[i], NULL);
        return 0;
    }
    if (strcmp(what, "errors") == 0) {
        errors();
        return 0;
    }
    simple();
    kin();
    changes();
    whole_blocks();
    failures();
    return 0;
}
