/* Work that runs inside layers: sums of residual layers, activations. KNET_TIMER=1. */
#include <knet/prof_read.h>
#include <knet/tape.h>
#include <string.h>

#include "layer_fixture.h"

typedef struct count {
    const char *op;
    int n;
} count;

static bool see(void *ctx, const kn_prof_row *row) {
    count *c = ctx;
    if (strcmp(row->path, c->op) == 0) c->n += (int)row->n_calls;
    return true;
}

/* layer(x), and how often the op ran by itself. */
static kn_tensor *counted(int *n, const char *op, kn_layer *layer, kn_tensor *x) {
    count c = {op, 0};
    assert_ok(kn_prof_reset());
    kn_tensor *y = kn_layer_forward(layer, x);
    assert_non_null(y);
    assert_ok(kn_prof_visit_flat(see, &c));
    *n = c.n;
    return y;
}

static kn_layer *with_linear(kn_layer *net, const char *name, int64_t n_out,
                             const kn_layer_linear_options *o) {
    kn_layer *sum = kn_layer_residual(net, name);
    kn_layer_linear(sum, "fc1", 6, 5, &(kn_layer_linear_options){.act = kn_silu});
    kn_layer_linear(sum, "fc2", 5, n_out, o);
    assert_ok(kn_check());
    return sum;
}

/* As by layers and sums in turn. */
static kn_tensor *in_turn(kn_layer *sum, kn_tensor *x) {
    kn_tensor *y = kn_layer_forward(kn_layer_find(sum, "fc1"), x);
    return kn_add(x, kn_layer_forward(kn_layer_find(sum, "fc2"), y));
}

static void a_linear_layer_takes_the_sum_along(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, KN_F32);
    kn_layer *sum = with_linear(f.net, "sum", 6, NULL);
    for (int recorded = 0; recorded < 2; recorded++) {
        KN_TAPE();
        KN_FRAME(.record = recorded ? 0 : KN_OFF);
        int n_adds;
        kn_tensor *x = kn_watch(kn_normal(KN_SHAPE(3, 4, 6), 0, 1, f.rng));
        kn_tensor *y = counted(&n_adds, "add", sum, x), *want = in_turn(sum, x);
        assert_int_equal(n_adds, 0);
        assert_equal_tensors(y, want);
    }
    fixture_release(&f);
}

static void gradients_are_those_of_the_sum(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, KN_F32);
    kn_layer *sum = with_linear(f.net, "sum", 6, NULL), *fc2 = kn_layer_find(sum, "fc2");
    KN_FRAME(.record = KN_OFF);
    kn_tensor *values = kn_normal(KN_SHAPE(7, 6), 0, 1, f.rng), *dx[2][3];
    for (int way = 0; way < 2; way++) {
        KN_TAPE();
        kn_tensor *x = kn_watch(kn_affine(values, 1, 0));
        kn_tensor *of[] = {x, kn_layer_param(fc2, "weight"), kn_layer_param(fc2, "bias")};
        kn_tensor *y = way ? in_turn(sum, x) : kn_layer_forward(sum, x);
        assert_ok(kn_gradients(dx[way], y, of, 3, &(kn_gradients_options){.dy = values}));
        for (int i = 0; i < 3; i++) kn_keep(dx[way][i]);
    }
    for (int i = 0; i < 3; i++) assert_equal_tensors(dx[0][i], dx[1][i]);
    fixture_release(&f);
}

static void attention_takes_the_sum_along(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, KN_F32);
    kn_layer *sum = kn_layer_residual(f.net, "sum");
    kn_layer *attention = kn_layer_attention(sum, "attention", 8, 2, NULL);
    assert_ok(kn_check());
    KN_FRAME(.record = KN_OFF);
    int n_adds;
    kn_tensor *x = kn_normal(KN_SHAPE(2, 5, 8), 0, 1, f.rng);
    kn_tensor *y = counted(&n_adds, "add", sum, x);
    assert_int_equal(n_adds, 0);
    assert_equal_tensors(y, kn_add(x, kn_layer_forward(attention, x)));
    fixture_release(&f);
}

/* A result that is broadcast, an activation, a shortcut of another width than x. */
static void other_sums_stay_ops_of_their_own(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, KN_F32);
    kn_layer *thin = with_linear(f.net, "thin", 1, NULL);
    kn_layer *acts = with_linear(f.net, "acts", 6, &(kn_layer_linear_options){.act = kn_tanh});
    kn_layer *own = with_linear(f.net, "own", 6, &(kn_layer_linear_options){.act = kn_mish});
    kn_layer *again = with_linear(f.net, "again", 6, NULL);
    kn_layer_recompute_set(kn_layer_find(again, "fc2"), true);
    kn_layer *const sums[] = {thin, acts, own, again};
    KN_TAPE();
    for (int i = 0; i < 4; i++) {
        int n_adds;
        kn_tensor *x = kn_watch(kn_normal(KN_SHAPE(3, 6), 0, 1, f.rng));
        kn_tensor *y = counted(&n_adds, "add", sums[i], x);
        assert_int_equal(n_adds, 1);
        assert_equal_tensors(y, in_turn(sums[i], x));
    }
    fixture_release(&f);
}

/* The residual would be rounded to the product's 16 bits; a residual of those is not. */
static void mixed_precision_keeps_sums_of_f32(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, KN_F32);
    kn_layer *sum = with_linear(f.net, "sum", 6, NULL);
    KN_FRAME(.record = KN_OFF, .autocast = KN_BF16);
    kn_tensor *x = kn_normal(KN_SHAPE(3, 6), 0, 1, f.rng), *y;
    int n_adds;
    y = counted(&n_adds, "add", sum, x);
    assert_int_equal(n_adds, 1);
    assert_int_equal(kn_tensor_dtype(y), KN_F32);
    assert_equal_tensors(y, in_turn(sum, x));
    y = counted(&n_adds, "add", sum, kn_cast(x, KN_BF16));
    assert_int_equal(n_adds, 0);
    assert_int_equal(kn_tensor_dtype(y), KN_BF16);
    fixture_release(&f);
}

static void known_activations_run_inside_layers(void **state) {
    (void)state;
    static const kn_layer_act_fn acts[] = {(kn_relu), (kn_gelu), (kn_silu),     (kn_gelu_tanh),
                                           (kn_sigm), (kn_tanh), (kn_hardswish)};
    static const char *const names[] = {"relu", "gelu", "silu",     "gelu_tanh",
                                        "sigm", "tanh", "hardswish"};
    for (int i = 0; i < 7; i++) {
        fixture f;
        fixture_init(&f, KN_F32);
        kn_layer *fc =
            kn_layer_linear(f.net, "fc", 4, 3, &(kn_layer_linear_options){.act = acts[i]});
        kn_layer *conv = kn_layer_conv(f.net, "conv", 2, 3, KN_SHAPE(3, 3),
                                       &(kn_layer_conv_options){.act = acts[i]});
        KN_FRAME(.record = KN_OFF);
        kn_tensor *x = kn_normal(KN_SHAPE(5, 4), 0, 1, f.rng),
                  *image = kn_normal(KN_SHAPE(2, 2, 6, 6), 0, 1, f.rng);
        kn_tensor *w = kn_layer_param(fc, "weight"), *b = kn_layer_param(fc, "bias");
        int n;
        assert_equal_tensors(counted(&n, names[i], fc, x), acts[i](kn_linear(x, w, b)));
        assert_int_equal(n, 0);
        w = kn_layer_param(conv, "weight"), b = kn_layer_param(conv, "bias");
        assert_equal_tensors(counted(&n, names[i], conv, image),
                             acts[i](kn_conv(image, w, b, NULL)));
        assert_int_equal(n, 0);
        fixture_release(&f);
    }
}

int main(void) {
    return RUN_TESTS(TEST(a_linear_layer_takes_the_sum_along), TEST(gradients_are_those_of_the_sum),
                     TEST(attention_takes_the_sum_along), TEST(other_sums_stay_ops_of_their_own),
                     TEST(mixed_precision_keeps_sums_of_f32),
                     TEST(known_activations_run_inside_layers));
}
