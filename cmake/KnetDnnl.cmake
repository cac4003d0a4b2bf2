# Finds oneDNN, version 2 or 3: DNNL_LIBRARY, DNNL_INCLUDE_DIR. Hint: DNNL_ROOT, the prefix of an installation.

find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl_version.h HINTS ${DNNL_ROOT} $ENV{DNNL_ROOT} PATH_SUFFIXES include)
find_library(DNNL_LIBRARY dnnl HINTS ${DNNL_ROOT} $ENV{DNNL_ROOT} PATH_SUFFIXES lib lib64)
if(NOT DNNL_INCLUDE_DIR OR NOT DNNL_LIBRARY)
  message(FATAL_ERROR "oneDNN was not found. Install it (Debian: libdnnl-dev, Fedora: onednn-devel, Arch: onednn), "
                      "set DNNL_ROOT, or build without the ops: -DKNET_PARTS=alloc,profiler")
endif()
file(STRINGS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h dnnl_version REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH)")
string(REGEX REPLACE "[^0-9;]" "" dnnl_version "${dnnl_version}")
list(JOIN dnnl_version "." dnnl_version)
if(dnnl_version VERSION_LESS 2.0 OR NOT dnnl_version VERSION_LESS 4.0)
  message(FATAL_ERROR "oneDNN ${dnnl_version} in ${DNNL_INCLUDE_DIR}: versions 2 and 3 are supported.")
endif()
# 1: sequential, 2: OpenMP. Each call of ours runs on one thread, which other runtimes can't be made to do.
file(STRINGS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_config.h dnnl_runtime REGEX "define DNNL_CPU_THREADING_RUNTIME ")
if(NOT dnnl_runtime MATCHES "RUNTIME_(SEQ|OMP)$")
  message(WARNING "oneDNN ${dnnl_version} uses neither OpenMP nor a single thread: the number of threads may change results.")
endif()
message(STATUS "oneDNN: ${dnnl_version}, ${DNNL_LIBRARY}")
