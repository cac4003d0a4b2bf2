#!/usr/bin/env bash
# pool_hpp.sh CXX SOURCE_DIR: what <knet/pool.hpp> can't do is an error of the compiler that says so.
set -euo pipefail
cxx=$1
cd "$2"
bad=0

# refused TEXT CODE FLAGS …: the code after the header does not compile, and the compiler says the text.
refused() {
  local text=$1 code=$2 said
  shift 2
  if said=$(printf '#include <knet/pool.hpp>\n%s\n' "$code" | "$cxx" -fsyntax-only -I alloc/include "$@" -x c++ - 2>&1); then
    echo "compiles with $*: $code"
    bad=1
  elif ! grep -qF -- "$text" <<<"$said"; then
    printf 'not said with %s: %s\n%s\n' "$*" "$text" "$said"
    bad=1
  fi
}

refused "needs C++17: compile with -std=c++17 or later" "" -std=c++14
refused "throws: compile without -fno-exceptions" "" -std=c++17 -fno-exceptions
refused "elements are not const" "knet::block<const float> x;" -std=c++17
refused "elements are not const" "auto x = knet::alloc<const int>(knet::pool_ref(nullptr), 3);" -std=c++20
exit $bad
