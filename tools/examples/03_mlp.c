/* A model of ten lines, trained on made-up images. KNET_TIMER=1 ./03_mlp shows where time and
 * memory went.
 */
#include <knet.h>
#include <stdio.h>

typedef struct mlp {
    kn_tensor *w1, *b1, *w2, *b2;
} mlp;

static kn_tensor *logits(const mlp *m, kn_tensor *x) { /* x [B,784] → [B,10] */
    return kn_linear(kn_relu(kn_linear(x, m->w1, m->b1)), m->w2, m->b2);
}

static kn_status train(const mlp *m, kn_loader *loader, kn_optim *adam, double *loss_out) {
    for (kn_batch b; kn_loader_next(loader, &b);) {
        KN_TAPE(); /* frees all tensors of the step at the end of the block */
        kn_tensor *loss = kn_cross_entropy(logits(m, kn_flatten(b.x)), b.y);
        KN_TRY(kn_backward(loss)); /* returns any error of the ops above */
        KN_TRY(kn_optim_step(adam));
        if (b.index == kn_loader_batches(loader) - 1) KN_TRY(kn_item(loss_out, loss));
        kn_step();
    }
    return kn_check(); /* an error of the loader */
}

static kn_status run(kn_params **params, kn_loader **loader, kn_optim **adam) {
    KN_TRY(kn_loader_create_synthetic(loader, 2000, &(kn_loader_options){.batch = 50, .seed = 1}));
    KN_TRY(kn_params_create(params, &(kn_params_options){.seed = 1}));
    mlp m = {kn_param(*params, KN_SHAPE(64, 784), kn_init_xavier(), "fc1.w"),
             kn_param(*params, KN_SHAPE(64), (kn_init){0}, "fc1.b"),
             kn_param(*params, KN_SHAPE(10, 64), kn_init_xavier(), "fc2.w"),
             kn_param(*params, KN_SHAPE(10), (kn_init){0}, "fc2.b")};
    KN_TRY(kn_check());
    KN_TRY(kn_adam_create(adam, *params, 1e-3, NULL));
    double loss = 0;
    for (int epoch = 1; epoch <= 3; epoch++) {
        KN_TRY(train(&m, *loader, *adam, &loss));
        printf("epoch %d loss %.4f\n", epoch, loss);
    }
    return loss < 0.5 ? KN_OK : KN_FAIL(KN_ERR_INTERNAL, "loss is still %.3f", loss);
}

int main(void) {
    kn_params *params = NULL;
    kn_loader *loader = NULL;
    kn_optim *adam = NULL;
    kn_status status = run(&params, &loader, &adam);
    if (status < 0) fprintf(stderr, "%s\n", kn_last_error()->message);
    kn_optim_destroy(adam);
    kn_params_destroy(params);
    kn_loader_destroy(loader);
    return status == KN_OK ? 0 : 1;
}
