# Finds the CUDA toolkit and cuDNN, and says in KNET_HAVE_CUDA whether the CUDA kernels are built.
# Hints for installations in parts (Python's packages, say): CUDNN_ROOT, CUPTI_ROOT.

set(KNET_HAVE_CUDA OFF)
# The kernels are a module that is loaded when it's needed and calls back into libknet_ops.
if(KNET_CUDA STREQUAL "ON" AND NOT BUILD_SHARED_LIBS)
  message(FATAL_ERROR "KNET_CUDA=ON needs shared libraries; BUILD_SHARED_LIBS is OFF.")
endif()
if(BUILD_SHARED_LIBS AND (KNET_CUDA STREQUAL "ON" OR (KNET_CUDA STREQUAL "AUTO" AND NOT CMAKE_CROSSCOMPILING)))
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90)   # never "native": configuring must work with no GPU
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit 12.6 QUIET)   # the oldest whose headers were compiled
    find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDNN_ROOT} $ENV{CUDNN_ROOT} ${CUDAToolkit_INCLUDE_DIRS}
              PATH_SUFFIXES include)
    find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${CUDNN_ROOT} $ENV{CUDNN_ROOT}
                 ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)
    if(CUDAToolkit_FOUND AND CUDNN_INCLUDE_DIR AND CUDNN_LIBRARY)
      set(KNET_HAVE_CUDA ON)
      set(CMAKE_CUDA_STANDARD 17)
      set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
    endif()
  endif()
  if(KNET_CUDA STREQUAL "ON" AND NOT KNET_HAVE_CUDA)
    message(FATAL_ERROR "KNET_CUDA=ON, but nvcc, the CUDA toolkit (12.6 or newer) or cuDNN was not found. "
                        "Set CUDACXX, CUDAToolkit_ROOT and CUDNN_ROOT, or KNET_CUDA=OFF.")
  endif()
endif()
message(STATUS "CUDA kernels: ${KNET_HAVE_CUDA}")
