/* How much a training step enqueues on a GPU, counted on a fake one, and how the timer names it. */
#include <knet/models.h>
#include <knet/prof.h>

#include "fake_gpu.h"
#include "launches.h"
#include "report_text.h"
#include "test.h"

static void a_step_of_the_mlp_takes_9_launches(void **state) {
    (void)state;
    int n = 0;
    assert_ok(launches_count(&n, "mlp", KN_MATH_STRICT));
    assert_int_equal(n, 9);
}

static void a_step_of_lenet_takes_21_launches(void **state) {
    (void)state;
    int n = 0;
    assert_ok(launches_count(&n, "lenet", KN_MATH_STRICT));
    assert_int_equal(n, 21);
}

/* Rows of ops, and of the calls below them. */
static void rows_name_the_op_that_was_run(void **state) {
    (void)state;
    static const char *const rows[] = {
        "relu  d x", "conv_act",      "relu_bias_back",       "linear  d weight",
        "conv  d x", "cross_entropy", "cublasLtMatmul (bf16)"};
    int n = 0;
    assert_null(strstr(report_text(".csv"), "16)"));
    assert_ok(launches_count(&n, "lenet", KN_MATH_BF16));
    assert_int_equal(n, 21);
    const char *text = report_text(".csv");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!strstr(text, rows[i])) fail_msg("no row %s in %s", rows[i], text);
    }
    assert_null(strstr(text, "conv  d bias")); /* relu_bias_back made it */
}

/* Results are copies: they stay while a later prediction runs. */
static void predictions_of_frozen_lenet_are_a_graph_and_a_copy(void **state) {
    (void)state;
    kn_device *gpu = NULL;
    kn_params *params = NULL;
    kn_model *model = NULL;
    assert_ok(kn_device_find(&gpu, "cuda:0"));
    {
        KN_FRAME(.device = gpu, .record = KN_OFF);
        assert_ok(kn_params_create(&params, NULL));
        assert_ok(kn_model_create(&model, "lenet", params));
        assert_ok(kn_freeze(model));
        kn_tensor *x = kn_ones(KN_SHAPE(1, 1, 28, 28)), *y[4];
        for (int i = 0; i < 4; i++) {
            fake_gpu_reset();
            y[i] = kn_model_logits(model, x);
            assert_ok(kn_check());
            assert_int_equal(fake_gpu_count().n_graphs, i > 1);
            if (i > 1) assert_int_equal(fake_gpu_launches(), 2);
        }
        assert_true(kn_data(y[2]) != kn_data(y[3]));
        assert_int_equal(fake_gpu_graphs(), 1);
        kn_model_destroy(model);
        assert_int_equal(fake_gpu_graphs(), 0);
    }
    kn_params_destroy(params);
}

int main(void) {
    return RUN_TESTS(TEST(a_step_of_the_mlp_takes_9_launches),
                     TEST(predictions_of_frozen_lenet_are_a_graph_and_a_copy),
                     TEST(a_step_of_lenet_takes_21_launches), TEST(rows_name_the_op_that_was_run));
}
