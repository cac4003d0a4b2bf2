/* The pool's lock: it excludes, whether a thread owns it or not, and an owner loses it to others.
 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "lock.h"
#include "test.h"

_Thread_local kn__thread *kn__self; /* the library's own is hidden in it */

typedef struct shared {
    kn__lock lock;
    uint32_t earn; /* so many takes make an owner, always; 0: as the lock will have it */
    long a, b;     /* equal outside the lock */
    long n_owned, n_broken;
    _Atomic int n_waiting;
} shared;

static void step(shared *s) {
    kn__lock_take(&s->lock, kn__self);
    if (s->a != s->b) s->n_broken++;
    s->a++;
    s->n_owned += atomic_load(&kn__self->inside) == &s->lock;
    if (s->earn) s->lock.earn = s->earn;
    s->b++;
    kn__lock_open(&s->lock, kn__self);
}

static bool earns(shared *s) {
    for (int i = 0; i < 100000 && atomic_load(&s->lock.owner) != kn__self; i++) step(s);
    return atomic_load(&s->lock.owner) == kn__self;
}

static void setup(shared **s, kn__thread *self) {
    *s = calloc(1, sizeof **s);
    *self = (kn__thread){0};
    kn__self = self;
    kn__locks_init();
    if (!earns(*s)) { /* this system has no membarrier */
        free(*s);
        skip();
    }
}

static void *step_once(void *ctx) {
    kn__thread self = {0};
    kn__self = &self;
    atomic_fetch_add(&((shared *)ctx)->n_waiting, 1);
    step(ctx);
    return NULL;
}

static void nap(long ns) { nanosleep(&(struct timespec){.tv_nsec = ns}, NULL); }

/* The lock is held by this thread. */
static void assert_others_wait_until_it_is_opened(shared *s) {
    long before = s->a;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, step_once, s), 0);
    while (!atomic_load(&s->n_waiting)) nap(1000);
    nap(20000000);
    assert_int_equal(s->a, before);
    kn__lock_open(&s->lock, kn__self);
    pthread_join(thread, NULL);
    assert_int_equal(s->a, before + 1);
}

static void thread_that_takes_it_often_owns_it(void **state) {
    (void)state;
    kn__thread self;
    shared *s;
    setup(&s, &self);
    long owned = s->n_owned;
    for (int i = 0; i < 10; i++) step(s);
    assert_int_equal(s->n_owned, owned + 10);
    assert_int_equal(atomic_load(&s->lock.held), 0);
    free(s);
}

static void another_thread_ends_the_ownership(void **state) {
    (void)state;
    kn__thread self;
    shared *s;
    setup(&s, &self);
    long before = s->a, owned = s->n_owned;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, step_once, s), 0);
    pthread_join(thread, NULL);
    assert_int_equal(s->a, before + 1);
    assert_null(atomic_load(&s->lock.owner));
    step(s);
    assert_int_equal(s->n_owned, owned); /* it has to be earned again */
    assert_true(earns(s));
    free(s);
}

static void another_thread_waits_for_the_owner_to_come_out(void **state) {
    (void)state;
    kn__thread self;
    shared *s;
    setup(&s, &self);
    kn__lock_take(&s->lock, kn__self);
    assert_others_wait_until_it_is_opened(s);
    free(s);
}

static void lock_is_held_while_another_one_is_taken_inside(void **state) {
    (void)state;
    kn__thread self;
    shared *s, *inner;
    setup(&s, &self);
    setup(&inner, &self);
    assert_ptr_equal(atomic_load(&s->lock.owner), &self);
    kn__lock_take(&s->lock, kn__self);
    step(inner);
    assert_others_wait_until_it_is_opened(s);
    step(inner);
    free(inner);
    free(s);
}

enum { THREADS = 2, BURSTS = 2000 };

static void *step_in_bursts(void *ctx) {
    static _Atomic unsigned n_threads;
    static kn__thread selves[THREADS]; /* which others look into, even when the thread has ended */
    unsigned seed = atomic_fetch_add(&n_threads, 1);
    kn__self = &selves[seed++];
    long *n = malloc(sizeof *n);
    *n = 0;
    for (int burst = 0; burst < BURSTS; burst++) {
        seed = seed * 1103515245u + 12345u;
        for (unsigned i = 0; i < (seed >> 16) % 200; i++, ++*n) step(ctx);
        if ((seed >> 16) % 64 == 0) nap(20000);
    }
    return n;
}

static void threads_exclude_each_other_as_ownership_moves(void **state) {
    (void)state;
    kn__thread self;
    shared *s;
    setup(&s, &self);
    long total = s->a, owned = s->n_owned;
    kn__lock_take(&s->lock, kn__self);
    s->earn = 1;
    kn__lock_open(&s->lock, kn__self);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, step_in_bursts, s), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *n = NULL;
        pthread_join(threads[i], &n);
        total += *(long *)n;
        free(n);
    }
    assert_int_equal(s->n_broken, 0);
    assert_int_equal(s->a, total);
    assert_int_equal(s->b, total);
    assert_true(s->n_owned > owned);
    free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thread_that_takes_it_often_owns_it),
        cmocka_unit_test(another_thread_ends_the_ownership),
        cmocka_unit_test(another_thread_waits_for_the_owner_to_come_out),
        cmocka_unit_test(lock_is_held_while_another_one_is_taken_inside),
        cmocka_unit_test(threads_exclude_each_other_as_ownership_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
