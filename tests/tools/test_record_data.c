/* The data of the models: their defaults, tables of numbers. */
#include <knet/models.h>
#include <knet/sim.h>
#include <knet/tape.h>
#include <math.h>
#include <string.h>

#include "files_dir.h"
#include "small_models.h"
#include "test.h"

static char path[2 * FILES_PATH_MAX];

static const char *file(const char *name, const char *text) {
    snprintf(path, sizeof path, "%s/%s", dir, name);
    files_write(dir, name, text, strlen(text), true);
    return path;
}

/* --- default data --- */

static kn_device *device_without_memory(void) {
    kn_sim *sim = NULL;
    static kn_device *device;
    if (device) return device;
    assert_ok(kn_sim_create(&sim, NULL));
    assert_ok(kn_device_register(&device, "sim:data", kn_sim_driver(sim), sim));
    return device;
}

/* A model of images without a path of its own reads Fashion-MNIST. */
static void models_whose_default_is_fashion_mnist_take_its_images(void **state) {
    (void)state;
    int n = 0;
    KN_FRAME(.device = device_without_memory(), .record = KN_OFF);
    for (int i = 0; kn_model_kind_at(i); i++) {
        const kn_model_kind *kind = kn_model_kind_at(i);
        kn_params *params = NULL;
        kn_model *model = NULL;
        if (kind->facts->path || (kind->facts->made && !kind->facts->read)) continue;
        assert_ok(kn_params_create(&params, NULL));
        assert_ok(kn_model_create(&model, kind->name, params));
        const kn_batch batch = {.x = kn_zeros(KN_SHAPE(2, 1, 28, 28)), .n = 2};
        if (!kn_model_predict(model, &batch))
            fail_msg("%s: %s", kind->name, kn_last_error()->message);
        if (kn_model_is_classifier(model)) assert_int_equal(kind->facts->n_classes, 10);
        n++;
        kn_model_destroy(model);
        kn_params_destroy(params);
    }
    assert_true(n >= 5);
}

static void models_without_default_data_name_their_own(void **state) {
    (void)state;
    static const char *const names[] = {"resnet50", "vgg16", "mobilenet_v2", "densenet121_imagenet",
                                        "linear"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        kn_dataset *data = NULL;
        const kn_model_kind *kind = kn_model_kind_find(names[i]);
        assert_fails(kn_model_data_read(&data, kind, NULL, KN_TRAIN), KN_ERR_INVALID,
                     "has no default data; give a path; it is for ");
        assert_non_null(strstr(kn_last_error()->message, kind->facts->data));
    }
}

static void a_densenet_names_images_that_are_too_small(void **state) {
    (void)state;
    kn_params *params = NULL;
    kn_model *model = NULL;
    KN_FRAME(.device = device_without_memory(), .record = KN_OFF);
    assert_ok(kn_params_create(&params, NULL));
    assert_ok(kn_model_create(&model, "densenet121_imagenet", params));
    assert_null(kn_model_logits(model, kn_zeros(KN_SHAPE(2, 3, 29, 28))));
    assert_fails(
        kn_check(), KN_ERR_SHAPE,
        "densenet121: x is f32 [2,3,29,28]; expected [B,C,H,W] with H and W of 29 or more");
    assert_non_null(kn_model_logits(model, kn_zeros(KN_SHAPE(2, 3, 29, 29))));
    kn_model_destroy(model);
    kn_params_destroy(params);
}

/* --- tables --- */

enum { ROWS = 4, COLUMNS = 5 }; /* of the small model */
static const double table[ROWS][COLUMNS + 1] = {{0.00632, 18, 2.31, 0, 7, 24},
                                                {0.02731, 0, 7.07, 0, 7, 21.6},
                                                {0.02729, 0, 7.07, 0, 7, 34.7},
                                                {0.03237, 0, 2.18, 1, 7, 33.4}};

static const kn_model_kind *small_linear(void) {
    static small_model s;
    for (int i = 0; small_model_at(&s, i); i++)
        if (strcmp(s.kind.name, "linear") == 0) break;
    assert_string_equal(s.kind.name, "linear");
    return &s.kind;
}

/* Column j of the table, as Knet.jl's example has it; the last one is constant. */
static double normalized(int i, int j) {
    double mean = 0, squares = 0;
    for (int k = 0; k < ROWS; k++) mean += table[k][j] / ROWS;
    for (int k = 0; k < ROWS; k++) squares += pow(table[k][j] - mean, 2);
    return squares > 0 ? (table[i][j] - mean) / sqrt(squares / (ROWS - 1)) : 0;
}

static void assert_is_table(const char *at, kn_split split) {
    kn_dataset *data = NULL;
    const kn_model_kind *kind = small_linear();
    char what[64];
    assert_ok(kn_model_data_read(&data, kind, at, split));
    assert_int_equal(kn_dataset_size(data), ROWS);
    assert_int_equal(kn_dataset_shape(data).n_dims, 1);
    assert_int_equal(kn_dataset_shape(data).dim[0], COLUMNS);
    KN_FRAME(.record = KN_OFF);
    const float *x = kn_data(kn_dataset_x(data)), *y = kn_data(kn_dataset_y(data));
    assert_true(x && y);
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < COLUMNS; j++) {
            snprintf(what, sizeof what, "row %d, column %d", i, j);
            test_assert_close((double)x[i * COLUMNS + j], normalized(i, j), 1e-5, 1e-6, what,
                              __FILE__, __LINE__);
        }
        assert_true(y[i] == (float)table[i][COLUMNS]); /* not normalized */
    }
    kn_dataset_destroy(data);
}

static void a_table_has_blanks_or_commas_between_its_numbers(void **state) {
    (void)state;
    static const char *const texts[] = {
        /* UCI's */
        " 0.00632  18.00   2.310  0  7.0  24.00\n"
        " 0.02731   0.00   7.070  0  7.0  21.60\n"
        "\t0.02729\t0.00   7.070  0  7.0  34.70 \r\n\r\n"
        " 0.03237   0.00   2.180  1  7.0  33.40",
        "crim,zn,indus,chas,rm,medv\n0.00632,18,2.31,0,7,24\n0.02731,0,7.07,0,7,21.6\n"
        "0.02729, 0, 7.07, 0, 7, 34.7\n0.03237,0,2.18,1,7,33.4\n",
        /* scikit-learn's */
        "4,5,,,,\n\"CRIM\",\"ZN\",\"INDUS\",\"CHAS\",\"RM\",\"MEDV\"\n0.00632,18,2.31,0,7,24\n"
        "0.02731,0,7.07,0,7,21.6\n0.02729,0,7.07,0,7,34.7\n0.03237,0,2.18,1,7,33.4\n",
        "\xef\xbb\xbf 0.00632 18 2.31 0 7 24\n0.02731 0 7.07 0 7 21.6\n0.02729 0 7.07 0 7 34.7\n"
        "0.03237 0 2.18 1 7 33.4\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_is_table(file("housing.data", texts[i]), KN_TRAIN);
        assert_is_table(file("housing.data", texts[i]), KN_TEST); /* the record tests on all rows */
    }
}

static void a_wrong_table_is_named_with_its_place(void **state) {
    (void)state;
    static const struct {
        const char *text, *error;
    } wrong[] = {
        {"1 2 3 4 5\n6 7 8 9 10\n",
         "5 columns; expected 6, the last one the target (Boston housing"},
        {"1 2 3 4 5 6\n1 2 3 4 5\n", "line 2 has 5 fields, the first has 6"},
        {"1 2 3 4 5 6\n\n 1 2 three 4 5 6\n", "line 3, field 3: 'three' is not a number"},
        {"2,5,,,,\n1,2,3,4,5,6\n1,2,x,4,5,6\n", "line 3, field 3: 'x' is not a number"},
        {"", "the file has no rows"},
        {"1 2 3 4 5 6\n1 2 inf 4 5 6\n", "line 2, field 3: 'inf' is infinite"},
        {"1 2 3 4 5 6\n1 2 3 4 5 -Inf\n", "line 2, field 6: the target '-Inf' is infinite"},
        {"1 2 1e99 4 5 6\n", "line 1, field 3: '1e99' is beyond the range of f32"},
        {"1 nan 3 4 5 6\n", "line 1, field 2: 'nan' is a missing value: leave out its line"},
        {"1 2 3 4 5 6\n", "1 row; normalized columns want 2 or more"},
        {"1;2;3;4;5;6\n", "line 1 has no ','; fields are separated by ','"},
    };
    const kn_model_kind *kind = small_linear();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        kn_dataset *data = NULL;
        const char *at = file("wrong.data", wrong[i].text);
        assert_fails(kn_model_data_read(&data, kind, at, KN_TRAIN), KN_ERR_FORMAT, wrong[i].error);
        assert_non_null(strstr(kn_last_error()->message, "wrong.data: "));
        assert_null(strstr(kn_last_error()->message, "kn_csv_options"));
        assert_null(data);
    }
}

int main(void) {
    return RUN_TESTS(TEST(models_whose_default_is_fashion_mnist_take_its_images),
                     TEST(models_without_default_data_name_their_own),
                     TEST(a_densenet_names_images_that_are_too_small),
                     IN_DIR(a_table_has_blanks_or_commas_between_its_numbers),
                     IN_DIR(a_wrong_table_is_named_with_its_place));
}
