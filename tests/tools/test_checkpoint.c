/* Checkpoints: training continues with the same bits, bad files are rejected, no file is lost. */
#include <fcntl.h>
#include <knet/checkpoint.h>
#include <knet/file.h>
#include <knet/op.h>
#include <knet/tape.h>
#include <knet/train.h>
#include <math.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "checkpoint_dir.h"
#include "test.h"

/* A net with running means and random numbers of its own, and with gradients that are clipped by
 * their norm, whose last bits depend on the order of the gradients. */
static kn_status net_init(void *model, kn_layer *net) {
    (void)model;
    kn_layer_flatten(net, "flatten");
    kn_layer_linear(net, "fc1", 784, 20, &(kn_layer_linear_options){.act = kn_relu});
    kn_layer_batchnorm(net, "norm", 20, NULL);
    kn_layer_dropout(net, "drop", 0.25);
    kn_layer_linear(net, "fc2", 20, 10, NULL);
    return kn_check();
}
static const kn_model_kind net_kind = {.name = "net", .init = net_init};

static kn_status wide_init(void *model, kn_layer *net) {
    (void)model;
    kn_layer_flatten(net, "flatten");
    kn_layer_linear(net, "fc1", 784, 21, NULL);
    kn_layer_linear(net, "fc2", 21, 10, NULL);
    return kn_check();
}
static const kn_model_kind wide_kind = {.name = "wide", .init = wide_init};

typedef struct run {
    kn_params *params;
    kn_model *model;
    kn_optim *optim;
    kn_loader *train, *test;
    kn_train_result result;
} run;

static void run_open(run *r, const kn_model_kind *kind) {
    kn_loader_options options = {.batch = 50, .seed = 1};
    *r = (run){0};
    assert_ok(kn_params_create(&r->params, &(kn_params_options){.seed = 1}));
    assert_ok(kn_model_create_kind(&r->model, kind, r->params));
    assert_ok(kn_adam_create(&r->optim, r->params, 1e-2, &(kn_adam_options){.clip_norm = 0.3}));
    assert_ok(kn_loader_create_synthetic(&r->train, 500, &options));
    options.split = KN_TEST;
    options.partial = 1;
    assert_ok(kn_loader_create_synthetic(&r->test, 120, &options));
}

static void run_close(run *r) {
    kn_loader_destroy(r->train);
    kn_loader_destroy(r->test);
    kn_optim_destroy(r->optim);
    kn_model_destroy(r->model);
    kn_params_destroy(r->params);
}

static kn_checkpoint all_of(run *r) {
    return (kn_checkpoint){
        .params = r->params, .optim = r->optim, .net = kn_model_net(r->model), .train = r->train};
}

/* --- stopping and continuing --- */

typedef struct stop {
    int step, test; /* after this many calls; 0: never */
} stop;

static bool on_step(void *ctx, const kn_train_step *step) {
    (void)step;
    return --((stop *)ctx)->step != 0;
}
static bool on_test(void *ctx) { return --((stop *)ctx)->test != 0; }

static void train_until(run *r, stop at, bool resume) {
    kn_train_checkpoint checkpoint = {.path = path, .resume = resume};
    run_open(r, &net_kind);
    assert_ok(kn_train(&r->result, sizeof r->result, r->model, r->optim, r->train, r->test,
                       &(kn_train_options){.epochs = 3,
                                           .on_step_fn = on_step,
                                           .on_test_fn = on_test,
                                           .checkpoint = &checkpoint,
                                           .ctx = &at}));
}

static void assert_same_end(run *a, run *b) {
    for (int i = 0; i < kn_params_count(a->params); i++) {
        kn_tensor *v = kn_params_at(a->params, i, NULL), *w = kn_params_at(b->params, i, NULL);
        assert_memory_equal(kn_data(v), kn_data(w), (size_t)kn_tensor_numel(v) * sizeof(float));
    }
    assert_int_equal(a->result.n_steps, b->result.n_steps);
    assert_int_equal(a->result.last.index, b->result.last.index);
    assert_close(a->result.last.loss, b->result.last.loss, 0, 0);
    assert_close(a->result.last.test_loss, b->result.last.test_loss, 0, 0);
}

static void a_stopped_run_continues_bit_for_bit(void **state) {
    (void)state;
    /* in the first, a middle and the last step of an epoch, and in a test */
    static const stop stops[] = {{1, 0}, {4, 0}, {10, 0}, {13, 0}, {0, 2}, {0, 5}, {30, 0}};
    run whole;
    train_until(&whole, (stop){0, 0}, false);
    assert_int_equal(whole.result.n_steps, 30);
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        run part, rest;
        unlink(path);
        train_until(&part, stops[i], true); /* no file to resume from yet */
        assert_true(part.result.stopped);
        assert_int_equal(part.result.resumed, 0);
        KN_FRAME(.threads = 1 + (int)(i % 2));
        train_until(&rest, (stop){0, 0}, true);
        assert_int_equal(rest.result.resumed, part.result.n_steps);
        assert_same_end(&whole, &rest);
        run_close(&part);
        run_close(&rest);
    }
    run_close(&whole);
}

/* Rewrites the file with one sum of losses, as older versions did. */
static void file_make_older(void) {
    static const char *const keys[] = {"knet.optimizer", "knet.order", "knet.random", "knet.data",
                                       "knet.numbers"};
    enum { KEYS = sizeof keys / sizeof *keys, MAX = 64 };
    const char *pairs[KEYS][2];
    kn_named all[MAX];
    kn_file *f = NULL;
    KN_FRAME();
    assert_ok(kn_file_open(&f, path));
    int n = kn_file_count(f);
    assert_true(n <= MAX);
    for (int i = 0; i < n; i++) {
        const char *name = kn_file_name(f, i);
        all[i] = (kn_named){name, kn_file_read(f, name)};
        if (strcmp(name, "train/loss_sums") == 0)
            all[i] = (kn_named){"train/loss_sum", kn_sum(all[i].tensor, KN_ALL, false)};
    }
    for (int i = 0; i < KEYS; i++) {
        pairs[i][0] = keys[i];
        pairs[i][1] = kn_file_metadata(f, keys[i]);
    }
    assert_ok(kn_safetensors_save(path, all, n, (const char *const(*)[2])pairs, KEYS));
    kn_file_close(f);
}

static void files_with_one_sum_of_losses_resume(void **state) {
    (void)state;
    run part, rest;
    unlink(path);
    train_until(&part, (stop){14, 0}, false);
    file_make_older();
    train_until(&rest, (stop){0, 0}, true);
    assert_int_equal(rest.result.resumed, 14);
    assert_int_equal(rest.result.n_steps, 30);
    run_close(&part);
    run_close(&rest);
}

static void numbers_that_no_run_has_are_refused(void **state) {
    (void)state;
    static const uint64_t wrong[][4] = {{0}, {(uint64_t)-1616, 0, 0}, {1, 5, 4}, {1, (uint64_t)-1}};
    run part, rest;
    kn_train_checkpoint checkpoint = {.path = path, .resume = true};
    unlink(path);
    train_until(&part, (stop){4, 0}, false);
    run_open(&rest, &net_kind);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        KN_FRAME();
        kn_named sum = {"train/loss_sum", kn_zeros(KN_SCALAR)};
        kn_checkpoint c = all_of(&part);
        c.extra = &sum;
        c.n_extra = 1;
        memcpy(c.number, wrong[i], sizeof wrong[i]);
        assert_ok(kn_checkpoint_save(path, &c, NULL));
        assert_fails(kn_train(&rest.result, sizeof rest.result, rest.model, rest.optim, rest.train,
                              NULL, &(kn_train_options){.epochs = 3, .checkpoint = &checkpoint}),
                     KN_ERR_INVALID, "knet.numbers of the metadata: epoch ");
    }
    run_close(&part);
    run_close(&rest);
}

static void a_finished_run_has_nothing_left_to_do(void **state) {
    (void)state;
    run whole, again;
    unlink(path);
    train_until(&whole, (stop){0, 0}, false);
    train_until(&again, (stop){1, 1}, true);
    assert_int_equal(again.result.resumed, 30);
    assert_false(again.result.stopped);
    assert_same_end(&whole, &again);
    assert_int_equal(again.result.last.n_steps, 10);
    assert_close(again.result.last.accuracy, whole.result.last.accuracy, 0, 0);
    run_close(&whole);
    run_close(&again);
}

/* One epoch; stops after `stop` steps unless that is 0. Returns the steps that this call made. */
static int64_t accumulate_until(int64_t accumulate, int stop_step, bool resume) {
    run r;
    kn_train_checkpoint checkpoint = {.path = path, .resume = resume};
    run_open(&r, &net_kind);
    assert_ok(kn_train(&r.result, sizeof r.result, r.model, r.optim, r.train, NULL,
                       &(kn_train_options){.accumulate = accumulate,
                                           .on_step_fn = on_step,
                                           .checkpoint = &checkpoint,
                                           .ctx = &(stop){stop_step, 0}}));
    int64_t made = r.result.n_steps - r.result.resumed;
    assert_int_equal(r.result.stopped, stop_step != 0);
    assert_true(isfinite(r.result.last.loss));
    run_close(&r);
    return made;
}

/* An epoch has ten batches. */
static void other_accumulated_batches_take_the_rest_of_the_epoch(void **state) {
    (void)state;
    unlink(path);
    assert_int_equal(accumulate_until(1, 2, false), 2);
    assert_int_equal(accumulate_until(5, 0, true), 2); /* eight batches: five and three */
    unlink(path);
    assert_int_equal(accumulate_until(5, 1, false), 1);
    assert_int_equal(accumulate_until(1, 0, true), 5);
}

/* A rate of zero: the first epoch is the best. */
static void train_patiently(run *r, int64_t patience, bool resume) {
    kn_train_checkpoint checkpoint = {.path = path, .resume = resume};
    run_open(r, &wide_kind);
    assert_ok(kn_optim_lr(r->optim, 0));
    assert_ok(kn_train(
        &r->result, sizeof r->result, r->model, r->optim, r->train, r->test,
        &(kn_train_options){.epochs = 9, .patience = patience, .checkpoint = &checkpoint}));
}

static void a_run_that_patience_ended_is_over(void **state) {
    (void)state;
    run first, again, more;
    unlink(path);
    train_patiently(&first, 1, false);
    assert_true(first.result.converged);
    assert_int_equal(first.result.last.index, 2);
    train_patiently(&again, 1, true);
    assert_true(again.result.converged);
    assert_same_end(&first, &again);
    train_patiently(&more, 2, true);
    assert_int_equal(more.result.last.index, 3);
    run_close(&first);
    run_close(&again);
    run_close(&more);
}

static void the_rate_of_a_resumed_run_is_the_files_unless_given(void **state) {
    (void)state;
    const double given[] = {0, 0.5};
    for (int i = 0; i < 2; i++) {
        run r;
        char name[64];
        double hyper[4];
        kn_train_checkpoint checkpoint = {.path = path};
        unlink(path);
        for (int64_t epochs = 1; epochs <= 2; epochs++) {
            run_open(&r, &wide_kind);
            if (epochs == 1) assert_ok(kn_optim_lr(r.optim, 0.25));
            assert_ok(kn_train(&r.result, sizeof r.result, r.model, r.optim, r.train, NULL,
                               &(kn_train_options){.epochs = epochs, .checkpoint = &checkpoint}));
            KN_FRAME();
            kn_tensor *state_of = kn_optim_state_at(r.optim, 0, name, sizeof name);
            assert_ok(kn_copy_out(hyper, sizeof hyper, state_of));
            assert_close(hyper[0], epochs == 2 && i ? 0.5 : 0.25, 0, 0);
            run_close(&r);
            checkpoint.resume = 1;
            checkpoint.lr = given[i];
        }
    }
}

static void backward_once(run *r) {
    kn_batch b;
    assert_true(kn_loader_cycle(r->train, &b));
    KN_TAPE();
    assert_ok(kn_backward(kn_model_loss(r->model, &b)));
}

/* Of a batch whose step was not taken. */
static void gradients_of_before_a_load_are_not_added_to(void **state) {
    (void)state;
    run a, b;
    unlink(path);
    train_until(&a, (stop){4, 0}, false);
    kn_checkpoint from = all_of(&a), to;
    assert_ok(kn_checkpoint_save(path, &from, NULL));
    run_open(&b, &net_kind);
    backward_once(&b);
    to = all_of(&b);
    assert_ok(kn_checkpoint_load(&to, path));
    run *both[] = {&a, &b};
    for (int i = 0; i < 2; i++) {
        both[i]->result = a.result;
        backward_once(both[i]);
        assert_ok(kn_optim_step(both[i]->optim));
    }
    assert_same_end(&a, &b);
    run_close(&a);
    run_close(&b);
}

/* --- files --- */

static void saved_weights_are_read_by_name(void **state) {
    (void)state;
    run a;
    kn_file *f = NULL;
    run_open(&a, &net_kind);
    kn_checkpoint weights = {.params = a.params};
    assert_ok(kn_checkpoint_save(path, &weights, NULL));
    assert_ok(kn_file_open(&f, path));
    assert_int_equal(kn_file_count(f), 6);
    assert_true(kn_file_find(f, "fc1.weight") >= 0);
    assert_string_equal(kn_file_metadata(f, "format"), "pt");
    kn_file_close(f);
    KN_FRAME();
    kn_tensor *w = kn_params_find(a.params, "fc2.bias");
    float *data = kn_data_mut(w);
    data[3] = 7;
    assert_ok(kn_checkpoint_load(&weights, path));
    assert_close(((const float *)kn_data(w))[3], 0, 0, 0);
    kn_checkpoint all = all_of(&a);
    assert_fails(kn_checkpoint_load(&all, path), KN_ERR_INVALID,
                 "has no tensor 'norm.running_mean'");
    run_close(&a);
}

static void numbers_and_tensors_of_your_own_come_back(void **state) {
    (void)state;
    run a;
    run_open(&a, &net_kind);
    KN_FRAME();
    kn_named mine = {"mine", kn_full(KN_SHAPE(3), 2.5)};
    kn_checkpoint c = {.params = a.params, .extra = &mine, .n_extra = 1, .number = {1, UINT64_MAX}};
    assert_ok(kn_checkpoint_save(path, &c, NULL));
    mine.tensor = kn_zeros(KN_SHAPE(3));
    c.number[1] = 5;
    assert_ok(kn_checkpoint_load(&c, path));
    assert_true(c.number[0] == 1 && c.number[1] == UINT64_MAX && c.number[7] == 0);
    assert_close(((const float *)kn_data(mine.tensor))[2], 2.5, 0, 0);
    mine.name = "others";
    assert_fails(kn_checkpoint_load(&c, path), KN_ERR_INVALID, "has no tensor 'others'");
    run_close(&a);
}

static void keep_leaves_the_files_before(void **state) {
    (void)state;
    run a;
    run_open(&a, &net_kind);
    kn_checkpoint c = {.params = a.params};
    for (uint64_t i = 1; i <= 5; i++) {
        c.number[0] = i;
        assert_ok(kn_checkpoint_save(path, &c, &(kn_checkpoint_options){.keep = 2}));
    }
    for (int i = 0; i <= 3; i++) {
        char older[FILES_PATH_MAX + 48];
        snprintf(older, sizeof older, i ? "%s.%d" : "%s", path, i);
        if (i == 3) {
            assert_int_not_equal(access(older, F_OK), 0);
            continue;
        }
        assert_ok(kn_checkpoint_load(&c, older));
        assert_int_equal(c.number[0], 5 - i);
    }
    run_close(&a);
}

/* FILE.new and the older files lie beside the file, not beside the links to it. */
static void a_link_stays_and_its_file_is_replaced(void **state) {
    (void)state;
    run a;
    char store[FILES_PATH_MAX + 32], file[FILES_PATH_MAX + 48], older[FILES_PATH_MAX + 64];
    char outer[FILES_PATH_MAX + 32];
    struct stat is;
    snprintf(store, sizeof store, "%s/store", dir);
    snprintf(file, sizeof file, "%s/run.st", store);
    snprintf(older, sizeof older, "%s.1", file);
    snprintf(outer, sizeof outer, "%s/outer", dir);
    assert_int_equal(mkdir(store, 0700), 0);
    unlink(path);
    assert_int_equal(symlink("store/run.st", path), 0); /* leads to no file yet */
    assert_int_equal(symlink(path, outer), 0);
    run_open(&a, &net_kind);
    kn_checkpoint c = {.params = a.params};
    for (uint64_t i = 1; i <= 2; i++) {
        c.number[0] = i;
        assert_ok(kn_checkpoint_save(outer, &c, &(kn_checkpoint_options){.keep = 1}));
        assert_ok(kn_checkpoint_load(&c, file));
        assert_int_equal(c.number[0], i);
    }
    assert_ok(kn_checkpoint_load(&c, older));
    assert_int_equal(c.number[0], 1);
    assert_true(lstat(path, &is) == 0 && S_ISLNK(is.st_mode));
    assert_true(lstat(outer, &is) == 0 && S_ISLNK(is.st_mode));
    assert_true(lstat(file, &is) == 0 && S_ISREG(is.st_mode));
    unlink(path);
    assert_int_equal(symlink(outer, path), 0);
    assert_fails(kn_checkpoint_save(path, &c, NULL), KN_ERR_IO, "Too many levels of symbolic");
    assert_true(unlink(file) == 0 && unlink(older) == 0 && unlink(outer) == 0 && unlink(path) == 0);
    assert_int_equal(rmdir(store), 0);
    run_close(&a);
}

/* --- what doesn't fit --- */

static double first_weight(run *r) {
    return ((const float *)kn_data(kn_params_at(r->params, 0, NULL)))[0];
}

static void other_programs_files_are_refused_and_change_nothing(void **state) {
    (void)state;
    run a, b;
    kn_optim *sgd = NULL;
    kn_loader *small = NULL;
    unlink(path);
    train_until(&a, (stop){12, 0}, false);
    run_open(&b, &wide_kind);
    double before = first_weight(&b);
    kn_checkpoint c = {.params = b.params};
    assert_fails(kn_checkpoint_load(&c, path), KN_ERR_INVALID, "'fc1.weight' is [20,784]; the");
    assert_close(first_weight(&b), before, 0, 0);
    run_close(&b);

    run_open(&b, &net_kind);
    before = first_weight(&b);
    assert_ok(kn_sgd_create(&sgd, b.params, 1, NULL));
    c = all_of(&b);
    c.optim = sgd;
    assert_fails(kn_checkpoint_load(&c, path), KN_ERR_INVALID, "has the state of adam; the opti");
    c = all_of(&b);
    assert_ok(kn_loader_create_synthetic(&small, 500, &(kn_loader_options){.batch = 25}));
    c.train = small;
    assert_fails(kn_checkpoint_load(&c, path), KN_ERR_INVALID,
                 "is of 500 samples in batches of 50; the loader has 500 in batches of 25");
    assert_close(first_weight(&b), before, 0, 0);
    c = all_of(&b);
    assert_ok(kn_checkpoint_load(&c, path));
    assert_close(first_weight(&b), first_weight(&a), 0, 0);
    assert_fails(kn_checkpoint_load(&(kn_checkpoint){.reserved = {1}}, path), KN_ERR_INVALID,
                 "params is NULL");
    c.reserved[0] = 1;
    assert_fails(kn_checkpoint_load(&c, path), KN_ERR_INVALID, "a reserved field is not zero");
    kn_loader_destroy(small);
    kn_optim_destroy(sgd);
    run_close(&a);
    run_close(&b);
}

static void assert_refused_before_a_step(const char *bad, kn_status want, const char *text) {
    run r;
    run_open(&r, &net_kind);
    assert_fails(kn_train(&r.result, sizeof r.result, r.model, r.optim, r.train, NULL,
                          &(kn_train_options){.checkpoint = &(kn_train_checkpoint){.path = bad}}),
                 want, text);
    assert_int_equal(r.result.n_steps, 0);
    run_close(&r);
}

static void a_path_that_cannot_be_saved_to_is_an_error_before_the_first_step(void **state) {
    (void)state;
    assert_refused_before_a_step("", KN_ERR_INVALID, "the path is empty");
    assert_refused_before_a_step(dir, KN_ERR_INVALID, "is a folder, not a file");
    assert_refused_before_a_step("/nowhere/run.st", KN_ERR_IO, "/nowhere/run.st.new: No such file");
}

/* It has the new file, and may have given it the checkpoint's name before it is written to. */
static void a_path_that_another_process_saves_to_is_an_error(void **state) {
    (void)state;
    char beside[sizeof path + 4];
    struct stat is;
    snprintf(beside, sizeof beside, "%s.new", path);
    int fd = open(beside, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0 && write(fd, "theirs", 6) == 6 && flock(fd, LOCK_EX) == 0);
    assert_refused_before_a_step(path, KN_ERR_IO, "another process is saving this checkpoint");
    assert_true(stat(beside, &is) == 0 && is.st_size == 6);
    close(fd);
    assert_int_equal(unlink(beside), 0);
}

static void a_path_that_is_no_file_is_refused_and_stays(void **state) {
    (void)state;
    char pipe[FILES_PATH_MAX + 32], link[FILES_PATH_MAX + 32], device[FILES_PATH_MAX + 32];
    struct stat is;
    snprintf(pipe, sizeof pipe, "%s/pipe", dir);
    snprintf(link, sizeof link, "%s/link", dir);
    snprintf(device, sizeof device, "%s/null", dir);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(symlink("pipe", link), 0);
    assert_refused_before_a_step(pipe, KN_ERR_INVALID, "is a FIFO, not a file");
    assert_refused_before_a_step(link, KN_ERR_INVALID, "is a FIFO, not a file");
    assert_true(lstat(pipe, &is) == 0 && S_ISFIFO(is.st_mode));
    assert_true(lstat(link, &is) == 0 && S_ISLNK(is.st_mode));
    if (mknod(device, S_IFCHR | 0600, makedev(1, 3)) != 0) return; /* only root can */
    assert_refused_before_a_step(device, KN_ERR_INVALID, "is a device, not a file");
    assert_true(lstat(device, &is) == 0 && S_ISCHR(is.st_mode));
}

static void damaged_files_are_errors(void **state) {
    (void)state;
    run a, b;
    unlink(path);
    train_until(&a, (stop){12, 0}, false);
    run_open(&b, &net_kind);
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    char *bytes = malloc((size_t)file.st_size);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    assert_int_equal(fread(bytes, 1, (size_t)file.st_size, in), file.st_size);
    fclose(in);
    kn_checkpoint c = all_of(&b);
    double before = first_weight(&b);
    for (int i = 0; i < 40; i++) { /* cut anywhere, or with a changed byte in the header */
        size_t n = (size_t)test_random_below(i % 4 == 1 ? 3000 : (uint64_t)file.st_size);
        size_t at = (size_t)test_random_below(3000);
        bool cut = i % 2;
        char old = bytes[at];
        bytes[at] = (char)(cut ? old : old ^ (1 << test_random_below(7)));
        files_write(dir, "bad.safetensors", bytes, cut ? n : (size_t)file.st_size, true);
        bytes[at] = old;
        char bad[FILES_PATH_MAX + 32];
        snprintf(bad, sizeof bad, "%s/bad.safetensors", dir);
        kn_status status = kn_checkpoint_load(&c, bad);
        assert_true(!cut || status < 0);
        if (status < 0) assert_close(first_weight(&b), before, 0, 0);
        run_close(&b);
        run_open(&b, &net_kind);
        c = all_of(&b);
    }
    free(bytes);
    run_close(&a);
    run_close(&b);
}

static void a_full_disk_keeps_the_older_file(void **state) {
    (void)state;
    run a;
    struct rlimit all, few;
    run_open(&a, &net_kind);
    kn_checkpoint c = {.params = a.params, .number = {1}};
    assert_ok(kn_checkpoint_save(path, &c, NULL));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    few = all;
    few.rlim_cur = 10000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    c.number[0] = 2;
    kn_status status = kn_checkpoint_save(path, &c, &(kn_checkpoint_options){.keep = 3});
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    assert_int_equal(status, KN_ERR_IO);
    assert_ok(kn_checkpoint_load(&c, path));
    assert_int_equal(c.number[0], 1);
    char beside[FILES_PATH_MAX + 48];
    snprintf(beside, sizeof beside, "%s.new", path);
    assert_int_not_equal(access(beside, F_OK), 0);
    assert_fails(kn_checkpoint_save("/nowhere/at/all", &c, NULL), KN_ERR_IO, "/nowhere/at/all.new");
    run_close(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_stopped_run_continues_bit_for_bit),
        TEST(files_with_one_sum_of_losses_resume),
        TEST(numbers_that_no_run_has_are_refused),
        TEST(a_finished_run_has_nothing_left_to_do),
        TEST(other_accumulated_batches_take_the_rest_of_the_epoch),
        TEST(a_run_that_patience_ended_is_over),

        TEST(the_rate_of_a_resumed_run_is_the_files_unless_given),

        TEST(a_path_that_cannot_be_saved_to_is_an_error_before_the_first_step),
        TEST(a_path_that_another_process_saves_to_is_an_error),
        TEST(a_path_that_is_no_file_is_refused_and_stays),
        TEST(gradients_of_before_a_load_are_not_added_to),
        TEST(saved_weights_are_read_by_name),
        TEST(numbers_and_tensors_of_your_own_come_back),
        TEST(keep_leaves_the_files_before),
        TEST(a_link_stays_and_its_file_is_replaced),
        TEST(other_programs_files_are_refused_and_change_nothing),
        TEST(damaged_files_are_errors),
        TEST(a_full_disk_keeps_the_older_file)};
    return cmocka_run_group_tests_name("test_checkpoint", tests, dir_make, dir_remove);
}
