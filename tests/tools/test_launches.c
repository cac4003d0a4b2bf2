/* How much a training step enqueues on a GPU, counted on a fake one, and how the timer names it. */
#include <knet/prof.h>

#include "launches.h"
#include "report_text.h"
#include "test.h"

static void a_step_of_the_mlp_takes_10_launches(void **state) {
    (void)state;
    int n = 0;
    assert_ok(launches_count(&n, "mlp", KN_MATH_STRICT));
    assert_int_equal(n, 10);
}

static void a_step_of_lenet_takes_22_launches(void **state) {
    (void)state;
    int n = 0;
    assert_ok(launches_count(&n, "lenet", KN_MATH_STRICT));
    assert_int_equal(n, 22);
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
    assert_int_equal(n, 22);
    const char *text = report_text(".csv");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!strstr(text, rows[i])) fail_msg("no row %s in %s", rows[i], text);
    }
    assert_null(strstr(text, "conv  d bias")); /* relu_bias_back made it */
}

int main(void) {
    return RUN_TESTS(TEST(a_step_of_the_mlp_takes_10_launches),
                     TEST(a_step_of_lenet_takes_22_launches), TEST(rows_name_the_op_that_was_run));
}
