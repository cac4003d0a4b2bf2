/* The environment, read in one place. */
#ifndef KN_COMM_LAUNCH_H
#define KN_COMM_LAUNCH_H

#include <knet/comm.h>

/* The words of KNET_COMM; other options keep their values. */
kn_status kn__comm_words(uint64_t *timeout_ns);

#endif
