/* The module of CUDA kernels, with no GPU: it loads, its table is full, its versions are known.
 * argv[1]: the module's file. */
#include <dlfcn.h>

#include "kernel.h"
#include "test.h"

static const char *path;
static const kn__cuda_exports *module;

static int load(void **state) {
    (void)state;
    void *file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!file) {
        print_error("%s\n", dlerror());
        return -1;
    }
    kn__cuda_exports_fn get = NULL;
    void *symbol = dlsym(file, KN_CUDA_MODULE_SYMBOL);
    memcpy(&get, &symbol, sizeof get);
    module = get ? get() : NULL;
    return module ? 0 : -1;
}

static void the_module_has_the_abi_that_ops_expects(void **state) {
    (void)state;
    assert_int_equal(module->abi, KN_CUDA_MODULE_ABI);
}

static void every_op_but_views_has_a_cuda_kernel(void **state) {
    (void)state;
    int n_missing = 0;
    for (int op = 0; op < KN_OP_COUNT; op++) {
        bool view = op == KN_OP_reshape || op == KN_OP_to;
        if ((module->kernels[op] == NULL) == view) continue;
        print_error("%s: %s\n", kn_op_name((kn_op)op), view ? "a kernel too many" : "no kernel");
        n_missing++;
    }
    assert_int_equal(n_missing, 0);
}

static void the_versions_of_the_libraries_are_reported(void **state) {
    (void)state;
    char text[256] = "";
    module->versions(text, sizeof text);
    assert_non_null(strstr(text, "cuDNN 9."));
    assert_non_null(strstr(text, "cuBLASLt "));
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    path = argv[1];
    const struct CMUnitTest tests[] = {TEST(the_module_has_the_abi_that_ops_expects),
                                       TEST(every_op_but_views_has_a_cuda_kernel),
                                       TEST(the_versions_of_the_libraries_are_reported)};
    return cmocka_run_group_tests_name(__FILE__, tests, load, NULL);
}
