/* Batch norm over the batches of all ranks beside one process that has the joined batch. */
#ifndef BATCHNORM_CASES_H
#define BATCHNORM_CASES_H

#include <knet/ops.h>
#include <knet/parallel.h>
#include <knet/tape.h>
#include <math.h>
#include <string.h>

#include "ranks_test.h"

enum { NORM_JOINED = 24, NORM_SIDE = 6, NORM_WIDE = 18, NORM_CLASSES = 5, NORM_VALUES = 2048 };

typedef struct norm_net {
    kn_params *params;
    kn_tensor *k, *w1, *w2, *scale[2], *shift[2];
    kn_tensor *mean[2], *var[2]; /* slots */
    const kn_batch_ranks *ranks;
    kn_dtype dtype;
} norm_net;

static kn_status norm_net_create(norm_net *n, kn_dtype dtype) {
    static const int64_t width[] = {6, NORM_WIDE};
    KN_FRAME(.record = KN_OFF);
    *n = (norm_net){.dtype = dtype};
    KN_TRY(kn_params_create(&n->params, &(kn_params_options){.seed = 3, .dtype = dtype}));
    n->k = kn_param(n->params, KN_SHAPE(6, 1, 3, 3), kn_init_xavier(), "k");
    n->w1 = kn_param(n->params, KN_SHAPE(NORM_WIDE, 96), kn_init_xavier(), "w1");
    n->w2 = kn_param(n->params, KN_SHAPE(NORM_CLASSES, NORM_WIDE), kn_init_xavier(), "w2");
    for (int i = 0; i < 2; i++) {
        kn_shape shape = KN_SHAPE(width[i]);
        n->scale[i] = kn_param(n->params, shape, kn_init_normal(1, 0.1), "scale%d", i);
        n->shift[i] = kn_param(n->params, shape, kn_init_normal(0, 0.1), "shift%d", i);
        KN_TRY(kn_hold(&n->mean[i], kn_cast(kn_zeros(shape), dtype)));
        KN_TRY(kn_hold(&n->var[i], kn_cast(kn_ones(shape), dtype)));
    }
    return kn_check();
}

static void norm_net_destroy(norm_net *n) {
    for (int i = 0; i < 2; i++) {
        kn_unhold(&n->mean[i]);
        kn_unhold(&n->var[i]);
    }
    kn_params_destroy(n->params);
}

static kn_tensor *norm_of(const norm_net *n, int i, kn_tensor *x) {
    return kn_batchnorm(x, n->mean[i], n->var[i], n->scale[i], n->shift[i],
                        &(kn_batchnorm_options){.training = 1, .ranks = n->ranks});
}

/* The mean loss of samples [first, end) of the joined batch, times their share of what a rank has
 * in the mean. */
static kn_tensor *norm_loss(const norm_net *n, int step, int first, int end, int size) {
    float pixels[NORM_JOINED * NORM_SIDE * NORM_SIDE];
    int64_t classes[NORM_JOINED], count = end - first;
    for (int i = first; i < end; i++) {
        for (int k = 0; k < NORM_SIDE * NORM_SIDE; k++)
            pixels[(i - first) * NORM_SIDE * NORM_SIDE + k] =
                (float)((i * 61 + k * 7 + k / 5 + i * k * step) % 23 - 11 + i / 4) / 12;
        classes[i - first] = (i + step) % NORM_CLASSES;
    }
    kn_tensor *x = kn_tensor_from(pixels, KN_F32, KN_SHAPE(count, 1, NORM_SIDE, NORM_SIDE));
    kn_tensor *y = kn_tensor_from(classes, KN_I64, KN_SHAPE(count));
    kn_tensor *h = kn_tanh(norm_of(n, 0, kn_conv(kn_cast(x, n->dtype), n->k, KN_NONE, NULL)));
    h = kn_tanh(norm_of(n, 1, kn_linear(kn_flatten(h), n->w1, KN_NONE)));
    kn_tensor *loss = kn_cross_entropy(kn_linear(h, n->w2, KN_NONE), y);
    return kn_affine(loss, (double)(count * size) / NORM_JOINED, 0);
}

static kn_status norm_backward(const norm_net *n, int step, int first, int end, int size) {
    KN_TAPE(.threads = 1);
    KN_TRY(kn_check());
    return kn_backward(norm_loss(n, step, first, end, size));
}

/* The gradients, or the running statistics. */
static kn_status norm_read(double *out, const norm_net *n, bool of_state) {
    KN_FRAME(.record = KN_OFF);
    kn_tensor *const state[] = {n->mean[0], n->var[0], n->mean[1], n->var[1]};
    memset(out, 0, NORM_VALUES * sizeof *out);
    for (int i = 0; i < (of_state ? 4 : kn_params_count(n->params)); i++) {
        kn_tensor *t = of_state ? state[i] : kn_grad(kn_params_at(n->params, i, NULL));
        t = kn_cast(t, KN_F64);
        KN_TRY(kn_check());
        KN_TRY(kn_copy_out(out, (size_t)kn_tensor_numel(t) * sizeof *out, t));
        out += kn_tensor_numel(t);
    }
    return KN_OK;
}

/* Whether this rank has the joined batch's values, to the tolerance, and the bits of all ranks. */
static const char *norm_compare(kn_comm *comm, const norm_net *one, const norm_net *part,
                                bool of_state, double tolerance) {
    static _Thread_local double want[NORM_VALUES], got[2 * NORM_VALUES];
    double largest = 0, worst = 0;
    RANK_OK(norm_read(want, one, of_state));
    RANK_OK(norm_read(got, part, of_state));
    for (int i = 0; i < NORM_VALUES; i++) {
        largest = fmax(largest, fabs(want[i]));
        worst = fmax(worst, fabs(want[i] - got[i]));
        got[NORM_VALUES + i] = -got[i];
    }
    RANK_CHECK(largest > 0.1);
    RANK_CHECK(worst <= tolerance * largest);
    RANK_OK(kn_comm_values(comm, got, 2 * NORM_VALUES, KN_COMM_MAX));
    for (int i = 0; i < NORM_VALUES; i++) RANK_CHECK(got[i] == -got[NORM_VALUES + i]);
    return NULL;
}

/* The first sample of a rank, of up to 4 ranks: in equal parts, or in others. */
static int norm_first(int rank, int size, bool uneven) {
    static const int first[][5] = {{0}, {0, 24}, {0, 1, 24}, {0, 1, 8, 24}, {0, 1, 8, 11, 24}};
    return uneven ? first[size][rank] : NORM_JOINED * rank / size;
}

/* Two steps, without an update between them: the second has buckets. */
static const char *norm_case(kn_comm *comm, kn_dtype dtype, bool uneven, double tolerance) {
    int rank = kn_comm_rank(comm), size = kn_comm_size(comm);
    norm_net one, part;
    kn_parallel *parallel = NULL;
    RANK_OK(norm_net_create(&one, dtype));
    RANK_OK(norm_net_create(&part, dtype));
    RANK_OK(kn_parallel_create(&parallel, part.params, comm,
                               &(kn_parallel_options){.bucket_bytes = 512}));
    part.ranks = kn_parallel_batch(parallel);
    for (int step = 0; step < 2; step++) {
        RANK_OK(norm_backward(&one, step, 0, NORM_JOINED, 1));
        RANK_OK(norm_backward(&part, step, norm_first(rank, size, uneven),
                              norm_first(rank + 1, size, uneven), size));
        RANK_OK(kn_parallel_finish(parallel));
    }
    const char *found = norm_compare(comm, &one, &part, false, tolerance);
    if (!found) found = norm_compare(comm, &one, &part, true, tolerance);
    kn_parallel_destroy(parallel);
    norm_net_destroy(&part);
    norm_net_destroy(&one);
    return found;
}

static const char *check_batchnorm(kn_comm *comm, void *ctx) {
    (void)ctx;
    for (int uneven = 0; uneven < 2; uneven++) {
        const char *found = norm_case(comm, KN_F32, uneven, 1e-6);
        if (!found) found = norm_case(comm, KN_F64, uneven, 1e-14);
        if (found) return found;
    }
    return NULL;
}

#endif
