/* Model parallel: stages on several devices, in micro-batches; beside the same layers in one. */
#include <knet.h>
#include <knet/sim.h>
#include <math.h>

#include "fake_cuda.h"
#include "test.h"

enum { BATCH = 13, WIDTH = 6, CLASSES = 4, STAGES = 3, VALUES_MAX = 4096 };

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
    static const int want[] = {0, 0, 1, 0, 1, 1};
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
    assert_true(all.rows[0] == 4 && all.rows[1] == 4 && all.rows[3] == 5); /* 13 in three */
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
    fake_cuda_machine_get()->n_devices = 2;
    return RUN_TESTS(
        TEST(gradients_are_those_of_the_plain_model),
        TEST(stages_take_turns_as_the_micro_batches_pass), TEST(stages_run_on_devices_of_choice),
        TEST(a_copy_between_gpus_waits_on_the_devices_alone), TEST(wrong_calls_name_the_values));
}
