/* Between fake_gpu.c and the driver's functions for kernels of chains, which include cuda.h. */
#ifndef KNET_FAKE_CHAINS_H
#define KNET_FAKE_CHAINS_H

#include <stdbool.h>

/* What every call begins with: counts it, and tells whether it is to fail, and how. */
int fake_gpu_begin(const char *name);
/* A chain was launched. */
void fake_gpu_chain(void);
/* The function of the driver by its name. */
bool fake_chains_find(const char *name, void **out);

#endif
