#!/usr/bin/env bash
# memcheck.sh VALGRIND PROGRAM: memcheck reports a use of a block after kn_free and behind its end, and nothing else.
set -euo pipefail
valgrind=$1 program=$2
run() { "$valgrind" -q --error-exitcode=9 "$program" "$@" 2>&1; }
for bytes in 1000 200000; do
  run clean $bytes || { echo "a correct program is reported"; exit 1; }
  for use in free end; do
    if out=$(run $use $bytes); then echo "$use of $bytes bytes is not reported"; exit 1; fi
    grep -q 'Invalid write of size 1' <<<"$out" || { echo "$out"; exit 1; }
  done
done
