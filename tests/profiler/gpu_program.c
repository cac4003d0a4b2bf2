/* A program that "uses the GPU" through the mock CUPTI: argv[1] is the mock's path, argv[2] the
 * number of threads. Each thread launches 1000 kernels of 2 µs in train/gemm and 250 copies of 1 µs
 * in train. */
#include <dlfcn.h>
#include <knet/prof.h>
#include <pthread.h>
#include <stdlib.h>

#include "mock_cupti.h"

static mock_launch_fn launch;

static void *train(void *arg) {
    KN_SCOPE("train");
    for (int i = 0; i < 1000; i++) {
        {
            KN_SCOPE("gemm");
            launch(MOCK_KERNEL, "_ZN7cutlass6KernelI4GemmLi128EEEvT_", 2000, 0);
        }
        if (i % 4 == 0) launch(MOCK_COPY, NULL, 1000, 0);
    }
    launch(MOCK_SET, NULL, 500, 0);
    launch(MOCK_PEER_COPY, NULL, 700, 0);
    launch(MOCK_KERNEL, "fails", 1000, 1);
    return arg;
}

int main(int argc, char **argv) {
    void *mock = argc > 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!mock) return 99;
    *(void **)(void *)&launch = dlsym(mock, "mock_launch");
    pthread_t threads[16];
    int n = atoi(argv[2]);
    for (int i = 0; i < n; i++) {
        if (pthread_create(&threads[i], NULL, train, NULL) != 0) return 98;
    }
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    return 6;
}
