/* Loads the module of a transport when a program asks for it. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "ranks.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const void *transport, *engine;

/* Beside this library first, then where the system looks. */
static void *open_module(char *why, size_t why_bytes, const char *file) {
    Dl_info here;
    char path[4096];
    why[0] = '\0';
    if (dladdr((const void *)&transport, &here) && here.dli_fname) {
        const char *slash = strrchr(here.dli_fname, '/');
        int n = slash ? (int)(slash - here.dli_fname) + 1 : 0;
        int length = snprintf(path, sizeof path, "%.*s%s", n, here.dli_fname, file);
        if (slash && length < (int)sizeof path) {
            /* Global: MPI's own plug-ins look its symbols up. */
            void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
            if (module) return module;
            snprintf(why, why_bytes, "%s", dlerror());
        }
    }
    void *module = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
    if (!module && !why[0]) snprintf(why, why_bytes, "%s", dlerror());
    return module;
}

/* *table: what the module exports, once it is loaded. */
static kn_status load(const void **table, const char *kind, const char *symbol, uint32_t version) {
    char file[64], why[512];
    if (*table) return KN_OK;
    snprintf(file, sizeof file, "libknet_comm_%s.so", kind);
    void *module = open_module(why, sizeof why, file);
    if (!module)
        return KN_FAIL(KN_ERR_UNSUPPORTED, "the module of %s cannot be loaded: %s", kind, why);
    const uint32_t *found = dlsym(module, symbol);
    if (!found || *found != version)
        return KN_FAIL(KN_ERR_UNSUPPORTED, "%s is of another version", file);
    *table = found;
    return KN_OK;
}

kn_status kn__comm_transport(const kn__transport **out) {
    pthread_mutex_lock(&lock);
    kn_status status = load(&transport, "mpi", KN__TRANSPORT_SYMBOL, KN__TRANSPORT_ABI);
    *out = transport;
    pthread_mutex_unlock(&lock);
    return status;
}

kn_status kn__comm_engine(const kn__engine **out) {
    pthread_mutex_lock(&lock);
    kn_status status = load(&engine, "nccl", KN__ENGINE_SYMBOL, KN__ENGINE_ABI);
    *out = engine;
    pthread_mutex_unlock(&lock);
    return status;
}
