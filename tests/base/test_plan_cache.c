/* The cache of plans: against a list of keys, at its bound, and with threads. */
#include "plan_cache.h"
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct number {
    kn__cached_plan cached;
    uint64_t key;
} number;
_Static_assert(offsetof(number, key) == sizeof(kn__cached_plan), "the key follows");

enum { PLANS_MOST = 1000 };
static _Atomic int n_alive;

static void number_destroy(kn__cached_plan *plan) {
    atomic_fetch_sub(&n_alive, 1);
    free(plan);
}

static kn__plan_cache cache = KN__PLAN_CACHE(uint64_t, PLANS_MOST, number_destroy);

static number *number_create(uint64_t key) {
    number *made = calloc(1, sizeof *made);
    if (!made) abort();
    made->key = key;
    atomic_fetch_add(&n_alive, 1);
    return made;
}

static number *get(uint64_t key) { return (number *)(void *)kn__plan_cache_get(&cache, &key); }
static number *put(uint64_t key) {
    return (number *)(void *)kn__plan_cache_put(&cache, &number_create(key)->cached);
}
static void release(number *n) { kn__plan_cache_drop(&cache, &n->cached); }

static void lookup_finds_exactly_the_inserted_keys(void **state) {
    (void)state;
    assert_null(get(7));
    number *seven = put(7);
    number *again = get(7);
    assert_ptr_equal(again, seven);
    assert_null(get(8));
    release(seven);
    release(again);
}

static void the_second_of_two_equal_plans_is_destroyed(void **state) {
    (void)state;
    number *first = put(100);
    int before = n_alive;
    number *second = put(100);
    assert_ptr_equal(first, second);
    assert_int_equal(n_alive, before);
    release(first);
    release(second);
}

static void the_least_recently_used_is_evicted_first(void **state) {
    (void)state;
    for (uint64_t key = 1000; key < 1000 + PLANS_MOST; key++) {
        release(put(key));
        number *kept = get(1000);
        assert_non_null(kept);
        release(kept);
    }
    release(put(5000));
    assert_int_equal(n_alive, PLANS_MOST);
    number *kept = get(1000);
    assert_non_null(kept);
    release(kept);
    assert_null(get(1001));
}

static void a_plan_in_use_outlives_its_eviction(void **state) {
    (void)state;
    number *held = put(9000);
    for (uint64_t key = 10000; key < 10000 + PLANS_MOST; key++) release(put(key));
    assert_null(get(9000));
    assert_int_equal(held->key, 9000);
    assert_int_equal(n_alive, PLANS_MOST + 1);
    release(held);
    assert_int_equal(n_alive, PLANS_MOST);
}

bool __real_kn__hash_grow(kn__hash *table, size_t slot_bytes, size_t n_least);
bool __wrap_kn__hash_grow(kn__hash *table, size_t slot_bytes, size_t n_least);
static bool no_memory;

bool __wrap_kn__hash_grow(kn__hash *table, size_t slot_bytes, size_t n_least) {
    return !no_memory && __real_kn__hash_grow(table, slot_bytes, n_least);
}

static void a_plan_without_a_place_is_its_makers_alone(void **state) {
    (void)state;
    kn__plan_cache other = KN__PLAN_CACHE(uint64_t, PLANS_MOST, number_destroy);
    int before = n_alive;
    no_memory = true;
    number *made = number_create(42);
    assert_ptr_equal(kn__plan_cache_put(&other, &made->cached), made);
    assert_int_equal(made->key, 42);
    assert_null(kn__plan_cache_get(&other, &made->key));
    assert_int_equal(kn__plan_cache_count(&other), 0);
    kn__plan_cache_drop(&other, &made->cached);
    assert_int_equal(n_alive, before);
    no_memory = false;
    made = number_create(42);
    assert_ptr_equal(kn__plan_cache_put(&other, &made->cached), made);
    assert_int_equal(kn__plan_cache_count(&other), 1);
    kn__plan_cache_drop(&other, &made->cached);
    kn__hash_release(&other.by_key);
    number_destroy(&made->cached);
}

static void *work(void *seed) {
    uint64_t z = *(uint64_t *)seed;
    for (int i = 0; i < 20000; i++) {
        z = z * 6364136223846793005u + 1442695040888963407u;
        uint64_t key = 20000 + (z >> 33) % 1500;
        number *found = get(key);
        if (!found) found = put(key);
        if (found->key != key) return found;
        release(found);
    }
    return NULL;
}

static void threads_get_the_plan_of_their_key(void **state) {
    (void)state;
    pthread_t thread[4];
    uint64_t seed[4] = {1, 2, 3, 4};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, work, &seed[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *wrong = &seed;
        assert_int_equal(pthread_join(thread[i], &wrong), 0);
        assert_null(wrong);
    }
    assert_int_equal(n_alive, PLANS_MOST);
}

int main(void) {
    return RUN_TESTS(
        TEST(lookup_finds_exactly_the_inserted_keys),
        TEST(the_second_of_two_equal_plans_is_destroyed),
        TEST(the_least_recently_used_is_evicted_first), TEST(a_plan_in_use_outlives_its_eviction),
        TEST(a_plan_without_a_place_is_its_makers_alone), TEST(threads_get_the_plan_of_their_key));
}
