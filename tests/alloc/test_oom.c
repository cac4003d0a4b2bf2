/* Out of memory: the report is complete and true, and takes no memory. */
#include <cjson/cJSON.h>
#include <knet/observer.h>
#include <knet/pool_graph.h>
#include <sys/resource.h>
#include <unistd.h>

#include "pool_fixture.h"

/* --- malloc, which can be made to fail on one thread --- */

#ifdef OOM_MALLOC
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *ptr, size_t size);
static _Thread_local bool refuse;
static _Thread_local int n_refused;

static bool refused(void) {
    n_refused += refuse;
    return refuse;
}

__attribute__((visibility("default"))) void *malloc(size_t size) {
    return refused() ? NULL : __libc_malloc(size);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size) {
    return refused() ? NULL : __libc_calloc(n, size);
}

__attribute__((visibility("default"))) void *realloc(void *ptr, size_t size) {
    return refused() ? NULL : __libc_realloc(ptr, size);
}

/* All that the error path does, with no malloc. */
static void fail_without_malloc(kn_pool *pool, size_t size) {
    char path[] = "/tmp/knet_oom_XXXXXX";
    void *none = NULL;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    refuse = true;
    n_refused = 0;
    kn_status failed = kn_alloc(&none, pool, size, NULL), again = kn_alloc(&none, pool, size, NULL);
    kn_status json = kn_pool_oom_json(pool, path), table = kn_pool_print(pool, path);
    kn_status snapshot = kn_pool_snapshot(pool, path);
    refuse = false;
    remove(path);
    assert_true(failed == KN_ERR_OOM && again == KN_ERR_OOM);
    assert_non_null(strstr(kn_last_error()->message, "out of memory"));
    assert_true(json == KN_OK && table == KN_OK && snapshot == KN_OK);
    assert_int_equal(n_refused, 0);
}

static void the_error_path_takes_no_memory(void **state) {
    (void)state;
    kn_pool *pool = NULL;
    kn_pool_options options = {.limit_bytes = 64 * MiB, .name = "tight"};
    assert_ok(kn_pool_create(&pool, kn_device_host(), &options));
    void *a = must_alloc(pool, 20 * MiB, NULL), *b = must_alloc(pool, 1000, NULL);
    fail_without_malloc(pool, 60 * MiB);
    assert_ok(kn_free(pool, a));
    assert_ok(kn_free(pool, b));
    kn_pool_destroy(pool);
    for (int plain = 0; plain < 2; plain++) {
        fixture f = fixture_make(64 * MiB, plain, NULL);
        void *c = must_alloc(f.pool, 20 * MiB, NULL), *d = must_alloc(f.pool, 1000, NULL);
        fail_without_malloc(f.pool, 60 * MiB);
        assert_ok(kn_free(f.pool, c));
        assert_ok(kn_free(f.pool, d));
        fixture_end(&f);
    }
}

/* The process gets `more` bytes of address space, or as much as there is. */
static void limit_memory(size_t more) {
    struct rlimit limit;
    size_t n_pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_true(file && fscanf(file, "%zu", &n_pages) == 1);
    fclose(file);
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = more == SIZE_MAX ? limit.rlim_max : n_pages * (size_t)getpagesize() + more;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
}

static void a_report_without_host_memory_leaves_the_older_one(void **state) {
    (void)state;
    char path[] = "/tmp/knet_oom_XXXXXX", text[16];
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "older", 5) == 5);
    fixture f = fixture_make(64 * MiB, false, NULL);
    static void *live[4000];
    void *none = NULL;
    for (int i = 0; i < 4000; i++) live[i] = must_alloc(f.pool, 1000, NULL);
    assert_int_equal(kn_alloc(&none, f.pool, 65 * MiB, NULL), KN_ERR_OOM);
    static const struct {
        kn_status (*write_fn)(kn_pool *pool, const char *path);
        size_t memory;
    } reports[] = {{kn_pool_print, 0},
                   {kn_pool_oom_json, 0},
                   {kn_pool_snapshot, 0},
                   {kn_pool_snapshot, (size_t)70 << 10}}; /* a part of it */
    for (size_t i = 0; i < sizeof reports / sizeof *reports; i++) {
        limit_memory(reports[i].memory);
        kn_status status = reports[i].write_fn(f.pool, path);
        limit_memory(SIZE_MAX);
        assert_int_equal(status, KN_ERR_OOM);
        assert_non_null(strstr(kn_last_error()->message, path));
        assert_non_null(strstr(kn_last_error()->message, "Cannot allocate memory"));
        assert_int_equal(pread(fd, text, sizeof text, 0), 5);
    }
    assert_ok(kn_pool_snapshot(f.pool, path));
    close(fd);
    remove(path);
    for (int i = 0; i < 4000; i++) assert_ok(kn_free(f.pool, live[i]));
    fixture_end(&f);
}
#else
static void the_error_path_takes_no_memory(void **state) {
    (void)state;
    skip(); /* a sanitizer has the malloc */
}

static void a_report_without_host_memory_leaves_the_older_one(void **state) {
    (void)state;
    skip(); /* a sanitizer needs memory of its own */
}
#endif

/* --- the report --- */

static uint32_t owner_of(kn_pool *pool, void *ptr, size_t size, kn_stream stream) {
    (void)pool, (void)ptr, (void)stream;
    return size > 10 * MiB ? 1 : 2;
}

static bool name_of(uint32_t owner, char *out, size_t out_bytes) {
    snprintf(out, out_bytes, owner == 1 ? "big \"layer\"" : "small");
    return true;
}

static const kn_observer OBSERVER = {.on_alloc = owner_of, .owner_name = name_of};

static cJSON *report(kn_pool *pool) {
    char path[] = "/tmp/knet_oom_XXXXXX", text[16384] = "";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_ok(kn_pool_oom_json(pool, path));
    assert_true(read(fd, text, sizeof text - 1) > 0);
    close(fd);
    remove(path);
    cJSON *root = cJSON_Parse(text);
    if (!root) fail_msg("no JSON: %s", text);
    return root;
}

static double number(const cJSON *object, const char *name) {
    const cJSON *item = cJSON_GetObjectItem(object, name);
    if (!cJSON_IsNumber(item)) fail_msg("no number %s", name);
    return item->valuedouble;
}

static void assert_holder(const cJSON *list, int i, const char *name, const char *key,
                          double bytes) {
    const cJSON *item = cJSON_GetArrayItem(list, i);
    assert_string_equal(cJSON_GetObjectItem(item, "name")->valuestring, name);
    assert_true(number(item, key) == bytes);
}

static void text_and_json_agree(void **state) {
    (void)state;
    static const char *const said[] = {
        "pool full: out of memory: 50.0 MiB asked for; live 25.0 MiB, unused 1.00 MiB (in ",
        "threads' caches 0 bytes, largest free block 1.00 MiB, ",
        "waiting for other streams 0 bytes), ",
        "reserved 26.0 MiB of a limit of 64.0 MiB",
        "; held by big \"layer\" 21.0 MiB, small 4.00 MiB",
        "; tagged weights 21.0 MiB, activations 4.00 MiB",
    };
    fixture f =
        fixture_make(GiB, false, &(kn_pool_options){.limit_bytes = 64 * MiB, .name = "full"});
    assert_ok(kn_observer_attach(&OBSERVER));
    kn_tag_push("weights");
    void *a = must_alloc(f.pool, 21 * MiB, NULL), *none = NULL;
    kn_tag_push("activations");
    void *b = must_alloc(f.pool, 3 * MiB, NULL), *c = must_alloc(f.pool, 1 * MiB, NULL);
    kn_tag_push("gone");
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 1 * MiB, NULL)));
    kn_tag_pop();
    kn_tag_pop();
    kn_tag_pop();
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        assert_fails(kn_alloc(&none, f.pool, 50 * MiB, NULL), KN_ERR_OOM, said[i]);
        assert_null(strstr(kn_last_error()->message, "gone"));
    }
    cJSON *root = report(f.pool);
    assert_string_equal(cJSON_GetObjectItem(root, "pool")->valuestring, "full");
    assert_true(number(root, "requested_bytes") == 50.0 * (double)MiB);
    assert_true(number(root, "limit_bytes") == 64.0 * (double)MiB);
    assert_true(number(root, "largest_free_bytes") == 1.0 * (double)MiB);
    assert_true(number(root, "unused_bytes") == 1.0 * (double)MiB);
    assert_true(number(root, "graph_bytes") == 0);
    const cJSON *stats = cJSON_GetObjectItem(root, "stats");
    assert_true(number(stats, "live_bytes") == 25.0 * (double)MiB);
    assert_true(number(stats, "n_ooms") == (double)(sizeof said / sizeof *said));
    const cJSON *holders = cJSON_GetObjectItem(root, "held_by");
    assert_holder(holders, 0, "big \"layer\"", "bytes", 21.0 * (double)MiB);
    assert_holder(holders, 1, "small", "bytes", 4.0 * (double)MiB);
    assert_holder(cJSON_GetObjectItem(root, "tags"), 0, "weights", "live_bytes",
                  21.0 * (double)MiB);
    assert_true(cJSON_IsFalse(cJSON_GetObjectItem(root, "capturing")));
    cJSON_Delete(root);
    assert_ok(kn_free(f.pool, a));
    assert_ok(kn_free(f.pool, b));
    assert_ok(kn_free(f.pool, c));
    fixture_end(&f);
    assert_ok(kn_observer_attach(NULL));
}

static void memory_of_graphs_is_reported(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    kn_stream s = new_stream(&f);
    kn_pool_graph *graph = NULL;
    void *none = NULL;
    assert_ok(kn_pool_graph_create(&graph, f.pool));
    assert_ok(kn_pool_graph_begin(graph, s));
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 30 * MiB, s)));
    assert_ok(kn_pool_graph_end(graph, s));
    assert_fails(kn_alloc(&none, f.pool, 50 * MiB, s), KN_ERR_OOM, ", for graphs 30.0 MiB");
    cJSON *root = report(f.pool);
    assert_true(number(root, "graph_bytes") == 30.0 * (double)MiB);
    assert_true(number(root, "stream") == (double)(uintptr_t)s);
    cJSON_Delete(root);
    kn_pool_graph_destroy(graph, s);
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 50 * MiB, s)));
    fixture_end(&f);
}

/* A size that is a mistake leaves a report too: it is the last failure, not an older one. */
static void absurd_requests_are_reported(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    void *live = must_alloc(f.pool, 3 * MiB, NULL), *none = NULL;
    const size_t sizes[] = {128 * MiB, (size_t)1 << 50, SIZE_MAX - 1};
    for (int i = 0; i < 3; i++) {
        kn_status status = kn_alloc(&none, f.pool, sizes[i], NULL);
        assert_int_equal(status, KN_ERR_OOM);
        assert_non_null(strstr(kn_last_error()->message, "live 3.00 MiB"));
        cJSON *root = report(f.pool);
        assert_true(number(root, "requested_bytes") == (double)sizes[i]);
        const char *said = cJSON_GetObjectItem(root, "device_said")->valuestring;
        assert_true(!i == !strstr(said, "more than any device has"));
        cJSON_Delete(root);
    }
    assert_ok(kn_free(f.pool, live));
    fixture_end(&f);
}

static void without_a_failure_there_is_no_report(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    void *none = NULL;
    assert_fails(kn_pool_oom_json(f.pool, "/tmp/none"), KN_ERR_INVALID, "never ran out of memory");
    assert_int_equal(kn_alloc(&none, f.pool, 128 * MiB, NULL), KN_ERR_OOM);
    assert_fails(kn_pool_oom_json(f.pool, "/none/such"), KN_ERR_IO, "cannot write /none/such");
    fixture_end(&f);
}

/* --- no failure that need not be --- */

enum { STREAMS = 3, LIVE = 64 };

typedef struct script {
    fixture f;
    kn_stream streams[STREAMS];
    struct {
        void *ptr;
        size_t size;
    } live[LIVE];
    int n_failed;
} script;

/* What fails must fail again: nothing has changed meanwhile. */
static void script_alloc(script *s, size_t i) {
    kn_stream stream = s->streams[test_random_below(STREAMS)];
    size_t size = 1 + test_random_below(test_random_below(2) ? 100000 : 24 * MiB);
    void *ptr = NULL;
    if (kn_alloc(&ptr, s->f.pool, size, stream) < 0) {
        s->n_failed++;
        for (int again = 0; again < 3; again++) {
            kn_status status = kn_alloc(&ptr, s->f.pool, size, stream);
            if (status != KN_ERR_OOM) fail_msg("%zu bytes failed, then did not", size);
        }
        return;
    }
    kn_sim_work(s->f.sim, stream, ptr, size, (uint64_t)(uintptr_t)ptr);
    s->live[i].ptr = ptr;
    s->live[i].size = size;
}

static void script_free(script *s, size_t i) {
    if (test_random_below(3) == 0) {
        kn_stream other = s->streams[test_random_below(STREAMS)];
        assert_ok(kn_block_use(s->f.pool, s->live[i].ptr, other));
    }
    assert_ok(kn_free(s->f.pool, s->live[i].ptr));
    s->live[i].ptr = NULL;
}

static void script_run(bool plain, size_t limit, int n_steps) {
    script s = {.f = fixture_make(96 * MiB, plain, &(kn_pool_options){.limit_bytes = limit})};
    for (int i = 1; i < STREAMS; i++) s.streams[i] = new_stream(&s.f);
    for (int step = 0; step < n_steps; step++) {
        size_t i = test_random_below(LIVE);
        if (s.live[i].ptr) {
            script_free(&s, i);
        } else {
            script_alloc(&s, i);
        }
        if (test_random_below(4) == 0) kn_sim_step(s.f.sim, s.streams[test_random_below(STREAMS)]);
        if (test_random_below(500) == 0) assert_ok(kn_pool_trim(s.f.pool, 0));
    }
    assert_true(s.n_failed > n_steps / 100); /* it was tight indeed */
    for (int i = 0; i < LIVE; i++) assert_ok(kn_free(s.f.pool, s.live[i].ptr));
    kn_sim_drain(s.f.sim);
    assert_ok(kn_free(s.f.pool, must_alloc(s.f.pool, 60 * MiB, NULL))); /* and all is well */
    for (int i = 1; i < STREAMS; i++) kn_stream_destroy(s.f.device, s.streams[i]);
    fixture_end(&s.f);
}

static void a_failed_request_fails_again(void **state) {
    (void)state;
    const char *runs = getenv("KNET_TEST_RUNS");
    for (int i = 0; i < (runs ? atoi(runs) : 1); i++) {
        script_run(false, 0, 3000);
        script_run(true, 0, 3000);
        script_run(false, 70 * MiB, 3000);
        script_run(true, 70 * MiB, 3000);
    }
}

int main(void) {
    return RUN_TESTS(TEST(the_error_path_takes_no_memory),
                     TEST(a_report_without_host_memory_leaves_the_older_one),
                     TEST(text_and_json_agree), TEST(memory_of_graphs_is_reported),
                     TEST(absurd_requests_are_reported), TEST(without_a_failure_there_is_no_report),
                     TEST(a_failed_request_fails_again));
}
