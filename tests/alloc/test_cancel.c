/* Threads that the program cancels in the middle of a call. */
#include <dirent.h>
#include <knet/device_driver.h>
#include <knet/pause.h>
#include <knet/trace.h>
#include <pthread.h>
#include <unistd.h>

#include "../support/cancelled.h"
#include "pool_fixture.h"

static char dir[64] = "/tmp/knet_cancel_XXXXXX";

static const char *path_of(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* --- the host, whose description is read from a file --- */

static void make_pool(void *host) { assert_non_null(kn_device_pool(host)); }
static void make_pinned_pool(void *host) { assert_non_null(kn_device_pinned_pool(host)); }

static void read_info(void *host) {
    kn_device_info info;
    assert_ok(kn_device_info_read(&info, sizeof info, host));
}

static int n_files_in(const char *folder) {
    int n = 0;
    DIR *files = opendir(folder);
    assert_non_null(files);
    while (readdir(files)) n++;
    closedir(files);
    return n;
}

static void a_pool_is_made_once_and_for_all_threads(void **state) {
    (void)state;
    kn_device *host = kn_device_host();
    int n_open = n_files_in("/proc/self/fd");
    assert_ends_after(make_pool, host);
    assert_ends_after(make_pinned_pool, host);
    assert_ends_after(read_info, host);
    assert_int_equal(n_files_in("/proc/self/fd"), n_open);
    kn_pool *pool = kn_device_pool(host);
    assert_ok(kn_free(pool, must_alloc(pool, 1000, NULL)));
    assert_non_null(kn_device_pinned_pool(host));
}

/* --- files --- */

static void begin(void *unused) {
    (void)unused;
    assert_ok(kn_trace_begin(path_of("a.kntrace"), NULL));
}

static void flush(void *unused) {
    (void)unused;
    assert_ok(kn_trace_flush());
}

static void end(void *unused) {
    (void)unused;
    assert_ok(kn_trace_end());
}

static void a_trace_begins_and_ends(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_ends_after(begin, NULL);
        assert_ends_after(flush, NULL);
        assert_ends_after(end, NULL);
    }
}

static void save(void *pool) { assert_ok(kn_pool_snapshot(pool, path_of("pool.json"))); }

static void a_snapshot_is_whole(void **state) {
    (void)state;
    fixture f = fixture_make(GiB, false, NULL);
    int n = n_files_in(dir);
    assert_ends_after(save, f.pool);
    assert_int_equal(n_files_in(dir), n + 1); /* with none beside it */
    assert_ends_after(save, f.pool);
    assert_int_equal(n_files_in(dir), n + 1);
    assert_int_equal(unlink(path_of("pool.json")), 0);
    fixture_end(&f);
}

/* --- drivers and callbacks in which a thread may end --- */

static const kn_device_driver *plain_driver;

static kn_status test_range_reserve(void *impl, void **out, size_t size_bytes) {
    pthread_testcancel();
    return plain_driver->range_reserve(impl, out, size_bytes);
}

static kn_status test_handle_create(void *impl, uint64_t *out, size_t size_bytes) {
    pthread_testcancel();
    return plain_driver->handle_create(impl, out, size_bytes);
}

static kn_status test_handle_map(void *impl, void *at, size_t size_bytes, uint64_t handle) {
    pthread_testcancel();
    return plain_driver->handle_map(impl, at, size_bytes, handle);
}

static kn_status test_handle_unmap(void *impl, void *at, size_t size_bytes) {
    pthread_testcancel();
    return plain_driver->handle_unmap(impl, at, size_bytes);
}

static kn_status test_event_sync(void *impl, void *event) {
    pthread_testcancel();
    return plain_driver->event_sync(impl, event);
}

static kn_status test_device_sync(void *impl) {
    pthread_testcancel();
    return plain_driver->device_sync(impl);
}

static kn_status test_info_read(void *impl, kn_device_info *out) {
    pthread_testcancel();
    return plain_driver->info_read(impl, out);
}

static fixture fixture_that_ends_threads(void) {
    static kn_device_driver driver;
    fixture f = {0};
    assert_ok(kn_sim_create(&f.sim, &(kn_sim_options){.capacity_bytes = GiB}));
    plain_driver = kn_sim_driver(f.sim);
    driver = *plain_driver;
    driver.range_reserve = test_range_reserve;
    driver.handle_create = test_handle_create;
    driver.handle_map = test_handle_map;
    driver.handle_unmap = test_handle_unmap;
    driver.event_sync = test_event_sync;
    driver.device_sync = test_device_sync;
    driver.info_read = test_info_read;
    assert_ok(kn_device_register(&f.device, "sim:ends", &driver, f.sim));
    return f;
}

static void wait_for_it(void *pool) { assert_ok(kn_pool_sync(pool)); }
static void trim(void *pool) { assert_ok(kn_pool_trim(pool, 0)); }
static void limit(void *pool) { assert_ok(kn_pool_limit(pool, 2 * MiB)); }
static void stop(void *pool) { assert_ok(kn_pool_pause(NULL, pool, NULL)); }
static void go_on(void *pool) { assert_ok(kn_pool_resume(pool, NULL)); }

static void destroy(void *pool) { kn_pool_destroy(pool); }
static void make_room(void *pool) { assert_ok(kn_pool_preallocate(pool, 8 * MiB, NULL)); }

static void a_driver_may_end_threads_that_ask_for_it(void **state) {
    (void)state;
    fixture f = fixture_that_ends_threads();
    assert_ends_after(make_pool, f.device);
    f.pool = kn_device_pool(f.device);
    assert_ends_after(make_room, f.pool);
    void *ptr = must_alloc(f.pool, 4 * MiB, NULL);
    kn_sim_work(f.sim, NULL, ptr, 4 * MiB, 1);
    assert_ends_after(wait_for_it, f.pool);
    assert_ends_after(stop, f.pool);
    assert_ends_after(go_on, f.pool);
    assert_ok(kn_free(f.pool, ptr));
    assert_ok(kn_pool_sync(f.pool));
    assert_ends_after(trim, f.pool);
    assert_int_equal(stats_of(f.pool).reserved_bytes, 0);
    assert_ends_after(make_room, f.pool);
    assert_ok(kn_pool_sync(f.pool));
    assert_ends_after(limit, f.pool);
    assert_true(stats_of(f.pool).reserved_bytes <= 2 * MiB);
    assert_ok(kn_pool_check(f.pool));
    kn_pool *own = NULL;
    assert_ok(kn_pool_create(&own, f.device, NULL));
    assert_ok(kn_free(own, must_alloc(own, MiB, NULL)));
    assert_ends_after(destroy, own);
    assert_no_violation(f.sim);
}

static void log_and_end(void *ctx, int level, const char *text) {
    (void)level;
    strcpy(ctx, text);
    pthread_testcancel();
}

static void write_log(void *text) { kn_log_write(0, "%s", (const char *)text); }

static void a_log_may_end_them_too(void **state) {
    (void)state;
    static char text[2048];
    fixture f = fixture_make(GiB, false, NULL);
    (void)must_alloc(f.pool, 1000, NULL);
    kn_log_attach(log_and_end, text);
    assert_ends_after(write_log, "said");
    assert_string_equal(text, "said");
    assert_ends_after(destroy, f.pool);
    assert_non_null(strstr(text, "live"));
    kn_log_attach(NULL, NULL);
}

static int folder_make(void **state) {
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int folder_remove(void **state) {
    (void)state;
    (void)unlink(path_of("a.kntrace"));
    return rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(a_pool_is_made_once_and_for_all_threads),
                                       TEST(a_trace_begins_and_ends), TEST(a_snapshot_is_whole),
                                       TEST(a_driver_may_end_threads_that_ask_for_it),
                                       TEST(a_log_may_end_them_too)};
    return cmocka_run_group_tests_name("cancel", tests, folder_make, folder_remove);
}
