/* TensorBoard's event files: records of a length, its checksum, a protocol buffer and its checksum.
 */
#ifndef KN_EVENTS_H
#define KN_EVENTS_H

#include <stddef.h>
#include <stdint.h>

typedef struct kn__scalar {
    const char *tag; /* as "loss/train" */
    double value;
} kn__scalar;

/* The path of a new event file in the folder, which is made if it is missing, with its first
 * record. 0 or an errno. */
int kn__events_begin(char *path, size_t path_bytes, const char *folder);
/* Adds a record of the step's values; those that are NaN are left out. 0 or an errno. */
int kn__events_add(const char *path, int64_t step, const kn__scalar values[], int n);
/* CRC-32C (Castagnoli) of RFC 3720. */
uint32_t kn__crc32c(const void *bytes, size_t n);

#endif
