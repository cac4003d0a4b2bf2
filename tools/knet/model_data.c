#include "model_data.h"

#include <string.h>

kn_status kn__model_loader(kn_loader **out, const char *model, bool made, const char *path,
                           const kn_loader_options *options) {
    const kn_model_kind *kind = kn_model_kind_find(model);
    kn_dataset *data = NULL;
    int64_t n = kind->facts->n_made ? kind->facts->n_made : 12800;
    if (options->split == KN_TEST) n = (n + 4) / 5;
    KN_TRY(made ? kn_model_data_make(&data, kind, n, options->split)
                : kn_model_data_read(&data, kind, path, options->split));
    kn_status status = kn_loader_create_from(out, data, options);
    kn_dataset_destroy(data);
    return status;
}

const char *kn__model_path(const char *model) {
    const char *path = kn_model_kind_find(model)->facts->path;
    return path ? path : "/usr/share/datasets/fashion-mnist";
}

int64_t kn__model_batch(const char *model) {
    const kn_model_facts *facts = kn_model_kind_find(model)->facts;
    return facts->n_made ? facts->batch : 128;
}

const char *kn__model_samples(const char *model) {
    const kn_model_facts *facts = kn_model_kind_find(model)->facts;
    return facts->x.n_dims == 3 && facts->n_classes ? "images" : "samples";
}

int kn__autocast_find(const char *dtype) {
    if (strcmp(dtype, "f16") == 0) return KN_F16;
    return strcmp(dtype, "bf16") == 0 ? KN_BF16 : 0;
}

const char *const kn__recompute_choices[] = {"on", "off", NULL};

void kn__recompute_set(kn_model *model, const char *choice) {
    if (choice) kn_model_recompute_set(model, choice[1] == 'n');
}
