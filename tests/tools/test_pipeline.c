/* Model parallel: stages on several devices, in micro-batches; beside the same layers in one. */
#include <knet.h>
#include <knet/sim.h>
#include <math.h>

#include "fake_cuda.h"
#include "test.h"

enum { GPUS = 4, BATCH = 13, WIDTH = 6, CLASSES = 4, STAGES = 3, VALUES_MAX = 4096 };

typedef struct model {
    kn_params *params[STAGES];
    kn_layer *stage[STAGES];
} model;

static void model_create(model *m, kn_device *const device[STAGES]) {
    for (int s = 0; s < STAGES; s++) {
        assert_ok(kn_params_create(&m->params[s], &(kn_params_options){.seed = 3 + (uint64_t)s}));
        assert_ok(kn_layer_create(&m->stage[s], m->params[s], NULL));
        int64_t n_out = s == STAGES - 1 ? CLASSES : WIDTH;
        kn_layer_linear(m->stage[s], "fc", WIDTH, n_out,
                        &(kn_layer_linear_options){.act = s < STAGES - 1 ? kn_tanh : NULL});
        assert_ok(kn_check());
        assert_ok(kn_layer_to(m->stage[s], device[s]));
    }
}

static void model_destroy(model *m) {
    for (int s = 0; s < STAGES; s++) {
        kn_layer_destroy(m->stage[s]);
        kn_params_destroy(m->params[s]);
    }
}

static kn_tensor *input(void) {
    float x[BATCH * WIDTH];
    for (int i = 0; i < BATCH * WIDTH; i++) x[i] = (float)((i * 7) % 23 - 11) / 11;
    return kn_tensor_from(x, KN_F32, KN_SHAPE(BATCH, WIDTH));
}

static kn_tensor *classes(void) {
    int64_t y[BATCH];
    for (int i = 0; i < BATCH; i++) y[i] = i % CLASSES;
    return kn_tensor_from(y, KN_I64, KN_SHAPE(BATCH));
}

/* All gradients of a pass; n_micro 0: the plain stages, one after the other. */
static int gradients(float out[VALUES_MAX], int n_micro) {
    kn_device *host = kn_device_host(), *const device[STAGES] = {host, host, host};
    model m;
    int n = 0;
    model_create(&m, device);
    {
        KN_TAPE(.threads = 1);
        kn_tensor *h = input();
        for (int s = 0; s < STAGES && !n_micro; s++) h = kn_layer_forward(m.stage[s], h);
        if (n_micro) h = kn_pipeline_forward(m.stage, STAGES, h, n_micro);
        assert_ok(kn_backward(kn_cross_entropy(h, classes())));
    }
    for (int s = 0; s < STAGES; s++) {
        kn_tensor *g = kn_params_grad(m.params[s]);
        assert_ok(kn_copy_out(out + n, (size_t)kn_tensor_numel(g) * sizeof *out, g));
        n += (int)kn_tensor_numel(g);
    }
    model_destroy(&m);
    return n;
}

static void gradients_are_those_of_the_plain_model(void **state) {
    (void)state;
    static float want[VALUES_MAX], got[VALUES_MAX];
    int n = gradients(want, 0);
    float largest = 0;
    for (int i = 0; i < n; i++) largest = fmaxf(largest, fabsf(want[i]));
    assert_true(largest > 0.01f);
    for (int n_micro = 1; n_micro <= BATCH; n_micro += 4) {
        assert_int_equal(gradients(got, n_micro), n);
        if (n_micro == 1) assert_memory_equal(got, want, (size_t)n * sizeof *got);
        for (int i = 0; i < n; i++) assert_close(got[i], want[i], 0, 1e-6 * (double)largest);
    }
}

/* Which stage each forward of a layer is in. */
typedef struct visits {
    int n, stage[64];
    int64_t rows[64];
} visits;
typedef struct visitor {
    visits *all;
    int stage;
} visitor;

static kn_tensor *visit(void *ctx, kn_layer *layer, kn_tensor *x) {
    visitor *v = ctx;
    (void)layer;
    v->all->stage[v->all->n] = v->stage;
    v->all->rows[v->all->n++] = kn_tensor_shape(x).dim[0];
    return x;
}

static void stages_take_turns_as_the_micro_batches_pass(void **state) {
    (void)state;
    static const int want[] = {0, 1, 0, 1, 0, 1};
    visits all = {0};
    visitor visitors[2] = {{&all, 0}, {&all, 1}};
    kn_params *params[2];
    kn_layer *stage[2];
    for (int s = 0; s < 2; s++) {
        assert_ok(kn_params_create(&params[s], NULL));
        assert_ok(kn_layer_create(&stage[s], params[s], NULL));
        assert_non_null(kn_layer_function(stage[s], "visit", visit, &visitors[s]));
    }
    KN_FRAME();
    kn_tensor *x = input(), *y = kn_pipeline_forward(stage, 2, x, 3);
    assert_int_equal(all.n, 6);
    assert_memory_equal(all.stage, want, sizeof want);
    assert_true(all.rows[1] == 4 && all.rows[3] == 4 && all.rows[5] == 5); /* 13 in three */
    float a[BATCH * WIDTH], b[BATCH * WIDTH];
    assert_ok(kn_copy_out(a, sizeof a, x));
    assert_ok(kn_copy_out(b, sizeof b, y));
    assert_memory_equal(a, b, sizeof a);
    for (int s = 0; s < 2; s++) {
        kn_layer_destroy(stage[s]);
        kn_params_destroy(params[s]);
    }
}

/* Simulated devices compute nothing: shapes, places and memory are checked. */
static void stages_on(kn_device *const device[STAGES]) {
    model m;
    model_create(&m, device);
    for (int s = 0; s < STAGES; s++) assert_ptr_equal(kn_params_device(m.params[s]), device[s]);
    {
        KN_TAPE();
        kn_tensor *y = kn_pipeline_forward(m.stage, STAGES, input(), 4);
        kn_shape shape = kn_tensor_shape(y);
        assert_true(shape.n_dims == 2 && shape.dim[0] == BATCH && shape.dim[1] == CLASSES);
        assert_ptr_equal(kn_tensor_device(y), device[STAGES - 1]);
        kn_tensor *labels = kn_to(classes(), device[STAGES - 1]);
        assert_ok(kn_backward(kn_cross_entropy(y, labels)));
    }
    for (int s = 0; s < STAGES; s++) {
        kn_tensor *w = kn_layer_param(kn_layer_find(m.stage[s], "fc"), "weight");
        assert_ptr_equal(kn_tensor_device(kn_grad(w)), device[s]);
    }
    model_destroy(&m);
}

static void stages_run_on_devices_of_choice(void **state) {
    (void)state;
    kn_device *host = kn_device_host(), *sim[2];
    kn_sim *machine[2];
    for (int i = 0; i < 2; i++) {
        char name[8];
        snprintf(name, sizeof name, "pipe%d", i);
        assert_ok(kn_sim_create(&machine[i], NULL));
        assert_ok(kn_device_register(&sim[i], name, kn_sim_driver(machine[i]), machine[i]));
    }
    stages_on((kn_device *[]){host, sim[0], host});
    stages_on((kn_device *[]){sim[0], host, sim[0]});
    stages_on((kn_device *[]){sim[0], sim[1], sim[0]});
    for (int i = 0; i < 2; i++) {
        kn_pool_stats stats;
        char text[256];
        kn_pool_stats_read(&stats, sizeof stats, kn_device_pool(sim[i]));
        assert_int_equal(stats.live_bytes, 0);
        kn_sim_drain(machine[i]);
        if (kn_sim_violations(machine[i], text, sizeof text)) fail_msg("%s", text);
    }
}

static bool is_reached(kn_event *event) {
    bool done = false;
    assert_ok(kn_event_query(&done, event));
    return done;
}

/* The fake driver's memory has bytes. */
static void a_copy_between_gpus_waits_on_the_devices_alone(void **state) {
    (void)state;
    kn_device *gpu[2];
    assert_ok(kn_device_find(&gpu[0], "cuda:0"));
    assert_ok(kn_device_find(&gpu[1], "cuda:1"));
    fake_cuda_reset();
    {
        KN_FRAME(.device = gpu[0]);
        kn_stream stream = kn_frame_stream(), other = NULL;
        kn_event *event = NULL; /* behind the copy, for its reader */
        assert_ok(kn_stream_of_thread(&other, gpu[1]));
        assert_ok(kn_event_create(&event, gpu[1]));
        kn_tensor *x = input();
        assert_non_null(kn_data(x));
        fake_cuda_hold((cu_stream)stream);
        kn_tensor *y = kn_to(x, gpu[1]);
        assert_ptr_equal(kn_tensor_device(y), gpu[1]);
        assert_int_equal(fake_cuda_calls("cuMemcpyPeerAsync"), 1);
        assert_int_equal(fake_cuda_calls("cuStreamSynchronize"), 0);
        assert_ok(kn_event_record(event, other));
        assert_false(is_reached(event));
        fake_cuda_release((cu_stream)stream);
        assert_true(is_reached(event));
        kn_event_destroy(event);
        float a[BATCH * WIDTH], b[BATCH * WIDTH];
        assert_ok(kn_copy_out(a, sizeof a, x));
        assert_ok(kn_copy_out(b, sizeof b, y));
        assert_memory_equal(a, b, sizeof a);
    }
    assert_string_equal(fake_cuda_violation(), "");
}

/* --- layers of one model --- */

enum { LAYERS = 4, STEPS = 5 };

typedef struct chain {
    kn_params *params;
    kn_layer *net;
    kn_optim *adam;
} chain;

static void chain_create(chain *c, kn_device *device) {
    *c = (chain){.params = NULL};
    assert_ok(kn_params_create(&c->params, &(kn_params_options){.device = device, .seed = 7}));
    assert_ok(kn_layer_create(&c->net, c->params, NULL));
    for (int i = 0; i < LAYERS; i++) {
        char name[8];
        snprintf(name, sizeof name, "fc%d", i);
        kn_layer_linear(c->net, name, WIDTH, i == LAYERS - 1 ? CLASSES : WIDTH,
                        &(kn_layer_linear_options){.act = i < LAYERS - 1 ? kn_tanh : NULL});
    }
    assert_ok(kn_check());
}

static void chain_destroy(chain *c) {
    kn_optim_destroy(c->adam);
    kn_layer_destroy(c->net);
    kn_params_destroy(c->params);
}

static void chain_step(chain *c, kn_device *device) {
    {
        KN_TAPE(.device = device, .threads = 1);
        kn_tensor *y = kn_layer_forward(c->net, input());
        assert_ok(kn_backward(kn_cross_entropy(kn_to(y, device), classes())));
    }
    assert_ok(kn_optim_step(c->adam));
}

/* All weights and the optimiser's state. */
static int chain_values(float out[VALUES_MAX], chain *c) {
    KN_FRAME(.record = KN_OFF);
    char name[64];
    int n = 0;
    for (int i = 0; i < LAYERS; i++) {
        kn_layer *fc = kn_layer_find(c->net, (char[]){'f', 'c', (char)('0' + i), 0});
        kn_tensor *w = kn_layer_param(fc, "weight");
        assert_ok(kn_copy_out(out + n, (size_t)kn_tensor_numel(w) * sizeof *out, w));
        n += (int)kn_tensor_numel(w);
    }
    kn_tensor *t = NULL;
    double hyper[4];
    for (int i = 0; (t = kn_optim_state_at(c->adam, i, name, sizeof name)); i++) {
        if (i == 0) {
            assert_string_equal(name, "hyper");
            assert_ok(kn_copy_out(hyper, sizeof hyper, t));
            assert_true(hyper[1] == STEPS);
            continue;
        }
        if (!strstr(name, "fc1.weight")) continue;
        assert_ok(kn_copy_out(out + n, (size_t)kn_tensor_numel(t) * sizeof *out, t));
        n += (int)kn_tensor_numel(t);
    }
    return n;
}

static int chain_train(float out[VALUES_MAX], kn_device *const device[], int n, int n_micro,
                       const char *const first[]) {
    chain c;
    chain_create(&c, device[0]);
    if (n > 1) assert_ok(kn_pipeline_place(c.net, device, n, first));
    if (n_micro) assert_ok(kn_pipeline_micro(c.net, n_micro));
    assert_int_equal(kn_params_count(c.params), 2 * LAYERS);
    assert_ok(kn_adam_create(&c.adam, c.params, 0.05, &(kn_adam_options){.clip_each = 0.5}));
    for (int i = 0; i < STEPS; i++) chain_step(&c, device[0]);
    int n_values = chain_values(out, &c);
    chain_destroy(&c);
    return n_values;
}

static void layers_on_several_gpus_train_as_on_one(void **state) {
    (void)state;
    static float want[VALUES_MAX], got[VALUES_MAX];
    kn_device *host = kn_device_host(), *gpu[2];
    assert_ok(kn_device_find(&gpu[0], "cuda:0"));
    assert_ok(kn_device_find(&gpu[1], "cuda:1"));
    int n = chain_train(want, gpu, 1, 0, NULL);
    kn_device *const places[][3] = {
        {gpu[0], gpu[1], host}, {host, gpu[0], gpu[1]}, {gpu[1], host, gpu[0]}};
    for (int i = 0; i < 3; i++)
        for (int n_devices = 2; n_devices <= 3; n_devices++) {
            assert_int_equal(chain_train(got, places[i], n_devices, 1, NULL), n);
            assert_memory_equal(got, want, (size_t)n * sizeof *got);
            assert_int_equal(chain_train(got, places[i], n_devices, 5, NULL), n);
            for (int k = 0; k < n; k++) assert_close(got[k], want[k], 0, 1e-5);
        }
    assert_int_equal(chain_train(got, gpu, 2, 1, (const char *const[]){"fc3"}), n);
    assert_memory_equal(got, want, (size_t)n * sizeof *got);
    assert_string_equal(fake_cuda_violation(), "");
}

/* Where each layer is; layers that stay get their input back. */
static void a_layer_runs_where_it_was_moved(void **state) {
    (void)state;
    kn_device *host = kn_device_host(), *gpu = NULL, *sim = NULL;
    kn_sim *machine = NULL;
    chain c;
    assert_ok(kn_device_find(&gpu, "cuda:1"));
    assert_ok(kn_sim_create(&machine, NULL));
    assert_ok(kn_device_register(&sim, "place", kn_sim_driver(machine), machine));
    kn_device *const others[] = {gpu, sim};
    for (int i = 0; i < 2; i++) {
        chain_create(&c, host);
        kn_layer *moved = kn_layer_find(c.net, "fc2");
        assert_ok(kn_layer_to(moved, others[i]));
        assert_ptr_equal(kn_tensor_device(kn_layer_param(moved, "bias")), others[i]);
        assert_int_equal(kn_params_count(c.params), 2 * LAYERS);
        assert_int_equal(kn_params_numel(c.params), kn_layer_numel(c.net));
        assert_ptr_equal(kn_params_find(c.params, "fc2.bias"), kn_layer_param(moved, "bias"));
        assert_ok(kn_pipeline_micro(c.net, 3));
        {
            KN_TAPE();
            kn_tensor *y = kn_layer_forward(c.net, input());
            assert_ptr_equal(kn_tensor_device(y), host); /* fc3 stayed */
            assert_true(kn_tensor_shape(y).dim[0] == BATCH);
            assert_ok(kn_backward(kn_sum(y, KN_ALL, false)));
        }
        assert_ptr_equal(kn_tensor_device(kn_grad(kn_layer_param(moved, "weight"))), others[i]);
        assert_fails(kn_layer_to(moved, host), KN_ERR_INVALID, "before the first backward");
        chain_destroy(&c);
    }
}

static void what_needs_one_device_says_so(void **state) {
    (void)state;
    kn_device *gpu[2];
    chain c;
    kn_ema *ema = NULL;
    kn_loss_scale *scale = NULL;
    assert_ok(kn_device_find(&gpu[0], "cuda:0"));
    assert_ok(kn_device_find(&gpu[1], "cuda:1"));
    chain_create(&c, gpu[0]);
    assert_fails(kn_pipeline_place(c.net, gpu, 2, (const char *const[]){"fc0"}), KN_ERR_INVALID,
                 "no layer fc0 after");
    assert_fails(kn_pipeline_place(kn_layer_find(c.net, "fc1"), gpu, 2, NULL), KN_ERR_INVALID,
                 "0 layers in a sequence cannot be on 2 devices");
    assert_fails(kn_pipeline_micro(c.net, 0), KN_ERR_INVALID, "0 micro-batches");
    assert_ok(kn_pipeline_place(c.net, gpu, 2, NULL));
    assert_null(kn_params_grad(c.params));
    assert_fails(kn_check(), KN_ERR_UNSUPPORTED, "lie on cuda:0 and cuda:1");
    assert_fails(kn_ema_create(&ema, c.params, 0.9), KN_ERR_UNSUPPORTED, "kn_ema_create");
    assert_fails(kn_loss_scale_create(&scale, c.params, NULL), KN_ERR_UNSUPPORTED, "cuda:1");
    assert_fails(kn_adam_create(&c.adam, c.params, 1, &(kn_adam_options){.clip_norm = 1}),
                 KN_ERR_UNSUPPORTED, "clip_norm: the parameters lie on cuda:0 and cuda:1");
    assert_fails(kn_params_to(c.params, gpu[1]), KN_ERR_INVALID, "already");
    chain_destroy(&c);
}

/* --- the stages run at the same time: by the clock of the fake GPUs --- */

enum { MICROSECONDS = 1000, FORWARD = 100 * MICROSECONDS, BACKWARD = 200 * MICROSECONDS };

static kn_status worked(kn_tensor **out, kn_tensor *x, uint64_t ns, int64_t samples) {
    kn_stream stream = NULL;
    *out = kn_affine(x, 1, 0);
    if (!*out) return kn_check();
    KN_TRY(kn_stream_of_thread(&stream, kn_tensor_device(x)));
    fake_cuda_work((cu_stream)stream, ns * (uint64_t)samples);
    return KN_OK;
}

static kn_status work_forward(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    (void)call;
    return worked(y, x[0], FORWARD, kn_tensor_shape(x[0]).dim[0]);
}

static kn_status work_backward(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    (void)call;
    return worked(&dx[0], dy, BACKWARD, kn_tensor_shape(dy).dim[0]);
}

static kn_tensor *work(void *ctx, kn_layer *layer, kn_tensor *x) {
    static const kn_rule rule = {
        .name = "work", .forward = work_forward, .backward = work_backward, .once = 1};
    (void)layer;
    (void)ctx;
    return kn_apply(&rule, &x, 1, NULL, NULL);
}

/* Time of a forward and backward pass of 24 samples through stages of equal work. */
static uint64_t pass_ns(kn_device *const gpu[], int n_stages, int n_micro) {
    enum { SAMPLES = 24 };
    kn_params *params = NULL;
    kn_layer *net = NULL;
    assert_ok(kn_params_create(&params, &(kn_params_options){.device = gpu[0]}));
    assert_ok(kn_layer_create(&net, params, NULL));
    for (int s = 0; s < n_stages; s++) {
        kn_layer *stage = kn_layer_sequential(net, (char[]){'s', (char)('0' + s), 0});
        kn_layer_linear(stage, "fc", WIDTH, WIDTH, NULL);
        kn_layer_function(stage, "work", work, NULL);
        assert_ok(kn_check());
        assert_ok(kn_layer_to(stage, gpu[s]));
    }
    assert_ok(kn_pipeline_micro(net, n_micro));
    uint64_t begin = fake_cuda_now_ns();
    {
        KN_TAPE(.device = gpu[0], .threads = 1);
        kn_tensor *y = kn_layer_forward(net, kn_full(KN_SHAPE(SAMPLES, WIDTH), 0.5));
        assert_ok(kn_backward(kn_sum(y, KN_ALL, false)));
    }
    uint64_t took = fake_cuda_now_ns() - begin;
    kn_layer_destroy(net);
    kn_params_destroy(params);
    return took;
}

static void stages_of_gpus_work_at_the_same_time(void **state) {
    (void)state;
    kn_device *gpu[GPUS];
    for (int i = 0; i < GPUS; i++)
        assert_ok(kn_device_find(&gpu[i], (char[]){'c', 'u', 'd', 'a', ':', (char)('0' + i), 0}));
    for (int n = 1; n <= GPUS; n++)
        for (int m = 1; m <= 24; m *= 2 + (m == 4)) { /* 1, 2, 4, 12, 24 */
            double serial = n * 24.0 * (FORWARD + BACKWARD);
            double share = (double)pass_ns(gpu, n, m) / serial;
            assert_close(share, (m + n - 1) / (double)(n * m), 0, 1e-9);
        }
    assert_string_equal(fake_cuda_violation(), "");
}

static void wrong_calls_name_the_values(void **state) {
    (void)state;
    kn_device *host = kn_device_host(), *const device[STAGES] = {host, host, host};
    model m;
    model_create(&m, device);
    KN_FRAME();
    assert_null(kn_pipeline_forward(m.stage, STAGES, input(), 0));
    assert_fails(kn_check(), KN_ERR_INVALID, "x [13,6] cannot be cut into 0 parts");
    assert_null(kn_pipeline_forward(m.stage, STAGES, input(), 14));
    assert_fails(kn_check(), KN_ERR_INVALID, "into 14 parts");
    assert_null(kn_pipeline_forward(m.stage, 0, input(), 1));
    assert_fails(kn_check(), KN_ERR_INVALID, "0 stages");
    kn_layer *inner[1] = {kn_layer_find(m.stage[0], "fc")};
    assert_null(kn_pipeline_forward(inner, 1, input(), 1));
    assert_fails(kn_check(), KN_ERR_INVALID, "stage 0 is no root of layers");
    assert_null(kn_pipeline_forward(m.stage, STAGES, NULL, 1));
    assert_fails(kn_check(), KN_ERR_INVALID, "x is NULL");
    model_destroy(&m);
}

int main(void) {
    fake_cuda_machine_get()->n_devices = GPUS;
    return RUN_TESTS(TEST(gradients_are_those_of_the_plain_model),
                     TEST(stages_take_turns_as_the_micro_batches_pass),
                     TEST(stages_run_on_devices_of_choice),
                     TEST(a_copy_between_gpus_waits_on_the_devices_alone),
                     TEST(layers_on_several_gpus_train_as_on_one),
                     TEST(a_layer_runs_where_it_was_moved), TEST(what_needs_one_device_says_so),
                     TEST(stages_of_gpus_work_at_the_same_time), TEST(wrong_calls_name_the_values));
}
