#include "host/base/loops.h"
#include "kernels_test.h"

/* Of a matrix that may be transposed: element (row, column) is at row·rows + column·columns. */
typedef struct matrix {
    double *at;
    int64_t rows, columns;
} matrix;

static matrix matrix_of(kn_tensor *t, bool transposed) {
    int64_t columns = kn_tensor_shape(t).dim[1];
    return (matrix){doubles_of(t), transposed ? 1 : columns, transposed ? columns : 1};
}

static void check_product(kn_tensor *c, kn_tensor *a, kn_tensor *b, const kn_attr_matmul *t,
                          double before) {
    kn_shape shape = kn_tensor_shape(c), a_shape = kn_tensor_shape(a);
    int64_t k = a_shape.dim[t->trans_a ? 0 : 1];
    double tol = tolerance(kn_tensor_dtype(a)) * sqrt((double)k);
    matrix x = matrix_of(a, t->trans_a), y = matrix_of(b, t->trans_b);
    for (int64_t i = 0; i < shape.dim[0]; i++)
        for (int64_t j = 0; j < shape.dim[1]; j++) {
            const double *row = x.at + i * x.rows, *column = y.at + j * y.columns;
            double sum = before;
            for (int64_t l = 0; l < k; l++) sum += row[l * x.columns] * column[l * y.rows];
            assert_close(ops_at(c, i * shape.dim[1] + j), sum, tol, tol);
        }
    free(x.at);
    free(y.at);
}

static void one_product(kn_dtype dtype, int64_t m, int64_t n, int64_t k) {
    for (int way = 0; way < 4; way++) {
        KN_FRAME();
        kn_attr_matmul t = {way & 1, way & 2};
        kn_tensor *a = random_tensor(dtype, t.trans_a ? KN_SHAPE(k, m) : KN_SHAPE(m, k));
        kn_tensor *b = random_tensor(dtype, t.trans_b ? KN_SHAPE(n, k) : KN_SHAPE(k, n));
        kn_tensor *c = op_matmul_trans(a, b, t.trans_a, t.trans_b, NULL);
        assert_non_null(c);
        check_product(c, a, b, &t, 0);
        double *seven = malloc((size_t)(m * n) * sizeof *seven);
        for (int64_t i = 0; i < m * n; i++) seven[i] = 7;
        kn_tensor *into = from_doubles(seven, dtype, KN_SHAPE(m, n));
        free(seven);
        assert_ptr_equal(op_matmul_trans(a, b, t.trans_a, t.trans_b, into), into);
        check_product(into, a, b, &t, 7);
    }
}

static void products_of_odd_shapes_match_the_reference(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype)
    for (int i = 0; i < 12; i++) one_product(dtype, odd_size(), odd_size(), odd_size());
}

static void products_of_one_column_row_and_step_match(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        one_product(dtype, 1, 1, 1);
        one_product(dtype, 1, 70, 300);
        one_product(dtype, 70, 1, 300);
        one_product(dtype, 33, 65, 1);
    }
}

static void a_long_sum_into_a_small_result_matches(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) one_product(dtype, 5, 6, 9001);
}

static void a_product_cut_into_tiles_matches(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) one_product(dtype, 150, 200, 130);
}

/* Rows of b that begin 4096 bytes apart are copied for the tiles. Sums of whole numbers are exact.
 */
static void columns_copied_for_tiles_match(void **state) {
    (void)state;
    KN_FRAME(.threads = 3);
    kn_tensor *a = kn_round(kn_affine(random_tensor(KN_F32, KN_SHAPE(601, 523)), 8, 0));
    kn_tensor *b = kn_round(kn_affine(random_tensor(KN_F32, KN_SHAPE(523, 1024)), 8, 0));
    kn_tensor *wide = kn_matmul(kn_cast(a, KN_F64), kn_cast(b, KN_F64), NULL);
    assert_same_bits(kn_cast(kn_matmul(a, b, NULL), KN_F64), wide);
}

/* 129 rows in two tiles, 65 and 64: with a transposed b, the library computes the first, our loops
 * the second. */
static void tiles_that_multiply_in_two_ways_match(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) one_product(dtype, 129, 40, 200);
}

/* Most bytes that live while a linear layer runs, beyond its operands. */
static uint64_t bytes_of_linear(int64_t rows, int64_t inputs, int64_t outputs) {
    KN_FRAME(.threads = 1);
    kn_pool *pool = kn_device_pool(kn_device_host());
    kn_tensor *x = random_tensor(KN_F32, KN_SHAPE(rows, inputs));
    kn_tensor *w = random_tensor(KN_F32, KN_SHAPE(outputs, inputs));
    kn_tensor *b = random_tensor(KN_F32, KN_SHAPE(outputs));
    kn_pool_stats before, after;
    kn_pool_stats_read(&before, sizeof before, pool);
    kn_pool_peaks_reset(pool);
    assert_non_null(kn_linear(x, w, b));
    kn_pool_stats_read(&after, sizeof after, pool);
    return after.live_bytes_max - before.live_bytes;
}

static void linear_layers_take_no_work_space(void **state) {
    (void)state;
    assert_true(bytes_of_linear(100, 784, 10) < 2 * 100 * 10 * 4);
    assert_true(bytes_of_linear(64, 300, 64) < 2 * 64 * 64 * 4);
    assert_true(bytes_of_linear(100, 784, 500) < 2 * 100 * 500 * 4);
}

/* Few columns: rows of a are read in place, in tiles of 14, 6 or 4 and what remains, and a sum over
 * more than one block of k. */
static void products_of_few_columns_match(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        one_product(dtype, 16, 2, 300);
        one_product(dtype, 45, 10, 513);
        one_product(dtype, 33, 127, 40);
        one_product(dtype, 90, 64, 700);
    }
}

/* Up to four columns and steps are multiplied by loops of those sizes. */
static void narrow_products_match(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype)
    for (int n = 1; n <= 5; n++)
        for (int k = 1; k <= 5; k++) {
            one_product(dtype, 1, n, k);
            one_product(dtype, 37, n, k);
        }
}

static void products_with_a_vector_match(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        one_product(dtype, 1, 2100, 37);
        one_product(dtype, 1031, 1, 37);
        one_product(dtype, 7, 1, 3);
        one_product(dtype, 1, 7, 16);
    }
}

/* Whether the batch is one run of matrices, or many short ones, or one of a shared matrix. */
static void a_product_of_a_batch_has_the_bits_of_its_own(void **state) {
    (void)state;
    static const kn_matmul_options ways[] = {{.trans_a = 0}, {.trans_a = 1}, {.trans_b = 1}};
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) FOR_BOTH_DTYPES(dtype) {
            KN_FRAME(.threads = 3);
            kn_tensor *a = random_tensor(dtype, KN_SHAPE(70, 1, 3, 3));
            kn_tensor *b = random_tensor(dtype, KN_SHAPE(300, 3, 3));
            kn_tensor *all = kn_matmul(a, b, &ways[w]);
            assert_shape(all, KN_SHAPE(70, 300, 3, 3));
            for (int64_t i = 0; i < 70; i += 23)
                for (int64_t j = 0; j < 300; j += 37) {
                    kn_tensor *one = kn_matmul(kn_select(kn_select(a, i, 0), 0, 0),
                                               kn_select(b, j, 0), &ways[w]);
                    assert_same_bits(kn_select(kn_select(all, i, 0), j, 0), one);
                }
        }
}

static void long_rows_of_a_power_of_two_match(void **state) {
    (void)state;
    one_product(KN_F32, 70, 1024, 65);
    one_product(KN_F32, 2, 1024, 5);
    one_product(KN_F32, 1, 1024, 5);
}

static void check_linear(kn_dtype dtype, int64_t inputs) {
    KN_FRAME();
    kn_tensor *x = random_tensor(dtype, KN_SHAPE(4, 25, inputs));
    kn_tensor *w = random_tensor(dtype, KN_SHAPE(70, inputs));
    kn_tensor *b = random_tensor(dtype, KN_SHAPE(70));
    kn_tensor *y = kn_linear(x, w, b), *plain = kn_linear(x, w, KN_NONE);
    assert_shape(y, KN_SHAPE(4, 25, 70));
    for (int64_t i = 0; i < kn_tensor_numel(y); i++)
        assert_close(ops_at(y, i), ops_at(plain, i) + ops_at(b, i % 70), 1e-5, 1e-5);
    check_product(kn_reshape(plain, KN_SHAPE(100, 70)), kn_reshape(x, KN_SHAPE(100, inputs)), w,
                  &(kn_attr_matmul){false, true}, 0);
}

static void linear_adds_the_bias_to_each_row(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        check_linear(dtype, 300);
        check_linear(dtype, 1); /* without a bias, an outer product */
    }
}

static void the_number_of_threads_changes_no_bit(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {{100, 64, 784},  {64, 784, 100}, {20, 25, 9000},
                                        {301, 203, 151}, {1, 500, 900},  {90, 2048, 40}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) FOR_BOTH_DTYPES(dtype) {
            KN_FRAME();
            kn_tensor *a = random_tensor(dtype, KN_SHAPE(shapes[s][0], shapes[s][2]));
            kn_tensor *b = random_tensor(dtype, KN_SHAPE(shapes[s][1], shapes[s][2]));
            kn_tensor *one, *four;
            {
                KN_FRAME(.threads = 1);
                one = kn_keep(op_matmul_trans(a, b, false, true, NULL));
            }
            {
                KN_FRAME(.threads = 4);
                four = kn_keep(op_matmul_trans(a, b, false, true, NULL));
            }
            assert_same_bits(one, four);
        }
}

static void operands_may_start_at_any_element(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME();
        kn_tensor *a = random_tensor(dtype, KN_SHAPE(41, 67));
        kn_tensor *b = random_tensor(dtype, KN_SHAPE(68, 35));
        kn_tensor *a1 = kn_slice(a, KN_SHAPE(1, 0), KN_SHAPE(41, 67));
        kn_tensor *b1 = kn_slice(b, KN_SHAPE(1, 0), KN_SHAPE(68, 35));
        check_product(kn_matmul(a1, b1, NULL), a1, b1, &(kn_attr_matmul){false, false}, 0);
    }
}

static void each_instruction_set_fills_its_whole_tile(void **state) {
    (void)state;
    int n_found = 0;
    for (int isa = 2; isa <= 4; isa++) FOR_BOTH_DTYPES(dtype) {
            const kn__loop_table *loops = kn__loops_isa(dtype, isa);
            if (!loops) continue;
            n_found++;
            int m = loops->tile_rows, n = loops->tile_columns;
            double room[3][64 * 64] = {{0}};
            for (int i = 0; i < m + n; i++) { /* a = b = ones, one step */
                if (dtype == KN_F64)
                    (i < m ? room[0] : room[1])[i < m ? i : i - m] = 1;
                else
                    ((float *)(i < m ? room[0] : room[1]))[i < m ? i : i - m] = 1;
            }
            loops->gemm_tile(room[2], n, room[0], m, room[1], 1, m, n);
            for (int i = 0; i <= m * n; i++)
                assert_close(dtype == KN_F64 ? room[2][i] : (double)((float *)room[2])[i],
                             i < m * n ? 1 : 0, 0, 0);
        }
    assert_true(n_found >= 2);
}

/* Columns are cut at whole vectors, not into equal parts. */
static void each_tile_adds_its_own_part_of_the_bias(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *b = kn_arange(0, 1003, 1, KN_F32);
    kn_tensor *y = kn_linear(kn_zeros(KN_SHAPE(40, 100)), kn_ones(KN_SHAPE(1003, 100)), b);
    assert_non_null(y);
    for (int64_t i = 0; i < 40 * 1003; i++) assert_close(ops_at(y, i), (double)(i % 1003), 0, 0);
}

/* A long sum into few results: whole before the activation. */
static void an_activation_follows_the_whole_sum(void **state) {
    (void)state;
    enum { LENGTH = 16384 };
    static float x[LENGTH];
    for (int i = 0; i < LENGTH; i++) x[i] = i < LENGTH / 2 ? -1 : 2;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME();
        kn_tensor *a = kn_cast(kn_tensor_from(x, KN_F32, KN_SHAPE(1, LENGTH)), dtype);
        kn_tensor *w = kn_cast(kn_ones(KN_SHAPE(2, LENGTH)), dtype);
        const double want = LENGTH / 2.0;
        assert_values(kn_linear_act(a, w, KN_NONE, KN_ACT_RELU), want, want);
    }
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(products_of_odd_shapes_match_the_reference),
        OPS_TEST(products_of_one_column_row_and_step_match),
        OPS_TEST(a_long_sum_into_a_small_result_matches),
        OPS_TEST(a_product_cut_into_tiles_matches), OPS_TEST(columns_copied_for_tiles_match),
        OPS_TEST(tiles_that_multiply_in_two_ways_match), OPS_TEST(linear_layers_take_no_work_space),
        cmocka_unit_test(products_of_few_columns_match), OPS_TEST(narrow_products_match),
        OPS_TEST(products_with_a_vector_match),
        OPS_TEST(a_product_of_a_batch_has_the_bits_of_its_own),
        OPS_TEST(long_rows_of_a_power_of_two_match), OPS_TEST(linear_adds_the_bias_to_each_row),
        OPS_TEST(each_tile_adds_its_own_part_of_the_bias),
        OPS_TEST(the_number_of_threads_changes_no_bit), OPS_TEST(operands_may_start_at_any_element),
        OPS_TEST(an_activation_follows_the_whole_sum),
        TEST(each_instruction_set_fills_its_whole_tile));
}
