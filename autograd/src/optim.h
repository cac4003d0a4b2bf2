/* An optimiser's inside. */
#ifndef KN_OPTIM_SRC_H
#define KN_OPTIM_SRC_H

#include <knet/optim.h>
#include <string.h>

#include "params.h"

enum { LR = 0, STEPS, SCALE, HYPERS = 4 };

typedef struct kn__param_group {
    char *prefix;
    double lr_scale, decay_scale;
} kn__param_group;

struct kn_optim {
    kn_params *set; /* shared */
    kn__param_group *groups;
    int n_groups;
    kn_op op;
    kn_attr_optim attr;
    kn_optim_part *parts;  /* made at the first step: dense parameters, then sparse ones */
    kn_optim_part *moving; /* room for as many, behind them */
    int n_dense;
    kn_tensor *m, *v;           /* like the gradient arena; KN_NONE where the method has none */
    kn_tensor **row_m, **row_v; /* of each sparse parameter, like it; NULL before the first step */
    kn_tensor *hyper;           /* F64[4·turns] on the device: rate, steps, gradient scale, 0 */
    double clip_norm, clip_each;
    uint64_t clipped; /* the set's n_begun when clip_each had clipped, in a step that failed then */
    bool has_m, has_v, is_ready;
    int64_t n_updated; /* elements of the tensor of kn_optim_update, once there was one */
    char **turn;       /* prefixes; NULL: all parameters take each step */
    int *turn_end;     /* parts of a turn end there; those of the next one begin */
    int n_turns;       /* 1 or more */
    /* kn_optim_shard: it updates these elements of the arena; m and v are of these. */
    kn_optim_range *range;
    int n_ranges;
    kn_tensor *part_grad; /* of these, owned; NULL: it updates all */
    bool is_given;        /* the caller writes part_grad */
    kn_tensor *whole[2];  /* m and v of all, for a checkpoint; NULL: not there */
    kn_optim_stepped_fn on_step;
    void *on_step_ctx;
    kn_optim *next; /* of the parameters on the next device; owned */
};

/* LAMB looks at whole parameters. */
static inline bool kn__is_lamb(const kn_optim *optim) { return optim->op == KN_OP_lamb_step; }
static inline bool kn__has_prefix(const kn__param *p, const char *prefix) {
    return strncmp(p->name, prefix, strlen(prefix)) == 0;
}

/* Makes state and parts, which go by the arena's offsets: these are final from here on. */
kn_status kn__optim_prepare(kn_optim *optim);
/* An array of zeros for the state. */
kn_status kn__optim_state_make(kn_tensor **out, const kn_tensor *like);
/* Clips all gradients by their norm, and each by its own. */
kn_status kn__clip(kn_optim *optim);
kn_status kn__clip_each(kn_optim *optim);
/* min(1, limit/√sum); NULL: the error is pending. */
kn_tensor *kn__clip_scale(kn_tensor *sum, double limit);
/* Makes the step's gradient scale min(1, limit/√sum), where the gradients are: nothing waits. */
kn_status kn__clip_to(kn_optim *optim, kn_tensor *sum, double limit);
/* The turn in which a parameter moves. */
int kn__turn_of(const kn_optim *optim, const kn__param *p);
void kn__turns_free(char **turn, int n);
/* Sets its rate and decay as the groups say. */
void kn__part_scale(kn_optim_part *part, const kn_optim *optim, const kn__param *p);
/* Whether a step moves it: it may be frozen, its group stand still. */
bool kn__param_moves(const kn_optim *optim, const kn__param *p);
/* The parameter of parts[i]. */
const kn__param *kn__part_param(const kn_optim *optim, int i);
/* Of a step of the parts from `first` up to `end`: without those that are frozen. */
kn_attr_optim kn__parts_attr(const kn_optim *optim, int first, int end);
/* State i, 1 or 2, of kn_optim_update. */
kn_tensor *kn__update_state_at(kn_optim *optim, int i, char *name, size_t name_bytes);
/* Copies the gradients of the ranges, where the caller doesn't write them. */
kn_status kn__shard_grad_copy(kn_optim *optim);
void kn__shard_whole_release(kn_optim *optim);
void kn__shard_release(kn_optim *optim);

#endif
