/* fork() waits for these locks: a child, which has the forking thread alone, finds them free, and
 * what they protect whole, also in oneDNN, which the first ones guard. */
#include <pthread.h>

#include "host/base/dnnl.h"
#include "host/conv/conv_route.h"
#include "host/conv/conv_weights.h"
#include "host/host.h"
#include "host/product/gemm_bf16.h"

/* Who holds one may take those after it, and then the pools'. */
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
