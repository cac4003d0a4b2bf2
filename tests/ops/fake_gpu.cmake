# fake_gpu_library(<target> <folder>): the fake driver with the fake runtime, cublasLt and cuDNN above it, in one library
# by the driver's name. Linked, it comes before the real ones, also for the module of CUDA kernels, which is loaded late.
function(fake_gpu_library target folder)
  set(tests ${PROJECT_SOURCE_DIR}/tests)
  add_library(${target} SHARED ${tests}/ops/fake_gpu.c ${tests}/ops/fake_chains.c ${tests}/ops/fake_graph.c ${tests}/ops/fake_product.c ${tests}/alloc/fake_cuda.c ${tests}/alloc/fake_cuda_memory.c
              ${tests}/alloc/fake_cuda_streams.c)
  target_include_directories(${target} PUBLIC ${tests}/ops ${tests}/alloc ${PROJECT_SOURCE_DIR}/alloc
                                              ${PROJECT_SOURCE_DIR}/alloc/include)
  target_include_directories(${target} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${CUDNN_INCLUDE_DIR})
  target_link_libraries(${target} PRIVATE knet_options CUDA::cublasLt Threads::Threads)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME cuda SOVERSION 1
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${folder})
endfunction()
