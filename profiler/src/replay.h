/* Buffers of CUPTI kept in a file, with the launches whose ids they carry; and a source that plays
 * them again, so that what a GPU did can be looked at, and tested against, where there is none.
 *
 * The file: "KNETACT1", the version of CUPTI (32 bits), then items, each its kind and its length
 * (32 bits each) and that many bytes; all in the byte order of the machine. Records hold addresses
 * of kernels' names, so each name is kept with its address; how long a record of each kind is, is
 * kept too.
 */
#ifndef KN_PROFILER_REPLAY_H
#define KN_PROFILER_REPLAY_H

#include "cupti_records.h"

enum { KN__RECORDING_BYTES_MAX = 64 << 20 };

/* Errors: IO, naming the path. */
KN_MUST_CHECK kn_status kn__recorder_start(const char *path, uint32_t version);
/* A buffer that was read, before it is used again; lengths of the records in it. The drain's. */
void kn__recorder_buffer(void *bytes, size_t used, const kn__record_sizes *seen);
/* A launch; fits kn__activity_listen. */
void kn__recorder_launch(kn__told what, uint32_t id, uint32_t launch_id, const kn__node *node);
/* Closes the file. Errors: IO when something could not be written; what came beyond the bound is
 * left out without one. */
KN_MUST_CHECK kn_status kn__recorder_finish(void);

/* The record after `at` in a buffer (NULL: the first); NULL: no more. */
typedef void *(*kn__walk_fn)(void *bytes, size_t used, void *at);

/* Plays a recording: launches in the scopes they came from, then the records. `walk` NULL: by our
 * own reading of the buffers. Its start fails with IO or FORMAT, naming the path. */
const kn__source *kn__replay_source(const char *path, kn__walk_fn walk);
/* Whether drains have something left to play. */
bool kn__replay_more(void);

#endif
