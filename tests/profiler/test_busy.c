/* The time a GPU was busy, against a count of every nanosecond. */
#include "busy.h"
#include "test.h"

enum { NS = 20000 };

static void busy_time_is_the_union_over_streams(void **state) {
    (void)state;
    for (int round = 0; round < 50; round++) {
        bool busy[NS] = {false};
        uint64_t first = NS, last = 0, expected = 0, sum = 0;
        kn__busy_reset();
        int n = 1 + (int)test_random_below(600);
        for (int i = 0; i < n; i++) { /* in any order */
            uint64_t start = 1000 + test_random_below(NS - 1100),
                     end = start + 1 + test_random_below(99);
            for (uint64_t at = start; at < end; at++) busy[at] = true;
            if (start < first) first = start;
            if (end > last) last = end;
            sum += end - start;
            kn__busy_add(3, (uint32_t)test_random_below(4), start, end);
        }
        for (int i = 0; i < NS; i++) expected += busy[i];
        kn__gpu_use use;
        kn__busy_read(&use);
        assert_int_equal(use.n, 1);
        const kn__gpu_device *d = &use.devices[0];
        assert_int_equal(d->device, 3);
        assert_int_equal(d->busy_ns, expected);
        assert_int_equal(d->busy_ns + d->idle_ns, last - first);
        uint64_t in_streams = 0, n_work = 0;
        for (int i = 0; i < d->n_streams; i++) {
            in_streams += d->streams[i].busy_ns;
            n_work += d->streams[i].n;
        }
        assert_int_equal(in_streams, sum);
        assert_int_equal(n_work, n);
    }
    kn__busy_reset();
}

/* A run without end: records may be late by some hundred others. */
static void a_long_run_is_exact_when_records_are_late_by_little(void **state) {
    (void)state;
    kn__busy_reset();
    enum { N = 100000, LATE = 256 };
    for (uint64_t i = 0; i < N; i += LATE) {
        for (uint64_t k = LATE; k-- > 0;) {
            uint64_t start = 10000 + 10 * (i + k);
            kn__busy_add(0, 0, start, start + 4);
            kn__busy_add(0, 1, start + 2, start + 6);
        }
    }
    kn__gpu_use use;
    kn__busy_read(&use);
    uint64_t n = (N + LATE - 1) / LATE * LATE;
    assert_int_equal(use.devices[0].busy_ns, 6 * n);
    assert_int_equal(use.devices[0].idle_ns, 4 * (n - 1));
    kn__busy_reset();
}

static void devices_and_streams_beyond_the_bound_are_no_harm(void **state) {
    (void)state;
    kn__busy_reset();
    for (uint32_t i = 0; i < 100; i++) kn__busy_add(i, i, 10, 20);
    for (uint32_t i = 0; i < 100; i++) kn__busy_add(0, i, 20, 30);
    kn__gpu_use use;
    kn__busy_read(&use);
    assert_int_equal(use.n, KN__GPUS_MAX);
    assert_int_equal(use.devices[0].n_streams, KN__STREAMS_MAX);
    assert_int_equal(use.devices[0].busy_ns, 20);
    assert_int_equal(use.devices[0].streams[KN__STREAMS_MAX - 1].n, 100 - KN__STREAMS_MAX + 1);
    kn__busy_reset();
}

int main(void) {
    return RUN_TESTS(TEST(busy_time_is_the_union_over_streams),
                     TEST(a_long_run_is_exact_when_records_are_late_by_little),
                     TEST(devices_and_streams_beyond_the_bound_are_no_harm));
}
