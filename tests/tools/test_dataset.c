/* Data sets of arrays, sequences and made-up samples, and loaders of them. */
#include <knet/data.h>
#include <knet/file.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files.h"
#include "main_end.h"
#include "test.h"

static kn_loader *loader_of(kn_dataset *data, kn_loader_options options) {
    kn_loader *loader = NULL;
    assert_ok(kn_loader_create_from(&loader, data, &options));
    kn_dataset_destroy(data); /* the loader has it */
    return loader;
}

/* n samples [2,3] of `dtype`, all elements of sample i are i, with labels i % 3. */
static kn_dataset *numbered(int64_t n, kn_dtype dtype) {
    kn_dataset *data = NULL;
    KN_FRAME();
    kn_tensor *i = kn_arange(0, (double)n, 1, KN_F32);
    kn_tensor *x = kn_mul(kn_reshape(i, KN_SHAPE(n, 1, 1)), kn_ones(KN_SHAPE(1, 2, 3)));
    kn_tensor *y = kn_remainder(i, kn_full(KN_SCALAR, 3));
    assert_ok(kn_dataset_create(&data, kn_cast(x, dtype), kn_cast(y, KN_I64), 0));
    return data;
}

static void arrays_of_any_dtype_become_batches(void **state) {
    (void)state;
    static const kn_dtype dtypes[] = {KN_F32, KN_F64, KN_I64, KN_I32, KN_U8};
    for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++) {
        kn_dataset *data = numbered(10, dtypes[k]);
        assert_int_equal(kn_dataset_size(data), 10);
        assert_int_equal(kn_dataset_classes(data), 3);
        assert_int_equal(kn_dataset_shape(data).dim[1], 3);
        kn_loader *loader = loader_of(data, (kn_loader_options){.batch = 4, .partial = 1});
        int seen = 0, n = 0;
        for (kn_batch b; kn_loader_next(loader, &b); n++) {
            KN_FRAME();
            assert_int_equal(kn_tensor_dtype(b.x), dtypes[k]);
            assert_int_equal(kn_tensor_shape(b.x).n_dims, 3);
            assert_int_equal(kn_tensor_shape(b.x).dim[0], n == 2 ? 2 : 4);
            const double *x = kn_data(kn_cast(b.x, KN_F64));
            const int64_t *y = kn_data(b.y);
            for (int i = 0; i < b.n; i++) {
                assert_close(x[i * 6], x[i * 6 + 5], 0, 0);
                assert_int_equal(y[i], (int64_t)x[i * 6] % 3);
                seen |= 1 << (int)x[i * 6];
            }
        }
        assert_ok(kn_check());
        assert_int_equal(seen, 1023);
        kn_loader_destroy(loader);
    }
}

/* n samples with the values of `x` and a label each. */
static uint64_t hash_of(const float x[], int64_t n, int64_t each, const int64_t labels[]) {
    kn_dataset *data = NULL;
    KN_FRAME();
    assert_ok(kn_dataset_create(&data, kn_tensor_from(x, KN_F32, KN_SHAPE(n, each)),
                                kn_tensor_from(labels, KN_I64, KN_SHAPE(n)), 10));
    uint64_t hash = kn_dataset_hash(data);
    kn_dataset_destroy(data);
    return hash;
}

static void other_data_has_another_hash(void **state) {
    (void)state;
    enum { N = 1000, EACH = 700 }; /* more than a MiB */
    static float x[N * EACH];
    int64_t labels[N] = {0};
    for (int i = 0; i < N * EACH; i++) x[i] = (float)i;
    uint64_t whole = hash_of(x, N, EACH, labels), small = hash_of(x, 10, EACH, labels);
    assert_int_equal(hash_of(x, N, EACH, labels), whole);
    assert_true(hash_of(x, EACH, N, labels) != whole);
    for (int i = 0; i < N; i += 111) { /* each label, and of a small set each number */
        labels[i] = 1;
        assert_true(hash_of(x, N, EACH, labels) != whole);
        labels[i] = 0;
    }
    x[5 * EACH + 3] += 1;
    assert_true(hash_of(x, 10, EACH, labels) != small);
    x[5 * EACH + 3] -= 1;
    for (int i = 0; i < N; i++) x[i * EACH + i % EACH] += 1; /* of a large one a part */
    assert_true(hash_of(x, N, EACH, labels) != whole);
}

/* Ten samples with y of these bytes. */
static uint64_t targets_hash(const void *bytes, kn_dtype dtype, kn_shape shape) {
    kn_dataset *data = NULL;
    KN_FRAME();
    assert_ok(
        kn_dataset_create(&data, kn_ones(KN_SHAPE(10)), kn_tensor_from(bytes, dtype, shape), 0));
    uint64_t hash = kn_dataset_hash(data);
    kn_dataset_destroy(data);
    return hash;
}

static void targets_of_another_form_have_another_hash(void **state) {
    (void)state;
    static const int32_t bytes[40];
    uint64_t whole = targets_hash(bytes, KN_F32, KN_SHAPE(10));
    assert_int_equal(targets_hash(bytes, KN_F32, KN_SHAPE(10)), whole);
    assert_true(targets_hash(bytes, KN_F32, KN_SHAPE(10, 1)) != whole);
    assert_true(targets_hash(bytes, KN_I32, KN_SHAPE(10)) != whole);
    assert_true(targets_hash(bytes, KN_F32, KN_SHAPE(10, 2, 2)) !=
                targets_hash(bytes, KN_F32, KN_SHAPE(10, 4)));
}

/* Of sequences too. */
static void a_part_has_the_hash_of_its_samples(void **state) {
    (void)state;
    static const int64_t values[] = {9, 9, 1, 2, 3, 4, 5, 6}, offset[] = {0, 2, 5, 5, 8};
    static const int64_t own[] = {0, 3, 3, 6}, other[] = {0, 2, 3, 6}, labels[] = {0, 1, 0, 1};
    kn_dataset *all = NULL, *part = NULL, *same = NULL, *longer = NULL;
    assert_ok(kn_dataset_create_sequences(&all, values, offset, 4, labels));
    assert_ok(kn_dataset_take(&part, all, 1, 3));
    assert_ok(kn_dataset_create_sequences(&same, values + 2, own, 3, labels + 1));
    assert_ok(kn_dataset_create_sequences(&longer, values + 2, other, 3, labels + 1));
    assert_int_equal(kn_dataset_hash(part), kn_dataset_hash(same));
    assert_true(kn_dataset_hash(part) != kn_dataset_hash(longer));
    assert_true(kn_dataset_hash(part) != kn_dataset_hash(all));
    kn_dataset_destroy(all);
    kn_dataset_destroy(part);
    kn_dataset_destroy(same);
    kn_dataset_destroy(longer);
}

static void samples_without_labels_have_no_y(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    kn_batch b;
    KN_FRAME();
    assert_ok(kn_dataset_create(&data, kn_ones(KN_SHAPE(3)), NULL, 0));
    kn_loader *loader = loader_of(data, (kn_loader_options){.batch = 3});
    assert_int_equal(kn_loader_classes(loader), 0);
    assert_true(kn_loader_next(loader, &b));
    assert_null(b.y);
    assert_int_equal(kn_tensor_shape(b.x).n_dims, 1);
    assert_null(kn_loader_lengths(loader));
    kn_loader_destroy(loader);
}

static void targets_may_have_any_shape(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    kn_batch b;
    KN_FRAME();
    kn_tensor *y = kn_reshape(kn_arange(0, 12, 1, KN_F32), KN_SHAPE(3, 2, 2));
    assert_ok(kn_dataset_create(&data, kn_arange(0, 3, 1, KN_F32), y, 0));
    kn_loader *loader = loader_of(data, (kn_loader_options){.batch = 3, .split = KN_TEST});
    assert_true(kn_loader_next(loader, &b));
    assert_int_equal(kn_tensor_shape(b.y).n_dims, 3);
    assert_memory_equal(kn_data(b.y), kn_data(y), 12 * sizeof(float));
    kn_loader_destroy(loader);
}

static void parts_share_the_samples(void **state) {
    (void)state;
    kn_dataset *all = numbered(10, KN_F32), *part = NULL, *inner = NULL, *none = NULL;
    kn_batch b;
    assert_ok(kn_dataset_take(&part, all, 2, 7));
    assert_ok(kn_dataset_take(&inner, part, 3, 4));
    assert_fails(kn_dataset_take(&none, part, 3, 5), KN_ERR_INVALID,
                 "5 samples from 3 on; there are 7");
    assert_fails(kn_dataset_take(&none, part, -1, 2), KN_ERR_INVALID, "from -1 on");
    kn_dataset_destroy(all);
    kn_dataset_destroy(part);
    kn_loader *loader = loader_of(inner, (kn_loader_options){.batch = 4, .split = KN_TEST});
    assert_true(kn_loader_next(loader, &b));
    assert_close(((const float *)kn_data(b.x))[0], 5, 0, 0);
    assert_int_equal(((const int64_t *)kn_data(b.y))[3], 8 % 3);
    kn_loader_destroy(loader);
}

static void a_part_has_the_length_of_its_own_longest_sequence(void **state) {
    (void)state;
    static const int64_t zeros[20], offset[] = {0, 15, 17, 20};
    kn_dataset *all = NULL, *part = NULL;
    assert_ok(kn_dataset_create_sequences(&all, zeros, offset, 3, NULL));
    assert_ok(kn_dataset_take(&part, all, 1, 2));
    assert_int_equal(kn_dataset_shape(all).dim[0], 15);
    assert_int_equal(kn_dataset_shape(part).dim[0], 3);
    kn_dataset_destroy(part);
    kn_dataset_destroy(all);
}

static void wrong_arrays_are_errors_with_their_shapes(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(4, 2));
    assert_fails(kn_dataset_create(&data, x, kn_ones(KN_SHAPE(3)), 0), KN_ERR_SHAPE,
                 "x [4,2], y [3]");
    assert_fails(kn_dataset_create(&data, kn_ones(KN_SCALAR), NULL, 0), KN_ERR_SHAPE, "x []");
    kn_tensor *labels = kn_cast(kn_zeros(KN_SHAPE(4)), KN_I64);
    assert_fails(kn_dataset_create(&data, x, labels, -5), KN_ERR_INVALID, "n_classes -5");
    assert_fails(kn_dataset_create(&data, kn_ones(KN_SHAPE(0, 2)), NULL, 0), KN_ERR_SHAPE, "[0,2]");
    kn_tensor *y = kn_cast(kn_arange(0, 4, 1, KN_F32), KN_I64);
    assert_fails(kn_dataset_create(&data, x, y, 3), KN_ERR_INVALID,
                 "label 3 of sample 3; it must be from 0 to 2");
    assert_fails(kn_dataset_create(&data, x, kn_neg(y), 0), KN_ERR_INVALID, "label -1 of sample 1");
    assert_fails(kn_dataset_create_sequences(&data, (const int64_t[]){1}, (const int64_t[]){0, 1},
                                             1, (const int64_t[]){INT64_MAX}),
                 KN_ERR_INVALID,
                 "label 9223372036854775807 of sample 0; it must be from 0 to 9223372036854775806");
}

/* --- sequences --- */

static const int64_t values[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
static const int64_t offsets[] = {0, 2, 2, 7, 9};
static const int64_t labels[] = {0, 1, 1, 0};

static void sequences_are_padded_to_the_longest_of_a_batch(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    kn_batch b;
    assert_ok(kn_dataset_create_sequences(&data, values, offsets, 4, labels));
    assert_true(kn_dataset_is_sequence(data));
    assert_int_equal(kn_dataset_shape(data).dim[0], 5);
    kn_loader *loader = loader_of(data, (kn_loader_options){.batch = 2, .split = KN_TEST});
    assert_true(kn_loader_next(loader, &b));
    assert_int_equal(kn_tensor_shape(b.x).dim[0], 2);
    assert_int_equal(kn_tensor_shape(b.x).dim[1], 2);
    assert_memory_equal(kn_data(b.x), ((int64_t[]){1, 2, 0, 0}), 4 * sizeof(int64_t));
    assert_memory_equal(kn_loader_lengths(loader), ((int64_t[]){2, 0}), 2 * sizeof(int64_t));
    assert_true(kn_loader_next(loader, &b));
    assert_int_equal(kn_tensor_shape(b.x).dim[1], 5);
    assert_memory_equal(kn_data(b.x), ((int64_t[]){3, 4, 5, 6, 7, 8, 9, 0, 0, 0}),
                        10 * sizeof(int64_t));
    assert_memory_equal(kn_data(b.y), labels + 2, 2 * sizeof(int64_t));
    kn_loader_destroy(loader);
}

static void packed_sequences_follow_each_other(void **state) {
    (void)state;
    kn_dataset *data = NULL, *part = NULL;
    kn_batch b;
    assert_ok(kn_dataset_create_sequences(&data, values, offsets, 4, NULL));
    assert_ok(kn_dataset_take(&part, data, 1, 3));
    kn_dataset_destroy(data);
    kn_loader *loader =
        loader_of(part, (kn_loader_options){.batch = 3, .split = KN_TEST, .packed = 1});
    assert_true(kn_loader_next(loader, &b));
    assert_int_equal(kn_tensor_shape(b.x).n_dims, 1);
    assert_int_equal(kn_tensor_numel(b.x), 7);
    assert_memory_equal(kn_data(b.x), values + 2, 7 * sizeof(int64_t));
    assert_memory_equal(kn_loader_lengths(loader), ((int64_t[]){0, 5, 2}), 3 * sizeof(int64_t));
    kn_loader_destroy(loader);
}

static void wrong_sequences_are_errors(void **state) {
    (void)state;
    kn_dataset *data = numbered(4, KN_F32);
    kn_loader *loader = NULL;
    assert_fails(
        kn_loader_create_from(&loader, data, &(kn_loader_options){.batch = 2, .packed = 1}),
        KN_ERR_INVALID, "the data has no sequences");
    kn_dataset_destroy(data);
    const int64_t falling[] = {0, 4, 3}, late[] = {1, 2, 3};
    assert_fails(kn_dataset_create_sequences(&data, values, falling, 2, NULL), KN_ERR_INVALID,
                 "offset 3 of sequence 2 is before 4");
    assert_fails(kn_dataset_create_sequences(&data, values, late, 2, NULL), KN_ERR_INVALID,
                 "offset[0] is 1; it must be 0");
    assert_fails(kn_dataset_create_sequences(&data, NULL, (int64_t[]){0, 3}, 1, NULL),
                 KN_ERR_INVALID, "values is NULL, but the offsets end with 3");
}

/* --- cycling, taking, prefetching --- */

static void a_cycle_goes_on_with_the_next_epoch(void **state) {
    (void)state;
    kn_loader *loader = loader_of(numbered(6, KN_F32), (kn_loader_options){.batch = 2});
    int seen[6] = {0};
    kn_batch b;
    for (int i = 0; i < 9; i++) {
        assert_true(kn_loader_cycle(loader, &b));
        assert_int_equal(b.index, i % 3);
        for (int k = 0; k < 2; k++) seen[(int)((const float *)kn_data(b.x))[k * 6]]++;
    }
    for (int i = 0; i < 6; i++) assert_int_equal(seen[i], 3);
    kn_loader_destroy(loader);
}

static void taking_shortens_epochs(void **state) {
    (void)state;
    kn_loader *loader = loader_of(numbered(12, KN_F32), (kn_loader_options){.batch = 2});
    kn_batch b;
    kn_loader_take(loader, 2);
    assert_int_equal(kn_loader_batches(loader), 2);
    int n = 0;
    while (kn_loader_next(loader, &b)) n++;
    assert_int_equal(n, 2);
    kn_loader_take(loader, 0);
    assert_int_equal(kn_loader_batches(loader), 6);
    kn_loader_take(loader, 100);
    assert_int_equal(kn_loader_batches(loader), 6);
    kn_loader_destroy(loader);
}

static void taking_leaves_the_epoch_that_runs(void **state) {
    (void)state;
    kn_loader *loader = loader_of(numbered(12, KN_F32), (kn_loader_options){.batch = 2});
    kn_loader_place place;
    kn_batch b;
    int n = 0;
    for (int i = 0; i < 3; i++) assert_true(kn_loader_next(loader, &b));
    kn_loader_take(loader, 2);
    assert_ok(kn_loader_place_get(&place, loader));
    assert_ok(kn_loader_place_set(loader, &place));
    while (kn_loader_next(loader, &b)) n++;
    assert_int_equal(n, 3);
    while (kn_loader_next(loader, &b)) n++;
    assert_int_equal(n, 5);
    assert_fails(kn_loader_place_set(loader, &place), KN_ERR_INVALID, "the place is batch 3 of 2");
    kn_loader_destroy(loader);
}

static int batches_read(float *out, kn_loader *loader, int n) {
    int at = 0;
    kn_batch b;
    for (int i = 0; i < n && kn_loader_cycle(loader, &b); i++)
        for (int k = 0; k < b.n; k++) out[at++] = ((const float *)kn_data(b.x))[k * 6];
    assert_ok(kn_check());
    return at;
}

/* The thread changes no batch, whatever is done in between. */
static void a_prefetching_loader_gives_the_same_batches(void **state) {
    (void)state;
    static float a[4000], b[4000];
    for (int partial = 0; partial < 2; partial++) {
        kn_loader_options o = {.batch = 7, .seed = 4, .partial = partial};
        kn_loader *plain = loader_of(numbered(50, KN_F32), o);
        o.prefetch = 1;
        kn_loader *ahead = loader_of(numbered(50, KN_F32), o);
        kn_loader_place place;
        int n = batches_read(a, plain, 23);
        assert_int_equal(batches_read(b, ahead, 23), n);
        assert_memory_equal(a, b, (size_t)n * sizeof *a);
        assert_ok(kn_loader_place_get(&place, ahead));
        n = batches_read(a, plain, 5);
        assert_int_equal(batches_read(b, ahead, 3) > 0, 1);
        assert_ok(kn_loader_place_set(ahead, &place));
        assert_int_equal(batches_read(b, ahead, 5), n);
        assert_memory_equal(a, b, (size_t)n * sizeof *a);
        kn_loader_rewind(plain);
        kn_loader_rewind(ahead);
        n = batches_read(a, plain, 9);
        assert_int_equal(batches_read(b, ahead, 9), n);
        assert_memory_equal(a, b, (size_t)n * sizeof *a);
        kn_loader_destroy(plain);
        kn_loader_destroy(ahead);
    }
}

/* --- augmentation --- */

/* Images [1,5,4] whose pixels are all different. */
static kn_dataset *ramp(void) {
    kn_dataset *data = NULL;
    KN_FRAME();
    kn_tensor *x = kn_reshape(kn_arange(1, 21, 1, KN_F32), KN_SHAPE(1, 1, 5, 4));
    assert_ok(kn_dataset_create(&data, kn_tile(x, KN_SHAPE(64, 1, 1, 1)), NULL, 0));
    return data;
}

/* How the image was moved and mirrored; false: it is no such image. */
static bool is_moved(const float *image, int dx, int dy, bool flip) {
    for (int y = 0; y < 5; y++)
        for (int x = 0; x < 4; x++) {
            int from_y = y + dy, from_x = (flip ? 3 - x : x) + dx;
            bool inside = from_y >= 0 && from_y < 5 && from_x >= 0 && from_x < 4;
            if (image[y * 4 + x] != (inside ? (float)(from_y * 4 + from_x + 1) : 0)) return false;
        }
    return true;
}

static void images_are_moved_and_mirrored(void **state) {
    (void)state;
    int seen[3][3][2] = {{{0}}};
    kn_batch b;
    kn_loader *loader = loader_of(
        ramp(), (kn_loader_options){.batch = 32, .augment = &(kn_augment){.flip = 1, .crop = 1}});
    for (int batch = 0; batch < 8; batch++) {
        assert_true(kn_loader_cycle(loader, &b));
        for (int i = 0; i < 32; i++) {
            const float *image = (const float *)kn_data(b.x) + i * 20;
            int n = 0;
            for (int k = 0; k < 18; k++) {
                int dx = k / 2 % 3 - 1, dy = k / 6 - 1;
                if (!is_moved(image, dx, dy, k % 2)) continue;
                seen[dx + 1][dy + 1][k % 2]++;
                n++;
            }
            assert_int_equal(n, 1);
        }
    }
    for (int k = 0; k < 18; k++) assert_true(seen[k / 2 % 3][k / 6][k % 2] > 0);
    kn_loader_destroy(loader);
}

/* Were the moves of a sample those of the one before, 639 of the 640 would be equal. */
static void neighbouring_samples_move_independently(void **state) {
    (void)state;
    enum { N = 640, EQUAL_MAX = N / 3 + 80 }; /* by chance a third, give or take 12 */
    static int move[N][2];                    /* dx, dy */
    int n = 0, equal[2][2] = {{0}};
    kn_loader *loader = loader_of(
        ramp(), (kn_loader_options){.batch = 64, .augment = &(kn_augment){.flip = 1, .crop = 1}});
    for (kn_batch b; n < N && kn_loader_cycle(loader, &b);)
        for (int i = 0; i < b.n; i++, n++)
            for (int k = 0; k < 18; k++) {
                int dx = k / 2 % 3 - 1, dy = k / 6 - 1;
                if (!is_moved((const float *)kn_data(b.x) + i * 20, dx, dy, k % 2)) continue;
                memcpy(move[n], (int[]){dx, dy}, sizeof move[n]);
            }
    for (int i = 1; i < n; i++)
        for (int k = 0; k < 4; k++) equal[k / 2][k % 2] += move[i - 1][k / 2] == move[i][k % 2];
    for (int k = 0; k < 4; k++) assert_true(equal[k / 2][k % 2] < EQUAL_MAX);
    kn_loader_destroy(loader);
}

static void augmentation_follows_from_the_seed_and_spares_tests(void **state) {
    (void)state;
    const kn_augment augment = {.flip = 1, .crop = 2};
    kn_batch a, b;
    kn_loader *one = loader_of(ramp(), (kn_loader_options){.batch = 16, .augment = &augment});
    kn_loader *two =
        loader_of(ramp(), (kn_loader_options){.batch = 16, .augment = &augment, .prefetch = 1});
    kn_loader *test =
        loader_of(ramp(), (kn_loader_options){.batch = 16, .augment = &augment, .split = KN_TEST});
    static float first[16 * 20];
    for (int i = 0; i < 9; i++) {
        assert_true(kn_loader_cycle(one, &a) && kn_loader_cycle(two, &b));
        assert_memory_equal(kn_data(a.x), kn_data(b.x), sizeof first);
        if (i == 0) memcpy(first, kn_data(a.x), sizeof first);
        if (i == 4) assert_memory_not_equal(first, kn_data(a.x), sizeof first); /* epoch 2 */
    }
    assert_true(kn_loader_next(test, &b));
    assert_true(is_moved(kn_data(b.x), 0, 0, false));
    kn_loader_destroy(one);
    kn_loader_destroy(two);
    kn_loader_destroy(test);
    kn_dataset *data = numbered(4, KN_F32);
    assert_fails(
        kn_loader_create_from(&one, data, &(kn_loader_options){.augment = &augment, .batch = 2}),
        KN_ERR_INVALID, "samples are f32 [2,3]; images are f32 [C,H,W]");
    kn_dataset_destroy(data);
    data = ramp();
    assert_fails(
        kn_loader_create_from(
            &one, data, &(kn_loader_options){.augment = &(kn_augment){.crop = 4}, .batch = 2}),
        KN_ERR_INVALID, "crop 4; images have 5x4 pixels");
    kn_dataset_destroy(data);
}

/* --- made up, files --- */

static void made_up_samples_have_any_shape(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    kn_batch b;
    kn_synthetic_options o = {.shape = KN_SHAPE(3, 4), .n_classes = 4, .words = 50};
    assert_ok(kn_dataset_create_synthetic(&data, 20, &o));
    kn_loader *loader = loader_of(data, (kn_loader_options){.batch = 20, .split = KN_TEST});
    assert_true(kn_loader_next(loader, &b));
    const int64_t *x = kn_data(b.x);
    for (int i = 0; i < 240; i++) assert_true(x[i] >= 0 && x[i] < 50);
    assert_int_equal(((const int64_t *)kn_data(b.y))[7], 3);
    kn_loader_destroy(loader);
    o.words = 0;
    assert_ok(kn_dataset_create_synthetic(&data, 20, &o));
    loader = loader_of(data, (kn_loader_options){.batch = 20, .split = KN_TEST});
    assert_true(kn_loader_next(loader, &b));
    const float *u = kn_data(b.x);
    for (int i = 0; i < 240; i++) assert_true(u[i] >= 0 && u[i] <= 1);
    for (int i = 0; i < 12; i++) assert_close(u[i], u[4 * 12 + i], 0, 0.31); /* of one class */
    kn_loader_destroy(loader);
    assert_fails(
        kn_dataset_create_synthetic(&data, 20, &(kn_synthetic_options){.shape = KN_SHAPE(0)}),
        KN_ERR_INVALID, "shape [0]");
    for (int n_dims = -1; n_dims <= KN_DIMS_MAX; n_dims += KN_DIMS_MAX + 1)
        assert_fails(
            kn_dataset_create_synthetic(
                &data, 20, &(kn_synthetic_options){.shape = {.n_dims = n_dims, .dim = {1}}}),
            KN_ERR_INVALID, "dimensions: 0 to 7 are possible");
    assert_fails(kn_dataset_create_synthetic(
                     &data, 20, &(kn_synthetic_options){.shape = KN_SHAPE(2), .split = 9}),
                 KN_ERR_INVALID, "split 9: must be KN_TRAIN or KN_TEST");
}

/* The child has no thread that fills batches. */
static void a_prefetching_loader_works_in_a_child_of_fork(void **state) {
    (void)state;
    kn_batch b;
    kn_loader *loader =
        loader_of(numbered(100, KN_F32), (kn_loader_options){.batch = 10, .prefetch = 1});
    assert_true(kn_loader_next(loader, &b));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20);
        int n = 1;
        uint64_t seen = 0;
        for (; kn_loader_next(loader, &b); n++)
            for (int i = 0; i < b.n; i++)
                seen += (uint64_t)((const float *)kn_data(b.x))[(size_t)i * 6];
        kn_loader_destroy(loader);
        _exit(n == 10 && seen > 0 && kn_check() == KN_OK ? 0 : 1);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
    kn_loader_destroy(loader);
}

static void the_thread_of_a_loader_keeps_no_process(void **state) {
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        kn_batch b;
        end_in_a_minute();
        kn_loader *loader =
            loader_of(numbered(100, KN_F32), (kn_loader_options){.batch = 10, .prefetch = 1});
        if (!kn_loader_next(loader, &b)) _exit(1);
        pthread_exit(NULL);
    }
    int how = -1;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
}

static void arrays_of_files_become_samples(void **state) {
    (void)state;
    char dir[FILES_PATH_MAX], path[2 * FILES_PATH_MAX];
    kn_dataset *data = NULL;
    files_dir_make(dir);
    snprintf(path, sizeof path, "%s/data.npz", dir);
    {
        KN_FRAME();
        kn_tensor *column = kn_reshape(kn_arange(0, 4, 1, KN_F32), KN_SHAPE(4, 1));
        kn_named named[2] = {{"images", kn_ones(KN_SHAPE(4, 2))}, {"labels", NULL}};
        named[1].tensor = kn_cast(column, KN_U8);
        assert_ok(kn_npz_save(path, named, 2, NULL));
    }
    assert_ok(kn_dataset_read_npz(&data, path, "images", "labels"));
    assert_int_equal(kn_dataset_classes(data), 4);
    kn_dataset_destroy(data);
    assert_fails(kn_dataset_read_npz(&data, path, "images", "targets"), KN_ERR_INVALID,
                 "no tensor 'targets'");
    assert_fails(kn_dataset_read_npz(&data, "/nonexistent.npz", "x", NULL), KN_ERR_IO,
                 "/nonexistent.npz");
    files_remove(dir);
}

static void labels_of_files_have_any_integer_dtype(void **state) {
    (void)state;
    static const char header[] =
        "{\"x\":{\"dtype\":\"F32\",\"shape\":[3,1],\"data_offsets\":[0,12]},"
        "\"y\":{\"dtype\":\"U16\",\"shape\":[3,1],\"data_offsets\":[12,18]}}";
    enum { N = sizeof header - 1 };
    char dir[FILES_PATH_MAX], path[2 * FILES_PATH_MAX];
    uint8_t bytes[8 + N + 18] = {N};
    kn_dataset *data = NULL;
    memcpy(bytes + 8, header, N);
    memcpy(bytes + 8 + N + 12, "\0\0\x90\1\2\0", 6); /* 0, 400, 2 */
    files_dir_make(dir);
    files_write(dir, "data.st", bytes, sizeof bytes, true);
    snprintf(path, sizeof path, "%s/data.st", dir);
    assert_ok(kn_dataset_read_npz(&data, path, "x", "y"));
    assert_int_equal(kn_dataset_classes(data), 401);
    kn_dataset_destroy(data);
    files_remove(dir);
}

int main(void) {
    return RUN_TESTS(
        TEST(arrays_of_any_dtype_become_batches), TEST(other_data_has_another_hash),
        TEST(targets_of_another_form_have_another_hash), TEST(a_part_has_the_hash_of_its_samples),
        TEST(samples_without_labels_have_no_y), TEST(targets_may_have_any_shape),
        TEST(parts_share_the_samples), TEST(wrong_arrays_are_errors_with_their_shapes),
        TEST(sequences_are_padded_to_the_longest_of_a_batch),
        TEST(packed_sequences_follow_each_other), TEST(wrong_sequences_are_errors),
        TEST(a_cycle_goes_on_with_the_next_epoch), TEST(taking_shortens_epochs),
        TEST(taking_leaves_the_epoch_that_runs), TEST(a_prefetching_loader_gives_the_same_batches),
        TEST(images_are_moved_and_mirrored), TEST(neighbouring_samples_move_independently),
        TEST(augmentation_follows_from_the_seed_and_spares_tests),
        TEST(a_part_has_the_length_of_its_own_longest_sequence),
        TEST(a_prefetching_loader_works_in_a_child_of_fork),
        TEST_LONG(the_thread_of_a_loader_keeps_no_process), TEST(made_up_samples_have_any_shape),
        TEST(arrays_of_files_become_samples), TEST(labels_of_files_have_any_integer_dtype));
}
