#include "trace.h"

#include <cjson/cJSON.h>
#include <pthread.h>
#include <unistd.h>

#include "budget.h"
#include "memory.h"
#include "test.h"
#include "timer_fixture.h"

static char path[] = "/tmp/knet-trace-XXXXXX";
static cJSON *json;

static int setup(void **state) {
    atomic_fetch_or(&kn__prof_extras, KN__PROF_TRACE);
    return timer_setup(state);
}

static int teardown(void **state) {
    (void)state;
    cJSON_Delete(json);
    json = NULL;
    return 0;
}

static size_t parse(void) {
    static char text[8 << 20];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    json = cJSON_ParseWithOpts(text, NULL, true);
    assert_non_null(json);
    return n;
}

static const cJSON *get(const cJSON *event, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(event, key);
    if (!item) fail_msg("an event has no %s", key);
    return item;
}

static double number(const cJSON *event, const char *key) { return get(event, key)->valuedouble; }
static const char *string(const cJSON *event, const char *key) {
    return get(event, key)->valuestring;
}

static int count(const char *key, const char *value) {
    int n = 0;
    const cJSON *event;
    cJSON_ArrayForEach(event, get(json, "traceEvents")) {
        const cJSON *item = cJSON_GetObjectItem(event, key);
        n += item && strcmp(item->valuestring, value) == 0;
    }
    return n;
}

static const cJSON *find(const char *ph, const char *name) {
    const cJSON *event;
    cJSON_ArrayForEach(event, get(json, "traceEvents")) {
        if (strcmp(string(event, "ph"), ph) == 0 && strcmp(string(event, "name"), name) == 0) {
            return event;
        }
    }
    fail_msg("no event %s of kind %s", name, ph);
    return NULL;
}

static void *run_scopes(void *arg) {
    for (int i = 0; i < 5000; i++) { /* more than a buffer */
        KN_SCOPE("outer");
        { KN_SCOPE("inner \"quoted\""); }
        { KN_SCOPE("second"); }
    }
    return arg;
}

/* Events of a thread come in the order of their ends: each is after, or around, the ones before. */
static void assert_nested(void) {
    enum { STACK = 64, TIDS = 8 };
    static struct {
        double tid, start[STACK], end[STACK];
        int n;
    } threads[TIDS];
    memset(threads, 0, sizeof threads);
    const cJSON *event;
    cJSON_ArrayForEach(event, get(json, "traceEvents")) {
        if (strcmp(string(event, "ph"), "X") != 0) continue;
        double start = number(event, "ts"), end = start + number(event, "dur");
        int t = 0;
        while (threads[t].tid != 0 && threads[t].tid != number(event, "tid")) t++;
        assert_true(t < TIDS && start >= 0);
        threads[t].tid = number(event, "tid");
        int n = threads[t].n;
        while (n && threads[t].start[n - 1] >= start - 0.0015) n--; /* inside this one */
        assert_true(n == 0 || threads[t].end[n - 1] <= start + 0.0015);
        n = n < STACK ? n : 1; /* siblings done with */
        threads[t].start[n] = start;
        threads[t].end[n] = end;
        threads[t].n = n + 1;
    }
}

static void scopes_of_all_threads_are_valid_nested_events(void **state) {
    (void)state;
    assert_ok(kn__trace_start(path, 0));
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run_scopes, NULL), 0);
    }
    run_scopes(NULL);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    kn_scope open = kn_scope_begin_static("still open");
    assert_ok(kn__trace_finish());
    kn_scope_end(&open);
    parse();
    assert_int_equal(count("name", "outer"), 20000);
    assert_int_equal(count("name", "inner \"quoted\""), 20000);
    assert_int_equal(count("name", "still open"), 1);
    assert_int_equal(number(json, "knetEventsSkipped"), 0);
    assert_nested();
}

static pthread_barrier_t held, finished;

static void *hold_scopes(void *label) {
    kn_scope outer = kn_scope_begin(label), inner = kn_scope_begin("held inside");
    if (strcmp(label, "with events") == 0) run_scopes(NULL);
    pthread_barrier_wait(&held);
    pthread_barrier_wait(&finished);
    kn_scope_end(&inner);
    kn_scope_end(&outer);
    return NULL;
}

/* As at an exit while other threads run, one of which had no event yet. */
static void open_scopes_of_other_threads_are_events(void **state) {
    (void)state;
    static char *labels[] = {"with events", "alone"};
    pthread_t threads[2];
    pthread_barrier_init(&held, NULL, 3);
    pthread_barrier_init(&finished, NULL, 3);
    assert_ok(kn__trace_start(path, 0));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, hold_scopes, labels[i]), 0);
        pthread_setname_np(threads[i], labels[i]);
    }
    pthread_barrier_wait(&held);
    assert_ok(kn__trace_finish());
    pthread_barrier_wait(&finished);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    parse();
    assert_int_equal(count("name", "held inside"), 2);
    assert_int_equal(count("name", "with events"), 1);
    assert_int_equal(count("name", "outer"), 5000);
    assert_true(number(find("X", "alone"), "tid") != number(find("X", "with events"), "tid"));
    assert_int_equal(count("name", "thread_name"), 2);
    assert_nested();
    pthread_barrier_destroy(&held);
    pthread_barrier_destroy(&finished);
}

/* What a program that is killed leaves. */
static void few_events_are_in_the_file_before_the_end(void **state) {
    (void)state;
    char text[2000] = "";
    assert_ok(kn__trace_start(path, 0));
    { KN_SCOPE("early"); }
    for (int i = 0; i < 500 && !strstr(text, "\"early\""); i++) {
        usleep(20000);
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
    }
    assert_non_null(strstr(text, "\"early\""));
    { KN_SCOPE("late"); }
    assert_ok(kn__trace_finish());
    parse();
    assert_int_equal(count("name", "early"), 1);
    assert_int_equal(count("name", "late"), 1);
}

static void gpu_work_and_live_bytes_are_events(void **state) {
    (void)state;
    assert_ok(kn__trace_start(path, 0));
    uint64_t base = 1000000000u * (uint64_t)time(NULL) + 5000000000u;
    kn__trace_record(&(kn__record){.id = 9,
                                   .name = "sgemm",
                                   .start_ns = base,
                                   .end_ns = base + 1234567,
                                   .device = 2,
                                   .stream = 7,
                                   .grid = {4, 2, 1},
                                   .block = {128, 1, 1},
                                   .registers = 40,
                                   .shared_bytes = 2048},
                     9);
    kn__trace_record(
        &(kn__record){
            .id = 10, .name = "[memcpy HtoD]", .start_ns = base, .end_ns = base + 5, .stream = 8},
        0);
    const kn_observer *observer = kn__memory_observer(true);
    {
        KN_SCOPE("memory");
        uint32_t owner = observer->on_alloc((kn_pool *)path, NULL, 4096, NULL);
        observer->on_free((kn_pool *)path, NULL, 4096, owner);
    }
    assert_ok(kn__trace_finish());
    parse();
    assert_int_equal(count("cat", "kernel"), 1);
    assert_int_equal(count("cat", "gpu_memcpy"), 1);
    assert_int_equal(count("name", "live bytes"), 2);
    const cJSON *event;
    cJSON_ArrayForEach(event, get(json, "traceEvents")) {
        if (strcmp(string(event, "name"), "sgemm") != 0) continue;
        assert_close(number(event, "dur"), 1234.567, 0, 1e-9);
        assert_int_equal(number(event, "tid"), 7);
        assert_int_equal(number(event, "pid"), 2);
        const cJSON *args = get(event, "args");
        assert_int_equal(number(args, "correlation"), 9);
        assert_int_equal(get(args, "grid")->child->next->valueint, 2);
        assert_int_equal(get(args, "block")->child->valueint, 128);
        assert_int_equal(number(args, "registers per thread"), 40);
        assert_int_equal(number(args, "shared memory"), 2048);
    }
}

static void arrows_go_from_a_launch_to_its_kernel(void **state) {
    (void)state;
    assert_ok(kn__trace_start(path, 0));
    {
        KN_SCOPE("launching");
        kn__trace_launch(kn__tree_get(), 77);
    }
    kn__trace_record(
        &(kn__record){.id = 78, .name = "k", .start_ns = 5, .end_ns = 9, .device = 1, .stream = 3},
        77);
    assert_ok(kn__trace_finish());
    parse();
    const cJSON *from = find("s", "ac2g"), *to = find("f", "ac2g"), *scope = find("X", "launching");
    assert_int_equal(number(from, "id"), 77);
    assert_int_equal(number(to, "id"), 77);
    assert_int_equal(number(from, "tid"), number(scope, "tid"));
    assert_true(number(from, "ts") >= number(scope, "ts"));
    assert_int_equal(number(to, "pid"), 1);
    assert_int_equal(number(to, "tid"), 3);
}

static void threads_streams_and_devices_have_names(void **state) {
    (void)state;
    assert_ok(kn__trace_start(path, 0));
    run_scopes(NULL);
    for (uint32_t i = 0; i < 6; i++) {
        kn__trace_record(
            &(kn__record){
                .id = i, .name = "k", .start_ns = 5, .end_ns = 9, .device = i / 3, .stream = i % 3},
            0);
    }
    assert_ok(kn__trace_finish());
    parse();
    assert_int_equal(count("name", "process_name"), 3); /* and that of the program */
    assert_int_equal(count("name", "thread_name"), 7);
    const cJSON *event;
    int n = 0;
    cJSON_ArrayForEach(event, get(json, "traceEvents")) {
        if (string(event, "ph")[0] != 'M') continue;
        const char *name = string(get(event, "args"), "name");
        n += strcmp(name, "GPU 1") == 0 || strcmp(name, "stream 2") == 0;
    }
    assert_int_equal(n, 3);
}

static void keys_are_those_of_kineto(void **state) {
    (void)state;
    assert_ok(kn__trace_start(path, 0));
    kn__trace_record(
        &(kn__record){.id = 1, .name = "[memset Device]", .start_ns = 5, .end_ns = 9, .stream = 3},
        0);
    run_scopes(NULL);
    assert_ok(kn__trace_finish());
    parse();
    assert_int_equal(number(json, "schemaVersion"), 1);
    assert_true(cJSON_IsArray(get(json, "deviceProperties")));
    assert_string_equal(string(json, "displayTimeUnit"), "ms");
    assert_true(number(json, "baseTimeNanoseconds") > 1e18);
    static const char *const cats[] = {"cpu_op", "gpu_memset"};
    for (int i = 0; i < 2; i++) assert_true(count("cat", cats[i]) > 0);
    const cJSON *event;
    cJSON_ArrayForEach(event, get(json, "traceEvents")) {
        const char *kind = string(event, "ph");
        assert_true(strchr("XMCsf", kind[0]) && !kind[1]);
        assert_true(cJSON_IsNumber(get(event, "pid")) && cJSON_IsString(get(event, "name")));
        if (kind[0] == 'X') assert_true(number(event, "ts") >= 0 && number(event, "dur") >= 0);
    }
}

static void records_alone_keep_the_bound_too(void **state) {
    (void)state;
    assert_ok(kn__trace_start(path, 500000));
    for (uint32_t i = 0; i < 10000; i++) {
        kn__trace_record(&(kn__record){.id = i, .name = "k", .start_ns = i, .end_ns = i + 1}, 0);
    }
    assert_ok(kn__trace_finish());
    assert_true(parse() <= 500000 + 256);
    assert_int_equal(count("ph", "X") + number(json, "knetEventsSkipped"), 10000);
    assert_true(number(json, "knetEventsSkipped") > 0 && count("ph", "X") > 0);
}

static void the_file_keeps_its_bound_and_stays_valid(void **state) {
    (void)state;
    assert_ok(kn__trace_start(path, 2000000));
    run_scopes(NULL);
    run_scopes(NULL);
    assert_ok(kn__trace_finish());
    size_t size = parse();
    assert_true(size <= 2000000 + 256);
    assert_int_equal(count("ph", "X") + number(json, "knetEventsSkipped"), 30000);
    assert_true(number(json, "knetEventsSkipped") > 0 && count("ph", "X") > 0);
}

static size_t ten_records(uint64_t bytes_max) {
    cJSON_Delete(json);
    assert_ok(kn__trace_start(path, bytes_max));
    for (uint32_t i = 0; i < 10; i++) {
        kn__trace_record(&(kn__record){.id = i, .name = "k", .start_ns = 1, .end_ns = 2}, 0);
    }
    assert_ok(kn__trace_finish());
    return parse();
}

static void the_end_of_the_file_is_beyond_the_bound(void **state) {
    (void)state;
    static const char end[] = "\n],\"knetEventsSkipped\":0}\n";
    size_t size = ten_records(1 << 20), events_end = size - (sizeof end - 1);
    assert_int_equal(ten_records(events_end + 256), size);
    assert_int_equal(number(json, "knetEventsSkipped"), 0);
    ten_records(events_end + 255);
    assert_int_equal(number(json, "knetEventsSkipped"), 1);
}

static void a_small_bound_has_the_events_that_fit(void **state) {
    (void)state;
    uint64_t skipped, unbuffered;
    assert_ok(kn__trace_start(path, 20000)); /* far less than a full buffer */
    run_scopes(NULL);
    assert_ok(kn__trace_finish());
    size_t size = parse();
    assert_true(size <= 20000 && size > 20000 - 256 - 200); /* the end, and an event */
    assert_int_equal(count("ph", "X") + number(json, "knetEventsSkipped"), 15000);
    kn__trace_skipped(&skipped, &unbuffered);
    assert_int_equal(skipped, number(json, "knetEventsSkipped"));
    assert_int_equal(unbuffered, 0);
    cJSON_Delete(json);
    assert_ok(kn__trace_start(path, 3000)); /* less than a page */
    run_scopes(NULL);
    assert_ok(kn__trace_finish());
    assert_true(parse() <= 3000 && count("ph", "X") > 10);
}

enum { CROWD = 60, SCOPES_EACH = 10 };

static void *run_some_scopes(void *barrier) {
    for (int i = 0; i < SCOPES_EACH; i++) {
        KN_SCOPE("of the crowd");
    }
    if (barrier) pthread_barrier_wait(barrier); /* all of them live at once */
    return NULL;
}

static void run_crowd(pthread_barrier_t *barrier) {
    pthread_t threads[CROWD];
    for (int i = 0; i < CROWD; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run_some_scopes, barrier), 0);
        if (!barrier) pthread_join(threads[i], NULL);
    }
    for (int i = 0; barrier && i < CROWD; i++) pthread_join(threads[i], NULL);
}

static void events_that_threads_have_no_memory_for_are_counted(void **state) {
    (void)state;
    uint64_t limit = kn__budget_limit(), skipped, unbuffered;
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, CROWD);
    assert_ok(kn__trace_start(path, 0));
    kn__budget_set(kn__budget_used() + (1 << 20)); /* a quarter of it is what all threads share */
    run_crowd(&barrier);
    kn__budget_set(limit);
    assert_ok(kn__trace_finish());
    pthread_barrier_destroy(&barrier);
    parse();
    kn__trace_skipped(&skipped, &unbuffered);
    assert_true(unbuffered > 0);
    assert_int_equal(skipped, unbuffered);
    assert_int_equal(number(json, "knetEventsSkipped"), unbuffered);
    assert_int_equal((uint64_t)count("name", "of the crowd") + unbuffered, CROWD * SCOPES_EACH);
}

/* Each of them finds the memory of those before, however late the writer is. */
static void threads_after_each_other_lose_nothing(void **state) {
    (void)state;
    uint64_t limit = kn__budget_limit();
    assert_ok(kn__trace_start(path, 0));
    kn__budget_set(kn__budget_used() + (1 << 20));
    run_crowd(NULL);
    kn__budget_set(limit);
    assert_ok(kn__trace_finish());
    parse();
    assert_int_equal(number(json, "knetEventsSkipped"), 0);
    assert_int_equal(count("name", "of the crowd"), CROWD * SCOPES_EACH);
}

static void *one_scope(void *tid) {
    KN_SCOPE("of a thread");
    *(long *)tid = (long)gettid();
    return NULL;
}

/* The second one takes over what the first one left. */
static void threads_that_follow_each_other_have_their_own_trees(void **state) {
    (void)state;
    long tids[2];
    assert_ok(kn__trace_start(path, 0));
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, one_scope, &tids[i]), 0);
        pthread_join(thread, NULL);
    }
    assert_ok(kn__trace_finish());
    parse();
    int n = 0;
    const cJSON *event;
    cJSON_ArrayForEach(event, get(json, "traceEvents")) {
        if (strcmp(string(event, "name"), "of a thread") != 0) continue;
        assert_in_range(n, 0, 1);
        assert_int_equal(number(event, "tid"), tids[n++]);
    }
    assert_int_equal(n, 2);
}

/* Digits of times and of numbers of threads: some machines have more of them. */
static size_t digit_bytes(void) {
    static const char *const keys[] = {"ts", "dur", "pid", "tid"};
    size_t n = 0;
    const cJSON *event;
    cJSON_ArrayForEach(event, get(json, "traceEvents")) {
        for (int i = 0; i < 4; i++) {
            const cJSON *item = cJSON_GetObjectItemCaseSensitive(event, keys[i]);
            if (item) n += (size_t)snprintf(NULL, 0, "%.*f", i < 2 ? 3 : 0, item->valuedouble);
        }
    }
    return n;
}

static void an_event_takes_few_bytes(void **state) {
    (void)state;
    assert_ok(kn__trace_start(path, 0));
    run_scopes(NULL);
    assert_ok(kn__trace_finish());
    size_t size = parse();
    size_t fixed = size - digit_bytes();
    if (fixed > 15000 * 112) fail_msg("%zu bytes an event beside its digits", fixed / 15000);
}

static void run_step(int number, uint64_t spent_ns) {
    char label[32];
    snprintf(label, sizeof label, "step %d", number);
    for (int i = 0; i < 3000; i++) { /* more than a chunk in some steps */
        kn_scope scope = kn_scope_begin(label);
        kn_scope_end(&scope);
    }
    uint64_t now = 1000000000u * (uint64_t)time(NULL);
    kn__trace_record(
        &(kn__record){
            .id = 1, .name = label, .start_ns = now + 2000000000, .end_ns = now + 2000000009},
        0);
    kn__trace_step(spent_ns);
}

static int scopes_of(int number) {
    char label[32];
    snprintf(label, sizeof label, "step %d", number);
    int n = 0;
    const cJSON *event;
    cJSON_ArrayForEach(event, get(json, "traceEvents")) {
        if (strcmp(string(event, "ph"), "X") != 0) continue;
        if (strcmp(string(event, "cat"), "cpu_op") != 0) continue;
        n += strcmp(string(event, "name"), label) == 0;
    }
    return n;
}

static void only_the_last_steps_are_written(void **state) {
    (void)state;
    kn__trace_keep(2, 0);
    assert_ok(kn__trace_start(path, 0));
    for (int i = 1; i <= 9; i++) run_step(i, 1000);
    { KN_SCOPE("after the last step"); }
    assert_ok(kn__trace_finish());
    kn__trace_keep(0, 0);
    parse();
    for (int i = 1; i <= 9; i++) assert_int_equal(scopes_of(i), i >= 8 ? 3000 : 0);
    assert_int_equal(count("name", "after the last step"), 1);
    assert_int_equal(number(json, "knetEventsSkipped"), 0);
}

static void slow_steps_alone_are_written(void **state) {
    (void)state;
    kn__trace_keep(2, 5000);
    assert_ok(kn__trace_start(path, 0));
    for (int i = 1; i <= 9; i++) run_step(i, i == 4 || i == 5 || i == 8 ? 5001 : 5000);
    assert_ok(kn__trace_finish());
    kn__trace_keep(0, 0);
    parse();
    for (int i = 1; i <= 9; i++) {
        bool is_written = i == 3 || i == 4 || i == 5 || i == 7 || i == 8;
        assert_int_equal(scopes_of(i), is_written ? 3000 : 0);
    }
    assert_int_equal(count("cat", "kernel"), 8); /* none of them is old by its own time */
    assert_int_equal(number(json, "knetEventsSkipped"), 0);
}

static void old_steps_make_room_where_there_is_none(void **state) {
    (void)state;
    uint64_t limit = kn__budget_limit();
    kn__budget_set(2 * (kn__budget_used() + 300000));
    kn__trace_keep(1000, 0);
    assert_ok(kn__trace_start(path, 0));
    for (int i = 1; i <= 60; i++) run_step(i, 1000);
    assert_ok(kn__trace_finish());
    kn__trace_keep(0, 0);
    kn__budget_set(limit);
    parse();
    assert_int_equal(scopes_of(60), 3000);
    assert_int_equal(scopes_of(1), 0);
    assert_int_equal(count("cat", "cpu_op") + number(json, "knetEventsSkipped"), 60 * 3000);
}

static void failures_of_the_file_are_reported(void **state) {
    (void)state;
    assert_fails(kn__trace_start("/nowhere/trace.json", 0), KN_ERR_IO, "/nowhere/trace.json");
    assert_ok(kn__trace_start("/dev/full", 0));
    run_scopes(NULL);
    assert_fails(kn__trace_finish(), KN_ERR_IO, "cannot write the trace to /dev/full");
    uint64_t skipped, unbuffered;
    kn__trace_skipped(&skipped, &unbuffered); /* no bound was reached */
    assert_int_equal(skipped, 0);
    assert_ok(kn__trace_finish()); /* nothing is open */
    char deep[5000] = "/tmp/";
    memset(deep + 5, 'x', sizeof deep - 6);
    assert_fails(kn__trace_start(deep, 0), KN_ERR_IO, "too long");
    deep[1000] = '\0'; /* no file has such a name: the system says so, and the name is whole */
    assert_fails(kn__trace_start(deep, 0), KN_ERR_IO, deep);
}

int main(void) {
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    const struct CMUnitTest tests[] = {
        TEST_WITH(scopes_of_all_threads_are_valid_nested_events, setup, teardown),
        TEST_WITH(open_scopes_of_other_threads_are_events, setup, teardown),
        TEST_WITH(few_events_are_in_the_file_before_the_end, setup, teardown),
        TEST_WITH(gpu_work_and_live_bytes_are_events, setup, teardown),
        TEST_WITH(arrows_go_from_a_launch_to_its_kernel, setup, teardown),
        TEST_WITH(threads_streams_and_devices_have_names, setup, teardown),
        TEST_WITH(keys_are_those_of_kineto, setup, teardown),
        TEST_WITH(records_alone_keep_the_bound_too, setup, teardown),
        TEST_WITH(the_file_keeps_its_bound_and_stays_valid, setup, teardown),
        TEST_WITH(the_end_of_the_file_is_beyond_the_bound, setup, teardown),
        TEST_WITH(a_small_bound_has_the_events_that_fit, setup, teardown),
        TEST_WITH(events_that_threads_have_no_memory_for_are_counted, setup, teardown),
        TEST_WITH(threads_after_each_other_lose_nothing, setup, teardown),
        TEST_WITH(threads_that_follow_each_other_have_their_own_trees, setup, teardown),
        TEST_WITH(an_event_takes_few_bytes, setup, teardown),
        TEST_WITH(only_the_last_steps_are_written, setup, teardown),
        TEST_WITH(slow_steps_alone_are_written, setup, teardown),
        TEST_WITH(old_steps_make_room_where_there_is_none, setup, teardown),
        TEST_WITH(failures_of_the_file_are_reported, setup, teardown),
    };
    int failed = cmocka_run_group_tests_name("profiler.trace", tests, NULL, NULL);
    unlink(path);
    return failed;
}
