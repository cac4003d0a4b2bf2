#!/usr/bin/env bash
# binaries.sh LIB_DIR: at most 64 bytes of thread-local storage a library, no link to the CUDA driver, the light
# libraries need nothing heavy, and only kn_ names are exported.
set -euo pipefail
cd "$1"
bad=0
for library in libknet_*.so; do
  tls=$(readelf -lW "$library" | awk '$1 == "TLS" {print $6}')
  if [ $((${tls:-0})) -gt 64 ]; then echo "$library: $((tls)) bytes of thread-local storage, 64 are allowed"; bad=1; fi
  needed=$(readelf -dW "$library" | grep NEEDED || true)
  if grep -qE 'libcuda\.so|libcupti' <<<"$needed"; then echo "$library: linked to the CUDA driver or CUPTI"; bad=1; fi
  exported=$(nm -D --defined-only "$library" | awk '{print $NF}' | grep -vE '^(kn_|KN_|_init$|_fini$)' || true)
  if [ -n "$exported" ]; then echo "$library exports: $exported"; bad=1; fi
done
for library in libknet_alloc.so libknet_profiler.so; do
  if readelf -dW "$library" | grep -E 'NEEDED.*(dnnl|gomp|openblas|jemalloc|cudart|cublas|cudnn|stdc\+\+)'; then
    echo "$library must stay light"; bad=1
  fi
done
exit $bad
