/* Buffers of CUPTI kept in a file, with the launches whose ids they carry. The tests play them, so
 * that reading a GPU's work is tested on machines without one.
 *
 * The file: "KNETACT1", the version of CUPTI (32 bits), then items, each its kind and its length
 * (32 bits each) and that many bytes; all in the byte order of the machine. Records hold addresses
 * of kernels' names, so each name is kept with its address; how long a record of each kind is, is
 * kept too.
 */
#ifndef KN_PROFILER_RECORDER_H
#define KN_PROFILER_RECORDER_H

#include "cupti_records.h"

enum { KN__RECORDING_BYTES_MAX = 64 << 20 };

#define KN__RECORDING_MAGIC "KNETACT1"
#define KN__RECORDING_SEPARATOR '\x1f' /* between the labels of a path */

typedef enum kn__recording_kind {
    KN__RECORDING_SIZES = 1,
    KN__RECORDING_NAME,
    KN__RECORDING_LAUNCH,
    KN__RECORDING_BUFFER
} kn__recording_kind;

typedef struct kn__recording_item {
    uint32_t kind, bytes;
} kn__recording_item;

typedef struct kn__recording_launch { /* the path follows */
    uint32_t id, launch, what;        /* kn__told */
} kn__recording_launch;

/* Errors: IO, naming the path. */
KN_MUST_CHECK kn_status kn__recorder_start(const char *path, uint32_t version);
/* A buffer that was read, before it is used again; lengths of the records in it. The drain's. */
void kn__recorder_buffer(void *bytes, size_t used, const kn__record_sizes *seen);
/* A launch; fits kn__activity_listen. */
void kn__recorder_launch(kn__told what, uint32_t id, uint32_t launch_id, const kn__tree_node *node);
/* Closes the file. Errors: IO when something could not be written; what came beyond the bound is
 * left out without one. */
KN_MUST_CHECK kn_status kn__recorder_finish(void);

#endif
