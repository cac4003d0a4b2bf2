/* Benchmarks of ops beside PyTorch's. A case is one line in a file of bench/arrays or bench/nn and
 * one line in bench/peer/arrays.py or bench/peer/nn.py, under one name:
 *
 *     CASE(ops20, relu, kn_relu(x[0]), .in = {N(32, 256, 14, 14)}, .both = true)
 *         "relu": F.relu,
 *
 * It makes the figures ops20/relu_fwd and, with .both, ops20/relu_both: forward, sum, and the
 * gradients of every real input but constants. The families "arrays" and "nn" have names without
 * _fwd. Inputs are made here; PyTorch gets tensors of the same shapes and dtypes. The files are
 * families of ops.
 *
 * A value is the least time of one call over interleaved rounds, in µs; the baseline is PyTorch's.
 * On a GPU the families are gpu_ops20, gpu_arrays and gpu_nn.
 */
#ifndef KNET_BENCH_CASES_H
#define KNET_BENCH_CASES_H

#include <knet/ops.h>

enum { CASES_IN_MAX = 4 };

/* An input: normal (0, 1), uniform in [lo, hi), integers lo … hi-1, or bool (hi is 2). Without a
 * gradient: uniform ('c'), and whole numbers lo … hi-1 as floats ('w'). */
typedef struct bench_input {
    char kind; /* 'n', 'u', 'i', 'b', 'c', 'w'; 0: none */
    kn_dtype dtype;
    double lo, hi;
    kn_shape shape;
} bench_input;

#define CASES_SHAPE_(...)                                                                          \
    { {__VA_ARGS__}, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)) }
#define N(...)                                                                                     \
    { 'n', KN_F32, 0, 1, CASES_SHAPE_(__VA_ARGS__) }
#define U(lo_, hi_, ...)                                                                           \
    { 'u', KN_F32, lo_, hi_, CASES_SHAPE_(__VA_ARGS__) }
#define C(lo_, hi_, ...)                                                                           \
    { 'c', KN_F32, lo_, hi_, CASES_SHAPE_(__VA_ARGS__) }
#define W(lo_, hi_, ...)                                                                           \
    { 'w', KN_F32, lo_, hi_, CASES_SHAPE_(__VA_ARGS__) }
#define I(lo_, hi_, ...)                                                                           \
    { 'i', KN_I64, lo_, hi_, CASES_SHAPE_(__VA_ARGS__) }
#define B(...)                                                                                     \
    { 'b', KN_BOOL, 0, 2, CASES_SHAPE_(__VA_ARGS__) }
#define N64(...)                                                                                   \
    { 'n', KN_F64, 0, 1, CASES_SHAPE_(__VA_ARGS__) }

typedef struct bench_case {
    const char *family, *name;
    kn_tensor *(*run)(kn_tensor *const x[]);
    bench_input in[CASES_IN_MAX];
    bool both; /* also with gradients */
    /* not 0: the bytes that a call reads and writes; one more figure, <name>_bandwidth, in GB/s
     * beside a copy's of as many bytes */
    double moved_bytes;
    kn_status (*setup)(void); /* what x can't hold, in statics of the family's file; or NULL */
    void (*teardown)(void);
} bench_case;

/* Cases find their way into a list of pointers by the linker. */
#define CASE(family_, name_, expression, ...)                                                      \
    static kn_tensor *run_##family_##_##name_(kn_tensor *const x[]) {                              \
        (void)x;                                                                                   \
        return expression;                                                                         \
    }                                                                                              \
    static const bench_case case_##family_##_##name_ = {                                           \
        .family = #family_, .name = #name_, .run = run_##family_##_##name_, __VA_ARGS__};          \
    static const bench_case *const at_##family_##_##name_                                          \
        __attribute__((section("bench_cases"), used)) = &case_##family_##_##name_;

/* A generator for cases with random numbers; valid during a case. */
kn_rng *cases_rng(void);

/* Least ns of one call over samples that take budget_ns together; 0: it failed. */
double cases_forward(const bench_case *c, kn_tensor *const x[], double budget_ns);
double cases_both(const bench_case *c, kn_tensor *const x[], double budget_ns);

/* Whether the frame's device is a GPU. Calls are then timed together with the wait for the last
 * one.
 */
bool cases_on_device(void);

/* Any work, measured in the same way. */
typedef bool (*cases_fn)(const void *ctx, long n);
double cases_least(cases_fn fn, const void *ctx, double budget_ns);

/* Least ns of a copy of `bytes`, read and written bytes together, by the frame's number
 * of threads, which don't wait for each other; 0: no memory. */
double cases_copy(double bytes, double budget_ns);

/* The program: measures every case that is linked in, then calls `more` (NULL: none) for figures
 * beside another library than PyTorch. script: PyTorch's side. */
typedef void (*cases_more_fn)(int n_rounds, double budget_ns, const char *only);
int cases_main(int argc, char **argv, const char *script, cases_more_fn more);

#endif
