/* The n-th allocation of a function of arrays fails, n = 1, 2, … until none does, once or from then
 * on, forward and in its gradient: an error of status OOM is pending, nothing leaks, and the next
 * call gives the same bits as before. Where a function continues without the memory, its result is
 * the same.
 *
 * The program's own kn_alloc stands before the library's. */
#include "../ops/edge_calls.h"
#include "failing_alloc.h"
#include "grad_cases.h"

static int n_failed;

/* --- one call --- */

/* A call of the table, or a case of gradients. */
typedef struct subject {
    const char *name;
    const edge_call *call;
    const grad_case *c;
    void *ctx;
    operands o; /* of the call */
    kn_tensor *x[4];
    int n_x;
    bool derives, again; /* also the gradient of all x; it can be derived again */
} subject;

enum { RESULT_BYTES = 1 << 16 };
typedef struct result {
    size_t n;
    unsigned char bytes[RESULT_BYTES];
} result;

static kn_status add_bytes(result *r, kn_tensor *y) {
    size_t n = (size_t)kn_tensor_numel(y) * kn_dtype_bytes(kn_tensor_dtype(y));
    if (n > RESULT_BYTES - r->n) return KN_OK;
    kn_status status = kn_copy_out(r->bytes + r->n, n, y);
    r->n += n;
    return status;
}

/* NULL comes with an error, a tensor with none. */
static kn_tensor *forward(const subject *s, kn_tensor *const x[]) {
    operands o = s->o;
    if (s->n_x && s->call) {
        if (o.y == o.x) o.y = x[0];
        if (o.z == o.x) o.z = x[0];
        o.x = x[0];
    }
    kn_tensor *y = s->call ? s->call->fn(&o) : s->c->f(s->ctx, x);
    if (!y && !kn_pending()) fail_msg("%s: NULL without an error", s->name);
    if (y && kn_pending()) fail_msg("%s: a result and an error", s->name);
    return y;
}

static kn_status derive(result *r, const subject *s) {
    kn_tensor *x[4] = {0}, *dx[4] = {0};
    for (int i = 0; i < s->n_x; i++) x[i] = kn_watch(s->x[i]);
    KN_TRY(kn_check());
    kn_tensor *y = forward(s, x);
    if (!y || y == KN_NONE) return y ? KN_ERR_UNSUPPORTED : kn_check();
    const kn_gradients_options options = {.again = s->again};
    KN_TRY(kn_gradients(dx, y, x, s->n_x, &options));
    for (int i = 0; i < s->n_x; i++) KN_TRY(add_bytes(r, dx[i]));
    return KN_OK;
}

static kn_status evaluate(result *r, const subject *s) {
    kn_tensor *y = forward(s, s->x);
    if (!y) return kn_check();
    return y == KN_NONE ? KN_OK : add_bytes(r, y);
}

static kn_status run(result *r, const subject *s, int at) {
    r->n = 0;
    if (s->o.rng) assert_ok(kn_rng_state_set(s->o.rng, 5, 0));
    n_allocs = 0, fail_at = at;
    kn_frame frame = s->derives ? kn_tape_begin(NULL) : kn_frame_begin(NULL);
    kn_status status = (s->derives ? derive : evaluate)(r, s);
    fail_at = 0;
    if (kn_pending()) fail_msg("%s: an error remains: %s", s->name, kn_last_error()->message);
    kn_frame_end(&frame);
    return status;
}

/* --- the walk --- */

static bool is_same(const result *a, const result *b) {
    return a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0;
}

/* False: the call has fewer allocations. */
static bool fails_at(const subject *s, const result *want, int at) {
    static result got;
    uint64_t live = ops_live_bytes();
    kn_status status = run(&got, s, at);
    bool reached = n_allocs >= at;
    if (status == KN_OK ? !is_same(&got, want) : status != KN_ERR_OOM)
        fail_msg("%s, failure %d: %d, %s", s->name, at, status,
                 status < 0 ? kn_last_error()->message : "another result");
    if (status == KN_ERR_OOM && !reached) fail_msg("%s: fails without a failure", s->name);
    if (ops_live_bytes() != live) fail_msg("%s, failure %d: leaks", s->name, at);
    if (status < 0) n_failed++;
    return reached;
}

/* All failures of a call that works. */
static void fail_everywhere(const subject *s) {
    static result want, again;
    if (run(&want, s, 0) < 0) return; /* odd operands */
    for (int mode = 0; mode < 1 + !TEST_SANITIZED; mode++) {
        once = mode == 0;
        int at = 1;
        while (fails_at(s, &want, at)) at++;
    }
    if (run(&again, s, 0) < 0 || !is_same(&again, &want))
        fail_msg("%s: another result after failures", s->name);
}

/* x of this shape and dtype; y and z: x, then indices, then a condition. */
static void walk_operands(subject *s, kn_shape shape, kn_dtype dtype) {
    const kn_shape axes[] = {KN_SHAPE(0), KN_ALL, KN_SHAPE(2, 2)};
    for (int v = 0; v < 3; v++) {
        KN_FRAME();
        operands *o = &s->o;
        s->x[0] = o->x = edge_odd(shape, dtype);
        o->y = v == 1 ? edge_odd(shape, KN_I64) : o->x;
        o->z = v == 2 ? edge_odd(shape, KN_BOOL) : o->x;
        o->axes = axes[v], o->n = (int64_t[]){1, 0, 2}[v], o->p = 0.5;
        fail_everywhere(s);
    }
}

static void walk_calls(bool derives) {
    const int pick[] = {6, 7, 3, 11}; /* of edge_shapes: [2,2], [3,2], [3], [2,1,3,3] */
    const kn_dtype dtypes[] = {KN_F32, KN_I64, KN_F16};
    kn_rng *rng = NULL;
    assert_ok(kn_rng_create(&rng, 1));
    for (int c = 0; c < n_edge_calls; c++) {
        subject s = {.name = edge_calls[c].name, .call = &edge_calls[c], .derives = derives};
        bool makes = s.call->uses & USES_NO_X;
        s.o.rng = rng;
        s.n_x = !makes;
        if (makes && derives) continue;
        for (int i = 0; i < (TEST_SANITIZED || makes ? 1 : 4); i++)
            for (int d = 0; d < (TEST_SANITIZED || makes ? 1 : 3); d++)
                if (!derives || dtypes[d] != KN_I64)
                    walk_operands(&s, edge_shapes[pick[i]], dtypes[d]);
    }
    kn_rng_destroy(rng);
}

static void functions_of_arrays_may_be_out_of_memory(void **state) {
    (void)state;
    n_failed = 0;
    walk_calls(false);
    assert_true(n_failed > (TEST_SANITIZED ? 500 : 5000));
}

static void gradients_of_functions_may_be_out_of_memory(void **state) {
    (void)state;
    n_failed = 0;
    walk_calls(true);
    assert_true(n_failed > (TEST_SANITIZED ? 500 : 5000));
}

static void walk_case(const grad_case *c, void *ctx) {
    KN_FRAME(.dtype = KN_F64);
    subject s = {.name = c->text, .c = c, .ctx = ctx, .n_x = c->n_x};
    grad_fill(s.x, c);
    fail_everywhere(&s);
    s.derives = true;
    fail_everywhere(&s);
    s.again = true;
    fail_everywhere(&s);
}

/* Those of every op with a gradient. */
static void cases_of_gradients_may_be_out_of_memory(void **state) {
    (void)state;
    n_failed = 0;
    for (int i = 0; i < n_grad_cases; i++) walk_case(&grad_cases[i], NULL);
    const kn_shape all = KN_SHAPE(2, 3, 4), row = KN_SHAPE(4), column = KN_SHAPE(2, 1, 1);
    for (int op = 0; op < KN_OP_COUNT; op++) {
        kn_op which = (kn_op)op;
        if (!grad_is_row(op)) continue;
        grad_case c = grad_row_case(which, row, all, column);
        walk_case(&c, &which);
    }
    assert_true(n_failed > 1000);
}

/* --- parameters --- */

static void initial_values_may_be_out_of_memory(void **state) {
    (void)state;
    const kn_init inits[] = {{0},
                             kn_init_normal(0, 1),
                             kn_init_xavier(),
                             kn_init_truncated_normal(0, 1),
                             kn_init_orthogonal(1),
                             kn_init_bilinear()};
    for (size_t i = 0; i < sizeof inits / sizeof *inits; i++) {
        bool reached = true;
        for (int at = 1; reached; at++) {
            KN_FRAME();
            kn_params *set = params_f32();
            once = true, n_allocs = 0, fail_at = at;
            kn_tensor *w = kn_param(set, KN_SHAPE(2, 2, 2, 2), inits[i], "w");
            fail_at = 0;
            reached = n_allocs >= at;
            if (reached && !w) assert_fails(kn_check(), KN_ERR_OOM, "scripted failure");
            assert_ok(kn_check());
            if (!w) w = kn_param(set, KN_SHAPE(2, 2, 2, 2), inits[i], "w");
            assert_non_null(w);
            kn_params_destroy(set);
        }
    }
}

static void an_orthogonal_matrix_without_a_frame_is_an_error(void **state) {
    (void)state;
    kn_rng *rng = NULL;
    assert_ok(kn_rng_create(&rng, 1));
    assert_op_fails(kn_orthogonal(KN_SHAPE(2, 2), 1, rng), KN_ERR_INVALID, "no frame is open");
    kn_rng_destroy(rng);
}

int main(void) {
    return RUN_TESTS(OPS_TEST(functions_of_arrays_may_be_out_of_memory),
                     OPS_TEST(gradients_of_functions_may_be_out_of_memory),
                     OPS_TEST(cases_of_gradients_may_be_out_of_memory),
                     OPS_TEST(initial_values_may_be_out_of_memory),
                     OPS_TEST(an_orthogonal_matrix_without_a_frame_is_an_error));
}
