/* A fake NCCL whose ranks are threads of one process and whose memory is the host's: it has the
 * real library's name. A collective is done, at once, by the rank that calls it last; until then
 * the others are in progress. Link a test with fake_nccl: the loader then finds this library as
 * libnccl.so.2. */
#ifndef KNET_FAKE_NCCL_H
#define KNET_FAKE_NCCL_H

#include <nccl.h>

#undef FAKE_API
#define FAKE_API __attribute__((visibility("default")))

typedef struct fake_nccl_counts {
    int n_made;            /* communicators */
    int n_open;            /* of these, those that were neither destroyed nor aborted */
    int n_aborts, n_calls; /* collectives */
    size_t elements;       /* of the last one */
    int device;            /* whose context was current when the last rank joined */
} fake_nccl_counts;
FAKE_API fake_nccl_counts fake_nccl_count(void);
/* Clears counts and scripts. */
FAKE_API void fake_nccl_reset(void);
/* What ncclGetVersion says. */
FAKE_API void fake_nccl_version(int code);
/* From now on this function of this rank returns `result`: a call, or ncclCommGetAsyncError. */
FAKE_API void fake_nccl_fail(const char *function, int rank, ncclResult_t result);

#endif
