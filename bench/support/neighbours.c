#include "neighbours.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void neighbours_start(pid_t pid[NEIGHBOURS]) {
    for (int i = 0; i < NEIGHBOURS; i++) {
        pid[i] = fork();
        if (pid[i]) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (volatile unsigned turns = 0;; turns++) continue;
    }
}

void neighbours_stop(const pid_t pid[NEIGHBOURS]) {
    for (int i = 0; i < NEIGHBOURS; i++) {
        if (pid[i] <= 0) continue;
        kill(pid[i], SIGKILL);
        waitpid(pid[i], NULL, 0);
    }
}
