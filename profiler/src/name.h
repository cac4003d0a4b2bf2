/* Names of kernels as people read them. */
#ifndef KNET_NAME_H
#define KNET_NAME_H

#include <stddef.h>

/* The qualified name in a mangled one, without template arguments and parameters:
 * "_ZN7cutlass6KernelI…EEvT_" gives "cutlass::Kernel". What is not mangled, or in a way that isn't
 * understood, stays as it is. Cut to fit. */
void kn__name_short(char *out, size_t out_bytes, const char *name);

#endif
