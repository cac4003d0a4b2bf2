/* Graphs of the fake GPU: work enqueued on a captured stream, run again by each launch. */
#ifndef KNET_FAKE_GRAPH_H
#define KNET_FAKE_GRAPH_H

#include "fake_gpu.h"
#include "fake_product.h"

typedef enum { FAKE_KERNEL = 1, FAKE_PRODUCT, FAKE_CONVOLUTION, FAKE_FILL, FAKE_COPY } fake_kind;
typedef struct fake_work {
    fake_kind kind;
    int kernel; /* its index; -1: no name is known */
    void *to;
    const void *from;
    int byte;
    size_t size_bytes;
    fake_product product;
} fake_work;

/* Takes the work if the stream is being captured. */
bool fake_graph_takes(const void *stream, const fake_work *work);
/* fake_gpu.c: does the work. */
void fake_gpu_work(const void *stream, const fake_work *work);
int fake_gpu_begin(const char *name);
void fake_gpu_graph_launched(void);

#endif
