/* The n-th allocation of a step of training fails, n = 1, 2, … until none does, once or from then
 * on, in layers, recomputed blocks, row-sparse gradients, loss scaling and averages: the status is
 * OOM, nothing leaks, and the same objects train on to the same bits.
 *
 * The program's own kn_alloc stands before the library's. */
#include <knet/data.h>
#include <knet/layer.h>
#include <knet/models.h>
#include <knet/scale.h>
#include <knet/tape.h>

#include "failing_alloc.h"
#include "test.h"

enum { WORDS = 30, WIDTH = 4, LENGTH = 5, BATCH = 6, PARTS_MAX = 32 };

static uint64_t live_bytes(void) {
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, kn_device_pool(kn_device_host()));
    return stats.live_bytes;
}

/* --- the net --- */

typedef struct job {
    kn_params *params;
    kn_layer *net;
    kn_optim *optim;
    kn_loss_scale *scale;
    kn_ema *ema;
    int done; /* how much of the step: what a failed one is continued from */
} job;

static void job_open(job *j, double clip_norm) {
    *j = (job){0};
    assert_ok(kn_params_create(&j->params, &(kn_params_options){.seed = 2}));
    assert_ok(kn_layer_create(&j->net, j->params, NULL));
    kn_layer_embedding(j->net, "words", WORDS, WIDTH, &(kn_layer_linear_options){.sparse = 1});
    kn_layer *block = kn_layer_residual(j->net, "block");
    kn_layer_linear(block, "fc1", WIDTH, 8, &(kn_layer_linear_options){.act = kn_relu});
    kn_layer_linear(block, "fc2", 8, WIDTH, &(kn_layer_linear_options){.act = kn_tanh});
    if (block) kn_layer_recompute_set(block, true);
    kn_layer_rnn(j->net, "gru", WIDTH, &(kn_rnn_options){.hidden = 4, .mode = KN_RNN_GRU});
    kn_layer_layernorm(j->net, "norm", KN_SHAPE(4), NULL);
    kn_layer_linear(j->net, "fc", 4, 3, NULL);
    assert_ok(kn_check());
    assert_ok(
        kn_adam_create(&j->optim, j->params, 0.01, &(kn_adam_options){.clip_norm = clip_norm}));
    assert_ok(kn_loss_scale_create(&j->scale, j->params, NULL));
    assert_ok(kn_ema_create(&j->ema, j->params, 0.75));
}

static void job_close(job *j) {
    kn_ema_destroy(j->ema);
    kn_loss_scale_destroy(j->scale);
    kn_optim_destroy(j->optim);
    kn_layer_destroy(j->net);
    kn_params_destroy(j->params);
}

static kn_status gradients(job *j, int step) {
    KN_TAPE();
    KN_TRY(kn_check());
    int64_t index[LENGTH * BATCH];
    for (int i = 0; i < LENGTH * BATCH; i++) index[i] = (i * 7 + step * 3) % (WORDS / 2);
    kn_tensor *x = kn_tensor_from(index, KN_I64, KN_SHAPE(LENGTH, BATCH));
    kn_tensor *y = kn_layer_forward(j->net, x);
    kn_tensor *loss = kn_mean(kn_mul(y, y), KN_ALL, false);
    return kn_backward(kn_loss_scale_apply(j->scale, loss));
}

/* From where the last try failed. */
static kn_status step(job *j, int step) {
    if (j->done == 0) KN_TRY(gradients(j, step));
    if (j->done == 0) j->done = 1;
    if (j->done == 1) KN_TRY(kn_loss_scale_step(j->scale, j->optim, NULL));
    if (j->done == 1) j->done = 2;
    if (j->done == 2) KN_TRY(kn_ema_update(j->ema));
    if (j->done == 2) j->done = 3;
    if (j->done == 3) KN_TRY(kn_ema_swap(j->ema));
    if (j->done == 3) j->done = 4;
    if (j->done == 4) KN_TRY(kn_ema_swap(j->ema));
    j->done = 0;
    return KN_OK;
}

/* --- the same bits --- */

typedef struct bits {
    uint64_t weights[PARTS_MAX];
    int n;
} bits;

static uint64_t hash_of(kn_tensor *t) {
    const unsigned char *data = kn_data(t);
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < (size_t)kn_tensor_numel(t) * sizeof(float); i++)
        h = (h ^ data[i]) * 1099511628211u;
    return h;
}

static bits bits_of(job *j) {
    KN_FRAME();
    bits b = {.n = kn_params_count(j->params)};
    assert_true(2 * b.n <= PARTS_MAX);
    for (int i = 0; i < b.n; i++) {
        b.weights[i] = hash_of(kn_params_at(j->params, i, NULL));
        b.weights[b.n + i] = hash_of(kn_ema_at(j->ema, i));
    }
    return b;
}

/* The first or the second step meets the failure: the first makes the state that lasts. */
static bool fails_at(int at, int in_step, double clip_norm, const bits *want) {
    job j;
    job_open(&j, clip_norm);
    uint64_t before = 0;
    bool reached = false;
    for (int i = 0; i < 3; i++) {
        n_allocs = 0;
        fail_at = i == in_step ? at : 0;
        before = live_bytes();
        kn_status status = step(&j, i);
        fail_at = 0;
        reached |= i == in_step && n_allocs >= at;
        assert_int_equal(kn_check(), KN_OK);
        if (status == KN_OK) continue;
        assert_int_equal(status, KN_ERR_OOM);
        test_assert_message("scripted failure", __FILE__, __LINE__);
        if (in_step > 0 && j.done == 0) assert_true(live_bytes() <= before);
        assert_ok(step(&j, i));
    }
    bits got = bits_of(&j);
    if (memcmp(&got, want, sizeof got) != 0)
        fail_msg("other weights after failure %d of step %d", at, in_step);
    job_close(&j);
    return reached;
}

static bits calm_bits(double clip_norm) {
    job calm;
    job_open(&calm, clip_norm);
    for (int i = 0; i < 3; i++) assert_ok(step(&calm, i));
    bits b = bits_of(&calm);
    job_close(&calm);
    return b;
}

/* The first step gives the gradients their order in memory. Where that fails they keep another one,
 * and their norm, added up in that order, may have another last bit: no clipping there. */
static void fail_everywhere(void) {
    uint64_t before = live_bytes();
    for (int in_step = 0; in_step < 2; in_step++) {
        double clip_norm = in_step == 0 ? 1e6 : 0.5;
        bits want = calm_bits(clip_norm);
        int at = 1;
        while (fails_at(at, in_step, clip_norm, &want)) at++;
        assert_true(at > 60);
    }
    assert_int_equal(live_bytes(), before);
}

static void every_allocation_may_fail_once(void **state) {
    (void)state;
    once = true;
    fail_everywhere();
}

static void every_allocation_may_fail_for_good(void **state) {
    (void)state;
    once = false;
    fail_everywhere();
}

/* A step of a model whose update fails leaves nothing that the next one adds to. */
static void a_failed_step_is_done_again(void **state) {
    (void)state;
    double moved[2];
    for (int fails = 0; fails < 2; fails++) {
        kn_params *params = NULL;
        kn_model *model = NULL;
        kn_optim *optim = NULL;
        kn_ema *ema = NULL;
        kn_loader *loader = NULL;
        kn_batch batch;
        assert_ok(kn_params_create(&params, NULL));
        assert_ok(kn_model_create(&model, "softmax", params));
        assert_ok(kn_sgd_create(&optim, params, 0.1, NULL));
        assert_ok(kn_ema_create(&ema, params, 0.5));
        assert_ok(kn_loader_create_synthetic(&loader, 100, NULL));
        assert_true(kn_loader_next(loader, &batch));
        {
            KN_FRAME();
            kn_tensor *loss = NULL, *before = kn_affine(kn_params_find(params, "fc.weight"), 1, 0);
            if (fails) { /* weights that are averages are not updated */
                assert_ok(kn_ema_swap(ema));
                assert_fails(kn_model_step(&loss, model, optim, &batch), KN_ERR_INVALID,
                             "the weights are averages");
                assert_ok(kn_ema_swap(ema));
            }
            assert_ok(kn_model_step(&loss, model, optim, &batch));
            kn_tensor *d = kn_sub(kn_params_find(params, "fc.weight"), before);
            assert_ok(kn_item(&moved[fails], kn_sum_square(d, KN_ALL, false)));
        }
        kn_loader_destroy(loader);
        kn_ema_destroy(ema);
        kn_optim_destroy(optim);
        kn_model_destroy(model);
        kn_params_destroy(params);
    }
    assert_true(moved[0] > 0 && moved[0] == moved[1]);
}

int main(void) {
    return RUN_TESTS(TEST(every_allocation_may_fail_once), TEST(every_allocation_may_fail_for_good),
                     TEST(a_failed_step_is_done_again));
}
