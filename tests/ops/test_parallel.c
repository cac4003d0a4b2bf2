/* Loops over helper threads that all callers share. */
#include <dirent.h>
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/cancelled.h"
#include "kernel.h"
#include "libgomp.h"
#include "test.h"

enum { N = 10000 };

int omp_get_num_procs(void);

static void count(void *ctx, int64_t i) { ((int *)ctx)[i]++; }

static bool loop_is_whole(int threads, int64_t n) {
    static _Thread_local int seen[N];
    memset(seen, 0, sizeof seen);
    kn__parallel_for(threads, n, count, seen);
    for (int64_t i = 0; i < N; i++)
        if (seen[i] != (i < n)) return false;
    return true;
}

static void every_index_runs_once(void **state) {
    (void)state;
    static const int threads[] = {0, 1, 2, 3, 8, 64};
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++)
        for (int64_t n = 0; n <= N; n = n < 10 ? n + 1 : n * 10)
            assert_true(loop_is_whole(threads[t], n));
    for (int i = 0; i < 20000; i++) assert_true(loop_is_whole(2, 2 + i % 3));
}

/* The last piece ends long after the caller has run out of pieces. */
static void linger(void *ctx, int64_t i) {
    if (gettid() != *(pid_t *)ctx) usleep(i ? 100000 : 1000);
}

static void loop_and_linger(void *unused) {
    (void)unused;
    pid_t self = gettid();
    kn__parallel_for(3, 6, linger, &self);
}

static void a_cancelled_caller_waits_for_its_helpers(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) assert_ends_after(loop_and_linger, NULL);
    assert_true(loop_is_whole(3, N));
}

/* Bodies that wait for each other need as many threads as there are bodies. */
typedef struct meeting {
    pthread_barrier_t barrier;
    _Atomic int n_now, n_most;
} meeting;

static void meet(void *ctx, int64_t i) {
    (void)i;
    pthread_barrier_wait(&((meeting *)ctx)->barrier);
}

static void all_threads_take_part(void **state) {
    (void)state;
    meeting m = {0};
    for (int n = 2; n <= 9; n++) {
        pthread_barrier_init(&m.barrier, NULL, (unsigned)n);
        kn__parallel_for(n, n, meet, &m);
        pthread_barrier_destroy(&m.barrier);
    }
}

static void mingle(void *ctx, int64_t i) {
    meeting *m = ctx;
    (void)i;
    int now = atomic_fetch_add(&m->n_now, 1) + 1;
    for (int most = atomic_load(&m->n_most); most < now;)
        if (atomic_compare_exchange_weak(&m->n_most, &most, now)) break;
    usleep(100);
    atomic_fetch_sub(&m->n_now, 1);
}

static void no_more_threads_than_asked_for_run_at_once(void **state) {
    (void)state;
    assert_true(loop_is_whole(9, N)); /* eight helpers are there */
    for (int threads = 2; threads <= 4; threads++) {
        meeting m = {0};
        kn__parallel_for(threads, 200, mingle, &m);
        assert_in_range(atomic_load(&m.n_most), 1, threads);
    }
}

static void run_inner(void *ctx, int64_t i) {
    (void)i;
    if (!loop_is_whole(4, 100)) atomic_store((_Atomic int *)ctx, 1);
}

static void a_loop_in_a_body_stays_on_its_thread(void **state) {
    (void)state;
    _Atomic int failed = 0;
    kn__parallel_for(3, 100, run_inner, &failed);
    assert_int_equal(failed, 0);
}

static sem_t entered, go_on;

/* Held by both threads: the caller and the helper that there is. */
static void hold(void *ctx, int64_t i) {
    (void)ctx, (void)i;
    sem_post(&entered);
    sem_wait(&go_on);
}

static void *hold_both(void *ctx) {
    kn__parallel_for(2, 2, hold, ctx);
    return NULL;
}

static void a_caller_finishes_alone_when_no_helper_is_free(void **state) {
    pthread_t other;
    (void)state;
    sem_init(&entered, 0, 0);
    sem_init(&go_on, 0, 0);
    pthread_create(&other, NULL, hold_both, NULL);
    sem_wait(&entered);
    sem_wait(&entered);
    assert_true(loop_is_whole(2, N));
    sem_post(&go_on);
    sem_post(&go_on);
    pthread_join(other, NULL);
}

static int n_tasks(void) {
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *e; (e = readdir(tasks));) n += e->d_name[0] != '.';
    closedir(tasks);
    return n;
}

static _Atomic int n_failed;
static pthread_barrier_t together;

static void *loop_often(void *unused) {
    (void)unused;
    for (int i = 0; i < 2000; i++)
        if (!loop_is_whole(2 + i % 3, 1 + i % 50)) atomic_fetch_add(&n_failed, 1);
    pthread_barrier_wait(&together);
    pthread_barrier_wait(&together);
    return NULL;
}

static void callers_share_the_helpers(void **state) {
    enum { CALLERS = 8 };
    pthread_t caller[CALLERS];
    (void)state;
    int before = n_tasks();
    atomic_store(&n_failed, 0);
    pthread_barrier_init(&together, NULL, CALLERS + 1);
    for (int i = 0; i < CALLERS; i++) pthread_create(&caller[i], NULL, loop_often, NULL);
    pthread_barrier_wait(&together);
    int added = n_tasks() - before - CALLERS;
    pthread_barrier_wait(&together);
    for (int i = 0; i < CALLERS; i++) pthread_join(caller[i], NULL);
    assert_int_equal(n_failed, 0);
    assert_in_range(added, 0, 3);
}

static void a_forked_child_can_loop_and_end(void **state) {
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* it takes no new threads in a child */
#endif
    assert_true(loop_is_whole(4, N));
    for (int i = 0; i < 20; i++) {
        int how = 0;
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            _exit(loop_is_whole(4, N) ? 7 : 1);
        }
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFEXITED(how));
        assert_int_equal(WEXITSTATUS(how), 7);
    }
}

/* Which of the process's threads beside the caller takes signals? */
static void helpers_block_all_signals(void **state) {
    (void)state;
    assert_true(loop_is_whole(4, N));
    int n_helpers = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *e; (e = readdir(tasks));) {
        char path[300], line[128];
        if (e->d_name[0] == '.' || atoi(e->d_name) == getpid()) continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        FILE *status = fopen(path, "r");
        if (!status) continue;
        unsigned long long blocked = 0;
        while (fgets(line, sizeof line, status)) sscanf(line, "SigBlk: %llx", &blocked);
        fclose(status);
        const int ours[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGALRM, SIGPROF, SIGCHLD};
        for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
            assert_true(blocked >> (ours[i] - 1) & 1);
        n_helpers++;
    }
    closedir(tasks);
    assert_true(n_helpers >= 3);
}

/* Whether a helper sleeps that may run on one processor less than the caller. */
static bool helper_keeps_off(int n_allowed) {
    bool any = false;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *e; (e = readdir(tasks));) {
        cpu_set_t set;
        pid_t id = atoi(e->d_name);
        if (id <= 0 || id == getpid() || sched_getaffinity(id, sizeof set, &set) < 0) continue;
        any = any || CPU_COUNT(&set) == n_allowed - 1;
    }
    closedir(tasks);
    return any;
}

typedef struct places {
    meeting meeting;
    cpu_set_t allowed;
    _Atomic int n_right;
} places;

static void compare_places(void *ctx, int64_t i) {
    places *p = ctx;
    cpu_set_t own;
    meet(&p->meeting, i);
    if (sched_getaffinity(0, sizeof own, &own) == 0 && CPU_EQUAL(&own, &p->allowed)) p->n_right++;
}

static void a_helper_sleeps_off_the_callers_processor_and_works_anywhere(void **state) {
    (void)state;
    places p = {.n_right = 0};
    assert_int_equal(sched_getaffinity(0, sizeof p.allowed, &p.allowed), 0);
    if (CPU_COUNT(&p.allowed) < 2) skip();
    assert_true(loop_is_whole(2, N));
    bool keeps_off = false;
    for (int i = 0; i < 2000 && !keeps_off; i++) {
        usleep(1000);
        keeps_off = helper_keeps_off(CPU_COUNT(&p.allowed));
    }
    assert_true(keeps_off);
    pthread_barrier_init(&p.meeting.barrier, NULL, 2);
    kn__parallel_for(2, 2, compare_places, &p);
    pthread_barrier_destroy(&p.meeting.barrier);
    assert_int_equal(p.n_right, 2);
}

typedef struct bound {
    meeting meeting;
    pthread_t caller;
    int n_allowed; /* processors of the helper */
} bound;

static void count_allowed(void *ctx, int64_t i) {
    bound *b = ctx;
    cpu_set_t own;
    meet(&b->meeting, i);
    if (!pthread_equal(pthread_self(), b->caller) && sched_getaffinity(0, sizeof own, &own) == 0)
        b->n_allowed = CPU_COUNT(&own);
}

static void bind_to(int processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)processor, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void *loop_bound(void *ctx) {
    bound *b = ctx;
    bind_to(sched_getcpu());
    b->caller = pthread_self();
    kn__parallel_for(2, 2, count_allowed, b);
    return NULL;
}

/* In a child, which has no helpers yet. */
static int processors_of_a_helper(bool binds_all) {
    int how = 0;
    pid_t child = fork();
    if (child == 0) {
        bound b = {0};
        pthread_t thread;
        alarm(60);
        pthread_barrier_init(&b.meeting.barrier, NULL, 2);
        if (binds_all) bind_to(sched_getcpu());
        pthread_create(&thread, NULL, loop_bound, &b);
        pthread_join(thread, NULL);
        _exit(b.n_allowed);
    }
    return waitpid(child, &how, 0) == child && WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

/* CTest runs this once more with threads bound by OpenMP. */
static void helpers_are_not_bound_as_their_first_caller(void **state) {
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* it takes no new threads in a child */
#endif
    int all = omp_get_num_procs();
    if (all < 2 || all > 255) skip();
    assert_int_equal(processors_of_a_helper(false), all);
    if (omp_get_num_places() == 0) assert_int_equal(processors_of_a_helper(true), 1);
}

/* What one third is, in the arithmetic of float and of long double. */
typedef struct thirds {
    meeting meeting;
    float of_float[2];
    long double of_long[2];
} thirds;

static void divide(void *ctx, int64_t i) {
    thirds *t = ctx;
    volatile float one = 1, three = 3;
    volatile long double long_one = 1, long_three = 3;
    meet(&t->meeting, i);
    t->of_float[i] = one / three;
    t->of_long[i] = long_one / long_three;
}

static thirds divide_on_both(int rounding) {
    thirds t = {0};
    pthread_barrier_init(&t.meeting.barrier, NULL, 2);
    fesetround(rounding);
    kn__parallel_for(2, 2, divide, &t);
    fesetround(FE_TONEAREST);
    pthread_barrier_destroy(&t.meeting.barrier);
    return t;
}

static void helpers_round_as_the_caller_does(void **state) {
    (void)state;
    assert_true(loop_is_whole(2, N)); /* the helper was made in the usual mode */
    thirds down = divide_on_both(FE_DOWNWARD), up = divide_on_both(FE_UPWARD);
    thirds nearest = divide_on_both(FE_TONEAREST);
    assert_true(down.of_float[0] < up.of_float[0] && down.of_long[0] < up.of_long[0]);
    const thirds *each[] = {&down, &up, &nearest};
    for (int i = 0; i < 3; i++) {
        assert_true(each[i]->of_float[1] == each[i]->of_float[0]);
        assert_true(each[i]->of_long[1] == each[i]->of_long[0]);
    }
}

static void divide_by(void *ctx, int64_t i) {
    volatile long double zero = 0, by = *(int *)ctx, result;
    (void)i;
    result = zero / by;
    (void)result;
}

/* Flags of an earlier loop must not trap in one that traps. */
static void helpers_trap_only_what_happens_in_the_loop(void **state) {
    (void)state;
    for (int by = 0; by < 2; by++) {
        if (by == 1) feenableexcept(FE_INVALID);
        for (int i = 0; i < 100; i++) kn__parallel_for(2, 1000, divide_by, &by);
        fedisableexcept(FE_ALL_EXCEPT);
        feclearexcept(FE_ALL_EXCEPT);
    }
}

/* Which piece each of two threads begins with, and the first of the others. */
typedef struct order {
    pthread_barrier_t both_began;
    pthread_t caller;
    _Atomic int n_runs[2];
    int64_t first[2], second[2];
} order;

static void note_order(void *ctx, int64_t i) {
    order *o = ctx;
    int who = !pthread_equal(pthread_self(), o->caller), run = o->n_runs[who]++;
    if (run == 0) {
        o->first[who] = i;
        pthread_barrier_wait(&o->both_began);
    } else if (run == 1) {
        o->second[who] = i;
    }
}

static void threads_keep_their_ends_and_turn_round_at_each_loop(void **state) {
    (void)state;
    order o[2] = {{.caller = pthread_self()}, {.caller = pthread_self()}};
    for (int i = 0; i < 2; i++) {
        pthread_barrier_init(&o[i].both_began, NULL, 2);
        kn__parallel_for(2, 64, note_order, &o[i]);
        pthread_barrier_destroy(&o[i].both_began);
    }
    const order *forward = o[0].first[0] == 0 ? &o[0] : &o[1], *back = forward == o ? &o[1] : &o[0];
    assert_int_equal(forward->first[0], 0);
    assert_int_equal(forward->first[1], 32);
    assert_int_equal(back->first[0], 31);
    assert_int_equal(back->first[1], 63);
    /* A thread that is held up loses pieces to the other, and may continue in the other's part. */
    for (int who = 0; who < 2; who++) {
        if (forward->n_runs[who] > 1 && forward->second[who] / 32 == forward->first[who] / 32)
            assert_true(forward->second[who] > forward->first[who]);
        if (back->n_runs[who] > 1 && back->second[who] / 32 == back->first[who] / 32)
            assert_true(back->second[who] < back->first[who]);
    }
}

int main(void) {
    return RUN_TESTS(TEST(every_index_runs_once), TEST(a_cancelled_caller_waits_for_its_helpers),
                     TEST(all_threads_take_part), TEST(no_more_threads_than_asked_for_run_at_once),
                     TEST(a_loop_in_a_body_stays_on_its_thread),
                     TEST(threads_keep_their_ends_and_turn_round_at_each_loop),
                     TEST(a_caller_finishes_alone_when_no_helper_is_free),
                     TEST(callers_share_the_helpers), TEST(a_forked_child_can_loop_and_end),
                     TEST(helpers_block_all_signals), TEST(helpers_round_as_the_caller_does),
                     TEST(helpers_trap_only_what_happens_in_the_loop),
                     TEST(helpers_are_not_bound_as_their_first_caller),
                     TEST(a_helper_sleeps_off_the_callers_processor_and_works_anywhere));
}
