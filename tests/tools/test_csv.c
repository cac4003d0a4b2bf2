/* Targets of CSV files that are missing, and options that can't be. */
#include <knet/dataset.h>

#include "checkpoint_dir.h"

static const char *file(const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fputs(text, f) < 0, 0);
    assert_int_equal(fclose(f), 0);
    return path;
}

static void assert_csv_fails(const char *text, const kn_csv_options *o, kn_status want,
                             const char *message) {
    kn_dataset *data = NULL;
    assert_fails(kn_dataset_read_csv(&data, file(text), o), want, message);
    assert_null(data);
}

static void an_empty_class_is_an_error(void **state) {
    (void)state;
    const kn_csv_options first = {.target = 1, .missing = 1};
    assert_csv_fails("1,2,1\n3,4,\n5,6,0\n", NULL, KN_ERR_FORMAT,
                     "line 2, field 3: the target '' is a missing value: leave out its line");
    assert_csv_fails("1,2,cat\n3,4,\"\"\n", NULL, KN_ERR_FORMAT, "line 2, field 3: the target ''");
    assert_csv_fails("a,1\n  ,2\n", &first, KN_ERR_FORMAT, "line 2, field 1: the target '  '");
}

static void missing_numbers_are_no_classes(void **state) {
    (void)state;
    static const char *const texts[] = {"NA", " na ", "nan", "-NaN"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        kn_dataset *data = NULL;
        char text[64];
        snprintf(text, sizeof text, "1,0\n\n2,%s\n3,1\n4,nan\n", texts[i]);
        assert_csv_fails(text, NULL, KN_ERR_FORMAT, "line 3, field 2: the target '");
        assert_non_null(strstr(kn_last_error()->message, "is a missing value, as all others are"));
        snprintf(text, sizeof text, "1,0\n2,%s\n3,EU\n4,1\n", texts[i]);
        assert_ok(kn_dataset_read_csv(&data, file(text), NULL));
        assert_int_equal(kn_dataset_classes(data), 4);
        kn_dataset_destroy(data);
    }
    assert_csv_fails("1,NA\n2,NA\n", NULL, KN_ERR_FORMAT, "line 1, field 2: the target 'NA'");
}

static void flags_have_no_other_values(void **state) {
    (void)state;
    const struct {
        kn_csv_options o;
        const char *message;
    } wrong[] = {{{.missing = 2}, "kn_csv_options: missing is 2; 0 or 1 are possible"},
                 {{.missing = -1}, "missing is -1"},
                 {{.regression = 3}, "regression is 3"},
                 {{.no_target = -1}, "no_target is -1"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_csv_fails("1,2\n", &wrong[i].o, KN_ERR_INVALID, wrong[i].message);
}

#define IN_DIR(f) cmocka_unit_test_setup_teardown(f, dir_make, dir_remove)

int main(void) {
    return RUN_TESTS(IN_DIR(an_empty_class_is_an_error), IN_DIR(missing_numbers_are_no_classes),
                     IN_DIR(flags_have_no_other_values));
}
