/* Pickles of lists of numbers, by hand: the files of NumPy are those of test_readers.c. */
#include "dataset.h"
#include "test.h"

static void assert_bad(const char *pickle, size_t n, const char *message) {
    kn__lists l;
    assert_fails(kn__lists_read(&l, (const uint8_t *)pickle, n, "x"), KN_ERR_FORMAT, message);
    assert_null(l.offset);
}
#define ASSERT_BAD(pickle, message) assert_bad(pickle, sizeof(pickle) - 1, message)

static void lists_of_whole_numbers_are_read(void **state) {
    (void)state;
    kn__lists l;
    static const char good[] =
        "\x80\x02](](K\x05M\x01\x02"
        "e](K\x07"
        "ee.";
    assert_ok(kn__lists_read(&l, (const uint8_t *)good, sizeof good - 1, "x"));
    assert_int_equal(l.n, 2);
    assert_memory_equal(l.offset, ((int64_t[]){0, 2, 3}), 3 * sizeof *l.offset);
    assert_memory_equal(l.value, ((int64_t[]){5, 0x201, 7}), 3 * sizeof *l.value);
    kn__lists_release(&l);
}

/* Floats, bools, NumPy's numbers, which are calls of functions, and tuples. */
static void other_values_in_a_list_are_errors(void **state) {
    (void)state;
    static const char other[] = "a list has a value that is neither a whole number nor a list";
    ASSERT_BAD("\x80\x02](](K\x05G@\x14\0\0\0\0\0\0ee.", other);
    test_assert_message("x: byte 18 of the pickle: ", __FILE__, __LINE__);
    ASSERT_BAD(
        "\x80\x02](]\x88"
        "a](K\x07"
        "ee.",
        other);
    ASSERT_BAD(
        "\x80\x02](](K\x05"
        "cnumpy\nint64\nK\x06\x85Ree.",
        other);
    ASSERT_BAD(
        "\x80\x02](K\x05\x85](K\x07"
        "ee.",
        other);
}

/* A file of a few bytes must not take gigabytes: 20 times the same 8 numbers, in 67 bytes. */
static void a_list_that_occurs_too_often_is_an_error(void **state) {
    (void)state;
    char pickle[128] = "\x80\x02]q\1(](K\1K\1K\1K\1K\1K\1K\1K\1eq\2";
    size_t n = strlen(pickle);
    for (int i = 1; i < 20; i++) memcpy(pickle + n, "h\2", 2), n += 2;
    memcpy(pickle + n, "e.", 2);
    assert_bad(pickle, n + 2, "x: up to list 8 there are more numbers than the 67 bytes");
}

int main(void) {
    return RUN_TESTS(TEST(lists_of_whole_numbers_are_read), TEST(other_values_in_a_list_are_errors),
                     TEST(a_list_that_occurs_too_often_is_an_error));
}
