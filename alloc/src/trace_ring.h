/* A thread's ring of trace events: one writer, its thread; one reader at a time, trace.c. */
#ifndef KNET_ALLOC_TRACE_RING_H
#define KNET_ALLOC_TRACE_RING_H

#include <knet/trace.h>
#include <stdatomic.h>
#include <time.h>

#include "thread.h"

enum { KN__RING_EVENTS = 4096 };

typedef struct kn__ring {
    _Atomic uint64_t head; /* events ever written */
    uint64_t room_until;   /* the head at which the writer has to look at the tail again */
    uint32_t thread;
    struct kn__ring *next;
    _Alignas(64) _Atomic uint64_t tail; /* events ever taken out */
    _Alignas(64) kn_trace_event events[KN__RING_EVENTS];
} kn__ring;

/* trace.c */
/* The writer waits for room, or makes it itself; returns the tail. */
uint64_t kn__ring_full(kn__ring *ring);
void kn__ring_half_full(void); /* wakes the reader */

static inline uint64_t kn__trace_ticks(void) {
#if defined __x86_64__
    return __builtin_ia32_rdtsc();
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
}

static inline void kn__ring_push(kn__ring *ring, kn_trace_event event) {
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (__builtin_expect(head == ring->room_until, 0)) {
        uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
        if (head - tail == KN__RING_EVENTS) {
            tail = kn__ring_full(ring);
        } else if (head - tail >= KN__RING_EVENTS / 2) {
            kn__ring_half_full();
        }
        uint64_t step = KN__RING_EVENTS - (head - tail);
        ring->room_until = head + (step < KN__RING_EVENTS / 4 ? step : KN__RING_EVENTS / 4);
    }
    event.time_ticks = kn__trace_ticks();
    event.thread = ring->thread;
    ring->events[head % KN__RING_EVENTS] = event;
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

#endif
