/* Loads the module of a transport when a program asks for it. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "ranks.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const kn__transport *transport;
static const kn__engine *engine;

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

static kn_status load(void **symbol, const char *kind, const char *name) {
    char file[64], why[512];
    snprintf(file, sizeof file, "libknet_comm_%s.so", kind);
    void *module = open_module(why, sizeof why, file);
    if (!module)
        return KN_FAIL(KN_ERR_UNSUPPORTED, "the module of %s cannot be loaded: %s", kind, why);
    *symbol = dlsym(module, name);
    return KN_OK;
}

static kn_status fail_version(const char *kind) {
    return KN_FAIL(KN_ERR_UNSUPPORTED, "libknet_comm_%s.so is of another version", kind);
}

static kn_status transport_load(const char *kind) {
    kn__transport_fn get = NULL;
    void *symbol = NULL;
    KN_TRY(load(&symbol, kind, KN__TRANSPORT_SYMBOL));
    memcpy(&get, &symbol, sizeof get);
    const kn__transport *found = get ? get() : NULL;
    if (!found || found->abi != KN__TRANSPORT_ABI) return fail_version(kind);
    transport = found;
    return KN_OK;
}

static kn_status engine_load(const char *kind) {
    kn__engine_fn get = NULL;
    void *symbol = NULL;
    KN_TRY(load(&symbol, kind, KN__ENGINE_SYMBOL));
    memcpy(&get, &symbol, sizeof get);
    const kn__engine *found = get ? get() : NULL;
    if (!found || found->abi != KN__ENGINE_ABI) return fail_version(kind);
    engine = found;
    return KN_OK;
}

kn_status kn__comm_module(const kn__transport **out, const char *kind) {
    pthread_mutex_lock(&lock);
    kn_status status = transport ? KN_OK : transport_load(kind);
    *out = transport;
    pthread_mutex_unlock(&lock);
    return status;
}

kn_status kn__comm_engine(const kn__engine **out, const char *kind) {
    pthread_mutex_lock(&lock);
    kn_status status = engine ? KN_OK : engine_load(kind);
    *out = engine;
    pthread_mutex_unlock(&lock);
    return status;
}
