/* The parity cases of optimisers. */
#include "parity_case.h"

static int64_t count_of(parity_operand o) {
    int64_t n = 1;
    for (int d = 0; d < o.shape.n_dims; d++) n *= o.shape.dim[d];
    return n;
}

typedef struct optim_state {
    kn_op op;
    bool m, v;
    bool rate_outside; /* momentum as PyTorch has it */
} optim_state;

static parity_case *optim_of(const optim_state *s, int n_weights, int64_t size, double decay) {
    parity_case *c = parity_add(s->op, COMPARE_CLOSE);
    int64_t n = 0;
    c->n_in = 4, c->n_extra = n_weights;
    for (int i = 0; i < n_weights; i++) {
        c->in[4 + i] = U(i == 1 ? 5000 : size + 30 * i);
        n += count_of(c->in[4 + i]);
    }
    c->in[0] = U(n);
    if (s->m) c->in[1] = s->op == KN_OP_adadelta_step ? OPERAND(POSITIVE, n) : U(n);
    if (s->v) c->in[2] = OPERAND(POSITIVE, n);
    c->in[3] = (parity_operand){.fill = FILL_HYPER, .dtype = KN_F64, .shape = DIMS(4)};
    c->out_is = 4;
    ATTR(c, kn_attr_optim, .n_parts = n_weights, .momentum = 0.9, .beta1 = 0.9, .beta2 = 0.99,
         .eps = 1e-8, .weight_decay = decay, .rate_outside = s->rate_outside);
    return c;
}

void parity_optim_cases(void) {
    static const optim_state ops[] = {
        {KN_OP_sgd_step, 0, 0, 0},      {KN_OP_momentum_step, 1, 0, 0},
        {KN_OP_nesterov_step, 1, 0, 0}, {KN_OP_adagrad_step, 0, 1, 0},
        {KN_OP_rmsprop_step, 0, 1, 0},  {KN_OP_adam_step, 1, 1, 0},
        {KN_OP_adadelta_step, 1, 1, 0}, {KN_OP_lamb_step, 1, 1, 0},
        {KN_OP_ema_step, 1, 0, 0},      {KN_OP_momentum_step, 1, 0, 1},
        {KN_OP_nesterov_step, 1, 0, 1}};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        optim_of(&ops[i], 1, 7, 0);
        optim_of(&ops[i], 4, 7, 0.1);
        optim_of(&ops[i], 1, 40000, 0.1); /* several chunks */
        optim_of(&ops[i], 3, 4096, 0.1);  /* offsets that keep the second one aligned */
        optim_of(&ops[i], 3, 7, 0.1)->in[3].fill = FILL_HYPER_INF;
    }
}
