/* The optimisers of knet train, and its learning rate from step to step. */
#ifndef KN_OPTIMIZERS_H
#define KN_OPTIMIZERS_H

#include <knet/models.h>
#include <knet/optim.h>

typedef struct kn__update {
    double lr, lr_end, weight_decay, clip_norm, clip_each; /* 0: not given, but lr_end */
    const char *schedule;
    int64_t warmup, lr_every; /* steps; epochs */
} kn__update;

extern const char *const kn__optimizer_names[]; /* up to NULL */
extern const char *const kn__schedule_names[];
/* What the options of a command line don't fit in: its exit code. lr 0: the default. */
int kn__update_check(const char *optimizer, const kn__update *u);
/* The rate that the optimiser has unless one is given. */
double kn__optimizer_rate(const char *optimizer, const char *model);
kn_status kn__optimizer_create(kn_optim **out, const char *optimizer, const kn_model *model,
                               const kn__update *u);
/* Whether the rate changes from step to step: *out says how. */
bool kn__schedule_of(kn_schedule *out, const kn__update *u, const char *model, int64_t epochs,
                     int64_t epoch_steps);
/* Those that were given, such as " --schedule cosine --warmup 5", without lr. */
void kn__update_options(char *out, size_t out_bytes, const kn__update *u);
/* For reports: such as "rate 0.001, cosine". */
void kn__update_text(char *out, size_t out_bytes, const kn__update *u);

#endif
