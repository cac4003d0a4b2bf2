/* A model, its optimiser and made-up images in two loaders: what tests of kn_train begin with. */
#ifndef TEST_TRAIN_FIXTURE_H
#define TEST_TRAIN_FIXTURE_H

#include <knet/train.h>

#include "test.h"

typedef struct fixture {
    kn_params *params;
    kn_model *model;
    kn_optim *optim;
    kn_loader *train, *test;
} fixture;

static inline void fixture_init(fixture *f, const char *model, int64_t n_images) {
    kn_loader_options options = {.batch = 50, .seed = 1};
    *f = (fixture){0};
    assert_ok(kn_params_create(&f->params, &(kn_params_options){.seed = 1}));
    assert_ok(kn_model_create(&f->model, model, f->params));
    assert_ok(kn_adam_create(&f->optim, f->params, 1e-3, NULL));
    assert_ok(kn_loader_create_synthetic(&f->train, n_images, &options));
    options.split = KN_TEST;
    options.partial = 1;
    assert_ok(kn_loader_create_synthetic(&f->test, 220, &options));
}

static inline void fixture_release(fixture *f) {
    kn_loader_destroy(f->train);
    kn_loader_destroy(f->test);
    kn_optim_destroy(f->optim);
    kn_model_destroy(f->model);
    kn_params_destroy(f->params);
}

#endif
