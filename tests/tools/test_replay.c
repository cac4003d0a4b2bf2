/* The readers of RMM's logs and of our own traces: good files and bad ones. */
#include <inttypes.h>
#include <knet/trace.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "files.h"
#include "pool_fixture.h"
#include "read_trace.h"

static kn_status read_text(const char *text) {
    return read_bytes("t.csv", text, strlen(text), false);
}

/* RMM's CSV. */

#define HEADER "Thread,Time,Action,Pointer,Size,Stream\n"
#define ALLOC "1,00:00:00:000000,allocate,0x100,512,0x0\n"
#define FREE "1,00:00:00:000001,free,0x100,512,0x0\n"

static void csv_becomes_steps_with_blocks_and_streams_numbered(void **state) {
    (void)state;
    assert_ok(read_text(HEADER ALLOC "1,t,allocate,0x200,1000,0x7f00\n"
                                     "1,t,allocate failure,0x0,99999,0x0\n"
                                     "1,t,free,0x200,1000,0x0\n"
                                     "2,t,allocate,0x200,7,0x0\r\n" FREE));
    assert_string_equal(trace.format, "RMM CSV");
    assert_int_equal(trace.n_steps, 6);
    assert_int_equal(trace.n_blocks, 3);
    assert_int_equal(trace.n_streams, 2);
    assert_true(trace.null_stream[0] && !trace.null_stream[1]);
    assert_step(0, KN__STEP_ALLOC, 0, 512, 0);
    assert_step(1, KN__STEP_ALLOC, 1, 1000, 1);
    assert_step(2, KN__STEP_USE, 1, 0, 0); /* freed on a stream that is not its own */
    assert_step(3, KN__STEP_FREE, 1, 0, 0);
    assert_step(4, KN__STEP_ALLOC, 2, 7, 0);
    assert_step(5, KN__STEP_FREE, 0, 0, 0);
    assert_int_equal(trace.peak_live_bytes, 1512);
    assert_int_equal(trace.peak_at, 1);
    assert_int_equal(trace.n_ooms, 1);
}

static void columns_go_by_their_names(void **state) {
    (void)state;
    assert_ok(read_text("Size,Action,Pointer\n512,allocate,0x100\n512,free,256\n"));
    assert_int_equal(trace.n_steps, 2);
    assert_ok(read_text(HEADER "1,t,allocate,(nil),0,0x0\n1,t,free,(nil),0,0x0\n" ALLOC));
    assert_int_equal(trace.n_steps, 1); /* no bytes, no block */
}

static void gzip_is_read_like_plain(void **state) {
    (void)state;
    const char *text = HEADER ALLOC FREE;
    kn__trace_release(&trace);
    files_write(traces_dir(), "t.csv.gz", text, strlen(text), false);
    assert_ok(kn__trace_read(&trace, path_of("t.csv.gz"), false));
    assert_int_equal(trace.n_steps, 2);
}

static void bad_csv_is_an_error_with_its_line_and_value(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {HEADER, "no allocation"},
        {HEADER ALLOC ALLOC, "t.csv:3: 0x100 is allocated again, live since line 2"},
        {HEADER ALLOC FREE FREE, "t.csv:4: free of 0x100, which was freed at line 3"},
        {HEADER ALLOC "1,t,free,0x900,4,0\n", "t.csv:3: free of 0x900, which was not allocated"},
        {HEADER "1,t,alloc,0x1,4,0\n", "t.csv:2: unknown action 'alloc'"},
        {HEADER "1,t,allocate,0x,4,0\n", "t.csv:2: Pointer is '0x', not a number"},
        {HEADER "1,t,allocate,0x1,-4,0\n", "t.csv:2: Size is '-4', not a number"},
        {HEADER "1,t,allocate,0x1,4k,0\n", "Size is '4k'"},
        {HEADER "1,t,allocate,0x1,,0\n", "Size is ''"},
        {HEADER "1,t,allocate,0x11112222333344445,4,0\n", "Pointer is '0x11112222333344445'"},
        {HEADER "1,t,allocate,0x1,99999999999999999,0\n", "more than any device has"},
        {HEADER "1,t,allocate,0x1,4\n", "t.csv:2: the line has 5 fields, the header has 6"},
        {HEADER ALLOC "1,00:00:00:0000", "t.csv:3: the line has 2 fields"},
        {"Thread,Time,Action,Pointer\n" ALLOC, "t.csv:1: there is no column Size"},
        {"Action,a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p\n", "more than 16 fields"},
        {"id,lower,upper,size\n",
         "not a trace of a known format (it begins with \"id,lower,upp\")"},
        {"", "the file is empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_fails(read_text(cases[i].text), KN_ERR_FORMAT, cases[i].message);
    }
    char line[2000];
    memset(line, 'x', sizeof line);
    memcpy(line, HEADER, strlen(HEADER));
    assert_fails(read_bytes("t.csv", line, sizeof line, false), KN_ERR_FORMAT,
                 "t.csv:2: the line has more than 1024 bytes");
    memset(line + strlen(HEADER), 0, 10);
    assert_fails(read_bytes("t.csv", line, 100, false), KN_ERR_FORMAT, "t.csv:2: there is a zero");
    assert_fails(kn__trace_read(&trace, "/nonexistent/t.csv", false), KN_ERR_IO, "No such file");
    assert_fails(kn__trace_read(&trace, traces_dir(), false), KN_ERR_IO, "directory");
}

static void partial_takes_a_csv_that_begins_late(void **state) {
    (void)state;
    const char *text = HEADER "1,t,free,0x900,4096,0\n" ALLOC ALLOC "1,t,free,0x900,4096,0\n";
    assert_ok(read_bytes("t.csv", text, strlen(text), true));
    assert_int_equal(trace.n_before, 1);
    assert_int_equal(trace.n_passed_over, 2); /* the second allocation's missing free, a free */
    assert_step(0, KN__STEP_ALLOC, 0, 4096, 0);
    assert_step(1, KN__STEP_FREE, 0, 0, 0);
    assert_int_equal(trace.peak_live_bytes, 4096);
}

static void gzip_that_is_cut_or_corrupt_is_an_error(void **state) {
    (void)state;
    char text[20000] = HEADER;
    size_t n = strlen(text);
    for (int i = 1; i < 300; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "1,t,allocate,0x%x00,%" PRIu64 ",0\n", i,
                              test_random_below(1000000));
    }
    files_write(traces_dir(), "t.csv.gz", text, n, false);
    FILE *in = fopen(path_of("t.csv.gz"), "rb");
    unsigned char bytes[20000];
    size_t size = fread(bytes, 1, sizeof bytes, in);
    fclose(in);
    assert_fails(read_bytes("cut.csv", bytes, size / 2, false), KN_ERR_FORMAT, "data end early");
    bytes[size - 6] ^= 1; /* in the checksum */
    assert_fails(read_bytes("bad.csv", bytes, size, false), KN_ERR_FORMAT, "bad gzip data");
}

/* Our own. */

static size_t record(unsigned char *out, size_t room) {
    fixture f = fixture_make(GiB, false, &(kn_pool_options){.name = "busy"});
    kn_pool *idle = NULL;
    kn_stream other = new_stream(&f);
    assert_ok(kn_pool_create(&idle, f.device, &(kn_pool_options){.name = "idle"}));
    void *old = must_alloc(f.pool, 2 * MiB, NULL);
    assert_ok(kn_trace_begin(path_of("t.kntrace"), NULL));
    kn_free(idle, must_alloc(idle, 512, NULL));
    void *a = must_alloc(f.pool, 1000, NULL), *b = must_alloc(f.pool, 5 * MiB, other);
    assert_ok(kn_block_use(f.pool, b, NULL));
    kn_free(f.pool, a);
    kn_free(f.pool, b);
    kn_free(f.pool, old);
    assert_ok(kn_trace_end());
    kn_pool_destroy(idle);
    kn_sim_drain(f.sim);
    fixture_end(&f);
    FILE *in = fopen(path_of("t.kntrace"), "rb");
    size_t n = fread(out, 1, room, in);
    fclose(in);
    return n;
}

static void our_own_trace_matches_the_requests(void **state) {
    (void)state;
    unsigned char bytes[4096];
    size_t n = record(bytes, sizeof bytes);
    assert_ok(read_bytes("t.kntrace", bytes, n, false));
    assert_string_equal(trace.format, "Knet.c trace");
    assert_string_equal(trace.about, "pool \"busy\", the busiest of 2");
    assert_int_equal(trace.n_before, 1);
    assert_int_equal(trace.n_steps, 7);
    assert_step(0, KN__STEP_ALLOC, 2, 2 * MiB, 0); /* live before, on a stream like any */
    assert_step(1, KN__STEP_ALLOC, 0, 1000, 0);
    assert_step(2, KN__STEP_ALLOC, 1, 5 * MiB, 1);
    assert_step(3, KN__STEP_USE, 1, 0, 0);
    assert_int_equal(trace.peak_live_bytes, 7 * MiB + 1000);
}

/* Where the first record of the kind is. */
static size_t find_record(const unsigned char *bytes, size_t n, kn_trace_kind kind) {
    size_t at = sizeof(kn_trace_header);
    while (at < n && bytes[at] != kind) at += sizeof(kn_trace_record);
    assert_true(at < n);
    return at;
}

static void our_own_trace_that_is_cut_or_bent_is_an_error(void **state) {
    (void)state;
    unsigned char bytes[4096], bent[4096];
    const size_t n = record(bytes, sizeof bytes), end = n - sizeof(kn_trace_record);
    const size_t header = sizeof(kn_trace_header);
    const size_t stream = find_record(bytes, n, KN_TRACE_STREAM);
    const struct {
        size_t cut, at; /* bytes taken off the end; the byte that is changed */
        unsigned char to;
        const char *message;
    } cases[] = {
        {1, 0, 'k', "the file ends 15 bytes into a record"},
        {16, 0, 'k', "the trace has no end: its program was killed or still runs, or"},
        {0, offsetof(kn_trace_header, version), 1, "version 1 with records of 16 bytes"},
        {0, offsetof(kn_trace_header, record_bytes), 40, "records of 40 bytes"},
        {0, offsetof(kn_trace_header, byte_order), 1, "byte order 0x01020301"},
        {0, header, 200, "byte 64: unknown kind of record 200"},
        {0, header, 9, "byte 64: unknown kind of record 9"},
        {0, header, KN_TRACE_TIME, "byte 64: a record before that of its thread"},
        {0, header, KN_TRACE_ALLOC, "byte 64: a record before that of its thread"},
        {0, header + 4, 1, "thread number 16777216; the limit is 1048576"},
        {0, stream + 3, 200, "the limit is 65536"},
        {0, stream, KN_TRACE_END, "records after the end"},
        {0, end, KN_TRACE_FREE, "the trace has no end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(bent, bytes, n);
        bent[cases[i].at] = cases[i].to;
        assert_fails(read_bytes("t.kntrace", bent, n - cases[i].cut, false), KN_ERR_FORMAT,
                     cases[i].message);
    }
    memcpy(bent, bytes, n);
    bent[end + 1] = 3;
    assert_fails(read_bytes("t.kntrace", bent, n, false), KN_ERR_FORMAT, "3 events were lost");
    assert_ok(read_bytes("t.kntrace", bent, n, true));
    bent[end + 8] ^= 1;
    assert_fails(read_bytes("t.kntrace", bent, n, true), KN_ERR_FORMAT, "its end says");
    memcpy(bent, bytes, n);
    memcpy(bent + n, bytes + end, n - end);
    assert_fails(read_bytes("t.kntrace", bent, n + (n - end), true), KN_ERR_FORMAT,
                 "records after the end");
    assert_fails(read_bytes("t.kntrace", bytes, header / 2, false), KN_ERR_FORMAT,
                 "the file ends at byte 32");
    assert_ok(read_bytes("t.kntrace", bytes, end - 1, true));
}

static void events_of_pool_0_are_ignored(void **state) {
    (void)state;
    unsigned char bytes[4096];
    size_t n = record(bytes, sizeof bytes), at = find_record(bytes, n, KN_TRACE_ALLOC);
    while (bytes[at] != KN_TRACE_STREAM) at -= sizeof(kn_trace_record);
    memset(bytes + at + 1, 0, 7); /* the pool "idle" */
    assert_ok(read_bytes("t.kntrace", bytes, n, false));
    assert_string_equal(trace.about, "");
    assert_int_equal(trace.n_steps, 7);
}

static void events_with_the_same_time_keep_the_order_of_their_thread(void **state) {
    (void)state;
    struct {
        kn_trace_header header;
        kn_trace_record records[11];
    } file = {{.magic = KN_TRACE_MAGIC,
               .version = KN_TRACE_VERSION,
               .record_bytes = sizeof(kn_trace_record),
               .byte_order = 0x01020304},
              {{KN_TRACE_THREAD | 1 << 8, 0},
               {KN_TRACE_TIME, 100},
               {KN_TRACE_STREAM | 1 << 8, 0},
               {KN_TRACE_ALLOC | 0x1000, 512},
               {KN_TRACE_FREE | 0x1000, 512},
               {KN_TRACE_ALLOC | 0x1000, 256},
               {KN_TRACE_THREAD | 2 << 8, 0},
               {KN_TRACE_TIME, 50}, /* the events are not in order of time */
               {KN_TRACE_STREAM | 1 << 8, 0},
               {KN_TRACE_ALLOC | 0x2000, 768},
               {KN_TRACE_END, 4}}};
    assert_ok(read_bytes("t.kntrace", &file, sizeof file, false));
    assert_int_equal(trace.n_steps, 4);
    assert_step(0, KN__STEP_ALLOC, 0, 768, 0);
    assert_step(1, KN__STEP_ALLOC, 1, 512, 0);
    assert_step(2, KN__STEP_FREE, 1, 0, 0);
    assert_step(3, KN__STEP_ALLOC, 2, 256, 0);
}

/* One thread allocates, another frees; addresses come back from one to the other at once. */
enum { PASSED_ON = 20000 };
static _Atomic(void *) passed_on;

static void *free_what_comes(void *ctx) {
    for (int i = 0; i < PASSED_ON; i++) {
        void *ptr;
        while (!(ptr = atomic_exchange(&passed_on, NULL))) sched_yield();
        if (kn_free(ctx, ptr) < 0) return ptr;
    }
    return NULL;
}

static void frees_of_other_threads_follow_their_allocations(void **state) {
    (void)state;
    fixture f = fixture_make(GiB, false, NULL);
    pthread_t thread;
    void *wrong = NULL;
    kn__trace_release(&trace);
    assert_ok(kn_trace_begin(path_of("t.kntrace"), NULL));
    pthread_create(&thread, NULL, free_what_comes, f.pool);
    for (int i = 0; i < PASSED_ON; i++) {
        void *ptr = NULL, *none = NULL;
        if (kn_alloc(&ptr, f.pool, i % 2 ? 512 : 200000, NULL) < 0) fail_msg("no memory");
        while (!atomic_compare_exchange_weak(&passed_on, &none, ptr)) {
            none = NULL;
            sched_yield();
        }
    }
    pthread_join(thread, &wrong);
    assert_null(wrong);
    assert_ok(kn_trace_end());
    assert_ok(kn__trace_read(&trace, path_of("t.kntrace"), false));
    assert_int_equal(trace.n_steps, 2 * PASSED_ON);
    assert_int_equal(trace.n_before, 0);
    assert_true(trace.peak_live_bytes <= 2 * 200000 + 512); /* one here, one there, one between */
    fixture_end(&f);
}

/* Each thread frees the blocks of the last one and allocates new ones. */
enum { HANDS = 300, BLOCKS = 24 };

typedef struct hand {
    kn_pool *pool;
    void *blocks[BLOCKS];
} hand;

static void *free_all_and_take_again(void *ctx) {
    hand *h = ctx;
    for (int i = 0; i < BLOCKS; i++) {
        if (kn_free(h->pool, h->blocks[i]) < 0) return h;
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (kn_alloc(&h->blocks[i], h->pool, i % 4 ? 512 : 200000, NULL) < 0) return h;
    }
    return NULL;
}

static void blocks_go_from_hand_to_hand_as_threads_come_and_go(void **state) {
    (void)state;
    fixture f = fixture_make(GiB, false, NULL);
    hand h = {f.pool, {0}};
    kn__trace_release(&trace);
    assert_ok(kn_trace_begin(path_of("t.kntrace"), NULL));
    for (int i = 0; i < BLOCKS; i++) h.blocks[i] = must_alloc(f.pool, 512, NULL);
    for (int i = 0; i < HANDS; i++) {
        pthread_t thread;
        void *wrong = NULL;
        pthread_create(&thread, NULL, free_all_and_take_again, &h);
        pthread_join(thread, &wrong);
        assert_null(wrong);
        assert_null(free_all_and_take_again(&h));
    }
    for (int i = 0; i < BLOCKS; i++) assert_ok(kn_free(f.pool, h.blocks[i]));
    assert_ok(kn_trace_end());
    assert_ok(kn__trace_read(&trace, path_of("t.kntrace"), false));
    assert_int_equal(trace.n_steps, 2 * BLOCKS * (2 * HANDS + 1));
    assert_int_equal(trace.n_before, 0);
    fixture_end(&f);
}

/* Each thread exchanges its new block for one of another thread, and frees that. */
enum { SITTERS = 3, PLACES = 32, BURSTS = 200, BURST = 100 };

typedef struct table {
    kn_pool *pool;
    _Atomic(void *) places[PLACES];
} table;

static void *sit_at(void *ctx) {
    table *t = ctx;
    for (int i = 0; i < BURSTS * BURST; i++) {
        void *ptr = NULL;
        if (kn_alloc(&ptr, t->pool, i % 64 ? 512 : 200000, NULL) < 0) return t;
        void *before = atomic_exchange(&t->places[i * 7 % PLACES], ptr);
        if (kn_free(t->pool, before) < 0) return t;
        if (i % BURST == 0) sched_yield();
    }
    return NULL;
}

static void blocks_that_threads_take_from_each_other_are_in_order(void **state) {
    (void)state;
    fixture f = fixture_make(GiB, false, NULL);
    table t = {.pool = f.pool};
    pthread_t threads[SITTERS];
    kn__trace_release(&trace);
    assert_ok(kn_trace_begin(path_of("t.kntrace"), NULL));
    for (int i = 0; i < SITTERS; i++) pthread_create(&threads[i], NULL, sit_at, &t);
    for (int i = 0; i < SITTERS; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    for (int i = 0; i < PLACES; i++) assert_ok(kn_free(f.pool, t.places[i]));
    assert_ok(kn_trace_end());
    assert_ok(kn__trace_read(&trace, path_of("t.kntrace"), false));
    assert_int_equal(trace.n_steps, 2 * SITTERS * BURSTS * BURST);
    assert_int_equal(trace.n_before, 0);
    fixture_end(&f);
}

int main(void) {
    traces_begin();
    int failed = RUN_TESTS(
        TEST(csv_becomes_steps_with_blocks_and_streams_numbered), TEST(columns_go_by_their_names),
        TEST(gzip_is_read_like_plain), TEST(bad_csv_is_an_error_with_its_line_and_value),
        TEST(partial_takes_a_csv_that_begins_late), TEST(gzip_that_is_cut_or_corrupt_is_an_error),
        TEST(our_own_trace_matches_the_requests),
        TEST(our_own_trace_that_is_cut_or_bent_is_an_error), TEST(events_of_pool_0_are_ignored),
        TEST(events_with_the_same_time_keep_the_order_of_their_thread),
        TEST(blocks_go_from_hand_to_hand_as_threads_come_and_go),
        TEST(blocks_that_threads_take_from_each_other_are_in_order),
        TEST(frees_of_other_threads_follow_their_allocations));
    traces_end();
    return failed;
}
