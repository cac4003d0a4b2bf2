/* Running a plan's calls: one by one on the host, as a graph on a GPU. */
#include <knet/prof.h>
#include <stdlib.h>

#include "capture.h"
#include "run.h"
#include "work.h"

/* --- the calls --- */

static kn_status with_pieces(kn__plan *plan, kn__prepared *p) {
    kn__pieces pieces = {plan->pieces + p->piece, p->n_pieces, plan->on_gpu};
    kn__ops_self->pieces = &pieces;
    kn_status status = p->kernel(&p->call);
    kn__work_end(&p->call, 0);
    kn__ops_self->pieces = NULL;
    return status;
}

static inline kn_status run_one(kn__plan *plan, kn__prepared *p) {
    if (__builtin_expect(plan->on_gpu, 0)) return with_pieces(plan, p);
    kn_status status = p->kernel(&p->call);
    if (__builtin_expect(p->call.n_work, 0)) kn__work_end(&p->call, 0);
    return status;
}

static kn_status calls_between(kn__plan *plan, int32_t at, int32_t end_at) {
    for (kn__prepared *p = plan->calls + at, *end = plan->calls + end_at; p < end; p++) {
        kn_status status = run_one(plan, p);
        if (__builtin_expect(status < 0, 0)) {
            kn_error_op(kn_op_name((kn_op)p->call.op));
            return status;
        }
    }
    return KN_OK;
}

/* What a graph is made of are calls alone: its effects follow each launch. */
static int n_effects_of(const kn__plan *plan) { return plan->on_gpu ? 0 : plan->n_effects; }

static void effect_apply(kn__plan *plan) {
    const kn_capture_effect *e = &plan->effects[plan->n_applied++].effect;
    e->apply(e->ctx);
}

static bool is_last_applied(const kn__plan *plan, int i) {
    for (int later = i + 1; later < plan->n_applied; later++)
        if (plan->effects[later].effect.of == plan->effects[i].effect.of) return false;
    return true;
}

/* Objects that the replay left in the middle of something. */
static void effects_undo(kn__plan *plan) {
    for (int i = 0; i < plan->n_applied; i++) {
        const kn_capture_effect *e = &plan->effects[i].effect;
        if (e->undo && is_last_applied(plan, i)) e->undo(e->ctx);
    }
}

static kn_status calls_run(kn__plan *plan) {
    int32_t at = 0;
    for (int i = 0, n = n_effects_of(plan); i < n; at = plan->effects[i++].at) {
        KN_TRY(calls_between(plan, at, plan->effects[i].at));
        effect_apply(plan);
    }
    return calls_between(plan, at, plan->n_calls);
}

static kn_status run_timed(kn__plan *plan, kn__prepared *p) {
    bool is_pass = p->chain && !p->call.n_out;
    kn_scope op = is_pass ? (kn_scope){0} : kn_scope_begin_grad(kn__label_of(&p->call));
    kn_scope pass = p->chain ? kn__chain_note_begin(p->chain) : (kn_scope){0};
    kn_status status = run_one(plan, p);
    if (pass.start && kn__is_watched()) kn__plan_watch_pass(plan, p);
    if (p->chain) kn__chain_note_end(&pass, p->chain);
    if (op.start) kn__end_scope_as(&op, &p->call, kn__plan_event_names, plan);
    if (status < 0) kn_error_op(kn_op_name((kn_op)p->call.op));
    return status;
}

/* One row an op, in the scopes that it was recorded in, or else in one of their own. */
static kn_status calls_run_timed(kn__plan *plan) {
    kn__scopes open;
    open.n = 0;
    kn_scope own = plan->has_scopes ? (kn_scope){0} : kn_scope_begin_static("replay");
    kn_status status = KN_OK;
    int n = n_effects_of(plan);
    for (int32_t i = 0; i <= plan->n_calls && status == KN_OK; i++) {
        while (plan->n_applied < n && plan->effects[plan->n_applied].at == i) effect_apply(plan);
        if (i == plan->n_calls) break;
        kn__scopes_move(&open, plan, plan->calls[i].scope);
        status = run_timed(plan, &plan->calls[i]);
    }
    kn__scopes_move(&open, plan, -1);
    kn_scope_end(&own);
    return status;
}

kn_status kn__plan_calls_run(kn__plan *plan) {
    plan->n_applied = 0;
    kn_status status = kn_prof_is_on_(KN_PROF_GRAD_) ? calls_run_timed(plan) : calls_run(plan);
    if (status < 0) effects_undo(plan);
    return status;
}

/* --- a graph --- */

static kn_status enqueue(void *ctx, kn_stream stream) {
    kn__plan *plan = ctx;
    for (int32_t i = 0; i < plan->n_calls; i++) plan->calls[i].call.stream = stream;
    return kn__plan_calls_run(plan);
}

kn_status kn__plan_graph_make(kn__plan *plan) {
    const kn__cuda_exports *module = kn__cuda_module();
    if (!module) return kn_last_error()->status;
    KN_TRY(kn_event_create(&plan->launched, plan->device));
    plan->launched_on = plan->stream;
    KN_TRY(kn_event_record(plan->launched, plan->stream)); /* results were moved there */
    if (!plan->n_calls) return KN_OK;
    return module->graph_make(&plan->graph, plan->device, enqueue, plan);
}

void kn__plan_graph_end(kn__plan *plan) {
    kn_event_destroy(plan->launched);
    if (plan->graph) kn__cuda_module_loaded()->graph_destroy(plan->graph, plan->device);
}

static kn_status input_copy(kn__plan *plan, int i, kn__ops_thread *self, kn_tensor *t,
                            kn_stream stream) {
    const kn__plan_input *in = &plan->inputs[i];
    if (!in->size_bytes || plan->buffers[in->buffer].last < 0) return KN_OK;
    KN_TRY(kn__await_writer(self, t->storage, stream));
    KN_TRY(kn_device_copy(plan->device, in->data, plan->device, t->data, in->size_bytes, stream));
    return kn__use(self, t->storage, stream);
}

static kn_status outside_await(kn__plan *plan, kn__ops_thread *self, kn_stream stream) {
    for (uint32_t i = 0; i < plan->n_written; i++)
        KN_TRY(kn__claim(self, plan->outside[i], stream));
    for (uint32_t i = plan->n_written; i < plan->n_outside; i++)
        KN_TRY(kn__await_writer(self, plan->outside[i], stream));
    return KN_OK;
}

/* What the graph used is not free before the launch is done. */
static kn_status outside_use(kn__plan *plan, kn__ops_thread *self, kn_stream stream) {
    for (uint32_t i = plan->n_written; i < plan->n_outside; i++)
        KN_TRY(kn__use(self, plan->outside[i], stream));
    for (int i = 0; i < plan->n_out; i++) {
        kn_storage *s = plan->out[i]->storage;
        if (kn__region_has(plan->region, s->data)) s->stream = stream;
    }
    if (plan->stream == stream) return KN_OK;
    return kn_block_use(plan->region->pool, plan->region->data, stream);
}

/* Results of the launch before may be read on other streams still. */
static kn_status readers_await(const kn__plan *plan, kn__ops_thread *self, kn_stream stream) {
    for (int i = 0; i < plan->n_out; i++) {
        const kn_storage *s = plan->out[i]->storage;
        if (kn__region_has(plan->region, s->data)) return kn__await_readers(self, s, stream);
    }
    return KN_OK;
}

/* Launches of one graph follow each other on any streams. The copies of inputs don't: a launch on
 * another stream than the last one waits for it. */
kn_status kn__plan_graph_launch(kn__plan *plan, kn_tensor *const in[]) {
    kn__ops_thread *self = kn__ops_self;
    kn_pool *pool = NULL;
    kn_stream stream = NULL;
    KN_TRY(kn__place(&pool, &stream, self, plan->device));
    if (plan->launched_on != stream) KN_TRY(kn_event_wait(plan->launched, stream));
    KN_TRY(readers_await(plan, self, stream));
    for (int i = 0; i < plan->n_inputs; i++) KN_TRY(input_copy(plan, i, self, in[i], stream));
    KN_TRY(outside_await(plan, self, stream));
    if (plan->graph) KN_TRY(kn__cuda_module()->graph_launch(plan->graph, plan->device, stream));
    plan->launched_on = stream;
    KN_TRY(kn_event_record(plan->launched, stream));
    return outside_use(plan, self, stream);
}
