/* The optimisers of the models of the record beside PyTorch's formulas, with the record's numbers:
 * two steps for gradients of 1e-5 and 0.1. And the record's batches. */
#include <knet/models.h>
#include <knet/tape.h>
#include <math.h>
#include <string.h>

#include "test.h"

enum { N = 2, STEPS = 2 };
typedef enum rule { SGD, ADAM, RMSPROP } rule;

/* a: momentum, beta1 or alpha. */
typedef struct row {
    const char *name;
    rule rule;
    double lr, a;
} row;

static const row rows[] = {
    {"linear", SGD, 0.1, 0},
    {"softmax", SGD, 0.15, 0},
    {"mlp", SGD, 0.15, 0},
    {"lenet", SGD, 0.1, 0},
    {"vgg_cifar", SGD, 0.01, 0.9},
    {"cifar_bn", SGD, 0.1, 0.95},
    {"vgg16", SGD, 0.01, 0.9},
    {"resnet18", SGD, 0.1, 0.9},
    {"resnet34", SGD, 0.1, 0.9},
    {"resnet50", SGD, 0.1, 0.9},
    {"resnet50_knet", SGD, 0.1, 0.9},
    {"resnet101", SGD, 0.1, 0.9},
    {"resnet152", SGD, 0.1, 0.9},
    {"densenet121", ADAM, 1e-4, 0.9},
    {"densenet121_imagenet", SGD, 0.1, 0.9},
    {"mobilenet_v2", SGD, 0.05, 0.9},
    {"gru_imdb", ADAM, 0.001, 0.9},
    {"char_lstm", RMSPROP, 0.002, 0.95},
    {"char_lstm_steps", RMSPROP, 0.002, 0.95},
    {"lstm_lm", ADAM, 0.001, 0.9},
    {"tagger", ADAM, 0.001, 0.9},
    {"tagger_chars", ADAM, 0.001, 0.9},
    {"connect4", ADAM, 0.002, 0.9},
    {"gpt", ADAM, 0.001, 0.9},
    {"vae", ADAM, 0.001, 0.9},
    {"seq2seq", ADAM, 0.001, 0.9},
    {"transformer", ADAM, 0.0005, 0.9},
    {"dcgan", ADAM, 2e-4, 0.5},
    {"tree_lstm", ADAM, 0.001, 0.9},
    {"reinforce", ADAM, 0.005, 0.9},
};

static double gradient_at(int step, int i) { return (i ? 0.1 : 1e-5) * (step ? -0.5 : 1); }

/* Where a weight that starts at 0 is after the steps. */
static double weight_after(const row *r, int i) {
    const double eps = 1e-8, beta2 = 0.999;
    double w = 0, m = 0, v = 0;
    for (int t = 1; t <= STEPS; t++) {
        double g = gradient_at(t - 1, i);
        if (r->rule == SGD) {
            m = r->a * m + g;
            w -= r->lr * m;
        } else if (r->rule == RMSPROP) {
            v = r->a * v + (1 - r->a) * g * g;
            w -= r->lr * g / (sqrt(v) + eps);
        } else {
            m = r->a * m + (1 - r->a) * g;
            v = beta2 * v + (1 - beta2) * g * g;
            w -= r->lr / (1 - pow(r->a, t)) * m / (sqrt(v) / sqrt(1 - pow(beta2, t)) + eps);
        }
    }
    return w;
}

static void step(kn_params *params, kn_optim *optim, int t) {
    double g[N];
    for (int i = 0; i < N; i++) g[i] = gradient_at(t, i);
    KN_TAPE(.dtype = KN_F64);
    kn_tensor *terms =
        kn_mul(kn_params_at(params, 0, NULL), kn_tensor_from(g, KN_F64, KN_SHAPE(N)));
    assert_ok(kn_backward(kn_sum(terms, KN_ALL, false)));
    assert_ok(kn_optim_step(optim));
}

/* kn_rmsprop adds eps inside the root: a gradient of 1e-5 moves the weight 0.5 % further. */
static void assert_steps(const kn_model_facts *facts, const row *r) {
    kn_params *params = NULL;
    kn_optim *optim = NULL;
    double got[N];
    char what[64];
    assert_ok(kn_params_create(&params, &(kn_params_options){.dtype = KN_F64}));
    assert_non_null(kn_param(params, KN_SHAPE(N), (kn_init){.kind = KN_INIT_ZEROS}, "w"));
    assert_ok(facts->optim(&optim, params, facts->lr));
    for (int t = 0; t < STEPS; t++) step(params, optim, t);
    assert_ok(kn_copy_out(got, sizeof got, kn_params_at(params, 0, NULL)));
    for (int i = 0; i < N; i++) {
        snprintf(what, sizeof what, "%s, gradient %g", r->name, gradient_at(0, i));
        double tolerance = r->rule == RMSPROP ? 6e-3 : 1e-12;
        test_assert_close(got[i], weight_after(r, i), tolerance, 0, what, __FILE__, __LINE__);
    }
    kn_optim_destroy(optim);
    kn_params_destroy(params);
}

static void optimisers_step_as_pytorchs(void **state) {
    (void)state;
    for (int i = 0; kn_model_kind_at(i); i++) {
        const kn_model_kind *kind = kn_model_kind_at(i);
        size_t k = 0;
        while (k < sizeof rows / sizeof *rows && strcmp(rows[k].name, kind->name) != 0) k++;
        if (k == sizeof rows / sizeof *rows) fail_msg("no row for %s", kind->name);
        assert_steps(kind->facts, &rows[k]);
    }
}

/* --- batches --- */

static void batches_are_the_records(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t batch;
    } of[] = {{"mlp", 100},     {"lenet", 128},    {"vgg_cifar", 64},  {"cifar_bn", 64},
              {"gru_imdb", 64}, {"char_lstm", 50}, {"lstm_lm", 64},    {"seq2seq", 128},
              {"tagger", 1},    {"tree_lstm", 1},  {"connect4", 1024}, {"densenet121", 64}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const kn_model_facts *facts = kn_model_kind_find(of[i].name)->facts;
        assert_int_equal(facts->batch, of[i].batch);
    }
}

static void made_up_sets_have_a_batch(void **state) {
    (void)state;
    for (int i = 0; kn_model_kind_at(i); i++) {
        const kn_model_facts *facts = kn_model_kind_at(i)->facts;
        if (facts->n_made && facts->n_made < facts->batch)
            fail_msg("%s: batches of %lld of %lld samples", kn_model_kind_at(i)->name,
                     (long long)facts->batch, (long long)facts->n_made);
    }
}

int main(void) {
    return RUN_TESTS(TEST(optimisers_step_as_pytorchs), TEST(batches_are_the_records),
                     TEST(made_up_sets_have_a_batch));
}
