/* How the cuda device is found, and the ways in which it isn't. The driver is loaded once in a
 * process, so every test runs in a child of its own, on a machine of its own. */
#include "fake_cuda.h"
#include "test.h"

#include <knet/device_driver.h>

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a child found out. */
typedef struct finding {
    kn_status status;
    int count;
    bool extra; /* what the test's own `look` returned */
    char message[sizeof((kn_error *)0)->message];
} finding;

/* The driver that the child sees; `look`, if any, runs there after the device was looked for. */
typedef struct scenario {
    const char *driver; /* path; NULL: none */
    const char *name;   /* of the device */
    void (*prepare)(fake_cuda_machine *machine);
    bool (*look)(kn_device *device);
} scenario;

/* The fake's functions, found in the library that the child loaded. */
static void *fake_library;

static void fake_function(const char *name, void *out_fn) {
    void *symbol = dlsym(fake_library, name);
    if (!symbol) abort();
    memcpy(out_fn, &symbol, sizeof symbol);
}

static finding child_find(const scenario *s) {
    finding found = {0};
    kn_device *device = NULL;
    if (s->driver) {
        fake_cuda_machine *(*machine_get)(void) = NULL;
        fake_library = dlopen(s->driver, RTLD_NOW);
        if (!fake_library) abort();
        fake_function("fake_cuda_machine_get", &machine_get);
        if (s->prepare) s->prepare(machine_get());
    }
    found.status = kn_device_find(&device, s->name);
    found.count = kn_device_cuda_count();
    memcpy(found.message, kn_last_error()->message, sizeof found.message);
    if (s->look) found.extra = s->look(device);
    return found;
}

static finding find_in_child(scenario s) {
    int ends[2];
    finding found = {0};
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        found = child_find(&s);
        ssize_t n = write(ends[1], &found, sizeof found);
        _exit(n == (ssize_t)sizeof found ? 0 : 1);
    }
    assert_true(child > 0);
    close(ends[1]);
    assert_int_equal(read(ends[0], &found, sizeof found), sizeof found);
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    return found;
}

static void assert_device_error(finding found, const char *text) {
    assert_int_equal(found.status, KN_ERR_DEVICE);
    assert_int_equal(found.count, 0);
    if (!strstr(found.message, text)) fail_msg("\"%s\" lacks \"%s\"", found.message, text);
}

static void missing_driver_says_what_to_install(void **state) {
    (void)state;
    if (dlopen("libcuda.so.1", RTLD_NOW)) skip(); /* this machine has one */
    finding found = find_in_child((scenario){.driver = NULL, .name = "cuda"});
    assert_device_error(found, "no CUDA driver (libcuda.so.1");
    assert_device_error(found, "install NVIDIA's driver, or use the cpu device");
}

static void make_version_11_2(fake_cuda_machine *machine) { machine->driver_version = 11020; }

static void old_driver_says_its_version_and_the_one_needed(void **state) {
    (void)state;
    finding found = find_in_child(
        (scenario){.driver = FAKE_CUDA_OLD, .name = "cuda", .prepare = make_version_11_2});
    assert_device_error(found, "it serves CUDA 11.2 and lacks cuGetProcAddress;");
    assert_device_error(found, "CUDA 11.3 (driver 465) or newer is needed");
}

static void make_version_10_1(fake_cuda_machine *machine) { machine->driver_version = 10010; }
static void make_incomplete(fake_cuda_machine *machine) { machine->lacks = "cuEventQuery"; }

static void driver_without_one_function_names_it(void **state) {
    (void)state;
    finding found = find_in_child(
        (scenario){.driver = FAKE_CUDA, .name = "cuda", .prepare = make_version_10_1});
    assert_device_error(found, "lacks cuMemGetAllocationGranularity");
    found =
        find_in_child((scenario){.driver = FAKE_CUDA, .name = "cuda", .prepare = make_incomplete});
    assert_device_error(found, "lacks cuEventQuery;");
}

static void make_version_11_3(fake_cuda_machine *machine) { machine->driver_version = 11030; }

static bool has_no_stream_ids(kn_device *device) {
    void *impl = NULL;
    const kn_device_driver *driver = kn_device_driver_get(device, &impl);
    cu_stream (*make_stream)(cu_context, bool) = NULL;
    cu_context (*primary)(int) = NULL;
    fake_function("fake_cuda_stream", &make_stream);
    fake_function("fake_cuda_primary_context", &primary);
    return !driver->stream_id &&
           driver->stream_check(impl, make_stream(primary(1), false)) == KN_ERR_INVALID &&
           driver->stream_check(impl, make_stream(primary(0), false)) == KN_OK;
}

static void oldest_supported_driver_has_no_stream_ids(void **state) {
    (void)state;
    finding found = find_in_child((scenario){.driver = FAKE_CUDA,
                                             .name = "cuda",
                                             .prepare = make_version_11_3,
                                             .look = has_no_stream_ids});
    assert_int_equal(found.status, KN_OK);
    assert_true(found.extra);
}

static void make_stub(fake_cuda_machine *machine) { machine->is_stub = true; }

static void stub_for_linking_is_not_a_driver(void **state) {
    (void)state;
    finding found =
        find_in_child((scenario){.driver = FAKE_CUDA, .name = "cuda", .prepare = make_stub});
    assert_device_error(found, "stub for linking and no driver");
    assert_device_error(found, "LD_LIBRARY_PATH");
}

static void make_no_device(fake_cuda_machine *machine) {
    machine->init_result = KN__CU_ERROR_NO_DEVICE;
}
static void make_zero_devices(fake_cuda_machine *machine) { machine->n_devices = 0; }
static void make_mismatch(fake_cuda_machine *machine) {
    machine->init_result = KN__CU_ERROR_SYSTEM_DRIVER_MISMATCH;
}

static void failed_start_names_the_error_and_the_remedy(void **state) {
    (void)state;
    scenario s = {.driver = FAKE_CUDA, .name = "cuda", .prepare = make_no_device};
    finding found = find_in_child(s);
    assert_device_error(found, "cuInit: CUDA_ERROR_NO_DEVICE (100), no CUDA-capable device");
    assert_device_error(found, "CUDA_VISIBLE_DEVICES");
    s.prepare = make_mismatch;
    assert_device_error(find_in_child(s), "restart the machine");
    s.prepare = make_zero_devices;
    assert_device_error(find_in_child(s), "cuDeviceGetCount: CUDA_ERROR_NO_DEVICE (100)");
}

static void index_past_the_last_says_how_many_there_are(void **state) {
    (void)state;
    finding found = find_in_child((scenario){.driver = FAKE_CUDA, .name = "cuda:7"});
    assert_int_equal(found.status, KN_ERR_DEVICE);
    assert_int_equal(found.count, 2);
    assert_non_null(strstr(found.message, "no cuda:7: this process sees 2 CUDA devices"));
}

static void make_plain(fake_cuda_machine *machine) { machine->has_virtual_memory = false; }

static bool has_only_segments(kn_device *device) {
    void *impl = NULL, *segment = NULL;
    kn_device_info info;
    const kn_device_driver *driver = kn_device_driver_get(device, &impl);
    if (driver->range_reserve) return false;
    if (kn_device_info_read(&info, sizeof info, device) < 0 || info.granularity_bytes) return false;
    if (driver->segment_alloc(impl, &segment, 100) < 0) return false;
    driver->segment_free(impl, segment, 100);
    return true;
}

static void device_without_virtual_memory_grows_by_segments(void **state) {
    (void)state;
    finding found = find_in_child((scenario){
        .driver = FAKE_CUDA, .name = "cuda", .prepare = make_plain, .look = has_only_segments});
    assert_int_equal(found.status, KN_OK);
    assert_true(found.extra);
}

static int n_logged;
static void count_log(void *ctx, int level, const char *text) {
    (void)ctx, (void)level, (void)text;
    n_logged++;
}

/* Finds cuda:1 with each driver call failing in turn, until none does. All is returned, and nothing
 * logged. */
static bool survives_every_failure(kn_device *unused) {
    (void)unused;
    kn_log_attach(count_log, NULL);
    void (*fail_nth)(const char *, int, int, cu_result) = NULL;
    fake_cuda_counts (*count)(void) = NULL;
    fake_function("fake_cuda_fail", &fail_nth);
    fake_function("fake_cuda_count", &count);
    for (int n = 1; n < 20; n++) {
        kn_device *device = NULL;
        fail_nth(NULL, n, 1, 700);
        kn_status status = kn_device_find(&device, "cuda:1");
        if (count().n_contexts || count().n_violations) return false;
        if (status == KN_OK) return device && n > 3 && n_logged == 0;
        if (status != KN_ERR_CUDA || device) return false;
    }
    return false;
}

static void device_that_could_not_be_opened_can_be_found_later(void **state) {
    (void)state;
    finding found = find_in_child(
        (scenario){.driver = FAKE_CUDA, .name = "cuda", .look = survives_every_failure});
    assert_int_equal(found.status, KN_OK);
    assert_true(found.extra);
}

static void make_slow(fake_cuda_machine *machine) { machine->open_us = 20000; }

static void *find_other(void *unused) {
    (void)unused;
    kn_device *device = NULL;
    return kn_device_find(&device, "cuda:1") == KN_OK ? device : NULL;
}

static bool is_one_for_all_threads(kn_device *unused) {
    (void)unused;
    enum { N = 4 };
    pthread_t threads[N];
    void *found[N];
    bool same = true;
    for (int i = 0; i < N; i++) {
        if (pthread_create(&threads[i], NULL, find_other, NULL) != 0) abort();
    }
    for (int i = 0; i < N; i++) pthread_join(threads[i], &found[i]);
    for (int i = 0; i < N; i++) same = same && found[i] && found[i] == found[0];
    return same;
}

static void device_is_opened_once_for_all_threads(void **state) {
    (void)state;
    finding found = find_in_child((scenario){
        .driver = FAKE_CUDA, .name = "cuda", .prepare = make_slow, .look = is_one_for_all_threads});
    assert_int_equal(found.status, KN_OK);
    assert_true(found.extra);
}

/* Forks while a thread opens cuda:1; the child opens another device. */
static bool child_opens_a_device(kn_device *unused) {
    (void)unused;
    uint64_t (*calls)(const char *) = NULL;
    fake_function("fake_cuda_calls", &calls);
    uint64_t before = calls("cuDevicePrimaryCtxRetain");
    pthread_t thread;
    if (pthread_create(&thread, NULL, find_other, NULL) != 0) abort();
    while (calls("cuDevicePrimaryCtxRetain") == before) sched_yield();
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        kn_device *device = NULL;
        alarm(20); /* ends a child that hangs */
        _exit(kn_device_find(&device, "sim") == KN_OK ? 0 : 1);
    }
    pthread_join(thread, NULL);
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static void child_of_fork_opens_devices_while_the_parent_does(void **state) {
    (void)state;
    finding found = find_in_child((scenario){
        .driver = FAKE_CUDA, .name = "cuda", .prepare = make_slow, .look = child_opens_a_device});
    assert_int_equal(found.status, KN_OK);
    assert_true(found.extra);
}

/* In a child of the process that has the device. */
static bool is_refused_after_fork(kn_device *device) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        void *impl = NULL, *segment = NULL;
        const kn_device_driver *driver = kn_device_driver_get(device, &impl);
        bool refused = driver->segment_alloc(impl, &segment, 100) == KN_ERR_CUDA &&
                       strstr(kn_last_error()->message, "after fork()");
        _exit(refused ? 0 : 1);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static void child_of_fork_gets_the_reason_why_it_has_no_gpu(void **state) {
    (void)state;
    finding found = find_in_child(
        (scenario){.driver = FAKE_CUDA, .name = "cuda", .look = is_refused_after_fork});
    assert_int_equal(found.status, KN_OK);
    assert_true(found.extra);
}

static bool is_silent_after_shutdown(kn_device *device) {
    void (*fail_nth)(const char *, int, int, cu_result) = NULL;
    fake_cuda_counts (*count)(void) = NULL;
    fake_function("fake_cuda_fail", &fail_nth);
    fake_function("fake_cuda_count", &count);
    void *impl = NULL, *segment = NULL, *event = NULL;
    kn_stream stream = NULL;
    bool done = false;
    const kn_device_driver *driver = kn_device_driver_get(device, &impl);
    if (!driver->alive(impl) || driver->segment_alloc(impl, &segment, 100) < 0) return false;
    if (driver->event_create(impl, &event) < 0) return false;
    if (driver->stream_create(impl, &stream) < 0) return false;
    kn_log_attach(count_log, NULL);
    fail_nth(NULL, 1, 1, KN__CU_ERROR_DEINITIALIZED); /* the driver begins to unload */
    if (driver->alive(impl)) return false;
    uint64_t n_calls = count().n_calls;
    driver->segment_free(impl, segment, 100);
    driver->event_destroy(impl, event);
    driver->stream_destroy(impl, stream);
    if (driver->segment_alloc(impl, &segment, 100) != KN_ERR_CUDA) return false;
    if (!strstr(kn_last_error()->message, "shutting down")) return false;
    if (driver->event_query(impl, event, &done) != KN_ERR_CUDA) return false;
    if (driver->stream_id(impl, stream) != 0 || driver->stream_capturing(impl, stream))
        return false;
    return count().n_calls == n_calls && count().n_violations == 0 && n_logged == 0;
}

static void driver_that_unloads_is_called_no_more(void **state) {
    (void)state;
    finding found = find_in_child(
        (scenario){.driver = FAKE_CUDA, .name = "cuda", .look = is_silent_after_shutdown});
    assert_int_equal(found.status, KN_OK);
    assert_true(found.extra);
}

/* --- devices by other names --- */

static bool is_second(kn_device *device) {
    return device && strcmp(kn_device_name(device), "cuda:1") == 0;
}
static bool is_first(kn_device *device) {
    return device && strcmp(kn_device_name(device), "cuda:0") == 0;
}

static fake_cuda_counts fake_counts(void) {
    fake_cuda_counts (*count)(void) = NULL;
    fake_function("fake_cuda_count", &count);
    return count();
}

static void use_first(fake_cuda_machine *machine) { machine->other_bytes[0] = 512 << 20; }
static void use_second(fake_cuda_machine *machine) { machine->other_bytes[1] = 1 << 20; }

/* Only the chosen device keeps a context, and the choice stays. */
static bool is_second_for_good(kn_device *device) {
    fake_cuda_machine *(*machine_get)(void) = NULL;
    kn_device *again = NULL;
    fake_function("fake_cuda_machine_get", &machine_get);
    machine_get()->other_bytes[1] = 1000 << 20;
    return is_second(device) && kn_device_find(&again, "cuda:auto") == KN_OK && again == device &&
           fake_counts().n_retained == 1 && fake_counts().n_contexts == 0 &&
           fake_counts().n_violations == 0;
}

static void auto_is_the_device_with_most_free_memory(void **state) {
    (void)state;
    scenario s = {.driver = FAKE_CUDA, .name = "cuda:auto", .prepare = use_first};
    s.look = is_second_for_good;
    assert_true(find_in_child(s).extra);
    s.prepare = use_second;
    s.look = is_first;
    assert_true(find_in_child(s).extra);
    s.prepare = NULL; /* the same of both */
    assert_true(find_in_child(s).extra);
}

/* A device that is open is asked in its own context; one that can't be asked is passed over. */
static bool auto_works_beside_open_and_failing_devices(kn_device *device) {
    kn_device *chosen = NULL;
    void (*fail_nth)(const char *, int, int, cu_result) = NULL;
    fake_function("fake_cuda_fail", &fail_nth);
    fail_nth("cuDevicePrimaryCtxRetain", 1, 1, 46); /* of cuda:1, in exclusive use */
    bool good = kn_device_find(&chosen, "cuda:auto") == KN_OK && chosen == device;
    return good && fake_counts().n_retained == 1 && fake_counts().n_violations == 0;
}

static void auto_passes_over_devices_that_fail(void **state) {
    (void)state;
    finding found = find_in_child((scenario){.driver = FAKE_CUDA,
                                             .name = "cuda:0",
                                             .prepare = use_first,
                                             .look = auto_works_beside_open_and_failing_devices});
    assert_true(found.extra);
}

static bool every_call_of_auto_may_fail(kn_device *device) {
    static const char *const calls[] = {"cuDeviceGet", "cuDevicePrimaryCtxRetain",
                                        "cuCtxPushCurrent", "cuMemGetInfo"};
    void (*fail_nth)(const char *, int, int, cu_result) = NULL;
    fake_function("fake_cuda_fail", &fail_nth);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        fail_nth(calls[i], 1, -1, 46); /* on all devices */
        if (kn_device_find(&device, "cuda:auto") != KN_ERR_CUDA) return false;
        if (!strstr(kn_last_error()->message, calls[i])) return false;
        fail_nth(NULL, 0, 0, 0);
        if (fake_counts().n_retained || fake_counts().n_contexts) return false;
    }
    return kn_device_find(&device, "cuda:auto") == KN_OK && fake_counts().n_violations == 0;
}

static void auto_fails_with_the_call_that_failed(void **state) {
    (void)state;
    finding found = find_in_child(
        (scenario){.driver = FAKE_CUDA, .name = "none", .look = every_call_of_auto_may_fail});
    assert_true(found.extra);
}

static void devices_are_found_by_uuid(void **state) {
    (void)state;
    static const char *const second[] = {"cuda:GPU-abac1213-1415-1617-1819-1a1b1c1d1e1f",
                                         "cuda:MIG-abac1213-1415-1617-1819-1a1b1c1d1e1f",
                                         "cuda:GPU-ABAC12", "cuda:GPU-abac1"};
    for (size_t i = 0; i < sizeof second / sizeof *second; i++) {
        finding found =
            find_in_child((scenario){.driver = FAKE_CUDA, .name = second[i], .look = is_second});
        assert_true(found.extra);
    }
    assert_true(
        find_in_child((scenario){.driver = FAKE_CUDA, .name = "cuda:GPU-abac02", .look = is_first})
            .extra);
}

static void names_of_no_device_say_what_there_is(void **state) {
    (void)state;
    static const struct {
        const char *name;
        kn_status status;
        const char *text;
        void (*prepare)(fake_cuda_machine *machine);
    } cases[] = {
        {"cuda:GPU-abac", KN_ERR_DEVICE, "several devices match cuda:GPU-abac", NULL},
        {"cuda:GPU-ff", KN_ERR_DEVICE,
         "no cuda:GPU-ff: this process sees cuda:0 abac0203-0405-0607-0809-0a0b0c0d0e0f, cuda:1 "
         "abac1213",
         NULL},
        {"cuda:GPU-", KN_ERR_INVALID, "no device is named \"cuda:GPU-\"", NULL},
        {"cuda:GPU-xy", KN_ERR_INVALID, "cuda:auto", NULL},
        {"cuda:GPU-abac1213-1415-1617-1819-1a1b1c1d1e1f0", KN_ERR_INVALID, "named", NULL},
        {"cuda:most", KN_ERR_INVALID, "nvidia-smi -L", NULL},
        {"cuda:GPU-abac1", KN_ERR_UNSUPPORTED, "a driver of CUDA 11.4 or newer",
         make_version_11_3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        finding found = find_in_child(
            (scenario){.driver = FAKE_CUDA, .name = cases[i].name, .prepare = cases[i].prepare});
        assert_int_equal(found.status, cases[i].status);
        if (!strstr(found.message, cases[i].text)) {
            fail_msg("\"%s\" lacks \"%s\"", found.message, cases[i].text);
        }
    }
}

int main(void) {
    return RUN_TESTS(
        TEST(auto_is_the_device_with_most_free_memory), TEST(auto_passes_over_devices_that_fail),
        TEST(auto_fails_with_the_call_that_failed), TEST(devices_are_found_by_uuid),
        TEST(names_of_no_device_say_what_there_is), TEST(missing_driver_says_what_to_install),
        TEST(old_driver_says_its_version_and_the_one_needed),
        TEST(driver_without_one_function_names_it), TEST(oldest_supported_driver_has_no_stream_ids),
        TEST(stub_for_linking_is_not_a_driver), TEST(failed_start_names_the_error_and_the_remedy),
        TEST(index_past_the_last_says_how_many_there_are),
        TEST(device_without_virtual_memory_grows_by_segments),
        TEST(device_that_could_not_be_opened_can_be_found_later),
        TEST(device_is_opened_once_for_all_threads),
        TEST(child_of_fork_opens_devices_while_the_parent_does),
        TEST(child_of_fork_gets_the_reason_why_it_has_no_gpu),
        TEST(driver_that_unloads_is_called_no_more));
}
