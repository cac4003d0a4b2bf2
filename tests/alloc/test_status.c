#include <knet/status.h>
#include <pthread.h>

#include "test.h"

/* The layout that tests/support/test.c reads messages through. */
typedef struct error_layout {
    int status, line;
    const char *file, *op;
    char message[2048];
} error_layout;

static void error_layout_matches_the_test_support(void **state) {
    (void)state;
    assert_int_equal(sizeof(kn_error), sizeof(error_layout));
    assert_int_equal(offsetof(kn_error, status), offsetof(error_layout, status));
    assert_int_equal(offsetof(kn_error, line), offsetof(error_layout, line));
    assert_int_equal(offsetof(kn_error, file), offsetof(error_layout, file));
    assert_int_equal(offsetof(kn_error, op), offsetof(error_layout, op));
    assert_int_equal(offsetof(kn_error, message), offsetof(error_layout, message));
}

static void every_status_has_a_text(void **state) {
    (void)state;
    for (int status = 0; status >= -11; status--) {
        assert_string_not_equal(kn_status_text((kn_status)status), "unknown status");
    }
    assert_string_equal(kn_status_text((kn_status)-999), "unknown status");
}

static void failure_records_message_and_place(void **state) {
    (void)state;
    int line = __LINE__ + 1;
    assert_fails(KN_FAIL(KN_ERR_SHAPE, "x has %d channels", 3), KN_ERR_SHAPE, "x has 3 channels");
    assert_int_equal(kn_last_error()->line, line);
    assert_non_null(strstr(kn_last_error()->file, "test_status.c"));
    assert_null(kn_last_error()->op);
    assert_int_equal(kn_pending(), KN_OK);
}

static void first_pending_error_is_kept_and_taken_once(void **state) {
    (void)state;
    assert_null(KN_FAIL_NULL(KN_ERR_DTYPE, "first"));
    assert_null(KN_FAIL_NULL(KN_ERR_SHAPE, "second"));
    assert_int_equal(kn_pending(), KN_ERR_DTYPE);
    assert_string_equal(kn_last_error()->message, "first");
    assert_int_equal(kn_check(), KN_ERR_DTYPE);
    assert_int_equal(kn_check(), KN_OK);
    assert_string_equal(kn_last_error()->message, "first");
}

static void deferred_error_becomes_pending(void **state) {
    (void)state;
    assert_null(kn_error_defer(KN_FAIL(KN_ERR_IO, "read of %s", "x")));
    assert_int_equal(kn_pending(), KN_ERR_IO);
    assert_null(kn_error_defer(KN_OK));
    assert_int_equal(kn_check(), KN_ERR_IO);
}

static void op_and_site_are_given_once(void **state) {
    (void)state;
    (void)kn_fail_null_within_at("library.c", 3, KN_ERR_SHAPE, "m");
    kn_error_op("kn_conv");
    kn_error_op("kn_outer");
    kn_error_site("user.c", 7);
    kn_error_site("outer.c", 8);
    assert_string_equal(kn_last_error()->op, "kn_conv");
    assert_string_equal(kn_last_error()->file, "user.c");
    assert_int_equal(kn_last_error()->line, 7);
    assert_int_equal(kn_check(), KN_ERR_SHAPE);
}

static void message_may_quote_the_last_message(void **state) {
    (void)state;
    (void)KN_FAIL(KN_ERR_IO, "inner");
    (void)KN_FAIL(KN_ERR_IO, "outer: %s", kn_last_error()->message);
    assert_string_equal(kn_last_error()->message, "outer: inner");
}

static void long_message_is_cut_not_overrun(void **state) {
    (void)state;
    char text[5000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)KN_FAIL(KN_ERR_IO, "%s", text);
    assert_int_equal(strlen(kn_last_error()->message), sizeof kn_last_error()->message - 1);
}

static void *fail_in_thread(void *out) {
    *(kn_status *)out = kn_pending();
    (void)KN_FAIL_NULL(KN_ERR_PEER, "in a thread");
    return NULL;
}

static void errors_belong_to_their_thread(void **state) {
    (void)state;
    (void)KN_FAIL_NULL(KN_ERR_IO, "mine");
    kn_status seen = KN_ERR_INTERNAL;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fail_in_thread, &seen), 0);
    pthread_join(thread, NULL);
    assert_int_equal(seen, KN_OK);
    assert_string_equal(kn_last_error()->message, "mine");
    assert_int_equal(kn_check(), KN_ERR_IO);
}

typedef struct log_copy {
    int level;
    char text[64];
} log_copy;

static void copy_log(void *ctx, int level, const char *text) {
    log_copy *copy = ctx;
    copy->level = level;
    snprintf(copy->text, sizeof copy->text, "%s", text);
}

static void log_reaches_the_attached_callback_only(void **state) {
    (void)state;
    log_copy copy = {.level = -1};
    kn_log_write(0, "dropped");
    kn_log_attach(copy_log, &copy);
    kn_log_write(1, "n is %d", 5);
    kn_log_attach(NULL, NULL);
    kn_log_write(0, "dropped");
    assert_int_equal(copy.level, 1);
    assert_string_equal(copy.text, "n is 5");
}

static void a_second_callback_does_not_replace_the_first(void **state) {
    (void)state;
    log_copy first = {.level = -1}, second = {.level = -1};
    assert_true(kn_log_try_attach(copy_log, &first));
    assert_false(kn_log_try_attach(copy_log, &second));
    kn_log_write(1, "one");
    assert_string_equal(first.text, "one");
    assert_int_equal(second.level, -1);
    kn_log_attach(NULL, NULL);
    assert_true(kn_log_try_attach(copy_log, &second));
    kn_log_write(2, "two");
    kn_log_attach(NULL, NULL);
    assert_string_equal(first.text, "one");
    assert_string_equal(second.text, "two");
}

int main(void) {
    return RUN_TESTS(
        TEST(error_layout_matches_the_test_support), TEST(every_status_has_a_text),
        TEST(failure_records_message_and_place), TEST(first_pending_error_is_kept_and_taken_once),
        TEST(deferred_error_becomes_pending), TEST(op_and_site_are_given_once),
        TEST(message_may_quote_the_last_message), TEST(long_message_is_cut_not_overrun),
        TEST(errors_belong_to_their_thread), TEST(log_reaches_the_attached_callback_only),
        TEST(a_second_callback_does_not_replace_the_first));
}
