/* What the observer knows of owners. */
#ifndef KNET_ALLOC_OBSERVER_H
#define KNET_ALLOC_OBSERVER_H

#include <stddef.h>
#include <stdint.h>

/* The label of an owner, as the observer says it, or its number. */
void kn__owner_name(uint32_t owner, char *out, size_t out_bytes);

#endif
