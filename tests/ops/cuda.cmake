# The module of CUDA kernels: what can be tested with no GPU, and parity of the devices.

knet_test(ops.module SOURCES test_module.c ${PROJECT_SOURCE_DIR}/ops/src/module.c
          LINK KnetC::ops knet_base Threads::Threads ${CMAKE_DL_LIBS})
target_include_directories(test_ops_module PRIVATE ${PROJECT_SOURCE_DIR}/ops/src)
target_compile_definitions(test_ops_module PRIVATE MODULE_FILE="libknet_ops_missing.so")

if(KNET_HAVE_CUDA)
  knet_test(ops.cuda_module SOURCES test_cuda_module.c LINK KnetC::ops ${CMAKE_DL_LIBS}
            ARGS $<TARGET_FILE:knet_ops_cuda>)
  target_include_directories(test_ops_cuda_module PRIVATE ${PROJECT_SOURCE_DIR}/ops/src)
  add_dependencies(test_ops_cuda_module knet_ops_cuda)

  # The module on a fake GPU that counts what is enqueued.
  include(${CMAKE_CURRENT_SOURCE_DIR}/fake_gpu.cmake)
  fake_gpu_library(fake_gpu tests/fake_gpu)
  knet_test(ops.cuda_calls SOURCES test_cuda_calls.c LINK KnetC::ops fake_gpu)
  target_include_directories(test_ops_cuda_calls SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${CUDNN_INCLUDE_DIR})
  add_dependencies(test_ops_cuda_calls knet_ops_cuda)

  knet_test(ops.cuda_fuse SOURCES test_cuda_fuse.c LINK KnetC::ops fake_gpu Threads::Threads ${CMAKE_DL_LIBS}
            ENV KNET_TIMER=1,out=/dev/null)
  target_compile_definitions(test_ops_cuda_fuse PRIVATE NVRTC_MAJOR="${CUDAToolkit_VERSION_MAJOR}")
  add_dependencies(test_ops_cuda_fuse knet_ops_cuda)

  # One test a kind of GPU, on the plan code alone.
  foreach(gpu h200 a100 t4 b200)
    set(precision tf32)
    if(gpu STREQUAL t4)
      set(precision strict)
    endif()
    add_test(NAME ops.cuda_plans_${gpu} COMMAND test_cuda_plans
             ${PROJECT_SOURCE_DIR}/tests/data/cudnn_device_${gpu}.json ${precision})
    set_tests_properties(ops.cuda_plans_${gpu} PROPERTIES LABELS unit TIMEOUT 300)
  endforeach()
  add_test(NAME ops.cuda_plans_gpu COMMAND test_cuda_plans gpu)
  set_tests_properties(ops.cuda_plans_gpu PROPERTIES LABELS gpu TIMEOUT 120 SKIP_RETURN_CODE 77)
  add_executable(test_cuda_plans test_cuda_plans.c ${PROJECT_SOURCE_DIR}/ops/src/cuda/conv/conv_plan.c
                 ${PROJECT_SOURCE_DIR}/ops/src/cuda/base/context.c)
  target_link_libraries(test_cuda_plans PRIVATE knet_options knet_test_support KnetC::ops knet_base
                        CUDA::cudart CUDA::cublasLt ${CUDNN_LIBRARY} Threads::Threads)
  target_include_directories(test_cuda_plans PRIVATE ${PROJECT_SOURCE_DIR}/ops/src)
  target_include_directories(test_cuda_plans SYSTEM PRIVATE ${CUDNN_INCLUDE_DIR})
  set_target_properties(test_cuda_plans PROPERTIES
                        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
endif()

# What ptxas made of the kernels. Their images are uncompressed in builds with checks alone.
if(KNET_HAVE_CUDA AND KNET_CHECKED)
  add_library(wrong_kernels OBJECT wrong_kernels.cu)
  target_compile_options(wrong_kernels PRIVATE --no-compress)
  knet_test(ops.cuda_sass SOURCES test_cuda_sass.c
            ARGS $<TARGET_FILE:knet_ops_cuda> $<TARGET_OBJECTS:wrong_kernels>)
  add_dependencies(test_ops_cuda_sass knet_ops_cuda wrong_kernels)
endif()

# The table of parity: a file a family.
set(parity_table parity.c parity_cases.c
    parity_rows.c parity_reduce.c parity_move.c
    parity_linalg.c
    parity_norm.c parity_sequence.c parity_image.c
    parity_optim.c)

# Parity: one table, host against cuda:0; f32 against f64 on the host alone.
knet_test(ops.parity_host SOURCES test_parity_host.c ${parity_table} LINK KnetC::ops
          LABELS unit)
target_include_directories(test_ops_parity_host PRIVATE ${PROJECT_SOURCE_DIR}/ops/src)
if(KNET_HAVE_CUDA)
  knet_test(ops.parity_cuda SOURCES test_parity_cuda.c ${parity_table}
            LINK KnetC::ops CUDA::cudart LABELS parity gpu TIMEOUT 120)
  target_include_directories(test_ops_parity_cuda PRIVATE ${PROJECT_SOURCE_DIR}/ops/src)
  target_include_directories(test_ops_parity_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  add_dependencies(test_ops_parity_cuda knet_ops_cuda)
  # A part of the cases, for compute-sanitizer: the tools that run it are among its labels.
  add_test(NAME ops.parity_cuda_few COMMAND test_ops_parity_cuda few)
  add_test(NAME ops.parity_cuda_own COMMAND test_ops_parity_cuda own)
  set_tests_properties(ops.parity_cuda_few PROPERTIES LABELS "gpu;parity;memcheck" TIMEOUT 60 SKIP_RETURN_CODE 77)
  set_tests_properties(ops.parity_cuda_own PROPERTIES LABELS "gpu;parity;racecheck" TIMEOUT 60 SKIP_RETURN_CODE 77)
endif()

# The kernels on the host, as fibers: takes the toolkit's headers, a C++ compiler and minutes, so that builds with checks
# alone have it, also those without CUDA (under AddressSanitizer, say).
if(NOT KNET_HAVE_CUDA)
  find_package(CUDAToolkit QUIET)
  find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDNN_ROOT} $ENV{CUDNN_ROOT} ${CUDAToolkit_INCLUDE_DIRS}
            PATH_SUFFIXES include)
endif()
if(CUDAToolkit_FOUND AND CUDNN_INCLUDE_DIR)
  # What NVRTC makes of chains, and where it is kept; the thread that makes them.
  include(${PROJECT_SOURCE_DIR}/ops/src/cuda/pointwise/chain.cmake)
  set(chain ${PROJECT_SOURCE_DIR}/ops/src/cuda/pointwise)
  knet_test(ops.cuda_chains SOURCES test_cuda_chains.c random_chain.c ${chain}/chain_source.c ${chain}/chain_compile.c
            ${chain}/chain_disk.c LINK KnetC::ops knet_base Threads::Threads ${CMAKE_DL_LIBS})
  knet_test(ops.cuda_chain_threads SOURCES test_cuda_chain_threads.c ${chain}/chain.c ${chain}/chain_source.c
            ${chain}/chain_disk.c LINK KnetC::ops knet_base Threads::Threads)
  foreach(target test_ops_cuda_chains test_ops_cuda_chain_threads)
    target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/ops/src)
    target_include_directories(${target} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${CUDNN_INCLUDE_DIR})
  endforeach()
endif()
if(CUDAToolkit_FOUND AND CUDNN_INCLUDE_DIR AND CMAKE_CXX_COMPILER
   AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND KNET_CHECKED AND NOT KNET_SANITIZE STREQUAL thread)
  set(kernels ${PROJECT_SOURCE_DIR}/ops/src/cuda)
  set(emulated
      ${kernels}/pointwise/pointwise.cu ${kernels}/pointwise/pointwise_back.cu ${kernels}/pointwise/bias.cu
      ${kernels}/movement/move.cu ${kernels}/movement/pad.cu ${kernels}/movement/gather.cu
      ${kernels}/reduce/reduce.cu ${kernels}/reduce/place.cu ${kernels}/reduce/scan.cu ${kernels}/reduce/search.cu ${kernels}/reduce/sort.cu
      ${kernels}/pool/pooling.cu
      ${kernels}/softmax/softmax.cu ${kernels}/softmax/loss.cu
      ${kernels}/norm/batchnorm.cu ${kernels}/norm/rownorm.cu
      ${kernels}/random/random.cu
      ${kernels}/linalg/linalg.cu ${kernels}/linalg/small.cu ${kernels}/linalg/triangular.cu
      ${kernels}/attention/attention.cu
      ${kernels}/attention/rotary.cu ${kernels}/softmax/ctc.cu
      ${kernels}/image/resize.cu ${kernels}/image/grid.cu
      ${kernels}/optim/optim.cu)
  set(quick -O1 -g0) # -O2 takes minutes
  if(KNET_SANITIZE)
    # Checks of addresses alone: the others double the time to compile.
    set(quick -fsanitize=${KNET_SANITIZE} -fno-sanitize=undefined -fno-omit-frame-pointer -O0)
  endif()
  set_source_files_properties(${emulated} PROPERTIES LANGUAGE CXX COMPILE_DEFINITIONS KN_EMULATE
                              COMPILE_OPTIONS "-x;c++;-std=c++17;-ffp-contract=off;${quick}")
  add_library(emulated_kernels OBJECT ${emulated})
  target_link_libraries(emulated_kernels PRIVATE knet_options KnetC::ops knet_base)
  target_compile_definitions(emulated_kernels PRIVATE cudaMemsetAsync=emulate_memset cudaMemcpyAsync=emulate_memcpy)
  target_compile_definitions(emulated_kernels PRIVATE KN__CORNERS_AT_ONCE=1000) # so that batches are cut
  target_include_directories(emulated_kernels PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/ops/src)
  target_include_directories(emulated_kernels SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${CUDNN_INCLUDE_DIR})
  knet_test(ops.cuda_emulated SOURCES test_cuda_emulated.c ${parity_table} emulate.c $<TARGET_OBJECTS:emulated_kernels>
            ${PROJECT_SOURCE_DIR}/ops/src/host/pointwise/special.c
            ${kernels}/pointwise/pointwise.c ${kernels}/pointwise/bias.c
            ${kernels}/movement/move.c ${kernels}/movement/strided.c ${kernels}/movement/gather.c
            ${kernels}/reduce/reduce.c
            ${kernels}/pool/pooling.c
            ${kernels}/softmax/loss.c
            ${kernels}/norm/norm.c
            ${kernels}/random/random.c
            ${kernels}/linalg/triangular.c ${kernels}/linalg/small.c ${kernels}/attention/attention.c
            ${kernels}/attention/rotary.c ${kernels}/softmax/ctc.c ${kernels}/image/image.c
            ${kernels}/optim/optim.c
            ${kernels}/base/region.c
            LINK KnetC::ops ENV ASAN_OPTIONS=detect_stack_use_after_return=0:intercept_tls_get_addr=0)  # else it maps memory for each fiber
  target_compile_definitions(test_ops_cuda_emulated PRIVATE cudaMemsetAsync=emulate_memset
                             cudaMemcpyAsync=emulate_memcpy)
  target_include_directories(test_ops_cuda_emulated PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/ops/src)
  target_include_directories(test_ops_cuda_emulated SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${CUDNN_INCLUDE_DIR})

  # Chains, whose sources the test builds.
  knet_test(ops.cuda_chains_emulated SOURCES test_cuda_chains_emulated.c random_chain.c emulate.c
            $<TARGET_OBJECTS:emulated_kernels> ${PROJECT_SOURCE_DIR}/ops/src/host/pointwise/special.c
            ${kernels}/pointwise/pointwise.c ${kernels}/pointwise/chain_source.c ${kernels}/movement/move.c
            ${kernels}/base/region.c
            LINK KnetC::ops knet_base ${CMAKE_DL_LIBS} ENV ASAN_OPTIONS=detect_stack_use_after_return=0:intercept_tls_get_addr=0
            ARGS ${CMAKE_CXX_COMPILER} -O1 -w -std=c++17 -ffp-contract=off -DKN_EMULATE ${quick}
                 -I${CMAKE_CURRENT_SOURCE_DIR} -I${PROJECT_SOURCE_DIR}/ops/src -I${PROJECT_SOURCE_DIR}/ops/include
                 -I${PROJECT_BINARY_DIR}/ops/include -I${PROJECT_SOURCE_DIR}/alloc/include -I${CUDAToolkit_INCLUDE_DIRS})
  target_compile_definitions(test_ops_cuda_chains_emulated PRIVATE cudaMemsetAsync=emulate_memset
                             cudaMemcpyAsync=emulate_memcpy)
  target_include_directories(test_ops_cuda_chains_emulated PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}
                             ${PROJECT_SOURCE_DIR}/ops/src)
  target_include_directories(test_ops_cuda_chains_emulated SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS}
                             ${CUDNN_INCLUDE_DIR})
  set_target_properties(test_ops_cuda_chains_emulated PROPERTIES ENABLE_EXPORTS ON C_VISIBILITY_PRESET default)

  # The rest of the module's C files calls libraries: that they build is checked here, under the sanitizers too.
  add_library(cuda_c_files OBJECT ${kernels}/base/module.c ${kernels}/base/context.c ${kernels}/product/matmul.c ${kernels}/conv/conv.c
              ${kernels}/conv/conv_plan.c ${kernels}/linalg/linalg.c
              ${kernels}/recurrent/recurrent.c)
  target_link_libraries(cuda_c_files PRIVATE knet_options KnetC::ops knet_base)
  target_include_directories(cuda_c_files PRIVATE ${PROJECT_SOURCE_DIR}/ops/src)
  target_include_directories(cuda_c_files SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${CUDNN_INCLUDE_DIR})
endif()
