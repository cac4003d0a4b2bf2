/* One product of the MLP's step made slower: this program defines dnnl_sgemm, which passes the call
 * on, and then waits. */
#ifndef KNET_BENCH_SLOW_OP_H
#define KNET_BENCH_SLOW_OP_H

/* The row of the product, in which the wait is. */
#define SLOW_ROW "backward/fc1/linear  d weight/matmul/dnnl_sgemm"

/* From now on a call takes longer by this part of the fastest one so far. */
void slow_op_by(double part);

#endif
