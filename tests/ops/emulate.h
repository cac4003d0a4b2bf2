// A GPU of one multiprocessor on the host: runs the kernels of the .cu files, built as C++, block
// by block, each thread of a block as a fiber that runs until it meets a barrier or a shuffle. So
// their logic is tested where there is no GPU; speed, races and the compiler are not.
#ifndef KNET_EMULATE_H
#define KNET_EMULATE_H

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>

#undef __device__
#undef __global__
#undef __shared__
#undef __launch_bounds__
#undef __grid_constant__
#define __device__
#define __global__
#define __shared__ static  // blocks run one after the other
#define __launch_bounds__(...)
#define __grid_constant__

#define KN_LAUNCH(kernel, blocks, threads, stream, ...)                                            \
    emulate::launch((blocks), (threads), [&] { kernel(__VA_ARGS__); })
#define cudaGetLastError() cudaSuccess

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

namespace emulate {

enum { THREADS_MAX = 1024, STACK_BYTES = 64 << 10, SPINS_MAX = 1 << 20 };

struct fiber {
    void *stack_pointer;
    bool done;
    uint3 index;
};
struct barrier {
    int waiting, alive;
    unsigned round;
};

// Saves the stack pointer of the fiber that runs and goes on with another. See emulate.c.
extern "C" void kn_emulate_switch(void **save, void *load);

inline char *stacks;
inline fiber fibers[THREADS_MAX];
inline void *main_stack;
inline int current, n_threads;
inline const std::function<void()> *body;
inline barrier block_barrier, warp_barrier[THREADS_MAX / 32];
inline char lane_value[THREADS_MAX][16];

inline void yield() { kn_emulate_switch(&fibers[current].stack_pointer, main_stack); }

inline void release(barrier &b) {
    b.waiting = 0;
    b.round++;
}
inline void arrive(barrier &b) {
    unsigned round = b.round;
    if (++b.waiting >= b.alive) return release(b);
    while (b.round == round) yield();
}
inline void leave(barrier &b) {
    b.alive--;
    if (b.waiting && b.waiting >= b.alive) release(b);
}

inline void run_thread() {
    (*body)();
    fibers[current].done = true;
    leave(block_barrier);
    leave(warp_barrier[current / 32]);
    yield();
    abort();  // nobody resumes a fiber that is done
}

// A stack on which the first switch "returns" into run_thread.
inline void prepare(int t) {
    void **top = (void **)(stacks + (size_t)(t + 1) * STACK_BYTES - 64);
    *--top = nullptr;
    *--top = (void *)run_thread;
    for (int saved = 0; saved < 6; saved++) *--top = nullptr;
    unsigned x = blockDim.x, y = blockDim.y, i = (unsigned)t;
    fibers[t] = {top, false, {i % x, i / x % y, i / (x * y)}};
}

inline void run_block() {
    block_barrier = {0, n_threads, 0};
    for (int w = 0; w * 32 < n_threads; w++) {
        int rest = n_threads - w * 32;
        warp_barrier[w] = {0, rest < 32 ? rest : 32, 0};
    }
    for (int t = 0; t < n_threads; t++) prepare(t);
    int left = n_threads;
    for (long spins = 0; left; spins++) {
        if (spins > SPINS_MAX) abort();  // a barrier that not all threads reach
        for (int t = 0; t < n_threads; t++) {
            if (fibers[t].done) continue;
            current = t;
            threadIdx = fibers[t].index;
            kn_emulate_switch(&main_stack, fibers[t].stack_pointer);
            left -= fibers[t].done;
        }
    }
}

inline void launch(dim3 blocks, dim3 threads, const std::function<void()> &kernel) {
    if (!stacks) stacks = (char *)aligned_alloc(64, (size_t)STACK_BYTES * THREADS_MAX);
    if (!stacks) abort();
    body = &kernel;
    gridDim = blocks, blockDim = threads;
    n_threads = (int)(threads.x * threads.y * threads.z);
    for (unsigned b = 0; b < blocks.x; b++) {
        blockIdx = {b, 0, 0};
        run_block();
    }
}

template <class T>
T shuffle_xor(T x, int distance) {
    memcpy(lane_value[current], &x, sizeof x);
    arrive(warp_barrier[current / 32]);
    memcpy(&x, lane_value[current ^ distance], sizeof x);
    arrive(warp_barrier[current / 32]);
    return x;
}

inline bool any(bool p) {
    bool all = false;
    memcpy(lane_value[current], &p, sizeof p);
    arrive(warp_barrier[current / 32]);
    for (int i = 0; i < 32; i++) all |= lane_value[current / 32 * 32 + i][0] != 0;
    arrive(warp_barrier[current / 32]);
    return all;
}

}  // namespace emulate

#define __syncthreads() emulate::arrive(emulate::block_barrier)
#define __shfl_xor_sync(mask, x, distance) emulate::shuffle_xor((x), (distance))
#define __any_sync(mask, p) emulate::any(p)
#define __threadfence() ((void)0)

template <class T>
T atomicAdd(T *p, T v) {
    T old = *p;
    *p += v;
    return old;
}
inline int min(int a, int b) { return a < b ? a : b; }
inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
