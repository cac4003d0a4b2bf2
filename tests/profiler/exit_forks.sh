#!/usr/bin/env bash
# exit_forks.sh PROGRAM LIBRARY: a program that ends while another thread of it forks ends at once, and children that it
# makes while it ends are not timed. LIBRARY makes each fork last 20 ms, so that one is under way when the program ends.
# glibc 2.36 itself may abort such a program, where handlers of forks are unregistered while they run: that is no run.
set -euo pipefail
program=$1 library=$2 err=$(mktemp)
trap 'rm -f "$err"' EXIT

for timer in 0 1 1,every=1steps; do
  for i in 1 2 3; do
    code=0
    env -u KNET_ALLOC KNET_TIMER="$timer" LD_PRELOAD="$library" "$program" 2>"$err" || code=$?
    if ((code == 134)) && grep -q '^Fatal glibc error: array index' "$err"; then continue; fi
    if ((code != 0)); then echo "KNET_TIMER=$timer: exit code $code"; cat "$err"; exit 1; fi
    if [ "$timer" != 0 ]; then grep -q in_main "$err" || { echo "KNET_TIMER=$timer: no table"; exit 1; }; fi
    if grep -q 'in_.*child' "$err"; then echo "KNET_TIMER=$timer: a child's table:"; cat "$err"; exit 1; fi
  done
done
