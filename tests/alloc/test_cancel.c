/* Threads that the program cancels in the middle of a call. */
#include <dirent.h>
#include <knet/device_driver.h>
#include <knet/observer.h>
#include <knet/pause.h>
#include <knet/pool_graph.h>
#include <knet/trace.h>
#include <limits.h>
#include <pthread.h>
#include <time.h>
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

#define ENDS(name, parameters, arguments)                                                          \
    static kn_status test_##name parameters {                                                      \
        pthread_testcancel();                                                                      \
        return plain_driver->name arguments;                                                       \
    }
#define ENDS_VOID(name, parameters, arguments)                                                     \
    static void test_##name parameters {                                                           \
        pthread_testcancel();                                                                      \
        plain_driver->name arguments;                                                              \
    }

ENDS(info_read, (void *impl, kn_device_info *out), (impl, out))
ENDS(free_bytes, (void *impl, uint64_t *out), (impl, out))
ENDS(segment_alloc, (void *impl, void **out, size_t size), (impl, out, size))
ENDS_VOID(segment_free, (void *impl, void *ptr, size_t size), (impl, ptr, size))
ENDS(range_reserve, (void *impl, void **out, size_t size), (impl, out, size))
ENDS_VOID(range_release, (void *impl, void *ptr, size_t size), (impl, ptr, size))
ENDS(handle_create, (void *impl, uint64_t *out, size_t size), (impl, out, size))
ENDS_VOID(handle_destroy, (void *impl, uint64_t handle, size_t size), (impl, handle, size))
ENDS(handle_map, (void *impl, void *at, size_t size, uint64_t handle), (impl, at, size, handle))
ENDS(range_access, (void *impl, void *at, size_t size), (impl, at, size))
ENDS(handle_unmap, (void *impl, void *at, size_t size), (impl, at, size))
ENDS_VOID(stream_destroy, (void *impl, kn_stream stream), (impl, stream))
ENDS(stream_sync, (void *impl, kn_stream stream), (impl, stream))
ENDS(device_sync, (void *impl), (impl))
ENDS(stream_check, (void *impl, kn_stream stream), (impl, stream))
ENDS(event_create, (void *impl, void **out), (impl, out))
ENDS_VOID(event_destroy, (void *impl, void *event), (impl, event))
ENDS(event_record, (void *impl, void *event, kn_stream stream), (impl, event, stream))
ENDS(event_query, (void *impl, void *event, bool *done), (impl, event, done))
ENDS(event_wait, (void *impl, void *event, kn_stream stream), (impl, event, stream))
ENDS(event_sync, (void *impl, void *event), (impl, event))

static bool test_stream_capturing(void *impl, kn_stream stream) {
    pthread_testcancel();
    return plain_driver->stream_capturing(impl, stream);
}

static int n_ids_told; /* before a thread ends */

static uint64_t test_stream_id(void *impl, kn_stream stream) {
    if (n_ids_told-- <= 0) pthread_testcancel();
    return plain_driver->stream_id(impl, stream);
}

/* All functions that a pool calls, but that which tells ids of streams. */
static kn_device_driver driver_that_ends_threads(void) {
    kn_device_driver driver = *plain_driver;
#define HOOK(name)                                                                                 \
    if (driver.name) driver.name = test_##name
    HOOK(info_read);
    HOOK(free_bytes);
    HOOK(segment_alloc);
    HOOK(segment_free);
    HOOK(range_reserve);
    HOOK(range_release);
    HOOK(handle_create);
    HOOK(handle_destroy);
    HOOK(handle_map);
    HOOK(range_access);
    HOOK(handle_unmap);
    HOOK(stream_destroy);
    HOOK(stream_sync);
    HOOK(device_sync);
    HOOK(stream_check);
    HOOK(stream_capturing);
    HOOK(event_create);
    HOOK(event_destroy);
    HOOK(event_record);
    HOOK(event_query);
    HOOK(event_wait);
    HOOK(event_sync);
#undef HOOK
    return driver;
}

/* by_id: in the function that tells ids of streams, and in no other. Without a pool. */
static fixture fixture_that_ends_threads(bool plain, bool by_id) {
    enum { MOST = 256 };
    static kn_device_driver drivers[MOST];
    static int n;
    fixture f = {0};
    char name[16];
    assert_true(n < MOST);
    snprintf(name, sizeof name, "sim:ends%d", n);
    kn_sim_options options = {.capacity_bytes = GiB, .plain = plain};
    assert_ok(kn_sim_create(&f.sim, &options));
    plain_driver = kn_sim_driver(f.sim);
    n_ids_told = INT_MAX; /* until the test says otherwise */
    drivers[n] = by_id ? *plain_driver : driver_that_ends_threads();
    if (by_id) drivers[n].stream_id = test_stream_id;
    assert_ok(kn_device_register(&f.device, name, &drivers[n++], f.sim));
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
    fixture f = fixture_that_ends_threads(false, false);
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

/* --- each call of a pool, in such a thread --- */

enum { N_BLOCKS = 32 };

typedef struct scene {
    fixture f;
    kn_stream home, other;
    void *blocks[N_BLOCKS]; /* by turns slots and blocks, of `home`, which is at work on them */
    kn_pool_graph *graph;   /* of a call whose thread ended before it destroyed that */
} scene;

static scene scene_make(bool plain, bool by_id) {
    scene s = {.f = fixture_that_ends_threads(plain, by_id)};
    assert_ok(kn_pool_create(&s.f.pool, s.f.device, NULL));
    s.home = new_stream(&s.f);
    s.other = new_stream(&s.f);
    for (int i = 0; i < N_BLOCKS; i++) {
        s.blocks[i] = must_alloc(s.f.pool, i % 2 ? 3 * MiB : 2000, s.home);
        kn_sim_work(s.f.sim, s.home, s.blocks[i], 1000, (uint64_t)i);
    }
    return s;
}

static void scene_free(const scene *s) {
    for (int i = 0; i < N_BLOCKS; i++) assert_ok(kn_free(s->f.pool, s->blocks[i]));
}

static void alloc_slot(void *at) {
    const scene *s = at;
    (void)must_alloc(s->f.pool, 3000, s->other);
}

static void alloc_captured(void *at) {
    const scene *s = at;
    (void)must_alloc(s->f.pool, 3000, s->other);
    kn_sim_capture(s->f.sim, s->other, true); /* it has no id now */
    (void)must_alloc(s->f.pool, 3000, s->other);
    kn_sim_capture(s->f.sim, s->other, false);
}

static void alloc_block(void *at) {
    const scene *s = at;
    (void)must_alloc(s->f.pool, 20 * MiB, s->other);
}

static void alloc_too_much(void *at) {
    const scene *s = at;
    void *ptr = NULL;
    assert_fails(kn_alloc(&ptr, s->f.pool, GiB, s->other), KN_ERR_OOM, "out of memory");
    assert_fails(kn_alloc(&ptr, s->f.pool, SIZE_MAX, s->other), KN_ERR_OOM, "out of memory");
}

static void alloc_of_another_stream(void *at) {
    const scene *s = at;
    scene_free(s);
    assert_ok(kn_pool_limit(s->f.pool, 60 * MiB));
    for (int i = 0; i < 3; i++) (void)must_alloc(s->f.pool, 10 * MiB, s->other);
}

static void use_block(void *at) {
    const scene *s = at;
    assert_ok(kn_block_use(s->f.pool, s->blocks[1], s->other));
    assert_ok(kn_free(s->f.pool, s->blocks[1]));
}

static void use_slot(void *at) {
    const scene *s = at;
    assert_ok(kn_block_use(s->f.pool, s->blocks[0], s->other));
    assert_ok(kn_free(s->f.pool, s->blocks[0]));
}

static void await_block(void *at) {
    const scene *s = at;
    assert_ok(kn_block_await(s->f.pool, s->blocks[1], s->other));
}

static void free_all(void *at) {
    const scene *s = at;
    scene_free(s);
    (void)must_alloc(s->f.pool, 1 * MiB, s->home);
    (void)must_alloc(s->f.pool, 1 * MiB, s->other); /* the second stream */
    for (int i = 0; i < 4; i++) {
        void *ptr = must_alloc(s->f.pool, 40 * MiB, s->other);
        assert_ok(kn_block_use(s->f.pool, ptr, s->home));
        assert_ok(kn_free(s->f.pool, ptr));
    }
}

static void retire(void *at) {
    const scene *s = at;
    scene_free(s);
    kn_stream_retire(s->f.device, s->home);
}

static void destroy_stream(void *at) {
    const scene *s = at;
    scene_free(s);
    kn_stream_destroy(s->f.device, s->home);
}

static bool see_and_end(void *ctx, const kn_pool_part *part) {
    (void)part;
    ++*(int *)ctx;
    pthread_testcancel();
    return false;
}

static void visit(void *at) {
    const scene *s = at;
    int n = 0;
    kn_pool_visit(s->f.pool, see_and_end, &n);
    assert_true(n > N_BLOCKS);
}

static void preallocate(void *at) {
    const scene *s = at;
    assert_ok(kn_pool_preallocate(s->f.pool, 30 * MiB, s->other));
}

static void run_graph(void *at) {
    scene *s = at;
    assert_ok(kn_pool_graph_create(&s->graph, s->f.pool));
    assert_ok(kn_pool_graph_begin(s->graph, s->home));
    assert_ok(kn_pool_graph_end(s->graph, s->home));
    kn_pool_graph_destroy(s->graph, s->other);
    s->graph = NULL;
}

static void alloc_for_graph(void *at) {
    scene *s = at;
    void *ptr = NULL;
    assert_ok(kn_pool_graph_create(&s->graph, s->f.pool));
    assert_ok(kn_pool_graph_alloc(&ptr, s->graph, 1000, s->other));
    assert_ok(kn_pool_graph_alloc(&ptr, s->graph, 5 * MiB, s->other));
    kn_pool_graph_destroy(s->graph, s->home);
    s->graph = NULL;
}

static void synchronize(void *at) {
    const scene *s = at;
    scene_free(s);
    assert_ok(kn_pool_sync(s->f.pool));
    assert_ok(kn_pool_trim(s->f.pool, 0));
}

static void lower_limit(void *at) {
    const scene *s = at;
    assert_ok(kn_pool_configure(s->f.pool, "limit=2MiB"));
    scene_free(s);
}

static uint64_t clock_that_ends(void *ctx) {
    (void)ctx;
    static uint64_t now;
    pthread_testcancel();
    return now += 1000000;
}

static void decay(void *at) {
    const scene *s = at;
    kn_pool_options options;
    kn_pool_options_read(&options, sizeof options, s->f.pool);
    options.decay_ns = 1;
    options.clock_fn = clock_that_ends;
    assert_ok(kn_pool_options_set(s->f.pool, &options));
    scene_free(s);
}

static void make_and_destroy(void *at) {
    const scene *s = at;
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, s->f.device, NULL));
    (void)must_alloc(pool, 1 * MiB, s->other);
    kn_pool_destroy(pool);
}

static const struct {
    const char *name;
    void (*fn)(void *scene);
} calls[] = {
#define CALL(fn)                                                                                   \
    { #fn, fn }
    CALL(alloc_slot),      CALL(alloc_block),
    CALL(alloc_too_much),  CALL(alloc_of_another_stream),
    CALL(use_block),       CALL(use_slot),
    CALL(await_block),     CALL(free_all),
    CALL(retire),          CALL(destroy_stream),
    CALL(visit),           CALL(preallocate),
    CALL(run_graph),       CALL(alloc_for_graph),
    CALL(synchronize),     CALL(lower_limit),
    CALL(alloc_captured),  CALL(decay),
    CALL(make_and_destroy)
#undef CALL
};
enum { N_CALLS = sizeof calls / sizeof *calls };

static void each_call_ends_before_its_thread(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_CALLS; i++) {
        scene s = scene_make(i % 2 != 0, false);
        test_ends_after(calls[i / 2].fn, &s, calls[i / 2].name);
        assert_ok(kn_pool_check(s.f.pool));
        assert_no_violation(s.f.sim);
    }
}

static void *use_the_rest(void *at) {
    const scene *s = at;
    make_and_destroy(at);
    assert_ok(kn_pool_sync(s->f.pool));
    assert_ok(kn_free(s->f.pool, must_alloc(s->f.pool, 1 * MiB, s->other)));
    assert_ok(kn_free(s->f.pool, must_alloc(s->f.pool, 1000, s->other)));
    assert_ok(kn_pool_check(s->f.pool));
    return at;
}

/* A driver is asked for the id of a stream before the lock is taken, and a thread may end there. */
static void assert_nothing_is_locked(scene *s, const char *call) {
    pthread_t rest;
    void *result = NULL;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    assert_int_equal(pthread_create(&rest, NULL, use_the_rest, s), 0);
    if (pthread_timedjoin_np(rest, &result, &until)) fail_msg("%s left a lock behind", call);
    assert_no_violation(s->f.sim);
}

static void a_thread_that_ends_at_an_id_keeps_no_lock(void **state) {
    (void)state;
    enum { N_TOLD = 6 };
    for (int i = 0; i < N_CALLS * N_TOLD; i++) {
        scene s = scene_make(false, true);
        n_ids_told = i % N_TOLD;
        test_cancelled(&(cancelled_call){calls[i / N_TOLD].fn, &s, false});
        kn_sim_capture(s.f.sim, s.other, false);
        assert_nothing_is_locked(&s, calls[i / N_TOLD].name);
        kn_pool_graph_destroy(s.graph, s.home);
    }
}

/* --- observers that are called while a lock is held --- */

static uint32_t own(kn_pool *pool, void *ptr, size_t size, kn_stream stream) {
    (void)pool, (void)ptr, (void)size, (void)stream;
    return 1;
}

static void hear_of_pool_and_end(kn_pool *pool) {
    (void)pool;
    pthread_testcancel();
}

static bool name_and_end(uint32_t owner, char *out, size_t out_bytes) {
    snprintf(out, out_bytes, "owner of test %u", owner);
    pthread_testcancel();
    return true;
}

static void attach(void *observer) { assert_ok(kn_observer_attach(observer)); }

static void print(void *at) {
    const scene *s = at;
    assert_ok(kn_pool_print(s->f.pool, "/dev/null"));
}

static void an_observer_may_end_them_too(void **state) {
    (void)state;
    static kn_observer observer = {
        .on_alloc = own, .on_pool_create = hear_of_pool_and_end, .owner_name = name_and_end};
    assert_ends_after(attach, &observer);
    scene s = scene_make(false, false);
    assert_ends_after(print, &s);
    assert_ends_after(alloc_too_much, &s);
    assert_ok(kn_observer_attach(NULL));
    assert_nothing_is_locked(&s, "an observer");
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
                                       TEST(a_trace_begins_and_ends),
                                       TEST(a_snapshot_is_whole),
                                       TEST(a_driver_may_end_threads_that_ask_for_it),
                                       TEST(each_call_ends_before_its_thread),
                                       TEST(a_thread_that_ends_at_an_id_keeps_no_lock),
                                       TEST(an_observer_may_end_them_too),
                                       TEST(a_log_may_end_them_too)};
    return cmocka_run_group_tests_name("cancel", tests, folder_make, folder_remove);
}
