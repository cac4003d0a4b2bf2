#!/usr/bin/env bash
# Every public header compiles alone, in C11, C++11 and C++20, at strict warnings. <knet.h> includes it, or its comment says
# that it does not. Functions of ops and above that can fail have macros with the call site (KnetSites.cmake).
set -euo pipefail
cd "$(dirname "$0")/../.."
include=()
for folder in alloc profiler ops autograd comm tools/train; do include+=("-I$folder/include"); done
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
cmake -DOUT="$made" -P cmake/KnetSites.cmake
include+=("-I$made")
warn=(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -fsyntax-only)
bad=0
for header in */include/knet/*.h tools/train/include/*.h tools/train/include/knet/*.h; do
  echo "#include \"$header\"" | ${CC:-cc} -std=c11 "${warn[@]}" -Wstrict-prototypes "${include[@]}" -I. -x c - || bad=1
  case $header in
    ops/include/knet/op.h | ops/include/knet/op_act.h | ops/include/knet/op_watch.h) continue ;;   # for the project's own C libraries
  esac
  if command -v c++ >/dev/null; then
    for standard in c++11 c++20; do
      echo "#include \"$header\"" | c++ "-std=$standard" "${warn[@]}" "${include[@]}" -I. -x c++ - || bad=1
    done
  fi
done
for header in */include/knet/*.h tools/train/include/knet/*.h; do
  grep -q "<knet/${header##*/}>" tools/train/include/knet.h || { echo "knet.h does not name $header"; bad=1; }
done
for header in {ops,autograd,comm,tools/train}/include/knet/*.h; do
  case ${header##*/} in op.h | op_act.h | op_watch.h | rule.h) continue ;; esac   # for ops of one's own
  if grep -qE '^KN_API (KN_MUST_CHECK kn_status|kn_tensor \*|kn_layer \*)' "$header" &&
    ! grep -q "^#include <knet/sites/${header##*/}>" "$header"; then
    echo "$header: its last line is to include <knet/sites/${header##*/}>"
    bad=1
  fi
done
# Headers for C++ alone.
for header in */include/knet/*.hpp; do
  command -v c++ >/dev/null || break
  for standard in c++17 c++20; do
    echo "#include \"$header\"" | c++ "-std=$standard" "${warn[@]}" "${include[@]}" -I. -x c++ - || bad=1
  done
done
exit $bad
