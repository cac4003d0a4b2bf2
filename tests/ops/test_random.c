#include "kernels_test.h"
#include "philox.h"

/* Known-answer vectors of the Random123 distribution (file kat_vectors, philox4x32 10). */
static void philox_gives_the_published_words(void **state) {
    (void)state;
    uint32_t words[4];
    const uint32_t zeros[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    kn__philox(words, 0, 0);
    assert_memory_equal(words, zeros, sizeof zeros);
}

enum { N = 70001 }; /* several chunks, and a rest */

static uint32_t word_of(int64_t element, uint64_t seed, uint64_t offset) {
    uint32_t words[4];
    int64_t in_group = element % 32;
    kn__philox(words, offset + (uint64_t)(element / 32) * 8 + (uint64_t)(in_group % 8), seed);
    return words[in_group / 8];
}

static void check_uniform(kn_dtype dtype, uint64_t seed, uint64_t offset, int64_t n) {
    KN_FRAME(.dtype = dtype);
    kn_rng *rng = NULL;
    assert_ok(kn_rng_create(&rng, seed));
    assert_ok(kn_rng_state_set(rng, seed, offset));
    kn_tensor *y = kn_uniform(KN_SHAPE(n), -2, 3, rng);
    assert_non_null(y);
    for (int64_t i = 0; i < n; i++) {
        double want;
        if (dtype == KN_F32) {
            float u = (float)(word_of(i, seed, offset) >> 8) * 0x1p-24f;
            want = (double)(-2 + u * 5);
        } else {
            uint32_t words[4];
            kn__philox(words, offset + (uint64_t)(i / 16) * 8 + (uint64_t)(i % 8), seed);
            int64_t pair = i % 16 / 8;
            uint64_t bits = (uint64_t)words[2 * pair + 1] << 32 | words[2 * pair];
            want = -2 + (double)(bits >> 11) * 0x1p-53 * 5;
        }
        if (ops_at(y, i) != want) assert_close(ops_at(y, i), want, 0, 0);
    }
    kn_rng_destroy(rng);
}

static void uniforms_follow_the_element_map(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        check_uniform(dtype, 42, 0, N);
        check_uniform(dtype, 0x123456789ABCDEF0u, 0xFFFFFFF0u, 1000); /* carries into word 1 */
        check_uniform(dtype, 7, 0xFFFFFFF8u, 40);                     /* inside a block */
        check_uniform(dtype, 7, 8, 1);
    }
}

static void dropout_follows_the_element_map_and_is_its_own_adjoint(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME();
        const double p = 0.3;
        kn_tensor *x = random_tensor(dtype, KN_SHAPE(N));
        kn_tensor *rng_state = I64(KN_SHAPE(2), 9, 16), *y = op_dropout_state(x, p, rng_state);
        int64_t n_kept = 0;
        for (int64_t i = 0; i < N; i++) {
            bool kept = word_of(i, 9, 16) >= (uint32_t)(p * 4294967296.0);
            n_kept += kept;
            assert_close(ops_at(y, i), kept ? ops_at(x, i) / (1 - p) : 0, 1e-6, 0);
        }
        assert_close((double)n_kept / N, 1 - p, 0.02, 0);
        kn_tensor *g = random_tensor(dtype, KN_SHAPE(N));
        assert_close(dot(g, y), dot(op_dropout_state(g, p, rng_state), x), 1e-4, 1e-4);
        kn_tensor *edge = op_dropout_state(x, word_of(0, 9, 16) * 0x1p-32, rng_state);
        assert_true(ops_at(edge, 0) != 0); /* a word at the threshold keeps its element */
        kn_tensor *none = op_dropout_state(x, 1, rng_state);
        for (int64_t i = 0; i < N; i++) assert_close(ops_at(none, i), 0, 0, 0);
    }
}

static void normals_have_the_moments_asked_for(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        kn_rng *rng = NULL;
        assert_ok(kn_rng_create(&rng, 3));
        kn_tensor *y = kn_normal(KN_SHAPE(N), 2, 0.5, rng);
        double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
        for (int64_t i = 0; i < N; i++) {
            double z = (ops_at(y, i) - 2) / 0.5;
            assert_true(isfinite(z));
            m1 += z / N, m2 += z * z / N, m3 += z * z * z / N, m4 += z * z * z * z / N;
        }
        assert_close(m1, 0, 0, 0.02);
        assert_close(m2, 1, 0, 0.03);
        assert_close(m3, 0, 0, 0.06);
        assert_close(m4, 3, 0, 0.2);
        kn_rng_destroy(rng);
    }
}

/* Box and Muller's formula with the C library's functions, on the words of counter 0. */
static void normals_match_the_formula(void **state) {
    (void)state;
    const double two_pi = 6.283185307179586;
    kn_rng *rng = NULL;
    assert_ok(kn_rng_create(&rng, 11));
    uint32_t w[4];
    kn__philox(w, 0, 11);
    {
        KN_FRAME();
        kn_tensor *y = kn_normal(KN_SHAPE(32), 0, 1, rng);
        double r = sqrt(-2 * log(1 - (w[0] >> 8) * 0x1p-24)), turn = (w[1] >> 8) * 0x1p-24;
        assert_close(ops_at(y, 0), r * cos(two_pi * turn), 1e-6, 1e-7);
        assert_close(ops_at(y, 8), r * sin(two_pi * turn), 1e-6, 1e-7);
    }
    assert_ok(kn_rng_state_set(rng, 11, 0));
    {
        KN_FRAME(.dtype = KN_F64);
        kn_tensor *y = kn_normal(KN_SHAPE(16), 0, 1, rng);
        double u = (double)(((uint64_t)w[1] << 32 | w[0]) >> 11) * 0x1p-53;
        double turn = (double)(((uint64_t)w[3] << 32 | w[2]) >> 11) * 0x1p-53;
        double r = sqrt(-2 * log(1 - u));
        assert_close(ops_at(y, 0), r * cos(two_pi * turn), 1e-13, 1e-14);
        assert_close(ops_at(y, 8), r * sin(two_pi * turn), 1e-13, 1e-14);
    }
    kn_rng_destroy(rng);
}

static void uniforms_stay_below_the_upper_bound(void **state) {
    (void)state;
    for (uint32_t word = 0xFFFFFF00u; word; word++) {
        assert_true(kn__uniform_f32(word, 1e8f, 1e8f + 8, kn__below_f32(1e8f, 1e8f + 8)) <
                    1e8f + 8);
        assert_true(kn__uniform_f32(word, -1, 0, kn__below_f32(-1, 0)) < 0);
    }
    assert_true(kn__uniform_f32(5, 2, 2, kn__below_f32(2, 2)) == 2);
    assert_true(kn__uniform_f64(~0u, ~0u, 1e16, 1e16 + 4, kn__below_f64(1e16, 1e16 + 4)) <
                1e16 + 4);
}

static void each_op_takes_the_next_numbers(void **state) {
    (void)state;
    KN_FRAME();
    kn_rng *rng = NULL;
    uint64_t seed = 0, offset = 0;
    assert_ok(kn_rng_create(&rng, 5));
    kn_tensor *a = kn_uniform(KN_SHAPE(100), 0, 1, rng);
    assert_ok(kn_rng_state_get(&seed, &offset, rng));
    assert_int_equal(seed, 5);
    assert_int_equal(offset, kn__philox_counters(100));
    kn_tensor *b = kn_uniform(KN_SHAPE(100), 0, 1, rng);
    assert_memory_not_equal(kn_data(a), kn_data(b), 400);
    assert_ok(kn_rng_state_set(rng, 5, 0));
    assert_same_bits(a, kn_uniform(KN_SHAPE(100), 0, 1, rng));
    kn_rng_destroy(rng);
}

static kn_tensor *drawn(int threads, kn_dtype dtype) {
    KN_FRAME(.threads = threads, .dtype = dtype);
    kn_rng *rng = NULL;
    assert_ok(kn_rng_create(&rng, 21));
    kn_tensor *y = kn_keep(kn_normal(KN_SHAPE(N), 0, 1, rng));
    kn_rng_destroy(rng);
    return y;
}

static void the_number_of_threads_changes_no_bit(void **state) {
    (void)state;
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME();
        assert_same_bits(drawn(1, dtype), drawn(4, dtype));
    }
}

static void the_state_of_no_generator_is_an_error(void **state) {
    (void)state;
    uint64_t seed = 0, offset = 0;
    assert_fails(kn_rng_state_get(&seed, &offset, NULL), KN_ERR_INVALID, "rng is NULL");
    assert_fails(kn_rng_state_set(NULL, 1, 0), KN_ERR_INVALID, "rng is NULL");
    kn_rng *rng = NULL;
    assert_ok(kn_rng_create(&rng, 1));
    assert_fails(kn_rng_state_get(NULL, &offset, rng), KN_ERR_INVALID, "seed is NULL");
    assert_fails(kn_rng_state_get(&seed, NULL, rng), KN_ERR_INVALID, "offset is NULL");
    kn_rng_destroy(rng);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(the_state_of_no_generator_is_an_error), TEST(philox_gives_the_published_words),
        OPS_TEST(uniforms_follow_the_element_map),
        OPS_TEST(dropout_follows_the_element_map_and_is_its_own_adjoint),
        OPS_TEST(normals_have_the_moments_asked_for), OPS_TEST(normals_match_the_formula),
        OPS_TEST(uniforms_stay_below_the_upper_bound), OPS_TEST(each_op_takes_the_next_numbers),
        OPS_TEST(the_number_of_threads_changes_no_bit));
}
