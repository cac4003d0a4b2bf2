/* The timer's scopes around the calls of a plan: noted when it is recorded, opened by replays. */
#include <knet/prof_read.h>
#include <string.h>

#include "capture.h"

void kn__plan_scopes_begin(kn__plan *plan) {
    plan->has_scopes = kn_prof_is_on_(KN_PROF_GRAD_);
    plan->base_depth = plan->has_scopes ? kn_prof_open_scopes(NULL, 0) : 0;
}

/* The note of a scope inside `parent`; the latest ones are asked first. -1: no memory. */
static int32_t note_of(kn__plan *plan, const kn_prof_open *open, int32_t parent, int depth) {
    int32_t i = (int32_t)plan->n_scopes - 1;
    while (i >= 0 && !(plan->scopes[i].start == open->start && plan->scopes[i].parent == parent))
        i--;
    if (i >= 0) return i;
    size_t n_bytes = strlen(open->label) + 1;
    char *label = kn__plan_take(plan, n_bytes);
    void **list = (void **)&plan->scopes;
    if (!label || !kn__plan_room(list, &plan->scopes_cap, plan->n_scopes, sizeof *plan->scopes)) {
        plan->status = KN_ERR_OOM;
        return -1;
    }
    memcpy(label, open->label, n_bytes);
    plan->scopes[plan->n_scopes] = (kn__scope_note){label, open->start, parent, depth};
    return (int32_t)plan->n_scopes++;
}

/* The innermost scope is the call's own. */
int32_t kn__plan_scope(kn__plan *plan) {
    kn_prof_open open[KN__SCOPES];
    int32_t note = -1;
    if (!plan->has_scopes || !kn_prof_is_on_(KN_PROF_GRAD_)) return note;
    int n = kn_prof_open_scopes(open, KN__SCOPES) - 1;
    if (n > KN__SCOPES) n = KN__SCOPES;
    for (int i = plan->base_depth; i < n && plan->status == KN_OK; i++)
        note = note_of(plan, &open[i], note, i - plan->base_depth + 1);
    return note;
}

void kn__scopes_move(kn__scopes *open, const kn__plan *plan, int32_t to) {
    int32_t path[KN__SCOPES];
    int n = to < 0 ? 0 : plan->scopes[to].depth, same = 0;
    for (int i = n; i--; to = plan->scopes[to].parent) path[i] = to;
    while (same < n && same < open->n && open->note[same] == path[same]) same++;
    if (same < open->n) kn_scope_end(&open->scope[same]); /* and those inside */
    for (open->n = same; open->n < n; open->n++) {
        open->note[open->n] = path[open->n];
        open->scope[open->n] = kn_scope_begin(plan->scopes[path[open->n]].label);
    }
}
