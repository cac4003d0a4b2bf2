/* Recomputed parts that draw random numbers: backward draws those of forward again, of whichever
 * generator, and later numbers stay what they are. */
#include <knet/capture.h>

#include "autograd_test.h"

enum { WIDTH = 64, RNGS = 6 }; /* more than the first list of a part's generators */

typedef struct draws {
    kn_params *set;
    kn_tensor *w;
    kn_rng *rng[RNGS];
    kn_rng *named; /* for kn_recompute; NULL: none */
    bool recompute, nested;
} draws;

static void draws_open(draws *d) {
    *d = (draws){.set = params_f32()};
    d->w = kn_param(d->set, KN_SHAPE(WIDTH), kn_init_uniform(1, 2), "w");
    for (int i = 0; i < RNGS; i++) assert_ok(kn_rng_create(&d->rng[i], (uint64_t)i));
}

static void draws_close(draws *d) {
    kn_params_destroy(d->set);
    for (int i = 0; i < RNGS; i++) kn_rng_destroy(d->rng[i]);
}

/* One with two draws, which a part inside it draws from as well. */
static kn_tensor *inside(void *ctx, kn_tensor *const x[]) {
    draws *d = ctx;
    return kn_mul(kn_dropout(kn_exp(x[0]), 0.5, d->rng[1]),
                  kn_uniform(KN_SHAPE(WIDTH), 1, 2, d->rng[0]));
}

static kn_tensor *block(void *ctx, kn_tensor *const x[]) {
    draws *d = ctx;
    kn_tensor *y = kn_mul(kn_dropout(x[0], 0.25, d->rng[0]), d->w);
    y = d->nested ? kn_recompute(inside, d, &y, 1, d->named) : inside(d, &y);
    for (int i = 2; i < RNGS; i++) y = kn_mul(y, kn_normal(KN_SHAPE(WIDTH), 0, 1, d->rng[i]));
    return kn_dropout(y, 0.25, d->rng[0]);
}

/* The gradient of w by two blocks, and the generators' next numbers. */
static void step(float *out, draws *d, const kn_frame_options *options) {
    for (int i = 0; i < RNGS; i++) assert_ok(kn_rng_state_set(d->rng[i], (uint64_t)i, 8));
    KN_AT_EXIT(kn_frame_end, kn_frame) = kn_tape_begin(options);
    kn_params_grad_zero(d->set);
    kn_tensor *x = kn_ones(KN_SHAPE(WIDTH));
    for (int i = 0; i < 2; i++)
        x = d->recompute ? kn_recompute(block, d, &x, 1, d->named) : block(d, &x);
    x = kn_mul(x, kn_uniform(KN_SHAPE(WIDTH), 1, 2, d->rng[0])); /* between the two runs */
    assert_ok(kn_backward(sum_all(x)));
    assert_ok(kn_copy_out(out, WIDTH * sizeof *out, kn_grad(d->w)));
    for (int i = 0; i < RNGS; i++) {
        uint64_t seed, offset;
        assert_ok(kn_rng_state_get(&seed, &offset, d->rng[i]));
        assert_int_equal(seed, i);
        out[WIDTH + i] = (float)offset;
    }
}

static void gradients_have_the_masks_of_forward(void **state) {
    (void)state;
    const kn_frame_options options[] = {{0}, {.fuse = 1}, {.autocast = KN_BF16}};
    for (size_t o = 0; o < sizeof options / sizeof options[0]; o++) {
        draws d;
        draws_open(&d);
        float want[WIDTH + RNGS] = {0}, got[WIDTH + RNGS] = {0};
        step(want, &d, &options[o]);
        d.recompute = true;
        for (int i = 0; i < 4; i++) {
            d.nested = i & 1;
            d.named = i & 2 ? d.rng[1] : NULL; /* not the first that it draws from */
            step(got, &d, &options[o]);
            for (int k = 0; k < WIDTH + RNGS; k++) assert_true(got[k] == want[k]); /* 0 is -0 */
        }
        draws_close(&d);
    }
}

static kn_tensor *attends(void *ctx, kn_tensor *const x[]) {
    return kn_attention(x[0], x[0], x[0], &(kn_attention_options){.dropout = 0.5, .rng = ctx});
}

static void a_kept_tape_draws_them_each_time(void **state) {
    (void)state;
    kn_rng *rng = NULL;
    assert_ok(kn_rng_create(&rng, 3));
    float grad[3][WIDTH];
    for (int i = 0; i < 3; i++) {
        if (i < 2) assert_ok(kn_rng_state_set(rng, 3, 0));
        KN_TAPE();
        kn_tensor *x = kn_watch(kn_reshape(kn_linspace(0, 1, WIDTH), KN_SHAPE(1, 1, 8, 8)));
        kn_tensor *dx = NULL, *y = i ? kn_recompute(attends, rng, &x, 1, NULL) : attends(rng, &x);
        const kn_gradients_options keep = {.keep = 1};
        assert_ok(kn_gradients(&dx, y, &x, 1, &keep));
        assert_ok(kn_gradients(&dx, y, &x, 1, &keep));
        assert_ok(kn_copy_out(grad[i], sizeof grad[i], dx));
    }
    assert_memory_equal(grad[0], grad[1], sizeof grad[0]);
    assert_memory_not_equal(grad[0], grad[2], sizeof grad[0]); /* a later mask */
    kn_rng_destroy(rng);
}

/* The part outlives its generator, whose place another one may take. */
static kn_tensor *by_its_own(void *ctx, kn_tensor *const x[]) {
    (void)ctx;
    kn_rng *rng = NULL;
    if (kn_rng_create(&rng, 7) < 0) return NULL;
    kn_tensor *y = kn_dropout(kn_exp(x[0]), 0.5, rng);
    kn_rng_destroy(rng);
    return y;
}

static void fn_may_make_and_end_generators(void **state) {
    (void)state;
    float grad[2][WIDTH];
    for (int recompute = 0; recompute < 2; recompute++) {
        KN_TAPE();
        kn_tensor *x = kn_watch(kn_ones(KN_SHAPE(WIDTH))), *dx = NULL;
        kn_tensor *y =
            recompute ? kn_recompute(by_its_own, NULL, &x, 1, NULL) : by_its_own(NULL, &x);
        assert_ok(kn_gradients(&dx, y, &x, 1, NULL));
        assert_ok(kn_copy_out(grad[recompute], sizeof grad[0], dx));
    }
    assert_memory_equal(grad[0], grad[1], sizeof grad[0]);
}

/* --- captured steps --- */

typedef struct captured {
    kn_rng *rng, *named;
    bool draws;
} captured;

static kn_tensor *may_draw(void *ctx, kn_tensor *const x[]) {
    captured *c = ctx;
    kn_tensor *y = kn_exp(x[0]);
    return c->draws ? kn_dropout(y, 0.5, c->rng) : y;
}

static kn_status captured_step(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    captured *c = ctx;
    KN_TAPE();
    kn_tensor *x = kn_watch(in[0]);
    kn_tensor *y = kn_recompute(may_draw, c, &x, 1, c->named);
    KN_TRY(kn_gradients(out, y, &x, 1, NULL));
    kn_keep(out[0]);
    return kn_check();
}

static void a_captured_part_draws_nothing(void **state) {
    (void)state;
    captured c = {NULL};
    assert_ok(kn_rng_create(&c.rng, 1));
    for (int i = 0; i < 4; i++) {
        kn_capture *capture = NULL;
        assert_ok(kn_capture_create(&capture, NULL));
        c.draws = i & 1;
        c.named = i & 2 ? c.rng : NULL;
        kn_status status = KN_OK;
        for (int run = 0; run < 3 && status == KN_OK; run++) {
            KN_FRAME();
            kn_tensor *x = kn_zeros(KN_SHAPE(2)), *dx = NULL;
            status = kn_capture_run(&dx, 1, capture, &x, 1, captured_step, &c);
            if (status == KN_OK && !c.draws) assert_values(dx, 1, 1);
        }
        if (c.draws)
            assert_fails(status, KN_ERR_UNSUPPORTED, "kn_recompute: a part that draws from a");
        else
            assert_ok(status);
        kn_capture_destroy(capture);
    }
    kn_rng_destroy(c.rng);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(gradients_have_the_masks_of_forward), OPS_TEST(a_kept_tape_draws_them_each_time),
        OPS_TEST(fn_may_make_and_end_generators), OPS_TEST(a_captured_part_draws_nothing));
}
