/* Second derivatives of some rows, written in ops, for orders above the second. */
#ifndef KN_COMPOSED_H
#define KN_COMPOSED_H

#include "tape.h"

/* D_ij(u), i <= j, of a row with inputs x and result z; NULL with the error pending. */
typedef kn_tensor *(*kn__composed_fn)(int i, int j, kn_tensor *u, kn_tensor *const x[],
                                      kn_tensor *z, const kn_attr_scalars *attr);
/* By op of the row; NULL: it has none. */
extern const kn__composed_fn kn__composed[KN_OP_COUNT] __attribute__((visibility("hidden")));

#endif
