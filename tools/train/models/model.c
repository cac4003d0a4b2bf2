#include "model.h"

#include <stdlib.h>
#include <string.h>

#include "text.h"

static const kn__model_kind *const kinds[] = {&kn__lenet, &kn__mlp};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static const kn__model_kind *kind_find(const char *name) {
    for (int i = 0; i < N_KINDS; i++)
        if (strcmp(kinds[i]->name, name) == 0) return kinds[i];
    return NULL;
}

static kn_status unknown_fail(const char *name) {
    char buffer[256];
    kn__text names = kn__text_in(buffer, sizeof buffer);
    for (int i = 0; i < N_KINDS; i++)
        kn__text_printf(&names, "%s%s", i ? ", " : "", kinds[i]->name);
    return KN_FAIL(KN_ERR_INVALID, "unknown model '%s'; there are: %s", name, names.data);
}

kn_status kn_model_create(kn_model **out, const char *name, kn_params *params) {
    const kn__model_kind *kind = kind_find(name);
    if (!kind) return unknown_fail(name);
    kn_model *model = calloc(1, kind->size_bytes);
    if (!model) return KN_FAIL(KN_ERR_OOM, "no memory for the model %s", name);
    model->kind = kind;
    kn_status status = kind->init(model, params);
    if (status < 0) {
        free(model);
        return status;
    }
    *out = model;
    return KN_OK;
}

void kn_model_destroy(kn_model *model) { free(model); }
const char *kn_model_name(const kn_model *model) { return model->kind->name; }
const char *kn_model_name_at(int i) { return i >= 0 && i < N_KINDS ? kinds[i]->name : NULL; }

kn_tensor *kn_model_logits(const kn_model *model, kn_tensor *x) {
    return model->kind->logits(model, x);
}
