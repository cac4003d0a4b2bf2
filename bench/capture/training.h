/* A model in training, by steps as they are or captured. */
#ifndef KNET_BENCH_TRAINING_H
#define KNET_BENCH_TRAINING_H

#include <knet/capture.h>
#include <knet/models.h>
#include <knet/optim.h>

typedef struct training {
    kn_params *params;
    kn_model *model;
    kn_optim *adam;
    kn_capture *capture;
    kn_tensor *in[2]; /* slots */
    kn_status status;
} training;

/* In the frame's device. A zeroed one may be closed. */
kn_status training_open(training *t, const char *model);
void training_close(training *t);
/* n steps (bench_fn); an error is left in status. */
void steps_plain(void *ctx, long n);
void steps_captured(void *ctx, long n);

#endif
