/* Signals that the command ignores: a failed write says the same. */
#include <signal.h>

#include "cmd.h"

static const int numbers[] = {SIGPIPE, SIGXFSZ};
enum { N_NUMBERS = sizeof numbers / sizeof *numbers };
static struct sigaction before[N_NUMBERS];

void kn__signals_ignore(void) {
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    for (int i = 0; i < N_NUMBERS; i++) sigaction(numbers[i], &ignore, &before[i]);
}

void kn__signals_restore(void) {
    for (int i = 0; i < N_NUMBERS; i++) sigaction(numbers[i], &before[i], NULL);
}
