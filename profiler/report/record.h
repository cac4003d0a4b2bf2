/* One piece of GPU work, as a source of records tells it. */
#ifndef KN_REPORT_RECORD_H
#define KN_REPORT_RECORD_H

#include <stdint.h>

typedef enum kn__record_kind {
    KN__RECORD_WORK, /* a kernel, a copy, a set, or a whole graph */
    KN__RECORD_ALLOC,
    KN__RECORD_FREE,
    KN__RECORD_OVERHEAD /* time that the source itself took; no id, the name is its kind */
} kn__record_kind;

/* One piece of GPU work, or what else a source tells. Several records may carry one id (a graph
 * launch). */
typedef struct kn__record {
    uint32_t id;
    const char *name; /* of the kernel or the kind of copy, valid until the next drain; or NULL */
    uint64_t start_ns, end_ns; /* of CLOCK_REALTIME; both 0: unknown */
    uint32_t device, stream;
    kn__record_kind kind;
    uint64_t bytes;             /* copied, set or allocated */
    uint64_t graph_node;        /* number of the graph's node that this is; 0: none */
    uint64_t address;           /* of memory allocated or freed */
    uint32_t grid[3], block[3]; /* of a kernel; 0: not known */
    uint32_t registers, shared_bytes;
} kn__record;

#endif
