/* torchvision MODEL FILE: loads the model's weights from the file, and compares the logits of the
 * input in it, of the model and of its frozen form, with those in it. */
#include <knet/checkpoint.h>
#include <knet/file.h>
#include <knet/models.h>
#include <math.h>
#include <stdio.h>

static kn_status compare(const char *what, kn_model *model, kn_file *file) {
    KN_FRAME(.record = KN_OFF);
    kn_tensor *want = kn_file_read(file, "test.logits");
    kn_tensor *got = kn_model_logits(model, kn_file_read(file, "test.x"));
    double off = NAN, size = NAN;
    KN_TRY(kn_item(&off, kn_max_abs(kn_sub(got, want), KN_ALL, false)));
    KN_TRY(kn_item(&size, kn_max_abs(want, KN_ALL, false)));
    printf("%s: logits up to %g differ by %g\n", what, size, off);
    if (off <= 1e-4 * size) return KN_OK;
    fprintf(stderr, "%s: the logits are others\n", what);
    return KN_ERR_INTERNAL;
}

static kn_status run(kn_params *params, kn_model **model, kn_file **file, char **argv) {
    KN_TRY(kn_model_create(model, argv[1], params));
    kn_checkpoint weights = {.params = params, .state = kn_model_net(*model)};
    KN_TRY(kn_checkpoint_load(&weights, argv[2]));
    KN_TRY(kn_file_open(file, argv[2]));
    KN_TRY(compare("plain", *model, *file));
    KN_TRY(kn_freeze(*model));
    return compare("frozen", *model, *file);
}

int main(int argc, char **argv) {
    kn_params *params = NULL;
    kn_model *model = NULL;
    kn_file *file = NULL;
    if (argc != 3) return 2;
    kn_status status = kn_params_create(&params, NULL);
    if (status == KN_OK) status = run(params, &model, &file, argv);
    if (status < 0) fprintf(stderr, "%s\n", kn_last_error()->message);
    kn_file_close(file);
    kn_model_destroy(model);
    kn_params_destroy(params);
    return status < 0;
}
