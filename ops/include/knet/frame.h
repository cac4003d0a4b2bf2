/* Frames: who owns tensors, and where those made from nothing go.
 *
 * A frame carries device, pool, stream, dtype, recording and threads; what its options leave zero
 * it inherits from the frame around it. The outermost frame's defaults: the host, the device's
 * pool, f32. Ending a frame ends every frame and tape opened inside it; ending twice is nothing.
 * The timer's scopes are not its business: their own blocks close them, or a scope around them. An
 * error that nobody took when the thread's outermost frame ends goes to the log callback and is
 * cleared, so it can't poison the next request.
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

typedef struct kn_frame_options {
    kn_device *device;
    kn_stream stream;     /* NULL: the thread's own stream of the device */
    kn_pool *pool;        /* must be a pool of the device */
    kn_dtype dtype;       /* of tensors made from nothing: KN_F32 or KN_F64 */
    int record;           /* KN_OFF: don't record, though a tape is open; 0: inherit */
    int threads;          /* of host kernels; results don't depend on it; 0: inherit. Outermost:
                           * OMP_NUM_THREADS, else what affinity and control group allow */
    uint64_t reserved[4]; /* zero */
} kn_frame_options;

/* A frame that can't be opened returns {0, 0} with its error pending; ending it is nothing. */
KN_API kn_frame kn_frame_begin(const kn_frame_options *options);
KN_API void kn_frame_end(kn_frame *frame);

/* Of the innermost frame; the defaults when none is open. */
KN_API kn_stream kn_frame_stream(void);
KN_API kn_device *kn_frame_device(void);
KN_API kn_pool *kn_frame_pool(void);
KN_API kn_dtype kn_frame_dtype(void);
KN_API int kn_frame_threads(void);

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
