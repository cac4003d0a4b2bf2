/* The models of the record: their parameters, that they learn, that they are saved whole. */
#include <knet/checkpoint.h>
#include <knet/sim.h>
#include <knet/tape.h>
#include <knet/train.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "small_models.h"
#include "test.h"

/* --- parameters --- */

/* A device without memory, where weights take no time. */
static kn_device *device_without_memory(void) {
    kn_sim *sim = NULL;
    kn_device *device = NULL;
    assert_ok(kn_sim_create(&sim, NULL));
    assert_ok(kn_device_register(&device, "sim:record", kn_sim_driver(sim), sim));
    return device;
}

static void parameters_are_as_many_as_published(void **state) {
    (void)state;
    KN_FRAME(.device = device_without_memory());
    for (int i = 0; kn_model_kind_at(i); i++) {
        const kn_model_kind *kind = kn_model_kind_at(i);
        kn_params *params = NULL;
        kn_model *model = NULL;
        assert_string_equal(kind->name, kn_model_name_at(i));
        assert_ptr_equal(kn_model_kind_find(kind->name), kind);
        assert_ok(kn_params_create(&params, NULL));
        assert_ok(kn_model_create(&model, kind->name, params));
        if (kn_params_numel(params) != kind->facts->n_params)
            print_error("%s has %lld parameters\n", kind->name, (long long)kn_params_numel(params));
        assert_int_equal(kn_params_numel(params), kind->facts->n_params);
        if (strcmp(kind->name, "resnet50") == 0) {
            kn_layer *fc = kn_layer_find(kn_model_net(model), "fc");
            assert_int_equal(kn_params_numel(params) - kn_layer_numel(fc), 23508032);
        }
        kn_model_destroy(model);
        kn_params_destroy(params);
    }
    assert_null(kn_model_kind_at(-1));
    assert_null(kn_model_kind_find("vgg"));
}

/* --- learning --- */

typedef struct trained {
    small_model small;
    kn_params *params;
    kn_model *model;
    kn_optim *optim;
    kn_loader *train, *test;
} trained;

static kn_loader *loader_of(const trained *t, int64_t n, kn_split split) {
    kn_dataset *data = NULL;
    kn_loader *loader = NULL;
    assert_ok(kn_model_data_make(&data, &t->small.kind, n, split));
    assert_int_equal(kn_dataset_size(data), n);
    assert_ok(kn_loader_create_from(&loader, data,
                                    &(kn_loader_options){.batch = 20, .split = split, .seed = 3}));
    kn_dataset_destroy(data);
    return loader;
}

static bool trained_init(trained *t, int i, uint64_t seed) {
    *t = (trained){.params = NULL};
    if (!small_model_at(&t->small, i)) return false;
    assert_ok(kn_params_create(&t->params, &(kn_params_options){.seed = seed}));
    assert_ok(kn_model_create_kind(&t->model, &t->small.kind, t->params));
    assert_ok(kn_adam_create(&t->optim, t->params, t->small.lr, NULL));
    t->train = loader_of(t, 2000, KN_TRAIN);
    t->test = loader_of(t, 200, KN_TEST);
    return true;
}

static void trained_release(trained *t) {
    kn_loader_destroy(t->train);
    kn_loader_destroy(t->test);
    kn_optim_destroy(t->optim);
    kn_model_destroy(t->model);
    kn_params_destroy(t->params);
}

/* Both models give these bits for a batch. */
static void assert_alike(const trained *a, const trained *b) {
    kn_batch batch;
    assert_true(kn_loader_next(a->test, &batch));
    KN_FRAME(.record = KN_OFF);
    kn_tensor *x = kn_model_predict(a->model, &batch), *y = kn_model_predict(b->model, &batch);
    assert_ok(kn_check());
    assert_int_equal(kn_tensor_numel(x), kn_tensor_numel(y));
    assert_memory_equal(kn_data(x), kn_data(y), (size_t)kn_tensor_numel(x) * sizeof(float));
    kn_loader_rewind(a->test);
}

static void save_and_load(const trained *t, int i) {
    char path[] = "record-XXXXXX";
    trained other;
    close(mkstemp(path));
    kn_checkpoint from = {.params = t->params, .state = kn_model_net(t->model)};
    assert_ok(kn_checkpoint_save(path, &from, NULL));
    trained_init(&other, i, 99);
    kn_checkpoint to = {.params = other.params, .state = kn_model_net(other.model)};
    assert_ok(kn_checkpoint_load(&to, path));
    assert_alike(t, &other);
    trained_release(&other);
    unlink(path);
}

static void an_epoch_lowers_the_loss_and_a_file_keeps_the_model(void **state) {
    (void)state;
    trained t;
    for (int i = 0; trained_init(&t, i, 1); i++) {
        kn_train_result result;
        kn_test_result before;
        assert_ok(kn_test(&before, t.model, t.test));
        assert_ok(kn_train(&result, sizeof result, t.model, t.optim, t.train, t.test, NULL));
        assert_int_equal(result.n_steps, 100);
        if (result.last.test_loss >= t.small.bound)
            print_error("%s: loss %.4f, then %.4f; bound %g\n", t.small.kind.name, before.loss,
                        result.last.test_loss, t.small.bound);
        assert_true(result.last.test_loss < t.small.bound);
        assert_true(result.last.test_loss < before.loss);
        save_and_load(&t, i);
        trained_release(&t);
    }
}

/* --- mixed precision --- */

/* The gradients of one batch, in the dtypes of the frame: sets n and returns them one after the
 * other. */
static float *gradients_of(int64_t *n, trained *t, int autocast) {
    kn_batch batch;
    assert_true(kn_loader_next(t->train, &batch));
    KN_TAPE(.autocast = autocast);
    assert_ok(kn_backward(kn_model_loss(t->model, &batch)));
    float *all = malloc((size_t)kn_params_numel(t->params) * sizeof *all), *next = all;
    for (int k = 0; k < kn_params_count(t->params); k++) {
        kn_tensor *g = kn_grad(kn_params_at(t->params, k, NULL));
        assert_ok(kn_check());
        assert_int_equal(kn_tensor_dtype(g), KN_F32);
        assert_ok(kn_copy_out(next, (size_t)kn_tensor_numel(g) * sizeof *next, g));
        next += kn_tensor_numel(g);
    }
    *n = next - all;
    return all;
}

/* Parameters as they are in bf16. */
static void parameters_round(const trained *t) {
    for (int k = 0; k < kn_params_count(t->params); k++) {
        kn_tensor *w = kn_params_at(t->params, k, NULL);
        kn_tensor *rounded = kn_cast(kn_cast(w, KN_BF16), KN_F32);
        size_t bytes = (size_t)kn_tensor_numel(w) * sizeof(float);
        assert_ok(kn_copy_into(w, kn_data(rounded), bytes));
    }
}

/* Of h[n] from g, relative to g. */
static double distance(const float *h, const float *g, int64_t n) {
    double error = 0, norm = 0;
    for (int64_t k = 0; k < n; k++) {
        error += ((double)h[k] - g[k]) * ((double)h[k] - g[k]);
        norm += (double)g[k] * g[k];
    }
    return sqrt(error / norm);
}

/* How far gradients move by a rounding depends on the net: some nets with batch norm move by their
 * own length. So what mixed precision may do is measured by what rounded parameters alone do. */
static void gradients_in_mixed_precision_move_as_by_rounded_parameters(void **state) {
    (void)state;
    trained t[3];
    for (int i = 0; trained_init(&t[0], i, 1); i++) {
        float *g[3];
        int64_t n[3];
        assert_true(trained_init(&t[1], i, 1) && trained_init(&t[2], i, 1));
        {
            KN_FRAME(.record = KN_OFF);
            parameters_round(&t[1]);
        }
        for (int k = 0; k < 3; k++) g[k] = gradients_of(&n[k], &t[k], k == 2 ? KN_BF16 : KN_OFF);
        assert_true(n[0] == n[1] && n[0] == n[2]);
        double rounded = distance(g[1], g[0], n[0]), mixed = distance(g[2], g[0], n[0]);
        if (!(mixed > 0 && mixed < 10 * rounded + 1e-3))
            print_error("%s: gradients moved by %g in bf16, by %g with rounded parameters\n",
                        t[0].small.kind.name, mixed, rounded);
        assert_true(mixed > 0 && mixed < 10 * rounded + 1e-3);
        for (int k = 0; k < 3; k++) {
            free(g[k]);
            trained_release(&t[k]);
        }
    }
}

/* Some batches: the loss falls at least two thirds as far as in f32. How far exactly is chance:
 * deep nets with batch norm take other ways after the smallest change. */
static void models_learn_in_mixed_precision(void **state) {
    (void)state;
    trained t, mixed;
    for (int i = 0; trained_init(&t, i, 1); i++) {
        assert_true(trained_init(&mixed, i, 1));
        kn_train_result results[2];
        kn_test_result before[2];
        assert_ok(kn_test(&before[0], t.model, t.test));
        kn_loader_take(t.train, 40);
        assert_ok(kn_train(&results[0], sizeof *results, t.model, t.optim, t.train, t.test, NULL));
        KN_FRAME(.autocast = KN_BF16);
        assert_ok(kn_test(&before[1], mixed.model, mixed.test));
        kn_loader_take(mixed.train, 40);
        assert_ok(kn_train(&results[1], sizeof *results, mixed.model, mixed.optim, mixed.train,
                           mixed.test, NULL));
        assert_true(before[1].loss != before[0].loss || strcmp(t.small.kind.name, "linear"));
        assert_close(before[1].loss, before[0].loss, 1e-3, 0);
        double fall = before[0].loss - results[0].last.test_loss;
        double fall_mixed = before[1].loss - results[1].last.test_loss;
        if (fall_mixed < 2.0 / 3 * fall)
            print_error("%s: the loss falls by %g in bf16, by %g in f32\n", t.small.kind.name,
                        fall_mixed, fall);
        assert_true(fall_mixed >= 2.0 / 3 * fall);
        trained_release(&t);
        trained_release(&mixed);
    }
}

/* --- batches and frames of other dtypes --- */

static void assert_runs_in_f64(const small_model *small) {
    kn_params *params = NULL;
    kn_model *model = NULL;
    kn_dataset *data = NULL;
    kn_loader *loader = NULL;
    kn_batch b;
    assert_ok(kn_params_create(&params, &(kn_params_options){.seed = 1, .dtype = KN_F64}));
    assert_ok(kn_model_create_kind(&model, &small->kind, params));
    assert_ok(kn_model_data_make(&data, &small->kind, 8, KN_TRAIN));
    assert_ok(kn_loader_create_from(&loader, data, &(kn_loader_options){.batch = 4}));
    assert_true(kn_loader_next(loader, &b));
    {
        KN_TAPE();
        if (kn_tensor_dtype(b.x) == KN_F32) b.x = kn_cast(b.x, KN_F64);
        if (kn_tensor_dtype(b.y) == KN_F32) b.y = kn_cast(b.y, KN_F64);
        kn_tensor *loss =
            small->kind.turns ? kn_model_turn_loss(model, &b, 0) : kn_model_loss(model, &b);
        assert_ok(kn_backward(loss));
        assert_int_equal(kn_tensor_dtype(loss), KN_F64);
        if (small->kind.predict)
            assert_int_equal(kn_tensor_dtype(kn_model_predict(model, &b)), KN_F64);
        assert_ok(kn_check());
    }
    kn_loader_destroy(loader);
    kn_dataset_destroy(data);
    kn_model_destroy(model);
    kn_params_destroy(params);
}

/* What a model makes itself, such as first states, noise and places, has the parameters' dtype. */
static void parameters_of_f64_need_no_frame_of_f64(void **state) {
    (void)state;
    small_model small;
    for (int i = 0; small_model_at(&small, i); i++) assert_runs_in_f64(&small);
}

static void trained_named(trained *t, const char *name) {
    int i = 0;
    while (small_model_at(&t->small, i) && strcmp(t->small.kind.name, name) != 0) i++;
    assert_true(trained_init(t, i, 1));
}

static void characters_may_be_integers_of_any_size(void **state) {
    (void)state;
    enum { B = 2, T = 3, L = 5, N = B * T * L };
    static const kn_dtype dtypes[] = {KN_I64, KN_I32, KN_U8};
    trained t;
    int64_t numbers[N];
    float want[B * T * 3];
    trained_named(&t, "tagger_chars");
    for (int k = 0; k < N; k++) numbers[k] = k % L == 0 ? k % 13 : k % L < 4 ? k % 7 : 0;
    {
        KN_FRAME(.record = KN_OFF);
        kn_tensor *x = kn_tensor_from(numbers, KN_I64, KN_SHAPE(B, T, L));
        for (int k = 0; k < 3; k++) {
            kn_tensor *y = kn_model_logits(t.model, kn_cast(x, dtypes[k]));
            assert_ok(kn_check());
            assert_int_equal(kn_tensor_numel(y), B * T * 3);
            if (k == 0) memcpy(want, kn_data(y), sizeof want);
            assert_memory_equal(kn_data(y), want, sizeof want);
        }
        assert_null(kn_model_logits(t.model, kn_cast(x, KN_F32)));
        assert_fails(kn_check(), KN_ERR_DTYPE, "f32");
        assert_null(kn_model_logits(t.model, kn_reshape(x, KN_SHAPE(B, T * L))));
        assert_fails(kn_check(), KN_ERR_SHAPE, "x is i64 [2,15]; expected [B,T,1+L]");
    }
    trained_release(&t);
}

static void trees_without_nodes_are_an_error(void **state) {
    (void)state;
    static const int64_t late[] = {-1, 1, 2, 5, -1, -1, 6, -1, -1}; /* the root comes first */
    static const int64_t padding[] = {-1, -1, -1};
    trained t;
    trained_named(&t, "tree_lstm");
    {
        KN_FRAME(.record = KN_OFF);
        assert_null(kn_model_logits(t.model, kn_tensor_from(late, KN_I64, KN_SHAPE(1, 3, 3))));
        assert_fails(kn_check(), KN_ERR_INVALID, "children come before their parents");
        for (int64_t B = 0; B < 2; B++) {
            kn_tensor *x = kn_tensor_from(padding, KN_I64, KN_SHAPE(B, 1, 3));
            assert_null(kn_model_logits(t.model, x));
            assert_fails(kn_check(), KN_ERR_INVALID, "tree_lstm: x has no words");
        }
    }
    trained_release(&t);
}

/* --- optimisers, data --- */

static void the_optimiser_of_the_record_steps(void **state) {
    (void)state;
    trained t;
    for (int i = 0; trained_init(&t, i, 1); i++) {
        kn_optim *optim = NULL;
        kn_batch batch;
        assert_ok(kn_model_optim_create(&optim, t.model, 0));
        assert_string_equal(kn_optim_name(optim), t.small.facts.optimizer);
        assert_true(kn_loader_next(t.train, &batch));
        {
            KN_FRAME(.record = KN_OFF);
            kn_tensor *loss = NULL;
            double value = 0;
            assert_ok(kn_model_step(&loss, t.model, optim, &batch));
            assert_ok(kn_item(&value, loss));
            assert_true(isfinite(value));
        }
        kn_optim_destroy(optim);
        trained_release(&t);
    }
}

static void a_kind_without_facts_or_files_has_no_data(void **state) {
    (void)state;
    kn_dataset *data = NULL;
    kn_model_kind bare = *kn_model_kind_find("mlp");
    bare.facts = NULL;
    assert_fails(kn_model_data_make(&data, &bare, 10, KN_TRAIN), KN_ERR_INVALID,
                 "the model mlp states no data");
    assert_fails(kn_model_data_read(&data, kn_model_kind_find("connect4"), NULL, KN_TRAIN),
                 KN_ERR_UNSUPPORTED, "connect4 reads no files");
    assert_fails(kn_model_data_read(&data, kn_model_kind_find("gru_imdb"), NULL, KN_TRAIN),
                 KN_ERR_INVALID,
                 "the model gru_imdb has no default data; give a path; it is for IMDB");
}

static void a_text_makes_samples_of_both_splits(void **state) {
    (void)state;
    small_model s;
    char path[] = "text-XXXXXX";
    FILE *file = fdopen(mkstemp(path), "w");
    assert_non_null(file);
    for (int i = 0; i < 40; i++) fputs("all that is gold does not glitter. ", file);
    fclose(file);
    for (int i = 0; small_model_at(&s, i); i++) {
        kn_dataset *train = NULL, *test = NULL;
        if (strcmp(s.kind.name, "char_lstm") != 0 && strcmp(s.kind.name, "lstm_lm") != 0) continue;
        assert_ok(kn_model_data_read(&train, &s.kind, path, KN_TRAIN));
        assert_ok(kn_model_data_read(&test, &s.kind, path, KN_TEST));
        assert_true(kn_dataset_size(train) > 5 * kn_dataset_size(test));
        assert_int_equal(kn_dataset_shape(test).dim[0], s.facts.x.dim[0]);
        kn_dataset_destroy(train);
        kn_dataset_destroy(test);
    }
    unlink(path);
}

static kn_tensor *all_of(kn_batch *b, kn_loader **loader, kn_dataset *data) {
    const kn_loader_options o = {.batch = kn_dataset_size(data), .split = KN_TEST};
    assert_ok(kn_loader_create_from(loader, data, &o));
    kn_dataset_destroy(data);
    assert_true(kn_loader_next(*loader, b));
    return b->x;
}

/* The words of a text are numbered by the vocabulary of another one, which lacks "glitter". */
static void a_text_is_read_by_the_vocabulary_of_another_one(void **state) {
    (void)state;
    char path[] = "text-XXXXXX";
    static const char known[] = "gold gold gold gold is is is not not all";
    kn_vocab *v = NULL;
    kn_dataset *own = NULL, *theirs = NULL;
    kn_loader *loader = NULL;
    kn_batch b;
    FILE *file = fdopen(mkstemp(path), "w");
    assert_non_null(file);
    for (int i = 0; i < 80; i++) fputs("glitter is not gold\n", file);
    fclose(file);
    const kn_model_kind *kind = kn_model_kind_find("lstm_lm");
    assert_ok(kn_vocab_create(&v, known, strlen(known), &(kn_vocab_options){.unit = KN_WORDS}));
    assert_ok(kn_model_data_read_text(&own, kind, path, KN_TEST, NULL));
    assert_ok(kn_model_data_read_text(&theirs, kind, path, KN_TEST, v));
    assert_int_equal(kn_dataset_size(own), kn_dataset_size(theirs));
    const int64_t want[] = {1, 3, 4, 2}; /* unknown, is, not, gold */
    const int64_t *x = kn_data(all_of(&b, &loader, theirs));
    for (int64_t i = 1; i < kind->facts->x.dim[0]; i++) {
        int k = 0;
        while (k < 4 && want[k] != x[i - 1]) k++;
        assert_true(k < 4);
        assert_int_equal(x[i], want[(k + 1) % 4]);
    }
    kn_loader_destroy(loader);
    x = kn_data(all_of(&b, &loader, own));
    for (int64_t i = 0; i < kind->facts->x.dim[0]; i++) assert_true(x[i] != 1);
    kn_loader_destroy(loader);
    kn_vocab_destroy(v);
    unlink(path);
    assert_fails(kn_model_data_read_text(&own, kn_model_kind_find("mlp"), path, KN_TEST, NULL),
                 KN_ERR_INVALID, "the model mlp reads no text");
}

/* A loss of the kind's own has other targets than classes. */
static void a_classifier_has_the_cross_entropy_of_its_scores(void **state) {
    (void)state;
    static const struct {
        const char *name;
        bool is_classifier;
    } all[] = {{"mlp", true}, {"gru_imdb", true}, {"linear", false}, {"lstm_lm", false}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        kn_params *params = NULL;
        kn_model *model = NULL;
        assert_ok(kn_params_create(&params, NULL));
        assert_ok(kn_model_create(&model, all[i].name, params));
        assert_int_equal(kn_model_is_classifier(model), all[i].is_classifier);
        KN_FRAME(.record = KN_OFF);
        if (!strcmp(all[i].name, "mlp")) {
            kn_batch b = {.x = kn_ones(KN_SHAPE(2, 1, 28, 28)),
                          .y = kn_tensor_from((const int64_t[]){3, 4}, KN_I64, KN_SHAPE(2)),
                          .n = 2};
            double loss = 0, want = 0;
            assert_ok(kn_item(&loss, kn_model_loss(model, &b)));
            assert_ok(kn_item(&want, kn_cross_entropy(kn_model_logits(model, b.x), b.y)));
            assert_close(loss, want, 1e-6, 0);
        }
        kn_model_destroy(model);
        kn_params_destroy(params);
    }
}

int main(void) {
    return RUN_TESTS(
        TEST(parameters_are_as_many_as_published),
        TEST_LONG(an_epoch_lowers_the_loss_and_a_file_keeps_the_model),
        TEST(gradients_in_mixed_precision_move_as_by_rounded_parameters),
        TEST_LONG(models_learn_in_mixed_precision), TEST(parameters_of_f64_need_no_frame_of_f64),
        TEST(characters_may_be_integers_of_any_size), TEST(trees_without_nodes_are_an_error),
        TEST(the_optimiser_of_the_record_steps), TEST(a_kind_without_facts_or_files_has_no_data),
        TEST(a_text_makes_samples_of_both_splits),
        TEST(a_text_is_read_by_the_vocabulary_of_another_one),
        TEST(a_classifier_has_the_cross_entropy_of_its_scores));
}
