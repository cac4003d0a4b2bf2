/* The files that knet train writes while it trains. */
#include "checkpoint_dir.h"
#include "curves.h"
#include "test.h"
#include "train_files.h"

static int64_t epochs_of(const char *svg) {
    kn_epoch *epochs = NULL;
    int64_t n = kn__curves_read(&epochs, svg, INT64_MAX);
    free(epochs);
    return n;
}

/* The first epochs make a picture each; later ones a few for each doubling. */
static void curves_are_drawn_as_the_epochs_grow(void **state) {
    (void)state;
    enum { N = 1000 };
    kn__train_files files = {.curves = path, .title = "mlp"};
    int n_drawings = 0;
    assert_ok(kn__train_files_begin(&files));
    for (int64_t i = 1, before = 0; i <= N; i++) {
        kn__train_files_add(&files, &(kn_epoch){.index = i, .loss = 1.0 / (double)i});
        int64_t now = epochs_of(path);
        assert_true(now > i - 1 - i / 32);
        n_drawings += now != before;
        before = now;
    }
    assert_true(n_drawings < 160);
    kn__train_files_release(&files);
    assert_int_equal(epochs_of(path), N);
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(curves_are_drawn_as_the_epochs_grow)};
    return cmocka_run_group_tests_name("test_train_files", tests, dir_make, dir_remove);
}
