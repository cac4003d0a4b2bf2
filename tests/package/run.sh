#!/usr/bin/env bash
# run.sh cmake|pkgconfig|timer|alloc|static|parts BUILD_DIR [SANITIZERS]: installs the build into a fresh prefix, moves the
# prefix (packages must be relocatable), then builds and runs a consumer against it. static and parts build the source
# anew: all libraries static; the allocator and the profiler alone.
set -euo pipefail
mode=$1 build=$2 sanitize=${3:-}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# build_anew OPTION…: without tests and benchmarks, quickly.
build_anew() {
  build=$work/build
  cmake -G Ninja -S "$here/../.." -B "$build" -DCMAKE_C_COMPILER="${CC:-cc}" -DCMAKE_BUILD_TYPE=Debug \
        -DCMAKE_C_FLAGS_DEBUG=-O0 -DKNET_ONE_ISA=ON -DKNET_TESTS=OFF -DKNET_BENCH=OFF -DKNET_CUDA=OFF "$@" \
        >"$work/configure.log" || { cat "$work/configure.log"; exit 1; }
  cmake --build "$build" >"$work/build.log" || { tail -n 40 "$work/build.log"; exit 1; }
}
case $mode in
  static) build_anew -DBUILD_SHARED_LIBS=OFF ;;
  parts)
    build_anew -DKNET_PARTS=alloc,profiler
    cmake -G Ninja -S "$here/../.." -B "$work/refused" -DKNET_PARTS=alloc -DKNET_CHECKED=9 >"$work/refused.log" 2>&1 \
      && { echo "KNET_CHECKED=9 is not refused"; exit 1; }
    grep -q 'KNET_CHECKED is "9"' "$work/refused.log" || { cat "$work/refused.log"; exit 1; } ;;
esac
cmake --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/prefix"
warnings=(-Wall -Wextra -Wpedantic -Wshadow -Werror)
[ -z "$sanitize" ] || warnings+=("-fsanitize=$sanitize")
flags=(-std=c11 "${warnings[@]}")
# The C++ compiler of the same family, where there is one.
cxx=$(sed -E 's,clang(-[0-9]+)?$,clang++\1,; s,gcc(-[0-9]+)?$,g++\1,; s,(^|/)cc$,\1c++,' <<<"${CC:-cc}")
cxx=$(command -v "$cxx" || true)
libdir=$(dirname "$(find "$work/prefix" \( -name 'libknet_alloc.so' -o -name 'libknet_alloc.a' \) | head -n 1)")
export LD_LIBRARY_PATH=$libdir PKG_CONFIG_PATH=$libdir/pkgconfig
unset KNET_TIMER

case $mode in
  cmake)
    cmake -G Ninja -S "$here/consumer" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$work/prefix" \
          -DCMAKE_C_FLAGS="${flags[*]}" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_CXX_FLAGS="${warnings[*]}" \
          >"$work/configure.log"
    cmake --build "$work/consumer" >"$work/build.log" || { cat "$work/build.log"; exit 1; }
    for program in whole timer ${cxx:+whole_cxx11 whole_cxx20 pool_cxx17 pool_cxx20}; do "$work/consumer/$program"; done ;;
  pkgconfig)
    # shellcheck disable=SC2046  # flags are words
    "${CC:-cc}" "${flags[@]}" -o "$work/all" "$here/consumer/all.c" $(pkg-config --cflags --libs knetc-train)
    "$work/all"
    [ -n "$cxx" ] || exit 0
    for standard in c++11 c++20; do
      # shellcheck disable=SC2046
      "$cxx" "-std=$standard" "${warnings[@]}" -o "$work/all" "$here/consumer/all.cc" $(pkg-config --cflags --libs knetc-train)
      "$work/all"
    done ;;
  alloc) # the ten lines of docs/allocator.md, and the example that links nothing else
    page=$here/../../docs/allocator.md pool=$here/../../tools/examples/02_pool.c
    awk '/^```c$/ { on = 1; next } /^```$/ { exit } on' "$page" >"$work/printed"
    grep -q kn_alloc "$work/printed"
    { echo 'typedef struct CUstream_st *cudaStream_t;'
      sed 's/kernel<<<.*/used = x;/; s/"cuda:0"/"cpu"/; s/^kn_status/static void *used;\nstatic &/' "$work/printed"
      echo 'int main(void) { return step(1000, NULL) == KN_OK && used ? 0 : 1; }'; } >"$work/lines.c"
    cp "$pool" "$work/pool.c"
    # shellcheck disable=SC2046
    for name in lines pool; do
      "${CC:-cc}" "${flags[@]}" -o "$work/$name" "$work/$name.c" $(pkg-config --cflags --libs knetc-alloc)
      "$work/$name" >/dev/null
      if readelf -d "$work/$name" | grep -E 'NEEDED.*knet_[^a]'; then
        echo "the allocator alone must need no other library of Knet.c"
        exit 1
      fi
    done
    cat >"$work/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(alone C)
find_package(KnetC 0.1 REQUIRED COMPONENTS alloc)
foreach(name lines pool)
  add_executable(alone_${name} ${name}.c)
  target_link_libraries(alone_${name} PRIVATE KnetC::alloc)
endforeach()
END
    cmake -G Ninja -S "$work" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$work/prefix" \
          -DCMAKE_C_FLAGS="${flags[*]}" >"$work/configure.log"
    cmake --build "$work/consumer" >"$work/build.log" || { cat "$work/build.log"; exit 1; }
    "$work/consumer/alone_lines"
    "$work/consumer/alone_pool" >/dev/null
    # As printed, where there is a compiler for it.
    nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
    [ -n "$nvcc" ] || exit 0
    { echo '__global__ void kernel(void *) {}'; echo 'static const dim3 grid(1), block(1);'
      cat "$work/printed"; } >"$work/lines.cu"
    "$nvcc" -c -o "$work/lines.o" "$work/lines.cu" -I"$work/prefix/include"
    "$nvcc" -std=c++17 -c -o "$work/pool_cu.o" "$here/consumer/pool.cu" -I"$work/prefix/include" ;;
  static)
    [ -z "$(find "$work/prefix" -name '*.so*')" ] || { echo "a static build installs no shared library"; exit 1; }
    # shellcheck disable=SC2046
    "${CC:-cc}" "${flags[@]}" -o "$work/all" "$here/consumer/all.c" $(pkg-config --cflags --libs knetc-train)
    cmake -G Ninja -S "$here/consumer" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$work/prefix" \
          -DCMAKE_C_FLAGS="${flags[*]}" -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_CXX_FLAGS="${warnings[*]}" \
          >"$work/configure.log"
    cmake --build "$work/consumer" >"$work/build.log" || { cat "$work/build.log"; exit 1; }
    for program in "$work/all" "$work/consumer/whole" "$work/consumer/timer"; do
      "$program"
      if readelf -d "$program" | grep 'NEEDED.*knet_'; then echo "$program is linked to a shared library"; exit 1; fi
    done
    report=$(KNET_TIMER=1 "$work/all" 2>&1)
    grep -q 'matmul' <<<"$report" || { echo "no table at exit: $report"; exit 1; }
    # Each function of ours stands in one library.
    twice=$(nm --defined-only "$libdir"/libknet_*.a | awk '$2 ~ /^[TDBR]$/ { print $3 }' | sort | uniq -d)
    [ -z "$twice" ] || { echo "in two libraries: $twice"; exit 1; }
    # They share the program's names: all begin with kn_.
    others=$(nm -g --defined-only "$libdir"/libknet_*.a | awk '$2 ~ /^[TDBR]$/ && $3 !~ /^(kn_|KN_)/ { print $3 }')
    [ -z "$others" ] || { echo "names without kn_: $others"; exit 1; } ;;
  parts)
    if grep -E '^[A-Z_]*(DNNL|ZLIB|CUDNN|JEMALLOC)' "$build/CMakeCache.txt"; then
      echo "the allocator and the profiler alone need none of these"
      exit 1
    fi
    # shellcheck disable=SC2046
    "${CC:-cc}" "${flags[@]}" -o "$work/timer" "$here/consumer/timer.c" $(pkg-config --cflags --libs knetc-profiler)
    "$work/timer"
    if find "$work/prefix" -name '*knet_ops*' -o -name '*autograd*' | grep .; then exit 1; fi ;;
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
