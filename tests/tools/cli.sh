#!/usr/bin/env bash
# cli.sh KNET JSON_GET CASE [SANITIZERS]: runs the command as a user would, and checks exit code and messages.
set -euo pipefail
export LC_ALL=C.UTF-8   # for the patterns below
knet=$1 json_get=$2 case=$3
source "$(dirname "$0")/cli_checks.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset KNET_TIMER AUTOGRAD_TIMER
cd "$work"

err_is_empty() { [ ! -s err ] || fail "stderr should be empty"; }
small=(train mlp --synthetic --epochs 1)
case $case in
  help)
    want 0 "$knet" --help;            out_has 'train +train a model'; out_has 'Exit codes'
    want 0 "$knet" train --help;      out_has '--optimizer NAME'; out_has '--limit BYTES'
    want 0 "$knet" info --help;       out_has '--json'
    want 0 "$knet" models --help;     out_has '^knet models \[MODEL\] \[OPTION\]\.\.\.$'
    want 0 "$knet" top --help;        out_has '^knet top \[PID\] \[OPTION\]\.\.\.$'
    want 0 "$knet" --version;         out_has '^knet [0-9]+\.[0-9]+\.[0-9]+$'
    want 2 "$knet";                   err_has 'COMMAND is missing'; err_has 'Commands:' ;;
  unknown_words)
    want 2 "$knet" tran;                       err_has "unknown command 'tran'; did you mean 'train'"
    want 2 "$knet" train lent;                 err_has "unknown model 'lent'; did you mean 'lenet'"
    want 2 "$knet" models lent;                err_has "unknown model 'lent'; did you mean 'lenet'"
    want 2 "$knet" train xyz;                  err_has "unknown model 'xyz'; there are: .*mlp, lenet"
    want 2 "$knet" train;                      err_has 'MODEL is missing; there are: .*mlp, lenet'
    want 2 "$knet" train mlp lenet;            err_has "unexpected word 'lenet': MODEL is 'mlp' already"
    want 2 "$knet" train mlp --epoch 3;        err_has "unknown option '--epoch'; did you mean '--epochs'"
    want 2 "$knet" train mlp -q;               err_has "unknown option '-q'"
    want 2 "$knet" train mlp --math tf23;      err_has "unknown math 'tf23'; did you mean 'tf32'"
    want 2 "$knet" train mlp --optimizer adm;  err_has "unknown optimizer 'adm'; did you mean 'adam'"
    want 2 "$knet" train mlp --device tpu;     err_has 'tpu'
    for devices in cpu, ,cpu cpu,,cpu , ''; do
      want 2 "$knet" train mlp --synthetic --device "$devices"
      err_has "device '$devices': a name is empty"
    done
    want 2 "$knet" info mlp;                   err_has "unexpected word 'mlp'"
    want 2 "$knet" info --jsn;                 err_has "did you mean '--json'" ;;
  bad_values)
    want 2 "$knet" train mlp --epochs;         err_has '--epochs needs a value: --epochs N'
    want 2 "$knet" train mlp --epochs 0;       err_has "--epochs is '0', but must be a whole number from 1"
    want 2 "$knet" train mlp --epochs 2.5;     err_has "is '2.5'"
    want 2 "$knet" train mlp --batch 99999999999999999999; err_has 'must be a whole number'
    want 2 "$knet" train mlp --threads 5000;   err_has 'from 1 to 1024'
    want 2 "$knet" train mlp --lr fast;        err_has "--lr is 'fast', but must be a number above 0"
    want 2 "$knet" train mlp --schedule step;  err_has '--schedule step needs --lr-every: the epochs of each rate'
    want 2 "$knet" train mlp --lr-every 2;     err_has '--lr-every applies only with --schedule step'
    want 2 "$knet" train mlp --lr-end 0.1;     err_has '--lr-end applies only with --schedule linear, cosine or one-cycle'
    want 2 "$knet" train mlp --schedule one-cycle --warmup 3; err_has '--warmup does not apply to --schedule one-cycle'
    want 2 "$knet" train mlp --synthetic --schedule linear --warmup 300; err_has '--warmup 300: the training has 300 steps'
    want 2 "$knet" train mlp --optimizer record --clip-norm 1; err_has '--clip-norm does not apply to --optimizer record'
    want 2 "$knet" train mlp --optimizer record --clip-each 1; err_has '--clip-each does not apply to --optimizer record'
    want 2 "$knet" train mlp --lr nan;         err_has 'must be a number above 0'
    want 2 "$knet" train mlp --seed -1;        err_has 'must be a whole number from 0 to 18446744073709551615'
    want 2 "$knet" train mlp --seed 18446744073709551616; err_has "is '18446744073709551616', but must be a whole number from 0 to"
    want 2 "$knet" train mlp --limit 3XB;      err_has 'such as 512MiB'
    want 2 "$knet" train mlp --quiet=yes;      err_has '--quiet takes no value'
    want 2 "$knet" train mlp --synthetic --batch 20000; err_has 'batch 20000 of 1 rank: the data has only 12800 samples; set a smaller --batch$' ;;
  results)
    want 0 "$knet" "${small[@]}"
    err_is_empty
    out_has '^mlp: 50,890 parameters; 12,800 images, 100 batches of 128; adam, rate 0.001; cpu, '
    out_has '^epoch 1/1  loss [0-9.]+  test accuracy [0-9.]+ %  train [0-9.]+ s'
    out_has '^memory: at most [0-9.]+ [KM]iB live, [0-9.]+ [KMG]iB reserved'
    want 0 "$knet" "${small[@]}" --quiet
    err_is_empty
    [ "$(wc -l <out)" -eq 2 ] || fail 'quiet: two lines'
    want 0 "$knet" "${small[@]}" --json --lr=0.01 --optimizer sgd --limit 1GiB
    err_is_empty
    [ "$(json math)" = strict ] || fail 'math modes are strict'
    [ "$(json status)" = ok ] && [ "$(json steps)" = 100 ] && [ "$(json lr)" = 0.01 ] || fail 'values'
    json epochs.0.loss; json epochs.0.test_accuracy; json memory.live_bytes_max ;;
  threads)
    for threads in 1 2 3; do
      want 0 "$knet" "${small[@]}" --json --threads $threads
      { json epochs.0.loss; json epochs.0.test_accuracy; json weights_fnv1a; } >"$work/run.$threads"
    done
    cmp "$work/run.1" "$work/run.2" && cmp "$work/run.1" "$work/run.3" || fail 'results differ by threads'
    want 0 "$knet" "${small[@]}" --json --seed 2
    [ "$(json weights_fnv1a)" != "$(tail -n 1 "$work/run.1")" ] || fail 'the seed changes nothing'
    want 0 "$knet" "${small[@]}" --json --math strict # the CPU has one mode
    [ "$(json weights_fnv1a)" = "$(tail -n 1 "$work/run.1")" ] && [ "$(json math)" = strict ] || fail 'strict is not strict' ;;
  data)
    want 1 "$knet" train mlp --data /nonexistent/data
    err_has '/nonexistent/data: No such file.*dataset-fashion-mnist'
    touch "$work/file"
    want 1 "$knet" train mlp --data "$work/file";  err_has 'Not a directory'
    want 1 "$knet" train mlp --data "$work/file/set"; err_has 'Not a directory'
    as=() # nothing is closed to root: then as nobody, where that can run the command
    [ "$(id -u)" -ne 0 ] || as=(setpriv --reuid 65534 --regid 65534 --clear-groups)
    if "${as[@]}" "$knet" --version >/dev/null 2>&1; then
      chmod 755 "$work"; mkdir -m 000 "$work/closed"
      want 1 "${as[@]}" "$knet" train mlp --data "$work/closed"; err_has "$work/closed.*Permission denied"
    fi
    mkdir "$work/set"
    want 1 "$knet" train mlp --data "$work/set";   err_has 'neither train-images-idx3-ubyte nor'
    echo hello >"$work/set/train-images-idx3-ubyte.gz"
    want 1 "$knet" train mlp --data "$work/set";   err_has 'no file of labels'
    echo hello >"$work/set/train-labels-idx1-ubyte"
    want 1 "$knet" train mlp --data "$work/set";   err_has 'named .gz but not gzip'
    mv "$work/set/train-images-idx3-ubyte.gz" "$work/set/train-images-idx3-ubyte"
    want 1 "$knet" train mlp --data "$work/set";   err_has 'magic number 0x68656c6c'
    set_of() { # IMAGES LABEL: all of one kind
      local n k split
      n="\\0$(printf %o "$1")" k="\\0$(printf %o "$2")"
      for split in train t10k; do
        { printf %b "\0\0\010\03\0\0\0$n\0\0\0\034\0\0\0\034"; head -c $(($1 * 784)) /dev/zero; } >"$work/set/$split-images-idx3-ubyte"
        { printf %b "\0\0\010\01\0\0\0$n"; for _ in $(seq "$1"); do printf %b "$k"; done; } >"$work/set/$split-labels-idx1-ubyte"
      done
    }
    set_of 7 3 # fewer than a batch
    want 2 "$knet" train mlp --data "$work/set"
    tail -n 1 err | grep -q 'batch 128 of 1 rank: the data has only 7 samples' || fail 'the last line lacks the numbers'
    want 0 "$knet" train mlp --data "$work/set" --batch 7 --epochs 1 --json
    [ "$(json steps)" = 1 ] || fail "$(json steps) steps"
    set_of 1 3
    want 2 "$knet" train mlp --data "$work/set";   err_has 'the data has only 1 sample; set a smaller --batch$'
    want 0 "$knet" train mlp --data "$work/set" --batch 1 --epochs 1;  out_has '^mlp: .*; 1 image, 1 batch of 1; '
    set_of 7 11 # a class that no model has
    want 1 "$knet" train mlp --data "$work/set" --batch 4
    tail -n 1 err | grep -q 'training labels go up to 11, but the model mlp has 10 classes' || fail 'the last line lacks the label' ;;
  cuda_missing)
    [ ! -e /dev/nvidia0 ] || {  exit 77; }
    want 2 "$knet" train mlp --synthetic --device cuda;    err_has 'cuda.*(driver|GPU|device)'
    want 2 "$knet" train mlp --synthetic --device cuda:3;  err_has 'cuda' ;;
  out_of_memory)
    want 3 "$knet" train lenet --synthetic --limit 1MiB
    err_has 'out of memory|limit'
    want 3 "$knet" train lenet --synthetic --limit 12MiB --batch 256
    err_has 'limit'
    err_has 'conv|param|forward|load' ;; # who holds what
  timer_word)
    want 0 env KNET_TIMER=tabel "$knet" "${small[@]}"
    err_has 'tabel'
    out_has '^epoch 1/1' ;;
  timer_table)
    want 0 env KNET_TIMER=1 "$knet" "${small[@]}"
    for scope in 'read data|make data' load forward fc1 backward update evaluate; do err_has "$scope"; done ;;
  timer_unwritable)
    want 0 env KNET_TIMER=out=/nonexistent/report.txt "$knet" "${small[@]}"
    out_has '^epoch 1/1'
    err_has '/nonexistent/report.txt'
    err_has 'forward' ;; # the table itself, not lost
  stdout_unwritable)
    [ -e /dev/full ] || exit 77
    got=0
    "$knet" "${small[@]}" --json >/dev/full 2>err || got=$?
    : >out
    [ "$got" -eq 1 ] || fail "a full disk: exit code $got"
    err_has 'cannot write standard output: No space left'
    err_has '"weights_fnv1a"'
    got=0
    "$knet" models >/dev/full 2>err || got=$? # written line by line: the first failure is the reason
    [ "$got" -eq 1 ] || fail "models, a full disk: exit code $got"
    err_has 'cannot write standard output: No space left'
    got=0
    "$knet" "${small[@]}" >&- 2>err || got=$?
    [ "$got" -eq 1 ] || fail "a closed stdout: exit code $got"
    err_has '^epoch 1/1'
    # ThreadSanitizer writes a file of its own before the program starts.
    [ "${4:-}" != thread ] || exit 0
    got=$( (ulimit -f 0; "$knet" "${small[@]}" --json >"$work/limited") 2>&1 | cat >err; echo "${PIPESTATUS[0]}")
    [ "$got" -eq 1 ] || fail "a file that may not grow: exit code $got"
    err_has '"weights_fnv1a"' ;;
  reader_gone) # ends silently, as by SIGPIPE; files are written
    : >out
    statuses=$(KNET_TIMER="out=$work/table" "$knet" train mlp --synthetic --epochs 100000 2>err |
               head -n 1 >out; echo "${PIPESTATUS[*]}")
    [ "$statuses" = '141 0' ] || fail "exit codes $statuses, expected 141 and 0"
    out_has '^mlp: 50,890 parameters'
    err_is_empty
    grep -q backward "$work/table" || fail 'no table in the file'
    want 0 env KNET_TIMER="out=/dev/null,json=$work/a.json" "$knet" "${small[@]}" --quiet
    for arguments in "${small[*]}" "${small[*]} --json" "${small[*]} --quiet" info 'info --json' \
                     "report $work/a.json" "diff $work/a.json $work/a.json"; do
      exec 5> >(true)
      wait $! || true # the reader is gone; its code may be forgotten already
      got=0
      # shellcheck disable=SC2086  # arguments are words
      "$knet" $arguments >&5 2>err || got=$?
      exec 5>&-
      [ "$got" -eq 141 ] || fail "$arguments: exit code $got, expected 141"
      err_is_empty
    done ;;
  terminal) # the bar never wraps, so that it redraws in place
    command -v script >/dev/null || exit 77
    for columns in 40 80 200; do
      TERM=xterm script -qefc "stty cols $columns && exec '$knet' train lenet --synthetic --epochs 1 --batch 32 --threads 1" out \
             </dev/null >/dev/null 2>err || fail 'training on a terminal'
      tr '\r' '\n' <out | sed 's/\x1b\[K//g' | grep -E '%[],]' >"$work/bars" || fail 'no bar'
      widest=$(LC_ALL=C.UTF-8 wc -L <"$work/bars")
      [ "$widest" -lt "$columns" ] || fail "a bar of $widest columns on a terminal of $columns"
    done ;;
  interrupt) # by Ctrl-C, kill and a terminal that closes: the table and the files are written
    for signal in INT:130 TERM:143 HUP:129; do
      : >out
      KNET_TIMER="1,out=$work/table" "$knet" train mlp --synthetic --epochs 100000 >out 2>err &
      pid=$!
      for _ in $(seq 600); do
        grep -q '^epoch 1/' out && break
        kill -0 $pid 2>/dev/null || fail 'ended by itself'
        sleep 0.1
      done
      kill "-${signal%:*}" $pid
      got=0
      wait $pid || got=$?
      [ "$got" -eq "${signal#*:}" ] || fail "exit code $got, expected ${signal#*:}"
      out_has '^interrupted in epoch [0-9]+ after [0-9]+ steps'
      grep -q forward "$work/table" && grep -q backward "$work/table" || fail "$signal: no table"
      rm "$work/table"
    done ;;
  interrupt_twice) # the second Ctrl-C does not wait for the end of the step
    : >err
    "$knet" train lenet --synthetic --batch 12800 --threads 1 >out 2>err &
    pid=$!
    until grep -q '^lenet' out 2>/dev/null; do kill -0 $pid 2>/dev/null || break; sleep 0.05; done
    kill -INT $pid; sleep 0.1; kill -INT $pid
    got=0
    wait $pid || got=$?
    [ "$got" -eq 130 ] || fail "exit code $got, expected 130"
    ! grep -q interrupted out || fail 'it waited for the end of the step' ;;
  nohup)
    (trap '' HUP; exec "$knet" train mlp --synthetic --epochs 3 >out 2>err) &
    pid=$!
    until grep -q '^mlp' out 2>/dev/null; do kill -0 $pid 2>/dev/null || break; sleep 0.05; done
    kill -HUP $pid 2>/dev/null || true
    got=0
    wait $pid || got=$?
    [ "$got" -eq 0 ] || fail "exit code $got: what ignores hang-ups goes on"
    out_has '^epoch 3/3' ;;
  info)
    want 0 "$knet" info
    out_has '^Devices'; out_has '^  cpu '; out_has '^  zlib +[0-9.]+'
    want 0 "$knet" info --json
    [ "$(json devices.0.name)" = cpu ] || fail 'first device'
    json libraries.zlib ;;
  *) echo "no case '$case'"; exit 1 ;;
esac
