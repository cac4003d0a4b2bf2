/* The join of GPU records with scopes, on a GPU made up. */
#include "activity.h"

#include <pthread.h>

#include "budget.h"
#include "mute.h"
#include "synthetic_source.h"
#include "test.h"
#include "thread.h"
#include "timer_fixture.h"

static void begin(const synthetic_options *options) {
    kn__activity_stop();
    assert_ok(kn__activity_start(synthetic_source(options)));
}

/* The balance of what happened since `before`, as balances only grow. */
static kn__balance since(const kn__balance *before) {
    kn__balance b;
    kn__activity_balance(&b);
    b.launched -= before->launched;
    b.timed -= before->timed;
    b.untimed -= before->untimed;
    b.unattributed_ns -= before->unattributed_ns;
    b.n_unattributed -= before->n_unattributed;
    return b;
}

static void time_belongs_to_the_scope_of_the_launch(void **state) {
    (void)state;
    begin(&(synthetic_options){.records_max = 1, .first_id = 50000});
    uint64_t in_gemm, in_copy, outside;
    kn__balance before, b;
    kn__activity_balance(&before);
    {
        KN_SCOPE("launching");
        {
            KN_SCOPE("gemm");
            in_gemm = synthetic_launch("sgemm_128x64");
        }
        in_copy = synthetic_launch("[memcpy]");
        in_copy += synthetic_launch("[memcpy]");
    }
    outside = synthetic_launch("no scope");
    take_report(&report);
    assert_true(report.has_gpu);
    assert_int_equal(find_row(&report, "launching/gemm")->gpu_ns, in_gemm);
    const kn__row *kernel = find_row(&report, "launching/gemm/sgemm_128x64");
    assert_true(kernel->is_kernel);
    assert_int_equal(kernel->gpu_ns, in_gemm);
    assert_int_equal(find_row(&report, "launching/[memcpy]")->n_gpu, 2);
    assert_int_equal(find_row(&report, "launching")->gpu_ns, in_gemm + in_copy);
    assert_int_equal(report.balance.unattributed_ns - before.unattributed_ns, outside);
    assert_int_equal(report.balance.n_unattributed - before.n_unattributed, 1);
    b = since(&before);
    assert_int_equal(b.launched, 4);
    assert_int_equal(b.timed, 4);
    assert_int_equal(b.pending + b.dropped + b.untimed, 0);
}

static void launches_without_a_record_yet_are_pending(void **state) {
    (void)state;
    kn__balance before, b;
    kn__activity_balance(&before);
    begin(&(synthetic_options){.records_max = 1, .first_id = 60000, .zero = 100});
    KN_SCOPE("pending");
    for (int i = 0; i < 5; i++) synthetic_launch("kernel");
    b = since(&before);
    assert_int_equal(b.launched, 5);
    assert_int_equal(b.pending, 5);
    kn__activity_drain();
    b = since(&before);
    assert_int_equal(b.pending, 0);
    assert_int_equal(b.untimed, 5);
}

static uint64_t pending_in(const char *path) {
    kn__report now;
    take_report(&now);
    const kn__row *row = find_row(&now, path);
    assert_non_null(row);
    uint64_t n = row->n_pending;
    kn__report_release(&now);
    return n;
}

static void rows_say_how_many_records_they_wait_for(void **state) {
    (void)state;
    begin(&(synthetic_options){.records_max = 4, .first_id = 70000});
    {
        KN_SCOPE("waiting");
        KN_SCOPE("inner");
        for (uint32_t i = 0; i < 3; i++) kn__activity_launch(90000 + i); /* no record will come */
        synthetic_launch("kernel");
    }
    assert_int_equal(pending_in("waiting/inner"), 3);
    assert_int_equal(pending_in("waiting"), 3);
    kn__activity_cancel(90001);
    assert_int_equal(pending_in("waiting"), 2);
    kn__activity_cancel(90000);
    kn__activity_cancel(90002);
    assert_int_equal(pending_in("waiting"), 0);
}

static void a_second_source_is_refused(void **state) {
    (void)state;
    const kn__source *source = synthetic_source(&(synthetic_options){.records_max = 1});
    assert_ok(kn__activity_start(source));
    assert_fails(kn__activity_start(source), KN_ERR_INVALID, "records come from synthetic already");
}

/* --- a record that comes too early --- */

static const kn__record early = {.id = 95000, .name = "early", .start_ns = 5, .end_ns = 25};
static bool early_is_due;

static kn_status start_early(void *ctx) {
    (void)ctx;
    early_is_due = true;
    return KN_OK;
}

static void drain_early(void *ctx, kn__record_fn fn, void *sink) {
    (void)ctx;
    if (early_is_due) fn(sink, &early, 1);
    early_is_due = false;
}

static void stop_early(void *ctx) { (void)ctx; }

static uint64_t dropped_early(void *ctx) {
    (void)ctx;
    return 0;
}

static void a_record_waits_one_drain_for_its_launch(void **state) {
    (void)state;
    static const kn__source source = {.name = "early",
                                      .start = start_early,
                                      .stop = stop_early,
                                      .drain = drain_early,
                                      .dropped = dropped_early};
    for (int is_late = 0; is_late < 2; is_late++) {
        kn__balance before;
        kn__activity_stop();
        kn__activity_balance(&before);
        assert_ok(kn__activity_start(&source));
        KN_SCOPE("early");
        kn__activity_drain();
        if (is_late) kn__activity_drain();
        kn__activity_launch(early.id);
        kn__activity_drain();
        kn__balance b = since(&before);
        assert_int_equal(b.launched, 1);
        assert_int_equal(b.timed, !is_late);
        assert_int_equal(b.n_unattributed, is_late);
        if (is_late) kn__activity_cancel(early.id); /* its record is gone */
        kn__activity_stop();
    }
}

enum { IN_A_DRAIN = 20000 }; /* more than may be late */

/* Launches that other threads make while records are handed over. */
static void launch_and_drain(void *ctx, kn__record_fn fn, void *sink) {
    (void)ctx;
    if (early_is_due) {
        for (uint32_t i = 0; i < IN_A_DRAIN; i++) kn__activity_launch(8000000 + i);
    }
    for (uint32_t i = 0; early_is_due && i < IN_A_DRAIN; i += 100) {
        kn__record records[100];
        for (uint32_t k = 0; k < 100; k++) {
            records[k] = early;
            records[k].id = 8000000 + i + k;
        }
        fn(sink, records, 100);
    }
    early_is_due = false;
}

static void launches_made_during_a_drain_are_known_to_it(void **state) {
    (void)state;
    static const kn__source source = {.name = "busy",
                                      .start = start_early,
                                      .stop = stop_early,
                                      .drain = launch_and_drain,
                                      .dropped = dropped_early};
    kn__balance before;
    kn__activity_stop();
    kn__activity_balance(&before);
    assert_ok(kn__activity_start(&source));
    KN_SCOPE("busy");
    kn__activity_drain();
    kn__balance b = since(&before);
    assert_int_equal(b.launched, IN_A_DRAIN);
    assert_int_equal(b.timed, IN_A_DRAIN);
    assert_int_equal(b.n_unattributed, 0);
}

/* ---- random runs ----
 * Each uses ids of its own: an id must not come back while its last launch may still be known. */

enum { THREADS = 8, LAUNCHES = 3000 };

static void *launch_in_scopes(void *arg) {
    static const char *const kernels[] = {"k0", "k1", "k2", "k3"};
    (void)arg;
    KN_SCOPE("random launches");
    for (int i = 0; i < LAUNCHES; i++) {
        kn_scope scope = kn_scope_begin_static(i % 3 ? "even" : "odd");
        synthetic_launch(kernels[i % 4]);
        kn_scope_end(&scope);
        if (i % 500 == 0) kn__activity_drain();
    }
    return NULL;
}

static uint64_t sum_gpu(const kn__row *row) {
    uint64_t sum = row->is_kernel ? row->gpu_ns : 0;
    for (const kn__row *child = row->first; child; child = child->next) sum += sum_gpu(child);
    return sum;
}

static void check_run(const synthetic_options *options) {
    kn__balance before;
    kn__activity_balance(&before);
    take_report(&report);
    uint64_t ns_before = sum_gpu(&report.root);
    kn__report_release(&report);
    begin(options);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, launch_in_scopes, NULL), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    kn__activity_stop();
    kn__balance b = since(&before);
    synthetic_sums want = synthetic_sums_read();
    assert_int_equal(b.launched, THREADS * LAUNCHES);
    assert_int_equal(b.launched, want.launched);
    assert_int_equal(b.dropped, want.dropped);
    assert_int_equal(b.untimed, want.untimed);
    assert_int_equal(b.pending, 0);
    assert_int_equal(b.launched, b.timed + b.pending + b.dropped + b.untimed);
    assert_int_equal(b.unattributed_ns, want.foreign_ns);
    assert_int_equal(b.n_unattributed, want.n_foreign);
    take_report(&report);
    uint64_t ns = sum_gpu(&report.root);
    assert_int_equal(ns - ns_before, want.gpu_ns + want.foreign_ns);
    assert_int_equal(find_row(&report, "random launches")->gpu_ns,
                     sum_gpu(find_row(&report, "random launches")));
    kn__report_release(&report);
}

static void every_launch_and_every_nanosecond_is_accounted_for(void **state) {
    (void)state;
    check_run(&(synthetic_options){.records_max = 1, .first_id = 1000000});
    check_run(&(synthetic_options){
        .records_max = 3, .first_id = 2000000, .zero = 10, .foreign = 5, .hold_back = true});
    check_run(&(synthetic_options){.records_max = 2, .first_id = UINT32_MAX - 10000}); /* wraps */
}

static void dropped_records_leave_their_launches_counted(void **state) {
    (void)state;
    check_run(&(synthetic_options){.records_max = 2, .first_id = 3000000, .drop = 20, .zero = 5});
}

/* The same launches and records, in another order, must give the same sums: names and scopes too.
 */
static void the_order_of_records_changes_nothing(void **state) {
    (void)state;
    uint64_t want[6] = {0};
    static const char *const paths[] = {"order/a/x", "order/a/y", "order/b/x", "order/b/y"};
    uint64_t before[4] = {0};
    for (int round = 0; round < 5; round++) {
        begin(&(synthetic_options){
            .records_max = 3, .first_id = 4000000 + 1000u * (uint32_t)round, .hold_back = true});
        KN_SCOPE("order");
        memset(want, 0, sizeof want);
        for (int i = 0; i < 400; i++) {
            int scope = (int)test_random_below(2), kernel = (int)test_random_below(2);
            kn_scope s = kn_scope_begin_static(scope ? "b" : "a");
            want[2 * scope + kernel] += synthetic_launch(kernel ? "y" : "x");
            kn_scope_end(&s);
            if (test_random_below(50) == 0) kn__activity_drain();
        }
        kn__activity_stop();
        take_report(&report);
        for (int i = 0; i < 4; i++) {
            uint64_t now = find_row(&report, paths[i])->gpu_ns;
            assert_int_equal(now - before[i], want[i]);
            before[i] = now;
        }
        kn__report_release(&report);
    }
}

/* Twice: the second time the ring wraps, as it is large enough. */
static void a_ring_grows_with_the_launches_between_two_drains(void **state) {
    (void)state;
    enum { MANY = 100000 }; /* ids are known for as long */
    for (uint32_t i = 0; i < 2; i++) {
        kn__balance before;
        kn__activity_balance(&before);
        begin(&(synthetic_options){.records_max = 1, .first_id = 5000000 + 200000 * i});
        KN_SCOPE("many at once");
        for (int k = 0; k < MANY; k++) synthetic_launch("kernel");
        kn__activity_stop();
        kn__balance b = since(&before);
        assert_int_equal(b.launched, MANY);
        assert_int_equal(b.timed, MANY);
        assert_int_equal(b.n_unattributed, 0);
    }
}

/* All records come at the end. */
enum { FAR_FIRST_ID = 30000000 };
static uint32_t n_far;
static bool far_is_over;

static void drain_at_last(void *ctx, kn__record_fn fn, void *sink) {
    (void)ctx;
    for (uint32_t i = 0; i < n_far && far_is_over; i++) {
        fn(sink, &(kn__record){.id = FAR_FIRST_ID + i, .start_ns = 1, .end_ns = 2}, 1);
    }
    far_is_over = false;
}

static void stop_at_last(void *ctx) {
    (void)ctx;
    far_is_over = true;
}

/* Returns what became of n launches. */
static kn__balance launch_far(uint32_t n) {
    static const kn__source source = {.name = "far behind",
                                      .start = start_early,
                                      .stop = stop_at_last,
                                      .drain = drain_at_last,
                                      .dropped = dropped_early};
    kn__balance before;
    n_far = n;
    kn__activity_stop();
    kn__activity_balance(&before);
    assert_ok(kn__activity_start(&source));
    {
        KN_SCOPE("far behind");
        for (uint32_t i = 0; i < n; i++) {
            kn__activity_launch(FAR_FIRST_ID + i);
            if (i % 1000 == 0) kn__activity_drain();
        }
    }
    kn__activity_stop();
    kn__balance b = since(&before);
    assert_int_equal(b.launched, n);
    assert_int_equal(b.timed, n);
    assert_int_equal(b.pending, 0);
    assert_int_equal(pending_in("far behind"), 0);
    return b;
}

static void launches_are_known_until_their_records_come(void **state) {
    (void)state;
    assert_int_equal(launch_far(300000).n_unattributed, 0);
}

static void launches_that_are_forgotten_wait_for_no_record(void **state) {
    (void)state;
    enum { MORE_THAN_IS_KNOWN = 600000 };
    assert_in_range(launch_far(MORE_THAN_IS_KNOWN).n_unattributed, 1, MORE_THAN_IS_KNOWN - 1);
}

static void a_grown_ring_shrinks_again(void **state) {
    (void)state;
    begin(&(synthetic_options){.records_max = 1, .first_id = 6500000});
    KN_SCOPE("a burst");
    enum { MANY = 5000, ENTRY_BYTES = 16 };
    for (uint32_t i = 0; i < MANY; i++) { /* the tables of ids grow now */
        kn__activity_note(9000000 + i, true);
        if (i % 200 == 0) kn__activity_drain();
    }
    kn__activity_drain();
    uint64_t before = kn__budget_used();
    for (uint32_t i = 0; i < MANY; i++) kn__activity_note(9000000 + i, true);
    assert_true(kn__budget_used() - before > MANY * ENTRY_BYTES);
    kn__activity_drain();
    assert_true(kn__budget_used() - before < MANY * ENTRY_BYTES);
    assert_true(kn__budget_used() - before >
                MANY * ENTRY_BYTES / 4); /* fewer parts the next time */
}

static void *wait_and_launch(void *arg) {
    KN_SCOPE("one of many");
    pthread_barrier_wait(arg);
    synthetic_launch("kernel");
    pthread_barrier_wait(arg);
    return NULL;
}

static void a_thread_that_launches_takes_little_memory(void **state) {
    (void)state;
    enum { MANY = 128 };
    pthread_t threads[MANY];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, MANY);
    begin(&(synthetic_options){.records_max = 1, .first_id = 6900000});
    uint64_t used = kn__budget_used();
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, wait_and_launch, &barrier), 0);
    }
    for (int i = 0; i < MANY; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
    assert_in_range(kn__budget_used() - used, 0, MANY * (24 << 10)); /* nodes and a ring each */
}

/* One of the first tests: this thread's ring has not grown yet. */
static void a_full_ring_counts_dropped_records(void **state) {
    (void)state;
    enum { MANY = 2000, KEPT = 256 };
    begin(&(synthetic_options){.records_max = 1, .first_id = 5900000});
    KN_SCOPE("too many at once");
    synthetic_launch("kernel");
    kn__activity_drain();
    kn__balance before;
    kn__activity_balance(&before);
    kn__budget_set(kn__budget_used());
    for (int i = 0; i < MANY; i++) synthetic_launch("kernel");
    for (uint32_t i = 0; i < 10; i++) kn__activity_note(9500000 + i, true);
    kn__activity_stop();
    kn__balance b = since(&before);
    assert_int_equal(b.launched, MANY);
    assert_int_equal(b.timed, MANY);
    assert_int_equal(b.n_unattributed, MANY - KEPT);
    assert_int_equal(b.n_lost - before.n_lost, MANY - KEPT + 10);
    take_report(&report);
    assert_true(report.buffer_full);
}

/* The first test: there are no tables of ids yet. */
static void launches_that_no_table_has_room_for_are_lost(void **state) {
    (void)state;
    KN_SCOPE("no table");
    kn__activity_note(9600000, true); /* makes the ring */
    kn__budget_set(kn__budget_used());
    begin(&(synthetic_options){.records_max = 1, .first_id = 9700000});
    for (int i = 0; i < 5; i++) synthetic_launch("kernel");
    kn__activity_stop();
    kn__balance b;
    kn__activity_balance(&b);
    assert_int_equal(b.launched, 5);
    assert_int_equal(b.timed, 5);
    assert_int_equal(b.n_unattributed, 5);
    assert_int_equal(b.n_lost, 5);
}

static void launches_in_a_pause_are_in_no_count(void **state) {
    (void)state;
    kn__balance before;
    kn__activity_balance(&before);
    begin(&(synthetic_options){.records_max = 3, .first_id = 6000000, .hold_back = true});
    uint64_t ns = 0;
    KN_SCOPE("with a pause");
    for (int i = 0; i < 300; i++) {
        if (i == 100) kn_prof_pause();
        if (i == 200) kn_prof_resume();
        uint64_t spent = synthetic_launch("kernel");
        if (i < 100 || i >= 200) ns += spent;
        if (i % 50 == 0) kn__activity_drain();
    }
    kn__activity_stop();
    kn__balance b = since(&before);
    assert_int_equal(b.launched, 200);
    assert_int_equal(b.timed, 200);
    assert_int_equal(b.n_unattributed, 0);
    take_report(&report);
    assert_int_equal(find_row(&report, "with a pause")->gpu_ns, ns);
}

/* One of the first tests, as its tables are the smallest: ids of launches are known for a shorter
 * while, and the time of a name that can't be kept stays in the scope under another name. */
static void without_memory_left_every_launch_is_accounted_for(void **state) {
    (void)state;
    enum { MANY = 20000 };
    kn__balance before;
    begin(&(synthetic_options){.records_max = 1, .first_id = 7000000});
    KN_SCOPE("no memory left");
    uint64_t ns = synthetic_launch("kernel");
    kn__activity_drain();
    kn__activity_balance(&before);
    uint64_t used = kn__budget_used();
    kn__budget_set(used);
    for (int i = 0; i < MANY; i++) {
        ns += synthetic_launch("kernel");
        if (i % 200 == 0) kn__activity_drain();
    }
    ns += synthetic_launch("a kernel never seen before");
    kn__activity_stop();
    assert_int_equal(kn__budget_used(), used);
    kn__balance b = since(&before);
    assert_int_equal(b.launched, MANY + 1);
    assert_int_equal(b.timed, MANY + 1);
    assert_int_equal(b.n_unattributed, 0);
    take_report(&report);
    assert_int_equal(find_row(&report, "no memory left")->gpu_ns, ns);
    assert_null(find_row(&report, "no memory left/a kernel never seen before"));
}

/* --- the memory of a report --- */

static int muted_in_drain, muted_in_thread;

static kn_status start_nothing(void *ctx) {
    (void)ctx;
    return KN_OK;
}
static void stop_nothing(void *ctx) { (void)ctx; }
static uint64_t drop_nothing(void *ctx) {
    (void)ctx;
    return 0;
}
static void note_muted(void *ctx, kn__record_fn fn, void *sink) {
    (void)ctx, (void)fn, (void)sink;
    muted_in_drain = kn__muted;
}

static void *note_muted_thread(void *arg) {
    muted_in_thread = kn__muted;
    return arg;
}

static void memory_of_a_report_is_the_timers(void **state) {
    (void)state;
    static const kn__source source = {.name = "none",
                                      .start = start_nothing,
                                      .stop = stop_nothing,
                                      .drain = note_muted,
                                      .dropped = drop_nothing};
    kn__activity_stop();
    assert_ok(kn_prof_owners_on());
    assert_ok(kn__activity_start(&source));
    muted_in_drain = 0;
    assert_ok(kn_prof_report("/dev/null"));
    assert_true(muted_in_drain > 0);
    assert_int_equal(kn__muted, 0);
}

static void memory_of_the_timers_threads_is_the_timers(void **state) {
    (void)state;
    pthread_t thread;
    assert_int_equal(kn__thread_start(&thread, note_muted_thread, NULL), 0);
    pthread_join(thread, NULL);
    assert_true(muted_in_thread > 0);
    assert_int_equal(kn__muted, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_WITH(launches_that_no_table_has_room_for_are_lost, timer_setup, timer_teardown),
        TEST_WITH(time_belongs_to_the_scope_of_the_launch, timer_setup, timer_teardown),
        TEST_WITH(without_memory_left_every_launch_is_accounted_for, timer_setup, timer_teardown),
        TEST_WITH(a_full_ring_counts_dropped_records, timer_setup, timer_teardown),
        TEST_WITH(a_grown_ring_shrinks_again, timer_setup, timer_teardown),
        TEST_WITH(launches_without_a_record_yet_are_pending, timer_setup, timer_teardown),
        TEST_WITH(rows_say_how_many_records_they_wait_for, timer_setup, timer_teardown),
        TEST_WITH(a_record_waits_one_drain_for_its_launch, timer_setup, timer_teardown),
        TEST_WITH(launches_made_during_a_drain_are_known_to_it, timer_setup, timer_teardown),
        TEST_WITH(a_second_source_is_refused, timer_setup, timer_teardown),
        TEST_WITH(every_launch_and_every_nanosecond_is_accounted_for, timer_setup, timer_teardown),
        TEST_WITH(the_order_of_records_changes_nothing, timer_setup, timer_teardown),
        TEST_WITH(a_ring_grows_with_the_launches_between_two_drains, timer_setup, timer_teardown),
        TEST_WITH(launches_are_known_until_their_records_come, timer_setup, timer_teardown),
        TEST_WITH(launches_that_are_forgotten_wait_for_no_record, timer_setup, timer_teardown),
        TEST_WITH(a_thread_that_launches_takes_little_memory, timer_setup, timer_teardown),
        TEST_WITH(launches_in_a_pause_are_in_no_count, timer_setup, timer_teardown),
        TEST_WITH(dropped_records_leave_their_launches_counted, timer_setup, timer_teardown),
        TEST_WITH(memory_of_a_report_is_the_timers, timer_setup, timer_teardown),
        TEST(memory_of_the_timers_threads_is_the_timers),
    };
    return cmocka_run_group_tests_name("profiler.activity", tests, NULL, NULL);
}
