#include "host/base/dnnl.h"

#include <stdlib.h>

#include "host/base/loops.h"

pthread_mutex_t kn__dnnl_making = PTHREAD_MUTEX_INITIALIZER;
static dnnl_engine_t engine;
static void make_engine(void) {
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) engine = NULL;
}
dnnl_engine_t kn__dnnl_engine(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_engine);
    return engine;
}

bool kn__dnnl_has_bf16(void) {
    bool wide = kn__loops(KN_F32) == kn__loops_isa(KN_F32, 4);
    unsigned bf16 =
        dnnl_cpu_isa_avx512_core_bf16; /* its bits include those of the sets that it extends */
    return wide && kn__dnnl_engine() && ((unsigned)dnnl_get_effective_cpu_isa() & bf16) == bf16;
}

/* --- layouts --- */

#if DNNL_VERSION_MAJOR >= 3

dnnl_status_t kn__layout_create(kn__layout *out, int n_dims, const dnnl_dims_t dims,
                                dnnl_data_type_t type, dnnl_format_tag_t tag) {
    return dnnl_memory_desc_create_with_tag(out, n_dims, dims, type, tag);
}
dnnl_status_t kn__layout_strided(kn__layout *out, int n_dims, const dnnl_dims_t dims,
                                 dnnl_data_type_t type, const dnnl_dims_t strides) {
    return dnnl_memory_desc_create_with_strides(out, n_dims, dims, type, strides);
}
dnnl_status_t kn__layout_copy(kn__layout *out, kn__layout_ref from) {
    return dnnl_memory_desc_clone(out, from);
}
void kn__layout_destroy(kn__layout layout) {
    if (layout) dnnl_memory_desc_destroy(layout);
}

#else

dnnl_status_t kn__layout_copy(kn__layout *out, kn__layout_ref from) {
    kn__layout copy = malloc(sizeof *copy);
    if (!copy) return dnnl_out_of_memory;
    *copy = *from;
    *out = copy;
    return dnnl_success;
}
dnnl_status_t kn__layout_create(kn__layout *out, int n_dims, const dnnl_dims_t dims,
                                dnnl_data_type_t type, dnnl_format_tag_t tag) {
    dnnl_memory_desc_t desc;
    dnnl_status_t status = dnnl_memory_desc_init_by_tag(&desc, n_dims, dims, type, tag);
    return status == dnnl_success ? kn__layout_copy(out, &desc) : status;
}
dnnl_status_t kn__layout_strided(kn__layout *out, int n_dims, const dnnl_dims_t dims,
                                 dnnl_data_type_t type, const dnnl_dims_t strides) {
    dnnl_memory_desc_t desc;
    dnnl_status_t status = dnnl_memory_desc_init_by_strides(&desc, n_dims, dims, type, strides);
    return status == dnnl_success ? kn__layout_copy(out, &desc) : status;
}
void kn__layout_destroy(kn__layout layout) { free(layout); }

#endif

/* --- calls --- */

void kn__dnnl_add(kn__dnnl_call *call, int arg, kn__layout_ref desc, const void *data) {
    if (call->status != dnnl_success) return;
    dnnl_exec_arg_t *next = &call->arg[call->n];
    next->arg = arg;
    call->status = dnnl_memory_create(&next->memory, desc, kn__dnnl_engine(), (void *)data);
    if (call->status == dnnl_success) call->n++;
}

dnnl_status_t kn__dnnl_execute(kn__dnnl_call *call, const_dnnl_primitive_t primitive) {
    dnnl_stream_t stream = NULL;
    dnnl_status_t status = call->status;
    if (status == dnnl_success)
        status = dnnl_stream_create(&stream, kn__dnnl_engine(), dnnl_stream_default_flags);
    if (status == dnnl_success)
        status = dnnl_primitive_execute(primitive, stream, call->n, call->arg);
    if (status == dnnl_success) status = dnnl_stream_wait(stream);
    if (stream) dnnl_stream_destroy(stream);
    for (int i = 0; i < call->n; i++) dnnl_memory_destroy(call->arg[i].memory);
    return status;
}
