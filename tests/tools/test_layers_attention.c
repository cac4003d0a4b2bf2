/* Layers of attention: masks, a memory, keys of earlier calls, dropout, rotary positions. */
#include <knet/tape.h>
#include <math.h>

#include "layer_fixture.h"

enum { B = 2, T = 5, S = 7, WIDTH = 12, HEADS = 3, HEAD = 4, MEMORY = 6 };

static void assert_near(kn_tensor *a, kn_tensor *b) {
    assert_ok(kn_check());
    assert_int_equal(kn_tensor_numel(a), kn_tensor_numel(b));
    const float *x = kn_data(a), *y = kn_data(b);
    for (int64_t i = 0; i < kn_tensor_numel(a); i++) assert_close(x[i], y[i], 0, 1e-5);
}

/* Steps from … to - 1 of x [B,T,N]. */
static kn_tensor *steps(kn_tensor *x, int64_t from, int64_t to) {
    kn_shape s = kn_tensor_shape(x);
    return kn_slice(x, KN_SHAPE(0, from, 0), KN_SHAPE(s.dim[0], to, s.dim[2]));
}

/* softmax(q·kᵀ/√D + added)·v of one head at a time, in plain ops; added [B,T,S]. */
static kn_tensor *plain(kn_layer *layer, kn_tensor *x, kn_tensor *memory, kn_tensor *added) {
    kn_tensor *q = kn_layer_forward(kn_layer_find(layer, "q"), x), *y[HEADS];
    kn_tensor *kv = kn_layer_forward(kn_layer_find(layer, "kv"), memory);
    for (int64_t h = 0; h < HEADS; h++) {
        int64_t at = h * HEAD, n = kn_tensor_shape(kv).dim[1];
        kn_tensor *k = kn_slice(kv, KN_SHAPE(0, 0, at), KN_SHAPE(B, n, at + HEAD));
        kn_tensor *v = kn_slice(kv, KN_SHAPE(0, 0, WIDTH + at), KN_SHAPE(B, n, WIDTH + at + HEAD));
        kn_tensor *part = kn_slice(q, KN_SHAPE(0, 0, at), KN_SHAPE(B, T, at + HEAD));
        kn_tensor *score =
            kn_affine(kn_matmul(part, k, &(kn_matmul_options){.trans_b = 1}), 0.5, 0);
        y[h] = kn_matmul(kn_softmax(added ? kn_add(score, added) : score, 2), v, NULL);
    }
    return kn_layer_forward(kn_layer_find(layer, "out"), kn_concat(y, HEADS, 2));
}

static void keys_of_a_memory_and_masks_are_plain_attention(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, KN_F32);
    kn_layer *cross = kn_layer_attention(f.net, "cross", WIDTH, HEADS,
                                         &(kn_layer_attention_options){.memory_width = MEMORY});
    assert_ok(kn_check());
    assert_int_equal(kn_layer_numel(cross), 2 * (WIDTH * WIDTH + WIDTH) + (MEMORY + 1) * 2 * WIDTH);
    KN_FRAME();
    kn_tensor *x = kn_normal(KN_SHAPE(B, T, WIDTH), 0, 1, f.rng);
    kn_tensor *m = kn_normal(KN_SHAPE(B, S, MEMORY), 0, 1, f.rng);
    kn_layer_attention_inputs in = {.memory = m};
    assert_near(kn_layer_attention_forward(cross, x, &in), plain(cross, x, m, NULL));
    in.mask = kn_normal(KN_SHAPE(B, 1, T, S), 0, 2, f.rng);
    assert_near(kn_layer_attention_forward(cross, x, &in),
                plain(cross, x, m, kn_reshape(in.mask, KN_SHAPE(B, T, S))));
    /* the memory's last steps are padding */
    kn_tensor *places = kn_arange(0, S, 1, KN_F32);
    in.mask = kn_lt(places, kn_full(KN_SCALAR, 4));
    kn_tensor *y = kn_layer_attention_forward(cross, x, &in);
    assert_near(y, plain(cross, x, steps(m, 0, 4), NULL));
    fixture_release(&f);
}

/* Step by step, with the keys of the steps before, as all at once; S steps, two at a time. */
static void check_steps(const kn_layer_attention_options *o) {
    fixture f;
    fixture_init(&f, KN_F32);
    kn_layer *layer = kn_layer_attention(f.net, "self", WIDTH, HEADS, o);
    assert_ok(kn_check());
    KN_FRAME();
    kn_tensor *x = kn_normal(KN_SHAPE(B, S, WIDTH), 0, 1, f.rng), *k = NULL, *v = NULL;
    kn_tensor *m = o->memory_width ? kn_normal(KN_SHAPE(B, T, MEMORY), 0, 1, f.rng) : NULL;
    kn_layer_attention_inputs in = {.memory = m};
    kn_tensor *whole = kn_layer_attention_forward(layer, x, &in);
    in.keys = &k;
    in.values = &v;
    for (int64_t t = 0; t < S; t += 2) {
        int64_t end = t + 2 < S ? t + 2 : S;
        assert_near(kn_layer_attention_forward(layer, steps(x, t, end), &in), steps(whole, t, end));
        assert_int_equal(kn_tensor_shape(k).dim[2], m ? T : end);
        assert_int_equal(kn_tensor_shape(v).dim[1], o->kv_heads ? o->kv_heads : HEADS);
        if (m && t == 0) { /* the first call has read it */
            assert_null(kn_layer_attention_forward(layer, x, &in));
            assert_fails(kn_check(), KN_ERR_INVALID, "self: memory is given, and keys of an ");
        }
        in.memory = NULL;
    }
    fixture_release(&f);
}

static void steps_with_earlier_keys_are_the_whole(void **state) {
    (void)state;
    check_steps(&(kn_layer_attention_options){.causal = 1});
    check_steps(&(kn_layer_attention_options){.causal = 1, .kv_heads = 1, .rotary_base = 10000});
    check_steps(&(kn_layer_attention_options){.memory_width = MEMORY});
}

/* As those of layers without positions. */
static void cached_keys_have_16_bits_with_autocast(void **state) {
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        fixture f;
        fixture_init(&f, KN_F32);
        kn_layer *layer = kn_layer_attention(
            f.net, "a", WIDTH, HEADS,
            &(kn_layer_attention_options){.causal = 1, .rotary_base = turned ? 10000 : 0});
        assert_ok(kn_check());
        KN_FRAME(.autocast = KN_BF16);
        kn_tensor *x = kn_ones(KN_SHAPE(B, 1, WIDTH)), *k = NULL, *v = NULL;
        for (int i = 0; i < 2; i++) {
            assert_non_null(kn_layer_attention_forward(
                layer, x, &(kn_layer_attention_inputs){.keys = &k, .values = &v}));
            assert_int_equal(kn_tensor_dtype(k), KN_BF16);
            assert_int_equal(kn_tensor_dtype(v), KN_BF16);
        }
        fixture_release(&f);
    }
}

static void rotary_layers_see_distances_alone(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, KN_F32);
    kn_layer *turned = kn_layer_attention(
        f.net, "turned", WIDTH, HEADS,
        &(kn_layer_attention_options){.causal = 1, .rotary_base = 100, .no_bias = 1});
    assert_ok(kn_check());
    KN_FRAME();
    kn_tensor *x = kn_normal(KN_SHAPE(B, T, WIDTH), 0, 1, f.rng), *k = NULL, *v = NULL;
    kn_tensor *plain_y = kn_layer_forward(turned, x);
    /* behind steps that the mask hides, all distances are the same */
    kn_layer_attention_inputs in = {.keys = &k, .values = &v};
    (void)kn_layer_attention_forward(turned, kn_normal(KN_SHAPE(B, 3, WIDTH), 0, 1, f.rng), &in);
    in.mask = kn_ge(kn_arange(0, T + 3, 1, KN_F32), kn_full(KN_SCALAR, 3));
    assert_near(kn_layer_attention_forward(turned, x, &in), plain_y);
    /* and places matter: the steps the other way round give other results */
    float one = 0, other = 0;
    kn_tensor *back = kn_layer_forward(turned, kn_flip(x, KN_SHAPE(1)));
    one = ((const float *)kn_data(steps(plain_y, T - 1, T)))[0];
    other = ((const float *)kn_data(steps(back, T - 1, T)))[0];
    assert_true(fabsf(one - other) > 1e-4F);
    fixture_release(&f);
}

static void dropout_is_of_training_alone(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, KN_F32);
    kn_layer *layer = kn_layer_attention(f.net, "self", WIDTH, HEADS,
                                         &(kn_layer_attention_options){.dropout = 0.5});
    assert_ok(kn_check());
    KN_FRAME();
    kn_tensor *x = kn_normal(KN_SHAPE(B, T, WIDTH), 0, 1, f.rng);
    kn_tensor *plain_y = kn_layer_forward(layer, x), *again = kn_layer_forward(layer, x);
    assert_near(plain_y, again);
    kn_layer_mode_set(layer, KN_LAYER_TRAIN);
    kn_tensor *a = kn_layer_forward(layer, x), *b = kn_layer_forward(layer, x);
    double ab = 0, ay = 0;
    assert_ok(kn_item(&ab, kn_max_abs(kn_sub(a, b), KN_ALL, false)));
    assert_ok(kn_item(&ay, kn_max_abs(kn_sub(a, plain_y), KN_ALL, false)));
    assert_true(ab > 1e-3 && ay > 1e-3);
    fixture_release(&f);
}

/* The gradient of Σ y·u by x, with the first three steps of x apart from the last one or not. */
static kn_tensor *gradient(kn_layer *layer, kn_tensor *x, kn_tensor *u, bool apart) {
    KN_TAPE();
    kn_tensor *k = NULL, *v = NULL, *y, *dx = NULL;
    kn_layer_attention_inputs in = {.keys = &k, .values = &v};
    x = kn_watch(x);
    if (apart) {
        kn_tensor *first = kn_layer_attention_forward(layer, steps(x, 0, 3), &in);
        kn_tensor *last = kn_layer_attention_forward(layer, steps(x, 3, 4), &in);
        y = kn_concat((kn_tensor *const[]){first, last}, 2, 1);
    } else {
        y = kn_layer_forward(layer, x);
    }
    assert_ok(kn_gradients(&dx, kn_sum(kn_mul(y, u), KN_ALL, false), &x, 1, NULL));
    return kn_keep(dx);
}

static void gradients_flow_through_earlier_keys(void **state) {
    (void)state;
    for (int recomputes = 0; recomputes < 2; recomputes++) {
        fixture f;
        fixture_init(&f, KN_F32);
        kn_layer *layer = kn_layer_attention(f.net, "self", WIDTH, HEADS,
                                             &(kn_layer_attention_options){.causal = 1});
        assert_ok(kn_check());
        kn_layer_recompute_set(layer, recomputes);
        KN_FRAME();
        kn_tensor *x = kn_normal(KN_SHAPE(B, 4, WIDTH), 0, 1, f.rng);
        kn_tensor *u = kn_normal(KN_SHAPE(B, 4, WIDTH), 0, 1, f.rng);
        assert_near(gradient(layer, x, u, true), gradient(layer, x, u, false));
        fixture_release(&f);
    }
}

static void assert_refused(kn_layer *layer, kn_tensor *x, kn_layer_attention_inputs in,
                           const char *message) {
    assert_null(kn_layer_attention_forward(layer, x, &in));
    assert_fails(kn_check(), KN_ERR_INVALID, message);
}

/* Keys and values of earlier calls that can't be. */
static void check_earlier(kn_layer *self, kn_tensor *x) {
    kn_tensor *k = NULL, *v = NULL;
    const char *each = "self: keys and values need a variable each";
    assert_refused(self, x, (kn_layer_attention_inputs){.keys = &k}, each);
    assert_refused(self, x, (kn_layer_attention_inputs){.keys = &k, .values = &k}, each);
    v = x;
    assert_refused(self, x, (kn_layer_attention_inputs){.keys = &k, .values = &v}, each);
    k = x;
    assert_refused(self, x, (kn_layer_attention_inputs){.keys = &k, .values = &v},
                   "self: keys are not those of an earlier call");
    k = kn_ones(KN_SHAPE(B, HEADS, 3, HEAD));
    v = kn_ones(KN_SHAPE(B, HEADS, 2, HEAD));
    assert_refused(self, x, (kn_layer_attention_inputs){.keys = &k, .values = &v},
                   "self: values are not those of an earlier call");
}

/* Of a layer with HEADS heads, in a batch of B. */
static void check_earlier_of_others(kn_layer *self, kn_tensor *x) {
    const kn_shape shapes[] = {KN_SHAPE(B, 2 * HEADS, 3, HEAD), KN_SHAPE(B + 1, HEADS, 3, HEAD),
                               KN_SHAPE(B, HEADS, 3, HEAD + 1), KN_SHAPE(B, HEADS, 3, HEAD)};
    char text[128];
    for (int i = 0; i < 4; i++) {
        kn_tensor *k = kn_cast(kn_ones(shapes[i]), i == 3 ? KN_F64 : KN_F32);
        kn_tensor *right = kn_ones(KN_SHAPE(B, HEADS, 3, HEAD)), *v = right;
        assert_null(kn_layer_attention_forward(
            self, x, &(kn_layer_attention_inputs){.keys = &k, .values = &v}));
        snprintf(text, sizeof text,
                 "self: keys are %s [%d,%d,3,%d]; the layer's are f32 [%d,%d,3,%d]",
                 i == 3 ? "f64" : "f32", (int)shapes[i].dim[0], (int)shapes[i].dim[1],
                 (int)shapes[i].dim[3], B, HEADS, HEAD);
        assert_fails(kn_check(), i == 3 ? KN_ERR_DTYPE : KN_ERR_SHAPE, text);
        v = k;
        k = right;
        assert_null(kn_layer_attention_forward(
            self, x, &(kn_layer_attention_inputs){.keys = &k, .values = &v}));
        assert_fails(kn_check(), i == 3 ? KN_ERR_DTYPE : KN_ERR_SHAPE, "self: values are f");
    }
}

static void wrong_inputs_are_errors(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, KN_F32);
    kn_layer *self = kn_layer_attention(f.net, "self", WIDTH, HEADS, NULL);
    kn_layer *cross = kn_layer_attention(f.net, "cross", WIDTH, HEADS,
                                         &(kn_layer_attention_options){.memory_width = MEMORY});
    kn_layer *flat = kn_layer_flatten(f.net, "flat");
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(B, T, WIDTH)), *m = kn_ones(KN_SHAPE(B, S, MEMORY));
    assert_ok(kn_check());
    assert_null(kn_layer_forward(cross, x));
    assert_fails(kn_check(), KN_ERR_INVALID, "cross: memory is NULL, of which keys come");
    assert_refused(self, x, (kn_layer_attention_inputs){.memory = m},
                   "self: memory is given, but the layer has no memory_width");
    assert_null(kn_layer_attention_forward(
        cross, x, &(kn_layer_attention_inputs){.memory = kn_ones(KN_SHAPE(S, MEMORY))}));
    assert_fails(kn_check(), KN_ERR_SHAPE, "cross: memory is not [batch,time,memory_width]");
    check_earlier(self, x);
    check_earlier_of_others(self, x);
    kn_tensor *gone = NULL;
    {
        KN_FRAME();
        gone = kn_ones(KN_SHAPE(B, S, MEMORY));
    }
    assert_refused(cross, x, (kn_layer_attention_inputs){.memory = gone},
                   "has ended with its frame");
    assert_refused(cross, x, (kn_layer_attention_inputs){.memory = m, .mask = gone},
                   "cross: mask has ended with its frame");
    assert_refused(self, x, (kn_layer_attention_inputs){.reserved = {0, 0, 0, 1}},
                   "a reserved input is not zero");
    kn_tensor *k = NULL, *v = NULL; /* a call that fails sets neither */
    assert_null(kn_layer_attention_forward(
        self, x, &(kn_layer_attention_inputs){.mask = m, .keys = &k, .values = &v}));
    assert_fails(kn_check(), KN_ERR_SHAPE, "self: kn_attention: ");
    assert_true(!k && !v);
    kn_tensor *integers = kn_cast(kn_zeros(KN_SHAPE(T, T)), KN_I64);
    assert_null(
        kn_layer_attention_forward(self, x, &(kn_layer_attention_inputs){.mask = integers}));
    assert_fails(kn_check(), KN_ERR_DTYPE, "self: kn_attention: mask is i64; it must be bool");
    assert_null(kn_layer_attention_forward(flat, x, NULL));
    assert_fails(kn_check(), KN_ERR_INVALID, "flat is not a kn_layer_attention");
    assert_null(kn_layer_attention_forward(f.net, x, NULL));
    assert_fails(kn_check(), KN_ERR_INVALID, "the root is not a kn_layer_attention");
    fixture_release(&f);
}

static void assert_not_made(kn_layer *net, kn_layer_attention_options o, kn_status status,
                            const char *message) {
    assert_null(kn_layer_attention(net, "wrong", WIDTH, 4, &o));
    assert_fails(kn_check(), status, message);
}

static void wrong_options_are_errors(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, KN_F32);
    assert_not_made(f.net, (kn_layer_attention_options){.dropout = 1}, KN_ERR_INVALID,
                    "wrong: dropout is 1; expected 0 to below 1");
    assert_not_made(f.net, (kn_layer_attention_options){.dropout = (double)NAN}, KN_ERR_INVALID,
                    "dropout is nan");
    assert_not_made(f.net, (kn_layer_attention_options){.rotary_base = -1}, KN_ERR_INVALID,
                    "rotary_base is -1; expected 0 or more");
    assert_not_made(f.net, (kn_layer_attention_options){.rotary_base = 10}, KN_ERR_SHAPE,
                    "heads have 3 elements, an odd number");
    assert_not_made(f.net, (kn_layer_attention_options){.rotary_base = 10, .memory_width = 2},
                    KN_ERR_INVALID, "places in the memory are not those of x");
    assert_not_made(f.net, (kn_layer_attention_options){.causal = 1, .memory_width = 2},
                    KN_ERR_INVALID, "causal, but places in the memory are not those of x");
    assert_not_made(f.net, (kn_layer_attention_options){.memory_width = -2}, KN_ERR_SHAPE,
                    "memory_width is -2");
    assert_not_made(f.net, (kn_layer_attention_options){.reserved = {1}}, KN_ERR_INVALID,
                    "a reserved option is not zero");
    assert_int_equal(kn_params_count(f.params), 0);
    fixture_release(&f);
}

int main(void) {
    return RUN_TESTS(TEST(keys_of_a_memory_and_masks_are_plain_attention),
                     TEST(steps_with_earlier_keys_are_the_whole),
                     TEST(cached_keys_have_16_bits_with_autocast),
                     TEST(rotary_layers_see_distances_alone), TEST(dropout_is_of_training_alone),
                     TEST(gradients_flow_through_earlier_keys), TEST(wrong_inputs_are_errors),
                     TEST(wrong_options_are_errors));
}
