/* Opens scopes in several threads until standard input ends. usage: top_program THREADS [words]
 * "fork": a child waits too; "close": all descriptors are closed; "none": no scope */
#include <knet/prof.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS_MAX = 64 };
static atomic_bool ending;

static void *work(void *arg) {
    while (!atomic_load(&ending)) {
        KN_SCOPE("work");
        for (int i = 0; i < 3; i++) {
            KN_SCOPE("inner λ");
            usleep(200);
        }
    }
    return arg;
}

static void wait_for_end(void) {
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS_MAX];
    int n = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;
    const char *word = argc > 2 ? argv[2] : "";
    if (strcmp(word, "none") != 0) { /* before the threads: the page is there when this is over */
        KN_SCOPE("main");
        usleep(1000);
    }
    for (int i = 0; i < n; i++) {
        if (pthread_create(&threads[i], NULL, work, NULL) != 0) return 1;
    }
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
    printf("ready\n");
    fflush(stdout);
    wait_for_end();
    atomic_store(&ending, true);
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    return 0;
}
