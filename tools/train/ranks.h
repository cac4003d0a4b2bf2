/* What the ranks of a training run agree on. All of it is a no-op without ranks: parallel NULL. */
#ifndef KN_TRAIN_RANKS_H
#define KN_TRAIN_RANKS_H

#include <knet/data.h>
#include <knet/file.h>
#include <knet/layer.h>
#include <knet/parallel.h>

/* The number of ranks: 1 without them. */
int kn__ranks_size(const kn_parallel *parallel);
/* Whether this rank is the one that writes files. */
bool kn__ranks_writes(const kn_parallel *parallel);
/* value[i] becomes the sum, or the mean, of all ranks'. */
kn_status kn__ranks_combine(kn_parallel *parallel, double value[], int n, kn_comm_op op);
/* Whether any rank says so. */
kn_status kn__ranks_any(kn_parallel *parallel, bool *flag);
/* Ranks that share the samples of a data set need the same one: INVALID on all where they differ.
 * Loaders that know of no ranks have data of their own. */
kn_status kn__ranks_data_check(kn_parallel *parallel, const kn_loader *loader);
/* The layers' running means and variances become the means over the ranks. net may be NULL. */
kn_status kn__ranks_state_mean(kn_parallel *parallel, kn_layer *net);

/* A checkpoint has the means of the ranks' losses and running statistics, from which any number of
 * ranks continues; and each rank's own, from which as many ranks continue bit for bit. */
#define KN__RANKS_NAME "train/ranks"

/* Before a save: each rank gets the means, rank 0 the optimiser's whole state. *all: a slot for
 * what each rank had; NULL without ranks. */
kn_status kn__ranks_join(kn_tensor **all, kn_parallel *parallel, kn_layer *net, kn_tensor *losses);
/* After it, or a load: this rank has its own again. all may be NULL. */
kn_status kn__ranks_part(kn_tensor *all, kn_parallel *parallel, kn_layer *net, kn_tensor *losses);
/* *all: a slot with room for what the file has; NULL if that is not of as many ranks with the same
 * state. */
kn_status kn__ranks_find(kn_tensor **all, kn_file *f, const kn_parallel *parallel, kn_layer *net,
                         kn_tensor *losses);

#endif
