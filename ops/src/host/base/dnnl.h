/* What users of oneDNN's primitives share: its engine, layouts of tensors as versions 2 and 3 of
 * the library spell them, and a call of a primitive. */
#ifndef KN_DNNL_H
#define KN_DNNL_H

#include <dnnl.h>
#include <pthread.h>
#include <stdbool.h>

/* The layout of a tensor: oneDNN's memory descriptor, owned. Version 3 has handles of them; with
 * version 2, whose descriptors are structs, it is a copy on the heap. */
#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t kn__layout;
typedef const_dnnl_memory_desc_t kn__layout_ref; /* borrowed */
#else
typedef dnnl_memory_desc_t *kn__layout;
typedef const dnnl_memory_desc_t *kn__layout_ref;
#endif

/* The library's CPU engine, one for the process. NULL if the library has none, as builds for SYCL
 * where no OpenCL runs on the CPU. */
dnnl_engine_t kn__dnnl_engine(void);
/* Whether it multiplies bf16 at the speed of the processor's own instructions, which the chosen
 * instruction set permits. */
bool kn__dnnl_has_bf16(void);

/* A layout by its tag or by strides, a copy, and the end (NULL: no-op). */
dnnl_status_t kn__layout_create(kn__layout *out, int n_dims, const dnnl_dims_t dims,
                                dnnl_data_type_t type, dnnl_format_tag_t tag);
dnnl_status_t kn__layout_strided(kn__layout *out, int n_dims, const dnnl_dims_t dims,
                                 dnnl_data_type_t type, const dnnl_dims_t strides);
dnnl_status_t kn__layout_copy(kn__layout *out, kn__layout_ref from);
void kn__layout_destroy(kn__layout layout);

/* One call of a primitive with the memories of one thread. Zero at first. */
typedef struct kn__dnnl_call {
    dnnl_exec_arg_t arg[6];
    int n;
    dnnl_status_t status; /* the first that failed */
} kn__dnnl_call;
void kn__dnnl_add(kn__dnnl_call *call, int arg, kn__layout_ref desc, const void *data);
/* Runs the primitive and frees the memories' handles. */
dnnl_status_t kn__dnnl_execute(kn__dnnl_call *call, const_dnnl_primitive_t primitive);

/* Held while a plan is made: oneDNN's primitives share internal objects, and a second thread that
 * wants the same plan then finds it in the cache. */
extern pthread_mutex_t kn__dnnl_making __attribute__((visibility("hidden")));

#endif
