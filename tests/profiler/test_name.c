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

static void demangled_names_lose_arguments_too(void **state) {
    (void)state;
    assert_short("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm>(cutlass_80::Params)",
                 "cutlass::Kernel2");
    assert_short("reduce(float*, int)", "reduce");
    assert_short("void f<(int)4, g<int> >(h<i>)", "f");
    assert_short("f<int", "f<int");
    assert_short("(unnamed)", "(unnamed)");
}

#define FILL "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_"

static void instances_of_a_template_keep_distinct_names(void **state) {
    (void)state;
    static const struct {
        const char *name, *want;
    } cases[] = {
        {FILL "11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
         "at::native::vectorized_elementwise_kernel<FillFunctor<float>>"},
        {FILL "15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
         "at::native::vectorized_elementwise_kernel<CUDAFunctor_add<float>>"},
        {FILL
         "13BinaryFunctorIfffNS0_15binary_internal10MulFunctorIfEEEESt5arrayIPcLm3EEEEviT0_T1_",
         "at::native::vectorized_elementwise_kernel<BinaryFunctor<float, float, float, "
         "MulFunctor<float>>>"},
        {"_Z4fillIfLi128ELb1EEvPT_", "fill<float>"},
        {"_Z4fillIiLi128ELb1EEvPT_", "fill<int>"},
        {"_Z4copyILi128ELb1EEvPf", "copy<128>"},
        {"_Z4copyILin3ELb1EEvPf", "copy<-3>"},
        {"_Z4flagILi1ELb1EEvPf", "flag<true>"},
        {"_Z4flagILi1ELb0EEvPf", "flag<false>"},
        {"_Z4castPKfPDh", "cast<float*>"},
        {"_Z4castPKdPi", "cast<double*>"},
        {"_ZN3BoxIfE3runEv", "Box::run<float>"},
        {"_ZN3BoxIdE3runEv", "Box::run<double>"},
        {"void gemm<A, tile<64, 64>, 1>(P)", "gemm<tile<64, 64>>"},
        {"void gemm<A, tile<128, 64>, 1>(P)", "gemm<tile<128, 64>>"},
        {"_Z4pairIifEvv", "pair<int, float>"}, /* no argument is enough */
        {"_Z4pairIidEvv", "pair<int, double>"},
        {"_Z4pairIffEvv", "pair<float, float>"},
        {"_Z5alonePf", "alone"},
        {"sm90_xmma_gemm", "sm90_xmma_gemm"}};
    enum { N = sizeof cases / sizeof *cases };
    kn__names names = {0};
    assert_null(kn__names_get(&names, "x"));
    for (size_t i = 0; i < 3 * N; i++) kn__names_add(&names, cases[i * 13 % N].name);
    kn__names_settle(&names);
    for (size_t i = 0; i < N; i++) {
        assert_string_equal(kn__names_get(&names, cases[i].name), cases[i].want);
    }
    assert_null(kn__names_get(&names, "x"));
    kn__names_release(&names);
}

static void other_names_stay(void **state) {
    (void)state;
    static const char *const names[] = {
        "sgemm_128x64", "[memcpy HtoD]", "_Z", "_ZN", "_Z99abc", "", "_ZNE", "_Z3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_short(names[i], names[i]);
}

static void any_text_is_cut_to_fit(void **state) {
    (void)state;
    static const char alphabet[] = "_ZNIELXJSt019abcKVrDFTP<>(), ";
    for (int round = 0; round < 50000; round++) {
        char name[64] = "_Z", out[16];
        if (test_random_below(4) == 0) strcpy(name, "ab");
        size_t n = 2 + (size_t)test_random_below(60);
        for (size_t i = test_random_below(3) ? 2 : 0; i < n; i++) {
            name[i] = alphabet[test_random_below(sizeof alphabet - 1)];
        }
        name[n] = '\0';
        kn__name_short(out, sizeof out, name);
        assert_true(strlen(out) < sizeof out);
        kn__names names = {0};
        char other[64];
        snprintf(other, sizeof other, "%s", name);
        other[n - 1] = other[n - 1] == 'f' ? 'd' : 'f';
        kn__names_add(&names, name);
        kn__names_add(&names, other);
        kn__names_settle(&names);
        assert_non_null(kn__names_get(&names, name));
        kn__names_release(&names);
    }
}

int main(void) {
    return RUN_TESTS(TEST(mangled_names_lose_arguments), TEST(demangled_names_lose_arguments_too),
                     TEST(instances_of_a_template_keep_distinct_names), TEST(other_names_stay),
                     TEST(any_text_is_cut_to_fit));
}
