/* Kronecker's product as a product that is broadcast: a [M,1,N,1] times b [1,P,1,Q]. */
#ifndef KN_KRON_H
#define KN_KRON_H

#include <string.h>

#include <knet/op.h>

/* By the device's kernel of rows of two inputs. */
static inline kn_status kn__kron_broadcast(const kn_op_call *call, kn_kernel_fn row2) {
    const int64_t *p = call->in[0]->dim, *q = call->in[1]->dim;
    const int64_t dims[3][4] = {{p[0], 1, p[1], 1}, {1, q[0], 1, q[1]}, {p[0], q[0], p[1], q[1]}};
    kn_tensor *const of[] = {call->in[0], call->in[1], call->out[0]};
    kn_tensor view[3];
    for (int i = 0; i < 3; i++) {
        memset(&view[i], 0, sizeof view[i]);
        view[i].dtype = of[i]->dtype, view[i].n_dims = 4;
        view[i].n = of[i]->n, view[i].data = of[i]->data, view[i].storage = of[i]->storage;
        memcpy(view[i].dim, dims[i], sizeof dims[i]);
    }
    kn_op_call mul = *call;
    mul.op = KN_OP_mul, mul.flat = 0;
    mul.in = (kn_tensor *const[]){&view[0], &view[1]};
    mul.out[0] = &view[2];
    return row2(&mul);
}

#endif
