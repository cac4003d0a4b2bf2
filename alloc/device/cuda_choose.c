/* Which CUDA device a name means: that with most free memory, or one by its UUID. */
#include <stdio.h>
#include <string.h>

#include "device/cuda_api.h"
#include "device/drivers.h"
#include "device/registry.h"

enum { UUID_DIGITS = 32 };

#define TRY_CALL(index, name, args)                                                                \
    KN_TRY(kn__cuda_check(api->name args, #name, 0, index, __FILE__, __LINE__))

/* --- most free memory --- */

static kn_status read_free(const kn__cuda_api *api, int index, cu_context context, uint64_t *out) {
    cu_context popped = NULL;
    size_t free_bytes = 0, total_bytes = 0;
    TRY_CALL(index, cuCtxPushCurrent, (context));
    cu_result result = api->cuMemGetInfo(&free_bytes, &total_bytes);
    (void)api->cuCtxPopCurrent(&popped);
    KN_TRY(kn__cuda_check(result, "cuMemGetInfo", 0, index, __FILE__, __LINE__));
    *out = free_bytes;
    return KN_OK;
}

/* The driver needs a context for this. It is released again, and ends if no one else uses it. */
static kn_status free_bytes_of(const kn__cuda_api *api, int index, uint64_t *out) {
    char name[16];
    cu_device ordinal = 0;
    cu_context context = NULL;
    snprintf(name, sizeof name, "cuda:%d", index);
    kn_device *device = kn__device_registered(name);
    if (device) return device->driver->free_bytes(device->impl, out);
    TRY_CALL(index, cuDeviceGet, (&ordinal, index));
    TRY_CALL(index, cuDevicePrimaryCtxRetain, (&context, ordinal));
    kn_status status = read_free(api, index, context, out);
    (void)api->cuDevicePrimaryCtxRelease(ordinal);
    return status;
}

static kn_status choose_free(int *out, const kn__cuda_api *api, int n_devices) {
    uint64_t most = 0;
    int best = -1;
    kn_status status = KN_OK;
    for (int i = 0; i < n_devices; i++) {
        uint64_t bytes = 0;
        kn_status found = free_bytes_of(api, i, &bytes); /* one in exclusive use is passed over */
        if (found < 0) {
            status = found;
        } else if (best < 0 || bytes > most) {
            best = i;
            most = bytes;
        }
    }
    if (best < 0) return status;
    *out = best;
    return KN_OK;
}

/* --- by UUID --- */

/* "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", of what the driver shows: also a MIG instance. */
static void uuid_digits(char out[UUID_DIGITS + 1], const cu_uuid *uuid) {
    for (int i = 0; i < UUID_DIGITS / 2; i++) {
        snprintf(out + 2 * (size_t)i, 3, "%02x", (unsigned char)uuid->bytes[i]);
    }
}

static void uuid_text(char *out, size_t out_bytes, const char *digits) {
    snprintf(out, out_bytes, "%.8s-%.4s-%.4s-%.4s-%.12s", digits, digits + 8, digits + 12,
             digits + 16, digits + 20);
}

/* The digits of "GPU-…" or "MIG-…", in lower case, without hyphens; they may be fewer than all.
 * False: the name has another form. */
static bool digits_of(char out[UUID_DIGITS + 1], const char *name) {
    int n = 0;
    if (strncmp(name, "GPU-", 4) != 0 && strncmp(name, "MIG-", 4) != 0) return false;
    for (const char *c = name + 4; *c; c++) {
        if (*c == '-') continue;
        bool digit = *c >= '0' && *c <= '9', small = *c >= 'a' && *c <= 'f';
        bool large = *c >= 'A' && *c <= 'F';
        if (n == UUID_DIGITS || !(digit || small || large)) return false;
        out[n++] = (char)(large ? *c - 'A' + 'a' : *c);
    }
    out[n] = '\0';
    return n > 0;
}

static kn_status no_match(const char *name, int n_found, const char *known) {
    return KN_FAIL(KN_ERR_DEVICE,
                   "%s cuda:%s: this process sees%s; CUDA_VISIBLE_DEVICES chooses which",
                   n_found ? "several devices match" : "no", name, known);
}

static kn_status choose_uuid(int *out, const kn__cuda_api *api, int n_devices, const char *name,
                             const char *wanted) {
    char digits[UUID_DIGITS + 1], known[512] = "";
    int n_found = 0, found = -1;
    if (!api->cuDeviceGetUuid) {
        return KN_FAIL(KN_ERR_UNSUPPORTED,
                       "cuda:%s: finding a device by UUID needs a driver of CUDA 11.4 or newer",
                       name);
    }
    for (int i = 0; i < n_devices; i++) {
        cu_device ordinal = 0;
        cu_uuid uuid;
        char text[48];
        TRY_CALL(i, cuDeviceGet, (&ordinal, i));
        TRY_CALL(i, cuDeviceGetUuid, (&uuid, ordinal));
        uuid_digits(digits, &uuid);
        uuid_text(text, sizeof text, digits);
        size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s cuda:%d %s", i ? "," : "", i, text);
        if (strncmp(digits, wanted, strlen(wanted)) != 0) continue;
        n_found++;
        found = i;
    }
    if (n_found != 1) return no_match(name, n_found, known);
    *out = found;
    return KN_OK;
}

kn_status kn__cuda_choose(int *out, const char *name) {
    const kn__cuda_api *api = NULL;
    char wanted[UUID_DIGITS + 1];
    int n_devices = 0;
    bool is_auto = strcmp(name, "auto") == 0;
    if (!is_auto && !digits_of(wanted, name)) {
        return KN_FAIL(
            KN_ERR_INVALID,
            "no device is named \"cuda:%s\"; there are \"cuda:N\", \"cuda:auto\", and "
            "\"cuda:GPU-…\" or \"cuda:MIG-…\" with a UUID of nvidia-smi -L, or its first "
            "digits",
            name);
    }
    KN_TRY(kn__cuda_load(&api, &n_devices));
    if (is_auto) return choose_free(out, api, n_devices);
    return choose_uuid(out, api, n_devices, name, wanted);
}
