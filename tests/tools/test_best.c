/* The file of the best epoch. */
#include <knet/checkpoint.h>
#include <knet/file.h>
#include <knet/tape.h>
#include <knet/train.h>
#include <math.h>
#include <unistd.h>

#include "checkpoint_dir.h"
#include "test.h"

enum { EPOCHS = 8 };

/* Rates this large have worse epochs after better ones. */
typedef struct run {
    kn_params *params;
    kn_model *model;
    kn_optim *optim;
    kn_loader *train, *test;
    kn_train_more more;
    double loss[EPOCHS];
    int n, n_steps, stop; /* stop: after so many steps; 0: never */
    kn_train_result result;
} run;

static char best_path[sizeof path + 8];

static int begin(void **state) {
    dir_make(state);
    snprintf(best_path, sizeof best_path, "%s.best", path);
    return 0;
}

static void on_epoch(void *ctx, const kn_epoch *epoch) {
    run *r = ctx;
    r->loss[r->n++] = isnan(epoch->test_loss) ? epoch->loss : epoch->test_loss;
}

static bool on_step(void *ctx, const kn_train_step *step) {
    (void)step;
    run *r = ctx;
    return ++r->n_steps != r->stop;
}

static void run_open(run *r) {
    kn_loader_options options = {.batch = 20, .seed = 1};
    *r = (run){0};
    assert_ok(kn_params_create(&r->params, &(kn_params_options){.seed = 1}));
    assert_ok(kn_model_create(&r->model, "mlp", r->params));
    assert_ok(kn_adam_create(&r->optim, r->params, 0.1, NULL));
    assert_ok(kn_loader_create_synthetic(&r->train, 400, &options));
    options.split = KN_TEST;
    assert_ok(kn_loader_create_synthetic(&r->test, 100, &options));
}

static void run_close(run *r) {
    kn_ema_destroy(r->more.ema);
    kn_loader_destroy(r->train);
    kn_loader_destroy(r->test);
    kn_optim_destroy(r->optim);
    kn_model_destroy(r->model);
    kn_params_destroy(r->params);
}

static void run_train(run *r, int64_t epochs, const kn_train_checkpoint *checkpoint,
                      kn_loader *test) {
    assert_ok(kn_train(&r->result, sizeof r->result, r->model, r->optim, r->train, test,
                       &(kn_train_options){.epochs = epochs,
                                           .on_step_fn = on_step,
                                           .on_epoch_fn = on_epoch,
                                           .checkpoint = checkpoint,
                                           .more = &r->more,
                                           .ctx = r}));
}

static int least_of(const run *r) {
    int least = 0;
    for (int i = 1; i < r->n; i++)
        if (r->loss[i] < r->loss[least]) least = i;
    return least;
}

static void assert_evaluates_to(double loss, bool averaged) {
    run r;
    kn_test_result tested;
    run_open(&r);
    kn_checkpoint c = {.params = r.params, .state = kn_model_net(r.model)};
    if (averaged) assert_ok(kn_ema_create(&c.ema, r.params, 0.5));
    assert_ok(kn_checkpoint_load(&c, best_path));
    if (averaged) assert_ok(kn_ema_swap(c.ema));
    assert_ok(kn_test(&tested, r.model, r.test));
    assert_close(tested.loss, loss, 0, 0);
    kn_ema_destroy(c.ema);
    run_close(&r);
}

/* With and without a checkpoint of the run, and by averages. */
static void the_file_has_the_epoch_with_the_least_test_loss(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        run r;
        run_open(&r);
        if (i == 2) assert_ok(kn_ema_create(&r.more.ema, r.params, 0.1));
        run_train(&r, EPOCHS, &(kn_train_checkpoint){.path = i ? path : NULL, .best = best_path},
                  r.test);
        assert_int_equal(r.n, EPOCHS);
        assert_true(least_of(&r) < EPOCHS - 1); /* else the last epoch would do */
        assert_evaluates_to(r.loss[least_of(&r)], i == 2);
        run_close(&r);
    }
}

static void without_a_test_the_training_loss_decides(void **state) {
    (void)state;
    run r;
    kn_checkpoint c;
    run_open(&r);
    run_train(&r, EPOCHS, &(kn_train_checkpoint){.best = best_path}, NULL);
    c = (kn_checkpoint){.params = r.params};
    assert_ok(kn_checkpoint_load(&c, best_path));
    assert_int_equal(c.number[0], least_of(&r) + 1);
    run_close(&r);
}

static void patience_ends_a_run_with_the_best_in_the_file(void **state) {
    (void)state;
    run r;
    run_open(&r);
    const kn_train_checkpoint checkpoint = {.best = best_path};
    assert_ok(kn_train(&r.result, sizeof r.result, r.model, r.optim, r.train, r.test,
                       &(kn_train_options){.epochs = EPOCHS,
                                           .patience = 1,
                                           .on_epoch_fn = on_epoch,
                                           .checkpoint = &checkpoint,
                                           .ctx = &r}));
    assert_true(r.result.converged);
    assert_int_equal(least_of(&r), r.n - 2);
    assert_evaluates_to(r.loss[r.n - 2], false);
    run_close(&r);
}

/* Stopped in every epoch, each rest by itself. */
static void a_resumed_run_keeps_the_best_of_the_runs_before(void **state) {
    (void)state;
    run whole, part = {0};
    const kn_train_checkpoint checkpoint = {.path = path, .resume = 1, .best = best_path};
    run_open(&whole);
    run_train(&whole, EPOCHS, NULL, whole.test);
    for (int i = 0; i < 3 * EPOCHS && part.n_steps < whole.n_steps; i++) {
        run_open(&part);
        part.stop = 13;
        run_train(&part, EPOCHS, &checkpoint, part.test);
        part.n_steps = (int)part.result.n_steps;
        run_close(&part);
    }
    assert_int_equal(part.n_steps, whole.n_steps);
    assert_true(least_of(&whole) < EPOCHS - 1);
    assert_evaluates_to(whole.loss[least_of(&whole)], false);
    run_close(&whole);
}

typedef enum other_file { MISSING, EMPTY, OTHER_MODEL, OTHERS } other_file;

/* Puts a file there that a resumed run may not take for its own. */
static void other_file_make(other_file kind) {
    unlink(best_path);
    if (kind == EMPTY) {
        FILE *f = fopen(best_path, "w");
        assert_non_null(f);
        assert_int_equal(fclose(f), 0);
    } else if (kind == OTHER_MODEL) {
        kn_params *params = NULL;
        kn_checkpoint c = {.number = {1}}; /* of a loss of 0 */
        assert_ok(kn_params_create(&params, NULL));
        assert_non_null(kn_param(params, KN_SHAPE(2), kn_init_normal(0, 1), "w"));
        c.params = params;
        assert_ok(kn_checkpoint_save(best_path, &c, NULL));
        kn_params_destroy(params);
    }
}

static bool has_best_epoch(void) {
    kn_file *f = NULL;
    bool has = access(best_path, F_OK) == 0 && kn_file_open(&f, best_path) == KN_OK &&
               kn_file_find(f, "w") < 0;
    kn_file_close(f);
    return has;
}

static void warning_count(void *ctx, int level, const char *text) {
    if (level == 1 && strstr(text, "does not have the best epoch so far")) ++*(int *)ctx;
}

/* Trains n epochs without the file, and the others with it. */
static void train_in_two(run *rest, int n, other_file kind) {
    run first;
    kn_train_checkpoint checkpoint = {.path = path};
    run_open(&first);
    unlink(path);
    run_train(&first, n, &checkpoint, first.test);
    run_close(&first);
    other_file_make(kind);
    checkpoint.resume = 1;
    checkpoint.best = best_path;
    run_open(rest);
    run_train(rest, EPOCHS, &checkpoint, rest->test);
    run_close(rest);
}

static void a_resumed_run_without_its_file_writes_better_epochs_only(void **state) {
    (void)state;
    run whole, rest;
    int n_warnings = 0;
    run_open(&whole);
    run_train(&whole, EPOCHS, NULL, whole.test);
    run_close(&whole);
    int least = least_of(&whole);
    assert_true(least > 0 && least < EPOCHS - 1);
    kn_log_attach(warning_count, &n_warnings);
    for (other_file kind = MISSING; kind < OTHERS; kind++) {
        n_warnings = 0;
        train_in_two(&rest, least + 1, kind);
        assert_false(has_best_epoch());
        assert_int_equal(n_warnings, 1);
        train_in_two(&rest, least, kind);
        assert_evaluates_to(whole.loss[least], false);
        assert_int_equal(n_warnings, 2);
    }
    kn_log_attach(NULL, NULL);
}

/* Killed after the epoch's checkpoint, or between that and the file. */
static void a_resumed_run_knows_its_own_file(void **state) {
    (void)state;
    run r;
    int n_warnings = 0;
    run_open(&r);
    run_train(&r, EPOCHS, NULL, r.test);
    run_close(&r);
    int least = least_of(&r);
    double loss = r.loss[least];
    kn_log_attach(warning_count, &n_warnings);
    for (int lost = 0; lost < 2; lost++) {
        char older[sizeof path + 8];
        kn_train_checkpoint checkpoint = {.path = path, .keep = 1, .best = best_path};
        run_open(&r);
        run_train(&r, least + 1, &checkpoint, r.test);
        run_close(&r);
        snprintf(older, sizeof older, "%s.1", path);
        if (lost) assert_int_equal(rename(older, path), 0);
        checkpoint.resume = 1;
        run_open(&r);
        run_train(&r, EPOCHS, &checkpoint, r.test);
        run_close(&r);
        assert_evaluates_to(loss, false);
        assert_int_equal(n_warnings, 0);
    }
    kn_log_attach(NULL, NULL);
}

/* One that began without resuming replaces the file of an earlier run. */
static void another_run_replaces_the_file(void **state) {
    (void)state;
    run first, second;
    const kn_train_checkpoint checkpoint = {.best = best_path};
    run_open(&first);
    run_train(&first, EPOCHS, &checkpoint, first.test);
    run_open(&second);
    run_train(&second, 1, &checkpoint, second.test);
    assert_true(first.loss[least_of(&first)] < second.loss[0]);
    assert_evaluates_to(second.loss[0], false);
    run_close(&first);
    run_close(&second);
}

static void options_that_cannot_be_are_errors(void **state) {
    (void)state;
    char folder[sizeof path + 8];
    snprintf(folder, sizeof folder, "%s/", dir);
    const struct {
        kn_train_checkpoint options;
        const char *message;
    } wrong[] = {
        {{.every = 1, .best = best_path}, "kn_train_checkpoint: path NULL, best "},
        {{.resume = 1, .best = best_path}, ".best, every 0, keep 0, resume 1, lr 0"},
        {{.keep = 1, .best = best_path}, "keep 1"},
        {{.path = path, .best = path}, "path and best are one file, "},
        {{.best = folder}, "is a folder, not a file"},
        {{.best = ""}, "the path is empty"},
        {{.path = path, .reserved = {0, 1}}, "reserved is not zero"},
    };
    run r;
    run_open(&r);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(kn_train(&r.result, sizeof r.result, r.model, r.optim, r.train, NULL,
                              &(kn_train_options){.checkpoint = &wrong[i].options}),
                     KN_ERR_INVALID, wrong[i].message);
    assert_int_equal(r.result.n_steps, 0);
    run_close(&r);
}

#define IN_DIR(f) cmocka_unit_test_setup_teardown(f, begin, dir_remove)

int main(void) {
    return RUN_TESTS(IN_DIR(the_file_has_the_epoch_with_the_least_test_loss),
                     IN_DIR(without_a_test_the_training_loss_decides),
                     IN_DIR(patience_ends_a_run_with_the_best_in_the_file),
                     IN_DIR(a_resumed_run_keeps_the_best_of_the_runs_before),
                     IN_DIR(a_resumed_run_without_its_file_writes_better_epochs_only),
                     IN_DIR(a_resumed_run_knows_its_own_file),
                     IN_DIR(another_run_replaces_the_file),
                     IN_DIR(options_that_cannot_be_are_errors));
}
