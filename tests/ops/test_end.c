/* The end of the process while other threads still run ops, and that of main before its process. */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "main_end.h"
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
static int status_of_end(const char *way, const char *microseconds) {
    int how = 0;
    pid_t child = fork();
    if (child == 0) {
        setenv("LSAN_OPTIONS", "detect_leaks=0", 1);
        setenv("TSAN_OPTIONS", "halt_on_error=1:atexit_sleep_ms=100:report_thread_leaks=0", 1);
        execl("/proc/self/exe", "test_ops_end", way, microseconds, NULL);
        _exit(1);
    }
    return waitpid(child, &how, 0) == child ? how : -1;
}

static void the_process_may_end_while_threads_run_ops(void **state) {
    (void)state;
    for (int i = 0; i < 30; i++) {
        char microseconds[16];
        snprintf(microseconds, sizeof microseconds, "%d", 20000 + 997 * i);
        int how = status_of_end("among servers", microseconds);
        if (!WIFEXITED(how)) fail_msg("the end after %s us: signal %d", microseconds, how & 127);
        assert_int_equal(WEXITSTATUS(how), 7);
    }
}

/* --- main ends by pthread_exit --- */

static _Atomic bool works; /* the last thread of the program's has done its work */

static bool helps(void) {
    KN_FRAME(.threads = 2);
    kn_tensor *y = kn_exp(kn_zeros(KN_SHAPE(1 << 20)));
    const float *data = kn_data(y);
    return data && data[(1 << 20) - 1] == 1.0f;
}

static int count_threads(void) {
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (tasks && readdir(tasks)) n++;
    if (tasks) closedir(tasks);
    return n - 2;
}

/* A handler of atexit: the process ends as its last thread did, with no signal blocked. */
static void check_end(void) {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (!works || sigismember(&blocked, SIGTERM)) _exit(8);
}

/* After main's end there are the initial thread, this one, a helper and the one that looks for the
 * end of this one. */
static void *work_on(void *unused) {
    bool right = true;
    wait_for_main_end();
    for (int i = 0; i < 20; i++) {
        right &= helps();
        usleep(5000);
    }
    works = right && count_threads() >= 4;
    return unused;
}

static void *wait_on(void *unused) {
    wait_for_main_end();
    usleep(300000);
    works = true;
    return unused;
}

/* The child, whose initial thread is this one, ends as its parent. */
static void *fork_on(void *unused) {
    int how = 0;
    wait_for_main_end();
    pid_t child = fork();
    if (child == 0) {
        end_in_a_minute();
        works = helps();
        return unused;
    }
    works = waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 0;
    return unused;
}

static const struct {
    const char *name;
    bool helps;            /* main has helpers before */
    void *(*run)(void *x); /* a thread; NULL: main is the last one */
} ways[] = {{"main is last", true, NULL},
            {"a thread has helpers", true, work_on},
            {"a thread is the first to have helpers", false, work_on},
            {"a thread waits", true, wait_on},
            {"a thread forks", true, fork_on},
            {"a thread forks without helpers", false, fork_on}};
enum { N_WAYS = sizeof ways / sizeof *ways };

static int end_main(int way) {
    pthread_t thread;
    end_in_a_minute();
    if (atexit(check_end) != 0 || (ways[way].helps && !helps())) return 1;
    works = !ways[way].run;
    if (ways[way].run && pthread_create(&thread, NULL, ways[way].run, NULL) != 0) return 1;
    pthread_exit(NULL);
}

static void the_process_ends_with_its_last_own_thread(void **state) {
    (void)state;
    for (int i = 0; i < N_WAYS; i++) {
        int how = status_of_end(ways[i].name, NULL);
        if (!WIFEXITED(how)) fail_msg("%s: signal %d", ways[i].name, how & 127);
        if (WEXITSTATUS(how) != 0) fail_msg("%s: code %d", ways[i].name, WEXITSTATUS(how));
    }
}

int main(int argc, char **argv) {
    if (argc > 2) end_among_servers(atoi(argv[2]));
    for (int i = 0; argc > 1 && i < N_WAYS; i++) {
        if (strcmp(argv[1], ways[i].name) == 0) return end_main(i);
    }
    return RUN_TESTS(TEST(the_process_may_end_while_threads_run_ops),
                     TEST_MAIN_END(the_process_ends_with_its_last_own_thread));
}
