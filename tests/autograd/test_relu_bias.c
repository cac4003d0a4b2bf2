/* Layers of a product or convolution, a bias and relu: backward makes relu's gradient and the
 * bias's in one op where no other op reads the layer. kn_gradients, which makes them apart, is the
 * reference, bit for bit. */
#include "../ops/kernels_test.h"
#include "autograd_test.h"

typedef struct layer {
    kn_params *set;
    kn_tensor *x, *w, *b;
} layer;

typedef kn_tensor *(*net_fn)(const layer *l);

static void layer_open(layer *l, kn_dtype dtype, kn_shape x, kn_shape w) {
    kn_init any = kn_init_uniform(-1, 1);
    assert_ok(kn_params_create(&l->set, &(kn_params_options){.seed = 3, .dtype = dtype}));
    l->w = kn_param(l->set, w, any, "w");
    l->b = kn_param(l->set, KN_SHAPE(w.dim[0]), any, "b");
    l->x = random_tensor(dtype, x);
    assert_ok(kn_check());
}

static void backward_equals_gradients(const layer *l, net_fn net) {
    kn_tensor *dx[2], *params[] = {l->w, l->b};
    KN_TAPE();
    kn_tensor *loss = sum_all(net(l));
    assert_ok(kn_gradients(dx, loss, params, 2, &(kn_gradients_options){.keep = 1}));
    assert_ok(kn_backward(loss));
    assert_same_bits(kn_grad(l->w), dx[0]);
    assert_same_bits(kn_grad(l->b), dx[1]);
}

static void check(kn_shape x, kn_shape w, net_fn net) {
    FOR_BOTH_DTYPES(dtype) {
        KN_FRAME(.dtype = dtype);
        layer l;
        layer_open(&l, dtype, x, w);
        backward_equals_gradients(&l, net);
        kn_params_destroy(l.set);
    }
}

/* A gradient that differs from element to element. */
static kn_tensor *squares(kn_tensor *y) { return kn_mul(y, y); }

static kn_tensor *linear_relu(const layer *l) {
    return squares(kn_relu(kn_linear(l->x, l->w, l->b)));
}
static kn_tensor *conv_relu(const layer *l) {
    return squares(kn_relu(kn_conv(l->x, l->w, l->b, NULL)));
}

static void linear_layers_keep_their_bits(void **state) {
    (void)state;
    check(KN_SHAPE(5, 3), KN_SHAPE(4, 3), linear_relu);
    check(KN_SHAPE(7), KN_SHAPE(9, 7), linear_relu);
    check(KN_SHAPE(3, 5, 6), KN_SHAPE(11, 6), linear_relu);
    check(KN_SHAPE(700, 40), KN_SHAPE(130, 40), linear_relu);
}

static void convolutions_keep_their_bits(void **state) {
    (void)state;
    check(KN_SHAPE(3, 2, 9, 8), KN_SHAPE(5, 2, 3, 3), conv_relu);
    check(KN_SHAPE(2, 3, 40), KN_SHAPE(6, 3, 5), conv_relu);
    check(KN_SHAPE(16, 3, 28, 28), KN_SHAPE(20, 3, 5, 5), conv_relu);
}

static kn_tensor *read_twice(const layer *l) {
    kn_tensor *h = kn_linear(l->x, l->w, l->b);
    return kn_mul(kn_relu(h), kn_sigm(h));
}
static kn_tensor *two_relus(const layer *l) {
    kn_tensor *h = kn_linear(l->x, l->w, l->b);
    return kn_add(squares(kn_relu(h)), kn_relu(h));
}

static void a_layer_with_two_readers_sums_both_gradients(void **state) {
    (void)state;
    check(KN_SHAPE(6, 4), KN_SHAPE(5, 4), read_twice);
    check(KN_SHAPE(6, 4), KN_SHAPE(5, 4), two_relus);
}

static kn_tensor *twice_the_bias(const layer *l) {
    kn_tensor *h = kn_relu(kn_linear(l->x, l->w, l->b));
    return squares(kn_relu(kn_linear(h, l->w, l->b)));
}

static void a_bias_of_two_layers_gets_both_sums(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    layer l;
    layer_open(&l, KN_F64, KN_SHAPE(6, 4), KN_SHAPE(4, 4));
    kn_tensor *dx[2], *params[] = {l.w, l.b};
    {
        KN_TAPE();
        kn_tensor *loss = sum_all(twice_the_bias(&l));
        assert_ok(kn_gradients(dx, loss, params, 2, &(kn_gradients_options){.keep = 1}));
        assert_ok(kn_backward(loss));
        for (int i = 0; i < 4; i++)
            assert_close(ops_at(kn_grad(l.b), i), ops_at(dx[1], i), 1e-12, 0);
    }
    kn_params_destroy(l.set);
}

static void a_second_backward_adds(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    layer l;
    layer_open(&l, KN_F64, KN_SHAPE(6, 4), KN_SHAPE(5, 4));
    double once[5];
    for (int turn = 0; turn < 2; turn++) {
        KN_TAPE();
        assert_ok(kn_backward(sum_all(linear_relu(&l))));
        for (int i = 0; i < 5; i++) {
            if (turn)
                assert_close(ops_at(kn_grad(l.b), i), 2 * once[i], 1e-15, 0);
            else
                once[i] = ops_at(kn_grad(l.b), i);
        }
    }
    kn_params_destroy(l.set);
}

static kn_tensor *without_bias(const layer *l) {
    return squares(kn_relu(kn_add(kn_linear(l->x, l->w, KN_NONE), l->b)));
}
static kn_tensor *nothing(const layer *l) {
    return kn_relu(kn_linear(kn_slice(l->x, KN_SHAPE(0, 0), KN_SHAPE(0, 4)), l->w, l->b));
}

static void layers_without_a_bias_or_a_row_are_as_before(void **state) {
    (void)state;
    check(KN_SHAPE(6, 4), KN_SHAPE(5, 4), without_bias);
    check(KN_SHAPE(6, 4), KN_SHAPE(5, 4), nothing);
}

static kn_tensor *second_order(void *ctx, kn_tensor *const x[]) {
    (void)ctx;
    return sum_all(squares(kn_relu(kn_linear(x[0], x[1], x[2]))));
}

static void second_derivatives_are_those_of_the_layer(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    /* Products are at most 1, so no sum is near relu's kink. */
    kn_tensor *x[] = {random_scaled(KN_F64, KN_SHAPE(3, 4), 0.5),
                      random_scaled(KN_F64, KN_SHAPE(5, 4), 0.5),
                      F64(KN_SHAPE(5), 1.5, -1.5, 2, -2, 3)};
    assert_ok(kn_gradcheck(second_order, NULL, x, 3, 2, 1e-6, 1e-7));
}

/* Slices of gradients lie in the order of use: of a layer, the weight's comes first. */
static void weights_come_before_biases(void **state) {
    (void)state;
    KN_FRAME();
    layer l;
    layer_open(&l, KN_F32, KN_SHAPE(6, 4), KN_SHAPE(5, 4));
    {
        KN_TAPE();
        assert_ok(kn_backward(sum_all(linear_relu(&l))));
    }
    assert_true(kn_data(kn_grad(l.w)) < kn_data(kn_grad(l.b)));
    kn_params_destroy(l.set);
}

int main(void) {
    return RUN_TESTS(TEST(linear_layers_keep_their_bits), TEST(convolutions_keep_their_bits),
                     TEST(a_layer_with_two_readers_sums_both_gradients),
                     TEST(a_bias_of_two_layers_gets_both_sums), TEST(a_second_backward_adds),
                     TEST(layers_without_a_bias_or_a_row_are_as_before),
                     TEST(second_derivatives_are_those_of_the_layer),
                     TEST(weights_come_before_biases));
}
