/* Setup and teardown of every test on the fake driver: a clean start; at the end no violation, no
 * leak, and the thread's context stack unchanged. */
#ifndef KNET_FAKE_CUDA_FIXTURE_H
#define KNET_FAKE_CUDA_FIXTURE_H

#include "fake_cuda.h"
#include "test.h"

#include <knet/device_driver.h>

#define CUDA_TEST(fn) cmocka_unit_test_setup_teardown(fn, fixture_begin, fixture_end)

enum { GRANULE = 2 << 20 };

static fake_cuda_counts before_;

static inline int fixture_begin(void **state) {
    (void)state;
    fake_cuda_reset();
    before_ = fake_cuda_count();
    return 0;
}

static inline int fixture_end(void **state) {
    (void)state;
    fake_cuda_counts now = fake_cuda_count();
    if (now.n_violations) print_error("violation: %s\n", fake_cuda_violation());
    bool same = now.used_bytes == before_.used_bytes && now.n_segments == before_.n_segments &&
                now.n_ranges == before_.n_ranges && now.n_handles == before_.n_handles &&
                now.n_mapped == before_.n_mapped && now.n_streams == before_.n_streams &&
                now.n_events == before_.n_events && now.n_contexts == before_.n_contexts;
    if (!same) {
        print_error(
            "left over: %d segments, %d ranges, %d handles, %d mappings, %d streams, "
            "%d events, %d contexts\n",
            now.n_segments - before_.n_segments, now.n_ranges - before_.n_ranges,
            now.n_handles - before_.n_handles, now.n_mapped - before_.n_mapped,
            now.n_streams - before_.n_streams, now.n_events - before_.n_events,
            now.n_contexts - before_.n_contexts);
    }
    fake_cuda_reset();
    return now.n_violations == 0 && same ? 0 : -1;
}

static inline kn_device *cuda_device_get(void) {
    kn_device *device = NULL;
    assert_ok(kn_device_find(&device, "cuda:0"));
    return device;
}

static inline const kn_device_driver *driver_get(void **impl) {
    return kn_device_driver_get(cuda_device_get(), impl);
}

#endif
