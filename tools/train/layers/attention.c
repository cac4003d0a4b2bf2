/* Attention between linear layers: of a sequence to itself, or to another one. */
#include <string.h>

#include "layers/layer.h"

typedef struct attention {
    kn_layer base;
    kn_layer *qkv;    /* of x; NULL: queries and keys come of two sequences */
    kn_layer *q, *kv; /* of x, of the memory */
    kn_layer *out;
    int64_t heads, kv_heads, head_width;
    int causal;
    double dropout, rotary_base; /* 0: none */
} attention;

/* x [B,T,N·D] → [B,N,T,D] */
static kn_tensor *in_heads(kn_tensor *x, int64_t head_width) {
    if (!x) return NULL;
    kn_shape s = kn_tensor_shape(x);
    x = kn_reshape(x, KN_SHAPE(s.dim[0], s.dim[1], s.dim[2] / head_width, head_width));
    return kn_transpose(x, KN_SHAPE(0, 2, 1, 3));
}

/* heads [B,N,T,D] first … first+n-1 of all */
static kn_tensor *heads_of(kn_tensor *all, int64_t first, int64_t n) {
    if (!all) return NULL;
    kn_shape s = kn_tensor_shape(all);
    return kn_slice(all, KN_SHAPE(0, first, 0, 0),
                    KN_SHAPE(s.dim[0], first + n, s.dim[2], s.dim[3]));
}

/* A tensor of the caller's where the layer is. */
static kn_tensor *placed(const kn_layer *layer, kn_tensor *t) {
    return t && layer->device ? kn_to(t, layer->device) : t;
}

/* The queries, keys and values of a forward, in heads. */
typedef struct parts {
    kn_tensor *q, *k, *v;
} parts;

static parts parts_of_x(const attention *l, kn_tensor *x, int64_t before) {
    int64_t h = l->heads, g = l->kv_heads;
    kn_tensor *all = in_heads(kn_layer_forward(l->qkv, x), l->head_width);
    parts p = {heads_of(all, 0, h), heads_of(all, h, g), heads_of(all, h + g, g)};
    if (l->rotary_base > 0) {
        const kn_rotary_options o = {.base = l->rotary_base, .offset = before};
        p.q = kn_rotary(p.q, &o);
        p.k = kn_rotary(p.k, &o);
    }
    return p;
}

static parts parts_of_two(const attention *l, kn_tensor *x, kn_tensor *memory) {
    int64_t g = l->kv_heads;
    parts p = {.q = in_heads(kn_layer_forward(l->q, x), l->head_width)};
    if (!memory) return p;
    kn_tensor *all = in_heads(kn_layer_forward(l->kv, memory), l->head_width);
    p.k = heads_of(all, 0, g);
    p.v = heads_of(all, g, g);
    return p;
}

static bool refuse(kn_status status, const char *problem) {
    (void)KN_FAIL_NULL(status, "%s", problem);
    return false;
}

/* Keys or values of earlier calls, `what` of both: of one length, and for x's batch. Under autocast
 * they have the dtype of a frame's products. */
static bool earlier_fits(const char *what, const attention *l, kn_tensor *x, kn_tensor *t,
                         int64_t length) {
    const char *problem = kn_tensor_problem(t);
    kn_shape s = problem ? KN_SCALAR : kn_tensor_shape(t);
    if (s.n_dims != 4 || s.dim[2] != length) {
        if (!problem) problem = "are not those of an earlier call, [batch,heads,time,head width]";
        (void)KN_FAIL_NULL(KN_ERR_INVALID, "%s %s", what, problem);
        return false;
    }
    kn_shape own = KN_SHAPE(kn_tensor_shape(x).dim[0], l->kv_heads, length, l->head_width);
    kn_dtype dtype = kn_tensor_dtype(t), of_x = kn_tensor_dtype(x);
    bool fits = memcmp(s.dim, own.dim, 4 * sizeof s.dim[0]) == 0;
    if (fits && (dtype == of_x || kn_frame_autocast())) return true;
    char has[128], wants[128];
    (void)KN_FAIL_NULL(fits ? KN_ERR_DTYPE : KN_ERR_SHAPE, "%s are %s %s; the layer's are %s %s",
                       what, kn_dtype_name(dtype), kn_shape_text(has, sizeof has, s),
                       kn_dtype_name(of_x), kn_shape_text(wants, sizeof wants, own));
    return false;
}

static bool earlier_fit(const attention *l, kn_tensor *x, const kn_layer_attention_inputs *in) {
    if (!in->keys && !in->values) return true;
    if (!in->keys || !in->values || in->keys == in->values || !*in->keys != !*in->values)
        return refuse(KN_ERR_INVALID,
                      "keys and values need a variable each, both NULL or both "
                      "those of an earlier call");
    if (!*in->keys) return true;
    kn_shape keys = kn_tensor_problem(*in->keys) ? KN_SCALAR : kn_tensor_shape(*in->keys);
    return earlier_fits("keys", l, x, *in->keys, keys.dim[2]) &&
           earlier_fits("values", l, x, *in->values, keys.dim[2]);
}

static bool memory_fits(const attention *l, const kn_layer_attention_inputs *in) {
    const bool is_later = in->keys && *in->keys;
    const char *problem = in->memory ? kn_tensor_problem(in->memory) : NULL;
    if (problem) {
        (void)KN_FAIL_NULL(KN_ERR_INVALID, "memory %s", problem);
        return false;
    }
    if (in->memory && l->qkv)
        return refuse(KN_ERR_INVALID,
                      "memory is given, but the layer has no memory_width: keys come of x");
    if (in->memory && is_later)
        return refuse(KN_ERR_INVALID,
                      "memory is given, and keys of an earlier call: set keys and "
                      "values to NULL for another memory");
    if (!in->memory && !l->qkv && !is_later)
        return refuse(KN_ERR_INVALID,
                      "memory is NULL, of which keys come; see kn_layer_attention_forward");
    if (in->memory && kn_tensor_shape(in->memory).n_dims != 3)
        return refuse(KN_ERR_SHAPE, "memory is not [batch,time,memory_width]");
    return true;
}

static bool inputs_fit(const attention *l, kn_tensor *x, const kn_layer_attention_inputs *in) {
    int n_dims = kn_tensor_shape(x).n_dims;
    if (n_dims != 3) {
        (void)KN_FAIL_NULL(KN_ERR_SHAPE, "x has %d dimensions, not [batch,time,width]", n_dims);
        return false;
    }
    for (int i = 0; i < 4; i++)
        if (in->reserved[i]) return refuse(KN_ERR_INVALID, "a reserved input is not zero");
    const char *problem = in->mask ? kn_tensor_problem(in->mask) : NULL;
    if (problem) {
        (void)KN_FAIL_NULL(KN_ERR_INVALID, "mask %s", problem);
        return false;
    }
    return earlier_fit(l, x, in) && memory_fits(l, in);
}

/* around NULL: no sum. */
static kn_tensor *attend_plus(kn_layer *layer, kn_tensor *x, const kn_layer_attention_inputs *in,
                              kn_tensor *around) {
    const attention *l = (attention *)layer;
    if (!inputs_fit(l, x, in)) return NULL;
    kn_tensor *k = in->keys ? placed(layer, *in->keys) : NULL;
    kn_tensor *v = k ? placed(layer, *in->values) : NULL;
    int64_t before = k && l->qkv ? kn_tensor_shape(k).dim[2] : 0;
    parts p = l->qkv ? parts_of_x(l, x, before)
                     : parts_of_two(l, x, k ? NULL : placed(layer, in->memory));
    if (k && l->qkv) { /* behind those of earlier calls */
        p.k = kn_concat((kn_tensor *const[]){k, p.k}, 2, 2);
        p.v = kn_concat((kn_tensor *const[]){v, p.v}, 2, 2);
    } else if (k) {
        p.k = k;
        p.v = v;
    }
    kn_attention_options o = {
        .causal = l->causal, .offset = before, .mask = placed(layer, in->mask)};
    if (kn_layer_is_training(layer)) o.dropout = l->dropout;
    if (o.dropout > 0) o.rng = layer->root->rng;
    kn_tensor *y = kn_attention(p.q, p.k, p.v, &o); /* [B,H,T,D] */
    kn_shape s = kn_tensor_shape(x);
    y = kn_reshape(kn_transpose(y, KN_SHAPE(0, 2, 1, 3)),
                   KN_SHAPE(s.dim[0], s.dim[1], l->heads * l->head_width));
    if (y) y = around ? kn__layer_plus(l->out, y, around) : kn_layer_forward(l->out, y);
    if (y && in->keys) {
        *in->keys = kn_keep(p.k);
        *in->values = kn_keep(p.v);
    }
    return y;
}

static const kn_layer_attention_inputs no_inputs = {0};

static kn_tensor *attend(kn_layer *layer, kn_tensor *x, const void *inputs) {
    return attend_plus(layer, x, inputs, NULL);
}
/* Its result is like x. */
static bool attention_takes(const kn_layer *layer, kn_tensor *x, kn_tensor *around) {
    return ((const attention *)layer)->out->kind->takes(((const attention *)layer)->out, x, around);
}
static kn_tensor *attention_plus(kn_layer *layer, kn_tensor *x, const void *around) {
    return attend_plus(layer, x, &no_inputs, (kn_tensor *)(uintptr_t)around);
}
static kn_tensor *attention_forward(kn_layer *layer, kn_tensor *x) {
    return attend(layer, x, &no_inputs);
}
static const kn__layer_kind attention_kind = {"kn_layer_attention",     sizeof(attention),
                                              attention_forward,        .is_group = true,
                                              .takes = attention_takes, .plus = attention_plus};

kn_tensor *kn_layer_attention_forward(kn_layer *layer, kn_tensor *x,
                                      const kn_layer_attention_inputs *inputs) {
    if (kn_pending()) return NULL;
    if (!layer || layer->kind != &attention_kind)
        return KN_FAIL_NULL(KN_ERR_INVALID,
                            "kn_layer_attention_forward: %s is not a kn_layer_attention",
                            layer ? kn__layer_shown(layer) : "NULL");
    return inputs ? kn__layer_forward_by(layer, x, attend, inputs) : kn_layer_forward(layer, x);
}

/* --- making one --- */

static bool sizes_fit(const char *name, int64_t width, int64_t heads,
                      const kn_layer_attention_options *o) {
    const kn__layer_kind *kind = &attention_kind;
    const void *none = kind; /* not NULL */
    if (width > INT64_MAX / 3)
        none = kn__layer_fail(kind, name, KN_ERR_SHAPE, "width %lld; the limit is %lld",
                              (long long)width, (long long)(INT64_MAX / 3));
    else if (width < 1 || heads < 1 || width % heads || o->kv_heads < 1 || heads % o->kv_heads)
        none = kn__layer_fail(kind, name, KN_ERR_SHAPE,
                              "%lld heads must divide the width %lld, and %lld heads of keys those",
                              (long long)heads, (long long)width, (long long)o->kv_heads);
    else if (o->memory_width < 0)
        none = kn__layer_fail(kind, name, KN_ERR_SHAPE, "memory_width is %lld",
                              (long long)o->memory_width);
    return none != NULL;
}

static bool options_fit(const char *name, int64_t head_width, const kn_layer_attention_options *o) {
    const kn__layer_kind *kind = &attention_kind;
    const void *none = kind; /* not NULL */
    bool is_turned = o->rotary_base != 0;
    if (o->reserved[0])
        none = kn__layer_fail(kind, name, KN_ERR_INVALID, "a reserved option is not zero");
    else if (!(o->dropout >= 0 && o->dropout < 1))
        none = kn__layer_fail(kind, name, KN_ERR_INVALID, "dropout is %g; expected 0 to below 1",
                              o->dropout);
    else if (!(o->rotary_base >= 0 && o->rotary_base < 1e300))
        none = kn__layer_fail(kind, name, KN_ERR_INVALID, "rotary_base is %g; expected 0 or more",
                              o->rotary_base);
    else if (o->causal && o->memory_width)
        none = kn__layer_fail(kind, name, KN_ERR_INVALID,
                              "causal, but places in the memory are not those of x");
    else if (is_turned && o->memory_width)
        none = kn__layer_fail(kind, name, KN_ERR_INVALID,
                              "rotary_base is %g, but places in the memory are not those of x",
                              o->rotary_base);
    else if (is_turned && head_width % 2)
        none = kn__layer_fail(kind, name, KN_ERR_SHAPE,
                              "rotary_base is %g, but heads have %lld elements, an odd number",
                              o->rotary_base, (long long)head_width);
    return none != NULL;
}

kn_layer *kn_layer_attention(kn_layer *parent, const char *name, int64_t width, int64_t heads,
                             const kn_layer_attention_options *options) {
    kn_layer_attention_options o = options ? *options : (kn_layer_attention_options){0};
    if (kn_pending()) return NULL;
    if (!o.kv_heads) o.kv_heads = heads;
    if (!sizes_fit(name, width, heads, &o) || !options_fit(name, width / heads, &o)) return NULL;
    attention *l = kn__layer_add(parent, name, &attention_kind);
    if (!l) return NULL;
    l->heads = heads;
    l->kv_heads = o.kv_heads;
    l->head_width = width / heads;
    l->causal = o.causal;
    l->dropout = o.dropout;
    l->rotary_base = o.rotary_base;
    int64_t keys = 2 * o.kv_heads * l->head_width; /* and values */
    kn_layer_linear_options linear = {.no_bias = o.no_bias};
    if (o.memory_width) {
        l->q = kn_layer_linear(&l->base, "q", width, width, &linear);
        l->kv = kn_layer_linear(&l->base, "kv", o.memory_width, keys, &linear);
    } else {
        l->qkv = kn_layer_linear(&l->base, "qkv", width, width + keys, &linear);
    }
    l->out = kn_layer_linear(&l->base, "out", width, width, &linear);
    bool is_whole = l->out && (!(o.dropout > 0) || kn__layer_rng(&l->base));
    return is_whole ? &l->base : kn__layer_undo(&l->base);
}
