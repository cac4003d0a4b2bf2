/* The cases of gradients: a function of each op with a rule, and the walk over pointwise rows. */
#ifndef KNET_GRAD_CASES_H
#define KNET_GRAD_CASES_H

#include "autograd_test.h"

typedef struct grad_case {
    kn_op op;
    const char *text;
    kn_gradcheck_fn f;
    int n_x;
    kn_shape shape[4];
    double lo, hi;
} grad_case;

/* Of ops with kernels of their own, and some of rows that meet themselves. */
extern const grad_case grad_cases[];
extern const int n_grad_cases;

/* The case's inputs: all numbers differ, by more than differences move them; none is near zero. */
void grad_fill(kn_tensor *x[], const grad_case *c);
/* Whether the derivatives of that order agree with differences; the error is recorded. */
kn_status grad_check(const grad_case *c, void *ctx, int order);

/* Whether op is a pointwise row with a gradient. */
bool grad_is_row(int op);
/* Its case, for inputs of these shapes; ctx is the op. */
grad_case grad_row_case(kn_op op, kn_shape a, kn_shape b, kn_shape c);
/* The row of x[0], x[1], …; a condition is x[1] > x[2]. ctx points to the op. */
kn_tensor *grad_row(void *ctx, kn_tensor *const x[]);

#endif
