#include "synthetic_source.h"

#include <pthread.h>

#include "test.h"

enum { RECORDS_MAX = 1 << 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects all below */
static synthetic_options options;
static synthetic_sums sums;
static kn__record *records;
static size_t n_records;
static uint32_t next_id;
static uint64_t now;

static bool chance(int percent) { return test_random_below(100) < (uint64_t)percent; }

static void add_record(uint32_t id, const char *name, uint64_t ns) {
    assert_true(n_records < RECORDS_MAX);
    now += 1 + test_random_below(100);
    size_t at = n_records++;
    records[at] = (kn__record){
        .id = id, .name = name, .start_ns = ns ? now : 0, .end_ns = ns ? now + ns : 0, .stream = 7};
    size_t other = (size_t)test_random_below(n_records); /* any order */
    kn__record swap = records[other];
    records[other] = records[at];
    records[at] = swap;
    sums.n_records++;
}

static void add_foreign(void) {
    uint64_t ns = 1 + test_random_below(1000);
    add_record(options.first_id - 1000 - (uint32_t)test_random_below(1000), "foreign", ns);
    sums.foreign_ns += ns;
    sums.n_foreign++;
    sums.n_records--;
}

uint64_t synthetic_launch(const char *name) {
    pthread_mutex_lock(&lock);
    uint32_t id = next_id++;
    pthread_mutex_unlock(&lock);
    kn__activity_launch(id);
    pthread_mutex_lock(&lock);
    uint64_t total = 0;
    sums.launched++;
    if (chance(options.drop)) {
        sums.dropped++;
    } else if (chance(options.zero)) {
        add_record(id, name, 0);
        sums.untimed++;
    } else {
        int n = 1 + (int)test_random_below((uint64_t)options.records_max);
        for (int i = 0; i < n; i++) {
            uint64_t ns = 1 + test_random_below(1000000);
            add_record(id, name, ns);
            total += ns;
        }
    }
    sums.gpu_ns += total;
    if (chance(options.foreign)) add_foreign();
    pthread_mutex_unlock(&lock);
    return total;
}

static kn_status start(void *ctx) {
    (void)ctx;
    records = calloc(RECORDS_MAX, sizeof *records);
    assert_non_null(records);
    return KN_OK;
}

static void stop(void *ctx) {
    (void)ctx;
    synthetic_flush();
}

static void drain(void *ctx, kn__record_fn fn, void *sink) {
    (void)ctx;
    pthread_mutex_lock(&lock);
    size_t n = options.hold_back ? (size_t)test_random_below(n_records + 1) : n_records;
    for (size_t at = 0; at < n;) { /* in buffers of any size */
        size_t part = 1 + (size_t)test_random_below(n - at);
        fn(sink, records + at, part);
        at += part;
    }
    memmove(records, records + n, (n_records - n) * sizeof *records);
    n_records -= n;
    pthread_mutex_unlock(&lock);
}

static uint64_t dropped(void *ctx) {
    (void)ctx;
    pthread_mutex_lock(&lock);
    uint64_t n = sums.dropped;
    pthread_mutex_unlock(&lock);
    return n;
}

static const kn__source source = {
    .name = "synthetic", .start = start, .stop = stop, .drain = drain, .dropped = dropped};

const kn__source *synthetic_source(const synthetic_options *wanted) {
    free(records);
    records = NULL;
    n_records = 0;
    options = *wanted;
    next_id = options.first_id;
    sums = (synthetic_sums){0};
    return &source;
}

void synthetic_flush(void) {
    pthread_mutex_lock(&lock);
    options.hold_back = false;
    pthread_mutex_unlock(&lock);
}

synthetic_sums synthetic_sums_read(void) {
    pthread_mutex_lock(&lock);
    synthetic_sums copy = sums;
    pthread_mutex_unlock(&lock);
    return copy;
}
