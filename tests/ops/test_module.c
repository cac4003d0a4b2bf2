/* Loading the module of CUDA kernels where it is missing. Built with a file name of its own. */
#include "kernel.h"
#include "run.h"
#include "test.h"

static void a_missing_module_is_an_error_that_names_its_file(void **state) {
    (void)state;
    assert_null(kn__cuda_module());
    assert_int_equal(kn_last_error()->status, KN_ERR_UNSUPPORTED);
    test_assert_message("the CUDA kernels can't be loaded", __FILE__, __LINE__);
    test_assert_message("libknet_ops_missing.so", __FILE__, __LINE__);
}

static void asking_again_gives_the_same_error(void **state) {
    (void)state;
    assert_null(kn__cuda_module());
    test_assert_message("libknet_ops_missing.so", __FILE__, __LINE__);
}

int main(void) {
    return RUN_TESTS(TEST(a_missing_module_is_an_error_that_names_its_file),
                     TEST(asking_again_gives_the_same_error));
}
