/* A library that looks like libcupti over a GPU that isn't there; and the program's side of it.
 *
 * MOCK_CUPTI in the environment is a list of words: held (another tool has it), nodriver, fail=N
 * (the N-th call fails), driver (records carry the driver call's id), zero (no times), drop=N
 * (every N-th record is lost), late (a flush delivers only some of what there is), real (buffers
 * are walked by the real libcupti.so.13).
 */
#ifndef KNET_MOCK_CUPTI_H
#define KNET_MOCK_CUPTI_H

#include <stdint.h>

typedef enum mock_kind { MOCK_KERNEL, MOCK_COPY, MOCK_SET, MOCK_PEER_COPY } mock_kind;

/* Launches work as a program does through the runtime: its callbacks on this thread, a record of
 * `ns` later. `error` not 0: the call fails, and no record comes. */
typedef void (*mock_launch_fn)(mock_kind kind, const char *name, uint64_t ns, int error);

#endif
