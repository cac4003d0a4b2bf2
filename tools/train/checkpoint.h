/* The inside of checkpoints. */
#ifndef KN_CHECKPOINT_H
#define KN_CHECKPOINT_H

#include <knet/status.h>

/* Whether a checkpoint can be saved there, before there is anything to save: creates and removes
 * PATH.new. Errors: INVALID for "", a folder, a device and the like; IO. */
kn_status kn__checkpoint_can_save(const char *path);

#endif
