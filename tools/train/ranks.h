/* What the ranks of a training run agree on. All of it is a no-op without ranks: parallel NULL. */
#ifndef KN_TRAIN_RANKS_H
#define KN_TRAIN_RANKS_H

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
/* The layers' running means and variances become the means over the ranks. net may be NULL. */
kn_status kn__ranks_state_mean(kn_parallel *parallel, kn_layer *net);

#endif
