/* The call stacks of live blocks. */
#include <knet/observer.h>
#include <knet/stacks.h>
#include <knet/trace.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "pool_fixture.h"

/* Frames as a test wants them. */
static _Thread_local const char *lines = "";
static size_t give_lines(void *ctx, char *out, size_t out_bytes) {
    ++*(int *)ctx;
    return (size_t)snprintf(out, out_bytes, "%s", lines);
}
static int n_given;
static const kn_stacks_options given = {.depth = -1, .fn = give_lines, .ctx = &n_given};

static char *stack_of(kn_pool *pool, const void *ptr, char text[4096]) {
    text[0] = '\0';
    size_t length = kn_block_stack(text, 4096, pool, ptr);
    assert_int_equal(length, strlen(text));
    return text;
}

/* Exported, so that the dynamic linker knows their names. */
__attribute__((noinline, visibility("default"))) void *stacks_inner(kn_pool *pool, size_t size);
__attribute__((noinline, visibility("default"))) void *stacks_outer(kn_pool *pool, size_t size);
void *stacks_inner(kn_pool *pool, size_t size) {
    void *p = must_alloc(pool, size, NULL);
    __asm__ volatile("" ::: "memory"); /* no tail call */
    return p;
}
void *stacks_outer(kn_pool *pool, size_t size) {
    void *p = stacks_inner(pool, size);
    __asm__ volatile("" ::: "memory");
    return p;
}

static void native_frames_are_named_innermost_first(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    char text[4096];
    void *before = stacks_outer(f.pool, 1000);
    assert_ok(kn_stacks_begin(NULL));
    const size_t sizes[] = {1000, 1000, 5 * MiB};
    void *blocks[3];
    for (int i = 0; i < 3; i++) {
        blocks[i] = stacks_outer(f.pool, sizes[i]);
        stack_of(f.pool, blocks[i], text);
        const char *inner = strstr(text, "stacks_inner+0x"),
                   *outer = strstr(text, "stacks_outer+0x");
        assert_non_null(inner);
        assert_non_null(outer);
        assert_true(inner < outer);
        assert_null(strstr(text, "libknet_alloc")); /* its own frames are left out */
        assert_non_null(strstr(text, "main+0x"));
    }
    assert_int_equal(kn_block_stack(text, sizeof text, f.pool, before), 0);
    assert_int_equal(kn_block_stack(NULL, 0, f.pool, blocks[0]) > 0, true);
    char few[8];
    assert_true(kn_block_stack(few, sizeof few, f.pool, blocks[0]) > 7);
    assert_int_equal(strlen(few), 7);
    for (int i = 0; i < 3; i++) assert_ok(kn_free(f.pool, blocks[i]));
    assert_int_equal(kn_block_stack(text, sizeof text, f.pool, blocks[0]), 0);
    assert_ok(kn_free(f.pool, before));
    kn_stacks_end();
    fixture_end(&f);
}

static void depth_bounds_the_native_frames(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    char text[4096];
    assert_ok(kn_stacks_begin(&(kn_stacks_options){.depth = 2}));
    void *p = stacks_outer(f.pool, 1000);
    stack_of(f.pool, p, text);
    int n = 0;
    for (const char *c = text; *c; c++) n += *c == '\n';
    assert_int_equal(n, 2);
    assert_ok(kn_free(f.pool, p));
    kn_stacks_end();
    fixture_end(&f);
}

static void wrong_options_and_a_second_begin_fail(void **state) {
    (void)state;
    assert_fails(kn_stacks_begin(&(kn_stacks_options){.depth = 65}), KN_ERR_INVALID, "depth is 65");
    assert_fails(kn_stacks_begin(&(kn_stacks_options){.depth = -2}), KN_ERR_INVALID, "depth is -2");
    assert_fails(kn_stacks_begin(&(kn_stacks_options){.depth = -1}), KN_ERR_INVALID, "no frames");
    assert_fails(kn_stacks_begin(&(kn_stacks_options){.reserved = {0, 1, 0, 0}}), KN_ERR_INVALID,
                 "reserved[1]");
    kn_stacks_end();
    assert_ok(kn_stacks_begin(&given));
    assert_fails(kn_stacks_begin(NULL), KN_ERR_INVALID, "kept already");
    kn_stacks_end();
    kn_stacks_end();
}

enum { PLACES = 40, BLOCKS = 300, POOLS = 2 };

typedef struct model_block {
    void *ptr;
    int place;
    uint64_t bytes;
} model_block;

static void assert_matches(kn_pool *pool, const model_block live[BLOCKS]) {
    kn_stack_use uses[PLACES], first[3];
    uint64_t want[PLACES] = {0}, n_want[PLACES] = {0};
    size_t n = kn_pool_stacks(uses, PLACES, pool), places = 0;
    for (int b = 0; b < BLOCKS; b++) {
        if (!live[b].ptr) continue;
        want[live[b].place] += live[b].bytes;
        n_want[live[b].place]++;
    }
    for (int b = 0; b < PLACES; b++) places += n_want[b] > 0;
    assert_int_equal(n, places);
    for (size_t u = 0; u < n; u++) {
        int place = atoi(uses[u].text + 1);
        assert_int_equal(uses[u].live_bytes, want[place]);
        assert_int_equal(uses[u].n_live, n_want[place]);
        assert_true(!u || uses[u - 1].live_bytes >= uses[u].live_bytes);
    }
    assert_int_equal(kn_pool_stacks(first, 3, pool), n);
    for (size_t u = 0; u < 3 && u < n; u++) {
        assert_int_equal(first[u].live_bytes, uses[u].live_bytes);
    }
}

static void change_block(kn_pool *pool, model_block *b, char names[PLACES][32]) {
    kn_block_info info;
    char text[4096];
    if (b->ptr) {
        assert_string_equal(stack_of(pool, b->ptr, text), names[b->place]);
        assert_ok(kn_free(pool, b->ptr));
        b->ptr = NULL;
        return;
    }
    b->place = (int)test_random_below(PLACES);
    lines = names[b->place];
    b->ptr = must_alloc(pool, test_random_below(10) ? 1 + test_random_below(60000) : MiB, NULL);
    assert_true(kn_block_find(&info, sizeof info, pool, b->ptr));
    b->bytes = info.size_bytes;
}

/* Bytes that a pool's stacks hold, against a list that the test keeps. Two simulated devices use
 * the same addresses. */
static void bytes_by_stack_match_a_model(void **state) {
    (void)state;
    static model_block live[POOLS][BLOCKS];
    fixture f[POOLS];
    char names[PLACES][32];
    for (int i = 0; i < POOLS; i++) f[i] = fixture_instant(4 * GiB, NULL);
    for (int i = 0; i < PLACES; i++) snprintf(names[i], sizeof names[i], "f%d a.c:%d\n", i, i + 1);
    assert_ok(kn_stacks_begin(&given));
    for (int step = 0; step < 20000; step++) {
        uint64_t p = test_random_below(POOLS);
        change_block(f[p].pool, &live[p][test_random_below(BLOCKS)], names);
        if (step % 1000 == 0) assert_matches(f[p].pool, live[p]);
    }
    for (int p = 0; p < POOLS; p++) {
        assert_matches(f[p].pool, live[p]);
        for (int i = 0; i < BLOCKS; i++) {
            if (live[p][i].ptr) change_block(f[p].pool, &live[p][i], names);
        }
        assert_int_equal(kn_pool_stacks(NULL, 0, f[p].pool), 0);
        fixture_end(&f[p]);
    }
    kn_stacks_end();
}

static cJSON *json_of(const char *path) {
    char text[65536];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    remove(path);
    text[n] = '\0';
    cJSON *json = cJSON_Parse(text);
    assert_non_null(json);
    return json;
}

static const char *text_at(const cJSON *object, const char *key) {
    return cJSON_GetStringValue(cJSON_GetObjectItem(object, key));
}

static void snapshots_have_frames(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    char path[64];
    snprintf(path, sizeof path, "stacks.%d.json", (int)getpid());
    assert_ok(kn_pool_snapshot(f.pool, path));
    cJSON *json = json_of(path);
    assert_null(cJSON_GetObjectItem(json, "stacks")); /* off */
    cJSON_Delete(json);
    assert_ok(kn_stacks_begin(&given));
    lines = "load my \"data\".py:12\nmain prog.py:345\n<lambda> /lib/x.so";
    void *small = must_alloc(f.pool, 1000, NULL), *large = must_alloc(f.pool, MiB, NULL);
    assert_ok(kn_pool_snapshot(f.pool, path));
    json = json_of(path);
    const cJSON *stacks = cJSON_GetObjectItem(json, "stacks"), *stack = stacks->child;
    assert_int_equal(cJSON_GetArraySize(stacks), 1);
    assert_int_equal(cJSON_GetObjectItem(stack, "live")->valueint, 2);
    const cJSON *frames = cJSON_GetObjectItem(stack, "frames"), *frame = frames->child;
    assert_int_equal(cJSON_GetArraySize(frames), 3);
    assert_string_equal(text_at(frame, "name"), "load");
    assert_string_equal(text_at(frame, "filename"), "my \"data\".py");
    assert_int_equal(cJSON_GetObjectItem(frame, "line")->valueint, 12);
    frame = frame->next->next;
    assert_string_equal(text_at(frame, "name"), "<lambda>");
    assert_string_equal(text_at(frame, "filename"), "/lib/x.so");
    assert_int_equal(cJSON_GetObjectItem(frame, "line")->valueint, 0);
    int id = cJSON_GetObjectItem(stack, "id")->valueint, n = 0;
    const cJSON *segments = cJSON_GetObjectItem(json, "segments"), *block, *live;
    cJSON_ArrayForEach(block, cJSON_GetObjectItem(segments->child, "blocks")) {
        if (cJSON_GetObjectItem(block, "stack")) {
            n += cJSON_GetObjectItem(block, "stack")->valueint == id;
        }
        cJSON_ArrayForEach(live, cJSON_GetObjectItem(block, "live")) {
            n += cJSON_GetObjectItem(live, "stack")->valueint == id;
        }
    }
    assert_int_equal(n, 2);
    cJSON_Delete(json);
    assert_ok(kn_free(f.pool, small));
    assert_ok(kn_free(f.pool, large));
    kn_stacks_end();
    fixture_end(&f);
}

static void out_of_memory_names_the_places_that_hold_most(void **state) {
    (void)state;
    fixture f = fixture_make(64 * MiB, false, NULL);
    char path[64];
    snprintf(path, sizeof path, "stacks.%d.json", (int)getpid());
    void *blocks[5], *more = NULL;
    assert_ok(kn_stacks_begin(&given));
    for (int i = 0; i < 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "place%d p.c:%d\nmain p.c:1\n", i, i);
        lines = name;
        blocks[i] = must_alloc(f.pool, (size_t)(2 + 2 * i) * MiB, NULL);
    }
    lines = "late p.c:9\n";
    assert_fails(
        kn_alloc(&more, f.pool, 60 * MiB, NULL), KN_ERR_OOM,
        "; allocated 10.0 MiB at place4 p.c:4, 8.00 MiB at place3 p.c:3, 6.00 MiB at place2 "
        "p.c:2");
    assert_null(strstr(kn_last_error()->message, "place1"));
    for (int i = 0; i < 5; i++) assert_ok(kn_free(f.pool, blocks[i]));
    kn_stacks_end(); /* the report keeps its text */
    assert_ok(kn_pool_oom_json(f.pool, path));
    cJSON *json = json_of(path);
    const cJSON *stacks = cJSON_GetObjectItem(json, "stacks");
    assert_int_equal(cJSON_GetArraySize(stacks), 3);
    assert_int_equal(cJSON_GetObjectItem(stacks->child, "live_bytes")->valueint, 10 * MiB);
    const cJSON *frames = cJSON_GetObjectItem(stacks->child, "frames");
    assert_int_equal(cJSON_GetArraySize(frames), 2);
    assert_string_equal(text_at(frames->child, "name"), "place4");
    cJSON_Delete(json);
    assert_fails(kn_alloc(&more, f.pool, 65 * MiB, NULL), KN_ERR_OOM, "asked for");
    assert_null(strstr(kn_last_error()->message, "allocated"));
    fixture_end(&f);
}

static int n_seen;
static uint32_t see_alloc(kn_pool *pool, void *ptr, size_t size, kn_stream stream) {
    (void)pool, (void)ptr, (void)size, (void)stream;
    return (uint32_t)++n_seen;
}
static uint32_t owner_freed;
static void see_free(kn_pool *pool, void *ptr, size_t size, uint32_t owner) {
    (void)pool, (void)ptr, (void)size;
    owner_freed = owner;
}

static void other_observers_and_traces_see_everything(void **state) {
    (void)state;
    static const kn_observer observer = {.on_alloc = see_alloc, .on_free = see_free};
    fixture f = fixture_make(1 * GiB, false, NULL);
    char path[64];
    snprintf(path, sizeof path, "stacks.%d.kntrace", (int)getpid());
    for (int order = 0; order < 2; order++) {
        n_seen = 0;
        if (order) assert_ok(kn_stacks_begin(&given));
        assert_ok(kn_observer_attach(&observer));
        assert_ok(kn_trace_begin(path, NULL));
        if (!order) assert_ok(kn_stacks_begin(&given));
        lines = "here x.c:1\n";
        void *p = must_alloc(f.pool, 1000, NULL);
        char text[4096];
        assert_string_equal(stack_of(f.pool, p, text), lines);
        assert_int_equal(n_seen, 1);
        assert_ok(kn_free(f.pool, p));
        assert_int_equal(owner_freed, 1);
        assert_ok(kn_trace_end());
        p = must_alloc(f.pool, 1000, NULL);
        assert_string_equal(stack_of(f.pool, p, text), lines);
        assert_ok(kn_observer_attach(NULL));
        assert_string_equal(stack_of(f.pool, p, text), lines);
        assert_ok(kn_free(f.pool, p));
        kn_stacks_end();
        int before = n_given;
        p = must_alloc(f.pool, 1000, NULL);
        assert_ok(kn_free(f.pool, p));
        assert_int_equal(n_given, before); /* off: it isn't called */
        assert_int_equal(n_seen, 2);
        remove(path);
    }
    fixture_end(&f);
}

static kn_pool *nested_pool;
static void *nested_block;
static size_t allocate_inside(void *ctx, char *out, size_t out_bytes) {
    (void)ctx;
    if (!nested_block) nested_block = must_alloc(nested_pool, 500, NULL);
    return (size_t)snprintf(out, out_bytes, "outer o.c:1\n");
}

static void a_function_that_allocates_is_not_called_for_that(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    nested_pool = f.pool;
    assert_ok(kn_stacks_begin(&(kn_stacks_options){.depth = -1, .fn = allocate_inside}));
    void *p = must_alloc(f.pool, 1000, NULL);
    char text[4096];
    assert_string_equal(stack_of(f.pool, p, text), "outer o.c:1\n");
    assert_non_null(nested_block);
    assert_int_equal(kn_block_stack(NULL, 0, f.pool, nested_block), 0);
    assert_ok(kn_free(f.pool, p));
    assert_ok(kn_free(f.pool, nested_block));
    kn_stacks_end();
    fixture_end(&f);
}

static void long_texts_are_cut(void **state) {
    (void)state;
    static char big[20000];
    fixture f = fixture_make(1 * GiB, false, NULL);
    memset(big, 'x', sizeof big - 1);
    lines = big;
    assert_ok(kn_stacks_begin(&given));
    void *p = must_alloc(f.pool, 1000, NULL);
    size_t length = kn_block_stack(NULL, 0, f.pool, p);
    assert_in_range(length, 1000, 4096);
    assert_ok(kn_free(f.pool, p));
    kn_stacks_end();
    fixture_end(&f);
}

static void a_destroyed_pool_is_forgotten(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    lines = "leak l.c:1\n";
    assert_ok(kn_stacks_begin(&given));
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, f.device, NULL));
    void *leaked = must_alloc(pool, 1000, NULL);
    kn_pool_destroy(pool);
    assert_int_equal(kn_block_stack(NULL, 0, pool, leaked), 0); /* by its address alone */
    assert_int_equal(kn_pool_stacks(NULL, 0, pool), 0);
    kn_stacks_end();
    fixture_end(&f);
}

static size_t resident_pages(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long total = 0, resident = 0;
    assert_int_equal(fscanf(file, "%lu %lu", &total, &resident), 2);
    fclose(file);
    return resident;
}

/* A program that makes pools again and again, each with stacks of its own. */
static void stacks_of_destroyed_pools_take_no_memory(void **state) {
    (void)state;
    enum { TIMES = 4000, SETTLED = 500 };
    fixture f = fixture_make(1 * GiB, false, NULL);
    void *kept = NULL;
    size_t before = 0;
    lines = "kept k.c:1\n";
    assert_ok(kn_stacks_begin(&given));
    kept = must_alloc(f.pool, 1000, NULL);
    lines = "gone, in a function with a name that takes more than a few bytes g.c:1\n";
    for (int i = 0; i < TIMES; i++) {
        kn_pool *pool = NULL;
        assert_ok(kn_pool_create(&pool, kn_device_host(), NULL));
        assert_ok(kn_free(pool, must_alloc(pool, 1000, NULL)));
        kn_pool_destroy(pool);
        if (i == SETTLED) before = resident_pages();
    }
    if (!TEST_SANITIZED) assert_true(resident_pages() <= before + 64); /* they keep freed memory */
    char text[64];
    assert_true(kn_block_stack(text, sizeof text, f.pool, kept) > 0);
    assert_string_equal(text, "kept k.c:1\n");
    assert_ok(kn_free(f.pool, kept));
    kn_stacks_end();
    fixture_end(&f);
}

typedef struct worker {
    kn_pool *pool;
    atomic_bool *stop;
} worker;

static void *allocate_blocks(void *ctx) {
    worker *w = ctx;
    char name[32];
    for (int i = 0; !atomic_load(w->stop); i++) {
        void *p = NULL;
        snprintf(name, sizeof name, "t%d t.c:%d\n", i % 50, i % 50);
        lines = name;
        if (kn_alloc(&p, w->pool, (size_t)(1 + i % 200) * 1000, NULL) == KN_OK) {
            (void)kn_block_stack(NULL, 0, w->pool, p);
            (void)kn_free(w->pool, p);
        }
    }
    lines = "";
    return NULL;
}

static void ignore(void *ctx, int level, const char *message) {
    (void)ctx, (void)level, (void)message;
}

static void threads_allocate_while_stacks_begin_and_end(void **state) {
    (void)state;
    fixture f = fixture_make(1 * GiB, false, NULL);
    atomic_bool stop = false;
    worker w = {.pool = f.pool, .stop = &stop};
    pthread_t threads[2];
    char path[64];
    snprintf(path, sizeof path, "stacks.%d.json", (int)getpid());
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_blocks, &w), 0);
    }
    for (int i = 0; i < 60; i++) {
        kn_stack_use uses[4];
        assert_ok(kn_stacks_begin(NULL));
        for (int k = 0; k < 20; k++) (void)kn_pool_stacks(uses, 4, f.pool);
        assert_ok(kn_pool_snapshot(f.pool, path));
        kn_stacks_end();
    }
    remove(path);
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    fixture_end(&f);
}

static void a_child_of_fork_keeps_no_stacks(void **state) {
    (void)state;
    kn_pool *pool = kn_device_pool(kn_device_host());
    lines = "child c.c:1\n";
    assert_ok(kn_stacks_begin(&given));
    void *p = must_alloc(pool, 1000, NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        void *q = NULL;
        bool good =
            kn_block_stack(NULL, 0, pool, p) == 0 && kn_alloc(&q, pool, 1000, NULL) == KN_OK;
        good = good && kn_block_stack(NULL, 0, pool, q) == 0 && kn_free(pool, q) == KN_OK;
        good = good && kn_stacks_begin(&given) == KN_OK && kn_alloc(&q, pool, 1000, NULL) == KN_OK;
        _exit(good && kn_block_stack(NULL, 0, pool, q) > 0 ? 0 : 1);
    }
    int result = -1;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    char text[4096];
    assert_string_equal(stack_of(pool, p, text), lines);
    assert_ok(kn_free(pool, p));
    kn_stacks_end();
}

int main(void) {
    kn_log_attach(ignore, NULL);
    return RUN_TESTS(
        TEST(native_frames_are_named_innermost_first), TEST(depth_bounds_the_native_frames),
        TEST(wrong_options_and_a_second_begin_fail), TEST(bytes_by_stack_match_a_model),
        TEST(snapshots_have_frames), TEST(out_of_memory_names_the_places_that_hold_most),
        TEST(other_observers_and_traces_see_everything),
        TEST(a_function_that_allocates_is_not_called_for_that), TEST(long_texts_are_cut),
        TEST(a_destroyed_pool_is_forgotten), TEST(stacks_of_destroyed_pools_take_no_memory),
        TEST(threads_allocate_while_stacks_begin_and_end), TEST(a_child_of_fork_keeps_no_stacks));
}
