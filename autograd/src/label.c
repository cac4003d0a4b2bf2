/* Names of derivatives' scopes. */
#include <stdio.h>
#include <stdlib.h>

#include "tape.h"

enum { LABELS = 4 }; /* the last one serves all inputs after it */

/* Knet's AUTOGRAD_TIMER counts arguments from 1. */
static const char *const counted[KN_OP_COUNT][LABELS] = {
#define KN_ROW1(name, ...) [KN_OP_##name] = {#name "[1]"},
#define KN_ROW2(name, ...) [KN_OP_##name] = {#name "[1]", #name "[2]"},
#define KN_ROW3(name, ...) [KN_OP_##name] = {#name "[1]", #name "[2]", #name "[3]"},
#define KN_OP(name, ...) [KN_OP_##name] = {#name "[1]", #name "[2]", #name "[3]", #name "[4…]"},
#include <knet/ops.def>
};

/* Made at first use. */
static _Atomic(char *) named[KN_OP_COUNT][LABELS];

/* Layers' weights and biases have a letter each in ops.def. */
static const char *input_name(const kn_op_info *info, int i) {
    const char *name = i < KN_IN_NAMED ? info->in_name[i] : NULL;
    bool is_layer = !info->row && info->in_name[1] && strcmp(info->in_name[1], "w") == 0;
    if (!name) return NULL;
    if (is_layer && i == 1) return "weight";
    return is_layer && strcmp(name, "b") == 0 ? "bias" : name;
}

static char *label_make(int op, int i) {
    char text[96];
    const kn_op_info *info = &kn_op_table[op];
    const char *input = info->flags & KN_FLAG_MANY ? NULL : input_name(info, i);
    if (input)
        snprintf(text, sizeof text, "%s  d %s", info->name, input);
    else
        snprintf(text, sizeof text, "%s  d input %d%s", info->name, i + 1,
                 i == LABELS - 1 ? "…" : "");
    return strdup(text);
}

const char *kn__derivative_label(int op, int i) {
    if (i >= LABELS) i = LABELS - 1;
    if (!kn_prof_is_on_(KN_PROF_ALL_)) return counted[op][i];
    char *label = atomic_load_explicit(&named[op][i], memory_order_acquire), *none = NULL;
    if (label) return label;
    label = label_make(op, i);
    if (!label) return counted[op][i];
    if (atomic_compare_exchange_strong(&named[op][i], &none, label)) return label;
    free(label);
    return none;
}

/* --- of a rule that delivers all gradients --- */

typedef struct set_label {
    struct set_label *next;
    unsigned inputs;
    bool by_name;
    char text[];
} set_label;

static _Atomic(set_label *) sets[KN_OP_COUNT];

/* "layernorm[1,2]", or "layernorm  d x,weight". */
static void set_write(char *text, size_t bytes, int op, unsigned inputs, bool by_name) {
    const kn_op_info *info = &kn_op_table[op];
    size_t n = (size_t)snprintf(text, bytes, by_name ? "%s  d " : "%s[", info->name);
    const char *comma = "";
    for (int i = 0; i < KN_IN_NAMED && n < bytes; i++) {
        if (!(inputs >> i & 1)) continue;
        const char *name = by_name ? input_name(info, i) : NULL;
        if (name)
            n += (size_t)snprintf(text + n, bytes - n, "%s%s", comma, name);
        else
            n += (size_t)snprintf(text + n, bytes - n, "%s%d", comma, i + 1);
        comma = ",";
    }
    if (!by_name && n < bytes) snprintf(text + n, bytes - n, "]");
}

/* Labels are few: those of the sets of inputs that programs ask for. */
const char *kn__derivatives_label(int op, unsigned inputs) {
    enum { BYTES = 128 };
    const bool by_name = kn_prof_is_on_(KN_PROF_ALL_);
    set_label *first = atomic_load_explicit(&sets[op], memory_order_acquire);
    for (set_label *l = first; l; l = l->next)
        if (l->inputs == inputs && l->by_name == by_name) return l->text;
    set_label *made = malloc(sizeof *made + BYTES);
    if (!made) return counted[op][0];
    made->inputs = inputs;
    made->by_name = by_name;
    made->next = first;
    set_write(made->text, BYTES, op, inputs, by_name);
    while (!atomic_compare_exchange_weak(&sets[op], &made->next, made)) continue;
    return made->text;
}
