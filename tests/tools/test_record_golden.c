/* Small configurations of the models of the record beside PyTorch 1.13: scores, loss and gradients
 * (golden/record.py), and the gradients beside differences. The argument is the folder of the NPZ
 * files. */
#include <knet/file.h>
#include <knet/tape.h>
#include <string.h>

#include "small_models.h"
#include "test.h"

static const char *folder;

typedef struct fixture {
    small_model small;
    kn_file *file;
    kn_params *params;
    kn_model *model;
    kn_dtype dtype;
} fixture;

static void weights_read(fixture *f) {
    char key[160];
    const char *name = NULL;
    for (int i = 0; i < kn_params_count(f->params); i++) {
        KN_FRAME(.dtype = f->dtype, .record = KN_OFF);
        kn_tensor *w = kn_params_at(f->params, i, &name);
        snprintf(key, sizeof key, "w/%s", name);
        kn_tensor *from = kn_cast(kn_file_read(f->file, key), f->dtype);
        assert_ok(kn_check());
        assert_int_equal(kn_tensor_numel(w), kn_tensor_numel(from));
        assert_ok(
            kn_copy_into(w, kn_data(from), (size_t)kn_tensor_numel(w) * kn_dtype_bytes(f->dtype)));
    }
}

static bool fixture_init(fixture *f, int i, kn_dtype dtype) {
    char path[512];
    *f = (fixture){.dtype = dtype};
    if (!small_model_at(&f->small, i)) return false;
    snprintf(path, sizeof path, "%s/record_%s.npz", folder, f->small.kind.name);
    assert_ok(kn_file_open(&f->file, path));
    assert_ok(kn_params_create(&f->params, &(kn_params_options){.dtype = dtype}));
    assert_ok(kn_model_create_kind(&f->model, &f->small.kind, f->params));
    small_model_quiet(f->model);
    weights_read(f);
    return true;
}

static void fixture_release(fixture *f) {
    kn_model_destroy(f->model);
    kn_params_destroy(f->params);
    kn_file_close(f->file);
}

static kn_batch batch_read(const fixture *f) {
    kn_tensor *x = kn_file_read(f->file, "x"), *y = kn_file_read(f->file, "y");
    if (kn_tensor_dtype(x) == KN_F64) x = kn_cast(x, f->dtype);
    if (kn_tensor_dtype(y) == KN_F64) y = kn_cast(y, f->dtype);
    assert_ok(kn_check());
    return (kn_batch){.x = x, .y = y, .n = kn_tensor_shape(x).dim[0]};
}

static void assert_golden(const fixture *f, kn_tensor *got, const char *prefix, const char *name,
                          double tolerance) {
    char key[160], what[256];
    snprintf(key, sizeof key, "%s%s", prefix, name);
    snprintf(what, sizeof what, "%s of %s", key, f->small.kind.name);
    KN_FRAME(.record = KN_OFF);
    kn_tensor *want = kn_file_read(f->file, key), *wide = kn_cast(got, KN_F64);
    assert_ok(kn_check());
    assert_int_equal(kn_tensor_numel(wide), kn_tensor_numel(want));
    const double *a = kn_data(wide), *b = kn_data(want);
    for (int64_t i = 0; i < kn_tensor_numel(want); i++)
        test_assert_close(a[i], b[i], tolerance, tolerance, what, __FILE__, __LINE__);
}

/* Of training: normalized by the batch. */
static void scores_are_pytorchs(fixture *f, double tolerance) {
    KN_FRAME(.dtype = f->dtype, .record = KN_OFF);
    kn_batch batch = batch_read(f);
    kn_layer_mode_set(kn_model_net(f->model), KN_LAYER_TRAIN);
    small_model_quiet(f->model);
    assert_golden(f, kn_model_predict(f->model, &batch), "", "scores", tolerance);
}

/* The prefix of the parameters that a turn moves; "": of all. */
static const char *prefix_of(const fixture *f, int turn) {
    const kn_model_turns *turns = f->small.kind.turns;
    return turns ? turns->prefix[turn] : "";
}
static int turns_of(const fixture *f) { return f->small.kind.turns ? f->small.kind.turns->n : 1; }

static kn_tensor *loss_of(const fixture *f, const kn_batch *batch, int turn) {
    return f->small.kind.turns ? kn_model_turn_loss(f->model, batch, turn)
                               : kn_model_loss(f->model, batch);
}

/* The loss and the gradients of a turn, or of the step of a model without turns. */
static void step_is_pytorchs(const fixture *f, int turn, double tolerance) {
    KN_TAPE(.dtype = KN_F64, .threads = 2);
    const char *name = NULL, *prefix = prefix_of(f, turn);
    char key[16] = "loss";
    if (f->small.kind.turns) snprintf(key, sizeof key, "loss%d", turn);
    kn_batch batch = batch_read(f);
    kn_tensor *loss = loss_of(f, &batch, turn);
    assert_golden(f, loss, "", key, tolerance);
    assert_ok(kn_backward(loss));
    for (int k = 0; k < kn_params_count(f->params); k++) {
        kn_tensor *w = kn_params_at(f->params, k, &name);
        if (strncmp(name, prefix, strlen(prefix)) == 0)
            assert_golden(f, kn_grad(w), "g/", name, tolerance);
    }
}

static void model_is_pytorchs(int i, double tolerance) {
    fixture f;
    fixture_init(&f, i, KN_F64);
    scores_are_pytorchs(&f, tolerance);
    for (int turn = 0; turn < turns_of(&f); turn++) step_is_pytorchs(&f, turn, tolerance);
    fixture_release(&f);
}

static void scores_loss_and_gradients_are_pytorchs(void **state) {
    (void)state;
    small_model s;
    for (int i = 0; small_model_at(&s, i); i++) model_is_pytorchs(i, 1e-9);
}

/* The loss alone: normalization of a few values makes small errors of gradients large. */
static void losses_of_floats_stay_near(void **state) {
    (void)state;
    fixture f;
    for (int i = 0; fixture_init(&f, i, KN_F32); i++) {
        KN_FRAME(.record = KN_OFF);
        kn_batch batch = batch_read(&f);
        kn_layer_mode_set(kn_model_net(f.model), KN_LAYER_TRAIN);
        small_model_quiet(f.model);
        if (f.small.kind.turns)
            assert_golden(&f, loss_of(&f, &batch, 0), "", "loss0", 1e-4);
        else
            assert_golden(&f, kn_model_loss(f.model, &batch), "", "loss", 1e-4);
        fixture_release(&f);
    }
}

/* --- differences --- */

static double loss_at(const fixture *f, int turn) {
    double loss = 0;
    KN_TAPE(.dtype = KN_F64, .threads = 1);
    kn_batch batch = batch_read(f);
    assert_ok(kn_item(&loss, loss_of(f, &batch, turn)));
    return loss;
}

static double direction(int64_t i) { return (double)((i * 29 + 7) % 17) / 8 - 1; }

/* w += step·direction */
static void walk(kn_tensor *w, double step) {
    double *data = kn_data_mut(w);
    for (int64_t i = 0; i < kn_tensor_numel(w); i++) data[i] += step * direction(i);
}

/* The slope along one direction of each parameter. */
static void assert_slopes(const fixture *f, int turn) {
    const double h = 1e-7; /* so small that no relu changes its side */
    for (int k = 0; k < kn_params_count(f->params); k++) {
        const char *name = NULL, *prefix = prefix_of(f, turn);
        kn_tensor *w = kn_params_at(f->params, k, &name);
        if (strncmp(name, prefix, strlen(prefix)) != 0) continue;
        const double *g = kn_data(kn_grad(w));
        double slope = 0;
        for (int64_t j = 0; j < kn_tensor_numel(w); j++) slope += g[j] * direction(j);
        walk(w, h);
        double up = loss_at(f, turn);
        walk(w, -2 * h);
        double down = loss_at(f, turn);
        walk(w, h);
        test_assert_close((up - down) / (2 * h), slope, 1e-5, 1e-5, name, __FILE__, __LINE__);
    }
}

static void gradients_make(const fixture *f, int turn) {
    KN_TAPE(.dtype = KN_F64, .threads = 1);
    kn_batch batch = batch_read(f);
    assert_ok(kn_backward(loss_of(f, &batch, turn)));
}

static void gradients_are_differences(void **state) {
    (void)state;
    fixture f;
    for (int i = 0; fixture_init(&f, i, KN_F64); i++) {
        for (int turn = 0; turn < turns_of(&f); turn++) {
            gradients_make(&f, turn);
            assert_slopes(&f, turn);
        }
        fixture_release(&f);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) folder = argv[1];
    return RUN_TESTS(TEST(scores_loss_and_gradients_are_pytorchs), TEST(losses_of_floats_stay_near),
                     TEST(gradients_are_differences));
}
