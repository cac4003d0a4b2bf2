/* One value everywhere. */
#include <string.h>

#include "convert.h"
#include "host/base/chunks.h"
#include "kernel.h"

typedef struct fill_job {
    char *out;
    size_t bytes, size;
    unsigned char value[8];
} fill_job;

enum { CHUNK_BYTES = 1 << 18 };

static void fill_part(void *ctx, int64_t part) {
    const fill_job *j = ctx;
    size_t from = (size_t)part * CHUNK_BYTES,
           n = j->size - from < CHUNK_BYTES ? j->size - from : CHUNK_BYTES;
    char *out = j->out + from;
    switch (j->bytes) {
#define FILL(type)                                                                                 \
    {                                                                                              \
        type value;                                                                                \
        memcpy(&value, j->value, sizeof value);                                                    \
        for (size_t i = 0; i < n / sizeof value; i++) ((type *)(void *)out)[i] = value;            \
        return;                                                                                    \
    }
        case 1:
            memset(out, j->value[0], n);
            return;
        case 2:
            FILL(uint16_t)
        case 4:
            FILL(uint32_t)
        default:
            FILL(uint64_t)
#undef FILL
    }
}

kn_status kn__host_fill(kn_op_call *call) {
    const kn_attr_make *attr = call->attr;
    kn_dtype dtype = (kn_dtype)call->out[0]->dtype;
    fill_job j = {.out = call->out[0]->data, .bytes = kn_dtype_bytes(dtype)};
    j.size = (size_t)call->out[0]->n * j.bytes;
    kn__from_double(j.value, attr->a, dtype);
    bool zero = true;
    for (size_t i = 0; i < j.bytes; i++) zero = zero && j.value[i] == 0;
    if (zero && j.size <= CHUNK_BYTES) {
        memset(j.out, 0, j.size);
        return KN_OK;
    }
    kn__parallel_for(call->threads, kn__chunks((int64_t)j.size, CHUNK_BYTES), fill_part, &j);
    return KN_OK;
}
