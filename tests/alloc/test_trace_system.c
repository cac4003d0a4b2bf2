/* The trace and the system: slow and full disks, signals, fork, exit. */
#include <fcntl.h>
#include <knet/trace.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inspect/trace_ring.h"
#include "main_end.h"
#include "pool_fixture.h"
#include "trace_file.h"

static void *trace_one_pair(void *ctx) {
    const fixture *f = ctx;
    void *ptr = NULL;
    if (kn_alloc(&ptr, f->pool, 512, NULL) < 0 || kn_free(f->pool, ptr) < 0) n_failed++;
    return NULL;
}

/* A thread that allocates and frees a block on each request. */
typedef struct worker {
    fixture *f;
    pthread_t thread;
    sem_t go, done;
    bool over;
} worker;

static void *work(void *ctx) {
    worker *self = ctx;
    for (;;) {
        sem_wait(&self->go);
        if (self->over) return NULL;
        trace_one_pair(self->f);
        sem_post(&self->done);
    }
}

static void worker_do(worker *self) {
    sem_post(&self->go);
    sem_wait(&self->done);
}

static void worker_begin(worker *self, fixture *f) {
    *self = (worker){.f = f};
    sem_init(&self->go, 0, 0);
    sem_init(&self->done, 0, 0);
    assert_int_equal(pthread_create(&self->thread, NULL, work, self), 0);
}

static void worker_end(worker *self) {
    self->over = true;
    sem_post(&self->go);
    pthread_join(self->thread, NULL);
    sem_destroy(&self->go);
    sem_destroy(&self->done);
}

static void a_thread_that_outlives_a_trace_has_its_events_in_the_next(void **state) {
    (void)state;
    fixture f = fixture_make(GiB, false, NULL);
    worker one;
    worker_begin(&one, &f);
    for (int i = 0; i < 3; i++) {
        trace_begin(NULL);
        worker_do(&one);
        file got = trace_end();
        assert_int_equal(file_count(&got, KN_TRACE_ALLOC), 1);
        const kn_trace_event *e = file_first(&got, KN_TRACE_ALLOC);
        assert_int_equal(e->pool, file_first(&got, KN_TRACE_POOL)->pool);
        assert_true(e->time_ticks >= file_clock_ticks(&got, 0));
        assert_true(e->time_ticks <= file_clock_ticks(&got, 1));
        file_free(&got);
        worker_do(&one); /* not in any trace */
    }
    worker_end(&one);
    fixture_end(&f);
}

#ifdef __SANITIZE_THREAD__
static const bool child_may_have_threads = false; /* ThreadSanitizer ends it then */
#else
static const bool child_may_have_threads = true;
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static size_t malloced_bytes(void) { return 0; } /* not known */
#else
static size_t malloced_bytes(void) {
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}
#endif

static void events_of_ended_threads_are_kept_and_their_rings_freed(void **state) {
    (void)state;
    enum { WORKERS = 100 };
    static worker workers[WORKERS];
    fixture f = fixture_make(GiB, false, NULL);
    size_t before = 0;
    for (int round = 0; round < 5; round++) {
        bool end_first = round % 2 == 0;
        trace_begin(NULL);
        for (int i = 0; i < WORKERS; i++) {
            worker_begin(&workers[i], &f);
            worker_do(&workers[i]);
            if (!end_first) worker_end(&workers[i]);
        }
        file got = trace_end();
        assert_int_equal(file_count(&got, KN_TRACE_ALLOC), WORKERS);
        assert_int_equal(file_count(&got, KN_TRACE_FREE), WORKERS);
        file_free(&got);
        for (int i = 0; end_first && i < WORKERS; i++) worker_end(&workers[i]);
        if (round == 1) before = malloced_bytes();
    }
    assert_int_equal(n_failed, 0);
    assert_true(malloced_bytes() <= before + WORKERS / 2 * sizeof(kn__ring));
    fixture_end(&f);
}

/* Replaces the C library's function in the allocator too, which gets a ring's memory from it. */
static atomic_bool no_memory;

__attribute__((visibility("default"))) void *aligned_alloc(size_t align, size_t size) {
    void *ptr = NULL;
    return no_memory || posix_memalign(&ptr, align, size) != 0 ? NULL : ptr;
}

static bool child_traces_without_loss(void) {
    if (!child_may_have_threads) return true;
    pid_t child = fork();
    if (child == 0) {
        _exit(kn_trace_begin("/dev/null", NULL) == KN_OK && kn_trace_end() == KN_OK ? 0 : 1);
    }
    int code = -1;
    return waitpid(child, &code, 0) == child && code == 0;
}

static void events_without_memory_for_a_ring_are_counted_as_lost(void **state) {
    (void)state;
    fixture f = fixture_make(GiB, false, NULL);
    worker one;
    kn_free(f.pool, must_alloc(f.pool, 512, NULL)); /* the pool has all that it needs */
    trace_begin(NULL);
    no_memory = true;
    worker_begin(&one, &f);
    worker_do(&one);
    assert_int_equal(trace_stats().n_lost, 2);
    assert_true(child_traces_without_loss());
    assert_fails(kn_trace_end(), KN_ERR_IO, "2 events were lost");
    test_assert_message("no memory", __FILE__, __LINE__);
    worker_do(&one); /* no trace loses these */
    no_memory = false;
    assert_int_equal(trace_stats().n_lost, 2);
    worker_end(&one);
    assert_int_equal(n_failed, 0);
    file got = file_read();
    assert_int_equal(kn_trace_kind_of(file_last(&got)), KN_TRACE_END);
    assert_int_equal(file_last(&got)->a >> 8, 2);
    file_free(&got);
    trace_begin(NULL); /* the next trace counts from zero */
    got = trace_end();
    file_free(&got);
    fixture_end(&f);
}

/* Ends, slow disks, full disks. */

static atomic_int n_logged;

static void count_logged(void *ctx, int level, const char *text) {
    (void)ctx;
    if (level == 0 && strstr(text, "events are lost")) n_logged++;
}

/* SIGXFSZ has its default action: a thread that received it would kill the program. */
static void a_full_disk_costs_events_not_the_program(void **state) {
    (void)state;
    enum { BYTES = 100007 }; /* whole records and 7 bytes */
    fixture f = fixture_make(GiB, false, NULL);
    struct rlimit before, tight;
    getrlimit(RLIMIT_FSIZE, &before);
    tight = (struct rlimit){BYTES, before.rlim_max};
    kn_log_attach(count_logged, NULL);
    n_logged = 0;
    trace_begin(NULL);
    setrlimit(RLIMIT_FSIZE, &tight);
    for (int i = 0; i < 3; i++) churn(&f);
    setrlimit(RLIMIT_FSIZE, &before);
    churn(&f); /* there is room again, but the file must not skip events in the middle */
    assert_int_equal(kn_trace_flush(), KN_ERR_IO);
    kn_status status = kn_trace_end();
    kn_log_attach(NULL, NULL);
    assert_int_equal(status, KN_ERR_IO);
    test_assert_message("events were lost", __FILE__, __LINE__);
    test_assert_message("File too large", __FILE__, __LINE__);
    assert_int_equal(n_failed, 0);
    assert_int_equal(n_logged, 1);
    file got = file_read();
    kn_trace_stats stats = trace_stats();
    size_t n_others = got.n - file_count(&got, KN_TRACE_ALLOC) - file_count(&got, KN_TRACE_FREE);
    assert_int_equal(got.odd_bytes, 7);
    assert_int_equal(sizeof got.header + got.n_records * sizeof *got.records, 100000);
    assert_int_equal(got.n, stats.n_events);
    assert_int_equal(stats.n_events + stats.n_lost, 8 * PAIRS + n_others);
    assert_int_equal(file_count(&got, KN_TRACE_END), 0);
    file_free(&got);

    trace_begin(NULL);
    kn_free(f.pool, must_alloc(f.pool, 512, NULL));
    got = trace_end();
    assert_int_equal(file_count(&got, KN_TRACE_ALLOC), 1);
    file_free(&got);
    fixture_end(&f);
}

/* A pipe instead of a file: the test decides how fast it takes records. */

static char pipe_path[] = "/tmp/knet-trace-pipe-XXXXXX";

static int pipe_begin(void) {
    int fd = open(pipe_path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_ok(kn_trace_begin(pipe_path, NULL));
    fcntl(fd, F_SETFL, 0);
    return fd;
}

static void *copy_pipe_to_file(void *ctx) {
    static char bytes[1 << 16];
    int in = *(int *)ctx, out = open(trace_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (ssize_t n; (n = read(in, bytes, sizeof bytes)) > 0;) {
        if (write(out, bytes, (size_t)n) != n) n_failed++;
    }
    close(out);
    return NULL;
}

/* A thread that is cancelled while it waits for room ends only later, in its own code. */
typedef struct filler {
    fixture f;
    atomic_int n_pairs;
} filler;

static void *fill_ring(void *ctx) {
    filler *self = ctx;
    for (int i = 0; i < PAIRS; i++) {
        trace_one_pair(&self->f);
        atomic_store(&self->n_pairs, i + 1);
    }
    pthread_testcancel();
    return NULL;
}

static void a_thread_with_a_full_ring_waits_and_loses_no_event(void **state) {
    (void)state;
    filler one = {.f = fixture_make(GiB, false, NULL)};
    pthread_t thread, reader;
    void *result = NULL;
    int fd = pipe_begin();
    assert_int_equal(pthread_create(&thread, NULL, fill_ring, &one), 0);
    for (int before = -1; before < one.n_pairs || before == 0;) {
        before = one.n_pairs;
        usleep(100000);
    }
    assert_true(one.n_pairs < PAIRS); /* it waits */
    pthread_cancel(thread);
    usleep(10000);
    assert_int_equal(pthread_create(&reader, NULL, copy_pipe_to_file, &fd), 0);
    pthread_join(thread, &result);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    assert_ok(kn_trace_end());
    pthread_join(reader, NULL);
    close(fd);
    assert_int_equal(n_failed, 0);
    file got = file_read();
    assert_int_equal(file_count(&got, KN_TRACE_ALLOC), PAIRS);
    assert_int_equal(file_count(&got, KN_TRACE_FREE), PAIRS);
    assert_blocks_alternate(&got);
    file_free(&got);
    fixture_end(&one.f);
}

/* SIGPIPE has its default action: a thread that received it would kill the program. */
static void a_pipe_without_a_reader_costs_events_not_the_program(void **state) {
    (void)state;
    fixture f = fixture_make(GiB, false, NULL);
    close(pipe_begin());
    churn(&f);
    assert_fails(kn_trace_end(), KN_ERR_IO, "Broken pipe");
    close(pipe_begin());
    trace_one_pair(&f); /* too few for the log */
    assert_fails(kn_trace_end(), KN_ERR_IO, "Broken pipe");
    kn_log_attach(count_logged, NULL);
    n_logged = 0;
    trace_begin(NULL);
    churn(&f);
    file got = trace_end();
    file_free(&got);
    kn_log_attach(NULL, NULL);
    assert_int_equal(n_logged, 0); /* that was of another trace */
    assert_int_equal(n_failed, 0);
    fixture_end(&f);
}

static void the_drain_thread_blocks_all_signals(void **state) {
    (void)state;
    sigset_t one, before;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    trace_begin(NULL);
    pthread_sigmask(SIG_BLOCK, &one, &before);
    assert_false(sigismember(&before, SIGUSR1)); /* the drain thread alone */
    kill(getpid(), SIGUSR1); /* kills the program if one of its threads does not block it */
    assert_int_equal(sigtimedwait(&one, NULL, &(struct timespec){.tv_sec = 10}), SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    file got = trace_end();
    file_free(&got);
}

static void set_stack_size(size_t bytes) {
    pthread_attr_t attributes;
    assert_int_equal(pthread_getattr_default_np(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, bytes), 0);
    assert_int_equal(pthread_setattr_default_np(&attributes), 0);
    pthread_attr_destroy(&attributes);
}

/* No stack of this size can be had, and so no thread. */
static void where_no_thread_starts_an_older_trace_stays(void **state) {
    (void)state;
    size_t usual = 0;
    pthread_attr_t attributes;
    fixture f = fixture_make(GiB, false, NULL);
    trace_begin(f.pool);
    assert_ok(kn_free(f.pool, must_alloc(f.pool, 1000, NULL)));
    file before = trace_end();
    assert_int_equal(pthread_getattr_default_np(&attributes), 0);
    assert_int_equal(pthread_attr_getstacksize(&attributes, &usual), 0);
    pthread_attr_destroy(&attributes);
    set_stack_size((size_t)1 << 48);
    kn_status status = kn_trace_begin(trace_path, NULL);
    set_stack_size(usual);
    assert_fails(status, KN_ERR_INTERNAL, "cannot start a thread to write");
    file after = file_read();
    assert_int_equal(after.n, before.n);
    file_free(&before);
    file_free(&after);
    assert_fails(kn_trace_begin("/nowhere/a.kntrace", NULL), KN_ERR_IO, "/nowhere/a.kntrace");
    trace_begin(f.pool);
    file again = trace_end();
    file_free(&again);
    fixture_end(&f);
}

/* A program may have closed them, and opens others there. */
static void the_file_is_no_standard_stream(void **state) {
    (void)state;
    int saved = dup(STDIN_FILENO);
    assert_true(saved > STDERR_FILENO);
    close(STDIN_FILENO);
    trace_begin(NULL);
    bool is_free = fcntl(STDIN_FILENO, F_GETFD) < 0;
    file got = trace_end();
    assert_int_equal(dup2(saved, STDIN_FILENO), STDIN_FILENO);
    close(saved);
    file_free(&got);
    assert_true(is_free);
}

/* As daemons do, the program closes all descriptors and opens files of its own. */
static void a_file_of_the_program_with_the_number_of_the_trace_stays_as_it_is(void **state) {
    (void)state;
    char own_path[] = "/tmp/knet-own-XXXXXX";
    fixture f = fixture_make(GiB, false, NULL);
    int own = mkstemp(own_path), lowest = dup(own);
    assert_int_equal(close(lowest), 0);
    trace_begin(NULL); /* into the lowest number that is free */
    assert_int_equal(dup2(own, lowest), lowest);
    churn(&f);
    kn_status status = kn_trace_end();
    assert_int_equal(status, KN_ERR_IO);
    test_assert_message("Bad file descriptor", __FILE__, __LINE__);
    assert_int_equal(lseek(own, 0, SEEK_END), 0);
    assert_int_equal(close(lowest), 0); /* is still open */
    close(own);
    unlink(own_path);
    fixture_end(&f);
}

/* fork and exit. */

static int lowest_free_fd(void) {
    int fd = dup(STDIN_FILENO);
    close(fd);
    return fd;
}

static void after_a_fork_the_trace_continues_in_the_parent_only(void **state) {
    (void)state;
    kn_pool *pool = NULL;
    assert_ok(kn_pool_create(&pool, kn_device_host(), NULL)); /* usable in the child */
    int fd = lowest_free_fd();
    trace_begin(NULL);
    kn_free(pool, must_alloc(pool, 512, NULL));
    pid_t child = fork();
    if (child == 0) {
        void *ptr = NULL;
        bool ok = kn_alloc(&ptr, pool, 512, NULL) == KN_OK && kn_free(pool, ptr) == KN_OK;
        _exit(ok && kn_trace_end() == KN_OK && lowest_free_fd() == fd ? 0 : 1);
    }
    int code = -1;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    kn_free(pool, must_alloc(pool, 512, NULL));
    file got = trace_end();
    assert_int_equal(file_count(&got, KN_TRACE_ALLOC), 2);
    assert_int_equal(kn_trace_kind_of(file_last(&got)), KN_TRACE_END);
    file_free(&got);
    kn_pool_destroy(pool);
}

/* A child has no drain thread until it starts a trace. Returns whether its trace is complete, and
 * the rings of the parent's threads are freed. */
static bool trace_in_child(const char *path, fixture *host, int n_parent_rings) {
    size_t before = malloced_bytes();
    worker one;
    no_memory = true;
    worker_begin(&one, host);
    worker_do(&one); /* no trace has these events, and none has lost them */
    no_memory = false;
    bool ok = trace_stats().n_lost == 0 && kn_trace_begin(path, NULL) == KN_OK;
    size_t after = malloced_bytes();
    ok = ok && (!before || after + (size_t)n_parent_rings * sizeof(kn__ring) / 2 < before);
    for (int i = 0; i < PAIRS; i++) trace_one_pair(host);
    worker_do(&one);
    ok = kn_trace_end() == KN_OK && ok;
    return ok && n_failed == 0 && trace_stats().n_events >= 2 * PAIRS + 2;
}

/* Forks while other threads trace, and with rings that hold events. */
static void a_forked_child_can_trace_into_its_own_file(void **state) {
    (void)state;
    enum { CHILDREN = 10, IDLE = 8 };
    if (!child_may_have_threads) skip();
    static worker idle[IDLE];
    fixture f = fixture_make(GiB, false, NULL), host = {.device = kn_device_host()};
    char child_path[] = "/tmp/knet-trace-child-XXXXXX";
    pthread_t threads[THREADS];
    int n_bad = 0;
    close(mkstemp(child_path));
    assert_ok(kn_pool_create(&host.pool, host.device, NULL));
    trace_begin(NULL);
    for (int i = 0; i < IDLE; i++) {
        worker_begin(&idle[i], &f);
        worker_do(&idle[i]);
    }
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, churn, &f);
    for (int i = 0; i < CHILDREN; i++) {
        trace_one_pair(&host); /* in this thread's ring, and not in the child's file */
        pid_t child = fork();
        if (child == 0) _exit(trace_in_child(child_path, &host, IDLE) ? 0 : 1);
        int code = -1;
        n_bad += waitpid(child, &code, 0) != child || code != 0;
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < IDLE; i++) worker_end(&idle[i]);
    file got = trace_end();
    assert_int_equal(n_bad, 0);
    assert_int_equal(file_count(&got, KN_TRACE_ALLOC), THREADS * PAIRS + CHILDREN + IDLE);
    assert_blocks_alternate(&got);
    file_free(&got);
    rename(child_path, trace_path);
    got = file_read();
    assert_int_equal(file_count(&got, KN_TRACE_ALLOC), PAIRS + 1);
    assert_int_equal(kn_trace_kind_of(file_last(&got)), KN_TRACE_END);
    assert_int_not_equal(got.header.process, (uint32_t)getpid());
    file_free(&got);
    kn_pool_destroy(host.pool);
    fixture_end(&f);
}

/* A program that does not end its trace. */
static bool trace_one_block(void) {
    kn_pool *pool = NULL;
    void *ptr = NULL;
    if (kn_pool_create(&pool, kn_device_host(), NULL) < 0) return false;
    bool ok = kn_trace_begin(trace_path, NULL) == KN_OK && kn_alloc(&ptr, pool, 77, NULL) == KN_OK;
    kn_free(pool, ptr);
    kn_pool_destroy(pool);
    return ok;
}

static void complete_the_trace_by(void (*end)(void)) {
    pid_t child = fork();
    if (child == 0) {
        end_in_a_minute();
        if (trace_one_block()) end();
        _exit(1);
    }
    int code = -1;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    file got = file_read();
    assert_int_equal(file_first(&got, KN_TRACE_ALLOC)->size, 77);
    assert_int_equal(kn_trace_kind_of(file_last(&got)), KN_TRACE_END);
    file_free(&got);
}

static void call_exit(void) { exit(0); }

static void exit_completes_the_trace(void **state) {
    (void)state;
    complete_the_trace_by(call_exit);
}

static void call_pthread_exit(void) { pthread_exit(NULL); }

/* The drain thread, which never ends by itself, keeps no process. */
static void the_end_of_the_last_thread_completes_the_trace(void **state) {
    (void)state;
    complete_the_trace_by(call_pthread_exit);
}

int main(void) {
    if (!trace_path_make()) return 1;
    close(mkstemp(pipe_path));
    unlink(pipe_path);
    if (mkfifo(pipe_path, 0600) < 0) return 1;
    int failed = RUN_TESTS(
        TEST(a_thread_that_outlives_a_trace_has_its_events_in_the_next),
        TEST(events_of_ended_threads_are_kept_and_their_rings_freed),
        TEST(events_without_memory_for_a_ring_are_counted_as_lost),
        TEST(a_full_disk_costs_events_not_the_program),
        TEST(a_thread_with_a_full_ring_waits_and_loses_no_event),
        TEST(a_pipe_without_a_reader_costs_events_not_the_program),
        TEST(the_drain_thread_blocks_all_signals),
        TEST(where_no_thread_starts_an_older_trace_stays), TEST(the_file_is_no_standard_stream),
        TEST(a_file_of_the_program_with_the_number_of_the_trace_stays_as_it_is),
        TEST(after_a_fork_the_trace_continues_in_the_parent_only),
        TEST(a_forked_child_can_trace_into_its_own_file), TEST(exit_completes_the_trace),
        TEST_LONG(the_end_of_the_last_thread_completes_the_trace));
    unlink(pipe_path);
    trace_path_remove();
    return failed;
}
