/* High-water marks of rows beside the mark of the only pool of the process. */
#include <knet/pool.h>
#include <pthread.h>

#include "memory.h"
#include "report_maker.h"
#include "test.h"

enum { BLOCK = 1 << 20 };

static kn_pool *pool;
static const kn_observer *observer;

/* A thread was interrupted between the pool's free and the call of the observer: the observer sees
 * the block live for longer than it was. */
static uint32_t tell_late(void) { return observer->on_alloc(pool, NULL, BLOCK, NULL); }
static void tell_at_last(uint32_t owner) { observer->on_free(pool, NULL, BLOCK, owner); }

static void take_and_give(void) {
    void *x = NULL;
    assert_ok(kn_alloc(&x, pool, BLOCK, NULL));
    assert_ok(kn_free(pool, x));
}

static int64_t mark_of_pool(void) {
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, pool);
    return (int64_t)stats.live_bytes_max;
}

static void no_row_shows_more_than_the_pool_had(void **state) {
    (void)state;
    kn__report report;
    {
        KN_SCOPE("outer");
        uint32_t late = tell_late();
        KN_SCOPE("inner");
        take_and_give();
        tell_at_last(late);
    }
    take_report(&report);
    assert_int_equal(mark_of_pool(), BLOCK);
    assert_int_equal(report.memory.live_max, BLOCK);
    assert_int_equal(find_row(&report, "outer")->peak, BLOCK);
    assert_int_equal(find_row(&report, "outer/inner")->peak, BLOCK);
    kn__report_release(&report);
}

static void *disturb(void *arg) {
    tell_at_last(tell_late());
    return arg;
}

static void a_mark_that_reaches_the_pools_is_exact(void **state) {
    (void)state;
    kn__report report;
    pthread_t thread;
    for (int i = 0; i < 2; i++) {
        kn_scope scope = kn_scope_begin_static(i ? "all of it" : "less");
        if (i) take_and_give();
        assert_int_equal(pthread_create(&thread, NULL, disturb, NULL), 0);
        pthread_join(thread, NULL);
        kn_scope_end(&scope);
    }
    take_report(&report);
    assert_true(kn__row_peak_exact(find_row(&report, "all of it")));
    assert_false(kn__row_peak_exact(find_row(&report, "less")));
    assert_int_equal(find_row(&report, "less")->peak_most, BLOCK);
    kn__report_release(&report);
}

int main(void) {
    observer = kn__memory_observer(true);
    if (kn_prof_owners_on() < 0) return 1;
    if (kn_pool_create(&pool, kn_device_host(), NULL) < 0) return 1;
    int failed = RUN_TESTS(TEST(no_row_shows_more_than_the_pool_had),
                           TEST(a_mark_that_reaches_the_pools_is_exact));
    kn_pool_destroy(pool);
    return failed;
}
