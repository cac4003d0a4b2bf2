/* The order of the gradients: in a checkpoint's metadata. */
#include <inttypes.h>
#include <stdlib.h>

#include "checkpoint.h"

/* The place of each gradient: -1 before the order is final. */
static kn_status order_get(int **out, const kn_params *params) {
    int n = kn_params_count(params);
    *out = malloc((size_t)n * sizeof **out + 1);
    if (!*out) return KN_FAIL(KN_ERR_OOM, "no memory for the order of %d parameters", n);
    kn_params_order(*out, params);
    return KN_OK;
}

kn_status kn__order_is_final(bool *out, const kn_params *params) {
    int *order = NULL;
    *out = false;
    KN_TRY(order_get(&order, params));
    for (int i = 0; i < kn_params_count(params); i++) *out |= order[i] >= 0;
    free(order);
    return KN_OK;
}

kn_status kn__order_put(kn__text *out, const kn_params *params) {
    int *order = NULL;
    KN_TRY(order_get(&order, params));
    for (int i = 0; i < kn_params_count(params) && order[i] >= 0; i++)
        kn__text_printf(out, "%s%d", i ? " " : "", order[i]);
    free(order);
    return KN_OK;
}

/* The first place from k on whose gradient has elements in the arena. */
static int slice_next(kn_params *params, const int order[], int n, int k) {
    for (; k < n && order[k] >= 0; k++) {
        kn_tensor *w = kn_params_at(params, order[k], NULL);
        if (kn_tensor_numel(w) && !kn_param_is_sparse(w)) break;
    }
    return k;
}

/* Whether gradients lie alike in both. Empty ones lie nowhere: older versions saved another place
 * of theirs than they had. */
static bool order_same(kn_params *params, const int a[], const int b[], int n) {
    int i = slice_next(params, a, n, 0), k = slice_next(params, b, n, 0);
    while (i < n && k < n && a[i] >= 0 && a[i] == b[k]) {
        i = slice_next(params, a, n, i + 1);
        k = slice_next(params, b, n, k + 1);
    }
    return i == n && k == n;
}

static kn_status order_set(kn_params *params, const uint64_t places[], int n) {
    int *order = malloc((size_t)n * sizeof *order + 1), *now = NULL;
    if (!order) return KN_FAIL(KN_ERR_OOM, "no memory for the order of %d parameters", n);
    kn_status status = order_get(&now, params);
    for (int i = 0; i < n && status == KN_OK; i++)
        order[i] = places[i] < (uint64_t)n ? (int)places[i] : -1;
    if (status == KN_OK && !order_same(params, now, order, n))
        status = kn_params_order_set(params, order, n);
    free(order);
    free(now);
    return status;
}

kn_status kn__order_load(kn_params *params, kn_file *f, const char *path) {
    int n = kn_params_count(params);
    uint64_t *places = malloc((size_t)n * sizeof *places + 1);
    kn_status status = places ? kn__numbers_get(places, n, f, path, KN__ORDER)
                              : KN_FAIL(KN_ERR_OOM, "no memory for the order of %d parameters", n);
    if (status == KN_OK) status = order_set(params, places, n);
    free(places);
    return status;
}
