/* Data sets of picked and shuffled samples, and samples as tensors. */
#include <knet/data.h>

#include "files.h"
#include "test.h"

/* n samples [2]: sample i is 2i and 2i + 1, with label i % 3. */
static kn_dataset *made(int64_t n) {
    kn_dataset *data = NULL;
    KN_FRAME();
    kn_tensor *x = kn_reshape(kn_arange(0, 2 * (double)n, 1, KN_F32), KN_SHAPE(n, 2));
    kn_tensor *y = kn_remainder(kn_arange(0, (double)n, 1, KN_F32), kn_full(KN_SCALAR, 3));
    assert_ok(kn_dataset_create(&data, x, kn_cast(y, KN_I64), 0));
    return data;
}

/* x and y of all samples, which made() made. */
static void assert_order(const kn_dataset *data, const int64_t want[], int64_t n) {
    KN_FRAME();
    assert_int_equal(kn_dataset_size(data), n);
    const float *x = kn_data(kn_dataset_x(data));
    const int64_t *y = kn_data(kn_dataset_y(data));
    for (int64_t i = 0; i < n; i++) {
        assert_close(x[2 * i], 2.0 * (double)want[i], 0, 0);
        assert_close(x[2 * i + 1], 2.0 * (double)want[i] + 1, 0, 0);
        assert_int_equal(y[i], want[i] % 3);
    }
}

/* --- other shapes --- */

static void samples_get_other_shapes_and_keep_their_numbers(void **state) {
    (void)state;
    kn_dataset *table = NULL, *images = NULL, *part = NULL;
    KN_FRAME();
    kn_tensor *x = kn_reshape(kn_arange(0, 5 * 12, 1, KN_F32), KN_SHAPE(5, 12));
    kn_tensor *y = kn_reshape(kn_arange(0, 5 * 4, 1, KN_F32), KN_SHAPE(5, 4));
    assert_ok(kn_dataset_create(&table, x, y, 0));
    assert_ok(kn_dataset_reshape(&images, table, &KN_SHAPE(1, 3, 4), &KN_SHAPE(2, 2)));
    assert_int_equal(kn_dataset_shape(table).n_dims, 1);
    assert_int_equal(kn_dataset_size(images), 5);
    kn_dataset_destroy(table);
    assert_ok(kn_dataset_take(&part, images, 2, 3));
    kn_dataset_destroy(images);
    kn_loader *loader = NULL;
    kn_batch b;
    assert_ok(
        kn_loader_create_from(&loader, part, &(kn_loader_options){.batch = 3, .split = KN_TEST}));
    kn_dataset_destroy(part);
    assert_true(kn_loader_next(loader, &b));
    const kn_shape xs = kn_tensor_shape(b.x), ys = kn_tensor_shape(b.y);
    assert_memory_equal(xs.dim, ((int64_t[]){3, 1, 3, 4}), 4 * sizeof(int64_t));
    assert_memory_equal(ys.dim, ((int64_t[]){3, 2, 2}), 3 * sizeof(int64_t));
    assert_memory_equal(kn_data(b.x), (const float *)kn_data(x) + 24, 36 * sizeof(float));
    assert_memory_equal(kn_data(b.y), (const float *)kn_data(y) + 8, 12 * sizeof(float));
    kn_loader_destroy(loader);
}

static void shapes_of_other_sizes_are_errors(void **state) {
    (void)state;
    static const int64_t values[] = {1, 2, 3}, offsets[] = {0, 1, 3};
    kn_dataset *all = made(4), *words = NULL, *out = NULL;
    const kn_shape two = KN_SHAPE(1, 2), three = KN_SHAPE(3), one = KN_SHAPE(1);
    assert_fails(kn_dataset_reshape(&out, all, &three, NULL), KN_ERR_SHAPE,
                 "kn_dataset_reshape: x is [2]; [3] has another number of elements");
    assert_fails(kn_dataset_reshape(&out, all, &KN_SHAPE(-1, -2), NULL), KN_ERR_SHAPE, "[-1,-2]");
    assert_fails(kn_dataset_reshape(&out, all, &KN_SHAPE(2, 1, 1, 1, 1, 1, 1, 1), NULL),
                 KN_ERR_SHAPE,
                 "kn_dataset_reshape: x of 8 dimensions; at most 7 are possible, beside the batch");
    assert_fails(kn_dataset_reshape(&out, all, &(kn_shape){{2}, -1}, NULL), KN_ERR_SHAPE,
                 "x of -1 dimensions");
    assert_fails(kn_dataset_reshape(&out, all, &two, &one), KN_ERR_UNSUPPORTED,
                 "y has the classes of samples");
    assert_fails(kn_dataset_reshape(&out, NULL, &two, NULL), KN_ERR_INVALID, "from is NULL");
    assert_ok(kn_dataset_create_sequences(&words, values, offsets, 2, NULL));
    assert_fails(kn_dataset_reshape(&out, words, &two, NULL), KN_ERR_UNSUPPORTED,
                 "x has lengths of its own");
    assert_fails(kn_dataset_reshape(&out, words, NULL, &one), KN_ERR_UNSUPPORTED, "no elements");
    assert_null(out);
    assert_ok(kn_dataset_reshape(&out, all, &two, NULL));
    kn_dataset_destroy(out);
    kn_dataset_destroy(words);
    kn_dataset_destroy(all);
}

/* --- picked --- */

static void picked_samples_are_copies_in_the_given_order(void **state) {
    (void)state;
    static const int64_t four[] = {9, 0, 9, 4}, two[] = {2, 1}, picked[] = {9, 0}, bad[] = {1, 10};
    kn_dataset *all = made(10), *some = NULL, *fewer = NULL;
    assert_ok(kn_dataset_pick(&some, all, four, 4));
    assert_fails(kn_dataset_pick(&fewer, all, bad, 2), KN_ERR_INVALID,
                 "sample 10, at place 1, is not in 0 … 9");
    assert_fails(kn_dataset_pick(&fewer, all, four, 0), KN_ERR_INVALID, "0 samples of a set");
    assert_fails(kn_dataset_pick(&fewer, NULL, four, 1), KN_ERR_INVALID, "1 samples of NULL");
    kn_dataset_destroy(all);
    assert_order(some, four, 4);
    assert_int_equal(kn_dataset_classes(some), 3);
    assert_ok(kn_dataset_pick(&fewer, some, two, 2));
    assert_order(fewer, picked, 2);
    kn_dataset_destroy(some);
    kn_dataset_destroy(fewer);
}

/* Each sample once, in an order that the seed decides. */
static void a_shuffled_set_has_each_sample_once(void **state) {
    (void)state;
    enum { N = 200 };
    kn_dataset *all = made(N), *a = NULL, *b = NULL, *other = NULL;
    assert_ok(kn_dataset_shuffle(&a, all, 5));
    assert_ok(kn_dataset_shuffle(&b, all, 5));
    assert_ok(kn_dataset_shuffle(&other, all, 6));
    int64_t order[N];
    int moved = 0, differ = 0;
    bool seen[N] = {false};
    KN_FRAME();
    const float *x = kn_data(kn_dataset_x(a)), *z = kn_data(kn_dataset_x(other));
    for (int i = 0; i < N; i++) {
        order[i] = (int64_t)x[2 * i] / 2;
        moved += order[i] != i;
        differ += order[i] != (int64_t)z[2 * i] / 2;
        assert_false(seen[order[i]]);
        seen[order[i]] = true;
    }
    assert_true(moved > N / 2 && differ > N / 2);
    assert_order(a, order, N);
    assert_order(b, order, N);
    kn_dataset_destroy(all);
    kn_dataset_destroy(a);
    kn_dataset_destroy(b);
    kn_dataset_destroy(other);
}

static void picked_sequences_keep_their_numbers(void **state) {
    (void)state;
    static const int64_t numbers[] = {7, 1, 2, 3, 8, 9}, offset[] = {0, 1, 4, 6},
                         label[] = {0, 1, 1}, order[] = {2, 0};
    kn_dataset *all = NULL, *part = NULL, *some = NULL;
    kn_batch b;
    assert_ok(kn_dataset_create_sequences(&all, numbers, offset, 3, label));
    assert_ok(kn_dataset_take(&part, all, 0, 3));
    assert_ok(kn_dataset_pick(&some, part, order, 2));
    assert_int_equal(kn_dataset_shape(some).dim[0], 2);
    assert_null(kn_dataset_x(some));
    assert_fails(kn_check(), KN_ERR_UNSUPPORTED, "kn_dataset_x: sequences have lengths");
    kn_dataset_destroy(all);
    kn_dataset_destroy(part);
    kn_loader *loader = NULL;
    assert_ok(
        kn_loader_create_from(&loader, some, &(kn_loader_options){.batch = 2, .split = KN_TEST}));
    kn_dataset_destroy(some); /* the loader has it */
    assert_true(kn_loader_next(loader, &b));
    assert_int_equal(kn_loader_lengths(loader)[0], 2);
    assert_int_equal(kn_loader_lengths(loader)[1], 1);
    assert_int_equal(((const int64_t *)kn_data(b.y))[1], 0);
    kn_loader_destroy(loader);
}

static void tensors_are_what_batches_have(void **state) {
    (void)state;
    kn_dataset *all = made(5), *none = NULL;
    kn_loader *loader = NULL;
    kn_batch b;
    KN_FRAME();
    assert_ok(
        kn_loader_create_from(&loader, all, &(kn_loader_options){.batch = 5, .split = KN_TEST}));
    assert_true(kn_loader_next(loader, &b));
    assert_memory_equal(kn_data(b.x), kn_data(kn_dataset_x(all)), 10 * sizeof(float));
    assert_memory_equal(kn_data(b.y), kn_data(kn_dataset_y(all)), 5 * sizeof(int64_t));
    assert_ok(kn_dataset_create(&none, kn_dataset_x(all), NULL, 0));
    assert_null(kn_dataset_y(none));
    assert_ok(kn_check());
    assert_null(kn_dataset_x(NULL));
    assert_fails(kn_check(), KN_ERR_INVALID, "kn_dataset_x: data is NULL");
    kn_loader_destroy(loader);
    kn_dataset_destroy(all);
    kn_dataset_destroy(none);
}

/* Images are kept as bytes and are numbers in 0 … 1. */
static void images_are_numbers_as_in_batches(void **state) {
    (void)state;
    static const int64_t order[] = {3, 1};
    char dir[FILES_PATH_MAX];
    kn_dataset *all = NULL, *some = NULL;
    kn_loader *loader = NULL;
    kn_batch b;
    files_dataset(files_dir_make(dir), 8, false);
    KN_FRAME();
    assert_ok(kn_dataset_read_images(&all, dir, KN_TEST));
    assert_ok(kn_dataset_pick(&some, all, order, 2));
    const kn_loader_options options = {.batch = 2, .split = KN_TEST};
    assert_ok(kn_loader_create_from(&loader, some, &options));
    assert_true(kn_loader_next(loader, &b));
    kn_tensor *x = kn_dataset_x(some);
    assert_int_equal(kn_tensor_numel(x), 2 * 28 * 28);
    assert_memory_equal(kn_data(b.x), kn_data(x), 2 * 28 * 28 * sizeof(float));
    assert_close(((const float *)kn_data(x))[0], 3.0 / 255, 1e-6, 0);
    assert_int_equal(((const int64_t *)kn_data(b.y))[0], 3);
    kn_loader_destroy(loader);
    kn_dataset_destroy(all);
    kn_dataset_destroy(some);
    files_remove(dir);
}

int main(void) {
    return RUN_TESTS(
        TEST(samples_get_other_shapes_and_keep_their_numbers),
        TEST(shapes_of_other_sizes_are_errors), TEST(picked_samples_are_copies_in_the_given_order),
        TEST(a_shuffled_set_has_each_sample_once), TEST(picked_sequences_keep_their_numbers),
        TEST(tensors_are_what_batches_have), TEST(images_are_numbers_as_in_batches));
}
