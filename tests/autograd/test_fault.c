/* Memory runs out at every place of a training step in turn: the status is OOM, nothing leaks, and
 * once there is memory again the same objects train on as if nothing had happened. */
#include "net.h"

static kn_pool *pool;

static uint64_t live(void) {
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, pool);
    return stats.live_bytes;
}

static kn_status step_in_pool(net *n, int step, double *loss) {
    KN_TAPE(.pool = pool);
    KN_TRY(kn_check());
    kn_tensor *l = net_loss(n, step);
    KN_TRY(kn_backward(l));
    KN_TRY(kn_optim_step(n->optim));
    return kn_item(loss, l);
}

/* Raises the limit grain by grain until the step succeeds. */
static void every_lack_of_memory_is_an_error_and_no_more(void **state) {
    (void)state;
    net n, calm;
    assert_ok(net_create(&n));
    assert_ok(net_create(&calm));
    double loss = 0, want = 0;
    {
        KN_FRAME();
        assert_ok(net_step(&n, 0, &loss)); /* arenas and state are there */
        assert_ok(net_step(&calm, 0, &want));
    }
    int failures = 0, in_backward = 0;
    kn_status status = KN_ERR_OOM;
    for (size_t limit = 1 << 10; status < 0 && limit < 64 << 20; limit += 4 << 10) {
        assert_ok(kn_pool_create(&pool, kn_device_host(), &(kn_pool_options){.limit_bytes = limit}));
        uint64_t seed, offset;
        assert_ok(kn_rng_state_get(&seed, &offset, n.rng));
        status = step_in_pool(&n, 1, &loss);
        if (status < 0) {
            assert_int_equal(status, KN_ERR_OOM);
            assert_ok(kn_rng_state_set(n.rng, seed, offset));
            failures++;
            const char *op = kn_last_error()->op;
            if (op && (strstr(op, "_back") || !strcmp(op, "matmul"))) in_backward++;
        }
        assert_int_equal(kn_check(), KN_OK);
        assert_int_equal(live(), 0);
        kn_pool_destroy(pool);
    }
    assert_ok(status);
    assert_true(failures > 10);
    assert_true(in_backward > 0);
    KN_FRAME();
    assert_ok(net_step(&calm, 1, &want));
    assert_close(loss, want, 0, 0);
    assert_ok(net_step(&n, 2, &loss));
    assert_ok(net_step(&calm, 2, &want));
    assert_close(loss, want, 0, 0);
    net_destroy(&n);
    net_destroy(&calm);
}

/* The first backward and the first step make the arena and the optimiser's state. */
static void the_first_step_may_fail_too(void **state) {
    (void)state;
    kn_pool *host = kn_device_pool(kn_device_host());
    double loss = 0;
    int failures = 0;
    kn_status status = KN_ERR_OOM;
    for (size_t extra = 0; status < 0 && extra < 64 << 20; extra += 16 << 10) {
        net n;
        assert_ok(net_create(&n));
        kn_pool_stats stats;
        assert_ok(kn_pool_trim(host, 0));
        kn_pool_stats_read(&stats, sizeof stats, host);
        assert_ok(kn_pool_limit(host, (size_t)stats.reserved_bytes + extra));
        {
            KN_FRAME();
            status = net_step(&n, 0, &loss);
        }
        assert_ok(kn_pool_limit(host, 0));
        if (status < 0) {
            assert_int_equal(status, KN_ERR_OOM);
            failures++;
            KN_FRAME();
            assert_ok(net_step(&n, 0, &loss));
        }
        net_destroy(&n);
    }
    assert_ok(status);
    assert_true(failures > 0);
}

int main(void) {
    return RUN_TESTS(OPS_TEST(every_lack_of_memory_is_an_error_and_no_more),
                     OPS_TEST(the_first_step_may_fail_too));
}
