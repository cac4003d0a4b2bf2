/* The hash table, against an array that is searched. */
#include "hash.h"
#include "test.h"

/* Sanitizers end the program where calloc fails, unless an option makes it return NULL. */
#define OPTIONS __attribute__((visibility("default"))) const char *
OPTIONS __asan_default_options(void);
OPTIONS __tsan_default_options(void);
OPTIONS __asan_default_options(void) { return "allocator_may_return_null=1"; }
OPTIONS __tsan_default_options(void) { return "allocator_may_return_null=1"; }

enum { KEYS = 300, STEPS = 20000 };

typedef struct item {
    uint64_t key, value;
    char filling[8]; /* slots of another size than a power of two */
} item;

static uint64_t model[KEYS]; /* value of each key; 0: it is not in the table */

/* Few homes, and those at both ends of the array: runs are long and go round. */
static uint64_t key_of(uint64_t i) { return (i + 1) << 32 | (uint32_t)(i % 3 - 1); }

static void put(kn__hash *table, uint64_t i, uint64_t value) {
    if (kn__hash_is_full(table)) assert_true(kn__hash_grow(table, sizeof(item), 4));
    item *slot = kn__hash_put(table, sizeof *slot, key_of(i));
    assert_int_equal(slot->value, model[i]);
    model[i] = slot->value = value;
}

static void drop(kn__hash *table, uint64_t i) {
    item *slot = kn__hash_get(table, sizeof *slot, key_of(i));
    if (slot) kn__hash_remove(table, sizeof *slot, slot);
    model[i] = 0;
}

static void assert_same(const kn__hash *table) {
    size_t n = 0, used = 0;
    for (uint64_t i = 0; i < KEYS; i++) {
        const item *slot = kn__hash_get(table, sizeof *slot, key_of(i));
        assert_int_equal(slot ? slot->value : 0, model[i]);
        n += slot != NULL;
    }
    for (size_t i = 0; i < table->n_slots; i++) {
        used += kn__hash_key(kn__hash_at(table, sizeof(item), i)) != 0;
    }
    assert_int_equal(n, table->n_used);
    assert_int_equal(n, used);
    assert_true(2 * n <= table->n_slots || !n);
}

static void random_puts_and_removals_match_an_array(void **state) {
    (void)state;
    kn__hash table = {0};
    memset(model, 0, sizeof model);
    for (int step = 0; step < STEPS; step++) {
        uint64_t i = test_random_below(KEYS);
        bool fills = step / 2000 % 2 == 0;
        if (test_random_below(4) < (fills ? 3 : 1)) {
            put(&table, i, 1 + test_random_below(1000));
        } else {
            drop(&table, i);
        }
        if (step % 100 == 0) assert_same(&table);
    }
    assert_same(&table);
    kn__hash_release(&table);
}

static void empty_table_finds_nothing_and_is_full(void **state) {
    (void)state;
    kn__hash table = {0};
    assert_null(kn__hash_get(&table, sizeof(item), 1));
    assert_true(kn__hash_is_full(&table));
    kn__hash_clear(&table, sizeof(item));
    kn__hash_release(&table);
}

static void removal_during_a_walk_misses_no_slot(void **state) {
    (void)state;
    for (uint64_t n = 1; n < 40; n++) {
        kn__hash table = {0};
        memset(model, 0, sizeof model);
        for (uint64_t i = 0; i < n; i++) put(&table, i, i + 1);
        for (size_t i = 0; i < table.n_slots; i++) {
            item *slot = kn__hash_at(&table, sizeof *slot, i);
            while (slot->key && slot->value % 3 != 0) {
                model[slot->value - 1] = 0;
                kn__hash_remove(&table, sizeof *slot, slot);
            }
        }
        assert_int_equal(table.n_used, n / 3);
        assert_same(&table);
        kn__hash_release(&table);
    }
}

/* Three texts of one hash. */
static void equal_keys_are_told_apart_by_the_caller(void **state) {
    (void)state;
    kn__hash table = {0};
    for (uint64_t value = 1; value <= 3; value++) {
        if (kn__hash_is_full(&table)) assert_true(kn__hash_grow(&table, sizeof(item), 2));
        item *slot = kn__hash_find(&table, sizeof *slot, 7);
        while (slot->key) slot = kn__hash_after(&table, sizeof *slot, slot);
        kn__hash_use(&table, slot, 7);
        slot->value = value;
    }
    uint64_t seen = 0;
    for (item *slot = kn__hash_find(&table, sizeof *slot, 7); slot->key;
         slot = kn__hash_after(&table, sizeof *slot, slot)) {
        seen |= 1u << slot->value;
    }
    assert_int_equal(seen, 14);
    kn__hash_release(&table);
}

static void caller_may_bring_the_memory(void **state) {
    (void)state;
    item small[8] = {{0}}, large[32] = {{0}};
    kn__hash table = {0};
    memset(model, 0, sizeof model);
    assert_null(kn__hash_move(&table, sizeof *small, small, 8));
    for (uint64_t i = 0; i < 4; i++) {
        assert_false(kn__hash_is_full(&table));
        put(&table, i, i + 1);
    }
    assert_true(kn__hash_is_full(&table));
    assert_ptr_equal(kn__hash_move(&table, sizeof *large, large, 32), small);
    assert_same(&table);
    kn__hash_clear(&table, sizeof *large);
    memset(model, 0, sizeof model);
    assert_same(&table);
}

static void growth_without_memory_changes_nothing(void **state) {
    (void)state;
    kn__hash table = {0};
    memset(model, 0, sizeof model);
    put(&table, 1, 5);
    assert_false(kn__hash_grow(&table, SIZE_MAX / 4, 4));
    assert_same(&table);
    kn__hash_release(&table);
}

static void spread_keeps_numbers_apart_and_moves_their_low_bits(void **state) {
    (void)state;
    unsigned char seen[256] = {0};
    assert_int_equal(kn__spread(0), 0);
    for (uint64_t i = 1; i <= 128; i++) {
        assert_true(kn__spread(i) != 0);
        seen[kn__spread(i << 32) % 256] = 1; /* addresses that are far apart */
    }
    int homes = 0;
    for (int i = 0; i < 256; i++) homes += seen[i];
    assert_true(homes > 64);
}

/* Vectors of the authors' page on FNV. */
static void fnv_is_the_published_one_and_goes_on_where_it_stopped(void **state) {
    (void)state;
    assert_true(kn__fnv_text(KN__FNV_START, "") == 0xCBF29CE484222325u);
    assert_true(kn__fnv_text(KN__FNV_START, "a") == 0xAF63DC4C8601EC8Cu);
    assert_true(kn__fnv_text(KN__FNV_START, "foobar") == 0x85944171F73967E8u);
    assert_true(kn__fnv(kn__fnv(KN__FNV_START, "foo", 3), "bar", 3) == 0x85944171F73967E8u);
    assert_true(kn__fnv_step(KN__FNV_START, 'a') == 0xAF63DC4C8601EC8Cu);
    assert_true(kn__hash_bytes(7, "foobar", 6) == kn__hash_text(7, "foobar"));
    assert_true(kn__hash_bytes(7, "a\0b", 3) != kn__hash_bytes(7, "a\0c", 3));
}

/* The upper half of a word reaches the low bits, which choose a bucket; the last part is left out.
 */
static void fnv_of_words_depends_on_every_bit_of_each(void **state) {
    (void)state;
    uint64_t words[3] = {1, 2, 3}, plain = kn__fnv_words(KN__FNV_START, words, sizeof words);
    for (int word = 0; word < 3; word++) {
        for (int bit = 0; bit < 64; bit++) {
            words[word] ^= (uint64_t)1 << bit;
            assert_true(kn__fnv_words(KN__FNV_START, words, sizeof words) != plain);
            words[word] ^= (uint64_t)1 << bit;
        }
    }
    words[0] ^= (uint64_t)1 << 40;
    assert_true((kn__fnv_words(KN__FNV_START, words, sizeof words) ^ plain) & 0xFFFF);
    words[0] ^= (uint64_t)1 << 40;
    assert_true(kn__fnv_words(KN__FNV_START, words, sizeof words - 1) ==
                kn__fnv_words(KN__FNV_START, words, 16));
}

int main(void) {
    return RUN_TESTS(
        TEST(random_puts_and_removals_match_an_array), TEST(empty_table_finds_nothing_and_is_full),
        TEST(removal_during_a_walk_misses_no_slot), TEST(equal_keys_are_told_apart_by_the_caller),
        TEST(caller_may_bring_the_memory), TEST(growth_without_memory_changes_nothing),
        TEST(spread_keeps_numbers_apart_and_moves_their_low_bits),
        TEST(fnv_is_the_published_one_and_goes_on_where_it_stopped),
        TEST(fnv_of_words_depends_on_every_bit_of_each));
}
