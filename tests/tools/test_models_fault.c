/* The n-th allocation of a model's prediction fails, n = 1, 2, … until none does, once or from then
 * on: an error of status OOM is pending, nothing leaks, and the next prediction has the same bits.
 *
 * The program's own kn_alloc stands before the library's. */
#include <knet/train.h>

#include "../ops/ops_test.h"
#include "failing_alloc.h"
#include "small_models.h"

enum { BATCH = 2, SCORES_MAX = 1 << 16, TRIES_MAX = TEST_SANITIZED ? 8 : 40 };

typedef struct fixture {
    small_model small;
    kn_params *params;
    kn_model *model;
    kn_loader *loader;
    kn_batch batch;
    char scores[SCORES_MAX];
    size_t n_scores;
} fixture;

static bool fixture_init(fixture *f, int i) {
    kn_dataset *data = NULL;
    *f = (fixture){.params = NULL};
    if (!small_model_at(&f->small, i)) return false;
    assert_ok(kn_params_create(&f->params, &(kn_params_options){.seed = 1}));
    assert_ok(kn_model_create_kind(&f->model, &f->small.kind, f->params));
    assert_ok(kn_model_data_make(&data, &f->small.kind, BATCH, KN_TEST));
    assert_ok(kn_loader_create_from(&f->loader, data,
                                    &(kn_loader_options){.batch = BATCH, .split = KN_TEST}));
    kn_dataset_destroy(data);
    assert_true(kn_loader_cycle(f->loader, &f->batch));
    return true;
}

static void fixture_release(fixture *f) {
    kn_loader_destroy(f->loader);
    kn_model_destroy(f->model);
    kn_params_destroy(f->params);
}

/* The scores, compared to those of the first call; returns the prediction's status. */
static kn_status predict(fixture *f, int at) {
    static char scores[SCORES_MAX];
    KN_FRAME(.record = KN_OFF);
    n_allocs = 0, fail_at = at;
    kn_tensor *y = kn_model_predict(f->model, &f->batch);
    kn_status status = y ? kn_tensor_compute(y) : KN_OK;
    fail_at = 0;
    if (!y && !kn_pending()) fail_msg("%s: NULL without an error", f->small.kind.name);
    if (!y || status < 0) return y ? status : kn_check();
    size_t n = (size_t)kn_tensor_numel(y) * kn_dtype_bytes(kn_tensor_dtype(y));
    assert_true(n <= SCORES_MAX);
    assert_ok(kn_copy_out(f->n_scores ? scores : f->scores, n, y));
    if (f->n_scores && (n != f->n_scores || memcmp(scores, f->scores, n) != 0))
        fail_msg("%s: other scores after failure %d", f->small.kind.name, at);
    f->n_scores = n;
    return KN_OK;
}

static void fail_everywhere(fixture *f) {
    assert_ok(predict(f, 0));
    assert_ok(predict(f, 0));
    int step = n_allocs / TRIES_MAX + 1;
    for (int at = 1; at <= n_allocs || at == 1; at += step) {
        uint64_t live = ops_live_bytes();
        kn_status status = predict(f, at);
        if (status < 0 && status != KN_ERR_OOM)
            fail_msg("%s, failure %d: %d, %s", f->small.kind.name, at, status,
                     kn_last_error()->message);
        assert_true(ops_live_bytes() == live);
        assert_ok(predict(f, 0));
    }
}

static void predictions_may_be_out_of_memory(void **state) {
    (void)state;
    static fixture f;
    for (int i = 0; fixture_init(&f, i); i++) {
        for (int mode = 0; mode < 1 + !TEST_SANITIZED; mode++) {
            once = mode == 0;
            fail_everywhere(&f);
        }
        fixture_release(&f);
    }
}

int main(void) { return RUN_TESTS(OPS_TEST(predictions_may_be_out_of_memory)); }
