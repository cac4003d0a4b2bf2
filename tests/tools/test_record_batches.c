/* Batches that don't fit a model of the record: the error names the model and the values. */
#include <math.h>
#include <string.h>

#include "small_models.h"
#include "test.h"

typedef struct fixture {
    small_model small;
    kn_params *params;
    kn_model *model;
} fixture;

static void fixture_init(fixture *f, const char *name) {
    int i = 0;
    while (small_model_at(&f->small, i) && strcmp(f->small.kind.name, name) != 0) i++;
    assert_string_equal(f->small.kind.name, name);
    assert_ok(kn_params_create(&f->params, &(kn_params_options){.seed = 1}));
    assert_ok(kn_model_create_kind(&f->model, &f->small.kind, f->params));
}

static void fixture_release(fixture *f) {
    kn_model_destroy(f->model);
    kn_params_destroy(f->params);
}

/* --- shapes --- */

#define SIZES(...)                                                                                 \
    { {__VA_ARGS__}, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)) }
#define NONE                                                                                       \
    { {0}, -1 }

typedef struct misfit {
    const char *name;
    kn_dtype dtype; /* of x */
    kn_shape x, y;  /* y NONE: NULL */
    kn_status status;
    const char *message;
} misfit;

static const misfit misfits[] = {
    {"gru_imdb", KN_I64, SIZES(7), SIZES(7), KN_ERR_SHAPE,
     "gru_imdb: x is i64 [7]; expected [B,T]"},
    {"gru_imdb", KN_I64, SIZES(2, 7, 1), SIZES(2), KN_ERR_SHAPE,
     "gru_imdb: x is i64 [2,7,1]; expected [B,T]"},
    {"gru_imdb", KN_I64, SIZES(2, 7), NONE, KN_ERR_INVALID,
     "gru_imdb: y is missing; expected the class of each sample"},
    {"char_lstm", KN_I64, SIZES(6), SIZES(6), KN_ERR_SHAPE, "char_lstm: x is i64 [6]; expected "},
    {"char_lstm", KN_I64, SIZES(2, 6), NONE, KN_ERR_INVALID,
     "char_lstm: y is missing; expected [B,T]"},
    {"char_lstm", KN_I64, SIZES(2, 6), SIZES(12), KN_ERR_SHAPE,
     "char_lstm: y is i64 [12]; expected [B,T]"},
    {"char_lstm_steps", KN_I64, SIZES(2, 513), SIZES(2, 513), KN_ERR_SHAPE,
     "char_lstm_steps: x is i64 [2,513]; expected [B,T] with T at most 512"},
    {"char_lstm_steps", KN_I64, SIZES(6), SIZES(6), KN_ERR_SHAPE,
     "char_lstm_steps: x is i64 [6]; expected [B,T]"},
    {"char_lstm_steps", KN_I64, SIZES(2, 6), NONE, KN_ERR_INVALID, "char_lstm_steps: y is missing"},
    {"lstm_lm", KN_I32, SIZES(6), SIZES(6), KN_ERR_SHAPE, "lstm_lm: x is i32 [6]; expected [B,T]"},
    {"lstm_lm", KN_I64, SIZES(2, 6), NONE, KN_ERR_INVALID, "lstm_lm: y is missing"},
    {"tagger", KN_I64, SIZES(5), SIZES(5), KN_ERR_SHAPE, "tagger: x is i64 [5]; expected [B,T]"},
    {"tagger", KN_I64, SIZES(2, 5), NONE, KN_ERR_INVALID, "tagger: y is missing"},
    {"tagger_chars", KN_I64, SIZES(2, 25), SIZES(2, 5), KN_ERR_SHAPE,
     "tagger_chars: x is i64 [2,25]; expected [B,T,1+L]"},
    {"tagger_chars", KN_I64, SIZES(2, 5, 5), NONE, KN_ERR_INVALID, "tagger_chars: y is missing"},
    {"gpt", KN_I64, SIZES(6), SIZES(6), KN_ERR_SHAPE,
     "gpt: x is i64 [6]; expected [B,T] with T at most 6"},
    {"gpt", KN_I64, SIZES(1, 7), SIZES(1, 7), KN_ERR_SHAPE, "gpt: x is i64 [1,7]; expected "},
    {"gpt", KN_I64, SIZES(1, 6), NONE, KN_ERR_INVALID, "gpt: y is missing"},
    {"seq2seq", KN_I64, SIZES(2, 5), SIZES(2, 5), KN_ERR_SHAPE,
     "seq2seq: x is i64 [2,5]; expected [B,2,T]"},
    {"seq2seq", KN_I64, SIZES(2, 3, 5), SIZES(2, 5), KN_ERR_SHAPE,
     "seq2seq: x is i64 [2,3,5]; expected [B,2,T]"},
    {"seq2seq", KN_I64, SIZES(2, 2, 5), NONE, KN_ERR_INVALID, "seq2seq: y is missing"},
    {"transformer", KN_I64, SIZES(10), SIZES(5), KN_ERR_SHAPE, "transformer: x is i64 [10]; "},
    {"transformer", KN_I64, SIZES(1, 2, 5), NONE, KN_ERR_INVALID, "transformer: y is missing"},
    {"tree_lstm", KN_I32, SIZES(2, 9, 3), SIZES(2, 9), KN_ERR_DTYPE,
     "tree_lstm: x is i32 [2,9,3]; expected i64 [B,N,3]: word, left and right child"},
    {"tree_lstm", KN_I64, SIZES(9, 3), SIZES(9), KN_ERR_SHAPE, "tree_lstm: x is i64 [9,3]; "},
    {"tree_lstm", KN_I64, SIZES(1, 9, 4), SIZES(1, 9), KN_ERR_SHAPE, "tree_lstm: x is i64 [1,9,4]"},
    {"reinforce", KN_F32, SIZES(2, 5, 3), NONE, KN_ERR_INVALID,
     "reinforce: y is missing; expected [2,4]"},
    {"reinforce", KN_F32, SIZES(2, 3, 5), SIZES(2, 4), KN_ERR_SHAPE,
     "reinforce: x is f32 [2,3,5]; expected [B,5,3]"},
    {"reinforce", KN_F32, SIZES(2, 5, 3), SIZES(1, 4), KN_ERR_SHAPE,
     "reinforce: y is i64 [1,4]; expected [2,4]"},
    {"reinforce", KN_F32, SIZES(0, 5, 3), SIZES(0, 4), KN_ERR_SHAPE,
     "reinforce: x is [0,5,3]: B is 0; expected 1 or more"},
    {"linear", KN_F32, SIZES(2, 5), NONE, KN_ERR_INVALID, "linear: y is missing"},
    {"softmax", KN_F32, SIZES(2, 1, 3, 4), NONE, KN_ERR_INVALID, "softmax: y is missing"},
    {"densenet121", KN_F32, SIZES(2, 3, 32, 32), NONE, KN_ERR_INVALID, "densenet121: y is missing"},
    {"connect4", KN_F32, SIZES(2, 3, 6, 7), NONE, KN_ERR_INVALID,
     "connect4: y is missing; expected [B,16]"},
    {"connect4", KN_F32, SIZES(2, 3, 6, 7), SIZES(2, 8), KN_ERR_SHAPE,
     "connect4: y is i64 [2,8]; expected [B,16]"},
    {"vae", KN_F32, SIZES(0, 1, 3, 4), NONE, KN_ERR_SHAPE, "vae: x is [0,1,3,4]: B is 0"},
    {"dcgan", KN_F32, SIZES(0, 3, 16, 16), NONE, KN_ERR_SHAPE, "dcgan: x is [0,3,16,16]: B is 0"},
};

static kn_tensor *zeros(kn_shape s, kn_dtype dtype) {
    return s.n_dims < 0 ? NULL : kn_cast(kn_zeros(s), dtype);
}

static void a_batch_that_does_not_fit_is_named_with_its_shape(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof misfits / sizeof *misfits; i++) {
        const misfit *m = &misfits[i];
        fixture f;
        fixture_init(&f, m->name);
        {
            KN_FRAME(.record = KN_OFF);
            const kn_batch batch = {.x = zeros(m->x, m->dtype), .y = zeros(m->y, KN_I64), .n = 2};
            assert_ok(kn_check());
            assert_null(kn_model_loss(f.model, &batch));
            assert_fails(kn_check(), m->status, m->message);
        }
        fixture_release(&f);
    }
}

/* --- the number of samples --- */

static double value_of(kn_tensor *loss) {
    double value = NAN;
    assert_ok(kn_item(&value, loss));
    return value;
}

/* The loss of a batch of three, whatever its n says. */
static void assert_counts_x(const char *name, kn_shape shape) {
    fixture f;
    fixture_init(&f, name);
    kn_layer_mode_set(kn_model_net(f.model), KN_LAYER_EVAL);
    KN_FRAME(.record = KN_OFF);
    kn_batch batch = {.x = kn_full(shape, 0.5), .n = 3};
    double want = value_of(kn_model_loss(f.model, &batch));
    assert_true(isfinite(want));
    for (batch.n = -3; batch.n < 2; batch.n += 3)
        assert_true(value_of(kn_model_loss(f.model, &batch)) == want);
    fixture_release(&f);
}

static void losses_count_the_samples_of_x(void **state) {
    (void)state;
    assert_counts_x("vae", KN_SHAPE(3, 1, 3, 4));
    assert_counts_x("dcgan", KN_SHAPE(3, 3, 16, 16));
}

/* --- trees --- */

typedef struct tree {
    int64_t nodes[9];
    const char *message;
} tree;

static const tree trees[] = {
    {{-1, 1, 2, 5, -1, -1, 6, -1, -1},
     "tree_lstm: the left child 1 of node 0 of tree 1 is not before it; children come before their "
     "parents"},
    {{5, -1, -1, 6, -1, -1, -1, 0, 2},
     "tree_lstm: the right child 2 of node 2 of tree 1 is not before it"},
    {{5, -1, -1, 6, -1, -1, -1, -1, 1},
     "tree_lstm: the left child -1 of node 2 of tree 1 is missing"},
    {{5, -1, -1, 6, -1, -1, -1, 0, -1},
     "tree_lstm: the right child -1 of node 2 of tree 1 is missing"},
    {{5, -1, -1, 6, -1, -1, -1, 0, 3},
     "tree_lstm: the right child 3 of node 2 of tree 1 is beyond the last node"},
    {{5, -1, -1, 6, -1, -1, -1, -2, -2},
     "tree_lstm: the left child -2 of node 2 of tree 1 is not the number of a node"},
    {{5, -1, -1, -1, -1, -1, -1, 0, 1},
     "tree_lstm: the right child 1 of node 2 of tree 1 is padding"},
};

static void a_child_that_is_no_node_is_an_error(void **state) {
    (void)state;
    static const int64_t good[9] = {5, -1, -1, 6, -1, -1, -1, 0, 1};
    fixture f;
    fixture_init(&f, "tree_lstm");
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) {
        int64_t x[18];
        memcpy(x, good, sizeof good);
        memcpy(x + 9, trees[i].nodes, sizeof good);
        KN_FRAME(.record = KN_OFF);
        assert_null(kn_model_logits(f.model, kn_tensor_from(x, KN_I64, KN_SHAPE(2, 3, 3))));
        assert_fails(kn_check(), KN_ERR_INVALID, trees[i].message);
    }
    fixture_release(&f);
}

/* --- characters --- */

static void a_character_beyond_the_words_is_an_error(void **state) {
    (void)state;
    static const char *const names[] = {"char_lstm", "char_lstm_steps"};
    static const kn_dtype dtypes[] = {KN_I64, KN_I32, KN_U8};
    int64_t text[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8};
    for (int i = 0; i < 6; i++) {
        fixture f;
        fixture_init(&f, names[i / 3]);
        KN_FRAME(.record = KN_OFF);
        for (text[7] = 8; text[7] < 10; text[7]++) {
            kn_tensor *x = kn_tensor_from(text, KN_I64, KN_SHAPE(2, 6));
            kn_tensor *y = kn_model_logits(f.model, kn_cast(x, dtypes[i % 3]));
            if (text[7] == 9) {
                assert_null(y);
                assert_fails(kn_check(), KN_ERR_INVALID, "index 9 is outside 9 elements");
            }
            assert_ok(kn_check());
        }
        fixture_release(&f);
    }
}

int main(void) {
    return RUN_TESTS(TEST(a_batch_that_does_not_fit_is_named_with_its_shape),
                     TEST(losses_count_the_samples_of_x), TEST(a_child_that_is_no_node_is_an_error),
                     TEST(a_character_beyond_the_words_is_an_error));
}
