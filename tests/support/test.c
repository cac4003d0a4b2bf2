#include "test.h"

#include <math.h>
#include <time.h>

#include "mix.h"

/* Weak, so that tests that link no Knet.c library can use this file. */
struct kn_error;
extern const struct kn_error *kn_last_error(void) __attribute__((weak));
typedef struct error_layout { /* the layout of kn_error, checked in tests/alloc/test_status.c */
    int status, line;
    const char *file, *op;
    char message[2048];
} error_layout;

static const char *last_message(void) {
    return kn_last_error ? ((const error_layout *)(const void *)kn_last_error())->message : "";
}

void test_assert_close(double a, double b, double rtol, double atol, const char *what,
                       const char *file, int line) {
    if ((isnan(a) && isnan(b)) || a == b || fabs(a - b) <= atol + rtol * fabs(b)) return;
    print_error("%s is %.17g, expected %.17g within rtol %g, atol %g\n", what, a, b, rtol, atol);
    _fail(file, line);
}

void test_assert_status(int got, int want, const char *what, const char *file, int line) {
    if (got == want) return;
    print_error("%s returned %d, expected %d; last error: %s\n", what, got, want, last_message());
    _fail(file, line);
}

void test_assert_message(const char *text, const char *file, int line) {
    if (strstr(last_message(), text)) return;
    print_error("the message lacks \"%s\": %s\n", text, last_message());
    _fail(file, line);
}

/* KNET_TEST_ONLY is a pattern, as of a shell: of each program, the tests with such a name alone. */
__attribute__((constructor)) static void choose_tests(void) {
    const char *only = getenv("KNET_TEST_ONLY");
    if (only) cmocka_set_test_filter(only);
}

void test_skip_all(const char *why) {
    print_message("skipped: %s\n", why);
    exit(77);
}

static uint64_t seed_state;

uint64_t test_random(void) {
    if (!seed_state) {
        const char *text = getenv("KNET_TEST_SEED");
        seed_state = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL) * 2654435761u + 1u;
        print_message("KNET_TEST_SEED=%llu\n", (unsigned long long)seed_state);
    }
    return kn__splitmix(&seed_state);
}

uint64_t test_random_below(uint64_t n) { return test_random() % n; }

double test_random_uniform(double lo, double hi) {
    return lo + (hi - lo) * (double)(test_random() >> 11) * 0x1p-53;
}
