/* The host device and its memory; built twice, with jemalloc in the process and without. */
#include <limits.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "pool_fixture.h"

static long faults_now(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

static size_t resident_bytes(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long total = 0, resident = 0;
    assert_int_equal(fscanf(file, "%lu %lu", &total, &resident), 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static void info_names_the_machine_and_the_backing(void **state) {
    (void)state;
    kn_device_info info;
    assert_ok(kn_device_info_read(&info, sizeof info, kn_device_host()));
    assert_int_equal(info.kind, KN_DEVICE_HOST);
    assert_string_equal(info.name, "cpu");
    assert_true(info.total_bytes > 64 * MiB);
    assert_true(info.model[0] != '\0');
    assert_non_null(strstr(info.driver, HOST_BACKING));
}

static void memory_can_be_written_everywhere(void **state) {
    (void)state;
    kn_pool *pool = kn_device_pool(kn_device_host());
    assert_non_null(pool);
    for (size_t size = 1; size < 100 * MiB; size = size * 5 + 3) {
        char *ptr = must_alloc(pool, size, NULL);
        memset(ptr, 0x5a, size);
        assert_int_equal(ptr[size - 1], 0x5a);
        assert_ok(kn_free(pool, ptr));
    }
    assert_ok(kn_pool_check(pool));
}

static void steady_state_faults_no_pages(void **state) {
    (void)state;
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, kn_device_host(), NULL));
    long fewest = LONG_MAX; /* the system may take pages away now and then */
    for (int round = 0; round < 12; round++) {
        long before = faults_now();
        char *a = must_alloc(pool, 20 * MiB, NULL), *b = must_alloc(pool, 3 * MiB, NULL);
        char *c = must_alloc(pool, 50000, NULL);
        memset(a, round, 20 * MiB);
        memset(b, round, 3 * MiB);
        memset(c, round, 50000);
        assert_ok(kn_free(pool, a));
        assert_ok(kn_free(pool, b));
        assert_ok(kn_free(pool, c));
        long faults = faults_now() - before;
        if (round > 0 && faults < fewest) fewest = faults;
    }
    assert_true(fewest <= 2); /* 12 huge ones or thousands of small ones without the pool */
    assert_int_equal(stats_of(pool).n_device_allocs, 1);
    kn_pool_destroy(pool);
}

static void segments_are_large(void **state) {
    (void)state;
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, kn_device_host(), NULL));
    void *ptr = must_alloc(pool, 100, NULL);
    assert_true(stats_of(pool).reserved_bytes >= 32 * MiB);
    assert_ok(kn_free(pool, ptr));
    kn_pool_destroy(pool);
}

static void trim_gives_memory_back_to_the_system(void **state) {
    (void)state;
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, kn_device_host(), NULL));
    size_t before = resident_bytes();
    char *ptr = must_alloc(pool, 200 * MiB, NULL);
    memset(ptr, 1, 200 * MiB);
    assert_true(resident_bytes() > before + 150 * MiB);
    assert_ok(kn_free(pool, ptr));
    assert_ok(kn_pool_trim(pool, 0));
    assert_int_equal(stats_of(pool).reserved_bytes, 0);
    assert_true(resident_bytes() < before + 50 * MiB);
    kn_pool_destroy(pool);
}

static void freed_segments_return_to_the_system_at_once(void **state) {
    (void)state;
    enum { N = 16 };
    void *impl = NULL, *segments[N];
    const kn_device_driver *driver = kn_device_driver_get(kn_device_host(), &impl);
    size_t before = resident_bytes();
    for (int i = 0; i < N; i++) {
        assert_ok(driver->segment_alloc(impl, &segments[i], 4 * MiB));
        memset(segments[i], 1, 4 * MiB);
    }
    assert_true(resident_bytes() > before + N * 3 * MiB);
    for (int i = 0; i < N; i++) driver->segment_free(impl, segments[i], 4 * MiB);
    assert_true(resident_bytes() < before + N * 1 * MiB);
}

/* With jemalloc malloc's own memory lies between the segments. */
static void returned_segments_leave_the_memory_of_malloc_alone(void **state) {
    (void)state;
    enum { N = 16, ROUNDS = 5000 };
    kn_pool *pool = NULL;
    unsigned char *kept[N] = {NULL};
    uint64_t random = 1;
    assert_ok(kn_pool_create(&pool, kn_device_host(), NULL));
    for (int i = 0; i < ROUNDS; i++) {
        char *ptr = must_alloc(pool, 16 + (size_t)(i % 7) * 100, NULL);
        *ptr = 1;
        assert_ok(kn_free(pool, ptr));
        assert_ok(kn_pool_trim(pool, 0));
        if (i % 8 != 0) continue;
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t k = random >> 60, size = (random >> 30) % (4 * MiB) + 1;
        free(kept[k]);
        kept[k] = calloc(1, size);
        assert_non_null(kept[k]);
        assert_int_equal(kept[k][0] | kept[k][size / 2] | kept[k][size - 1], 0);
        kept[k][0] = kept[k][size / 2] = kept[k][size - 1] = 1;
    }
    for (int k = 0; k < N; k++) free(kept[k]);
    kn_pool_destroy(pool);
}

/* The kernel is asked for huge pages where a segment lies: its mapping has the flag. */
static void segments_are_advised_to_be_huge(void **state) {
    (void)state;
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, kn_device_host(), NULL));
    uintptr_t ptr = (uintptr_t)must_alloc(pool, 10 * MiB, NULL);
    char line[512];
    bool inside = false, advised = false;
    FILE *file = fopen("/proc/self/smaps", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        unsigned long from = 0, to = 0;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) inside = from <= ptr && ptr < to;
        if (inside && strncmp(line, "VmFlags:", 8) == 0) advised = strstr(line, " hg") != NULL;
    }
    fclose(file);
    bool possible = access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) == 0;
    assert_true(advised || !possible);
    assert_ok(kn_free(pool, (void *)ptr));
    kn_pool_destroy(pool);
}

static uint64_t overhead(void) {
    kn_device_info info;
    assert_ok(kn_device_info_read(&info, sizeof info, kn_device_host()));
    return info.overhead_bytes;
}

static void the_backing_takes_little_for_itself(void **state) {
    (void)state;
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, kn_device_host(), NULL));
    uint64_t before = overhead(); /* of other pools */
    void *ptr = must_alloc(pool, 300 * MiB, NULL);
    uint64_t held = stats_of(pool).reserved_bytes;
    bool mapped = strcmp(HOST_BACKING, "mmap") == 0;
    assert_true(mapped ? overhead() == 0 : overhead() > 0);
    assert_true(overhead() <=
                before + held / 4); /* sizes are rounded up to classes, four a doubling */
    assert_ok(kn_free(pool, ptr));
    assert_ok(kn_pool_trim(pool, 0));
    assert_true(overhead() <= before + 4 * MiB);
    kn_pool_destroy(pool);
}

/* Decay, on the test's clock: the pool returns pages to the system without a call of trim. */
static uint64_t read_clock(void *ctx) { return *(uint64_t *)ctx; }

static void decay_gives_memory_back_to_the_system(void **state) {
    (void)state;
    uint64_t now = 1;
    kn_pool *pool = NULL;
    kn_pool_options options = {.decay_ns = 1000, .clock_fn = read_clock, .clock_ctx = &now};
    assert_ok(kn_pool_create(&pool, kn_device_host(), &options));
    size_t before = resident_bytes();
    char *ptr = must_alloc(pool, 200 * MiB, NULL);
    memset(ptr, 1, 200 * MiB);
    assert_true(resident_bytes() > before + 150 * MiB);
    assert_ok(kn_free(pool, ptr));
    for (int i = 0; i < 3; i++) {
        now += 2000;
        (void)stats_of(pool);
    }
    assert_true(stats_of(pool).decayed_bytes >= 200 * MiB);
    assert_true(resident_bytes() < before + 50 * MiB);
    kn_pool_destroy(pool);
}

static void streams_and_events_are_program_order(void **state) {
    (void)state;
    kn_device *host = kn_device_host();
    kn_pool *pool = kn_device_pool(host);
    kn_stream stream = (kn_stream)(uintptr_t)16;
    assert_ok(kn_stream_create(&stream, host));
    assert_null(stream);
    assert_ok(kn_stream_of_thread(&stream, host));
    assert_null(stream);
    kn_event *event = NULL;
    bool done = false;
    assert_ok(kn_event_create(&event, host));
    assert_ok(kn_event_record(event, NULL));
    assert_ok(kn_event_wait(event, NULL));
    assert_ok(kn_event_query(&done, event));
    assert_true(done);
    assert_ok(kn_event_sync(event));
    kn_event_destroy(event);
    assert_ok(kn_stream_sync(host, NULL));
    kn_stream_retire(host, NULL);
    kn_stream_destroy(host, NULL);
    /* whatever is passed as a stream, it is the same one */
    void *a = must_alloc(pool, 1000, (kn_stream)(uintptr_t)64);
    assert_ok(kn_block_use(pool, a, NULL));
    assert_ok(kn_free(pool, a));
    /* a use after the free is found here too, not only on a GPU */
    assert_fails(kn_block_use(pool, a, NULL), KN_ERR_INVALID, "freed already");
    assert_fails(kn_block_use(pool, &stream, NULL), KN_ERR_INVALID, "another pool's");
    void *b = must_alloc(pool, 1000, NULL);
    assert_ptr_equal(a, b);
    assert_ok(kn_free(pool, b));
    b = must_alloc(pool, 3 * MiB, NULL);
    assert_ok(kn_block_use(pool, b, NULL));
    assert_fails(kn_block_use(pool, (char *)b + 1, NULL), KN_ERR_INVALID, "points into a block");
    assert_ok(kn_free(pool, b));
    assert_fails(kn_block_use(pool, b, NULL), KN_ERR_INVALID, "kn_block_use");
}

static void copies_and_fills_happen(void **state) {
    (void)state;
    kn_device *host = kn_device_host();
    char a[64], b[64] = "";
    assert_ok(kn_device_fill(host, a, 'x', sizeof a, NULL));
    assert_ok(kn_device_copy(host, b, host, a, sizeof b, NULL));
    assert_memory_equal(a, b, sizeof a);
    assert_ok(kn_device_copy(host, b, host, a, 0, NULL));
}

static void limit_is_reported_with_its_figures(void **state) {
    (void)state;
    kn_pool *pool = NULL;
    void *a = NULL, *b = NULL;
    kn_pool_options options = {.limit_bytes = 64 * MiB, .name = "small"};
    assert_ok(kn_pool_create(&pool, kn_device_host(), &options));
    a = must_alloc(pool, 40 * MiB, NULL);
    assert_fails(kn_alloc(&b, pool, 40 * MiB, NULL), KN_ERR_OOM, "pool small: out of memory");
    assert_fails(kn_alloc(&b, pool, 40 * MiB, NULL), KN_ERR_OOM, "limit of 64.0 MiB");
    assert_ok(kn_free(pool, a));
    kn_pool_destroy(pool);
}

/* The process would be killed when it writes them. */
static void more_than_the_system_grants_is_out_of_memory(void **state) {
    (void)state;
    kn_pool *pool = kn_device_pool(kn_device_host());
    kn_device_info info;
    assert_ok(kn_device_info_read(&info, sizeof info, kn_device_host()));
    size_t size = 16 * info.total_bytes;
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at != MAP_FAILED) { /* this system grants all: vm.overcommit_memory is 1 */
        munmap(at, size);
        skip();
    }
    uint64_t reserved = stats_of(pool).reserved_bytes;
    assert_fails(kn_alloc(&at, pool, size, NULL), KN_ERR_OOM, "pool cpu: out of memory");
    assert_non_null(strstr(kn_last_error()->message, "; the device: cpu: m")); /* mmap, mallocx */
    assert_null(at);
    assert_true(stats_of(pool).reserved_bytes <= reserved);
    assert_ok(kn_free(pool, must_alloc(pool, 1 * MiB, NULL)));
}

int main(void) {
    return RUN_TESTS(
        TEST(info_names_the_machine_and_the_backing), TEST(memory_can_be_written_everywhere),
        TEST(steady_state_faults_no_pages), TEST(segments_are_large),
        TEST(trim_gives_memory_back_to_the_system),
        TEST(freed_segments_return_to_the_system_at_once),
        TEST(returned_segments_leave_the_memory_of_malloc_alone),
        TEST(segments_are_advised_to_be_huge), TEST(the_backing_takes_little_for_itself),
        TEST(decay_gives_memory_back_to_the_system), TEST(streams_and_events_are_program_order),
        TEST(copies_and_fills_happen), TEST(limit_is_reported_with_its_figures),
        TEST(more_than_the_system_grants_is_out_of_memory));
}
