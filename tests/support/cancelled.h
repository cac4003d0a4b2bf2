/* A thread that pthread_cancel has ended already runs a function: one that holds locks must come to
 * its end first. */
#ifndef KNET_TEST_CANCELLED_H
#define KNET_TEST_CANCELLED_H

#include <pthread.h>
#include <stdbool.h>

#include "test.h"

typedef struct cancelled_call {
    void (*fn)(void *ctx);
    void *ctx;
    bool returned;
} cancelled_call;

static void *cancelled_run(void *at) {
    cancelled_call *call = at;
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    pthread_cancel(pthread_self());
    pthread_setcancelstate(before, NULL);
    call->fn(call->ctx);
    call->returned = true;
    pthread_testcancel();
    return NULL;
}

/* Runs it in such a thread, which ends in it or after it. */
static inline void test_cancelled(cancelled_call *call) {
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(pthread_create(&thread, NULL, cancelled_run, call), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, PTHREAD_CANCELED);
}

/* The same; it must end after it and not before. */
#define assert_ends_after(fn, ctx) test_ends_after((fn), (ctx), #fn)
static inline void test_ends_after(void (*fn)(void *ctx), void *ctx, const char *name) {
    cancelled_call call = {fn, ctx, false};
    test_cancelled(&call);
    if (!call.returned) fail_msg("%s ended the thread", name);
}

#endif
