/* Errors of every part have the file and the line of the user's call, never the library's own. */
#include <knet.h>

#include "test.h"

static void assert_site(int line) {
    kn_status pending = kn_check();
    const kn_error *e = kn_last_error();
    assert_true(pending == KN_OK || pending == e->status);
    if (!strstr(e->file, "test_call_sites.c") || e->line != line)
        fail_msg("line %d: the error \"%s\" is at %s:%d", line, e->message, e->file, e->line);
}

/* The call fails, and its error is of this line. */
#define STATUS_HERE(call) (assert_int_not_equal((call), KN_OK), assert_site(__LINE__))
#define NULL_HERE(call) (assert_null((call)), assert_site(__LINE__))

static void of_tensors_files_and_captures(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_zeros(KN_SHAPE(2, 3));
    kn_file *file = NULL;
    kn_capture *capture = NULL;
    STATUS_HERE(kn_file_open(&file, "/no/such/file.npy"));
    NULL_HERE(kn_npy_load("/no/such/file.npy"));
    STATUS_HERE(kn_npy_save("/no/such/folder/x.npy", x));
    STATUS_HERE(kn_print_text(NULL, 8, NULL, NULL, NULL));
    NULL_HERE(kn_dlpack_import(NULL));
    NULL_HERE(kn_tensor_from(NULL, KN_F32, KN_SHAPE(2)));
    STATUS_HERE(kn_hold(NULL, x));
    NULL_HERE(kn_data(NULL));
    NULL_HERE(kn_data_mut(NULL));
    STATUS_HERE(kn_math_mode_set((kn_math_mode)99));
    STATUS_HERE(kn_capture_create(NULL, NULL));
    STATUS_HERE(kn_capture_reset(NULL));
    STATUS_HERE(kn_capture_create(&capture, &(kn_capture_options){.plans_max = -1}));
    assert_ok(kn_capture_create(&capture, NULL));
    STATUS_HERE(kn_capture_end(capture, NULL, 0));
    NULL_HERE(kn_capture_out(capture, 5));
    kn_capture_destroy(capture);
}

static void of_tapes(void **state) {
    (void)state;
    KN_TAPE();
    kn_tensor *x = kn_watch(kn_ones(KN_SHAPE(2, 3))), *dx = NULL, *other = kn_ones(KN_SHAPE(4));
    STATUS_HERE(kn_backward(x));
    STATUS_HERE(kn_gradients(&dx, x, &other, 1, NULL));
    STATUS_HERE(kn_jvp(&dx, x, &x, &other, 1));
    STATUS_HERE(kn_value_and_gradients(&dx, &dx, NULL, NULL, &x, 1));
    STATUS_HERE(kn_gradcheck(NULL, NULL, &x, 1, 1, 1e-6, 1e-6));
    NULL_HERE(kn_recompute(NULL, NULL, &x, 1, NULL));
    NULL_HERE(kn_apply(NULL, &x, 1, NULL, NULL));
    NULL_HERE(kn_watch(NULL));
    NULL_HERE(kn_detach(NULL));
    NULL_HERE(kn_on_grad(x, NULL, NULL));
}

static kn_status twice(kn_tensor **y, kn_call *call, kn_tensor *const x[]) {
    (void)call;
    *y = kn_affine(x[0], 2, 0);
    return kn_check();
}
static int misshapen_line;
static kn_status misshapen(kn_tensor *dx[], kn_call *call, kn_tensor *dy) {
    (void)call;
    misshapen_line = __LINE__ + 1;
    dx[0] = kn_matmul(dy, dy, NULL);
    return kn_check();
}

/* The line in the rule says more than that of kn_gradients. */
static void of_an_op_in_a_rule(void **state) {
    (void)state;
    static const kn_rule rule = {.name = "twice", .forward = twice, .backward = misshapen};
    KN_TAPE();
    kn_tensor *x = kn_watch(kn_ones(KN_SHAPE(2, 3))), *dx = NULL;
    kn_tensor *y = kn_apply(&rule, &x, 1, NULL, NULL);
    assert_int_not_equal(kn_gradients(&dx, y, &x, 1, NULL), KN_OK);
    assert_site(misshapen_line);
}

static void of_parameters_and_optimisers(void **state) {
    (void)state;
    kn_params *params = NULL;
    kn_optim *optim = NULL;
    kn_loss_scale *scale = NULL;
    kn_ema *ema = NULL;
    STATUS_HERE(kn_params_create(NULL, NULL));
    assert_ok(kn_params_create(&params, NULL));
    NULL_HERE(kn_param(params, KN_SHAPE(-1), kn_init_he(), "w"));
    NULL_HERE(kn_params_at(params, 3, NULL));
    NULL_HERE(kn_grad(NULL));
    STATUS_HERE(kn_sgd_create(&optim, params, -1, NULL));
    STATUS_HERE(kn_adam_create(&optim, NULL, 1, NULL));
    STATUS_HERE(kn_optim_step(NULL));
    STATUS_HERE(kn_ema_create(&ema, params, 7));
    STATUS_HERE(kn_loss_scale_create(&scale, NULL, &(kn_loss_scale_options){.initial = -1}));
    kn_params_destroy(params);
}

static void of_layers_data_and_models(void **state) {
    (void)state;
    kn_params *params = NULL;
    kn_layer *net = NULL;
    kn_dataset *data = NULL;
    kn_loader *loader = NULL;
    kn_model *model = NULL;
    kn_vocab *vocab = NULL;
    assert_ok(kn_params_create(&params, NULL));
    STATUS_HERE(kn_layer_create(NULL, params, NULL));
    assert_ok(kn_layer_create(&net, params, NULL));
    NULL_HERE(kn_layer_linear(net, "fc", -1, 10, NULL));
    NULL_HERE(kn_layer_conv(net, "conv", 1, 1, KN_SHAPE(0), NULL));
    STATUS_HERE(kn_layer_freeze(NULL));
    assert_non_null(kn_layer_linear(net, "fc", 4, 2, NULL));
    {
        KN_FRAME();
        NULL_HERE(kn_layer_forward(net, kn_ones(KN_SHAPE(2, 3))));
    }
    STATUS_HERE(kn_dataset_read_csv(&data, "/no/such/file.csv", NULL));
    STATUS_HERE(kn_loader_create_from(&loader, NULL, NULL));
    STATUS_HERE(kn_model_create(&model, "no such model", params));
    STATUS_HERE(kn_vocab_create(&vocab, NULL, 1, NULL));
    STATUS_HERE(kn_vocab_encode(NULL, NULL, NULL, "a", 1));
    STATUS_HERE(kn_loader_place_get(NULL, NULL));
    STATUS_HERE(kn_loader_place_set(NULL, NULL));
    STATUS_HERE(kn_hyperband_run(NULL, NULL, NULL));
    STATUS_HERE(kn_model_step(NULL, NULL, NULL, NULL));
    NULL_HERE(kn_model_turn_loss(NULL, NULL, 0));
    STATUS_HERE(kn_checkpoint_load(NULL, NULL));
    kn_layer_destroy(net);
    kn_params_destroy(params);
}

static kn_tensor *checked(kn_tensor *x, int *line) {
    *line = __LINE__ + 1;
    return kn_tensor_shape(x).n_dims == 2 ? x : KN_FAIL_NULL(KN_ERR_SHAPE, "no matrix");
}

/* An error of the user's own functions has its place, whatever finds it pending later. */
static void of_the_users_own_error(void **state) {
    (void)state;
    KN_FRAME();
    int line = 0;
    assert_null(kn_relu(checked(kn_ones(KN_SHAPE(2)), &line)));
    assert_site(line);
}

static kn_status (*backward)(kn_tensor *loss) = kn_backward;

/* Tensors too know where they were made; a pointer to a function has no place. */
static void of_values_that_have_ended(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = kn_ones(KN_SHAPE(2));
    int line = __LINE__ + 1;
    kn_tensor *made[] = {kn_zeros_like(x), kn_full_like(x, 3), kn_neg(x)};
    for (int i = 0; i < 3; i++) {
        char place[64];
        snprintf(place, sizeof place, "test_call_sites.c:%d)", line);
        kn_drop(made[i]);
        NULL_HERE(kn_relu(made[i]));
        assert_non_null(strstr(kn_last_error()->message, place));
    }
    assert_int_not_equal(backward(NULL), KN_OK);
    assert_null(strstr(kn_last_error()->file, "test_call_sites.c"));
}

/* What failed stays the place, not the call that found the error pending. */
static void of_the_call_that_failed_first(void **state) {
    (void)state;
    KN_FRAME();
    int line = __LINE__ + 1;
    kn_tensor *x = kn_npy_load("/no/such/file.npy");
    kn_tensor *y = kn_relu(x);
    assert_null(kn_add(y, y));
    assert_site(line);
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(of_tensors_files_and_captures),
                                       TEST(of_tapes),
                                       TEST(of_an_op_in_a_rule),
                                       TEST(of_parameters_and_optimisers),
                                       TEST(of_layers_data_and_models),
                                       TEST(of_the_call_that_failed_first),
                                       TEST(of_the_users_own_error),
                                       TEST(of_values_that_have_ended)};
    return cmocka_run_group_tests_name("call sites", tests, NULL, NULL);
}
