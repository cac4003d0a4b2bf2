/* A library whose fork handler takes its time. With -z initfirst it is registered before all
 * others, so that it is the last one to run before a fork: a fork lasts for most of the time. */
#include <pthread.h>
#include <unistd.h>

static void wait_before_fork(void) { usleep(20000); }

__attribute__((constructor)) static void start(void) {
    pthread_atfork(wait_before_fork, NULL, NULL);
}
