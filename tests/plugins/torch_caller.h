/* Calls libknet_torch.so as PyTorch's CUDAPluggableAllocator does: loads it by path, looks its
 * functions up by name, keeps a table pointer → (size, device, stream) behind a mutex, and hands
 * over filters as std::function by value. */
#ifndef KNET_TORCH_CALLER_H
#define KNET_TORCH_CALLER_H

#include <knet/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum torch_outcome {
    TORCH_OK,
    TORCH_BAD_ALLOC, /* std::bad_alloc, or c10::OutOfMemoryError */
    TORCH_ERROR,     /* another std::exception */
    TORCH_NULL       /* NULL and no exception */
} torch_outcome;

/* Loads the library; aborts the test if a function is missing. */
void torch_load(const char *path);
/* The text of the last exception. */
const char *torch_what(void);

torch_outcome torch_alloc(void **out, size_t size, int device, kn_stream stream);
/* Returns false for a pointer that the table doesn't have. */
bool torch_free(void *ptr);
torch_outcome torch_reset(void);
torch_outcome torch_fraction(double fraction, int device);
void *torch_base(void *ptr, size_t *size);
torch_outcome torch_record_stream(void *ptr, kn_stream stream);
typedef bool (*torch_filter_fn)(void *ctx, kn_stream stream);
torch_outcome torch_begin(int device, uint64_t a, uint64_t b, torch_filter_fn fn, void *ctx);
void torch_end(int device, uint64_t a, uint64_t b);
void torch_release(int device, uint64_t a, uint64_t b);
void torch_init(int n_devices);
kn_pool *torch_pool(int device);

#ifdef __cplusplus
}
#endif
#endif
