/* Training that carries a state from batch to batch of a text. */
#include <knet/checkpoint.h>
#include <knet/tape.h>
#include <knet/train.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "small_models.h"
#include "test.h"

enum { LENGTH = 6, ROWS = 4, BATCHES = 5, EPOCHS = 2, N = ROWS * BATCHES, WORDS_MAX = 16 };
static const char *const names[] = {"char_lstm", "char_lstm_steps"};

typedef struct text {
    small_model small;
    kn_dataset *data;
    int64_t word[N * LENGTH + 1];
} text;

/* One text, cut into samples of x and of y, which is one further on. */
static void text_init(text *t, const char *name) {
    for (int i = 0; small_model_at(&t->small, i); i++)
        if (strcmp(t->small.kind.name, name) == 0) break;
    assert_string_equal(t->small.kind.name, name);
    int64_t words = t->small.facts.words;
    assert_true(words > 2 && words <= WORDS_MAX);
    for (int64_t i = 0, state = 1; i <= N * LENGTH; i++) {
        state = (state * 1103515245 + 12345) % 2147483648;
        t->word[i] = state / 65536 % words;
    }
    KN_FRAME(.record = KN_OFF);
    assert_ok(kn_dataset_create(&t->data, kn_tensor_from(t->word, KN_I64, KN_SHAPE(N, LENGTH)),
                                kn_tensor_from(t->word + 1, KN_I64, KN_SHAPE(N, LENGTH)), 0));
}

typedef struct trained {
    kn_params *params;
    kn_model *model;
    kn_optim *optim;
    kn_loader *train, *test;
    double loss[EPOCHS * BATCHES];
    int n, stop_at; /* 0: never */
} trained;

static void trained_init(trained *t, const text *from, double lr, int ordered) {
    *t = (trained){.n = 0};
    assert_ok(kn_params_create(&t->params, &(kn_params_options){.seed = 5}));
    assert_ok(kn_model_create_kind(&t->model, &from->small.kind, t->params));
    assert_ok(kn_sgd_create(&t->optim, t->params, lr, NULL));
    const kn_loader_options options = {.batch = ROWS, .ordered = ordered};
    assert_ok(kn_loader_create_from(&t->train, from->data, &options));
    assert_ok(kn_loader_create_from(&t->test, from->data,
                                    &(kn_loader_options){.batch = ROWS, .split = KN_TEST}));
}

static void trained_release(trained *t) {
    kn_loader_destroy(t->train);
    kn_loader_destroy(t->test);
    kn_optim_destroy(t->optim);
    kn_model_destroy(t->model);
    kn_params_destroy(t->params);
}

static bool step_done(void *ctx, const kn_train_step *step) {
    trained *t = ctx;
    assert_true(t->n < EPOCHS * BATCHES);
    assert_ok(kn_item(&t->loss[t->n++], step->loss));
    return t->n != t->stop_at;
}

static kn_train_result train(trained *t, const kn_train_checkpoint *checkpoint,
                             const kn_train_more *more) {
    kn_train_result result;
    assert_ok(kn_train(&result, sizeof result, t->model, t->optim, t->train, t->test,
                       &(kn_train_options){.epochs = EPOCHS,
                                           .on_step_fn = step_done,
                                           .checkpoint = checkpoint,
                                           .more = more,
                                           .ctx = t}));
    return result;
}

/* The loss of each batch, of LENGTH steps, where each row is read as one long sequence. */
static void losses_of_whole(double out[BATCHES], const trained *t, const text *from) {
    int64_t n = BATCHES * LENGTH, words = from->small.facts.words;
    KN_FRAME(.record = KN_OFF);
    const kn_batch all = {.x = kn_tensor_from(from->word, KN_I64, KN_SHAPE(ROWS, n)), .n = ROWS};
    const float *score = kn_data(kn_model_predict(t->model, &all)); /* [n,ROWS,words] */
    assert_non_null(score);
    for (int b = 0; b < BATCHES; b++) out[b] = 0;
    for (int64_t k = 0; k < n * ROWS; k++, score += words) {
        double sum = 0, place = (double)(score[from->word[k % ROWS * n + k / ROWS + 1]]);
        for (int64_t i = 0; i < words; i++) sum += exp((double)score[i]);
        out[k / ROWS / LENGTH] += (log(sum) - place) / (LENGTH * ROWS);
    }
}

static double apart(const double a[], const double b[], int n) {
    double most = 0;
    for (int i = 0; i < n; i++) most = fmax(most, fabs(a[i] - b[i]));
    return most;
}

static void batches_continue_as_one_long_sequence(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        text from;
        trained t;
        double whole[BATCHES];
        text_init(&from, names[i]);
        trained_init(&t, &from, 1e-30, 2);
        losses_of_whole(whole, &t, &from);
        kn_train_result result = train(&t, NULL, NULL);
        assert_int_equal(t.n, EPOCHS * BATCHES);
        assert_true(apart(t.loss, whole, BATCHES) < 1e-5);
        /* An epoch begins with zeros. */
        assert_memory_equal(t.loss, t.loss + BATCHES, BATCHES * sizeof *t.loss);
        /* A test continues nothing, and nothing is left when the training has ended. */
        kn_test_result alone;
        assert_ok(kn_test(&alone, t.model, t.test));
        assert_true(result.last.test_loss == alone.loss);
        assert_true(fabs(result.last.loss - alone.loss) > 5e-6);
        {
            KN_TAPE();
            assert_null(kn_model_carry(kn_model_net(t.model)));
            assert_ok(kn_check());
        }
        trained_release(&t);
        trained_init(&t, &from, 1e-30, 1); /* each batch from zeros */
        result = train(&t, NULL, NULL);
        assert_true(fabs(result.last.loss - alone.loss) < 1e-6);
        trained_release(&t);
        kn_dataset_destroy(from.data);
    }
}

static uint64_t hash_of(kn_params *params) {
    uint64_t hash = 1469598103934665603u;
    for (int i = 0; i < kn_params_count(params); i++) {
        kn_tensor *w = kn_params_at(params, i, NULL);
        const unsigned char *bytes = kn_data(w);
        for (int64_t k = 0; k < kn_tensor_numel(w) * 4; k++)
            hash = (hash ^ bytes[k]) * 1099511628211u;
    }
    return hash;
}

static void a_resumed_run_and_a_captured_one_have_the_same_bits(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        text from;
        trained t;
        char path[] = "carry-XXXXXX";
        kn_capture *capture = NULL;
        close(mkstemp(path));
        text_init(&from, names[i]);
        trained_init(&t, &from, 0.5, 2);
        train(&t, NULL, NULL);
        uint64_t hash = hash_of(t.params);
        trained_release(&t);
        trained_init(&t, &from, 0.5, 2);
        assert_ok(kn_capture_create(&capture, NULL));
        train(&t, NULL, &(kn_train_more){.capture = capture});
        assert_true(hash_of(t.params) == hash);
        kn_capture_destroy(capture);
        trained_release(&t);
        for (int stop = 1; stop < EPOCHS * BATCHES; stop++) {
            unlink(path);
            trained_init(&t, &from, 0.5, 2);
            t.stop_at = stop;
            assert_true(train(&t, &(kn_train_checkpoint){.path = path}, NULL).stopped);
            trained_release(&t);
            trained_init(&t, &from, 0.5, 2);
            train(&t, &(kn_train_checkpoint){.path = path, .resume = 1}, NULL);
            assert_int_equal(t.n, EPOCHS * BATCHES - stop);
            if (hash_of(t.params) != hash) fail_msg("%s: other bits after step %d", names[i], stop);
            trained_release(&t);
        }
        unlink(path);
        kn_dataset_destroy(from.data);
    }
}

static void mixed_precision_carries_a_state(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        text from;
        trained t;
        double whole[BATCHES];
        text_init(&from, names[i]);
        trained_init(&t, &from, 1e-30, 2);
        losses_of_whole(whole, &t, &from);
        KN_FRAME(.autocast = KN_BF16);
        train(&t, NULL, NULL);
        assert_true(apart(t.loss, whole, BATCHES) < 0.02);
        trained_release(&t);
        kn_dataset_destroy(from.data);
    }
}

/* A loader of 23 numbers: 2 ranks have 11 each, in batches of 3. */
static void rows_of_a_loader_continue_those_of_the_batch_before(void **state) {
    (void)state;
    enum { ALL = 23, RANKS = 2, BATCH = 3, EACH = ALL / RANKS };
    int64_t number[ALL];
    kn_dataset *data = NULL;
    for (int i = 0; i < ALL; i++) number[i] = i;
    KN_FRAME(.record = KN_OFF);
    assert_ok(kn_dataset_create(&data, kn_tensor_from(number, KN_I64, KN_SHAPE(ALL)), NULL, 0));
    for (int rank = 0; rank < RANKS; rank++) {
        kn_loader *loader = NULL;
        kn_batch b;
        const kn_loader_options options = {
            .batch = BATCH, .ordered = 2, .rank = rank, .n_ranks = RANKS, .partial = 1};
        assert_ok(kn_loader_create_from(&loader, data, &options));
        for (int epoch = 0; epoch < 2; epoch++) {
            for (int k = 0; kn_loader_next(loader, &b); k++) {
                const int64_t *x = kn_data(b.x);
                assert_int_equal(b.n, k < EACH / BATCH ? BATCH : EACH % BATCH);
                for (int64_t i = 0; i < b.n; i++)
                    assert_int_equal(x[i], rank * EACH + (k < EACH / BATCH ? i * (EACH / BATCH) + k
                                                                           : k * BATCH + i));
            }
            assert_ok(kn_check());
        }
        kn_loader_destroy(loader);
    }
    kn_dataset_destroy(data);
}

int main(void) {
    return RUN_TESTS(TEST(batches_continue_as_one_long_sequence),
                     TEST(a_resumed_run_and_a_captured_one_have_the_same_bits),
                     TEST(mixed_precision_carries_a_state),
                     TEST(rows_of_a_loader_continue_those_of_the_batch_before));
}
