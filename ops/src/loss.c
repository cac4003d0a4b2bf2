/* Losses: rows with integer labels, and terms of rows of ops.def with their reduction. */
#include <math.h>

#include "run.h"

/* scores [B,C], labels [B] */
static bool rows_fit(const kn_op_call *call) {
    const kn_tensor *scores = call->in[0], *labels = call->in[1];
    if (scores->n_dims == 2 && labels->n_dims == 1 && scores->dim[0] == labels->dim[0]) return true;
    return kn_op_call_fail(call, KN_ERR_SHAPE,
                           "the shapes must be [B,C] and [B], or [B,C,…] and [B,…]");
}

/* A mean needs elements, other reductions classes where there are rows. */
static bool rows_full(const kn_op_call *call, bool is_mean) {
    const kn_tensor *scores = call->in[0], *labels = call->in[1];
    if (scores->n || (!is_mean && !labels->n)) return true;
    return kn_op_call_fail(
        call, KN_ERR_SHAPE,
        labels->n ? "there are no classes" : "there are no elements to take the mean of");
}

bool kn__infer_labelled(kn_op_call *call) {
    return rows_fit(call) && rows_full(call, true) && kn__shaped(call, 0, 0, NULL);
}

static bool k_fits(const kn_op_call *call) {
    int64_t k = ((const kn_attr_best *)call->attr)->k;
    if (k >= 1 && k <= call->in[0]->dim[1]) return true;
    return kn_op_call_fail(call, KN_ERR_INVALID, "k is %lld; it must be in 1 … %lld", (long long)k,
                           (long long)call->in[0]->dim[1]);
}

bool kn__infer_accuracy(kn_op_call *call) { return kn__infer_labelled(call) && k_fits(call); }

bool kn__infer_cross_entropy(kn_op_call *call) {
    return kn__infer_labelled(call) && kn__like(call, 1, call->in[0]);
}

bool kn__infer_nll_back(kn_op_call *call) {
    const kn_tensor *labels = call->in[0], *g = call->in[1];
    if (g->n != 1 || labels->n_dims != 1) {
        return kn_op_call_fail(call, KN_ERR_SHAPE, "labels must be [B], g 0-dimensional");
    }
    const kn_attr_classes *attr = call->attr;
    return kn__shaped(call, 0, 2, (int64_t[]){labels->n, attr->n});
}

/* Whether a call has scores [B,C,…] and labels [B,…]: one row for each place. */
static bool has_places(const kn_op_call *call) {
    const kn_tensor *x = call->in[0], *t = call->in[1];
    if (!kn__is_whole(x) || !kn__is_whole(t) || x->n_dims < 3 || t->n_dims != x->n_dims - 1)
        return false;
    for (int i = 0; i < t->n_dims; i++) {
        if (t->dim[i] != x->dim[i ? i + 1 : 0]) return false;
    }
    return true;
}

/* They become rows [N,C] and [N]. */
static void rows_make(kn_tensor **scores, kn_tensor **labels) {
    kn_tensor *x = *scores, *t = *labels;
    kn_shape order = {.n_dims = x->n_dims};
    for (int i = 1; i < t->n_dims; i++) order.dim[i] = i + 1;
    order.dim[t->n_dims] = 1;
    *scores = kn_reshape(kn_transpose(x, order), KN_SHAPE(t->n, x->dim[1]));
    *labels = kn_reshape(t, KN_SHAPE(t->n));
}

/* Of rows, or of places, whose errors show the shapes that were given. */
static kn_tensor *run(kn_op op, void *attr, kn_tensor *scores, kn_tensor *labels) {
    kn_op_call call;
    kn_op_call_init(&call, op, attr, KN_LIST_(scores, labels), 2);
    if (has_places(&call)) {
        if (!kn__check_inputs(&call) || !rows_full(&call, true)) return NULL;
        if (op == KN_OP_accuracy && !k_fits(&call)) return NULL;
        rows_make(&scores, &labels);
    }
    return kn_op_call_run(op, attr, KN_LIST_(scores, labels), 2);
}

kn_tensor *kn_cross_entropy(kn_tensor *logits, kn_tensor *labels) {
    KN__AS("cross_entropy");
    kn_attr_scalars attr = {0, 0};
    return kn__narrowed(run(KN_OP_cross_entropy, &attr, logits, labels), logits);
}
kn_tensor *kn_nll(kn_tensor *log_probs, kn_tensor *labels) {
    KN__AS("nll");
    return run(KN_OP_nll, NULL, log_probs, labels);
}
kn_tensor *kn_accuracy(kn_tensor *scores, kn_tensor *labels) {
    KN__AS("accuracy");
    kn_attr_best attr = {1};
    return run(KN_OP_accuracy, &attr, scores, labels);
}

/* --- labels with options --- */

/* What the parts of a cross-entropy with options are made of. */
typedef struct labelled_rows {
    kn_tensor *log_probs, *index, *valid; /* [B,C]; [B]; [B]: whether the label is in range */
    kn_tensor *keep, *weight;             /* [B] or NULL; of each row or NULL */
} labelled_rows;

static kn_tensor *zero_where_ignored(const labelled_rows *r, kn_tensor *x) {
    return r->keep ? kn_where(r->keep, x, kn__constant_like(x, 0)) : x;
}

static labelled_rows rows_of(kn_tensor *logits, kn_tensor *labels,
                             const kn_cross_entropy_options *o) {
    labelled_rows r = {.log_probs = kn_logsoftmax(logits, 1), .index = kn_cast(labels, KN_I64)};
    if (o->ignores) {
        kn_tensor *ignored = kn__constant_like(r.index, (double)o->ignore_index);
        r.keep = kn_ne(r.index, ignored);
        r.index = zero_where_ignored(&r, r.index);
    }
    double last = logits->dim[1] ? (double)(logits->dim[1] - 1) : 0;
    kn_tensor *inside = kn_clamp(r.index, 0, last);
    r.valid = kn_eq(inside, r.index), r.index = inside;
    if (o->weight) r.weight = kn_index_select(o->weight, r.index, 0);
    return r;
}

/* Of each row: (1 - ε)·w[label]·-log p[label] + ε/C·Σ w[c]·-log p[c] */
static kn_tensor *row_losses(const labelled_rows *r, const kn_cross_entropy_options *o) {
    kn_tensor *column = kn_unsqueeze(r->index, 1);
    kn_tensor *picked = kn_neg(kn_squeeze(kn_gather(r->log_probs, column, 1), KN_SHAPE(1)));
    if (!picked) return NULL;
    /* a product, which makes the gradient NaN too */
    picked = kn_mul(picked, kn_where(r->valid, kn__constant_like(picked, 1),
                                     kn__constant_like(picked, (double)NAN)));
    if (o->weight) picked = kn_mul(picked, r->weight);
    if (o->smoothing > 0) {
        kn_tensor *all = o->weight ? kn_mul(r->log_probs, o->weight) : r->log_probs;
        kn_tensor *mean = kn_mean(all, KN_SHAPE(1), false);
        picked = kn_axpby(picked, mean, 1 - o->smoothing, -o->smoothing);
    }
    return zero_where_ignored(r, picked);
}

/* What the sum of the rows is divided by. */
static kn_tensor *divisor(const labelled_rows *r, const kn_tensor *logits) {
    kn_tensor *each =
        r->weight ? zero_where_ignored(r, r->weight) : kn_cast(r->keep, (kn_dtype)logits->dtype);
    return kn_sum(each, KN_ALL, false);
}

static bool options_fit(const kn_op_call *call, const kn_cross_entropy_options *o) {
    if (!kn__reserved_fit((kn_op)call->op, 0, o->reserved, 4)) return false;
    if (!(o->smoothing >= 0 && o->smoothing <= 1)) {
        return kn_op_call_fail(call, KN_ERR_INVALID, "smoothing is %g; it must be in 0 … 1",
                               o->smoothing);
    }
    if (!o->weight) return true;
    if (!kn__is_whole(o->weight)) {
        kn_error_defer(kn__fail_unreadable("kn_cross_entropy_with: weight", o->weight));
        return false;
    }
    if (o->weight->n_dims == 1 && o->weight->n == call->in[0]->dim[1]) return true;
    char text[128];
    return kn_op_call_fail(call, KN_ERR_SHAPE, "weight is %s; it must have one number a class",
                           kn_shape_text(text, sizeof text, kn_tensor_shape(o->weight)));
}

/* Of 16 bits in f32: the sum may not fit them where this does. */
static kn_tensor *mean_of_rows(kn_tensor *terms) {
    double n = (double)(terms->n_dims ? terms->dim[0] : 1);
    const kn_dtype dtype = (kn_dtype)terms->dtype;
    if (kn__is_half(dtype)) terms = kn_cast(terms, KN_F32);
    kn_tensor *sum = terms ? kn_sum(terms, KN_ALL, false) : NULL;
    kn_tensor *mean = sum ? kn_div(sum, kn__constant_like(sum, n)) : NULL;
    return mean && mean->dtype != dtype ? kn_cast(mean, dtype) : mean;
}

kn_tensor *kn__loss_reduced(kn_tensor *terms, kn_reduction how) {
    if (!terms) return NULL;
    switch (how) {
        case KN_REDUCE_MEAN:
            return kn_mean(terms, KN_ALL, false);
        case KN_REDUCE_SUM:
            return kn_sum(terms, KN_ALL, false);
        case KN_REDUCE_BATCH:
            return mean_of_rows(terms);
        case KN_REDUCE_NONE:
            return terms;
    }
    return kn_op_fail(KN_OP_mean, KN_ERR_INVALID, "invalid reduction %d", (int)how);
}

/* Of 16-bit logits: neither the sum of many rows nor their number fits 16 bits. */
static kn_tensor *cross_entropy_in_f32(kn_tensor *logits, kn_tensor *labels,
                                       const kn_cross_entropy_options *options) {
    kn_dtype dtype = (kn_dtype)logits->dtype;
    kn_cross_entropy_options o = *options;
    if (o.weight && o.weight->dtype == dtype) o.weight = kn_cast(o.weight, KN_F32);
    if (labels->dtype == dtype) labels = kn_cast(labels, KN_F32);
    kn_tensor *y = kn_cross_entropy_with(kn_cast(logits, KN_F32), labels, &o);
    return kn__ops_self->frame->autocast ? y : kn_cast(y, dtype);
}

/* Of [B,C,…]: the terms of rows are put back where the labels were before they are joined. */
static kn_tensor *cross_entropy_of_places(kn_tensor *logits, kn_tensor *labels,
                                          const kn_cross_entropy_options *options) {
    kn_shape places = kn_tensor_shape(labels);
    kn_cross_entropy_options o = *options;
    bool has_terms = o.reduction == KN_REDUCE_NONE || o.reduction == KN_REDUCE_BATCH;
    if (has_terms) o.reduction = KN_REDUCE_NONE;
    rows_make(&logits, &labels);
    kn_tensor *y = kn_cross_entropy_with(logits, labels, &o);
    if (!y || !has_terms) return y;
    return kn__loss_reduced(kn_reshape(y, places), options->reduction);
}

static bool is_float(const kn_tensor *t) {
    return t->dtype == KN_F32 || t->dtype == KN_F64 || kn__is_half(t->dtype);
}

/* Whether labels are meant as probabilities of the classes. */
static bool has_targets(const kn_op_call *call) {
    const kn_tensor *x = call->in[0], *t = call->in[1];
    return kn__is_whole(x) && kn__is_whole(t) && x->n_dims >= 2 && t->n_dims >= x->n_dims &&
           is_float(x) && is_float(t);
}

/* Integers [B,C,…], as of classes one-hot, are no labels. */
static bool labels_are_possible(const kn_op_call *call) {
    const kn_tensor *x = call->in[0], *t = call->in[1];
    if (!kn__is_whole(x) || !kn__is_whole(t) || !kn__same_shape(x, t) || is_float(t) ||
        !is_float(x) || x->n_dims < 2)
        return true;
    char text[128];
    return kn_op_call_fail(call, KN_ERR_DTYPE,
                           "labels %s are %s; in the shape of the logits they are probabilities, "
                           "of dtype %s",
                           kn_shape_text(text, sizeof text, kn_tensor_shape(t)),
                           kn_dtype_name((kn_dtype)t->dtype), kn_dtype_name((kn_dtype)x->dtype));
}

static bool targets_fit(const kn_op_call *call, const kn_cross_entropy_options *o) {
    const kn_tensor *x = call->in[0], *t = call->in[1];
    char of_t[128], of_x[128];
    if (!kn__same_shape(x, t))
        return kn_op_call_fail(call, KN_ERR_SHAPE,
                               "probabilities are %s, the logits %s; they must be alike",
                               kn_shape_text(of_t, sizeof of_t, kn_tensor_shape(t)),
                               kn_shape_text(of_x, sizeof of_x, kn_tensor_shape(x)));
    if (x->dtype != t->dtype && !kn__is_half(x->dtype))
        return kn_op_call_fail(call, KN_ERR_DTYPE, "logits are %s, probabilities %s; see kn_cast",
                               kn_dtype_name((kn_dtype)x->dtype),
                               kn_dtype_name((kn_dtype)t->dtype));
    if (o->ignores)
        return kn_op_call_fail(call, KN_ERR_INVALID,
                               "ignore_index is %lld, but labels are probabilities",
                               (long long)o->ignore_index);
    return rows_full(call, o->reduction == KN_REDUCE_MEAN) && options_fit(call, o);
}

/* Of targets [B,C,…], as of mixed samples: -Σ w[c]·((1 - ε)·t[c] + ε/C)·log p[c] for each place. */
static kn_tensor *cross_entropy_of_targets(const kn_op_call *call,
                                           const kn_cross_entropy_options *o) {
    kn_tensor *x = call->in[0], *t = call->in[1];
    if (!targets_fit(call, o)) return NULL;
    if (kn__is_half(x->dtype)) return cross_entropy_in_f32(x, t, o);
    if (o->smoothing > 0)
        t = kn_affine(t, 1 - o->smoothing, o->smoothing / (double)(x->dim[1] ? x->dim[1] : 1));
    if (o->weight) {
        kn_shape along = {.n_dims = x->n_dims - 1}; /* [C,1…], broadcast to [B,C,…] */
        for (int i = 1; i < along.n_dims; i++) along.dim[i] = 1;
        along.dim[0] = o->weight->n;
        t = kn_mul(t, kn_reshape(o->weight, along));
    }
    kn_tensor *sum = kn_sum(kn_mul(t, kn_logsoftmax(x, 1)), KN_SHAPE(1), false);
    return kn__loss_reduced(kn_neg(sum), o->reduction);
}

kn_tensor *kn_cross_entropy_with(kn_tensor *logits, kn_tensor *labels,
                                 const kn_cross_entropy_options *options) {
    KN__AS("cross_entropy_with");
    static const kn_cross_entropy_options defaults = {.ignores = 0};
    kn_cross_entropy_options given = options ? *options : defaults;
    const kn_cross_entropy_options *o = &given;
    if (!kn__flag_fit(KN_OP_cross_entropy, "ignores", &given.ignores)) return NULL;
    bool is_mean = o->reduction == KN_REDUCE_MEAN;
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_cross_entropy, NULL, KN_LIST_(logits, labels), 2);
    if (has_targets(&call)) return cross_entropy_of_targets(&call, o);
    if (!labels_are_possible(&call) || !kn__check_inputs(&call)) return NULL;
    bool is_of_places = has_places(&call);
    if (!is_of_places && !rows_fit(&call)) return NULL;
    if (!rows_full(&call, is_mean) || !options_fit(&call, o)) return NULL;
    if (is_of_places) return cross_entropy_of_places(logits, labels, o);
    if (!o->ignores && !o->weight && is_mean) {
        kn_attr_scalars attr = {o->smoothing, 0};
        return kn__narrowed(KN_CALL(cross_entropy, &attr, logits, labels), logits);
    }
    if (kn__is_half(logits->dtype)) return cross_entropy_in_f32(logits, labels, o);
    labelled_rows r = rows_of(logits, labels, o);
    kn_tensor *rows = row_losses(&r, o);
    if (!is_mean || (!r.keep && !r.weight)) return kn__loss_reduced(rows, o->reduction);
    return kn_div(kn_sum(rows, KN_ALL, false), divisor(&r, logits));
}

/* --- measures --- */

kn_tensor *kn_zero_one(kn_tensor *scores, kn_tensor *labels) {
    KN__AS("zero_one");
    return kn_affine(kn_accuracy(scores, labels), -1, 1);
}

kn_tensor *kn_topk_accuracy(kn_tensor *scores, kn_tensor *labels, int64_t k) {
    KN__AS("topk_accuracy");
    kn_attr_best attr = {k};
    return run(KN_OP_accuracy, &attr, scores, labels);
}

/* --- of each element --- */

/* A column [B,1] and targets [B] would have B·B terms: a mistake. The op that makes the terms
 * reports other errors. */
static bool have_one_shape(kn_op op, kn_tensor *x, kn_tensor *y) {
    if (!kn__is_whole(x) || !kn__is_whole(y)) return true;
    kn_shape both = kn_tensor_shape(x), of_y = kn_tensor_shape(y);
    if (kn__broadcasts_to(y, &both) || kn__broadcasts_to(x, &of_y)) return true;
    if (!kn__broadcast_shape(&both, y)) return true;
    char text[128];
    kn_op_call call;
    kn_op_call_init(&call, op, NULL, KN_LIST_(x, y), 2);
    return kn_op_call_fail(&call, KN_ERR_SHAPE,
                           "together x and y are %s, the shape of neither; see kn_reshape",
                           kn_shape_text(text, sizeof text, both));
}

/* Joined terms of 16 bits are f32 on the way: those may not fit, nor may a mean's slope, one over
 * their number. Frames with .autocast, where pointwise ops keep 16 bits, have f32 losses. */
static kn_tensor *terms(kn_op op, kn_tensor *x, kn_tensor *y, double p, kn_reduction reduction) {
    if (!have_one_shape(op, x, y)) return NULL;
    kn_attr_scalars attr = {p, 0};
    bool are_halves =
        kn__is_whole(x) && kn__is_half(x->dtype) && kn__is_whole(y) && kn__is_half(y->dtype);
    bool stays_f32 = are_halves && kn_frame_autocast();
    bool widens = stays_f32 || (are_halves && x->dtype == y->dtype && reduction != KN_REDUCE_NONE);
    kn_dtype dtype = widens ? (kn_dtype)x->dtype : KN_F32;
    if (widens) {
        x = kn_cast(x, KN_F32);
        y = kn_cast(y, KN_F32);
    }
    bool has_p = kn_op_table[op].attr_bytes; /* tapes and plans copy so much */
    kn_tensor *loss = kn__loss_reduced(kn__row2(op, x, y, has_p ? &attr : NULL), reduction);
    return widens && !stays_f32 && loss ? kn_cast(loss, dtype) : loss;
}

kn_tensor *kn_mse(kn_tensor *x, kn_tensor *y, kn_reduction reduction) {
    KN__AS("mse", "x", "y");
    return terms(KN_OP_square_diff, x, y, 0, reduction);
}
kn_tensor *kn_mae(kn_tensor *x, kn_tensor *y, kn_reduction reduction) {
    KN__AS("mae", "x", "y");
    return terms(KN_OP_abs_diff, x, y, 0, reduction);
}
kn_tensor *kn_bce(kn_tensor *x, kn_tensor *y, kn_reduction reduction) {
    KN__AS("bce", "x", "y");
    return terms(KN_OP_bce_terms, x, y, 0, reduction);
}
kn_tensor *kn_bce_logits(kn_tensor *x, kn_tensor *y, kn_reduction reduction) {
    KN__AS("bce_logits", "x", "y");
    return terms(KN_OP_bce_logits_terms, x, y, 0, reduction);
}
kn_tensor *kn_logistic(kn_tensor *x, kn_tensor *y, kn_reduction reduction) {
    KN__AS("logistic", "x", "y");
    return terms(KN_OP_logistic_terms, x, y, 0, reduction);
}
kn_tensor *kn_hinge(kn_tensor *x, kn_tensor *y, double margin, kn_reduction reduction) {
    KN__AS("hinge", "x", "y");
    return terms(KN_OP_hinge_terms, x, y, margin, reduction);
}
kn_tensor *kn_huber(kn_tensor *x, kn_tensor *y, double delta, kn_reduction reduction) {
    KN__AS("huber", "x", "y");
    if (!(delta > 0))
        return kn_op_fail(KN_OP_huber_terms, KN_ERR_INVALID, "delta is %g; it must be above 0",
                          delta);
    return terms(KN_OP_huber_terms, x, y, delta, reduction);
}
kn_tensor *kn_smooth_l1(kn_tensor *x, kn_tensor *y, double beta, kn_reduction reduction) {
    KN__AS("smooth_l1", "x", "y");
    if (!(beta >= 0))
        return kn_op_fail(KN_OP_smooth_l1_terms, KN_ERR_INVALID, "beta is %g; it must be 0 or more",
                          beta);
    return terms(KN_OP_smooth_l1_terms, x, y, beta, reduction);
}
kn_tensor *kn_kl_div(kn_tensor *x, kn_tensor *y, bool log_target, kn_reduction reduction) {
    KN__AS("kl_div", "x", "y");
    return terms(log_target ? KN_OP_kl_log_terms : KN_OP_kl_terms, x, y, 0, reduction);
}
