/* A ring of trace records: one writer, the thread that owns it; one reader, the drain thread of
 * trace.c. */
#ifndef KN_ALLOC_TRACE_RING_H
#define KN_ALLOC_TRACE_RING_H

#include <knet/trace.h>
#include <stdatomic.h>
#include <time.h>

#include "device/thread.h"

enum {
    KN__RING_RECORDS = 8192,
    KN__RING_STEP = 2048, /* the writer checks for room once in so many records */
    KN__RING_SLACK = 16,  /* more records than one event needs with all that precedes it */
    KN__RING_FULL = KN__RING_RECORDS - KN__RING_STEP - KN__RING_SLACK
};

/* A thread's events on their way to the file: one writer, its thread, and one reader, the drain.
 * Hot for the writer: the first line and the records; it reads `tail`, which the reader writes,
 * once in KN__RING_STEP records, so the two lines seldom move between cores. */
typedef struct kn__ring {
    _Atomic uint64_t head; /* records written since the ring was made */
    uint64_t check_at;     /* the head at which the writer checks for room */
    uint64_t generation;   /* of the trace that the next four fields describe */
    uint64_t time_ticks;   /* of the last event; this and the next two as in a kn_trace_thread */
    kn_stream stream;
    uint32_t pool;
    uint32_t thread; /* number in the file */
    bool ended;      /* the thread is gone; free the ring once it is drained */
    struct kn__ring *next;
    _Alignas(64) _Atomic uint64_t tail; /* records drained */
    _Alignas(64) kn_trace_record records[KN__RING_RECORDS];
} kn__ring;

/* The time, in ticks of a clock that all cores share. It is later than every time that the caller
 * can know of: a thread that receives a block from another reads a later time than the other read
 * before it passed the block on. On x86-64 this takes two things:
 * - The clock is not read too early. A processor executes ahead: it may execute rdtsc while the
 *   load that receives the block still waits for memory. lfence waits until all earlier
 *   instructions, loads among them, are complete. (rdtscp waits in the same way and costs the same,
 *   but not all processors and virtual machines have it.)
 * - The clock is not read too late. Stores become visible to other cores in program order, and only
 *   when all earlier instructions, rdtsc among them, are complete. So the store that passes the
 *   block on needs no fence before it.
 * Elsewhere clock_gettime does both. */
static inline uint64_t kn__trace_ticks(void) {
#if defined __x86_64__
    __builtin_ia32_lfence();
    return __builtin_ia32_rdtsc();
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

static inline void kn__ring_put(kn__ring *ring, uint64_t a, uint64_t b) {
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    ring->records[head % KN__RING_RECORDS] = (kn_trace_record){a, b};
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

/* A thread's times never decrease, even where the clocks of two cores differ. */
static inline void kn__ring_put_event(kn__ring *ring, kn_trace_kind kind, uint64_t ptr,
                                      uint64_t size, uint64_t ticks) {
    uint64_t passed = ticks > ring->time_ticks ? ticks - ring->time_ticks : 0;
    ring->time_ticks += passed;
    if (__builtin_expect(passed > UINT32_MAX, 0)) {
        kn__ring_put(ring, KN_TRACE_TIME, ticks);
        passed = 0;
    }
    kn__ring_put(ring, (uint64_t)kind | ptr | passed << 48, size | passed >> 16 << 48);
}

#endif
