#include "nvtx.h"

bool kn__nvtx_start(void) { return false; }
void kn__nvtx_push(kn__node *node) { (void)node; }
void kn__nvtx_pop(void) {}
