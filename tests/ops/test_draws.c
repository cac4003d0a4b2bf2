/* Random numbers but uniform and normal ones, and initial values. */
#include "golden_values.h"
#include "integers.h"
#include "quantile.h"

enum { N = 70001 }; /* several chunks, and a rest */

static kn_rng *new_rng(uint64_t seed) {
    kn_rng *rng = NULL;
    assert_ok(kn_rng_create(&rng, seed));
    return rng;
}

static void words_of(uint32_t words[4], int64_t element, int per_group, uint64_t seed) {
    kn__philox(words, (uint64_t)(element / per_group) * 8 + (uint64_t)(element % 8), seed);
}

static void bernoulli_follows_the_element_map(void **state) {
    (void)state;
    kn_rng *rng = new_rng(42);
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        assert_ok(kn_rng_state_set(rng, 42, 0));
        kn_tensor *y = kn_bernoulli(KN_SHAPE(N), 0.3, rng);
        double sum = 0;
        for (int64_t i = 0; i < N; i++) {
            uint32_t words[4];
            words_of(words, i, 32, 42);
            sum += ops_at(y, i);
            if (ops_at(y, i) != (words[i % 32 / 8] < 0.3 * 4294967296.0))
                fail_msg("element %d", (int)i);
        }
        assert_close(sum / N, 0.3, 0.02, 0);
        assert_close(ops_at(kn_sum(kn_bernoulli(KN_SHAPE(1000), 1, rng), KN_ALL, false), 0), 1000,
                     0, 0);
        assert_close(ops_at(kn_sum(kn_bernoulli(KN_SHAPE(1000), 0, rng), KN_ALL, false), 0), 0, 0,
                     0);
    }
    kn_rng_destroy(rng);
}

/* Each of 7 values about N/7 times; six degrees of freedom: 22.5 is met once in a thousand. */
static void integers_are_equally_likely_and_in_range(void **state) {
    (void)state;
    KN_FRAME();
    kn_rng *rng = new_rng(3);
    const int64_t *y = kn_data(kn_integers(KN_SHAPE(N), -2, 5, rng));
    double n[7] = {0}, chi = 0;
    for (int64_t i = 0; i < N; i++) {
        assert_in_range(y[i] + 2, 0, 6);
        n[y[i] + 2]++;
    }
    for (int k = 0; k < 7; k++) chi += (n[k] - N / 7.0) * (n[k] - N / 7.0) / (N / 7.0);
    assert_true(chi < 22.5);
    y = kn_data(kn_integers(KN_SHAPE(100), INT64_C(1) << 52, (INT64_C(1) << 52) + 1, rng));
    for (int i = 0; i < 100; i++) assert_true(y[i] == INT64_C(1) << 52);
    kn_rng_destroy(rng);
}

/* A range of 2^53 + 1: one word in 2048 is drawn again. */
static void integers_follow_the_element_map(void **state) {
    (void)state;
    const int64_t lo = -7, hi = (INT64_C(1) << 53) - 6;
    const uint64_t range = (uint64_t)(hi - lo);
    KN_FRAME();
    kn_rng *rng = new_rng(42);
    const int64_t *y = kn_data(kn_integers(KN_SHAPE(N), lo, hi, rng));
    int n_again = 0;
    for (int64_t i = 0; i < N; i++) {
        uint32_t words[4];
        int pair = (int)(i % 16 / 8);
        words_of(words, i, 16, 42);
        uint64_t low, word = (uint64_t)words[2 * pair + 1] << 32 | words[2 * pair];
        uint64_t own = (uint64_t)(i / 16) * 8 + (uint64_t)(i % 8);
        n_again += kn__mul_high(&low, word, range) != kn__integer_below(word, range, own, 42, pair);
        if (y[i] != lo + (int64_t)kn__integer_below(word, range, own, 42, pair))
            fail_msg("element %d", (int)i);
    }
    assert_in_range(n_again, 10, 100);
    kn_rng_destroy(rng);
}

/* Of 2^64 words and a range of 3·2^62, every fourth number comes up twice without rejection. */
static void words_that_would_favour_a_number_are_drawn_again(void **state) {
    (void)state;
    const uint64_t range = UINT64_C(3) << 62;
    uint64_t low, n_again = 0;
    for (uint64_t i = 0; i < 4096; i++) {
        uint64_t word = i * UINT64_C(0x9E3779B97F4A7C15), plain = kn__mul_high(&low, word, range);
        uint64_t y = kn__integer_below(word, range, i, 7, 0);
        bool rejected = low < (0 - range) % range;
        n_again += rejected;
        assert_true(y < range);
        if (!rejected) assert_true(y == plain);
    }
    assert_int_equal(n_again, 1024); /* a quarter */
    assert_true(kn__mul_high(&low, UINT64_MAX, UINT64_MAX) == UINT64_MAX - 1 && low == 1);
}

static void permutations_have_every_number_once(void **state) {
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 3, 16, 17, 1000, N};
    kn_rng *rng = new_rng(11);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        KN_FRAME();
        const int64_t *y = kn_data(kn_permutation(sizes[s], rng));
        unsigned char *seen = calloc((size_t)sizes[s] + 1, 1);
        assert_non_null(seen);
        for (int64_t i = 0; i < sizes[s]; i++) {
            assert_true(y[i] >= 0 && y[i] < sizes[s] && !seen[y[i]]);
            seen[y[i]] = 1;
        }
        free(seen);
    }
    kn_rng_destroy(rng);
}

static void slices_are_shuffled_whole(void **state) {
    (void)state;
    kn_rng *rng = new_rng(3), *same = new_rng(3);
    KN_FRAME();
    kn_tensor *x = kn_reshape(kn_arange(0, 300, 1, KN_F32), KN_SHAPE(2, 50, 3));
    kn_tensor *y = kn_shuffle(x, -2, rng);
    assert_shape(y, KN_SHAPE(2, 50, 3));
    const int64_t *order = kn_data(kn_permutation(50, same));
    int n_moved = 0;
    for (int b = 0; b < 2; b++) {
        for (int i = 0; i < 50; i++) {
            n_moved += order[i] != i;
            for (int k = 0; k < 3; k++)
                assert_true(ops_at(y, (b * 50 + i) * 3 + k) ==
                            (double)((b * 50 + order[i]) * 3 + k));
        }
    }
    assert_true(n_moved > 50);
    kn_rng_destroy(same);
    kn_rng_destroy(rng);
}

static bool is_odd(const int64_t *y, int n) {
    bool odd = false;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) odd ^= y[k] > y[i];
    return odd;
}

/* Of 4,000 draws half are odd, give or take 32; 4.5 times that is met once in 150,000. */
static void half_of_all_orders_are_odd(void **state) {
    (void)state;
    enum { DRAWS = 4000 };
    static const int sizes[] = {2, 16, 32, 33, 64, 100};
    kn_rng *rng = new_rng(8);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int n_odd = 0;
        for (int draw = 0; draw < DRAWS; draw++) {
            KN_FRAME();
            n_odd += is_odd(kn_data(kn_permutation(sizes[s], rng)), sizes[s]);
        }
        assert_in_range(n_odd, DRAWS / 2 - 144, DRAWS / 2 + 144);
    }
    kn_rng_destroy(rng);
}

/* All 24 orders of four numbers; 23 degrees of freedom: 49.7 is met once in a thousand. Where a
 * number goes is uniform in longer ones too. */
static void orders_are_equally_likely(void **state) {
    (void)state;
    enum { DRAWS = 240000, LONG = 50 };
    kn_rng *rng = new_rng(5);
    double n[256] = {0}, chi = 0, at[LONG] = {0}, chi_at = 0;
    for (int draw = 0; draw < DRAWS; draw++) {
        KN_FRAME();
        const int64_t *y = kn_data(kn_permutation(4, rng)), *z = kn_data(kn_permutation(LONG, rng));
        n[y[0] << 6 | y[1] << 4 | y[2] << 2 | y[3]]++;
        at[z[7]]++;
    }
    int n_seen = 0;
    for (int i = 0; i < 256; i++) {
        if (n[i] == 0) continue;
        n_seen++;
        chi += (n[i] - DRAWS / 24.0) * (n[i] - DRAWS / 24.0) / (DRAWS / 24.0);
    }
    for (int i = 0; i < LONG; i++)
        chi_at += (at[i] - DRAWS / LONG) * (at[i] - DRAWS / LONG) / (DRAWS / LONG);
    assert_int_equal(n_seen, 24);
    assert_true(chi < 49.7);
    assert_true(chi_at < 85.4); /* 49 degrees of freedom */
    kn_rng_destroy(rng);
}

/* Against the distribution function, in the middle and in both tails. */
static void quantiles_invert_the_distribution(void **state) {
    (void)state;
    static const double p[] = {1e-300, 1e-20, 1e-9, 0.001, 0.05,  0.074,
                               0.076,  0.3,   0.5,  0.6,   0.926, 0.999};
    for (size_t i = 0; i < sizeof p / sizeof *p; i++) {
        double x = kn__normal_quantile(p[i]);
        assert_close(0.5 * erfc(-x * 0.70710678118654752440), p[i], 1e-12, 0);
    }
    assert_close(kn__normal_quantile(0.975), 1.959963984540054, 1e-15, 0);
}

/* Mean and deviation of a normal distribution cut to a … b. */
static void check_truncated(kn_dtype dtype, double lo, double hi, double mean, double deviation) {
    KN_FRAME(.dtype = dtype);
    kn_rng *rng = new_rng(8);
    kn_tensor *y = kn_truncated_normal(KN_SHAPE(N), 1, 2, lo, hi, rng);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < N; i++) {
        assert_true(ops_at(y, i) >= lo && ops_at(y, i) <= hi);
        sum += ops_at(y, i), squares += ops_at(y, i) * ops_at(y, i);
    }
    assert_close(sum / N, mean, 0, 0.02);
    assert_close(sqrt(squares / N - sum / N * sum / N), deviation, 0, 0.02);
    kn_rng_destroy(rng);
}

/* With φ and Φ: mean φ(a)/(1 - Φ(a)) of the part above a, and the like. */
static void truncated_normals_stay_inside_and_have_their_moments(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        check_truncated(dtype, -1, 3, 1, 2 * 0.53956);
        check_truncated(dtype, 5, 100, 1 + 2 * 2.37322, 2 * 0.33803);
        check_truncated(dtype, -(double)INFINITY, 1, 1 - 2 * 0.79788, 2 * 0.60281);
    }
}

static void truncated_normals_follow_the_element_map(void **state) {
    (void)state;
    const kn__truncated all = {2, 3, -(double)INFINITY, (double)INFINITY, 0, 1, 0};
    kn_rng *rng = new_rng(42);
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        assert_ok(kn_rng_state_set(rng, 42, 0));
        kn_tensor *y = kn_truncated_normal(KN_SHAPE(N), 2, 3, all.lo, all.hi, rng);
        for (int64_t i = 0; i < N; i++) {
            uint32_t words[4];
            int64_t pair = i % 16 / 8;
            words_of(words, i, 16, 42);
            double want = kn__truncated_normal(&all, words[2 * pair], words[2 * pair + 1]);
            if (ops_at(y, i) != (dtype == KN_F64 ? want : (double)(float)want))
                fail_msg("element %d", (int)i);
        }
    }
    kn_rng_destroy(rng);
}

static kn_tensor *draw(int which, kn_rng *rng) {
    switch (which) {
        case 0:
            return kn_bernoulli(KN_SHAPE(N), 0.4, rng);
        case 1:
            return kn_integers(KN_SHAPE(N), 0, INT64_C(1000000007), rng);
        case 2:
            return kn_permutation(N, rng);
        default:
            return kn_truncated_normal(KN_SHAPE(N), 0, 1, -2, 2, rng);
    }
}

static void the_number_of_threads_changes_no_bit(void **state) {
    (void)state;
    static const int threads[] = {1, 2, 7};
    kn_rng *rng = new_rng(1);
    for (int which = 0; which < 4; which++) {
        KN_FRAME();
        kn_tensor *got[3];
        for (int t = 0; t < 3; t++) {
            KN_FRAME(.threads = threads[t]);
            assert_ok(kn_rng_state_set(rng, 77, 0));
            got[t] = kn_keep(draw(which, rng));
        }
        assert_same_bits(got[0], got[1]);
        assert_same_bits(got[0], got[2]);
    }
    kn_rng_destroy(rng);
}

/* The same seed gives these numbers on any machine; from a second implementation, in Python. */
static void known_numbers(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    kn_rng *rng = new_rng(2024);
    const int64_t *y = kn_data(kn_integers(KN_SHAPE(4), 0, 1000, rng));
    static const int64_t want[] = {268, 435, 49, 482};
    for (int i = 0; i < 4; i++) assert_int_equal(y[i], want[i]);
    y = kn_data(kn_permutation(8, rng));
    static const int64_t order[] = {5, 4, 3, 2, 6, 0, 1, 7};
    for (int i = 0; i < 8; i++) assert_int_equal(y[i], order[i]);
    kn_rng_destroy(rng);
}

static void wrong_numbers_are_named(void **state) {
    (void)state;
    KN_FRAME();
    kn_rng *rng = new_rng(1);
    assert_op_fails(kn_bernoulli(KN_SHAPE(3), 1.5, rng), KN_ERR_INVALID, "kn_bernoulli: p is 1.5");
    assert_op_fails(kn_bernoulli(KN_SHAPE(3), (double)NAN, rng), KN_ERR_INVALID, "p is nan");
    assert_op_fails(kn_integers(KN_SHAPE(3), 4, 4, rng), KN_ERR_INVALID, "lo is 4, hi is 4");
    assert_op_fails(kn_integers(KN_SHAPE(3), 0, INT64_MAX, rng), KN_ERR_INVALID, "2^53");
    assert_op_fails(kn_permutation(-1, rng), KN_ERR_INVALID, "n is -1");
    assert_op_fails(kn_shuffle(kn_ones(KN_SHAPE(2)), 1, rng), KN_ERR_INVALID, "axis is 1, x has 1");
    assert_op_fails(kn_truncated_normal(KN_SHAPE(3), 0, 1, 2, 1, rng), KN_ERR_INVALID,
                    "lo is 2, hi is 1");
    assert_op_fails(kn_truncated_normal(KN_SHAPE(3), 0, 1, 100, 101, rng), KN_ERR_INVALID,
                    "too far from mean");
    assert_op_fails(kn_bernoulli(KN_SHAPE(3), 0.5, NULL), KN_ERR_INVALID, "rng is NULL");
    assert_op_fails(kn_orthogonal(KN_SHAPE(3), 1, rng), KN_ERR_SHAPE,
                    "kn_orthogonal: the shape [3]");
    assert_null(strstr(kn_last_error()->message, "qr"));
    assert_op_fails(kn_bilinear_filter(KN_SHAPE(3, 3)), KN_ERR_SHAPE, "[3,3] is not [O,I,H,W]");
    kn_rng_destroy(rng);
}

/* --- initial values --- */

static void orthogonal_matrices_may_be_empty(void **state) {
    (void)state;
    KN_FRAME();
    kn_rng *rng = new_rng(4);
    assert_shape(kn_orthogonal(KN_SHAPE(0, 3), 1, rng), KN_SHAPE(0, 3));
    assert_shape(kn_orthogonal(KN_SHAPE(4, 0, 2), 1, rng), KN_SHAPE(4, 0, 2));
    assert_op_fails(kn_orthogonal(KN_SHAPE(-1, 3), 1, rng), KN_ERR_SHAPE,
                    "kn_orthogonal: shape [-1,3] is negative");
    assert_string_equal(kn_last_error()->op, "orthogonal");
    kn_rng_destroy(rng);
}

static void orthogonal_matrices_are_orthonormal(void **state) {
    (void)state;
    kn_rng *rng = new_rng(4);
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        static const int64_t rows[] = {5, 3, 4};
        for (int i = 0; i < 3; i++) {
            kn_tensor *w =
                kn_orthogonal(i == 2 ? KN_SHAPE(4, 3, 2, 2) : KN_SHAPE(rows[i], 4), 2, rng);
            w = kn_reshape(w, KN_SHAPE(rows[i], -1));
            kn_tensor *gram = i == 0 ? kn_matmul(kn_transpose(w, KN_ALL), w, NULL)
                                     : kn_matmul(w, kn_transpose(w, KN_ALL), NULL);
            kn_tensor *want = kn_tri_scale(kn_filled_like(gram, 4), 0, 1, 0);
            for (int64_t k = 0; k < kn_tensor_numel(gram); k++)
                assert_close(ops_at(gram, k), ops_at(want, k), tolerance(dtype), tolerance(dtype));
        }
    }
    kn_rng_destroy(rng);
}

static void bilinear_filters_are_hats(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *w = kn_bilinear_filter(KN_SHAPE(2, 2, 4, 4));
    static const double row[] = {0.25, 0.75, 0.75, 0.25};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            assert_close(ops_at(w, 4 * i + j), row[i] * row[j], 1e-7, 0);
            assert_close(ops_at(w, 16 + 4 * i + j), 0, 0, 0);
            assert_close(ops_at(w, 48 + 4 * i + j), row[i] * row[j], 1e-7, 0);
        }
    assert_values(kn_bilinear_filter(KN_SHAPE(1, 1, 1, 3)), 0.5, 1, 0.5);
}

/* --- made of uniform numbers --- */

#define assert_golden(t, ...)                                                                      \
    golden_check((t), (const double[]){__VA_ARGS__},                                               \
                 sizeof((double[]){__VA_ARGS__}) / sizeof(double), #t)
#define X(...) F32(KN_SHAPE(sizeof((float[]){__VA_ARGS__}) / sizeof(float)), __VA_ARGS__)

/* Words of zeros and of ones. */
static void exponential_numbers_are_neither_0_nor_infinite(void **state) {
    (void)state;
    const double least[] = {kn__exponential_f32(UINT32_MAX, 1),
                            kn__exponential_f64(UINT32_MAX, UINT32_MAX, 1)};
    const double most[] = {kn__exponential_f32(0, 1), kn__exponential_f64(0, 0, 1)};
    assert_close(least[0], 0x1p-25, 0, 1e-7);
    assert_close(least[1], 0x1p-53, 0, 1e-7);
    assert_close(most[0], 25 * log(2), 0, 1e-14);
    assert_close(most[1], 53 * log(2), 0, 1e-14);
}

static void exponential_numbers_have_their_distribution(void **state) {
    (void)state;
    enum { MANY = 100000 };
    kn_rng *rng;
    assert_ok(kn_rng_create(&rng, 5));
    KN_FRAME();
    kn_tensor *x = kn_exponential(KN_SHAPE(MANY), 2.5, rng);
    double sum = 0, above = 0;
    for (int i = 0; i < MANY; i++) {
        double v = golden_at(x, i);
        assert_true(v > 0 && isfinite(v));
        sum += v;
        above += v > 0.4;
    }
    assert_true(fabs(sum / MANY * 2.5 - 1) < 0.02);
    assert_true(fabs(above / MANY - exp(-1)) < 0.01);
    FOR_BOTH_DTYPES(dtype) { /* the first element, by the first words */
        KN_FRAME(.dtype = dtype);
        uint32_t w[4];
        kn__philox(w, 0, 42);
        assert_ok(kn_rng_state_set(rng, 42, 0));
        double u = (double)(w[0] >> 8) * 0x1p-24 + 0x1p-25;
        if (dtype == KN_F64)
            u = (double)((((uint64_t)w[1] << 32) | w[0]) >> 12) * 0x1p-52 + 0x1p-53;
        x = kn_exponential(KN_SHAPE(3), 2.5, rng);
        assert_close(golden_at(x, 0), -log(u) / 2.5, 0, dtype == KN_F64 ? 1e-14 : 1e-7);
    }
    assert_op_fails(kn_exponential(KN_SHAPE(2), 0, rng), KN_ERR_INVALID, "kn_exponential: rate is");
    kn_rng_destroy(rng);
}

/* The shares of three rows of weights among draws. */
static void draws_follow_the_weights(void **state) {
    (void)state;
    enum { ROWS = 3, CLASSES = 4, MANY = 20000 };
    const float w[ROWS][CLASSES] = {{1, 0, 3, 0}, {0, 0, 0, 5}, {0.5F, 0.25F, 0.25F, 1}};
    kn_rng *rng;
    assert_ok(kn_rng_create(&rng, 8));
    KN_FRAME();
    kn_tensor *weights = kn_tensor_from(w, KN_F32, KN_SHAPE(ROWS, CLASSES));
    kn_tensor *y = kn_multinomial(weights, MANY, true, rng);
    assert_shape(y, KN_SHAPE(ROWS, MANY));
    for (int r = 0; r < ROWS; r++) {
        double count[CLASSES] = {0}, total = 0;
        for (int i = 0; i < MANY; i++) count[(int)golden_at(y, r * MANY + i)]++;
        for (int k = 0; k < CLASSES; k++) total += (double)w[r][k];
        for (int k = 0; k < CLASSES; k++) {
            assert_true(fabs(count[k] / MANY - (double)w[r][k] / total) < 0.015);
            if (w[r][k] == 0) assert_true(count[k] == 0);
        }
    }
    kn_rng_destroy(rng);
}

/* Each index once; the first one in proportion to the weights. */
static void draws_without_replacement_differ(void **state) {
    (void)state;
    enum { MANY = 20000, CLASSES = 3 };
    kn_rng *rng;
    assert_ok(kn_rng_create(&rng, 9));
    KN_FRAME();
    kn_tensor *weights = kn_broadcast(X(1, 2, 5), KN_SHAPE(MANY, CLASSES));
    kn_tensor *y = kn_multinomial(weights, 2, false, rng);
    double first[CLASSES] = {0}, second_of_last = 0;
    for (int i = 0; i < MANY; i++) {
        int a = (int)golden_at(y, 2 * i), b = (int)golden_at(y, 2 * i + 1);
        assert_true(a != b && a >= 0 && a < CLASSES && b >= 0 && b < CLASSES);
        first[a]++;
        second_of_last += a == 2 && b == 1;
    }
    assert_true(fabs(first[2] / MANY - 5.0 / 8) < 0.015);
    assert_true(fabs(first[0] / MANY - 1.0 / 8) < 0.015);
    assert_true(fabs(second_of_last / first[2] - 2.0 / 3) < 0.02);
    assert_golden(kn_sort(kn_multinomial(X(0, 1, 0, 2), 2, false, rng), 0, false), 1, 3);
    kn_tensor *huge = F64(KN_SHAPE(2), 1e308, 1e308),
              *of_huge = kn_multinomial(huge, 50, true, rng);
    assert_golden(kn_max(of_huge, KN_ALL, false), 1);
    assert_golden(kn_min(of_huge, KN_ALL, false), 0);
    assert_golden(kn_multinomial(F64(KN_SHAPE(2), 0, 5e-324), 1, false, rng), 1);
    assert_golden(
        kn_gt(kn_full(KN_SCALAR, 2),
              kn_cast(kn_max(kn_multinomial(X(0, 0), 9, true, rng), KN_ALL, false), KN_F32)),
        1);
    assert_shape(kn_multinomial(kn_ones(KN_SHAPE(2, 0)), 0, true, rng), KN_SHAPE(2, 0));
    assert_op_fails(kn_multinomial(X(1, 2), 3, false, rng), KN_ERR_SHAPE,
                    "n is 3, of 2 indices without replacement");
    assert_op_fails(kn_multinomial(kn_zeros(KN_SHAPE(2, 0)), 1, true, rng), KN_ERR_SHAPE,
                    "kn_multinomial");
    assert_op_fails(kn_multinomial(X(1, 2), 1, true, NULL), KN_ERR_INVALID,
                    "kn_multinomial: rng is NULL");
    kn_rng_destroy(rng);
}

int main(void) {
    return RUN_TESTS(OPS_TEST(bernoulli_follows_the_element_map),
                     OPS_TEST(integers_are_equally_likely_and_in_range),
                     OPS_TEST(integers_follow_the_element_map),
                     OPS_TEST(truncated_normals_follow_the_element_map),
                     TEST(words_that_would_favour_a_number_are_drawn_again),
                     OPS_TEST(permutations_have_every_number_once),
                     OPS_TEST(half_of_all_orders_are_odd), OPS_TEST(slices_are_shuffled_whole),
                     OPS_TEST(orders_are_equally_likely), TEST(quantiles_invert_the_distribution),
                     OPS_TEST(truncated_normals_stay_inside_and_have_their_moments),
                     OPS_TEST(exponential_numbers_are_neither_0_nor_infinite),
                     OPS_TEST(exponential_numbers_have_their_distribution),
                     OPS_TEST(draws_follow_the_weights), OPS_TEST(draws_without_replacement_differ),
                     OPS_TEST(the_number_of_threads_changes_no_bit), OPS_TEST(known_numbers),
                     OPS_TEST(wrong_numbers_are_named), OPS_TEST(orthogonal_matrices_may_be_empty),
                     OPS_TEST(orthogonal_matrices_are_orthonormal),
                     OPS_TEST(bilinear_filters_are_hats));
}
