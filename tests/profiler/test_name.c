#include "name.h"

#include "test.h"

static void assert_short(const char *name, const char *want) {
    char out[256];
    kn__name_short(out, sizeof out, name);
    assert_string_equal(out, want);
}

static void mangled_names_lose_arguments(void **state) {
    (void)state;
    assert_short("_Z10add_kernelPfS_i", "add_kernel");
    assert_short("_ZL7my_copyPv", "my_copy");
    assert_short("_ZN7cutlass6KernelI4GemmEEvT_", "cutlass::Kernel");
    assert_short(
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_"
        "11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
        "at::native::vectorized_elementwise_kernel");
    assert_short("_ZN14_GLOBAL__N__126run_itEPf", "(anonymous)::run_it");
    assert_short("_ZNSt6vectorIiSaIiEE9push_backEi", "std::vector::push_back");
}

static void other_names_stay(void **state) {
    (void)state;
    static const char *const names[] = {
        "sgemm_128x64", "[memcpy HtoD]", "_Z", "_ZN", "_Z99abc", "", "_ZNE", "_Z3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_short(names[i], names[i]);
}

static void any_text_is_cut_to_fit(void **state) {
    (void)state;
    static const char alphabet[] = "_ZNIELXJSt019abcKVr";
    for (int round = 0; round < 50000; round++) {
        char name[64] = "_Z", out[16];
        size_t n = 2 + (size_t)test_random_below(60);
        for (size_t i = test_random_below(3) ? 2 : 0; i < n; i++) {
            name[i] = alphabet[test_random_below(sizeof alphabet - 1)];
        }
        name[n] = '\0';
        kn__name_short(out, sizeof out, name);
        assert_true(strlen(out) < sizeof out);
    }
}

int main(void) {
    return RUN_TESTS(TEST(mangled_names_lose_arguments), TEST(other_names_stay),
                     TEST(any_text_is_cut_to_fit));
}
