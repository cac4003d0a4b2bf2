/* Frames: who owns tensors, and where those made from nothing go.
 *
 * A frame carries device, pool, stream, dtype, recording, threads and math mode; what its options
 * leave zero it inherits from the frame around it. The outermost frame's defaults: the host, the
 * device's pool, f32, the process's math mode. Ending a frame ends every frame and tape opened
 * inside it; ending it twice is allowed. It ends no scope of the timer: scopes end with their own
 * blocks, or with a scope around them. An error that is still pending when the thread's outermost
 * frame ends goes to the log callback and is cleared, so that the next request starts without it.
 *
 *     KN_FRAME(.device = gpu);
 *     kn_tensor *noise = kn_normal(KN_SHAPE(64, 100), 0, 1, rng);   // on gpu
 *
 * Threads: a frame belongs to its thread.
 */
#ifndef KNET_FRAME_H
#define KNET_FRAME_H

#include <knet/prof.h>
#include <knet/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kn_frame {
    uint32_t depth, serial;
} kn_frame;

/* How precisely CUDA multiplies f32 matrices and convolves f32 images; sums are f32 in each mode. A
 * mode allows lower precision and doesn't ask for it: where a GPU has no tensor cores for it (TF32
 * and bf16 came with compute capability 8.0; a T4 has neither), or a library no faster way,
 * products are strict. f64 and every other op are strict always, and on the host a mode changes
 * nothing. The timer's rows of library calls that ran with less precision end in " (tf32)" or "
 * (bf16)".
 *
 * STRICT is the default, as in cuBLAS and in PyTorch's set_float32_matmul_precision("highest").
 * TF32 rounds factors to 10 bits of mantissa ("high", allow_tf32), a relative error of 2^-11 each.
 * BF16 may round the factors of products to 7 bits ("medium"), 2^-8 each; convolutions take TF32.
 */
typedef enum kn_math_mode { KN_MATH_STRICT = 1, KN_MATH_TF32, KN_MATH_BF16 } kn_math_mode;

typedef struct kn_frame_options {
    kn_device *device;
    kn_stream stream;     /* NULL: the thread's own stream of the device */
    kn_pool *pool;        /* must be a pool of the device */
    kn_dtype dtype;       /* of tensors made from nothing: KN_F32 or KN_F64 */
    int record;           /* KN_OFF: don't record, though a tape is open; 0: inherit */
    int threads;          /* of host kernels; results don't depend on it; 0: inherit. Outermost:
                           * OMP_NUM_THREADS, else what affinity and control group allow */
    int math;             /* kn_math_mode; 0: inherit */
    uint64_t reserved[4]; /* zero */
} kn_frame_options;

/* Opens a frame. On failure returns {0, 0}, which may be ended too, and leaves the error pending.
 */
KN_API kn_frame kn_frame_begin(const kn_frame_options *options);
KN_API void kn_frame_end(kn_frame *frame);

/* Of the innermost frame; the defaults when none is open. */
KN_API kn_stream kn_frame_stream(void);
KN_API kn_device *kn_frame_device(void);
KN_API kn_pool *kn_frame_pool(void);
KN_API kn_dtype kn_frame_dtype(void);
KN_API int kn_frame_threads(void);
KN_API kn_math_mode kn_frame_math(void);

/* The process's math mode, which outermost frames opened from now on begin with. Any thread.
 * Errors: INVALID for a mode that there isn't. */
KN_API KN_MUST_CHECK kn_status kn_math_mode_set(kn_math_mode mode);
KN_API kn_math_mode kn_math_mode_get(void);
KN_API const char *kn_math_mode_name(kn_math_mode mode); /* "strict", "tf32", "bf16" */

/* A frame until the end of the block: KN_FRAME(); or KN_FRAME(.device = d); with options in C, and
 * in C++ from C++20 on. */
#define KN_FRAME(...) KN_AT_EXIT(kn_frame_end, kn_frame) = KN_FRAME_BY_(kn_frame_begin, __VA_ARGS__)

#ifdef __cplusplus
#define KN_FRAME_BY_(begin, ...)                                                                   \
    [&] {                                                                                          \
        _Pragma("GCC diagnostic push")                                                             \
            _Pragma("GCC diagnostic ignored \"-Wmissing-field-initializers\"")                     \
                kn_frame_options kn_options_{__VA_ARGS__};                                         \
        _Pragma("GCC diagnostic pop") return begin(&kn_options_);                                  \
    }()
#else
#define KN_FRAME_BY_(begin, ...) begin(&(kn_frame_options){.reserved = {0}, __VA_ARGS__})
#endif

#ifdef __cplusplus
}
#endif
#endif
