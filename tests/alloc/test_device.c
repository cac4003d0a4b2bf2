#include <knet/pause.h>
#include <knet/plan.h>
#include <knet/pool_graph.h>
#include <knet/share.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool_fixture.h"

static void devices_are_found_by_name(void **state) {
    (void)state;
    kn_device *device = NULL, *again = NULL;
    assert_ok(kn_device_find(&device, "cpu"));
    assert_ptr_equal(device, kn_device_host());
    assert_string_equal(kn_device_name(device), "cpu");
    assert_int_equal(kn_device_kind_get(device), KN_DEVICE_HOST);
    assert_ok(kn_device_find(&device, "sim"));
    assert_ok(kn_device_find(&again, "sim"));
    assert_ptr_equal(device, again);
    assert_int_equal(kn_device_kind_get(device), KN_DEVICE_SIM);
}

static void wrong_names_are_named(void **state) {
    (void)state;
    kn_device *device = NULL;
    assert_fails(kn_device_find(&device, "gpu"), KN_ERR_INVALID, "\"gpu\"");
    assert_fails(kn_device_find(&device, ""), KN_ERR_INVALID, "\"cuda:N\"");
    assert_fails(kn_device_find(&device, "cuda:"), KN_ERR_INVALID, "\"cuda:\"");
    assert_fails(kn_device_find(&device, "cuda:-1"), KN_ERR_INVALID, "\"cuda:-1\"");
    assert_fails(kn_device_find(&device, "cuda:1x"), KN_ERR_INVALID, "\"cuda:1x\"");
    assert_fails(kn_device_find(&device, NULL), KN_ERR_INVALID, "NULL");
    assert_null(device);
}

/* What expects a device or a pool, and gets NULL. */
static void null_is_named(void **state) {
    (void)state;
    kn_device_info info;
    kn_stream stream = NULL;
    kn_event *event = NULL;
    char bytes[4] = "abc";
    kn_device *host = kn_device_host();
    const char *device = ": the device is NULL", *pool = ": pool is NULL";
    assert_fails(kn_device_info_read(&info, sizeof info, NULL), KN_ERR_INVALID, device);
    assert_fails(kn_stream_create(&stream, NULL), KN_ERR_INVALID, "kn_stream_create: the device");
    assert_fails(kn_stream_sync(NULL, NULL), KN_ERR_INVALID, device);
    assert_fails(kn_stream_of_thread(&stream, NULL), KN_ERR_INVALID, device);
    assert_fails(kn_event_create(&event, NULL), KN_ERR_INVALID, "kn_event_create: the device");
    assert_fails(kn_device_copy(NULL, bytes, host, bytes, 4, NULL), KN_ERR_INVALID, device);
    assert_fails(kn_device_copy(host, bytes, NULL, bytes, 4, NULL), KN_ERR_INVALID, device);
    assert_fails(kn_device_fill(NULL, bytes, 0, 4, NULL), KN_ERR_INVALID, device);
    assert_fails(kn_device_peer_open(NULL, host), KN_ERR_INVALID, device);
    assert_fails(kn_pool_trim(NULL, 0), KN_ERR_INVALID, "kn_pool_trim: pool is NULL");
    assert_fails(kn_pool_sync(NULL), KN_ERR_INVALID, pool);
    assert_fails(kn_pool_limit(NULL, 0), KN_ERR_INVALID, pool);
    assert_fails(kn_pool_options_set(NULL, &(kn_pool_options){0}), KN_ERR_INVALID, pool);
    assert_fails(kn_block_use(NULL, bytes, NULL), KN_ERR_INVALID, pool);
    assert_fails(kn_block_await(NULL, bytes, NULL), KN_ERR_INVALID, pool);
}

static size_t free_nothing(void *ctx, kn_pool *pool, size_t wanted) {
    (void)ctx, (void)pool, (void)wanted;
    return 0;
}

/* Every other call of a pool that returns a status. */
static void a_pool_that_is_null_is_named(void **state) {
    (void)state;
    kn_share share = {.n_files = 0};
    kn_pool_peaks peaks;
    kn_plan *plan = NULL;
    kn_pool_graph *graph = NULL;
    uint64_t value = 0;
    const char *pool = ": pool is NULL";
    assert_fails(kn_block_share(&share, NULL, NULL), KN_ERR_INVALID, "kn_block_share: pool is");
    assert_fails(kn_pool_pause(NULL, NULL, NULL), KN_ERR_INVALID, "kn_pool_pause: pool is");
    assert_fails(kn_pool_resume(NULL, NULL), KN_ERR_INVALID, pool);
    assert_fails(kn_pool_configure(NULL, "decay=1s"), KN_ERR_INVALID, pool);
    assert_fails(kn_pool_print(NULL, "-"), KN_ERR_INVALID, "kn_pool_print: pool is");
    assert_fails(kn_pool_snapshot(NULL, "-"), KN_ERR_INVALID, "kn_pool_snapshot: pool is");
    assert_fails(kn_pool_check(NULL), KN_ERR_INVALID, pool);
    assert_fails(kn_pool_oom_json(NULL, "-"), KN_ERR_INVALID, pool);
    assert_fails(kn_pool_stat(&value, NULL, "live_bytes"), KN_ERR_INVALID, pool);
    assert_fails(kn_pool_peaks_push(NULL), KN_ERR_INVALID, pool);
    assert_fails(kn_pool_peaks_pop(&peaks, NULL), KN_ERR_INVALID, pool);
    assert_fails(kn_pool_oom_attach(NULL, free_nothing, NULL), KN_ERR_INVALID, pool);
    assert_fails(kn_pool_preallocate(NULL, 1, NULL), KN_ERR_INVALID, pool);
    assert_fails(kn_pool_graph_create(&graph, NULL), KN_ERR_INVALID, pool);
    assert_fails(kn_plan_create(&plan, NULL, NULL), KN_ERR_INVALID, "kn_plan_create: pool is");
}

static void names_are_registered_once(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_device *device = NULL;
    const kn_device_driver *driver = kn_sim_driver(f.sim);
    assert_fails(kn_device_register(&device, kn_device_name(f.device), driver, f.sim),
                 KN_ERR_INVALID, "registered already");
    assert_fails(kn_device_register(&device, "", driver, f.sim), KN_ERR_INVALID, "1 to 15");
    kn_device_driver half = *driver;
    half.range_access = NULL;
    assert_fails(kn_device_register(&device, "half", &half, f.sim), KN_ERR_INVALID,
                 "range_reserve");
    assert_fails(kn_device_register(&device, "a-name-of-16-chr", driver, f.sim), KN_ERR_INVALID,
                 "1 to 15");
    assert_null(device);
    fixture_end(&f);
}

static void default_pool_is_one_for_all_threads(void **state) {
    (void)state;
    kn_pool *pool = kn_device_pool(kn_device_host());
    assert_non_null(pool);
    assert_ptr_equal(pool, kn_device_pool(kn_device_host()));
    assert_ptr_equal(kn_pool_device(pool), kn_device_host());
    assert_string_equal(kn_pool_name(pool), "cpu");
}

static void default_pool_that_can_not_be_made_leaves_an_error_pending(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_sim_fail(f.sim, KN_SIM_INFO_READ, 1, false);
    assert_null(kn_device_pool(f.device));
    assert_int_equal(kn_check(), KN_ERR_CUDA);
    assert_non_null(kn_device_pool(f.device));
    kn_pool_destroy(f.pool);
}

static void *make_default_pool(void *device) { return kn_device_pool(device); }

/* Threads may have stacks of 16 KiB, PTHREAD_STACK_MIN. */
static void default_pool_is_made_on_a_small_stack(void **state) {
    (void)state;
    enum { SIZE = 256 << 10, UNUSED = 0xa5 };
    if (TEST_SANITIZED) skip();
    fixture f = fixture_make(64 * MiB, false, NULL);
    unsigned char *stack = aligned_alloc(4096, SIZE);
    pthread_attr_t attributes;
    pthread_t thread;
    void *pool = NULL;
    size_t unused = 0;
    assert_non_null(stack);
    memset(stack, UNUSED, SIZE);
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstack(&attributes, stack, SIZE), 0);
    assert_int_equal(pthread_create(&thread, &attributes, make_default_pool, f.device), 0);
    assert_int_equal(pthread_join(thread, &pool), 0);
    pthread_attr_destroy(&attributes);
    while (stack[unused] == UNUSED) unused++;
    free(stack);
    assert_non_null(pool);
    assert_in_range(SIZE - unused, 1, 14 << 10);
    kn_pool_destroy(f.pool);
}

static void copies_need_the_host_on_one_side(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL), g = fixture_make(64 * MiB, false, NULL);
    char host[100] = "";
    void *a = must_alloc(f.pool, 100, NULL), *b = must_alloc(g.pool, 100, NULL);
    assert_ok(kn_device_copy(f.device, a, kn_device_host(), host, 100, NULL));
    assert_ok(kn_device_copy(kn_device_host(), host, f.device, a, 100, NULL));
    assert_ok(kn_device_copy(f.device, a, f.device, a, 100, NULL));
    assert_ok(kn_device_fill(f.device, a, 0, 100, NULL));
    assert_fails(kn_device_copy(g.device, b, f.device, a, 100, NULL), KN_ERR_UNSUPPORTED,
                 "one of them must be the host");
    assert_ok(kn_free(f.pool, a));
    assert_ok(kn_free(g.pool, b));
    fixture_end(&f);
    fixture_end(&g);
}

static char logged[256];
static int n_logged;
static void keep_log(void *ctx, int level, const char *text) {
    (void)ctx;
    assert_int_equal(level, 0);
    snprintf(logged, sizeof logged, "%s", text);
    n_logged++;
}

static int errors_logged(void (*call)(kn_device *, kn_stream), kn_device *device,
                         kn_stream stream) {
    n_logged = 0;
    kn_log_attach(keep_log, NULL);
    call(device, stream);
    kn_log_attach(NULL, NULL);
    return n_logged;
}

static void default_streams_are_neither_retired_nor_destroyed(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    void *a = must_alloc(f.pool, 1 * MiB, NULL);
    kn_sim_work(f.sim, NULL, a, 1 * MiB, 1);
    assert_ok(kn_free(f.pool, a));
    uint64_t calls = kn_sim_calls(f.sim, KN_SIM_ANY), objects = kn_sim_objects(f.sim);
    for (uintptr_t handle = 0; handle <= 2; handle++) {
        kn_stream stream = (kn_stream)handle;
        assert_int_equal(errors_logged(kn_stream_retire, f.device, stream), 1);
        assert_non_null(strstr(logged, "kn_stream_retire"));
        assert_non_null(strstr(logged, kn_device_name(f.device)));
        assert_int_equal(errors_logged(kn_stream_destroy, f.device, stream), handle ? 1 : 0);
    }
    assert_non_null(strstr(logged, "kn_stream_destroy"));
    assert_int_equal(kn_sim_calls(f.sim, KN_SIM_ANY), calls);
    assert_int_equal(kn_sim_objects(f.sim), objects);
    a = must_alloc(f.pool, 1 * MiB, NULL); /* the stream's own again, with no wait */
    kn_sim_work(f.sim, NULL, a, 1 * MiB, 2);
    assert_int_equal(kn_sim_pending(f.sim, NULL), 2);
    assert_ok(kn_free(f.pool, a));
    fixture_end(&f);
}

static void host_has_one_stream(void **state) {
    (void)state;
    kn_device *host = kn_device_host();
    kn_stream stream = (kn_stream)&stream, own = stream;
    assert_ok(kn_stream_create(&stream, host));
    assert_null(stream);
    assert_ok(kn_stream_of_thread(&own, host));
    assert_null(own);
    assert_ok(kn_stream_sync(host, stream));
    assert_int_equal(errors_logged(kn_stream_retire, host, stream), 0);
    assert_int_equal(errors_logged(kn_stream_destroy, host, stream), 0);
}

/* The child's exit code: 0, or the number of the first thing that was wrong. */
static int child_of_fork(fixture *f, void *inherited) {
    void *ptr = NULL;
    kn_pool *pool = NULL;
    kn_stream stream = NULL;
    if (kn_alloc(&ptr, f->pool, 1000, NULL) != KN_ERR_DEVICE) return 1;
    if (!strstr(kn_last_error()->message, "fork()")) return 2;
    if (kn_alloc(&ptr, f->pool, 10 * MiB, NULL) != KN_ERR_DEVICE) return 3;
    if (kn_pool_create(&pool, f->device, NULL) != KN_ERR_DEVICE) return 4;
    if (kn_stream_create(&stream, f->device) != KN_ERR_DEVICE) return 5;
    if (kn_free(f->pool, inherited) != KN_OK) return 6;
    if (kn_alloc(&ptr, f->pool, 1000, NULL) != KN_ERR_DEVICE) return 7;
    kn_pool *host = kn_device_pool(kn_device_host()); /* still works */
    if (kn_alloc(&ptr, host, 100000, NULL) != KN_OK || kn_free(host, ptr) != KN_OK) return 8;
    if (kn_alloc(&ptr, host, 100, NULL) != KN_OK || kn_free(host, ptr) != KN_OK) return 9;
    kn_pool_destroy(f->pool);
    return 0;
}

static void child_of_fork_gets_a_clear_error(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    void *a = must_alloc(f.pool, 1000, NULL), *b = must_alloc(f.pool, 1000, NULL);
    assert_ok(kn_free(f.pool, b));
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(child_of_fork(&f, a));
    int code = -1;
    assert_int_equal(waitpid(pid, &code, 0), pid);
    assert_true(WIFEXITED(code));
    assert_int_equal(WEXITSTATUS(code), 0);
    b = must_alloc(f.pool, 1000, NULL); /* the parent still works */
    assert_ok(kn_free(f.pool, a));
    assert_ok(kn_free(f.pool, b));
    fixture_end(&f);
}

/* A host device whose first pool takes until the fork is over. */
static kn_device_driver slow_driver;
static pthread_barrier_t asked, forked;
static bool slow;

static kn_status slow_info(void *impl, kn_device_info *out) {
    if (slow) {
        pthread_barrier_wait(&asked);
        pthread_barrier_wait(&forked);
    }
    void *host_impl;
    (void)impl;
    return kn_device_driver_get(kn_device_host(), &host_impl)->info_read(host_impl, out);
}

static void child_of_fork_waits_for_no_thread_of_the_parent(void **state) {
    (void)state;
    void *impl;
    kn_device *device = NULL;
    slow_driver = *kn_device_driver_get(kn_device_host(), &impl);
    slow_driver.info_read = slow_info;
    assert_ok(kn_device_register(&device, "slow", &slow_driver, impl));
    pthread_barrier_init(&asked, NULL, 2);
    pthread_barrier_init(&forked, NULL, 2);
    slow = true;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, make_default_pool, device), 0);
    pthread_barrier_wait(&asked);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(20); /* ends a child that hangs */
        slow = false;
        _exit(kn_device_pool(device) ? 0 : 1);
    }
    int code = -1;
    assert_int_equal(waitpid(pid, &code, 0), pid);
    pthread_barrier_wait(&forked);
    void *pool = NULL;
    pthread_join(thread, &pool);
    assert_non_null(pool);
    assert_true(WIFEXITED(code));
    assert_int_equal(WEXITSTATUS(code), 0);
}

int main(void) {
    return RUN_TESTS(TEST(devices_are_found_by_name), TEST(wrong_names_are_named),
                     TEST(null_is_named), TEST(a_pool_that_is_null_is_named),
                     TEST(names_are_registered_once), TEST(default_pool_is_one_for_all_threads),
                     TEST(default_pool_that_can_not_be_made_leaves_an_error_pending),
                     TEST(default_pool_is_made_on_a_small_stack),
                     TEST(default_streams_are_neither_retired_nor_destroyed),
                     TEST(host_has_one_stream), TEST(copies_need_the_host_on_one_side),
                     TEST(child_of_fork_gets_a_clear_error),
                     TEST(child_of_fork_waits_for_no_thread_of_the_parent));
}
