// The gradients of ops.def's rows, and what their second derivatives add to them.

#include "cuda/pointwise/pointwise.cuh"

using namespace kn_dev;

extern "C" {

cudaError_t kn__launch_row_back(const kn__row_args *r, cudaStream_t stream) {
    switch (r->row) {
#define CASE(name)                                                                                 \
    case KN__ROW_##name:                                                                           \
        return r->order == 1 ? launch_row<row_##name, 1>(r, stream)                                \
                             : launch_row<row_##name, 2>(r, stream);
#define KN_ROW1(name, ...) CASE(name)
#define KN_ROW2(name, ...) CASE(name)
#define KN_ROW3(name, ...) CASE(name)
#include <knet/ops.def>
        default:
            return cudaErrorInvalidValue;
    }
}

}  // extern "C"
