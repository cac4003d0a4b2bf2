/* Times that overlap: requests, jobs and transfers that begin in one function and end in another,
 * or on another thread.
 *
 *     request->range = kn_prof_range_begin("request");
 *     ...                                            // other scopes and ranges, on any thread
 *     kn_prof_range_end(request->range);
 *
 * A range has a row below the scope that was open when it began, with its calls and its own time
 * from begin to end. That time is in no other row's time; GPU work and memory belong to scopes
 * alone. Traces have ranges as asynchronous events, timelines of pages have none, and flame graphs
 * those of the top level. NVTX's ranges of nvtxRangeStart are such under `knet run`.
 *
 * Errors: none; ranges for which there is no room (16384 that are open) are not recorded, and the
 * report counts them. Threads: any. No-op in a child of fork().
 */
#ifndef KNET_PROF_RANGE_H
#define KNET_PROF_RANGE_H

#include <knet/prof.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Not for users. */
KN_API uint64_t kn_prof_range_begin_on_(const char *label);
KN_API void kn_prof_range_end_on_(uint64_t range);

/* Begins a range and returns its id, which no other range of the process has. The label may be any
 * string, but not NULL; the timer copies it. 0 if the range is not recorded, as with the timer off.
 */
static inline uint64_t kn_prof_range_begin(const char *label) {
    return kn_prof_is_on_(KN_PROF_ALL_) ? kn_prof_range_begin_on_(label) : 0;
}

/* Ends the range, on any thread. No-op for 0 and for a range that has ended. */
static inline void kn_prof_range_end(uint64_t range) {
    if (range) kn_prof_range_end_on_(range);
}

#ifdef __cplusplus
}
#endif
#endif
