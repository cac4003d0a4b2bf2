/* Records of CUPTI as ours, and a walk over its buffers without its library.
 *
 * Layouts only grow at their ends: the oldest that has all we read serves every version, and how
 * long a record of a kind is has to be known, not assumed.
 */
#ifndef KN_PROFILER_CUPTI_RECORDS_H
#define KN_PROFILER_CUPTI_RECORDS_H

#include "activity.h"

enum { KN__KINDS_MAX = 64 };

/* Bytes of a record of each kind; 0: not known. */
typedef struct kn__record_sizes {
    uint16_t of[KN__KINDS_MAX];
} kn__record_sizes;

/* Reads the record at `at`; false: of a kind that says nothing to us. */
bool kn__cupti_read(kn__record *out, const void *at);
/* Its kind. */
uint32_t kn__cupti_kind(const void *at);
/* The address of the kernel's name in a record, to be read or changed; NULL: it has none. */
const char **kn__cupti_name(void *at);

/* The record after `at` (NULL: the first) of `used` bytes, past those that were not completed;
 * NULL: no more, or one whose length is not known, or can't be. */
void *kn__cupti_next(void *bytes, size_t used, void *at, const kn__record_sizes *sizes);

/* The first record behind the one at `at` that CUPTI did not complete, whose kind is therefore not
 * known: from there on the buffer is whole records, or whole ones up to the next such. NULL: none.
 */
void *kn__cupti_skip(void *bytes, size_t used, void *at, const kn__record_sizes *sizes);

/* The sizes in the headers that this library was built with. */
const kn__record_sizes *kn__cupti_sizes(void);

#endif
