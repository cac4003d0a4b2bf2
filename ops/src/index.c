/* kn_index and its kin: a list of items becomes a part of x (a start and strides), then at most one
 * tensor of indices along one axis of it. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "run.h"
#include "strided.h"

typedef struct plan {
    kn_op_call call;      /* for messages: x */
    kn_attr_strided part; /* what the plain items leave */
    bool is_whole;        /* the part is x */
    int n_tensors;        /* indices, each of a dimension of the part, or of several for a mask */
    kn_tensor *tensor[KN_DIMS_MAX];
    int axis[KN_DIMS_MAX]; /* the dimension of the part, the first one for a mask */
    int n_axes[KN_DIMS_MAX];
} plan;

static bool fail(plan *p, const char *fmt, ...) KN_PRINTF(2, 3);
static bool fail(plan *p, const char *fmt, ...) {
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return kn_op_call_fail(&p->call, KN_ERR_SHAPE, "%s", text);
}

/* --- items --- */

/* Python's: negative ends count from the end, and indices outside are cut off. */
static int64_t clipped(int64_t i, int64_t n, int64_t step) {
    if (i < 0) i = i < -n ? -1 : i + n;
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    return i < low ? low : i > high ? high : i;
}

static bool put_range(plan *p, const kn_index_item *item, int64_t n, int64_t stride, int at) {
    int64_t step = item->step == INT64_MIN ? -INT64_MAX : item->step; /* can be negated */
    int64_t from = step > 0 ? 0 : n - 1, to = step > 0 ? n : -1;
    if (step == 0) return fail(p, "the step of dimension %d is 0", at);
    if (item->start != KN_BEGIN) from = clipped(item->start, n, step);
    if (item->stop != KN_END) to = clipped(item->stop, n, step);
    int64_t span = step > 0 ? to - from : from - to, by = step > 0 ? step : -step;
    int64_t count = span > 0 ? (span - 1) / by + 1 : 0;
    int d = (int)p->part.n_dims++;
    p->part.dim[d] = count;
    p->part.stride[d] = count > 1 ? step * stride : stride;
    if (count) p->part.start += from * stride;
    return true;
}

static bool put_at(plan *p, const kn_index_item *item, int64_t n, int64_t stride, int at) {
    int64_t i = item->start < 0 ? item->start + n : item->start;
    if (i < 0 || i >= n) {
        return fail(p, "index %lld is outside dimension %d of %lld elements",
                    (long long)item->start, at, (long long)n);
    }
    p->part.start += i * stride;
    return true;
}

static bool check_tensor(plan *p, const kn_index_item *item, int k, const kn_tensor *x, int at) {
    kn_tensor *t = item->tensor;
    if (!kn__is_whole(t)) {
        char name[64];
        snprintf(name, sizeof name, "kn_%s: item %d", kn__name_in_errors(KN_OP_strided), k);
        if (!kn_pending()) kn_error_defer(kn__fail_unreadable(name, t));
        return false;
    }
    if (item->kind == KN_INDEX_TAKE) return true; /* its dtype is checked by the op */
    if (t->dtype != KN_BOOL) {
        return kn_op_call_fail(&p->call, KN_ERR_DTYPE, "a mask is %s; it must be bool",
                               kn_dtype_name((kn_dtype)t->dtype));
    }
    bool fits = t->n_dims > 0 && at + t->n_dims <= x->n_dims;
    for (int i = 0; fits && i < t->n_dims; i++) fits = t->dim[i] == x->dim[at + i];
    char text[256];
    return fits || fail(p, "the mask %s is not like x from dimension %d on",
                        kn_shape_text(text, sizeof text, kn_tensor_shape(t)), at);
}

static bool put_tensor(plan *p, const kn_index_item *item, int number, const kn_attr_strided *x,
                       int at) {
    if (!check_tensor(p, item, number, p->call.in[0], at)) return false;
    int n = item->kind == KN_INDEX_MASK ? item->tensor->n_dims : 1, k = p->n_tensors++;
    p->tensor[k] = item->tensor;
    p->axis[k] = (int)p->part.n_dims;
    p->n_axes[k] = item->kind == KN_INDEX_MASK ? n : 0;
    for (int i = at; i < at + n; i++) {
        p->part.dim[p->part.n_dims] = x->dim[i];
        p->part.stride[p->part.n_dims++] = x->stride[i];
    }
    return true;
}

static bool put_items(plan *p, const kn_index_item items[], int n_items) {
    const kn_tensor *x = p->call.in[0];
    const kn_attr_strided whole = kn__strided_whole(x);
    static const kn_index_item every = {KN_INDEX_RANGE, KN_BEGIN, KN_END, 1, NULL};
    int at = 0; /* the dimension of x that comes next */
    for (int k = 0; k < n_items || at < x->n_dims; k++) {
        const kn_index_item *item = k < n_items ? &items[k] : &every;
        if ((unsigned)item->kind > KN_INDEX_MASK) {
            return kn_op_call_fail(&p->call, KN_ERR_INVALID, "item %d is of the unknown kind %d", k,
                                   (int)item->kind);
        }
        if (item->kind == KN_INDEX_NEW) {
            if (p->part.n_dims == KN_DIMS_MAX)
                return fail(p, "more than %d dimensions", KN_DIMS_MAX);
            p->part.dim[p->part.n_dims] = 1;
            p->part.stride[p->part.n_dims++] = 1;
            continue;
        }
        if (at == x->n_dims) return fail(p, "%d items are too many", n_items);
        if (p->part.n_dims + x->n_dims - at > KN_DIMS_MAX)
            return fail(p, "more than %d dimensions", KN_DIMS_MAX);
        int used = item->kind == KN_INDEX_MASK && item->tensor ? item->tensor->n_dims : 1;
        bool ok = item->kind == KN_INDEX_AT ? put_at(p, item, x->dim[at], whole.stride[at], at)
                  : item->kind == KN_INDEX_RANGE
                      ? put_range(p, item, x->dim[at], whole.stride[at], at)
                      : put_tensor(p, item, k, &whole, at);
        if (!ok) return false;
        at += used;
    }
    return true;
}

static bool plan_make(plan *p, kn_tensor *const *x, int n_items, const kn_index_item items[]) {
    memset(p, 0, sizeof *p);
    kn_op_call_init(&p->call, KN_OP_strided, NULL, x, 1);
    if (!kn__check_readable(KN_OP_strided, x, 1)) return false;
    if (n_items < 0) return fail(p, "there are %d items", n_items);
    if (n_items && !items) return kn_op_call_fail(&p->call, KN_ERR_INVALID, "items is NULL");
    const kn_attr_strided whole = kn__strided_whole(*x);
    p->part.n_whole = whole.n_whole;
    memcpy(p->part.whole, whole.whole, sizeof whole.whole);
    if (!put_items(p, items, n_items)) return false;
    p->is_whole = !memcmp(&p->part, &whole, sizeof whole);
    return true;
}

/* --- tensors of indices: brought to one of them, along one axis --- */

typedef struct taken {
    kn_tensor *base; /* the part; then with the axes together, and merged to one */
    kn_shape order;  /* of the part's axes, when they had to move: n_dims 0: they did not */
    kn_shape whole;  /* the base's shape before the merge */
    int axis;
    kn_tensor *index;
} taken;

/* A mask as indices into its dimensions, merged to one. */
static kn_tensor *places_of(kn_tensor *mask) {
    kn_tensor *flat = kn_reshape(mask, KN_SHAPE(mask->n));
    kn_tensor *places = flat ? kn_nonzero(flat) : NULL;
    return places ? kn_reshape(places, KN_SHAPE(places->dim[0])) : NULL;
}

/* Indices broadcast to one shape, and as one number. */
static kn_tensor *join(kn_tensor *index[], const int64_t size[], int n) {
    if (n == 1) return index[0];
    kn_shape shape = kn_tensor_shape(index[0]);
    for (int i = 1; i < n; i++) {
        if (kn__broadcast_shape(&shape, index[i])) continue;
        kn_op_call call;
        kn_op_call_init(&call, KN_OP_index_join, NULL, index, n);
        kn_op_call_fail(&call, KN_ERR_SHAPE, "shapes of indices don't broadcast");
        return NULL;
    }
    for (int i = 0; i < n; i++) {
        index[i] = kn_broadcast(index[i], shape);
        if (!index[i]) return NULL;
    }
    int64_t attr[1 + KN_DIMS_MAX] = {0};
    memcpy(attr + 1, size, (size_t)n * sizeof *size);
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_index_join, attr, index, n);
    call.attr_bytes = (size_t)(1 + n) * sizeof *attr;
    return kn_op_run(&call);
}

static bool adjacent(const plan *p) {
    for (int k = 1; k < p->n_tensors; k++) {
        int before = p->n_axes[k - 1] ? p->n_axes[k - 1] : 1;
        if (p->axis[k] != p->axis[k - 1] + before) return false;
    }
    return true;
}

/* NumPy's: indices with something between them come first. */
static bool together(taken *t, const plan *p) {
    t->axis = p->axis[0];
    t->order.n_dims = 0;
    if (adjacent(p)) return true;
    uint32_t moved = 0;
    for (int k = 0; k < p->n_tensors; k++) {
        for (int i = 0; i < (p->n_axes[k] ? p->n_axes[k] : 1); i++) {
            t->order.dim[t->order.n_dims++] = p->axis[k] + i;
            moved |= 1u << (p->axis[k] + i);
        }
    }
    for (int i = 0; i < t->base->n_dims; i++) {
        if (!(moved >> i & 1)) t->order.dim[t->order.n_dims++] = i;
    }
    t->axis = 0;
    t->base = kn_transpose(t->base, t->order);
    return t->base != NULL;
}

static bool take(taken *t, const plan *p) {
    kn_tensor *index[KN_DIMS_MAX];
    int64_t size[KN_DIMS_MAX];
    int n_axes = 0;
    if (!together(t, p)) return false;
    t->whole = kn_tensor_shape(t->base);
    for (int k = 0; k < p->n_tensors; k++) {
        bool mask = p->n_axes[k] > 0;
        index[k] = mask ? places_of(p->tensor[k]) : p->tensor[k];
        if (!index[k]) return false;
        size[k] = mask ? p->tensor[k]->n : t->whole.dim[t->axis + n_axes];
        n_axes += mask ? p->n_axes[k] : 1;
    }
    t->index = join(index, size, p->n_tensors);
    if (!t->index || n_axes == 1) return t->index != NULL;
    kn_shape merged = {.n_dims = t->whole.n_dims - n_axes + 1};
    for (int i = 0; i < merged.n_dims; i++) {
        merged.dim[i] = t->whole.dim[i <= t->axis ? i : i + n_axes - 1];
    }
    for (int i = 1; i < n_axes; i++) merged.dim[t->axis] *= t->whole.dim[t->axis + i];
    t->base = kn_reshape(t->base, merged);
    return t->base != NULL;
}

/* Undoes what `take` did to the base. */
static kn_tensor *given_back(const taken *t, kn_tensor *y) {
    if (y && y->n_dims != t->whole.n_dims) y = kn_reshape(y, t->whole);
    if (!y || !t->order.n_dims) return y;
    kn_shape inverse = {.n_dims = t->order.n_dims};
    for (int i = 0; i < inverse.n_dims; i++) inverse.dim[t->order.dim[i]] = i;
    return kn_transpose(y, inverse);
}

/* --- get --- */

kn_tensor *kn_index(kn_tensor *x, int n_items, const kn_index_item items[]) {
    KN__AS("index");
    plan p;
    if (!plan_make(&p, &x, n_items, items)) return NULL;
    taken t = {.base = p.is_whole && p.n_tensors ? x : kn__strided(x, &p.part)};
    if (!t.base || !p.n_tensors) return t.base;
    return take(&t, &p) ? kn_index_select(t.base, t.index, t.axis) : NULL;
}

kn_tensor *kn_masked_select(kn_tensor *x, kn_tensor *mask) {
    KN__AS("masked_select", "x", "mask");
    if (!kn__check_readable(KN_OP_strided, KN_LIST_(x, mask), 2)) return NULL;
    if (x->n_dims + mask->n_dims == 0) { /* a mask has at least one dimension */
        x = kn_reshape(x, KN_SHAPE(1)), mask = kn_reshape(mask, KN_SHAPE(1));
        if (!x || !mask) return NULL;
    }
    return kn_index(x, 1, &(kn_index_item){.kind = KN_INDEX_MASK, .tensor = mask});
}

/* --- set and add --- */

/* y as the values of a part. */
static kn_tensor *spread(plan *p, kn_tensor *y, kn_shape shape) {
    char own[256], text[256];
    if (kn__broadcasts_to(y, &shape)) return kn_broadcast(y, shape);
    fail(p, "y %s can't be broadcast to the part %s",
         kn_shape_text(own, sizeof own, kn_tensor_shape(y)),
         kn_shape_text(text, sizeof text, shape));
    return NULL;
}

/* The values to put in place of the part, or to add to it; with indices: the part afterwards.
 * `adds`: to zeros. */
static kn_tensor *put_taken(plan *p, kn_tensor *x, kn_tensor *y, bool adds) {
    taken t = {.base = p->is_whole ? x : kn__strided(x, &p->part)};
    if (!t.base || !take(&t, p)) return NULL;
    const int64_t *dim = t.base->dim;
    kn_shape shape = {.n_dims = 0};
    if (t.base->n_dims - 1 + t.index->n_dims > KN_DIMS_MAX)
        return fail(p, "the part has %d dimensions; the limit is %d",
                    t.base->n_dims - 1 + t.index->n_dims, KN_DIMS_MAX),
               NULL;
    for (int i = 0; i < t.base->n_dims; i++) {
        if (i != t.axis) shape.dim[shape.n_dims++] = dim[i];
        for (int j = 0; i == t.axis && j < t.index->n_dims; j++) {
            shape.dim[shape.n_dims++] = t.index->dim[j];
        }
    }
    y = spread(p, y, shape);
    if (!y) return NULL;
    if (!adds) return given_back(&t, kn_index_set(t.base, t.index, y, t.axis));
    if (p->is_whole) return given_back(&t, kn_index_add(t.base, t.index, y, t.axis));
    kn_attr_index attr = {.axis = t.axis, .n_dims = t.base->n_dims};
    memcpy(attr.dim, dim, sizeof attr.dim);
    return given_back(&t, KN_CALL(index_add, &attr, KN_NONE, t.index, y));
}

static kn_tensor *put(kn_op op, kn_tensor *x, kn_tensor *y, int n_items,
                      const kn_index_item items[]) {
    plan p;
    if (!plan_make(&p, &x, n_items, items) || !kn__check_readable(op, KN_LIST_(x, y), 2))
        return NULL;
    if (p.n_tensors) {
        y = put_taken(&p, x, y, op == KN_OP_strided_add);
        if (!y || p.is_whole) return y;
    } else {
        kn_shape shape = {.n_dims = (int)p.part.n_dims};
        memcpy(shape.dim, p.part.dim, sizeof shape.dim);
        y = spread(&p, y, shape);
    }
    return y ? kn_op_call_run(op, &p.part, KN_LIST_(x, y), 2) : NULL;
}

kn_tensor *kn_set_at(kn_tensor *x, kn_tensor *y, int n_items, const kn_index_item items[]) {
    KN__AS("set_at");
    return put(KN_OP_strided_set, x, y, n_items, items);
}

kn_tensor *kn_add_at(kn_tensor *x, kn_tensor *y, int n_items, const kn_index_item items[]) {
    KN__AS("add_at");
    return put(KN_OP_strided_add, x, y, n_items, items);
}

kn_status kn_set_into(kn_tensor *x, kn_tensor *y, int n_items, const kn_index_item items[]) {
    KN__AS("set_into");
    KN_TRY(kn_check());
    KN_FRAME(.record = KN_OFF);
    plan p;
    if (!plan_make(&p, &x, n_items, items) ||
        !kn__check_readable(KN_OP_strided_set, KN_LIST_(x, y), 2)) {
        return kn_check();
    }
    if (p.n_tensors) {
        kn_tensor *z = kn_set_at(x, y, n_items, items);
        return z ? kn__overwrite(x, z) : kn_check();
    }
    kn_shape shape = {.n_dims = (int)p.part.n_dims};
    memcpy(shape.dim, p.part.dim, sizeof shape.dim);
    y = spread(&p, y, shape);
    if (!y) return kn_check();
    kn_op_call call;
    kn_op_call_init(&call, KN_OP_strided_set, &p.part, KN_LIST_(x, y), 2);
    return kn__run_into(&call, x);
}
