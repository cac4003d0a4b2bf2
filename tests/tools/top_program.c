/* Opens scopes in several threads until standard input ends; says "ready" when each has opened
 * one. usage: top_program THREADS [words]
 * "fork": a child waits too; "close": all descriptors are closed; "none": no scope;
 * "exit": main ends by pthread_exit, and another thread waits; "nothread": the first thread of all,
 * the timer's, doesn't start; "many": a report beyond the page */
#include <dlfcn.h>
#include <errno.h>
#include <knet/prof.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/main_end.h"

enum { THREADS_MAX = 64 };
static atomic_bool ending;
static atomic_int n_at_work;
static bool first_fails;

typedef int create_function(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

/* The timer's library calls this one too. */
__attribute__((visibility("default"))) int pthread_create(pthread_t *restrict out,
                                                          const pthread_attr_t *restrict attributes,
                                                          void *(*run)(void *),
                                                          void *restrict arg) {
    create_function *create = NULL;
    *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
    if (!first_fails) return create(out, attributes, run, arg);
    first_fails = false;
    return EAGAIN;
}

static void *work(void *arg) {
    for (bool first = true; !atomic_load(&ending); first = false) {
        KN_SCOPE("work");
        if (first) atomic_fetch_add(&n_at_work, 1);
        for (int i = 0; i < 3; i++) {
            KN_SCOPE("inner λ");
            usleep(200);
        }
    }
    return arg;
}

enum { MANY = 100000, NAMES = 1000, NAME_BYTES = 600 };

static void open_many(void) {
    static char names[NAMES][NAME_BYTES];
    for (int i = 0; i < NAMES; i++) snprintf(names[i], NAME_BYTES, "many %-*d", NAME_BYTES - 6, i);
    for (int i = 0; i < MANY; i++) {
        kn_scope outer = kn_scope_begin(names[i / NAMES]);
        kn_scope_begin(names[i % NAMES]);
        kn_scope_end(&outer);
    }
}

static void say_ready(void) {
    printf("ready\n");
    fflush(stdout);
}

static void wait_for_end(void) {
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
}

static pthread_t threads[THREADS_MAX];
static int n;

static void *end_threads(void *arg) {
    wait_for_end();
    atomic_store(&ending, true);
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    return arg;
}

static void *follow_main(void *arg) {
    wait_for_main_end();
    say_ready();
    return end_threads(arg);
}

int main(int argc, char **argv) {
    pthread_t last;
    n = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;
    const char *word = argc > 2 ? argv[2] : "";
    first_fails = strcmp(word, "nothread") == 0;
    if (strcmp(word, "none") != 0) { /* before the threads: the page is there when this is over */
        KN_SCOPE("main");
        usleep(1000);
    }
    for (int i = 0; i < n; i++) {
        if (pthread_create(&threads[i], NULL, work, NULL) != 0) return 1;
    }
    while (atomic_load(&n_at_work) < n) usleep(100);
    if (strcmp(word, "many") == 0) open_many();
    if (strcmp(word, "close") == 0) {
        for (int fd = 3; fd < 64; fd++) close(fd);
    }
    if (strcmp(word, "fork") == 0) {
        pid_t child = fork();
        if (child == 0) {
            wait_for_end();
            _exit(0);
        }
        printf("child %ld\n", (long)child);
    }
    if (strcmp(word, "exit") == 0 && pthread_create(&last, NULL, follow_main, NULL) == 0) {
        pthread_exit(NULL);
    }
    say_ready();
    end_threads(NULL);
    return 0;
}
