/* A program for test_report.c to run under all kinds of KNET_ALLOC. alloc_program [WORD …]:
 * "oom" runs out of memory, "named" uses a pool of its own as well and destroys it, "fork" has a
 * child that exits, "exit" ends in the middle with blocks that are live, "folder" starts with a
 * change to a new one, "full" lets no file grow beyond 128 bytes,
 * "data" opens the file "data", "small" makes the pool in a thread with a stack of 16 KiB. */
#include <fcntl.h>
#include <knet/pool.h>
#include <knet/sim.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/forked_leaks.h"

static bool has(int argc, char **argv, const char *word) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], word) == 0) return true;
    }
    return false;
}

static kn_status run_out(kn_pool *pool) {
    void *ptr = NULL;
    kn_status status = kn_alloc(&ptr, pool, (size_t)1 << 37, NULL);
    printf("%s\n", kn_last_error()->message);
    return status == KN_ERR_OOM ? KN_OK : KN_ERR_INTERNAL;
}

static kn_status named(kn_device *device) {
    kn_pool *pool = NULL;
    void *ptr = NULL;
    kn_pool_options options = {.name = "own", .limit_bytes = (size_t)1 << 30};
    KN_TRY(kn_pool_create(&pool, device, &options));
    kn_status status = kn_alloc(&ptr, pool, 1000, NULL);
    if (status == KN_OK) status = kn_free(pool, ptr);
    kn_pool_destroy(pool);
    return status;
}

static void *make_pool(void *device) { return kn_device_pool(device); }

static kn_status make_on_small_stack(kn_device *device) {
    pthread_attr_t attributes;
    pthread_t thread;
    void *pool = NULL;
    bool runs = pthread_attr_init(&attributes) == 0 &&
                pthread_attr_setstacksize(&attributes, 16 << 10) == 0 &&
                pthread_create(&thread, &attributes, make_pool, device) == 0 &&
                pthread_join(thread, &pool) == 0;
    pthread_attr_destroy(&attributes);
    return runs && pool ? KN_OK : KN_ERR_INTERNAL;
}

static kn_status work(int argc, char **argv) {
    kn_device *device = NULL;
    void *small = NULL, *large = NULL;
    if (has(argc, argv, "folder") && (mkdir("sub", 0700) != 0 || chdir("sub") != 0)) return 1;
    if (has(argc, argv, "data") && open("data", O_WRONLY | O_CREAT, 0666) < 0) return KN_ERR_IO;
    if (has(argc, argv, "full")) {
        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &(struct rlimit){128, 128}) != 0) return KN_ERR_IO;
    }
    KN_TRY(kn_device_find(&device, "sim"));
    if (has(argc, argv, "small")) KN_TRY(make_on_small_stack(device));
    kn_pool *pool = kn_device_pool(device);
    if (!pool) return kn_check();
    KN_TRY(kn_alloc(&small, pool, 300, NULL));
    KN_TRY(kn_alloc(&large, pool, 3 << 20, NULL));
    if (has(argc, argv, "oom")) {
        KN_TRY(run_out(pool));
        KN_TRY(run_out(pool));
    }
    if (has(argc, argv, "named")) KN_TRY(named(device));
    if (has(argc, argv, "fork")) {
        pid_t pid = fork();
        if (pid == 0) exit(0);
        if (pid > 0) waitpid(pid, NULL, 0);
    }
    if (has(argc, argv, "exit")) exit(0);
    KN_TRY(kn_free(pool, large));
    return kn_free(pool, small);
}

int main(int argc, char **argv) {
    kn_status status = work(argc, argv);
    if (status < 0) fprintf(stderr, "%s\n", kn_last_error()->message);
    return status < 0;
}
