/* Memory that two processes use: a block of one process's pool, opened by another.
 *
 *     // the owner; its pool has the option `shareable`
 *     kn_share share;
 *     KN_TRY(kn_stream_sync(device, stream));          // the contents are there
 *     KN_TRY(kn_block_share(&share, pool, block));
 *     KN_TRY(kn_share_send(socket, &share));
 *     kn_share_release(&share);
 *
 *     // the other process
 *     KN_TRY(kn_share_receive(&share, socket));
 *     KN_TRY(kn_share_open(&ptr, device, &share));
 *     kn_share_release(&share);
 *     …
 *     kn_share_close(device, ptr);
 *
 * A share is a list of file descriptors, one for each handle of physical memory that the block lies
 * in; they travel over a Unix socket, also into a container. The other process maps those handles
 * whole: it can read and write what lies beside the block too, so share with processes that you
 * trust.
 *
 * Streams of two processes know nothing of each other: sync before the other process uses the
 * memory, and before the owner frees the block; the owner's pool reuses a freed block while others
 * have it open. A block that is shared must not be paused.
 */
#ifndef KNET_SHARE_H
#define KNET_SHARE_H

#include <knet/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { KN_SHARE_FILES_MAX = 240 }; /* what one message of a socket carries */

/* What another process needs to open a block. */
typedef struct kn_share {
    uint64_t size_bytes;                     /* of the block, as rounded */
    uint64_t offset_bytes;                   /* where it starts in the first handle */
    uint64_t file_bytes[KN_SHARE_FILES_MAX]; /* of each handle */
    int files[KN_SHARE_FILES_MAX];           /* descriptors, the caller's to release */
    int n_files;                             /* handles that it lies in */
    uint64_t reserved[4];                    /* zero */
} kn_share;

/* Makes a share of the live block that starts at `ptr`; the block stays its pool's. Errors: INVALID
 * if no live block starts there, or the pool was created without `shareable`; UNSUPPORTED if it
 * lies in more than KN_SHARE_FILES_MAX handles; the driver's. */
KN_API KN_MUST_CHECK kn_status kn_block_share(kn_share *out, kn_pool *pool, const void *ptr);
/* Closes the descriptors. No-op on one that was released. */
KN_API void kn_share_release(kn_share *share);

/* Sends a share over a Unix socket, or receives one; each waits for the other. Errors: IO, with the
 * system's reason, also where the receiver may not have so many descriptors; FORMAT if what arrives
 * is no share. */
KN_API KN_MUST_CHECK kn_status kn_share_send(int socket, const kn_share *share);
KN_API KN_MUST_CHECK kn_status kn_share_receive(kn_share *out, int socket);

/* Maps the memory for `device`, the one that it lies on; *out is where the block starts. The share
 * may be released then. Errors: INVALID for a share that contradicts itself; UNSUPPORTED where the
 * device lacks such handles; OOM, or the driver's: nothing stays mapped. */
KN_API KN_MUST_CHECK kn_status kn_share_open(void **out, kn_device *device, const kn_share *share);
/* Unmaps what kn_share_open mapped, when no stream uses it. No-op on NULL; other addresses are
 * logged and ignored. */
KN_API void kn_share_close(kn_device *device, void *ptr);

#ifdef __cplusplus
}
#endif
#endif
