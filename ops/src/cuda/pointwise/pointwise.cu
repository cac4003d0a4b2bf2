// Pointwise ops: the rows of ops.def and its comparisons.

#include "cuda/pointwise/pointwise.cuh"

using namespace kn_dev;

extern "C" {

cudaError_t kn__launch_row(const kn__row_args *r, cudaStream_t stream) {
    switch (r->row) {
#define CASE(name)                                                                                 \
    case KN__ROW_##name:                                                                           \
        return launch_row<row_##name, 0>(r, stream);
#define KN_ROW1(name, ...) CASE(name)
#define KN_ROW2(name, ...) CASE(name)
#define KN_ROW3(name, ...) CASE(name)
#define KN_COMPARE(name, ...) CASE(name)
#define KN_COMPARE1(name, ...) CASE(name)
#include <knet/ops.def>
        case KN__ROW_COUNT:
            break;
    }
    return cudaErrorInvalidValue;
}

}  // extern "C"
