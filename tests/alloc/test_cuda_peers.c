/* Managed memory, copies between devices and peer access, on the fake driver. */
#include <knet/pool.h>
#include <knet/sim.h>

#include "fake_cuda_fixture.h"

#define MiB ((size_t)1 << 20)

static kn_device *found(const char *name) {
    kn_device *device = NULL;
    assert_ok(kn_device_find(&device, name));
    return device;
}

static void managed_memory_is_a_device_that_the_host_can_read(void **state) {
    (void)state;
    kn_device *device = found("managed"), *plain = found("cuda:0");
    kn_device_info info, plain_info;
    kn_pool *pool = NULL;
    void *block = NULL, *large = NULL;
    assert_ptr_equal(device, found("managed:0"));
    assert_ptr_not_equal(device, plain);
    assert_ok(kn_device_info_read(&info, sizeof info, device));
    assert_ok(kn_device_info_read(&plain_info, sizeof plain_info, plain));
    assert_string_equal(info.name, "managed:0");
    assert_string_equal(info.model, plain_info.model);
    assert_true(info.total_bytes > plain_info.total_bytes); /* with the host's */
    assert_int_equal(info.granularity_bytes, 0);
    assert_ok(kn_pool_create(&pool, device, NULL));
    assert_ok(kn_alloc(&block, pool, 5000, NULL));
    memset(block, 6, 5000); /* by the CPU */
    char got[2] = {0};
    assert_ok(kn_device_copy(kn_device_host(), got, device, (char *)block + 4999, 1, NULL));
    assert_int_equal(got[0], 6);
    assert_ok(kn_device_fill(device, block, 8, 1, NULL));
    assert_int_equal(*(char *)block, 8);
    /* more than the GPU has */
    assert_ok(kn_alloc(&large, pool, fake_cuda_machine_get()->capacity_bytes + MiB, NULL));
    assert_int_equal(fake_cuda_calls("cuMemAlloc"), 0);
    assert_int_equal(fake_cuda_calls("cuMemCreate"), 0);
    assert_int_equal(fake_cuda_calls("cuMemAllocManaged"), 2);
    assert_ok(kn_free(pool, block));
    assert_ok(kn_free(pool, large));
    kn_pool_destroy(pool);
}

static void managed_memory_that_cannot_be_had_says_so(void **state) {
    (void)state;
    kn_device *device = NULL;
    kn_pool *pool = NULL;
    void *block = NULL;
    fake_cuda_machine_get()->no_managed = true;
    assert_fails(kn_device_find(&device, "managed:1"), KN_ERR_UNSUPPORTED,
                 "cuda:1 has no managed memory");
    fake_cuda_machine_get()->no_managed = false;
    assert_fails(kn_device_find(&device, "managed:7"), KN_ERR_DEVICE, "no managed:7");
    assert_fails(kn_device_find(&device, "managed:x"), KN_ERR_INVALID, "\"managed:x\"");
    assert_ok(kn_pool_create(&pool, found("managed:0"), NULL));
    fake_cuda_fail("cuMemAllocManaged", 1, -1, 2);
    assert_fails(kn_alloc(&block, pool, MiB, NULL), KN_ERR_OOM, "cuMemAllocManaged");
    fake_cuda_fail(NULL, 0, 0, 0);
    assert_null(block);
    assert_ok(kn_alloc(&block, pool, MiB, NULL));
    assert_ok(kn_free(pool, block));
    kn_pool_destroy(pool);
}

typedef struct two {
    kn_device *devices[2];
    kn_pool *pools[2];
    void *blocks[2];
} two;

static two two_blocks(size_t size) {
    two t = {.devices = {found("cuda:0"), found("cuda:1")}};
    for (int i = 0; i < 2; i++) {
        assert_ok(kn_pool_create(&t.pools[i], t.devices[i], NULL));
        assert_ok(kn_alloc(&t.blocks[i], t.pools[i], size, NULL));
        assert_ok(kn_device_fill(t.devices[i], t.blocks[i], 10 + i, size, NULL));
    }
    return t;
}

static void two_end(two *t) {
    for (int i = 0; i < 2; i++) {
        assert_ok(kn_free(t->pools[i], t->blocks[i]));
        kn_pool_destroy(t->pools[i]);
    }
}

static void bytes_are_copied_between_devices_on_the_sources_stream(void **state) {
    (void)state;
    two t = two_blocks(3 * MiB);
    kn_stream stream = NULL;
    char got = 0;
    kn_device *host = kn_device_host();
    assert_ok(kn_stream_create(&stream, t.devices[1]));
    fake_cuda_hold(stream);
    assert_ok(
        kn_device_copy(t.devices[0], t.blocks[0], t.devices[1], t.blocks[1], 3 * MiB, stream));
    assert_int_equal(fake_cuda_calls("cuMemcpyPeerAsync"), 1);
    assert_ok(kn_device_copy(host, &got, t.devices[0], t.blocks[0], 1, NULL));
    assert_int_equal(got, 10); /* not yet */
    fake_cuda_release(stream);
    assert_ok(kn_device_copy(host, &got, t.devices[0], (char *)t.blocks[0] + 3 * MiB - 1, 1, NULL));
    assert_int_equal(got, 11);
    fake_cuda_fail("cuMemcpyPeerAsync", 1, 1, 700 + 19);
    assert_fails(kn_device_copy(t.devices[1], t.blocks[1], t.devices[0], t.blocks[0], 4, NULL),
                 KN_ERR_CUDA, "cuMemcpyPeerAsync of 4 bytes on cuda:0");
    kn_stream_destroy(t.devices[1], stream);
    two_end(&t);
}

static void devices_of_two_drivers_are_not_mixed(void **state) {
    (void)state;
    two t = two_blocks(MiB);
    kn_device *sim = found("sim"), *host = kn_device_host();
    assert_fails(kn_device_copy(sim, t.blocks[0], t.devices[0], t.blocks[0], 4, NULL),
                 KN_ERR_UNSUPPORTED, "cuda:0 to sim: one of them must be the host, or both GPUs");
    assert_fails(kn_device_peer_open(sim, t.devices[0]), KN_ERR_UNSUPPORTED, "both must be GPUs");
    assert_fails(kn_device_peer_open(t.devices[0], host), KN_ERR_UNSUPPORTED,
                 "cpu can't reach the memory of cuda:0");
    two_end(&t);
}

/* Until the next test opens it. */
static void memory_is_reached_by_its_device_alone(void **state) {
    (void)state;
    two t = two_blocks(3 * MiB);
    assert_int_equal(fake_cuda_access(t.blocks[0]), 1);
    fake_cuda_machine_get()->no_peers = true;
    assert_fails(kn_device_peer_open(t.devices[0], t.devices[1]), KN_ERR_UNSUPPORTED,
                 "cuda:1 can't reach the memory of cuda:0 directly; kn_device_copy");
    fake_cuda_machine_get()->no_peers = false;
    static const char *const calls[] = {"cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess"};
    for (int i = 0; i < 2; i++) {
        fake_cuda_fail(calls[i], 1, 1, 1);
        assert_fails(kn_device_peer_open(t.devices[0], t.devices[1]), KN_ERR_CUDA, calls[i]);
        assert_int_equal(fake_cuda_access(t.blocks[0]), 1);
    }
    assert_ok(kn_device_peer_open(t.devices[0], t.devices[0]));
    two_end(&t);
}

static void a_peer_reaches_memory_of_before_and_after(void **state) {
    (void)state;
    two t = two_blocks(3 * MiB);
    void *far = NULL, *later = NULL, *gap[4];
    kn_pool *second = NULL;
    for (int i = 0; i < 4; i++) assert_ok(kn_alloc(&gap[i], t.pools[0], 40 * MiB, NULL));
    for (int i = 0; i < 3; i++) assert_ok(kn_free(t.pools[0], gap[i]));
    assert_ok(kn_pool_trim(t.pools[0], 0)); /* leaves holes in the range */
    assert_ok(kn_pool_create(&second, t.devices[0], NULL));
    assert_ok(kn_alloc(&far, second, 512 * MiB, NULL)); /* in handles of several granules */
    fake_cuda_fail("cuMemSetAccess", 1, 1, 1);
    assert_fails(kn_device_peer_open(t.devices[0], t.devices[1]), KN_ERR_CUDA, "cuMemSetAccess");
    uint64_t calls = fake_cuda_calls("cuMemSetAccess");
    assert_ok(kn_device_peer_open(t.devices[0], t.devices[1]));     /* again */
    assert_int_equal(fake_cuda_calls("cuMemSetAccess") - calls, 3); /* runs of this device */
    assert_int_equal(fake_cuda_access((char *)far + 512 * MiB - 1), 2);
    assert_int_equal(fake_cuda_access(t.blocks[0]), 2);
    assert_int_equal(fake_cuda_access(gap[3]), 2);
    assert_int_equal(fake_cuda_access(far), 2);
    assert_int_equal(fake_cuda_access(t.blocks[1]), 1); /* in one direction */
    assert_ok(kn_alloc(&later, t.pools[0], 60 * MiB, NULL));
    assert_int_equal(fake_cuda_access(later), 2);
    assert_ok(kn_pool_check(t.pools[0]));
    assert_ok(kn_free(t.pools[0], later));
    assert_ok(kn_free(t.pools[0], gap[3]));
    assert_ok(kn_free(second, far));
    kn_pool_destroy(second);
    two_end(&t);
}

int main(void) {
    return RUN_TESTS(CUDA_TEST(managed_memory_is_a_device_that_the_host_can_read),
                     CUDA_TEST(managed_memory_that_cannot_be_had_says_so),
                     CUDA_TEST(bytes_are_copied_between_devices_on_the_sources_stream),
                     CUDA_TEST(devices_of_two_drivers_are_not_mixed),
                     CUDA_TEST(memory_is_reached_by_its_device_alone),
                     CUDA_TEST(a_peer_reaches_memory_of_before_and_after));
}
