/* Data parallel: buckets of the gradient arena, reduced beside backward. */
#include <inttypes.h>
#include <knet/prof_metric.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "mix.h"
#include "now.h"
#include "parallel.h"

/* --- buckets --- */

static kn_status reduce_job(kn_comm *comm, kn__job *job) {
    KN_SCOPE("all_reduce");
    KN_TRY(kn__comm_together(
        comm, (kn__call){.name = "all_reduce", .n = job->n, .dtype = job->dtype, .op = job->op}));
    KN_TRY(kn__all_reduce(comm, job->data, job->n, job->dtype, job->op));
    if (job->out) memcpy(job->out, job->data, (size_t)job->n * kn_dtype_bytes(job->dtype));
    return KN_OK;
}

static kn_status scatter_job(kn_comm *comm, kn__job *job) {
    KN_SCOPE("reduce_scatter");
    KN_TRY(kn__comm_together(comm, (kn__call){.name = "reduce_scatter",
                                              .n = job->n * comm->size,
                                              .dtype = job->dtype,
                                              .op = job->op}));
    return kn__reduce_scatter_equal(comm, job->out, job->data, job->n, job->dtype, job->op);
}

/* Makes a stream wait for what another has got so far. */
static kn_status stream_follow(kn_parallel *p, kn_stream stream, kn_stream other) {
    KN_TRY(kn_event_record(p->event, other));
    return kn_event_wait(p->event, stream);
}

static kn_status work_enqueue(kn_parallel *p, kn__engine_what what, char *out, const char *in,
                              int64_t n) {
    bool scatters = what == KN__ENGINE_REDUCE_SCATTER;
    kn__engine_work work = {.what = what,
                            .in = in,
                            .out = out,
                            .n = (size_t)n,
                            .dtype = (int)p->dtype,
                            .op = KN_COMM_MEAN,
                            .stream = p->stream};
    return kn__gpu_run(p->comm, scatters ? "reduce_scatter" : "all_reduce", p->gpu, &work,
                       (uint64_t)n * p->item * (uint64_t)(scatters ? p->comm->size : 1));
}

/* What the parts leave over. */
static kn_status rest_enqueue(kn_parallel *p, const kn__bucket *b, char *data, int64_t each) {
    int64_t in_parts = each * p->comm->size, n = b->end - b->begin - in_parts;
    if (!n) return KN_OK;
    KN_SCOPE("all_reduce");
    data += (size_t)in_parts * p->item;
    KN_TRY(work_enqueue(p, KN__ENGINE_ALL_REDUCE, data, data, n));
    if (p->comm->rank < p->comm->size - 1) return KN_OK;
    return kn_device_copy(p->gpu, kn__part_place(p, b) + (size_t)each * p->item, p->gpu, data,
                          (size_t)n * p->item, p->stream);
}

static kn_status parts_enqueue(kn_parallel *p, const kn__bucket *b, char *data) {
    int64_t each = kn__part_numel(p, b);
    if (each) {
        KN_SCOPE("reduce_scatter");
        KN_TRY(work_enqueue(p, KN__ENGINE_REDUCE_SCATTER, kn__part_place(p, b), data, each));
    }
    return rest_enqueue(p, b, data, each);
}

static kn_status whole_enqueue(kn_parallel *p, const kn__bucket *b, char *data) {
    KN_SCOPE("all_reduce");
    return work_enqueue(p, KN__ENGINE_ALL_REDUCE, data, data, b->end - b->begin);
}

/* Backward's kernels of later gradients run beside it. */
static kn_status bucket_enqueue(kn_parallel *p, kn__bucket *b) {
    char *data = p->arena + (size_t)b->begin * p->item;
    kn_stream pass = NULL;
    b->is_posted = true;
    p->n_posted++;
    KN_TRY(kn__gpu_stream(&pass, p->gpu));
    KN_TRY(stream_follow(p, p->stream, pass));
    p->stats.bytes += (size_t)(b->end - b->begin) * p->item;
    return p->part_data ? parts_enqueue(p, b, data) : whole_enqueue(p, b, data);
}

/* Each rank gets the means of its part; the last one those of the rest as well. */
static kn_status parts_post(kn_parallel *p, kn__bucket *b) {
    int64_t each = kn__part_numel(p, b), rest = b->end - b->begin - each * p->comm->size;
    char *out = kn__part_place(p, b);
    bool gets_rest = p->comm->rank == p->comm->size - 1;
    KN_ASSERT(each >= 0 && rest >= 0 && out);
    b->rest = b->job;
    b->rest.n = 0; /* not posted yet: no wait for it */
    b->job.run = scatter_job;
    b->job.n = each;
    b->job.out = out;
    if (each)
        KN_TRY(kn__comm_post(p->comm, &b->job));
    else
        b->job.is_done = true;
    b->rest.data = (char *)b->rest.data + (size_t)(each * p->comm->size) * p->item;
    b->rest.n = rest;
    b->rest.out = gets_rest ? out + (size_t)each * p->item : NULL;
    return rest ? kn__comm_post(p->comm, &b->rest) : KN_OK;
}

static kn_status bucket_post(kn_parallel *p, kn__bucket *b) {
    KN_ASSERT(b == &p->buckets[p->n_posted] && !b->is_posted && b->begin < b->end);
    if (p->gpu) return bucket_enqueue(p, b);
    b->job = (kn__job){.run = reduce_job,
                       .data = p->arena + (size_t)b->begin * p->item,
                       .n = b->end - b->begin,
                       .dtype = p->dtype,
                       .op = KN_COMM_MEAN};
    b->rest.n = 0;
    b->is_posted = true;
    p->n_posted++;
    return p->part_data ? parts_post(p, b) : kn__comm_post(p->comm, &b->job);
}

kn__bucket *kn__bucket_of(kn__bucket buckets[], int n, int64_t at) {
    int lo = 0, hi = n - 1;
    while (lo < hi) {
        int middle = (lo + hi) / 2;
        if (at < buckets[middle].end)
            hi = middle;
        else
            lo = middle + 1;
    }
    return &buckets[lo];
}

static int by_place(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void gradient_done(kn_parallel *p, int64_t at) {
    if (p->is_off || p->failed < 0 || p->lost.status < 0) return;
    const int64_t *place = bsearch(&at, p->places, (size_t)p->n_places, sizeof at, by_place);
    KN_ASSERT(place);
    bool *is_done = &p->is_done[place - p->places];
    kn__bucket *b = kn__bucket_of(p->buckets, p->n_buckets, at);
    if (b->is_posted || *is_done) {
        p->is_twice = true;
        return;
    }
    KN_ASSERT(at >= b->begin && at < b->end && b->n_left > 0 && b->n_left <= b->n_params);
    *is_done = true;
    b->n_left--;
    if (p->options.no_overlap) return;
    while (p->failed == KN_OK && p->n_posted < p->n_buckets && p->buckets[p->n_posted].n_left == 0)
        p->failed = bucket_post(p, &p->buckets[p->n_posted]);
}

/* Of a gradient that a captured step completes. */
typedef struct ready {
    kn_parallel *parallel;
    int64_t at;
} ready;

static void ready_again(void *ctx) { gradient_done(((ready *)ctx)->parallel, ((ready *)ctx)->at); }

/* The hook. A gradient without elements shares its place with the next one. */
static void gradient_ready(void *ctx, kn_tensor *w, kn_tensor *gradient) {
    kn_parallel *p = ctx;
    if (!p->buckets || !kn_tensor_numel(w)) return;
    int64_t at = ((const char *)gradient->data - p->arena) / (int64_t)p->item;
    if (kn_capture_records()) {
        ready *r = malloc(sizeof *r);
        if (r) *r = (ready){p, at};
        kn_capture_effect_add((kn_capture_effect){.apply = ready_again, .release = free, .ctx = r});
    }
    gradient_done(p, at);
}

static void buckets_reset(kn_parallel *p) {
    for (int i = 0; i < p->n_buckets; i++) {
        p->buckets[i].n_left = p->buckets[i].n_params;
        p->buckets[i].is_posted = false;
    }
    for (int i = 0; i < p->n_places; i++) p->is_done[i] = false;
    p->n_posted = 0;
    p->failed = KN_OK;
    p->is_twice = false;
    p->lost.status = KN_OK;
}

/* Called when a pass fails. The other ranks have the means of buckets that are posted already. */
static void gradients_void(void *ctx) {
    kn_parallel *p = ctx;
    if (!p->n_posted) {
        buckets_reset(p);
        return;
    }
    if (p->lost.status == KN_OK) p->lost = *kn_last_error();
    kn__comm_drain(p->comm); /* a pass that is run again writes where the thread reads */
}

/* Where a gradient lies in the arena, in elements; -1: an error is pending. */
static int64_t place_of(kn_tensor *w, const char *arena, int64_t item) {
    const char *data = kn_data(kn_grad(w));
    return data ? (data - arena) / item : -1;
}

kn_status kn__buckets_cut(kn__bucket buckets[], int *n_buckets, kn_params *params,
                          const int order[], const char *arena, int64_t least_bytes,
                          int64_t grain) {
    int64_t item = (int64_t)kn_dtype_bytes(kn_params_dtype(params)), least = least_bytes / item;
    int n = kn_params_count(params);
    kn__bucket *b = buckets;
    *b = (kn__bucket){.begin = 0};
    for (int k = 0; k < n; k++) {
        kn_tensor *w = kn_params_at(params, order[k], NULL);
        int64_t at = kn_tensor_numel(w) ? place_of(w, arena, item) : b->begin;
        if (at < 0) return kn_check();
        int64_t whole = (at - b->begin) / grain * grain;
        if (at - b->begin < least || !whole) continue;
        b->end = b->begin + whole;
        b[1] = (kn__bucket){.begin = b->end};
        b++;
    }
    kn_tensor *flat = kn_params_grad(params);
    if (!flat) return kn_check();
    b->end = kn_tensor_numel(flat);
    *n_buckets = (int)(b - buckets) + 1;
    KN_ASSERT(*n_buckets <= n + 1 && b->begin <= b->end);
    for (int k = 0; k < n; k++) {
        kn_tensor *w = kn_params_at(params, k, NULL);
        if (kn_tensor_numel(w))
            kn__bucket_of(buckets, *n_buckets, place_of(w, arena, item))->n_params++;
    }
    return KN_OK;
}

/* Whether all ranks have the same number here. */
static kn_status agree(bool *out, kn_comm *comm, uint64_t number) {
    double x = (double)(number >> 12), both[2] = {x, -x};
    KN_TRY(kn_comm_values(comm, both, 2, KN_COMM_MAX));
    *out = both[0] == -both[1];
    return KN_OK;
}

/* Gradients without elements lie nowhere: their places may differ. */
static uint64_t order_hash(kn_params *params, const int order[], int n) {
    uint64_t hash = 1;
    for (int k = 0; k < n; k++)
        if (order[k] < 0 || kn_tensor_numel(kn_params_at(params, order[k], NULL)))
            hash = kn__mix(hash ^ (uint64_t)(unsigned)order[k]);
    return hash;
}

static kn_status fail_orders(void) {
    return KN_FAIL(
        KN_ERR_INVALID,
        "kn_parallel_finish: the ranks' gradients lie in different orders: the first "
        "backward passes used the parameters in different orders, or a rank held a view "
        "of a gradient or froze parameters (kn_params_freeze) before; freeze the same on "
        "every rank, or set one order with kn_params_order_set on every rank");
}

/* A rank whose order is open takes that of rank root; root < 0: all take newest first, as a step
 * would. */
static kn_status order_take(kn_parallel *p, const int order[], int n, int root) {
    double *all = calloc((size_t)n, sizeof *all);
    int *taken = malloc((size_t)n * sizeof *taken);
    if (!all || !taken) {
        free(all);
        free(taken);
        return KN_FAIL(KN_ERR_OOM, "kn_parallel_finish: no host memory");
    }
    kn_status status = KN_OK;
    for (int k = 0; k < n && root == p->comm->rank; k++) all[k] = order[k];
    if (root >= 0) status = kn_comm_values(p->comm, all, n, KN_COMM_SUM);
    for (int k = 0; k < n && status == KN_OK; k++) taken[k] = root < 0 ? n - 1 - k : (int)all[k];
    if (status == KN_OK && order[0] < 0) status = kn_params_order_set(p->params, taken, n);
    free(all);
    free(taken);
    return status;
}

/* One order on all ranks, which gradients that are all zeros leave open. */
static kn_status order_agree(kn_parallel *p, int order[], int n) {
    bool is_open = order[0] < 0, is_same = false;
    double hash = (double)(order_hash(p->params, order, n) >> 12), none = -INFINITY;
    double most[] = {is_open ? none : hash, is_open ? none : -hash,
                     is_open ? none : -(double)p->comm->rank, is_open, !is_open || p->has_pass};
    KN_TRY(kn_comm_values(p->comm, most, 5, KN_COMM_MAX));
    if (most[4] == 0)
        return KN_FAIL(KN_ERR_INVALID, "kn_parallel_finish: there was no kn_backward");
    bool has_root = most[2] > none;
    if (has_root && most[0] != -most[1]) return fail_orders();
    if (most[3] == 0) return KN_OK;
    kn_status status = order_take(p, order, n, has_root ? (int)-most[2] : -1);
    kn_params_order(order, p->params);
    KN_TRY(agree(&is_same, p->comm, order_hash(p->params, order, n)));
    return status < 0 || is_same ? status : fail_orders();
}

static void buckets_free(kn_parallel *p) {
    free(p->buckets);
    free(p->places);
    free(p->is_done);
    p->buckets = NULL;
    p->places = NULL;
    p->is_done = NULL;
    p->n_buckets = p->n_places = 0;
}

static void places_find(kn_parallel *p) {
    for (int k = 0, n = kn_params_count(p->params); k < n; k++) {
        kn_tensor *w = kn_params_at(p->params, k, NULL);
        if (kn_tensor_numel(w)) p->places[p->n_places++] = place_of(w, p->arena, (int64_t)p->item);
    }
    if (p->n_places) qsort(p->places, (size_t)p->n_places, sizeof *p->places, by_place);
}

/* After the first pass: makes the order final. */
static kn_status buckets_make(kn_parallel *p, kn_tensor *flat) {
    int n = kn_params_count(p->params);
    int *order = malloc((size_t)n * sizeof *order + 1);
    p->buckets = calloc((size_t)n + 1, sizeof *p->buckets);
    p->places = calloc((size_t)n + 1, sizeof *p->places);
    p->is_done = calloc((size_t)n + 1, sizeof *p->is_done);
    kn_status status = KN_OK;
    if (!order || !p->buckets || !p->places || !p->is_done) {
        status = KN_FAIL(KN_ERR_OOM, "kn_parallel_finish: no host memory");
    } else {
        kn_params_order(order, p->params);
        status = order_agree(p, order, n);
        p->arena = kn_data_mut(flat);
        if (status == KN_OK)
            status = kn__buckets_cut(p->buckets, &p->n_buckets, p->params, order, p->arena,
                                     p->options.bucket_bytes,
                                     p->comm->size * (KN__PART_BYTES / (int64_t)p->item));
    }
    free(order);
    if (status == KN_OK) places_find(p);
    if (status < 0) buckets_free(p);
    return status;
}

/* --- a step --- */

static kn_status buckets_wait(kn_parallel *p) {
    kn_status status = p->failed;
    kn_stream pass = NULL;
    if (p->gpu) {
        KN_TRY(status);
        KN_TRY(kn__gpu_stream(&pass, p->gpu));
        return stream_follow(p, pass, p->stream);
    }
    for (int i = 0; i < p->n_buckets; i++) {
        kn__bucket *b = &p->buckets[i];
        if (!b->is_posted) continue;
        kn_status one = kn__comm_job_wait(p->comm, &b->job);
        if (status == KN_OK) status = one;
        p->stats.reduce_ns += b->job.run_ns;
        if (b->rest.n) {
            one = kn__comm_job_wait(p->comm, &b->rest);
            if (status == KN_OK) status = one;
            p->stats.reduce_ns += b->rest.run_ns;
        }
        p->stats.bytes += (uint64_t)(b->end - b->begin) * p->item;
    }
    return status;
}

/* The other ranks' gradients would differ from this one's: breaks the communicator. */
static kn_status finish_lost(kn_parallel *p) {
    kn_error error = p->lost;
    char why[256];
    snprintf(why, sizeof why, "a backward pass failed after parts of it were averaged: %.180s",
             error.message);
    kn__comm_drain(p->comm);
    kn_comm_abort(p->comm, why);
    buckets_reset(p);
    return KN_FAIL(error.status, "kn_parallel_finish: %s", why);
}

static kn_status finish(kn_parallel *p) {
    if (p->lost.status < 0) return finish_lost(p);
    /* Slices that no pass has written become zeros: none of them is in a posted bucket, where each
     * gradient was finished by a pass that didn't fail. */
    kn_tensor *flat = kn_params_grad(p->params);
    if (!flat) return kn_check();
    if (!kn_tensor_numel(flat)) return KN_OK;
    if (!p->buckets) KN_TRY(buckets_make(p, flat));
    while (p->failed == KN_OK && p->n_posted < p->n_buckets)
        p->failed = bucket_post(p, &p->buckets[p->n_posted]);
    uint64_t begin = kn__now_ns(CLOCK_MONOTONIC);
    kn_status status = buckets_wait(p);
    p->stats.wait_ns += kn__now_ns(CLOCK_MONOTONIC) - begin;
    p->stats.n_steps++;
    p->stats.n_buckets = p->n_buckets;
    if (status == KN_OK && p->is_twice)
        status = KN_FAIL(KN_ERR_INVALID,
                         "kn_parallel_finish: two backward passes were averaged; turn averaging "
                         "off with kn_parallel_sync for all but the last of a step");
    buckets_reset(p);
    return status < 0 ? status : kn__parallel_cut(p);
}

kn_status kn_parallel_finish(kn_parallel *parallel) {
    KN_SCOPE("gradients of all ranks");
    KN_TRY(kn_check());
    if (!parallel) return KN_FAIL(KN_ERR_INVALID, "kn_parallel_finish: parallel is NULL");
    if (kn_capture_records())
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_parallel_finish: inside a captured step, whose replays would not wait "
                       "for other ranks: call it after the replay");
    parallel->has_pass = kn_params_begun(parallel->params) != parallel->begun;
    kn_params_grad_begin(parallel->params);
    parallel->begun = kn_params_begun(parallel->params);
    return parallel->comm->size == 1 ? KN_OK : finish(parallel);
}

void kn_parallel_sync(kn_parallel *parallel, bool on) { parallel->is_off = !on; }
kn_comm *kn_parallel_comm(const kn_parallel *parallel) { return parallel->comm; }

void kn_parallel_stats_read(kn_parallel_stats *out, size_t out_bytes, const kn_parallel *parallel) {
    memset(out, 0, out_bytes);
    memcpy(out, &parallel->stats,
           out_bytes < sizeof parallel->stats ? out_bytes : sizeof parallel->stats);
}

/* --- life cycle --- */

/* "encoder.weight, f32 [4,3]" */
static void param_text(char *out, size_t bytes, kn_params *params, int i) {
    char shape[128];
    const char *name = NULL;
    kn_tensor *w = kn_params_at(params, i, &name);
    snprintf(out, bytes, "%s, %s %s", name, kn_dtype_name(kn_tensor_dtype(w)),
             kn_shape_text(shape, sizeof shape, kn_tensor_shape(w)));
}

/* Names the first parameter that differs. */
static kn_status params_differ(kn_params *params, kn_comm *comm) {
    char what[64], text[512];
    int n = kn_params_count(params);
    double most = n;
    kn_status status = kn_comm_values(comm, &most, 1, KN_COMM_MAX);
    for (int i = 0; i < (int)most && status == KN_OK; i++) {
        snprintf(what, sizeof what, "kn_parallel_create: parameter %d", i);
        snprintf(text, sizeof text, "none");
        if (i < n) param_text(text, sizeof text, params, i);
        status = kn_comm_agree(comm, what, text);
    }
    kn_error error = *kn_last_error();
    if (status == KN_ERR_INVALID) return KN_FAIL(KN_ERR_SHAPE, "%s", error.message);
    if (status < 0) return status;
    return KN_FAIL(KN_ERR_SHAPE, "kn_parallel_create: the ranks' parameters differ in their names");
}

static kn_status params_check(kn_params *params, kn_comm *comm) {
    uint64_t hash = KN__FNV_START;
    bool is_same = false;
    for (int i = 0; i < kn_params_count(params); i++) {
        char text[512];
        const char *name = NULL;
        kn_tensor *w = kn_params_at(params, i, &name);
        param_text(text, sizeof text, params, i);
        hash = kn__fnv(hash, text, strlen(text) + 1);
        if (kn_tensor_device(w) != kn_params_device(params) && comm->size > 1)
            return KN_FAIL(
                KN_ERR_UNSUPPORTED,
                "kn_parallel_create: %s is on %s, others are on %s; a rank trains on one "
                "device, or one process on several",
                name, kn_device_name(kn_tensor_device(w)),
                kn_device_name(kn_params_device(params)));
        if (kn_param_is_sparse(w) && comm->size > 1)
            return KN_FAIL(KN_ERR_UNSUPPORTED,
                           "kn_parallel_create: the gradient of %s is row-sparse, which ranks "
                           "cannot average",
                           name);
    }
    if (kn_device_kind_get(kn_params_device(params)) == KN_DEVICE_SIM && comm->size > 1)
        return KN_FAIL(KN_ERR_DEVICE,
                       "kn_parallel_create: the parameters are on %s, which has no data",
                       kn_device_name(kn_params_device(params)));
    KN_TRY(agree(&is_same, comm, kn__mix(hash)));
    return is_same ? KN_OK : params_differ(params, comm);
}

static kn_status values_broadcast(kn_params *params, kn_comm *comm) {
    if (comm->size == 1) return KN_OK;
    for (int i = 0; i < kn_params_count(params); i++)
        KN_TRY(kn_comm_broadcast(comm, kn_params_at(params, i, NULL), 0));
    return KN_OK;
}

static kn_status gpu_prepare(kn_parallel *p) {
    kn_device *device = kn_params_device(p->params);
    if (p->comm->size == 1 || kn_device_kind_get(device) != KN_DEVICE_CUDA) return KN_OK;
    KN_TRY(kn_event_create(&p->event, device));
    kn_status status = kn_stream_create(&p->stream, device);
    if (status < 0) kn_event_destroy(p->event);
    if (status == KN_OK) p->gpu = device;
    return status;
}

kn_status kn_parallel_create(kn_parallel **out, kn_params *params, kn_comm *comm,
                             const kn_parallel_options *options) {
    KN_SCOPE("parameters of rank 0");
    static const kn_parallel_options defaults = {0};
    KN_TRY(kn_check());
    if (!out || !params || !comm)
        return KN_FAIL(KN_ERR_INVALID, "kn_parallel_create: %s is NULL",
                       !out     ? "out"
                       : params ? "comm"
                                : "params");
    if (!options) options = &defaults;
    for (int i = 0; i < 4; i++)
        if (options->reserved[i])
            return KN_FAIL(KN_ERR_INVALID, "kn_parallel_options: reserved is not zero");
    if (options->bucket_bytes < 0)
        return KN_FAIL(KN_ERR_INVALID, "kn_parallel_options: bucket_bytes %" PRId64,
                       options->bucket_bytes);
    KN_TRY(params_check(params, comm));
    KN_TRY(values_broadcast(params, comm));
    kn_parallel *p = calloc(1, sizeof *p);
    if (!p) return KN_FAIL(KN_ERR_OOM, "kn_parallel_create: no host memory");
    p->params = params;
    p->begun = kn_params_begun(params);
    p->comm = comm;
    p->options = *options;
    if (!p->options.bucket_bytes) p->options.bucket_bytes = KN__BUCKET_BYTES;
    p->dtype = kn_params_dtype(params);
    p->item = kn_dtype_bytes(p->dtype);
    kn__parallel_batch_init(p);
    kn_status status = gpu_prepare(p);
    if (status < 0) {
        free(p);
        return status;
    }
    if (comm->size > 1) {
        kn_params_on_grad(params, gradient_ready, p);
        kn_params_on_void(params, gradients_void, p);
    }
    *out = p;
    return KN_OK;
}

void kn_parallel_destroy(kn_parallel *parallel) {
    if (!parallel) return;
    if (parallel->comm->size > 1) {
        kn__comm_drain(parallel->comm);
        kn_params_on_grad(parallel->params, NULL, NULL);
        kn_params_on_void(parallel->params, NULL, NULL);
    }
    if (parallel->gpu) kn_stream_destroy(parallel->gpu, parallel->stream);
    kn_event_destroy(parallel->event);
    buckets_free(parallel);
    free(parallel->pieces);
    free(parallel);
}
