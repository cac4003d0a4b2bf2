#!/usr/bin/env bash
# op_instr.sh PROGRAM: counts the instructions of a product of 16 elements (op_frames.c) by callgrind: plain, what
# recording adds, and backward by one operand and by both. Prints JSON lines whose baseline is the count that each is to
# stay below, or none without valgrind.
set -euo pipefail
program=$1
if ! command -v valgrind >/dev/null; then
  echo "op_instr.sh: valgrind is absent; the instructions of ops are left out" >&2
  exit 0
fi

tapes=100 few=64 more=128
instructions() {
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" $tapes "$2" 2>&1 >/dev/null |
    awk '/Collected : / { print $4 }'
}
per_op() {
  local low high
  low=$(instructions "$1" $few) high=$(instructions "$1" $more)
  echo $(((high - low) / (tapes * (more - few))))
}
emit() {
  awk -v metric="$1" -v n="$2" -v goal="$3" 'BEGIN {
    printf "{\"bench\":\"ops\",\"metric\":\"%s\",\"value\":%d,\"unit\":\"instructions\",", metric, n
    printf "\"baseline\":%d,\"ratio\":%.6g}\n", goal, n / goal }'
}
plain=$(per_op plain) recorded=$(per_op recorded) recorded2=$(per_op recorded2)
emit plain_instr "$plain" 600
emit recorded_instr $((recorded - plain)) 340
emit backward_instr $(($(per_op backward) - recorded)) 950
emit backward2_instr $(($(per_op backward2) - recorded2)) 1340
