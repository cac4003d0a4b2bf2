#!/usr/bin/env bash
# pair_instr.sh PROGRAM: counts the instructions inside a pair of alloc and free of 64 bytes, in frames of 64 live
# blocks (pair_frames.c), by callgrind, beside jemalloc's; prints one JSON line, or none without valgrind.
set -euo pipefail
program=$1
if ! command -v valgrind >/dev/null; then
  echo "pair_instr.sh: valgrind is absent; pair_instr is left out" >&2
  exit 0
fi

few=100 more=600 blocks=64
# Inside the two functions, in a run of so many frames. The difference of two runs leaves out the first frames.
instructions() {
  valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect="$2" --toggle-collect="$3" \
    "$program" "$1" "$4" 2>&1 >/dev/null | awk '/Collected : / { print $4 }'
}
per_pair() {
  local low high
  low=$(instructions "$@" $few) high=$(instructions "$@" $more)
  if [ "${high:-0}" -le "${low:-0}" ]; then
    echo "pair_instr.sh: callgrind counted nothing in $program $1" >&2
    return 1
  fi
  awk -v n=$((high - low)) -v pairs=$(((more - few) * blocks)) 'BEGIN { printf "%.1f", n / pairs }'
}
ours=$(per_pair pool kn_alloc kn_free)
theirs=$(per_pair jemalloc mallocx dallocx)
awk -v a="$ours" -v b="$theirs" 'BEGIN {
  printf "{\"bench\":\"pool\",\"metric\":\"pair_instr\",\"value\":%.6g,\"unit\":\"instructions\",", a
  printf "\"baseline\":%.6g,\"ratio\":%.6g}\n", b, a / b }'
