/* Uses of memory of the host's pools that the program no longer has, in child processes that die of
 * them. */
#include <fcntl.h>
#include <knet/pool.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

static const size_t SIZES[] = {1, 1000, 4096, 65536, 200000};
enum { N_SIZES = sizeof SIZES / sizeof *SIZES };

static char *must_alloc(kn_pool *pool, size_t bytes) {
    void *ptr = NULL;
    if (kn_alloc(&ptr, pool, bytes, NULL) < 0) _exit(2);
    return ptr;
}

static void use_well(kn_pool *pool, size_t bytes) {
    for (int i = 0; i < 3; i++) {
        char *block = must_alloc(pool, bytes);
        memset(block, i, bytes);
        (void)kn_free(pool, block);
    }
}

static void use_after_free(kn_pool *pool, size_t bytes) {
    char *volatile block = must_alloc(pool, bytes);
    memset(block, 1, bytes);
    (void)kn_free(pool, block);
    block[bytes / 2] = 1;
    (void)must_alloc(pool, bytes);
}

static void use_behind_the_end(kn_pool *pool, size_t bytes) {
    char *volatile block = must_alloc(pool, bytes);
    memset(block, 1, bytes);
    block[bytes] = 1;
    (void)kn_free(pool, block);
}

/* The child's exit status, and what it wrote to stderr. */
static int run(void (*fn)(kn_pool *pool, size_t bytes), size_t bytes, char *out, size_t out_bytes) {
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        for (int i = 1; i < NSIG; i++) signal(i, SIG_DFL); /* not the test's own handlers */
        kn_pool *pool = NULL;
        if (kn_pool_create(&pool, kn_device_host(), NULL) < 0) _exit(2);
        fn(pool, bytes);
        kn_pool_destroy(pool);
        _exit(0);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; n < out_bytes - 1 && (got = read(ends[0], out + n, out_bytes - 1 - n)) > 0;) {
        n += (size_t)got;
    }
    out[n] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void expect_death(void (*fn)(kn_pool *pool, size_t bytes), const char *why) {
    char text[65536];
#if defined __SANITIZE_ADDRESS__
    why = "use-after-poison";
#endif
    for (int i = 0; i < N_SIZES; i++) {
        int status = run(fn, SIZES[i], text, sizeof text);
        if (status == 0 || !strstr(text, why)) {
            fail_msg("%zu bytes: status %d, \"%.300s\"", SIZES[i], status, text);
        }
    }
}

static void use_of_live_blocks_is_not_reported(void **state) {
    (void)state;
    char text[65536];
    for (int i = 0; i < N_SIZES; i++) {
        assert_int_equal(run(use_well, SIZES[i], text, sizeof text), 0);
        assert_string_equal(text, "");
    }
}

static void use_after_free_is_reported(void **state) {
    (void)state;
    expect_death(use_after_free, "a block was written after kn_free");
}

static void use_behind_the_end_is_reported(void **state) {
    (void)state;
#if defined __SANITIZE_ADDRESS__
    skip(); /* there are red zones at KNET_CHECKED=3 alone; below, only what rounding leaves */
#endif
    expect_death(use_behind_the_end, "a block was written behind its end");
}

int main(void) {
    return RUN_TESTS(TEST(use_of_live_blocks_is_not_reported), TEST(use_after_free_is_reported),
                     TEST(use_behind_the_end_is_reported));
}
