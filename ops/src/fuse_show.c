/* Plans in the timer's table and for watchers. */
#include <knet/prof_metric.h>
#include <stdio.h>
#include <string.h>

#include "fuse_plan.h"
#include "work.h"

enum { NAME_BYTES = 96, WHERE_BYTES = KN__FUSED_LABEL_BYTES - NAME_BYTES };

/* "add+gelu+mul"; a row of its own keeps its op's name. */
static char *name_of(char text[NAME_BYTES], const kn__fuse_plan *p) {
    size_t at = 0;
    for (int i = 0; i < p->n; i++) {
        if (i && kn__is_part(p, i) && kn__is_part(p, i - 1)) continue;
        kn_op op = kn__is_part(p, i) ? KN_OP_slice_back : (kn_op)p->expr[i]->op;
        int n = snprintf(text + at, NAME_BYTES - at, "%s%s", i ? "+" : "", kn_op_name(op));
        if ((size_t)n >= NAME_BYTES - at - 4) {
            if (i < p->n - 1) memcpy(text + at, "+...", 5);
            break;
        }
        at += (size_t)n;
    }
    return text;
}

/* "net.c:12,14,15": the places of calls whose results are still there, those of one file together.
 */
static char *where_of(char text[WHERE_BYTES], const kn__fuse_plan *p) {
    const char *file = NULL;
    int line = 0;
    size_t at = 0;
    text[0] = 0;
    for (int i = 0; i < p->n && at < WHERE_BYTES - 16; i++) {
        const kn_tensor *t = kn__expr_header(p->expr[i]->storage);
        if (!t || !t->file || (file == t->file && line == t->line)) continue;
        const char *slash = strrchr(t->file, '/'), *name = slash ? slash + 1 : t->file;
        bool is_same = file == t->file;
        int n = snprintf(text + at, WHERE_BYTES - at, "%s%s%s%d", at ? "," : "",
                         is_same ? "" : name, is_same ? "" : ":", t->line);
        if ((size_t)n >= WHERE_BYTES - at) {
            text[at] = 0;
            break;
        }
        at += (size_t)n;
        file = t->file;
        line = t->line;
    }
    return text;
}

size_t kn__fuse_plan_label(char text[KN__FUSED_LABEL_BYTES], const kn__fuse_plan *p) {
    name_of(text, p);
    size_t at = strlen(text) + 1;
    return at + strlen(where_of(text + at, p)) + 1;
}

kn_scope kn__fuse_label_begin(const char *label) {
    kn_scope off = {0};
    if (!kn_prof_is_on_(KN_PROF_GRAD_)) return off;
    return label[strlen(label) + 1] ? kn_scope_begin_copied_on_(label) : kn_scope_begin_on_(label);
}

kn_scope kn__fuse_plan_scope_begin(const kn__fuse_plan *p) {
    kn_scope off = {0};
    if (!kn_prof_is_on_(KN_PROF_GRAD_)) return off;
    char text[KN__FUSED_LABEL_BYTES];
    kn__fuse_plan_label(text, p);
    return kn__fuse_label_begin(text);
}

static void watch(const kn__fuse_plan *p, uint64_t bytes) {
    char name[NAME_BYTES], where[WHERE_BYTES];
    kn_op_event e = {.name = name_of(name, p), .n_ops = p->n, .moved_bytes = bytes};
    e.where = where_of(where, p);
    for (int i = 0; i < p->n; i++) {
        const kn__expr *x = p->expr[i];
        for (int k = 0; k < x->n_in && e.n_in < KN_OP_EVENT_IN; k++)
            if (x->in[k].storage && !x->in[k].storage->expr) e.in[e.n_in++] = x->in[k].storage;
        if (p->stored[i] || i == p->n - 1) e.out[e.n_out++] = x->storage;
    }
    e.y = kn__expr_header(p->expr[p->n - 1]->storage);
    kn__watch(&e);
}

uint64_t kn__fuse_plan_bytes(const kn__fuse_plan *p) {
    uint64_t bytes = p->whole ? p->whole->storage->size_bytes : 0;
    for (int i = 0; i < p->n; i++) {
        const kn__expr *e = p->expr[i];
        if (p->stored[i]) bytes += e->storage->size_bytes;
        for (int k = 0; k < e->n_in; k++) {
            const kn__fuse_operand *x = &e->in[k];
            if (x->storage && !x->storage->expr) bytes += (uint64_t)x->n * kn__dtype_size[x->dtype];
        }
    }
    return bytes;
}

void kn__fuse_plan_scope_end(kn_scope *scope, const kn__fuse_plan *p) {
    if (!scope->start) return;
    uint64_t bytes = kn__fuse_plan_bytes(p);
    kn_prof_metric(0, bytes);
    if (kn__is_watched()) watch(p, bytes);
    kn_scope_end(scope);
}
