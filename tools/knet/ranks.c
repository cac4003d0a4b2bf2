#include "ranks.h"

#include <fcntl.h>
#include <knet/frame.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fail.h"
#include "output.h"

static kn_comm *_Atomic connected;
static bool by_mpirun;

kn_status kn__ranks_connect(kn_comm **out) {
    kn_comm_launch launch;
    kn_comm *comm = NULL;
    char n_ranks[24];
    KN_TRY(kn_comm_launch_read(&launch));
    *out = NULL;
    if (launch.size == 1) return KN_OK;
    kn__fail_rank(launch.rank);
    if (launch.rank != 0) kn__output_mute();
    KN_TRY(kn_comm_create(&comm, NULL, NULL));
    *out = comm;
    connected = comm;
    by_mpirun = strcmp(launch.launcher, "mpirun") == 0;
    snprintf(n_ranks, sizeof n_ranks, "%d", kn_comm_size(comm));
    return kn_prof_note("ranks", n_ranks);
}

void kn__ranks_unused(void) {
    kn_comm_launch launch;
    if (kn_comm_launch_read(&launch) < 0 || launch.size == 1 || launch.rank != 0) return;
    kn__warn("this command has no ranks: each of the %d processes that %s started does all of it",
             launch.size, launch.launcher);
}

const char *kn__ranks_device(const kn_comm *comm, const char *device) {
    static char own[32];
    int n = kn_device_cuda_count();
    if (!comm || strcmp(device, "cuda") != 0 || n < 2) return device;
    snprintf(own, sizeof own, "cuda:%d", kn_comm_local_rank(comm) % n);
    return own;
}

int kn__ranks_threads(const kn_comm *comm) {
    int mine = kn_frame_threads(), all = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int local = comm ? kn_comm_local_size(comm) : 1;
    if (local == 1 || getenv("OMP_NUM_THREADS")) return mine;
    int share = all > local ? all / local : 1;
    return mine < share ? mine : share;
}

FILE *kn__ranks_terminal(void) {
    char path[64];
    if (!by_mpirun || isatty(STDERR_FILENO)) return stderr;
    snprintf(path, sizeof path, "/proc/%ld/fd/2", (long)getppid());
    int fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && isatty(fd)) return fdopen(fd, "w");
    if (fd >= 0) close(fd);
    return NULL;
}

void kn__ranks_signal(const siginfo_t *info, bool saves) {
    kn_comm *comm = connected;
    if (!comm) return;
    if (by_mpirun && info->si_signo == SIGTERM && info->si_pid == getppid())
        kn_comm_interrupt(comm, 0.4);
    else if (!saves)
        kn_comm_interrupt(comm, 30);
}
