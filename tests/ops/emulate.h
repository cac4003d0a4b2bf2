// A GPU of one multiprocessor on the host: runs the kernels of the .cu files, built as C++, block
// by block, each thread of a block as a fiber that runs until it meets a barrier or a shuffle. So
// their logic is tested where there is no GPU; speed and the compiler are not. emulate_order.h says
// who runs first. Shared memory holds NaNs when a block begins.
#ifndef KNET_EMULATE_H
#define KNET_EMULATE_H

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <type_traits>

#include "emulate_order.h"
extern "C" {
#include "host/pointwise/special.h"
}

// Functions of CUDA that the C library lacks. Of πx: from the remainder of x by 2.
inline double sinpi(double x) {
    double r = std::remainder(x, 2);
    if (std::fabs(r) > 0.5) r = std::copysign(1 - std::fabs(r), r);
    double angle = M_PI * (std::fabs(r) <= 0.25 ? r : 0.5 - std::fabs(r));
    return std::fabs(r) <= 0.25 ? std::sin(angle) : std::copysign(std::cos(angle), r);
}
inline double cospi(double x) { return sinpi(0.5 - std::fabs(std::remainder(x, 2))); }
inline float sinpif(float x) { return (float)sinpi(x); }
inline float cospif(float x) { return (float)cospi(x); }
#define KN_LACKING(name)                                                                           \
    inline float name##f(float x) { return (float)kn__##name(x); }                                 \
    inline double name(double x) { return kn__##name(x); }
KN_LACKING(erfinv)
KN_LACKING(erfcinv)
KN_LACKING(erfcx)
#undef KN_LACKING

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#undef __device__
#undef __global__
#undef __shared__
#undef __noinline__
#undef __launch_bounds__
#undef __grid_constant__
#define __device__
#define __global__
#define __noinline__
#define __shared__ shared_memory_is_declared_by_KN_SHARED
#define __launch_bounds__(...)
#define __grid_constant__

#define KN_LAUNCH(kernel, blocks, threads, stream, ...)                                            \
    emulate::launch((blocks), (threads), [&] { kernel(__VA_ARGS__); })
#define KN_SHARED(name, ...) auto &name = emulate::shared<__VA_ARGS__>([] {})
#define KN_BLOCKS_MAX kn_emulate_order.blocks_max
#define KN_INDEX_MAX kn_emulate_order.index_max
#define cudaGetLastError() cudaSuccess

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

namespace emulate {

// Stacks of an odd number of cache lines: those of a power of two would evict each other.
enum { THREADS_MAX = 1024, STACK_BYTES = (64 << 10) + 64, STACK_LEFT = 4 << 10, POISON = 0xFF };

struct barrier {
    int waiting, alive;
    unsigned round;
};
struct fiber {
    void *stack_pointer, *fake_stack;  // the latter is AddressSanitizer's
    bool done;
    uint3 index;
    const barrier *at;  // where it waits, and since which round
    unsigned round;
};

// Saves the stack pointer of the running fiber and switches to another. See emulate.c.
extern "C" void kn_emulate_switch(void **save, void *load);

inline char *stacks;
inline fiber fibers[THREADS_MAX];
inline void *main_stack;
inline int current, n_threads;
inline const std::function<void()> *body;
inline barrier block_barrier, warp_barrier[THREADS_MAX / 32];
inline char lane_value[THREADS_MAX][16];
inline uint64_t block_count;  // blocks that have begun

[[noreturn]] inline void fail(const char *why) {
    fprintf(stderr, "emulated kernel, block %u: %s\n", blockIdx.x, why);
    abort();
}

// --- switching stacks, told to AddressSanitizer ---

#ifdef __SANITIZE_ADDRESS__
inline void *main_fake_stack;
inline const void *main_bottom;
inline size_t main_bytes;
inline void enter_main(bool for_good) {
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fibers[current].fake_stack, main_bottom,
                                   main_bytes);
}
inline void entered_fiber() {
    __sanitizer_finish_switch_fiber(fibers[current].fake_stack, &main_bottom, &main_bytes);
}
inline void enter_fiber(int t) {
    __sanitizer_start_switch_fiber(&main_fake_stack, stacks + (size_t)t * STACK_BYTES, STACK_BYTES);
}
inline void entered_main() { __sanitizer_finish_switch_fiber(main_fake_stack, nullptr, nullptr); }
// run_thread and its last call never return, so their frames stay poisoned: clears them.
inline void forget_stack(int t) {
    __asan_unpoison_memory_region(stacks + (size_t)(t + 1) * STACK_BYTES - STACK_LEFT, STACK_LEFT);
}
#else
inline void enter_main(bool) {}
inline void entered_fiber() {}
inline void enter_fiber(int) {}
inline void entered_main() {}
inline void forget_stack(int) {}
#endif

inline void yield() {
    enter_main(fibers[current].done);
    kn_emulate_switch(&fibers[current].stack_pointer, main_stack);
    entered_fiber();
}

inline void resume(int t) {
    current = t;
    threadIdx = fibers[t].index;
    enter_fiber(t);
    kn_emulate_switch(&main_stack, fibers[t].stack_pointer);
    entered_main();
}

// --- barriers ---

inline void release(barrier &b) {
    b.waiting = 0;
    b.round++;
}
inline void arrive(barrier &b) {
    unsigned round = b.round;
    if (++b.waiting >= b.alive) return release(b);
    fibers[current].at = &b;
    fibers[current].round = round;
    while (b.round == round) yield();
}
inline void leave(barrier &b) {
    b.alive--;
    if (b.waiting && b.waiting >= b.alive) release(b);
}
inline bool can_run(const fiber &f) { return !f.done && (!f.at || f.at->round != f.round); }

// --- threads ---

inline void run_thread() {
    entered_fiber();
    (*body)();
    fibers[current].done = true;
    leave(block_barrier);
    leave(warp_barrier[current / 32]);
    yield();
    fail("a thread that had ended ran on");
}

// A stack on which the first switch "returns" into run_thread.
inline void prepare(int t) {
    forget_stack(t);
    void **top = (void **)(stacks + (size_t)(t + 1) * STACK_BYTES - 64);
    *--top = nullptr;
    *--top = (void *)run_thread;
    for (int saved = 0; saved < 6; saved++) *--top = nullptr;
    unsigned x = blockDim.x, y = blockDim.y, i = (unsigned)t;
    fibers[t] = {top, nullptr, false, {i % x, i / x % y, i / (x * y)}, nullptr, 0};
}

// Runs each thread of a warp that isn't waiting once; returns whether there was one.
inline bool run_warp(int first) {
    bool ran = false;
    int n = n_threads - first < 32 ? n_threads - first : 32;
    for (int i = 0; i < n; i++) {
        int t = first + (kn_emulate_order.threads_reversed ? n - 1 - i : i);
        if (!can_run(fibers[t])) continue;
        resume(t);
        ran = true;
    }
    return ran;
}

inline bool run_warps() {
    bool ran = false;
    int n_warps = (n_threads + 31) / 32;
    for (int i = 0; i < n_warps; i++) {
        int w = kn_emulate_order.threads_reversed ? n_warps - 1 - i : i;
        while (run_warp(w * 32)) {
            ran = true;
            if (!kn_emulate_order.warp_ahead) break;
        }
    }
    return ran;
}

inline void run_block() {
    block_count++;
    memset(lane_value, POISON, (size_t)n_threads * sizeof *lane_value);
    block_barrier = {0, n_threads, 0};
    for (int w = 0; w * 32 < n_threads; w++) {
        int rest = n_threads - w * 32;
        warp_barrier[w] = {0, rest < 32 ? rest : 32, 0};
    }
    for (int t = 0; t < n_threads; t++) prepare(t);
    while (run_warps()) continue;
    for (int t = 0; t < n_threads; t++)
        if (!fibers[t].done) fail("a barrier that not all threads reach");
}

inline void launch(dim3 blocks, dim3 threads, const std::function<void()> &kernel) {
    if (!stacks) stacks = (char *)aligned_alloc(64, (size_t)STACK_BYTES * THREADS_MAX);
    if (!stacks) fail("no memory for stacks");
    body = &kernel;
    gridDim = blocks, blockDim = threads;
    n_threads = (int)(threads.x * threads.y * threads.z);
    for (unsigned b = 0; b < blocks.x; b++) {
        blockIdx = {kn_emulate_order.blocks_reversed ? blocks.x - 1 - b : b, 0, 0};
        run_block();
    }
}

// --- what kernels call ---

// The variable of one declaration: each has a closure type of its own.
template <class T, class Declaration>
T &shared(Declaration) {
    static typename std::aligned_storage<sizeof(T), alignof(T)>::type bytes;
    static uint64_t block;
    if (block != block_count) memset(&bytes, POISON, sizeof bytes), block = block_count;
    return *reinterpret_cast<T *>(&bytes);
}

inline void arrive_whole_warp() {
    barrier &warp = warp_barrier[current / 32];
    int rest = n_threads - current / 32 * 32;
    if (warp.alive != (rest < 32 ? rest : 32)) fail("a warp without the threads that have ended");
    arrive(warp);
}

template <class T>
T shuffle(T x, int from) {
    static_assert(sizeof x <= sizeof *lane_value, "");
    memcpy(lane_value[current], &x, sizeof x);
    arrive_whole_warp();
    memcpy(&x, lane_value[from], sizeof x);
    arrive_whole_warp();
    return x;
}
template <class T>
T shuffle_xor(T x, int distance) {
    return shuffle(x, current ^ distance);
}
template <class T>
T shuffle_up(T x, int distance) {
    return shuffle(x, current % 32 < distance ? current : current - distance);
}

inline unsigned ballot(bool p) {
    unsigned lanes = 0;
    memcpy(lane_value[current], &p, sizeof p);
    arrive_whole_warp();
    for (int i = 0; i < 32; i++)
        lanes |= (unsigned)(lane_value[current / 32 * 32 + i][0] == 1) << i;
    arrive_whole_warp();
    return lanes;
}

inline bool any(bool p) {
    bool all = false;
    memcpy(lane_value[current], &p, sizeof p);
    arrive_whole_warp();
    for (int i = 0; i < 32; i++) all |= lane_value[current / 32 * 32 + i][0] == 1;
    arrive_whole_warp();
    return all;
}

}  // namespace emulate

#define __syncthreads() emulate::arrive(emulate::block_barrier)
#define __syncwarp() emulate::arrive_whole_warp()
#define __shfl_sync(mask, x, lane) emulate::shuffle((x), emulate::current / 32 * 32 + (lane))
#define __shfl_xor_sync(mask, x, distance) emulate::shuffle_xor((x), (distance))
#define __shfl_up_sync(mask, x, distance) emulate::shuffle_up((x), (distance))
#define __ballot_sync(mask, p) emulate::ballot((p) != 0)
#define __popc(x) __builtin_popcount(x)
#define __any_sync(mask, p) emulate::any(p)
#define __threadfence() ((void)0)

template <class T>
T atomicAdd(T *p, T v) {
    T old = *p;
    *p += v;
    return old;
}
template <class T>
T atomicMax(T *p, T v) {
    T old = *p;
    if (v > old) *p = v;
    return old;
}
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
