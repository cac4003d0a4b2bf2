/* A mock of libcupti with a simulated GPU, and the program's interface to it.
 *
 * MOCK_CUPTI in the environment is a list of words: held (another tool has it), nodriver, fail=N
 * (the N-th call fails), driver (records carry the driver call's id), zero (no times), drop=N
 * (every N-th record is lost), late (a flush delivers only some of the records), split (few
 * records a buffer), twice (every record comes two times), wrap (ids go round), full (no buffer is
 * taken), own (each thread fills a buffer of its own, as CUPTI 13 does, and completes it when it is
 * full), slow (the walk of a buffer takes two milliseconds), anonymous (the holder is not named),
 * version=N, real (buffers are walked by the real libcupti.so.13), incomplete=N (every N-th record
 * is handed over before it was written), refuse=N (the call of this number can't be followed),
 * noexec (the copies for an executable graph come before its address is known), unsynced (no work
 * ends before the driver was waited for), teardown (records that were not flushed when CUDA's own
 * exit handler ran are lost), order (fails once NVTX has loaded a tool), report (prints the
 * disabled kinds on stderr, and the end of the last subscription).
 */
#ifndef KNET_MOCK_CUPTI_H
#define KNET_MOCK_CUPTI_H

#include <stdint.h>

typedef enum mock_kind { MOCK_KERNEL, MOCK_COPY, MOCK_SET, MOCK_PEER_COPY, MOCK_GRAPH } mock_kind;

/* Launches work as a program does through the runtime: its callbacks on this thread, a record of
 * `ns` later. `error` not 0: the call fails, and no record comes. */
typedef void (*mock_launch_fn)(mock_kind kind, const char *name, uint64_t ns, int error);

/* A kernel launched into a stream that is being captured: makes node `node` of graph `graph`, both
 * any number but 0. */
typedef void (*mock_capture_fn)(uint64_t graph, uint64_t node);
/* Copies the nodes first to last of a graph as nodes + 1000 of the executable graph + 1000. */
typedef void (*mock_instantiate_fn)(uint64_t graph, uint64_t first, uint64_t last);
/* Launches an executable graph: a kernel of `ns` a node; one record for all with graph-level
 * tracing.
 */
typedef void (*mock_replay_fn)(uint64_t first, uint64_t last, uint64_t ns);
/* Destroys a graph and an executable graph, or node by node. */
typedef void (*mock_destroy_fn)(uint64_t graph, uint64_t node);
/* cudaMalloc and cudaFree. */
typedef void (*mock_memory_fn)(uint64_t address, uint64_t bytes, int is_alloc);
/* cudaDeviceSynchronize, which takes a microsecond or more. */
typedef void (*mock_sync_fn)(void);

/* Copies `bytes` to the device; with 0 there is no record. */
typedef void (*mock_copy_fn)(uint64_t bytes);
/* Destroys the context of all calls so far. */
typedef void (*mock_destroy_context_fn)(void);
/* How often buffers were asked back, and how many records were made. */
typedef uint64_t (*mock_count_fn)(void);

#endif
