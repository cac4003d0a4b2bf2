#include "fuse_plan.h"

#include <string.h>

#include "run.h"

/* --- plans: expressions that one pass computes --- */

static void collect(kn__fuse_plan *p, kn__expr *e) {
    for (int k = 0; k < e->n_in; k++) {
        kn_storage *s = e->in[k].storage;
        if (!s || !s->expr) continue;
        if (s->expr->place == KN__NOWHERE) collect(p, s->expr);
        p->uses[s->expr->place]++;
    }
    KN_ASSERT(p->n < KN__FUSED_STEPS);
    e->place = p->n;
    p->uses[p->n] = 0;
    p->expr[p->n++] = e;
}

/* Whether a step's data may be needed again, and is not cheaper to compute again than to keep. */
static bool is_kept(const kn__fuse_plan *p, int i) {
    const kn__expr *e = p->expr[i];
    bool is_last = i == p->n - 1;
    if (is_last && !p->closes) return true;
    const kn_tensor *t = kn__expr_header(e->storage);
    uint32_t users = atomic_load_explicit(&e->storage->refs, memory_order_relaxed) / 2;
    if (users > (uint32_t)p->uses[i] + (t != NULL)) return true; /* another expression */
    if (!t) return false;
    /* A gradient on its way to the next rule, what was asked for, or was computed and lost before.
     */
    if (t->owned == UINT32_MAX || e->keeps) return true;
    bool is_cheap = e->op == KN_OP_cast ||
                    kn__row_is_cheap((kn_op)e->op, (kn_dtype)e->dtype, kn_op_table[e->op].order);
    return (is_last || atomic_load_explicit(&t->refs, memory_order_relaxed) > 1) && !is_cheap;
}

void kn__fuse_plan_make(kn__fuse_plan *p, kn__expr *root, bool closes) {
    p->n = 0;
    p->closes = closes;
    collect(p, root);
    for (int i = 0; i < p->n; i++) {
        p->last[i] = i;
        p->stored[i] = is_kept(p, i);
        for (int k = 0; k < p->expr[i]->n_in; k++) {
            const kn_storage *s = p->expr[i]->in[k].storage;
            if (s && s->expr) p->last[s->expr->place] = i;
        }
    }
}

/* --- steps --- */

static void operand_place(kn__fused_step *step, const kn__expr *e, int k, const kn__fuse_plan *p,
                          kn__fused *f) {
    const kn__operand *x = &e->in[k];
    kn__row_job *j = &step->job;
    j->in[k] = NULL;
    j->same[k] = true;
    j->half_in[k] = false;
    step->from[k] = KN__NOWHERE;
    if (!x->storage) return;
    j->in_bytes[k] = kn__dtype_size[x->dtype];
    j->half_in[k] = j->is_half && x->dtype == e->dtype;
    j->same[k] = x->n == e->n;
    if (x->storage->expr) {
        int i = x->storage->expr->place;
        step->from[k] = f->step[i].tile;
        if (p->stored[i]) j->in[k] = f->step[i].job.out[f->step[i].r];
        return;
    }
    j->in[k] = x->data ? x->data : x->storage->data;
    if (j->same[k]) return;
    bool form = e->n_in == 2 && !j->order && !j->is_half && x->n == 1 && !j->form;
    if (form) {
        j->form = k ? KN__ROW_VS : KN__ROW_SV;
        j->in_bytes[k] = 0;
        j->same[k] = true;
        return;
    }
    kn_tensor in = {.n_dims = x->n_dims}, out = {.n_dims = e->n_dims};
    memcpy(in.dim, x->dim, sizeof in.dim);
    memcpy(out.dim, e->dim, sizeof out.dim);
    walk_init(&j->walk[k], &out, (kn_tensor *[]){&in}, 1);
    /* Shorter rows would make tiles too small; longer ones are whole numbers of the shortest. */
    int64_t row = j->walk[k].inner;
    if (row >= KN__ROW_BLOCK / 4 && (!f->row || row < f->row)) f->row = row;
}

static void step_make(kn__fused *f, int i, const kn__fuse_plan *p) {
    const kn__expr *e = p->expr[i];
    kn__fused_step *step = &f->step[i];
    kn__row_job *j = &step->job;
    const kn_op_info *info = &kn_op_table[e->op];
    step->is_cast = e->op == KN_OP_cast;
    step->to = (kn_dtype)e->to;
    step->r = (int8_t)e->r;
    j->call = NULL;
    j->order = info->order;
    j->row = step->is_cast
                 ? NULL
                 : kn__row(e->dtype ? (kn_dtype)e->dtype : KN_BOOL, e->op - (unsigned)info->order);
    j->n_in = e->n_in;
    j->n_out = info->order ? info->row : 1;
    j->form = KN__ROW_VV;
    j->accumulate = 0;
    j->dtype = (kn_dtype)e->dtype;
    j->is_half = !step->is_cast && (e->dtype == KN_F16 || e->dtype == KN_BF16);
    j->half_out = j->is_half && e->to == e->dtype;
    j->p = e->p;
    j->q = e->q;
    j->n = e->n;
    j->out_bytes = kn__dtype_size[e->to];
    for (int k = 0; k < e->n_in; k++) operand_place(step, e, k, p, f);
    int64_t grain = step->is_cast ? 32768 : kn__row_grain((kn_op)e->op, j->dtype, j->order);
    if (grain < f->grain) f->grain = grain;
}

void kn__fuse_plan_memory_free(kn__fuse_plan *p) {
    for (int i = 0; i < p->n; i++) {
        if (p->data[i]) kn_free(p->expr[i]->storage->pool, p->data[i]);
    }
}

kn_status kn__fuse_plan_memory(kn__fuse_plan *p) {
    memset(p->data, 0, sizeof p->data);
    for (int i = 0; i < p->n; i++) {
        kn_storage *s = p->expr[i]->storage;
        if (p->stored[i] && kn_alloc(&p->data[i], s->pool, s->size_bytes, s->stream) < 0) {
            p->data[i] = NULL;
            kn__fuse_plan_memory_free(p);
            return KN_ERR_OOM;
        }
    }
    return KN_OK;
}

/* A tile for each result that isn't kept, from the step that makes it to the last that reads it. */
static void tiles_place(kn__fused *f, const kn__fuse_plan *p) {
    uint32_t taken = 0;
    for (int i = 0; i < p->n; i++) {
        f->step[i].tile = KN__NOWHERE;
        if (!p->stored[i]) {
            int tile = __builtin_ctz(~taken);
            f->step[i].tile = (int8_t)tile;
            taken |= 1u << tile;
        }
        for (int k = 0; k < i; k++) {
            if (p->last[k] == i && !p->stored[k]) taken &= ~(1u << f->step[k].tile);
        }
    }
}

void kn__pass_make(kn__fused *f, const kn__fuse_plan *p) {
    const kn__expr *root = p->expr[p->n - 1];
    f->n_steps = p->n;
    f->n = root->n;
    f->grain = 32768;
    f->row = 0;
    f->threads = root->threads;
    tiles_place(f, p);
    for (int i = 0; i < p->n; i++) {
        for (int r = 0; r < KN__ROW_RESULTS; r++) f->step[i].job.out[r] = NULL;
        f->step[i].job.out[p->expr[i]->r] = p->data[i];
        step_make(f, i, p);
    }
}
