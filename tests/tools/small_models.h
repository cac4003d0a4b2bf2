/* Small configurations of the models, for tests: the sizes of golden/record.py. */
#ifndef KNET_TEST_SMALL_MODELS_H
#define KNET_TEST_SMALL_MODELS_H

#include <knet/models.h>

/* A model of the list with other sizes, and data to fit. */
typedef struct small_model {
    kn_model_kind kind;
    kn_model_facts facts;
    double bound; /* what the loss falls below in an epoch of 100 steps of Adam */
    double lr;
} small_model;

/* The i-th; false beyond the last. out must stay in its place while models of it live. */
bool small_model_at(small_model *out, int i);
/* Makes layers that draw random numbers draw none. */
void small_model_quiet(kn_model *model);

#endif
