/* Streams, other devices and failures, on the simulated device: its kernels do nothing, so what is
 * seen here is only where work goes, what waits for what, and when memory comes back. */
#include <knet/sim.h>

#include "ops_test.h"

static kn_sim *sim;
static kn_device *device;

static int make_device(void **state) {
    (void)state;
    if (kn_sim_create(&sim, &(kn_sim_options){.capacity_bytes = 1ull << 32}) < 0) return 1;
    return kn_device_register(&device, "sim:ops", kn_sim_driver(sim), sim) < 0;
}

static uint64_t live(kn_pool *pool) {
    kn_pool_stats stats;
    kn_pool_stats_read(&stats, sizeof stats, pool);
    return stats.live_bytes;
}

static kn_status no_gather(void *ctx, double all[], int64_t n) {
    (void)ctx, (void)all, (void)n;
    return KN_FAIL(KN_ERR_INTERNAL, "not to be called");
}

static void batch_norm_across_ranks_is_for_the_host(void **state) {
    (void)state;
    KN_FRAME(.device = device);
    const kn_batch_ranks ranks = {no_gather, NULL, 0, 2};
    const kn_batchnorm_options o = {.training = 1, .ranks = &ranks};
    kn_tensor *x = kn_zeros(KN_SHAPE(4, 3));
    assert_op_fails(kn_batchnorm(x, KN_NONE, KN_NONE, KN_NONE, KN_NONE, &o), KN_ERR_UNSUPPORTED,
                    "ranks share statistics of tensors on the host; x is on sim:ops");
}

static void results_follow_their_inputs_device(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x;
    {
        KN_FRAME(.device = device);
        x = kn_keep(kn_zeros(KN_SHAPE(4, 4)));
        assert_ptr_equal(kn_tensor_device(x), device);
    }
    kn_tensor *y = kn_relu(kn_add(x, x)); /* the frame is the host's */
    assert_ptr_equal(kn_tensor_device(y), device);
    assert_ptr_equal(kn_tensor_device(kn_zeros(KN_SHAPE(4))), kn_device_host());
    assert_op_fails(kn_add(x, kn_zeros(KN_SHAPE(4))), KN_ERR_DEVICE,
                    "kn_add: a is on sim:ops, b on cpu; see kn_to (a [4,4], b [4])");
    { /* a frame on another device has that device's pool, whatever is around it */
        KN_FRAME(.device = kn_device_host());
        assert_ptr_equal(kn_frame_pool(), kn_device_pool(kn_device_host()));
        KN_FRAME(.device = device);
        assert_ptr_equal(kn_frame_pool(), kn_device_pool(device));
    }
}

static void a_pool_of_another_device_is_refused(void **state) {
    (void)state;
    kn_frame frame = kn_frame_begin(
        &(kn_frame_options){.device = device, .pool = kn_device_pool(kn_device_host())});
    assert_int_equal(frame.serial, 0);
    assert_fails(kn_check(), KN_ERR_DEVICE, "pool cpu is on cpu, the frame is on sim:ops");
}

static void work_goes_to_the_threads_own_stream_or_the_frames(void **state) {
    (void)state;
    kn_stream own = NULL, other = NULL;
    assert_ok(kn_stream_of_thread(&own, device));
    assert_ok(kn_stream_create(&other, device));
    {
        KN_FRAME(.device = device);
        assert_ptr_equal(kn_frame_stream(), own);
        assert_ptr_equal(kn_zeros(KN_SHAPE(4))->storage->stream, own);
        {
            KN_FRAME(.stream = other);
            assert_ptr_equal(kn_frame_stream(), other);
            assert_ptr_equal(kn_zeros(KN_SHAPE(4))->storage->stream, other);
        }
    }
    kn_sim_drain(sim);
    kn_stream_destroy(device, other);
}

static void a_read_on_another_stream_waits_for_the_writer(void **state) {
    (void)state;
    kn_stream first = NULL, second = NULL;
    assert_ok(kn_stream_create(&first, device));
    assert_ok(kn_stream_create(&second, device));
    {
        KN_FRAME(.device = device, .stream = first);
        kn_tensor *x = kn_zeros(KN_SHAPE(1000));
        kn_sim_work(sim, first, x->data, 4000, 1);
        KN_FRAME(.stream = second);
        assert_int_equal(kn_sim_pending(sim, second), 0);
        kn_tensor *y = kn_relu(x);
        kn_sim_work(sim, second, y->data, 4000, 2);
        assert_true(kn_sim_pending(sim, second) > 1);
        assert_false(kn_sim_step(sim, second)); /* the writer comes first */
        while (kn_sim_step(sim, first)) continue;
        assert_true(kn_sim_step(sim, second));
        size_t waiting = kn_sim_pending(sim, second);
        assert_non_null(kn_exp(y)); /* the same stream: no more to wait for */
        assert_int_equal(kn_sim_pending(sim, second), waiting);
    }
    kn_sim_drain(sim);
    kn_stream_destroy(device, first);
    kn_stream_destroy(device, second);
}

static void memory_read_on_another_stream_is_not_reused_too_early(void **state) {
    (void)state;
    kn_stream first = NULL, second = NULL;
    assert_ok(kn_stream_create(&first, device));
    assert_ok(kn_stream_create(&second, device));
    for (int i = 0; i < 20; i++) {
        KN_FRAME(.device = device, .stream = first);
        kn_tensor *x = kn_zeros(KN_SHAPE(1000));
        {
            KN_FRAME(.stream = second);
            assert_non_null(kn_relu(x));
            kn_sim_work(sim, second, x->data, 4000, (uint64_t)(2 * i + 1)); /* its kernel */
        }
        kn_drop(x);
        kn_tensor *next = kn_zeros(KN_SHAPE(1000)); /* perhaps the same memory */
        kn_sim_work(sim, first, next->data, 4000, (uint64_t)(2 * i + 2));
    }
    kn_sim_drain(sim);
    char text[512];
    if (kn_sim_violations(sim, text, sizeof text)) fail_msg("%s", text);
    kn_stream_destroy(device, first);
    kn_stream_destroy(device, second);
}

static void a_write_moves_the_tensor_to_its_stream(void **state) {
    (void)state;
    kn_stream first = NULL, second = NULL;
    assert_ok(kn_stream_create(&first, device));
    assert_ok(kn_stream_create(&second, device));
    {
        KN_FRAME(.device = device, .stream = first);
        kn_tensor *x = kn_zeros(KN_SHAPE(10));
        KN_FRAME(.stream = second);
        assert_ok(kn_fill_into(x, 1));
        assert_ptr_equal(x->storage->stream, second);
        assert_int_equal(x->storage->version, 1);
        KN_FRAME(.stream = first);
        assert_non_null(kn_data_mut(x));
        assert_ptr_equal(x->storage->stream, first);
    }
    kn_sim_drain(sim);
    kn_stream_destroy(device, first);
    kn_stream_destroy(device, second);
}

static void copies_go_both_ways_and_only_reading_waits(void **state) {
    (void)state;
    KN_FRAME();
    kn_tensor *x = F32(KN_SHAPE(2), 1, 2);
    uint64_t syncs = kn_sim_calls(sim, KN_SIM_STREAM_SYNC);
    kn_tensor *there = kn_to(x, device);
    assert_ptr_equal(kn_tensor_device(there), device);
    assert_int_equal(kn_sim_calls(sim, KN_SIM_STREAM_SYNC), syncs);
    kn_tensor *back = kn_to(there, kn_device_host());
    assert_ptr_equal(kn_tensor_device(back), kn_device_host());
    assert_int_equal(kn_sim_calls(sim, KN_SIM_STREAM_SYNC), syncs + 1);
    assert_shape(back, KN_SHAPE(2));
    double value;
    assert_ok(kn_item(&value, kn_sum(there, KN_ALL, false)));
    assert_int_equal(kn_sim_calls(sim, KN_SIM_STREAM_SYNC), syncs + 2);
    assert_shape(kn_to(kn_zeros(KN_SHAPE(0)), device), KN_SHAPE(0));
}

static void the_generator_moves_with_its_use(void **state) {
    (void)state;
    kn_rng *rng = NULL;
    assert_ok(kn_rng_create(&rng, 7));
    {
        KN_FRAME(.device = device);
        kn_tensor *noise = kn_normal(KN_SHAPE(3), 0, 1, rng);
        assert_ptr_equal(kn_tensor_device(noise), device);
        assert_non_null(kn_dropout(noise, 0.5, rng));
    }
    kn_rng_destroy(rng);
}

/* A program that meets every way of failing: allocations, copies, events, streams. */
static kn_status program(kn_pool *pool, kn_stream second) {
    KN_FRAME(.device = device, .pool = pool);
    KN_SLOT(held);
    kn_tensor *x = F32(KN_SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    KN_TRY(kn_hold(&held, kn_relu(x)));
    kn_tensor *y;
    {
        KN_FRAME(.stream = second);
        y = kn_keep(kn_add(kn_mul(x, held), kn_zeros(KN_SHAPE(3))));
    }
    KN_TRY(kn_add_into(held, y));
    double value;
    KN_TRY(kn_item(&value, kn_sum(held, KN_ALL, false)));
    return kn_check();
}

static void every_failing_call_is_an_error_without_a_leak(void **state) {
    (void)state;
    for (int forever = 0; forever < 2; forever++) {
        int failures = 0;
        for (uint64_t nth = 1;; nth++) {
            kn_pool *pool = NULL;
            kn_stream second = NULL;
            assert_ok(kn_pool_create(&pool, device, NULL));
            assert_ok(kn_stream_create(&second, device));
            uint64_t calls = kn_sim_calls(sim, KN_SIM_ANY);
            kn_sim_fail(sim, KN_SIM_ANY, nth, forever);
            kn_status status = program(pool, second);
            bool reached = kn_sim_calls(sim, KN_SIM_ANY) - calls >= nth;
            kn_sim_fail(sim, KN_SIM_ANY, 0, false);
            assert_int_equal(kn_pending(), KN_OK);
            assert_int_equal(live(pool), 0);
            assert_ok(program(pool, second)); /* all is usable again */
            assert_int_equal(live(pool), 0);
            kn_sim_drain(sim);
            kn_stream_destroy(device, second);
            kn_pool_destroy(pool);
            failures += status < 0;
            if (!reached) {
                assert_ok(status);
                break;
            }
        }
        assert_true(failures > 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        OPS_TEST(results_follow_their_inputs_device),
        OPS_TEST(batch_norm_across_ranks_is_for_the_host),
        OPS_TEST(a_pool_of_another_device_is_refused),
        OPS_TEST(work_goes_to_the_threads_own_stream_or_the_frames),
        OPS_TEST(a_read_on_another_stream_waits_for_the_writer),
        OPS_TEST(memory_read_on_another_stream_is_not_reused_too_early),
        OPS_TEST(a_write_moves_the_tensor_to_its_stream),
        OPS_TEST(copies_go_both_ways_and_only_reading_waits),
        OPS_TEST(the_generator_moves_with_its_use),
        OPS_TEST(every_failing_call_is_an_error_without_a_leak),
    };
    return cmocka_run_group_tests(tests, make_device, NULL);
}
