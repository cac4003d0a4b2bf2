/* Pause and resume: a program that will not touch its memory for a while, such as a server of
 * models between requests, gives the memory to others and keeps the addresses.
 *
 *     size_t dropped = 0;
 *     KN_TRY(kn_pool_pause(&dropped, pool, &(kn_pause_options){.tag = "weights", .keep = true}));
 *     KN_TRY(kn_pool_pause(NULL, pool, NULL));     // the rest; its contents are lost
 *     …                                            // other programs can have the memory
 *     KN_TRY(kn_pool_resume(pool, NULL));          // all is where it was
 *
 * On devices with virtual memory whole handles (2 to 64 MiB) are unmapped and destroyed: of a
 * whole pool all of them, of a tag those in which nothing else lies. Blocks of 64 KiB and less
 * share handles with others, so a tag's stay. The host drops whole pages. Other devices without
 * virtual memory, and pinned pools, can't pause.
 *
 * While a whole pool is paused its allocations fail with an error that says so; frees work, and
 * freed blocks come back at the resume. While a tag is paused the pool serves others, and blocks
 * without memory can't be freed. Nothing can tell a kernel, a copy or a graph that uses memory that
 * is not there: on a GPU it is an illegal access, on the host it reads zeros.
 *
 * Threads: no other thread may be in the pool while one of these functions runs.
 */
#ifndef KNET_PAUSE_H
#define KNET_PAUSE_H

#include <knet/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Options of kn_pool_pause; zero means the default. */
typedef struct kn_pause_options {
    /* only memory with this tag (kn_tag_push), which may be "(other tags)"; NULL: the whole pool */
    const char *tag;
    /* copy the contents to host memory, and back at the resume; without it they are undefined
     * afterwards */
    bool keep;
    uint64_t reserved[4]; /* zero */
} kn_pause_options;

/* Waits for the device, then drops the memory; no stream may be captured. *dropped_bytes says how
 * much; it may be NULL. Options may be NULL. Errors: INVALID if that is paused already, or no
 * memory ever had the tag; UNSUPPORTED for devices that can't; OOM if the host has no room for the
 * contents; the device's. After an error nothing is paused, and contents that were to be kept are
 * there; where even that fails the error says so, and the pool is to be resumed. */
KN_API KN_MUST_CHECK kn_status kn_pool_pause(size_t *dropped_bytes, kn_pool *pool,
                                             const kn_pause_options *options);
/* Gets the memory back, at the same addresses, with the contents that were kept; the pool's own
 * free memory is returned where the device or the limit has no room. tag: of one pause; NULL: of
 * all. Errors: INVALID if it isn't paused; OOM, or the device's: what can't come back stays paused,
 * and can be resumed later. */
KN_API KN_MUST_CHECK kn_status kn_pool_resume(kn_pool *pool, const char *tag);
/* Bytes that are paused: dropped, and not resumed. */
KN_API size_t kn_pool_paused_bytes(kn_pool *pool);

#ifdef __cplusplus
}
#endif
#endif
