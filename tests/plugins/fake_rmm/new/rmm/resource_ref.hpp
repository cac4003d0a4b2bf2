#pragma once
#include <rmm/cuda_stream_view.hpp>

#include <cstddef>

namespace cuda {

class stream_ref {
  public:
    stream_ref(cudaStream_t stream) : stream_(stream) {}
    cudaStream_t get() const noexcept { return stream_; }

  private:
    cudaStream_t stream_;
};

namespace mr {
struct device_accessible {};
} /* namespace mr */

} /* namespace cuda */
