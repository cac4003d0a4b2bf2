/* Replayed calls for watchers (op_watch.h). The memory of a plan serves several buffers, and each
 * of them several views: an event names a buffer by the storage that it was when the step was
 * recorded. */
#include <string.h>

#include "capture.h"
#include "work.h"

/* NULL: the buffer of an input. What a pass gives a reduction by tiles has no buffer. */
static const kn_storage *storage_of(const kn__plan *plan, const kn__frozen *v) {
    if (v->buffer != (uint32_t)KN__NO_BUFFER) return plan->buffers[v->buffer].storage;
    return v->t->storage;
}

/* Storages of views become those of their buffers. */
static void rename_all(const kn__plan *plan, const kn_storage *s[], int *n) {
    int kept = 0;
    for (int k = 0; k < *n; k++) {
        for (uint32_t i = 0; i < plan->n_views; i++) {
            const kn__frozen *v = &plan->views[i];
            if (!v->t || v->t->storage != s[k]) continue;
            const kn_storage *own = storage_of(plan, v);
            if (own) s[kept++] = own;
            break;
        }
    }
    *n = kept;
}

void kn__plan_event_names(void *ctx, kn_op_event *e) {
    const kn__plan *plan = ctx;
    rename_all(plan, e->in, &e->n_in);
    rename_all(plan, e->out, &e->n_out);
}

static bool is_result(const kn__chain_note *note, const kn__frozen *v) {
    for (int i = 0; i < note->f.n_steps; i++) {
        const kn__row_job *job = &note->f.step[i].job;
        for (int r = 0; r < KN__ROW_RESULTS; r++)
            if ((const void *)v->at == (const void *)&job->out[r]) return true;
    }
    return false;
}

/* Whether the view is a pointer of this pass. */
static bool is_of(const kn__chain_note *note, const kn__frozen *v) {
    const char *at = (const char *)v->at, *first = (const char *)&note->f.step[0];
    const char *end = (const char *)&note->f.step[note->f.n_steps];
    return at >= first && at < end;
}

void kn__plan_watch_pass(const kn__plan *plan, const kn__prepared *p) {
    const kn__chain_note *note = p->chain;
    const kn_tensor *closed = p->call.n_out ? p->call.in[0] : NULL;
    kn_op_event e = {.name = note->label, .n_ops = note->f.n_steps};
    e.where = note->label + strlen(note->label) + 1;
    e.moved_bytes = note->moved_bytes;
    for (uint32_t i = 0; i < plan->n_views; i++) {
        const kn__frozen *v = &plan->views[i];
        const kn_storage *s = v->at && is_of(note, v) ? storage_of(plan, v) : NULL;
        if (!s) continue;
        if (!is_result(note, v)) {
            if (e.n_in < KN_OP_EVENT_IN) e.in[e.n_in++] = s;
        } else if (e.n_out < KN_OP_EVENT_OUT) {
            e.out[e.n_out++] = s;
        }
    }
    if (closed && !closed->data && e.n_out < KN_OP_EVENT_OUT) e.out[e.n_out++] = closed->storage;
    kn__watch(&e);
}
