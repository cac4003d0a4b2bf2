/* Offline placement. */
#include "place.h"
#include "test.h"

enum { MOST = 400, FEW = 60 };

static void assert_valid(const kn__lifetime *spans, size_t n, uint64_t total) {
    uint64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        if (spans[i].offset + spans[i].size > end) end = spans[i].offset + spans[i].size;
        for (size_t k = 0; k < i; k++) {
            const kn__lifetime *a = &spans[i], *b = &spans[k];
            bool together = a->begin < b->end && b->begin < a->end;
            bool share = a->offset < b->offset + b->size && b->offset < a->offset + a->size;
            if (together && share) fail_msg("spans %zu and %zu of %zu share bytes", i, k, n);
        }
    }
    assert_int_equal(end, total);
}

static size_t random_spans(kn__lifetime *spans, uint64_t most) {
    size_t n = 1 + test_random_below(most);
    uint32_t steps = (uint32_t)(2 + test_random_below(500));
    for (size_t i = 0; i < n; i++) {
        uint32_t begin = (uint32_t)test_random_below(steps);
        uint32_t life = (uint32_t)(1 + test_random_below(steps / 4 + 1));
        spans[i] = (kn__lifetime){.size = 1 + test_random_below(1000),
                                  .begin = begin,
                                  .end = begin + life,
                                  .offset = 12345};
    }
    return n;
}

static void blocks_that_live_together_share_no_byte(void **state) {
    (void)state;
    kn__lifetime spans[MOST];
    for (int round = 0; round < 60; round++) {
        uint64_t total, peak;
        const char *order;
        size_t n = random_spans(spans, round % 20 ? FEW : MOST);
        assert_true(kn__place_spans(&total, &order, spans, n));
        assert_true(kn__place_peak(&peak, spans, n));
        assert_valid(spans, n, total);
        assert_true(total >= peak && total < 2 * peak);
        assert_true(order[0] != 0);
    }
}

static void placement_depends_on_the_spans_alone(void **state) {
    (void)state;
    kn__lifetime spans[MOST], again[MOST];
    uint64_t total, other;
    const char *order;
    size_t n = random_spans(spans, FEW);
    memcpy(again, spans, n * sizeof *spans);
    assert_true(kn__place_spans(&total, &order, spans, n));
    for (size_t i = 0; i < n; i++) again[i].offset = 0;
    assert_true(kn__place_spans(&other, &order, again, n));
    assert_int_equal(total, other);
    assert_memory_equal(spans, again, n * sizeof *spans);
}

static void successive_blocks_share_all_bytes(void **state) {
    (void)state;
    kn__lifetime spans[] = {{.size = 100, .begin = 0, .end = 1},
                            {.size = 300, .begin = 1, .end = 2},
                            {.size = 200, .begin = 2, .end = 3}};
    uint64_t total, peak;
    const char *order;
    assert_true(kn__place_spans(&total, &order, spans, 3));
    assert_true(kn__place_peak(&peak, spans, 3));
    assert_int_equal(total, 300);
    assert_int_equal(peak, 300);
    assert_int_equal(spans[0].offset + spans[1].offset + spans[2].offset, 0);
}

/* In the order of their starts, a hole of 1 is left below the block of 2: others find 3. */
static void several_orders_are_tried(void **state) {
    (void)state;
    kn__lifetime spans[] = {{.size = 1, .begin = 0, .end = 2},
                            {.size = 1, .begin = 0, .end = 4},
                            {.size = 2, .begin = 2, .end = 4}};
    uint64_t total;
    const char *order;
    assert_true(kn__place_spans(&total, &order, spans, 3));
    assert_int_equal(total, 3);
    assert_valid(spans, 3, total);
}

static void nothing_needs_no_bytes(void **state) {
    (void)state;
    uint64_t total = 7, peak = 7;
    const char *order = NULL;
    assert_true(kn__place_spans(&total, &order, NULL, 0));
    assert_true(kn__place_peak(&peak, NULL, 0));
    assert_int_equal(total, 0);
    assert_int_equal(peak, 0);
    assert_string_equal(order, "");
}

int main(void) {
    return RUN_TESTS(TEST(blocks_that_live_together_share_no_byte),
                     TEST(placement_depends_on_the_spans_alone),
                     TEST(successive_blocks_share_all_bytes), TEST(several_orders_are_tried),
                     TEST(nothing_needs_no_bytes));
}
