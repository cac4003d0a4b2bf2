/* Recurrent networks: options made explicit, shapes, checks, views of parameters. */
#include "rnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "run.h"

enum { LAYERS_MAX = 1024 };

/* --- options --- */

static bool whole_options_fail(const kn_rnn_options *o) {
    if (!kn__reserved_fit(KN_OP_rnn, 0, o->reserved, 4)) return true;
    if (o->hidden < 1 || o->hidden > INT32_MAX) {
        kn_op_fail(KN_OP_rnn, KN_ERR_INVALID, "hidden is %lld; it must be in 1 … 2^31 - 1",
                   (long long)o->hidden);
    } else if (o->layers < 0 || o->layers > LAYERS_MAX) {
        kn_op_fail(KN_OP_rnn, KN_ERR_INVALID, "layers is %lld; it must be in 0 … %d",
                   (long long)o->layers, LAYERS_MAX);
    } else if ((int)o->mode < KN_RNN_LSTM || o->mode > KN_RNN_RELU) {
        kn_op_fail(KN_OP_rnn, KN_ERR_INVALID, "invalid mode %d", (int)o->mode);
    } else if (!(o->dropout >= 0 && o->dropout <= 1)) {
        kn_op_fail(KN_OP_rnn, KN_ERR_INVALID, "dropout is %g; it must be in 0 … 1", o->dropout);
    } else {
        return false;
    }
    return true;
}

/* *n *= factor; false when that is more than can be counted. */
static bool times(int64_t *n, int64_t factor) { return !__builtin_mul_overflow(*n, factor, n); }

/* Of all parameters; -1: too many to count. */
static int64_t params_of(const kn_attr_rnn *attr) {
    int64_t rows = kn__rnn_gates(attr) * attr->hidden, most = attr->input, each = rows;
    if (most < attr->directions * attr->hidden) most = attr->directions * attr->hidden;
    if (!times(&each, most + attr->hidden + 2) || !times(&each, attr->layers * attr->directions))
        return -1;
    return kn__rnn_biases_at(attr, attr->layers);
}

/* The options of a network of `inputs` features; false: the error is pending. */
static bool network(kn_attr_rnn *attr, int64_t inputs, const kn_rnn_options *o) {
    if (!o) {
        kn_op_fail(KN_OP_rnn, KN_ERR_INVALID, "options are NULL: hidden is required");
        return false;
    }
    int bidirectional = o->bidirectional, skip_input = o->skip_input;
    if (whole_options_fail(o) || !kn__flag_fit(KN_OP_rnn, "bidirectional", &bidirectional) ||
        !kn__flag_fit(KN_OP_rnn, "skip_input", &skip_input))
        return false;
    memset(attr, 0, sizeof *attr);
    attr->mode = o->mode, attr->hidden = o->hidden, attr->input = inputs;
    attr->layers = o->layers ? o->layers : 1, attr->directions = 1 + bidirectional;
    attr->skip = skip_input;
    attr->dropout = attr->layers > 1 ? o->dropout : 0;
    if (inputs < 0 || inputs > INT32_MAX || params_of(attr) < 0) {
        kn_op_fail(KN_OP_rnn, KN_ERR_INVALID, "%lld inputs, %lld hidden, %lld layers are too large",
                   (long long)inputs, (long long)o->hidden, (long long)attr->layers);
        return false;
    }
    if (!attr->skip || inputs == attr->hidden) return true;
    kn_op_fail(KN_OP_rnn, KN_ERR_SHAPE,
               "skip_input takes as many inputs as hidden, not %lld and %lld", (long long)inputs,
               (long long)o->hidden);
    return false;
}

int64_t kn_rnn_params(int64_t inputs, const kn_rnn_options *options) {
    KN__AS("rnn_params");
    kn_attr_rnn attr;
    return network(&attr, inputs, options) ? params_of(&attr) : -1;
}

kn_tensor *kn_rnn_param(kn_tensor *w, int64_t inputs, const kn_rnn_options *options, int64_t layer,
                        int direction, int gate, kn_rnn_part part) {
    KN__AS("rnn_param", "w");
    kn_attr_rnn attr;
    if (!kn__check_readable(KN_OP_rnn, &w, 1) || !network(&attr, inputs, options)) return NULL;
    int64_t gates = kn__rnn_gates(&attr);
    if (w->n != params_of(&attr)) {
        return kn_op_fail(KN_OP_rnn, KN_ERR_SHAPE, "w has %lld elements, not %lld", (long long)w->n,
                          (long long)params_of(&attr));
    }
    if (layer < 0 || layer >= attr.layers || direction < 0 || direction >= attr.directions ||
        gate < -1 || gate >= gates || (int)part < 0 || part > KN_RNN_HIDDEN_BIAS) {
        return kn_op_fail(KN_OP_rnn, KN_ERR_INVALID,
                          "no part %d of gate %d, layer %lld, direction %d: there are %lld gates, "
                          "%lld layers, %lld directions",
                          (int)part, gate, (long long)layer, direction, (long long)gates,
                          (long long)attr.layers, (long long)attr.directions);
    }
    int64_t columns = part == KN_RNN_INPUT_WEIGHT ? kn__rnn_columns(&attr, layer) : attr.hidden;
    if (columns == 0 && attr.skip) {
        return kn_op_fail(KN_OP_rnn, KN_ERR_INVALID, "layer 0 has no weights with skip_input");
    }
    int64_t rows = gate < 0 ? gates * attr.hidden : attr.hidden, first = gate < 0 ? 0 : gate;
    bool is_bias = part >= KN_RNN_INPUT_BIAS;
    int64_t at = kn__rnn_part_at(&attr, layer, direction, part) +
                 first * attr.hidden * (is_bias ? 1 : columns);
    return kn_tensor_view(w, is_bias ? KN_SHAPE(rows) : KN_SHAPE(rows, columns), at);
}

/* --- the call --- */

/* Replays take the recorded lengths. */
static bool lengths_fail(const kn_rnn_options *o, const kn_tensor *x) {
    const kn__plan *plan = kn__ops_self ? kn__ops_self->capture : NULL;
    if (plan && !plan->variant) {
        kn_op_fail(KN_OP_rnn, KN_ERR_UNSUPPORTED,
                   "lengths are of the host, and replays of the captured step would keep these: "
                   "give each list of lengths a variant but 0 (kn_capture_select), or run the step "
                   "without a capture");
        return true;
    }
    for (int64_t b = 0; b < x->dim[1]; b++) {
        if (o->lengths[b] >= 0 && o->lengths[b] <= x->dim[0]) continue;
        kn_op_fail(KN_OP_rnn, KN_ERR_INVALID, "lengths[%lld] is %lld; x has %lld steps",
                   (long long)b, (long long)o->lengths[b], (long long)x->dim[0]);
        return true;
    }
    return false;
}

static bool sizes_fit(const kn_op_call *call) {
    const kn_tensor *x = call->in[0];
    if (x->n_dims == 3 && x->dim[0] <= INT32_MAX && x->dim[1] <= INT32_MAX) return true;
    return kn_op_call_fail(call, KN_ERR_SHAPE, "x must be [T,B,I]");
}

/* The attributes, with the lengths at their end; on the heap where they don't fit in `room`. */
static kn_attr_rnn *attr_make(kn_op_call *call, const kn_rnn_options *o, kn_attr_rnn *room,
                              size_t room_bytes) {
    const kn_tensor *x = call->in[0];
    kn_attr_rnn attr;
    if (!network(&attr, x->dim[2], o)) return NULL;
    attr.steps = x->dim[0], attr.batch = x->dim[1];
    attr.math = (int64_t)kn_frame_math();
    if (o->lengths) {
        if (lengths_fail(o, x)) return NULL;
        attr.n_lengths = attr.batch;
    }
    call->attr_bytes = sizeof attr + (size_t)attr.n_lengths * sizeof attr.length[0];
    kn_attr_rnn *out = call->attr_bytes <= room_bytes ? room : malloc(call->attr_bytes);
    if (!out) {
        kn_op_fail(KN_OP_rnn, KN_ERR_OOM, "no memory for %lld lengths", (long long)attr.n_lengths);
        return NULL;
    }
    *out = attr;
    if (o->lengths) memcpy(out->length, o->lengths, (size_t)attr.n_lengths * sizeof attr.length[0]);
    return out;
}

static kn_tensor *run(kn_op_call *call, const kn_rnn_options *o, kn_tensor *in[5]) {
    const kn_attr_rnn *attr = call->attr;
    if (o->c_n && attr->mode != KN_RNN_LSTM) {
        kn_op_call_fail(call, KN_ERR_INVALID, "c_n is for LSTM alone");
        return NULL;
    }
    if (attr->dropout > 0) {
        if (!o->rng) {
            kn_op_call_fail(call, KN_ERR_INVALID, "dropout is %g and rng is NULL", attr->dropout);
            return NULL;
        }
        int64_t n = kn__rnn_mask(attr) * (attr->layers - 1);
        in[4] = kn_rng_take(o->rng, in[0]->storage->device, n);
        if (!in[4]) return NULL;
    }
    call->want = (uint8_t)(1 | (o->h_n ? 2 : 0) | (o->c_n ? 4 : 0));
    kn_tensor *y = kn_op_run(call);
    if (!y) return NULL;
    if (o->h_n) *o->h_n = call->out[1];
    if (o->c_n) *o->c_n = call->out[2];
    return y;
}

kn_tensor *kn_rnn(kn_tensor *x, kn_tensor *w, const kn_rnn_options *options) {
    kn_op_call call;
    kn_tensor *in[5] = {x, w, KN_NONE, KN_NONE, KN_NONE};
    if (options && options->h_n) *options->h_n = NULL;
    if (options && options->c_n) *options->c_n = NULL;
    if (options && options->h0) in[2] = options->h0;
    if (options && options->c0) in[3] = options->c0;
    union {
        kn_attr_rnn attr;
        char bytes[sizeof(kn_attr_rnn) + 256 * sizeof(int64_t)];
    } room;
    kn_op_call_init(&call, KN_OP_rnn, NULL, in, 5);
    if (!kn__check_inputs(&call) || !sizes_fit(&call)) return NULL;
    kn_attr_rnn *attr = attr_make(&call, options, &room.attr, sizeof room);
    if (!attr) return NULL;
    call.attr = attr;
    kn_tensor *y = run(&call, options, in);
    if (attr != &room.attr) free(attr);
    return y;
}

static bool state_fits(const kn_op_call *call, int i) {
    const kn_attr_rnn *attr = call->attr;
    const kn_tensor *t = call->in[i];
    int64_t rows = attr->layers * attr->directions;
    if (t == KN_NONE) return true;
    if (i == 3 && attr->mode != KN_RNN_LSTM) {
        return kn_op_call_fail(call, KN_ERR_INVALID, "c0 is for LSTM alone");
    }
    if (t->n_dims == 3 && t->dim[0] == rows && t->dim[1] == attr->batch &&
        t->dim[2] == attr->hidden)
        return true;
    return kn_op_call_fail(call, KN_ERR_SHAPE, "%s must be [%lld,%lld,%lld]", i == 2 ? "h0" : "c0",
                           (long long)rows, (long long)attr->batch, (long long)attr->hidden);
}

/* Elements that hold what a gradient reads. */
static bool reserve(int64_t *n, const kn_op_call *call) {
    const kn_attr_rnn *attr = call->attr;
    *n = kn__host_rnn_reserve(attr, (kn_dtype)call->dtype);
    if (kn_device_kind_get(call->device) != KN_DEVICE_CUDA) return true;
    const kn__cuda_exports *module = kn__cuda_module();
    if (!module) {
        kn_error_defer(kn_last_error()->status);
        return false;
    }
    size_t bytes = 0, each = kn_dtype_bytes((kn_dtype)call->dtype);
    kn_status status = module->rnn_reserve(&bytes, call);
    if (status < 0) {
        kn_error_defer(status);
        return false;
    }
    *n = (int64_t)((bytes + each - 1) / each);
    return true;
}

/* Σ of all sizes below 2^62, so that kernels can count in elements and bytes. */
static bool countable(const kn_attr_rnn *attr) {
    int64_t n = attr->steps + 2;
    return times(&n, attr->batch + 1) && times(&n, attr->layers * attr->directions) &&
           times(&n, 8 * (attr->hidden + 8)) && times(&n, 64);
}

bool kn__infer_rnn(kn_op_call *call) {
    const kn_attr_rnn *attr = call->attr;
    const kn_tensor *x = call->in[0], *w = call->in[1];
    if (!sizes_fit(call) || !state_fits(call, 2) || !state_fits(call, 3)) return false;
    if (w->n != params_of(attr)) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "w must have %lld elements; see kn_rnn_params",
                               (long long)params_of(attr));
    }
    if (!countable(attr)) return kn_op_call_fail(call, KN_ERR_SHAPE, "the sizes are too large");
    int64_t width = attr->directions * attr->hidden;
    int64_t state[3] = {attr->layers * attr->directions, attr->batch, attr->hidden}, n = 0;
    if (call->want & 8 && !reserve(&n, call)) return false;
    return kn__shaped(call, 0, 3, (int64_t[]){x->dim[0], x->dim[1], width}) &&
           kn__shaped(call, 1, 3, state) && kn__shaped(call, 2, 3, state) &&
           kn__shaped(call, 3, 1, &n);
}

/* x|NONE, w, y, reserve, dy|NONE, dh_n|NONE, dc_n|NONE → dx, dw, dh0, dc0 */
bool kn__infer_rnn_back(kn_op_call *call) {
    const kn_attr_rnn *attr = call->attr;
    int64_t state[3] = {attr->layers * attr->directions, attr->batch, attr->hidden};
    if (call->in[1]->n != params_of(attr)) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "shapes don't fit");
    }
    return kn__shaped(call, 0, 3, (int64_t[]){attr->steps, attr->batch, attr->input}) &&
           kn__like(call, 1, call->in[1]) && kn__shaped(call, 2, 3, state) &&
           kn__shaped(call, 3, 3, state);
}
