#!/usr/bin/env bash
# run_cli.sh KNET JSON_GET PROGRAM LIB_DIR SOURCE CASE: `knet run` on programs that know nothing of the timer.
set -euo pipefail
export LC_ALL=C.UTF-8
knet=$1 json_get=$2 program=$3 lib=$4 source_dir=$5 case=$6
source "$(dirname "$0")/cli_checks.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset KNET_TIMER AUTOGRAD_TIMER KNET_RUN LD_PRELOAD NVTX_INJECTION64_PATH CUDA_INJECTION64_PATH
cd "$work"

rows() { grep -oE '"label":"[^"]*"' "$1" | cut -d'"' -f4 | grep -v '^(outside'; }

case $case in
ranges)   # of both threads, nested as the program opened them
  want 0 "$knet" run -- "$program"
  [ ! -s out ] || fail "the program printed nothing, but out has $(cat out)"
  err_has '^ outer.* 6 '
  want 0 "$knet" run --timer json=a.json,out=t.txt,min=0,sort=first -- "$program"
  [ ! -s err ] || fail "err has $(cat err)"
  grep -qE '^   registered +6 ' t.txt || fail "no registered below outer: $(cat t.txt)"
  grep -qE '^     wide λ +6 ' t.txt || fail 'no wide text'
  grep -qE '^ after +2 ' t.txt || fail 'a range that was left open'
  [ "$(rows a.json | sort | tr '\n' ' ')" = 'after crossed outer registered registered wide λ ' ] || fail "$(rows a.json)"
  [ "$(json scopes.0.n_calls a.json)" = 6 ] || fail calls
  want 0 env KNET_TIMER=out=e.txt "$knet" run -- "$program";  grep -q ' outer ' e.txt || fail 'the variable is the default'
  want 0 env KNET_TIMER=out=f.txt "$knet" run --timer out=g.txt "$program"
  [ ! -e f.txt ] && [ -s g.txt ] || fail '--timer wins'
  # Any number may end on another thread, and be open at once.
  want 0 "$knet" run --timer csv=a.csv,out=t.txt,min=0 -- "$program" elsewhere
  calls=$(tr -d '"' <a.csv | awk -F, 'NR > 1 {print $1, $4}' | sort | tr '\n' ';')
  [ "$calls" = 'after 4;job 900;of a thread that ended 1;' ] || fail "ranges that another thread ended: $calls"
  want 0 "$knet" run --timer csv=a.csv,out=t.txt,min=0 -- "$program" deep
  tr -d '"' <a.csv | cut -d, -f1 | grep -qx after || fail "deep ranges: $(cut -d, -f1 a.csv)"
  grep -q '50 scopes not recorded (too deep' t.txt || fail 'ranges that were too deep'
  # Started ranges have their own times, and are below the range that was open when they began.
  want 0 "$knet" run --timer csv=a.csv,out=t.txt,min=0 -- "$program" overlap
  lasts() {
    local got
    got=$(tr -d '"' <a.csv | awk -F, -v row="$1" '$1 == row && $4 == 1 {print int($5 / 1e6)}')
    [ -n "$got" ] && [ "$got" -ge "$2" ] && [ "$got" -lt "$3" ] || fail "$1: $got ms, not $2 to $3; $(cat a.csv)"
  }
  lasts 'request A' 10 100;  lasts 'request B' 110 300;  lasts init 0 80;  lasts 'init/whole run' 100 300
  lasts 'ended elsewhere' 20 250;  lasts 'never ended' 10 200
  grep -q '^"request B",1,range,1,' a.csv && grep -q '^"init/whole run",2,range,1,' a.csv && grep -q '^"init",1,scope,1,' a.csv || fail "$(cat a.csv)"
  grep -q '^   whole run (range) ' t.txt || fail "$(cat t.txt)"
  want 0 "$knet" run --timer csv=a.csv,out=t.txt,min=0 -- "$program" long
  for letter in a b c; do
    calls=$(tr -d '"' <a.csv | awk -F, -v end="$letter" 'length($1) > 2000 && $1 ~ end "$" {print $4}' | sort | tr '\n' ' ')
    [ "$calls" = '1 4 ' ] || fail "wide labels that end in $letter: $calls"
  done
  # Another tool has the ranges.
  want 0 env NVTX_INJECTION64_PATH=/none.so "$knet" run -- "$program"
  err_has '^knet run: NVTX_INJECTION64_PATH is "/none.so": NVTX ranges go to that tool, and the report has none; '
  err_has '^ no scope was opened$'
  want 0 env NVTX_INJECTION64_PATH="$lib/libknet_run.so" "$knet" run --timer out=t.txt -- "$program";  [ ! -s err ] || fail "$(cat err)"
  want 0 env NVTX_INJECTION64_PATH=/none.so "$knet" run --timer 0 -- "$program";                       [ ! -s err ] || fail "$(cat err)"
  want 0 "$knet" run --alloc help -- "$program";              want 0 env "$knet" run --help; out_has 'no child of fork'; out_has '\[OPTION\]... PROGRAM \[WORD\]...$'
  ;;
exits)   # the program's own, its signals and its streams too
  for code in 0 1 3 77 126 255; do want $code "$knet" run --timer out=/dev/null -- "$program" exit $code; done
  want 134 "$knet" run --timer out=/dev/null -- "$program" signal 6
  want 143 "$knet" run --timer out=/dev/null -- "$program" signal 15
  want 141 "$knet" run --timer out=/dev/null -- "$program" signal 13   # SIGPIPE, which the command itself ignores
  want 0 "$knet" run --timer 0 -- bash -c 'trap "echo caught" PIPE; kill -PIPE $$'; out_has '^caught$'
  want 0 "$knet" run --timer 0 -- cat <<<"through";           out_has '^through$'
  want 127 "$knet" run -- ./missing;                          err_has 'cannot run "./missing": No such file'
  want 127 "$knet" run -- '';                                 err_has 'cannot run "": No such file'
  echo >plain; want 126 "$knet" run -- ./plain;               err_has 'cannot run "./plain": Permission denied'
  want 2 "$knet" run;                                         err_has 'PROGRAM is missing'
  want 2 "$knet" run --time 1 -- true;                        err_has "did you mean '--timer'"
  # Words are read before the program runs.
  want 2 "$knet" run --timer gpuu,json=x -- echo ran;         [ ! -s out ] || fail 'the program ran'
  err_has 'run: --timer: "gpuu" is not a word of the timer; the words are 1, 0, '
  want 2 "$knet" run --timer 1,depth=1000 -- echo ran;        err_has '--timer: "depth=1000" has a value that does not fit: depth=N, levels'
  want 2 "$knet" run --alloc limt=8GiB -- echo ran;           [ ! -s out ] || fail 'the program ran'
  err_has 'run: --alloc: "limt=8GiB": there is no such word; the words are limit, .*, help$'
  want 2 "$knet" run --alloc "trace=$(printf %0600d 0)" -- echo ran;  err_has '--alloc: "trace=0*[.]*": it is too long: 606 characters; the most are 575$'
  want 2 "$knet" run --timer "trace=$(printf %0600d 0)" -- echo ran;  err_has '--timer: a word of 606 characters is too long; the most are [0-9]*$'
  want 2 "$knet" run --alloc trace=x,limit=8Gib -- echo ran;  err_has '--alloc: "limit=8Gib": limit=SIZE takes a number'
  want 2 env KNET_TIMER=cpuu "$knet" run -- echo ran;         [ ! -s out ] || fail 'the program ran'
  err_has '^knet run: KNET_TIMER: "cpuu" is not a word of the timer$'
  [ "$(tail -n 1 err)" = "Try 'knet run --help'." ] || fail 'a report of the command itself'
  echo kept >kept.json
  want 2 env KNET_TIMER=json=kept.json "$knet" run
  want 127 env KNET_TIMER=json=kept.json,steps=2- "$knet" run -- ./missing
  [ "$(cat kept.json)" = kept ] || fail 'a program that did not start has a report'
  [ "$(wc -l <err)" = 1 ] || fail "more than an error: $(cat err)"
  want 2 env KNET_ALLOC=limt=1 "$knet" run -- echo ran;       [ ! -s out ] || fail 'the program ran'
  err_has '^knet run: KNET_ALLOC: "limt=1": there is no such word$'
  want 0 env KNET_TIMER=cpuu KNET_ALLOC=limt=1 "$knet" run --timer 0 --alloc stats=s.txt -- echo ran;  out_has '^ran$'
  want 0 "$knet" run -- echo --timer --help;                  out_has '^--timer --help$'
  ;;
early)   # programs that end without destructors
  for how in _exit _Exit quick_exit; do
    want 5 "$knet" run --timer json=a.json,out=t.txt,min=0 -- "$program" leave $how
    grep -q '^ early ' t.txt && [ "$(rows a.json)" = early ] || fail "$how: $(cat t.txt)"
    [ $how != quick_exit ] || out_has '^quick$'
    rm t.txt a.json
  done
  want 0 "$knet" run -- "$program" leave child;               [ "$(grep -c '^ early ' err)" = 1 ] && grep -q '^ early  *2 ' err || fail "a child's table: $(cat err)"
  for i in {1..5}; do
    want 9 timeout 20 "$knet" run --timer out=t.txt -- "$program" leave $((20000 + 97 * i))
  done
  # A shell that ends by _exit, as dash does, and its programs, whose files are named.
  printf '#!/bin/sh\n"%s" leave _exit\n"%s" none\ntrue\n' "$program" "$program" >script
  chmod +x script
  want 0 "$knet" run --timer json=a.json,csv=a.csv,out=t.txt -- ./script
  [ -s a.json ] && [ -s a.csv ] && [ -s t.txt ] || fail "$(ls -l)"
  [ "$(wc -l <err)" = 1 ] || fail "more than a line: $(cat err)"
  err_has '^KNET_TIMER: t.txt is of the first process alone, without process [0-9]* \(nvtx_program\); put %p into the name for a file of each$'
  want 0 "$knet" run --timer json=%p.json,out=%p.txt -- ./script;  [ ! -s err ] || fail "$(cat err)"
  [ "$(ls [0-9]*.json | wc -l)" = 2 ] || fail "$(ls)"
  ;;
hard_exits)   # without destructors: on small stacks, of two threads, with a SIGALRM of the program
  exit_program=$(dirname "$program")/exit_program
  ends() { # WORD...
    rm -f t.txt
    want 5 timeout 60 "$knet" run --timer out=t.txt,min=0 -- "$exit_program" "$@"
    [ ! -s err ] && grep -q '^ early ' t.txt || fail "$*: $(cat err t.txt)"
  }
  for how in _exit _Exit quick_exit; do
    for where in handler alternate thread blocked timer; do ends $where $how; done
  done
  # A report that waits for the reader of a pipe.
  mkfifo pipe
  for both in '_exit _exit' '_exit exit' '_exit return' 'exit _exit' 'quick_exit _Exit' 'exit quick_exit'; do
    (sleep 0.6; timeout 20 cat pipe >t.txt) &
    want 5 timeout 20 "$knet" run --timer out=pipe,min=0 -- "$exit_program" both $both
    wait $!
    [ ! -s err ] && grep -q '^ early ' t.txt || fail "$both: $(cat err t.txt)"
  done
  for how in _exit _Exit quick_exit; do
    want 5 timeout 20 "$knet" run --timer out=pipe -- "$exit_program" handler $how
    err_has '^KNET_TIMER: the report was not written: it took more than 2 s after the exit in a signal handler, '
    [ "$(wc -l <err)" = 1 ] || fail "more than a line: $(cat err)"
  done
  ;;
words)   # after the program are the program's, as they are
  want 0 "$knet" run echo --timer --color never --json --help -h -- -x '' -;  out_has '^--timer --color never --json --help -h -- -x  -$'
  want 0 "$knet" run --timer=0 -- echo -- --help;             out_has '^-- --help$'
  want 0 "$knet" run --malloc --timer 0 echo a --help;        out_has '^a --help$'
  want 0 "$knet" run --timer 0 --help;                        out_has '^knet run \[OPTION\]... PROGRAM \[WORD\]...$'
  want 127 "$knet" run ./missing --json --color always;       [ ! -s out ] || fail 'the words are of the program'
  ! grep -q $'\e' err || fail 'a colour that nobody asked for'
  want 2 "$knet" run --timer 0 --jsn echo --json;             [ ! -s out ] || fail 'the words are of the program'
  want 0 "$knet" run --timer 0 bash -c 'echo $#' many $(seq 10000);  out_has '^10000$'
  ;;
paths)   # libraries in folders whose names contain separators of LD_PRELOAD and LD_LIBRARY_PATH
  mkdir plain
  cp "$lib/libknet_profiler.so.0" plain
  # Runs with the libraries in the folder, where the timer's, which is preloaded, has links to them.
  run_from() {
    local folder=$1 code=$2
    shift 2
    mkdir -p "$folder"
    cp "$lib"/libknet_{run,malloc}.so "$folder"
    ln -sf "$PWD/$folder"/libknet_{run,malloc}.so plain
    want "$code" env LD_PRELOAD="$PWD/plain/libknet_profiler.so.0" "$knet" run "$@"
  }
  for folder in 'a b' 'a;b'; do
    run_from "$folder" 0 --malloc --timer out=t.txt,min=0 -- "$program"
    [ ! -s err ] || fail "$folder: $(cat err)"
    grep -qE '^ outer.* 6 ' t.txt && grep -q '^ malloc: ' t.txt || fail "$folder: $(cat t.txt)"
    rm t.txt
  done
  LD_LIBRARY_PATH=$PWD/other run_from 'a b' 0 --timer 0 -- bash -c 'echo "$LD_PRELOAD"; echo "$LD_LIBRARY_PATH"'
  out_has "^libknet_run.so:$PWD/plain/libknet_profiler.so.0\$";  out_has "^$PWD/a b:$PWD/other\$"
  run_from a:b 1 -- "$program";    err_has "cannot preload from \"$PWD/a:b/libknet_run.so\": the path contains ':'"
  run_from 'a ;b' 1 -- "$program"; err_has "the path contains ';'"
  run_from c 1 --alloc stats -- "$program";  err_has '^knet run: --alloc: libknet_cudart.so is not beside libknet_profiler'
  rm plain/libknet_malloc.so
  want 1 env LD_PRELOAD="$PWD/plain/libknet_profiler.so.0" "$knet" run --malloc -- "$program"
  err_has '^knet run: --malloc: libknet_malloc.so is not beside libknet_profiler'
  [ ! -s out ] || fail 'the program ran without it'
  ;;
children)   # no table of a process without ranges; one of each that has some
  want 0 env KNET_TIMER=out=t.txt,events "$knet" run -- bash -c 'ls / >/dev/null; true | cat; true'
  [ "$(grep -c events err)" = 2 ] || fail "a word without effect is reported by knet and by the program, not by its children: $(cat err)"
  want 0 "$knet" run --timer out=t.txt -- bash -c 'ls / >/dev/null; true | cat; true'
  [ ! -s err ] || fail "a child printed: $(cat err)"
  [ "$(grep -c 'no scope was opened' t.txt)" = 1 ] || fail "$(cat t.txt)"
  want 0 "$knet" run -- bash -c "'$program' none; true"
  [ "$(grep -c 'no scope was opened' err)" = 1 ] || fail 'a table of a child'
  want 0 "$knet" run --timer out=t.txt,json=a.json,trace=a.trace -- "$program" spawn "$program" none
  [ ! -s err ] || fail "a child printed: $(cat err)"
  grep -q ' outer ' t.txt || fail 'the table of the program'
  size=$(stat -c %s a.trace)
  want 0 "$knet" run --timer out=%p.txt -- "$program" spawn "$program" exit 0
  [ "$(ls [0-9]*.txt | wc -l)" = 2 ] || fail "$(ls)"
  want 0 "$knet" run -- "$program" spawn "$program" exit 0
  [ "$(grep -c ' outer ' err)" = 2 ] || fail "two tables: $(cat err)"
  ;;
files)   # a child leaves the files of the first process alone
  want 0 "$knet" run --timer out=t.txt,json=a.json,trace=a.pftrace -- bash -c "(sleep 0.3; '$program'; touch ended) &"
  for i in {1..100}; do [ -e ended ] && break; sleep 0.1; done   # after the first process
  ! grep -q outer a.json || fail 'a child wrote the profile'
  err_has '^KNET_TIMER: t.txt is of the first process alone, without process [0-9]* \(nvtx_program\)'
  grep -q 'no scope was opened' t.txt || fail 'a child wrote the table'
  [ "$(wc -l <err)" = 1 ] || fail "$(cat err)"
  ;;
malloc)   # bytes and blocks of each range, exactly
  malloc_program=$(dirname "$program")/malloc_program
  has() {
    local got
    got=$(tr -d '"' <a.csv | awk -F, -v row="$1" 'NR == 1 {for (i = 1; i <= NF; i++) at[$i] = i}
      $1 == row {print $at["alloc_bytes"], $at["n_allocs"], $at["freed_bytes"], $at["held_bytes"], $at["rise_bytes"]}')
    [[ $got == $2 ]] || fail "$1: bytes, blocks, freed, held and rise are $got, not $2; $(cat a.csv)"
  }
  want 0 "$knet" run --malloc --timer csv=a.csv,json=a.json,out=t.txt,min=0 -- "$malloc_program"
  [ ! -s err ] || fail "$(cat err)"
  has simple '3000 3 3000 0 2000';      has kept '5000 1 0 5000 5000';        has zeros '96 1 96 0 96'
  has aligned '5092 5 5092 0 4096';     has texts '11 1 11 0 11';           has changed '20470 11 20470 0 10240'
  has 'taken over' '50 2 50 0 30';    has 'taken over/by another' '30 1 20 0 10'
  has whole '3100 2 3100 0 3000';    has foreign '0 0 0 0 0'
  [ "$(tr -d '"' <a.csv | awk -F, 'NR == 1 {for (i = 1; i <= NF; i++) at[$i] = i} $1 == "changed" {print $at["temporary_bytes"]}')" = 10240 ] || fail 'realloc makes temporaries'
  has failures '0 0 0 0 0';          has 'still there' '0 0 10 0 0'
  grep -qE '^ malloc: high-water mark [0-9.]+ [KM]?i?B[a-z]* live; now ' t.txt || fail "$(cat t.txt)"
  [ "$(json memory.pools.0.name a.json)" = malloc ] && [ "$(json memory.pools.0.live_bytes a.json)" = 5000 ] || fail "$(cat a.json)"
  [ "$(json memory.pools.0.live_bytes_max a.json)" = 15240 ] || fail "$(json memory.pools a.json)"
  want 0 "$knet" run --malloc --timer csv=a.csv,out=t.txt,min=0 -- "$malloc_program" threads
  has thread '614400 6400 614400 0 *'
  want 0 "$knet" run --malloc --timer csv=a.csv,out=t.txt,min=0 -- "$malloc_program" fork
  has parent '300 1 300 0 300'
  want 0 "$knet" run --malloc --timer csv=a.csv,trace=t.trace,trace_last=3,out=t.txt,min=0 -- "$malloc_program"
  has kept '5000 1 0 5000 5000'
  want 0 "$knet" run --malloc --timer json=a.json,trace=t.pftrace,every=10s,out=t.txt -- "$malloc_program"   # memory of the timer's threads
  [ "$(json memory.pools.0.live_bytes_max a.json)" = 15240 ] || fail "$(json memory.pools a.json)"
  want 0 "$knet" run --malloc --timer csv=a.csv,nomem,out=t.txt,min=0 -- "$malloc_program";  has simple '0 0 0 0 0'
  want 0 "$knet" run --malloc --timer 0 -- "$malloc_program"
  want 0 "$knet" run --timer csv=a.csv,out=t.txt,min=0 -- "$malloc_program";                 has simple '0 0 0 0 0'
  want 0 "$knet" run --timer 0 -- bash -c 'echo "$LD_PRELOAD"'; ! grep -q libknet_malloc out || fail 'without --malloc nothing is preloaded'
  ;;
malloc_others)   # programs of others, and other allocators
  malloc_program=$(dirname "$program")/malloc_program
  want 0 "$knet" run --malloc --timer out=t.txt -- bash -c 'sort <<<"b
a" | head -1; x=$(ls / | wc -l); true'; out_has '^a$'
  want 0 "$knet" run --malloc --timer out=t.txt -- "$program" spawn "$program" exit 0
  want 0 "$knet" run --malloc --timer 0 -- "$knet" run --malloc --timer out=u.txt -- "$malloc_program"
  want 0 "$knet" run --malloc --timer 0 -- "$malloc_program" errors
  if [ -x /usr/bin/python3 ]; then
    want 0 "$knet" run --malloc --timer out=t.txt -- /usr/bin/python3 -c 'import json, threading; print(len(json.dumps(list(range(100000)))))'
    out_has '^688890$'
    grep -q '^ malloc: ' t.txt || fail "$(cat t.txt)"
  fi
  for other in libjemalloc.so.2 libtcmalloc_minimal.so.4 libmimalloc.so.2; do
    library=$(/sbin/ldconfig -p | awk -v l="$other" '$1 == l && !n++ {print $NF}')
    [ -n "$library" ] || continue
    LD_PRELOAD=$library want 0 "$knet" run --malloc --timer csv=a.csv,out=t.txt -- "$malloc_program" threads
    grep -q '^"thread",.*,614400,6400,[0-9]*,614400,0,' a.csv || fail "$other: $(cat a.csv)"
    LD_PRELOAD=$library want 0 "$knet" run --malloc --timer 0 -- "$malloc_program" errors
  done
  ;;
sanitizers)   # programs that gcc built with one
  for kind in address thread leak; do
    sanitized=$(dirname "$program")/nvtx_program_$kind
    [ -x "$sanitized" ] || { echo "no $kind sanitizer"; exit 77; }
    library=''
    [ $kind != address ] || library=$(ldd "$sanitized" | awk '/libasan/ {print $3}')
    for malloc in '' --malloc; do
      want 0 env LD_PRELOAD="$library" ASAN_OPTIONS=detect_leaks=0 LSAN_OPTIONS=detect_leaks=0 "$knet" run $malloc --timer out=t.txt -- "$sanitized"
      grep -q '^ outer ' t.txt || fail "$kind $malloc: $(cat t.txt err)"
      rm t.txt
    done
  done
  asan=$(ldd "$(dirname "$program")/nvtx_program_address" | awk '/libasan/ {print $3}')
  math=$(ldd "$knet" | awk '/libm.so/ {print $3}')
  want 0 env LD_PRELOAD="$asan $math" ASAN_OPTIONS=detect_leaks=0 "$knet" run --timer 0 -- env;  out_has "^LD_PRELOAD=$asan:$lib/libknet_run.so $math\$"
  want 0 env LD_PRELOAD="$math" "$knet" run --timer 0 -- env;  out_has "^LD_PRELOAD=$lib/libknet_run.so:$math\$"
  ;;
nvtx_full)   # started ranges, marks, heaps, payloads
  full=$(dirname "$program")/nvtx_full_program
  want 0 timeout 60 "$knet" run --timer csv=a.csv,json=a.json,out=t.txt,min=0 -- "$full"
  [ ! -s err ] || fail "$(cat err)"
  calls() { local got; got=$(tr -d '"' <a.csv | awk -F, -v row="$1" '$1 == row {print $4}' | sort | paste -sd ' '); [ "$got" = "$2" ] || fail "$1: $got calls, not $2; $(cat a.csv)"; }
  bytes() {
    local got
    got=$(tr -d '"' <a.csv | awk -F, -v row="$1" 'NR == 1 {for (i = 1; i <= NF; i++) at[$i] = i}
      $1 == row {print $at["alloc_bytes"], $at["n_allocs"], $at["freed_bytes"], $at["held_bytes"], $at["rise_bytes"]}')
    [ "$got" = "$2" ] || fail "$1: bytes, blocks, freed, held and rise are $got, not $2"
  }
  calls started 1;             calls 'wide λ' 1;          calls pushed 1;                 calls mark 2
  calls 'of a domain' 1;       calls "domain's mark" 1;   calls 'after all' 1
  calls 'handed over' 1;       calls next 1;              calls 'still there' 1;            calls 'all reduce' '1 3'   # a range, and scopes
  bytes heap '2300 4 1600 0 1600';  bytes reset '64 1 700 64 64';  bytes again '500 2 500 0 300';  bytes many '3000 3000 3000 0 3000'
  [ "$(json memory.pools.1.name a.json)" = arena ] && [ "$(json memory.pools.1.live_bytes_max a.json)" = 3000 ] || fail "$(json memory.pools a.json)"
  [ "$(json memory.pools.2.name a.json)" = other ] && [ "$(json memory.pools.2.live_bytes a.json)" = 64 ] || fail "$(json memory.pools a.json)"
  want 0 timeout 60 "$knet" run --malloc --timer out=t.txt -- "$full"
  want 0 timeout 60 "$knet" run --timer out=t.txt,nomem -- "$full"
  want 0 timeout 60 "$knet" run --timer 0 -- "$full"
  ;;
nvtx_counters)   # numbers, groups, batches, and samples without a value
  counters=$(dirname "$program")/nvtx_counters_program
  [ -x "$counters" ] || { echo 'no nvToolsExtCounters.h'; exit 77; }
  want 0 timeout 60 "$knet" run --timer json=a.json,out=t.txt -- "$counters"
  [ ! -s err ] || fail "$(cat err)"
  line() { grep -qE "^   $1$" t.txt || fail "no line '$1': $(cat t.txt)"; }
  #                    samples first   last  min     max    mean
  line 'power \(W\) +    5 +   100 +     0 +-10 +   310 +  78';    line 'loss +2 +2.5 +0.25 +0.25 +2.5 +1.375'
  line 'held \(B\) +     2 +  2000 +  1500 +1500 + 2000 +1750';    line 'fill +2 +1 +0.2 +0.2 +1 +0.6'
  line 'node/gpu\[0\]/clock +1 +7 +7 +7 +7 +7';                    line 'clock of two +2 +8 +10 +8 +10 +9'
  line 'group/low \(u\) + 5 +   -1 +     2 +-3 +     2 + -1.2';      line 'group/ratio \(%\) +5 +0.5 +1 +0.5 +1.5 +1'
  line 'group/high \(u\) + 4 +65535 +     2 +1 +  65535 +32768.2'; line 'batch +3 +1 +6 +1 +6 +3'
  line 'shared +   64.0k +     0 +   999 +0 +    999 +499.5'
  grep -q 'power (W): 1 without a value; power (W): 3 outside 0 to 300; group/high (u): 1 without a value; 7 samples of no counter' t.txt ||
    fail "$(cat t.txt)"
  line 'extremes +2 +-9.223e\+18 +9.223e\+18 +-9.223e\+18 +9.223e\+18 +0'; line 'wide "\?" +1 +1.845e\+19 .*'; line 'never +0 +- +- +- +- +-'
  grep -q '"name":"extremes",.*"first":-9223372036854775808,"last":9223372036854775807,' a.json || fail 'exact numbers'
  grep -q '"name":"wide \\"?\\"",.*"max":18446744073709551615,' a.json || fail "exact numbers without a sign: $(grep wide a.json)"
  ! grep -q 'ignored' t.txt || fail 'a second counter of an id'
  ! grep -q 'when' t.txt || fail 'a time is a counter'
  [ "$(json counters.0.name a.json) $(json counters.0.unit a.json) $(json counters.0.n a.json)" = 'power W 5' ] || fail "$(cat a.json)"
  [ "$(json counters.0.limit_max a.json)" = 300 ] && [ "$(json samples_lost a.json)" = 7 ] || fail "$(cat a.json)"
  want 0 "$knet" report a.json --width 140;                   out_has '^   shared +64.0k +0 +999 +0 +999 +499.5$'
  want 0 "$knet" report a.json --format json; cp out b.json
  names() { grep -A20 '"counters"' "$1" | grep '"name"' | grep -vE 'extremes|wide'; }   # a double is what cJSON reads
  [ "$(names a.json)" = "$(names b.json)" ] || fail "$(cat b.json)"
  want 0 "$knet" report a.json a.json --width 140;            out_has '^   shared +128k +0 +999 +0 +999 +499.5$'
  want 0 "$knet" diff a.json a.json;                          out_has '^ counters that did not move: 14$'
  sed -E 's/"name":"power",(.*)"mean":78/"name":"power",\1"mean":90/; s/"name":"loss"/"name":"cost"/' a.json >c.json
  want 0 "$knet" diff a.json c.json;                          out_has '^   power \(W\) +78 +90 +\+15.4% +0 +0 +-$'
  out_has '^   cost +- +1.375 +new +- +0.25 +-$';             out_has '^   loss +1.375 +- +gone +0.25 +- +-$'
  want 1 "$knet" diff --counters a.json c.json;               want 0 "$knet" diff --counters a.json a.json
  want 1 "$knet" diff --counters --json a.json c.json;        [ "$(json n_counters_moved)" = 3 ] || fail 'the JSON of diff'
  want 0 "$knet" report a.json --format html;                 out_has '^\["power","W",5,1,-10,78,310,0\],$'
  want 0 "$knet" report a.json --flatten --format metrics;    out_has '^knet_counter_last\{counter="held",unit="B"\} 1500$'
  want 0 timeout 60 "$knet" run --timer out=t.txt -- "$counters" many
  line 'many 255 +1 +255 +255 +255 +255 +255';                grep -q '^ 3 more counters: there is room for 256; 3 samples of no counter' t.txt || fail "$(tail -5 t.txt)"
  want 0 timeout 60 "$knet" run --timer out=t.txt,json=a.json,events,html=a.html,metrics=a.prom -- "$counters" many 10000
  line 'many 255 +1 +255 +255 +255 +255 +255';                grep -q '^ 9744 more counters: there is room for 256; 9744 samples of no counter' t.txt || fail "$(tail -5 t.txt)"
  [ "$(grep -c '"ph":"C"' a.json)" = 256 ] || fail "samples of many counters: $(grep -c '"ph":"C"' a.json)"
  want 0 timeout 60 "$knet" run --timer trace=t.json,out=t.txt -- "$counters"
  grep -q '"ph":"C","cat":"counters","name":"group","pid":[0-9]*,"ts":[0-9.]*,"args":{"low (u)":-1,"ratio (%)":0.5,"high (u)":65535}}' t.json ||
    fail "a group is one event: $(grep group t.json)"
  grep -q '"ph":"C","cat":"counters","name":"group",.*"args":{"low (u)":-3,"ratio (%)":1.5}}' t.json || fail 'a part of a group'
  grep -q '"ph":"C","cat":"counter","name":"extremes",.*"args":{"value":9223372036854775807}}' t.json || fail 'exact numbers in the trace'
  [ "$(grep -c '"name":"shared","pid"' t.json)" = 64000 ] || fail 'samples of threads in the trace'
  want 0 "$knet" report t.json --width 140;                   out_has '^   shared +64.0k +0 +999 +0 +999 +499.5$'; out_has '^   group/ratio \(%\) +5 +0.5 +1 +0.5 +1.5 +1$'
  want 0 timeout 60 "$knet" run --timer out=%p.txt -- bash -c "'$counters' many; true"
  grep -q '^   many 255 ' [0-9]*.txt || fail 'a child with counters alone has a table'
  want 0 timeout 60 "$knet" run --timer 0 -- "$counters";     [ ! -s err ] || fail "$(cat err)"
  want 0 timeout 60 "$knet" run --malloc --timer out=t.txt -- "$counters";  line 'shared +64.0k .*'
  ;;
cudart)   # cudaMalloc of a program that knows nothing of pools
  cudart_program=$(dirname "$program")/cudart_program
  want 0 "$knet" run --timer 0 -- "$cudart_program" plain
  want 0 "$knet" run --timer 0 --alloc stats -- "$cudart_program" pools; err_has 'cuda:0'
  want 0 "$knet" run --timer 0 --alloc limit=16M -- "$cudart_program" limit
  want 0 "$knet" run --timer 0 --alloc stats -- "$cudart_program" no_driver
  for case in lost streams reset fork; do want 0 "$knet" run --timer 0 --alloc stats=s.txt -- "$cudart_program" $case; mv err err.$case; done
  grep -q '^knet: error: cuda:0 is lost to this process, restart the program: cuMemCreate.*700' err.lost || fail "$(cat err.lost)"
  [ ! -s err.streams ] && [ ! -s err.reset ] && [ ! -s err.fork ] || fail "$(cat err.streams err.reset err.fork)"
  want 0 "$knet" run --timer out=t.txt,json=a.json --alloc stats=s.txt -- "$cudart_program" pools
  grep -q 'cuda:0: high-water mark' t.txt && [ "$(json memory.pools.0.live_bytes a.json)" = 0 ] || fail "$(cat t.txt)"
  want 9 "$knet" run --timer 0 -- "$cudart_program" pools
  late=$(dirname "$program")/late_library # after the first call, in both orders
  runtime=("$late/libcudart.so" cudaMalloc cudaFree) driver=("$late/libcuda.so" cuMemAlloc_v2 cuMemFree_v2)
  for order in 'runtime driver' 'driver runtime'; do
    read -r a b <<<"$order"; declare -n first=$a second=$b
    want 0 "$knet" run --timer 0 --alloc stats=s.txt -- "${late%/*}/late_program" "${first[@]}" "${second[@]}"
    out_has '^cudaMalloc: 3 before, then 0, 0$'; out_has '^cuMemAlloc_v2: 3 before, then 0, 0$'
    unset -n first second
  done
  ;;
python)   # ranges of a script, under `knet run` and by itself
  python=/usr/bin/python3
  [ -x $python ] || { echo 'no python3'; exit 77; }
  export PYTHONPATH=$source_dir/tools/plugins/python PYTHONDONTWRITEBYTECODE=1
  cat >script.py <<'P'
import sys
import knetc

@knetc.scope("epoch")
def epoch(n):
    for i in range(n):
        with knetc.scope("load"):
            pass
        with knetc.scope("train"), knetc.scope("forward λ"):
            pass
        knetc.step()

epoch(3)
try:
    with knetc.scope("failing"):
        epoch(2)
        raise ValueError
except ValueError:
    pass
with knetc.scope("last"):
    print("done")
sys.exit(5)
P
  # A program that replaces this one has none of the timer's files open.
  cat >replaced.py <<'P'
import os
import knetc
with knetc.scope("here"):
    pass
os.execv("/bin/ls", ["ls", "-l", f"/proc/{os.getpid()}/fd"])
P
  want 0 env KNET_LIB="$lib" KNET_TIMER=out=t.txt,json=a.json,events $python replaced.py
  ! grep memfd out || fail 'a file of the timer is open'
  want 5 env KNET_LIB="$lib" "$knet" run --timer json=a.json,out=t.txt,min=0 -- $python script.py; out_has '^done$'
  grep -qE '^     forward λ +3 ' t.txt || fail "$(cat t.txt)"
  grep -qE '^ last +1 ' t.txt || fail 'a range that an exception left open'
  want 5 env KNET_LIB="$lib" KNET_TIMER=out=u.txt,min=0 $python script.py
  diff <(awk '/epoch|load|train|last|failing/{print $1, $2}' t.txt | sort) <(awk '/epoch|load|train|last|failing/{print $1, $2}' u.txt | sort)
  want 5 env KNET_LIB="$lib" $python script.py; [ ! -s err ] || fail 'the timer is off'
  want 1 env KNET_LIB="$lib" "$knet" run -- $python -c 'raise SystemExit("wrong")'; err_has '^wrong'
  ;;
esac
