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
#include "protobuf.h"

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

/* 0 or an errno. */
static int record_append(const char *path, kn__text *message) {
    uint64_t length = message->length;
    uint32_t of_length = masked(&length, sizeof length), of_data;
    kn__text record = {0};
    kn__text_add(&record, (const char *)&length, sizeof length);
    kn__text_add(&record, (const char *)&of_length, sizeof of_length);
    kn__text_add(&record, message->data, message->length);
    of_data = masked(message->data, message->length);
    kn__text_add(&record, (const char *)&of_data, sizeof of_data);
    bool fits = !record.failed && !message->failed;
    int error = fits ? kn__file_append(path, record.data, record.length) : ENOMEM;
    kn__text_release(&record);
    kn__text_release(message);
    return error;
}

/* --- protocol buffers --- */

/* By tensorflow/core/util/event.proto. */
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2 };

static void event_begin(kn__text *event) {
    kn__pb_add_double(event, EVENT_TIME, 1e-9 * (double)kn__now_ns(CLOCK_REALTIME));
}

int kn__events_begin(char *path, size_t path_bytes, const char *folder) {
    char host[64] = "host";
    kn__text event = {0};
    (void)gethostname(host, sizeof host - 1);
    int n = snprintf(path, path_bytes, "%s/events.out.tfevents.%" PRId64 ".%s.%ld", folder,
                     (int64_t)time(NULL), host, (long)getpid());
    if (n < 0 || (size_t)n >= path_bytes) return ENAMETOOLONG;
    int error = kn__make_parents(path, 0777);
    if (error) return error;
    event_begin(&event);
    kn__pb_add_text(&event, EVENT_VERSION, "brain.Event:2");
    return record_append(path, &event);
}

int kn__events_add(const char *path, int64_t step, const kn__scalar values[], int n) {
    kn__text event = {0}, summary = {0}, value = {0};
    event_begin(&event);
    kn__pb_add_number(&event, EVENT_STEP, (uint64_t)step);
    for (int i = 0; i < n; i++) {
        if (isnan(values[i].value)) continue;
        kn__pb_add_text(&value, VALUE_TAG, values[i].tag);
        kn__pb_add_float(&value, VALUE_SIMPLE, (float)values[i].value);
        kn__pb_add_message(&summary, SUMMARY_VALUE, &value);
    }
    kn__pb_add_message(&event, EVENT_SUMMARY, &summary);
    kn__text_release(&value);
    kn__text_release(&summary);
    return record_append(path, &event);
}
