#include "graph_fixture.h"

bool bytes_overlap(const char *a, size_t a_size, const char *b, size_t b_size) {
    return a < b + b_size && b < a + a_size;
}

void captured_assert_apart(const captured *graph, const char *ptr, size_t size) {
    for (int i = 0; i < graph->n; i++) {
        if (!bytes_overlap(graph->pieces[i].ptr, graph->pieces[i].size, ptr, size)) continue;
        fail_msg("%zu bytes at %p are a graph's", size, (const void *)ptr);
    }
}

void *captured_alloc(fixture *f, captured *graph, size_t size, kn_stream stream) {
    char *ptr = must_alloc(f->pool, size, stream);
    assert_true(graph->n < BLOCKS);
    graph->pieces[graph->n++] = (piece){ptr, size};
    return ptr;
}

void captured_launch(fixture *f, const captured *graph, kn_stream stream, uint64_t user) {
    for (int i = 0; i < graph->n; i++) {
        kn_sim_work(f->sim, stream, graph->pieces[i].ptr, graph->pieces[i].size, user);
    }
}

void assert_all_goes(fixture *f) {
    for (int i = 0; i < 2; i++) {
        assert_ok(kn_pool_trim(f->pool, 0));
        kn_sim_drain(f->sim);
    }
    assert_ok(kn_pool_trim(f->pool, 0));
    assert_int_equal(stats_of(f->pool).live_bytes, 0);
    assert_int_equal(stats_of(f->pool).waiting_bytes, 0);
    assert_int_equal(stats_of(f->pool).reserved_bytes, 0);
}

kn_pool_graph *capture_begin(fixture *f, kn_stream stream) {
    kn_pool_graph *graph = NULL;
    assert_ok(kn_pool_graph_create(&graph, f->pool));
    assert_ok(kn_pool_graph_begin(graph, stream));
    kn_sim_capture(f->sim, stream, true);
    return graph;
}

void capture_end(fixture *f, kn_pool_graph *graph, kn_stream stream) {
    kn_sim_capture(f->sim, stream, false);
    assert_ok(kn_pool_graph_end(graph, stream));
}

void captured_exhaust(fixture *f, const captured *graph, kn_stream s, kn_stream other) {
    static const size_t sizes[] = {300, 5000, 60000, 300000, 3 * MiB, 20 * MiB};
    void *got[2000];
    int n = 0;
    for (int i = 0; i < 6; i++) {
        for (int k = 0; k < 300; k++) {
            void *ptr = NULL;
            if (kn_alloc(&ptr, f->pool, sizes[i], k % 2 ? s : other) < 0) break;
            captured_assert_apart(graph, ptr, sizes[i]);
            got[n++] = ptr;
        }
    }
    while (n) assert_ok(kn_free(f->pool, got[--n]));
    assert_ok(kn_pool_check(f->pool));
}
