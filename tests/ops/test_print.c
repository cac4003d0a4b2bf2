/* Printing; tests/ops/test_neighbours.py compares hundreds of arrays with NumPy's own text. */
#include <knet/print.h>
#include <math.h>

#include "ops_test.h"

static char text[4096];

static const char *printed(kn_tensor *t, const kn_print_options *options) {
    assert_ok(kn_print_text(text, sizeof text, NULL, t, options));
    return text;
}

static void a_matrix_has_a_line_a_row_under_its_shape(void **state) {
    (void)state;
    KN_FRAME();
    assert_string_equal(printed(F32(KN_SHAPE(2, 3), 1, 2.5, -3, 0, 0.25, 1), NULL),
                        "f32 [2,3] cpu\n[[ 1.    2.5  -3.  ]\n [ 0.    0.25  1.  ]]");
}

static void other_dtypes_have_their_own_words(void **state) {
    (void)state;
    static const kn_print_options bare = {.bare = 1};
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(3), 0, 1, 20);
    assert_string_equal(printed(kn_cast(x, KN_BOOL), &bare), "[False  True  True]");
    assert_string_equal(printed(kn_cast(x, KN_U8), &bare), "[ 0  1 20]");
    assert_string_equal(printed(I64(KN_SHAPE(1), INT64_MIN), &bare), "[-9223372036854775808]");
    assert_string_equal(printed(kn_cast(F32(KN_SHAPE(2), 1, 0.1f), KN_BF16), &bare), "[1.  0.1]");
    assert_string_equal(printed(kn_zeros(KN_SHAPE(2, 0)), &bare), "[]");
    assert_string_equal(printed(kn_full(KN_SCALAR, 0.1), &bare), "0.1");
    assert_string_equal(printed(F64(KN_SHAPE(2), 1e10, 1.5), &bare), "[1.0e+10 1.5e+00]");
}

/* NumPy's text. */
static void words_are_as_wide_as_the_widest(void **state) {
    (void)state;
    static const kn_print_options bare = {.bare = 1};
    KN_FRAME();
    assert_string_equal(printed(F64(KN_SHAPE(2), 1e100, 1e10), &bare), "[1.e+100 1.e+010]");
    assert_string_equal(printed(F64(KN_SHAPE(2), -0.0, 1e10), &bare), "[-0.e+00  1.e+10]");
    assert_string_equal(printed(F64(KN_SHAPE(2), (double)-INFINITY, (double)INFINITY), &bare),
                        "[-inf  inf]");
    assert_string_equal(printed(F64(KN_SHAPE(2), 0, (double)NAN), &bare), "[ 0. nan]");
    assert_string_equal(printed(kn_cast(F32(KN_SHAPE(1), 3.140625f), KN_BF16), &bare), "[3.14]");
}

/* NumPy's text. */
static void numbers_from_1e8_on_and_below_1e_4_have_exponents(void **state) {
    (void)state;
    static const kn_print_options bare = {.bare = 1};
    KN_FRAME();
    assert_string_equal(printed(F64(KN_SHAPE(1), 99999999), &bare), "[99999999.]");
    assert_string_equal(printed(F64(KN_SHAPE(1), 1e8), &bare), "[1.e+08]");
    assert_string_equal(printed(F64(KN_SHAPE(1), 1e-4), &bare), "[0.0001]");
    assert_string_equal(printed(F64(KN_SHAPE(1), 9e-5), &bare), "[9.e-05]");
}

/* 1000.24 is 1000 in f16. NumPy's text. */
static void ratios_are_those_of_the_dtype(void **state) {
    (void)state;
    static const kn_print_options bare = {.bare = 1};
    KN_FRAME();
    kn_tensor *x = F64(KN_SHAPE(2), 0x1.998p-4, 100), *y = F64(KN_SHAPE(2), 1, 1001);
    kn_tensor *z = F64(KN_SHAPE(2), 0x1.ec88bap-1, 0x1.e0fd86p+9);
    assert_string_equal(printed(kn_cast(x, KN_F16), &bare), "[  0.1 100. ]");
    assert_string_equal(printed(x, &bare), "[9.99755859e-02 1.00000000e+02]");
    assert_string_equal(printed(kn_cast(z, KN_F32), &bare), "[  0.96198064 961.98065   ]");
    assert_string_equal(printed(kn_cast(y, KN_F16), &bare), "[1.000e+00 1.001e+03]");
}

static void large_tensors_are_shortened(void **state) {
    (void)state;
    static const kn_print_options options = {.bare = 1, .threshold = 4, .edge_items = 1};
    KN_FRAME();
    assert_string_equal(printed(kn_ones(KN_SHAPE(3, 3)), &options),
                        "[[1. ... 1.]\n ...\n [1. ... 1.]]");
    assert_true(strstr(printed(kn_ones(KN_SHAPE(2000)), NULL), "1. 1. 1. ... 1. 1. 1.") != NULL);
    static const kn_print_options all = {.bare = 1, .threshold = KN_OFF, .precision = KN_OFF};
    assert_null(strstr(printed(kn_ones(KN_SHAPE(1001)), &all), "..."));
    assert_string_equal(printed(F32(KN_SHAPE(2), 1.25f, 2), &all), "[1. 2.]");
}

static void narrow_lines_have_a_word_each(void **state) {
    (void)state;
    KN_FRAME();
    for (int width = 1; width <= 3; width++) {
        const kn_print_options options = {.bare = 1, .width = width};
        assert_string_equal(printed(F32(KN_SHAPE(2, 2), 1, 2, 3, 4), &options),
                            "[[1.\n  2.]\n [3.\n  4.]]");
    }
}

/* NumPy's text. */
static void a_line_keeps_a_column_free(void **state) {
    (void)state;
    static const char *const texts[] = {"[1.\n ...\n 1.]", "[1. ...\n 1.]", "[1. ...\n 1.]",
                                        "[1. ...\n 1.]", "[1. ... 1.]"};
    KN_FRAME();
    for (int i = 0; i < 5; i++) {
        const kn_print_options options = {
            .bare = 1, .width = 7 + i, .threshold = 4, .edge_items = 1};
        assert_string_equal(printed(kn_ones(KN_SHAPE(5)), &options), texts[i]);
    }
}

/* f32 0.05 is a little more than half of the last place, f32 0.35 a little less. */
static void the_value_itself_is_rounded(void **state) {
    (void)state;
    static const kn_print_options options = {.bare = 1, .precision = 1};
    KN_FRAME();
    assert_string_equal(printed(F32(KN_SHAPE(2), 0.05f, -0.05f), &options), "[ 0.1 -0.1]");
    assert_string_equal(printed(F32(KN_SHAPE(2), 0.049f, 0.35f), &options), "[0.  0.3]");
    assert_string_equal(printed(F64(KN_SHAPE(2), 0.05, 0.25), &options), "[0.1 0.2]");
}

/* NumPy's text: of so many digits the nearest number is another float, the next one isn't. */
static void powers_of_two_have_no_digit_too_many(void **state) {
    (void)state;
    static const kn_print_options options = {.bare = 1, .precision = 17};
    KN_FRAME();
    kn_tensor *half = kn_cast(F32(KN_SHAPE(1), 0.015625F), KN_F16);
    assert_string_equal(printed(half, &options), "[0.01563]");
    assert_string_equal(printed(F32(KN_SHAPE(1), 0x1p-96F), &options), "[1.2621775e-29]");
    assert_string_equal(printed(F32(KN_SHAPE(2), 0x1p87F, -0x1p90F), &options),
                        "[ 1.5474251e+26 -1.2379401e+27]");
}

/* NumPy's text. */
static void a_carry_is_rounded_once(void **state) {
    (void)state;
    static const kn_print_options options = {.bare = 1, .precision = KN_OFF};
    KN_FRAME();
    assert_string_equal(printed(F64(KN_SHAPE(3), 9.5, 99.7, -9.6), &options), "[ 10. 100. -10.]");
    assert_string_equal(printed(F32(KN_SHAPE(3), 8.5f, 9.4f, 19.5f), &options), "[ 8.  9. 20.]");
    assert_string_equal(printed(F32(KN_SHAPE(1), 16777220), &options), "[16777220.]");
    assert_string_equal(printed(F32(KN_SHAPE(1), 99999992), &options), "[99999992.]");
}

static void options_below_their_least_are_errors(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(3));
    const kn_print_options edge = {.threshold = 1, .edge_items = -1}, width = {.width = -1};
    const kn_print_options precision = {.precision = -2}, threshold = {.threshold = -2};
    assert_fails(kn_print(stdout, x, &edge), KN_ERR_INVALID, "kn_print: edge_items is -1");
    assert_fails(kn_print(stdout, x, &width), KN_ERR_INVALID, "kn_print: width is -1");
    assert_fails(kn_print(stdout, x, &(kn_print_options){.bare = 2}), KN_ERR_INVALID,
                 "kn_print: bare is 2; it must be 0, 1 or KN_OFF");
    assert_fails(kn_print_text(NULL, 0, NULL, x, &precision), KN_ERR_INVALID,
                 "kn_print_text: precision is -2");
    assert_fails(kn_print_text(NULL, 4, NULL, x, NULL), KN_ERR_INVALID,
                 "kn_print_text: out is NULL");
    assert_fails(kn_print(stdout, x, &threshold), KN_ERR_INVALID, "kn_print: threshold is -2");
}

static void a_short_buffer_cuts_the_text(void **state) {
    (void)state;
    size_t length = 0;
    KN_FRAME();
    assert_ok(kn_print_text(text, 4, &length, kn_ones(KN_SHAPE(3)), NULL));
    assert_string_equal(text, "f32");
    assert_int_equal(length, strlen("f32 [3] cpu\n[1. 1. 1.]"));
    assert_ok(kn_print_text(NULL, 0, &length, kn_ones(KN_SHAPE(3)), NULL));
}

static void a_stream_gets_a_whole_line(void **state) {
    (void)state;
    KN_FRAME();
    FILE *out = tmpfile();
    assert_ok(kn_print(out, kn_ones(KN_SHAPE(2)), NULL));
    rewind(out);
    text[fread(text, 1, sizeof text - 1, out)] = 0;
    fclose(out);
    assert_string_equal(text, "f32 [2] cpu\n[1. 1.]\n");
    FILE *full = fopen("/dev/full", "w");
    setvbuf(full, NULL, _IONBF, 0);
    assert_fails(kn_print(full, kn_ones(KN_SHAPE(2)), NULL), KN_ERR_IO, "takes no more");
    fclose(full);
    assert_fails(kn_print(NULL, kn_ones(KN_SHAPE(2)), NULL), KN_ERR_INVALID, "out is NULL");
    assert_fails(kn_print(stdout, KN_NONE, NULL), KN_ERR_INVALID, "kn_print: t is KN_NONE");
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(a_matrix_has_a_line_a_row_under_its_shape),
        OPS_TEST(other_dtypes_have_their_own_words), OPS_TEST(words_are_as_wide_as_the_widest),
        OPS_TEST(numbers_from_1e8_on_and_below_1e_4_have_exponents),
        OPS_TEST(ratios_are_those_of_the_dtype), OPS_TEST(large_tensors_are_shortened),
        OPS_TEST(narrow_lines_have_a_word_each), OPS_TEST(a_line_keeps_a_column_free),
        OPS_TEST(the_value_itself_is_rounded), OPS_TEST(powers_of_two_have_no_digit_too_many),
        OPS_TEST(a_carry_is_rounded_once), OPS_TEST(options_below_their_least_are_errors),
        OPS_TEST(a_short_buffer_cuts_the_text), OPS_TEST(a_stream_gets_a_whole_line));
}
