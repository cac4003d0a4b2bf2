/* Names of devices, memory of two processes, RDMA, managed memory and peers, on a real GPU. */
#include "gpu.h"

#include <knet/pool.h>
#include <knet/share.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK = 5 << 20 };

/* --- two processes, before this one uses the driver --- */

static bool byte_is(kn_device *device, const char *at, char want) {
    char got = 0;
    return kn_device_copy(kn_device_host(), &got, device, at, 1, NULL) == KN_OK &&
           kn_stream_sync(device, NULL) == KN_OK && got == want;
}

static bool owner(int socket) {
    kn_device *device = NULL;
    kn_pool *pool = NULL;
    void *before = NULL, *block = NULL;
    kn_share share;
    char answer = 0;
    kn_pool_options options = {.shareable = true};
    bool good = kn_device_find(&device, GPU_NAME) == KN_OK &&
                kn_pool_create(&pool, device, &options) == KN_OK &&
                kn_alloc(&before, pool, MIB, NULL) == KN_OK &&
                kn_alloc(&block, pool, BLOCK, NULL) == KN_OK &&
                kn_device_fill(device, block, 7, BLOCK, NULL) == KN_OK &&
                kn_stream_sync(device, NULL) == KN_OK &&
                kn_block_share(&share, pool, block) == KN_OK &&
                kn_share_send(socket, &share) == KN_OK;
    if (good) kn_share_release(&share);
    return good && read(socket, &answer, 1) == 1 && byte_is(device, (char *)block + BLOCK - 1, 9) &&
           byte_is(device, block, 7);
}

static bool user(int socket) {
    kn_device *device = NULL;
    kn_share share;
    void *ptr = NULL;
    bool good = kn_device_find(&device, GPU_NAME) == KN_OK &&
                kn_share_receive(&share, socket) == KN_OK &&
                kn_share_open(&ptr, device, &share) == KN_OK;
    if (!good) return false;
    char *last = (char *)ptr + BLOCK - 1;
    kn_share_release(&share);
    good = byte_is(device, ptr, 7) && byte_is(device, last, 7) &&
           kn_device_fill(device, last, 9, 1, NULL) == KN_OK &&
           kn_stream_sync(device, NULL) == KN_OK && write(socket, "y", 1) == 1;
    kn_share_close(device, ptr);
    return good;
}

static bool has_gpu(int socket) {
    kn_device *device = NULL;
    (void)socket;
    return kn_device_find(&device, GPU_NAME) == KN_OK;
}

static pid_t start(bool (*role)(int socket), int socket) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bool good = role(socket);
        if (!good) fprintf(stderr, "%s\n", kn_last_error()->message);
        _exit(good ? 0 : 1);
    }
    return child;
}

static bool succeeds(pid_t child) {
    int status = -1;
    return waitpid(child, &status, 0) == child && status == 0;
}

static void two_processes_read_and_write_one_block(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    pid_t children[2] = {start(owner, ends[0]), start(user, ends[1])};
    close(ends[0]);
    close(ends[1]);
    assert_true(succeeds(children[0]));
    assert_true(succeeds(children[1]));
}

/* --- in this process --- */

static void names_find_a_gpu(void **state) {
    (void)state;
    kn_device *device = NULL, *again = NULL, *first = gpu_get();
    char name[64] = "cuda:GPU-", uuid[40] = "";
    assert_ok(kn_device_find(&device, "cuda:auto"));
    assert_ok(kn_device_find(&again, "cuda:auto"));
    assert_ptr_equal(device, again);
    assert_int_equal(kn_device_kind_get(device), KN_DEVICE_CUDA);
    /* the error for a device that is missing lists those that are there */
    assert_true(kn_device_find(&again, "cuda:GPU-ffffffffffffffffffffffffffffffff") < 0);
    const char *listed = strstr(kn_last_error()->message, "cuda:0 ");
    assert_non_null(listed);
    assert_int_equal(sscanf(listed, "cuda:0 %36s", uuid), 1);
    strcat(name, uuid);
    print_message("%s\n", name);
    assert_ok(kn_device_find(&device, name));
    assert_ptr_equal(device, first);
}

static void memory_for_network_cards_is_had_or_refused(void **state) {
    (void)state;
    kn_pool *pool = NULL;
    void *block = NULL;
    kn_status status = kn_pool_create(&pool, gpu_get(), &(kn_pool_options){.rdma = true});
    print_message("rdma: %s\n", status == KN_OK ? "yes" : kn_last_error()->message);
    assert_true(status == KN_OK || status == KN_ERR_UNSUPPORTED);
    if (status < 0) return;
    assert_ok(kn_alloc(&block, pool, 3 * MIB, NULL));
    assert_ok(kn_device_fill(gpu_get(), block, 5, 3 * MIB, NULL));
    assert_true(byte_is(gpu_get(), (char *)block + 3 * MIB - 1, 5));
    assert_ok(kn_free(pool, block));
    kn_pool_destroy(pool);
}

static void managed_memory_is_read_by_cpu_and_gpu(void **state) {
    (void)state;
    kn_device *device = NULL;
    kn_pool *pool = NULL;
    void *block = NULL;
    assert_ok(kn_device_find(&device, "managed:0"));
    assert_ok(kn_pool_create(&pool, device, NULL));
    assert_ok(kn_alloc(&block, pool, 3 * MIB, NULL));
    memset(block, 6, 3 * MIB);
    assert_true(byte_is(device, (char *)block + 3 * MIB - 1, 6));
    assert_ok(kn_device_fill(device, block, 8, 3 * MIB, NULL));
    assert_ok(kn_stream_sync(device, NULL));
    assert_int_equal(((char *)block)[3 * MIB - 1], 8);
    assert_ok(kn_free(pool, block));
    kn_pool_destroy(pool);
}

static void two_gpus_copy_and_reach_each_other(void **state) {
    (void)state;
    kn_device *a = gpu_get(), *b = NULL;
    kn_pool *pools[2] = {NULL, NULL};
    void *x = NULL, *y = NULL;
    if (kn_device_cuda_count() < 2) skip();
    assert_ok(kn_device_find(&b, "cuda:1"));
    assert_ok(kn_pool_create(&pools[0], a, NULL));
    assert_ok(kn_pool_create(&pools[1], b, NULL));
    assert_ok(kn_alloc(&x, pools[0], 3 * MIB, NULL));
    assert_ok(kn_alloc(&y, pools[1], 3 * MIB, NULL));
    assert_ok(kn_device_fill(a, x, 3, 3 * MIB, NULL));
    assert_ok(kn_device_copy(b, y, a, x, 3 * MIB, NULL));
    assert_ok(kn_stream_sync(a, NULL));
    assert_true(byte_is(b, (char *)y + 3 * MIB - 1, 3));
    kn_status status = kn_device_peer_open(a, b);
    print_message("peer access: %s\n", status == KN_OK ? "yes" : kn_last_error()->message);
    assert_true(status == KN_OK || status == KN_ERR_UNSUPPORTED);
    /* b's stream writes a's memory, which was mapped before */
    if (status == KN_OK) {
        assert_ok(kn_device_fill(b, x, 4, 3 * MIB, NULL));
        assert_ok(kn_stream_sync(b, NULL));
        assert_true(byte_is(a, (char *)x + 3 * MIB - 1, 4));
    }
    assert_ok(kn_free(pools[0], x));
    assert_ok(kn_free(pools[1], y));
    kn_pool_destroy(pools[0]);
    kn_pool_destroy(pools[1]);
}

int main(void) {
    /* A child of a process that uses the driver can't use it: a child asks. */
    if (!succeeds(start(has_gpu, -1))) test_skip_all("no GPU");
    return RUN_TESTS(TEST(two_processes_read_and_write_one_block), TEST(names_find_a_gpu),
                     TEST(memory_for_network_cards_is_had_or_refused),
                     TEST(managed_memory_is_read_by_cpu_and_gpu),
                     TEST(two_gpus_copy_and_reach_each_other));
}
