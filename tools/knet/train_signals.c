/* The signals after which knet train ends. */
#include <signal.h>

#include "pipe.h"
#include "ranks.h"
#include "signal_stack.h"
#include "train_session.h"

static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1}; /* the last one only with saving */
static volatile sig_atomic_t searching, saving;

static void interrupt(int signal_number, siginfo_t *info, void *context) {
    (void)context;
    kn__interrupted = signal_number;
    if (!searching) kn__ranks_signal(info, saving);
}

void kn__interrupt_search(bool begins) { searching = begins; }

/* The second Ctrl-C meets the default action; a second hang-up is common, from the shell and the
 * kernel. An ignored signal stays ignored (nohup), but for Ctrl-C: shells ignore it in background
 * jobs. */
void kn__interrupt_attach(bool saves) {
    static char stack[KN__SIGNAL_STACK_BYTES];
    struct sigaction action = {.sa_sigaction = interrupt};
    saving = saves;
    kn__signal_stack_set(stack);
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < (saves ? 4 : 3); i++) { /* SIGUSR1: Slurm's warning before the end */
        struct sigaction before;
        sigaction(ends[i], NULL, &before);
        action.sa_flags =
            SA_RESTART | SA_ONSTACK | SA_SIGINFO | (ends[i] == SIGINT ? (int)SA_RESETHAND : 0);
        if (ends[i] == SIGINT || before.sa_handler != SIG_IGN) sigaction(ends[i], &action, NULL);
    }
}

/* The reports at exit may wait for the reader of a pipe: signals end the process again. SIGUSR1
 * stays a warning. */
void kn__interrupt_detach(void) {
    for (size_t i = 0; i < 3; i++) {
        struct sigaction now;
        sigaction(ends[i], NULL, &now);
        if (now.sa_sigaction == interrupt) signal(ends[i], SIG_DFL);
    }
}
