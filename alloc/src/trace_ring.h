/* A thread's ring of trace records: one writer, its thread; one reader at a time, trace.c.
 *
 * The clock costs more than all else here, so one thread at a time has the turn, and reads it now
 * and then only. An event of the thread that has the turn may be dated back, to the last reading,
 * and none that it follows is dated later:
 * - Whoever takes the turn changes kn__trace_turn, then reads its clock. Who is handed a block by
 *   it sees the change, and takes the turn before it notes an event.
 * - A reading counts only if the turn was still the reader's behind it: so it is earlier than the
 *   first of the next who takes the turn, though the reader may hear of that late.
 * Threads that take it from each other all the time make it odd: from then on nobody has it, and
 * each event has a reading of its own. */
#ifndef KNET_ALLOC_TRACE_RING_H
#define KNET_ALLOC_TRACE_RING_H

#include <knet/trace.h>
#include <stdatomic.h>
#include <time.h>

#include "thread.h"

enum {
    KN__RING_RECORDS = 8192,
    KN__RING_SLACK = 16,  /* more than any event takes with all that is said before it */
    KN__RING_STRIDE = 32, /* records of one reading of the clock, where it has the turn */
    KN__RING_PIECE = 2048 /* written at a time; at half a ring the reader is woken */
};

typedef struct kn__ring {
    _Atomic uint64_t head; /* records ever written */
    uint64_t alarm;        /* the head at which the clock is read */
    uint64_t turn;         /* kn__trace_turn when all below was last renewed */
    kn_pool *pool;         /* of the last event; NULL: has to be said again */
    kn_stream stream;      /* of the last that had one */
    uint64_t time_ticks;
    uint64_t room_until; /* the head at which the reader's tail has to be looked at again */
    uint64_t stride;
    uint64_t renewed_ticks;
    uint32_t n_short; /* turns of this ring, one behind the other, that soon were over */
    uint32_t thread;
    struct kn__ring *next;
    _Alignas(64) _Atomic uint64_t tail; /* records ever taken out */
    _Alignas(64) kn_trace_record records[KN__RING_RECORDS];
} kn__ring;

/* In trace.c. It only grows: when the turn is taken, a pool is made or a trace begins, and every 10
 * ms. */
extern _Atomic uint64_t kn__trace_turn __attribute__((visibility("hidden")));

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

/* Looked at behind the last reading of the clock. */
static inline bool kn__ring_has_turn(const kn__ring *ring) {
#if defined __x86_64__
    __builtin_ia32_lfence();
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
    return ring->turn == atomic_load_explicit(&kn__trace_turn, memory_order_acquire);
}

static inline void kn__ring_put(kn__ring *ring, uint64_t a, uint64_t b) {
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    ring->records[head % KN__RING_RECORDS] = (kn_trace_record){a, b};
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

/* False: all has to be renewed first, by trace.c. */
static inline bool kn__ring_push(kn__ring *ring, kn_trace_kind kind, uint64_t ptr, uint64_t size) {
    uint64_t passed = 0, head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (head >= ring->alarm) {
        uint64_t ticks = kn__trace_ticks();
        passed = ticks - ring->time_ticks;
        bool known = ring->stride == 1 || kn__ring_has_turn(ring);
        if (__builtin_expect(head >= ring->room_until || passed > UINT32_MAX || !known, 0)) {
            return false;
        }
        ring->time_ticks = ticks;
        ring->alarm = head + ring->stride;
    }
    kn__ring_put(ring, ptr | (uint64_t)kind | passed << 48, size | passed >> 16 << 48);
    return true;
}

#endif
