/* What the tests on a real GPU share. Without a GPU the program is skipped. */
#ifndef KNET_TESTS_GPU_H
#define KNET_TESTS_GPU_H

#include "test.h"

#include <knet/device_driver.h>

#include <dlfcn.h>

#define MIB ((size_t)1 << 20)

#ifndef GPU_NAME
#define GPU_NAME "cuda:0"
#endif

/* The GPU; without one it skips the whole program. */
static inline kn_device *gpu_get(void) {
    kn_device *device = NULL;
    if (kn_device_find(&device, GPU_NAME) < 0) test_skip_all(kn_last_error()->message);
    return device;
}

static inline kn_device_info gpu_info(kn_device *device) {
    kn_device_info info = {0};
    assert_ok(kn_device_info_read(&info, sizeof info, device));
    return info;
}

/* cuda:0 once more, as a device without virtual memory: pools on it grow by plain segments. */
static inline kn_device *gpu_plain_get(void) {
    static kn_device_driver plain;
    static kn_device *device;
    if (device) return device;
    void *impl = NULL;
    plain = *kn_device_driver_get(gpu_get(), &impl);
    plain.range_reserve = NULL;
    plain.range_release = NULL;
    plain.handle_create = NULL;
    plain.handle_destroy = NULL;
    plain.handle_map = NULL;
    plain.handle_unmap = NULL;
    plain.range_access = NULL;
    if (kn_device_register(&device, "cuda-plain", &plain, impl) < 0) return NULL;
    return device;
}

/* Keeps the stream busy while the test continues: fills `scratch` many times. */
static inline void gpu_keep_busy(kn_device *device, void *scratch, size_t size_bytes, int n_fills,
                                 kn_stream stream) {
    for (int i = 0; i < n_fills; i++) {
        assert_ok(kn_device_fill(device, scratch, i, size_bytes, stream));
    }
}

/* A function of the driver API by the name that libcuda exports, for calls the library doesn't
 * make.
 */
static inline bool gpu_find_function(const char *name, void *out_fn) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *symbol = library ? dlsym(library, name) : NULL;
    memcpy(out_fn, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* Makes `later` wait, on the device, for the work enqueued on `earlier`. */
static inline void gpu_order_after(kn_device *device, kn_stream later, kn_stream earlier) {
    kn_event *event = NULL;
    assert_ok(kn_event_create(&event, device));
    assert_ok(kn_event_record(event, earlier));
    assert_ok(kn_event_wait(event, later));
    kn_event_destroy(event);
}

/* All bytes of device memory are `want`. */
static inline void gpu_assert_bytes(kn_device *device, const void *ptr, size_t size_bytes, int want,
                                    kn_stream stream) {
    unsigned char *bytes = malloc(size_bytes);
    assert_non_null(bytes);
    assert_ok(kn_device_copy(kn_device_host(), bytes, device, ptr, size_bytes, stream));
    assert_ok(kn_stream_sync(device, stream));
    bool same = bytes[0] == (unsigned char)want && memcmp(bytes, bytes + 1, size_bytes - 1) == 0;
    size_t n_wrong = 0, first = 0;
    for (size_t i = same ? 0 : size_bytes; i-- > 0;) {
        if (bytes[i] == (unsigned char)want) continue;
        n_wrong++;
        first = i;
    }
    int got = n_wrong ? bytes[first] : want;
    free(bytes);
    if (n_wrong) {
        fail_msg("%zu of %zu bytes are wrong, the first at %zu is %d and not %d", n_wrong,
                 size_bytes, first, got, want);
    }
}

#endif
