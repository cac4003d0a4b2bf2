/* Setup and teardown of each test of libknet_torch, and short forms of its calls for device 0. */
#ifndef KNET_TORCH_FIXTURE_H
#define KNET_TORCH_FIXTURE_H

#include "fake_cuda_fixture.h"
#include "torch_caller.h"

#define MiB ((size_t)1 << 20)

/* The default pools live as long as the process: a test returns their memory. */
static inline int torch_begin_test(void **state) {
    (void)state;
    fake_cuda_reset();
    return torch_fraction(1, 0) == TORCH_OK ? 0 : -1;
}

static inline int torch_end_test(void **state) {
    (void)state;
    if (torch_reset() != TORCH_OK) return -1;
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, torch_pool(0));
    fake_cuda_counts now = fake_cuda_count();
    if (now.n_violations) print_error("violation: %s\n", fake_cuda_violation());
    bool clean = !now.n_violations && !stats.live_bytes && !stats.reserved_bytes &&
                 !stats.n_misuses && kn_pool_check(torch_pool(0)) == KN_OK;
    if (!clean)
        print_error("live %zu, reserved %zu\n", (size_t)stats.live_bytes,
                    (size_t)stats.reserved_bytes);
    return clean ? 0 : -1;
}

#define TORCH_TEST(fn) cmocka_unit_test_setup_teardown(fn, torch_begin_test, torch_end_test)

static inline void *must(size_t size, kn_stream stream) {
    void *ptr = NULL;
    torch_outcome outcome = torch_alloc(&ptr, size, 0, stream);
    if (outcome != TORCH_OK) fail_msg("%d: %s", (int)outcome, torch_what());
    return ptr;
}

static inline kn_pool_stats stats_now(void) {
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, torch_pool(0));
    return stats;
}

static inline kn_stream new_stream(void) {
    kn_stream stream = NULL;
    assert_ok(kn_stream_create(&stream, kn_pool_device(torch_pool(0))));
    return stream;
}

static inline void drop_stream(kn_stream stream) {
    kn_stream_destroy(kn_pool_device(torch_pool(0)), stream);
}

#endif
