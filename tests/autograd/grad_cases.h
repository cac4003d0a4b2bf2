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
    bool once; /* the op's gradient has no derivative: an UNSUPPORTED error that says so */
} grad_case;

/* Of ops with kernels of their own, and some of rows that meet themselves. */
extern const grad_case *grad_cases;
extern int n_grad_cases;
/* Those of families with a file of their own, joined to the table before main. */
extern const grad_case grad_linalg_cases[];
extern const int n_grad_linalg_cases;
extern const grad_case grad_move_cases[];
extern const int n_grad_move_cases;
extern const grad_case grad_norm_cases[];
extern const int n_grad_norm_cases;
extern const grad_case grad_sequence_cases[];
extern const int n_grad_sequence_cases;

extern const grad_case grad_image_cases[];
extern const int n_grad_image_cases;
extern const grad_case grad_statistics_cases[];
extern const int n_grad_statistics_cases;

#define F(name) static kn_tensor *name(void *ctx, kn_tensor *const x[])
#define CTX (void)ctx
/* NULL, with the error of a call that returned its status pending. */
#define GRAD_FAILED kn_error_defer(kn_last_error()->status)
#define CASE(op, f, lo, hi, n, ...)                                                                \
    { KN_OP_##op, #f, f, n, {__VA_ARGS__}, lo, hi, false }
#define C1(...)                                                                                    \
    { {__VA_ARGS__}, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)) }
#define C0                                                                                         \
    { {0}, 0 }

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
