/* Inside the fake driver: its state, and what every call of it begins and ends with. */
#ifndef KNET_FAKE_CUDA_STATE_H
#define KNET_FAKE_CUDA_STATE_H

#include "fake_cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEVICES_MAX = 8,
    OBJECTS_MAX = 8192,
    CONTEXTS_MAX = 64,
    FUNCTIONS_MAX = 64,
    GRANULARITY = 2 << 20,
    INVALID_VALUE = 1,
    INVALID_CONTEXT = 201,
    CAPTURE_UNSUPPORTED = 900,
    STUCK = 999
};

typedef enum { SEGMENT = 1, PINNED, RANGE, HANDLE, MAPPING, EVENT, STREAM, OWN_STREAM } object_kind;

typedef enum { OP_COPY = 1, OP_FILL, OP_RECORD, OP_WAIT, OP_WORK, OP_RUN } op_kind;
/* Where an event was recorded; lives as long as the event means it or an op needs it. */
typedef struct point {
    int n_users;
    bool reached;
    uint64_t ns; /* of the last work that ran before it, by the clock of fake_cuda_work */
} point;
typedef struct op {
    op_kind kind;
    struct op *next;
    void *dst; /* OP_RUN: its data */
    void (*run)(void *data);
    const void *src;
    size_t size_bytes;
    unsigned char byte;
    point *at;            /* OP_RECORD, OP_WAIT */
    uint64_t duration_ns; /* OP_WORK */
} op;

struct CUctx_st {
    int device; /* -1: another library's */
    int n_retained;
    bool reaches[DEVICES_MAX]; /* as a peer */
};
struct CUevent_st {
    point *at; /* NULL: not recorded yet */
};
struct CUstream_st {
    bool held, capturing;
    uint64_t id;
    cu_context context;
    bool green;
    op *first, **last;
    uint64_t busy_until_ns;
};

typedef struct object {
    object_kind kind; /* 0: free entry */
    int device;
    uint64_t key; /* address or handle */
    size_t size_bytes;
    uint64_t file_offset; /* HANDLE: where its bytes are */
    int n_maps;           /* HANDLE */
    int file;             /* HANDLE that can be shared: its own memory; 0: fake.memory_file */
    bool rdma;            /* HANDLE */
    bool imported;        /* HANDLE: another process's memory */
    bool managed;         /* SEGMENT: the host's memory */
    uint64_t handle;      /* MAPPING */
    int n_access;         /* MAPPING: devices that reach it */
    bool released;        /* HANDLE: lives on while it is mapped */
} object;

typedef struct fake_state {
    pthread_mutex_t lock;
    bool initialized, dead;
    int pid; /* of cuInit: a child of fork can't use the driver */
    object objects[OBJECTS_MAX];
    int n_objects; /* entries ever used; none is beyond */
    uint64_t used_bytes[DEVICES_MAX];
    int memory_file; /* all physical memory of handles */
    uint64_t memory_end, next_handle, next_id;
    uint64_t host_ns; /* until when the host has waited */
    struct CUctx_st contexts[DEVICES_MAX + 1];
    struct CUstream_st default_stream;
    int n_capturing;

    struct {
        const char *name;
        uint64_t n;
    } calls[FUNCTIONS_MAX];
    uint64_t n_calls;
    const char *fail_function;
    int fail_in, fail_times;
    bool has_failed;
    cu_result fail_result;
    int n_violations;
    char violation[256];
} fake_state;

typedef struct fake_thread_state {
    cu_context stack[CONTEXTS_MAX];
    int n_contexts;
    unsigned int capture_mode;
    cu_stream own_stream; /* what handle 2 means here; made at first use */
} fake_thread_state;

extern fake_state fake;
extern fake_cuda_machine fake_machine;
extern _Thread_local fake_thread_state fake_thread;

/* fake_cuda.c. A call counts itself, takes the lock and may be scripted to fail; one that needs the
 * context insists on it, an unsafe one also on no graph capture. fake_end drops the lock. */
cu_result fake_begin(const char *name);
cu_result fake_begin_in_context(const char *name);
cu_result fake_begin_unsafe(const char *name);
cu_result fake_end(cu_result result);
cu_result fake_violate(cu_result result, const char *fmt, ...) KN_PRINTF(2, 3);
int fake_current_device(void);
object *fake_find(object_kind kind, uint64_t key);
object *fake_add(object_kind kind, uint64_t key, size_t size_bytes);
static inline void *fake_host(cu_ptr ptr) { return (void *)(uintptr_t)ptr; }

/* fake_cuda_streams.c */
cu_stream fake_stream_of(cu_stream stream);
void fake_run_all(void);

#define BEGIN(how)                                                                                 \
    do {                                                                                           \
        cu_result begun_ = how(__func__ + sizeof "fake_" - 1);                                     \
        if (begun_ != KN__CU_SUCCESS) return fake_end(begun_);                                     \
    } while (0)
#define REQUIRE(cond)                                                                              \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            return fake_end(                                                                       \
                fake_violate(INVALID_VALUE, "%s: not %s", __func__ + sizeof "fake_" - 1, #cond));  \
        }                                                                                          \
    } while (0)

/* The driver's functions. */
#define X(name, version, params) cu_result fake_##name params;
KN__CUDA_API(X)
#undef X

#endif
