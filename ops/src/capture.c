/* Captured steps: recording, replaying, and which plans are kept. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "checked.h"
#include "fuse.h"
#include "run.h"

enum { PLANS_DEFAULT = 8 };

/* --- life cycle --- */

kn_status kn_capture_create(kn_capture **out, const kn_capture_options *options) {
    static const kn_capture_options none = {0};
    const kn_capture_options *o = options ? options : &none;
    KN_TRY(kn_check());
    if (!out) return KN_FAIL(KN_ERR_INVALID, "kn_capture_create: out is NULL");
    if (o->plans_max < 0 || o->reserved[0] || o->reserved[1] || o->reserved[2]) {
        return KN_FAIL(KN_ERR_INVALID, "kn_capture_create: plans_max is %d, %s", o->plans_max,
                       o->plans_max < 0 ? "less than 0" : "and a reserved field is not zero");
    }
    int n = o->plans_max ? o->plans_max : PLANS_DEFAULT;
    kn_capture *capture = calloc(1, sizeof *capture);
    kn__plan **plans = capture ? calloc((size_t)n, sizeof *plans) : NULL;
    if (!plans) {
        free(capture);
        return KN_FAIL(KN_ERR_OOM, "kn_capture_create: no host memory for %d plans", n);
    }
    capture->plans = plans;
    capture->plans_max = n;
    *out = capture;
    return KN_OK;
}

static void plans_free(kn_capture *capture) {
    for (int i = 0; i < capture->n_plans; i++) kn__plan_free(capture->plans[i]);
    capture->n_plans = 0;
    capture->last = NULL;
    kn__hash_clear(&capture->seen, sizeof(kn__seen));
}

void kn_capture_destroy(kn_capture *capture) {
    if (!capture) return;
    kn_capture_cancel(capture);
    plans_free(capture);
    kn__hash_release(&capture->seen);
    free(capture->plans);
    free(capture);
}

kn_status kn_capture_reset(kn_capture *capture) {
    KN_TRY(kn_check());
    if (!capture) return KN_FAIL(KN_ERR_INVALID, "kn_capture_reset: capture is NULL");
    if (capture->recording)
        return KN_FAIL(KN_ERR_INVALID, "kn_capture_reset: the capture records a step");
    plans_free(capture);
    return KN_OK;
}

void kn_capture_select(kn_capture *capture, uint64_t variant) { capture->variant = variant; }

void kn_capture_stats_read(kn_capture_stats *out, size_t out_bytes, const kn_capture *capture) {
    kn_capture_stats s = {.n_plans = (uint64_t)capture->n_plans,
                          .n_recorded = capture->n_recorded,
                          .n_launches = capture->n_launches};
    if (capture->last) {
        s.n_calls = (uint64_t)capture->last->n_calls;
        s.plan_bytes = capture->last->region->size_bytes;
    }
    memcpy(out, &s, out_bytes < sizeof s ? out_bytes : sizeof s);
}

/* --- queries --- */

bool kn_capture_records(void) { return kn__ops_self && kn__ops_self->capture; }

uint64_t kn_layout_calls(void) { return kn__ops_self ? kn__ops_self->n_layouts : 0; }

void kn_capture_effect_add(kn_capture_effect effect) {
    kn__plan *plan = kn__ops_self->capture;
    size_t n = (size_t)plan->n_effects + 1;
    kn__effect *all = effect.ctx ? realloc(plan->effects, n * sizeof *all) : NULL;
    if (!all) {
        plan->status = KN_ERR_OOM;
        if (effect.ctx) effect.release(effect.ctx);
        return;
    }
    plan->effects = all;
    for (int i = 0; i < plan->n_effects; i++)
        if (all[i].effect.of == effect.of) effect.fits = NULL; /* it finds what that one left */
    all[plan->n_effects++] = (kn__effect){effect, plan->n_calls};
}

/* --- inputs --- */

static kn_status input_check(const char *name, kn_tensor *t, int i, const kn_tensor *first) {
    char text[64];
    snprintf(text, sizeof text, "%s: in[%d]", name, i);
    if (!kn__is_whole(t)) return kn__fail_unreadable(text, t);
    KN_TRY(kn__compute(t));
    if (t->storage->device == first->storage->device) return KN_OK;
    return KN_FAIL(KN_ERR_DEVICE, "%s: in[%d] is on %s, in[0] on %s", name, i,
                   kn_device_name(t->storage->device), kn_device_name(first->storage->device));
}

kn_status kn__capture_inputs_check(const char *name, kn_tensor *const in[], int n_in) {
    KN_TRY(kn_check());
    if (n_in < 0) return KN_FAIL(KN_ERR_INVALID, "%s: n_in is %d", name, n_in);
    for (int i = 0; i < n_in; i++) KN_TRY(input_check(name, in[i], i, in[0]));
    return KN_OK;
}

kn_status kn__capture_edges_check(const char *name, kn_tensor *const in[], int n_in) {
    for (int i = 0; i < n_in; i++) {
        if (!kn_op_recording(&in[i], 1)) continue;
        return KN_FAIL(KN_ERR_INVALID,
                       "%s: in[%d] wants a gradient, which a captured step doesn't give: kn_detach "
                       "it, or open the tape inside the step",
                       name, i);
    }
    return KN_OK;
}

static bool overlap(const kn__plan_input *a, const kn__plan_input *b) {
    return a->data < b->data + b->size_bytes && b->data < a->data + a->size_bytes;
}

static kn_status inputs_note(kn__plan *plan, kn_tensor *const in[], int n_in) {
    plan->inputs = calloc((size_t)n_in + 1, sizeof *plan->inputs);
    if (!plan->inputs) return KN_FAIL(KN_ERR_OOM, "kn_capture_begin: no host memory");
    for (int i = 0; i < n_in; i++) {
        kn__plan_input *own = &plan->inputs[i];
        *own = (kn__plan_input){.t = in[i], .storage = in[i]->storage, .data = in[i]->data};
        own->size_bytes = (size_t)in[i]->n * kn__dtype_size[in[i]->dtype];
        own->n_dims = in[i]->n_dims;
        own->dtype = in[i]->dtype;
        memcpy(own->dim, in[i]->dim, sizeof own->dim);
        for (int k = 0; k < i && own->size_bytes; k++) {
            if (!overlap(own, &plan->inputs[k])) continue;
            return KN_FAIL(KN_ERR_INVALID, "kn_capture_begin: in[%d] shares memory with in[%d]", i,
                           k);
        }
    }
    plan->n_inputs = n_in;
    return KN_OK;
}

static bool input_fits(const kn__plan_input *own, const kn_tensor *t) {
    return own->dtype == t->dtype && own->n_dims == t->n_dims &&
           !memcmp(own->dim, t->dim, (size_t)t->n_dims * sizeof t->dim[0]);
}

static bool effects_fit(const kn__plan *plan) {
    bool fit = true;
    for (int i = 0; i < plan->n_effects && fit; i++) {
        const kn_capture_effect *e = &plan->effects[i].effect;
        fit = !e->fits || e->fits(e->ctx);
    }
    return fit;
}

/* What the frame says of results: dtypes and precision. */
uint32_t kn__capture_settings(void) {
    return (uint32_t)kn_frame_dtype() | (uint32_t)kn_frame_autocast() << 8 |
           (uint32_t)kn_frame_math() << 16;
}

/* The plan for these inputs and the state that there is. *others: one is for another state. */
static kn__plan *find(bool *others, const kn_capture *capture, kn_tensor *const in[], int n_in) {
    uint32_t settings = kn__capture_settings();
    *others = false;
    for (int i = 0; i < capture->n_plans; i++) {
        kn__plan *plan = capture->plans[i];
        bool fits = plan->n_inputs == n_in && plan->variant == capture->variant &&
                    plan->settings == settings && (n_in || plan->device == kn_frame_device());
        for (int k = 0; k < n_in && fits; k++) {
            fits = in[k] && kn__is_whole(in[k]) && in[k]->storage->device == plan->device &&
                   input_fits(&plan->inputs[k], in[k]);
        }
        if (fits && effects_fit(plan)) return plan;
        *others |= fits;
    }
    return NULL;
}

bool kn_capture_has(const kn_capture *capture, kn_tensor *const in[], int n_in) {
    bool others;
    return capture && find(&others, capture, in, n_in);
}

/* --- recording --- */

/* A plan that failed to open, was recorded, or is not wanted. */
static void records_no_more(void) {
    uint32_t before = atomic_fetch_sub_explicit(&kn__n_recordings, 1, memory_order_release);
    KN_ASSERT(before > 0);
    if (before == 1) kn__records_trim();
}

static kn_status can_begin(const kn_capture *capture, const kn__ops_thread *self) {
    if (self->capture || capture->recording) {
        return KN_FAIL(KN_ERR_INVALID, "kn_capture_begin: %s records a step already",
                       self->capture ? "this thread" : "the capture");
    }
    if (kn_frame_recording()) {
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_capture_begin: a tape is open; open it inside the captured step");
    }
    return KN_OK;
}

static kn_status plan_open(kn__plan *plan, kn__ops_thread *self, kn_tensor *const in[], int n_in) {
    plan->hooks = &kn__plan_records;
    plan->device = n_in ? in[0]->storage->device : kn_frame_device();
    plan->on_gpu = plan->device != self->host;
    if (plan->on_gpu && kn_device_kind_get(plan->device) != KN_DEVICE_CUDA) {
        return KN_FAIL(KN_ERR_UNSUPPORTED, "kn_capture_begin: steps on %s can't be captured",
                       kn_device_name(plan->device));
    }
    KN_TRY(inputs_note(plan, in, n_in));
    if (plan->on_gpu) KN_TRY(kn__plan_inputs_place(plan));
    KN_TRY(kn__fuse_all(self));
    int fuse = plan->on_gpu ? KN_OFF : 0; /* on the host: as it is */
    plan->frame = kn_frame_begin(&(kn_frame_options){.device = plan->device, .fuse = fuse});
    KN_TRY(kn_check());
    plan->settings = kn__capture_settings();
    plan->pool = kn_frame_pool();
    plan->stream = kn_frame_stream();
    kn__plan_scopes_begin(plan);
    return KN_OK;
}

kn_status kn_capture_begin(kn_capture *capture, kn_tensor *const in[], int n_in) {
    KN_TRY(kn__capture_inputs_check("kn_capture_begin", in, n_in));
    kn__ops_thread *self = kn__ops_thread_get();
    if (!self) return kn_check();
    if (!capture) return KN_FAIL(KN_ERR_INVALID, "kn_capture_begin: capture is NULL");
    KN_TRY(can_begin(capture, self));
    kn__plan *plan = calloc(1, sizeof *plan);
    if (!plan) return KN_FAIL(KN_ERR_OOM, "kn_capture_begin: no host memory");
    atomic_fetch_add_explicit(&kn__n_recordings, 1, memory_order_relaxed);
    kn_status status = plan_open(plan, self, in, n_in);
    if (status < 0) {
        records_no_more();
        kn__plan_free(plan);
        return status;
    }
    bool others;
    plan->variant = capture->variant;
    capture->replaced = find(&others, capture, in, n_in);
    KN_ASSERT(!capture->recording && !self->capture);
    capture->recording = self->capture = plan;
    return KN_OK;
}

/* Ends the recording; the frame ends while storages are still told of. A thread that ended has done
 * so: its frames' numbers may be those of this one's. */
static kn__plan *recording_end(kn_capture *capture) {
    kn__plan *plan = capture->recording;
    kn__ops_thread *self = kn__ops_self;
    KN_ASSERT(plan);
    if (self && self->capture == plan) {
        kn_frame_end(&plan->frame);
        self->capture = NULL;
    }
    capture->recording = NULL;
    return plan;
}

void kn_capture_cancel(kn_capture *capture) {
    if (!capture || !capture->recording) return;
    kn__plan_free(recording_end(capture));
    records_no_more();
}

static kn_status fail_survivor(const kn_storage *s, unsigned op) {
    const kn_tensor *t = (const kn_tensor *)((const char *)s - offsetof(kn_tensor, own));
    char shape[256];
    return KN_FAIL(KN_ERR_INVALID,
                   "kn_capture_end: a tensor made inside by %s %s (%s:%d) lives on, and replays "
                   "would not write it: write one made before the step, as kn_set_into does, or "
                   "list it in out and read kn_capture_out",
                   op < KN_OP_COUNT ? kn_op_name((kn_op)op) : "kn_tensor_new",
                   kn_shape_text(shape, sizeof shape, kn_tensor_shape(t)), t->file ? t->file : "?",
                   t->file ? t->line : 0);
}

/* Whether somebody beside the plan holds a result: frames that it was moved to don't count. */
static bool is_held(const kn__plan *plan, const kn_storage *s, uint32_t n_users) {
    uint32_t n_own = 0;
    for (int i = 0; i < plan->n_out; i++) {
        const kn_tensor *t = plan->out[i];
        if (t->storage != s) continue;
        if (atomic_load_explicit(&t->holds, memory_order_relaxed)) return true;
        int k = 0;
        while (plan->out[k] != t) k++;
        n_own += k == i; /* not listed before */
    }
    return n_users > n_own;
}

/* A tensor made inside that somebody holds: a replay writes other memory, also of results. */
static kn_status no_survivors(kn__plan *plan) {
    const kn__expr *pending = kn__ops_self->pending; /* all were computed when the step began */
    if (pending) return fail_survivor(pending->storage, pending->op);
    for (uint32_t i = 0; i < plan->n_buffers; i++) {
        const kn__buffer *b = &plan->buffers[i];
        uint32_t n_users = b->inside ? kn__plan_users(plan, i) : 0;
        if (n_users && !(b->is_out && !is_held(plan, b->storage, n_users)))
            return fail_survivor(b->storage, b->op);
    }
    return KN_OK;
}

/* Of a storage that the step writes: the inputs that lie in it are written. On a GPU those are
 * copies. */
static kn_status inputs_write(kn__plan *plan, kn__buffer *b) {
    for (int i = 0; i < plan->n_inputs; i++) {
        if (plan->inputs[i].storage != b->storage) continue;
        if (plan->on_gpu) {
            return KN_FAIL(KN_ERR_UNSUPPORTED,
                           "kn_capture_end: the step writes into in[%d], which replays on %s read "
                           "from a copy: copy it inside",
                           i, kn_device_name(plan->device));
        }
        plan->inputs[i].written = true;
        b->written = b->read; /* else it is the inputs alone */
    }
    return KN_OK;
}

static kn_status outside_list(kn__plan *plan) {
    plan->outside = calloc((size_t)plan->n_buffers + 1, sizeof *plan->outside);
    if (!plan->outside) return KN_FAIL(KN_ERR_OOM, "kn_capture_end: no host memory");
    for (uint32_t i = 0; i < plan->n_buffers; i++) {
        kn__buffer *b = &plan->buffers[i];
        if (!b->written || b->inside) continue;
        KN_TRY(inputs_write(plan, b));
        if (b->written) plan->outside[plan->n_written++] = b->storage;
    }
    KN_ASSERT(plan->n_written <= plan->n_buffers);
    plan->n_outside = plan->n_written;
    for (uint32_t i = 0; i < plan->n_buffers; i++) {
        const kn__buffer *b = &plan->buffers[i];
        if (b->read && !b->written && !b->inside) plan->outside[plan->n_outside++] = b->storage;
    }
    return KN_OK;
}

static kn_status out_check(kn__plan *plan, kn_tensor *t, int i) {
    char name[64];
    snprintf(name, sizeof name, "kn_capture_end: out[%d]", i);
    if (!kn__is_whole(t)) return kn__fail_unreadable(name, t);
    KN_TRY(kn__compute(t));
    if (!t->data) return KN_OK;
    int64_t b = kn__plan_buffer(plan, t->storage);
    if (b < 0) return KN_FAIL(KN_ERR_OOM, "%s: no host memory", name);
    size_t n_bytes = (size_t)t->n * kn__dtype_size[t->dtype];
    int input = kn__is_of_input(plan, t) ? kn__plan_input_of(plan, b, t->data, n_bytes) : -1;
    if (input >= 0) {
        return KN_FAIL(KN_ERR_INVALID,
                       "%s is in[%d] or a view of it, which another tensor takes the place of in a "
                       "replay: copy it inside",
                       name, input);
    }
    plan->buffers[b].is_out = plan->buffers[b].inside;
    return KN_OK;
}

/* Shares of the step's own tensors, until those of the plan are there. */
static kn_status outs_note(kn__plan *plan, kn_tensor *const out[], int n_out) {
    if (n_out < 0) return KN_FAIL(KN_ERR_INVALID, "kn_capture_end: n_out is %d", n_out);
    plan->out = calloc((size_t)n_out + 1, sizeof *plan->out);
    if (!plan->out) return KN_FAIL(KN_ERR_OOM, "kn_capture_end: no host memory");
    for (int i = 0; i < n_out; i++) {
        KN_TRY(out_check(plan, out[i], i));
        plan->out[plan->n_out++] = kn_tensor_retain(out[i]);
    }
    return KN_OK;
}

/* The tensor that replays write in place of t, with its data. */
static kn_status out_move(kn__plan *plan, kn_tensor **out) {
    kn_tensor *t = *out;
    if (!t->data) return KN_OK;
    const kn__buffer *b = &plan->buffers[kn__plan_buffer(plan, t->storage)];
    if (!b->inside) return KN_OK;
    char *to = (char *)plan->region->data + b->offset + ((char *)t->data - b->data);
    KN_ASSERT(kn__region_has(plan->region, to));
    kn_owner owner = kn__region_owner(plan->region);
    kn_tensor *own =
        kn_tensor_adopt(plan->device, (kn_dtype)t->dtype, kn_tensor_shape(t), to, owner);
    if (!own) return kn_check();
    atomic_fetch_add_explicit(&plan->region->refs, 1, memory_order_relaxed);
    *out = kn_tensor_detach_frame(own);
    size_t n_bytes = (size_t)t->n * kn__dtype_size[t->dtype];
    kn_status status = KN_OK;
    if (plan->on_gpu)
        status = kn_device_copy(plan->device, to, plan->device, t->data, n_bytes, plan->stream);
    else
        memcpy(to, t->data, n_bytes);
    kn_tensor_release(t);
    return status;
}

static kn_status outs_move(kn__plan *plan) {
    KN_FRAME(.device = plan->device, .pool = plan->pool, .stream = plan->stream, .record = KN_OFF);
    KN_TRY(kn_check());
    for (int i = 0; i < plan->n_out; i++) KN_TRY(out_move(plan, &plan->out[i]));
    return KN_OK;
}

static kn_status plan_finish(kn__plan *plan) {
    if (plan->status < 0) {
        return KN_FAIL(plan->status, "kn_capture_end: no host memory for a plan of %d calls",
                       plan->n_calls);
    }
    KN_TRY(no_survivors(plan));
    KN_TRY(outside_list(plan));
    KN_TRY(kn__plan_place(plan));
    KN_TRY(outs_move(plan));
    return plan->on_gpu ? kn__plan_graph_make(plan) : KN_OK;
}

/* Where a new plan goes: in place of the one for the same inputs and state, or, if all places are
 * taken, of the one that was used the longest time ago. */
static int place_for_new(const kn_capture *capture) {
    for (int i = 0; i < capture->n_plans; i++)
        if (capture->plans[i] == capture->replaced) return i;
    if (capture->n_plans < capture->plans_max) return capture->n_plans;
    int at = 0;
    for (int i = 1; i < capture->n_plans; i++)
        if (capture->plans[i]->used < capture->plans[at]->used) at = i;
    return at;
}

static void plan_keep(kn_capture *capture, kn__plan *plan) {
    KN_ASSERT(!capture->recording && capture->n_plans <= capture->plans_max);
    int at = place_for_new(capture);
    if (at < capture->n_plans)
        kn__plan_free(capture->plans[at]);
    else
        capture->n_plans++;
    capture->plans[at] = plan;
    capture->n_recorded++;
    capture->last = plan;
    plan->used = ++capture->clock;
}

kn_status kn_capture_end(kn_capture *capture, kn_tensor *const out[], int n_out) {
    if (!capture || !capture->recording)
        return KN_FAIL(KN_ERR_INVALID, "kn_capture_end: no step is being captured");
    kn__plan *plan = capture->recording;
    kn_status status = kn_check();
    if (status == KN_OK && (!kn__ops_self || kn__ops_self->capture != plan)) {
        status = KN_FAIL(KN_ERR_INVALID,
                         "kn_capture_end: the frame of kn_capture_begin has ended, "
                         "or another thread's step is being captured");
    }
    if (status == KN_OK) status = outs_note(plan, out, n_out);
    plan = recording_end(capture);
    if (status == KN_OK) status = plan_finish(plan);
    records_no_more();
    if (status == KN_OK) {
        kn__plan_inputs_drop(plan);
        plan_keep(capture, plan);
    } else {
        kn__plan_free(plan);
    }
    return status;
}

/* --- replaying --- */

/* Views of inputs read these tensors now. */
static void inputs_set(kn__plan *plan, kn_tensor *const in[]) {
    bool same = true;
    for (int i = 0; i < plan->n_inputs; i++) {
        same = same && plan->inputs[i].data == in[i]->data;
        plan->inputs[i].data = in[i]->data;
    }
    for (uint32_t i = 0; i < plan->n_views && !same; i++) {
        const kn__frozen *v = &plan->views[i];
        if (v->input < 0) continue;
        KN_ASSERT(v->input < plan->n_inputs);
        kn__frozen_set(v, plan->inputs[v->input].data + v->at_bytes);
    }
}

static kn_status replay_on_host(kn__plan *plan, kn_tensor *const in[]) {
    inputs_set(plan, in);
    for (uint32_t i = 0; i < plan->n_written; i++) plan->outside[i]->version++;
    for (int i = 0; i < plan->n_inputs; i++) in[i]->storage->version += plan->inputs[i].written;
    return kn__plan_calls_run(plan);
}

static kn_status replay(kn_capture *capture, kn__plan *plan, kn_tensor *const in[]) {
    KN_ASSERT(!capture->recording && plan->variant == capture->variant);
    plan->used = ++capture->clock;
    capture->last = plan;
    capture->n_launches++;
    for (int i = 0; i < plan->n_out;
         i++) { /* tapes that saved the last results find a new version */
        kn_storage *s = plan->out[i]->storage;
        s->version += kn__region_has(plan->region, s->data);
    }
    KN_TRY(plan->on_gpu ? kn__plan_graph_launch(plan, in) : replay_on_host(plan, in));
    for (int i = 0; i < plan->n_effects && plan->on_gpu; i++)
        plan->effects[i].effect.apply(plan->effects[i].effect.ctx);
    return KN_OK;
}

/* --- inputs that are results of the plan: its calls write there before the last one reads --- */

static bool reads_own(const kn__plan *plan, kn_tensor *const in[], int n_in) {
    for (int i = 0; i < n_in; i++)
        if (kn__region_has(plan->region, in[i]->data)) return true;
    return false;
}

static kn_tensor *copy_of(kn__ops_thread *self, kn_tensor *t) {
    kn_device *device = t->storage->device;
    kn_tensor *own = kn_tensor_new(device, (kn_dtype)t->dtype, kn_tensor_shape(t));
    kn_status status = own ? kn__await_writer(self, t->storage, own->storage->stream) : KN_OK;
    if (!own) return NULL;
    size_t n_bytes = (size_t)t->n * kn__dtype_size[t->dtype];
    if (device == self->host)
        memcpy(own->data, t->data, n_bytes);
    else if (status == KN_OK)
        status = kn_device_copy(device, own->data, device, t->data, n_bytes, own->storage->stream);
    return status == KN_OK ? own : kn_error_defer(status);
}

static kn_status replay_copies(kn_capture *capture, kn__plan *plan, kn_tensor *const in[]) {
    KN_FRAME(.record = KN_OFF);
    kn__ops_thread *self = kn__ops_self;
    kn_tensor **own = calloc((size_t)plan->n_inputs, sizeof(kn_tensor *));
    if (!own) return KN_FAIL(KN_ERR_OOM, "kn_capture_launch: no host memory");
    kn_status status = kn_check();
    for (int i = 0; i < plan->n_inputs && status == KN_OK; i++) {
        own[i] = kn__region_has(plan->region, in[i]->data) ? copy_of(self, in[i]) : in[i];
        if (!own[i]) status = kn_check();
    }
    if (status == KN_OK) status = replay(capture, plan, own);
    free(own);
    return status;
}

static kn_status no_plan(bool others, kn_tensor *const in[], int n_in) {
    char shape[256] = "";
    const kn_dtype autocast = kn_frame_autocast();
    if (n_in) kn_shape_text(shape, sizeof shape, kn_tensor_shape(in[0]));
    return KN_FAIL(KN_ERR_INVALID,
                   "kn_capture_launch: there is no plan for %d inputs%s%s in a frame with .dtype "
                   "%s, .autocast %s and .math %s%s; kn_capture_begin records one",
                   n_in, n_in ? ", in[0] " : "", shape, kn_dtype_name(kn_frame_dtype()),
                   autocast ? kn_dtype_name(autocast) : "off", kn_math_mode_name(kn_frame_math()),
                   others ? ", whose backward adds to gradients, or overwrites them, as it has to "
                            "now for each parameter, and which reads generators where they are"
                          : "");
}

kn_status kn_capture_launch(kn_capture *capture, kn_tensor *const in[], int n_in) {
    KN_TRY(kn__capture_inputs_check("kn_capture_launch", in, n_in));
    KN_TRY(kn__capture_edges_check("kn_capture_launch", in, n_in));
    kn__ops_thread *self = kn__ops_thread_get();
    if (!self) return kn_check();
    if (!capture) return KN_FAIL(KN_ERR_INVALID, "kn_capture_launch: capture is NULL");
    if (self->capture || capture->recording) {
        return KN_FAIL(KN_ERR_INVALID, "kn_capture_launch: %s records a step",
                       self->capture ? "this thread" : "the capture");
    }
    bool others;
    kn__plan *plan = find(&others, capture, in, n_in);
    if (!plan) return no_plan(others, in, n_in);
    if (self->pending) KN_TRY(kn__fuse_all(self)); /* they may read what the step writes */
    return reads_own(plan, in, n_in) ? replay_copies(capture, plan, in) : replay(capture, plan, in);
}

kn_tensor *kn_capture_out(kn_capture *capture, int i) {
    if (kn_pending()) return NULL;
    const kn__plan *plan = capture ? capture->last : NULL;
    if (plan && i >= 0 && i < plan->n_out) return plan->out[i];
    return KN_FAIL_NULL(KN_ERR_INVALID, "kn_capture_out: there is no result %d of %d", i,
                        plan ? plan->n_out : 0);
}
