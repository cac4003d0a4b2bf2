#!/usr/bin/env bash
# timer_alone.sh C++-COMPILER LIBRARY SOURCE_DIR: a C++ program with libknet_profiler and nothing else, as a user
# compiles it, runs off and on.
set -euo pipefail
library=$2 source=$3 work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" -std=c++11 -O2 -Wall -Wextra -Wpedantic -Werror -I"$source/profiler/include" -I"$source/alloc/include" \
  "$source/tests/profiler/timer_alone.cc" "$library" -Wl,-rpath,"$(dirname "$library")" \
  -Wl,-rpath-link,"$(dirname "$library")" -o "$work/program"
env -u KNET_TIMER "$work/program" 2>"$work/off"
[ ! -s "$work/off" ] || { echo "off, it printed:"; cat "$work/off"; exit 1; }
KNET_TIMER=min=0,ascii "$work/program" 2>"$work/on"
for row in 'request 0 .* 5 ' 'request 1 .* 5 ' '  parse .* 5 ' '    digits .* 4 ' 'throws .* 1 ' 'fail .* 2 ' 'statement .* 2 ' 'behind .* 4 '; do
  grep -qE "^ *$row" "$work/on" || { echo "no row $row in:"; cat "$work/on"; exit 1; }
done
