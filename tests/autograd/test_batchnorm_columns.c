/* Batch norm of [B,C]: some columns at a time. Each has the bits that it has without the others. */
#include <knet/norm.h>

#include "autograd_test.h"

enum { COLUMNS = 1100, FIRST = 500, LAST = 1090, ROWS_MAX = 200 };

typedef struct results {
    float y[ROWS_MAX * COLUMNS], dx[ROWS_MAX * COLUMNS], dw[COLUMNS];
} results;

/* Of the columns first … last - 1 alone. */
static kn_status run(results *out, int64_t rows, int64_t first, int64_t last) {
    KN_TAPE(.threads = 3);
    const kn_batchnorm_options training = {.training = 1};
    kn_shape shape = KN_SHAPE(rows, COLUMNS);
    kn_tensor *all = kn_reshape(kn_sin(kn_linspace(0, 1e4, rows * COLUMNS)), shape);
    kn_tensor *g = kn_reshape(kn_cos(kn_linspace(0, 3e4, rows * COLUMNS)), shape), *d[2];
    kn_tensor *x = kn_slice(all, KN_SHAPE(0, first), KN_SHAPE(rows, last));
    kn_tensor *w = kn_slice(kn_linspace(1, 2, COLUMNS), KN_SHAPE(first), KN_SHAPE(last));
    kn_tensor *in[] = {kn_watch(x), kn_watch(w)};
    kn_tensor *y = kn_batchnorm(in[0], KN_NONE, KN_NONE, in[1], KN_NONE, &training);
    size_t one = sizeof(float) * (size_t)(last - first), bytes = one * (size_t)rows;
    KN_TRY(kn_copy_out(out->y, bytes, y));
    g = kn_slice(g, KN_SHAPE(0, first), KN_SHAPE(rows, last));
    KN_TRY(kn_gradients(d, kn_sum(kn_mul(y, g), KN_ALL, false), in, 2, NULL));
    KN_TRY(kn_copy_out(out->dx, bytes, d[0]));
    return kn_copy_out(out->dw, one, d[1]);
}

static void columns_are_normalized_one_like_another(void **state) {
    (void)state;
    static results all, part;
    static const int64_t rows[] = {5, 128, ROWS_MAX}; /* of one chunk, and of two */
    for (int i = 0; i < 3; i++) {
        assert_ok(run(&all, rows[i], 0, COLUMNS));
        assert_ok(run(&part, rows[i], FIRST, LAST));
        const size_t one = (LAST - FIRST) * sizeof(float);
        for (int64_t r = 0; r < rows[i]; r++) {
            const int64_t of_all = r * COLUMNS + FIRST, of_part = r * (LAST - FIRST);
            assert_memory_equal(all.y + of_all, part.y + of_part, one);
            assert_memory_equal(all.dx + of_all, part.dx + of_part, one);
        }
        assert_memory_equal(all.dw + FIRST, part.dw, one);
    }
}

int main(void) { return RUN_TESTS(OPS_TEST(columns_are_normalized_one_like_another)); }
