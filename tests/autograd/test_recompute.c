/* kn_recompute: the same gradients with fewer values kept. */
#include "autograd_test.h"

enum { DEPTH = 6, WIDTH = 64, BATCH = 256, BYTES = WIDTH * BATCH * 4 };

typedef struct net {
    kn_params *set;
    kn_tensor *w[DEPTH], *b[DEPTH];
    kn_rng *rng;
    bool recompute, nested, residual;
    int autocast;
    int n_calls;
} net;

static void net_init(net *m, bool recompute) {
    *m = (net){.set = params_f32(), .recompute = recompute};
    for (int i = 0; i < DEPTH; i++) {
        m->w[i] = kn_param(m->set, KN_SHAPE(WIDTH, WIDTH), kn_init_he(), "w%d", i);
        m->b[i] = kn_param(m->set, KN_SHAPE(WIDTH), kn_init_normal(0, 1), "b%d", i);
    }
    assert_ok(kn_rng_create(&m->rng, 5));
}

static void net_release(net *m) {
    kn_rng_destroy(m->rng);
    kn_params_destroy(m->set);
}

typedef struct block {
    net *m;
    int first, n;
} block;

static kn_tensor *layers(void *ctx, kn_tensor *const x[]) {
    const block *at = ctx;
    net *m = at->m;
    kn_tensor *y = x[0];
    m->n_calls++;
    if (m->nested && at->n > 1) { /* its second half is a part of the part */
        block half = {m, at->first, at->n / 2};
        static block rest[DEPTH]; /* read again in backward */
        rest[at->first] = (block){m, at->first + at->n / 2, at->n - at->n / 2};
        y = layers(&half, x);
        return kn_recompute(layers, &rest[at->first], &y, 1, m->rng);
    }
    for (int i = at->first; i < at->first + at->n; i++) {
        KN_FRAME();
        y = kn_keep(kn_dropout(kn_tanh(kn_relu(kn_linear(y, m->w[i], m->b[i]))), 0.25, m->rng));
    }
    return m->residual ? kn_add(x[0], y) : y;
}

static kn_tensor *forward(net *m, kn_tensor *x, block blocks[2]) {
    for (int i = 0; i < 2; i++) {
        blocks[i] = (block){m, i * DEPTH / 2, DEPTH / 2};
        x = m->recompute ? kn_recompute(layers, &blocks[i], &x, 1, m->rng) : layers(&blocks[i], &x);
    }
    return x;
}

static kn_tensor *input(void) {
    kn_rng *rng = NULL;
    assert_ok(kn_rng_create(&rng, 9));
    kn_tensor *x = kn_normal(KN_SHAPE(BATCH, WIDTH), 0, 1, rng);
    kn_rng_destroy(rng);
    return x;
}

/* Returns the most bytes that were live during the backward pass beyond those before. */
static uint64_t run(net *m) {
    kn_pool_stats before, after;
    block blocks[2];
    kn_pool *pool = kn_device_pool(kn_device_host());
    KN_FRAME();
    kn_tensor *x = input();
    kn_pool_stats_read(&before, sizeof before, pool);
    kn_pool_peaks_reset(pool);
    KN_TAPE(.autocast = m->autocast);
    assert_ok(kn_backward(sum_all(kn_mul(forward(m, x, blocks), x))));
    assert_ok(kn_tape_check());
    kn_pool_stats_read(&after, sizeof after, pool);
    return after.live_bytes_max - before.live_bytes;
}

static void assert_same_gradients(net *a, net *b) {
    for (int i = 0; i < kn_params_count(a->set); i++) {
        kn_tensor *g = kn_grad(kn_params_at(a->set, i, NULL));
        kn_tensor *h = kn_grad(kn_params_at(b->set, i, NULL));
        assert_memory_equal(kn_data(g), kn_data(h), (size_t)kn_tensor_numel(g) * sizeof(float));
    }
    uint64_t seed = 0, offset[2] = {0, 1};
    assert_ok(kn_rng_state_get(&seed, &offset[0], a->rng));
    assert_ok(kn_rng_state_get(&seed, &offset[1], b->rng));
    assert_true(offset[0] == offset[1]); /* and later numbers are the same */
}

static void gradients_have_the_same_bits_and_the_peak_is_lower(void **state) {
    (void)state;
    net plain, part;
    net_init(&plain, false);
    net_init(&part, true);
    for (int i = 0; i < 2; i++) { /* the first pass also makes the arena of gradients */
        uint64_t more = run(&plain), less = run(&part);
        assert_same_gradients(&plain, &part);
        assert_true(less + 3 * BYTES < more);
    }
    assert_int_equal(part.n_calls, 2 * 2 * 2);
    net_release(&plain);
    net_release(&part);
}

/* The sum passes its gradient on, and the product's is added to it in place, unrounded, if it has
 * no other owner. */
static void gradients_around_a_part_have_the_same_bits(void **state) {
    (void)state;
    net plain, part;
    net_init(&plain, false);
    net_init(&part, true);
    plain.residual = part.residual = true;
    for (int mixed = 0; mixed < 2; mixed++) {
        plain.autocast = part.autocast = mixed ? KN_BF16 : KN_OFF;
        run(&plain);
        run(&part);
        assert_same_gradients(&plain, &part);
    }
    net_release(&plain);
    net_release(&part);
}

static void parts_nest(void **state) {
    (void)state;
    net plain, part;
    net_init(&plain, false);
    net_init(&part, true);
    part.nested = true;
    run(&plain);
    run(&part);
    assert_same_gradients(&plain, &part);
    net_release(&plain);
    net_release(&part);
}

typedef struct hooked {
    int n;
} hooked;
static void count(void *ctx, kn_tensor *w, kn_tensor *gradient) {
    (void)w;
    (void)gradient;
    ((hooked *)ctx)->n++;
}

static void hooks_see_each_parameter_once(void **state) {
    (void)state;
    net part;
    hooked h = {0};
    net_init(&part, true);
    kn_params_on_grad(part.set, count, &h);
    run(&part);
    assert_int_equal(h.n, 2 * DEPTH);
    net_release(&part);
}

/* --- inputs and results of all kinds --- */

static kn_tensor *product(void *ctx, kn_tensor *const x[]) {
    (void)ctx;
    return kn_mul(kn_mul(x[0], x[1]), x[0]);
}
static kn_tensor *first(void *ctx, kn_tensor *const x[]) {
    (void)ctx;
    return x[0];
}
static kn_tensor *none(void *ctx, kn_tensor *const x[]) {
    (void)ctx;
    (void)x;
    return NULL;
}
static kn_tensor *chain(void *ctx, kn_tensor *const x[]) {
    (void)ctx;
    kn_tensor *y = x[0];
    for (int i = 0; i < 8; i++) y = kn_exp(kn_affine(y, 0.1, 0));
    return y;
}
static kn_tensor *with_ctx(void *ctx, kn_tensor *const x[]) { return kn_mul(x[0], ctx); }

static void inputs_may_be_parameters_constants_and_watched_values(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3);
    {
        KN_TAPE();
        kn_tensor *y =
            kn_recompute(product, NULL, (kn_tensor *[]){w, kn_full(KN_SHAPE(2), 5)}, 2, NULL);
        assert_values(y, 20, 45);
        assert_ok(kn_backward(sum_all(y)));
        assert_values(kn_grad(w), 20, 30);
    }
    {
        KN_TAPE();
        kn_tensor *x[2] = {kn_watch(kn_full(KN_SHAPE(1), 2)), kn_watch(kn_full(KN_SHAPE(1), 5))};
        kn_tensor *dx[2], *y = kn_recompute(product, NULL, x, 2, NULL);
        kn_gradients_options keep = {.keep = 1}, again = {.again = 1};
        for (int i = 0; i < 2; i++) {
            assert_ok(kn_gradients(dx, y, x, 2, &keep));
            assert_values(dx[0], 20);
            assert_values(dx[1], 4);
            assert_ok(kn_tape_check());
        }
        assert_fails(kn_gradients(dx, y, x, 2, &again), KN_ERR_UNSUPPORTED,
                     "the gradient of recompute");
    }
    KN_FRAME(); /* nothing is recorded: the function alone */
    assert_values(kn_recompute(product, NULL, (kn_tensor *[]){w, w}, 2, NULL), 8, 27);
    kn_params_destroy(set);
}

/* Also where all that reads the parameters is inside a part. */
static void gradients_begin_anew_after_a_step(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3);
    kn_optim *sgd = NULL;
    assert_ok(kn_sgd_create(&sgd, set, 0, NULL));
    for (int step = 0; step < 3; step++) {
        KN_TAPE();
        kn_tensor *y =
            kn_recompute(product, NULL, (kn_tensor *[]){w, kn_full(KN_SHAPE(2), 5)}, 2, NULL);
        assert_ok(kn_backward(sum_all(y)));
        assert_values(kn_grad(w), 20, 30);
        assert_ok(kn_optim_step(sgd));
    }
    kn_optim_destroy(sgd);
    kn_params_destroy(set);
}

static void what_a_part_may_not_do_is_an_error(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3);
    KN_TAPE();
    kn_tensor *outside = kn_mul(w, w);
    int64_t n = kn_tape_nodes();
    assert_op_fails(kn_recompute(with_ctx, outside, &w, 1, NULL), KN_ERR_INVALID,
                    "reads a recorded value that is not among x");
    assert_int_equal(kn_tape_nodes(), n);
    assert_op_fails(kn_recompute(none, NULL, &w, 1, NULL), KN_ERR_INVALID, "fn gave no result");
    assert_op_fails(kn_recompute(NULL, NULL, &w, 1, NULL), KN_ERR_INVALID, "fn is NULL");
    assert_op_fails(kn_recompute(first, NULL, &w, 0, NULL), KN_ERR_INVALID, "0 inputs");
    assert_op_fails(kn_recompute(first, NULL, NULL, 1, NULL), KN_ERR_INVALID, "x is NULL");
    assert_ptr_equal(kn_recompute(first, NULL, &outside, 1, NULL), outside);
    kn_tensor *y = kn_recompute(product, NULL, (kn_tensor *[]){outside, outside}, 2, NULL);
    ((float *)kn_data_mut(outside))[0] = 1;
    assert_fails(kn_backward(sum_all(y)), KN_ERR_INVALID, "needs x[0], which was written since");
    kn_params_destroy(set);
}

static kn_tensor *once_alone(void *ctx, kn_tensor *const x[]) {
    return (*(int *)ctx)++ ? NULL : kn_sin(x[0]);
}

static void a_part_without_a_result_says_so(void **state) {
    (void)state;
    int runs = 0;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3);
    {
        KN_FRAME(.record = KN_OFF);
        assert_op_fails(kn_recompute(none, NULL, &w, 1, NULL), KN_ERR_INVALID, "fn gave no result");
    }
    KN_TAPE();
    kn_tensor *y = kn_recompute(once_alone, &runs, &w, 1, NULL);
    assert_fails(KN_FAIL(KN_ERR_INVALID, "an older error"), KN_ERR_INVALID, "older");
    assert_fails(kn_backward(sum_all(y)), KN_ERR_INVALID, "fn gave no result in backward");
    kn_params_destroy(set);
}

static kn_tensor *read_once(void *ctx, kn_tensor *const x[]) {
    double sum;
    if ((*(int *)ctx)-- > 0) return kn_sin(x[0]);
    return kn_item(&sum, x[0]) < 0 ? NULL : x[0]; /* of two elements */
}

static void a_part_that_a_status_function_fails_in_says_why(void **state) {
    (void)state;
    const char *const text = "kn_item: ";
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3);
    for (int rounds = 0; rounds < 2; rounds++) {
        KN_TAPE();
        int runs = rounds;
        kn_tensor *y = kn_recompute(read_once, &runs, &w, 1, NULL);
        if (rounds == 0)
            assert_fails(kn_check(), KN_ERR_SHAPE, text);
        else
            assert_fails(kn_backward(sum_all(y)), KN_ERR_SHAPE, text);
        assert_fails(KN_FAIL(KN_ERR_INVALID, "another error"), KN_ERR_INVALID, "another");
    }
    KN_FRAME(.record = KN_OFF);
    int runs = 0;
    assert_op_fails(kn_recompute(read_once, &runs, &w, 1, NULL), KN_ERR_SHAPE, text);
    kn_params_destroy(set);
}

/* Tokens' vectors: whose number the program changes before backward. */
static kn_tensor *tokens(void *ctx, kn_tensor *const x[]) {
    kn_tensor *const *by = ctx; /* weights, indices */
    return kn_mul(kn_embedding(by[0], by[1]), x[0]);
}
static kn_tensor *other_dtype(void *ctx, kn_tensor *const x[]) {
    kn_tensor *y = kn_sin(x[0]);
    return (*(int *)ctx)++ ? kn_cast(y, KN_F64) : y;
}
static kn_tensor *ended(void *ctx, kn_tensor *const x[]) {
    kn_tensor *y = kn_sin(x[0]);
    if ((*(int *)ctx)++) kn_drop(y);
    return y;
}
static void another_result_in_backward_is_an_error(void **state) {
    (void)state;
    enum { MANY = 1000000 };
    KN_FRAME();
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2, 1), "w", 2, 3), *dw = NULL;
    kn_tensor *few = I64(KN_SHAPE(3), 0, 1, 0), *many = kn_cast(kn_zeros(KN_SHAPE(MANY)), KN_I64);
    KN_TAPE();
    kn_tensor *one = kn_ones(KN_SHAPE(1)), *by[] = {w, few};
    kn_tensor *y = sum_all(kn_recompute(tokens, by, &one, 1, NULL));
    kn_gradients_options keep = {.keep = 1};
    by[1] = many;
    assert_fails(kn_gradients(&dw, y, &w, 1, &keep), KN_ERR_INVALID,
                 "kn_recompute: fn gave [1000000,1] f32 in backward, [3,1] f32 before");
    by[1] = few;
    assert_ok(kn_gradients(&dw, y, &w, 1, &keep)); /* the tape is as it was */
    assert_values(dw, 2, 1);
    by[1] = many;
    assert_fails(kn_backward(y), KN_ERR_INVALID, "[3,1] f32 before");
    assert_values(kn_grad(w), 0, 0);
    for (int end = 0; end < 2; end++) {
        int runs = 0;
        kn_tensor *v = kn_recompute(end ? ended : other_dtype, &runs, &w, 1, NULL);
        assert_fails(kn_backward(sum_all(v)), KN_ERR_INVALID,
                     end ? "fn's result in backward has ended"
                         : "fn gave [2,1] f64 in backward, [2,1] f32 before");
    }
    assert_ok(kn_backward(sum_all(kn_square(w)))); /* and the thread's next passes work */
    assert_values(kn_grad(w), 4, 6);
    kn_params_destroy(set);
}

typedef struct otherwise { /* in the second run */
    enum { DETACHED, INPUT, PARAMETER, OLDER, OTHER, WITHOUT_X, WITHOUT_W } what;
    kn_tensor *w, *v;
    int runs;
} otherwise;
static kn_tensor *changes(void *ctx, kn_tensor *const x[]) {
    otherwise *o = ctx;
    kn_tensor *y = kn_mul(x[0], o->w);
    if (o->runs++ == 0) return y;
    switch (o->what) {
        case DETACHED:
            return kn_detach(y);
        case INPUT:
            return x[0];
        case PARAMETER:
            return o->w;
        case OLDER:
            return o->v;
        case OTHER:
            return kn_mul(y, o->v);
        case WITHOUT_X:
            return kn_exp(o->w);
        default:
            return kn_exp(x[0]);
    }
}
/* Its gradient would be lost, or that of w, or go where it does not belong. */
static void a_result_of_other_values_in_backward_is_an_error(void **state) {
    (void)state;
    const char *const texts[] = {
        "fn gave a value without gradient in backward, a result of recorded ops before",
        "fn gave an input or an older value in backward",
        "fn gave a parameter in backward",
        "fn gave an input or an older value in backward",
        "fn's result depends on the parameter v in backward, which it did not before",
        "fn's result does not depend on x[0] in backward, as it did before",
        "fn's result does not depend on the parameter w in backward, as it did before"};
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3), *v = PARAM(set, KN_SHAPE(2), "v", 4, 5);
    for (int what = DETACHED; what <= WITHOUT_W; what++) {
        KN_TAPE();
        kn_tensor *older = kn_square(v), *by[] = {w, kn_watch(kn_full(KN_SHAPE(2), 5))}, *dx[2];
        otherwise o = {what, w, what == OLDER ? older : v, 0};
        kn_tensor *y = sum_all(kn_recompute(changes, &o, &by[1], 1, NULL));
        const kn_gradients_options keep = {.keep = 1};
        assert_fails(kn_gradients(dx, y, by, 2, &keep), KN_ERR_INVALID, texts[what]);
        o.runs = 0; /* the tape is as it was */
        assert_ok(kn_tape_check());
        assert_ok(kn_gradients(dx, y, by, 2, &keep));
        assert_values(dx[0], 5, 5);
        assert_values(dx[1], 2, 3);
    }
    kn_params_destroy(set);
}

typedef struct reader {
    kn_tensor *w, *x; /* also among x */
} reader;
static kn_tensor *by_ctx(void *ctx, kn_tensor *const x[]) {
    const reader *r = ctx;
    return kn_mul(kn_mul(kn_exp(x[0]), r->w), r->x);
}
static void inputs_may_be_read_by_the_context_too(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3);
    double grad[2][2];
    for (int recompute = 0; recompute < 2; recompute++) {
        KN_TAPE();
        kn_tensor *x[] = {kn_affine(w, 0.5, 0), w, kn_square(w)};
        reader r = {w, x[2]};
        kn_tensor *y = recompute ? kn_recompute(by_ctx, &r, x, 3, NULL) : by_ctx(&r, x), *dw;
        assert_ok(kn_gradients(&dw, sum_all(y), &w, 1, NULL));
        for (int i = 0; i < 2; i++) grad[recompute][i] = ops_at(dw, i);
    }
    assert_memory_equal(grad[0], grad[1], sizeof grad[0]);
    kn_params_destroy(set);
}

/* The room of nodes may be that of a part's, which were marked as inside. */
static void a_recorded_value_in_the_place_of_a_parts_is_found(void **state) {
    (void)state;
    KN_FRAME();
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3), *two = kn_full(KN_SHAPE(2), 2);
    for (int shift = 0; shift < 24; shift++) {
        KN_TAPE();
        kn_tensor *x = kn_watch(two), *h = w;
        kn_tensor *y = kn_recompute(chain, NULL, &x, 1, NULL);
        for (int i = 0; i < shift; i++) h = i % 3 ? kn_reshape(h, KN_SHAPE(2)) : kn_add(h, w);
        h = kn_exp(kn_affine(h, 0.5, 0));
        assert_op_fails(kn_recompute(with_ctx, h, &y, 1, NULL), KN_ERR_INVALID,
                        "reads a recorded value that is not among x");
    }
    kn_params_destroy(set);
}

static kn_tensor *scaled_norm(void *ctx, kn_tensor *const x[]) {
    return kn_layernorm(x[0], ctx, KN_NONE, 1, 1e-5);
}
static void count_passes(void *ctx, kn_tensor *gradient) {
    (void)gradient;
    ++*(int *)ctx;
}
static void an_input_that_fn_does_not_use_has_the_gradient_zero(void **state) {
    int n_passes = 0;
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 2, 3);
    KN_TAPE();
    kn_tensor *x[] = {kn_full(KN_SHAPE(3, 2), 1), kn_watch(kn_full(KN_SHAPE(2), 1))}, *dx;
    kn_tensor *y = kn_on_grad(kn_recompute(scaled_norm, w, x, 2, NULL), count_passes, &n_passes);
    y = kn_add(sum_all(y), sum_all(x[1]));
    assert_ok(kn_gradients(&dx, y, &x[1], 1, NULL));
    assert_values(dx, 1, 1);
    assert_int_equal(n_passes, 0); /* no path to x[1] leads through the part */
    kn_params_destroy(set);
}

static kn_tensor *by_a_constant(void *ctx, kn_tensor *const x[]) {
    (void)ctx;
    return kn_exp(kn_mul(x[0], kn_detach(x[1])));
}
/* Though another node is the last one with an edge to it. */
static void an_input_without_gradient_has_its_value_in_the_second_run(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "w", 1, 2);
    double grad[2][2];
    for (int recompute = 0; recompute < 2; recompute++) {
        KN_TAPE();
        kn_tensor *x[] = {kn_affine(w, 0.5, 0), kn_mul(w, w)};
        kn_tensor *y =
            recompute ? kn_recompute(by_a_constant, NULL, x, 2, NULL) : by_a_constant(NULL, x);
        y = kn_add(sum_all(kn_exp(kn_square(x[1]))), sum_all(y));
        kn_tensor *dw;
        assert_ok(kn_gradients(&dw, y, &w, 1, NULL));
        for (int i = 0; i < 2; i++) grad[recompute][i] = ops_at(dw, i);
    }
    assert_memory_equal(grad[0], grad[1], sizeof grad[0]);
    kn_params_destroy(set);
}

static void a_parameter_written_before_the_second_run_is_an_error(void **state) {
    (void)state;
    KN_FRAME();
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2), "scale", 2, 3), *x = kn_full(KN_SHAPE(2), 5);
    for (int written = 0; written < 2; written++) {
        KN_TAPE();
        kn_tensor *y = sum_all(kn_exp(kn_recompute(with_ctx, w, &x, 1, NULL)));
        if (written) {
            assert_ok(kn_axpy_into(w, 1, w));
            assert_fails(kn_backward(y), KN_ERR_INVALID,
                         "needs the parameter scale, which was written since");
            assert_values(kn_grad(w), 0, 0);
        } else {
            assert_ok(kn_backward(y));
        }
    }
    kn_params_destroy(set);
}

static kn_tensor *times_a_tenth(void *ctx, kn_tensor *const x[]) {
    kn_tensor *tenth = kn_cast(kn_full(KN_SHAPE(2), 0.1), KN_F64); /* in the frame's dtype */
    return kn_exp(kn_mul(kn_mul(x[0], ctx), tenth));
}
static void the_second_run_has_the_dtype_of_the_first(void **state) {
    (void)state;
    double grad[2][2];
    for (int recompute = 0; recompute < 2; recompute++) {
        kn_params *set = NULL;
        assert_ok(kn_params_create(&set, &(kn_params_options){.seed = 3, .dtype = KN_F64}));
        kn_tensor *w = kn_param(set, KN_SHAPE(2), kn_init_normal(0, 1), "w"), *loss = NULL;
        KN_TAPE();
        {
            KN_FRAME(.dtype = KN_F64);
            kn_tensor *x = kn_full(KN_SHAPE(2), 3);
            kn_tensor *y =
                recompute ? kn_recompute(times_a_tenth, w, &x, 1, NULL) : times_a_tenth(w, &x);
            loss = kn_keep(sum_all(y));
        }
        assert_ok(kn_backward(loss));
        memcpy(grad[recompute], kn_data(kn_grad(w)), sizeof grad[0]);
        kn_params_destroy(set);
    }
    assert_memory_equal(grad[0], grad[1], sizeof grad[0]);
}

static kn_tensor *differentiates(void *ctx, kn_tensor *const x[]) {
    kn_tensor *y = kn_mul(x[0], x[0]), *dx = NULL;
    *(kn_status *)ctx = kn_gradients(&dx, y, x, 1, &(kn_gradients_options){.keep = 1});
    return y;
}
static void a_part_differentiates_nothing_itself(void **state) {
    (void)state;
    kn_status status = KN_OK;
    KN_TAPE();
    kn_tensor *x = kn_watch(kn_full(KN_SHAPE(2), 3)), *dx;
    kn_tensor *y = kn_recompute(differentiates, &status, &x, 1, NULL);
    assert_int_equal(status, KN_ERR_INVALID);
    assert_non_null(strstr(kn_last_error()->message, "kn_gradients: called inside a pass"));
    assert_ok(kn_gradients(&dx, y, &x, 1, NULL)); /* where it fails again */
    assert_int_equal(status, KN_ERR_INVALID);
    assert_values(dx, 6, 6);
}

static kn_tensor *keeps(void *ctx, kn_tensor *const x[]) {
    kn_tensor *m = kn_mul(kn_tanh(x[0]), x[1]), *t = kn_exp(m);
    if (*(const int *)ctx & 1) kn_keep(t);
    if (*(const int *)ctx & 2) kn_drop(x[0]); /* of another frame: no-op */
    return *(const int *)ctx & 4 ? kn_keep(kn_add(kn_sin(t), m)) : kn_add(kn_sin(t), m);
}
static void fn_may_keep_and_drop_values(void **state) {
    (void)state;
    for (int how = 0; how < 8; how++) {
        double grad[2][4];
        for (int recompute = 0; recompute < 2; recompute++) {
            KN_TAPE();
            kn_tensor *x[] = {kn_watch(F32(KN_SHAPE(2), 1, 2)), kn_watch(F32(KN_SHAPE(2), 3, 4))};
            kn_tensor *y = NULL, *dx[2];
            {
                KN_FRAME();
                y = kn_keep(recompute ? kn_recompute(keeps, &how, x, 2, NULL) : keeps(&how, x));
            }
            assert_ok(kn_gradients(dx, y, x, 2, NULL));
            for (int i = 0; i < 4; i++) grad[recompute][i] = ops_at(dx[i / 2], i % 2);
        }
        assert_memory_equal(grad[0], grad[1], sizeof grad[0]);
    }
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(gradients_have_the_same_bits_and_the_peak_is_lower),
        OPS_TEST(gradients_around_a_part_have_the_same_bits), OPS_TEST(parts_nest),
        OPS_TEST(hooks_see_each_parameter_once),
        OPS_TEST(inputs_may_be_parameters_constants_and_watched_values),
        TEST(gradients_begin_anew_after_a_step), OPS_TEST(what_a_part_may_not_do_is_an_error),
        OPS_TEST(a_part_without_a_result_says_so),
        OPS_TEST(a_part_that_a_status_function_fails_in_says_why),
        OPS_TEST(another_result_in_backward_is_an_error),
        OPS_TEST(a_result_of_other_values_in_backward_is_an_error),
        OPS_TEST(inputs_may_be_read_by_the_context_too),
        OPS_TEST(a_recorded_value_in_the_place_of_a_parts_is_found),
        OPS_TEST(an_input_that_fn_does_not_use_has_the_gradient_zero),
        OPS_TEST(a_parameter_written_before_the_second_run_is_an_error),
        OPS_TEST(the_second_run_has_the_dtype_of_the_first),
        OPS_TEST(a_part_differentiates_nothing_itself), OPS_TEST(fn_may_keep_and_drop_values),
        OPS_TEST(an_input_without_gradient_has_its_value_in_the_second_run));
}
