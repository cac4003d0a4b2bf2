/* The counters of NVTX as counters of the timer; for extensions.c. */
#ifndef KN_INJECT_COUNTERS_H
#define KN_INJECT_COUNTERS_H

#include <nvtx3/nvToolsExtPayload.h>
#include <stdbool.h>

/* The id of the counters' module, which headers before NVTX 3.2 lack. */
enum { KN__COUNTERS_MODULE = 4 };

/* Sets the functions of the counters' module. False: this build, or that of the program, has none.
 */
bool kn__counters_set(const nvtxExtModuleInfo_t *module);
/* Sets the function of the payloads' module that registers scopes, which name counters. */
void kn__counters_set_scopes(nvtxExtModuleSegment_t *segment);

/* Notes the layout of a schema, for counters that are groups. */
void kn__counters_schema(uint64_t id, const nvtxPayloadSchemaAttr_t *attr);

#endif
