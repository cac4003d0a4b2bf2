/* The report of a program that ends by _exit, _Exit or quick_exit, as dash does: the timer's
 * destructor does not run there. */
#include <dlfcn.h>
#include <knet/prof.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { REPORT_SECONDS = 30, HANDLER_SECONDS = 2 };

KN_API _Noreturn void _exit(int code);
KN_API _Noreturn void _Exit(int code);

typedef void (*exit_fn)(int code);
static exit_fn next_exit, next_Exit;
static int exit_code;
static sigset_t blocked_at_start;

static void give_up(int number) {
    (void)number;
    syscall(SYS_exit_group, exit_code);
}

/* While a handler runs its signal is blocked. */
static bool may_be_in_handler(void) {
    sigset_t now;
    if (pthread_sigmask(SIG_BLOCK, NULL, &now) != 0) return true;
    int i = 1;
    while (i < NSIG && (sigismember(&now, i) != 1 || sigismember(&blocked_at_start, i) == 1)) i++;
    return i < NSIG;
}

/* A handler may call _exit where its thread holds a lock that the report needs, such as malloc's:
 * then the process ends without the report. */
static void limit_time(int code) {
    struct sigaction late = {.sa_handler = give_up};
    sigset_t alarm_only;
    unsigned seconds = may_be_in_handler() ? HANDLER_SECONDS : REPORT_SECONDS;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    exit_code = code;
    if (sigaction(SIGALRM, &late, NULL) != 0) return;
    pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
    alarm(seconds);
}

static _Noreturn void report_and_exit(int code, exit_fn next) {
    if (kn_prof_exits_()) {
        limit_time(code);
        kn_prof_exit_();
    }
    if (next) next(code);
    for (;;) syscall(SYS_exit_group, code);
}

void _exit(int code) { report_and_exit(code, next_exit); }
void _Exit(int code) { report_and_exit(code, next_Exit); }

static exit_fn find(const char *name) {
    void *symbol = dlsym(RTLD_NEXT, name);
    exit_fn found;
    memcpy(&found, &symbol, sizeof found);
    return found;
}

/* Here, as a child of fork() and a signal handler may not look for symbols. Of the functions for
 * quick_exit the first to be registered is the last to run. */
__attribute__((constructor)) static void start(void) {
    pthread_sigmask(SIG_BLOCK, NULL, &blocked_at_start);
    next_exit = find("_exit");
    next_Exit = find("_Exit");
    (void)at_quick_exit(kn_prof_exit_);
}
