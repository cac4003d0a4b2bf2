/* Checkpoints that don't fit the program: refused as a whole, with the reason. */
#include <knet/checkpoint.h>
#include <knet/file.h>
#include <knet/op.h>
#include <knet/tape.h>
#include <math.h>

#include "checkpoint_dir.h"
#include "test.h"

typedef struct pair {
    kn_params *params;
    kn_optim *optim;
    kn_tensor *w[2];
} pair;

static kn_checkpoint pair_open(pair *p) {
    *p = (pair){0};
    assert_ok(kn_params_create(&p->params, NULL));
    for (int i = 0; i < 2; i++)
        p->w[i] = kn_param(p->params, KN_SHAPE(2 + i), kn_init_normal(0, 1), "w%d", i);
    assert_ok(kn_adam_create(&p->optim, p->params, 0.1, NULL));
    return (kn_checkpoint){.params = p->params, .optim = p->optim};
}

static void pair_close(pair *p) {
    kn_optim_destroy(p->optim);
    kn_params_destroy(p->params);
}

static void a_scale_that_none_has_is_refused_before_anything_changes(void **state) {
    (void)state;
    pair p;
    kn_checkpoint c = pair_open(&p);
    c.optim = NULL;
    assert_ok(kn_loss_scale_create(&c.scale, p.params, NULL));
    assert_ok(kn_checkpoint_save(path, &c, NULL));
    file_change("\"4679240012837945344 0 0\"", "\"1000000000000000000 0 0\""); /* 65536 */
    ((float *)kn_data_mut(p.w[0]))[0] = 7;
    assert_fails(kn_checkpoint_load(&c, path), KN_ERR_INVALID, "knet.scale of the metadata");
    assert_close(((const float *)kn_data(p.w[0]))[0], 7, 0, 0);
    assert_close(kn_loss_scale_state_get(c.scale).factor, 65536, 0, 0);
    kn_loss_scale_destroy(c.scale);
    pair_close(&p);
}

static void a_file_without_a_scale_is_refused_where_one_is_wanted(void **state) {
    (void)state;
    pair p;
    kn_checkpoint c = pair_open(&p);
    assert_ok(kn_checkpoint_save(path, &c, NULL));
    assert_ok(kn_loss_scale_create(&c.scale, p.params, NULL));
    assert_fails(kn_checkpoint_load(&c, path), KN_ERR_INVALID, "has no loss scale: it is of a run");
    kn_loss_scale_destroy(c.scale);
    pair_close(&p);
}

/* A file of weights and a scale, with no numbers of its own. */
static void numbers_that_a_file_lacks_are_zero(void **state) {
    (void)state;
    pair p;
    kn_checkpoint c = pair_open(&p);
    c.optim = NULL;
    assert_ok(kn_loss_scale_create(&c.scale, p.params, NULL));
    assert_ok(kn_checkpoint_save(path, &c, NULL));
    file_change("knet.numbers", "else.numbers");
    c.number[0] = 77;
    assert_ok(kn_checkpoint_load(&c, path));
    for (int i = 0; i < 8; i++) assert_int_equal(c.number[i], 0);
    kn_loss_scale_destroy(c.scale);
    pair_close(&p);
}

/* Which does not have to be the program's, or in the file at all. */
static void a_file_has_the_math_mode(void **state) {
    (void)state;
    static const kn_math_mode modes[] = {KN_MATH_STRICT, KN_MATH_TF32, KN_MATH_BF16};
    pair p;
    kn_file *f = NULL;
    kn_checkpoint c = pair_open(&p);
    for (int i = 0; i < 3; i++) {
        KN_FRAME(.math = modes[i]);
        assert_ok(kn_checkpoint_save(path, &c, NULL));
        assert_ok(kn_file_open(&f, path));
        assert_string_equal(kn_file_metadata(f, "knet.math"), kn_math_mode_name(modes[i]));
        kn_file_close(f);
    }
    assert_ok(kn_checkpoint_load(&c, path));
    file_change("knet.math", "else.math");
    assert_ok(kn_checkpoint_load(&c, path));
    pair_close(&p);
}

/* A backward that meets w[first] first; factor: of the loss. */
static void pair_backward(pair *p, int first, double factor) {
    KN_TAPE();
    kn_tensor *x = kn_sum(p->w[!first], KN_ALL, false), *y = kn_sum(p->w[first], KN_ALL, false);
    assert_ok(kn_backward(kn_affine(kn_mul(x, kn_exp(y)), factor, 0)));
}

/* After a step whose backward meets w[first] first. */
static void pair_save(int first) {
    pair p;
    kn_checkpoint c = pair_open(&p);
    pair_backward(&p, first, 1);
    assert_ok(kn_optim_step(p.optim));
    assert_ok(kn_checkpoint_save(path, &c, NULL));
    pair_close(&p);
}

static void a_refused_file_leaves_the_order_of_gradients_open(void **state) {
    (void)state;
    pair p;
    pair_save(0);
    file_change("optimizer/v/w1", "optimizer/v/z1");
    kn_checkpoint c = pair_open(&p);
    assert_fails(kn_checkpoint_load(&c, path), KN_ERR_INVALID, "has no tensor 'optimizer/v/w1'");
    pair_save(1);
    assert_ok(kn_checkpoint_load(&c, path));
    pair_close(&p);
}

static void assert_same_weights(const pair *a, const pair *b) {
    for (int i = 0; i < 2; i++)
        assert_memory_equal(kn_data(a->w[i]), kn_data(b->w[i]), (size_t)(2 + i) * sizeof(float));
}

/* Loads the file of `a`, then takes the same step in both. */
static void assert_continues(pair *a, const kn_checkpoint *saved) {
    pair b;
    kn_checkpoint c = pair_open(&b);
    if (saved->scale) assert_ok(kn_loss_scale_create(&c.scale, b.params, NULL));
    assert_ok(kn_checkpoint_load(&c, path));
    int order[2] = {-1, -1};
    kn_params_order(order, b.params);
    assert_int_equal(order[0], 1);
    pair_backward(a, 1, 1);
    pair_backward(&b, 1, 1);
    assert_ok(kn_optim_step(a->optim));
    assert_ok(kn_optim_step(b.optim));
    assert_same_weights(a, &b);
    kn_loss_scale_destroy(c.scale);
    pair_close(&b);
}

/* Of a run whose last gradient is empty. */
static kn_checkpoint with_empty(const int order[]) {
    kn_checkpoint c = {.params = NULL};
    assert_ok(kn_params_create(&c.params, NULL));
    for (int i = 0; i < 3; i++)
        (void)kn_param(c.params, KN_SHAPE(i < 2), kn_init_normal(0, 1), "w%d", i);
    assert_ok(kn_params_order_set(c.params, order, 3));
    assert_ok(kn_adam_create(&c.optim, c.params, 0.1, NULL));
    return c;
}

/* Older versions saved another place of it than it had. */
static void an_empty_gradient_may_have_another_place(void **state) {
    (void)state;
    static const int orders[][3] = {{2, 1, 0}, {1, 2, 0}, {1, 0, 2}, {2, 0, 1}};
    for (int i = 0; i < 4 * 4; i++) {
        kn_checkpoint from = with_empty(orders[i / 4]), to = with_empty(orders[i % 4]);
        assert_ok(kn_checkpoint_save(path, &from, NULL));
        if ((i / 4 == 3) == (i % 4 == 3))
            assert_ok(kn_checkpoint_load(&to, path));
        else
            assert_fails(kn_checkpoint_load(&to, path), KN_ERR_INVALID, "the order is final");
        kn_optim_destroy(from.optim);
        kn_optim_destroy(to.optim);
        kn_params_destroy(from.params);
        kn_params_destroy(to.params);
    }
}

static void a_run_whose_first_steps_are_skipped_continues(void **state) {
    (void)state;
    pair p;
    bool stepped = true;
    kn_checkpoint c = pair_open(&p);
    assert_ok(kn_loss_scale_create(&c.scale, p.params, NULL));
    pair_backward(&p, 1, INFINITY);
    assert_ok(kn_loss_scale_step(c.scale, p.optim, &stepped));
    assert_false(stepped);
    assert_ok(kn_checkpoint_save(path, &c, NULL));
    assert_continues(&p, &c);
    kn_loss_scale_destroy(c.scale);
    pair_close(&p);
}

static void a_run_before_its_first_step_continues(void **state) {
    (void)state;
    pair p;
    kn_checkpoint c = pair_open(&p);
    pair_backward(&p, 1, 1);
    assert_ok(kn_checkpoint_save(path, &c, NULL));
    kn_optim_state_written(p.optim); /* discards the gradients */
    assert_continues(&p, &c);
    pair_close(&p);
}

/* As files of before the state was saved with the order. */
static void an_order_without_a_state_is_that_of_a_run_before_its_first_step(void **state) {
    (void)state;
    static const char *const order[][2] = {
        {"knet.order", "1 0"}, {"knet.optimizer", "adam"}, {"knet.numbers", "0 0 0 0 0 0 0 0"}};
    pair p;
    kn_checkpoint c = pair_open(&p);
    kn_named all[] = {{"w0", p.w[0]}, {"w1", p.w[1]}, {"optimizer/hyper", NULL}};
    KN_FRAME();
    all[2].tensor = kn_optim_state_at(p.optim, 0, (char[64]){0}, 64);
    assert_ok(kn_safetensors_save(path, all, 3, order, 3));
    assert_continues(&p, &c);
    assert_fails(kn_checkpoint_load(&c, path), KN_ERR_INVALID, "has no tensor 'optimizer/m/w0'");
    pair_close(&p);
}

static void a_run_on_other_data_is_refused(void **state) {
    (void)state;
    pair p;
    kn_checkpoint c = pair_open(&p);
    kn_loader_options o = {.batch = 50, .seed = 1};
    assert_ok(kn_loader_create_synthetic(&c.train, 500, &o));
    assert_ok(kn_checkpoint_save(path, &c, NULL));
    kn_loader_destroy(c.train);
    o.seed = 2;
    assert_ok(kn_loader_create_synthetic(&c.train, 500, &o));
    assert_fails(kn_checkpoint_load(&c, path), KN_ERR_INVALID, "is of seed 1; the loader's is 2");
    kn_loader_destroy(c.train);
    pair_close(&p);
}

/* A loader of a text's characters in samples of three. */
static kn_loader *text_open(const char *text) {
    char name[2 * FILES_PATH_MAX];
    kn_dataset *data = NULL;
    kn_loader *loader = NULL;
    kn_vocab *vocab = NULL;
    files_write(dir, "text", text, strlen(text), true);
    snprintf(name, sizeof name, "%s/text", dir);
    assert_ok(kn_dataset_read_text(&data, &vocab, name, 3, NULL));
    assert_ok(kn_loader_create_from(&loader, data, &(kn_loader_options){.batch = 1}));
    kn_dataset_destroy(data);
    kn_vocab_destroy(vocab);
    return loader;
}

static void a_checkpoint_has_the_vocabulary_of_its_text(void **state) {
    (void)state;
    pair p;
    kn_file *f = NULL;
    kn_vocab *vocab = NULL;
    (void)pair_open(&p);
    kn_checkpoint c = {.params = p.params, .train = text_open("aababba")};
    assert_ok(kn_checkpoint_save(path, &c, NULL));
    assert_ok(kn_checkpoint_load(&c, path));
    assert_ok(kn_file_open(&f, path));
    assert_ok(kn_vocab_parse(&vocab, kn_file_metadata(f, "knet.vocab")));
    assert_int_equal(kn_vocab_find(vocab, "b", 1), 3);
    kn_vocab_destroy(vocab);
    kn_file_close(f);
    kn_loader_destroy(c.train);
    c.train = text_open("bbabaab");
    assert_fails(kn_checkpoint_load(&c, path), KN_ERR_INVALID, "of a text with another vocabulary");
    kn_loader_destroy(c.train);
    pair_close(&p);
}

static void refused(kn_checkpoint *c, const char *text) {
    assert_fails(kn_checkpoint_save(path, c, NULL), KN_ERR_INVALID, text);
    assert_fails(kn_checkpoint_load(c, path), KN_ERR_INVALID, text);
}

static void objects_of_another_set_are_refused(void **state) {
    (void)state;
    pair p, q;
    kn_checkpoint c = pair_open(&p), other = pair_open(&q);
    assert_ok(kn_checkpoint_save(path, &c, NULL));
    c.optim = other.optim;
    refused(&c, "optim is of another parameter set than params");
    c.optim = p.optim;
    assert_ok(kn_ema_create(&c.ema, q.params, 0.9));
    refused(&c, "ema is of another parameter set than params");
    kn_ema_destroy(c.ema);
    pair_close(&p);
    pair_close(&q);
}

static void averages_from_before_a_parameter_are_refused(void **state) {
    (void)state;
    pair p;
    kn_checkpoint c = pair_open(&p);
    c.optim = NULL;
    assert_ok(kn_checkpoint_save(path, &c, NULL));
    assert_ok(kn_ema_create(&c.ema, p.params, 0.9));
    (void)kn_param(p.params, KN_SHAPE(2), (kn_init){0}, "late");
    refused(&c, "the tensor 'ema/late' is NULL");
    kn_ema_destroy(c.ema);
    pair_close(&p);
}

static void entries_that_are_null_are_refused(void **state) {
    (void)state;
    pair p;
    kn_checkpoint c = pair_open(&p);
    kn_named extra[] = {{"first", p.w[0]}, {"second", NULL}};
    assert_ok(kn_checkpoint_save(path, &c, NULL));
    c.extra = extra;
    c.n_extra = 2;
    refused(&c, "the tensor of extra[1], second is NULL");
    extra[1] = (kn_named){NULL, p.w[1]};
    refused(&c, "the name of extra[1] is NULL");
    c.extra = NULL;
    refused(&c, "extra is NULL, n_extra 2");
    c.n_extra = 0;
    assert_fails(kn_checkpoint_save(path, &c, &(kn_checkpoint_options){.keep = -3}), KN_ERR_INVALID,
                 "keep is -3");
    assert_ok(kn_checkpoint_load(&c, path));
    pair_close(&p);
}

/* As PyTorch's state_dict in a safetensors file: weights and running means, no metadata. */
static void weights_of_other_programs_load_by_params_and_state(void **state) {
    (void)state;
    kn_params *params = NULL;
    kn_layer *net = NULL;
    KN_FRAME();
    assert_ok(kn_params_create(&params, NULL));
    assert_ok(kn_layer_create(&net, params, NULL));
    kn_layer_batchnorm(net, "norm", 2, NULL);
    kn_layer_dropout(net, "drop", 0.5);
    assert_ok(kn_check());
    kn_tensor *of_two = kn_full(KN_SHAPE(2), 2), *tracked = kn_cast(kn_ones(KN_SCALAR), KN_I64);
    const kn_named tensors[] = {{"norm.weight", of_two},
                                {"norm.bias", of_two},
                                {"norm.running_mean", of_two},
                                {"norm.running_var", of_two},
                                {"norm.num_batches_tracked", tracked}};
    assert_ok(kn_safetensors_save(path, tensors, 5, NULL, 0));
    assert_fails(kn_checkpoint_load(&(kn_checkpoint){.params = params, .net = net}, path),
                 KN_ERR_INVALID, "its weights load with params and state alone");
    double y = 0;
    kn_tensor *x = kn_full(KN_SHAPE(1, 2), 4);
    assert_ok(kn_checkpoint_load(&(kn_checkpoint){.params = params, .state = net}, path));
    assert_ok(kn_item(&y, kn_mean(kn_layer_forward(net, x), KN_ALL, false)));
    assert_close(y, 2 + 2 * (4 - 2) / sqrt(2), 1e-4, 0);
    kn_layer_destroy(net);
    kn_params_destroy(params);
}

/* Whose body is "fc", with a norm after it, and a head if it is wanted. */
static void net_open(kn_params **params, kn_layer **net, kn_dtype dtype, bool has_head) {
    assert_ok(kn_params_create(params, &(kn_params_options){.dtype = dtype}));
    assert_ok(kn_layer_create(net, *params, NULL));
    kn_layer_linear(*net, "fc", 2, 3, NULL);
    kn_layer_batchnorm(*net, "norm", 3, NULL);
    if (has_head) kn_layer_linear(*net, "head", 3, 1, NULL);
    assert_ok(kn_check());
}

/* 1 + 2^-8 + 2^-30: bf16's nearest is 1 + 2^-7, but 1 for who rounds to f32 first. */
static const double between = 1 + 0x1p-8 + 0x1p-30;

/* A file of the net without a head, its floats of that dtype, and a tensor that no net has. */
static void net_file_save(kn_dtype dtype, const char *key) {
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *three = kn_cast(kn_full(KN_SHAPE(3), 2), dtype);
    const kn_named tensors[] = {{"fc.weight", kn_cast(kn_full(KN_SHAPE(3, 2), between), dtype)},
                                {"fc.bias", three},
                                {"norm.weight", three},
                                {"norm.bias", three},
                                {"norm.running_mean", three},
                                {"norm.running_var", three},
                                {"norm.num_batches_tracked", kn_cast(kn_ones(KN_SCALAR), KN_I64)},
                                {"old_head.weight", three}};
    const char *const pairs[][2] = {{key, "adam"}};
    assert_ok(kn_safetensors_save(path, tensors, 8, pairs, 1));
}

static double first_of(kn_params *params, const char *name) {
    double value = 0;
    KN_FRAME();
    kn_tensor *all = kn_reshape(kn_params_find(params, name), KN_SHAPE(-1));
    assert_ok(kn_item(&value, kn_tensor_view(all, KN_SCALAR, 0)));
    return value;
}

static void floats_of_another_width_are_cast(void **state) {
    (void)state;
    static const struct {
        kn_dtype file, program;
        double expected;
    } cases[] = {
        {KN_F16, KN_F32, 1 + 0x1p-8},     {KN_BF16, KN_F32, 1 + 0x1p-7},
        {KN_F64, KN_F32, (float)between}, {KN_F32, KN_F64, (float)between},
        {KN_F16, KN_F64, 1 + 0x1p-8},     {KN_F32, KN_F32, (float)between},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kn_params *params = NULL;
        kn_layer *net = NULL;
        net_open(&params, &net, cases[i].program, false);
        net_file_save(cases[i].file, "other");
        assert_ok(kn_checkpoint_load(&(kn_checkpoint){.params = params, .state = net}, path));
        assert_close(first_of(params, "fc.weight"), cases[i].expected, 0, 0);
        assert_int_equal(kn_tensor_dtype(kn_params_find(params, "fc.bias")), cases[i].program);
        kn_layer_destroy(net);
        kn_params_destroy(params);
    }
}

static void a_cast_rounds_once(void **state) {
    (void)state;
    pair p;
    double value = 0;
    KN_FRAME();
    kn_checkpoint c = pair_open(&p);
    const kn_named weights[] = {
        {"w0", p.w[0]}, {"w1", p.w[1]}, {"half", kn_cast(kn_full(KN_SCALAR, 0), KN_F64)}};
    assert_ok(kn_fill_into(weights[2].tensor, between));
    assert_ok(kn_safetensors_save(path, weights, 3, NULL, 0));
    kn_named half = {"half", kn_cast(kn_zeros(KN_SCALAR), KN_BF16)};
    c = (kn_checkpoint){.params = p.params, .extra = &half, .n_extra = 1};
    assert_ok(kn_checkpoint_load(&c, path));
    assert_ok(kn_item(&value, kn_cast(half.tensor, KN_F32)));
    assert_close(value, 1 + 0x1p-7, 0, 0);
    pair_close(&p);
}

/* Those that the file has as infinite or NaN are. */
static void floats_beyond_the_range_are_refused_before_anything_changes(void **state) {
    (void)state;
    const struct {
        kn_dtype file, program;
        double value;
        const char *message; /* NULL: loads */
    } cases[] = {{KN_F64, KN_F32, -1e300, "'w1' has -1e+300, which is beyond the range of f32"},
                 {KN_F32, KN_F16, 1e5f, "'w1' has 100000, which is beyond the range of f16"},
                 {KN_F32, KN_BF16, 3.4e38f, "which is beyond the range of bf16"},
                 {KN_F64, KN_F32, 3.4e38, NULL},
                 {KN_F64, KN_F32, INFINITY, NULL},
                 {KN_F64, KN_BF16, (double)NAN, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kn_params *params = NULL;
        double loaded = 0;
        KN_FRAME();
        assert_ok(kn_params_create(&params, NULL));
        kn_tensor *w0 = kn_param(params, KN_SHAPE(2), kn_init_normal(0, 1), "w0");
        kn_named w1 = {"w1", kn_cast(kn_zeros(KN_SHAPE(3)), cases[i].program)};
        kn_tensor *file = kn_cast(kn_ones(KN_SHAPE(3)), cases[i].file);
        assert_ok(kn_fill_into(kn_tensor_view(file, KN_SCALAR, 2), cases[i].value));
        assert_ok(kn_safetensors_save(
            path, (kn_named[]){{"w0", kn_full(KN_SHAPE(2), 5)}, {"w1", file}}, 2, NULL, 0));
        kn_checkpoint c = {.params = params, .extra = &w1, .n_extra = 1};
        double before = ((const float *)kn_data(w0))[0];
        kn_status status = kn_checkpoint_load(&c, path);
        assert_close(((const float *)kn_data(w0))[0], cases[i].message ? before : 5, 0, 0);
        if (cases[i].message) {
            assert_fails(status, KN_ERR_INVALID, cases[i].message);
        } else {
            assert_ok(status);
            kn_tensor *last = kn_cast(kn_tensor_view(w1.tensor, KN_SCALAR, 2), KN_F32);
            assert_ok(kn_item(&loaded, last));
            assert_true(loaded == (double)(float)cases[i].value || isnan(cases[i].value));
            assert_int_equal(isnan(loaded), isnan(cases[i].value));
        }
        kn_params_destroy(params);
    }
}

static void floats_beside_an_optimisers_state_are_not_cast(void **state) {
    (void)state;
    kn_params *params = NULL;
    kn_layer *net = NULL;
    net_open(&params, &net, KN_F32, false);
    kn_checkpoint c = {.params = params, .state = net};
    net_file_save(KN_F16, "knet.optimizer");
    assert_fails(kn_checkpoint_load(&c, path), KN_ERR_INVALID,
                 "'fc.weight' is f16; the program's is f32 (a file with an optimiser's state is "
                 "not cast)");
    net_file_save(KN_I32, "other"); /* no floats */
    assert_fails(kn_checkpoint_load(&c, path), KN_ERR_INVALID,
                 "'fc.weight' is i32; the program's is f32");
    kn_layer_destroy(net);
    kn_params_destroy(params);
}

static void a_partial_load_leaves_what_the_file_lacks(void **state) {
    (void)state;
    kn_params *params = NULL, *others = NULL;
    kn_layer *net = NULL, *other = NULL;
    net_open(&params, &net, KN_F32, true);
    kn_checkpoint c = {.params = params, .state = net, .n_lacking = 7};
    double before = first_of(params, "head.weight");
    net_file_save(KN_F16, "other");
    assert_fails(kn_checkpoint_load(&c, path), KN_ERR_INVALID, "has no tensor 'head.weight'");
    c.partial = 1;
    assert_ok(kn_checkpoint_load(&c, path));
    assert_int_equal(c.n_lacking, 2);
    assert_close(first_of(params, "head.weight"), before, 0, 0);
    assert_close(first_of(params, "fc.weight"), 1 + 0x1p-8, 0, 0);
    assert_close(first_of(params, "norm.bias"), 2, 0, 0);
    net_open(&others, &other, KN_F32, false);
    c = (kn_checkpoint){.params = others, .state = other, .partial = 1, .n_lacking = 7};
    assert_ok(kn_checkpoint_load(&c, path));
    assert_int_equal(c.n_lacking, 0);
    kn_layer_destroy(net);
    kn_layer_destroy(other);
    kn_params_destroy(params);
    kn_params_destroy(others);
}

static void a_partial_load_of_what_does_not_fit_is_refused(void **state) {
    (void)state;
    kn_params *params = NULL;
    pair p;
    net_file_save(KN_F32, "other");
    kn_checkpoint c = pair_open(&p);
    c.partial = 1;
    assert_fails(kn_checkpoint_load(&c, path), KN_ERR_INVALID,
                 "partial is 1: it is for weights alone, without optim and ema");
    c.optim = NULL;
    assert_fails(kn_checkpoint_load(&c, path), KN_ERR_INVALID,
                 "has none of the program's 2 tensors, such as 'w0'");
    c.partial = 2;
    assert_fails(kn_checkpoint_load(&c, path), KN_ERR_INVALID, "partial is 2; 0 or 1 are possible");
    pair_close(&p);
    assert_ok(kn_params_create(&params, NULL));
    kn_tensor *w = kn_param(params, KN_SHAPE(4, 2), (kn_init){0}, "fc.weight");
    assert_non_null(w);
    c = (kn_checkpoint){.params = params, .partial = 1};
    assert_fails(kn_checkpoint_load(&c, path), KN_ERR_INVALID,
                 "'fc.weight' is [3,2]; the program's is [4,2]");
    kn_params_destroy(params);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_scale_that_none_has_is_refused_before_anything_changes),
        TEST(a_file_without_a_scale_is_refused_where_one_is_wanted),
        TEST(numbers_that_a_file_lacks_are_zero),
        TEST(a_file_has_the_math_mode),
        TEST(a_refused_file_leaves_the_order_of_gradients_open),
        TEST(an_empty_gradient_may_have_another_place),
        TEST(a_run_whose_first_steps_are_skipped_continues),
        TEST(a_run_before_its_first_step_continues),
        TEST(an_order_without_a_state_is_that_of_a_run_before_its_first_step),
        TEST(a_run_on_other_data_is_refused),
        TEST(a_checkpoint_has_the_vocabulary_of_its_text),
        TEST(objects_of_another_set_are_refused),
        TEST(averages_from_before_a_parameter_are_refused),
        TEST(entries_that_are_null_are_refused),
        TEST(weights_of_other_programs_load_by_params_and_state),
        TEST(floats_of_another_width_are_cast),
        TEST(a_cast_rounds_once),
        TEST(floats_beyond_the_range_are_refused_before_anything_changes),
        TEST(floats_beside_an_optimisers_state_are_not_cast),
        TEST(a_partial_load_leaves_what_the_file_lacks),
        TEST(a_partial_load_of_what_does_not_fit_is_refused)};
    return cmocka_run_group_tests_name("test_checkpoint_fit", tests, dir_make, dir_remove);
}
