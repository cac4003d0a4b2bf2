/* The NVTX ranges of a program as scopes of the timer; for the two files of libknet_run. */
#ifndef KN_INJECT_RANGES_H
#define KN_INJECT_RANGES_H

#include <nvtx3/nvToolsExt.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* A child of fork() is not timed, and its other threads, which may have had our locks, are gone. */
extern atomic_bool kn__is_child;

/* A range of a domain on the calling thread; they return how many of the thread's are open. */
int kn__range_push(nvtxDomainHandle_t domain, const char *label);
int kn__range_pop(nvtxDomainHandle_t domain);

/* A range that any thread may end. Returns its id; 0: it is not recorded. */
nvtxRangeId_t kn__range_start(const char *label);
void kn__range_end(nvtxRangeId_t id);

/* The text of a message, in `label` if it must be converted, cut where it is longer; NULL without a
 * message. */
enum { KN__LABEL_BYTES = 4096 };
const char *kn__message_text(char label[KN__LABEL_BYTES], int type, const nvtxMessageValue_t *text);

/* Memory that malloc doesn't know, zeroed, for good; NULL: none is left. */
void *kn__map(size_t bytes);
/* A copy of a text, for good. */
char *kn__keep(const char *text);

#endif
