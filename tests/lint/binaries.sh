#!/usr/bin/env bash
# binaries.sh LIB_DIR [--update]: at most 64 bytes of thread-local storage a library, no link to the CUDA driver, the
# light libraries need nothing heavy, and the libraries export what exports/ lists; --update writes these lists.
set -euo pipefail
lists=$(cd "$(dirname "$0")" && pwd)/exports
update=${2:-}
cd "$1"
bad=0
for library in libknet_*.so; do
  tls=$(readelf -lW "$library" | awk '$1 == "TLS" {print $6}')
  if [ $((${tls:-0})) -gt 64 ]; then echo "$library: $((tls)) bytes of thread-local storage, 64 are allowed"; bad=1; fi
  needed=$(readelf -dW "$library" | grep NEEDED || true)
  if grep -qE 'libcuda\.so|libcupti' <<<"$needed"; then echo "$library: linked to the CUDA driver or CUPTI"; bad=1; fi
  list=$lists/${library%.so}.txt
  exported=$(nm -D --defined-only "$library" | awk '$2 != "A" {print $NF}' | sed 's/@@/ /' | LC_ALL=C sort)
  [ "$update" = --update ] && printf '%s\n' "$exported" >"$list"
  if ! diff "$list" <(printf '%s\n' "$exported"); then
    echo "$library exports something else than ${list##*/} lists (<): a symbol that went or changed breaks programs;"
    echo "if that is meant, or a symbol is new: tests/lint/binaries.sh $1 --update"; bad=1
  fi
done
for library in libknet_alloc.so libknet_profiler.so; do
  if readelf -dW "$library" | grep -E 'NEEDED.*(dnnl|gomp|openblas|jemalloc|cudart|cublas|cudnn|stdc\+\+)'; then
    echo "$library must stay light"; bad=1
  fi
done
exit $bad
