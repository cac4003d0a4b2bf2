/* The page map, with no pool around it. */
#include "core/pagemap.h"

#include "test.h"

/* A read beyond the map by mistake finds no leaf. */
static struct {
    kn__pagemap map;
    uintptr_t behind;
} fixture = {.behind = 1};
#define map fixture.map

static int setup(void **state) {
    (void)state;
    memset(&map, 0, sizeof map);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    kn__pagemap_release(&map);
    return 0;
}

static const void *at(uint64_t address) { return (const void *)(uintptr_t)address; }

static void empty_map_knows_no_address(void **state) {
    (void)state;
    const uint64_t addresses[] = {0, 1, 65536, 1ull << 32, (1ull << 48) - 1, 1ull << 48, ~0ull};
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        assert_int_equal(kn__page_get(&map, at(addresses[i])), 0);
    }
}

static void word_is_of_all_addresses_of_its_page_and_of_no_other(void **state) {
    (void)state;
    const uint64_t page = 0x7f1234560000;
    assert_int_equal(kn__pagemap_cover(&map, at(page), KN__PAGE, "test"), KN_OK);
    kn__page_set(&map, at(page + 100), 42);
    assert_int_equal(kn__page_get(&map, at(page)), 42);
    assert_int_equal(kn__page_get(&map, at(page + KN__PAGE - 1)), 42);
    assert_int_equal(kn__page_get(&map, at(page + KN__PAGE)), 0);
    assert_int_equal(kn__page_get(&map, at(page - 1)), 0);
    assert_int_equal(kn__page_get(&map, at(page + (1ull << 32))),
                     0); /* the same place, a leaf on */
}

static void run_of_pages_may_cross_leaves(void **state) {
    (void)state;
    const uint64_t first = (5ull << 32) - 3 * KN__PAGE;
    assert_int_equal(kn__pagemap_cover(&map, at(first), 6 * KN__PAGE, "test"), KN_OK);
    kn__pages_set(&map, at(first), 6, 7);
    for (uint64_t i = 0; i < 6; i++) {
        assert_int_equal(kn__page_get(&map, at(first + i * KN__PAGE)), 7);
    }
    assert_int_equal(kn__page_get(&map, at(first - 1)), 0);
    assert_int_equal(kn__page_get(&map, at(first + 6 * KN__PAGE)), 0);
    kn__pages_set(&map, at(first), 6, 0);
    assert_int_equal(kn__page_get(&map, at(first)), 0);
}

static void covering_again_keeps_the_words(void **state) {
    (void)state;
    assert_int_equal(kn__pagemap_cover(&map, at(KN__PAGE), KN__PAGE, "test"), KN_OK);
    kn__page_set(&map, at(KN__PAGE), 9);
    assert_int_equal(kn__pagemap_cover(&map, at(0), 1ull << 33, "test"), KN_OK);
    assert_int_equal(kn__page_get(&map, at(KN__PAGE)), 9);
}

static void address_beyond_48_bits_is_an_error(void **state) {
    (void)state;
    const uint64_t last = (1ull << 48) - KN__PAGE;
    assert_int_equal(kn__pagemap_cover(&map, at(last), KN__PAGE, "test"), KN_OK);
    assert_int_equal(kn__pagemap_cover(&map, at(last), KN__PAGE + 1, "test"), KN_ERR_UNSUPPORTED);
    assert_non_null(strstr(kn_last_error()->message, "beyond 48 bits"));
}

int main(void) {
    return RUN_TESTS(
        TEST_WITH(empty_map_knows_no_address, setup, teardown),
        TEST_WITH(word_is_of_all_addresses_of_its_page_and_of_no_other, setup, teardown),
        TEST_WITH(run_of_pages_may_cross_leaves, setup, teardown),
        TEST_WITH(covering_again_keeps_the_words, setup, teardown),
        TEST_WITH(address_beyond_48_bits_is_an_error, setup, teardown));
}
