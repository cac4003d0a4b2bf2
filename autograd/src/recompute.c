/* kn_recompute: a part of the forward pass whose values are made again in backward.
 *
 * Forward records the part as usual, then cuts its nodes off the tape, with the values that they
 * saved, and puts one node in their place. Its edges are those that left the part. Backward runs
 * the part again, recorded at the end of the same tape, walks those nodes, and cuts them off. The
 * generators that the part drew from go back to where they were, and afterwards forward again.
 */
#include <knet/tape.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "params.h"
#include "tape.h"

enum {
    INPUTS_MAX = 64,
    INSIDE = 255
}; /* n_users of the part's nodes, while their edges are sorted */

typedef struct draws { /* of one generator */
    kn_rng *rng;
    uint64_t seed, offset; /* before the first */
    uint64_t now[2];       /* seed and offset beside a repeated run */
} draws;

typedef struct part {
    const kn__special *special;
    kn_recompute_fn fn;
    void *ctx;
    kn_draw_watch watch; /* while fn runs in forward */
    int n_draws, draws_cap;
    draws *draws;
    int n_x;
    kn_dtype autocast; /* of the frame, as the three that follow; 0: off */
    kn_dtype dtype;
    kn_device *device;
    kn_math_mode math;
    int n_params;
    kn__saved *param; /* those that it reads besides x, each once */
    kn__saved x[];
} part;

static void part_free(void *self) {
    part *p = self;
    for (int i = 0; i < p->n_x; i++) {
        if (p->x[i].t) kn_tensor_release(p->x[i].t);
    }
    for (int i = 0; i < p->n_params; i++) kn_tensor_release(p->param[i].t);
    for (int i = 0; i < p->n_draws; i++) kn_rng_destroy(p->draws[i].rng);
    free(p->draws);
    free(p->param);
    free(p);
}

/* --- the user's function --- */

static bool is_same(const kn_error *a, const kn_error *b) {
    return a->status == b->status && a->line == b->line && a->file == b->file &&
           strcmp(a->message, b->message) == 0;
}

/* fn(ctx, x); NULL: the error is pending. A status function may have given it to fn, which cannot
 * return it. */
static kn_tensor *fn_run(kn_recompute_fn fn, void *ctx, kn_tensor *const x[], const char *when) {
    kn_error before = *kn_last_error();
    kn_tensor *y = fn(ctx, x);
    if (kn_pending()) return NULL;
    if (y) return y;
    if (!is_same(kn_last_error(), &before)) return kn_error_defer(kn_last_error()->status);
    return KN_FAIL_NULL(KN_ERR_INVALID, "kn_recompute: fn gave no result%s", when);
}

/* --- random numbers --- */

/* fn may end the generator: the part is another owner of it. */
static kn_status draws_add(part *p, kn_rng *rng) {
    for (int i = 0; i < p->n_draws; i++)
        if (p->draws[i].rng == rng) return KN_OK;
    if (kn_capture_records())
        return KN_FAIL(KN_ERR_UNSUPPORTED,
                       "kn_recompute: a part that draws from a generator can't be in a captured "
                       "step");
    if (p->n_draws == p->draws_cap) {
        int cap = p->draws_cap ? 2 * p->draws_cap : 4;
        draws *more = realloc(p->draws, (size_t)cap * sizeof *more);
        if (!more) return KN_FAIL(KN_ERR_OOM, "kn_recompute: no host memory");
        p->draws = more;
        p->draws_cap = cap;
    }
    draws *d = &p->draws[p->n_draws];
    KN_TRY(kn_rng_state_get(&d->seed, &d->offset, rng));
    d->rng = kn_rng_retain(rng);
    p->n_draws++;
    return KN_OK;
}

static kn_status drawn(kn_draw_watch *watch, kn_rng *rng) {
    return draws_add((part *)((char *)watch - offsetof(part, watch)), rng);
}

/* The same numbers again. */
static kn_status draws_back(part *p) {
    for (int i = 0; i < p->n_draws; i++) {
        draws *d = &p->draws[i];
        KN_TRY(kn_rng_state_get(&d->now[0], &d->now[1], d->rng));
    }
    for (int i = 0; i < p->n_draws; i++)
        KN_TRY(kn_rng_state_set(p->draws[i].rng, p->draws[i].seed, p->draws[i].offset));
    return KN_OK;
}

/* Those of the calls since then are not disturbed. */
static kn_status draws_forth(const part *p) {
    for (int i = 0; i < p->n_draws; i++)
        KN_TRY(kn_rng_state_set(p->draws[i].rng, p->draws[i].now[0], p->draws[i].now[1]));
    return KN_OK;
}

/* --- what a result depends on --- */

static bool is_made_after(const kn__node *before, const kn__tape *tape, const kn_tensor *y) {
    const kn__node *made_by = kn__edge_node(y->grad);
    const kn__node *n = before ? before->next : tape->first;
    while (n && n != made_by) n = n->next;
    return n != NULL;
}

/* Which of x have the edge, a bit each: one value may be there twice. */
static uint64_t inputs_of(kn_edge edge, kn_tensor *const x[], int n_x) {
    uint64_t bits = 0;
    for (int i = 0; i < n_x; i++) bits |= (uint64_t)(x[i]->grad == edge) << i;
    return bits;
}

typedef struct edges { /* that the part's result depends on */
    kn_edge *at;       /* of parameters, each once */
    int n, cap;
    uint64_t inputs; /* of x, a bit each */
} edges;

static bool is_among(const kn_edge at[], int n, kn_edge edge) {
    for (int i = 0; i < n; i++) {
        if (at[i] == edge) return true;
    }
    return false;
}

static kn_status edges_add(edges *e, kn_edge edge) {
    if (is_among(e->at, e->n, edge)) return KN_OK;
    if (e->n == e->cap) {
        int cap = e->cap ? 2 * e->cap : 16;
        kn_edge *at = realloc(e->at, (size_t)cap * sizeof *at);
        if (!at) return KN_FAIL(KN_ERR_OOM, "kn_recompute: no host memory");
        e->at = at;
        e->cap = cap;
    }
    e->at[e->n++] = edge;
    return KN_OK;
}

/* The edges that leave the part, which is the nodes after `before`, where they lead to y: to
 * parameters, to x, and to what the node that stands for it has edges to; NULL: to these alone. */
static kn_status edges_find(edges *out, const kn__node *before, kn_tensor *y, kn_tensor *const x[],
                            int n_x, kn__node *stands) {
    char text[256];
    kn__node *last = kn__edge_node(y->grad)->tape->last;
    for (kn__node *n = last; n != before; n = n->prev) n->n_users = INSIDE, n->wanted = 0;
    kn__edge_node(y->grad)->wanted = 1;
    for (kn__node *n = last; n != before; n = n->prev) {
        for (int i = 0; i < n->n_in; i++) {
            kn_edge edge = kn__node_edges(n)[i];
            kn__node *from = kn__edge_node(edge);
            if (!edge) continue;
            if (from && from->n_users == INSIDE) {
                from->wanted |= n->wanted;
                continue;
            }
            uint64_t inputs = inputs_of(edge, x, n_x);
            bool is_known =
                inputs || (stands && is_among(kn__node_edges(stands), stands->n_in, edge));
            if (from && !is_known)
                return KN_FAIL(KN_ERR_INVALID,
                               "kn_recompute: %s reads a recorded value that is not among x",
                               kn__node_text(text, sizeof text, n));
            if (!n->wanted) continue;
            out->inputs |= inputs;
            if (!inputs) KN_TRY(edges_add(out, edge));
        }
    }
    return KN_OK;
}

/* --- backward --- */

/* With other values of them the part's would be others too. */
static kn_status params_check(const kn__back *b, const part *p) {
    char text[256];
    for (int i = 0; i < p->n_params; i++) {
        const kn_tensor *w = p->param[i].t;
        if (w->storage && w->storage->version == p->param[i].version) continue;
        const kn__param *of = kn__edge_param(kn__node_edges(b->node)[p->n_x + i]);
        return KN_FAIL(KN_ERR_INVALID, "the gradient of %s needs the parameter %s, which was %s",
                       kn__node_text(text, sizeof text, b->node), of->name,
                       w->storage ? "written since" : "consumed");
    }
    return KN_OK;
}

/* Leaves for what x was, so that the part's gradients by it can be passed on. */
static kn_status leaves_make(kn_tensor *leaf[], kn__back *b, const part *p) {
    char text[256];
    for (int i = 0; i < p->n_x; i++) {
        kn_tensor *x = p->x[i].t;
        if (!x->storage || x->storage->version != p->x[i].version)
            return KN_FAIL(KN_ERR_INVALID, "the gradient of %s needs x[%d], which was %s",
                           kn__node_text(text, sizeof text, b->node), i,
                           x->storage ? "written since" : KN__CONSUMED);
        leaf[i] = kn_tensor_alias(x);
        if (!leaf[i]) return kn_check();
        if (kn__back_wants(b, i) && !kn__tape_node(b->pass->tape, KN__OP_WATCH, leaf[i], 0, 0))
            return kn_last_error()->status;
    }
    return KN_OK;
}

/* The walk's marks, of the part alone; whether its result leads to a tensor whose gradient is
 * wanted. */
static bool part_mark(const kn__pass *pass, kn__node *first) {
    for (kn__node *n = first; n; n = n->next) {
        n->wanted = n->op == KN__OP_WATCH;
        n->n_users = 0;
        for (int i = 0; i < n->n_in; i++) {
            kn_edge edge = kn__node_edges(n)[i];
            n->wanted |= kn__pass_wants(pass, edge);
            kn__node *from = edge ? kn__edge_node(edge) : NULL;
            if (from && from->n_users < 2) from->n_users++;
        }
    }
    return kn__edge_node(pass->from)->wanted;
}

/* Which leaf the node stands for; -1: none. */
static int leaf_of(kn__node *n, kn_tensor *const leaf[], int n_x) {
    for (int i = 0; i < n_x && n->op == KN__OP_WATCH; i++) {
        if (kn__edge_node(leaf[i]->grad) == n) return i;
    }
    return -1;
}

static kn_status part_walk(kn__back *b, kn__pass *inside, kn_tensor *const leaf[], int n_x,
                           const kn__node *before) {
    for (int i = 0; i < n_x; i++) /* else its gradient gets lost */
        KN_ASSERT(!kn__back_wants(b, i) || kn__edge_node(leaf[i]->grad)->op == KN__OP_WATCH);
    for (kn__node *n = inside->tape->last; n != before; n = n->prev) {
        int i = leaf_of(n, leaf, n_x);
        if (i < 0) {
            KN_TRY(kn__pass_node(inside, n));
            continue;
        }
        kn_tensor *dx = kn__node_results(n)->grad;
        KN_ASSERT(n->n_in == 0 && n->n_saved == 0); /* a leaf */
        kn__node_results(n)->grad = NULL;
        if (dx) KN_TRY(kn__back_deliver_own(b, i, dx));
    }
    return KN_OK;
}

/* Rules trust the shapes of gradients, and that of y is made for the first result. */
static kn_status result_check(const kn__back *b, const kn_tensor *y) {
    const char *problem = kn_tensor_problem(y);
    if (problem)
        return KN_FAIL(KN_ERR_INVALID, "kn_recompute: fn's result in backward %s", problem);
    const kn__result *before = kn__node_results(b->node);
    kn_shape has = kn_tensor_shape(y), had = {.n_dims = before->n_dims};
    memcpy(had.dim, before->dim, before->n_dims * sizeof had.dim[0]);
    bool same = has.n_dims == had.n_dims && y->dtype == before->dtype &&
                memcmp(has.dim, had.dim, before->n_dims * sizeof had.dim[0]) == 0;
    char now[128], then[128];
    if (!same)
        return KN_FAIL(KN_ERR_INVALID, "kn_recompute: fn gave %s %s in backward, %s %s before",
                       kn_shape_text(now, sizeof now, has), kn_dtype_name((kn_dtype)y->dtype),
                       kn_shape_text(then, sizeof then, had),
                       kn_dtype_name((kn_dtype)before->dtype));
    if (y->storage->device != b->g->storage->device)
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_recompute: fn gave a value on %s in backward, on %s before",
                       kn_device_name(y->storage->device), kn_device_name(b->g->storage->device));
    return KN_OK;
}

/* Whether the second result depends on what the first one did: else a gradient would be lost. */
static kn_status edges_compare(kn__back *b, const part *p, const edges *now) {
    const kn_edge *then = kn__node_edges(b->node);
    for (int i = 0; i < now->n; i++) {
        if (!is_among(then, b->node->n_in, now->at[i]))
            return KN_FAIL(KN_ERR_INVALID,
                           "kn_recompute: fn's result depends on the parameter %s in backward, "
                           "which it did not before",
                           kn__edge_param(now->at[i])->name);
    }
    for (int i = 0; i < b->node->n_in; i++) {
        if (i < p->n_x && !kn__back_wants(b, i)) continue;
        bool is_read = is_among(now->at, now->n, then[i]);
        for (int k = 0; k < p->n_x; k++) is_read |= then[k] == then[i] && (now->inputs >> k & 1);
        if (is_read) continue;
        char x[16];
        snprintf(x, sizeof x, "x[%d]", i);
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_recompute: fn's result does not depend on %s%s in backward, as it did "
                       "before",
                       i < p->n_x ? "" : "the parameter ",
                       i < p->n_x ? x : kn__edge_param(then[i])->name);
    }
    return KN_OK;
}

/* The second run is the nodes after `before`. */
static kn_status edges_check(kn__back *b, const part *p, kn_tensor *y, kn_tensor *const leaf[],
                             const kn__node *before) {
    if (!is_made_after(before, b->pass->tape, y))
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_recompute: fn gave %s in backward, a result of recorded ops before",
                       !y->grad                  ? "a value without gradient"
                       : kn__edge_param(y->grad) ? "a parameter"
                                                 : "an input or an older value");
    edges now = {NULL, 0, 0, 0};
    kn_status status = edges_find(&now, before, y, leaf, p->n_x, b->node);
    if (status == KN_OK) status = edges_compare(b, p, &now);
    free(now.at);
    return status;
}

/* fn's result, of which *from is the edge. In a frame of its own, as forward's: kn_keep and kn_drop
 * in fn leave the leaves where they are. */
static kn_status part_run(kn_edge *from, kn__back *b, part *p, kn_tensor *const leaf[]) {
    const kn__node *leaves = b->pass->tape->last;
    KN_FRAME();
    KN_TRY(kn_check());
    KN_TRY(draws_back(p));
    kn_tensor *y = fn_run(p->fn, p->ctx, leaf, " in backward");
    kn_status status = kn_check();
    if (status == KN_OK) status = result_check(b, y);
    KN_TRY(draws_forth(p));
    if (status == KN_OK) status = edges_check(b, p, y, leaf, leaves);
    if (status == KN_OK) *from = y->grad;
    return status;
}

/* The gradient moves: one that has two owners is not added to in place, which rounds otherwise. */
static kn_tensor *gradient_take(kn__back *b) {
    kn__result *mine = kn__node_results(b->node);
    if (mine->target || mine->grad != b->g) return kn_tensor_retain(b->g);
    mine->grad = NULL;
    return b->g;
}

/* Walks the nodes after `before`, in a frame like that of the pass around it. */
static kn_status part_gradients(kn__back *b, const kn_frame_options *options, kn_edge from,
                                kn_tensor *const leaf[], const kn__node *before) {
    const part *p = *kn__node_special(b->node);
    KN_FRAME(.device = options->device, .stream = options->stream, .pool = options->pool,
             .dtype = options->dtype, .math = options->math, .record = KN_OFF, .autocast = KN_OFF);
    KN_TRY(kn_check());
    kn__node *first = before ? before->next : b->pass->tape->first;
    KN_ASSERT(first && !kn__edge_result(from)->grad && !b->pass->again);
    kn__pass inside = *b->pass;
    inside.from = from;
    inside.mark = kn_frame_mark();
    inside.hooked = false; /* parameters count this node as one use */
    inside.keep = false;
    if (!part_mark(&inside, first)) return KN_OK; /* only an input that fn doesn't use is wanted */
    kn__edge_result(from)->grad = gradient_take(b);
    return part_walk(b, &inside, leaf, p->n_x, before);
}

static kn_status again(kn__back *b, part *p, const kn__node *before) {
    kn_tensor *leaf[INPUTS_MAX];
    kn_edge from = 0;
    kn_frame_options as_before = {.autocast = p->autocast ? (int)p->autocast : KN_OFF,
                                  .device = p->device,
                                  .dtype = p->dtype,
                                  .math = (int)p->math},
                     now = {.device = kn_frame_device(),
                            .stream = kn_frame_stream(),
                            .pool = kn_frame_pool(),
                            .dtype = kn_frame_dtype(),
                            .math = (int)kn_frame_math()};
    KN_TRY(params_check(b, p));
    kn_frame recorded = kn_frame_begin_tape(&as_before, b->pass->tape);
    kn_status status = kn_check();
    if (status == KN_OK) status = leaves_make(leaf, b, p);
    uint32_t mine = kn_frame_mark();
    if (status == KN_OK) status = part_run(&from, b, p, leaf);
    kn_frame_release_to(mine); /* what fn kept; nodes keep their saved tensors */
    if (status == KN_OK) status = part_gradients(b, &now, from, leaf, before);
    kn_frame_end(&recorded);
    return status;
}

static kn_status part_back(kn__back *b) {
    char text[256];
    kn__tape *tape = b->pass->tape;
    part *p = *kn__node_special(b->node);
    if (b->pass->again)
        return KN_FAIL(KN_ERR_UNSUPPORTED, "the gradient of %s can't be differentiated again",
                       kn__node_text(text, sizeof text, b->node));
    kn_scope scope = kn_scope_begin_static("recompute");
    kn__tape_mark mark = kn__tape_mark_here(tape);
    kn_status status = again(b, p, mark.last);
    kn__tape_cut(tape, &mark);
    KN_ASSERT(tape->last == mark.last && (!mark.last || !mark.last->next));
    kn_scope_end(&scope);
    return status;
}

static const kn__special special = {"recompute", part_back, part_free};

/* --- forward --- */

static part *part_make(kn_recompute_fn fn, void *ctx, kn_tensor *const x[], int n_x) {
    part *p = calloc(1, sizeof *p + (size_t)n_x * sizeof p->x[0]);
    if (!p) return NULL;
    *p = (part){.special = &special,
                .fn = fn,
                .ctx = ctx,
                .watch = {drawn, NULL},
                .n_x = n_x,
                .autocast = kn_frame_autocast(),
                .dtype = kn_frame_dtype(),
                .device = kn_frame_device(),
                .math = kn_frame_math()};
    for (int i = 0; i < n_x; i++)
        p->x[i] = (kn__saved){.t = kn_tensor_retain(x[i]), .version = x[i]->storage->version};
    return p;
}

/* Values that fn reads, but no gradient flows to: without an edge from the part, backward takes
 * another node for their last reader, and consumes them before the second run. A header of the
 * part's own keeps their data. */
static kn_status constants_save(part *p, kn_tensor *const x[], uint64_t inputs) {
    for (int i = 0; i < p->n_x; i++) {
        if (inputs >> i & 1 || !kn__edge_node(x[i]->grad)) continue;
        kn_tensor *alias = kn_tensor_alias(x[i]);
        if (!alias) return kn_check();
        kn_tensor_release(p->x[i].t);
        p->x[i].t = kn_tensor_retain(alias);
    }
    return KN_OK;
}

static kn_status params_save(part *p, const edges *params) {
    p->param = calloc((size_t)params->n + 1, sizeof *p->param);
    if (!p->param) return KN_FAIL(KN_ERR_OOM, "kn_recompute: no host memory");
    for (; p->n_params < params->n; p->n_params++) {
        kn_tensor *w = kn__edge_param(params->at[p->n_params])->w;
        p->param[p->n_params] =
            (kn__saved){.t = kn_tensor_retain(w), .version = w->storage->version};
    }
    return KN_OK;
}

/* The node that takes the part's place; *y becomes a tensor of it. */
static kn_status part_replace(kn_tensor **y, part **p, kn__tape *tape, const kn__tape_mark *mark,
                              kn_tensor *const x[]) {
    edges params = {NULL, 0, 0, 0};
    kn_status status = edges_find(&params, mark->last, *y, x, (*p)->n_x, NULL);
    if (status == KN_OK) status = params_save(*p, &params);
    if (status == KN_OK) status = constants_save(*p, x, params.inputs);
    kn_edge from[INPUTS_MAX]; /* x may be the result of a node that is cut off */
    for (int i = 0; i < (*p)->n_x; i++)
        from[i] = params.inputs >> i & 1 ? kn__edge_from(tape, x[i]) : 0;
    kn_tensor *made = status == KN_OK ? kn_tensor_alias(*y) : NULL;
    kn__tape_cut(tape, mark);
    if (status == KN_OK && !made) status = kn_check();
    kn__node *n = status == KN_OK
                      ? kn__tape_node(tape, KN__OP_SPECIAL, made, (*p)->n_x + params.n, sizeof *p)
                      : NULL;
    if (n) {
        memcpy(kn__node_edges(n), from, (size_t)(*p)->n_x * sizeof *from);
        for (int i = 0; i < params.n; i++) kn__node_edges(n)[(*p)->n_x + i] = params.at[i];
        *kn__node_special(n) = *p;
        *p = NULL;
        KN_ASSERT(tape->last == n && n->n_in == (*(part **)kn__node_special(n))->n_x + params.n);
        *y = made;
    } else if (status == KN_OK) {
        status = kn_last_error()->status;
    }
    free(params.at);
    return status;
}

/* One state is read before fn begins, where that breaks up no fused group. */
static kn_status recompute(kn_tensor **y, part **p, kn_tensor *const x[], kn_rng *rng) {
    kn__tape *tape = kn_frame_tape();
    kn__tape_mark mark = kn__tape_mark_here(tape);
    if (rng && !kn_capture_records()) KN_TRY(draws_add(*p, rng));
    tape->busy++;
    (*p)->watch.outer = kn_draw_watch_set(&(*p)->watch);
    *y = fn_run((*p)->fn, (*p)->ctx, x, "");
    kn_draw_watch_set((*p)->watch.outer);
    tape->busy--;
    KN_TRY(kn_check());
    return is_made_after(mark.last, tape, *y) ? part_replace(y, p, tape, &mark, x) : KN_OK;
}

kn_tensor *kn_recompute(kn_recompute_fn fn, void *ctx, kn_tensor *const x[], int n_x, kn_rng *rng) {
    if (kn_pending()) return NULL;
    if (!fn || !x) return KN_FAIL_NULL(KN_ERR_INVALID, "kn_recompute: %s is NULL", fn ? "x" : "fn");
    if (n_x < 1 || n_x > INPUTS_MAX)
        return KN_FAIL_NULL(KN_ERR_INVALID, "kn_recompute: %d inputs; 1 to %d are possible", n_x,
                            INPUTS_MAX);
    for (int i = 0; i < n_x; i++) {
        const char *problem = kn_tensor_problem(x[i]);
        if (problem) return KN_FAIL_NULL(KN_ERR_INVALID, "kn_recompute: x[%d] %s", i, problem);
    }
    if (!kn_frame_recording()) return fn_run(fn, ctx, x, "");
    part *p = part_make(fn, ctx, x, n_x);
    if (!p) return KN_FAIL_NULL(KN_ERR_OOM, "kn_recompute: no host memory");
    KN_FRAME();
    kn_tensor *y = NULL;
    kn_status status = recompute(&y, &p, x, rng);
    if (p) part_free(p);
    return status == KN_OK ? kn_keep(y) : kn_error_defer(status);
}
