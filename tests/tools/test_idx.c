/* Every malformed file has its own error, with the file's name and the value found in it. */
#include "idx.h"

#include <sys/stat.h>
#include <unistd.h>

#include "files_dir.h"
#include "test.h"

static char path[2 * FILES_PATH_MAX];

/* Writes `size_bytes` of an idx file [n,h,w] of `magic` under a name, and returns the path. */
static const char *write_cut(const char *name, uint32_t magic, const uint32_t dim[3],
                             size_t missing_bytes, bool plain) {
    size_t size_bytes = 0;
    uint8_t *data = files_idx(&size_bytes, magic, 3, dim);
    files_write(dir, name, data, size_bytes - missing_bytes, plain);
    free(data);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static const uint32_t small[3] = {5, 4, 3};

static void assert_good(const char *file) {
    kn__idx idx = {0};
    assert_ok(kn__idx_read(&idx, file, 3));
    assert_int_equal(idx.dim[0], 5);
    assert_int_equal(idx.dim[2], 3);
    assert_int_equal(idx.size_bytes, 60);
    for (int i = 0; i < 60; i++) assert_int_equal(idx.data[i], i);
    kn__idx_release(&idx);
}

static void plain_and_gzip_files_read_the_same(void **state) {
    (void)state;
    assert_good(write_cut("plain", 0x803, small, 0, true));
    assert_good(write_cut("zipped.gz", 0x803, small, 0, false));
}

/* Data that packs well is larger than its file. */
static void a_gzip_file_may_have_any_name(void **state) {
    (void)state;
    char renamed[3 * FILES_PATH_MAX];
    kn__idx idx = {0};
    uint8_t data[16 + 4000] = {0, 0, 8, 3, 0, 0, 0, 10, 0, 0, 0, 20, 0, 0, 0, 20};
    files_write(dir, "zeros.gz", data, sizeof data, false);
    snprintf(path, sizeof path, "%s/zeros.gz", dir);
    snprintf(renamed, sizeof renamed, "%s/zeros", dir);
    assert_int_equal(rename(path, renamed), 0);
    assert_ok(kn__idx_read(&idx, renamed, 3));
    assert_int_equal(idx.size_bytes, 4000);
    kn__idx_release(&idx);
}

static void assert_bad(const char *file, kn_status want, const char *text) {
    kn__idx idx = {0};
    assert_fails(kn__idx_read(&idx, file, 3), want, text);
    test_assert_message(file, __FILE__, __LINE__);
    assert_null(idx.data);
}

static void truncated_files_say_how_much_is_there(void **state) {
    (void)state;
    assert_bad(write_cut("cut", 0x803, small, 7, true), KN_ERR_FORMAT,
               "truncated: 53 bytes of data, the header says 60");
    assert_bad(write_cut("head", 0x803, small, 70, true), KN_ERR_FORMAT,
               "truncated: 6 bytes, the header alone has 16");
    assert_bad(write_cut("cut.gz", 0x803, small, 7, false), KN_ERR_FORMAT,
               "truncated: 53 bytes of data");
}

/* The gzip stream itself ends early, or is damaged: zlib notices. */
static void broken_gzip_streams_are_noticed(void **state) {
    (void)state;
    uint32_t large[3] = {50, 28, 28};
    char cut[2 * FILES_PATH_MAX];
    snprintf(cut, sizeof cut, "%s", write_cut("stream.gz", 0x803, large, 0, false));
    struct stat st;
    assert_int_equal(stat(cut, &st), 0);
    assert_int_equal(truncate(cut, st.st_size - 6), 0);
    assert_bad(cut, KN_ERR_FORMAT, "truncated: unexpected end of file");

    snprintf(cut, sizeof cut, "%s", write_cut("sum.gz", 0x803, large, 0, false));
    FILE *file = fopen(cut, "r+b");
    assert_non_null(file);
    assert_int_equal(stat(cut, &st), 0);
    assert_int_equal(fseek(file, st.st_size - 8, SEEK_SET), 0); /* the check sum */
    assert_int_equal(fputc(0x5a, file), 0x5a);
    fclose(file);
    char want[80];
    snprintf(want, sizeof want, "damaged: incorrect data check at byte %ld of the file",
             (long)st.st_size - 4); /* behind it */
    assert_bad(cut, KN_ERR_FORMAT, want);
}

static void a_gz_without_gzip_data_shows_its_first_bytes(void **state) {
    (void)state;
    assert_bad(write_cut("named.gz", 0x803, small, 0, true), KN_ERR_FORMAT,
               "named .gz but not gzip: it starts with bytes 00 00");
}

static void a_wrong_magic_number_is_shown_beside_the_right_one(void **state) {
    (void)state;
    assert_bad(write_cut("labels", 0x801, small, 0, true), KN_ERR_FORMAT,
               "magic number 0x00000801, expected 0x00000803");
    assert_bad(write_cut("floats", 0xd03, small, 0, true), KN_ERR_FORMAT,
               "magic number 0x00000d03");
    assert_bad(write_cut("text.gz", 0x48656c6c, small, 0, false), KN_ERR_FORMAT,
               "magic number 0x48656c6c");
}

static void data_beyond_the_header_is_a_wrong_size(void **state) {
    (void)state;
    uint8_t data[16 + 61] = {0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0, 3};
    files_write(dir, "long", data, sizeof data, true);
    snprintf(path, sizeof path, "%s/long", dir);
    assert_bad(path, KN_ERR_FORMAT, "wrong size: data continues after the 60 bytes");
}

/* No memory is asked for on a lying header's word. */
static void impossible_sizes_are_refused_before_allocating(void **state) {
    (void)state;
    uint8_t data[20] = {0, 0, 8, 3, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x70, 0, 0, 0, 0, 28};
    files_write(dir, "huge", data, sizeof data, true);
    snprintf(path, sizeof path, "%s/huge", dir);
    assert_bad(path, KN_ERR_FORMAT, "more than a file of 20 bytes can hold");
    memset(data + 4, 0xff, 12);
    files_write(dir, "overflow.gz", data, sizeof data, false);
    snprintf(path, sizeof path, "%s/overflow.gz", dir);
    assert_bad(path, KN_ERR_FORMAT, "too large");
}

static void an_empty_file_is_called_empty(void **state) {
    (void)state;
    files_write(dir, "empty", "", 0, true);
    snprintf(path, sizeof path, "%s/empty", dir);
    assert_bad(path, KN_ERR_FORMAT, "the file is empty");
}

static void a_missing_file_is_an_io_error(void **state) {
    (void)state;
    assert_bad(dir, KN_ERR_IO, "not a regular file");
    snprintf(path, sizeof path, "%s/absent", dir);
    assert_bad(path, KN_ERR_IO, "No such file");
}

static void find_prefers_plain_over_gzip_and_names_both(void **state) {
    (void)state;
    char found[FILES_PATH_MAX];
    assert_fails(kn__idx_find(found, sizeof found, dir, "stem"), KN_ERR_IO,
                 "neither stem nor stem.gz exists");
    write_cut("stem.gz", 0x803, small, 0, false);
    assert_ok(kn__idx_find(found, sizeof found, dir, "stem"));
    assert_string_equal(found + strlen(found) - 3, ".gz");
    write_cut("stem", 0x803, small, 0, true);
    assert_ok(kn__idx_find(found, sizeof found, dir, "stem"));
    assert_string_equal(found + strlen(found) - 4, "stem");
}

int main(void) {
    return RUN_TESTS(
        IN_DIR(plain_and_gzip_files_read_the_same), IN_DIR(a_gzip_file_may_have_any_name),
        IN_DIR(truncated_files_say_how_much_is_there), IN_DIR(broken_gzip_streams_are_noticed),
        IN_DIR(a_gz_without_gzip_data_shows_its_first_bytes),
        IN_DIR(a_wrong_magic_number_is_shown_beside_the_right_one),
        IN_DIR(data_beyond_the_header_is_a_wrong_size),
        IN_DIR(impossible_sizes_are_refused_before_allocating),
        IN_DIR(an_empty_file_is_called_empty), IN_DIR(a_missing_file_is_an_io_error),
        IN_DIR(find_prefers_plain_over_gzip_and_names_both));
}
