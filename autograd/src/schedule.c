#include <inttypes.h>
#include <math.h>
#include <stdbool.h>

#include <knet/optim.h>

static kn_status missing(const char *name, double value) {
    return KN_FAIL(KN_ERR_INVALID, "kn_schedule_lr: %s is %g", name, value);
}

static int64_t warmup_of(const kn_schedule *s) {
    return s->kind == KN_SCHEDULE_ONE_CYCLE ? 0 : s->warmup;
}

/* The numbers that the kind reads. */
static kn_status numbers_check(const kn_schedule *s) {
    bool is_step = s->kind == KN_SCHEDULE_STEP, has_end = s->kind >= KN_SCHEDULE_LINEAR;
    const struct {
        const char *name;
        double value;
        bool is_read;
    } numbers[] = {{"lr", s->lr, true},
                   {"lr_start", s->lr_start, s->kind == KN_SCHEDULE_ONE_CYCLE},
                   {"lr_end", s->lr_end, has_end},
                   {"gamma", s->gamma, is_step},
                   {"hold", (double)s->hold, is_step},
                   {"warmup", (double)warmup_of(s), true}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].is_read && !(numbers[i].value >= 0 && isfinite(numbers[i].value)))
            return missing(numbers[i].name, numbers[i].value);
    if (is_step && s->every <= 0) return missing("every", (double)s->every);
    if (has_end && s->steps <= 0) return missing("steps", (double)s->steps);
    return KN_OK;
}

static kn_status check(const kn_schedule *s, int64_t step) {
    if (!s) return KN_FAIL(KN_ERR_INVALID, "kn_schedule_lr: schedule is NULL");
    if (s->kind < KN_SCHEDULE_CONSTANT || s->kind > KN_SCHEDULE_ONE_CYCLE)
        return KN_FAIL(KN_ERR_INVALID, "kn_schedule_lr: there is no kind %d", (int)s->kind);
    for (int i = 0; i < 3; i++) {
        if (s->reserved[i])
            return KN_FAIL(KN_ERR_INVALID, "kn_schedule_lr: reserved[%d] is not zero", i);
    }
    KN_TRY(numbers_check(s));
    if (step < 0) return missing("step", (double)step);
    bool warms_up = s->kind == KN_SCHEDULE_LINEAR || s->kind == KN_SCHEDULE_COSINE;
    if (warms_up && s->warmup >= s->steps)
        return KN_FAIL(KN_ERR_INVALID,
                       "kn_schedule_lr: warmup is %" PRId64 " of %" PRId64
                       " steps; at least one must follow it",
                       s->warmup, s->steps);
    return KN_OK;
}

/* From a to b as x goes from 0 to 1, along half a cosine. */
static double along_cosine(double a, double b, double x) {
    return b + (a - b) * (1 + cos(x * 3.14159265358979323846)) / 2;
}

/* The share of the way from step 0 to step `last` at step t; 1 from the last one on, but a way of
 * one step stays where it begins, as its rate would be lr_end alone. */
static double share(double t, double last) { return t < last ? t / last : t > 0; }

/* The largest rate lies where it does in PyTorch's OneCycleLR, in general between two steps. */
static double one_cycle(const kn_schedule *s, int64_t step) {
    double peak = 0.3 * (double)s->steps - 1, t = (double)step, last = (double)s->steps - 1;
    double start = s->lr_start > 0 ? s->lr_start : s->lr / 25;
    if (peak < 0) peak = 0;
    if (t < peak) return along_cosine(start, s->lr, t / peak);
    return along_cosine(s->lr, s->lr_end, share(t - peak, last - peak));
}

kn_status kn_schedule_lr(double *lr, const kn_schedule *s, int64_t step) {
    if (!lr) return KN_FAIL(KN_ERR_INVALID, "kn_schedule_lr: lr is NULL");
    KN_TRY(check(s, step));
    int64_t t = step - warmup_of(s);
    double last = (double)s->steps - 1 - (double)warmup_of(s);
    int64_t steps_done = s->kind == KN_SCHEDULE_STEP && t > s->hold ? (t - s->hold) / s->every : 0;
    if (s->kind == KN_SCHEDULE_ONE_CYCLE)
        *lr = one_cycle(s, step);
    else if (t < 0)
        *lr = s->lr * (double)(step + 1) / (double)s->warmup;
    else if (s->kind == KN_SCHEDULE_STEP)
        *lr = s->lr * pow(s->gamma > 0 ? s->gamma : 0.1, (double)steps_done);
    else if (s->kind == KN_SCHEDULE_LINEAR)
        *lr = s->lr + (s->lr_end - s->lr) * share((double)t, last);
    else if (s->kind == KN_SCHEDULE_COSINE)
        *lr = along_cosine(s->lr, s->lr_end, share((double)t, last));
    else
        *lr = s->lr;
    return KN_OK;
}
