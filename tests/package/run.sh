#!/usr/bin/env bash
# run.sh cmake|pkgconfig|timer BUILD_DIR [SANITIZERS]: installs the build into a fresh prefix, moves the prefix (packages
# must be relocatable), then builds and runs a consumer against it.
set -euo pipefail
mode=$1 build=$2 sanitize=${3:-}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/prefix"
flags=(-std=c11 -Wall -Wextra -Wpedantic -Werror)
[ -z "$sanitize" ] || flags+=("-fsanitize=$sanitize")
libdir=$(dirname "$(find "$work/prefix" -name 'libknet_alloc.so' | head -n 1)")
export LD_LIBRARY_PATH=$libdir PKG_CONFIG_PATH=$libdir/pkgconfig
unset KNET_TIMER

case $mode in
  cmake)
    cmake -G Ninja -S "$here/consumer" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$work/prefix" \
          -DCMAKE_C_FLAGS="${flags[*]}" >"$work/configure.log"
    cmake --build "$work/consumer" >"$work/build.log" || { cat "$work/build.log"; exit 1; }
    "$work/consumer/whole"
    "$work/consumer/timer" ;;
  pkgconfig)
    # shellcheck disable=SC2046  # flags are words
    "${CC:-cc}" "${flags[@]}" -o "$work/all" "$here/consumer/all.c" $(pkg-config --cflags --libs knetc-train)
    "$work/all" ;;
  timer)
    # shellcheck disable=SC2046
    "${CC:-cc}" "${flags[@]}" -o "$work/timer" "$here/consumer/timer.c" $(pkg-config --cflags --libs knetc-profiler)
    needed=$(readelf -d "$work/timer" "$libdir/libknet_profiler.so" "$libdir/libknet_alloc.so")
    if grep -E 'NEEDED.*(knet_ops|knet_autograd|knet_train|dnnl|gomp|jemalloc|cuda|stdc\+\+)' <<<"$needed"; then
      echo "the timer alone must need none of these"
      exit 1
    fi
    report=$(KNET_TIMER=1 "$work/timer" 2>&1)
    grep -q 'load batch' <<<"$report" || { echo "no table at exit: $report"; exit 1; } ;;
esac
