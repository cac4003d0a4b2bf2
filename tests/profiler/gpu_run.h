/* gpu_program under the timer, with the mock of CUPTI. */
#ifndef KNET_TEST_GPU_RUN_H
#define KNET_TEST_GPU_RUN_H

#include "outcome.h"

/* What the tests get as arguments: the program, the mock, the folder of the mock of the driver, and
 * a listener to NVTX (NULL: none was built). */
extern const char *gpu_program, *mock, *driver, *listener;
/* Takes main's arguments; false: some are missing. */
bool gpu_run_init(int argc, char **argv);
void gpu_run_release(void);

/* KNET_TIMER=<tier>, MOCK_CUPTI=<words>, what the program is to do. `library`: of CUPTI. */
outcome run_gpu(const char *tier, const char *words, const char *what, const char *library);
outcome run(const char *words, const char *what); /* by the mock, KNET_TIMER=gpu */
/* The same with the mock of the driver, and MOCK_CUDA=<cuda>. */
outcome run_driver(const char *words, const char *what, const char *cuda);

/* A count of the balance: "launched", "timed" … */
double balance(const outcome *o, const char *key);
/* All that `n` threads launched is in its row, however the records came. */
void assert_complete(const outcome *o, int n);

#endif
