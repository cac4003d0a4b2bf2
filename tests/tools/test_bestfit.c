/* Best fit: the smallest run, then the lowest address; lists; merging. */
#include "bestfit.h"
#include "test.h"

enum { KiB = 1024, MiB = 1024 * KiB };

/* Takes from a list, whose remainders stay in it; grows where nothing fits. */
static uint32_t take(kn__bestfit *b, uint32_t list, uint64_t size) {
    uint32_t run;
    assert_ok(kn__bestfit_take(&run, b, list, list, size));
    if (run) return run;
    assert_ok(kn__bestfit_grow(b, list, size));
    assert_ok(kn__bestfit_take(&run, b, list, list, size));
    assert_true(run != KN__RUN_NONE);
    return run;
}

static uint32_t try_take(kn__bestfit *b, uint32_t list, uint64_t size) {
    uint32_t run;
    assert_ok(kn__bestfit_take(&run, b, list, list, size));
    return run;
}

static void a_run_serves_the_list_into_which_it_was_freed(void **state) {
    (void)state;
    kn__bestfit b;
    uint32_t run;
    assert_ok(kn__bestfit_init(&b, 3));
    kn__bestfit_reset(&b, 64 * MiB);
    uint32_t x = take(&b, 0, 2 * MiB);
    kn__bestfit_free(&b, x, 1);
    assert_int_equal(try_take(&b, 0, 2 * MiB), KN__RUN_NONE);
    assert_int_equal(try_take(&b, 2, 512), KN__RUN_NONE);
    assert_ok(kn__bestfit_take(&run, &b, 1, 2, MiB));
    assert_int_equal(b.runs[run].at, 0);
    assert_int_equal(try_take(&b, 1, 512), KN__RUN_NONE);
    assert_int_equal(b.runs[try_take(&b, 2, MiB)].at, MiB);
    assert_int_equal(b.end, 2 * MiB);
    kn__bestfit_release(&b);
}

static void free_neighbours_merge_in_one_list_only(void **state) {
    (void)state;
    for (int order = 0; order < 6; order++) {
        static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                         {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
        for (uint32_t other = 0; other < 2; other++) {
            kn__bestfit b;
            uint32_t runs[3];
            assert_ok(kn__bestfit_init(&b, 2));
            kn__bestfit_reset(&b, 64 * MiB);
            for (int i = 0; i < 3; i++) runs[i] = take(&b, 0, 2 * MiB);
            for (int i = 0; i < 3; i++) {
                int k = orders[order][i];
                kn__bestfit_free(&b, runs[k], k == 1 ? other : 0);
            }
            uint32_t whole = try_take(&b, 0, 6 * MiB);
            assert_int_equal(whole != KN__RUN_NONE, other == 0);
            if (whole) assert_int_equal(b.runs[whole].at, 0);
            kn__bestfit_release(&b);
        }
    }
}

static void the_range_grows_to_its_limit(void **state) {
    (void)state;
    kn__bestfit b;
    assert_ok(kn__bestfit_init(&b, 2));
    kn__bestfit_reset(&b, 8 * MiB);
    kn__bestfit_free(&b, take(&b, 0, 3 * MiB), 0);
    assert_int_equal(b.end, 4 * MiB);
    assert_ok(kn__bestfit_grow(&b, 0, 8 * MiB)); /* 4 MiB are there */
    assert_int_equal(b.end, 8 * MiB);
    assert_fails(kn__bestfit_grow(&b, 1, 1), KN_ERR_OOM, "the device has");
    assert_int_equal(b.runs[try_take(&b, 0, 8 * MiB)].at, 0);
    kn__bestfit_release(&b);
}

static void a_reset_range_is_empty_and_has_a_new_limit(void **state) {
    (void)state;
    kn__bestfit b;
    assert_ok(kn__bestfit_init(&b, 1));
    kn__bestfit_reset(&b, 8 * MiB);
    kn__bestfit_free(&b, take(&b, 0, 8 * MiB - 1280 * KiB), 0);
    assert_true(try_take(&b, 0, 8 * MiB - 1280 * KiB) != KN__RUN_NONE); /* leaves 1.25 MiB */
    kn__bestfit_reset(&b, 2 * MiB);
    assert_int_equal(try_take(&b, 0, 512), KN__RUN_NONE);
    assert_int_equal(try_take(&b, 0, 1280 * KiB), KN__RUN_NONE);
    assert_fails(kn__bestfit_grow(&b, 0, 3 * MiB), KN_ERR_OOM, "the device has");
    assert_ok(kn__bestfit_grow(&b, 0, 1));
    assert_int_equal(b.end, 2 * MiB);
    assert_true(try_take(&b, 0, MiB) != KN__RUN_NONE);
    kn__bestfit_release(&b);
}

/* What the list should serve: looks at all runs, in the order of their addresses. */
static uint32_t smallest(const kn__bestfit *b, uint32_t first, uint32_t list, uint64_t size) {
    uint32_t best = KN__RUN_NONE;
    for (uint32_t r = first; r; r = b->runs[r].right) {
        const kn__run *x = &b->runs[r];
        if (!x->is_free || x->list != list || x->size < size) continue;
        if (!best || x->size < b->runs[best].size) best = r;
    }
    return best;
}

/* The runs cover the range; no two free neighbours are of one list. Returns the first run. */
static uint32_t check(const kn__bestfit *b) {
    uint32_t first = b->last;
    uint64_t at = b->end;
    for (uint32_t r = b->last; r; r = b->runs[r].left) {
        const kn__run *x = &b->runs[r], *left = &b->runs[x->left];
        assert_int_equal(x->at + x->size, at);
        assert_true(!x->left || !x->is_free || !left->is_free || left->list != x->list);
        at = x->at;
        first = r;
    }
    assert_int_equal(at, 0);
    return first;
}

static void the_smallest_run_with_the_lowest_address_is_taken(void **state) {
    (void)state;
    enum { STEPS = 3000, LISTS = 3 };
    static uint32_t live[STEPS];
    size_t n_live = 0;
    kn__bestfit b;
    assert_ok(kn__bestfit_init(&b, LISTS));
    kn__bestfit_reset(&b, (uint64_t)1 << 40);
    for (int i = 0; i < STEPS; i++) {
        uint32_t list = (uint32_t)test_random_below(LISTS), first = check(&b);
        if (n_live && test_random_below(100) < 48) {
            size_t k = test_random_below(n_live);
            kn__bestfit_free(&b, live[k], list);
            live[k] = live[--n_live];
            continue;
        }
        uint64_t size = 512 * (1 + test_random_below(test_random_below(2) ? 40 : 20000));
        uint32_t expected = smallest(&b, first, list, size), run = try_take(&b, list, size);
        assert_int_equal(run, expected);
        live[n_live++] = run ? run : take(&b, list, size);
        assert_int_equal(b.runs[live[n_live - 1]].size, size);
    }
    check(&b);
    kn__bestfit_release(&b);
}

int main(void) {
    return RUN_TESTS(TEST(a_run_serves_the_list_into_which_it_was_freed),
                     TEST(free_neighbours_merge_in_one_list_only),
                     TEST(the_range_grows_to_its_limit),
                     TEST(a_reset_range_is_empty_and_has_a_new_limit),
                     TEST(the_smallest_run_with_the_lowest_address_is_taken));
}
