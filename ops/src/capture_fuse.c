/* Passes of fused rows (fuse.h) in a plan, of the host. */
#include <knet/prof_metric.h>
#include <string.h>

#include "capture.h"
#include "host/host.h"

static kn_status run_chain(kn_op_call *call) {
    kn__host.fused_run(&((const kn__chain_note *)call->attr)->f);
    return KN_OK;
}

static kn_status run_reduction(kn_op_call *call) {
    const kn__prepared *p =
        (const kn__prepared *)(const void *)((char *)call - offsetof(kn__prepared, call));
    return kn__host.reduce_fused(call, &p->chain->f);
}

kn_kernel_fn kn__chain_kernel(bool closes) { return closes ? run_reduction : run_chain; }

kn_scope kn__chain_note_begin(const kn__chain_note *note) {
    return kn__fuse_label_begin(note->label);
}

void kn__chain_note_end(kn_scope *scope, const kn__chain_note *note) {
    if (!scope->start) return;
    kn_prof_metric(0, note->moved_bytes);
    kn_scope_end(scope);
}

/* The buffer of step i's result, which is not the storage's data yet. */
static int64_t result_note(kn__plan *plan, const kn__fuse_plan *p, int i) {
    kn__expr *e = p->expr[i];
    return p->stored[i] ? kn__plan_made_at(plan, e->storage, p->data[i], e->op) : -1;
}

static bool operands_note(kn__plan *plan, const kn__fuse_plan *p, int i, kn__row_job *job,
                          const int64_t made[]) {
    const kn__expr *e = p->expr[i];
    for (int k = 0; k < e->n_in; k++) {
        const kn__fuse_operand *in = &e->in[k];
        kn_storage *s = in->storage;
        if (!s || !job->in[k]) continue;
        int64_t buffer = s->expr ? made[s->expr->place] : kn__plan_buffer(plan, s);
        size_t n_bytes = (size_t)in->n * kn__dtype_size[in->dtype];
        const void **at = (const void **)&job->in[k];
        if (buffer < 0 || !kn__plan_pointer(plan, buffer, at, n_bytes, in->of_input)) return false;
    }
    return true;
}

static kn__chain_note *note_make(kn__plan *plan, const kn__fuse_plan *p, const kn__fused *f) {
    char label[KN__FUSED_LABEL_BYTES];
    size_t label_bytes = kn__fuse_plan_label(label, p);
    size_t f_bytes = offsetof(kn__fused, step) + (size_t)f->n_steps * sizeof f->step[0];
    kn__chain_note *note = kn__plan_take(plan, offsetof(kn__chain_note, f) + f_bytes);
    char *text = note ? kn__plan_take(plan, label_bytes) : NULL;
    if (!text) return NULL;
    memcpy((void *)&note->f, f, f_bytes);
    note->label = memcpy(text, label, label_bytes);
    note->moved_bytes = kn__fuse_plan_bytes(p);
    return note;
}

kn__chain_note *kn__chain_note_make(kn__plan *plan, const kn__fuse_plan *p, const kn__fused *f) {
    int64_t made[KN__FUSED_STEPS];
    kn__chain_note *note = note_make(plan, p, f);
    if (!note) return NULL;
    for (int i = 0; i < p->n; i++) {
        const kn__expr *e = p->expr[i];
        kn__row_job *job = &note->f.step[i].job;
        made[i] = result_note(plan, p, i);
        if (p->stored[i]) {
            const void **at = (const void **)&job->out[e->r];
            if (made[i] < 0 || !kn__plan_pointer(plan, made[i], at, 0, false)) return NULL;
        }
        if (!operands_note(plan, p, i, job, made)) return NULL;
    }
    return note;
}
