#!/usr/bin/env bash
# Every public header compiles alone, in C11 and in C++17, at strict warnings.
set -euo pipefail
cd "$(dirname "$0")/../.."
include=()
for folder in alloc profiler ops autograd tools; do include+=("-I$folder/include"); done
warn=(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -fsyntax-only)
bad=0
for header in */include/*.h */include/knet/*.h; do
  echo "#include \"$header\"" | ${CC:-cc} -std=c11 "${warn[@]}" -Wstrict-prototypes "${include[@]}" -I. -x c - || bad=1
  case $header in
    ops/include/knet/op.h) continue ;;   # for the project's own C libraries
  esac
  if command -v c++ >/dev/null; then
    echo "#include \"$header\"" | c++ -std=c++17 "${warn[@]}" -Wno-pedantic "${include[@]}" -I. -x c++ - || bad=1
  fi
done
exit $bad
