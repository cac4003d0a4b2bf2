#include "device/cuda_api.h"
#include "device/drivers.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = 768 };

static struct {
    pthread_once_t once;
    kn__cuda_api api;
    int n_devices;
    char failure[MESSAGE_BYTES]; /* empty: loaded */
    atomic_bool deinitialized;
} cuda = {.once = PTHREAD_ONCE_INIT};

/* ISO C has no cast from dlsym's void pointer to a function pointer. */
static bool find_symbol(void *library, const char *name, void *out_fn) {
    void *symbol = dlsym(library, name);
    memcpy(out_fn, &symbol, sizeof symbol);
    return symbol != NULL;
}

static int driver_version(void *library) {
    cu_result (*read_version)(int *) = NULL;
    int version = 0;
    if (find_symbol(library, "cuDriverGetVersion", &read_version)) (void)read_version(&version);
    return version;
}

static void fail_old(void *library, const char *missing) {
    int version = driver_version(library);
    snprintf(cuda.failure, sizeof cuda.failure,
             "the CUDA driver is too old: it serves CUDA %d.%d and lacks %s; CUDA %d.%d (driver "
             "465) or newer is needed: update NVIDIA's driver, or use the cpu device",
             version / 1000, version % 1000 / 10, missing, KN__CUDA_OLDEST / 1000,
             KN__CUDA_OLDEST % 1000 / 10);
}

static bool resolve(void *library, cu_get_proc_fn get_proc, const char *name, int version,
                    void *out_fn) {
    void *symbol = NULL;
    cu_result result = get_proc(name, &symbol, version, KN__CU_GET_PROC_LEGACY_STREAM);
    if (result == KN__CU_ERROR_STUB_LIBRARY) {
        snprintf(cuda.failure, sizeof cuda.failure,
                 "libcuda.so.1 is the CUDA toolkit's stub for linking and no driver: remove its "
                 "folder from LD_LIBRARY_PATH, or use the cpu device");
        return false;
    }
    bool found = result == KN__CU_SUCCESS && symbol, needed = version <= KN__CUDA_OLDEST;
    if (found) memcpy(out_fn, &symbol, sizeof symbol);
    if (!found && needed) fail_old(library, name);
    return found || !needed;
}

static bool resolve_all(void *library) {
    cu_get_proc_fn get_proc = NULL;
    if (!find_symbol(library, "cuGetProcAddress", &get_proc)) {
        fail_old(library, "cuGetProcAddress");
        return false;
    }
#define X(name, version, params)                                                                   \
    if (!resolve(library, get_proc, #name, version, &cuda.api.name)) return false;
    KN__CUDA_API(X)
#undef X
    return true;
}

static const char *advice(cu_result result) {
    switch (result) {
        case KN__CU_ERROR_NO_DEVICE:
            return "no GPU is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES, or use the cpu "
                   "device";
        case KN__CU_ERROR_SYSTEM_DRIVER_MISMATCH:
            return "the driver was updated while it was loaded: restart the machine";
        default:
            return "check that nvidia-smi works, or use the cpu device";
    }
}

/* Name or text of a result; `get` is the driver's function for it. */
static const char *ask(cu_result (*get)(cu_result, const char **), cu_result result,
                       const char *unknown) {
    const char *text = NULL;
    bool known = get && kn__cuda_alive() && get(result, &text) == KN__CU_SUCCESS && text;
    return known ? text : unknown;
}

static const char *result_name(cu_result result) {
    if (result == KN__CU_ERROR_DEINITIALIZED) return "CUDA_ERROR_DEINITIALIZED";
    return ask(cuda.api.cuGetErrorName, result, "CUDA error");
}

static const char *result_text(cu_result result) {
    if (result == KN__CU_ERROR_DEINITIALIZED) return "the CUDA driver is shutting down";
    if (result == KN__CU_ERROR_NOT_INITIALIZED) {
        return "the CUDA driver is not initialized here (after fork() the child can't use it)";
    }
    return ask(cuda.api.cuGetErrorString, result, "unknown");
}

static void load_once(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(cuda.failure, sizeof cuda.failure,
                 "no CUDA driver (%s): install NVIDIA's driver, or use the cpu device", dlerror());
        return;
    }
    if (!resolve_all(library)) return;
    const char *function = "cuInit";
    cu_result result = cuda.api.cuInit(0);
    if (result == KN__CU_SUCCESS) {
        function = "cuDeviceGetCount";
        result = cuda.api.cuDeviceGetCount(&cuda.n_devices);
    }
    if (result == KN__CU_SUCCESS && cuda.n_devices == 0) result = KN__CU_ERROR_NO_DEVICE;
    if (result == KN__CU_SUCCESS) return;
    cuda.n_devices = 0;
    snprintf(cuda.failure, sizeof cuda.failure, "%s: %s (%u), %s; %s", function,
             result_name(result), result, result_text(result), advice(result));
}

kn_status kn__cuda_load(const kn__cuda_api **out, int *n_devices) {
    pthread_once(&cuda.once, load_once);
    if (cuda.failure[0]) return KN_FAIL(KN_ERR_DEVICE, "%s", cuda.failure);
    *out = &cuda.api;
    *n_devices = cuda.n_devices;
    return KN_OK;
}

int kn__cuda_count(void) {
    pthread_once(&cuda.once, load_once);
    return cuda.n_devices;
}

bool kn__cuda_alive(void) {
    return !atomic_load_explicit(&cuda.deinitialized, memory_order_relaxed);
}

void kn__cuda_describe(char *out, size_t out_bytes, cu_result result, const char *function,
                       size_t size_bytes, int index) {
    if (result == KN__CU_ERROR_DEINITIALIZED) {
        atomic_store_explicit(&cuda.deinitialized, true, memory_order_relaxed);
    }
    char amount[40] = "";
    if (size_bytes) snprintf(amount, sizeof amount, " of %zu bytes", size_bytes);
    snprintf(out, out_bytes, "%s%s on cuda:%d: %s (%u), %s", function, amount, index,
             result_name(result), result, result_text(result));
}

kn_status kn__cuda_check(cu_result result, const char *function, size_t size_bytes, int index,
                         const char *file, int line) {
    if (result == KN__CU_SUCCESS) return KN_OK;
    char text[MESSAGE_BYTES];
    kn__cuda_describe(text, sizeof text, result, function, size_bytes, index);
    kn_status status = result == KN__CU_ERROR_OUT_OF_MEMORY ? KN_ERR_OOM : KN_ERR_CUDA;
    return kn_fail_within_at(file, line, status, "%s", text);
}
