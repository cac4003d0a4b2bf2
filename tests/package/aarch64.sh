#!/usr/bin/env bash
# aarch64.sh SOURCE_DIR: the allocator and the profiler, cross-compiled for 64-bit Arm, pass their tests under qemu-user.
# Skipped without the packages of `tools/install-deps.sh aarch64`. KNET_SYSROOT: see cmake/aarch64.cmake.
set -euo pipefail
source=$1 root=${KNET_SYSROOT:-}
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
  command -v $tool >/dev/null || { echo "$tool is not installed"; exit 77; }
done
for library in cmocka libcjson; do
  [ -e "$root/usr/lib/aarch64-linux-gnu/pkgconfig/$library.pc" ] || { echo "$library for arm64 is not installed"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake -G Ninja -S "$source" -B "$work/build" --toolchain "$source/cmake/aarch64.cmake" -DKNET_SYSROOT="$root" \
      -DKNET_PARTS=alloc,profiler -DKNET_BENCH=OFF -DKNET_CHECKED=ON -DKNET_WERROR=ON -DCMAKE_BUILD_TYPE=Release \
      >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cmake --build "$work/build" >"$work/log" 2>&1 || { tail -n 40 "$work/log"; exit 1; }
file=$(readelf -h "$work/build/lib/libknet_profiler.so")
grep -q AArch64 <<<"$file" || { echo "not built for aarch64"; exit 1; }

# What the emulator lacks: programs of ours can't start each other (report, process, nvtx, cupti, replay), it ignores
# RLIMIT_AS (oom), huge pages are invisible in /proc (host_mmap), a fork() with threads aborts it (trace_system). The
# others run the host's compiler or Python (no_scopes, cxx, python). The long ones are run on the host anyway.
skip='^(alloc\.(report|oom|host_mmap|trace_system|python|gate)|profiler\.(process|nvtx|cupti|replay|no_scopes|cxx)|fuzz\.format)$'
ctest --test-dir "$work/build" -j2 --output-on-failure --timeout 300 -E "$skip" >"$work/log" 2>&1 || { tail -n 80 "$work/log"; exit 1; }
tail -n 12 "$work/log"
