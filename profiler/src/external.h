/* Device memory that no pool of ours took: what the program and its libraries allocate themselves,
 * as the source of records tells. The drain's: under its lock.
 */
#ifndef KN_PROFILER_EXTERNAL_H
#define KN_PROFILER_EXTERNAL_H

#include "report.h"

enum { KN__EXTERNAL_BLOCKS_MAX = 1 << 16 };

/* Records come in any order: they are kept until kn__external_apply, which takes them by time. */
void kn__external_alloc(uint64_t time_ns, uint64_t address, uint64_t size_bytes);
void kn__external_free(uint64_t time_ns, uint64_t address);
/* At the end of a drain. */
void kn__external_apply(void);
void kn__external_read(kn__external *out);

#endif
