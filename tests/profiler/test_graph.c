/* Tables beside the join: scopes of graph nodes, and device memory that no pool took. */
#include "graph.h"

#include "external.h"
#include "test.h"
#include "timer_fixture.h"

static const char graph, exec;

static void copies_keep_the_scope_of_their_capture(void **state) {
    (void)state;
    const kn__tree_node *scope;
    {
        KN_SCOPE("captured here");
        scope = kn__tree_mine->current;
        kn__graph_created(11, &graph);
    }
    KN_SCOPE("instantiated there");
    kn__graph_cloned(12, 11, &exec);
    kn__graph_cloned(13, 12, &exec); /* a copy of a copy */
    kn__graph_cloned(14, 99, &exec); /* of a node that was not recorded */
    assert_ptr_equal(kn__graph_scope(12), scope);
    assert_ptr_equal(kn__graph_scope(13), scope);
    assert_null(kn__graph_scope(14));
}

static void a_destroyed_node_is_known_until_its_records_are_in(void **state) {
    (void)state;
    KN_SCOPE("short-lived");
    for (uint64_t id = 100; id < 1100; id++) kn__graph_created(id, &graph);
    kn__graph_node_destroyed(100);
    kn__graph_destroyed(&graph);
    kn__graph_sweep();
    assert_non_null(kn__graph_scope(100));
    assert_non_null(kn__graph_scope(1099));
    kn__graph_sweep();
    assert_null(kn__graph_scope(100));
    assert_null(kn__graph_scope(1099));
    assert_non_null(kn__graph_scope(12)); /* of the executable graph */
}

static void nodes_are_bounded_and_the_rest_is_counted(void **state) {
    (void)state;
    KN_SCOPE("too many");
    assert_int_equal(kn__graph_lost(), 0);
    enum { MANY = KN__GRAPH_NODES_MAX + 5000 };
    for (uint64_t id = 1; id <= MANY; id++) kn__graph_created(1000000 + id, &graph);
    uint64_t kept = 0;
    for (uint64_t id = 1; id <= MANY; id++) kept += kn__graph_scope(1000000 + id) != NULL;
    assert_int_equal(kept + kn__graph_lost(), MANY);
    assert_true(kept > KN__GRAPH_NODES_MAX / 2);
    kn__graph_destroyed(&graph);
    kn__graph_sweep();
    kn__graph_sweep();
    kn__graph_created(5, &graph); /* there is room again */
    assert_non_null(kn__graph_scope(5));
}

/* Blocks are allocated and freed; their records arrive in any order within a drain. */
enum { SLOTS = 500, ROUNDS = 200, PER_ROUND = 300 };

typedef struct event {
    uint64_t time, address, bytes; /* bytes 0: freed */
} event;

static void device_memory_agrees_with_a_model_in_any_order(void **state) {
    (void)state;
    static uint64_t bytes_of[SLOTS];
    kn__external sums, before;
    kn__external_read(&before);
    int64_t live = 0, live_max = 0;
    uint64_t now = 1, n_allocs = 0, alloc_bytes = 0;
    for (int round = 0; round < ROUNDS; round++) {
        event events[PER_ROUND];
        for (int i = 0; i < PER_ROUND; i++) {
            size_t at = (size_t)test_random_below(SLOTS);
            uint64_t bytes = bytes_of[at] ? 0 : 1 + test_random_below(1 << 20);
            events[i] = (event){now++, (at + 1) << 12, bytes};
            live += bytes ? (int64_t)bytes : -(int64_t)bytes_of[at];
            bytes_of[at] = bytes;
            n_allocs += bytes > 0;
            alloc_bytes += bytes;
            if (live > live_max) live_max = live;
        }
        for (int i = PER_ROUND - 1; i > 0; i--) {
            size_t j = (size_t)test_random_below((uint64_t)i + 1);
            event swap = events[i];
            events[i] = events[j];
            events[j] = swap;
        }
        for (int i = 0; i < PER_ROUND; i++) {
            const event *e = &events[i];
            e->bytes ? kn__external_alloc(e->time, e->address, e->bytes)
                     : kn__external_free(e->time, e->address);
        }
        kn__external_apply();
        kn__external_read(&sums);
        assert_int_equal(sums.live, live);
        assert_int_equal(sums.live_max, live_max);
    }
    assert_int_equal(sums.n_allocs - before.n_allocs, n_allocs);
    assert_int_equal(sums.alloc_bytes - before.alloc_bytes, alloc_bytes);
    assert_int_equal(sums.n_untracked, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_WITH(copies_keep_the_scope_of_their_capture, timer_setup, NULL),
        TEST_WITH(a_destroyed_node_is_known_until_its_records_are_in, timer_setup, NULL),
        TEST_WITH(nodes_are_bounded_and_the_rest_is_counted, timer_setup, NULL),
        TEST_WITH(device_memory_agrees_with_a_model_in_any_order, timer_setup, NULL),
    };
    return cmocka_run_group_tests_name("profiler.graph", tests, NULL, NULL);
}
