/* Schedules of the learning rate. */
#include <knet/optim.h>
#include <math.h>

#include "test.h"

static double rate_of(const kn_schedule *s, int64_t step) {
    double lr = -1;
    assert_ok(kn_schedule_lr(&lr, s, step));
    return lr;
}

static void schedules_have_their_shapes(void **state) {
    (void)state;
    kn_schedule step = {.kind = KN_SCHEDULE_STEP, .lr = 1, .gamma = 0.5, .every = 10, .warmup = 4};
    assert_close(rate_of(&step, 0), 0.25, 1e-15, 0);
    assert_close(rate_of(&step, 3), 1, 1e-15, 0);
    assert_close(rate_of(&step, 13), 1, 1e-15, 0);
    assert_close(rate_of(&step, 14), 0.5, 1e-15, 0);
    step.hold = 17;
    assert_close(rate_of(&step, 0), 0.25, 1e-15, 0);
    assert_close(rate_of(&step, 4), 1, 1e-15, 0);
    assert_close(rate_of(&step, 30), 1, 1e-15, 0);
    assert_close(rate_of(&step, 31), 0.5, 1e-15, 0);
    assert_close(rate_of(&step, 41), 0.25, 1e-15, 0);
    kn_schedule line = {.kind = KN_SCHEDULE_LINEAR, .lr = 1, .lr_end = 0.5, .steps = 11};
    assert_close(rate_of(&line, 0), 1, 1e-15, 0);
    assert_close(rate_of(&line, 5), 0.75, 1e-15, 0);
    assert_close(rate_of(&line, 10), 0.5, 1e-15, 0);
    assert_close(rate_of(&line, 1000), 0.5, 1e-15, 0);
    kn_schedule cosine = {.kind = KN_SCHEDULE_COSINE, .lr = 1, .steps = 101};
    assert_close(rate_of(&cosine, 25), (1 + sqrt(0.5)) / 2, 1e-12, 0);
    assert_close(rate_of(&cosine, 50), 0.5, 1e-12, 0);
    assert_close(rate_of(&cosine, 100), 0, 0, 1e-15);
    kn_schedule cycle = {.kind = KN_SCHEDULE_ONE_CYCLE, .lr = 1, .lr_end = 0.001, .steps = 100};
    assert_close(rate_of(&cycle, 0), 0.04, 1e-12, 0);
    assert_close(rate_of(&cycle, 29), 1, 1e-12, 0);
    assert_close(rate_of(&cycle, 99), 0.001, 1e-12, 0);
    assert_close(rate_of(&(kn_schedule){.lr = 3}, 7), 3, 0, 0);
    double lr = 7;
    cosine.steps = 0;
    assert_fails(kn_schedule_lr(&lr, &cosine, 0), KN_ERR_INVALID, "steps is 0");
    assert_fails(kn_schedule_lr(&lr, &line, -1), KN_ERR_INVALID, "step is -1");
    assert_fails(kn_schedule_lr(&lr, NULL, 0), KN_ERR_INVALID, "schedule is NULL");
    assert_close(lr, 7, 0, 0);
}

static void schedules_count_their_warmup_and_may_have_one_step(void **state) {
    (void)state;
    kn_schedule line = {.kind = KN_SCHEDULE_LINEAR, .lr = 1, .steps = 15, .warmup = 4};
    assert_close(rate_of(&line, 1), 0.5, 1e-15, 0);
    assert_close(rate_of(&line, 4), 1, 1e-15, 0);
    assert_close(rate_of(&line, 9), 0.5, 1e-15, 0);
    line.kind = KN_SCHEDULE_COSINE;
    assert_close(rate_of(&line, 9), 0.5, 1e-12, 0);
    assert_close(rate_of(&line, 14), 0, 0, 1e-15);
    for (int kind = KN_SCHEDULE_LINEAR; kind <= KN_SCHEDULE_ONE_CYCLE; kind++) {
        kn_schedule few = {.kind = (kn_schedule_kind)kind, .lr = 1, .lr_end = 0.25, .steps = 1};
        for (; few.steps <= 3; few.steps++) { /* a step at 0 would be lost */
            assert_close(rate_of(&few, 0), 1, 1e-15, 0);
            if (few.steps > 1) assert_close(rate_of(&few, few.steps - 1), 0.25, 1e-15, 0);
            assert_close(rate_of(&few, few.steps), 0.25, 1e-15, 0);
        }
    }
    line.warmup = 14;
    assert_close(rate_of(&line, 14), 1, 1e-15, 0);
    assert_close(rate_of(&(kn_schedule){.kind = KN_SCHEDULE_STEP, .lr = 1, .every = 1}, 2), 0.01,
                 1e-12, 0);
}

/* Recorded with PyTorch 1.13: OneCycleLR(max_lr=1, total_steps=…, final_div_factor=40). */
static void one_cycle_is_pytorchs(void **state) {
    (void)state;
    static const struct {
        int64_t steps, first;
        double rate[5];
    } want[] = {
        {5, 0, {0.04, 0.950533949517258, 0.611649206511179, 0.189066843971563, 0.001}},
        {7,
         1,
         {0.980556627334959, 0.919125008393474, 0.673009844683443, 0.358378470477799,
          0.100193895876956}},
        {100, 27, {0.988777866740842, 0.997186219434093, 1, 0.999497036737387, 0.997989159850622}},
        {101,
         96,
         {0.00886942016133899, 0.00543165238554936, 0.00297124473583883, 0.00149305453007545,
          0.001}}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        kn_schedule s = {
            .kind = KN_SCHEDULE_ONE_CYCLE, .lr = 1, .lr_end = 0.001, .steps = want[i].steps};
        for (int64_t t = 0; t < 5; t++)
            assert_close(rate_of(&s, want[i].first + t), want[i].rate[t], 1e-12, 1e-12);
    }
}

static void wrong_schedules_are_refused(void **state) {
    (void)state;
    static const struct {
        kn_schedule s;
        const char *text;
    } bad[] = {
        {{.kind = (kn_schedule_kind)-1, .lr = 1}, "no kind -1"},
        {{.kind = KN_SCHEDULE_ONE_CYCLE + 1, .lr = 1}, "no kind 5"},
        {{.lr = 1, .warmup = -2}, "warmup is -2"},
        {{.kind = KN_SCHEDULE_COSINE, .lr = 1, .steps = 3, .warmup = 3}, "warmup is 3 of 3"},
        {{.kind = KN_SCHEDULE_STEP, .lr = 1}, "every is 0"},
        {{.lr = 1, .reserved = {0, 0, 1}}, "reserved[2]"},
        {{.lr = -1}, "lr is -1"},
        {{.lr = INFINITY}, "lr is inf"},
        {{.lr = NAN}, "lr is nan"},
        {{.kind = KN_SCHEDULE_ONE_CYCLE, .lr = 1, .steps = 9, .lr_start = -1}, "lr_start is -1"},
        {{.kind = KN_SCHEDULE_LINEAR, .lr = 1, .steps = 9, .lr_end = INFINITY}, "lr_end is inf"},
        {{.kind = KN_SCHEDULE_COSINE, .lr = 1, .steps = 9, .lr_end = -1}, "lr_end is -1"},
        {{.kind = KN_SCHEDULE_STEP, .lr = 1, .every = 9, .gamma = -1}, "gamma is -1"},
        {{.kind = KN_SCHEDULE_STEP, .lr = 1, .every = 9, .hold = -1}, "hold is -1"}};
    double lr = 7;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(kn_schedule_lr(&lr, &bad[i].s, 0), KN_ERR_INVALID, bad[i].text);
    assert_close(lr, 7, 0, 0);
}

/* Fields that the kind doesn't use have values that are errors where a kind uses them. */
static void fields_of_other_kinds_are_ignored(void **state) {
    (void)state;
    const kn_schedule each[] = {
        {.lr = 1},
        {.kind = KN_SCHEDULE_STEP, .lr = 1, .gamma = 0.5, .every = 1},
        {.kind = KN_SCHEDULE_LINEAR, .lr = 1, .lr_end = 0.25, .steps = 4},
        {.kind = KN_SCHEDULE_COSINE, .lr = 1, .lr_end = 0.25, .steps = 4},
        {.kind = KN_SCHEDULE_ONE_CYCLE, .lr = 1, .lr_start = 0.5, .lr_end = 0.25, .steps = 8}};
    for (int i = 0; i < 5; i++) {
        kn_schedule other = each[i];
        bool is_cycle = other.kind == KN_SCHEDULE_ONE_CYCLE;
        if (!is_cycle) other.lr_start = -1;
        if (is_cycle) other.warmup = INT64_MIN;
        if (other.kind < KN_SCHEDULE_LINEAR) other.lr_end = NAN, other.steps = -1;
        if (other.kind != KN_SCHEDULE_STEP) other.gamma = -INFINITY, other.every = other.hold = -1;
        for (int step = 0; step < 9; step++)
            assert_close(rate_of(&other, step), rate_of(&each[i], step), 0, 0);
    }
}

int main(void) {
    return RUN_TESTS(TEST(schedules_have_their_shapes),
                     TEST(schedules_count_their_warmup_and_may_have_one_step),
                     TEST(one_cycle_is_pytorchs), TEST(wrong_schedules_are_refused),
                     TEST(fields_of_other_kinds_are_ignored));
}
