/* The host device. It works in program order, without streams and events. */
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "device/drivers.h"

static void read_model(char *out, size_t out_bytes) {
    snprintf(out, out_bytes, "CPU");
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file) return;
    char line[256];
    while (fgets(line, sizeof line, file)) {
        char *value = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
        if (!value) continue;
        value[strcspn(value, "\n")] = '\0';
        snprintf(out, out_bytes, "%s", value + 2);
        break;
    }
    fclose(file);
}

static kn_status host_info_read(void *impl, kn_device_info *out) {
    (void)impl;
    struct sysinfo memory;
    if (sysinfo(&memory) != 0) return KN_FAIL(KN_ERR_INTERNAL, "cpu: sysinfo failed");
    out->total_bytes = (uint64_t)memory.totalram * memory.mem_unit;
    out->free_bytes = (uint64_t)memory.freeram * memory.mem_unit;
    read_model(out->model, sizeof out->model);
    kn__host_memory_name(out->driver, sizeof out->driver);
    out->overhead_bytes = kn__host_memory_overhead();
    return KN_OK;
}

static kn_status host_segment_alloc(void *impl, void **out, size_t size_bytes) {
    (void)impl;
    return kn__host_memory_alloc(out, size_bytes);
}

static void host_segment_free(void *impl, void *ptr, size_t size_bytes) {
    (void)impl;
    kn__host_memory_free(ptr, size_bytes);
}

static kn_status host_segment_drop(void *impl, void *ptr, size_t size_bytes) {
    (void)impl;
    return kn__host_memory_drop(ptr, size_bytes);
}

static kn_status host_copy(void *impl, void *dst, const void *src, size_t size_bytes,
                           bool from_host, bool to_host, kn_stream stream) {
    (void)impl, (void)from_host, (void)to_host, (void)stream;
    memmove(dst, src, size_bytes);
    return KN_OK;
}

static kn_status host_fill(void *impl, void *dst, int byte, size_t size_bytes, kn_stream stream) {
    (void)impl, (void)stream;
    memset(dst, byte, size_bytes);
    return KN_OK;
}

const kn_device_driver kn__host_driver = {
    .kind = KN_DEVICE_HOST,
    .host_access = true,
    .ordered = true,
    .info_read = host_info_read,
    .segment_alloc = host_segment_alloc,
    .segment_free = host_segment_free,
    .copy = host_copy,
    .fill = host_fill,
    .segment_drop = host_segment_drop,
};
