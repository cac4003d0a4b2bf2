/* Loads the module of CUDA kernels when a first CUDA tensor needs one, so that programs without a
 * GPU don't pay for cuBLAS and cuDNN. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "kernel.h"
#include "run.h"

#ifndef MODULE_FILE
#define MODULE_FILE "libknet_ops_cuda.so"
#endif

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const kn__cuda_exports *_Atomic loaded;
static char why[512]; /* it could not be loaded */

/* Beside this library first, then where the system looks. */
static void *open_module(void) {
    Dl_info here;
    char path[4096];
    if (dladdr((const void *)&loaded, &here) && here.dli_fname) {
        const char *slash = strrchr(here.dli_fname, '/');
        int n = slash ? (int)(slash - here.dli_fname) + 1 : 0;
        int length = snprintf(path, sizeof path, "%.*s" MODULE_FILE, n, here.dli_fname);
        if (slash && length < (int)sizeof path) {
            void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            if (module) return module;
            snprintf(why, sizeof why, "%s", dlerror());
        }
    }
    void *module = dlopen(MODULE_FILE, RTLD_NOW | RTLD_LOCAL);
    if (!module && !why[0]) snprintf(why, sizeof why, "%s", dlerror());
    return module;
}

static void load(void) {
    void *module = open_module();
    if (!module) return;
    kn__cuda_exports_fn get = NULL;
    void *symbol = dlsym(module, KN_CUDA_MODULE_SYMBOL);
    memcpy(&get, &symbol, sizeof get);
    const kn__cuda_exports *found = get ? get() : NULL;
    if (!found) {
        snprintf(why, sizeof why, MODULE_FILE " has no usable " KN_CUDA_MODULE_SYMBOL);
    } else if (found->abi != KN_CUDA_MODULE_ABI) {
        snprintf(why, sizeof why, MODULE_FILE " is of another version: abi %u, expected %d",
                 found->abi, KN_CUDA_MODULE_ABI);
    } else {
        loaded = found;
    }
}

const kn__cuda_exports *kn__cuda_module_loaded(void) { return loaded; }

const kn__cuda_exports *kn__cuda_module(void) {
    pthread_once(&once, load);
    if (!loaded) KN_FAIL(KN_ERR_UNSUPPORTED, "the CUDA kernels can't be loaded: %s", why);
    return loaded;
}
