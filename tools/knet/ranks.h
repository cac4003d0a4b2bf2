/* The ranks that a launcher started this command as. */
#ifndef KN_RANKS_H
#define KN_RANKS_H

#include <knet/comm.h>
#include <signal.h>
#include <stdio.h>

#include "opts.h"

/* Connects the ranks; *out is NULL where there is one. This rank's messages name it; ranks other
 * than 0 print nothing else. */
kn_status kn__ranks_connect(kn_comm **out);
/* For a command that has no use for ranks: the first of several says so. */
void kn__ranks_unused(void);
/* "cuda" becomes the device of this rank on its machine. */
const char *kn__ranks_device(const kn_comm *comm, const char *device);
/* The threads of one rank: those that the process may use, shared with the other ranks on the
 * machine where the launcher did not bind them to cores. */
int kn__ranks_threads(const kn_comm *comm);
/* Where a progress bar may be: standard error, or the terminal of mpirun, which reads that from a
 * pipe. The caller's until exit; NULL: none. */
FILE *kn__ranks_terminal(void);
/* A signal that ends the process. mpirun itself, where it ends all ranks, leaves them a second, in
 * which they say what happened. Else a rank that saves waits for the others as ever: they may be in
 * a longer step, or write the checkpoint. */
void kn__ranks_signal(const siginfo_t *info, bool saves);

#endif
