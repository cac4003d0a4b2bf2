/* Integers that no kn_dtype fits: files of NumPy and safetensors, read as wider ones. */
#include <knet/file.h>

#include "file_test.h"

#define I64_MAX INT64_MAX

static const struct {
    const char *name;
    kn_dtype dtype;
    int64_t value[6]; /* [2,3] */
} integers[] = {{"i1", KN_I32, {-128, -127, 2, 3, 126, 127}},
                {"i2", KN_I32, {-32768, -32767, 2, 3, 32766, 32767}},
                {"u2", KN_I32, {0, 1, 2, 3, 65534, 65535}},
                {"u4", KN_I64, {0, 1, 2, 3, 4294967294, 4294967295}},
                {"u8", KN_I64, {0, 1, 2, 3, INT64_MAX - 1, INT64_MAX}}};
enum { N_INTEGERS = sizeof integers / sizeof *integers };

static int64_t integer_at(kn_tensor *t, int64_t i) {
    const void *data = kn_data(t);
    assert_non_null(data);
    return kn_tensor_dtype(t) == KN_I32 ? ((const int32_t *)data)[i] : ((const int64_t *)data)[i];
}

static void assert_integers(kn_tensor *t, int which) {
    assert_non_null(t);
    assert_int_equal(kn_tensor_dtype(t), integers[which].dtype);
    assert_shape(t, KN_SHAPE(2, 3));
    for (int64_t i = 0; i < 6; i++) assert_true(integer_at(t, i) == integers[which].value[i]);
}

static kn_tensor *read_suffixed(kn_file *f, int which, const char *suffix) {
    char name[32];
    snprintf(name, sizeof name, "%s%s", integers[which].name, suffix);
    int at = kn_file_find(f, name);
    assert_true(at >= 0);
    assert_int_equal(kn_file_dtype(f, at), integers[which].dtype);
    kn_tensor *t = kn_file_read(f, name);
    assert_non_null(t);
    assert_int_equal(kn_tensor_dtype(t), integers[which].dtype);
    return t;
}

static void assert_all_integers(kn_file *f) {
    for (int i = 0; i < N_INTEGERS; i++) {
        assert_integers(read_suffixed(f, i, ""), i);
        kn_tensor *one = read_suffixed(f, i, "_one");
        assert_shape(one, KN_SCALAR);
        assert_true(integer_at(one, 0) == 7);
        assert_shape(read_suffixed(f, i, "_none"), KN_SHAPE(2, 0));
    }
}

static void integers_of_every_width_are_read(void **state) {
    (void)state;
    static const char *const paths[] = {DATA "integers.npz", DATA "integers_deflated.npz",
                                        DATA "integers.safetensors"};
    for (int i = 0; i < 3; i++) {
        kn_file *f = NULL;
        KN_FRAME();
        assert_ok(kn_file_open(&f, paths[i]));
        assert_all_integers(f);
        kn_file_close(f);
    }
    KN_FRAME();
    assert_integers(kn_npy_load(DATA "u2.npy"), 2);
    assert_integers(kn_npy_load(DATA "u8.npy"), 4);
}

static void integers_in_other_orders_are_read(void **state) {
    (void)state;
    static const char *const paths[] = {DATA "integers.npz", DATA "integers_deflated.npz"};
    for (int i = 0; i < 2; i++) {
        kn_file *f = NULL;
        KN_FRAME();
        assert_ok(kn_file_open(&f, paths[i]));
        for (int k = 0; k < N_INTEGERS; k++) {
            assert_integers(read_suffixed(f, k, "_fortran"), k);
            assert_integers(read_suffixed(f, k, "_big"), k);
        }
        kn_file_close(f);
    }
}

/* Of more elements than are converted at once. */
static void long_arrays_are_widened_in_their_own_memory(void **state) {
    (void)state;
    kn_file *f = NULL;
    KN_FRAME();
    assert_ok(kn_file_open(&f, DATA "integers_deflated.npz"));
    kn_tensor *i1 = kn_file_read(f, "long_i1"), *u4 = kn_file_read(f, "long_u4"),
              *u2 = kn_file_read(f, "long_u2_big");
    kn_file_close(f);
    assert_true(i1 && u4 && u2);
    for (int64_t i = 0; i < 2500; i++) {
        assert_true(integer_at(i1, i) == i % 256 - 128);
        assert_true(integer_at(u4, i) == i + ((int64_t)1 << 31));
        assert_true(integer_at(u2, i) == i + 63000);
    }
}

static void integers_above_i64_are_an_error_with_the_value(void **state) {
    (void)state;
    static const char *const paths[] = {DATA "integers.npz", DATA "integers_deflated.npz",
                                        DATA "integers.safetensors"};
    static const char *const words[] = {"<u8", "<u8", "U64"};
    for (int i = 0; i < 3; i++) {
        char text[128];
        kn_file *f = NULL;
        KN_FRAME();
        snprintf(text, sizeof text,
                 "%s: tensor 'above': element 1 is 9223372036854775808 (%s); the limit is "
                 "9223372036854775807",
                 strrchr(paths[i], '/') + 1, words[i]);
        assert_ok(kn_file_open(&f, paths[i]));
        assert_int_equal(kn_file_dtype(f, kn_file_find(f, "above")), KN_I64);
        assert_op_fails(kn_file_read(f, "above"), KN_ERR_INVALID, text);
        assert_shape(kn_file_read_bytes(f, "above"), KN_SHAPE(16));
        if (i < 2)
            assert_op_fails(kn_file_read(f, "above_big"), KN_ERR_INVALID,
                            "element 1 is 18446744073709551615 (>u8)");
        kn_file_close(f);
    }
    KN_FRAME();
    assert_op_fails(kn_npy_load(DATA "above.npy"), KN_ERR_INVALID,
                    "above.npy: tensor '': element 1 is 9223372036854775808 (<u8)");
}

/* On pages of the file: u64 that fits has the bytes of i64. */
static void u64_is_mapped_and_narrower_integers_are_copied(void **state) {
    (void)state;
    KN_FRAME();
    uint64_t live = ops_live_bytes();
    assert_integers(kn_npy_load(DATA "u8.npy"), 4);
    assert_int_equal(ops_live_bytes(), live);
    assert_integers(kn_npy_load(DATA "u2.npy"), 2);
    assert_true(ops_live_bytes() > live);
}

static void the_bytes_of_an_integer_array_stay_as_they_are(void **state) {
    (void)state;
    kn_file *f = NULL;
    KN_FRAME();
    assert_ok(kn_file_open(&f, DATA "integers.npz"));
    kn_tensor *t = kn_file_read_bytes(f, "u2_big");
    assert_shape(t, KN_SHAPE(12));
    assert_memory_equal(kn_data(t), "\0\0\0\1\0\2\0\3\xFF\xFE\xFF\xFF", 12);
    kn_file_close(f);
}

static kn_status npy_open(kn_file **f, const char *dtype, size_t data_bytes) {
    static char bytes[256];
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = 1;
    int n = snprintf(bytes + 10, sizeof bytes - 10,
                     "{'descr': '%s', 'fortran_order': False, 'shape': (2,)}", dtype);
    bytes[8] = (char)n;
    return kn_file_open_bytes(f, bytes, 10 + (size_t)n + data_bytes, "x.npy");
}

static void integers_have_all_names_of_numpy(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t bytes;
        kn_dtype dtype;
    } cases[] = {{"int8", 2, KN_I32},   {"|i1", 2, KN_I32},     {"int16", 4, KN_I32},
                 {"=i2", 4, KN_I32},    {"uint16", 4, KN_I32},  {"u2", 4, KN_I32},
                 {"uint32", 8, KN_I64}, {"uint64", 16, KN_I64}, {">i1", 2, KN_I32}};
    KN_FRAME();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kn_file *f = NULL;
        assert_ok(npy_open(&f, cases[i].name, cases[i].bytes));
        assert_int_equal(kn_file_dtype(f, 0), cases[i].dtype);
        assert_shape(kn_file_read(f, ""), KN_SHAPE(2));
        kn_file_close(f);
        assert_fails(npy_open(&f, cases[i].name, cases[i].bytes - 1), KN_ERR_FORMAT,
                     "bytes follow the header; [2]");
    }
}

static void other_dtypes_are_an_error_with_their_name(void **state) {
    (void)state;
    static const char *const names[] = {"<c8", "<U5", "|O", "|S3", "<M8[ns]", "|V2", "<f16"};
    KN_FRAME();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[64];
        kn_file *f = NULL;
        snprintf(text, sizeof text, "has dtype %s, which has no kn_dtype", names[i]);
        assert_ok(npy_open(&f, names[i], 16));
        assert_int_equal(kn_file_dtype(f, 0), 0);
        assert_op_fails(kn_file_read(f, ""), KN_ERR_DTYPE, text);
        kn_file_close(f);
    }
}

static void a_bool_is_0_or_1(void **state) {
    (void)state;
    char bytes[] =
        "\x93NUMPY\1\0\x3d\0{'descr':'|b1','fortran_order':False,'shape':(2,)}          \n\1\2";
    kn_file *f = NULL;
    KN_FRAME();
    assert_ok(kn_file_open_bytes(&f, bytes, sizeof bytes - 1, "x.npy"));
    assert_op_fails(kn_file_read(f, ""), KN_ERR_FORMAT, "element 1 is 2; a bool is 0 or 1");
    kn_file_close(f);
}

/* The length of the header, the header, zeros. */
static kn_status safetensors_open(kn_file **f, const char *header, size_t data_bytes) {
    static char bytes[256];
    memset(bytes, 0, sizeof bytes);
    bytes[0] = (char)strlen(header);
    memcpy(bytes + 8, header, strlen(header));
    return kn_file_open_bytes(f, bytes, 8 + strlen(header) + data_bytes, "x.st");
}

static void safetensors_without_a_kn_dtype_are_an_error_with_their_name(void **state) {
    (void)state;
    kn_file *f = NULL;
    KN_FRAME();
    assert_ok(safetensors_open(
        &f, "{\"w\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[0,3]}}", 3));
    assert_int_equal(kn_file_dtype(f, 0), 0);
    assert_op_fails(kn_file_read(f, "w"), KN_ERR_DTYPE, "x.st: tensor 'w' has dtype F8_E4M3");
    kn_file_close(f);
    assert_fails(safetensors_open(
                     &f, "{\"w\":{\"dtype\":\"U16\",\"shape\":[3],\"data_offsets\":[0,12]}}", 12),
                 KN_ERR_FORMAT, "hold 12 bytes; [3] U16 takes 6");
}

/* The largest number of elements of a shape: their bytes in memory do not overflow. */
static void sizes_are_checked_as_the_file_has_them(void **state) {
    (void)state;
    kn_file *f = NULL;
    assert_fails(safetensors_open(&f,
                                  "{\"w\":{\"dtype\":\"I8\",\"shape\":[576460752303423487],"
                                  "\"data_offsets\":[0,8]}}",
                                  8),
                 KN_ERR_FORMAT, "hold 8 bytes; [576460752303423487] I8 takes 576460752303423487");
}

int main(void) {
    return RUN_TESTS(OPS_TEST(integers_of_every_width_are_read),
                     OPS_TEST(integers_in_other_orders_are_read),
                     OPS_TEST(long_arrays_are_widened_in_their_own_memory),
                     OPS_TEST(integers_above_i64_are_an_error_with_the_value),
                     OPS_TEST(u64_is_mapped_and_narrower_integers_are_copied),
                     OPS_TEST(the_bytes_of_an_integer_array_stay_as_they_are),
                     OPS_TEST(integers_have_all_names_of_numpy), OPS_TEST(a_bool_is_0_or_1),
                     OPS_TEST(other_dtypes_are_an_error_with_their_name),
                     OPS_TEST(safetensors_without_a_kn_dtype_are_an_error_with_their_name),
                     OPS_TEST(sizes_are_checked_as_the_file_has_them));
}
