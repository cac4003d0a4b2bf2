/* How much a training step enqueues on a GPU, counted on a fake one, and how the timer names it. */
#include <knet/prof.h>
#include <unistd.h>

#include "launches.h"
#include "test.h"

static void a_step_of_the_mlp_takes_11_launches(void **state) {
    (void)state;
    int n = 0;
    assert_ok(launches_count(&n, "mlp", KN_MATH_STRICT));
    assert_int_equal(n, 11);
}

static void a_step_of_lenet_takes_27_launches(void **state) {
    (void)state;
    int n = 0;
    assert_ok(launches_count(&n, "lenet", KN_MATH_STRICT));
    assert_int_equal(n, 27);
}

static char *report(void) {
    static char text[1 << 16];
    char path[] = "/tmp/knet_launches_XXXXXX.csv";
    int fd = mkstemps(path, 4);
    assert_true(fd >= 0);
    close(fd);
    assert_ok(kn_prof_report(path));
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    unlink(path);
    return text;
}

/* Rows of ops, and of the calls below them. */
static void rows_name_the_op_that_was_run(void **state) {
    (void)state;
    static const char *const rows[] = {"relu[1]", "relu_bias_back", "linear[2]",
                                       "conv[1]", "cross_entropy",  "cublasLtMatmul (bf16)"};
    int n = 0;
    assert_null(strstr(report(), "16)"));
    assert_ok(launches_count(&n, "lenet", KN_MATH_BF16));
    assert_int_equal(n, 27);
    const char *text = report();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!strstr(text, rows[i])) fail_msg("no row %s in %s", rows[i], text);
    }
    assert_null(strstr(text, "conv[3]")); /* relu_bias_back made it */
}

int main(void) {
    return RUN_TESTS(TEST(a_step_of_the_mlp_takes_11_launches),
                     TEST(a_step_of_lenet_takes_27_launches), TEST(rows_name_the_op_that_was_run));
}
