/* A program that ends while another thread forks. The children time something and fork children of
 * their own, which end steps. */
#include <knet/device.h>
#include <knet/prof.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void grandchild(void) {
    { KN_SCOPE("in_grandchild"); }
    for (int i = 0; i < 3; i++) kn_step();
    exit(0);
}

static void child(void) {
    alarm(5); /* none must wait for a lock of the parent's */
    { KN_SCOPE("in_child"); }
    kn_step();
    pid_t pid = fork();
    if (pid == 0) grandchild();
    if (pid > 0) waitpid(pid, NULL, 0);
    _exit(0);
}

static void *fork_on(void *arg) {
    (void)arg;
    for (;;) {
        pid_t pid = fork();
        if (pid == 0) child();
        if (pid > 0) waitpid(pid, NULL, 0);
    }
    return NULL;
}

int main(void) {
    pthread_t thread;
    alarm(15);
    { KN_SCOPE("in_main"); }
    kn_step();
    kn_device_host();
    if (pthread_create(&thread, NULL, fork_on, NULL) != 0) return 2;
    usleep(100000);
    return 0;
}
