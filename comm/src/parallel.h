/* The inside of data parallel training. */
#ifndef KN_COMM_PARALLEL_H
#define KN_COMM_PARALLEL_H

#include <knet/op.h>
#include <knet/parallel.h>

#include "ranks.h"

/* Elements [begin, end) of the arena. It ends with a slice, or at the last multiple of a grain of
 * elements before: the next bucket, which is reduced later, has the rest of the slice. */
typedef struct kn__bucket {
    int64_t begin, end;
    int n_params, n_left; /* gradients that begin in it; those that this pass has not finished */
    bool is_posted;
    kn__job job, rest; /* rest: of the last bucket, if the state is cut */
} kn__bucket;

/* A piece of a parameter that one rank updates. */
typedef struct kn__param_piece {
    kn_tensor *w;
    int64_t in_w, in_arena, n; /* elements */
    bool is_own;
} kn__param_piece;

struct kn_parallel {
    kn_params *params; /* borrowed, like comm */
    kn_comm *comm;
    kn_parallel_options options;
    kn__bucket *buckets;
    int n_buckets, n_posted; /* they are posted in their order, the same on every rank */
    char *arena;
    size_t item;
    kn_dtype dtype;
    bool is_off;     /* kn_parallel_sync */
    int64_t *places; /* of the gradients in the arena, ascending; in elements */
    bool *is_done;   /* in this step */
    int n_places;
    uint64_t begun;   /* kn_params_begun at the end of the last step */
    bool has_pass;    /* there was one in this step, if only of zeros */
    bool is_twice;    /* a gradient was finished again */
    kn_status failed; /* of the hook */
    kn_error lost;    /* why a pass failed after a bucket was posted; status KN_OK: none did */
    kn_parallel_stats stats;
    kn_device *gpu;   /* of the parameters; NULL: they are on the host */
    kn_stream stream; /* the reductions', beside that of the pass */
    kn_event *event;
    kn_optim *optim; /* kn_parallel_shard; borrowed */
    bool is_cut;     /* its state */
    char *part_data; /* the optimiser's gradients of this rank's parts; NULL: it reads the arena */
    kn__param_piece *pieces;
    int n_pieces;
    kn_batch_ranks batch;
};

/* --- shard.c --- */
/* Parts of a bucket begin at multiples of so many bytes. */
enum { KN__PART_BYTES = 64 };
/* Cuts the optimiser's state, once the order of the arena is final: each rank has one part of every
 * bucket. */
kn_status kn__parallel_cut(kn_parallel *p);
/* The elements of a part of a bucket; the last bucket has a rest as well, which the last rank
 * updates. */
int64_t kn__part_numel(const kn_parallel *p, const kn__bucket *b);
/* Where the gradients of this rank's part go. */
char *kn__part_place(const kn_parallel *p, const kn__bucket *b);

/* --- parallel.c --- */
enum { KN__BUCKET_BYTES = 1 << 20 };
/* Cuts the arena of the gradients into buckets [n_params + 1] of at least so many bytes, less a
 * grain of elements; order: the parameters in the order of their slices. */
kn_status kn__buckets_cut(kn__bucket buckets[], int *n_buckets, kn_params *params,
                          const int order[], const char *arena, int64_t least_bytes, int64_t grain);
/* The bucket of an element. */
kn__bucket *kn__bucket_of(kn__bucket buckets[], int n, int64_t at);

/* --- batch.c --- */
void kn__parallel_batch_init(kn_parallel *p);

#endif
