#ifndef KNET_ALLOC_RETIRE_H
#define KNET_ALLOC_RETIRE_H

/* From now on the pools are told when a thread ends that used its own default stream. */
void kn__retire_at_end(void);

#endif
