/* The end of the process while other threads still run ops. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ops_test.h"

enum { SERVERS = 4, REQUESTS = 1200 };

/* Leaves records of its tensors, and takes those of threads before it. */
static void *request(void *unused) {
    KN_FRAME();
    for (int i = 0; i < REQUESTS; i++) kn_ones(KN_SHAPE(4));
    return unused;
}

static void *serve(void *unused) {
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, request, NULL) == 0) pthread_join(thread, NULL);
    }
    return unused;
}

static void end_among_servers(int microseconds) {
    pthread_t thread;
    for (int i = 0; i < SERVERS; i++) {
        if (pthread_create(&thread, NULL, serve, NULL) == 0) pthread_detach(thread);
    }
    usleep((useconds_t)microseconds);
    exit(7);
}

/* A program of its own: ThreadSanitizer takes no new threads in a forked child. Threads that still
 * run are no leaks, nor is the state of one that ends after the library did. */
static int status_of_end(const char *microseconds) {
    int how = 0;
    pid_t child = fork();
    if (child == 0) {
        setenv("LSAN_OPTIONS", "detect_leaks=0", 1);
        setenv("TSAN_OPTIONS", "halt_on_error=1:atexit_sleep_ms=100:report_thread_leaks=0", 1);
        execl("/proc/self/exe", "test_ops_end", microseconds, NULL);
        _exit(1);
    }
    return waitpid(child, &how, 0) == child ? how : -1;
}

static void the_process_may_end_while_threads_run_ops(void **state) {
    (void)state;
    for (int i = 0; i < 30; i++) {
        char microseconds[16];
        snprintf(microseconds, sizeof microseconds, "%d", 20000 + 997 * i);
        int how = status_of_end(microseconds);
        if (!WIFEXITED(how)) fail_msg("the end after %s us: signal %d", microseconds, how & 127);
        assert_int_equal(WEXITSTATUS(how), 7);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) end_among_servers(atoi(argv[1]));
    return RUN_TESTS(TEST(the_process_may_end_while_threads_run_ops));
}
