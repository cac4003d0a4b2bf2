/* What a model is made of, and the list of them. To add one: a file here, a line in model.c. */
#ifndef KN_MODEL_H
#define KN_MODEL_H

#include <knet/models.h>
#include <knet/prof.h>

typedef struct kn__model_kind {
    const char *name;
    size_t size_bytes; /* of the model's struct, which starts with a kn_model */
    kn_status (*init)(kn_model *model, kn_params *params);
    kn_tensor *(*logits)(const kn_model *model, kn_tensor *x);
} kn__model_kind;

struct kn_model {
    const kn__model_kind *kind;
};

extern const kn__model_kind kn__lenet, kn__mlp;

#endif
