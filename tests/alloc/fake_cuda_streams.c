#include "fake_cuda_state.h"

/* --- streams: queues of work, run at once unless held -------------------------------------- */

static cu_stream make_stream(object_kind kind, cu_context context) {
    cu_stream stream = calloc(1, sizeof *stream);
    if (!stream) abort();
    stream->id = ++fake.next_id + 100;
    stream->context = context;
    fake_add(kind, (uint64_t)(uintptr_t)stream, 0);
    return stream;
}

/* NULL and 1 are the default stream, 2 the thread's own. */
cu_stream fake_stream_of(cu_stream stream) {
    if ((uintptr_t)stream < 2) return &fake.default_stream;
    if ((uintptr_t)stream > 2) return stream;
    if (!fake_thread.own_stream) fake_thread.own_stream = make_stream(OWN_STREAM, NULL);
    return fake_thread.own_stream;
}

static bool is_default(cu_stream stream) {
    return stream == &fake.default_stream || stream == fake_thread.own_stream;
}

static bool known(cu_stream stream) {
    return is_default(stream) || fake_find(STREAM, (uint64_t)(uintptr_t)stream);
}

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

static point *use(point *at) {
    at->n_users++;
    return at;
}

static void leave(point *at) {
    if (at && !--at->n_users) free(at);
}

static bool is_past(const point *at) { return !at || at->reached; }

static bool run_first(cu_stream stream) {
    op *work = stream->first;
    if (!work || stream->held) return false;
    if (work->kind == OP_WAIT && !work->at->reached) return false;
    if (work->kind == OP_COPY) memmove(work->dst, work->src, work->size_bytes);
    if (work->kind == OP_FILL) memset(work->dst, work->byte, work->size_bytes);
    if (work->kind == OP_RUN) {
        work->run(work->dst);
        free(work->dst);
    }
    if (work->kind == OP_RECORD) {
        work->at->reached = true;
        work->at->ns = stream->busy_until_ns;
    }
    if (work->kind == OP_WAIT) stream->busy_until_ns = later(stream->busy_until_ns, work->at->ns);
    if (work->kind == OP_WORK)
        stream->busy_until_ns = later(stream->busy_until_ns, fake.host_ns) + work->duration_ns;
    leave(work->at);
    stream->first = work->next;
    if (!stream->first) stream->last = &stream->first;
    free(work);
    return true;
}

void fake_run_all(void) {
    for (bool progress = true; progress;) {
        progress = run_first(&fake.default_stream);
        for (int i = 0; i < fake.n_objects; i++) {
            if (fake.objects[i].kind < STREAM) continue;
            while (run_first(fake_host(fake.objects[i].key))) progress = true;
        }
    }
}

static void enqueue(cu_stream stream, op work) {
    op *copy = malloc(sizeof *copy);
    if (!copy) abort();
    *copy = work;
    copy->next = NULL;
    if (!stream->first) stream->last = &stream->first;
    *stream->last = copy;
    stream->last = &copy->next;
    fake_run_all();
}

void fake_cuda_copy(cu_stream stream, void *dst, const void *src, size_t size_bytes) {
    op work = {.kind = OP_COPY, .dst = dst, .src = src, .size_bytes = size_bytes};
    pthread_mutex_lock(&fake.lock);
    enqueue(fake_stream_of(stream), work);
    pthread_mutex_unlock(&fake.lock);
}

void fake_cuda_fill(cu_stream stream, void *dst, unsigned char byte, size_t size_bytes) {
    op work = {.kind = OP_FILL, .dst = dst, .byte = byte, .size_bytes = size_bytes};
    pthread_mutex_lock(&fake.lock);
    enqueue(fake_stream_of(stream), work);
    pthread_mutex_unlock(&fake.lock);
}

void fake_cuda_run(cu_stream stream, void (*run)(void *data), void *data) {
    pthread_mutex_lock(&fake.lock);
    enqueue(fake_stream_of(stream), (op){.kind = OP_RUN, .run = run, .dst = data});
    pthread_mutex_unlock(&fake.lock);
}

void fake_cuda_work(cu_stream stream, uint64_t ns) {
    pthread_mutex_lock(&fake.lock);
    enqueue(fake_stream_of(stream), (op){.kind = OP_WORK, .duration_ns = ns});
    pthread_mutex_unlock(&fake.lock);
}

uint64_t fake_cuda_now_ns(void) {
    pthread_mutex_lock(&fake.lock);
    fake_run_all();
    for (int i = 0; i < fake.n_objects; i++) {
        if (fake.objects[i].kind < STREAM) continue;
        fake.host_ns =
            later(fake.host_ns, ((cu_stream)fake_host(fake.objects[i].key))->busy_until_ns);
    }
    uint64_t now = fake.host_ns;
    pthread_mutex_unlock(&fake.lock);
    return now;
}

cu_result fake_cuStreamCreate(cu_stream *out, unsigned int flags) {
    BEGIN(fake_begin_in_context);
    REQUIRE(flags == KN__CU_STREAM_NON_BLOCKING);
    *out = make_stream(STREAM, fake_thread.stack[fake_thread.n_contexts - 1]);
    return fake_end(KN__CU_SUCCESS);
}

cu_stream fake_cuda_stream(cu_context context, bool green) {
    pthread_mutex_lock(&fake.lock);
    cu_stream stream = make_stream(STREAM, context);
    stream->green = green;
    pthread_mutex_unlock(&fake.lock);
    return stream;
}

cu_result fake_cuStreamDestroy(cu_stream stream) {
    BEGIN(fake_begin_in_context);
    object *known_stream = fake_find(STREAM, (uint64_t)(uintptr_t)stream);
    REQUIRE(known_stream && !stream->first);
    known_stream->kind = 0;
    free(stream);
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuStreamSynchronize(cu_stream stream) {
    BEGIN(fake_begin_unsafe);
    stream = fake_stream_of(stream);
    REQUIRE(known(stream));
    fake_run_all();
    if (stream->first)
        return fake_end(fake_violate(STUCK, "cuStreamSynchronize would never return"));
    fake.host_ns = later(fake.host_ns, stream->busy_until_ns);
    return fake_end(KN__CU_SUCCESS);
}

/* Needs a context to know whose default stream is meant. A real driver ends the stream's capture.
 */
cu_result fake_cuStreamGetId(cu_stream stream, unsigned long long *out) {
    BEGIN(fake_begin);
    stream = fake_stream_of(stream);
    REQUIRE(known(stream));
    REQUIRE(!stream->capturing || is_default(stream));
    REQUIRE(!is_default(stream) || fake_current_device() >= 0);
    *out = stream->id;
    return fake_end(KN__CU_SUCCESS);
}

/* A green context is a context of its own here. */
cu_result fake_cuStreamGetCtx(cu_stream stream, cu_context *out) {
    BEGIN(fake_begin_in_context);
    REQUIRE(fake_find(STREAM, (uint64_t)(uintptr_t)stream));
    *out = stream->green ? (cu_context)(void *)stream : stream->context;
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuStreamGetGreenCtx(cu_stream stream, cu_green_context *out) {
    BEGIN(fake_begin_in_context);
    REQUIRE(fake_find(STREAM, (uint64_t)(uintptr_t)stream));
    *out = stream->green ? (cu_green_context)(void *)stream : NULL;
    return fake_end(KN__CU_SUCCESS);
}

/* Ends a capture even in relaxed mode. */
cu_result fake_cuCtxSynchronize(void) {
    BEGIN(fake_begin_in_context);
    REQUIRE(!fake.n_capturing);
    fake_run_all();
    for (int i = 0; i < fake.n_objects; i++) {
        if (fake.objects[i].kind < STREAM) continue;
        REQUIRE(!((cu_stream)fake_host(fake.objects[i].key))->first);
    }
    return fake_end(KN__CU_SUCCESS);
}

/* As cuStreamGetId. */
cu_result fake_cuStreamIsCapturing(cu_stream stream, unsigned int *out) {
    BEGIN(fake_begin);
    if (!stream && fake.n_capturing) return fake_end(KN__CU_ERROR_STREAM_CAPTURE_IMPLICIT);
    stream = fake_stream_of(stream);
    REQUIRE(known(stream));
    REQUIRE(!is_default(stream) || fake_current_device() >= 0);
    *out = stream->capturing;
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuMemcpyHtoDAsync(cu_ptr dst, const void *src, size_t size_bytes, cu_stream stream) {
    BEGIN(fake_begin_in_context);
    stream = fake_stream_of(stream);
    REQUIRE(known(stream) && size_bytes > 0);
    enqueue(stream,
            (op){.kind = OP_COPY, .dst = fake_host(dst), .src = src, .size_bytes = size_bytes});
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuMemcpyDtoHAsync(void *dst, cu_ptr src, size_t size_bytes, cu_stream stream) {
    BEGIN(fake_begin_in_context);
    stream = fake_stream_of(stream);
    REQUIRE(known(stream) && size_bytes > 0);
    enqueue(stream,
            (op){.kind = OP_COPY, .dst = dst, .src = fake_host(src), .size_bytes = size_bytes});
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuMemcpyDtoDAsync(cu_ptr dst, cu_ptr src, size_t size_bytes, cu_stream stream) {
    BEGIN(fake_begin_in_context);
    stream = fake_stream_of(stream);
    REQUIRE(known(stream) && size_bytes > 0);
    if (fake_machine.skips_copies) return fake_end(KN__CU_SUCCESS);
    enqueue(stream, (op){.kind = OP_COPY,
                         .dst = fake_host(dst),
                         .src = fake_host(src),
                         .size_bytes = size_bytes});
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuMemcpyPeerAsync(cu_ptr dst, cu_context dst_context, cu_ptr src,
                                 cu_context src_context, size_t size_bytes, cu_stream stream) {
    BEGIN(fake_begin_in_context);
    stream = fake_stream_of(stream);
    REQUIRE(known(stream) && size_bytes > 0);
    REQUIRE(dst_context->device >= 0 && src_context->device == fake_current_device());
    enqueue(stream, (op){.kind = OP_COPY,
                         .dst = fake_host(dst),
                         .src = fake_host(src),
                         .size_bytes = size_bytes});
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuMemsetD8Async(cu_ptr dst, unsigned char byte, size_t size_bytes,
                               cu_stream stream) {
    BEGIN(fake_begin_in_context);
    stream = fake_stream_of(stream);
    REQUIRE(known(stream) && size_bytes > 0);
    enqueue(stream,
            (op){.kind = OP_FILL, .dst = fake_host(dst), .byte = byte, .size_bytes = size_bytes});
    return fake_end(KN__CU_SUCCESS);
}

/* --- events ------------------------------------------------------------------------------- */

cu_result fake_cuEventCreate(cu_event *out, unsigned int flags) {
    BEGIN(fake_begin_in_context);
    REQUIRE(flags == KN__CU_EVENT_DISABLE_TIMING);
    cu_event event = calloc(1, sizeof *event);
    if (!event) abort();
    fake_add(EVENT, (uint64_t)(uintptr_t)event, 0);
    *out = event;
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuEventDestroy(cu_event event) {
    BEGIN(fake_begin_in_context);
    object *known_event = fake_find(EVENT, (uint64_t)(uintptr_t)event);
    REQUIRE(known_event);
    REQUIRE(is_past(event->at));
    known_event->kind = 0;
    leave(event->at);
    free(event);
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuEventRecord(cu_event event, cu_stream stream) {
    BEGIN(fake_begin_in_context);
    stream = fake_stream_of(stream);
    REQUIRE(fake_find(EVENT, (uint64_t)(uintptr_t)event) && known(stream));
    leave(event->at);
    event->at = calloc(1, sizeof *event->at);
    if (!event->at) abort();
    event->at->n_users = 1;
    enqueue(stream, (op){.kind = OP_RECORD, .at = use(event->at)});
    return fake_end(KN__CU_SUCCESS);
}

cu_result fake_cuEventQuery(cu_event event) {
    BEGIN(fake_begin_unsafe);
    REQUIRE(fake_find(EVENT, (uint64_t)(uintptr_t)event));
    return fake_end(is_past(event->at) ? KN__CU_SUCCESS : KN__CU_ERROR_NOT_READY);
}

cu_result fake_cuEventSynchronize(cu_event event) {
    BEGIN(fake_begin_unsafe);
    REQUIRE(fake_find(EVENT, (uint64_t)(uintptr_t)event));
    if (event->at) fake.host_ns = later(fake.host_ns, event->at->ns);
    if (is_past(event->at)) return fake_end(KN__CU_SUCCESS);
    return fake_end(fake_violate(STUCK, "cuEventSynchronize would never return"));
}

cu_result fake_cuStreamWaitEvent(cu_stream stream, cu_event event, unsigned int flags) {
    BEGIN(fake_begin_in_context);
    stream = fake_stream_of(stream);
    REQUIRE(fake_find(EVENT, (uint64_t)(uintptr_t)event) && known(stream) && flags == 0);
    if (event->at) enqueue(stream, (op){.kind = OP_WAIT, .at = use(event->at)});
    return fake_end(KN__CU_SUCCESS);
}
