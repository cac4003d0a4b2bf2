/* The library loaded late and unloaded early, with threads that used it still running. */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

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

int main(void) { return RUN_TESTS(TEST(thread_outlives_the_library)); }
