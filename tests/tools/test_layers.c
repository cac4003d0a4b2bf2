/* Layers: names, results, modes, scopes in the timer, memory. KNET_TIMER=1. */
#include <knet/op.h>
#include <knet/tape.h>

#include "layer_fixture.h"
#include "report_text.h"

/* --- the tree --- */

static bool add_path(void *ctx, kn_layer *layer) {
    strcat(ctx, kn_layer_path(layer));
    strcat(ctx, ";");
    return strcmp(kn_layer_name(layer), "last") != 0;
}

static void paths_name_layers_and_parameters(void **state) {
    (void)state;
    fixture f;
    char paths[256] = "";
    const char *name = NULL;
    fixture_init(&f, KN_F32);
    kn_layer *block = kn_layer_sequential(f.net, "block");
    kn_layer *conv = kn_layer_conv(block, "conv", 3, 4, KN_SHAPE(3, 3), NULL);
    kn_layer *fc = kn_layer_linear(block, "fc", 8, 2, &(kn_layer_linear_options){.no_bias = 1});
    kn_layer_flatten(f.net, "last");
    kn_layer_flatten(f.net, "unseen");
    assert_ok(kn_check());
    assert_ptr_equal(kn_layer_find(f.net, "block.conv"), conv);
    assert_null(kn_layer_find(f.net, "block.con"));
    assert_null(kn_layer_find(f.net, "block.conv.weight"));
    assert_int_equal(kn_params_count(f.params), 3);
    assert_ptr_equal(kn_layer_param(conv, "bias"), kn_params_find(f.params, "block.conv.bias"));
    assert_non_null(kn_layer_param(conv, "bias"));
    assert_null(kn_layer_param(fc, "bias"));
    kn_params_at(f.params, 2, &name);
    assert_string_equal(name, "block.fc.weight");
    assert_int_equal(kn_layer_numel(conv), 4 * 3 * 9 + 4);
    assert_int_equal(kn_layer_numel(f.net), kn_params_numel(f.params));
    assert_false(kn_layer_walk(f.net, add_path, paths));
    assert_string_equal(paths, ";block;block.conv;block.fc;last;");
    fixture_release(&f);
}

static void wrong_layers_are_errors_with_their_name(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, KN_F32);
    kn_layer *fc = kn_layer_linear(f.net, "fc", 8, 2, NULL);
    kn_layer_linear(f.net, "fc", 2, 2, NULL);
    kn_layer_linear(f.net, "after", 2, 2, NULL); /* nothing happens while an error is pending */
    assert_fails(kn_check(), KN_ERR_INVALID, "kn_layer_linear: fc: the name is taken");
    assert_null(kn_layer_find(f.net, "after"));
    kn_layer_flatten(f.net, "a.b");
    assert_fails(kn_check(), KN_ERR_INVALID, "kn_layer_flatten: a.b: a name");
    kn_layer_flatten(fc, "in");
    assert_fails(kn_check(), KN_ERR_INVALID, "its parent fc takes no layers");
    kn_layer_flatten(NULL, "orphan");
    assert_fails(kn_check(), KN_ERR_INVALID, "orphan: parent is NULL");
    kn_layer_linear(f.net, "none", 0, 2, NULL);
    assert_fails(kn_check(), KN_ERR_SHAPE, "0 to 2");
    kn_layer_conv(f.net, "odd", 3, 4, KN_SHAPE(3, 3),
                  &(kn_layer_conv_options){.conv = {.groups = 2}});
    assert_fails(kn_check(), KN_ERR_SHAPE, "2 groups don't divide 3 and 4 channels");
    kn_layer_conv(f.net, "flat", 3, 4, KN_SCALAR, NULL);
    assert_fails(kn_check(), KN_ERR_SHAPE, "flat: the window is []");
    kn_layer_conv(f.net, "flat", 3, 4, KN_SHAPE(3, 0), NULL);
    assert_fails(kn_check(), KN_ERR_SHAPE, "flat: the window is [3,0]");
    kn_layer_dropout(f.net, "drop", 1);
    assert_fails(kn_check(), KN_ERR_INVALID, "p is 1");
    kn_layer_act(f.net, "act", NULL);
    assert_fails(kn_check(), KN_ERR_INVALID, "act is NULL");
    kn_layer_function(f.net, "fn", NULL, NULL);
    assert_fails(kn_check(), KN_ERR_INVALID, "fn is NULL");
    kn_layer_shortcut(fc);
    assert_fails(kn_check(), KN_ERR_INVALID, "a shortcut is made in a residual layer");
    kn_layer_linear(f.net, "later", 2, 2, &(kn_layer_linear_options){.reserved = {1}});
    assert_fails(kn_check(), KN_ERR_INVALID, "a reserved option is not zero");
    kn_layer_linear(f.net, "later", 2, 2, &(kn_layer_linear_options){.sparse = 1});
    assert_fails(kn_check(), KN_ERR_INVALID, "sparse is 1; the limit is 0");
    kn_layer_embedding(f.net, "later", 2, 2, &(kn_layer_linear_options){.sparse = 2});
    assert_fails(kn_check(), KN_ERR_INVALID, "sparse is 2; the limit is 1");
    kn_layer_embedding(f.net, "words", 2, 2, NULL);
    assert_false(kn_param_is_sparse(kn_params_find(f.params, "words.weight")));
    kn_layer_embedding(f.net, "rows", 2, 2, &(kn_layer_linear_options){.sparse = 1});
    assert_true(kn_param_is_sparse(kn_params_find(f.params, "rows.weight")));
    fixture_release(&f);
}

static void wrong_windows_and_recurrences_are_errors_with_their_value(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, KN_F32);
    kn_layer_maxpool(f.net, "pool", KN_SHAPE(0, 2), NULL);
    assert_fails(kn_check(), KN_ERR_SHAPE, "kn_layer_maxpool: pool: the window is [0,2]");
    kn_layer_avgpool(f.net, "pool", KN_SHAPE(2, 2), &(kn_pooling_options){.stride = {1, -2}});
    assert_fails(kn_check(), KN_ERR_INVALID, "kn_layer_avgpool: pool: stride[1] is -2; it must");
    kn_layer_avgpool(f.net, "pool", KN_SHAPE(2), &(kn_pooling_options){.dilation = {-1}});
    assert_fails(kn_check(), KN_ERR_INVALID, "pool: dilation[0] is -1");
    kn_layer_rnn(f.net, "rnn", 3, &(kn_rnn_options){.hidden = 2, .layers = -4});
    assert_fails(kn_check(), KN_ERR_INVALID, "kn_layer_rnn: rnn: ");
    kn_layer_rnn(f.net, "rnn", 3, &(kn_rnn_options){.hidden = 2, .dropout = 2});
    assert_fails(kn_check(), KN_ERR_INVALID, "kn_layer_rnn: rnn: ");
    assert_null(kn_layer_find(f.net, "pool"));
    assert_null(kn_layer_find(f.net, "rnn"));
    fixture_release(&f);
}

static void a_mode_that_there_is_not_is_an_error_with_its_number(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, KN_F32);
    kn_layer *fc = kn_layer_linear(f.net, "fc", 2, 2, NULL);
    kn_layer_mode_set(f.net, KN_LAYER_EVAL);
    static const int wrong[] = {17, -1, KN_LAYER_EVAL + 1};
    for (int i = 0; i < 3; i++) {
        char want[64];
        snprintf(want, sizeof want, "kn_layer_mode_set: fc: mode %d; it must be from 0 to 2",
                 wrong[i]);
        kn_layer_mode_set(fc, (kn_layer_mode)wrong[i]);
        assert_fails(kn_check(), KN_ERR_INVALID, want);
    }
    kn_layer_mode_set(f.net, (kn_layer_mode)9); /* which has no path */
    assert_fails(kn_check(), KN_ERR_INVALID, "kn_layer_mode_set: the root: mode 9; it must be");
    assert_int_equal(kn_layer_mode_get(fc), KN_LAYER_EVAL);
    fixture_release(&f);
}

static void a_failed_forward_names_layer_shapes_and_call_site(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, KN_F32);
    kn_layer *block = kn_layer_sequential(f.net, "block");
    kn_layer_linear(block, "fc", 8, 2, NULL);
    KN_FRAME();
    kn_tensor *x = kn_zeros(KN_SHAPE(5, 7));
    int line = __LINE__ + 1;
    assert_null(kn_layer_forward(f.net, x));
    assert_fails(kn_check(), KN_ERR_SHAPE, "block.fc: kn_linear: x has 7 features");
    assert_non_null(strstr(kn_last_error()->message, "[5,7]"));
    assert_non_null(strstr(kn_last_error()->file, "test_layers.c"));
    assert_int_equal(kn_last_error()->line, line);
    assert_null(kn_layer_forward(f.net, NULL));
    assert_fails(kn_check(), KN_ERR_INVALID, "x is NULL");
    assert_null(kn_layer_forward(NULL, x));
    assert_fails(kn_check(), KN_ERR_INVALID, "layer is NULL");
    fixture_release(&f);
}

/* --- results --- */

static void a_sequence_gives_what_its_ops_give(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, KN_F32);
    kn_layer *conv =
        kn_layer_conv(f.net, "conv", 2, 3, KN_SHAPE(3, 3),
                      &(kn_layer_conv_options){.conv = {.padding = {1, 1}}, .act = kn_relu});
    kn_layer_maxpool(f.net, "max", KN_SHAPE(2, 2), NULL);
    kn_layer_avgpool(f.net, "mean", KN_SHAPE(2, 2), &(kn_pooling_options){.stride = {1, 1}});
    kn_layer_act(f.net, "tanh", kn_tanh);
    kn_layer_global_avgpool(f.net, "all");
    kn_layer_flatten(f.net, "flat");
    kn_layer *fc = kn_layer_linear(f.net, "fc", 3, 4, NULL);
    KN_FRAME();
    kn_tensor *x = kn_normal(KN_SHAPE(5, 2, 8, 8), 0, 1, f.rng);
    kn_tensor *y = kn_relu(kn_conv(x, kn_layer_param(conv, "weight"), kn_layer_param(conv, "bias"),
                                   &(kn_conv_options){.padding = {1, 1}}));
    y = kn_tanh(kn_avgpool(kn_maxpool(y, KN_SHAPE(2, 2), NULL), KN_SHAPE(2, 2),
                           &(kn_pooling_options){.stride = {1, 1}}));
    y = kn_linear(kn_mean(y, KN_SHAPE(2, 3), false), kn_layer_param(fc, "weight"),
                  kn_layer_param(fc, "bias"));
    assert_equal_tensors(kn_layer_forward(f.net, x), y);
    kn_layer *all = kn_layer_find(f.net, "all");
    assert_null(kn_layer_forward(all, kn_zeros(KN_SHAPE(2, 3))));
    assert_fails(kn_check(), KN_ERR_SHAPE, "all: global average of x with 2 dimensions");
    fixture_release(&f);
}

static void an_embedding_gives_rows(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, KN_F32);
    kn_layer *words = kn_layer_embedding(f.net, "words", 11, 4, NULL);
    KN_FRAME();
    kn_tensor *index = kn_tensor_from((const int64_t[]){3, 0, 10}, KN_I64, KN_SHAPE(3));
    assert_equal_tensors(kn_layer_forward(words, index),
                         kn_embedding(kn_layer_param(words, "weight"), index));
    fixture_release(&f);
}

static void residual_and_dense_layers_join_x_and_their_body(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, KN_F32);
    kn_layer *plain = kn_layer_residual(f.net, "plain");
    kn_layer *fc = kn_layer_linear(plain, "fc", 4, 4, NULL);
    kn_layer *wide = kn_layer_residual(f.net, "wide");
    kn_layer *shortcut = kn_layer_linear(kn_layer_shortcut(wide), "fc", 4, 6, NULL);
    kn_layer *body = kn_layer_linear(wide, "fc", 4, 6, NULL);
    kn_layer *dense = kn_layer_dense(f.net, "dense");
    kn_layer *grow = kn_layer_linear(dense, "fc", 4, 3, NULL);
    assert_ok(kn_check());
    assert_string_equal(kn_layer_path(shortcut), "wide.shortcut.fc");
    KN_FRAME();
    kn_tensor *x = kn_normal(KN_SHAPE(5, 4), 0, 1, f.rng);
    assert_equal_tensors(kn_layer_forward(plain, x), kn_add(kn_layer_forward(fc, x), x));
    assert_equal_tensors(kn_layer_forward(wide, x),
                         kn_add(kn_layer_forward(body, x), kn_layer_forward(shortcut, x)));
    kn_tensor *both[] = {x, kn_layer_forward(grow, x)};
    assert_equal_tensors(kn_layer_forward(dense, x), kn_concat(both, 2, 1));
    fixture_release(&f);
}

static kn_tensor *twice(void *ctx, kn_layer *self, kn_tensor *x) {
    (*(int *)ctx)++;
    kn_layer *fc = kn_layer_find(self, "fc");
    return kn_layer_forward(fc, kn_layer_forward(fc, x));
}

static void a_function_of_your_own_is_a_layer(void **state) {
    (void)state;
    fixture f;
    int n_calls = 0;
    fixture_init(&f, KN_F32);
    kn_layer *self = kn_layer_function(f.net, "twice", twice, &n_calls);
    kn_layer *fc = kn_layer_linear(self, "fc", 4, 4, NULL);
    KN_FRAME();
    kn_tensor *x = kn_normal(KN_SHAPE(5, 4), 0, 1, f.rng);
    assert_equal_tensors(kn_layer_forward(f.net, x), kn_layer_forward(fc, kn_layer_forward(fc, x)));
    assert_int_equal(n_calls, 1);
    fixture_release(&f);
}

static void layers_of_normalization_give_what_their_ops_give(void **state) {
    (void)state;
    fixture f;
    const char *name = NULL;
    fixture_init(&f, KN_F32);
    kn_layer *batch =
        kn_layer_batchnorm(f.net, "batch", 3, &(kn_layer_norm_options){.act = kn_relu});
    kn_layer *last = kn_layer_layernorm(f.net, "last", KN_SHAPE(4, 5), NULL);
    kn_layer *rms = kn_layer_rmsnorm(f.net, "rms", KN_SHAPE(5), NULL);
    kn_layer *group = kn_layer_groupnorm(f.net, "group", 3, 3, NULL);
    assert_ok(kn_check());
    assert_int_equal(kn_params_count(f.params), 7);
    kn_tensor *mean = kn_layer_state_at(batch, 0, &name);
    assert_string_equal(name, "running_mean");
    assert_null(kn_layer_state_at(batch, 2, NULL));
    assert_null(kn_layer_state_at(last, 0, NULL));
    KN_FRAME();
    kn_tensor *x = kn_normal(KN_SHAPE(6, 3, 4, 5), 2, 3, f.rng);
    assert_equal_tensors(
        kn_layer_forward(last, x),
        kn_layernorm(x, kn_layer_param(last, "weight"), kn_layer_param(last, "bias"), 2, 1e-5));
    assert_equal_tensors(kn_layer_forward(rms, x),
                         kn_rmsnorm(x, kn_layer_param(rms, "weight"), 1, 1e-5));
    assert_equal_tensors(
        kn_layer_forward(group, x),
        kn_groupnorm(x, kn_layer_param(group, "weight"), kn_layer_param(group, "bias"), 3, 1e-5));
    kn_tensor *w = kn_layer_param(batch, "weight"), *b = kn_layer_param(batch, "bias");
    assert_equal_tensors(
        kn_layer_forward(batch, x),
        kn_relu(kn_batchnorm(x, mean, kn_layer_state_at(batch, 1, NULL), w, b, NULL)));
    assert_close(((const float *)kn_data(mean))[1], 0, 0, 0); /* evaluation leaves it alone */
    {
        KN_TAPE();
        assert_equal_tensors(kn_layer_forward(batch, x),
                             kn_relu(kn_batchnorm(x, KN_NONE, KN_NONE, w, b,
                                                  &(kn_batchnorm_options){.training = 1})));
    }
    assert_close(((const float *)kn_data(mean))[1], 0.2, 0, 0.1);
    kn_layer_groupnorm(f.net, "odd", 3, 2, NULL);
    assert_fails(kn_check(), KN_ERR_SHAPE, "2 groups don't divide 3 channels");
    kn_layer_batchnorm(f.net, "none", 0, NULL);
    assert_fails(kn_check(), KN_ERR_INVALID, "shape [0]");
    fixture_release(&f);
}

/* --- modes --- */

static int64_t zeros_of(kn_tensor *y) {
    const float *at = kn_data(y);
    int64_t n = 0;
    assert_ok(kn_check());
    for (int64_t i = 0; i < kn_tensor_numel(y); i++) n += at[i] == 0;
    return n;
}

static void dropout_trains_while_a_tape_records_or_as_it_is_told(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, KN_F32);
    kn_layer *drop = kn_layer_dropout(f.net, "drop", 0.5);
    assert_non_null(kn_layer_rng(drop));
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(1000));
    assert_ptr_equal(kn_layer_forward(drop, x), x);
    kn_layer_mode_set(f.net, KN_LAYER_TRAIN);
    assert_true(kn_layer_is_training(drop));
    int64_t n = zeros_of(kn_layer_forward(drop, x));
    assert_true(n > 400 && n < 600);
    {
        KN_TAPE();
        kn_layer_mode_set(f.net, KN_LAYER_AUTO);
        assert_true(zeros_of(kn_layer_forward(f.net, x)) > 400);
        kn_layer_mode_set(f.net, KN_LAYER_EVAL);
        assert_int_equal(zeros_of(kn_layer_forward(f.net, x)), 0);
        kn_layer *late = kn_layer_dropout(f.net, "late", 0.5);
        assert_false(kn_layer_is_training(late)); /* as its parent */
    }
    fixture_release(&f);
}

/* --- gradients --- */

static kn_tensor *apply_net(void *ctx, kn_tensor *const x[]) { return kn_layer_forward(ctx, x[0]); }

static void layers_have_gradients_of_first_and_second_order(void **state) {
    (void)state;
    fixture f;
    fixture_init(&f, KN_F64);
    kn_layer_conv(f.net, "conv", 2, 3, KN_SHAPE(2, 2), &(kn_layer_conv_options){.act = kn_tanh});
    kn_layer_avgpool(f.net, "pool", KN_SHAPE(2, 2), NULL);
    kn_layer_flatten(f.net, "flat");
    kn_layer *res = kn_layer_residual(f.net, "res");
    kn_layer_linear(res, "fc", 12, 12, &(kn_layer_linear_options){.act = kn_sigm});
    kn_layer *dense = kn_layer_dense(f.net, "dense");
    kn_layer_linear(dense, "fc", 12, 3, &(kn_layer_linear_options){.act = kn_tanh});
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *x = kn_normal(KN_SHAPE(2, 2, 5, 5), 0, 1, f.rng);
    assert_ok(kn_gradcheck(apply_net, f.net, &x, 1, 1, 1e-5, 1e-7));
    assert_ok(kn_gradcheck(apply_net, f.net, &x, 1, 2, 1e-4, 1e-6));
    fixture_release(&f);
}

/* --- the timer --- */

static void assert_rows(const char *const rows[], int n) {
    const char *text = report_text(".folded");
    for (int i = 0; i < n; i++)
        if (!strstr(text, rows[i])) fail_msg("no row %s in\n%s", rows[i], text);
}

static void rows_of_derivatives_are_below_their_layer(void **state) {
    (void)state;
    static const char *const rows[] = {"\nforward;block;conv1;conv",
                                       "\nbackward;block;conv1;conv  d weight",
                                       "\nbackward;block;conv1;tanh  d x",
                                       "\nbackward;block;conv2;conv  d weight",
                                       "\nbackward;block;conv2;conv  d x",
                                       "\nbackward;block;conv2;conv  d bias",
                                       "\nbackward;fc;linear  d weight",
                                       "\nbackward;cross_entropy  d logits",
                                       "\nbackward;exp  d x"};
    fixture f;
    fixture_init(&f, KN_F32);
    kn_layer *block = kn_layer_sequential(f.net, "block");
    kn_layer_conv(block, "conv1", 1, 2, KN_SHAPE(3, 3), &(kn_layer_conv_options){.act = kn_tanh});
    kn_layer_conv(block, "conv2", 2, 2, KN_SHAPE(3, 3), NULL);
    kn_layer_flatten(f.net, "flat");
    kn_layer_linear(f.net, "fc", 32, 3, NULL);
    KN_TAPE();
    kn_tensor *y = kn_zeros(KN_SHAPE(4));
    y = kn_cast(y, KN_I64);
    kn_scope forward = kn_scope_begin("forward");
    kn_tensor *z = kn_layer_forward(f.net, kn_normal(KN_SHAPE(4, 1, 8, 8), 0, 1, f.rng));
    kn_scope_end(&forward);
    assert_int_equal(kn_tensor_shape(z).dim[1], 3);
    assert_ok(kn_backward(kn_cross_entropy(kn_mul(z, kn_exp(z)), y)));
    assert_rows(rows, sizeof rows / sizeof *rows);
    fixture_release(&f);
}

static void a_scope_outlives_its_label_and_a_backward_inside_it(void **state) {
    (void)state;
    static const char *const rows[] = {"\nouter;backward;outer;gone;mul  d a,b"};
    char label[8] = "gone";
    fixture f;
    fixture_init(&f, KN_F32);
    kn_tensor *w = kn_param(f.params, KN_SHAPE(1), kn_init_normal(0, 1), "w");
    {
        KN_TAPE();
        KN_TAPE_SCOPE("outer");
        kn_tape_scope inner = kn_tape_scope_begin(label);
        kn_tensor *y = kn_mul(w, w);
        kn_tape_scope_end(&inner);
        kn_tape_scope_end(&inner); /* again: no effect */
        strcpy(label, "new");
        assert_ok(kn_backward(kn_sum(y, KN_ALL, false)));
        assert_non_null(kn_mul(w, w)); /* recorded after the places are gone */
    }
    assert_rows(rows, 1);
    for (int i = 0; i < 40; i++) (void)kn_tape_scope_begin("deep without a tape");
    KN_TAPE();
    for (int i = 0; i < 40; i++) (void)kn_tape_scope_begin("deep");
    assert_ok(kn_backward(kn_sum(kn_mul(w, w), KN_ALL, false)));
    fixture_release(&f);
}

/* --- memory --- */

static void inference_holds_two_values_of_a_sequence(void **state) {
    (void)state;
    fixture f;
    kn_pool_stats before = {0}, after = {0};
    kn_pool *pool = kn_device_pool(kn_device_host());
    fixture_init(&f, KN_F32);
    for (int i = 0; i < 8; i++) {
        char name[16];
        snprintf(name, sizeof name, "act%d", i);
        kn_layer_act(f.net, name, kn_tanh);
    }
    KN_FRAME();
    enum { BYTES = 4 << 20 };
    kn_tensor *x = kn_zeros(KN_SHAPE(BYTES / 4));
    kn_pool_stats_read(&before, sizeof before, pool);
    kn_pool_peaks_reset(pool);
    assert_non_null(kn_layer_forward(f.net, x));
    kn_pool_stats_read(&after, sizeof after, pool);
    assert_int_equal(after.live_bytes_max - before.live_bytes, 2 * BYTES);
    assert_int_equal(after.live_bytes - before.live_bytes, BYTES);
    fixture_release(&f);
}

/* --- recomputing --- */

enum { BLOCKS = 6, WIDE = 512 };

static void blocks_make(kn_layer *net, bool recompute) {
    char name[8];
    for (int i = 0; i < BLOCKS; i++) {
        snprintf(name, sizeof name, "%d", i);
        kn_layer *block = kn_layer_residual(net, name);
        kn_layer_linear(block, "fc1", 8, WIDE, &(kn_layer_linear_options){.act = kn_relu});
        kn_layer_batchnorm(block, "norm", WIDE, NULL);
        kn_layer_dropout(block, "drop", 0.5);
        kn_layer *inner = kn_layer_sequential(block, "inner");
        kn_layer_linear(inner, "fc2", WIDE, 8, NULL);
        kn_layer_recompute_set(block, recompute);
        kn_layer_recompute_set(inner, recompute); /* no effect: the block recomputes */
    }
}

typedef struct stepped {
    float grad[1 << 17];
    float running[WIDE];
    uint64_t rng_offset, peak;
} stepped;

static void step_twice(stepped *out, bool recompute) {
    fixture f;
    uint64_t seed = 0;
    kn_pool_stats stats;
    fixture_init(&f, KN_F32);
    blocks_make(f.net, recompute);
    kn_pool_peaks_reset(kn_device_pool(kn_device_host()));
    for (int i = 0; i < 2; i++) {
        KN_TAPE();
        kn_tensor *y = kn_layer_forward(f.net, kn_normal(KN_SHAPE(64, 8), 0, 1, f.rng));
        assert_ok(kn_backward(kn_sum(kn_mul(y, y), KN_ALL, false)));
    }
    kn_pool_stats_read(&stats, sizeof stats, kn_device_pool(kn_device_host()));
    float *to = out->grad; /* by name: the arena is in the order of backward */
    assert_true((size_t)kn_params_numel(f.params) <= sizeof out->grad / sizeof *to);
    for (int i = 0; i < kn_params_count(f.params); i++) {
        kn_tensor *g = kn_grad(kn_params_at(f.params, i, NULL));
        memcpy(to, kn_data(g), (size_t)kn_tensor_numel(g) * sizeof *to);
        to += kn_tensor_numel(g);
    }
    kn_tensor *mean = kn_layer_state_at(kn_layer_find(f.net, "3.norm"), 0, NULL);
    memcpy(out->running, kn_data(mean), sizeof out->running);
    assert_ok(kn_rng_state_get(&seed, &out->rng_offset, kn_layer_rng(f.net)));
    out->peak = stats.live_bytes_max;
    fixture_release(&f);
}

static void recomputing_saves_memory_and_changes_no_bit(void **state) {
    (void)state;
    static stepped plain, again;
    step_twice(&plain, false);
    step_twice(&again, true);
    assert_memory_equal(plain.grad, again.grad, sizeof plain.grad);
    assert_memory_equal(plain.running, again.running, sizeof plain.running);
    assert_int_equal(plain.rng_offset, again.rng_offset);
    /* of each block's values of 128 KiB those of one block live at a time */
    assert_true(again.peak < plain.peak - (BLOCKS - 2) * 64 * WIDE * sizeof(float));
}

/* A layer that can't be made leaves its name and its parameters' names free. */
static void a_failed_layer_leaves_no_trace(void **state) {
    (void)state;
    kn_params *params = NULL;
    kn_layer *net = NULL;
    assert_ok(kn_params_create(&params, NULL));
    assert_ok(kn_layer_create(&net, params, NULL));
    assert_null(kn_layer_linear(net, "a", INT64_MAX / 2, 3, NULL));
    assert_true(kn_check() < 0);
    (void)kn_param(params, KN_SHAPE(2), (kn_init){0}, "b.bias");
    (void)kn_param(params, KN_SHAPE(2), (kn_init){0}, "t.out.weight");
    assert_null(kn_layer_linear(net, "b", 3, 2, NULL)); /* its weight fits, its bias doesn't */
    assert_fails(kn_check(), KN_ERR_INVALID, "b.bias");
    assert_null(kn_layer_attention(net, "t", 4, 2, NULL));
    assert_fails(kn_check(), KN_ERR_INVALID, "t.out.weight");
    assert_int_equal(kn_params_count(params), 2);
    assert_int_equal(kn_params_numel(params), 4);
    assert_null(kn_layer_find(net, "b"));
    (void)kn_layer_linear(net, "a", 3, 2, NULL);
    kn_layer *b = kn_layer_linear(net, "b", 2, 2, &(kn_layer_linear_options){.no_bias = true});
    assert_ok(kn_check());
    assert_ptr_equal(kn_layer_find(net, "b"), b);
    assert_int_equal(kn_params_count(params), 5);
    {
        KN_FRAME();
        assert_int_equal(kn_tensor_numel(kn_layer_forward(net, kn_ones(KN_SHAPE(2, 3)))), 4);
        assert_ok(kn_check());
    }
    kn_layer_destroy(net);
    kn_params_destroy(params);
}

/* The first error stays: that of the layer which can't be made. */
static void a_layer_that_is_null_is_an_error(void **state) {
    (void)state;
    kn_params *params = NULL;
    kn_layer *net = NULL;
    assert_ok(kn_params_create(&params, NULL));
    assert_ok(kn_layer_create(&net, params, NULL));
    kn_layer *none = kn_layer_linear(net, "a", INT64_MAX / 2, 3, NULL);
    for (int i = 0; i < 2; i++) {
        kn_layer_mode_set(none, KN_LAYER_EVAL);
        kn_layer_recompute_set(none, true);
        assert_int_equal(kn_layer_numel(none), 0);
        assert_null(kn_layer_param(none, "weight"));
        assert_null(kn_layer_state_at(none, 0, NULL));
        assert_fails(kn_check(), i ? KN_ERR_INVALID : KN_ERR_SHAPE,
                     i ? "kn_layer_mode_set: layer is NULL" : "too large");
    }
    assert_null(kn_layer_param(net, NULL));
    assert_fails(kn_check(), KN_ERR_INVALID, "kn_layer_param: name is NULL");
    kn_layer_destroy(net);
    kn_params_destroy(params);
}

int main(void) {
    return RUN_TESTS(TEST(recomputing_saves_memory_and_changes_no_bit),
                     TEST(paths_name_layers_and_parameters),
                     TEST(wrong_layers_are_errors_with_their_name),
                     TEST(wrong_windows_and_recurrences_are_errors_with_their_value),
                     TEST(a_mode_that_there_is_not_is_an_error_with_its_number),
                     TEST(a_failed_forward_names_layer_shapes_and_call_site),
                     TEST(a_sequence_gives_what_its_ops_give), TEST(an_embedding_gives_rows),
                     TEST(residual_and_dense_layers_join_x_and_their_body),
                     TEST(a_function_of_your_own_is_a_layer),
                     TEST(layers_of_normalization_give_what_their_ops_give),
                     TEST(dropout_trains_while_a_tape_records_or_as_it_is_told),
                     TEST(layers_have_gradients_of_first_and_second_order),
                     TEST(rows_of_derivatives_are_below_their_layer),
                     TEST(a_scope_outlives_its_label_and_a_backward_inside_it),
                     TEST(a_failed_layer_leaves_no_trace), TEST(a_layer_that_is_null_is_an_error),
                     TEST(inference_holds_two_values_of_a_sequence));
}
