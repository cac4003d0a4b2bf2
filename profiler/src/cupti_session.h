/* What the files of the CUPTI source share: cupti.c opens a session and ends it, cupti_calls.c
 * follows launches, cupti_buffers.c takes in records. */
#ifndef KN_PROFILER_CUPTI_SESSION_H
#define KN_PROFILER_CUPTI_SESSION_H

#include <cupti.h>

#include "cupti_source.h"

#define KN__CUPTI_SYMBOLS(X)                                                                       \
    X(cuptiGetVersion)                                                                             \
    X(cuptiGetResultString)                                                                        \
    X(cuptiSubscribe)                                                                              \
    X(cuptiUnsubscribe)                                                                            \
    X(cuptiEnableCallback)                                                                         \
    X(cuptiGetCallbackName)                                                                        \
    X(cuptiActivityRegisterCallbacks)                                                              \
    X(cuptiActivitySetAttribute)                                                                   \
    X(cuptiActivityEnable)                                                                         \
    X(cuptiActivityDisable)                                                                        \
    X(cuptiActivityFlushAll)                                                                       \
    X(cuptiActivityGetNextRecord)                                                                  \
    X(cuptiActivityGetNumDroppedRecords)

/* The library and the session. Written at the start, before anything is followed. */
typedef struct kn__cupti_session {
    void *library;
#define X(name) __typeof__(&name) name;
    KN__CUPTI_SYMBOLS(X)
#undef X
    CUptiResult (*graph_node_id)(CUgraphNode node, uint64_t *id); /* NULL: an old library */
    CUpti_SubscriberHandle subscriber;
    uint32_t version;
    kn__cupti_tier tier;
    bool memory;    /* device memory that is allocated past the pools is followed */
    bool recording; /* buffers are kept in a file */
} kn__cupti_session;
extern kn__cupti_session kn__cupti;

/* --- cupti.c --- */

/* Many buffers are full: the drain's period is too long. Any thread. */
void kn__cupti_wake(void);

/* --- cupti_buffers.c --- */

/* Reserves their memory, once. Errors: UNSUPPORTED. */
KN_MUST_CHECK kn_status kn__cupti_reserve(void);
/* CUPTI's callbacks: it wants a buffer, or has filled one. */
void CUPTIAPI kn__cupti_request(uint8_t **bytes, size_t *size, size_t *max_records);
void CUPTIAPI kn__cupti_complete(CUcontext context, uint32_t stream, uint8_t *bytes, size_t size,
                                 size_t used);
/* Hands over the records of full buffers, and returns these to CUPTI. */
void kn__cupti_drain(void *ctx, kn__record_fn fn, void *sink);
/* Records that CUPTI dropped, or handed over before they were written. */
uint64_t kn__cupti_dropped(void *ctx);
/* Kernels of graphs whose records had no time. */
uint64_t kn__cupti_zero_nodes(void);

/* --- cupti_calls.c --- */

/* Calls of the runtime and the driver, contexts and graphs. */
void CUPTIAPI kn__cupti_callback(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                 const void *data);
/* Asks for these callbacks; returns how many kinds of launches are followed. */
int kn__cupti_follow(void);
/* Waits until the work of all contexts seen is done; the driver is used if the program has loaded
 * it. */
void kn__cupti_synchronize(void);

#endif
