/* The columns of the op schema: what gradients read, add to, and leave out. */
#include "grad_cases.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* A case as a function of one of its inputs; the others are constants. */
typedef struct single {
    const grad_case *c;
    void *ctx;
    kn_tensor **x;
    int which;
} single;

static kn_tensor *of_one(void *ctx, kn_tensor *const x[]) {
    const single *s = ctx;
    kn_tensor *in[4];
    for (int i = 0; i < s->c->n_x; i++) in[i] = i == s->which ? x[0] : s->x[i];
    return s->c->f(s->ctx, in);
}

static bool passes(const grad_case *c, void *ctx) {
    KN_FRAME(.dtype = KN_F64);
    kn_tensor *x[4];
    grad_fill(x, c);
    for (int i = 0; i < c->n_x; i++) {
        single s = {c, ctx, x, i};
        if (kn_gradcheck(of_one, &s, &x[i], 1, 1, 1e-7, 1e-8) < 0) return false;
    }
    return true;
}

/* Whether the first derivatives of op are still right, in a process of its own: an operand that
 * is missing may end it. */
static bool still_passes(kn_op op) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
        for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) signal(fatal[i], SIG_DFL);
        bool good = true;
        const kn_shape all = KN_SHAPE(2, 3, 4);
        grad_case row = grad_row_case(op, all, all, all);
        if (grad_is_row((int)op)) good = passes(&row, &op);
        for (int i = 0; i < n_grad_cases && good; i++) {
            if (grad_cases[i].op == op) good = passes(&grad_cases[i], NULL);
        }
        _exit(good ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Clears one bit of an op's needs, in this process and its children. */
static void toggle_need(kn_op op, int input, unsigned bit) {
    uint16_t *need = (uint16_t *)(uintptr_t)&kn_op_needs_table[op].first[input];
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)need & ~(page - 1);
    assert_int_equal(mprotect((void *)from, 2 * page, PROT_READ | PROT_WRITE), 0);
    *need ^= (uint16_t)bit;
}

/* Without it the gradient is right too: cross_entropy has a way for higher derivatives, and LU
 * factors that are missing are made again. */
static bool has_another_way(int op, unsigned bit) {
    switch (op) {
        case KN_OP_cross_entropy:
            return true;
        case KN_OP_solve:
        case KN_OP_det:
            return bit == 1u << (KN_NEED_OUT + 1);
        case KN_OP_slogdet:
            return bit == 1u << (KN_NEED_OUT + 2);
        default:
            return false;
    }
}

/* What a derivative doesn't read isn't named, and what isn't named is missed. */
static void every_need_is_used(void **state) {
    (void)state;
    for (int op = 0; op < KN_OP_COUNT; op++) {
        const kn_op_needs *needs = &kn_op_needs_table[op];
        if (kn_op_rule(op) != KN_RULE_GRADIENT || kn_op_table[op].order) continue;
        for (int i = 0; i < needs->n_first; i++) {
            for (unsigned left = needs->first[i] & (KN_NEED_ZERO - 1); left; left &= left - 1) {
                unsigned bit = left & -left;
                if (has_another_way(op, bit)) continue;
                toggle_need((kn_op)op, i, bit);
                bool good = still_passes((kn_op)op);
                toggle_need((kn_op)op, i, bit);
                if (good)
                    fail_msg("%s: need 0x%x of input %d is not used", kn_op_name((kn_op)op), bit,
                             i);
            }
        }
    }
}

/* f(x) twice on one tape: the second gradient meets the first one. */
static void check_meeting(const grad_case *c, void *ctx) {
    kn_tensor *x[4], *once[4], *twice[4];
    KN_TAPE(.dtype = KN_F64);
    grad_fill(x, c);
    for (int j = 0; j < c->n_x; j++) x[j] = kn_watch(x[j]);
    kn_tensor *y = c->f(ctx, x), *z = c->f(ctx, x);
    assert_non_null(z);
    kn_tensor *weights = kn_affine(kn_ones(kn_tensor_shape(y)), 0.5, 0.25);
    kn_gradients_options keep = {.keep = 1};
    kn_tensor *one = sum_all(kn_mul(y, weights)), *both = kn_add(one, sum_all(kn_mul(z, weights)));
    assert_ok(kn_gradients(once, one, x, c->n_x, &keep));
    assert_ok(kn_gradients(twice, both, x, c->n_x, &keep));
    for (int j = 0; j < c->n_x; j++) {
        for (int64_t k = 0; k < kn_tensor_numel(x[j]); k++) {
            assert_close(ops_at(twice[j], k), 2 * ops_at(once[j], k), 1e-12, 1e-13);
        }
    }
}

static void gradients_that_meet_add_up_for_every_rule(void **state) {
    (void)state;
    const kn_shape all = KN_SHAPE(2, 3, 4), row = KN_SHAPE(4);
    for (int op = 0; op < KN_OP_COUNT; op++) {
        if (!grad_is_row(op)) continue;
        kn_op which = (kn_op)op;
        grad_case same = grad_row_case(which, all, all, all),
                  wide = grad_row_case(which, all, row, all);
        check_meeting(&same, &which);
        check_meeting(&wide, &which);
    }
    for (int i = 0; i < n_grad_cases; i++) check_meeting(&grad_cases[i], NULL);
}

/* --- third derivatives: of t → row(t, t + 0.6, t + 1.1) --- */

static kn_status derivative(double *out, kn_op op, double at, int order) {
    KN_TAPE(.dtype = KN_F64);
    kn_tensor *t = kn_watch(F64(KN_SHAPE(1), at));
    kn_tensor *x[] = {t, kn_affine(t, 1, 0.6), kn_affine(t, 1, 1.1)};
    kn_op which = op;
    kn_tensor *y = grad_row(&which, x);
    for (int k = 0; k < order && y; k++) {
        kn_tensor *dy = NULL;
        KN_TRY(kn_gradients(&dy, y, &t, 1, &(kn_gradients_options){.again = 1}));
        y = dy;
    }
    return y ? kn_item(out, y) : kn_check();
}

static const bool has_composed[KN_OP_COUNT] = {
#define NONE_third 0
#define exp_third 1
#define log_third 1
#define sqrt_third 1
#define sigm_third 1
#define tanh_third 1
#define pow_scalar_third 1
#define div_third 1
#define pow_third 1
#define reciprocal_third 1
#define rsqrt_third 1
#define exp2_third 1
#define exp10_third 1
#define expm1_third 1
#define log2_third 1
#define log10_third 1
#define log1p_third 1
#define sin_third 1
#define cos_third 1
#define tan_third 1
#define sinh_third 1
#define cosh_third 1
#define sech_third 1
#define csch_third 1
#define coth_third 1
#define cot_third 1
#define sinpi_third 1
#define cospi_third 1
#define erf_third 1
#define erfc_third 1
#define softplus_third 1
#define KN_ROW1(name, s, domain, x, f, d0, d00, third) [KN_OP_##name] = third##_third,
#define KN_ROW2(name, s, domain, x, y, f, d0, d1, d00, d01, d11, third)                            \
    [KN_OP_##name] = third##_third,
#include <knet/ops.def>
};

static void third_derivatives_agree_or_say_that_there_are_none(void **state) {
    (void)state;
    for (int op = 0; op < KN_OP_COUNT; op++) {
        if (!grad_is_row(op)) continue;
        double at = 0.83, h = 1e-5, third, low, high;
        kn_status status = derivative(&third, (kn_op)op, at, 3);
        if (status == KN_ERR_UNSUPPORTED && !has_composed[op]) {
            char text[64];
            snprintf(text, sizeof text, "kn_%s has no third derivative", kn_op_name((kn_op)op));
            assert_non_null(strstr(kn_last_error()->message, text));
            continue;
        }
        if (status < 0) print_error("%s\n", kn_op_name((kn_op)op));
        assert_ok(status);
        assert_ok(derivative(&low, (kn_op)op, at - h, 2));
        assert_ok(derivative(&high, (kn_op)op, at + h, 2));
        assert_close(third, (high - low) / (2 * h), 1e-6, 1e-6);
    }
}

int main(void) {
    return RUN_TESTS(OPS_TEST(every_need_is_used),
                     OPS_TEST(gradients_that_meet_add_up_for_every_rule),
                     OPS_TEST(third_derivatives_agree_or_say_that_there_are_none));
}
