/* Row-sparse gradients: the sums of rows, and steps that leave all other rows as they are. The
 * dense gradient is the reference: where a method leaves rows of zero gradient alone, all bits
 * agree. */
#include <knet/scale.h>
#include <math.h>

#include "autograd_test.h"
#include "params.h"

enum { V = 23, D = 3, STEPS = 7 };

typedef struct words {
    kn_params *set;
    kn_tensor *table, *fc;
    kn_optim *optim;
} words;

typedef kn_status (*make_fn)(kn_optim **out, kn_params *set);

static kn_status make_sgd(kn_optim **out, kn_params *set) {
    return kn_sgd_create(out, set, 0.1, NULL);
}
static kn_status make_clipped(kn_optim **out, kn_params *set) {
    return kn_sgd_create(out, set, 0.1, &(kn_sgd_options){.clip_norm = 0.5});
}
static kn_status make_clipped_each(kn_optim **out, kn_params *set) {
    return kn_sgd_create(out, set, 0.1, &(kn_sgd_options){.clip_each = 0.25});
}
static kn_status make_adagrad(kn_optim **out, kn_params *set) {
    return kn_adagrad_create(out, set, 0.1, NULL);
}
static kn_status make_momentum(kn_optim **out, kn_params *set) {
    return kn_momentum_create(out, set, 0.1, 0.9, NULL);
}
static kn_status make_adam(kn_optim **out, kn_params *set) {
    return kn_adam_create(out, set, 0.01, NULL);
}
static kn_status make_adamw(kn_optim **out, kn_params *set) {
    return kn_adam_create(out, set, 0.01, &(kn_adam_options){.weight_decay = 0.1});
}

static void words_open(words *m, bool is_sparse, make_fn make) {
    *m = (words){0};
    assert_ok(kn_params_create(&m->set, &(kn_params_options){.seed = 5}));
    m->table = kn_param(m->set, KN_SHAPE(V, D), kn_init_normal(0, 1), "table");
    m->fc = kn_param(m->set, KN_SHAPE(2, D), kn_init_normal(0, 1), "fc");
    assert_non_null(m->fc);
    if (is_sparse) assert_ok(kn_param_sparse(m->table));
    assert_int_equal(kn_param_is_sparse(m->table), is_sparse);
    if (make) assert_ok(make(&m->optim, m->set));
}

static void words_close(words *m) {
    kn_optim_destroy(m->optim);
    kn_params_destroy(m->set);
}

/* n indices; some count from the end, many repeat. */
static void draw(int64_t index[], int n) {
    for (int i = 0; i < n; i++) {
        index[i] = (int64_t)test_random_below(V);
        if (test_random_below(4) == 0) index[i] -= V;
    }
}

static kn_tensor *index_of(const int64_t index[], int n) {
    return kn_tensor_from(index, KN_I64, KN_SHAPE(n));
}

static kn_tensor *loss_of(const words *m, kn_tensor *index) {
    kn_tensor *y = kn_linear(kn_tanh(kn_embedding(m->table, index)), m->fc, KN_NONE);
    return sum_all(kn_mul(y, y));
}

/* Two backward passes of one cycle, each with two uses of the table; then a step. */
static void train(words *m, const int64_t index[], int n, bool scaled) {
    kn_loss_scale *scale = NULL;
    if (scaled) assert_ok(kn_loss_scale_create(&scale, m->set, NULL));
    for (int pass = 0; pass < 2; pass++) {
        KN_TAPE();
        kn_tensor *half = index_of(index + pass * (n / 2), n / 2);
        kn_tensor *loss = kn_add(loss_of(m, half), loss_of(m, index_of(index, 4)));
        assert_ok(kn_backward(scaled ? kn_loss_scale_apply(scale, loss) : loss));
    }
    assert_ok(scaled ? kn_loss_scale_step(scale, m->optim, NULL) : kn_optim_step(m->optim));
    kn_loss_scale_destroy(scale);
}

static void assert_same(kn_tensor *a, kn_tensor *b) {
    assert_int_equal(kn_tensor_numel(a), kn_tensor_numel(b));
    assert_memory_equal(kn_data(a), kn_data(b),
                        (size_t)kn_tensor_numel(a) * kn_dtype_bytes(KN_F32));
}

/* Methods that leave a row of zero gradient as it is. */
static void sparse_and_dense_steps_have_the_same_bits(void **state) {
    (void)state;
    const make_fn makes[] = {make_sgd, make_adagrad, NULL};
    for (int k = 0; makes[k]; k++) {
        for (int scaled = 0; scaled < 2; scaled++) {
            words sparse, dense;
            words_open(&sparse, true, makes[k]);
            words_open(&dense, false, makes[k]);
            for (int t = 0; t < STEPS; t++) {
                int64_t index[20];
                draw(index, 20);
                train(&sparse, index, 20, scaled);
                train(&dense, index, 20, scaled);
                assert_same(sparse.table, dense.table);
                assert_same(sparse.fc, dense.fc);
            }
            words_close(&sparse);
            words_close(&dense);
        }
    }
}

static void clipping_counts_each_row_once(void **state) {
    (void)state;
    const make_fn makes[] = {make_clipped, make_clipped_each, NULL};
    for (int k = 0; makes[k]; k++) {
        words sparse, dense;
        words_open(&sparse, true, makes[k]);
        words_open(&dense, false, makes[k]);
        int64_t index[20];
        draw(index, 20);
        train(&sparse, index, 20, false);
        train(&dense, index, 20, false);
        const float *a = kn_data(sparse.table), *b = kn_data(dense.table);
        for (int i = 0; i < V * D; i++) assert_close((double)a[i], (double)b[i], 1e-5, 1e-6);
        words_close(&sparse);
        words_close(&dense);
    }
}

/* Every row in every batch: then the lazy methods too are the dense ones. */
static void with_all_rows_every_method_is_the_dense_one(void **state) {
    (void)state;
    const make_fn makes[] = {make_momentum, make_adam, make_adamw, NULL};
    for (int k = 0; makes[k]; k++) {
        words sparse, dense;
        words_open(&sparse, true, makes[k]);
        words_open(&dense, false, makes[k]);
        for (int t = 0; t < STEPS; t++) {
            int64_t index[2 * V];
            for (int i = 0; i < 2 * V; i++) index[i] = (i * 7) % V;
            train(&sparse, index, 2 * V, false);
            train(&dense, index, 2 * V, false);
            assert_same(sparse.table, dense.table);
            assert_same(sparse.fc, dense.fc);
        }
        words_close(&sparse);
        words_close(&dense);
    }
}

static void other_rows_and_their_state_stay_as_they_are(void **state) {
    (void)state;
    KN_FRAME();
    words m;
    words_open(&m, true, make_adamw);
    int64_t all[V], few[] = {4, -V, 4, 9};
    for (int i = 0; i < V; i++) all[i] = i;
    train(&m, all, V - 1, false);
    float w[V * D], first[V * D];
    memcpy(w, kn_data(m.table), sizeof w);
    char name[32];
    memcpy(first, kn_data(kn_optim_state_at(m.optim, 1, name, sizeof name)), sizeof first);
    assert_string_equal(name, "m/table");
    train(&m, few, 4, false);
    const float *now = kn_data(m.table);
    const float *state_now = kn_data(kn_optim_state_at(m.optim, 1, name, sizeof name));
    for (int i = 0; i < V * D; i++) {
        bool is_touched = i / D == 4 || i / D == 0 || i / D == 9;
        assert_int_equal(now[i] != w[i], is_touched);
        assert_int_equal(state_now[i] != first[i], is_touched);
    }
    words_close(&m);
}

static void groups_and_states_follow_the_names(void **state) {
    (void)state;
    KN_FRAME();
    words m;
    words_open(&m, true, make_adam);
    assert_ok(kn_optim_group(m.optim, "table", 0, 0));
    float before[V * D];
    memcpy(before, kn_data(m.table), sizeof before);
    int64_t index[] = {1, 2, 3, 4};
    train(&m, index, 4, false);
    assert_memory_equal(before, kn_data(m.table), sizeof before);
    assert_ok(kn_optim_group(m.optim, "table", 1, 1));
    train(&m, index, 4, false);
    assert_memory_not_equal(before, kn_data(m.table), sizeof before);
    const char *names[] = {"hyper", "m/table", "m/fc", "v/table", "v/fc"};
    for (int i = 0; i < 5; i++) {
        char name[32];
        kn_tensor *t = kn_optim_state_at(m.optim, i, name, sizeof name);
        assert_non_null(t);
        assert_string_equal(name, names[i]);
        assert_int_equal(kn_tensor_numel(t), i == 0 ? 4 : i % 2 ? V * D : 2 * D);
    }
    char name[32];
    assert_null(kn_optim_state_at(m.optim, 5, name, sizeof name));
    words_close(&m);
}

static void a_gradient_has_its_rows_in_order(void **state) {
    (void)state;
    KN_FRAME();
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(5, 1), "w", 1, 2, 3, 4, 5);
    assert_ok(kn_param_sparse(w));
    kn_tensor *rows, *values;
    assert_ok(kn_grad_rows(&rows, &values, w));
    assert_int_equal(kn_tensor_numel(rows), 0);
    assert_shape(values, KN_SHAPE(0, 1));
    for (int dtype = 0; dtype < 2; dtype++) {
        KN_TAPE();
        const int64_t index[] = {3, 1, 3, -5};
        kn_tensor *i = kn_tensor_from(index, KN_I64, KN_SHAPE(4));
        if (dtype) i = kn_cast(i, KN_I32);
        const float by[] = {1, 10, 100, 1000};
        kn_tensor *y = kn_reshape(kn_embedding(w, i), KN_SHAPE(4));
        assert_ok(kn_backward(sum_all(kn_mul(y, kn_tensor_from(by, KN_F32, KN_SHAPE(4))))));
    }
    assert_ok(kn_grad_rows(&rows, &values, w));
    assert_values(kn_cast(rows, KN_F32), 0, 1, 3);
    assert_values(values, 2000, 20, 202);
    kn_params_destroy(set);
}

/* A table that is the weight of the last layer too has a gradient for every row. */
static void a_dense_use_reaches_all_rows(void **state) {
    (void)state;
    KN_FRAME();
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(3, 2), "w", 1, 2, 3, 4, 5, 6), *rows, *values;
    assert_ok(kn_param_sparse(w));
    {
        KN_TAPE();
        const int64_t index[] = {2, 2};
        kn_tensor *y = kn_embedding(w, kn_tensor_from(index, KN_I64, KN_SHAPE(2)));
        assert_ok(kn_backward(kn_add(sum_all(y), sum_all(kn_mul(w, w)))));
    }
    assert_ok(kn_grad_rows(&rows, &values, w));
    assert_values(kn_cast(rows, KN_F32), 0, 1, 2);
    assert_values(values, 2, 4, 6, 8, 12, 14);
    kn_params_destroy(set);
}

/* A bias that relu's derivative would sum into the arena. */
static void a_sparse_bias_has_its_gradient(void **state) {
    (void)state;
    KN_FRAME();
    kn_params *set = params_f32();
    kn_tensor *w = PARAM(set, KN_SHAPE(2, 1), "w", 1, 1), *b = PARAM(set, KN_SHAPE(2), "b", 1, 2);
    assert_ok(kn_param_sparse(b));
    {
        KN_TAPE();
        kn_tensor *x = kn_full(KN_SHAPE(3, 1), 1);
        assert_ok(kn_backward(sum_all(kn_relu(kn_linear(x, w, b)))));
    }
    kn_tensor *rows, *values;
    assert_ok(kn_grad_rows(&rows, &values, b));
    assert_values(values, 3, 3);
    assert_values(kn_grad(w), 3, 3);
    kn_params_destroy(set);
}

/* What a device gets whose numbers the host doesn't read. */
static void repeated_rows_have_whole_sums(void **state) {
    (void)state;
    KN_FRAME();
    for (int n = 1; n < 40; n++) {
        int64_t index[40];
        float y[40];
        for (int i = 0; i < n; i++) {
            index[i] = (int64_t)test_random_below(9);
            y[i] = (float)test_random_uniform(-1, 1);
        }
        kn_tensor *rows = index_of(index, n), *values = kn_tensor_from(y, KN_F32, KN_SHAPE(n, 1));
        kn__rows closed, repeated;
        assert_ok(kn__rows_sum(&closed, rows, values, true));
        assert_ok(kn__rows_sum(&repeated, rows, values, false));
        assert_int_equal(kn_tensor_numel(repeated.rows), n);
        const int64_t *a = kn_data(closed.rows), *b = kn_data(repeated.rows);
        const float *x = kn_data(closed.values), *z = kn_data(repeated.values);
        const float *first = kn_data(repeated.first);
        int at = -1;
        for (int i = 0; i < n; i++) {
            bool is_new = i == 0 || b[i] != b[i - 1];
            at += is_new;
            assert_int_equal(first[i] != 0, is_new);
            assert_int_equal(a[at], b[i]);
            assert_true(x[at] == z[i]);
        }
        assert_int_equal(kn_tensor_numel(closed.rows), at + 1);
        double once = item_of(sum_all(kn__rows_once(&repeated, repeated.values)));
        assert_close(once, item_of(sum_all(values)), 1e-4, 1e-4);
        kn__rows_release(&closed);
        kn__rows_release(&repeated);
    }
}

/* A device's form of the gradient, put in its place between two backward passes. */
static void more_gradients_are_added_to_repeated_rows(void **state) {
    (void)state;
    KN_FRAME();
    words m;
    words_open(&m, true, NULL);
    const int64_t index[] = {7, 2, 7, 7}, one[] = {7};
    float want[2 * D];
    kn_tensor *rows, *values;
    for (int again = 0; again < 2; again++) {
        for (int pass = 0; pass < 2; pass++) {
            KN_TAPE();
            kn_tensor *at = pass ? index_of(one, 1) : index_of(index, 4);
            assert_ok(kn_backward(sum_all(kn_embedding(m.table, at))));
            kn__param *p = kn__edge_param(m.table->grad);
            if (!again || pass) continue;
            kn__rows repeated;
            kn_tensor *parts = kn_full(KN_SHAPE(4, D), 1);
            assert_ok(kn__rows_sum(&repeated, index_of(index, 4), parts, false));
            kn__rows_release(&p->rows);
            p->rows = repeated;
        }
        assert_ok(kn_grad_rows(&rows, &values, m.table));
        assert_int_equal(kn_tensor_numel(values), 2 * D);
        if (!again) memcpy(want, kn_data(values), sizeof want);
        if (again) assert_memory_equal(want, kn_data(values), sizeof want);
        m.set->stepped = true;
    }
    words_close(&m);
}

static void old_rows_are_dropped_and_no_rows_are_no_gradient(void **state) {
    (void)state;
    KN_FRAME();
    words m;
    words_open(&m, true, make_sgd);
    const int64_t index[] = {1, 2, 3, 4};
    kn_tensor *rows, *values;
    train(&m, index, 4, false);
    float before[V * D];
    memcpy(before, kn_data(m.table), sizeof before);
    {
        KN_TAPE();
        kn_tensor *none = kn_embedding(m.table, index_of(index, 0));
        assert_ok(kn_backward(kn_add(sum_all(kn_mul(m.fc, m.fc)), sum_all(none))));
        assert_ok(kn_grad_rows(&rows, &values, m.table));
        assert_int_equal(kn_tensor_numel(rows), 0);
        assert_ok(kn_optim_step(m.optim));
    }
    assert_memory_equal(before, kn_data(m.table), sizeof before);
    words_close(&m);
    kn_params *set = params_f32();
    kn_tensor *empty = kn_param(set, KN_SHAPE(0, 2), (kn_init){0}, "empty");
    assert_ok(kn_param_sparse(empty));
    KN_TAPE();
    assert_ok(kn_backward(sum_all(kn_mul(empty, empty))));
    assert_ok(kn_grad_rows(&rows, &values, empty));
    assert_int_equal(kn_tensor_numel(rows), 0);
    kn_params_destroy(set);
}

static void the_hook_gets_the_values_of_the_rows(void *ctx, kn_tensor *w, kn_tensor *gradient) {
    if (kn_param_is_sparse(w)) *(int64_t *)ctx += kn_tensor_numel(gradient);
}
static void the_hook_is_called_once(void **state) {
    (void)state;
    words m;
    words_open(&m, true, make_sgd);
    int64_t n = 0;
    kn_params_on_grad(m.set, the_hook_gets_the_values_of_the_rows, &n);
    {
        KN_TAPE();
        const int64_t index[] = {7, 8, 7};
        assert_ok(
            kn_backward(kn_add(loss_of(&m, index_of(index, 3)), loss_of(&m, index_of(index, 1)))));
    }
    assert_int_equal(n, 2 * D);
    words_close(&m);
}

static void memory_goes_by_the_rows(void **state) {
    (void)state;
    kn_params *set = params_f32();
    kn_tensor *w = kn_param(set, KN_SHAPE(100000, 8), (kn_init){0}, "w");
    assert_ok(kn_param_sparse(w));
    uint64_t before = ops_live_bytes();
    kn_optim *sgd = NULL;
    assert_ok(kn_sgd_create(&sgd, set, 0.1, NULL));
    {
        KN_TAPE();
        const int64_t index[] = {5, 99999};
        assert_ok(kn_backward(sum_all(kn_embedding(w, index_of(index, 2)))));
        assert_ok(kn_optim_step(sgd));
    }
    assert_true(ops_live_bytes() < before + (16 << 10));
    kn_optim_destroy(sgd);
    kn_params_destroy(set);
}

static void wrong_calls_have_messages(void **state) {
    (void)state;
    KN_FRAME();
    words m;
    words_open(&m, false, make_sgd);
    kn_tensor *rows, *values, *constant = kn_full(KN_SHAPE(2), 1);
    assert_fails(kn_grad_rows(&rows, &values, m.table), KN_ERR_INVALID, "table is dense");
    assert_fails(kn_grad_rows(NULL, &values, m.table), KN_ERR_INVALID, "rows is NULL");
    assert_fails(kn_grad_rows(&rows, NULL, m.table), KN_ERR_INVALID, "values is NULL");
    assert_fails(kn_param_sparse(constant), KN_ERR_INVALID, "not a parameter");
    assert_fails(kn_param_sparse(NULL), KN_ERR_INVALID, "NULL");
    assert_false(kn_param_is_sparse(constant));
    assert_false(kn_param_is_sparse(NULL));
    kn_tensor *scalar = kn_param(m.set, KN_SCALAR, (kn_init){0}, "scale");
    assert_fails(kn_param_sparse(scalar), KN_ERR_SHAPE, "0-dim");
    assert_non_null(kn_grad(m.table));
    assert_fails(kn_param_sparse(m.table), KN_ERR_INVALID, "laid out");
    words_close(&m);
    words_open(&m, true, NULL);
    assert_null(kn_grad(m.table));
    assert_fails(kn_check(), KN_ERR_INVALID, "kn_grad_rows");
    assert_ok(kn_param_sparse(m.table)); /* twice is once */
    kn_optim *lamb = NULL;
    assert_fails(kn_lamb_create(&lamb, m.set, 0.1, NULL), KN_ERR_UNSUPPORTED,
                 "LAMB moves whole parameters; the gradient of table is row-sparse");
    assert_null(lamb);
    words_close(&m);
    words_open(&m, false, NULL);
    assert_ok(kn_lamb_create(&m.optim, m.set, 0.1, NULL));
    assert_ok(kn_param_sparse(m.table)); /* after its optimiser: its step says so */
    assert_fails(kn_optim_step(m.optim), KN_ERR_UNSUPPORTED, "row-sparse");
    words_close(&m);
}

int main(void) {
    return RUN_TESTS(
        OPS_TEST(sparse_and_dense_steps_have_the_same_bits),
        OPS_TEST(clipping_counts_each_row_once),
        OPS_TEST(with_all_rows_every_method_is_the_dense_one),
        OPS_TEST(other_rows_and_their_state_stay_as_they_are),
        OPS_TEST(groups_and_states_follow_the_names), OPS_TEST(a_gradient_has_its_rows_in_order),
        OPS_TEST(a_dense_use_reaches_all_rows), OPS_TEST(a_sparse_bias_has_its_gradient),
        OPS_TEST(repeated_rows_have_whole_sums),
        OPS_TEST(more_gradients_are_added_to_repeated_rows),
        OPS_TEST(old_rows_are_dropped_and_no_rows_are_no_gradient),
        OPS_TEST(the_hook_is_called_once), OPS_TEST(memory_goes_by_the_rows),
        OPS_TEST(wrong_calls_have_messages));
}
