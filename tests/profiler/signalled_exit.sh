#!/usr/bin/env bash
# signalled_exit.sh PROGRAM: exit() in a signal handler that has interrupted an allocation ends the program, with
# a report of what can be read, and a line that says why not more. Runs until it has seen that.
set -euo pipefail
program=$1 err=$(mktemp)
trap 'rm -f "$err"' EXIT

until_said() { # LINE VARIABLE=VALUE
  for ((i = 0; i < 60; i++)); do
    code=0
    env -u KNET_TIMER -u KNET_ALLOC "$2" timeout -s KILL 20 "$program" $((20000 + 97 * i)) 2>"$err" || code=$?
    if ((code != 9)); then echo "$2: exit code $code"; cat "$err"; exit 1; fi
    grep -q "$1" "$err" && return
  done
  echo "$2: it never said: $1"
  exit 1
}

until_said '^KNET_TIMER: the report is without memory: ' KNET_TIMER=1
grep -q ' work ' "$err"
if grep -q Allocations "$err"; then echo "the table has memory"; cat "$err"; exit 1; fi
until_said '^KNET_ALLOC: no report of pool cpu: ' KNET_ALLOC=stats
