/* Starts programs by mpirun, as root and on any number of cores. */
#ifndef MPIRUN_H
#define MPIRUN_H

#include <sys/wait.h>

#include "test.h"

static const char *mpirun_program;

/* Skips the whole test where there is no mpirun, or none that works. */
static void mpirun_needed(const char *self) {
    mpirun_program = self;
    if (system("mpirun --allow-run-as-root --oversubscribe -n 2 true >/dev/null 2>&1") != 0)
        test_skip_all("mpirun does not start 2 ranks");
}

/* Runs `before` mpirun -n N `options` this program `args`; returns the exit code, -1 for a signal,
 * and the output. The ranks share one machine and use no network. */
static int mpirun(char *out, size_t out_bytes, int n, const char *before, const char *options,
                  const char *args) {
    char command[4096];
    snprintf(command, sizeof command,
             "OMPI_MCA_btl=self,vader OMPI_MCA_rmaps_base_oversubscribe=1 %s timeout 300 mpirun "
             "--allow-run-as-root --oversubscribe --bind-to none -n %d %s %s %s 2>&1 </dev/null",
             before, n, options, mpirun_program, args);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t length = fread(out, 1, out_bytes - 1, pipe);
    out[length] = '\0';
    while (fgetc(pipe) != EOF) {
    }
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#endif
