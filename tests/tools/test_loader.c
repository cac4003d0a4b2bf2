#include <knet/data.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files_dir.h"
#include "test.h"

/* The images of one epoch, by the value of their first pixel (files_dataset), in order. */
static int epoch_read(int out[], kn_loader *loader) {
    int n = 0;
    for (kn_batch b; kn_loader_next(loader, &b);) {
        const float *x = kn_data(b.x);
        const int64_t *y = kn_data(b.y);
        assert_non_null(x);
        assert_non_null(y);
        for (int64_t i = 0; i < b.n; i++) {
            int image = (int)(x[i * 784] * 255 + 0.5f);
            assert_int_equal(y[i], image % 10);
            out[n++] = image;
        }
    }
    assert_ok(kn_check());
    return n;
}

static kn_loader *open_loader(kn_loader_options options) {
    kn_loader *loader = NULL;
    assert_ok(kn_loader_create(&loader, dir, &options));
    return loader;
}

static void an_epoch_has_every_image_once_with_its_label(void **state) {
    (void)state;
    int order[200], seen[200] = {0};
    files_dataset(dir, 200, true);
    kn_loader *loader = open_loader((kn_loader_options){.batch = 40, .seed = 7});
    assert_int_equal(kn_loader_batches(loader), 5);
    assert_int_equal(kn_loader_images(loader), 200);
    assert_int_equal(kn_loader_classes(loader), 10);
    for (int epoch = 0; epoch < 3; epoch++) {
        assert_int_equal(epoch_read(order, loader), 200);
        for (int i = 0; i < 200; i++) seen[order[i]]++;
    }
    for (int i = 0; i < 200; i++) assert_int_equal(seen[i], 3);
    kn_loader_destroy(loader);
}

static void batches_have_shape_dtype_and_values_in_0_to_1(void **state) {
    (void)state;
    files_dataset(dir, 20, false);
    kn_loader *loader = open_loader((kn_loader_options){.batch = 20, .split = KN_TRAIN});
    kn_batch b;
    assert_true(kn_loader_next(loader, &b));
    kn_shape x = kn_tensor_shape(b.x), y = kn_tensor_shape(b.y);
    assert_int_equal(x.n_dims, 4);
    assert_int_equal(x.dim[0], 20);
    assert_int_equal(x.dim[1], 1);
    assert_int_equal(x.dim[3], 28);
    assert_int_equal(y.n_dims, 1);
    assert_int_equal(kn_tensor_dtype(b.x), KN_F32);
    assert_int_equal(kn_tensor_dtype(b.y), KN_I64);
    const float *pixels = kn_data(b.x);
    for (int i = 0; i < 20 * 784; i++) assert_true(pixels[i] >= 0 && pixels[i] <= 1);
    kn_loader_destroy(loader);
}

static void the_same_seed_gives_the_same_epochs_and_another_others(void **state) {
    (void)state;
    int a[2][100], b[2][100], other[100];
    files_dataset(dir, 100, false);
    kn_loader *first = open_loader((kn_loader_options){.batch = 10, .seed = 3});
    kn_loader *second = open_loader((kn_loader_options){.batch = 25, .seed = 3});
    kn_loader *third = open_loader((kn_loader_options){.batch = 10, .seed = 4});
    for (int epoch = 0; epoch < 2; epoch++) {
        epoch_read(a[epoch], first);
        epoch_read(b[epoch], second);
        assert_memory_equal(a[epoch], b[epoch], sizeof a[epoch]);
    }
    assert_memory_not_equal(a[0], a[1], sizeof a[0]);
    epoch_read(other, third);
    assert_memory_not_equal(a[0], other, sizeof other);
    kn_loader_destroy(first);
    kn_loader_destroy(second);
    kn_loader_destroy(third);
}

static void the_test_split_keeps_its_order_and_its_last_batch(void **state) {
    (void)state;
    int order[50];
    files_dataset(dir, 100, false);
    kn_loader *loader =
        open_loader((kn_loader_options){.batch = 16, .split = KN_TEST, .partial = 1});
    assert_int_equal(kn_loader_batches(loader), 4);
    assert_int_equal(epoch_read(order, loader), 50);
    for (int i = 0; i < 50; i++) assert_int_equal(order[i], i);
    kn_loader_destroy(loader);
}

static void ordered_batches_keep_the_order_of_the_data_and_their_place(void **state) {
    (void)state;
    int order[100];
    files_dataset(dir, 100, true);
    kn_loader_options options = {.batch = 10, .seed = 3, .prefetch = 1, .ordered = 1};
    kn_loader *loader = open_loader(options), *later = open_loader(options);
    for (int epoch = 0; epoch < 2; epoch++) {
        assert_int_equal(epoch_read(order, loader), 100);
        for (int i = 0; i < 100; i++) assert_int_equal(order[i], i);
    }
    kn_batch b;
    kn_loader_place place;
    for (int i = 0; i < 4; i++) assert_true(kn_loader_next(loader, &b));
    assert_ok(kn_loader_place_get(&place, loader));
    assert_ok(kn_loader_place_set(later, &place));
    assert_int_equal(epoch_read(order, later), 60);
    for (int i = 0; i < 60; i++) assert_int_equal(order[i], 40 + i);
    kn_loader_destroy(later);
    kn_loader_destroy(loader);
}

/* The flips and moves of an epoch. */
static void ordered_images_change_in_each_epoch(void **state) {
    (void)state;
    static float a[2][100];
    kn_augment augment = {.flip = 1, .crop = 2};
    kn_loader *loader = NULL;
    assert_ok(kn_loader_create_synthetic(
        &loader, 100, &(kn_loader_options){.batch = 100, .augment = &augment, .ordered = 1}));
    for (int epoch = 0; epoch < 2; epoch++) {
        kn_batch b;
        assert_true(kn_loader_cycle(loader, &b));
        const float *x = kn_data(b.x);
        for (int i = 0; i < 100; i++) a[epoch][i] = x[i * 784 + 400];
    }
    assert_memory_not_equal(a[0], a[1], sizeof a[0]);
    kn_loader_destroy(loader);
}

static void without_partial_the_rest_is_left_out(void **state) {
    (void)state;
    int order[100];
    files_dataset(dir, 100, false);
    kn_loader *loader = open_loader((kn_loader_options){.batch = 30});
    assert_int_equal(kn_loader_batches(loader), 3);
    assert_int_equal(epoch_read(order, loader), 90);
    kn_loader_destroy(loader);
}

/* There is no whole batch, so only .partial makes an epoch of it. */
static void a_set_smaller_than_a_batch_is_one_batch(void **state) {
    (void)state;
    kn_batch b;
    files_dataset(dir, 7, false);
    for (int prefetch = 0; prefetch < 2; prefetch++) {
        kn_loader *loader =
            open_loader((kn_loader_options){.batch = 100, .partial = 1, .prefetch = prefetch});
        assert_int_equal(kn_loader_batches(loader), 1);
        for (int epoch = 0; epoch < 3; epoch++) {
            assert_true(kn_loader_next(loader, &b));
            assert_int_equal(b.n, 7);
            assert_int_equal(kn_tensor_shape(b.x).dim[0], 7);
            assert_int_equal(kn_tensor_shape(b.y).dim[0], 7);
            assert_false(kn_loader_next(loader, &b));
            assert_ok(kn_check());
        }
        kn_loader_destroy(loader);
    }
}

/* Also of batches whose bytes no 64 bits count. */
static void a_batch_takes_no_more_memory_than_the_data(void **state) {
    (void)state;
    static const int64_t batches[] = {100000, INT64_MAX};
    kn_pool *pool = kn_device_pool(kn_device_host());
    files_dataset(dir, 7, false);
    for (int i = 0; i < 2; i++) {
        kn_pool_stats stats;
        kn_batch b;
        kn_loader *loader = open_loader((kn_loader_options){.batch = batches[i], .partial = 1});
        assert_int_equal(kn_loader_batches(loader), 1);
        assert_true(kn_loader_next(loader, &b));
        assert_int_equal(b.n, 7);
        kn_pool_stats_read(&stats, sizeof stats, pool);
        assert_true(stats.live_bytes < 1 << 20);
        kn_loader_destroy(loader);
    }
}

static void ranks_share_an_epoch_without_overlap(void **state) {
    (void)state;
    int order[3][50], seen[100] = {0};
    files_dataset(dir, 100, false);
    for (int rank = 0; rank < 3; rank++) {
        kn_loader *loader = open_loader(
            (kn_loader_options){.batch = 8, .seed = 5, .rank = rank, .n_ranks = 3, .partial = 1});
        assert_int_equal(kn_loader_batches(loader), 5);
        assert_int_equal(epoch_read(order[rank], loader), 33);
        for (int i = 0; i < 33; i++) seen[order[rank][i]]++;
        kn_loader_destroy(loader);
    }
    int n = 0;
    for (int i = 0; i < 100; i++) {
        assert_true(seen[i] <= 1);
        n += seen[i];
    }
    assert_int_equal(n, 99);
}

static void ranks_share_all_images_of_a_test(void **state) {
    (void)state;
    int order[26], seen[101] = {0};
    files_dataset(dir, 202, false);
    for (int rank = 0; rank < 4; rank++) {
        kn_loader *loader = open_loader((kn_loader_options){
            .batch = 5, .split = KN_TEST, .rank = rank, .n_ranks = 4, .partial = 1});
        assert_int_equal(kn_loader_batches(loader), rank ? 5 : 6);
        int n = epoch_read(order, loader);
        assert_int_equal(n, rank ? 25 : 26);
        for (int i = 0; i < n; i++) seen[order[i]]++;
        kn_loader_destroy(loader);
    }
    for (int i = 0; i < 101; i++) assert_int_equal(seen[i], 1);
}

/* Sets `loader` to each place of an epoch of `saved`; returns the last one's index. */
static int64_t places_set(kn_loader *loader, kn_loader *saved) {
    kn_loader_place place = {.index = 0};
    for (int64_t i = kn_loader_batches(saved); i > 0; i--) {
        kn_batch b;
        assert_true(kn_loader_next(saved, &b));
        assert_ok(kn_loader_place_get(&place, saved));
        assert_ok(kn_loader_place_set(loader, &place));
    }
    return place.index;
}

/* Ranks whose last batches are others. Of 10 images all batches of 3 are 4 or more. */
static void the_end_of_an_epoch_is_its_end_for_other_ranks(void **state) {
    (void)state;
    files_dataset(dir, 10, false);
    for (int from = 1; from <= 10; from++)
        for (int to = 1; to <= 10; to++) {
            kn_loader_options o = {.batch = 3, .n_ranks = from, .partial = 1};
            kn_loader *saved = open_loader(o);
            o.n_ranks = to;
            kn_loader *loader = open_loader(o);
            kn_loader_place place;
            kn_batch b;
            if (places_set(loader, saved) >= 4) assert_false(kn_loader_next(loader, &b));
            assert_ok(kn_check());
            assert_ok(kn_loader_place_get(&place, saved));
            place.index = 21;
            assert_fails(kn_loader_place_set(loader, &place), KN_ERR_INVALID, "batch 21 of");
            kn_loader_destroy(saved);
            kn_loader_destroy(loader);
        }
}

static void an_epoch_can_be_left_early(void **state) {
    (void)state;
    int order[100];
    files_dataset(dir, 100, false);
    kn_loader *loader = open_loader((kn_loader_options){.batch = 10});
    kn_batch b;
    for (int i = 0; i < 4; i++) assert_true(kn_loader_next(loader, &b));
    assert_int_equal(b.index, 3);
    kn_loader_rewind(loader);
    assert_int_equal(epoch_read(order, loader), 100);
    kn_loader_destroy(loader);
}

static void made_up_images_are_the_same_every_time(void **state) {
    (void)state;
    static float kept[64 * 784];
    for (int round = 0; round < 2; round++) {
        kn_loader *loader = NULL;
        kn_batch b;
        assert_ok(kn_loader_create_synthetic(&loader, 640,
                                             &(kn_loader_options){.batch = 64, .split = KN_TEST}));
        assert_true(kn_loader_next(loader, &b));
        if (round == 0) memcpy(kept, kn_data(b.x), sizeof kept);
        assert_memory_equal(kept, kn_data(b.x), sizeof kept);
        const int64_t *y = kn_data(b.y);
        for (int i = 0; i < 64; i++) assert_int_equal(y[i], i % 10);
        kn_loader_destroy(loader);
    }
}

/* Steady state: the loader's batches are rewritten, nothing is allocated for them. */
static void next_allocates_nothing_after_the_first_batch(void **state) {
    (void)state;
    kn_pool *pool = kn_device_pool(kn_device_host());
    kn_pool_stats before, after;
    kn_loader *loader = NULL;
    kn_batch b;
    assert_ok(kn_loader_create_synthetic(&loader, 640, &(kn_loader_options){.batch = 64}));
    assert_true(kn_loader_next(loader, &b));
    kn_pool_stats_read(&before, sizeof before, pool);
    for (int i = 0; i < 9; i++) assert_true(kn_loader_next(loader, &b));
    kn_pool_stats_read(&after, sizeof after, pool);
    assert_int_equal(after.n_allocs, before.n_allocs);
    kn_loader_destroy(loader);
    kn_pool_stats_read(&after, sizeof after, pool);
    assert_int_equal(after.live_bytes, 0);
}

/* --- bad input --- */
static void assert_refused(const char *where, kn_loader_options options, kn_status want,
                           const char *text) {
    kn_loader *loader = NULL;
    assert_fails(kn_loader_create(&loader, where, &options), want, text);
    assert_null(loader);
}

static void a_missing_directory_names_the_package(void **state) {
    (void)state;
    assert_refused("/nonexistent/data", (kn_loader_options){0}, KN_ERR_IO, "/nonexistent/data");
    test_assert_message("apt-get install dataset-fashion-mnist", __FILE__, __LINE__);
}

static void a_directory_that_cannot_be_read_is_an_error(void **state) {
    (void)state;
    char path[2 * FILES_PATH_MAX];
    files_write(dir, "file", "x", 1, true);
    snprintf(path, sizeof path, "%s/file", dir);
    assert_refused(path, (kn_loader_options){0}, KN_ERR_IO, "Not a directory");
    snprintf(path, sizeof path, "%s/loop", dir);
    assert_int_equal(symlink(path, path), 0);
    assert_refused(path, (kn_loader_options){0}, KN_ERR_IO, "symbolic links");
    if (geteuid() != 0) return;
    assert_int_equal(seteuid(65534), 0); /* the directory is root's own, mode 700 */
    assert_refused(dir, (kn_loader_options){0}, KN_ERR_IO, "Permission denied");
    assert_int_equal(seteuid(0), 0);
}

static void images_without_labels_are_another_error_than_no_files(void **state) {
    (void)state;
    assert_refused(dir, (kn_loader_options){0}, KN_ERR_IO, "neither train-images-idx3-ubyte nor");
    assert_refused(dir, (kn_loader_options){0}, KN_ERR_IO, "gz exists. A folder of images has idx");
    test_assert_message("CIFAR's data_batch_1.bin ... or train.bin, or train/CLASS/IMAGE and",
                        __FILE__, __LINE__);
    char path[2 * FILES_PATH_MAX];
    files_dataset(dir, 20, true);
    snprintf(path, sizeof path, "%s/train-labels-idx1-ubyte.gz", dir);
    assert_int_equal(unlink(path), 0);
    assert_refused(dir, (kn_loader_options){0}, KN_ERR_IO, "has no file of labels");
}

static void a_pipe_is_not_a_file_of_images(void **state) {
    (void)state;
    char path[2 * FILES_PATH_MAX];
    files_dataset(dir, 20, false);
    snprintf(path, sizeof path, "%s/train-images-idx3-ubyte", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused(dir, (kn_loader_options){0}, KN_ERR_IO, "ubyte: not a regular file");
}

static void images_and_labels_must_agree_in_number(void **state) {
    (void)state;
    size_t size_bytes = 0;
    files_dataset(dir, 20, false);
    uint8_t *labels = files_idx(&size_bytes, 0x801, 1, (uint32_t[]){19});
    files_write(dir, "train-labels-idx1-ubyte", labels, size_bytes, true);
    free(labels);
    assert_refused(dir, (kn_loader_options){0}, KN_ERR_FORMAT, "has 20 images, but");
    test_assert_message("has 19 labels", __FILE__, __LINE__);
}

static void a_set_of_no_images_is_refused(void **state) {
    (void)state;
    files_dataset(dir, 0, false);
    assert_refused(dir, (kn_loader_options){0}, KN_ERR_FORMAT, "no pixels");
}

static void options_that_do_not_fit_are_refused_with_their_values(void **state) {
    (void)state;
    files_dataset(dir, 20, false);
    assert_refused(dir, (kn_loader_options){.batch = 21}, KN_ERR_INVALID,
                   "batch 21 of 1 rank: the data has only 20 samples; set a smaller .batch, or "
                   ".partial");
    assert_refused(dir, (kn_loader_options){.batch = -4}, KN_ERR_INVALID, "batch -4");
    assert_refused(dir, (kn_loader_options){.rank = 2, .n_ranks = 2}, KN_ERR_INVALID,
                   "rank 2 of 2");
    assert_refused(dir, (kn_loader_options){.rank = 1}, KN_ERR_INVALID,
                   "n_ranks 0: must be 1 or more; rank is 1");
    assert_refused(dir, (kn_loader_options){.reserved = {1}}, KN_ERR_INVALID, "reserved");
    kn_loader *loader = NULL;
    assert_fails(kn_loader_create_synthetic(&loader, 0, NULL), KN_ERR_INVALID, "0 made-up images");
}

/* An error on one rank alone would leave the others waiting. */
static void fewer_images_than_ranks_are_refused_by_all(void **state) {
    (void)state;
    files_dataset(dir, 6, false);
    for (int rank = 0; rank < 4; rank++)
        assert_refused(
            dir, (kn_loader_options){.split = KN_TEST, .rank = rank, .n_ranks = 4, .partial = 1},
            KN_ERR_INVALID, "batch 100 of 4 ranks: the data has only 3 samples");
}

int main(void) {
    return RUN_TESTS(
        IN_DIR(an_epoch_has_every_image_once_with_its_label),
        IN_DIR(batches_have_shape_dtype_and_values_in_0_to_1),
        IN_DIR(the_same_seed_gives_the_same_epochs_and_another_others),
        IN_DIR(the_test_split_keeps_its_order_and_its_last_batch),
        IN_DIR(ordered_batches_keep_the_order_of_the_data_and_their_place),
        TEST(ordered_images_change_in_each_epoch), IN_DIR(without_partial_the_rest_is_left_out),
        IN_DIR(a_set_smaller_than_a_batch_is_one_batch),
        IN_DIR(a_batch_takes_no_more_memory_than_the_data),
        IN_DIR(ranks_share_an_epoch_without_overlap), IN_DIR(ranks_share_all_images_of_a_test),
        IN_DIR(fewer_images_than_ranks_are_refused_by_all),
        IN_DIR(the_end_of_an_epoch_is_its_end_for_other_ranks), IN_DIR(an_epoch_can_be_left_early),
        TEST(made_up_images_are_the_same_every_time),
        TEST(next_allocates_nothing_after_the_first_batch),
        TEST(a_missing_directory_names_the_package),
        IN_DIR(a_directory_that_cannot_be_read_is_an_error),
        IN_DIR(images_without_labels_are_another_error_than_no_files),
        IN_DIR(a_pipe_is_not_a_file_of_images), IN_DIR(images_and_labels_must_agree_in_number),
        IN_DIR(a_set_of_no_images_is_refused),
        IN_DIR(options_that_do_not_fit_are_refused_with_their_values));
}
