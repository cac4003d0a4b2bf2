#!/usr/bin/env bash
# signalled_exit.sh PROGRAM: exit() in a signal handler that has interrupted an allocation, or the timer while it
# holds a lock, ends the program, with a report of what can be read, and a line that says why not more. Where only
# chance brings the signal then, it runs until it has seen that.
set -euo pipefail
program=$1 folder=$(mktemp -d) err=
trap 'rm -rf "$folder"' EXIT
err=$folder/err

leave() { # WHERE VARIABLE=VALUE
  local code=0
  env -u KNET_TIMER -u KNET_ALLOC "$2" timeout -s KILL 20 "$program" "$1" 2>"$err" || code=$?
  if ((code != 9)); then echo "$2, $1: exit code $code"; cat "$err"; exit 1; fi
}

until_said() { # LINE VARIABLE=VALUE
  for ((i = 0; i < 60; i++)); do
    leave $((20000 + 97 * i)) "$2"
    grep -q "$1" "$err" && return
  done
  echo "$2: it never said: $1"
  exit 1
}

has() { grep -q "$1" "$err" || { echo "no $1 in:"; cat "$err"; exit 1; }; }
has_no() { if grep -q "$1" "$err"; then echo "$1 in:"; cat "$err"; exit 1; fi; }

until_said '^KNET_TIMER: the report is without memory: ' KNET_TIMER=1
has ' work '
has_no Allocations
until_said '^KNET_TIMER: the report is without memory: ' KNET_TIMER=1,every=5ms
has ' work '
until_said '^KNET_ALLOC: no report of pool cpu: ' KNET_ALLOC=stats

# The page of `knet top` starts its thread.
leave pthread_create KNET_TIMER=1
has 'no scope was opened'

# A thread hands over its events: none is lost.
leave pthread_cond_signal "KNET_TIMER=1,trace=$folder/trace.json"
has ' work '
has_no 'the trace lacks'
grep -q '^\]' "$folder/trace.json"

# The program's thread writes the last steps.
leave write "KNET_TIMER=1,trace_slow=1ns,trace=$folder/slow.json"
has ' work '
has '^KNET_TIMER: the trace lacks its end: '
leave write "KNET_TIMER=1,every=5ms,trace_slow=1ns,trace=$folder/slow.json"
has '^KNET_TIMER: the trace lacks its end: '
