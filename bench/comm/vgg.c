#include "vgg.h"

#include <knet/ops.h>
#include <knet/tape.h>

#include "scale.h"

static const int64_t channels[VGG_CONVS + 1] = {3, 32, 32, 64, 64, 128, 128};
static const int64_t widths[VGG_LINEARS + 1] = {2048, 256, VGG_CLASSES};

static kn_status params_make(vgg *net) {
    for (int i = 0; i < VGG_CONVS; i++)
        net->w[i] = kn_param(net->params, KN_SHAPE(channels[i + 1], channels[i], 3, 3),
                             kn_init_he(), "conv%d.w", i);
    for (int i = 0; i < VGG_LINEARS; i++)
        net->w[VGG_CONVS + i] =
            kn_param(net->params, KN_SHAPE(widths[i + 1], widths[i]), kn_init_he(), "fc%d.w", i);
    for (int i = 0; i < VGG_CONVS + VGG_LINEARS; i++)
        net->b[i] = kn_param(net->params,
                             KN_SHAPE(i < VGG_CONVS ? channels[i + 1] : widths[i - VGG_CONVS + 1]),
                             (kn_init){0}, "b%d", i);
    return kn_check();
}

static kn_status batch_make(vgg *net, int batch) {
    KN_FRAME();
    int64_t classes[256];
    kn_rng *rng = NULL;
    KN_TRY(kn_rng_create(&rng, 1));
    kn_status status = kn_hold(&net->x, kn_uniform(KN_SHAPE(batch, 3, 32, 32), 0, 1, rng));
    for (int i = 0; i < batch; i++) classes[i] = i * 7 % VGG_CLASSES;
    if (status == KN_OK)
        status = kn_hold(&net->y, kn_tensor_from(classes, KN_I64, KN_SHAPE(batch)));
    kn_rng_destroy(rng);
    return status;
}

kn_status vgg_create(vgg *net, int batch, kn_comm *comm) {
    *net = (vgg){0};
    KN_TRY(kn_params_create(&net->params, &(kn_params_options){.seed = 1}));
    KN_TRY(params_make(net));
    KN_TRY(batch_make(net, batch));
    if (comm) KN_TRY(kn_parallel_create(&net->parallel, net->params, comm, NULL));
    return kn_sgd_create(&net->optim, net->params, 1e-3, NULL);
}

void vgg_destroy(vgg *net) {
    kn_optim_destroy(net->optim);
    kn_parallel_destroy(net->parallel);
    kn_unhold(&net->x);
    kn_unhold(&net->y);
    kn_params_destroy(net->params);
}

static kn_tensor *loss_of(const vgg *net) {
    static const kn_conv_options same = {.padding = {1, 1}};
    kn_tensor *h = net->x;
    for (int i = 0; i < VGG_CONVS; i++) {
        h = kn_relu(kn_conv(h, net->w[i], net->b[i], &same));
        if (i % 2) h = kn_maxpool(h, KN_SHAPE(2, 2), NULL);
    }
    h = kn_relu(kn_linear(kn_flatten(h), net->w[VGG_CONVS], net->b[VGG_CONVS]));
    h = kn_linear(h, net->w[VGG_CONVS + 1], net->b[VGG_CONVS + 1]);
    return kn_cross_entropy(h, net->y);
}

kn_status vgg_step(vgg *net, int threads) {
    KN_TAPE(.threads = threads);
    kn_tensor *loss = loss_of(net);
    KN_TRY(kn_check());
    uint64_t begin = bench_now_ns();
    KN_TRY(kn_backward(loss));
    net->backward_ns += (double)(bench_now_ns() - begin);
    if (net->parallel) KN_TRY(kn_parallel_finish(net->parallel));
    return kn_optim_step(net->optim);
}
