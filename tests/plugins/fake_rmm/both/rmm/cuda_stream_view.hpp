#pragma once

using cudaStream_t = struct CUstream_st *;

namespace rmm {

class cuda_stream_view {
  public:
    cuda_stream_view(cudaStream_t stream = nullptr) : stream_(stream) {}
    cudaStream_t value() const noexcept { return stream_; }

  private:
    cudaStream_t stream_;
};

} /* namespace rmm */
