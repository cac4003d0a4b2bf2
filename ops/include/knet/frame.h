/* Frames own tensors, and set the device, dtype and threads of new ones.
 *
 * A frame has a device, pool, stream, dtype, recording, threads, math mode, autocast, and whether
 * it fuses, recomputes and keeps layouts. It inherits those that its options leave zero from the
 * frame around it. Defaults of the outermost frame: the host, the device's pool, f32, the process's
 * math mode. The end of a frame ends every frame and tape opened inside it, but no scope of the
 * timer; ending it twice is allowed. If an error is still pending when the thread's outermost frame
 * ends, the frame logs and clears it, so that the next request starts without it.
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

/* A handle of a frame. */
typedef struct kn_frame {
    uint32_t depth, serial; /* not for users */
} kn_frame;

/* How precisely CUDA multiplies f32 matrices and convolves f32 images; sums are f32 in each mode. A
 * mode permits lower precision: where the GPU has no tensor cores for it (TF32 and bf16 need
 * compute capability 8.0), or the library has no faster kernel, products stay strict. f64, all
 * other ops and the host are always strict. In the timer's table, library calls that ran with less
 * precision end in " (tf32)" or " (bf16)".
 *
 * In any mode the host makes some convolutions by Winograd's transforms: those with windows of 2×2
 * and 3×3, and of 3 to 6 elements a side that move by 2. They read tiles of 5×5 or 6×6 elements of
 * x, that move by 2 up to 12×12: rounding errors are those of the tile's largest element, and one
 * that is infinite or NaN reaches all results of the tile, even if no window reads it. So may
 * finite ones near FLT_MAX, which the transforms multiply by up to 7 (gradients of y, for those of
 * w, by 12) before they sum them. KNET_CONV_ROUTE=onednn in the environment makes none so.
 *
 * STRICT is the default, as in cuBLAS and in PyTorch's set_float32_matmul_precision("highest").
 * TF32 rounds factors to 10 bits of mantissa ("high", allow_tf32), a relative error of 2^-11 each.
 * BF16 may round factors of products to 7 bits ("medium"), 2^-8 each; convolutions take TF32.
 */
typedef enum kn_math_mode { KN_MATH_STRICT = 1, KN_MATH_TF32, KN_MATH_BF16 } kn_math_mode;

/* Mixed precision (Micikevicius et al. 2018): in frames with .autocast, kn_linear, kn_matmul, what
 * is made of it (kn_mv, kn_einsum, kn_tensordot, not <knet/linalg.h>'s others) and convolutions
 * cast f32 inputs to the 16-bit dtype, so that their results and what follows by pointwise ops,
 * norms, pooling and movement take 16 bits. Sums over axes, and ops that take f32 alone (softmax,
 * losses, recurrent layers, attention, dropout), cast 16-bit inputs to f32; so do ops of inputs of
 * both. In other frames those that take f32 alone round their results back. Norms compute in f32.
 * Parameters stay f32, and the gradient of a cast casts back: kn_backward adds it to them in f32.
 * Backward computes in the dtypes of forward. With KN_F16 small gradients become zero without
 * kn_loss_scale_apply; KN_BF16 has the range of f32. On CUDA the products run on tensor cores. The
 * host convolves and multiplies bf16 by oneDNN where the processor has AVX512_BF16, up to twice as
 * fast as f32; everything else it computes in f32, with casts around it, and f16 is slower there
 * than f32. Sums are f32 everywhere, and rounded once. f64 inputs are left alone. */

/* Options of kn_frame_begin and kn_tape_begin; zero means the frame around it. */
typedef struct kn_frame_options {
    kn_device *device; /* of new tensors */
    kn_stream stream;  /* NULL: the thread's own stream of the device */
    kn_pool *pool;     /* must be a pool of the device */
    kn_dtype dtype;    /* of new tensors such as kn_zeros: KN_F32 or KN_F64 */
    int record;        /* KN_OFF: don't record, though a tape is open; 0: inherit */
    /* of host kernels; results don't depend on it; 0: inherit. Outermost: OMP_NUM_THREADS, else as
     * affinity and control group allow */
    int threads;
    int math; /* kn_math_mode; 0: inherit */
    /* 1: compute chains of pointwise ops together, when a result is first read (host and CUDA);
     * KN_OFF: not; 0: inherit. Outermost: KNET_FUSE=1; KNET_FUSE=0 forbids it */
    int fuse;
    int autocast; /* KN_F16 or KN_BF16: mixed precision, as above; KN_OFF: not; 0: inherit */
    /* 1: while nothing is recorded, results of f32 (and, where oneDNN has it, bf16) convolutions on
     * the host stay in blocks of channels, as oneDNN likes them, through pools, pointwise ops and
     * batchnorm with given statistics, until another op or kn_data reads them; 2, for weights that
     * rarely change: the same, and what convolutions make of them is kept with them (unless DLPack
     * shares them) until they change or end: four to eight times their size, of each stride, and as
     * much again where another batch takes another route; relu may then
     * run inside oneDNN's convolution, which makes 0 of NaN; KN_OFF: not, as in captured steps; 0:
     * inherit. Layers in evaluation have 1, frozen ones 2. The rule of threads is that of .fuse:
     * read a result on the thread that made it, or hold it there */
    int layout;
    /* 1: what backward needs of cheap ops' results (pointwise ops, casts, norms, dropout) is
     * computed again there, where its inputs are kept anyway: the same bits, less memory, a little
     * more time. A result goes when its frame ends and nothing but the tape refers to it; KN_OFF:
     * not; 0: inherit. Outermost: KNET_RECOMPUTE=1; KNET_RECOMPUTE=0 forbids it */
    int recompute;
    uint64_t reserved[2]; /* zero */
} kn_frame_options;

/* Waits until the GPU kernels that frames with .fuse asked for are compiled, so that later steps
 * launch them: before a measurement or a capture. Returns at once if there are no such frames. */
KN_API void kn_fuse_wait(void);

/* Opens a frame. Options may be NULL. On failure returns {0, 0}, which may be ended too, and leaves
 * the error pending. */
KN_API kn_frame kn_frame_begin(const kn_frame_options *options);
/* Frees the frame's tensors, and ends every frame and tape opened inside it. */
KN_API void kn_frame_end(kn_frame *frame);

/* The settings of the innermost frame; the defaults if no frame is open. */
KN_API kn_stream kn_frame_stream(void);
KN_API kn_device *kn_frame_device(void);
KN_API kn_pool *kn_frame_pool(void);
KN_API kn_dtype kn_frame_dtype(void);
KN_API int kn_frame_threads(void);
KN_API kn_math_mode kn_frame_math(void);
KN_API kn_dtype kn_frame_autocast(void); /* KN_F16 or KN_BF16; 0: off */
KN_API bool kn_frame_recording(void);    /* false under .record = KN_OFF and without a tape */

/* The process's math mode: the default of outermost frames that are opened from now on. Any thread.
 * Errors: INVALID for an unknown mode. */
KN_API KN_MUST_CHECK kn_status kn_math_mode_set(kn_math_mode mode);
KN_API kn_math_mode kn_math_mode_get(void);
KN_API const char *kn_math_mode_name(kn_math_mode mode); /* "strict", "tf32", "bf16" */

/* A frame until the end of the block: KN_FRAME(); or KN_FRAME(.device = d); C++ before C++20
 * takes a variable: KN_FRAME(options). */
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

#include <knet/sites/frame.h>

#ifdef __cplusplus
}
#endif
#endif
