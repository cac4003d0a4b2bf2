/* GPU work that a trace may write, a page may show, or both forget: as much of it as there is room
 * for, the newest. Under the lock of the trace. */
#ifndef KN_PROFILER_TRACE_KEPT_H
#define KN_PROFILER_TRACE_KEPT_H

#include "activity.h"

enum { KN__KEPT_MAX = 1 << 14 };

/* Zero-initialised. */
typedef struct kn__kept {
    struct kn__kept_record *ring;
    size_t first, n;
    kn__hash names; /* copies: records borrow theirs for a moment alone */
} kn__kept;

/* Keeps a copy; the oldest one goes where there is no room. False: there is no memory. */
bool kn__kept_add(kn__kept *k, const kn__record *record, uint32_t launch);
/* Number i, from the oldest one; its name lives until the release. False: i is too large. */
bool kn__kept_at(const kn__kept *k, size_t i, kn__record *record, uint32_t *launch);
/* Forgets all, but for the names. */
void kn__kept_clear(kn__kept *k);
void kn__kept_release(kn__kept *k);

#endif
