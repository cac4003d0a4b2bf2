#!/usr/bin/env bash
# top_cli.sh KNET JSON_GET PROGRAM CASE: `knet top` on running programs.
set -euo pipefail
export LC_ALL=C.UTF-8
knet=$1 json_get=$2 program=$3 case=$4
here=$(cd "$(dirname "$0")" && pwd)
source "$here/cli_checks.sh"
work=$(mktemp -d)
unset KNET_TIMER AUTOGRAD_TIMER KNET_RUN LD_PRELOAD
cd "$work"
pid=
end() { [ -z "$pid" ] || { exec 7>&-; wait "$pid" || true; pid=; }; }
trap 'end; rm -rf "$work"' EXIT

start() {   # start WORDS ARGUMENT...: a program that ends with `end`; its process is $pid
  mkfifo in; : >said
  KNET_TIMER=$1,out=table "$program" "${@:2}" <in >said &
  pid=$!
  exec 7>in
  rm in
  for _ in {1..500}; do grep -q ready said && return; sleep 0.02; done
  fail 'the program did not start'
}

case $case in
once)
  start cpu 2
  want 0 "$knet" top $pid --once;              out_has '^ work '; out_has '^   inner λ '; out_has '^ main +1 '
  want 0 "$knet" top $pid --once --sort name;  out_has '^ work '
  want 0 "$knet" top $pid;                     out_has '^ work '   # no terminal
  want 0 "$knet" top $pid --once --depth 1;    ! grep -q inner out || fail depth
  want 0 "$knet" top $pid --once --memory;     [ -s out ] || fail memory
  want 0 "$knet" top $pid --once --json;       [ "$(json scopes.0.label)" = work ] || fail "$(cat out)"
  first=$(json scopes.0.n_calls)
  for _ in {1..200}; do
    want 0 "$knet" top $pid --json --output b.json
    [ "$(json scopes.0.n_calls b.json)" -le "$first" ] || break
  done
  [ "$(json scopes.0.n_calls b.json)" -gt "$first" ] || fail 'the numbers stay'
  want 0 "$knet" report b.json;                out_has '^ work '
  end
  [ "$(grep -c '^ work ' table)" = 1 ] || fail 'the program writes its own table'
  ;;
alone)   # one thread; and without the first one
  start cpu 0
  want 0 "$knet" top $pid --once;  out_has '^ main +1 '
  end
  start cpu 1 exit
  want 0 "$knet" top $pid --once;         out_has '^ work '
  want 0 "$knet" top $pid --once --json;  [[ $(json run.command) = *top_program*exit ]] || fail "$(cat out)"
  end
  grep -q '^ work ' table || fail 'no table after main'
  ;;
which)   # without PID
  start cpu 1 fork
  child=$(sed -n 's/^child //p' said)
  want 1 "$knet" top "$child" --once;          err_has "process $child \(.*\) is not timed"
  want 1 "$knet" top 999999999 --once;         err_has 'there is no process 999999999'
  want 2 "$knet" top 12x;                      err_has "'12x' is no process id"
  want 2 "$knet" top 0
  want 1 "$knet" top $$ --once;                err_has 'is not timed'
  if [ "$(id -u)" != 0 ] || command -v setpriv >/dev/null; then
    other=1; as=()
    if [ "$(id -u)" = 0 ]; then chmod 755 "$work"; other=$pid; as=(setpriv --reuid 12345 --clear-groups); fi
    if "${as[@]}" "$knet" version >/dev/null 2>&1; then
      want 1 "${as[@]}" "$knet" top "$other" --once; err_has 'belongs to user [0-9]+, and you are user'
    fi
  fi
  got=0; "$knet" top --once >out 2>err || got=$?   # other programs of the user's may be timed now
  case $got in
    0) out_has '^ work ' ;;
    2) err_has "programs are timed; say which: .*[0-9]+ \(" ;;
    *) fail 'no program found' ;;
  esac
  end
  ;;
none)   # programs without a page
  # Ended, and its parent does not wait for it: that is the sleep by then, and no shell any more.
  sh -c '{ until grep -q sleep /proc/$$/comm; do sleep 0.01; done; } & echo $! >child; exec sleep 100' >/dev/null 2>&1 &
  parent=$!
  for _ in {1..500}; do [ -s child ] && grep -q '^State:.Z' "/proc/$(cat child)/status" && break; sleep 0.02; done
  want 1 "$knet" top "$(cat child)" --once;  err_has "^knet top: process $(cat child) has ended$"
  kill $parent
  start cpu 0 none;   want 1 "$knet" top $pid --once; err_has 'not timed, or has opened no scope yet'; end
  start nolive 1;     want 1 "$knet" top $pid --once; err_has 'not timed'; end
  start 0 1;          want 1 "$knet" top $pid --once; err_has 'not timed'; end
  start cpu 1 close;  want 1 "$knet" top $pid --once; err_has 'not timed'; end
  start cpu 1 nothread;  want 1 "$knet" top $pid --once; err_has 'not timed'; end
  grep -q '^ work ' table || fail 'a program without a thread for reports'
  grep -q '^ work ' table || fail 'a program that closes its files'
  ;;
threads)   # 64 threads, 8 readers at once, a stopped program
  start cpu 64
  want 0 "$knet" top $pid --once;  out_has '^ work '; out_has '65 threads'
  for i in {1..8}; do "$knet" top $pid --json --output r$i.json & readers[i]=$!; done
  for i in {1..8}; do wait "${readers[i]}" || fail "reader $i"; done
  for i in {1..8}; do [ "$(json scopes.0.label r$i.json)" = work ] || fail "reader $i"; done
  kill -STOP $pid
  want 1 "$knet" top $pid --once;  err_has "is stopped: continue it with kill -CONT $pid"
  kill -CONT $pid
  want 0 "$knet" top $pid --once
  end
  want 1 "$knet" top "$(sh -c 'echo $$')" --once
  start cpu 1   # killed while it is asked
  kill -STOP $pid
  (sleep 0.3; kill -KILL $pid) &
  want 1 "$knet" top $pid --once;  err_has 'has ended'
  end
  ;;
large)   # a report beyond the page of 64 MiB
  start cpu,buf=1G,min=0,depth=1 1 many   # min: a slow machine makes the rows small
  want 1 "$knet" top $pid --once;  err_has 'report is larger than 64 MiB'
  end
  grep -q "^ many 0 " table || fail "$(head table)"
  ;;
screen)   # on a terminal of 80 columns: keys, and the program's end
  command -v script >/dev/null || exit 77
  want 2 "$knet" top 1 --once --every 2; err_has 'every'
  want 2 "$knet" top 1 --every 5; err_has "--every is '5', but must be a number above 0 with ns, us"
  want 2 "$knet" top 1 --every 0s; err_has "--every is '0s', but must be a number above 0"
  start cpu 2
  keys() { for k in "$@"; do sleep 0.4; printf "$k"; done; }
  keys s s s s m m - + ' ' ' ' q | timeout 60 script -qec "stty cols 80 rows 12; TERM=xterm '$knet' top $pid --every 100ms" screen >/dev/null || fail "$(cat screen)"
  [ "$(head -c 3000 screen | grep -c 'no screen')" = 0 ] || exit 77
  for text in 'by time' gpu paused work; do grep -q "$text" screen || fail "no $text on the screen: $(cat -v screen)"; done
  keys q | timeout 60 script -qec "stty cols 80 rows 12; TERM=xterm '$knet' top $pid --memory" screen >/dev/null || fail "$(cat screen)"
  grep -q 'no memory was allocated' screen || fail "$(cat -v screen)"
  # narrower than the table: the end of a line is not drawn into the next one
  keys q | timeout 60 script -qec "stty cols 20 rows 24; TERM=xterm '$knet' top $pid" screen >/dev/null || fail "$(cat screen)"
  sed 's/\x1b\[[0-9;?]*[A-Za-z]//g' screen | tr -d '\r\n' >text
  grep -q 'measured:' text || fail "no table on a narrow screen: $(cat -v screen)"
  ! grep -qE 'measured: *[0-9]' text || fail "a narrow screen: $(cat -v screen)"
  timeout 60 script -qec "stty cols 80 rows 30; TERM=nonsense '$knet' top $pid" screen >/dev/null && fail 'an unknown terminal'
  grep -q "terminal of type 'nonsense'" screen || fail "$(cat screen)"
  timeout 60 script -qec "stty cols 80 rows 30; TERM=dumb '$knet' top $pid" screen >/dev/null && fail 'a terminal without a cursor'
  grep -q "no screen on a terminal of type 'dumb': use --once" screen || fail "$(cat screen)"
  (sleep 100 | timeout 60 script -qec "stty cols 80 rows 30; TERM=xterm '$knet' top $pid --every 0.1s" screen >/dev/null; touch done) 7>&- &
  viewer=$!
  for _ in {1..500}; do grep -q 'by time' screen && break; sleep 0.02; done
  end
  for _ in {1..500}; do grep -q 'has ended' screen && break; sleep 0.02; done
  kill $(pgrep -P $viewer) 2>/dev/null || true
  grep -q 'has ended' screen || fail "$(cat -v screen | tail -20)"
  ;;
ends)   # by a signal, and by the end of its terminal
  python=$(command -v python3) || exit 77
  start cpu 2
  got=0
  timeout 120 "$python" "$here/top_ends.py" "$knet" $pid >out 2>err || got=$?
  [ "$got" != 77 ] || exit 77
  [ "$got" = 0 ] || fail "$got: $(cat err)"
  want 0 "$knet" top $pid --once
  out_has '^ work '
  want 0 timeout 60 script -qec "'$knet' top $pid </dev/null" screen
  out_has '^ work ' # no keys, no screen
  end
  ;;
esac
