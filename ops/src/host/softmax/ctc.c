/* The CTC loss on the host: a sequence at a time, in logarithms of f64 whatever the dtype. State s
 * of a target is a blank (s even) or label (s - 1)/2. alpha[t][s]: of all paths whose step t is in
 * state s, up to that step; the other recursion runs from the end, over states in reverse. */
#include <math.h>
#include <string.h>

#include "host/base/loops.h"
#include "host/base/slots.h"
#include "labels.h"

typedef struct ctc_run {
    const kn_attr_ctc *attr;
    const kn__loop_table *loops; /* of f64 */
    const kn_tensor *x, *targets, *lengths, *target_lengths;
    void *losses;
    char *d; /* NULL: no gradient */
    kn_dtype dtype;
    int64_t steps, batch, classes, most, rows; /* rows of alpha; most: labels of a target */
    kn__slots slots;
} ctc_run;

/* Of one sequence: rows of `states` numbers, those of alpha and q with two of -inf before them. */
typedef struct ctc_item {
    int64_t b, steps, states;
    double *alpha, *q, *skip, *skip_back, *lp, *joined, *terms, *sums;
    int64_t *label;
} ctc_item;

static int64_t padded(const ctc_run *r) { return 2 * r->most + 3; }

static size_t item_doubles(const ctc_run *r) {
    return (size_t)((r->rows + 8) * padded(r) + r->classes);
}

static int64_t length_of(const kn_tensor *lengths, int64_t b, int64_t otherwise) {
    return lengths == KN_NONE ? otherwise
                              : kn__label_at(lengths->data, (kn_dtype)lengths->dtype, b);
}

/* False: a length or a label is out of range. */
static bool item_make(ctc_item *it, const ctc_run *r, int64_t b, double *slot) {
    int64_t width = padded(r), n = length_of(r->target_lengths, b, r->most);
    *it = (ctc_item){.b = b, .steps = length_of(r->lengths, b, r->steps), .alpha = slot};
    double *rest = slot + r->rows * width;
    it->q = rest, it->skip = rest + 2 * width, it->skip_back = rest + 3 * width;
    it->lp = rest + 4 * width, it->joined = rest + 5 * width, it->terms = rest + 6 * width;
    it->label = (int64_t *)(void *)(rest + 7 * width), it->sums = rest + 8 * width;
    if (it->steps < 0 || it->steps > r->steps || n < 0 || n > r->most) return false;
    it->states = 2 * n + 1;
    for (int64_t s = 0; s < it->states; s++) {
        int64_t label = r->attr->blank;
        if (s % 2) {
            label =
                kn__label_at(r->targets->data, (kn_dtype)r->targets->dtype, b * r->most + s / 2);
            if (label < 0 || label >= r->classes || label == r->attr->blank) return false;
        }
        it->label[s] = label;
        bool passes = s % 2 && s > 2 && label != it->label[s - 2];
        it->skip[s] = passes ? 0 : -INFINITY;
    }
    for (int64_t s = 0; s < it->states; s++)
        it->skip_back[s] = s < 2 ? -INFINITY : it->skip[it->states + 1 - s];
    return true;
}

static double *row_of(const ctc_run *r, double *rows, int64_t t) {
    return rows + t * padded(r) + 2;
}

static void clear(double *row, int64_t n) {
    for (int64_t s = -2; s < n; s++) row[s] = -INFINITY;
}

/* The log-probabilities of the states at step t. */
static void gather(const ctc_run *r, const ctc_item *it, int64_t t, bool back) {
    int64_t at = (t * r->batch + it->b) * r->classes, n = it->states;
    for (int64_t s = 0; s < n; s++) {
        int64_t from = at + it->label[back ? n - 1 - s : s];
        it->lp[s] = r->dtype == KN_F64 ? ((const double *)r->x->data)[from]
                                       : (double)((const float *)r->x->data)[from];
    }
}

/* The logarithm of the target's probability. */
static double forward(const ctc_run *r, const ctc_item *it) {
    if (it->steps == 0) return it->states == 1 ? 0 : -INFINITY;
    for (int64_t t = 0; t < it->steps; t++) {
        double *row = row_of(r, it->alpha, t % r->rows);
        clear(row, t ? 0 : it->states);
        gather(r, it, t, false);
        if (t == 0) {
            for (int64_t s = 0; s < 2 && s < it->states; s++) row[s] = it->lp[s];
            continue;
        }
        const double *before = row_of(r, it->alpha, (t - 1) % r->rows);
        r->loops->ctc_step(it->joined, row, before, it->skip, it->lp, it->states);
    }
    const double *last = row_of(r, it->alpha, (it->steps - 1) % r->rows) + it->states - 1;
    double a = last[0], b = it->states > 1 ? last[-1] : -INFINITY, most = a > b ? a : b;
    if (a != a || b != b) return (double)NAN;
    return most > -INFINITY ? most + log(exp(a - most) + exp(b - most)) : most;
}

static void store(const ctc_run *r, int64_t t, int64_t b, const double *sums) {
    size_t at = (size_t)((t * r->batch + b) * r->classes) * kn_dtype_bytes(r->dtype);
    r->loops->cast_to(r->d + at, sums, r->dtype, r->classes);
}

static void fill(const ctc_run *r, const ctc_item *it, int64_t first, int64_t end, double value) {
    for (int64_t c = 0; c < r->classes; c++) it->sums[c] = value;
    for (int64_t t = first; t < end; t++) store(r, t, it->b, it->sums);
}

static void back(const ctc_run *r, const ctc_item *it, double total) {
    int64_t n = it->states, last = it->steps - 1;
    for (int64_t t = last; t >= 0; t--) {
        double *q = row_of(r, it->q, t % 2), *next = row_of(r, it->q, (t + 1) % 2);
        gather(r, it, t, true);
        clear(q, 0);
        if (t == last) {
            for (int64_t s = 0; s < n; s++) it->joined[s] = s < 2 ? 0 : -INFINITY;
            for (int64_t s = 0; s < n; s++) q[s] = it->joined[s] + it->lp[s];
        } else {
            r->loops->ctc_step(it->joined, q, next, it->skip_back, it->lp, n);
        }
        r->loops->ctc_terms(it->terms, row_of(r, it->alpha, t), it->joined, total, n);
        memset(it->sums, 0, (size_t)r->classes * sizeof *it->sums);
        for (int64_t s = 0; s < n; s++) it->sums[it->label[s]] -= it->terms[s];
        store(r, t, it->b, it->sums);
    }
}

static void run_item(void *ctx, int64_t b) {
    ctc_run *r = ctx;
    ctc_item it;
    double *slot = kn__slot_take(&r->slots);
    bool valid = item_make(&it, r, b, slot);
    double total = valid ? forward(r, &it) : (double)NAN;
    bool none = total == -INFINITY && r->attr->zero_infinity;
    double loss = none ? 0 : -total;
    if (r->losses && r->dtype == KN_F64) ((double *)r->losses)[b] = loss;
    if (r->losses && r->dtype == KN_F32) ((float *)r->losses)[b] = (float)loss;
    if (r->d) {
        bool finite = isfinite(total);
        int64_t end = valid ? it.steps : r->steps;
        if (finite)
            back(r, &it, total);
        else
            fill(r, &it, 0, end, none ? 0 : (double)NAN);
        fill(r, &it, end, r->steps, 0);
    }
    kn__slot_give(&r->slots, slot);
}

/* log_probs, targets, lengths|NONE, target_lengths|NONE → losses, dlog_probs */
kn_status kn__host_ctc(kn_op_call *call) {
    const kn_tensor *x = call->in[0];
    ctc_run r = {.attr = call->attr,
                 .loops = kn__loops(KN_F64),
                 .x = x,
                 .targets = call->in[1],
                 .lengths = call->in[2],
                 .target_lengths = call->in[3],
                 .losses = call->out[0] ? call->out[0]->data : NULL,
                 .d = call->out[1] ? call->out[1]->data : NULL,
                 .dtype = (kn_dtype)x->dtype,
                 .steps = x->dim[0],
                 .batch = x->dim[1],
                 .classes = x->dim[2],
                 .most = call->in[1]->dim[1]};
    if (r.batch == 0) return KN_OK;
    r.rows = r.d && r.steps > 2 ? r.steps : 2;
    KN_TRY(kn__slots_create(&r.slots, call, r.batch, item_doubles(&r) * sizeof(double)));
    kn__parallel_for(r.slots.n, r.batch, run_item, &r);
    return KN_OK;
}
