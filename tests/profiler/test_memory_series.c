/* Live bytes over time in bounded room: against all values, kept. */
#include "memory_series.h"

#include "clock.h"
#include "test.h"

enum { EVENTS = 200000 };

static int64_t all[EVENTS];

static void bins_keep_every_peak_and_the_last_value(void **state) {
    (void)state;
    static kn__series series;
    kn__clock_start(KN__CLOCK_TSC);
    int64_t live = 0, highest = 0;
    uint64_t before = kn__clock_now();
    int n = 0;
    for (int until = 1; until <= EVENTS; until = until < 3000 ? until + 97 : 3 * until) {
        if (until > EVENTS / 3 && until < EVENTS) until = EVENTS;
        for (; n < until; n++) {
            live += (int64_t)test_random_below(1000) - (live > 100000 ? 520 : 480);
            if (live < 0) live = 0;
            all[n] = live;
            highest = live > highest ? live : highest;
            kn__series_add(live, true);
        }
        kn__series_read(&series);
        assert_in_range(series.n, 1, KN__SERIES_BINS);
        assert_int_equal(series.bins[series.n - 1].last, live);
        /* a bin has so many changes: the last one may have fewer */
        int per = 1, at = 0;
        while ((n + per - 1) / per > series.n) per *= 2;
        int64_t most = 0;
        uint64_t end = before;
        for (int i = 0; i < series.n; i++) {
            int64_t max = 0;
            for (int j = 0; j < per && at < n; j++, at++) max = all[at] > max ? all[at] : max;
            assert_int_equal(series.bins[i].max, max);
            assert_int_equal(series.bins[i].last, all[at - 1]);
            assert_true(series.bins[i].end >= end);
            end = series.bins[i].end;
            most = max > most ? max : most;
        }
        assert_int_equal(at, n);
        assert_int_equal(most, highest);
        if (highest > 0) assert_true(series.max_at >= before && series.max_at <= kn__clock_now());
    }
}

int main(void) { return RUN_TESTS(TEST(bins_keep_every_peak_and_the_last_value)); }
