/* A program that ends without destructors, where that is hard.
 * usage: exit_program handler HOW        in a signal handler
 *        exit_program alternate HOW      in a signal handler with a stack of 8 KiB
 *        exit_program thread HOW         in a thread with a stack of 16 KiB
 *        exit_program both HOW LATER     in a thread, and 200 ms later in main too
 *        exit_program blocked HOW        with a pending SIGALRM
 *        exit_program timer HOW          with a timer that raises SIGALRM every millisecond
 * HOW and LATER: exit, _exit, _Exit or quick_exit, with 5; LATER also return. */
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const char *how;

static void end(const char *by) {
    if (strcmp(by, "exit") == 0) exit(5);
    if (strcmp(by, "_exit") == 0) _exit(5);
    if (strcmp(by, "_Exit") == 0) _Exit(5);
    if (strcmp(by, "quick_exit") == 0) quick_exit(5);
}

static void *end_in_thread(void *arg) {
    end(how);
    return arg;
}

static void end_in_handler(int number) {
    (void)number;
    end(how);
}

static void ignore(int number) { (void)number; }

static int raise_here(int flags) {
    struct sigaction action = {.sa_handler = end_in_handler, .sa_flags = flags};
    return sigaction(SIGUSR1, &action, NULL) != 0 || raise(SIGUSR1) != 0;
}

static int raise_on_alternate_stack(void) {
    static char memory[8 << 10];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
    return sigaltstack(&stack, NULL) != 0 || raise_here(SA_ONSTACK);
}

static int start_thread(size_t stack_bytes) {
    pthread_t thread;
    pthread_attr_t attr;
    if (pthread_attr_init(&attr) != 0) return 1;
    if (stack_bytes && pthread_attr_setstacksize(&attr, stack_bytes) != 0) return 1;
    return pthread_create(&thread, &attr, end_in_thread, NULL) != 0;
}

static int block_alarm(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    return sigprocmask(SIG_BLOCK, &set, NULL) != 0 || raise(SIGALRM) != 0;
}

static int start_timer(void) {
    timer_t timer;
    struct itimerspec every = {{0, 1000000}, {0, 1000000}};
    return signal(SIGALRM, ignore) == SIG_ERR || timer_create(CLOCK_MONOTONIC, NULL, &timer) != 0 ||
           timer_settime(timer, 0, &every, NULL) != 0;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const char *where = argv[1];
    how = argv[2];
    nvtxRangePushA("early");
    nvtxRangePop();
    if (strcmp(where, "handler") == 0) return raise_here(0);
    if (strcmp(where, "alternate") == 0) return raise_on_alternate_stack();
    if (strcmp(where, "thread") == 0) return start_thread(16 << 10) || pause();
    if (strcmp(where, "blocked") == 0 && block_alarm() != 0) return 1;
    if (strcmp(where, "timer") == 0 && start_timer() != 0) return 1;
    if (strcmp(where, "both") == 0 && argc > 3) {
        if (start_thread(0) != 0) return 1;
        usleep(200000);
        end(argv[3]);
        return 5;
    }
    end(how);
    return 1;
}
