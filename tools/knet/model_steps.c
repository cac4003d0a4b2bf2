#include "model_steps.h"

#include <knet/data.h>
#include <knet/op.h>
#include <knet/prof.h>
#include <knet/tape.h>
#include <stdlib.h>
#include <time.h>

#include "now.h"

enum { STEPS_MAX = 100000, STEPS_MIN = 5, TIME_NS = 1000 * 1000 * 1000 };

static kn_status batch_hold(kn__model_steps *s, kn_dataset *data, kn_dtype dtype) {
    kn_loader *loader = NULL;
    kn_batch b = {.n = 0};
    kn_status status = kn_loader_create_from(
        &loader, data,
        &(kn_loader_options){.batch = s->n, .device = kn_frame_device(), .split = KN_TEST});
    if (status < 0) return status;
    KN_FRAME(.record = KN_OFF);
    if (kn_loader_next(loader, &b)) {
        kn_tensor *x = kn_tensor_dtype(b.x) == KN_F32 ? kn_cast(b.x, dtype) : b.x;
        kn_tensor *y = b.y && kn_tensor_dtype(b.y) == KN_F32 ? kn_cast(b.y, dtype) : b.y;
        /* A copy: the loader's memory is its own. */
        status = kn_hold(&s->x, kn_concat(&x, 1, 0));
        if (status == KN_OK && y) status = kn_hold(&s->y, kn_concat(&y, 1, 0));
    } else {
        status = kn_check();
    }
    kn_loader_destroy(loader);
    return status;
}

int64_t kn__bench_batch(const kn_model_kind *kind) {
    return kind->facts->batch_bench ? kind->facts->batch_bench : kind->facts->batch;
}

kn_status kn__model_steps_open(kn__model_steps *s, const char *model, int64_t batch,
                               kn_dtype dtype) {
    const kn_model_kind *kind = kn_model_kind_find(model);
    kn_dataset *data = NULL;
    *s = (kn__model_steps){.n = batch ? batch : kn__bench_batch(kind)};
    KN_TRY(kn_params_create(&s->params, &(kn_params_options){.dtype = dtype, .seed = 1}));
    KN_TRY(kn_model_create(&s->model, model, s->params));
    KN_TRY(kn_model_optim_create(&s->optim, s->model, 0));
    KN_TRY(kn_model_data_make(&data, kind, s->n, KN_TEST));
    kn_status status = batch_hold(s, data, dtype);
    kn_dataset_destroy(data);
    return status;
}

kn_status kn__model_steps_capture(kn__model_steps *s) {
    KN_TRY(kn_capture_create(&s->capture[KN__STEPS_TRAIN], NULL));
    return kn_capture_create(&s->capture[KN__STEPS_INFER], NULL);
}

void kn__model_steps_close(kn__model_steps *s) {
    for (int i = 0; i < 2; i++) kn_capture_destroy(s->capture[i]);
    kn_unhold(&s->x);
    kn_unhold(&s->y);
    kn_optim_destroy(s->optim);
    kn_model_destroy(s->model);
    kn_params_destroy(s->params);
}

/* in: x, and y where there is one. */
static kn_batch batch_of(const kn__model_steps *s, kn_tensor *const in[]) {
    return (kn_batch){.x = in[0], .y = s->y ? in[1] : NULL, .n = s->n};
}

static kn_status train_step(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    kn__model_steps *s = ctx;
    const kn_batch b = batch_of(s, in);
    if (kn_model_kind_of(s->model)->turns) return kn_model_step(&out[0], s->model, s->optim, &b);
    KN_TAPE();
    kn_tensor *l = kn_model_loss(s->model, &b);
    KN_TRY(kn_backward(l));
    KN_TRY(kn_optim_step(s->optim));
    out[0] = kn_keep(l);
    return kn_check();
}

static kn_status infer_step(kn_tensor *out[], kn_tensor *const in[], void *ctx) {
    kn__model_steps *s = ctx;
    const kn_batch b = batch_of(s, in);
    out[0] = kn_model_predict(s->model, &b);
    return kn_check();
}

/* The step as it is, or captured; its result is the frame's. */
static kn_status step_run(kn_tensor **out, kn__model_steps *s, kn_capture_fn step, int what) {
    kn_tensor *const in[] = {s->x, s->y};
    if (!s->capture[what]) return step(out, in, s);
    return kn_capture_run(out, 1, s->capture[what], in, s->y ? 2 : 1, step, s);
}

kn_status kn__model_steps_train(kn__model_steps *s) {
    {
        KN_FRAME(.record = KN_OFF);
        KN_SCOPE("train");
        double loss = 0;
        kn_tensor *l = NULL;
        KN_TRY(step_run(&l, s, train_step, KN__STEPS_TRAIN));
        KN_TRY(kn_item(&loss, l));
    }
    kn_step();
    return KN_OK;
}

kn_status kn__model_steps_infer(kn__model_steps *s) {
    KN_FRAME(.record = KN_OFF);
    KN_SCOPE("infer");
    kn_tensor *y = NULL;
    KN_TRY(step_run(&y, s, infer_step, KN__STEPS_INFER));
    if (kn_tensor_device(y) == kn_device_host()) return KN_OK;
    double one = 0; /* waits for the device */
    return kn_item(&one, kn_slice(kn_reshape(y, KN_SHAPE(-1)), KN_SHAPE(0), KN_SHAPE(1)));
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef kn_status (*step_fn)(kn__model_steps *steps);
static step_fn step_of(int what) {
    return what == KN__STEPS_TRAIN ? kn__model_steps_train : kn__model_steps_infer;
}

kn_status kn__model_steps_warm_up(kn__model_steps *s, int what) {
    step_fn step = step_of(what);
    KN_TRY(step(s));
    return step(s);
}

kn_status kn__model_steps_time(kn__step_times *out, kn__model_steps *s, int what, int64_t n) {
    step_fn step = step_of(what);
    kn_pool *pool = kn_device_pool(kn_frame_device());
    kn_pool_stats stats = {0};
    int64_t room = n ? n : STEPS_MAX;
    *out = (kn__step_times){.ns = malloc((size_t)room * sizeof(double))};
    if (!out->ns) return KN_FAIL(KN_ERR_OOM, "no memory for %lld times", (long long)room);
    if (pool) kn_pool_peaks_reset(pool);
    uint64_t begin = kn__now_ns(CLOCK_MONOTONIC), at = begin;
    while (out->n < room && (n || out->n < STEPS_MIN || at - begin < TIME_NS)) {
        uint64_t before = kn__now_ns(CLOCK_MONOTONIC);
        KN_TRY(step(s));
        at = kn__now_ns(CLOCK_MONOTONIC);
        out->ns[out->n++] = (double)(at - before);
    }
    qsort(out->ns, (size_t)out->n, sizeof *out->ns, by_value);
    if (pool) kn_pool_stats_read(&stats, sizeof stats, pool);
    out->live_max = stats.live_bytes_max;
    out->reserved_max = stats.reserved_bytes_max;
    /* A plan's memory is no part of what the next kind of step needs. */
    return s->capture[what] ? kn_capture_reset(s->capture[what]) : KN_OK;
}
