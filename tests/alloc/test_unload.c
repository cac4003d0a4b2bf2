/* The library loaded late and unloaded early, with threads that used it still running. */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "main_end.h"
#include "test.h"

typedef struct api {
    void *library;
    void *(*host)(void);
    void *(*pool)(void *device);
    int (*alloc)(void **out, void *pool, size_t size_bytes, void *stream);
    int (*free)(void *pool, void *ptr);
} api;

static void *symbol(void *library, const char *name) {
    void *address = dlsym(library, name);
    assert_non_null(address);
    return address;
}

static api load(void) {
    api a = {.library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL)};
    if (!a.library) fail_msg("%s", dlerror());
    *(void **)&a.host = symbol(a.library, "kn_device_host");
    *(void **)&a.pool = symbol(a.library, "kn_device_pool");
    *(void **)&a.alloc = symbol(a.library, "kn_alloc");
    *(void **)&a.free = symbol(a.library, "kn_free");
    return a;
}

static int use(const api *a) {
    void *pool = a->pool(a->host()), *small = NULL, *big = NULL;
    int n_failed = a->alloc(&small, pool, 100, NULL) != 0;
    n_failed += a->alloc(&big, pool, 1 << 20, NULL) != 0;
    if (big) memset(big, 1, 1 << 20);
    n_failed += a->free(pool, small) != 0;
    return n_failed + (a->free(pool, big) != 0);
}

typedef struct visitor {
    const api *a;
    sem_t used, unloaded;
    int n_failed;
} visitor;

static void *visit(void *ctx) {
    visitor *v = ctx;
    v->n_failed = use(v->a);
    sem_post(&v->used);
    sem_wait(&v->unloaded);
    return NULL; /* its destructors must not call the unloaded library */
}

static void thread_outlives_the_library(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        api a = load();
        visitor v = {.a = &a};
        pthread_t thread;
        sem_init(&v.used, 0, 0);
        sem_init(&v.unloaded, 0, 0);
        assert_int_equal(use(&a), 0);
        assert_int_equal(pthread_create(&thread, NULL, visit, &v), 0);
        sem_wait(&v.used);
        assert_int_equal(dlclose(a.library), 0);
        assert_null(dlopen(LIBRARY, RTLD_NOW | RTLD_NOLOAD)); /* gone indeed */
        pid_t pid = fork();                                   /* its handlers too */
        if (pid == 0) _exit(0);
        int code = -1;
        assert_int_equal(waitpid(pid, &code, 0), pid);
        assert_int_equal(code, 0);
        sem_post(&v.unloaded);
        pthread_join(thread, NULL);
        assert_int_equal(v.n_failed, 0);
    }
}

/* --- main has ended by pthread_exit, and the library has a thread --- */

static int run_itself(const char *way, const char *words) {
    int code = -1;
    pid_t pid = fork();
    if (pid == 0) {
        setenv("KNET_ALLOC", words, 1);
        execl("/proc/self/exe", "test_alloc_unload", way, NULL);
        _exit(1);
    }
    return waitpid(pid, &code, 0) == pid ? code : -1;
}

/* What looked for the end of this thread has stopped before its code goes. */
static void *unload(void *ctx) {
    const api *a = ctx;
    wait_for_main_end();
    usleep(20000);
    if (use(a) != 0 || dlclose(a->library) != 0) _exit(2);
    if (dlopen(LIBRARY, RTLD_NOW | RTLD_NOLOAD)) _exit(3);
    usleep(200000);
    exit(7);
}

static int end_main(bool unloads_first) {
    static api a;
    pthread_t thread;
    end_in_a_minute();
    a = load();
    if (unloads_first) {
        dlclose(a.library);
    } else if (pthread_create(&thread, NULL, unload, &a) != 0) {
        return 4;
    }
    pthread_exit(NULL);
}

static void the_library_goes_before_or_after_main(void **state) {
    (void)state;
    assert_int_equal(run_itself("before", "trace=/dev/null"), 0);
    assert_int_equal(WEXITSTATUS(run_itself("after", "trace=/dev/null")), 7);
}

int main(int argc, char **argv) {
    if (argc > 1) return end_main(strcmp(argv[1], "before") == 0);
    return RUN_TESTS(TEST(thread_outlives_the_library),
                     TEST(the_library_goes_before_or_after_main));
}
