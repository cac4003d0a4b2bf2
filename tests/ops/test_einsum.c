#include "golden/linalg.h"
#include "kernels_test.h"

static kn_tensor *numbers(kn_shape shape, int64_t m, int64_t k) {
    double x[64];
    int64_t n = 1;
    for (int d = 0; d < shape.n_dims; d++) n *= shape.dim[d];
    assert_true(n <= 64);
    for (int64_t i = 0; i < n; i++) x[i] = (double)((i * i * m + i + k) % 37) / 37 - 0.5;
    return kn_tensor_from(x, KN_F64, shape);
}

#define assert_golden(t, want)                                                                     \
    do {                                                                                           \
        kn_tensor *t_ = (t);                                                                       \
        assert_non_null(t_);                                                                       \
        assert_int_equal(kn_tensor_numel(t_), sizeof(want) / sizeof *(want));                      \
        for (size_t i_ = 0; i_ < sizeof(want) / sizeof *(want); i_++)                              \
            assert_close(ops_at(t_, (int64_t)i_), (want)[i_], 1e-12, 1e-13);                       \
    } while (0)

static void sums_equal_numpys(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *x = numbers(KN_SHAPE(2, 3, 4), 7, 1), *y = numbers(KN_SHAPE(2, 4, 3), 5, 2);
    kn_tensor *z = numbers(KN_SHAPE(3, 3), 3, 3);
    assert_golden(KN_EINSUM("bij,bjk->bik", x, y), golden_einsum_product);
    assert_golden(KN_EINSUM("bij, bjk -> kib", x, y), golden_einsum_swapped);
    assert_golden(KN_EINSUM("bij,bjk", x, y), golden_einsum_implicit);
    assert_golden(KN_EINSUM("bij,bji->", x, y), golden_einsum_all);
    assert_golden(KN_EINSUM("bij,kl->jb", x, z), golden_einsum_summed);
    assert_golden(KN_EINSUM("ii->i", z), golden_einsum_diagonal);
    assert_golden(KN_EINSUM("ii", z), golden_einsum_trace);
    assert_golden(KN_EINSUM("bij,bjk,kl->bl", x, y, z), golden_einsum_chain);
    assert_golden(KN_EINSUM("ij,kl->ikjl", z, z), golden_einsum_outer);
    assert_golden(KN_EINSUM("bij,bij->bi", x, x), golden_einsum_same);
    assert_golden(kn_trace(z), golden_einsum_trace);
    assert_shape(KN_EINSUM("bij,bjk->ikb", x, y), KN_SHAPE(3, 3, 2));
    assert_same_bits(KN_EINSUM("ij->ij", z), z);
}

static void dots_stand_for_the_dimensions_that_have_no_letter(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *x = numbers(KN_SHAPE(2, 3, 4), 7, 1), *y = numbers(KN_SHAPE(2, 4, 3), 5, 2);
    kn_tensor *z = numbers(KN_SHAPE(3, 3), 3, 3);
    assert_golden(KN_EINSUM("...ij,...jk->...ik", x, y), golden_einsum_product);
    assert_golden(KN_EINSUM("...ij,...jk", x, y), golden_einsum_product);
    assert_golden(KN_EINSUM("b...,b... -> b", x, x), golden_einsum_dots_summed);
    kn_tensor *wide = kn_reshape(x, KN_SHAPE(2, 1, 3, 4)), *flat = kn_reshape(z, KN_SHAPE(1, 3, 3));
    kn_tensor *c = KN_EINSUM("...ij,...i->j...", wide, flat);
    assert_shape(c, KN_SHAPE(4, 2, 3));
    assert_golden(kn_reshape(c, KN_SHAPE(24)), golden_einsum_dots_broadcast);
    assert_shape(KN_EINSUM("...ij,...i->j...", wide, kn_zeros(KN_SHAPE(0, 3))), KN_SHAPE(4, 2, 0));
    assert_same_bits(KN_EINSUM("...", z), z);
    assert_same_bits(KN_EINSUM("ij...->ij...", z), z);
    assert_same_bits(KN_EINSUM("...ij->...ji", KN_EINSUM("...ij->j...i", z)), z);
    assert_op_fails(KN_EINSUM("...i,...i->...", x, kn_ones(KN_SHAPE(2, 4))), KN_ERR_SHAPE,
                    "from the last one on, dimension of ... number 0 is 3 and 2");
    assert_op_fails(KN_EINSUM("...i...", x), KN_ERR_INVALID, "a term has ... twice");
    assert_op_fails(KN_EINSUM("...ijk", z), KN_ERR_SHAPE, "has 2 dimensions and 3 letters");
}

static void dimensions_of_one_are_broadcast(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(2, 3), 1, 2, 3, 4, 5, 6), *row = F32(KN_SHAPE(1, 3), 1, 10, 100);
    kn_tensor *column = F32(KN_SHAPE(2, 1), 1, -1), *one = F32(KN_SHAPE(1, 1), 2);
    assert_values(KN_EINSUM("ij,ij->ij", x, row), 1, 20, 300, 4, 50, 600);
    assert_values(KN_EINSUM("ij,ij->ji", column, x), 1, -4, 2, -5, 3, -6);
    assert_values(KN_EINSUM("ij,ij->", x, row), 975);
    assert_values(KN_EINSUM("ij,jk->ik", column, kn_transpose(row, KN_SHAPE(1, 0))), 111, -111);
    assert_values(KN_EINSUM("ij,ij,ij->i", row, column, one), 222, -222);
    kn_tensor *blocks = F32(KN_SHAPE(2, 3, 2), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
    assert_values(KN_EINSUM("iji->ji", blocks), 1, 8, 3, 10, 5, 12);
    assert_values(KN_EINSUM("iji->ij", blocks), 1, 3, 5, 8, 10, 12);
    assert_values(KN_EINSUM("jii->ij", kn_reshape(blocks, KN_SHAPE(3, 2, 2))), 1, 5, 9, 4, 8, 12);
    assert_values(KN_EINSUM("ii,i->i", one, F32(KN_SHAPE(3), 1, 2, 3)), 2, 4, 6);
    assert_values(KN_EINSUM("ij,ij->ij", one, one), 4);
    assert_values(KN_EINSUM("ij,ij->j", kn_ones(KN_SHAPE(0, 3)), row), 0, 0, 0);
    assert_op_fails(KN_EINSUM("ii->i", row), KN_ERR_SHAPE, "\"ii->i\": i is 1 and 3");
    assert_op_fails(KN_EINSUM("ii,i->i", row, x), KN_ERR_SHAPE, "i is 1 and 3");
}

static void operands_of_no_elements_give_zeros(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *none = kn_ones(KN_SHAPE(2, 0));
    assert_values(KN_EINSUM("ij,kj->ik", none, none), 0, 0, 0, 0);
    assert_shape(KN_EINSUM("ij,k->jk", none, kn_ones(KN_SHAPE(3))), KN_SHAPE(0, 3));
    assert_values(KN_EINSUM("ii->", kn_ones(KN_SHAPE(0, 0))), 0);
}

static void wrong_letters_are_named(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(2, 3));
    assert_op_fails(KN_EINSUM("ij,kj", x), KN_ERR_INVALID, "\"ij,kj\": 2 terms, 1 operands");
    assert_op_fails(KN_EINSUM("-a", x), KN_ERR_INVALID, "-> is expected at -a");
    assert_op_fails(KN_EINSUM("ij-", x), KN_ERR_INVALID, "-> is expected at -");
    assert_op_fails(KN_EINSUM("ij", x, x), KN_ERR_INVALID, "\"ij\": 1 terms, 2 operands");
    assert_op_fails(KN_EINSUM("ijk", x), KN_ERR_SHAPE,
                    "kn_einsum: \"ijk\": operand 0 has 2 dimensions and 3 letters");
    assert_op_fails(KN_EINSUM("ij,jk->ik", x, x), KN_ERR_SHAPE,
                    "kn_einsum: \"ij,jk->ik\": j is 3 and 2");
    assert_op_fails(KN_EINSUM("ij->ik", x), KN_ERR_INVALID, "no operand has the result's k");
    assert_op_fails(KN_EINSUM("ij->ii", x), KN_ERR_INVALID, "the result has twice i");
    assert_op_fails(KN_EINSUM("i.j", x), KN_ERR_INVALID, "a letter is expected, not .");
    assert_op_fails(KN_EINSUM("ij>ij", x), KN_ERR_INVALID, "a letter is expected, not >");
    assert_op_fails(KN_EINSUM("é", x), KN_ERR_INVALID, "\"é\": a letter is expected, not é");
    assert_op_fails(KN_EINSUM("ij-1234567éa", x), KN_ERR_INVALID, "-> is expected at -1234567");
    assert_op_fails(KN_EINSUM("ij-123456éa", x), KN_ERR_INVALID, "-> is expected at -123456é");
    assert_op_fails(KN_EINSUM("ij-ij", x), KN_ERR_INVALID, "-> is expected at -ij");
    assert_op_fails(KN_EINSUM("ij->i,j", x), KN_ERR_INVALID, "one result is expected");
    assert_op_fails(kn_einsum(NULL, &x, 1), KN_ERR_INVALID, "spec is NULL");
    assert_op_fails(kn_einsum("ij", &x, 0), KN_ERR_INVALID, "n_x is 0; it must be 1 to 16");
    kn_tensor *five = kn_ones(KN_SHAPE(1, 1, 1, 1, 1)), *four = kn_ones(KN_SHAPE(1, 1, 1, 1));
    assert_op_fails(KN_EINSUM("abcde,fghij->abcdefghij", five, five), KN_ERR_INVALID,
                    "more than 8 letters");
    assert_op_fails(
        KN_EINSUM("abcde,fghi,abcdfghi->e", five, four, kn_ones(KN_SHAPE(1, 1, 1, 1, 1, 1, 1, 1))),
        KN_ERR_UNSUPPORTED, "two operands have 9 letters");
}

/* --- the products beside it --- */

static void small_products_are_what_they_say(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *a = F32(KN_SHAPE(2, 2), 1, 2, 3, 4), *x = F32(KN_SHAPE(2), 5, 6);
    assert_values(kn_mv(a, x), 17, 39);
    assert_values(kn_dot(x, x), 61);
    assert_values(kn_outer(x, x), 25, 30, 30, 36);
    assert_values(kn_geam(a, a, 2, -1, &(kn_matmul_options){.trans_b = 1}), 1, 1, 4, 4);
    assert_values(kn_trace(a), 5);
    assert_values(kn_trace(kn_ones(KN_SHAPE(2, 3, 3))), 3, 3);
    assert_values(kn_block_diag((kn_tensor *const[]){a, F32(KN_SHAPE(1, 2), 7, 8)}, 2), 1, 2, 0, 0,
                  3, 4, 0, 0, 0, 0, 7, 8);
    kn_tensor *y = F32(KN_SHAPE(2), 1, 1);
    assert_ok(kn_axpy_into(y, -2, x));
    assert_values(y, -9, -11);
    assert_values(kn_dot(kn_zeros(KN_SHAPE(0)), kn_zeros(KN_SHAPE(0))), 0);
}

/* 300·300 is beyond f16, and 17·17 rounds to 288 in bf16. */
static void products_of_16_bits_are_summed_in_f32(void **state) {
    (void)state;
    for (int k = 0; k < 8; k++) {
        kn_dtype dtype = k & 1 ? KN_BF16 : KN_F16;
        KN_FRAME(.autocast = k & 2 ? (int)dtype : KN_OFF, .fuse = k & 4 ? 1 : KN_OFF);
        kn_tensor *a = kn_cast(F32(KN_SHAPE(4), 300, 300, 17, 1), dtype);
        kn_tensor *b = kn_cast(F32(KN_SHAPE(4), 300, -300, 17, -288), dtype);
        kn_tensor *rows = kn_stack((kn_tensor *const[]){b, b}, 2, 0);
        kn_tensor *y[] = {kn_dot(a, b), KN_EINSUM("i,i->", a, b), KN_EINSUM("i,bi->b", a, rows),
                          KN_EINSUM("bi,bi->b", kn_stack((kn_tensor *const[]){a, a}, 2, 0), rows)};
        for (int i = 0; i < 4; i++) {
            if (i != 2) assert_int_equal(kn_tensor_dtype(y[i]), k & 2 ? KN_F32 : dtype);
            assert_close(ops_at(kn_cast(y[i], KN_F32), 0), 1, 0, 0);
        }
    }
}

/* Blocks of columns, parts of rows, rows that are long. */
static void kron_is_a_product_that_is_broadcast(void **state) {
    (void)state;
    static const int64_t sides[][4] = {
        {2, 1100, 2, 1}, {1, 70, 600, 30}, {3, 5, 4, 300}, {7, 3, 5, 9}};
    for (int i = 0; i < 4; i++) {
        const int64_t m = sides[i][0], n = sides[i][1], p = sides[i][2], q = sides[i][3];
        KN_FRAME();
        kn_tensor *a = kn_reshape(kn_arange(1, (double)(m * n + 1), 1, KN_F32), KN_SHAPE(m, n));
        kn_tensor *b = kn_reshape(kn_arange(1, (double)(p * q + 1), 1, KN_F32), KN_SHAPE(p, q));
        kn_tensor *want =
            kn_mul(kn_reshape(a, KN_SHAPE(m, 1, n, 1)), kn_reshape(b, KN_SHAPE(1, p, 1, q)));
        kn_tensor *same =
            kn_all(kn_eq(kn_kron(a, b), kn_reshape(want, KN_SHAPE(m * p, n * q))), KN_ALL, false);
        assert_values(kn_cast(same, KN_F32), 1);
    }
}

static void their_errors_name_shapes(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *a = kn_ones(KN_SHAPE(2, 3)), *x = kn_ones(KN_SHAPE(2));
    assert_op_fails(kn_dot(a, x), KN_ERR_SHAPE, "kn_dot: a [2,3] and b [2] differ in shape");
    assert_op_fails(kn_outer(a, x), KN_ERR_SHAPE, "kn_outer: a and b must have one dimension");
    assert_op_fails(kn_mv(a, x), KN_ERR_SHAPE, "a has 3 columns, x has 2 elements");
    assert_op_fails(kn_trace(a), KN_ERR_SHAPE, "kn_trace: x must be [...,N,N], not [2,3]");
    assert_op_fails(kn_kron(a, x), KN_ERR_SHAPE,
                    "kn_kron: a and b must have two dimensions (a [2,3], b [2])");
    assert_op_fails(kn_block_diag(NULL, 0), KN_ERR_INVALID,
                    "kn_block_diag: n_x is 0; it must be 1");
    assert_op_fails(kn_block_diag((kn_tensor *const[]){a, x}, 2), KN_ERR_SHAPE,
                    "kn_block_diag: x[1] has 1 dimensions, not 2");
    assert_fails(kn_axpy_into(x, 1, a), KN_ERR_SHAPE, "kn_axpy_into: x [2,3], y [2]");
    kn_tensor *y = kn_cast(x, KN_F64), *half = kn_cast(x, KN_BF16);
    assert_fails(kn_axpy_into(y, 1, x), KN_ERR_DTYPE, "kn_axpy_into: x is f32, y is f64; see kn_");
    assert_fails(kn_axpy_into(NULL, 1, x), KN_ERR_INVALID, "kn_axpy_into: y is NULL");
    assert_fails(kn_axpy_into(y, 1, NULL), KN_ERR_INVALID, "kn_axpy_into: x is NULL");
    kn_tensor *i = kn_cast(x, KN_I64);
    assert_fails(kn_axpy_into(i, 1, i), KN_ERR_DTYPE,
                 "kn_axpy_into: x is i64; it must be floating");
    {
        KN_FRAME(.autocast = KN_BF16); /* y stays what it is */
        assert_fails(kn_axpy_into(half, 1, x), KN_ERR_DTYPE, "x is f32, y is bf16; see kn_cast");
        assert_fails(kn_axpy_into(x, 1, half), KN_ERR_DTYPE, "x is bf16, y is f32; see kn_cast");
    }
    assert_op_fails(kn_matmul(kn_ones(KN_SHAPE(2, 3, 4)), kn_ones(KN_SHAPE(3, 4, 5)), NULL),
                    KN_ERR_SHAPE, "dimension 0 of the batch is 2 and 3");
    assert_op_fails(kn_linear_act(a, a, KN_NONE, (kn_act)9), KN_ERR_INVALID, "act is 9");
}

static void batches_are_broadcast(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME();
        kn_tensor *a = random_tensor(dtype, KN_SHAPE(4, 1, 5, 6)),
                  *b = random_tensor(dtype, KN_SHAPE(3, 6, 7));
        kn_tensor *c = kn_matmul(a, b, NULL);
        kn_tensor *wide_a = kn_reshape(kn_broadcast(a, KN_SHAPE(4, 3, 5, 6)), KN_SHAPE(12, 5, 6));
        kn_tensor *wide_b = kn_reshape(kn_broadcast(b, KN_SHAPE(4, 3, 6, 7)), KN_SHAPE(12, 6, 7));
        assert_shape(c, KN_SHAPE(4, 3, 5, 7));
        assert_same_bits(c, kn_matmul(wide_a, wide_b, NULL));
        kn_tensor *one = random_tensor(dtype, KN_SHAPE(6, 7)), *rows = kn_matmul(a, one, NULL);
        kn_tensor *flat = kn_matmul(kn_reshape(a, KN_SHAPE(20, 6)), one, NULL);
        assert_shape(rows, KN_SHAPE(4, 1, 5, 7));
        assert_same_bits(rows, flat);
    }
}

static void the_number_of_threads_changes_no_bit(void **state) {
    (void)state;
    static const int threads[] = {1, 2, 7};
    static const int64_t shapes[][4] = {{100, 9, 8, 7}, {3, 150, 200, 130}, {40, 64, 65, 66}};
    FOR_BOTH_DTYPES(dtype) {
        for (int i = 0; i < 3; i++) {
            KN_FRAME();
            const int64_t *s = shapes[i];
            kn_tensor *a = random_tensor(dtype, KN_SHAPE(s[0], s[1], s[2])), *got[3];
            kn_tensor *b = random_tensor(dtype, KN_SHAPE(s[0], s[2], s[3]));
            for (int t = 0; t < 3; t++) {
                KN_FRAME(.threads = threads[t]);
                got[t] = kn_keep(kn_matmul(a, b, NULL));
            }
            assert_same_bits(got[0], got[1]);
            assert_same_bits(got[0], got[2]);
        }
    }
}

static void activations_equal_those_after_the_layer(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME();
        kn_tensor *x = random_tensor(dtype, KN_SHAPE(2, 150, 203));
        kn_tensor *w = random_tensor(dtype, KN_SHAPE(151, 203)),
                  *b = random_tensor(dtype, KN_SHAPE(151));
        kn_tensor *y = kn_linear(x, w, b);
        for (int act = KN_ACT_NONE; act < KN_ACTS; act++)
            assert_same_bits(kn_linear_act(x, w, b, (kn_act)act), ops_activated(y, (kn_act)act));
        kn_tensor *none = kn_zeros(KN_SHAPE(3, 0)), *thin = kn_zeros(KN_SHAPE(2, 0));
        if (dtype == KN_F32)
            assert_values(kn_linear_act(none, thin, F32(KN_SHAPE(2), -1, 1), KN_ACT_RELU), 0, 1, 0,
                          1, 0, 1);
    }
}

/* Tiles of any size, products of vectors and sums that are long, which are cut without a residual.
 */
static void a_residual_is_added_as_after_the_layer(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{150, 203, 151}, {1, 300, 7}, {3, 2, 4},
                                       {5, 9000, 6},    {40, 1, 30}, {6, 0, 5}};
    FOR_BOTH_DTYPES(dtype) for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        KN_FRAME(.threads = 2);
        const int64_t *s = sizes[i];
        kn_tensor *x = random_tensor(dtype, KN_SHAPE(2, s[0], s[1]));
        kn_tensor *w = random_tensor(dtype, KN_SHAPE(s[2], s[1]));
        kn_tensor *b = random_tensor(dtype, KN_SHAPE(s[2]));
        kn_tensor *r = random_tensor(dtype, KN_SHAPE(2, s[0], s[2]));
        kn_tensor *sum = kn_add(kn_linear(x, w, b), r);
        for (int act = KN_ACT_NONE; act < KN_ACTS; act++)
            assert_same_bits(kn_linear_add(x, w, b, r, (kn_act)act),
                             ops_activated(sum, (kn_act)act));
        assert_same_bits(kn_linear_add(x, w, b, KN_NONE, KN_ACT_RELU),
                         kn_linear_act(x, w, b, KN_ACT_RELU));
        kn_tensor *plain = kn_linear_add(x, w, KN_NONE, r, KN_ACT_NONE);
        kn_tensor *want = kn_add(kn_linear(x, w, KN_NONE), r);
        for (int64_t k = 0; k < kn_tensor_numel(want); k++)
            assert_close(ops_at(plain, k), ops_at(want, k), 1e-4, 1e-4);
    }
}

static void a_wrong_residual_is_an_error(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F32);
    kn_tensor *x = kn_ones(KN_SHAPE(2, 3)), *w = kn_ones(KN_SHAPE(4, 3));
    kn_tensor *r = kn_ones(KN_SHAPE(2, 4));
    assert_op_fails(kn_linear_add(x, w, KN_NONE, x, KN_ACT_NONE), KN_ERR_SHAPE,
                    "kn_linear_add: the residual must be [2,4]");
    assert_op_fails(kn_linear_add(x, w, KN_NONE, kn_ones(KN_SHAPE(4)), KN_ACT_RELU), KN_ERR_SHAPE,
                    "the residual must be [2,4]");
    assert_op_fails(kn_linear_add(x, w, KN_NONE, NULL, KN_ACT_NONE), KN_ERR_INVALID,
                    "kn_linear_add: residual is NULL");
    assert_op_fails(kn_linear_add(x, w, KN_NONE, kn_cast(r, KN_F64), KN_ACT_NONE), KN_ERR_DTYPE,
                    "residual is f64");
    assert_op_fails(kn_linear_add(x, w, KN_NONE, r, (kn_act)8), KN_ERR_INVALID,
                    "kn_linear_add: act is 8; activations are 0 (KN_ACT_NONE) to 7 "
                    "(KN_ACT_HARDSWISH)");
    assert_op_fails(kn_linear_act(x, w, KN_NONE, (kn_act)-1), KN_ERR_INVALID, "act is -1;");
    assert_op_fails(kn_linear_act(x, w, r, KN_ACT_RELU), KN_ERR_SHAPE, "kn_linear_act: b must be");
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(sums_equal_numpys), OPS_TEST(dots_stand_for_the_dimensions_that_have_no_letter),
        OPS_TEST(dimensions_of_one_are_broadcast), OPS_TEST(operands_of_no_elements_give_zeros),
        OPS_TEST(wrong_letters_are_named), OPS_TEST(kron_is_a_product_that_is_broadcast),
        OPS_TEST(small_products_are_what_they_say), OPS_TEST(their_errors_name_shapes),
        OPS_TEST(batches_are_broadcast), OPS_TEST(a_residual_is_added_as_after_the_layer),
        OPS_TEST(a_wrong_residual_is_an_error), OPS_TEST(the_number_of_threads_changes_no_bit),
        OPS_TEST(activations_equal_those_after_the_layer),
        OPS_TEST(products_of_16_bits_are_summed_in_f32));
}
