/* A set's parameters, on one device or several. The user's set has those of its device; each other
 * device has a set of its own, with an arena of gradients, in the list that `next` makes. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "params.h"

#define KN_EACH_PART(part, params) for (kn_params *part = (params); part; part = part->next)

int kn_params_count(const kn_params *params) {
    int n = 0;
    for (; params; params = params->next) n += params->n;
    return n;
}

int64_t kn_params_numel(const kn_params *params) {
    int64_t n = 0;
    for (; params; params = params->next) n += params->numel;
    return n;
}

kn_tensor *kn_params_at(kn_params *params, int i, const char **name) {
    int at = i;
    KN_EACH_PART(part, at < 0 ? NULL : params) {
        if (at < part->n) {
            if (name) *name = part->param[at]->name;
            return part->param[at]->w;
        }
        at -= part->n;
    }
    return KN_FAIL_NULL(KN_ERR_INVALID, "kn_params_at: there is no parameter %d of %d", i,
                        kn_params_count(params));
}

kn_tensor *kn_params_find(kn_params *params, const char *name) {
    if (!params || !name)
        return KN_FAIL_NULL(KN_ERR_INVALID, "kn_params_find: %s is NULL",
                            params ? "name" : "params");
    KN_EACH_PART(part, params)
    for (int i = 0; i < part->n; i++)
        if (!strcmp(part->param[i]->name, name)) return part->param[i]->w;
    return NULL;
}

void kn_params_on_grad(kn_params *params, kn_grad_ready_fn fn, void *ctx) {
    KN_EACH_PART(part, params) {
        part->on_grad = fn;
        part->on_grad_ctx = ctx;
    }
}

void kn_params_on_void(kn_params *params, kn_grad_void_fn fn, void *ctx) {
    KN_EACH_PART(part, params) {
        part->on_void = fn;
        part->on_void_ctx = ctx;
    }
}

/* --- sets that a tape keeps --- */

/* Without host memory it keeps none more. */
bool kn__param_recorded(kn__param *p, kn__tape *tape) {
    kn_params *head = p->set->head;
    if (p->is_frozen) return false;
    for (int i = tape->n_sets - 1; i >= 0; i--)
        if (tape->set[i] == head) return true;
    if (tape->n_sets == tape->sets_cap) {
        int cap = tape->sets_cap ? 2 * tape->sets_cap : 4;
        kn_params **set = realloc(tape->set, (size_t)cap * sizeof(kn_params *));
        if (!set) return true;
        tape->set = set;
        tape->sets_cap = cap;
    }
    tape->set[tape->n_sets++] = kn__params_retain(head);
    return true;
}

void kn__tape_sets_release(kn__tape *tape) {
    while (tape->n_sets) kn__params_release(tape->set[--tape->n_sets]);
}

/* --- the order of the gradients: one part after the other --- */

static void part_order(int order[], const kn_params *part, int first) {
    for (int i = 0; i < part->n; i++) order[i] = -1;
    for (int i = 0; part->ordered && part->flat && i < part->n; i++)
        order[part->param[i]->place] = first + i;
}

void kn_params_order(int order[], const kn_params *params) {
    for (int first = 0; params; first += params->n, params = params->next)
        part_order(order + first, params, first);
}

/* False: not a permutation of first … first + n - 1. */
static bool part_order_take(kn_params *part, const int order[], int first) {
    kn__params_order_forget(part);
    for (int k = 0; k < part->n; k++) {
        int i = order[k] - first;
        if (i < 0 || i >= part->n || part->param[i]->order != INT_MAX) return false;
        part->param[i]->order = k;
    }
    return true;
}

static kn_status order_take(kn_params *params, const int order[]) {
    int first = 0;
    KN_EACH_PART(part, params) {
        if (!part_order_take(part, order + first, first))
            return KN_FAIL(KN_ERR_INVALID, "kn_params_order_set: not a permutation of %d … %d",
                           first, first + part->n - 1);
        KN_TRY(kn__params_order_check(part));
        first += part->n;
    }
    KN_EACH_PART(part, params) KN_TRY(kn__params_order_fix(part));
    return KN_OK;
}

static kn_status order_is_open(const kn_params *params) {
    for (; params; params = params->next) {
        if (params->flat && params->ordered)
            return KN_FAIL(KN_ERR_INVALID,
                           "kn_params_order_set: the order is final already; set it before the "
                           "first backward or step");
        if (params->in_pass)
            return KN_FAIL(KN_ERR_INVALID,
                           "kn_params_order_set: inside a kn_backward, which makes the order: set "
                           "it before");
    }
    return KN_OK;
}

kn_status kn_params_order_set(kn_params *params, const int order[], int n) {
    KN_TRY(kn_check());
    if (!params || !order)
        return KN_FAIL(KN_ERR_INVALID, "kn_params_order_set: %s is NULL",
                       params ? "order" : "params");
    if (n != kn_params_count(params))
        return KN_FAIL(KN_ERR_INVALID, "kn_params_order_set: an order of %d parameters for %d", n,
                       kn_params_count(params));
    KN_TRY(order_is_open(params));
    kn_status status = order_take(params, order);
    KN_EACH_PART(part, status < 0 ? params : NULL)
    if (!part->flat || !part->ordered) kn__params_order_forget(part);
    return status;
}

/* --- one parameter on another device --- */

kn_status kn__params_movable(const char *name, const kn_params *params) {
    if (!params->flat && atomic_load(&params->refs) == 1) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID,
                   "%s: move parameters before the first backward and before optimisers are made",
                   name);
}

kn_status kn__params_together(const char *name, const kn_params *params) {
    if (!params->next) return KN_OK;
    return KN_FAIL(KN_ERR_UNSUPPORTED, "%s: the parameters lie on %s and %s", name,
                   kn_device_name(params->device), kn_device_name(params->next->device));
}

kn_status kn__params_own(const char *name, const kn_params *params) {
    if (!params->swapped) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID,
                   "%s: the weights are averages, which kn_ema_swap put there: exchange them again "
                   "before",
                   name);
}

static kn_status part_find(kn_params **out, kn_params *head, kn_device *device) {
    kn_params *last = head;
    KN_EACH_PART(part, head) {
        last = part;
        *out = part;
        if (part->device == device) return KN_OK;
    }
    KN_TRY(kn_params_create(
        out, &(kn_params_options){.device = device, .dtype = head->dtype, .seed = head->seed}));
    last->next = *out;
    (*out)->head = head;
    (*out)->on_grad = head->on_grad;
    (*out)->on_grad_ctx = head->on_grad_ctx;
    (*out)->on_void = head->on_void;
    (*out)->on_void_ctx = head->on_void_ctx;
    return KN_OK;
}

static void part_change(kn__param *p, kn_params *to) {
    kn_params *from = p->set;
    from->n--;
    for (int i = p->index; i < from->n; i++) {
        from->param[i] = from->param[i + 1];
        from->param[i]->index = i;
    }
    from->numel -= p->w->n;
    to->has_frozen |= p->is_frozen;
    p->set = to;
    p->index = to->n;
    to->param[to->n++] = p;
    to->numel += p->w->n;
}

kn_status kn_param_to(kn_tensor *w, kn_device *device) {
    KN_TRY(kn_check());
    const char *problem = kn_tensor_problem(w);
    if (problem) return KN_FAIL(KN_ERR_INVALID, "kn_param_to: w %s", problem);
    kn__param *p = kn__edge_param(w->grad);
    if (!p || !device)
        return KN_FAIL(KN_ERR_INVALID, "kn_param_to: %s",
                       device ? "w is no parameter" : "device is NULL");
    if (p->set->device == device) return KN_OK;
    KN_EACH_PART(part, p->set->head) KN_TRY(kn__params_movable("kn_param_to", part));
    kn_params *to = NULL;
    KN_TRY(part_find(&to, p->set->head, device));
    if (!kn__params_grow(to)) return KN_FAIL(KN_ERR_OOM, "kn_param_to: no host memory");
    KN_FRAME(.device = device, .pool = to->pool, .record = KN_OFF);
    kn_tensor *moved = kn_to(w, device);
    if (!moved) return kn_check();
    kn__tensor_swap_place(w, moved);
    part_change(p, to);
    return KN_OK;
}

/* --- frozen parameters --- */

kn_status kn_params_freeze(kn_params *params, const char *prefix, bool frozen) {
    KN_TRY(kn_check());
    if (!params || !prefix)
        return KN_FAIL(KN_ERR_INVALID, "kn_params_freeze: %s is NULL",
                       params ? "prefix" : "params");
    if (kn_capture_records())
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_params_freeze: inside a captured step, whose replays would not do it: "
                       "call it before the step");
    int n = 0;
    KN_EACH_PART(part, params)
    for (int i = 0; i < part->n; i++) {
        kn__param *p = part->param[i];
        if (strncmp(p->name, prefix, strlen(prefix)) != 0) continue;
        p->is_frozen = frozen;
        part->has_frozen |= frozen;
        n++;
    }
    if (n) return KN_OK;
    return KN_FAIL(KN_ERR_INVALID, "kn_params_freeze: no parameter's name begins with '%s'",
                   prefix);
}

void kn_params_grad_begin(kn_params *params) {
    KN_EACH_PART(set, params) kn__params_cycle_begin(set);
}

uint64_t kn_params_begun(const kn_params *params) { return params->n_begun; }

void kn_params_grad_zero(kn_params *params) {
    KN_EACH_PART(set, params) {
        kn__params_effect_zero(set);
        set->cycle++;
        set->n_begun++;
        set->stepped = false;
    }
}

void kn__params_void(kn_params *set) {
    if (set->on_void) set->on_void(set->on_void_ctx);
    kn__params_effect_void(set);
    set->cycle++;
}

void kn__param_void(kn__param *p) { KN_EACH_PART(set, p->set->head) kn__params_void(set); }
