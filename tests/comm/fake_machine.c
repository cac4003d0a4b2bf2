/* As many fake GPUs as a test has ranks, before anybody looks for them; and the fake NCCL. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "fake_cuda.h"
#include "fake_nccl.h"

static void end_check(void) {
    bool is_used = fake_nccl_count().n_calls > 0;
    if (is_used && !fake_cuda_count().n_violations) return;
    fprintf(stderr, "violation: %s\n", is_used ? fake_cuda_violation() : "no call of NCCL");
    _Exit(1);
}

__attribute__((constructor)) static void machine_set(void) {
    fake_cuda_machine_get()->n_devices = 8;
    fake_nccl_reset();
    atexit(end_check);
}
