#include "watch.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "now.h"
#include "signal_stack.h"
#include "thread.h"

static sem_t wake;
static atomic_int caught; /* the signal; 0: none */
static atomic_bool ending;
static bool running; /* there is a thread to join */
static pthread_t thread;
static uint64_t period_ns;
static void (*make_report)(void), (*make_last_report)(void);
static int watched;             /* signal; 0: none */
static struct sigaction before; /* what the signal did */

static void on_signal(int number) {
    int error = errno;
    atomic_store(&caught, number);
    sem_post(&wake);
    errno = error;
}

/* Waits for the signal, the end, or the time; true: for the time. */
static bool wait_for(const struct timespec *when) {
    for (;;) {
        int failed = period_ns ? sem_clockwait(&wake, CLOCK_MONOTONIC, when) : sem_wait(&wake);
        if (!failed) return false;
        if (errno != EINTR) return true;
    }
}

static bool is_default(void) {
    return !(before.sa_flags & SA_SIGINFO) && before.sa_handler == SIG_DFL;
}

static bool is_ignored(void) {
    return !(before.sa_flags & SA_SIGINFO) && before.sa_handler == SIG_IGN;
}

static bool is_ours_alone(int number) { return number == SIGUSR1 || number == SIGUSR2; }

/* Unless the program has set a handler of its own since. */
static void detach(void) {
    struct sigaction now;
    if (!watched || sigaction(watched, NULL, &now) != 0) return;
    if (!(now.sa_flags & SA_SIGINFO) && now.sa_handler == on_signal) {
        sigaction(watched, &before, NULL);
    }
}

/* After the report a signal that ends programs takes its former action. */
static void pass_on(int number) {
    if (is_ours_alone(number) || is_ignored()) return;
    detach();
    kill(getpid(), number);
}

static void answer(int number) {
    is_default() && !is_ours_alone(number) ? make_last_report() : make_report();
    pass_on(number);
}

static void *watch(void *arg) {
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    next = kn__time_after(next, period_ns);
    for (;;) {
        bool due = wait_for(&next);
        if (atomic_load(&ending)) return arg;
        if (due) next = kn__time_after(next, period_ns);
        int number = atomic_exchange(&caught, 0);
        if (number) {
            answer(number);
        } else if (due) {
            make_report();
        }
    }
}

/* A report that can't be written, to a pipe without a reader, must not keep the program from
 * ending: the second Ctrl-C meets the default action. */
static void attach(void) {
    static char stack[KN__SIGNAL_STACK_BYTES];
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
    kn__signal_stack_set(stack);
    sigaction(watched, NULL, &before);
    if (watched == SIGINT && is_default()) action.sa_flags |= (int)SA_RESETHAND;
    sigaction(watched, &action, NULL);
}

kn_status kn__watch_start(uint64_t every_ns, int signal, void (*report)(void),
                          void (*last_report)(void)) {
    period_ns = every_ns;
    make_report = report;
    make_last_report = last_report;
    sem_init(&wake, 0, 0);
    int error = kn__thread_start(&thread, watch, NULL);
    if (error) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "no reports while the program runs: no thread: %s",
                       strerror(error));
    }
    running = true;
    watched = signal;
    if (signal) attach();
    return KN_OK;
}

void kn__watch_stop(void) {
    if (!running) return;
    running = false;
    atomic_store(&ending, true);
    sem_post(&wake);
    pthread_join(thread, NULL);
}

void kn__watch_finish(void) {
    detach();
    int number = atomic_exchange(&caught, 0);
    if (number) pass_on(number);
}

void kn__watch_forget(void) {
    running = false;
    detach();
}
