/* One value everywhere. */
#include "convert.h"
#include "host/base/chunks.h"
#include "host/base/walk.h"
#include "kernel.h"

typedef struct fill_job {
    char *out;
    size_t bytes, size, each;
    char value[8];
} fill_job;

enum { GRAIN_BYTES = 1 << 18 };

static void fill_part(void *ctx, int64_t part) {
    const fill_job *j = ctx;
    size_t from = (size_t)part * j->each, n = j->size - from < j->each ? j->size - from : j->each;
    kn__walk_repeat(j->out + from, j->value, j->bytes, (int64_t)(n / j->bytes));
}

kn_status kn__host_fill(kn_op_call *call) {
    const kn_attr_make *attr = call->attr;
    kn_dtype dtype = (kn_dtype)call->out[0]->dtype;
    fill_job j = {.out = call->out[0]->data, .bytes = kn_dtype_bytes(dtype)};
    j.size = (size_t)call->out[0]->n * j.bytes;
    j.each = (size_t)kn__even((int64_t)j.size, GRAIN_BYTES);
    kn__from_double(j.value, attr->a, dtype);
    kn__parallel_for(call->threads, kn__chunks((int64_t)j.size, (int64_t)j.each), fill_part, &j);
    return KN_OK;
}
