#!/usr/bin/env bash
# cuda_headers.sh CC SOURCE_DIR: what calls CUDA, cuBLAS, cuDNN or CUPTI compiles against the headers of another release
# too, in the folders of KNET_CUDA_HEADERS (separated by colons). 77 (skipped) where that is not set.
set -euo pipefail
cc=$1
cd "$2"
IFS=: read -ra dirs <<<"${KNET_CUDA_HEADERS:-}"
[ ${#dirs[@]} -gt 0 ] || { echo "KNET_CUDA_HEADERS is not set"; exit 77; }
includes=(-I alloc/include -I profiler/include -I ops/include -I alloc/src -I profiler/src)
for dir in "${dirs[@]}"; do includes+=(-isystem "$dir"); done
bad=0 n=0
for file in ops/src/cuda/*.c profiler/src/cupti.c profiler/src/cupti_records.c profiler/src/replay.c \
            tests/gpu/test_gpu_api.c; do
  n=$((n + 1))
  "$cc" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -fsyntax-only "${includes[@]}" -I tests/support "$file" || bad=1
done
printf '#include <cuda_runtime_api.h>\n#include <cudnn.h>\n#include <cupti.h>\nCUDART_VERSION CUDNN_VERSION CUPTI_API_VERSION\n' |
  "$cc" -E -P "${includes[@]}" - | tail -n 1
echo "$n files"
exit $bad
