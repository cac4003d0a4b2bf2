/* The inside of checkpoints. */
#ifndef KN_CHECKPOINT_H
#define KN_CHECKPOINT_H

#include <knet/checkpoint.h>

#include <string.h>

#include "text.h"

/* Whether a checkpoint can be saved there, before there is anything to save: creates and removes
 * PATH.new. Errors: INVALID for "", a folder, a device and the like; IO. */
kn_status kn__checkpoint_can_save(const char *path);

/* Checkpoints keep a double as the number that its bits are. */
static inline uint64_t kn__bits_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline double kn__double_of(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* n numbers of the metadata's key. Errors: INVALID for a file without it, or with other text. */
kn_status kn__numbers_get(uint64_t out[], int n, kn_file *f, const char *path, const char *key);

/* --- checkpoint_cast.c --- */
#define KN__METHOD "knet.optimizer"
/* Whether tensor i of the file is, or can be cast to, the program's: floats of another width are,
 * unless the file is of a run, or one of them is finite and would be infinite. */
kn_status kn__cast_check(kn_file *f, int i, const char *path, const kn_named *want);

/* --- checkpoint_order.c --- */
#define KN__ORDER "knet.order"
/* Whether the order of the gradients is final. */
kn_status kn__order_is_final(bool *out, const kn_params *params);
/* The order as text; none before it is final. */
kn_status kn__order_put(kn__text *out, const kn_params *params);
/* Sets the file's order, unless the gradients lie in it already. */
kn_status kn__order_load(kn_params *params, kn_file *f, const char *path);

/* --- checkpoint_settings.c --- */
/* The texts of an optimiser's settings, of its groups, and of the averages' decay. */
void kn__settings_put(kn__text *out, const kn_optim *optim);
void kn__groups_put(kn__text *out, const kn_optim *optim);
void kn__decay_put(kn__text *out, const kn_ema *ema);
/* Whether those of the file are the run's, as far as it has them; nothing is written. */
kn_status kn__settings_check(const kn_checkpoint *c, kn_file *f, const char *path);
/* Takes the file's groups where the optimiser has none. */
kn_status kn__groups_restore(kn_checkpoint *c, kn_file *f);

#endif
