/* A model on several devices: --device A,B. */
#ifndef KN_STAGES_H
#define KN_STAGES_H

#include <knet/comm.h>
#include <knet/models.h>

enum { KN__STAGES_MAX = 16 };
typedef struct kn__stages {
    kn_device *device[KN__STAGES_MAX];
    int n;
    const char *text; /* their names; borrowed */
} kn__stages;

/* The devices of a list such as "cuda:0,cuda:1". Errors: INVALID for more than fit, and a simulated
 * one; UNSUPPORTED for several in a rank of comm; those of kn_device_find. */
kn_status kn__stages_find(kn__stages *out, const char *devices, const kn_comm *comm);
/* Moves the layers of the model to them and sets its micro-batches; with one device a no-op. cut:
 * the names of layers with which the others begin, or NULL; n_micro 0: four a device. Errors:
 * INVALID for cuts and several micro-batches on one device. */
kn_status kn__stages_place(kn_model *model, const kn__stages *stages, const char *cut, int n_micro);

#endif
