/* Archives of arrays: NPZ as zip writers leave it, damaged, of more than 32 bits, and as we write
 * it. */
#include <knet/file.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "file_test.h"

static size_t read_all(uint8_t *out, size_t room, const char *path) {
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    size_t n = fread(out, 1, room, in);
    fclose(in);
    assert_true(n < room);
    return n;
}

/* Every tensor that a file lists, if it opens; a failure is an error with a message. */
static void read_what_opens(const uint8_t *bytes, size_t n) {
    kn_file *f = NULL;
    KN_FRAME();
    if (kn_file_open_bytes(&f, bytes, n, "x") < 0) assert_true(kn_last_error()->message[0]);
    for (int i = 0; i < kn_file_count(f); i++)
        if (!kn_file_read(f, kn_file_name(f, i))) assert_true(kn_check() < 0);
    kn_file_close(f);
}

static void cut_and_changed_archives_are_errors_not_crashes(void **state) {
    (void)state;
    static const char *const paths[] = {
        DATA "stored.npz", DATA "deflated.npz", DATA "all.safetensors",     DATA "f32.npy",
        DATA "u2.npy",     DATA "u8.npy",       DATA "integers.safetensors"};
    static uint8_t whole[1 << 14];
    for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) {
        size_t n = read_all(whole, sizeof whole, paths[k]);
        for (size_t i = 0; i < n; i++) {
            uint8_t *cut = malloc(i + 1); /* sanitizers see a read behind its end */
            memcpy(cut, whole, i);
            kn_file *f = NULL;
            assert_true(kn_file_open_bytes(&f, cut, i, "cut") < 0);
            free(cut);
            whole[i] ^= 0x41;
            read_what_opens(whole, n);
            whole[i] ^= 0x41;
        }
    }
}

static void a_changed_byte_of_a_member_fails_its_checksum(void **state) {
    (void)state;
    static uint8_t whole[1 << 14];
    kn_file *f = NULL;
    KN_FRAME();
    size_t n = read_all(whole, sizeof whole, DATA "stored.npz");
    uint8_t *two = memmem(whole, n, (const float[]){1, 2, 3}, 12);
    assert_non_null(two);
    two[1] ^= 1;
    assert_ok(kn_file_open_bytes(&f, whole, n, "x.npz"));
    assert_op_fails(kn_file_read(f, "f32"), KN_ERR_FORMAT, "x.npz: tensor 'f32': checksum");
    kn_file_close(f);
}

/* --- archives --- */

static uint64_t get(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

static void put(uint8_t *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

enum { END_RECORD = 22 }; /* bytes; the directory's size is at 12, its place at 16 */

static void archives_that_contradict_themselves_are_refused(void **state) {
    (void)state;
    enum { LOCAL, ENTRY, END }; /* records: of the first member, and of the file */
    static const struct {
        int record, at, add;
        const char *error;
    } cases[] = {{ENTRY, 8, 1, "it is encrypted"},
                 {ENTRY, 10, 4, "compression method 12; 0 and 8 are known"},
                 {ENTRY, 20, 60, "members 'f32' and 'f64' overlap at byte"},
                 {ENTRY, 20, 9999, "bytes; 1"},
                 {ENTRY, 24, -8, "16 bytes; [2,3] <f4 does not take as many"},
                 {ENTRY, 26, 99, "bytes of 85 stored ones"},
                 {ENTRY, 32, 9999, "directory entry 0 at byte 1363 is damaged"},
                 {ENTRY, 42, 1, "no member at byte 1"},
                 {ENTRY, 46, -'f', "a zero byte in its name"},
                 {ENTRY, 46, 1, "its header differs from the directory's"},
                 {LOCAL, 8, -8, "its header differs from the directory's"},
                 {ENTRY, 24, 1, "member 'f32.npy': its compressed bytes are damaged"},
                 {END, 10, 200, "a directory of 210 members in "},
                 {END, 12, 1, "a directory of 10 members in "}};
    static uint8_t bytes[1 << 14];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = read_all(bytes, sizeof bytes, DATA "deflated.npz");
        uint8_t *end = bytes + n - END_RECORD, *record[] = {bytes, bytes + get(end + 16, 4), end};
        uint8_t *at = record[cases[i].record] + cases[i].at;
        put(at, get(at, 2) + (uint64_t)cases[i].add, 2);
        kn_file *f = NULL;
        assert_fails(kn_file_open_bytes(&f, bytes, n, "x.npz"), KN_ERR_FORMAT, cases[i].error);
    }
}

static void an_archive_may_end_with_a_comment(void **state) {
    (void)state;
    enum { COMMENT = 65535 };
    static uint8_t bytes[(1 << 14) + COMMENT];
    static const int lengths[] = {30, COMMENT};
    for (int i = 0; i < 2; i++) {
        size_t n = read_all(bytes, 1 << 14, DATA "stored.npz");
        put(bytes + n - 2, (uint64_t)lengths[i], 2);
        memset(bytes + n, '.', COMMENT);
        memcpy(bytes + n, "PK\5\6", 4); /* no end record: its comment would be longer */
        kn_file *f = NULL;
        assert_ok(kn_file_open_bytes(&f, bytes, n + (size_t)lengths[i], "x.npz"));
        assert_int_equal(kn_file_count(f), 10);
        kn_file_close(f);
    }
}

/* stored.npz's first array as an archive with sizes and places of 64 bits; the directory is said to
 * have `more` bytes. */
static size_t large_archive(uint8_t *out, int more) {
    static const char name[] = "x.npy";
    static uint8_t stored[1 << 14];
    read_all(stored, sizeof stored, DATA "stored.npz");
    const uint8_t *array = stored + 30 + get(stored + 26, 2) + get(stored + 28, 2);
    size_t n = get(stored + 18, 4);
    uint8_t *at = out;
    memcpy(at, "PK\3\4", 4);
    put(at + 26, 5, 2);
    memcpy(at + 30, name, 5);
    memcpy(at + 35, array, n);
    uint8_t *entry = at = at + 35 + n;
    memcpy(at, "PK\1\2", 4);
    memcpy(at + 16, stored + 14, 4); /* checksum */
    put(at + 20, UINT32_MAX, 4);
    put(at + 24, n, 4); /* not in the extra field */
    put(at + 28, 5, 2);
    put(at + 30, 6 + 20, 2);
    put(at + 32, 3, 2);
    put(at + 42, UINT32_MAX, 4);
    memcpy(at + 46, name, 5);
    put(at + 51, 0x5455, 2); /* another field */
    put(at + 53, 2, 2);
    put(at + 57, 1, 2);
    put(at + 59, 16, 2);
    put(at + 61, n, 8);
    at += 77 + 3;
    memcpy(at, "PK\1\2", 4); /* a member that is not an array */
    put(at + 28, 1, 2);
    at += 46 + 1;
    uint8_t *end64 = at;
    memcpy(at, "PK\6\6", 4);
    put(at + 4, 44, 8);
    put(at + 32, 2, 8);
    put(at + 40, (uint64_t)(end64 - entry + more), 8);
    put(at + 48, (uint64_t)(entry - out), 8);
    memcpy(at + 56, "PK\6\7", 4);
    put(at + 64, (uint64_t)(end64 - out), 8);
    memcpy(at + 76, "PK\5\6", 4);
    memset(at + 84, 0xFF, 12);
    return (size_t)(at + 76 + END_RECORD - out);
}

static void archives_have_records_of_64_bits(void **state) {
    (void)state;
    static uint8_t bytes[1 << 10];
    kn_file *f = NULL;
    KN_FRAME();
    size_t n = large_archive(bytes, 0);
    assert_ok(kn_file_open_bytes(&f, bytes, n, "x.npz"));
    kn_tensor *x = kn_file_read(f, "x");
    assert_shape(x, KN_SHAPE(2, 3));
    assert_counts(x);
    kn_file_close(f);
    memset(bytes, 0, sizeof bytes);
    n = large_archive(bytes, 1);
    assert_fails(kn_file_open_bytes(&f, bytes, n, "x.npz"), KN_ERR_FORMAT, "a directory of 2 mem");
}

/* --- written archives --- */

static const char *saved(const kn_named named[], int n, bool compress) {
    static char path[64];
    snprintf(path, sizeof path, "/tmp/knet_archive_%d.npz", (int)getpid());
    assert_ok(kn_npz_save(path, named, n, &(kn_npz_options){.compress = compress}));
    return path;
}

/* Fields that readers may do without: version, names of UTF-8, method, date, Unix mode. */
static void members_have_the_fields_of_unzip(void **state) {
    (void)state;
    static const uint8_t fields[] = {20, 0, 0, 8, 8, 0, 0, 0, 33, 0}; /* 1980-01-01 0:00 */
    static uint8_t bytes[1 << 10];
    KN_FRAME();
    kn_named named[] = {{"x", kn_ones(KN_SHAPE(2))}};
    const char *path = saved(named, 1, true);
    size_t n = read_all(bytes, sizeof bytes, path);
    const uint8_t *entry = bytes + get(bytes + n - END_RECORD + 16, 4);
    unlink(path);
    assert_memory_equal(bytes + 4, fields, sizeof fields);
    assert_memory_equal(entry + 6, fields, sizeof fields);
    assert_int_equal(get(entry + 38, 4), 0644u << 16);
}

/* Bytes that do not compress: more than are compressed at once. */
static void large_members_are_compressed_whole(void **state) {
    (void)state;
    enum { N = 1 << 19 };
    kn_file *f = NULL;
    KN_FRAME();
    float *x = malloc(N * sizeof *x);
    assert_non_null(x);
    for (int i = 0; i < N; i++) x[i] = (float)test_random_below(1u << 31);
    kn_named named[] = {{"x", kn_tensor_from(x, KN_F32, KN_SHAPE(N))}};
    const char *path = saved(named, 1, true);
    assert_ok(kn_file_open(&f, path));
    unlink(path);
    kn_tensor *y = kn_file_read(f, "x");
    assert_shape(y, KN_SHAPE(N));
    assert_memory_equal(kn_data(y), x, N * sizeof *x);
    kn_file_close(f);
    free(x);
}

/* The end record has 16 bits for their number: another record has it whole. */
static void archives_of_65535_members_have_a_record_of_64_bits(void **state) {
    (void)state;
    enum { MANY = 65535, NAME_BYTES = 8, TAIL = 56 + 20 + END_RECORD };
    static kn_named named[MANY];
    static char name[MANY][NAME_BYTES];
    uint8_t tail[TAIL];
    kn_file *f = NULL;
    KN_FRAME();
    kn_tensor *one = kn_ones(KN_SCALAR);
    for (int i = 0; i < MANY; i++) {
        snprintf(name[i], NAME_BYTES, "%d", i);
        named[i] = (kn_named){name[i], one};
    }
    const char *path = saved(named, MANY, false);
    FILE *in = fopen(path, "rb");
    assert_true(in && fseek(in, -TAIL, SEEK_END) == 0 && fread(tail, 1, TAIL, in) == TAIL);
    fclose(in);
    assert_memory_equal(tail, "PK\6\6", 4);
    assert_int_equal(get(tail + 32, 8), MANY);
    assert_ok(kn_file_open(&f, path));
    unlink(path);
    assert_int_equal(kn_file_count(f), MANY);
    assert_values(kn_file_read(f, "65534"), 1);
    kn_file_close(f);
}

typedef struct saving {
    kn_tensor *t;
    kn_status status;
    char path[64], message[256];
} saving;

static void *save_elsewhere(void *ctx) {
    saving *s = ctx;
    s->status = kn_npz_save(s->path, &(kn_named){"x", s->t}, 1, NULL);
    snprintf(s->message, sizeof s->message, "%.255s", kn_last_error()->message);
    return NULL;
}

/* The error is the tensor's, not one of the file. */
static void a_tensor_that_is_not_computed_leaves_no_archive(void **state) {
    (void)state;
    pthread_t thread;
    KN_FRAME(.fuse = 1);
    saving s = {.t = kn_affine(kn_ones(KN_SHAPE(1 << 18)), 2, 1)};
    snprintf(s.path, sizeof s.path, "/tmp/knet_pending_%d.npz", (int)getpid());
    assert_int_equal(s.t->state, KN_TENSOR_PENDING);
    assert_int_equal(pthread_create(&thread, NULL, save_elsewhere, &s), 0);
    pthread_join(thread, NULL);
    assert_int_equal(s.status, KN_ERR_INVALID);
    assert_non_null(strstr(s.message, "another thread's frame"));
    assert_int_equal(access(s.path, F_OK), -1);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(cut_and_changed_archives_are_errors_not_crashes),
        OPS_TEST(a_changed_byte_of_a_member_fails_its_checksum),
        OPS_TEST(archives_that_contradict_themselves_are_refused),
        OPS_TEST(an_archive_may_end_with_a_comment), OPS_TEST(archives_have_records_of_64_bits),
        OPS_TEST(a_tensor_that_is_not_computed_leaves_no_archive),
        OPS_TEST(members_have_the_fields_of_unzip), OPS_TEST(large_members_are_compressed_whole),
        OPS_TEST(archives_of_65535_members_have_a_record_of_64_bits));
}
