/* Recurrent networks on the host: against PyTorch, against the same network made of small ops, with
 * any number of threads, and with arguments that don't fit. */
#include "golden/recurrent.h"
#include "kernels_test.h"
#include "philox.h"

/* --- golden --- */

enum { T = 3, B = 2, I = 3, H = 2, L = 2 };

/* What recurrent.py's made() makes. */
static kn_tensor *made(int seed, kn_shape shape) {
    double x[256];
    int n = 1;
    for (int d = 0; d < shape.n_dims; d++) n *= (int)shape.dim[d];
    assert_true(n <= 256);
    for (int i = 0; i < n; i++) x[i] = (i * 7 + seed * 5) % 23 / 16.0 - 0.6875;
    return from_doubles(x, KN_F64, shape);
}

static int compare(kn_tensor *t, const double *want, double most) {
    int n = (int)kn_tensor_numel(t);
    for (int i = 0; i < n; i++) assert_close(ops_at(t, i), want[i], most, most);
    return n;
}

static void check_golden(kn_dtype dtype, kn_rnn_options o, const double *want, int n_want) {
    int64_t parts = L * (o.bidirectional ? 2 : 1);
    KN_FRAME();
    o.hidden = H, o.layers = L;
    kn_tensor *h = NULL, *c = NULL, *x = kn_cast(made(1, KN_SHAPE(T, B, I)), dtype);
    int64_t params = kn_rnn_params(I, &o);
    kn_tensor *w = kn_cast(made(3, KN_SHAPE(params)), dtype);
    o.h0 = kn_cast(made(4, KN_SHAPE(parts, B, H)), dtype), o.h_n = &h;
    if (o.mode == KN_RNN_LSTM) o.c0 = kn_cast(made(5, KN_SHAPE(parts, B, H)), dtype), o.c_n = &c;
    kn_tensor *y = kn_rnn(x, w, &o);
    if (!y) print_error("%s\n", kn_last_error()->message);
    assert_non_null(y);
    double most = dtype == KN_F64 ? 1e-9 : 2e-6;
    int at = compare(y, want, most);
    at += compare(h, want + at, most);
    if (c) at += compare(c, want + at, most);
    at += T * B * I + (int)params + (c ? 2 : 1) * (int)parts * B * H; /* test_rules has gradients */
    assert_int_equal(at, n_want);
}

#define GOLDEN(dtype, kind, mode_, both, which, ...)                                               \
    check_golden(dtype, (kn_rnn_options){.mode = mode_, .bidirectional = both, __VA_ARGS__},       \
                 golden_##kind##_##both##_##which,                                                 \
                 (int)(sizeof golden_##kind##_##both##_##which / sizeof(double)))
#define GOLDENS(dtype, kind, mode_)                                                                \
    GOLDEN(dtype, kind, mode_, 0, whole, .lengths = NULL);                                         \
    GOLDEN(dtype, kind, mode_, 1, whole, .lengths = NULL);                                         \
    GOLDEN(dtype, kind, mode_, 0, packed, .lengths = lengths);                                     \
    GOLDEN(dtype, kind, mode_, 1, packed, .lengths = lengths)

static void networks_equal_those_of_pytorch(void **state) {
    (void)state;
    static const int64_t lengths[] = {2, 3};
    FOR_BOTH_DTYPES(dtype) {
        GOLDENS(dtype, lstm, KN_RNN_LSTM);
        GOLDENS(dtype, gru, KN_RNN_GRU);
        GOLDENS(dtype, tanh, KN_RNN_TANH);
        GOLDENS(dtype, relu, KN_RNN_RELU);
    }
}

/* --- the same of small ops --- */

typedef struct cell { /* of one layer and direction */
    kn_tensor *w, *r, *b, *c;
} cell;

/* n elements of an axis. */
static kn_tensor *range(kn_tensor *t, int axis, int64_t first, int64_t n) {
    kn_shape start = kn_tensor_shape(t), stop = start;
    for (int d = 0; d < start.n_dims; d++) start.dim[d] = 0;
    start.dim[axis] = first, stop.dim[axis] = first + n;
    return kn_slice(t, start, stop);
}

static kn_tensor *gate_of(kn_tensor *t, int64_t gate, int64_t hidden) {
    return range(t, 1, gate * hidden, hidden);
}

static void small_step(const kn_rnn_options *o, const cell *k, kn_tensor *x, kn_tensor **h,
                       kn_tensor **c) {
    int64_t n = o->hidden;
    kn_tensor *a = kn_linear(x, k->w, k->b), *s = kn_linear(*h, k->r, k->c);
    if (o->mode == KN_RNN_GRU) {
        kn_tensor *r = kn_sigm(kn_add(gate_of(a, 0, n), gate_of(s, 0, n)));
        kn_tensor *z = kn_sigm(kn_add(gate_of(a, 1, n), gate_of(s, 1, n)));
        kn_tensor *m = kn_tanh(kn_add(gate_of(a, 2, n), kn_mul(r, gate_of(s, 2, n))));
        *h = kn_add(kn_mul(kn_affine(z, -1, 1), m), kn_mul(z, *h));
        return;
    }
    a = kn_add(a, s);
    if (o->mode == KN_RNN_LSTM) {
        kn_tensor *i = kn_sigm(gate_of(a, 0, n)), *f = kn_sigm(gate_of(a, 1, n));
        kn_tensor *g = kn_tanh(gate_of(a, 2, n)), *p = kn_sigm(gate_of(a, 3, n));
        *c = kn_add(kn_mul(f, *c), kn_mul(i, g));
        *h = kn_mul(p, kn_tanh(*c));
    } else {
        *h = o->mode == KN_RNN_TANH ? kn_tanh(a) : kn_relu(a);
    }
}

static cell cell_of(kn_tensor *w, int64_t inputs, const kn_rnn_options *o, int64_t l, int d) {
    return (cell){kn_rnn_param(w, inputs, o, l, d, -1, KN_RNN_INPUT_WEIGHT),
                  kn_rnn_param(w, inputs, o, l, d, -1, KN_RNN_HIDDEN_WEIGHT),
                  kn_rnn_param(w, inputs, o, l, d, -1, KN_RNN_INPUT_BIAS),
                  kn_rnn_param(w, inputs, o, l, d, -1, KN_RNN_HIDDEN_BIAS)};
}

/* One sequence of x [T,1,I] through all layers. */
static kn_tensor *small_network(kn_tensor *x, kn_tensor *w, const kn_rnn_options *o) {
    int64_t steps = kn_tensor_shape(x).dim[0], inputs = kn_tensor_shape(x).dim[2];
    int n_d = o->bidirectional ? 2 : 1;
    for (int64_t l = 0; l < o->layers; l++) {
        kn_tensor *both[2];
        for (int d = 0; d < n_d; d++) {
            kn_tensor *h = kn_cast(kn_zeros(KN_SHAPE(1, o->hidden)), kn_tensor_dtype(x)), *c = h;
            kn_tensor *y[16];
            cell k = cell_of(w, inputs, o, l, d);
            for (int64_t s = 0; s < steps; s++) {
                int64_t t = d ? steps - 1 - s : s;
                small_step(o, &k, kn_select(x, t, 0), &h, &c);
                y[t] = h;
            }
            both[d] = kn_stack(y, (int)steps, 0);
        }
        x = n_d == 2 ? kn_concat(both, 2, 2) : both[0];
    }
    return x;
}

/* Each sequence alone, of its own length, against all in one call; y is 0 beyond the lengths. */
static void check_small(kn_dtype dtype, kn_rnn_options o, int64_t steps, int64_t batch,
                        int64_t inputs) {
    KN_FRAME();
    kn_tensor *x = random_tensor(dtype, KN_SHAPE(steps, batch, inputs));
    kn_tensor *w = random_scaled(dtype, KN_SHAPE(kn_rnn_params(inputs, &o)), 0.3);
    kn_tensor *y = kn_rnn(x, w, &o);
    assert_non_null(y);
    kn_rnn_options alone = o;
    alone.lengths = NULL;
    double most = dtype == KN_F64 ? 1e-12 : 2e-5;
    int64_t width = kn_tensor_shape(y).dim[2];
    for (int64_t b = 0; b < batch; b++) {
        int64_t n = o.lengths ? o.lengths[b] : steps;
        kn_tensor *mine = range(range(y, 1, b, 1), 0, 0, n);
        kn_tensor *part = range(range(x, 1, b, 1), 0, 0, n);
        kn_tensor *want = n ? small_network(part, w, &alone) : mine;
        assert_non_null(want);
        for (int64_t i = 0; i < n * width; i++)
            assert_close(ops_at(mine, i), ops_at(want, i), most, most);
        for (int64_t t = n; t < steps; t++)
            for (int64_t i = 0; i < width; i++)
                assert_true(ops_at(y, (t * batch + b) * width + i) == 0);
    }
}

static void networks_equal_those_of_small_ops(void **state) {
    (void)state;
    static const int64_t lengths[] = {4, 7, 1, 0, 7, 3};
    FOR_BOTH_DTYPES(dtype) {
        for (int mode = KN_RNN_LSTM; mode <= KN_RNN_RELU; mode++) {
            kn_rnn_options o = {.hidden = 5, .mode = (kn_rnn_mode)mode, .layers = 1};
            check_small(dtype, o, 7, 6, 3);
            o.layers = 3, o.bidirectional = 1;
            check_small(dtype, o, 5, 35, 4);
            o.lengths = lengths;
            check_small(dtype, o, 7, 6, 3);
            o.layers = 1, o.hidden = 33;
            check_small(dtype, o, 7, 6, 33);
        }
    }
}

/* With W the identity in each gate. */
static void skipped_input_is_an_identity(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    for (int mode = KN_RNN_LSTM; mode <= KN_RNN_RELU; mode++) {
        kn_rnn_options o = {.hidden = 6, .mode = (kn_rnn_mode)mode, .bidirectional = 1};
        kn_rnn_options skip = o;
        skip.skip_input = 1;
        kn_tensor *x = random_tensor(KN_F64, KN_SHAPE(4, 3, 6));
        kn_tensor *w = random_tensor(KN_F64, KN_SHAPE(kn_rnn_params(6, &o)));
        kn_tensor *w_skip = kn_zeros(KN_SHAPE(kn_rnn_params(6, &skip)));
        int gates = mode == KN_RNN_LSTM ? 4 : (mode == KN_RNN_GRU ? 3 : 1);
        for (int d = 0; d < 2; d++) {
            for (int g = 0; g < gates; g++) {
                kn_tensor *part = kn_rnn_param(w, 6, &o, 0, d, g, KN_RNN_INPUT_WEIGHT);
                assert_ok(kn_set_into(part, kn_eye(6, 6), 1, (kn_index_item[]){KN_EVERY}));
            }
            for (int p = KN_RNN_HIDDEN_WEIGHT; p <= KN_RNN_HIDDEN_BIAS; p++) {
                kn_tensor *from = kn_rnn_param(w, 6, &o, 0, d, -1, (kn_rnn_part)p);
                kn_tensor *to = kn_rnn_param(w_skip, 6, &skip, 0, d, -1, (kn_rnn_part)p);
                assert_ok(kn_set_into(to, from, 1, (kn_index_item[]){KN_EVERY}));
            }
        }
        kn_tensor *y = kn_rnn(x, w, &o), *z = kn_rnn(x, w_skip, &skip);
        assert_non_null(z);
        for (int64_t i = 0; i < kn_tensor_numel(y); i++)
            assert_close(ops_at(z, i), ops_at(y, i), 1e-12, 1e-12);
    }
}

/* --- parameters --- */

static void parts_lie_in_cudnns_order(void **state) {
    (void)state;
    KN_FRAME(.dtype = KN_F64);
    kn_rnn_options o = {.hidden = 2, .layers = 2, .mode = KN_RNN_GRU, .bidirectional = 1};
    int64_t n = kn_rnn_params(3, &o);
    assert_int_equal(n, 2 * (6 * 3 + 6 * 2) + 2 * (6 * 4 + 6 * 2) + 4 * 12);
    kn_tensor *w = kn_arange(0, (double)n, 1, KN_F64);
    kn_tensor *part = kn_rnn_param(w, 3, &o, 0, 1, 1, KN_RNN_INPUT_WEIGHT);
    assert_shape(part, KN_SHAPE(2, 3));
    assert_true(ops_at(part, 0) == 30 + 6);
    part = kn_rnn_param(w, 3, &o, 1, 0, -1, KN_RNN_HIDDEN_WEIGHT);
    assert_shape(part, KN_SHAPE(6, 2));
    assert_true(ops_at(part, 0) == 60 + 24);
    part = kn_rnn_param(w, 3, &o, 1, 1, 2, KN_RNN_HIDDEN_BIAS);
    assert_shape(part, KN_SHAPE(2));
    assert_true(ops_at(part, 0) == 132 + 36 + 6 + 4);
    assert_true(ops_at(part, 1) == (double)n - 1);
}

/* --- threads, dropout --- */

static void any_number_of_threads_gives_the_same_bits(void **state) {
    (void)state;
    static const int threads[] = {1, 2, 7};
    int64_t lengths[150];
    for (int b = 0; b < 150; b++) lengths[b] = (int64_t)test_random_below(10);
    for (int mode = KN_RNN_LSTM; mode <= KN_RNN_RELU; mode++) {
        for (int packed = 0; packed < 2; packed++) {
            KN_FRAME();
            kn_rng *rng = NULL;
            kn_tensor *h[3] = {NULL}, *y[3];
            kn_rnn_options o = {.hidden = 21,
                                .layers = 2,
                                .mode = (kn_rnn_mode)mode,
                                .bidirectional = packed,
                                .dropout = 0.3,
                                .lengths = packed ? lengths : NULL};
            kn_tensor *x = random_tensor(KN_F32, KN_SHAPE(9, 150, 30));
            kn_tensor *w = random_tensor(KN_F32, KN_SHAPE(kn_rnn_params(30, &o)));
            for (int i = 0; i < 3; i++) {
                KN_FRAME(.threads = threads[i]);
                assert_ok(kn_rng_create(&rng, 5));
                o.rng = rng, o.h_n = &h[i];
                y[i] = kn_keep(kn_rnn(x, w, &o));
                h[i] = kn_keep(h[i]);
                kn_rng_destroy(rng);
            }
            for (int i = 1; i < 3; i++) {
                assert_same_bits(y[0], y[i]);
                assert_same_bits(h[0], h[i]);
            }
        }
    }
}

/* A packed batch has the masks of a padded one: full lengths are no lengths. */
static void masks_of_dropout_do_not_depend_on_packing(void **state) {
    (void)state;
    static const int64_t lengths[] = {5, 5, 5};
    KN_FRAME();
    kn_rng *rng = NULL;
    kn_rnn_options o = {.hidden = 7, .layers = 3, .dropout = 0.5, .bidirectional = 1};
    kn_tensor *x = random_tensor(KN_F32, KN_SHAPE(5, 3, 4)), *y[2];
    kn_tensor *w = random_tensor(KN_F32, KN_SHAPE(kn_rnn_params(4, &o)));
    for (int i = 0; i < 2; i++) {
        assert_ok(kn_rng_create(&rng, 5));
        o.rng = rng, o.lengths = i ? lengths : NULL;
        y[i] = kn_rnn(x, w, &o);
        kn_rng_destroy(rng);
    }
    assert_same_bits(y[0], y[1]);
    o.dropout = 0;
    kn_tensor *whole = kn_rnn(x, w, &o);
    assert_true(ops_at(whole, 0) != ops_at(y[0], 0));
}

/* --- arguments that don't fit --- */

static void bad_arguments_are_errors_with_the_values(void **state) {
    (void)state;
    static const int64_t low[] = {1, -1}, high[] = {3, 4};
    KN_FRAME();
    kn_rnn_options o = {.hidden = 4};
    kn_tensor *x = kn_zeros(KN_SHAPE(3, 2, 5)), *w = kn_zeros(KN_SHAPE(kn_rnn_params(5, &o)));
    kn_tensor *h = kn_zeros(KN_SHAPE(1, 2, 4));
    assert_op_fails(kn_rnn(x, w, NULL), KN_ERR_INVALID, "kn_rnn: options are NULL");
    assert_op_fails(kn_rnn(x, x, &o), KN_ERR_SHAPE, "kn_rnn: w must have 176 elements");
    assert_op_fails(kn_rnn(h, w, &(kn_rnn_options){.hidden = 0}), KN_ERR_INVALID, "hidden is 0");
    o.lengths = low;
    assert_op_fails(kn_rnn(x, w, &o), KN_ERR_INVALID, "lengths[1] is -1; x has 3 steps");
    o.lengths = high;
    assert_op_fails(kn_rnn(x, w, &o), KN_ERR_INVALID, "lengths[1] is 4; x has 3 steps");
    o.lengths = NULL, o.h0 = x;
    assert_op_fails(kn_rnn(x, w, &o), KN_ERR_SHAPE, "h0 must be [1,2,4]");
    o.h0 = h, o.c0 = h, o.mode = KN_RNN_TANH;
    assert_op_fails(kn_rnn(x, w, &o), KN_ERR_INVALID, "c0 is for LSTM alone");
    kn_tensor *h_n = h, *c_n = h;
    o = (kn_rnn_options){.hidden = 4, .mode = KN_RNN_GRU, .h_n = &h_n, .c_n = &c_n};
    assert_op_fails(kn_rnn(x, kn_zeros(KN_SHAPE(kn_rnn_params(5, &o))), &o), KN_ERR_INVALID,
                    "c_n is for LSTM alone");
    assert_true(!h_n && !c_n);
    o = (kn_rnn_options){.hidden = 4, .mode = (kn_rnn_mode)9};
    assert_op_fails(kn_rnn(x, w, &o), KN_ERR_INVALID, "invalid mode 9");
    o = (kn_rnn_options){.hidden = 4, .layers = -2};
    assert_op_fails(kn_rnn(x, w, &o), KN_ERR_INVALID, "layers is -2");
    o = (kn_rnn_options){.hidden = 4, .dropout = 1.5};
    assert_op_fails(kn_rnn(x, w, &o), KN_ERR_INVALID, "dropout is 1.5");
    o = (kn_rnn_options){.hidden = 4, .skip_input = 1};
    assert_op_fails(kn_rnn(x, w, &o), KN_ERR_SHAPE, "skip_input takes as many inputs as hidden");
    o = (kn_rnn_options){.hidden = 4, .reserved = {0, 1}};
    assert_op_fails(kn_rnn(x, w, &o), KN_ERR_INVALID, "reserved[1] is not zero");
    o = (kn_rnn_options){.hidden = INT32_MAX, .layers = 1000, .bidirectional = 1};
    assert_int_equal(kn_rnn_params(INT32_MAX, &o), -1);
    assert_fails(kn_check(), KN_ERR_INVALID, "are too large");
    o = (kn_rnn_options){.hidden = 4};
    assert_op_fails(kn_rnn_param(w, 5, &o, 1, 0, 0, KN_RNN_INPUT_WEIGHT), KN_ERR_INVALID,
                    "no part 0 of gate 0, layer 1, direction 0");
    assert_op_fails(kn_rnn_param(h, 5, &o, 0, 0, 0, KN_RNN_INPUT_WEIGHT), KN_ERR_SHAPE,
                    "w has 8 elements, not 176");
    assert_op_fails(kn_rnn(kn_cast(x, KN_F64), w, &o), KN_ERR_DTYPE, "kn_rnn: x is f64, w is f32");
    assert_op_fails(kn_rnn(h, kn_zeros(KN_SHAPE(3)), &(kn_rnn_options){.hidden = INT32_MAX}),
                    KN_ERR_INVALID, "are too large");
}

static void networks_without_steps_or_sequences_keep_their_states(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *h = NULL, *c = NULL, *first = random_tensor(KN_F32, KN_SHAPE(2, 3, 4));
    kn_rnn_options o = {.hidden = 4, .layers = 2, .h0 = first, .c0 = first, .h_n = &h, .c_n = &c};
    kn_tensor *w = random_tensor(KN_F32, KN_SHAPE(kn_rnn_params(5, &o)));
    kn_tensor *y = kn_rnn(kn_zeros(KN_SHAPE(0, 3, 5)), w, &o);
    assert_shape(y, KN_SHAPE(0, 3, 4));
    assert_same_bits(h, first);
    assert_same_bits(c, first);
    o.h0 = o.c0 = NULL;
    y = kn_rnn(kn_zeros(KN_SHAPE(6, 0, 5)), w, &o);
    assert_shape(y, KN_SHAPE(6, 0, 4));
    assert_shape(h, KN_SHAPE(2, 0, 4));
}

int main(void) {
    return RUN_TESTS(OPS_TEST(networks_equal_those_of_pytorch),
                     OPS_TEST(networks_equal_those_of_small_ops),
                     OPS_TEST(skipped_input_is_an_identity), OPS_TEST(parts_lie_in_cudnns_order),
                     OPS_TEST(any_number_of_threads_gives_the_same_bits),
                     OPS_TEST(masks_of_dropout_do_not_depend_on_packing),
                     OPS_TEST(bad_arguments_are_errors_with_the_values),
                     OPS_TEST(networks_without_steps_or_sequences_keep_their_states));
}
