/* Files: NumPy's are read, ours are read back, and damaged ones are refused with
 * the place. tests/ops/test_neighbours.py lets NumPy read ours. */
#include <fcntl.h>
#include <knet/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "file_test.h"

/* --- files of other writers --- */

static void assert_arrays(const char *path) {
    static const struct {
        const char *name;
        kn_dtype dtype;
        kn_shape shape;
    } want[] = {{"f32", KN_F32, {{2, 3}, 2}}, {"f64", KN_F64, {{3}, 1}},
                {"f16", KN_F16, {{2, 2}, 2}}, {"i64", KN_I64, {{0}, 0}},
                {"i32", KN_I32, {{4, 1}, 2}}, {"u8", KN_U8, {{5}, 1}},
                {"bool", KN_BOOL, {{4}, 1}},  {"empty", KN_F32, {{2, 0, 3}, 3}}};
    kn_file *f = NULL;
    KN_FRAME();
    assert_ok(kn_file_open(&f, path));
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        int at = kn_file_find(f, want[i].name);
        assert_true(at >= 0);
        assert_string_equal(kn_file_name(f, at), want[i].name);
        assert_int_equal(kn_file_dtype(f, at), want[i].dtype);
        kn_tensor *t = kn_file_read(f, want[i].name);
        assert_int_equal(kn_tensor_dtype(t), want[i].dtype);
        assert_shape(t, want[i].shape);
        assert_counts(t);
    }
    kn_file_close(f);
}

static void arrays_of_numpy_and_safetensors_are_read(void **state) {
    (void)state;
    assert_arrays(DATA "stored.npz");
    assert_arrays(DATA "deflated.npz");
    assert_arrays(DATA "all.safetensors");
    KN_FRAME();
    assert_counts(kn_npy_load(DATA "f32.npy"));
}

static void fortran_order_and_big_endian_become_ours(void **state) {
    (void)state;
    kn_file *f = NULL;
    KN_FRAME();
    kn_tensor *t = kn_npy_load(DATA "fortran.npy");
    assert_shape(t, KN_SHAPE(2, 3));
    assert_counts(t);
    assert_ok(kn_file_open(&f, DATA "deflated.npz"));
    assert_counts(kn_file_read(f, "fortran"));
    assert_counts(kn_file_read(f, "big_endian"));
    kn_file_close(f);
}

static void a_dtype_without_ours_fails_when_it_is_read(void **state) {
    (void)state;
    kn_file *f = NULL;
    KN_FRAME();
    assert_op_fails(kn_npy_load(DATA "complex.npy"), KN_ERR_DTYPE, "dtype <c8");
    assert_ok(kn_file_open(&f, DATA "all.safetensors"));
    assert_string_equal(kn_file_metadata(f, "made by"), "\xC3\xA9");
    assert_null(kn_file_metadata(f, "absent"));
    assert_op_fails(kn_file_read(f, "absent"), KN_ERR_INVALID, "no tensor 'absent' among 9");
    kn_file_close(f);
}

static void missing_files_and_folders_are_io_errors(void **state) {
    (void)state;
    kn_file *f = NULL;
    assert_fails(kn_file_open(&f, DATA "absent.npz"), KN_ERR_IO, "absent.npz: No such file");
    assert_fails(kn_file_open(&f, DATA), KN_ERR_IO, "not a regular file");
    assert_fails(kn_file_open(&f, NULL), KN_ERR_INVALID, "path is NULL");
    assert_fails(kn_file_open(&f, DATA "make.py"), KN_ERR_FORMAT,
                 "neither NPY, NPZ nor safetensors");
    assert_null(f);
    kn_file_close(NULL);
    KN_FRAME();
    assert_op_fails(kn_npy_load(DATA "stored.npz"), KN_ERR_FORMAT, "10 tensors with names");
}

/* --- our own --- */

static char folder[] = "/tmp/knet_file_XXXXXX";

static const char *in_folder(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void named_make(kn_named named[3]) {
    named[0] = (kn_named){"bytes", kn_cast(kn_full(KN_SHAPE(3), 7), KN_U8)};
    named[1] = (kn_named){"a\"\xC3\xA9", F32(KN_SHAPE(2, 2), 1, 2, 3, 4)};
    named[2] = (kn_named){"scalar", F64(KN_SCALAR, 5)};
}

static void assert_reads_back(const char *path, const kn_named named[], int n) {
    kn_file *f = NULL;
    assert_ok(kn_file_open(&f, path));
    assert_int_equal(kn_file_count(f), n);
    for (int i = 0; i < n; i++) {
        kn_tensor *t = kn_file_read(f, named[i].name), *want = named[i].tensor;
        assert_non_null(t);
        assert_shape(t, kn_tensor_shape(want));
        assert_int_equal(kn_tensor_dtype(t), kn_tensor_dtype(want));
        assert_memory_equal(kn_data(t), kn_data(want),
                            (size_t)kn_tensor_numel(t) * kn_dtype_bytes(kn_tensor_dtype(t)));
    }
    kn_file_close(f);
}

static void what_is_written_is_read_back(void **state) {
    (void)state;
    kn_named named[3];
    const char *const metadata[][2] = {{"format", "pt"}};
    KN_FRAME();
    named_make(named);
    assert_ok(kn_npz_save(in_folder("a.npz"), named, 3, NULL));
    assert_reads_back(in_folder("a.npz"), named, 3);
    assert_fails(kn_npz_save(in_folder("a.npz"), named, 3, &(kn_npz_options){.compress = 2}),
                 KN_ERR_INVALID, "kn_npz_save: compress is 2; it must be 0, 1 or KN_OFF");
    assert_ok(kn_npz_save(in_folder("a.npz"), named, 3, &(kn_npz_options){.compress = 1}));
    assert_reads_back(in_folder("a.npz"), named, 3);
    assert_ok(kn_safetensors_save(in_folder("a.st"), named, 3, metadata, 1));
    assert_reads_back(in_folder("a.st"), named, 3);
    assert_ok(kn_safetensors_save(in_folder("none.st"), NULL, 0, NULL, 0));
    assert_reads_back(in_folder("none.st"), NULL, 0);
    assert_ok(kn_npz_save(in_folder("none.npz"), NULL, 0, NULL));
    assert_reads_back(in_folder("none.npz"), NULL, 0);
    named[0].name = "";
    assert_ok(kn_npy_save(in_folder("a.npy"), named[0].tensor));
    assert_reads_back(in_folder("a.npy"), named, 1);
}

/* By a sorted list: searches of all names would take half a minute here. */
static void many_names_are_found_at_once(void **state) {
    (void)state;
    enum { MANY = 60000, NAME_BYTES = 64 };
    kn_named *named = malloc(MANY * sizeof *named);
    char(*name)[NAME_BYTES] = malloc((size_t)MANY * NAME_BYTES);
    kn_file *f = NULL;
    KN_FRAME();
    assert_true(named && name);
    for (int i = 0; i < MANY; i++) {
        snprintf(name[i], NAME_BYTES, "a/name/that/begins/as/all/of/them/do/layer%d.weight", i);
        named[i] = (kn_named){name[i], kn_zeros(KN_SCALAR)};
    }
    assert_ok(kn_safetensors_save(in_folder("many.st"), named, MANY, NULL, 0));
    assert_ok(kn_file_open(&f, in_folder("many.st")));
    clock_t before = clock();
    for (int i = 0; i < MANY; i++) {
        assert_string_equal(kn_file_name(f, kn_file_find(f, name[i])), name[i]);
        name[i][0] = 'b';
        assert_int_equal(kn_file_find(f, name[i]), -1);
    }
    assert_true(clock() - before < 3 * CLOCKS_PER_SEC);
    kn_file_close(f);
    free(named);
    free(name);
}

/* An open that waits for a writer would never end. */
static void a_pipe_is_not_a_regular_file(void **state) {
    (void)state;
    kn_file *f = NULL;
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_fails(kn_file_open(&f, in_folder("pipe")), KN_ERR_IO, "pipe: not a regular file");
}

static void bf16_is_for_safetensors_alone(void **state) {
    (void)state;
    KN_FRAME();
    kn_named named = {"w", kn_cast(F32(KN_SHAPE(2), 1, -2), KN_BF16)};
    assert_fails(kn_npy_save(in_folder("b.npy"), named.tensor), KN_ERR_DTYPE, "NumPy has no bf16");
    assert_fails(kn_npz_save(in_folder("b.npz"), &named, 1, NULL), KN_ERR_DTYPE, "'w': NumPy has");
    assert_int_equal(access(in_folder("b.npy"), F_OK), -1);
    assert_ok(kn_safetensors_save(in_folder("b.st"), &named, 1, NULL, 0));
    assert_reads_back(in_folder("b.st"), &named, 1);
}

static void a_mapped_tensor_outlives_its_file_and_leaves_it_alone(void **state) {
    (void)state;
    kn_named named[3];
    kn_file *f = NULL;
    KN_SLOT(kept);
    {
        KN_FRAME();
        named_make(named);
        assert_ok(kn_safetensors_save(in_folder("m.st"), named, 3, NULL, 0));
        uint64_t live = ops_live_bytes();
        assert_ok(kn_file_open(&f, in_folder("m.st")));
        assert_ok(kn_hold(&kept, kn_file_read(f, "a\"\xC3\xA9")));
        kn_file_close(f);
        assert_int_equal(ops_live_bytes(), live); /* no copy */
    }
    KN_FRAME();
    assert_values(kept, 1, 2, 3, 4);
    ((float *)kn_data_mut(kept))[0] = 100;
    assert_values(kn_reshape(kept, KN_SHAPE(4)), 100, 2, 3, 4);
    assert_ok(kn_file_open(&f, in_folder("m.st")));
    assert_values(kn_file_read(f, "a\"\xC3\xA9"), 1, 2, 3, 4);
    kn_file_close(f);
}

static void wrong_arguments_of_writers_name_the_tensor(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(2));
    kn_named twice[] = {{"w", x}, {"v", x}, {"w", x}}, absent[] = {{"w", NULL}};
    kn_named pair[] = {{"w", x}, {"w", x}}, no_name[] = {{NULL, x}}, empty[] = {{"", x}},
             metadata[] = {{"__metadata__", x}};
    const char *path = in_folder("wrong");
    assert_fails(kn_npz_save(path, twice, 3, NULL), KN_ERR_INVALID, "'w' occurs twice");
    assert_fails(kn_npz_save(path, pair, 2, NULL), KN_ERR_INVALID, "'w' occurs twice");
    assert_fails(kn_safetensors_save(path, absent, 1, NULL, 0), KN_ERR_INVALID, "'w' is NULL");
    assert_fails(kn_safetensors_save(path, no_name, 1, NULL, 0), KN_ERR_INVALID,
                 "tensor 0 is NULL");
    assert_fails(kn_npz_save(path, empty, 1, NULL), KN_ERR_INVALID, "has 0 bytes");
    assert_fails(kn_safetensors_save(path, metadata, 1, NULL, 0), KN_ERR_INVALID, "__metadata__");
    kn_named latin1[] = {{"v", x}, {"w\xe4", x}};
    const char *const same[][2] = {{"k", "a"}, {"l", "a"}, {"k", "b"}};
    const char *const keys[][2] = {{"k\xff", "a"}}, *const texts[][2] = {{"k", "\xc3"}};
    assert_fails(kn_safetensors_save(path, latin1, 2, NULL, 0), KN_ERR_INVALID,
                 "'w\xe4' of tensor 1 is not UTF-8");
    assert_fails(kn_npz_save(path, latin1, 2, NULL), KN_ERR_INVALID, "of tensor 1 is not UTF-8");
    assert_fails(kn_safetensors_save(path, twice, 2, same, 3), KN_ERR_INVALID, "'k' occurs twice");
    assert_fails(kn_safetensors_save(path, twice, 2, keys, 1), KN_ERR_INVALID, "not UTF-8");
    assert_fails(kn_safetensors_save(path, twice, 2, texts, 1), KN_ERR_INVALID, "not UTF-8");
    assert_fails(kn_npy_save(path, KN_NONE), KN_ERR_INVALID, "KN_NONE");
    assert_fails(kn_npy_save("/absent/x.npy", x), KN_ERR_IO, "/absent/x.npy: No such file");
    assert_fails(kn_npy_save("", x), KN_ERR_INVALID, "kn_npy_save: path is empty");
    assert_int_equal(access(path, F_OK), -1);
}

static void wrong_counts_and_long_names_are_refused(void **state) {
    (void)state;
    enum { LONGEST = 60000 };
    static char name[LONGEST + 2];
    KN_FRAME();
    kn_named named[] = {{memset(name, 'n', LONGEST), kn_ones(KN_SHAPE(2))}};
    const char *path = in_folder("long.npz");
    assert_ok(kn_npz_save(path, named, 1, NULL));
    assert_reads_back(path, named, 1);
    name[LONGEST] = 'n';
    assert_fails(kn_npz_save(path, named, 1, NULL), KN_ERR_INVALID, "tensor 0 has 60001 bytes");
    assert_fails(kn_npz_save(path, NULL, 1, NULL), KN_ERR_INVALID, "kn_npz_save: 1 tensors");
    assert_fails(kn_npz_save(path, named, -1, NULL), KN_ERR_INVALID, "kn_npz_save: -1 tensors");
    const char *const pairs[][2] = {{"k", "a"}};
    const char *const no_key[][2] = {{NULL, "a"}}, *const no_text[][2] = {{"k", NULL}};
    assert_fails(kn_safetensors_save(path, NULL, 0, no_key, 1), KN_ERR_INVALID, "0 is NULL");
    assert_fails(kn_safetensors_save(path, NULL, 0, no_text, 1), KN_ERR_INVALID, "0 is NULL");
    assert_fails(kn_safetensors_save(path, NULL, 0, pairs, -1), KN_ERR_INVALID,
                 "-1 pairs of metadata");
    assert_fails(kn_safetensors_save(path, NULL, 0, NULL, 1), KN_ERR_INVALID,
                 "1 pairs of metadata");
}

/* --- damaged files --- */

static kn_status open_text(const char *text, size_t data_bytes) {
    char bytes[1024] = {0};
    uint64_t length = strlen(text);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, text, length);
    kn_file *f = NULL;
    kn_status status = kn_file_open_bytes(&f, bytes, 8 + length + data_bytes, "x.st");
    kn_file_close(f);
    return status;
}

#define TENSOR(name, dtype, shape, begin, end)                                                     \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end \
    "]}"

static void a_damaged_safetensors_header_is_refused_with_its_place(void **state) {
    (void)state;
    static const struct {
        const char *text, *error;
        size_t bytes;
    } cases[] = {
        {"{" TENSOR("w", "F32", "[2]", 0, 8) "}", NULL, 8},
        {"{" TENSOR("w", "F32", "[2]", 0, 8) "}   ", NULL, 8},
        {"{" TENSOR("w", "F32", "[2]", 0, 8) "}x", "byte 54: expected the end or spaces", 8},
        {"{" TENSOR("w", "F32", "[2]", 0, 8), "expected ',' or '}'", 8},
        {"{" TENSOR("w", "F32", "[2]", 0, 8) "}", "2 bytes follow the last tensor", 10},
        {"{" TENSOR("w", "F32", "[2]", 0, 8) "}", "[0,8] do not lie in 7 bytes", 7},
        {"{" TENSOR("w", "F32", "[3]", 0, 8) "}", "hold 8 bytes; [3] F32 takes 12", 8},
        {"{" TENSOR("w", "F32", "[2]", 8, 0) "}", "[8,0] do not lie in 8", 8},
        {"{" TENSOR("w", "F32", "[-2]", 0, 8) "}", "expected sizes in brackets", 8},
        {"{" TENSOR("w", "F32", "[4611686018427387904,4]", 0, 8) "}", "is too large", 8},
        {"{" TENSOR("w", "F32", "[2e0]", 0, 8) "}", "expected sizes in brackets", 8},
        {"{" TENSOR("w", "F32", "[02]", 0, 8) "}", "expected sizes in brackets", 8},
        {"{" TENSOR("w", "U8", "[4]", 0, 4) "," TENSOR("v", "U8", "[4]", 2, 6) "}",
         "'v' begins at 2, inside one that ends at 4", 6},
        {"{" TENSOR("w", "U8", "[4]", 0, 4) "," TENSOR("v", "U8", "[4]", 6, 10) "}",
         "'v' begins at 6, after a gap that begins at 4", 10},
        {"{" TENSOR("w", "U8", "[4]", 0, 4) "," TENSOR("w", "U8", "[4]", 4, 8) "}",
         "'w' occurs twice", 8},
        {"{" TENSOR("w\\u0000", "U8", "[4]", 0, 4) "}", "a name in quotes", 4},
        {"{" TENSOR("w\xFF", "U8", "[4]", 0, 4) "}", "a name in quotes, in UTF-8", 4},
        {"{" TENSOR("w\\u07FF\\u0800\\uD83D\\uDE00\\\"", "U8", "[4]", 0, 4) "}", NULL, 4},
        {"{" TENSOR("w\\uD83D\\uE000", "U8", "[4]", 0, 4) "}", "a name in quotes", 4},
        {"{" TENSOR("w\\uDE00", "U8", "[4]", 0, 4) "}", "a name in quotes", 4},
        {"{" TENSOR("w\1", "U8", "[4]", 0, 4) "}", "a name in quotes", 4},
        {"{" TENSOR("w", "U8", "[18446744073709551615]", 0, 4) "}", "expected sizes in brackets",
         4},
        {"{" TENSOR("v", "U8", "[4]", 0, 4) "," TENSOR("w", "U8", "[0]", 0, 0) "}", NULL, 4},
        {"{\"w\":{\"shape\":[4],\"shape\":[4]}}", "each once", 4},
        {"{\"w\":{\"dtype\":\"U8\",\"shape\":[4]}}", "'w': data_offsets is missing", 4},
        {"{\"w\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", "each once", 4},
        {"{\"w\":{\"more\":1}}", "each once", 4},
        {"{\"__metadata__\":{\"a\":1}}", "a text in quotes", 0},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", "one __metadata__", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kn_status status = open_text(cases[i].text, cases[i].bytes);
        if (cases[i].error)
            assert_fails(status, KN_ERR_FORMAT, cases[i].error);
        else
            assert_ok(status);
        if (cases[i].error) test_assert_message("x.st: ", __FILE__, __LINE__);
    }
}

static void a_header_that_the_file_lacks_is_refused(void **state) {
    (void)state;
    kn_file *f = NULL;
    assert_fails(kn_file_open_bytes(&f, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F{", 9, "x.st"),
                 KN_ERR_FORMAT, "a header of 9223372036854775807 bytes; 1 follow");
    assert_fails(kn_file_open_bytes(&f, "\x03\0\0\0\0\0\0\0{}", 10, "x.st"), KN_ERR_FORMAT,
                 "a header of 3 bytes; 2 follow"); /* cut short */
}

/* A header and data of zeros. */
static kn_status npy_open(kn_file **f, const char *text, int version, size_t data_bytes) {
    static char bytes[512];
    size_t length = strlen(text);
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = (char)version;
    bytes[8] = (char)length;
    memcpy(bytes + 10, text, length);
    return kn_file_open_bytes(f, bytes, 10 + length + data_bytes, "x.npy");
}

static kn_status open_npy(const char *text, int version, size_t data_bytes) {
    kn_file *f = NULL;
    kn_status status = npy_open(&f, text, version, data_bytes);
    kn_file_close(f);
    return status;
}

static void arrays_that_no_tensor_holds_fail_when_they_are_read(void **state) {
    (void)state;
    static const struct {
        const char *text, *error;
        kn_status status;
    } cases[] = {
        {"{'descr': [('a[', '<f4'), ('b\\'', '|u1', (2,))], 'fortran_order': False, 'shape': (2,)}",
         "dtype records", KN_ERR_DTYPE},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,3)}",
         "more than 8 dimensions", KN_ERR_SHAPE},
        {"{'shape': (1,1,1,1,1,1,1,1,3), 'fortran_order': True, 'descr': '<f4'}",
         "more than 8 dimensions", KN_ERR_SHAPE},
    };
    KN_FRAME();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kn_file *f = NULL;
        assert_ok(npy_open(&f, cases[i].text, 1, 12));
        assert_int_equal(kn_file_dtype(f, 0), 0);
        assert_op_fails(kn_file_read(f, ""), cases[i].status, cases[i].error);
        assert_shape(kn_file_read_bytes(f, ""), KN_SHAPE(12));
        kn_file_close(f);
    }
}

/* The others are read. */
static void a_deep_tensor_of_safetensors_has_bytes_alone(void **state) {
    (void)state;
    static const char text[] = "{" TENSOR("deep", "U8", "[1,1,1,1,1,1,1,1,3]", 0, 3) "," TENSOR(
        "w", "U8", "[2]", 3, 5) "}";
    char bytes[256] = {(char)(sizeof text - 1)};
    memcpy(bytes + 8, text, sizeof text - 1);
    memcpy(bytes + 8 + sizeof text - 1, "\1\2\3\4\5", 5);
    kn_file *f = NULL;
    KN_FRAME();
    assert_ok(kn_file_open_bytes(&f, bytes, 8 + sizeof text - 1 + 5, "x.st"));
    int deep = kn_file_find(f, "deep");
    assert_int_equal(kn_file_dtype(f, deep), 0);
    assert_int_equal(kn_file_shape(f, deep).n_dims, 0);
    assert_op_fails(kn_file_read(f, "deep"), KN_ERR_SHAPE, "more than 8 dimensions");
    assert_values(kn_cast(kn_file_read_bytes(f, "deep"), KN_F32), 1, 2, 3);
    assert_values(kn_cast(kn_file_read(f, "w"), KN_F32), 4, 5);
    kn_file_close(f);
    assert_ok(
        open_text("{" TENSOR("w", "F32", "[1,1,1,1,1,1,1,4611686018427387904,4,0]", 0, 0) "}", 0));
    assert_fails(open_text("{" TENSOR("w", "F32", "[1,1,1,1,1,1,1,3,1,2]", 0, 8) "}", 8),
                 KN_ERR_FORMAT, "hold 8 bytes; [more than 8 sizes] F32 takes 24");
    assert_fails(
        open_text("{" TENSOR("w", "F32", "[1,1,1,1,1,1,1,4611686018427387904,4]", 0, 8) "}", 8),
        KN_ERR_FORMAT, "[more than 8 sizes] is too large");
    assert_fails(open_text("{" TENSOR("w", "F32", "[1,1,1,1,1,1,1,1,-1]", 0, 8) "}", 8),
                 KN_ERR_FORMAT, "sizes in brackets");
    assert_fails(open_text("{\"w\":{\"data_offsets\":[0,4,4]}}", 4), KN_ERR_FORMAT, "two offsets");
}

static void a_place_for_the_file_is_needed(void **state) {
    (void)state;
    assert_fails(kn_file_open_bytes(NULL, "{", 1, "x.st"), KN_ERR_INVALID,
                 "kn_file_open_bytes: out is NULL");
    assert_fails(kn_file_open(NULL, DATA "f32.npy"), KN_ERR_INVALID, "kn_file_open: out is NULL");
}

static void dtypes_have_all_names_of_numpy(void **state) {
    (void)state;
    static const struct {
        const char *name;
        kn_dtype dtype;
    } cases[] = {{"f4", KN_F32},   {"float32", KN_F32}, {"=i8", KN_I64},
                 {"uint8", KN_U8}, {"bool", KN_BOOL},   {"f", 0},
                 {"", 0},          {"<float32", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128];
        kn_file *f = NULL;
        size_t bytes = cases[i].dtype ? 2 * kn_dtype_bytes(cases[i].dtype) : 8;
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (2,)}",
                 cases[i].name);
        assert_ok(npy_open(&f, text, 1, bytes));
        assert_int_equal(kn_file_dtype(f, 0), cases[i].dtype);
        kn_file_close(f);
    }
}

static void a_damaged_npy_header_is_refused_with_its_place(void **state) {
    (void)state;
    static const struct {
        const char *text, *error;
        size_t bytes;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", NULL, 8},
        {"{\"shape\":(2L,),\"descr\":\"<f4\",\"fortran_order\":True}", NULL, 8},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "9 bytes follow the header",
         9},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", "',' or '}'", 8},
        {"{'descr': '<f4', 'fortran_order': False}", "each of descr, fortran_order and shape", 8},
        {"{'descr': '<f4', 'descr': '<f4'}", "byte 17 is ''descr':", 8},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", "True or False", 8},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", "a size", 8},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 2}", "a tuple", 8},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "a size", 8},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807,9)}", "too large",
         8},
        {"{'descr': [('a', '<f4')", "the end; expected ']'", 8},
        {"{'descr': [('a', '<f4'), 'fortran_order': False, 'shape': (2,)}", "expected ']'", 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kn_status status = open_npy(cases[i].text, 1, cases[i].bytes);
        if (cases[i].error)
            assert_fails(status, KN_ERR_FORMAT, cases[i].error);
        else
            assert_ok(status);
    }
    assert_fails(open_npy(cases[0].text, 4, 8), KN_ERR_FORMAT, "NPY version 4.0");
    assert_fails(open_npy(cases[0].text, 3, 8), KN_ERR_FORMAT, "x.npy: a header of");
}

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        OPS_TEST(arrays_of_numpy_and_safetensors_are_read),
        OPS_TEST(fortran_order_and_big_endian_become_ours),
        OPS_TEST(a_dtype_without_ours_fails_when_it_is_read),
        OPS_TEST(missing_files_and_folders_are_io_errors),
        OPS_TEST(what_is_written_is_read_back),
        OPS_TEST(many_names_are_found_at_once),
        OPS_TEST(a_pipe_is_not_a_regular_file),
        OPS_TEST(bf16_is_for_safetensors_alone),
        OPS_TEST(a_mapped_tensor_outlives_its_file_and_leaves_it_alone),
        OPS_TEST(wrong_arguments_of_writers_name_the_tensor),
        OPS_TEST(wrong_counts_and_long_names_are_refused),
        OPS_TEST(a_damaged_safetensors_header_is_refused_with_its_place),
        OPS_TEST(a_header_that_the_file_lacks_is_refused),
        OPS_TEST(a_deep_tensor_of_safetensors_has_bytes_alone),
        OPS_TEST(a_place_for_the_file_is_needed),
        OPS_TEST(arrays_that_no_tensor_holds_fail_when_they_are_read),
        OPS_TEST(dtypes_have_all_names_of_numpy),
        OPS_TEST(a_damaged_npy_header_is_refused_with_its_place),
    };
    return cmocka_run_group_tests_name(__FILE__, tests, make_folder, remove_folder);
}
