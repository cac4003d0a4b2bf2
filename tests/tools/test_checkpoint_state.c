/* What a checkpoint has of averages, of an optimiser's settings and of its groups. */
#include <knet/checkpoint.h>
#include <knet/tape.h>

#include "checkpoint_dir.h"
#include "test.h"

typedef struct pair {
    kn_params *params;
    kn_tensor *w[2];
    kn_checkpoint c;
} pair;

/* Without an optimiser. */
static void pair_open(pair *p) {
    *p = (pair){0};
    assert_ok(kn_params_create(&p->params, NULL));
    for (int i = 0; i < 2; i++)
        p->w[i] = kn_param(p->params, KN_SHAPE(1), (kn_init){KN_INIT_CONSTANT, 1 + i, 0}, "w%d", i);
    p->c = (kn_checkpoint){.params = p->params};
    assert_ok(kn_check());
}

static void pair_close(pair *p) {
    kn_ema_destroy(p->c.ema);
    kn_optim_destroy(p->c.optim);
    kn_params_destroy(p->params);
}

static double first_of(kn_tensor *t) {
    KN_FRAME();
    double x = 0;
    assert_ok(kn_item(&x, kn_reshape(t, KN_SCALAR)));
    return x;
}

static double value_in_file(const char *name) {
    KN_FRAME();
    kn_file *f = NULL;
    assert_ok(kn_file_open(&f, path));
    double x = first_of(kn_file_read(f, name));
    kn_file_close(f);
    return x;
}

static void averages_have_their_names_also_while_exchanged(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {
        KN_FRAME();
        pair p, q;
        pair_open(&p);
        pair_open(&q);
        assert_ok(kn_ema_create(&p.c.ema, p.params, 0.5));
        assert_ok(kn_ema_create(&q.c.ema, q.params, 0.5));
        assert_ok(kn_fill_into(p.w[0], 3)); /* w0 is 3, its average 1 */
        if (k & 1) assert_ok(kn_ema_swap(p.c.ema));
        assert_ok(kn_checkpoint_save(path, &p.c, NULL));
        assert_close(value_in_file("w0"), 3, 0, 0);
        assert_close(value_in_file("ema/w0"), 1, 0, 0);
        if (k & 2) assert_ok(kn_ema_swap(q.c.ema));
        assert_ok(kn_checkpoint_load(&q.c, path));
        if (k & 2) assert_ok(kn_ema_swap(q.c.ema));
        assert_close(first_of(q.w[0]), 3, 0, 0);
        assert_close(first_of(kn_ema_at(q.c.ema, 0)), 1, 0, 0);
        pair_close(&p);
        pair_close(&q);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(averages_have_their_names_also_while_exchanged)};
    return cmocka_run_group_tests_name("test_checkpoint_state", tests, dir_make, dir_remove);
}
