/* predict_program MODEL: a program that only predicts. Prints the most bytes that its pool had live
 * at a time in predictions of one made-up batch, on one thread, by a model that never trained. */
#include <inttypes.h>
#include <knet/models.h>
#include <stdio.h>

/* The batch and the model as knet bench has them. */
static kn_status batch_make(kn_tensor **x, kn_tensor **y, const kn_model_kind *kind) {
    kn_dataset *data = NULL;
    kn_loader *loader = NULL;
    kn_batch b = {.n = 0};
    KN_TRY(kn_model_data_make(&data, kind, kind->facts->batch, KN_TEST));
    kn_status status = kn_loader_create_from(
        &loader, data, &(kn_loader_options){.batch = kind->facts->batch, .split = KN_TEST});
    KN_FRAME();
    if (status == KN_OK && kn_loader_next(loader, &b)) status = kn_hold(x, kn_copy(b.x));
    if (status == KN_OK && b.y) status = kn_hold(y, kn_copy(b.y));
    kn_loader_destroy(loader);
    kn_dataset_destroy(data);
    return status == KN_OK ? kn_check() : status;
}

static kn_status predict(const kn_model *model, const kn_batch *b) {
    KN_FRAME();
    kn_model_predict(model, b);
    return kn_check();
}

static kn_status run(uint64_t *live_max, const char *name) {
    const kn_model_kind *kind = kn_model_kind_find(name);
    kn_pool *pool = kn_device_pool(kn_device_host());
    kn_params *params = NULL;
    kn_model *model = NULL;
    kn_pool_stats stats = {0};
    KN_FRAME(.record = KN_OFF, .threads = 1);
    KN_SLOT(x);
    KN_SLOT(y);
    KN_TRY(batch_make(&x, &y, kind));
    kn_status status = kn_params_create(&params, NULL);
    if (status == KN_OK) status = kn_model_create(&model, name, params);
    kn_pool_peaks_reset(pool);
    for (int i = 0; i < 3 && status == KN_OK; i++)
        status = predict(model, &(kn_batch){.x = x, .y = y, .n = kind->facts->batch});
    kn_pool_stats_read(&stats, sizeof stats, pool);
    *live_max = stats.live_bytes_max;
    kn_model_destroy(model);
    kn_params_destroy(params);
    return status;
}

int main(int argc, char **argv) {
    uint64_t live_max = 0;
    if (argc != 2 || run(&live_max, argv[1]) < 0) return 1;
    printf("%" PRIu64 "\n", live_max);
    return 0;
}
