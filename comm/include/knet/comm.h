/* Ranks: processes, or threads, that train one model together, and the calls in which all of them
 * take part.
 *
 *     kn_comm *comm = NULL;
 *     KN_TRY(kn_comm_create(&comm, NULL, NULL));            // as mpirun or srun started us
 *     KN_TRY(kn_comm_all_reduce(comm, gradient, KN_COMM_MEAN));
 *
 * Vocabulary: a *communicator* connects `size` ranks, numbered from 0. A *collective* is a call
 * that every rank makes, in the same order, with the same elements and dtypes; sends and receives
 * of two ranks have the same order among these too. A *transport* carries
 * the bytes: "mpi" (libknet_comm_mpi.so, loaded at first use), "sim" (threads of one process with a
 * bandwidth and a latency of choice) or "self" (one rank).
 *
 * Tensors are contiguous, on the host or on one GPU a rank. Those of the host move by the
 * transport; those of a GPU by NCCL, on the stream on which kn_data can be used:
 * libknet_comm_nccl.so is loaded and the ranks join with the first of them.
 *
 * On the host, sums add the ranks' values in the order of the ranks, so two runs of the same world
 * give the same bits, on every transport. NCCL has an order of its own, the same in each run of the
 * same world on the same machines. Each call is a scope of the timer with its bytes. A call that
 * another rank keeps waiting ends after the time-out with a PEER error that names this rank; a rank
 * that ended on the same machine or failed is noticed at once, and one that calls something else
 * after 0.1 s: the error has both calls. A call that only sends, or has no elements, may end before
 * that; a later one fails then, with the first calls that differ. Calls on a GPU return once they
 * are enqueued; the next call returns what went wrong since, and the GPU's stream is free again by
 * then. After such an error the communicator is broken: every later call returns the error again.
 *
 * MPI starts with a process's first "mpi" communicator and ends with the last one; after that no
 * other can be created. A program that starts MPI itself does so with MPI_THREAD_SERIALIZED or
 * MPI_THREAD_MULTIPLE, the latter if it calls MPI while a communicator exists, and destroys its
 * communicators before MPI_Finalize.
 *
 * Threads: one at a time uses a communicator; kn_comm_interrupt may be called by any, and by signal
 * handlers.
 */
#ifndef KNET_COMM_H
#define KNET_COMM_H

#include <knet/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A communicator. */
typedef struct kn_comm kn_comm;

/* How collectives combine the values of the ranks. */
typedef enum kn_comm_op {
    KN_COMM_SUM = 0,
    KN_COMM_MEAN, /* floating-point dtypes */
    KN_COMM_MAX,
    KN_COMM_MIN
} kn_comm_op;

/* Options of kn_comm_create; may be NULL. */
typedef struct kn_comm_options {
    double timeout_seconds; /* of a call; 0: 120, or what KNET_COMM says ("timeout=30s") */
    uint64_t reserved[4];   /* zero */
} kn_comm_options;

/* What the launcher's environment says of this process. */
typedef struct kn_comm_launch {
    const char *launcher; /* "mpirun", "srun"; "none" without one */
    int rank, size;       /* 0 of 1 without a launcher */
    int local_rank;       /* among the ranks of this machine; -1: the launcher does not say */
    int local_size;       /* number of these; 0: the launcher does not say */
} kn_comm_launch;
/* Reads the environment: OMPI_COMM_WORLD_*, SLURM_* of a job step, PMI_* (MPICH's mpirun). Errors:
 * INVALID for values that contradict each other, with the variables, and for wrong KNET_COMM. */
KN_API KN_MUST_CHECK kn_status kn_comm_launch_read(kn_comm_launch *out);

/* Connects the ranks. kind: "mpi", "self", or NULL: "mpi" if a launcher started several ranks, else
 * "self". Every rank calls it. Errors: UNSUPPORTED if the module or the MPI library cannot be
 * loaded, or MPI has ended in this process, or runs at a lower thread level, with the reason;
 * INVALID if MPI knows fewer ranks than the launcher started, for another kind, and for an unknown
 * word in KNET_COMM; PEER if a rank has not come within the time-out. */
KN_API KN_MUST_CHECK kn_status kn_comm_create(kn_comm **out, const char *kind,
                                              const kn_comm_options *options);
/* Disconnects this rank. The other ranks do the same, or their next call fails: over MPI it waits
 * for them. A child of fork, which gets INVALID errors from all calls, only frees. No-op on NULL.
 */
KN_API void kn_comm_destroy(kn_comm *comm);

/* Options of kn_comm_sim_create; may be NULL. */
typedef struct kn_comm_sim_options {
    double bandwidth;       /* of each rank's link, bytes per second; 0: no limit */
    double latency_seconds; /* of each message */
    double timeout_seconds; /* of a call; 0: 120 */
    uint64_t reserved[4];   /* zero */
} kn_comm_sim_options;
/* Makes n communicators of one simulated world, out[rank]; each is used by a thread of its own. */
KN_API KN_MUST_CHECK kn_status kn_comm_sim_create(kn_comm *out[], int n,
                                                  const kn_comm_sim_options *options);
/* For tests: the others see this rank as killed. */
KN_API void kn_comm_sim_kill(kn_comm *comm);

/* This rank; the number of ranks; the same on this machine alone, where the launcher's number of
 * the rank comes first (SLURM_LOCALID, OMPI_COMM_WORLD_LOCAL_RANK); the transport: "mpi", "sim",
 * "self". */
KN_API int kn_comm_rank(const kn_comm *comm);
KN_API int kn_comm_size(const kn_comm *comm);
KN_API int kn_comm_local_rank(const kn_comm *comm);
KN_API int kn_comm_local_size(const kn_comm *comm);
KN_API const char *kn_comm_kind(const kn_comm *comm);

/* --- collectives. Errors: PEER as above; DEVICE for tensors of a simulated device or of a second
 * GPU; UNSUPPORTED if NCCL cannot be loaded; DTYPE for sums of bool, and on the host of f16 and
 * bf16, and means of integers; SHAPE; all with the values --- */
/* t becomes the combination of all ranks' t. */
KN_API KN_MUST_CHECK kn_status kn_comm_all_reduce(kn_comm *comm, kn_tensor *t, kn_comm_op op);
/* t becomes rank `root`'s t. */
KN_API KN_MUST_CHECK kn_status kn_comm_broadcast(kn_comm *comm, kn_tensor *t, int root);
/* out [size,…] gets the t […] of every rank, in the order of the ranks. */
KN_API KN_MUST_CHECK kn_status kn_comm_all_gather(kn_comm *comm, kn_tensor *out, kn_tensor *t);
/* out […] gets this rank's part of the combination of all t [size,…]. t keeps its values. */
KN_API KN_MUST_CHECK kn_status kn_comm_reduce_scatter(kn_comm *comm, kn_tensor *out, kn_tensor *t,
                                                      kn_comm_op op);
/* Returns once every rank has called it. */
KN_API KN_MUST_CHECK kn_status kn_comm_barrier(kn_comm *comm);
/* value[i] becomes the combination of all ranks' value[i]: for losses, counts and flags. */
KN_API KN_MUST_CHECK kn_status kn_comm_values(kn_comm *comm, double value[], int n, kn_comm_op op);
/* Fails on all ranks if their texts differ, such as "epochs 3, rate 0.001": INVALID, with rank 0's
 * text and another one. `what` begins the error; of a text 255 bytes are compared. */
KN_API KN_MUST_CHECK kn_status kn_comm_agree(kn_comm *comm, const char *what, const char *text);

/* --- between two ranks. The messages of a pair arrive in the order in which they were sent --- */
/* Sends t to a rank; returns once t may be changed. */
KN_API KN_MUST_CHECK kn_status kn_comm_send(kn_comm *comm, kn_tensor *t, int to);
/* Receives a tensor of the same size into t. */
KN_API KN_MUST_CHECK kn_status kn_comm_receive(kn_comm *comm, kn_tensor *t, int from);

/* --- failure --- */
/* Tells the other ranks that this one cannot continue, and why: their calls return a PEER error
 * with this text. The communicator is broken afterwards. */
KN_API void kn_comm_abort(kn_comm *comm, const char *why);
/* From now on each wait of a call for another rank ends after `seconds` with a PEER error: for
 * handlers of signals that end the process. They count from the wait's begin, or from now where it
 * began earlier, so a rank that computes first loses nothing. The last call counts; infinity takes
 * it back. NaN and negative values count as 0. */
KN_API void kn_comm_interrupt(kn_comm *comm, double seconds);

#include <knet/sites/comm.h>

#ifdef __cplusplus
}
#endif
#endif
