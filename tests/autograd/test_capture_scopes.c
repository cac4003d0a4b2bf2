/* The timer's rows of captured steps are those of plain ones: the same paths, as many calls. So are
 * the events of watchers.
 *
 * The program's own kn_prof_open_scopes stands before the library's: a coarse clock. */
#include <dlfcn.h>
#include <knet/capture.h>
#include <knet/op_watch.h>
#include <knet/prof.h>
#include <knet/prof_read.h>

#include "autograd_test.h"

enum { STEPS = 5, ROWS_MAX = 2000, EVENTS_MAX = 200 };

static bool is_clock_coarse; /* "inside" opens at the same time as the scope around it */

KN_API int kn_prof_open_scopes(kn_prof_open *out, int n_max) {
    typedef int (*open_scopes_fn)(kn_prof_open *, int);
    static open_scopes_fn next;
    if (!next) {
        void *symbol = dlsym(RTLD_NEXT, "kn_prof_open_scopes");
        memcpy(&next, &symbol, sizeof next);
    }
    int n = next(out, n_max);
    for (int i = 1; i < n && i < n_max && is_clock_coarse; i++) {
        if (strcmp(out[i].label, "inside") == 0) out[i].start = out[i - 1].start;
    }
    return n;
}

typedef struct row {
    char path[256];
    uint64_t n_calls;
} row;
typedef struct rows {
    const char *root;
    row row[ROWS_MAX];
    int n;
} rows;

/* But for work space, which a replay does not allocate, and what the tape does when no kernel runs.
 */
static bool note_row(void *ctx, const kn_prof_row *r) {
    rows *to = ctx;
    size_t n = strlen(to->root);
    if (strncmp(r->path, to->root, n) != 0 || r->path[n] != '/') return true;
    const char *last = strrchr(r->path, '/');
    if (!strcmp(last, "/work space") || !strcmp(last, "/record") || !strcmp(last, "/sum_outgrads"))
        return true;
    if (to->n == ROWS_MAX) return false;
    snprintf(to->row[to->n].path, sizeof to->row[to->n].path, "%s", r->path + n);
    to->row[to->n++].n_calls = r->n_calls;
    return true;
}

static kn_status layered(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    (void)ctx;
    KN_TAPE();
    kn_tensor *x = kn_watch(kn_tensor_alias(in[0])), *y = x, *dx = NULL;
    {
        KN_SCOPE("net");
        for (int i = 0; i < 3; i++) {
            KN_SCOPE("layer");
            y = kn_tanh(kn_matmul(y, y, NULL));
            {
                KN_SCOPE("inside");
                y = kn_softmax(kn_affine(y, 2, 0), 1);
            }
        }
        y = kn_sum(kn_mul(y, y), KN_ALL, false);
    }
    KN_SCOPE("backward");
    KN_TRY(kn_gradients(&dx, y, &x, 1, NULL));
    out[0] = kn_keep(y);
    out[1] = kn_keep(dx);
    return kn_check();
}

static void steps_run(const char *root, bool captured, int fuse) {
    kn_capture *capture = NULL;
    KN_FRAME(.fuse = fuse);
    assert_ok(kn_capture_create(&capture, NULL));
    kn_tensor *x = kn_affine(kn_ones(KN_SHAPE(40, 40)), 0.01, 0), *y[2];
    assert_non_null(kn_data(x));
    for (int i = 0; i < STEPS; i++) {
        KN_FRAME();
        kn_scope scope = kn_scope_begin(root);
        if (captured)
            assert_ok(kn_capture_run(y, 2, capture, &x, 1, layered, NULL));
        else
            assert_ok(layered(y, &x, NULL));
        assert_non_null(kn_data(y[0]));
        assert_non_null(kn_data(y[1]));
        kn_scope_end(&scope);
    }
    kn_capture_destroy(capture);
}

static void same_rows(const char *plain_root, const char *captured_root, int fuse) {
    static rows plain, captured;
    plain = (rows){.root = plain_root};
    captured = (rows){.root = captured_root};
    steps_run(plain_root, false, fuse);
    steps_run(captured_root, true, fuse);
    assert_ok(kn_prof_visit(note_row, &plain));
    assert_ok(kn_prof_visit(note_row, &captured));
    assert_true(plain.n > 15);
    for (int i = 0; i < plain.n; i++) {
        int k = 0;
        while (k < captured.n && strcmp(captured.row[k].path, plain.row[i].path) != 0) k++;
        if (k == captured.n) fail_msg("no captured row %s", plain.row[i].path);
        if (captured.row[k].n_calls != plain.row[i].n_calls)
            fail_msg("%s: %d calls, captured %d", plain.row[i].path, (int)plain.row[i].n_calls,
                     (int)captured.row[k].n_calls);
    }
    assert_int_equal(captured.n, plain.n);
}

static void replays_have_the_rows_of_the_step(void **state) {
    (void)state;
    same_rows("plain", "captured", KN_OFF);
}

static void replays_of_fused_passes_too(void **state) {
    (void)state;
    same_rows("plain fused", "captured fused", 1);
}

static void a_scope_is_not_taken_for_the_one_around_it(void **state) {
    (void)state;
    is_clock_coarse = true;
    same_rows("plain coarse", "captured coarse", KN_OFF);
    is_clock_coarse = false;
}

/* --- names of derivatives that one kernel makes --- */

static void derivatives_of_one_call_name_their_inputs(void **state) {
    (void)state;
    static rows found;
    KN_FRAME();
    KN_SCOPE("norms");
    kn_tensor *x = kn_ones(KN_SHAPE(4, 8)), *w = kn_ones(KN_SHAPE(8));
    for (int n = 1; n <= 2; n++) { /* by x, and by both */
        KN_TAPE();
        kn_tensor *in[] = {kn_watch(x), n > 1 ? kn_watch(w) : w}, *d[2];
        kn_tensor *y = kn_sum(kn_layernorm(in[0], in[1], KN_NONE, 1, 1e-5), KN_ALL, false);
        assert_ok(kn_gradients(d, y, in, n, NULL));
    }
    found = (rows){.root = "norms"};
    assert_ok(kn_prof_visit(note_row, &found));
    int n_both = 0, n_x = 0;
    for (int k = 0; k < found.n; k++) {
        n_both += strstr(found.row[k].path, "layernorm  d x,weight/rownorm_back") != NULL;
        n_x += strstr(found.row[k].path, "layernorm  d x/rownorm_back") != NULL;
    }
    assert_int_equal(n_both, 1);
    assert_int_equal(n_x, 1);
}

/* --- names of passes --- */

enum { PASSES = 3, RUNS = 3 };
static const char *const pass_name[PASSES] = {"neg+exp", "square+tanh", "abs+sigm"};

static kn_tensor *pass_make(kn_tensor *x, int i) {
    switch (i) {
        case 0:
            return kn_exp(kn_neg(x));
        case 1:
            return kn_tanh(kn_square(x));
        default:
            return kn_sigm(kn_abs(x));
    }
}

static kn_status pass_step(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    out[0] = pass_make(in[0], *(int *)ctx);
    return kn_compute(out, 1);
}

static void assert_pass_rows(const char *root, uint64_t n_calls) {
    static rows found;
    found = (rows){.root = root};
    assert_ok(kn_prof_visit(note_row, &found));
    for (int i = 0; i < PASSES; i++) {
        uint64_t n = 0;
        for (int k = 0; k < found.n; k++)
            if (!strcmp(found.row[k].path + 1, pass_name[i])) n = found.row[k].n_calls;
        if (n != n_calls) fail_msg("%s/%s: %d calls", root, pass_name[i], (int)n);
    }
}

static void each_fused_pass_has_a_row_of_its_own(void **state) {
    (void)state;
    KN_FRAME(.fuse = 1);
    kn_tensor *x = kn_ones(KN_SHAPE(4096)), *y;
    assert_non_null(kn_data(x));
    KN_SCOPE("passes");
    for (int i = 0; i < RUNS * PASSES; i++) assert_ok(pass_step(&y, &x, (int[]){i % PASSES}));
    assert_pass_rows("passes", RUNS);
}

/* The name of a pass lies in its plan, whose memory the next plan uses. */
static void so_have_replayed_passes_of_plans_that_ended(void **state) {
    (void)state;
    kn_capture *capture = NULL;
    assert_ok(kn_capture_create(&capture, NULL));
    KN_FRAME(.fuse = 1);
    kn_tensor *x = kn_ones(KN_SHAPE(4096)), *y;
    assert_non_null(kn_data(x));
    KN_SCOPE("passes of plans");
    for (int i = 0; i < PASSES; i++) {
        for (int run = 0; run < RUNS; run++) /* plain, recorded, replayed */
            assert_ok(kn_capture_run(&y, 1, capture, &x, 1, pass_step, &i));
        assert_ok(kn_capture_reset(capture));
    }
    kn_capture_destroy(capture);
    assert_pass_rows("passes of plans", RUNS);
}

/* --- events --- */

typedef struct event {
    char name[64];
    int line, n_ops, n_in, made_by[KN_OP_EVENT_IN];
    uint64_t flops, moved_bytes;
    const kn_storage *out[KN_OP_EVENT_OUT];
    int n_out;
} event;
typedef struct events {
    event e[EVENTS_MAX];
    int n;
    const kn_tensor *y; /* of the last one; its place is known by the next */
} events;

/* The last event that wrote s; -1: it is from outside. */
static int maker_of(const events *l, const kn_storage *s) {
    for (int i = l->n - 1; i >= 0; i--)
        for (int k = 0; k < l->e[i].n_out; k++)
            if (l->e[i].out[k] == s) return i;
    return -1;
}

static void note_event(void *ctx, const kn_op_event *from) {
    events *l = ctx;
    assert_true(l->n < EVENTS_MAX);
    if (l->y) l->e[l->n - 1].line = l->y->line;
    event *e = &l->e[l->n];
    *e = (event){.n_ops = from->n_ops, .flops = from->flops, .moved_bytes = from->moved_bytes};
    snprintf(e->name, sizeof e->name, "%s %s", from->name, from->where ? from->where : "");
    for (int k = 0; k < from->n_in; k++) {
        int maker = maker_of(l, from->in[k]);
        if (maker >= 0) e->made_by[e->n_in++] = maker;
    }
    e->n_out = from->n_out;
    memcpy(e->out, from->out, sizeof e->out);
    l->y = from->where ? NULL : from->y;
    l->n++;
}

static void watched_run(events *l, kn_capture *capture, kn_tensor *x) {
    KN_FRAME();
    kn_tensor *y[2] = {NULL};
    *l = (events){.n = 0};
    kn_op_watch(note_event, l);
    kn_status status =
        capture ? kn_capture_run(y, 2, capture, &x, 1, layered, NULL) : layered(y, &x, NULL);
    if (status == KN_OK && !capture) status = kn_compute(y, 2); /* as the end of a recording does */
    kn_op_watch(NULL, NULL);
    assert_ok(status);
}

static void same_events(int fuse) {
    static events plain, replayed;
    kn_capture *capture = NULL;
    KN_FRAME(.fuse = fuse);
    assert_ok(kn_capture_create(&capture, NULL));
    kn_tensor *x = kn_affine(kn_ones(KN_SHAPE(40, 40)), 0.01, 0);
    assert_non_null(kn_data(x));
    watched_run(&plain, NULL, x);
    for (int i = 0; i < 3; i++) watched_run(&replayed, capture, x);
    assert_true(plain.n > 15);
    assert_int_equal(replayed.n, plain.n);
    for (int i = 0; i < plain.n; i++) {
        const event *a = &plain.e[i], *b = &replayed.e[i];
        assert_string_equal(b->name, a->name);
        assert_int_equal(b->line, a->line);
        assert_int_equal(b->n_ops, a->n_ops);
        assert_int_equal(b->flops, a->flops);
        assert_int_equal(b->moved_bytes, a->moved_bytes);
        assert_int_equal(b->n_out, a->n_out);
        assert_int_equal(b->n_in, a->n_in);
        for (int k = 0; k < a->n_in; k++) assert_int_equal(b->made_by[k], a->made_by[k]);
    }
    kn_capture_destroy(capture);
}

static void watchers_of_a_replay_see_the_events_of_the_step(void **state) {
    (void)state;
    same_events(KN_OFF);
}

static void so_they_do_of_fused_passes(void **state) {
    (void)state;
    same_events(1);
}

int main(void) {
    return RUN_TESTS(OPS_TEST(replays_have_the_rows_of_the_step),
                     OPS_TEST(replays_of_fused_passes_too),
                     OPS_TEST(a_scope_is_not_taken_for_the_one_around_it),
                     OPS_TEST(derivatives_of_one_call_name_their_inputs),
                     OPS_TEST(each_fused_pass_has_a_row_of_its_own),
                     OPS_TEST(so_have_replayed_passes_of_plans_that_ended),
                     OPS_TEST(watchers_of_a_replay_see_the_events_of_the_step),
                     OPS_TEST(so_they_do_of_fused_passes));
}
