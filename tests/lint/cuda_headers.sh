#!/usr/bin/env bash
# cuda_headers.sh CC CXX SOURCE_DIR: what calls CUDA, cuBLAS, cuDNN or CUPTI, and the kernels as C++, compile against the
# headers of another release too, in the folders of KNET_CUDA_HEADERS (separated by colons). 77 (skipped) where that is
# not set.
set -euo pipefail
cc=$1 cxx=$2
cd "$3"
IFS=: read -ra dirs <<<"${KNET_CUDA_HEADERS:-}"
[ ${#dirs[@]} -gt 0 ] || { echo "KNET_CUDA_HEADERS is not set"; exit 77; }
includes=(-I alloc/include -I profiler/include -I ops/include -I ops/src -I alloc -I profiler/src -I profiler/report -I alloc/base)
for dir in "${dirs[@]}"; do includes+=(-isystem "$dir"); done
bad=0
sources=(ops/src/cuda/*/*.c profiler/src/cupti*.c profiler/src/recorder.c)
kernels=(ops/src/cuda/*/*.cu)
for file in "${sources[@]}"; do
  "$cc" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -fsyntax-only "${includes[@]}" "$file" || bad=1
done
for file in "${kernels[@]}"; do
  "$cxx" -x c++ -std=c++17 -DKN_EMULATE -fsyntax-only "${includes[@]}" -I tests/ops "$file" || bad=1
done
printf '#include <cuda_runtime_api.h>\n#include <cudnn.h>\n#include <cupti.h>\nCUDART_VERSION CUDNN_VERSION CUPTI_API_VERSION\n' |
  "$cc" -E -P "${includes[@]}" - | tail -n 1
echo "${#sources[@]} C files, ${#kernels[@]} files of kernels"
exit $bad
