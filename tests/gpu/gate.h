/* A gate, a host function that waits, holds one stream up while a test watches another. A closed
 * gate opens by itself after GATE_SECONDS, so that a stream or a call that waits for the held one
 * ends as a failure and not as a hang.
 *
 *     gate_close(s);                  // holds up all later work of s
 *     …                               // must not wait for s
 *     assert_true(gate_open());       // it was closed until now
 *
 * One gate for the whole program, so that it outlives a test that fails. */
#ifndef KNET_TESTS_GATE_H
#define KNET_TESTS_GATE_H

#include "gpu.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

enum { GATE_SECONDS = 5 };

static unsigned int (*gate_launch)(kn_stream stream, void (*fn)(void *ctx), void *ctx);

/* Finds the driver's functions and makes the primary context current; false where either fails. */
static inline bool gate_init(void) {
    unsigned int (*retain)(void **, int) = NULL, (*push)(void *) = NULL;
    void *primary = NULL;
    return gpu_find_function("cuDevicePrimaryCtxRetain", &retain) &&
           gpu_find_function("cuCtxPushCurrent_v2", &push) &&
           gpu_find_function("cuLaunchHostFunc", &gate_launch) && retain(&primary, 0) == 0 &&
           push(primary) == 0;
}

static struct gate {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool open, gave_up;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER, .open = true};

static inline void gate_wait(void *unused) {
    (void)unused;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += GATE_SECONDS;
    pthread_mutex_lock(&gate.lock);
    int error = 0;
    while (!gate.open && error != ETIMEDOUT) {
        error = pthread_cond_timedwait(&gate.opened, &gate.lock, &end);
    }
    gate.gave_up |= !gate.open;
    pthread_mutex_unlock(&gate.lock);
}

/* Holds up all later work of the stream. The work behind the last gate must have finished. */
static inline void gate_close(kn_stream stream) {
    pthread_mutex_lock(&gate.lock);
    gate.open = gate.gave_up = false;
    pthread_mutex_unlock(&gate.lock);
    assert_int_equal(gate_launch(stream, gate_wait, NULL), 0);
}

/* True if the gate stayed closed until now: the calls in between did not wait for the held stream.
 */
static inline bool gate_open(void) {
    pthread_mutex_lock(&gate.lock);
    bool held = !gate.gave_up;
    gate.open = true;
    pthread_cond_broadcast(&gate.opened);
    pthread_mutex_unlock(&gate.lock);
    return held;
}

#endif
