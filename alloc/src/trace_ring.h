/* A thread's ring of trace records: one writer, its thread; one reader at a time, trace.c.
 *
 * The clock costs more than all else here, so a thread that is alone with the trace reads it only
 * now and then. That keeps order: times that are too early can't put an event of this thread before
 * another thread's that it follows, as there is none. A thread that gets a ring changes
 * kn__trace_now before its first event; whoever is handed a block by it sees that. */
#ifndef KNET_ALLOC_TRACE_RING_H
#define KNET_ALLOC_TRACE_RING_H

#include <knet/trace.h>
#include <stdatomic.h>
#include <time.h>

#include "thread.h"

enum {
    KN__RING_RECORDS = 8192,
    KN__RING_SLACK = 16,  /* more than any event takes with all that is said before it */
    KN__RING_STRIDE = 8,  /* events of one reading of the clock */
    KN__RING_PIECE = 2048 /* written at a time; at half a ring the reader is woken */
};

typedef struct kn__ring {
    _Atomic uint64_t head; /* records ever written */
    uint64_t alarm;        /* the head at which the clock is read */
    uint64_t now;          /* kn__trace_now when all below was last renewed */
    kn_pool *pool;         /* of the last event; NULL: has to be said again */
    kn_stream stream;      /* of the last that had one */
    uint64_t time_ticks;
    uint64_t room_until; /* the head at which the reader's tail has to be looked at again */
    uint64_t stride;
    uint32_t thread;
    struct kn__ring *next;
    _Alignas(64) _Atomic uint64_t tail; /* records ever taken out */
    _Alignas(64) kn_trace_record records[KN__RING_RECORDS];
} kn__ring;

/* In trace.c. Changes when a thread comes or goes, a pool is made or a trace begins, and every 10
 * ms. Odd: there are several threads. */
extern _Atomic uint64_t kn__trace_now __attribute__((visibility("hidden")));

/* Later than all that was seen before the call: without the fence a processor that guesses that a
 * block will come reads its clock before it has the block, and the block's free would be the
 * earlier. */
static inline uint64_t kn__trace_ticks(void) {
#if defined __x86_64__
    __builtin_ia32_lfence();
    return __builtin_ia32_rdtsc();
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
}

static inline void kn__ring_put(kn__ring *ring, uint64_t a, uint64_t b) {
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    ring->records[head % KN__RING_RECORDS] = (kn_trace_record){a, b};
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

/* False: trace.c has to make room first, or to say the time. */
static inline bool kn__ring_push(kn__ring *ring, kn_trace_kind kind, uint64_t ptr, uint64_t size) {
    uint64_t passed = 0, head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (head >= ring->alarm) {
        uint64_t ticks = kn__trace_ticks();
        passed = ticks - ring->time_ticks;
        if (__builtin_expect(head >= ring->room_until || passed > UINT32_MAX, 0)) return false;
        ring->time_ticks = ticks;
        ring->alarm = head + ring->stride;
    }
    kn__ring_put(ring, ptr | (uint64_t)kind | passed << 48, size | passed >> 16 << 48);
    return true;
}

#endif
