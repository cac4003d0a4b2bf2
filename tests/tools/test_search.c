#include <knet/search.h>
#include <math.h>

#include "test.h"

/* --- golden section --- */
static kn_status parabola(double *loss, void *ctx, double x) {
    ++*(int *)ctx;
    *loss = (x - 0.7) * (x - 0.7) + 3;
    return KN_OK;
}
static kn_status edge(double *loss, void *ctx, double x) {
    (void)ctx;
    *loss = x > 2 ? (double)NAN : -x;
    return KN_OK;
}
static kn_status failing(double *loss, void *ctx, double x) {
    (void)loss, (void)ctx;
    return KN_FAIL(KN_ERR_OOM, "no memory at %g", x);
}

static void the_golden_section_finds_a_minimum(void **state) {
    (void)state;
    int n = 0;
    double x = 0, loss = 0;
    assert_ok(kn_search_golden(&x, &loss, parabola, &n, -10, 10, 30));
    assert_int_equal(n, 30);
    assert_close(x, 0.7, 0, 1e-4);
    assert_close(loss, 3, 1e-7, 0);
    assert_ok(kn_search_golden(&x, &loss, edge, NULL, 0, 5, 40));
    assert_close(x, 2, 0, 1e-5);
    assert_true(x <= 2);
    assert_fails(kn_search_golden(&x, &loss, failing, NULL, 0, 1, 3), KN_ERR_OOM,
                 "no memory at 0.38");
    assert_fails(kn_search_golden(&x, &loss, parabola, &n, 10, 0, 9), KN_ERR_INVALID,
                 "from 10 to 0 is no interval: lo must be below hi, and both finite");
    assert_fails(kn_search_golden(&x, &loss, parabola, &n, 1, NAN, 3), KN_ERR_INVALID, "1 to nan");
    assert_fails(kn_search_golden(&x, &loss, parabola, &n, 0, 1, 1), KN_ERR_INVALID,
                 "kn_search_golden: 1 calls; 2 or more are needed");
    assert_fails(kn_search_golden(&x, &loss, NULL, &n, 0, 1, 3), KN_ERR_INVALID, "fn is NULL");
}

typedef struct places {
    double x[16];
    int n;
} places;
static kn_status flat(double *loss, void *ctx, double x) {
    places *p = ctx;
    p->x[p->n++] = x;
    *loss = 1;
    return KN_OK;
}
static kn_status hopeless(double *loss, void *ctx, double x) {
    (void)ctx, (void)x;
    *loss = (double)NAN;
    return KN_OK;
}

static void without_a_slope_the_lower_part_is_searched(void **state) {
    (void)state;
    places p = {.n = 0};
    double x = 0, loss = 0;
    assert_ok(kn_search_golden(&x, &loss, flat, &p, 0, 1, 8));
    assert_close(x, p.x[0], 0, 0);
    for (int i = 2; i < 8; i++) assert_true(p.x[i] < p.x[i - 1]);
    assert_ok(kn_search_golden(&x, &loss, hopeless, NULL, 0, 1, 4));
    assert_true(x > 0 && x < 1 && isinf(loss));
}

/* --- several numbers --- */

/* A minimum of 1 at (2, -1), along a valley that is no axis; NaN beyond 4. */
static kn_status valley(double *loss, void *ctx, const double x[]) {
    ++*(int *)ctx;
    double a = x[0] - 2, b = x[1] + 1;
    *loss = x[0] > 4 ? (double)NAN : a * a + b * b + 0.9 * a * b + 1;
    return KN_OK;
}
static kn_status nowhere(double *loss, void *ctx, const double x[]) {
    (void)ctx, (void)x;
    *loss = (double)NAN;
    return KN_OK;
}
static kn_status failing_at(double *loss, void *ctx, const double x[]) {
    (void)loss, (void)ctx;
    return KN_FAIL(KN_ERR_OOM, "no memory at %g", x[0]);
}

static void each_number_is_searched_in_turn(void **state) {
    (void)state;
    static const double lo[] = {-5, -3}, hi[] = {5, 3};
    int n = 0;
    double loss = 0, x[] = {0, 0}, first = 0;
    kn_golden g = {.fn = valley, .ctx = &n, .lo = lo, .hi = hi, .n = 2, .n_calls = 25, .rounds = 1};
    assert_ok(kn_golden_run(x, &first, &g));
    assert_int_equal(n, 2 * 25);
    assert_close(x[0], 2 - 0.45, 0, 1e-3); /* the best for x[1] = 0 */
    g.rounds = 12;
    assert_ok(kn_golden_run(x, &loss, &g));
    assert_int_equal(n, 2 * 25 + 12 * 2 * 25);
    assert_close(x[0], 2, 0, 1e-3);
    assert_close(x[1], -1, 0, 1e-3);
    assert_close(loss, 1, 1e-5, 0);
    assert_true(loss < first);
    g.fn = nowhere;
    assert_ok(kn_golden_run(x, &loss, &g));
    assert_close(x[0], 2, 0, 1e-3); /* no point was better */
    assert_true(isinf(loss));
}

static void wrong_numbers_of_a_search_leave_x_alone(void **state) {
    (void)state;
    static const double lo[] = {-5, -3}, hi[] = {5, 3};
    int n = 0;
    double loss = 7, x[] = {1, 2}, far[] = {1, 4};
    const kn_golden good = {.fn = valley, .ctx = &n, .lo = lo, .hi = hi, .n = 2, .n_calls = 5};
    kn_golden g = good;
    assert_fails(kn_golden_run(far, &loss, &g), KN_ERR_INVALID,
                 "kn_golden_run: x[1] is 4; its interval is -3 to 3");
    g.n_calls = 1;
    assert_fails(kn_golden_run(x, &loss, &g), KN_ERR_INVALID,
                 "kn_golden_run: 1 calls; 2 or more are needed");
    g = good, g.n = 0;
    assert_fails(kn_golden_run(x, &loss, &g), KN_ERR_INVALID, "n 0 must be 1 or more");
    g = good, g.rounds = -1;
    assert_fails(kn_golden_run(x, &loss, &g), KN_ERR_INVALID, "rounds -1 0 or more");
    g = good, g.reserved[3] = 1;
    assert_fails(kn_golden_run(x, &loss, &g), KN_ERR_INVALID,
                 "kn_golden_run: reserved[3] is 1; it must be 0");
    g = good, g.unused = 3;
    assert_fails(kn_golden_run(x, &loss, &g), KN_ERR_INVALID, "unused is 3; it must be 0");
    g = good, g.hi = (double[]){5, 2}, g.lo = (double[]){-5, 2};
    assert_fails(kn_golden_run(x, &loss, &g), KN_ERR_INVALID,
                 "kn_golden_run: number 2: from 2 to 2 is no interval: lo must be below hi");
    g.lo = (double[]){-5, -(double)INFINITY};
    assert_fails(kn_golden_run(x, &loss, &g), KN_ERR_INVALID, "number 2: from -inf to 2 is");
    assert_int_equal(n, 0);
    g = good, g.lo = NULL;
    assert_fails(kn_golden_run(x, &loss, &g), KN_ERR_INVALID, "lo is NULL");
    g = good, g.hi = NULL;
    assert_fails(kn_golden_run(x, &loss, &g), KN_ERR_INVALID, "hi is NULL");
    g = good, g.fn = failing_at;
    assert_fails(kn_golden_run(x, &loss, &g), KN_ERR_OOM, "no memory at -1.18");
    assert_close(x[0], 1, 0, 0);
    assert_close(x[1], 2, 0, 0);
    assert_close(loss, 7, 0, 0);
    assert_ok(kn_golden_run(x, &loss, &good));
    assert_int_equal(n, 2 * 2 * 5);
}

/* --- hyperband --- */
static kn_status lost(double *loss, void *ctx, int64_t i, int64_t resource) {
    (void)ctx, (void)i;
    assert_true(resource > 0);
    *loss = (double)NAN;
    return KN_OK;
}
typedef struct log {
    int64_t calls, spent, most[256], best;
} log_of;

/* The best configuration looks bad with little resource. */
static kn_status trained(double *loss, void *ctx, int64_t i, int64_t resource) {
    log_of *l = ctx;
    assert_true(i >= 0 && i < 256 && resource > l->most[i]);
    l->calls++;
    l->spent += resource - l->most[i];
    l->most[i] = resource;
    *loss = fabs((double)(i - l->best)) + 10 / (double)resource;
    return KN_OK;
}

static void hyperband_gives_more_to_fewer(void **state) {
    (void)state;
    log_of l = {.best = 5};
    int64_t best = -1;
    double loss = 0;
    kn_hyperband h = {.fn = trained, .ctx = &l, .resource_max = 81};
    /* the table of Li et al. 2018: brackets of 81, 34, 15, 8, 5 configurations */
    assert_int_equal(kn_hyperband_count(&h), 81 + 34 + 15 + 8 + 5);
    assert_ok(kn_hyperband_run(&best, &loss, &h));
    assert_int_equal(best, 5);
    assert_close(loss, 10.0 / 81, 1e-12, 0);
    assert_int_equal(l.most[5], 81);
    assert_int_equal(l.most[80], 1); /* the worst of the first round */
    assert_int_equal(l.calls, 81 + 27 + 9 + 3 + 1 + 34 + 11 + 3 + 1 + 15 + 5 + 1 + 8 + 2 + 5);
}

static void hyperband_refuses_wrong_numbers(void **state) {
    (void)state;
    int64_t best = 0;
    double loss = 0;
    assert_int_equal(kn_hyperband_count(&(kn_hyperband){.resource_max = 0}), -1);
    assert_fails(kn_hyperband_run(&best, &loss, &(kn_hyperband){.resource_max = 3, .eta = 1}),
                 KN_ERR_INVALID, "eta 1 2 or more");
    assert_fails(kn_hyperband_run(&best, &loss, &(kn_hyperband){.resource_max = 3}), KN_ERR_INVALID,
                 "fn is NULL");
    assert_fails(
        kn_hyperband_run(&best, &loss,
                         &(kn_hyperband){.fn = lost, .resource_max = 3, .reserved = {0, 0, 0, 1}}),
        KN_ERR_INVALID, "reserved");
}

static void hyperband_names_a_configuration_though_all_fail(void **state) {
    (void)state;
    int64_t best = -1;
    double loss = 0;
    assert_ok(kn_hyperband_run(&best, &loss, &(kn_hyperband){.fn = lost, .resource_max = 10}));
    assert_true(best >= 0 && isinf(loss));
}

int main(void) {
    return RUN_TESTS(TEST(the_golden_section_finds_a_minimum), TEST(hyperband_gives_more_to_fewer),
                     TEST(each_number_is_searched_in_turn),
                     TEST(wrong_numbers_of_a_search_leave_x_alone),
                     TEST(without_a_slope_the_lower_part_is_searched),
                     TEST(hyperband_names_a_configuration_though_all_fail),
                     TEST(hyperband_refuses_wrong_numbers));
}
