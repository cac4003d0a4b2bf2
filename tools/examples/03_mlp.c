/* A model of ten lines, trained on made-up images. KNET_TIMER=1 ./03_mlp shows where time and
 * memory went.
 */
#include <knet.h>
#include <stdio.h>

static kn_status train(kn_layer *mlp, kn_loader *loader, kn_optim *adam, double *loss_out) {
    for (kn_batch b; kn_loader_next(loader, &b);) {
        KN_TAPE(); /* frees all tensors of the step at the end of the block */
        kn_tensor *loss = kn_cross_entropy(kn_layer_forward(mlp, b.x), b.y);
        KN_TRY(kn_backward(loss)); /* returns any error of the ops above */
        KN_TRY(kn_optim_step(adam));
        if (b.index == kn_loader_batches(loader) - 1) KN_TRY(kn_item(loss_out, loss));
        kn_step();
    }
    return kn_check(); /* an error of the loader */
}

static kn_status run(kn_params **params, kn_layer **mlp, kn_loader **loader, kn_optim **adam) {
    KN_TRY(kn_loader_create_synthetic(loader, 2000, &(kn_loader_options){.batch = 50, .seed = 1}));
    KN_TRY(kn_params_create(params, &(kn_params_options){.seed = 1}));
    KN_TRY(kn_layer_create(mlp, *params, NULL));
    kn_layer_flatten(*mlp, "flatten"); /* [B,1,28,28] → [B,784] */
    kn_layer_linear(*mlp, "fc1", 784, 64, &(kn_layer_linear_options){.act = kn_relu});
    kn_layer_linear(*mlp, "fc2", 64, 10, NULL);
    KN_TRY(kn_check());
    KN_TRY(kn_adam_create(adam, *params, 1e-3, NULL));
    double loss = 0;
    for (int epoch = 1; epoch <= 3; epoch++) {
        KN_TRY(train(*mlp, *loader, *adam, &loss));
        printf("epoch %d loss %.4f\n", epoch, loss);
    }
    return loss < 0.5 ? KN_OK : KN_FAIL(KN_ERR_INTERNAL, "loss is still %.3f", loss);
}

int main(void) {
    kn_params *params = NULL;
    kn_loader *loader = NULL;
    kn_optim *adam = NULL;
    kn_layer *mlp = NULL;
    kn_status status = run(&params, &mlp, &loader, &adam);
    if (status < 0) fprintf(stderr, "%s\n", kn_last_error()->message);
    kn_optim_destroy(adam);
    kn_layer_destroy(mlp);
    kn_params_destroy(params);
    kn_loader_destroy(loader);
    return status == KN_OK ? 0 : 1;
}
