/* Loaders of CIFAR's binary files, good and bad. */
#include <knet/data.h>
#include <unistd.h>

#include "files.h"
#include "test.h"

enum { IMAGE = 3072 };

/* Records whose pixels are all first + i, with labels (first + i) % 10; coarse ones 7. */
static void write_records(const char *dir, const char *name, int n_labels, int first, int n) {
    size_t bytes = (size_t)(n_labels + IMAGE);
    uint8_t *records = malloc((size_t)n * bytes);
    assert_non_null(records);
    for (int i = 0; i < n; i++) {
        uint8_t *at = records + (size_t)i * bytes;
        memset(at, first + i, bytes);
        at[0] = 7;
        at[n_labels - 1] = (uint8_t)((first + i) % 10);
    }
    files_write(dir, name, records, (size_t)n * bytes, true);
    free(records);
}

static void write_cifar10(const char *dir) {
    for (int i = 0; i < 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "data_batch_%d.bin", i + 1);
        write_records(dir, name, 1, i * 4, 4);
    }
    write_records(dir, "test_batch.bin", 1, 100, 6);
}

static void all_files_of_a_split_are_read_in_order(void **state) {
    (void)state;
    char dir[FILES_PATH_MAX];
    kn_loader *train = NULL, *test = NULL;
    kn_batch b;
    write_cifar10(files_dir_make(dir));
    kn_loader_options options = {.batch = 6, .split = KN_TEST};
    assert_ok(kn_loader_create(&test, dir, &options));
    assert_true(kn_loader_next(test, &b));
    kn_shape shape = kn_tensor_shape(b.x);
    assert_int_equal(shape.n_dims, 4);
    assert_int_equal(shape.dim[1], 3);
    assert_int_equal(shape.dim[3], 32);
    const float *x = kn_data(b.x);
    const int64_t *y = kn_data(b.y);
    for (int i = 0; i < 6; i++) {
        assert_close(x[i * IMAGE], (100 + i) / 255.0, 1e-6, 0);
        assert_close(x[i * IMAGE + IMAGE - 1], (100 + i) / 255.0, 1e-6, 0);
        assert_int_equal(y[i], i);
    }
    options = (kn_loader_options){.batch = 20};
    assert_ok(kn_loader_create(&train, dir, &options));
    assert_int_equal(kn_loader_images(train), 20);
    assert_int_equal(kn_loader_classes(train), 10);
    assert_true(kn_loader_next(train, &b));
    x = kn_data(b.x);
    y = kn_data(b.y);
    int seen = 0;
    for (int i = 0; i < 20; i++) {
        int value = (int)(x[i * IMAGE] * 255.0f + 0.5f);
        assert_int_equal(y[i], value % 10);
        seen |= 1 << value;
    }
    assert_int_equal(seen, (1 << 20) - 1);
    kn_loader_destroy(train);
    kn_loader_destroy(test);
    files_remove(dir);
}

static void labels_of_cifar100_are_the_fine_ones(void **state) {
    (void)state;
    char dir[FILES_PATH_MAX];
    kn_loader *test = NULL;
    kn_batch b;
    files_dir_make(dir);
    write_records(dir, "test.bin", 2, 3, 2);
    kn_loader_options options = {.batch = 2, .split = KN_TEST};
    assert_ok(kn_loader_create(&test, dir, &options));
    assert_int_equal(kn_loader_classes(test), 100);
    assert_true(kn_loader_next(test, &b));
    assert_int_equal(((const int64_t *)kn_data(b.y))[1], 4);
    kn_loader_destroy(test);
    options.split = KN_TRAIN;
    assert_fails(kn_loader_create(&test, dir, &options), KN_ERR_IO,
                 "train.bin: No such file or directory; https://www.cs.toronto.edu");
    files_remove(dir);
}

static void bad_files_are_errors_that_name_the_record(void **state) {
    (void)state;
    char dir[FILES_PATH_MAX];
    kn_loader *test = NULL;
    kn_loader_options options = {.batch = 2, .split = KN_TEST};
    files_dir_make(dir);
    uint8_t *bytes = calloc(2, 1 + IMAGE);
    files_write(dir, "test_batch.bin", bytes, 2 * (1 + IMAGE) - 1, true);
    assert_fails(kn_loader_create(&test, dir, &options), KN_ERR_FORMAT,
                 "test_batch.bin: 6145 bytes; the size must be a multiple of 3073");
    files_write(dir, "test_batch.bin", bytes, 0, true);
    assert_fails(kn_loader_create(&test, dir, &options), KN_ERR_FORMAT, "0 bytes");
    bytes[1 + IMAGE] = 10;
    files_write(dir, "test_batch.bin", bytes, 2 * (1 + IMAGE), true);
    assert_fails(kn_loader_create(&test, dir, &options), KN_ERR_FORMAT,
                 "test_batch.bin: record 1 has label 10 of 10 classes");
    free(bytes);
    files_remove(dir);
}

int main(void) {
    return RUN_TESTS(TEST(all_files_of_a_split_are_read_in_order),
                     TEST(labels_of_cifar100_are_the_fine_ones),
                     TEST(bad_files_are_errors_that_name_the_record));
}
