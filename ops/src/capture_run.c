/* kn_capture_run: a step as it is, then recorded, then replayed. */
#include <stdlib.h>

#include "capture.h"
#include "run.h"

static uint64_t key_of(const kn_capture *capture, kn_tensor *const in[], int n_in) {
    uint64_t key = kn__hash_pair((uint64_t)n_in, capture->variant);
    key = kn__hash_pair(key, kn__capture_settings());
    for (int i = 0; i < n_in; i++) {
        key = kn__hash_pair(key, in[i]->dtype + 16u * in[i]->n_dims);
        for (int d = 0; d < in[i]->n_dims; d++) key = kn__hash_pair(key, (uint64_t)in[i]->dim[d]);
    }
    return key;
}

static void seen_note(kn__hash *table, uint64_t key) {
    if (kn__hash_get(table, sizeof(kn__seen), key)) return;
    if (kn__hash_is_full(table) && !kn__hash_grow(table, sizeof(kn__seen), 64)) return;
    kn__hash_put(table, sizeof(kn__seen), key);
}

static kn_status outs_keep(kn_tensor *out[], int n_out) {
    for (int i = 0; i < n_out; i++) {
        if (!out[i])
            return KN_FAIL(KN_ERR_INVALID, "kn_capture_run: the step left out[%d] NULL", i);
        if (!kn_keep(out[i])) return kn_check();
    }
    return KN_OK;
}

/* As replays: an open tape records nothing, and convolutions leave nothing in blocks. */
static kn_status run_plain(kn_tensor *out[], int n_out, kn_tensor *const in[], kn_capture_fn step,
                           void *ctx) {
    KN_FRAME(.record = KN_OFF);
    KN_TRY(kn_check());
    for (int i = 0; i < n_out; i++) out[i] = NULL;
    bool before = kn__ops_self->plain_layouts;
    kn__ops_self->plain_layouts = true;
    kn_status status = step(out, in, ctx);
    kn__ops_self->plain_layouts = before;
    KN_TRY(status);
    KN_TRY(kn_check());
    return outs_keep(out, n_out);
}

static kn_status run_recorded(kn_capture *capture, int n_out, kn_tensor *const in[], int n_in,
                              kn_capture_fn step, void *ctx) {
    KN_FRAME(.record = KN_OFF);
    KN_TRY(kn_check());
    kn_tensor **out = calloc((size_t)n_out + 1, sizeof(kn_tensor *));
    if (!out) return KN_FAIL(KN_ERR_OOM, "kn_capture_run: no host memory");
    kn_status status = kn_capture_begin(capture, in, n_in);
    if (status == KN_OK) {
        status = step(out, in, ctx);
        if (status == KN_OK)
            status = kn_capture_end(capture, out, n_out);
        else
            kn_capture_cancel(capture);
    }
    free(out);
    return status;
}

kn_status kn_capture_run(kn_tensor *out[], int n_out, kn_capture *capture, kn_tensor *const in[],
                         int n_in, kn_capture_fn step, void *ctx) {
    KN_TRY(kn__capture_inputs_check("kn_capture_run", in, n_in));
    KN_TRY(kn__capture_edges_check("kn_capture_run", in, n_in));
    if (n_out < 0) return KN_FAIL(KN_ERR_INVALID, "kn_capture_run: n_out is %d", n_out);
    if (!capture || !step) {
        return KN_FAIL(KN_ERR_INVALID, "kn_capture_run: %s is NULL", capture ? "step" : "capture");
    }
    if (n_out && !out) return KN_FAIL(KN_ERR_INVALID, "kn_capture_run: out is NULL");
    if (kn_capture_records()) return run_plain(out, n_out, in, step, ctx); /* a part of that step */
    bool is_recorded = kn_capture_has(capture, in, n_in);
    uint64_t key = key_of(capture, in, n_in);
    if (!is_recorded && !kn__hash_get(&capture->seen, sizeof(kn__seen), key)) {
        KN_TRY(run_plain(out, n_out, in, step, ctx));
        seen_note(&capture->seen, key);
        return KN_OK;
    }
    KN_TRY(is_recorded ? kn_capture_launch(capture, in, n_in)
                       : run_recorded(capture, n_out, in, n_in, step, ctx));
    for (int i = 0; i < n_out; i++) {
        kn_tensor *t = kn_capture_out(capture, i);
        if (!t || !(out[i] = kn_tensor_alias(t))) return kn_check();
    }
    return KN_OK;
}
