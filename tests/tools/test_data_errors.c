/* Errors of data sets: the file, the value, and where to get the right one. */
#include <knet/file.h>
#include <knet/models.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files_dir.h"
#include "stored_zip.h"
#include "test.h"

static char path[2 * FILES_PATH_MAX];

static const char *file(const char *name, const void *data, size_t n_bytes) {
    files_write(dir, name, data, n_bytes, true);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* --- where to get the data --- */

static void assert_says_where(const kn_model_kind *kind, const char *from, const char *text) {
    for (kn_split split = KN_TRAIN; split <= KN_TEST; split++) {
        kn_dataset *data = NULL;
        kn_status status = kn_model_data_read(&data, kind, from, split);
        if (status != KN_ERR_IO && status != KN_ERR_FORMAT)
            fail_msg("%s: status %d: %s", kind->name, status, kn_last_error()->message);
        assert_null(data);
        test_assert_message(from, __FILE__, __LINE__);
        test_assert_message(text, __FILE__, __LINE__);
    }
}

static void a_model_without_its_data_says_where_to_get_them(void **state) {
    (void)state;
    int n = 0;
    for (int i = 0; kn_model_kind_at(i); i++) {
        const kn_model_kind *kind = kn_model_kind_at(i);
        if (!kind->facts->read && kind->facts->made) continue;
        assert_non_null(kind->facts->source);
        assert_non_null(strstr(kind->facts->source, "https://"));
        assert_says_where(kind, "/nonexistent", kind->facts->source);
        /* the package is a place for the models of MNIST alone */
        bool is_mnist = strstr(kind->facts->source, "Debian") != NULL;
        assert_int_equal(strstr(kn_last_error()->message, "Debian") != NULL, is_mnist);
        assert_int_equal(strstr(kind->facts->source, "MNIST is") != NULL, is_mnist);
        assert_says_where(kind, file("damaged", "\x93", 1), "https://");
        n++;
    }
    assert_true(n > 15);
}

static void a_text_by_a_vocabulary_says_it_too(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    const kn_model_kind *kind = kn_model_kind_find("lstm_lm");
    assert_fails(kn_model_data_read_text(&data, kind, "/nonexistent", KN_TRAIN, NULL), KN_ERR_IO,
                 "/nonexistent: No such file or directory; Penn Treebank is https://");
}

static void wrong_images_say_where_right_ones_are(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    files_write(dir, "train-images-idx3-ubyte", "x", 1, true);
    assert_fails(kn_dataset_read_images(&data, dir, KN_TRAIN), KN_ERR_IO, "no file of labels");
    test_assert_message("MNIST is https://", __FILE__, __LINE__);
    char labels[3 * FILES_PATH_MAX];
    snprintf(labels, sizeof labels, "%s/train-labels-idx1-ubyte", dir);
    assert_int_equal(symlink(labels, labels), 0); /* no user can read it */
    assert_fails(kn_dataset_read_images(&data, dir, KN_TRAIN), KN_ERR_IO,
                 "/train-labels-idx1-ubyte: Too many levels");
    assert_null(strstr(kn_last_error()->message, "no file of labels"));
    assert_int_equal(unlink(labels), 0);
    files_write(dir, "train-labels-idx1-ubyte", "x", 1, true);
    assert_fails(kn_dataset_read_images(&data, dir, KN_TRAIN), KN_ERR_FORMAT, "truncated: 1 bytes");
    test_assert_message("MNIST is https://", __FILE__, __LINE__);
    files_write(dir, "test_batch.bin", "x", 1, true);
    assert_fails(kn_dataset_read_images(&data, dir, KN_TEST), KN_ERR_FORMAT, "1 bytes; the size");
    test_assert_message("https://www.cs.toronto.edu", __FILE__, __LINE__);
    assert_null(data);
}

/* --- the value and the file --- */

static void labels_of_a_file_are_errors_with_its_name(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    char want[3 * FILES_PATH_MAX];
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(3, 2));
    kn_tensor *y = kn_tensor_from((const int64_t[]){0, 1, -7}, KN_I64, KN_SHAPE(3));
    const kn_named arrays[] = {{"x", x}, {"y", y}, {"short", kn_ones(KN_SHAPE(2))}};
    snprintf(path, sizeof path, "%s/set.npz", dir);
    assert_ok(kn_npz_save(path, arrays, 3, NULL));
    snprintf(want, sizeof want, "%s: label -7 of sample 2; it must be from 0 to ", path);
    assert_fails(kn_dataset_read_npz(&data, path, "x", "y"), KN_ERR_FORMAT, want);
    snprintf(want, sizeof want, "%s: kn_dataset_create: x [3,2], y [2]", path);
    assert_fails(kn_dataset_read_npz(&data, path, "x", "short"), KN_ERR_SHAPE, want);
    assert_null(data);
}

static void sequences_that_are_not_there_are_errors(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    const int64_t value = 1, offsets[] = {0, 1};
    assert_fails(kn_dataset_create_sequences(&data, &value, offsets, 0, NULL), KN_ERR_INVALID,
                 "n is 0; it must be 1 or more");
    assert_fails(kn_dataset_create_sequences(&data, &value, NULL, 1, NULL), KN_ERR_INVALID,
                 "offset is NULL");
}

/* An NPY file of that shape, such as "2,"; returns its bytes. */
static size_t npy_make(uint8_t *out, const char *descr, const char *shape, const void *data,
                       size_t n_bytes) {
    char head[118];
    int length = snprintf(head, sizeof head,
                          "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape);
    memset(head + length, ' ', sizeof head - (size_t)length);
    head[sizeof head - 1] = '\n';
    memcpy(out, "\x93NUMPY\x01\0v\0", 10); /* v: 118 */
    memcpy(out + 10, head, sizeof head);
    memcpy(out + 128, data, n_bytes);
    return 128 + n_bytes;
}

/* Two reviews, and n numbers in an array of another name. */
static const char *imdb_file_of(const char *name, const char *numbers, const char *descr,
                                const char *shape, int n, const void *values) {
    static const char lists[] =
        "\x80\x02](](K\x05M\x01\x02"
        "e](K\x07"
        "ee.";
    uint8_t x[256], y[256], npz[1024];
    size_t x_bytes = npy_make(x, "|O", "2,", lists, sizeof lists - 1);
    size_t y_bytes = npy_make(y, descr, shape, values, (size_t)n * 8);
    const stored_member arrays[] = {{"x_train.npy", x, x_bytes}, {numbers, y, y_bytes}};
    return file(name, npz, stored_zip(npz, arrays, 2));
}

static const char *imdb_file(const char *name, const char *numbers, int n, const int64_t values[]) {
    return imdb_file_of(name, numbers, "<i8", n == 1 ? "1," : "2,", n, values);
}

static void labels_are_whole_whatever_their_type(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    const char *at = imdb_file_of("floats.npz", "y_train.npy", "<f8", "2,", 2, (double[]){1, -0.0});
    assert_ok(kn_dataset_read_imdb(&data, at, KN_TRAIN, NULL));
    assert_int_equal(kn_dataset_classes(data), 2);
    kn_dataset_destroy(data);
    data = NULL;
    at = imdb_file_of("half.npz", "y_train.npy", "<f8", "2,", 2, (double[]){1, 0.5});
    assert_fails(kn_dataset_read_imdb(&data, at, KN_TRAIN, NULL), KN_ERR_FORMAT,
                 "half.npz: label 0.5 of review 1; it must be 0 or 1; the NPZ file is https:");
    at = imdb_file_of("nan.npz", "y_train.npy", "<f8", "2,", 2, (double[]){(double)NAN, 0});
    assert_fails(kn_dataset_read_imdb(&data, at, KN_TRAIN, NULL), KN_ERR_FORMAT,
                 "label nan of review 0");
    at = imdb_file_of("object.npz", "y_train.npy", "|O", "2,", 2, (int64_t[]){1, 0});
    assert_fails(kn_dataset_read_imdb(&data, at, KN_TRAIN, NULL), KN_ERR_DTYPE,
                 "object.npz: tensor 'y_train' has dtype");
    test_assert_message("; the NPZ file is https:", __FILE__, __LINE__);
    assert_null(data);
}

static void labels_have_one_dimension(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    const int64_t values[] = {1, 0};
    const char *at = imdb_file_of("column.npz", "y_train.npy", "<i8", "2,1", 2, values);
    assert_ok(kn_dataset_read_imdb(&data, at, KN_TRAIN, NULL));
    assert_int_equal(kn_dataset_size(data), 2);
    kn_dataset_destroy(data);
    data = NULL;
    at = imdb_file_of("row.npz", "y_train.npy", "<i8", "1,2", 2, values);
    assert_fails(kn_dataset_read_imdb(&data, at, KN_TRAIN, NULL), KN_ERR_FORMAT,
                 "row.npz: 2 reviews, but labels [1,2]; expected [2]");
    assert_null(data);
}

static void reviews_with_other_labels_are_errors(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    const char *at = imdb_file("good.npz", "y_train.npy", 2, (int64_t[]){1, 0});
    assert_ok(kn_dataset_read_imdb(&data, at, KN_TRAIN, NULL));
    assert_int_equal(kn_dataset_size(data), 2);
    assert_int_equal(kn_dataset_classes(data), 2);
    kn_dataset_destroy(data);
    data = NULL;
    at = imdb_file("two.npz", "y_train.npy", 2, (int64_t[]){1, 2});
    assert_fails(kn_dataset_read_imdb(&data, at, KN_TRAIN, NULL), KN_ERR_FORMAT,
                 "two.npz: label 2 of review 1; it must be 0 or 1");
    at = imdb_file("few.npz", "y_train.npy", 1, (int64_t[]){1});
    assert_fails(kn_dataset_read_imdb(&data, at, KN_TRAIN, NULL), KN_ERR_FORMAT,
                 "few.npz: 2 reviews, 1 labels");
    at = imdb_file("other.npz", "labels.npy", 2, (int64_t[]){1, 0});
    assert_fails(kn_dataset_read_imdb(&data, at, KN_TRAIN, NULL), KN_ERR_FORMAT, "y_train");
    test_assert_message("other.npz: ", __FILE__, __LINE__);
    test_assert_message("https://storage.googleapis.com", __FILE__, __LINE__);
    assert_null(data);
}

/* --- the table of `linear` --- */

static void a_table_of_other_columns_is_an_error(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    const kn_model_kind *linear = kn_model_kind_find("linear");
    const char *at = file("table.csv", "1,2,3,4,5\n2,3,4,5,6\n", 20);
    assert_fails(
        kn_model_data_read(&data, linear, at, KN_TRAIN), KN_ERR_FORMAT,
        "table.csv: 5 columns; expected 14, the last one the target (Boston housing, 506 rows "
        "of 13 numbers); Boston housing is https://");
    assert_fails(kn_model_data_read(&data, linear, NULL, KN_TRAIN), KN_ERR_INVALID,
                 "the model linear has no default data; give a path");
    assert_null(data);
}

/* A model would train on a program, too. */
static void a_text_has_no_zero_byte(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    kn_vocab *vocab = NULL;
    const char *at = file("program",
                          "\x7f"
                          "ELF and more\0 words",
                          19);
    assert_fails(kn_dataset_read_text(&data, &vocab, at, 2, NULL), KN_ERR_FORMAT,
                 "program: byte 13 is zero: not a text");
    assert_null(vocab);
    for (int i = 0; i < 4; i++) {
        static const char *const names[] = {"train", "train/neg", "train/pos", "train/neg/0.txt"};
        char at_i[3 * FILES_PATH_MAX];
        snprintf(at_i, sizeof at_i, "%s/%s", dir, names[i]);
        if (i < 3) assert_int_equal(mkdir(at_i, 0700), 0);
        if (i == 3) files_write(dir, names[i], "good\0film", 9, true);
    }
    assert_fails(kn_dataset_read_imdb(&data, dir, KN_TRAIN, NULL), KN_ERR_FORMAT,
                 "train/neg/0.txt: byte 4 is zero: not a text");
    assert_null(data);
}

/* Its only array has no name. */
static void an_npy_file_is_no_file_of_reviews(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    uint8_t npy[256];
    size_t n = npy_make(npy, "<i8", "2,", (int64_t[]){1, 0}, 16);
    assert_fails(kn_dataset_read_imdb(&data, file("one.npy", npy, n), KN_TRAIN, NULL),
                 KN_ERR_FORMAT, "one.npy: no tensor 'x_train'; its only tensor has no name; the");
    assert_null(data);
}

int main(void) {
    return RUN_TESTS(
        IN_DIR(a_model_without_its_data_says_where_to_get_them),
        TEST(a_text_by_a_vocabulary_says_it_too), IN_DIR(wrong_images_say_where_right_ones_are),
        IN_DIR(labels_of_a_file_are_errors_with_its_name),
        TEST(sequences_that_are_not_there_are_errors), IN_DIR(reviews_with_other_labels_are_errors),
        IN_DIR(a_table_of_other_columns_is_an_error), IN_DIR(labels_are_whole_whatever_their_type),
        IN_DIR(labels_have_one_dimension), IN_DIR(a_text_has_no_zero_byte),
        IN_DIR(an_npy_file_is_no_file_of_reviews));
}
