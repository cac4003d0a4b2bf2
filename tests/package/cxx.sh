#!/usr/bin/env bash
# cxx.sh SOURCE_DIR BUILD_DIR: a C++ program with every public header and macro compiles without a warning, and runs, in
# C++11, 14, 17 and 20, with g++ and clang++.
set -euo pipefail
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
warnings=(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror)
include=() libraries=()
for folder in alloc profiler ops autograd comm tools/train; do include+=("-I$source/$folder/include"); done
for folder in ops autograd comm tools/train; do include+=("-I$build/$folder/include"); done
for part in train comm autograd ops profiler alloc; do libraries+=("-lknet_$part"); done
n=0
for cxx in g++ clang++; do
  command -v $cxx >/dev/null || continue
  for standard in 11 14 17 20; do
    n=$((n + 1))
    "$cxx" "-std=c++$standard" "${warnings[@]}" "${include[@]}" -o "$work/program" "$source/tests/package/all_macros.cc" \
      "-L$build/lib" "-Wl,-rpath,$build/lib" "${libraries[@]}" || { echo "$cxx -std=c++$standard"; exit 1; }
    "$work/program" >"$work/out" || { echo "$cxx -std=c++$standard:"; cat "$work/out"; exit 1; }
  done
done
[ $n -gt 0 ] || { echo "no C++ compiler"; exit 77; }
echo "$n programs"
