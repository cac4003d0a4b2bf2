/* Many threads in scopes while others report; what matters here is what ThreadSanitizer says. */
#include <pthread.h>

#include "memory.h"
#include "report_maker.h"
#include "test.h"

enum { THREADS = 64, ROUNDS = 200 };

static const kn_observer *observer;
static atomic_bool done;

static void *work(void *arg) {
    uint64_t id = (uint64_t)(uintptr_t)arg;
    char own[32];
    snprintf(own, sizeof own, "thread %d", (int)(id % 8));
    for (int i = 0; i < ROUNDS; i++) {
        KN_SCOPE("shared");
        uint32_t owner = observer->on_alloc((kn_pool *)&done, NULL, 64, NULL);
        kn_scope scope = kn_scope_begin(own);
        { KN_SCOPE("leaf"); }
        observer->on_free((kn_pool *)&done, NULL, 64, owner);
        if (i % 3) kn_scope_end(&scope);
        kn_step();
    }
    return NULL;
}

static void *watch(void *arg) {
    (void)arg;
    uint64_t last = 0;
    bool grows = true;
    while (!atomic_load(&done)) {
        kn__report report;
        if (kn__report_take(&report, kn__clock_now(), 1.0) < 0) grows = false;
        const kn__row *row = find_row(&report, "shared/leaf");
        (void)row;
        const kn__row *shared = find_row(&report, "shared");
        uint64_t n = shared ? shared->n_calls : 0;
        grows =
            grows && n + THREADS >= last; /* a call that is closing may be missed for a moment */
        last = n;
        kn__report_release(&report);
    }
    return grows ? &done : NULL;
}

static void reports_may_be_taken_while_threads_run(void **state) {
    (void)state;
    pthread_t threads[THREADS], watcher;
    void *grows = NULL;
    observer = kn__memory_observer(true);
    assert_ok(kn_prof_owners_on());
    assert_int_equal(pthread_create(&watcher, NULL, watch, NULL), 0);
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    atomic_store(&done, true);
    pthread_join(watcher, &grows);
    assert_non_null(grows);
    kn__report report;
    take_report(&report);
    assert_int_equal(find_row(&report, "shared")->n_calls, THREADS * ROUNDS);
    assert_int_equal(find_row(&report, "shared/thread 3/leaf")->n_calls, THREADS / 8 * ROUNDS);
    assert_int_equal(find_row(&report, "shared")->n_allocs, THREADS * ROUNDS);
    assert_int_equal(find_row(&report, "shared")->held, 0);
    assert_int_equal(report.n_threads, THREADS);
    kn__report_release(&report);
}

int main(void) { return RUN_TESTS(TEST(reports_may_be_taken_while_threads_run)); }
