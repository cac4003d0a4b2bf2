#include "events.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "file.h"
#include "now.h"

enum { RECORD_MAX = 1024, VALUE_MAX = 128 };

/* --- records --- */

uint32_t kn__crc32c(const void *bytes, size_t n) {
    uint32_t crc = ~0u;
    for (const uint8_t *at = bytes, *end = at + n; at < end; at++) {
        crc ^= *at;
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    }
    return ~crc;
}

/* TFRecord hides checksums of data that contain checksums. */
static uint32_t masked(const void *bytes, size_t n) {
    uint32_t crc = kn__crc32c(bytes, n);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static int record_append(const char *path, const uint8_t *data, size_t n) {
    uint8_t record[RECORD_MAX + 16];
    uint64_t length = n;
    uint32_t crc = masked(&length, sizeof length);
    memcpy(record, &length, 8);
    memcpy(record + 8, &crc, 4);
    memcpy(record + 12, data, n);
    crc = masked(data, n);
    memcpy(record + 12 + n, &crc, 4);
    return kn__file_append(path, (char *)record, n + 16);
}

/* --- protocol buffers --- */

typedef struct message {
    uint8_t bytes[RECORD_MAX];
    size_t n;
} message;

static void put(message *m, const void *bytes, size_t n) {
    if (n > RECORD_MAX - m->n) return; /* callers' values are few and short */
    memcpy(m->bytes + m->n, bytes, n);
    m->n += n;
}

static void put_varint(message *m, uint64_t value) {
    do {
        uint8_t byte = (uint8_t)(value & 127);
        value >>= 7;
        if (value) byte |= 128;
        put(m, &byte, 1);
    } while (value);
}

static void put_double(message *m, int field, double value) {
    put_varint(m, (uint64_t)field << 3 | 1);
    put(m, &value, sizeof value);
}

static void put_float(message *m, int field, float value) {
    put_varint(m, (uint64_t)field << 3 | 5);
    put(m, &value, sizeof value);
}

static void put_bytes(message *m, int field, const void *bytes, size_t n) {
    put_varint(m, (uint64_t)field << 3 | 2);
    put_varint(m, n);
    put(m, bytes, n);
}

/* Event: wall_time 1, step 2, file_version 3, summary 5; Summary: value 1; Value: tag 1,
 * simple_value 2 (tensorflow/core/util/event.proto). */
static void event_begin(message *m) { put_double(m, 1, 1e-9 * (double)kn__now_ns(CLOCK_REALTIME)); }

int kn__events_begin(char *path, size_t path_bytes, const char *folder) {
    static const char version[] = "brain.Event:2";
    char host[64] = "host";
    message m = {.n = 0};
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) return errno;
    (void)gethostname(host, sizeof host - 1);
    int n = snprintf(path, path_bytes, "%s/events.out.tfevents.%" PRId64 ".%s.%ld", folder,
                     (int64_t)time(NULL), host, (long)getpid());
    if (n < 0 || (size_t)n >= path_bytes) return ENAMETOOLONG;
    event_begin(&m);
    put_bytes(&m, 3, version, sizeof version - 1);
    return record_append(path, m.bytes, m.n);
}

static void value_put(message *summary, const kn__scalar *value) {
    message m = {.n = 0};
    size_t n = strlen(value->tag);
    put_bytes(&m, 1, value->tag, n < VALUE_MAX ? n : VALUE_MAX);
    put_float(&m, 2, (float)value->value);
    put_bytes(summary, 1, m.bytes, m.n);
}

int kn__events_add(const char *path, int64_t step, const kn__scalar values[], int n) {
    message m = {.n = 0}, summary = {.n = 0};
    event_begin(&m);
    put_varint(&m, 2 << 3);
    put_varint(&m, (uint64_t)step);
    for (int i = 0; i < n; i++)
        if (!isnan(values[i].value)) value_put(&summary, &values[i]);
    put_bytes(&m, 5, summary.bytes, summary.n);
    return record_append(path, m.bytes, m.n);
}
