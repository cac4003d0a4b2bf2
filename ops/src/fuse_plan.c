#include "fuse_plan.h"

#include <string.h>

#include "host/pointwise/links.h"
#include "host/reduce/folds.h"
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

/* The copy of operand k into its place: x·1 + 0, as it would be added to zeros; the first one's
 * keeps -0 too. */
static void part_make(kn__expr *part, const kn__expr *whole, int k) {
    part->op = KN_OP_affine;
    part->n_in = 1, part->r = 0;
    part->dtype = part->to = whole->to;
    part->n = whole->in[k].n;
    part->n_dims = whole->n_dims;
    memcpy(part->dim, whole->part_dim, sizeof part->dim);
    part->storage = whole->storage;
    part->threads = whole->threads;
    part->row = 0, part->by_rows = false;
    part->p = 1, part->q = k ? 0 : -0.0;
    part->in[0] = whole->in[k];
}

/* Each part after the steps that make it, so that its tile is free again. */
static void collect_parts(kn__fuse_plan *p, kn__expr *whole) {
    p->whole = whole;
    for (int k = 0; k < whole->n_in; k++) {
        part_make(&p->part[k], whole, k);
        collect(p, &p->part[k]);
    }
}

static uint32_t n_users(const kn_storage *s) {
    return atomic_load_explicit(&s->refs, memory_order_acquire) / 2;
}

enum { ARRAYS_MAX = 64 };
typedef struct array_list {
    int n;
    const kn_storage *s[ARRAYS_MAX];
    uint64_t reads[KN__FUSED_STEPS]; /* a bit for each that a step reads, by steps that are lost */
} array_list;

/* A bit for the array: its place in `arrays`; 0 if that is full: further arrays look alike. */
static uint64_t bit_of(array_list *arrays, const kn_storage *s) {
    int at = 0;
    while (at < arrays->n && arrays->s[at] != s) at++;
    if (at == ARRAYS_MAX) return 0;
    if (at == arrays->n) arrays->s[arrays->n++] = s;
    return (uint64_t)1 << at;
}

/* Arrays that must be read to compute step i again. */
static uint64_t reads_of(const kn__fuse_plan *p, int i, array_list *arrays) {
    uint64_t reads = 0;
    const kn__expr *e = p->expr[i];
    for (int k = 0; k < e->n_in; k++) {
        const kn_storage *s = e->in[k].storage;
        if (!s) continue;
        if (s->expr && !p->stored[s->expr->place])
            reads |= arrays->reads[s->expr->place];
        else if (e->in[k].n == e->n)
            reads |= bit_of(arrays, s);
    }
    return reads;
}

/* Whether a step's data may be needed again, and is not cheaper to compute again than to keep. */
static bool is_kept(const kn__fuse_plan *p, int i, int n_arrays) {
    enum { KEPT_ARRAYS = 2 }; /* it is written, and read */
    const kn__expr *e = p->expr[i];
    bool is_last = i == p->n - 1;
    if (kn__is_part(p, i)) return false;
    if (is_last && !p->closes) return true;
    const kn_tensor *t = kn__expr_header(e->storage);
    uint32_t users = n_users(e->storage);
    if (users > (uint32_t)p->uses[i] + (t != NULL)) return true; /* another expression */
    if (!t) return false;
    if (kn__is_reduction(e)) return true;
    /* A gradient on its way to the next rule, a requested value, or one that was computed and lost.
     */
    if (t->owned == UINT32_MAX || e->keeps || n_arrays > KEPT_ARRAYS) return true;
    bool is_cheap = e->op == KN_OP_cast ||
                    kn__row_is_cheap((kn_op)e->op, (kn_dtype)e->dtype, kn_op_table[e->op].order);
    uint32_t refs = atomic_load_explicit(&t->refs, memory_order_relaxed) - t->again_refs;
    return (is_last || refs > 1) && !is_cheap;
}

void kn__fuse_plan_make(kn__fuse_plan *p, kn__expr *root, bool closes) {
    p->n = 0;
    array_list arrays;
    arrays.n = 0;
    p->closes = closes;
    p->whole = NULL;
    if (kn__is_whole_of_parts(root))
        collect_parts(p, root);
    else
        collect(p, root);
    for (int i = 0; i < p->n; i++) {
        p->last[i] = i;
        arrays.reads[i] = reads_of(p, i, &arrays);
        p->stored[i] = is_kept(p, i, __builtin_popcountll(arrays.reads[i]));
        for (int k = 0; k < p->expr[i]->n_in; k++) {
            const kn_storage *s = p->expr[i]->in[k].storage;
            if (s && s->expr) p->last[s->expr->place] = i;
        }
    }
}

/* --- steps --- */

static void operand_place(kn__fused_step *step, const kn__expr *e, int k, const kn__fuse_plan *p,
                          kn__fused *f) {
    const kn__fuse_operand *x = &e->in[k];
    kn__row_job *j = &step->job;
    j->in[k] = NULL;
    j->same[k] = true;
    j->half_in[k] = false;
    step->from[k] = KN__NOWHERE;
    if (!x->storage) return;
    j->in_bytes[k] = kn__dtype_size[x->dtype];
    j->half_in[k] = j->is_half && x->dtype == e->dtype;
    j->same[k] = x->dense;
    if (x->storage->expr) {
        int i = x->storage->expr->place;
        step->from[k] = f->step[i].tile;
        if (p->stored[i]) j->in[k] = f->step[i].job.out[f->step[i].r];
        if (!j->same[k]) kn__walk_init_strides(&j->walk[k], e->n_dims, e->dim, x->stride);
        return;
    }
    j->in[k] = kn__operand_data(x);
    if (j->same[k]) return;
    bool form = e->n_in == 2 && !j->order && !j->is_half && x->n == 1 && !j->form;
    if (form) {
        j->form = k ? KN__ROW_VS : KN__ROW_SV;
        j->in_bytes[k] = 0;
        j->same[k] = true;
        return;
    }
    kn__walk_init_strides(&j->walk[k], e->n_dims, e->dim, x->stride);
    /* Shorter rows would make tiles too small; longer ones are whole numbers of the shortest. */
    int64_t row = j->walk[k].inner;
    if (row >= KN__ROW_BLOCK / 4 && !step->by_rows && (!f->row || row < f->row)) f->row = row;
}

/* Where the part's first element lies; to: its rows in the whole. */
static char *part_place(kn__fused_step *step, const kn__expr *part, const kn__fuse_plan *p) {
    int64_t stride[KN_DIMS_MAX], at = 0;
    kn__row_major(stride, p->whole->n_dims, p->whole->dim);
    for (int d = 0; d < part->n_dims; d++) at += part->in[0].stride[d] * stride[d];
    kn__walk_init_strides(&step->rows, part->n_dims, part->dim, stride);
    return (char *)p->whole_data + (size_t)at * kn__dtype_size[part->to];
}

static void step_make(kn__fused *f, int i, const kn__fuse_plan *p) {
    const kn__expr *e = p->expr[i];
    kn__fused_step *step = &f->step[i];
    kn__row_job *j = &step->job;
    const kn_op_info *info = &kn_op_table[e->op];
    step->is_cast = e->op == KN_OP_cast;
    step->to = (kn_dtype)e->to;
    step->row = f->whole_row;
    step->reduces = kn__is_reduction(e);
    step->by_rows = f->whole_row && e->n != f->n;
    if (step->reduces) step->recipe = e->recipe;
    step->r = (int8_t)e->r;
    j->call = NULL;
    j->order = info->order;
    j->row = step->is_cast || step->reduces
                 ? NULL
                 : kn__row_loops_of(e->dtype ? (kn_dtype)e->dtype : KN_BOOL,
                                    e->op - (unsigned)info->order);
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
    step->part = kn__is_part(p, i) ? part_place(step, e, p) : NULL;
}

/* --- memory --- */

static bool reads_step(const kn__expr *e, const kn_storage *s) {
    for (int k = 0; k < e->n_in; k++) {
        if (e->in[k].storage == s) return true;
    }
    return false;
}

/* Which steps' expressions end with this pass: stored ones, and those that only they read. */
static void find_ends(bool ends[], const kn__fuse_plan *p) {
    for (int i = p->n - 1; i >= 0; i--) {
        const kn_storage *s = p->expr[i]->storage;
        ends[i] = true;
        if (p->stored[i] || kn__is_part(p, i)) continue;
        ends[i] = !kn__expr_header(p->expr[i]->storage) && n_users(s) == (uint32_t)p->uses[i];
        for (int j = i + 1; j < p->n; j++) ends[i] &= ends[j] || !reads_step(p->expr[j], s);
    }
}

/* Whether an operand's elements lie where the result has the same ones: step by step, a pass
 * writes no element that it reads later. Results may be wider, and operands the first part of an
 * array or one element for each row. */
static bool lies_like(const kn__fuse_operand *x, const kn__expr *result) {
    return x->dense && kn__operand_data(x) == x->storage->data && x->n == result->n &&
           kn__dtype_size[x->dtype] == kn__dtype_size[result->to];
}

/* Whether all users of s are steps up to i that end, and read each of its elements where they
 * compute the same one. */
static bool is_free_after(const kn__fuse_plan *p, int i, const kn_storage *s, const bool ends[]) {
    uint32_t n = 0;
    for (int j = 0; j < p->n; j++) {
        for (int k = 0; k < p->expr[j]->n_in; k++) {
            const kn__fuse_operand *x = &p->expr[j]->in[k];
            if (x->storage != s) continue;
            if (j > i || !ends[j] || !lies_like(x, p->expr[i])) return false;
            n++;
        }
    }
    for (int j = 0; j < i; j++) {
        if (p->from[j] == s) return false;
    }
    return atomic_load_explicit(&s->refs, memory_order_acquire) == 2 * n;
}

/* An operand of the steps up to i whose place the result of step i can take. */
static kn_storage *find_place(const kn__fuse_plan *p, int i, const bool ends[]) {
    const kn_storage *to = p->expr[i]->storage;
    if (to->device != kn__ops_self->host) return NULL; /* passes of GPUs may fail halfway */
    if (kn__ops_self->capture) return NULL;            /* a plan places its memory itself */
    for (int j = i; j >= 0; j--) {
        for (int k = 0; k < p->expr[j]->n_in; k++) {
            kn_storage *s = p->expr[j]->in[k].storage;
            if (!s || s->expr || !s->pool || s->pool != to->pool) continue;
            if (s->size_bytes == to->size_bytes && is_free_after(p, i, s, ends)) return s;
        }
    }
    return NULL;
}

void kn__fuse_plan_memory_free(kn__fuse_plan *p) {
    for (int i = 0; i < p->n; i++) {
        if (p->data[i] && !p->from[i]) kn_free(p->expr[i]->storage->pool, p->data[i]);
    }
    if (p->whole_data) kn_free(p->whole->storage->pool, p->whole_data);
}

static bool alloc_for(void **out, const kn__expr *e) {
    kn_storage *s = e->storage;
    if (kn_alloc(out, s->pool, s->size_bytes, s->stream) == KN_OK) return true;
    *out = NULL;
    return false;
}

kn_status kn__fuse_plan_memory(kn__fuse_plan *p) {
    bool ends[KN__FUSED_STEPS];
    memset(p->data, 0, sizeof p->data);
    memset(p->from, 0, sizeof p->from);
    p->whole_data = NULL;
    find_ends(ends, p);
    bool ok = !p->whole || alloc_for(&p->whole_data, p->whole);
    for (int i = 0; i < p->n && ok; i++) {
        if (!p->stored[i]) continue;
        p->from[i] = find_place(p, i, ends);
        if (p->from[i])
            p->data[i] = p->from[i]->data;
        else
            ok = alloc_for(&p->data[i], p->expr[i]);
    }
    if (ok) return KN_OK;
    kn__fuse_plan_memory_free(p);
    return KN_ERR_OOM;
}

/* A tile for each result that isn't kept, from the step that makes it to the last that reads it. */
static void tiles_place(kn__fused *f, const kn__fuse_plan *p) {
    uint32_t taken = 0;
    for (int i = 0; i < p->n; i++) {
        f->step[i].tile = KN__NOWHERE;
        if (!p->stored[i] && !kn__is_part(p, i)) {
            int tile = __builtin_ctz(~taken);
            f->step[i].tile = (int8_t)tile;
            taken |= 1u << tile;
        }
        for (int k = 0; k < i; k++) {
            /* Each turn of a run's links reads the one element of a row: no result lies on it. */
            bool ends = p->last[k] == i && (!f->whole_row || p->expr[k]->n == f->n);
            if (ends && f->step[k].tile >= 0) taken &= ~(1u << f->step[k].tile);
        }
    }
}

/* --- links --- */

/* Whether the step sums a row that is a tile and a block of kn__folds, in whole lanes. */
static bool is_sum(const kn__fused_step *s) {
    const kn__recipe *r = &s->recipe;
    const size_t bytes = s->job.in_bytes[0];
    return r->fold == KN__FOLD_SUM && r->shift == KN__SHIFT_NONE &&
           r->finish == KN__FINISH_DIVIDE && !s->job.half_in[0] && kn__fused_rows(s->row) == 1 &&
           (size_t)s->row * bytes % KN__LINK_LANES_BYTES == 0 &&
           (size_t)s->row * bytes <= KN_FOLD_BLOCK_BYTES;
}

static bool is_linked(kn__fused_step *s, const kn__expr *e) {
    enum { SHORT = KN__ROW_BLOCK / 4 }; /* shorter rows end within tiles */
    bool is_alone = s->row && kn__fused_rows(s->row) == 1;
    const kn__row_job *j = &s->job;
    int what, in[2];
    s->sums = s->reduces && is_sum(s);
    if (s->sums) {
        s->link_in[0] = 0, s->link_in[1] = -1;
        return true;
    }
    if (s->is_cast || s->part || s->reduces || s->by_rows || j->order > 1 ||
        (j->dtype != KN_F32 && j->dtype != KN_F64))
        return false;
    if (!kn__link_of(&what, in, e->op - (unsigned)j->order, j->order ? e->r + 1 : 0)) return false;
    for (int k = 0; k < 2 && in[k] >= 0; k++) {
        if (!j->same[in[k]] && !is_alone && j->walk[in[k]].inner < SHORT) return false;
        s->link_in[k] = (int16_t)in[k];
    }
    if (in[1] < 0) s->link_in[1] = -1;
    s->link = (int16_t)what;
    return true;
}

/* Which of its link_in step i gets from the step before. */
static uint8_t hand_of(const kn__fused *f, const kn__fuse_plan *p, int i) {
    for (uint8_t k = 0; k < 2; k++) {
        int in = f->step[i].link_in[k];
        if (in >= 0 && p->expr[i]->in[in].storage == p->expr[i - 1]->storage) return k;
    }
    return KN__HAND_EMPTY;
}

/* Whether no step of the one run needs a tile, and all operands lie like the result. */
static bool is_free(const kn__fused *f) {
    bool ok = f->step[0].run == f->n_steps;
    for (int i = 0; i < f->n_steps && ok; i++) {
        const kn__fused_step *s = &f->step[i];
        ok = s->tile < 0 || s->is_held;
        for (int k = 0; k < s->job.n_in; k++) ok &= s->job.same[k];
    }
    return ok;
}

/* Steps that are links and follow each other become one run. */
static void runs_place(kn__fused *f, const kn__fuse_plan *p) {
    bool linked[KN__FUSED_STEPS];
    for (int i = 0; i < p->n; i++) {
        f->step[i].run = 0;
        linked[i] = is_linked(&f->step[i], p->expr[i]);
    }
    for (int i = 0, n; i < p->n; i += n) {
        n = 1;
        if (!linked[i] || f->step[i].sums) continue;
        f->step[i].hand = KN__HAND_EMPTY;
        for (; i + n < p->n && linked[i + n] && !f->step[i + n - 1].sums; n++) {
            kn__fused_step *s = &f->step[i + n];
            if (s->job.dtype != s[-1].job.dtype) break;
            s->hand = hand_of(f, p, i + n);
            if (s->sums && s->hand == KN__HAND_EMPTY) break;
            s[-1].is_held = s->hand != KN__HAND_EMPTY && s[-1].tile >= 0 && p->uses[i + n - 1] == 1;
        }
        f->step[i + n - 1].is_held = false;
        f->step[i].run = (uint8_t)(n > 1 ? n : 0);
    }
}

/* A thread takes as much work as if it were one row. */
static int64_t grain_of(const kn__fuse_plan *p) {
    enum { GRAIN = 32768 };
    int64_t cost = 0;
    for (int i = 0; i < p->n; i++) {
        const kn__expr *e = p->expr[i];
        int order = kn_op_table[e->op].order;
        cost += e->op == KN_OP_cast
                    ? 1
                    : GRAIN / kn__row_grain((kn_op)e->op, (kn_dtype)e->dtype, order);
    }
    return cost > 0 ? GRAIN / cost : GRAIN;
}

void kn__pass_make(kn__fused *f, const kn__fuse_plan *p) {
    const kn__expr *root = p->expr[p->n - 1];
    f->n_steps = p->n;
    f->whole_row = root->row;
    f->n = root->by_rows ? root->n * root->row : root->n;
    f->grain = grain_of(p);
    if (root->row) f->grain = (f->grain + root->row - 1) / root->row * root->row;
    f->row = 0;
    f->threads = root->threads;
    tiles_place(f, p);
    for (int i = 0; i < p->n; i++) {
        for (int r = 0; r < KN__ROW_RESULTS; r++) f->step[i].job.out[r] = NULL;
        f->step[i].job.out[p->expr[i]->r] = p->data[i];
        step_make(f, i, p);
    }
    if (f->whole_row && f->row % f->whole_row) f->row = 0;
    runs_place(f, p);
    f->is_free = is_free(f);
}
