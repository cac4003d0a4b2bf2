/* The policies of other allocators follow their published rules. */
#include "replay.h"
#include "replay_policy.h"
#include "test.h"

#define KiB ((uint64_t)1 << 10)
#define MiB ((uint64_t)1 << 20)
enum { CALLS_MAX = 64 };

/* A positive size allocates the next block; -n frees block n, from 1. */
typedef struct script {
    int64_t calls[CALLS_MAX]; /* ends with 0 */
} script;

typedef struct player {
    kn__trace trace;
    const kn__policy *policy;
    void *p;
    void *slots[CALLS_MAX];
    size_t done;
} player;

static player begin(const kn__policy *policy, uint64_t device_bytes, script s) {
    player x = {.policy = policy};
    kn__builder b;
    uint64_t next = 0;
    kn__builder_init(&b, "script");
    for (int i = 0; s.calls[i]; i++) {
        b.at++;
        if (s.calls[i] > 0) {
            assert_ok(kn__build_alloc(&b, ++next, (uint64_t)s.calls[i], 0));
        } else {
            assert_ok(kn__build_free(&b, (uint64_t)-s.calls[i], 0));
        }
    }
    assert_ok(kn__build_finish(&x.trace, &b));
    assert_ok(policy->create(&x.p, &x.trace));
    assert_ok(policy->renew(x.p, device_bytes));
    return x;
}

static kn_status run(player *x) {
    return x->policy->run(x->p, x->trace.steps, 0, x->trace.n_steps, x->slots, &x->done);
}

static void end(player *x) {
    x->policy->destroy(x->p);
    kn__trace_release(&x->trace);
}

static kn__counts play(const kn__policy *policy, uint64_t device_bytes, script s) {
    player x = begin(policy, device_bytes, s);
    kn__counts counts;
    assert_ok(run(&x));
    policy->counts(x.p, &counts);
    end(&x);
    return counts;
}

static uint64_t reserved(const kn__policy *policy, script s) {
    return play(policy, 1024 * MiB, s).reserved_bytes_max;
}

static void pytorch_takes_segments_by_the_size_of_the_request(void **state) {
    (void)state;
    const kn__policy *torch = &kn__policy_pytorch;
    assert_int_equal(reserved(torch, (script){{1, 512, 1000000}}), 2 * MiB);
    assert_int_equal(reserved(torch, (script){{MiB + 1}}), 20 * MiB);
    assert_int_equal(reserved(torch, (script){{10 * MiB - 512}}), 20 * MiB);
    assert_int_equal(reserved(torch, (script){{10 * MiB}}), 10 * MiB);
    assert_int_equal(reserved(torch, (script){{13 * MiB + 1}}), 14 * MiB);
    assert_int_equal(reserved(torch, (script){{5 * MiB, 5 * MiB, 5 * MiB, 4 * MiB}}), 20 * MiB);
    assert_int_equal(reserved(torch, (script){{100, 2 * MiB}}), 22 * MiB); /* two pools */
}

/* Of 20 MiB, 19.5 are taken whole: the rest of 512 KiB serves no request. */
static void pytorch_splits_when_more_than_a_mebibyte_is_left(void **state) {
    (void)state;
    const int64_t most = (int64_t)(19 * MiB + 512 * KiB);
    player x = begin(&kn__policy_pytorch, 1024 * MiB, (script){{20 * MiB, -1, most, 12 * MiB}});
    assert_ok(run(&x));
    assert_ptr_not_equal(x.slots[1], x.slots[2]);
    end(&x);
    assert_int_equal(reserved(&kn__policy_pytorch, (script){{20 * MiB, -1, most, 2 * MiB}}),
                     40 * MiB);
    assert_int_equal(
        reserved(&kn__policy_pytorch, (script){{20 * MiB, -1, 18 * MiB, MiB + 600 * KiB}}),
        20 * MiB);
}

static void pytorch_returns_unused_segments_before_it_fails(void **state) {
    (void)state;
    kn__counts c = play(&kn__policy_pytorch, 40 * MiB, (script){{30 * MiB, -1, 100, 34 * MiB}});
    assert_int_equal(c.syncs, 1);
    assert_int_equal(c.device_frees, 1);
    assert_int_equal(c.reserved_bytes, 36 * MiB);
    player x = begin(&kn__policy_pytorch, 40 * MiB, (script){{30 * MiB, 12 * MiB}});
    assert_fails(run(&x), KN_ERR_OOM, "12582912 bytes");
    assert_int_equal(x.done, 1);
    end(&x);
}

static void expandable_grows_one_range_by_whole_handles(void **state) {
    (void)state;
    const kn__policy *e = &kn__policy_expandable;
    assert_int_equal(reserved(e, (script){{30 * MiB}}), 40 * MiB);
    assert_int_equal(reserved(e, (script){{100}}), 2 * MiB);
    /* The free end of the range is a part of the next block. */
    assert_int_equal(reserved(e, (script){{30 * MiB, 30 * MiB}}), 60 * MiB);
    kn__counts c = play(e, 1024 * MiB, (script){{30 * MiB, 30 * MiB, -2, 40 * MiB}});
    assert_int_equal(c.reserved_bytes_max, 80 * MiB);
    assert_int_equal(c.maps, 4);
    assert_int_equal(c.syncs, 0);
}

/* Small requests get the memory that large ones left. */
static void expandable_unmaps_unused_handles_before_it_fails(void **state) {
    (void)state;
    script s = {{100 * MiB, -1}};
    for (int i = 2; i < 24; i++) s.calls[i] = MiB;
    kn__counts c = play(&kn__policy_expandable, 120 * MiB, s);
    assert_int_equal(c.syncs, 1);
    assert_int_equal(c.device_frees, 5);
    assert_int_equal(c.maps, 5 + 11);
    assert_int_equal(c.reserved_bytes, 22 * MiB);
    player x = begin(&kn__policy_expandable, 120 * MiB, (script){{90 * MiB, 31 * MiB}});
    assert_fails(run(&x), KN_ERR_OOM, "32505856 bytes");
    end(&x);
}

static void bfc_doubles_its_regions(void **state) {
    (void)state;
    const kn__policy *bfc = &kn__policy_bfc;
    assert_int_equal(reserved(bfc, (script){{100}}), 2 * MiB);
    assert_int_equal(reserved(bfc, (script){{2 * MiB, 100}}), 6 * MiB);
    assert_int_equal(reserved(bfc, (script){{2 * MiB, 4 * MiB, 100}}), 14 * MiB);
    assert_int_equal(reserved(bfc, (script){{9 * MiB}}), 16 * MiB);
    kn__counts c = play(bfc, 24 * MiB, (script){{9 * MiB, 100 * KiB, 7 * MiB}});
    assert_true(c.reserved_bytes_max <= 24 * MiB); /* a region of less, where memory is short */
    assert_int_equal(c.device_frees, 0);
}

/* More than half of a block is not split: 3 MiB of 4. */
static void bfc_splits_when_half_is_left(void **state) {
    (void)state;
    script s = {{2 * MiB, 4 * MiB, -2, 3 * MiB, MiB}};
    assert_int_equal(reserved(&kn__policy_bfc, s), 14 * MiB);
    script half = {{2 * MiB, 4 * MiB, -2, 2 * MiB, 2 * MiB}};
    assert_int_equal(reserved(&kn__policy_bfc, half), 6 * MiB);
}

static void naive_holds_what_is_live_and_waits_at_each_free(void **state) {
    (void)state;
    kn__counts c = play(&kn__policy_naive, 4 * MiB, (script){{MiB, 3 * MiB, -1, 1000, -2, -3}});
    assert_int_equal(c.reserved_bytes_max, 4 * MiB);
    assert_int_equal(c.reserved_bytes, 0);
    assert_int_equal(c.device_allocs, 3);
    assert_int_equal(c.device_frees, 3);
    assert_int_equal(c.syncs, 3);
}

static void free_neighbours_are_merged(void **state) {
    (void)state;
    script s = {{5 * MiB, 5 * MiB, 5 * MiB, 5 * MiB, -2, -1, -4, -3, 20 * MiB}};
    assert_int_equal(reserved(&kn__policy_pytorch, s), 20 * MiB);
    assert_int_equal(reserved(&kn__policy_expandable, s), 20 * MiB);
}

static void cuda_async_grows_by_32_mib_for_all_streams_and_returns_idle_chunks(void **state) {
    (void)state;
    const kn__policy *async = &kn__policy_cuda_async;
    assert_int_equal(reserved(async, (script){{1, 31 * MiB}}), 32 * MiB);
    assert_int_equal(reserved(async, (script){{32 * MiB + 1}}), 64 * MiB);
    assert_int_equal(reserved(async, (script){{16 * MiB, 16 * MiB, 512}}), 64 * MiB);
    /* a chunk of 32 MiB is idle: it is returned after a wait, and the next one has 64 */
    kn__counts c = play(async, 64 * MiB, (script){{20 * MiB, -1, 40 * MiB}});
    assert_int_equal(c.reserved_bytes, 64 * MiB);
    assert_int_equal(c.syncs, 1);
    assert_int_equal(c.device_frees, 1);
    assert_int_equal(c.calls.n[KN__CALL_ALLOC_ASYNC], 2);
    assert_int_equal(c.calls.n[KN__CALL_FREE_ASYNC], 1);
    assert_int_equal(c.calls.n[KN__CALL_CREATE], 2);
    assert_int_equal(c.calls.bytes[KN__CALL_CREATE], 96 * MiB);
    assert_int_equal(c.calls.n[KN__CALL_RELEASE], 1);
    assert_int_equal(c.calls.n[KN__CALL_ALLOC], 0);
}

static void driver_calls_are_those_of_the_rules(void **state) {
    (void)state;
    script s = {{5 * MiB, 2 * MiB, -1, -2, 30 * MiB}};
    kn__counts c = play(&kn__policy_naive, 1024 * MiB, s);
    assert_int_equal(c.calls.n[KN__CALL_ALLOC], 3);
    assert_int_equal(c.calls.bytes[KN__CALL_ALLOC], 37 * MiB);
    assert_int_equal(c.calls.n[KN__CALL_FREE], 2);
    c = play(&kn__policy_pytorch, 1024 * MiB, s);
    assert_int_equal(c.calls.n[KN__CALL_ALLOC], 2);
    assert_int_equal(c.calls.bytes[KN__CALL_ALLOC], 50 * MiB);
    c = play(&kn__policy_expandable, 1024 * MiB, s); /* 20 MiB, then one more: access at once */
    assert_int_equal(c.calls.n[KN__CALL_CREATE], 2);
    assert_int_equal(c.calls.n[KN__CALL_MAP], 2);
    assert_int_equal(c.calls.n[KN__CALL_ACCESS], 2);
    assert_int_equal(c.calls.n[KN__CALL_ALLOC], 0);
    c = play(&kn__policy_expandable, 1024 * MiB, (script){{60 * MiB}});
    assert_int_equal(c.calls.n[KN__CALL_CREATE], 3);
    assert_int_equal(c.calls.n[KN__CALL_ACCESS], 1);
}

int main(void) {
    return RUN_TESTS(TEST(pytorch_takes_segments_by_the_size_of_the_request),
                     TEST(pytorch_splits_when_more_than_a_mebibyte_is_left),
                     TEST(pytorch_returns_unused_segments_before_it_fails),
                     TEST(expandable_grows_one_range_by_whole_handles),
                     TEST(expandable_unmaps_unused_handles_before_it_fails),
                     TEST(bfc_doubles_its_regions), TEST(bfc_splits_when_half_is_left),
                     TEST(naive_holds_what_is_live_and_waits_at_each_free),
                     TEST(cuda_async_grows_by_32_mib_for_all_streams_and_returns_idle_chunks),
                     TEST(driver_calls_are_those_of_the_rules), TEST(free_neighbours_are_merged));
}
