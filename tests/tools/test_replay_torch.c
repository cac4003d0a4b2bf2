/* The reader of PyTorch's memory snapshots: pickles, written here opcode by opcode. */
#include <string.h>

#include "read_trace.h"
#include "test.h"

typedef struct pickle {
    unsigned char bytes[1 << 16];
    size_t n;
    bool old; /* protocol 2, else 4 */
} pickle;

static void op(pickle *p, int code) { p->bytes[p->n++] = (unsigned char)code; }

static void raw(pickle *p, uint64_t value, int n_bytes) {
    for (int i = 0; i < n_bytes; i++) op(p, (int)(value >> 8 * i & 0xff));
}

static void p_text(pickle *p, const char *text) {
    op(p, p->old ? 'X' : 0x8c);
    raw(p, strlen(text), p->old ? 4 : 1);
    memcpy(p->bytes + p->n, text, strlen(text));
    p->n += strlen(text);
    op(p, p->old ? 'q' : 0x94);
    if (p->old) op(p, 0);
}

static void p_int(pickle *p, uint64_t value) {
    if (value < 256) {
        op(p, 'K');
        raw(p, value, 1);
    } else if (value < 65536) {
        op(p, 'M');
        raw(p, value, 2);
    } else {
        op(p, 0x8a);
        raw(p, 8, 1);
        raw(p, value, 8);
    }
}

static void p_entry(pickle *p, const char *key, uint64_t value) {
    p_text(p, key);
    p_int(p, value);
}

static void p_event(pickle *p, const char *action, uint64_t ptr, uint64_t size) {
    op(p, '}');
    op(p, '(');
    p_text(p, "action");
    p_text(p, action);
    p_entry(p, "addr", ptr);
    p_entry(p, "size", size);
    p_entry(p, "stream", 0);
    p_text(p, "frames");
    op(p, ']');
    p_text(p, "time_us");
    op(p, 'N');
    op(p, 'u');
}

static void p_begin(pickle *p, bool old) {
    p->n = 0;
    p->old = old;
    op(p, 0x80);
    op(p, old ? 2 : 4);
    op(p, '}');
    op(p, '(');
}

static void p_segments(pickle *p) {
    p_text(p, "segments");
    op(p, ']');
    op(p, '(');
    op(p, '}');
    op(p, '(');
    p_entry(p, "device", 0);
    p_entry(p, "address", 0x7000000);
    p_text(p, "blocks");
    op(p, ']');
    op(p, '}');
    op(p, '(');
    p_entry(p, "size", 4096);
    p_entry(p, "requested_size", 4000);
    p_text(p, "state");
    p_text(p, "active_allocated");
    op(p, 'u');
    op(p, 'a');
    op(p, 'u');
    op(p, 'e');
}

static void p_snapshot(pickle *p, bool old) {
    p_begin(p, old);
    p_segments(p);
    p_text(p, "device_traces");
    op(p, ']');
    op(p, '(');
    op(p, ']');
    op(p, '(');
    p_event(p, "alloc", 0x5000000000, 70000);
    p_event(p, "segment_alloc", 0x5000000000, 1 << 21);
    p_event(p, "free_requested", 0x6000000000, 300); /* from before the history */
    p_event(p, "free_completed", 0x6000000000, 300);
    p_event(p, "alloc", 0x6000000000, 5);
    p_event(p, "oom", 0, 1);
    p_event(p, "free_requested", 0x5000000000, 70000);
    op(p, 'e');
    op(p, ']');
    op(p, 'e');
    op(p, 'u');
    op(p, '.');
}

static void a_snapshot_of_pytorch_starts_with_earlier_blocks(void **state) {
    (void)state;
    static pickle p;
    for (int old = 0; old < 2; old++) {
        p_snapshot(&p, old);
        assert_ok(read_bytes("t.pickle", p.bytes, p.n, false));
        assert_string_equal(trace.format, "PyTorch snapshot");
        assert_int_equal(trace.n_before, 2);
        assert_int_equal(trace.n_steps, 6);
        assert_step(0, KN__STEP_ALLOC, 1, 300, 0);
        assert_step(1, KN__STEP_ALLOC, 3, 4000, 0);
        assert_step(2, KN__STEP_ALLOC, 0, 70000, 0);
        assert_step(3, KN__STEP_FREE, 1, 0, 0);
        assert_step(4, KN__STEP_ALLOC, 2, 5, 0);
        assert_step(5, KN__STEP_FREE, 0, 0, 0);
        assert_int_equal(trace.n_ooms, 1);
    }
}

static const struct {
    const char *message, *bytes;
    size_t n;
} bad[] = {
#define CASE(message, bytes)                                                                       \
    { message, bytes, sizeof bytes - 1 }
    CASE("byte 2: opcode 0x63 would name or run code",
         "\x80\x04"
         "cos\nsystem\n."),
    CASE("opcode 0x52 would name or run code",
         "\x80\x04"
         "R."),
    CASE("opcode 0x93 would name or run code", "\x80\x04\x8c\x02os\x8c\x06system\x93."),
    CASE("opcode 0x49 is unknown", "\x80\x02I5\n."),
    CASE("pickle protocol 6; 2 to 5 are read", "\x80\x06."),
    CASE("the file ends at byte 2", "\x80\x04"),
    CASE("the file ends at byte 7", "\x80\x04\x58\xff\xff\xff\x7f"),
    CASE("more from its stack than it put there", "\x80\x04."),
    CASE("more from its stack than it put there", "\x80\x04]a."),
    CASE("more from its stack than it put there", "\x80\x04K\x01\x87."),
    CASE("no mark on its stack", "\x80\x04]e."),
    CASE("adds to something that is not a list",
         "\x80\x04}K\x01"
         "a."),
    CASE("adds to something that is not a dict", "\x80\x04](K\x01K\x02u."),
    CASE("a dict has a key with no value", "\x80\x04}(K\x01u."),
    CASE("memo 5 was never set", "\x80\x04h\x05."),
    CASE("memo 4294967295 comes after memo 0", "\x80\x04Nr\xff\xff\xff\xff."),
    CASE("it has no device_traces", "\x80\x04]."),
    CASE("it has no device_traces", "\x80\x04K\x05."),
    CASE("holds no history",
         "\x80\x04}\x8c\x0d"
         "device_traces]s."),
    CASE("an event has no action",
         "\x80\x04}\x8c\x0d"
         "device_traces]]K\x05"
         "aas."),
#undef CASE
};

static void bad_pickles_are_errors_and_run_no_code(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_fails(read_bytes("t.pickle", bad[i].bytes, bad[i].n, false), KN_ERR_FORMAT,
                     bad[i].message);
    }
}

static void a_pickle_that_is_cut_anywhere_is_an_error(void **state) {
    (void)state;
    static pickle p;
    p_begin(&p, false);
    p_text(&p, "device_traces");
    op(&p, ']');
    op(&p, ']');
    p_event(&p, "alloc", 0x1000, 16);
    op(&p, 'a');
    op(&p, 'a');
    op(&p, 'u');
    op(&p, '.');
    assert_ok(read_bytes("t.pickle", p.bytes, p.n, false));
    for (size_t n = 2; n < p.n; n++) { /* cut anywhere */
        assert_int_equal(read_bytes("t.pickle", p.bytes, n, false), KN_ERR_FORMAT);
    }
}

int main(void) {
    traces_begin();
    int failed = RUN_TESTS(TEST(a_snapshot_of_pytorch_starts_with_earlier_blocks),
                           TEST(bad_pickles_are_errors_and_run_no_code),
                           TEST(a_pickle_that_is_cut_anywhere_is_an_error));
    traces_end();
    return failed;
}
