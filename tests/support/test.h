/* Included by every test: CMocka and its headers, comparison of doubles, seeded random numbers, one
 * place to register tests.
 *
 *     static void free_of_null_is_a_no_op(void **state) { … }
 *     int main(void) { return RUN_TESTS(TEST(free_of_null_is_a_no_op), TEST(…)); }
 */
#ifndef KNET_TEST_H
#define KNET_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEST(fn) cmocka_unit_test(fn)
/* Sanitizers make a program ten times slower. TEST_LONG is a test whose code shorter tests run too:
 * builds with sanitizers leave it out. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define TEST_SANITIZED 1
#else
#define TEST_SANITIZED 0
#endif
#define TEST_LONG(fn)                                                                              \
    { #fn, TEST_SANITIZED ? NULL : (fn), NULL, NULL, NULL }
#define TEST_WITH(fn, setup, teardown) cmocka_unit_test_setup_teardown(fn, setup, teardown)
#define RUN_TESTS(...)                                                                             \
    cmocka_run_group_tests_name(__FILE__, ((const struct CMUnitTest[]){__VA_ARGS__}), NULL, NULL)

/* |a - b| <= atol + rtol·|b|; NaN equals NaN. */
#define assert_close(a, b, rtol, atol)                                                             \
    test_assert_close((a), (b), (rtol), (atol), #a, __FILE__, __LINE__)
void test_assert_close(double a, double b, double rtol, double atol, const char *what,
                       const char *file, int line);

/* The call returned KN_OK; else its message. */
#define assert_ok(expr) test_assert_status((expr), 0, #expr, __FILE__, __LINE__)
/* The call returned this status and its message contains `text`. */
#define assert_fails(expr, want, text)                                                             \
    do {                                                                                           \
        test_assert_status((expr), (want), #expr, __FILE__, __LINE__);                             \
        test_assert_message((text), __FILE__, __LINE__);                                           \
    } while (0)
void test_assert_status(int got, int want, const char *what, const char *file, int line);
void test_assert_message(const char *text, const char *file, int line);

/* Skips the whole program (CTest's 77); call before RUN_TESTS. */
_Noreturn void test_skip_all(const char *why);

/* Seeded random numbers: printed at first use, replayed with KNET_TEST_SEED. */
uint64_t test_random(void);
uint64_t test_random_below(uint64_t n); /* 0 … n-1 */
double test_random_uniform(double lo, double hi);

#endif
