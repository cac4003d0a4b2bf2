#include "model_data.h"

#include <inttypes.h>
#include <knet/checkpoint.h>
#include <stdio.h>
#include <string.h>

#include "fail.h"

/* As the loader does, which names the fields of its options. */
static kn_status batch_check(const kn_dataset *data, const kn_loader_options *o) {
    int64_t n = kn_dataset_size(data);
    if (o->partial || n / o->n_ranks >= o->batch) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID,
                   "batch %" PRId64 " of %d rank%s: the data has only %" PRId64
                   " sample%s; set a smaller --batch",
                   o->batch, o->n_ranks, o->n_ranks == 1 ? "" : "s", n, n == 1 ? "" : "s");
}

kn_status kn__model_loader(kn_loader **out, const char *model, bool made, const char *path,
                           kn_vocab *vocab, const kn_loader_options *options) {
    const kn_model_kind *kind = kn_model_kind_find(model);
    kn_dataset *data = NULL;
    int64_t n = kind->facts->n_made ? kind->facts->n_made : 12800;
    if (options->split == KN_TEST) n = (n + 4) / 5;
    KN_TRY(made    ? kn_model_data_make(&data, kind, n, options->split)
           : vocab ? kn_model_data_read_text(&data, kind, path, options->split, vocab)
                   : kn_model_data_read(&data, kind, path, options->split));
    kn_status status = batch_check(data, options);
    if (status == KN_OK) status = kn_loader_create_from(out, data, options);
    kn_dataset_destroy(data);
    return status;
}

int kn__model_data_check(const char *model, bool made, const char *path) {
    const kn_model_facts *facts = kn_model_kind_find(model)->facts;
    if (made) return KN__EXIT_OK;
    if (!facts->read && facts->made)
        return kn__fail_usage("the model %s reads no files; use --synthetic", model);
    if (path || !facts->path || *facts->path) return KN__EXIT_OK;
    bool are_images = facts->x.n_dims == 3 && !facts->read;
    return kn__fail_usage(
        "the model %s has no default data; give %s or --synthetic; it is for %s%s%s", model,
        are_images ? "--data DIR, with train/CLASS/IMAGE.jpg and test/...," : "--data FILE",
        facts->data, facts->source ? "; " : "", facts->source ? facts->source : "");
}

int kn__model_capture_check(const char *model, const char *option) {
    if (!kn_model_kind_find(model)->reads_on_host) return KN__EXIT_OK;
    return kn__fail_usage("%s does not apply to %s: its step reads data on the host", option,
                          model);
}

int kn__model_carry_check(const char *model, const char *devices) {
    if (!kn_model_kind_find(model)->carry)
        return kn__fail_usage("--carry does not apply to %s: its batches have no state", model);
    if (strchr(devices, ','))
        return kn__fail_usage("--carry needs one device; --device is '%s'", devices);
    return KN__EXIT_OK;
}

/* Whether the file has averages of the parameters. */
static bool has_averages(kn_file *f, kn_params *params) {
    char name[512];
    const char *first = NULL;
    if (!kn_params_count(params)) return false;
    (void)kn_params_at(params, 0, &first);
    snprintf(name, sizeof name, "ema/%s", first);
    return kn_file_find(f, name) >= 0 && !kn_params_find(params, name);
}

kn_status kn__model_weights(bool *averaged, kn_model *model, const char *path) {
    kn_checkpoint c = {.params = kn_model_params(model), .state = kn_model_net(model)};
    kn_file *f = NULL;
    KN_TRY(kn_file_open(&f, path));
    *averaged = has_averages(f, c.params);
    kn_file_close(f);
    if (*averaged) KN_TRY(kn_ema_create(&c.ema, c.params, 0.5)); /* no update follows */
    kn_status status = kn_checkpoint_load(&c, path);
    if (status == KN_OK && c.ema) status = kn_ema_swap(c.ema);
    kn_ema_destroy(c.ema);
    return status;
}

kn_status kn__model_vocab(kn_vocab **out, const char *path) {
    kn_file *f = NULL;
    KN_TRY(kn_file_open(&f, path));
    const char *line = kn_file_metadata(f, "knet.vocab");
    kn_status status = line ? kn_vocab_parse(out, line) : KN_OK;
    kn_file_close(f);
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

const char *kn__model_samples(const char *model, int64_t n) {
    const kn_model_facts *facts = kn_model_kind_find(model)->facts;
    bool are_images = facts->x.n_dims == 3 && facts->n_classes;
    if (n == 1) return are_images ? "image" : "sample";
    return are_images ? "images" : "samples";
}

int kn__autocast_find(const char *dtype) {
    if (strcmp(dtype, "f16") == 0) return KN_F16;
    return strcmp(dtype, "bf16") == 0 ? KN_BF16 : 0;
}

const char *const kn__recompute_choices[] = {"on", "off", NULL};

void kn__recompute_set(kn_model *model, const char *choice) {
    if (choice) kn_model_recompute_set(model, choice[1] == 'n');
}
