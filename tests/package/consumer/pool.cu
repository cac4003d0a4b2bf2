/* <knet/pool.hpp> in CUDA C++: typed blocks for kernels, pinned memory for copies. */
#include <knet/pool.hpp>

#include <vector>

__global__ void twice(float *x, std::size_t n) {
    std::size_t i = blockIdx.x * std::size_t(blockDim.x) + threadIdx.x;
    if (i < n) x[i] *= 2;
}

int main() {
    const std::size_t n = 1 << 20;
    knet::pool_ref pool = knet::pool_ref::of("cuda:0");
    knet::pinned_resource pinned("cuda:0");
    knet::stream stream(pool.device()), copies(pool.device());
    std::pmr::vector<float> host(n, 1.0f, &pinned);
    knet::block<float> x = knet::alloc<float>(pool, n, stream);
    cudaStream_t s = stream; /* the types are the same */
    cudaMemcpyAsync(x.data(), host.data(), x.size_bytes(), cudaMemcpyHostToDevice, s);
    pinned.use(host.data(), stream);
    twice<<<unsigned(n / 256), 256, 0, stream>>>(x.data(), x.size());
    x.use(copies);
    stream.sync();
    return 0;
}
