/* The report of a program that ends by _exit, _Exit or quick_exit, as dash does: the timer's
 * destructor does not run there. */
#include <dlfcn.h>
#include <errno.h>
#include <knet/prof.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include "now.h"

enum { REPORT_SECONDS = 30, HANDLER_SECONDS = 2 };
enum { STACK_BYTES = 1 << 20, GUARD_BYTES = 64 << 10 };

KN_API _Noreturn void _exit(int code);
KN_API _Noreturn void _Exit(int code);
KN_API _Noreturn void quick_exit(int code);

int __cxa_at_quick_exit(void (*fn)(void *), void *library);

typedef void (*exit_fn)(int code);
static exit_fn next_exit, next_Exit, next_quick_exit;
static atomic_int quick_code;
static sigset_t blocked_at_start;

/* Of the first thread that ends the process. */
static atomic_flag limited = ATOMIC_FLAG_INIT;
static int exit_code;
static bool in_handler;
static uint64_t deadline_ns;

/* --- the time limit --- */

/* A pipe that is full must not keep the process, nor one without a reader end it by SIGPIPE. */
static void say(const char *line) {
    struct pollfd to = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&to, 1, 0) == 1 && to.revents == POLLOUT) (void)!write(to.fd, line, strlen(line));
}

/* Timers of the program may raise the signal too. */
static void give_up(int number) {
    int error = errno;
    (void)number;
    if (kn__now_ns(CLOCK_MONOTONIC) >= deadline_ns) {
        say(in_handler ? "KNET_TIMER: the report was not written: it took more than 2 s after the "
                         "exit in a signal handler, which may have interrupted malloc\n"
                       : "KNET_TIMER: the report was not written: it took more than 30 s after the "
                         "exit\n");
        syscall(SYS_exit_group, exit_code);
    }
    errno = error;
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
 * then the process ends without the report. The timer repeats, as the program may wait for the
 * signal elsewhere. */
static void limit_time(int code) {
    struct sigaction late = {.sa_handler = give_up, .sa_flags = SA_RESTART};
    struct itimerval timer = {.it_interval = {.tv_sec = 1}};
    sigset_t alarm_only;
    if (atomic_flag_test_and_set(&limited)) return;
    exit_code = code;
    in_handler = may_be_in_handler();
    timer.it_value.tv_sec = in_handler ? HANDLER_SECONDS : REPORT_SECONDS;
    deadline_ns = kn__now_ns(CLOCK_MONOTONIC) + (uint64_t)timer.it_value.tv_sec * 1000000000u;
    if (sigaction(SIGALRM, &late, NULL) != 0) return;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* --- the report --- */

/* The stack of a handler that is left must stay as it is. */
static void report(void) {
    stack_t none = {.ss_flags = SS_DISABLE};
    (void)sigaltstack(&none, NULL);
    kn_prof_exit_();
}

/* The caller may be on the small stack of a thread or of a signal handler. */
static void report_on_own_stack(void) {
    typedef struct {
        ucontext_t here, there;
    } contexts;
    char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) {
        kn_prof_exit_();
        return;
    }
    (void)mprotect(stack, GUARD_BYTES, PROT_NONE);
    contexts *both = (void *)(stack + GUARD_BYTES);
    if (getcontext(&both->there) != 0) return;
    both->there.uc_link = &both->here;
    both->there.uc_stack.ss_sp = both + 1;
    both->there.uc_stack.ss_size = STACK_BYTES - GUARD_BYTES - sizeof *both;
    makecontext(&both->there, report, 0);
    (void)swapcontext(&both->here, &both->there);
}

static void report_in_time(int code) {
    if (!kn_prof_exits_()) return;
    limit_time(code);
    report_on_own_stack();
}

static _Noreturn void report_and_exit(int code, exit_fn next) {
    report_in_time(code);
    if (next) next(code);
    for (;;) syscall(SYS_exit_group, code);
}

void _exit(int code) { report_and_exit(code, next_exit); }
void _Exit(int code) { report_and_exit(code, next_Exit); }

void quick_exit(int code) {
    atomic_store(&quick_code, code);
    if (next_quick_exit) next_quick_exit(code);
    report_and_exit(code, next_exit);
}

static void report_at_quick_exit(void *arg) {
    (void)arg;
    report_in_time(atomic_load(&quick_code));
}

static exit_fn find(const char *name) {
    void *symbol = dlsym(RTLD_NEXT, name);
    exit_fn found;
    memcpy(&found, &symbol, sizeof found);
    return found;
}

/* Here, as a child of fork() and a signal handler may not look for symbols. Of the functions for
 * quick_exit the first to be registered is the last to run; without a library it stays registered
 * while another thread runs exit(). */
__attribute__((constructor)) static void start(void) {
    pthread_sigmask(SIG_BLOCK, NULL, &blocked_at_start);
    next_exit = find("_exit");
    next_Exit = find("_Exit");
    next_quick_exit = find("quick_exit");
    (void)__cxa_at_quick_exit(report_at_quick_exit, NULL);
}
