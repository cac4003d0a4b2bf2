/* fork() waits for these locks. The child has only the thread that forked: it finds the locks free
 * and their data complete, also that of oneDNN, whose calls the first locks protect. */
#include <pthread.h>

#include "host/base/dnnl.h"
#include "host/conv/conv_route.h"
#include "host/conv/conv_weights.h"
#include "host/host.h"
#include "host/product/gemm_bf16.h"

/* In the order in which threads take them; locks of pools come after all of them. */
static pthread_mutex_t *const locks[] = {&kn__dnnl_making, &kn__conv_plan_cache.mutex,
                                         &kn__gemm_bf16_cache.mutex, &kn__conv_weights_lock,
                                         &kn__conv_routes_lock};
enum { N_LOCKS = sizeof locks / sizeof locks[0] };

static void take_all(void) {
    for (int i = 0; i < N_LOCKS; i++) pthread_mutex_lock(locks[i]);
}
static void open_all(void) {
    for (int i = N_LOCKS; i--;) pthread_mutex_unlock(locks[i]);
}

void kn__host_forks_watch(void) { pthread_atfork(take_all, open_all, open_all); }
