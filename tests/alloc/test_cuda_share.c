/* Blocks that two processes use, on the fake driver. */
#include <fcntl.h>
#include <knet/pause.h>
#include <knet/share.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_cuda_fixture.h"

#define MiB ((size_t)1 << 20)

static kn_pool *shareable_pool(void) {
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, cuda_device_get(), &(kn_pool_options){.shareable = true}));
    return pool;
}

static int count_files(void) {
    int n = 0;
    for (int i = 0; i < 1024; i++) n += fcntl(i, F_GETFD) >= 0;
    return n;
}

/* --- two processes --- */

enum { BLOCK = 5 << 20 };

/* Returns a line number, 0 for success: assertions are the main process's. */
#define WANT(condition)                                                                            \
    if (!(condition)) return __LINE__

static bool byte_is(kn_device *device, const char *at, char want) {
    char got = 0;
    return kn_device_copy(kn_device_host(), &got, device, at, 1, NULL) == KN_OK && got == want;
}

static int owner(int socket) {
    kn_device *device = NULL;
    kn_pool *pool = NULL;
    void *before = NULL, *block = NULL;
    kn_share share;
    char answer = 0;
    WANT(kn_device_find(&device, "cuda:0") == KN_OK);
    WANT(kn_pool_create(&pool, device, &(kn_pool_options){.shareable = true}) == KN_OK);
    WANT(kn_alloc(&before, pool, MiB, NULL) == KN_OK); /* so that the offset isn't 0 */
    WANT(kn_alloc(&block, pool, BLOCK, NULL) == KN_OK);
    WANT(kn_device_fill(device, block, 7, BLOCK, NULL) == KN_OK);
    WANT(kn_stream_sync(device, NULL) == KN_OK);
    WANT(kn_block_share(&share, pool, block) == KN_OK);
    WANT(kn_share_send(socket, &share) == KN_OK);
    kn_share_release(&share);
    WANT(read(socket, &answer, 1) == 1 && answer == 'y');
    WANT(byte_is(device, (char *)block + BLOCK - 1, 9)); /* written by the other process */
    WANT(byte_is(device, (char *)block, 7));
    kn_free(pool, block);
    kn_free(pool, before);
    kn_pool_destroy(pool);
    WANT(write(socket, "z", 1) == 1);
    WANT(fake_cuda_count().n_handles == 0 && fake_cuda_count().n_violations == 0);
    return 0;
}

static int user(int socket) {
    kn_device *device = NULL;
    kn_share share;
    void *ptr = NULL;
    char answer = 0;
    WANT(kn_device_find(&device, "cuda:0") == KN_OK);
    WANT(kn_share_receive(&share, socket) == KN_OK);
    WANT(share.size_bytes >= BLOCK && share.offset_bytes > 0);
    WANT(kn_share_open(&ptr, device, &share) == KN_OK);
    kn_share_release(&share);
    char *bytes = ptr;
    WANT(byte_is(device, bytes, 7) && byte_is(device, bytes + BLOCK - 1, 7));
    WANT(kn_device_fill(device, bytes + BLOCK - 1, 9, 1, NULL) == KN_OK);
    WANT(kn_stream_sync(device, NULL) == KN_OK);
    WANT(write(socket, "y", 1) == 1);
    WANT(read(socket, &answer, 1) == 1 && answer == 'z');
    WANT(byte_is(device, bytes, 7)); /* the owner is gone; the memory is still here */
    kn_share_close(device, ptr);
    fake_cuda_counts now = fake_cuda_count();
    WANT(now.n_handles == 0 && now.n_ranges == 0 && now.n_violations == 0);
    return 0;
}

static pid_t start(int (*role)(int socket), const int ends[2], int mine) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[!mine]);
        int line = role(ends[mine]);
        if (line) fprintf(stderr, "line %d: %s\n", line, kn_last_error()->message);
        _exit(line ? 1 : 0);
    }
    return child;
}

/* First: a process that has used the driver can't fork children that do. */
static void two_processes_read_and_write_one_block(void **state) {
    (void)state;
    int ends[2], status = -1;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    pid_t children[2] = {start(owner, ends, 0), start(user, ends, 1)};
    close(ends[0]);
    close(ends[1]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
}

/* --- one process --- */

static void share_names_the_handles_that_a_block_lies_in(void **state) {
    (void)state;
    kn_pool *pool = shareable_pool();
    const size_t sizes[] = {300, 100000, 3 * MiB, 70 * MiB, 5 * MiB, 2 * MiB};
    enum { N = sizeof sizes / sizeof *sizes };
    void *blocks[N];
    for (int i = 0; i < N; i++) assert_ok(kn_alloc(&blocks[i], pool, sizes[i], NULL));
    int files = count_files(); /* the fake driver has some of its own */
    for (int i = 0; i < N; i++) {
        kn_share share;
        void *ptr = NULL;
        char got = 0;
        assert_ok(kn_block_share(&share, pool, blocks[i]));
        assert_int_equal(count_files(), files + share.n_files);
        assert_true(share.size_bytes >= sizes[i]);
        assert_true(share.offset_bytes < share.file_bytes[0]);
        assert_ok(kn_share_open(&ptr, cuda_device_get(), &share));
        kn_share_release(&share);
        kn_share_release(&share);
        char *ours = blocks[i], *theirs = ptr;
        assert_ptr_not_equal(ours, theirs);
        const size_t places[] = {0, sizes[i] - 1};
        for (int k = 0; k < 2; k++) {
            assert_ok(kn_device_fill(cuda_device_get(), ours + places[k], 40 + i, 1, NULL));
            assert_ok(kn_device_copy(kn_device_host(), &got, cuda_device_get(), theirs + places[k],
                                     1, NULL));
            assert_int_equal(got, 40 + i);
        }
        kn_share_close(cuda_device_get(), ptr);
        assert_int_equal(count_files(), files);
    }
    for (int i = 0; i < N; i++) assert_ok(kn_free(pool, blocks[i]));
    kn_pool_destroy(pool);
}

/* Blocks in the middle of handles of several granules. */
static void large_handles_are_shared_from_their_start(void **state) {
    (void)state;
    kn_pool *pool = shareable_pool();
    void *large = NULL, *blocks[8], *ptr = NULL;
    kn_share share;
    int n_inside = 0;
    assert_ok(kn_alloc(&large, pool, 512 * MiB, NULL));
    assert_ok(kn_free(pool, large));
    for (int i = 0; i < 8; i++) {
        char got = 0;
        assert_ok(kn_alloc(&blocks[i], pool, 3 * MiB, NULL));
        assert_ok(kn_device_fill(cuda_device_get(), blocks[i], 90 + i, 3 * MiB, NULL));
        assert_ok(kn_block_share(&share, pool, blocks[i]));
        n_inside += share.offset_bytes > GRANULE;
        assert_ok(kn_share_open(&ptr, cuda_device_get(), &share));
        kn_share_release(&share);
        assert_ok(kn_device_copy(kn_device_host(), &got, cuda_device_get(), ptr, 1, NULL));
        assert_int_equal(got, 90 + i);
        kn_share_close(cuda_device_get(), ptr);
        kn_share_close(cuda_device_get(), ptr); /* logged */
    }
    assert_true(n_inside > 0);
    for (int i = 0; i < 8; i++) assert_ok(kn_free(pool, blocks[i]));
    kn_pool_destroy(pool);
}

static void a_second_release_closes_nothing(void **state) {
    (void)state;
    kn_pool *pool = shareable_pool();
    kn_share share;
    void *block = NULL;
    assert_ok(kn_alloc(&block, pool, MiB, NULL));
    assert_ok(kn_block_share(&share, pool, block));
    int number = share.files[0];
    kn_share_release(&share);
    assert_int_equal(dup2(0, number), number); /* the number is another file's */
    kn_share_release(&share);
    assert_true(fcntl(number, F_GETFD) >= 0);
    close(number);
    assert_ok(kn_free(pool, block));
    kn_pool_destroy(pool);
}

static void what_cannot_be_shared_says_why(void **state) {
    (void)state;
    kn_pool *pool = shareable_pool(), *plain = NULL, *none = NULL;
    kn_share share;
    void *block = NULL, *other = NULL;
    assert_ok(kn_pool_create(&plain, cuda_device_get(), NULL));
    assert_ok(kn_alloc(&block, pool, 1000, NULL));
    assert_ok(kn_alloc(&other, plain, 1000, NULL));
    assert_fails(kn_block_share(&share, plain, other), KN_ERR_INVALID, "without the option share");
    assert_fails(kn_block_share(&share, pool, other), KN_ERR_INVALID, "no live block of pool");
    assert_fails(kn_block_share(&share, pool, (char *)block + 1), KN_ERR_INVALID, "starts at");
    assert_fails(kn_pool_create(&none, kn_device_host(), &(kn_pool_options){.shareable = true}),
                 KN_ERR_UNSUPPORTED, "shareable: the memory of cpu");
    assert_fails(kn_pool_create(&none, cuda_device_get(),
                                &(kn_pool_options){.shareable = true, .pinned = true}),
                 KN_ERR_UNSUPPORTED, "shareable: pinned memory of cuda:0");
    kn_pool_options o;
    kn_pool_options_read(&o, sizeof o, plain);
    o.shareable = true;
    assert_fails(kn_pool_options_set(plain, &o), KN_ERR_INVALID,
                 "shareable of pool cuda:0 is fixed");
    assert_ok(kn_free(pool, block));
    assert_fails(kn_block_share(&share, pool, block), KN_ERR_INVALID, "no live block");
    assert_ok(kn_free(plain, other));
    kn_pool_destroy(pool);
    kn_pool_destroy(plain);
}

static void log_text(void *ctx, int level, const char *text) {
    assert_int_equal(level, 0);
    snprintf(ctx, 128, "%s", text);
}

static void wrong_shares_are_not_opened(void **state) {
    (void)state;
    char text[128] = "";
    kn_pool *pool = shareable_pool();
    kn_device *device = cuda_device_get();
    kn_share share, wrong;
    void *block = NULL, *ptr = NULL;
    assert_ok(kn_alloc(&block, pool, 3 * MiB, NULL));
    assert_ok(kn_block_share(&share, pool, block));
    for (int i = 0; i < 6; i++) {
        wrong = share;
        if (i == 0) wrong.n_files = 0;
        if (i == 1) wrong.n_files = KN_SHARE_FILES_MAX + 1;
        if (i == 2) wrong.size_bytes = 0;
        if (i == 3) wrong.size_bytes = UINT64_MAX;
        if (i == 4) wrong.offset_bytes = UINT64_MAX - 4;
        if (i == 5) wrong.file_bytes[0] = UINT64_MAX;
        assert_fails(kn_share_open(&ptr, device, &wrong), KN_ERR_INVALID, "no share");
    }
    assert_fails(kn_share_open(&ptr, kn_device_host(), &share), KN_ERR_UNSUPPORTED, "cpu has no");
    assert_null(ptr);
    kn_share_close(device, NULL);
    kn_log_attach(log_text, text);
    kn_share_close(device, block);
    assert_non_null(strstr(text, "is no open share of cuda:0"));
    kn_share_close(NULL, block);
    assert_non_null(strstr(text, "is no open share of NULL"));
    kn_log_attach(NULL, NULL);
    kn_share_release(&share);
    assert_ok(kn_free(pool, block));
    kn_pool_destroy(pool);
}

static void every_driver_call_may_fail(void **state) {
    (void)state;
    static const char *const calls[] = {"cuMemExportToShareableHandle",
                                        "cuMemImportFromShareableHandle", "cuMemAddressReserve",
                                        "cuMemMap", "cuMemSetAccess"};
    kn_pool *pool = shareable_pool();
    void *block = NULL;
    assert_ok(kn_alloc(&block, pool, 140 * MiB, NULL));
    fake_cuda_counts before = fake_cuda_count();
    int files = count_files();
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
        bool failed = true;
        for (int nth = 1; failed; nth++) {
            kn_share share = {.n_files = 0};
            void *ptr = NULL;
            fake_cuda_fail(calls[c], nth, 1, 1);
            kn_status status = kn_block_share(&share, pool, block);
            if (status == KN_OK) status = kn_share_open(&ptr, cuda_device_get(), &share);
            failed = fake_cuda_has_failed();
            fake_cuda_fail(NULL, 0, 0, 0);
            assert_int_equal(status, failed ? KN_ERR_CUDA : KN_OK);
            if (failed) assert_non_null(strstr(kn_last_error()->message, calls[c]));
            assert_true(failed ? ptr == NULL : ptr != NULL);
            kn_share_release(&share);
            kn_share_close(cuda_device_get(), ptr);
            fake_cuda_counts now = fake_cuda_count();
            assert_int_equal(now.n_handles, before.n_handles);
            assert_int_equal(now.n_ranges, before.n_ranges);
            assert_int_equal(now.n_mapped, before.n_mapped);
            assert_int_equal(count_files(), files);
        }
    }
    assert_ok(kn_free(pool, block));
    kn_pool_destroy(pool);
}

static void what_is_no_share_is_refused_by_the_receiver(void **state) {
    (void)state;
    int ends[2];
    char garbage[4096] = "knshare0";
    kn_share share = {.n_files = 0};
    int files = count_files();
    for (int i = 0; i < 3; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        if (i == 1) assert_int_equal(write(ends[0], "kn", 2), 2);
        if (i == 2) assert_int_equal(write(ends[0], garbage, sizeof garbage), sizeof garbage);
        close(ends[0]);
        if (i == 0)
            assert_fails(kn_share_receive(&share, ends[1]), KN_ERR_IO, "closed the connection");
        else
            assert_fails(kn_share_receive(&share, ends[1]), KN_ERR_FORMAT, "no share");
        close(ends[1]);
    }
    assert_fails(kn_share_receive(&share, -1), KN_ERR_IO, "Bad file descriptor");
    assert_fails(kn_share_send(-1, &share), KN_ERR_INVALID, "was released");
    share.n_files = 1;
    share.files[0] = 0;
    assert_fails(kn_share_send(-1, &share), KN_ERR_IO, "Bad file descriptor");
    /* a message whose sizes are wrong loses its descriptors */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    share.size_bytes = 100;
    share.file_bytes[0] = 10;
    assert_ok(kn_share_send(ends[0], &share));
    assert_fails(kn_share_receive(&share, ends[1]), KN_ERR_FORMAT, "no share");
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(count_files(), files);
}

static void a_receiver_without_room_for_the_descriptors_says_so(void **state) {
    (void)state;
    enum { SENT = 3 };
    int ends[2];
    kn_share share = {.size_bytes = SENT, .n_files = SENT}, got = {.n_files = 0};
    struct rlimit before;
    char text[64];
    for (int i = 0; i < SENT; i++) share.file_bytes[i] = 1; /* of stdin */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    int files = count_files(), first_free = dup(0);
    close(first_free);
    for (int room = 0; room <= SENT; room++) {
        struct rlimit few = {(rlim_t)(first_free + room), before.rlim_max};
        assert_ok(kn_share_send(ends[0], &share));
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        kn_status status = kn_share_receive(&got, ends[1]);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        snprintf(text, sizeof text, "%d of 3 descriptors arrived: the process may have", room);
        if (room < SENT) assert_fails(status, KN_ERR_IO, text);
        if (room == SENT) assert_ok(status);
        kn_share_release(&got);
        assert_int_equal(count_files(), files);
    }
    close(ends[0]);
    close(ends[1]);
}

/* The receiver may have asked for more than the descriptors. */
static void credentials_may_come_beside_the_largest_share(void **state) {
    (void)state;
    int ends[2], on = 1;
    kn_share share = {.size_bytes = 1, .n_files = KN_SHARE_FILES_MAX}, got = {.n_files = 0};
    for (int i = 0; i < KN_SHARE_FILES_MAX; i++) share.file_bytes[i] = 1; /* of stdin */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    int files = count_files();
    assert_int_equal(setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on), 0);
    assert_ok(kn_share_send(ends[0], &share));
    assert_ok(kn_share_receive(&got, ends[1]));
    assert_int_equal(got.n_files, KN_SHARE_FILES_MAX);
    kn_share_release(&got);
    assert_int_equal(count_files(), files);
    close(ends[0]);
    close(ends[1]);
}

static void rdma_is_asked_for_where_the_pool_has_it(void **state) {
    (void)state;
    for (int rdma = 0; rdma < 2; rdma++) {
        kn_pool *pool = NULL;
        void *block = NULL;
        assert_ok(kn_pool_create(&pool, cuda_device_get(), &(kn_pool_options){.rdma = rdma}));
        assert_ok(kn_alloc(&block, pool, 3 * MiB, NULL));
        assert_int_equal(fake_cuda_rdma(block), rdma);
        assert_ok(kn_pool_pause(NULL, pool, NULL));
        assert_ok(kn_pool_resume(pool, NULL)); /* new handles */
        assert_int_equal(fake_cuda_rdma(block), rdma);
        assert_ok(kn_free(pool, block));
        kn_pool_destroy(pool);
    }
}

static void a_device_without_such_handles_says_so(void **state) {
    (void)state;
    kn_device *device = NULL;
    kn_pool *pool = NULL;
    fake_cuda_machine_get()->no_sharing = true; /* read when cuda:1 is opened */
    assert_ok(kn_device_find(&device, "cuda:1"));
    fake_cuda_machine_get()->no_sharing = false;
    assert_fails(kn_pool_create(&pool, device, &(kn_pool_options){.shareable = true}),
                 KN_ERR_UNSUPPORTED, "shareable: the memory of cuda:1");
    assert_fails(kn_pool_create(&pool, device, &(kn_pool_options){.rdma = true}),
                 KN_ERR_UNSUPPORTED, "rdma: the memory of cuda:1");
    assert_null(pool);
    assert_ok(kn_pool_create(&pool, device, NULL));
    kn_pool_destroy(pool);
}

int main(void) {
    return RUN_TESTS(CUDA_TEST(two_processes_read_and_write_one_block),
                     CUDA_TEST(share_names_the_handles_that_a_block_lies_in),
                     CUDA_TEST(large_handles_are_shared_from_their_start),
                     CUDA_TEST(a_second_release_closes_nothing),
                     CUDA_TEST(what_cannot_be_shared_says_why),
                     CUDA_TEST(wrong_shares_are_not_opened), CUDA_TEST(every_driver_call_may_fail),
                     CUDA_TEST(a_receiver_without_room_for_the_descriptors_says_so),
                     TEST(credentials_may_come_beside_the_largest_share),
                     TEST(what_is_no_share_is_refused_by_the_receiver),
                     CUDA_TEST(rdma_is_asked_for_where_the_pool_has_it),
                     CUDA_TEST(a_device_without_such_handles_says_so));
}
