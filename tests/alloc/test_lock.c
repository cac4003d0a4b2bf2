/* The pool's lock: it excludes threads from each other, and it wakes those that sleep. */
#include "core/lock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "test.h"

typedef struct shared {
    kn__lock lock;
    long a, b; /* equal outside the lock */
    long n_broken;
    _Atomic int n_arrived;
} shared;

static void nap(long ns) { nanosleep(&(struct timespec){.tv_nsec = ns}, NULL); }

static void step(shared *s) {
    kn__lock_take(&s->lock);
    s->n_broken += s->a != s->b;
    s->a++;
    s->b++;
    kn__lock_open(&s->lock);
}

static void *step_once(void *ctx) {
    shared *s = ctx;
    atomic_fetch_add(&s->n_arrived, 1);
    step(s);
    return NULL;
}

static void a_held_gate_admits_no_thread(void **state) {
    (void)state;
    shared s = {0};
    pthread_t thread;
    kn__lock_take(&s.lock);
    assert_int_equal(pthread_create(&thread, NULL, step_once, &s), 0);
    while (!atomic_load(&s.n_arrived)) nap(1000);
    nap(20000000);
    assert_int_equal(s.a, 0);
    kn__lock_open(&s.lock);
    pthread_join(thread, NULL);
    assert_int_equal(s.a, 1);
    assert_int_equal(atomic_load(&s.lock.state), 0);
}

static void *open_later(void *ctx) {
    nap(5000000);
    kn__lock_open(ctx);
    return NULL;
}

static void a_lock_that_stays_held_is_told_from_one_that_opens(void **state) {
    (void)state;
    kn__lock lock = {0};
    pthread_t thread;
    assert_true(kn__lock_opens(&lock, 0));
    kn__lock_take(&lock);
    assert_false(kn__lock_opens(&lock, 3));
    assert_int_equal(pthread_create(&thread, NULL, open_later, &lock), 0);
    assert_true(kn__lock_opens(&lock, 60000));
    pthread_join(thread, NULL);
}

/* Each that wakes must wake the next: a wake that is lost leaves a thread asleep for ever. */
static void all_that_sleep_are_woken_one_after_another(void **state) {
    (void)state;
    enum { THREADS = 16, ROUNDS = 20 };
    for (int round = 0; round < ROUNDS; round++) {
        shared s = {0};
        pthread_t threads[THREADS];
        kn__lock_take(&s.lock);
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, step_once, &s), 0);
        }
        while (atomic_load(&s.n_arrived) < THREADS) nap(1000);
        while (atomic_load(&s.lock.state) != 2) nap(1000); /* some sleep */
        nap(2000000);
        kn__lock_open(&s.lock);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        assert_int_equal(s.a, THREADS);
        assert_int_equal(s.n_broken, 0);
    }
}

static void *step_often(void *ctx) {
    for (int i = 0; i < 20000; i++) step(ctx);
    return NULL;
}

static void threads_exclude_each_other(void **state) {
    (void)state;
    enum { THREADS = 8 };
    shared s = {0};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, step_often, &s), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(s.n_broken, 0);
    assert_int_equal(s.a, THREADS * 20000);
    assert_int_equal(atomic_load(&s.lock.state) & 1, 0);
}

int main(void) {
    return RUN_TESTS(TEST(a_held_gate_admits_no_thread),
                     TEST(a_lock_that_stays_held_is_told_from_one_that_opens),
                     TEST(all_that_sleep_are_woken_one_after_another),
                     TEST(threads_exclude_each_other));
}
