/* Call stacks: where the live blocks of all pools were allocated.
 *
 *     KN_TRY(kn_stacks_begin(NULL));          // or KNET_ALLOC=stacks
 *     …
 *     KN_TRY(kn_pool_snapshot(pool, "s.json"));   // has the stack of each live block
 *
 * Until kn_stacks_begin a pool's call costs nothing for them. From then on each allocation walks
 * its stack, about a microsecond, and takes a lock of the process; equal stacks are kept once, on
 * the host. Snapshots and reports of failed allocations show them. A block that was allocated
 * before has none.
 *
 * A stack is text, a line for each frame, innermost first: "function file:line" or "function
 * library". Native frames have the names that the dynamic linker knows: link programs with
 * -rdynamic to see their own.
 *
 * Threads: any thread may call any function.
 */
#ifndef KNET_STACKS_H
#define KNET_STACKS_H

#include <knet/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the frames of the calling thread as another language sees them, as lines, into `out` (of
 * out_bytes); returns the bytes written. Called for each allocation, with no lock held. */
typedef size_t (*kn_stacks_fn)(void *ctx, char *out, size_t out_bytes);

/* Options of kn_stacks_begin; zero means the default. */
typedef struct kn_stacks_options {
    int depth;            /* most native frames, 1 to 64; 0: 24; -1: none */
    kn_stacks_fn fn;      /* its frames come first; NULL: no others */
    void *ctx;            /* passed to fn */
    uint64_t reserved[4]; /* zero */
} kn_stacks_options;

/* Keeps the stacks of allocations from now on. Options may be NULL. Errors: INVALID if stacks are
 * kept already, or for a wrong option; UNSUPPORTED where the system can't walk a stack. */
KN_API KN_MUST_CHECK kn_status kn_stacks_begin(const kn_stacks_options *options);
/* Ends that, and forgets all stacks. No-op if none are kept. `fn` may still be running on another
 * thread. */
KN_API void kn_stacks_end(void);

/* Copies the stack of the live block that starts at `ptr` into `out` (of out_bytes), cut to fit;
 * returns its whole length, 0 if it is not known. `out` may be NULL if out_bytes is 0. */
KN_API size_t kn_block_stack(char *out, size_t out_bytes, kn_pool *pool, const void *ptr);

/* A place that holds memory. */
typedef struct kn_stack_use {
    uint64_t live_bytes, n_live; /* now, of one pool */
    uint64_t n_allocs;           /* so far */
    const char *text;            /* borrowed until kn_stacks_end, or the pool is destroyed */
} kn_stack_use;
/* Fills the first n of `out` with the stacks that hold most live bytes of the pool; returns how
 * many hold any. */
KN_API size_t kn_pool_stacks(kn_stack_use *out, size_t n, kn_pool *pool);

#ifdef __cplusplus
}
#endif
#endif
