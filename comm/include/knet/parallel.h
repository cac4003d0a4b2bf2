/* Data parallel: every rank has all parameters and computes the gradients of its own samples; the
 * gradients are averaged while backward still runs.
 *
 *     kn_parallel *parallel = NULL;
 *     KN_TRY(kn_parallel_create(&parallel, params, comm, NULL));  // all get rank 0's parameters
 *     for each batch of this rank:
 *         KN_TRY(kn_backward(loss));                               // reduces finished gradients
 *         KN_TRY(kn_parallel_finish(parallel));                    // waits for the rest
 *         KN_TRY(kn_optim_step(optim));                            // the same on every rank
 *
 * The arena of the gradients lies in the order in which backward finishes them. It is cut into
 * *buckets*, ranges of it; a thread of the communicator averages a bucket over the ranks once all
 * its gradients are there. Nothing is copied. On a GPU the reductions run on a stream of their own,
 * for which kn_parallel_finish makes the frame's stream wait, not the host. The first step learns
 * the order and reduces after backward. The means, and so the parameters, have the same bits on
 * every rank and in every run of the same world; they don't depend on the size of the buckets.
 *
 * Cut the data with `rank` and `n_ranks` of kn_loader_options: ranks with equal batches then get
 * the gradients of the joined batch. Where they differ in size, multiply the mean loss of a rank by
 * its samples / the mean number of samples. Batch norm sees its rank's part, or with
 * kn_parallel_batch the joined batch.
 *
 * Freeze the same parameters (kn_params_freeze) on every rank, between the same steps. Where one is
 * frozen on some ranks alone, the others move it: the ranks' weights then differ without an error.
 *
 * Captured steps (capture.h): record forward and backward, and call kn_parallel_finish and
 * kn_optim_step after the replay. A replay on the host reduces beside its backward, one on a GPU
 * after it. Threads: one at a time.
 */
#ifndef KNET_PARALLEL_H
#define KNET_PARALLEL_H

#include <knet/comm.h>
#include <knet/norm.h>
#include <knet/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A set of parameters whose gradients are averaged. */
typedef struct kn_parallel kn_parallel;

/* Options of kn_parallel_create; may be NULL. */
typedef struct kn_parallel_options {
    int64_t bucket_bytes; /* a bucket has at least so many, but for the last; 0: 1 MiB */
    int no_overlap;       /* 1: reduces in kn_parallel_finish alone, to compare */
    uint64_t reserved[4]; /* zero */
} kn_parallel_options;

/* Gives every rank the parameters of rank 0, and takes the hook of kn_params_on_grad. Borrows both
 * until it is destroyed. Every rank calls it. Errors: SHAPE if the ranks' parameters differ in
 * number, order, name, shape or dtype, with the first that differs; DEVICE for parameters on a
 * simulated device; UNSUPPORTED for row-sparse gradients, parameters on several devices, or if NCCL
 * cannot be loaded; PEER. */
KN_API KN_MUST_CHECK kn_status kn_parallel_create(kn_parallel **out, kn_params *params,
                                                  kn_comm *comm,
                                                  const kn_parallel_options *options);
/* Destroys it, and leaves the hook empty. No-op on NULL. */
KN_API void kn_parallel_destroy(kn_parallel *parallel);
/* The communicator; borrowed. */
KN_API kn_comm *kn_parallel_comm(const kn_parallel *parallel);

/* off: the gradients of the next backward passes only add up on this rank; on (the start): they are
 * averaged. For a step of several batches: off, and on before the backward pass of the last. */
KN_API void kn_parallel_sync(kn_parallel *parallel, bool on);
/* Waits until all gradients are the means over the ranks; see kn_parallel_shard. Every rank calls
 * it, once a step, after its last backward pass. A rank without a backward pass since the last step
 * contributes zeros; the first step needs one on some rank, whose order of gradients those take
 * that got zeros alone. kn_params_grad_zero or kn_params_grad_begin is a pass of zeros. Where ranks
 * may leave parameters unused, none calls another function of the communicator between its last
 * backward pass and this. Errors: PEER; INVALID if two passes ran with averaging on, or if the
 * ranks' orders of kn_params_order differ: their first passes used the parameters in different
 * orders, or some ranks alone held a view of a gradient, or froze parameters, before; that of a
 * backward pass which failed after a part of it was averaged: the communicator is broken then, as
 * by kn_comm_abort. A pass that failed before may be repeated. */
KN_API KN_MUST_CHECK kn_status kn_parallel_finish(kn_parallel *parallel);

/* From the first kn_parallel_finish on each rank has the state of one part of the parameters, such
 * as Adam's moments, and updates that part; kn_optim_step then gives all ranks all parts. The
 * parameters have the bits of whole states (over NCCL, but for its order of sums). From the second
 * step on each rank reduces the gradients of its part alone, so that a step moves no more bytes
 * than one without parts: kn_grad of the others is then this rank's own, not the mean. With
 * clip_norm, clip_each or a loss scale, which need all means, all gradients are reduced on all
 * ranks. kn_optim_step uses the gradients up: read them before. Load a checkpoint before the first
 * step. Every rank calls it, before the first step. Borrows `optim`, whose last step comes before
 * kn_parallel_destroy. No-op with one rank. Errors: INVALID for a second optimiser;
 * kn_parallel_finish returns those of kn_optim_shard. */
KN_API KN_MUST_CHECK kn_status kn_parallel_shard(kn_parallel *parallel, kn_optim *optim);
/* Gives rank 0 the whole state until the next step, for kn_checkpoint_save. Every rank calls it.
 * No-op without kn_parallel_shard. */
KN_API KN_MUST_CHECK kn_status kn_parallel_state_join(kn_parallel *parallel);

/* For `ranks` of kn_batchnorm_options, and for kn_layer_sync: batch norms then take mean and
 * variance of the joined batch of all ranks, on the host alone (else UNSUPPORTED), so that
 * gradients and running statistics are those of one process that has it, whatever part each rank
 * has. A forward and a backward each wait for one message from every rank, and before it for the
 * gradients that backward has finished. Borrowed until the destruction. */
KN_API const kn_batch_ranks *kn_parallel_batch(const kn_parallel *parallel);

/* What the averaging took so far, on this rank; times are 0 on a GPU: see the timer's. */
typedef struct kn_parallel_stats {
    int64_t n_steps;    /* of kn_parallel_finish */
    int64_t n_buckets;  /* in a step; 0: not known yet */
    uint64_t bytes;     /* of gradients, all steps together */
    uint64_t reduce_ns; /* time of all reductions */
    uint64_t wait_ns;   /* of it, how long kn_parallel_finish waited */
} kn_parallel_stats;
/* Fills `out` (of out_bytes = sizeof *out). 1 - wait_ns/reduce_ns is the share that was hidden
 * behind backward. */
KN_API void kn_parallel_stats_read(kn_parallel_stats *out, size_t out_bytes,
                                   const kn_parallel *parallel);

#include <knet/sites/parallel.h>

#ifdef __cplusplus
}
#endif
#endif
