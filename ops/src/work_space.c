/* Memory for the time of one call: kernel.h. */
#include <knet/prof.h>

#include "capture.h"
#include "kernel.h"
#include "thread.h"

kn_status kn__work(void **out, kn_op_call *call, size_t size_bytes) {
    if (call->n_work == KN__WORKS) {
        return KN_FAIL(KN_ERR_INTERNAL, "kn_%s: more than %d pieces of work space",
                       kn_op_name((kn_op)call->op), KN__WORKS);
    }
    kn__ops_thread *self = kn__ops_self;
    void *placed =
        self && self->pieces && size_bytes ? kn__pieces_take(self->pieces, size_bytes) : NULL;
    if (placed) {
        *out = call->work[call->n_work++] = placed;
        return KN_OK;
    }
    if (self && self->pieces && self->pieces->fixed && size_bytes) {
        return KN_FAIL(KN_ERR_INTERNAL, "kn_%s: %zu bytes of work space more than when recorded",
                       kn_op_name((kn_op)call->op), size_bytes);
    }
    KN_SCOPE("work space");
    KN_TRY(kn_alloc(out, call->pool, size_bytes, call->stream));
    call->work[call->n_work++] = *out;
    if (self && self->capture && *out)
        self->capture->hooks->work_taken(self->capture, *out, size_bytes);
    return KN_OK;
}

void kn__work_end(kn_op_call *call, int keep) {
    kn__ops_thread *self = kn__ops_self;
    while (call->n_work > keep) {
        void *data = call->work[--call->n_work];
        if (self && self->pieces && kn__pieces_end(self->pieces, data)) continue;
        if (self && self->capture) self->capture->hooks->work_ended(self->capture, data);
        kn_free(call->pool, data);
    }
}
