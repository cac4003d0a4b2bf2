#!/usr/bin/env bash
# checkpoint_cli.sh KNET JSON_GET CASE: knet train is killed or asked to end, and continues.
set -euo pipefail
knet=$1 json_get=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# shellcheck source=tests/tools/cli_checks.sh
source "$here/cli_checks.sh"
train=("$knet" train mlp --synthetic --epochs 4 --json)

whole() {
  want 0 "${train[@]}"
  json weights_fnv1a >whole
}
refused() { # OPTION PATH MESSAGE: before the first step
  want 1 timeout 60 "$knet" train mlp --synthetic --epochs 100000 "$1" "$2" --quiet
  err_has "$3"
}
same() { [ "$(json weights_fnv1a)" = "$(cat whole)" ] || fail "the weights differ from those of the whole run"; }

case $3 in
killed) # at any time, also while it saves
  whole
  kills=0
  for i in $(seq 1 60); do
    "${train[@]}" --checkpoint run.st --save-every 1 --keep 1 --resume >out 2>err &
    pid=$!
    sleep "0.$((RANDOM % 3))$((RANDOM % 10))"
    kill -9 "$pid" 2>/dev/null || true
    code=0
    wait "$pid" 2>/dev/null || code=$?
    [ "$code" -eq 0 ] && break
    [ "$code" -eq 137 ] || fail "exit code $code after kill -9"
    kills=$((kills + 1))
  done
  want 0 "${train[@]}" --checkpoint run.st --resume
  same
  [ "$kills" -gt 0 ] || fail "the run was never killed"
  ;;
signals)
  whole
  for signal in TERM USR1 INT HUP; do
    rm -f run.st
    "$knet" train mlp --synthetic --epochs 10000 --json --checkpoint run.st >out 2>err &
    pid=$!
    while kill -0 "$pid" 2>/dev/null && ! [ -s run.st ]; do sleep 0.02; done # the handlers are there
    kill -s "$signal" "$pid"
    code=0
    wait "$pid" || code=$?
    [ "$code" -eq $((128 + $(kill -l "$signal"))) ] || fail "exit code $code after SIG$signal"
    [ "$(json status)" = interrupted ] || fail "the status is $(json status)"
    steps=$(json steps)
    want 0 "$knet" train mlp --synthetic --epochs 1 --json --checkpoint run.st --resume
    [ "$(json resumed)" = "$steps" ] || fail "resumed after $(json resumed) steps, not $steps"
    want 0 "$knet" train mlp --synthetic --epochs 1 --checkpoint run.st --resume
    if [ "$steps" -gt 100 ]; then
      out_has '^nothing left to train: the checkpoint is in epoch [0-9]+, --epochs is 1$'
    fi
  done
  ;;
options)
  want 2 "$knet" train mlp --synthetic --resume
  err_has '--resume'
  want 2 "$knet" train mlp --synthetic --keep 2
  want 1 "$knet" train mlp --synthetic --epochs 1 --checkpoint /nowhere/run.st
  err_has '/nowhere/run.st.new: No such file'
  want 0 "$knet" train mlp --synthetic --epochs 1 --checkpoint run.st
  ! grep -q 'nothing left' out || fail "there was an epoch: $(cat out)"
  want 0 "$knet" train mlp --synthetic --epochs 1 --checkpoint run.st --resume
  out_has '^nothing left to train: the checkpoint is at the end of epoch 1, --epochs is 1$'
  want 1 "$knet" train lenet --synthetic --epochs 1 --checkpoint run.st --resume
  err_has "run.st has no tensor 'conv1.weight'"
  want 1 "$knet" train mlp --synthetic --epochs 2 --checkpoint run.st --resume --seed 2
  err_has "run.st is of seed 1; the loader's is 2"
  want 1 "$knet" train mlp --synthetic --checkpoint .
  err_has '. is a folder, not a file'
  for option in --cut=fc2 --micro=4; do
    want 2 "$knet" train mlp --synthetic "$option"
    err_has "${option%=*} applies only to several devices; --device names cpu"
  done
  head -c 1000 run.st >cut.st
  want 1 "$knet" train mlp --synthetic --epochs 1 --checkpoint cut.st --resume
  err_has 'cut.st: '
  ;;
resumed) # what is in effect, and what is reported
  want 0 "$knet" train mlp --synthetic --epochs 1 --lr 0.01 --checkpoint run.st --quiet
  cp run.st again.st
  want 0 "$knet" train mlp --synthetic --epochs 2 --checkpoint run.st --resume --json
  [ "$(json lr)" = 0.01 ] || fail "the rate is $(json lr)"
  json weights_fnv1a >whole
  want 0 "$knet" train mlp --synthetic --epochs 2 --lr 0.01 --checkpoint again.st --resume --json
  same
  want 0 "$knet" train mlp --synthetic --epochs 3 --checkpoint again.st --resume --json --lr 0.02
  json weights_fnv1a >whole
  want 0 "$knet" train mlp --synthetic --epochs 3 --checkpoint run.st --resume --lr 0.01 --json
  [ "$(json weights_fnv1a)" != "$(cat whole)" ] || fail 'another rate changes nothing'
  want 0 "$knet" train mlp --synthetic --epochs 3 --checkpoint run.st --resume
  out_has ', rate 0.01; '
  ;;
scheduled) # a run that is killed goes on in its schedule; every rule of an update trains
  train+=(--schedule cosine --warmup 7 --lr-end 0.0001 --clip-norm 1 --weight-decay 0.01)
  whole
  [ "$(json schedule)" = cosine ] || fail "the schedule is $(json schedule)"
  n=0
  until [ "$n" -ge 3 ]; do
    "${train[@]}" --checkpoint run.st --save-every 1 --resume >out 2>err &
    sleep "0.$((RANDOM % 3 + 1))"
    kill -9 $! 2>/dev/null || break
    wait $! 2>/dev/null || true
    n=$((n + 1))
  done
  want 0 "${train[@]}" --checkpoint run.st --resume
  same
  touch seen
  updates() { # OPTION...: an update of its own, which learns
    want 0 "$knet" train softmax --synthetic --epochs 2 --schedule one-cycle --json "$@"
    json epochs.1.loss >loss
    awk '{ exit !($1 < 0.9) }' loss || fail "$*: the loss is $(cat loss)"
    ! grep -qx "$(json weights_fnv1a)" seen || fail "$* changes nothing"
    json weights_fnv1a >>seen
  }
  updates --optimizer record
  for rule in sgd momentum nesterov adam lamb rmsprop adagrad adadelta; do
    updates --optimizer "$rule"
    updates --optimizer "$rule" --weight-decay 0.01
    updates --optimizer "$rule" --clip-norm 0.5
    updates --optimizer "$rule" --clip-each 0.3
  done
  want 0 "$knet" train softmax --synthetic --epochs 2 --schedule one-cycle --json --optimizer adamw
  json weights_fnv1a >whole
  want 0 "$knet" train softmax --synthetic --epochs 2 --schedule one-cycle --json --weight-decay 0.01
  same
  want 0 "$knet" train softmax --synthetic --epochs 2 --schedule step --lr-every 1 --json
  [ "$(json lr)" = 0.001 ] || fail "the rate is $(json lr)"
  want 0 "$knet" train softmax --synthetic --epochs 1 --schedule linear --warmup 5
  out_has ', rate 0.001, linear after 5 steps of warm-up; '
  ;;
paths) # no two options write one file
  conflict() { # MESSAGE ARGUMENTS
    want 2 timeout 60 "$knet" train mlp --synthetic --epochs 1 --quiet "${@:2}"
    err_has "$1"
  }
  want 0 "$knet" train mlp --synthetic --epochs 1 --quiet --checkpoint run
  cp run before
  mkdir sub
  ln -s ../run sub/link
  for output in run ./sub/../run sub/link "$PWD/run"; do
    conflict "--checkpoint and --output write one file, $PWD/run" --checkpoint run --output "$output" --json
  done
  ln -sf not_there dangling; ln -sf "$PWD/dangling" twice
  conflict "--checkpoint and --best write one file, $PWD/not_there" --checkpoint dangling --best not_there
  conflict "--checkpoint and --best write one file, $PWD/not_there" --checkpoint twice --best dangling
  conflict '--checkpoint and --output write one file' --checkpoint run --output run --json --device sim --metrics -
  conflict "--checkpoint and --output write one file, $PWD/run.2" --checkpoint sub/link --keep 2 --output run.2
  conflict "--checkpoint and --best write one file, $PWD/run.1" --checkpoint run --keep 1 --best run.1
  conflict "--checkpoint and --best write one file, $PWD/run" --checkpoint run.new --best run
  conflict "--best and --metrics write one file, $PWD/best.new" --best best --metrics best.new
  conflict "--checkpoint and --metrics write one file, $PWD/run.new" --checkpoint run --metrics run.new
  conflict "--checkpoint and --curves write one file, $PWD/run" --checkpoint run --curves run
  conflict "--metrics and --curves write one file, $PWD/x.svg" --metrics x.svg --curves x.svg
  conflict "--metrics and --output write one file, $PWD/m-0" --metrics m-0 --output m-%r
  cmp run before || fail 'the checkpoint was changed'
  for option in --checkpoint --metrics --curves; do
    conflict "$option - is no file: standard output has the result" $option -
  done
  [ ! -e ./- ] || fail 'a file is named -'
  [ ! -e x.svg ] || fail 'a run that never began left a file'
  want 0 "$knet" train mlp --synthetic --epochs 1 --quiet --metrics /dev/null --curves /dev/null --output /dev/null
  want 0 "$knet" train mlp --synthetic --epochs 1 --quiet --checkpoint run --keep 1 --output run.2
  ;;
pipes) # without a reader they wait for one, until a signal comes
  mkfifo pipe
  small=("$knet" train mlp --synthetic --epochs 1 --batch 1280 --quiet)
  want 124 timeout -k 60 -s INT 2 "${small[@]}" --metrics pipe
  want 129 timeout --preserve-status -k 60 -s HUP 2 "${small[@]}" --curves pipe
  want 124 timeout -k 60 -s TERM 2 "${small[@]}" --output pipe
  err_has 'cannot write pipe: this pipe has no reader$'
  want 0 "${small[@]}" --checkpoint run.st
  want 124 timeout -k 60 2 "$knet" train mlp --synthetic --epochs 2 --batch 1280 --quiet --checkpoint run.st --resume --curves pipe
  exec 5<>pipe
  want 0 timeout 60 "${small[@]}" --epochs 2 --metrics pipe
  head -n 2 <&5 >out
  [ "$(json epoch <(tail -n 1 out))" = 2 ] || fail 'the second epoch of the metrics'
  exec 5>&-
  mkfifo pipe.csv
  timeout 60 cat pipe.csv >lines & # one reader, up to the end of the training
  want 0 timeout 60 "${small[@]}" --epochs 3 --metrics pipe.csv
  wait $!
  [ "$(cut -d, -f1 lines | tr '\n' ' ')" = 'epoch 1 2 3 ' ] || fail "$(cat lines)"
  timeout 60 cat pipe >c.svg & # a picture of all epochs, once
  want 0 timeout 60 "${small[@]}" --epochs 5 --curves pipe
  wait $!
  [ "$(grep -c '<svg' c.svg)" = 1 ] && [ "$(grep -c '<!-- epoch' c.svg)" = 5 ] || fail "$(cat c.svg)"
  "${small[@]}" --epochs 5 --curves /dev/stdout | cat >c.svg
  [ "$(grep -c '<svg' c.svg)" = 1 ] || fail "$(cat c.svg)"
  timeout 60 head -n 1 pipe >lines &
  want 1 timeout 60 "${small[@]}" --epochs 100 --metrics pipe --json
  wait $!
  err_has 'pipe: the reader of this pipe has gone'
  err_has 'pipe is not complete: the reader of this pipe has gone'
  [ "$(json epochs.99.epoch)" = 100 ] || fail "$(cat out)"
  (sleep 2; exec cat pipe) >late &
  want 0 timeout 60 "${small[@]}" --json --output pipe
  wait $!
  [ "$(json status late)" = ok ] || fail "$(cat late)"
  for report in KNET_TIMER=json=pipe KNET_TIMER=out=pipe KNET_ALLOC=stats=pipe; do # at exit
    env "$report" "${small[@]}" --json >out 2>err &
    pid=$!
    while kill -0 "$pid" 2>/dev/null && ! [ -s out ]; do sleep 0.02; done
    for _ in $(seq 100); do
      kill -s TERM "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || true
    code=0
    wait "$pid" || code=$?
    [ "$code" -eq 143 ] || fail "exit code $code after SIGTERM with $report"
  done
  ;;
metrics)
  want 0 "$knet" train mlp --synthetic --epochs 2 --metrics m.jsonl --quiet
  want 0 "$knet" train mlp --synthetic --epochs 1 --metrics m.jsonl --quiet
  [ "$(wc -l <m.jsonl)" -eq 3 ] || fail "$(cat m.jsonl)"
  tail -n 1 m.jsonl >last
  [ "$(json epoch last)" = 1 ] || fail "$(cat last)"
  json test_loss last >/dev/null
  want 0 "$knet" train mlp --synthetic --epochs 2 --metrics m.csv --quiet
  want 0 "$knet" train mlp --synthetic --epochs 1 --metrics m.csv --quiet
  [ "$(head -n 1 m.csv)" = epoch,loss,test_accuracy,test_loss,train_seconds,test_seconds ] || fail "$(cat m.csv)"
  [ "$(cut -d, -f1 m.csv | tr '\n' ' ')" = 'epoch 1 2 1 ' ] || fail "$(cat m.csv)"
  printf '{"epoch":2,"lo' >>m.jsonl # of a run that was killed
  want 0 "$knet" train mlp --synthetic --epochs 1 --metrics m.jsonl --quiet
  tail -n 1 m.jsonl >last
  [ "$(json epoch last)" = 1 ] || fail "$(cat m.jsonl)"
  # epochs that a checkpoint doesn't have are trained again
  for file in r.jsonl r.csv; do
    want 0 "$knet" train mlp --synthetic --epochs 2 --checkpoint r.st --metrics $file --quiet
    cp r.st before.st
    want 0 "$knet" train mlp --synthetic --epochs 3 --checkpoint r.st --metrics $file --quiet --resume
    cp before.st r.st
    want 0 "$knet" train mlp --synthetic --epochs 4 --checkpoint r.st --metrics $file --quiet --resume
    [ "$(sed 's/{"epoch"://; s/,.*//' $file | tr '\n' ' ' | sed 's/epoch //')" = '1 2 3 4 ' ] || fail "$(cat $file)"
  done
  want 0 "$knet" train mlp --synthetic --epochs 2 --checkpoint i.st --metrics i.csv --quiet
  want 0 "$knet" train mlp --synthetic --epochs 3 --checkpoint i.st --metrics i.csv --quiet --resume --save-every 70 --keep 1
  mv i.st.1 i.st # saved inside epoch 3
  want 0 "$knet" train mlp --synthetic --epochs 3 --checkpoint i.st --metrics i.csv --quiet --resume
  [ "$(tail -n +2 i.csv | cut -d, -f1 | tr '\n' ' ')" = '1 2 3 ' ] || fail "$(cat i.csv)"
  # also the first one; a run without a checkpoint leaves what one does that is killed before it saves
  for file in f.jsonl f.csv; do
    want 0 "$knet" train softmax --synthetic --epochs 1 --seed 2 --metrics $file --quiet
    want 0 "$knet" train softmax --synthetic --epochs 1 --metrics $file --quiet
    rm -f f.st
    want 0 "$knet" train softmax --synthetic --epochs 2 --metrics $file --quiet --checkpoint f.st --resume
    [ "$(sed 's/{"epoch"://; s/,.*//' $file | tr '\n' ' ' | sed 's/epoch //')" = '1 1 2 ' ] || fail "$(cat $file)"
    rm f.st
    want 0 "$knet" train softmax --synthetic --epochs 1 --metrics $file --quiet --checkpoint f.st --resume
    [ "$(sed 's/{"epoch"://; s/,.*//' $file | tr '\n' ' ' | sed 's/epoch //')" = '1 1 2 1 ' ] || fail "$(cat $file)"
  done
  # lines of other runs stay, whatever the number of their epochs
  for epochs in 2 3; do
    for seed in 1 2 3; do
      want 0 "$knet" train softmax --synthetic --epochs $epochs --seed $seed --checkpoint p$seed.st --resume --metrics s.csv --quiet
    done
  done
  [ "$(tail -n +2 s.csv | cut -d, -f1 | tr '\n' ' ')" = '1 2 1 2 1 2 3 3 3 ' ] || fail "$(cat s.csv)"
  want 0 "$knet" train softmax --synthetic --epochs 4 --seed 1 --metrics s.csv --quiet
  want 0 "$knet" train softmax --synthetic --epochs 4 --seed 2 --checkpoint p2.st --resume --metrics s.csv --quiet
  [ "$(tail -n 5 s.csv | cut -d, -f1 | tr '\n' ' ')" = '1 2 3 4 4 ' ] || fail "$(cat s.csv)"
  for option in --metrics --curves; do # the training goes on, but what is lost is a failure
    want 1 "$knet" train softmax --synthetic --epochs 2 $option /dev/full --checkpoint full.st --json
    err_has '/dev/full is not complete: No space left on device'
    [ "$(grep -c '/dev/full: No space left on device' err)" = 1 ] || fail "$option: not one warning: $(cat err)"
    [ "$(json status)" = failed ] && [ "$(json epochs.1.epoch)" = 2 ] || fail "$(cat out)"
    [ -s full.st ] || fail 'the training was not saved'
    rm full.st
  done
  (ulimit -f 1; want 1 "$knet" train softmax --synthetic --epochs 30 --metrics small.csv --curves small.svg --quiet)
  for file in small.csv small.svg; do
    [ "$(grep -c "$file: File too large" err)" = 1 ] || fail "$file: not one warning: $(cat err)"
  done
  refused --metrics /nowhere/m.csv '/nowhere/m.csv: No such file'
  refused --metrics . '\.: Is a directory'
  want 2 "$knet" train mlp --synthetic --metrics new.csv --device cuda:99
  [ ! -e new.csv ] || fail 'a run that never began left a file'
  ;;
tensorboard)
  python=$(command -v python3) || exit 77
  want 0 "$knet" train mlp --synthetic --epochs 3 --tensorboard runs --metrics m.jsonl --quiet
  want 0 "$python" "$here/events.py" runs m.jsonl
  printf '\001' | dd of="$(echo runs/events.*)" bs=1 seek=150 conv=notrunc 2>/dev/null
  want 1 "$python" "$here/events.py" runs m.jsonl
  want 1 "$knet" train lenet --data /nowhere --tensorboard none
  [ -z "$(ls none)" ] || fail 'a run that never began left an event file'
  refused --tensorboard m.jsonl/runs 'm.jsonl/runs: Not a directory'
  refused --tensorboard /sys/none/runs '/sys/none/runs: (Permission denied|Operation not permitted|Read-only)' # nobody's to change
  want 0 "$knet" train mlp --synthetic --epochs 1 --tensorboard new/folder/runs --quiet
  [ -s "$(echo new/folder/runs/events.*)" ] || fail 'no event file'
  ;;
curves)
  python=$(command -v python3) || exit 77
  want 0 "$knet" train mlp --synthetic --epochs 2 --curves c.svg --quiet --checkpoint run.st
  want 0 "$knet" train mlp --synthetic --epochs 3 --curves c.svg --quiet --checkpoint run.st --resume
  want 0 "$python" - <<'PY'
import xml.etree.ElementTree as tree
svg = "{http://www.w3.org/2000/svg}"
root = tree.parse("c.svg").getroot()
lines = [p.get("points").split() for p in root.iter(svg + "polyline")]
assert [len(points) for points in lines] == [3, 3, 3], lines
falling = [float(point.split(",")[1]) for point in lines[0]]
assert falling == sorted(falling), "the training loss falls: y grows"
for points in lines:
    assert all(0 <= float(v) <= 640 for point in points for v in point.split(",")), points
words = {t.text for t in root.iter(svg + "text")}
assert {"loss", "accuracy", "training", "test", "1", "2", "3"} <= words, words
PY
  # Of a run that is killed, the file has all epochs that the metrics have.
  "$knet" train softmax --synthetic --epochs 100000 --batch 2560 --quiet --checkpoint k.st --curves k.svg --metrics k.csv >out 2>err &
  pid=$!
  until grep -q '^300,' k.csv 2>/dev/null; do kill -0 $pid || fail "ended: $(cat err)"; sleep 0.02; done
  kill -9 $pid
  wait $pid 2>/dev/null || true
  want 0 "$python" -c 'import xml.etree.ElementTree as tree; tree.parse("k.svg")'
  n=$(tail -n 1 k.csv | cut -d, -f1)
  want 0 "$knet" train softmax --synthetic --epochs $((n + 2)) --batch 2560 --quiet --checkpoint k.st --resume --curves k.svg --metrics k.csv
  sed -n 's/^<!-- epoch \([0-9]*\) .*/\1/p' k.svg | cmp - <(seq $((n + 2))) || fail "of $((n + 2)) epochs the curves have others"
  refused --curves /nowhere/c.svg '/nowhere/c.svg: No such file'
  ;;
rate)
  for method in hyperband golden; do
    want 0 "$knet" train softmax --synthetic --epochs 1 --lr 10 --find-rate "$method" --json
    found=$(json lr)
    awk -v r="$found" 'BEGIN { exit !(r >= 0.05 && r < 2) }' || fail "$method found the rate $found"
  done
  json weights_fnv1a >whole
  want 0 "$knet" train softmax --synthetic --epochs 1 --lr "$found" --json
  same # as without the search
  want 0 "$knet" train softmax --synthetic --epochs 1 --find-rate golden
  out_has '^rate 0.0[0-9]*: loss [0-9.]* after 100 steps$'
  # Epochs of 64 steps end no search later.
  want 0 "$knet" train softmax --synthetic --epochs 1 --find-rate golden --batch 200
  [ "$(grep -c ' after 100 steps$' out)" = 10 ] || fail "not 10 trainings of 100 steps: $(cat out)"
  want 0 "$knet" train softmax --synthetic --epochs 1 --find-rate hyperband --batch 200
  [ "$(grep -o ' after .* steps$' out | sort -u | tr '\n' ,)" = ' after 180 steps, after 20 steps, after 60 steps,' ] ||
    fail "other numbers of steps: $(cat out)"
  # The search trains as the run does: with accumulated batches, and f16 by a scaled loss.
  want 0 "$knet" train softmax --synthetic --epochs 1 --optimizer sgd --find-rate golden --batch 128 --json
  found=$(json lr)
  want 0 "$knet" train softmax --synthetic --epochs 1 --optimizer sgd --find-rate golden --batch 16 --accumulate 8 --json
  [ "$(json lr)" = "$found" ] || fail "the rate is $(json lr), of whole batches $found"
  want 0 "$knet" train mlp --synthetic --epochs 20 --optimizer sgd --find-rate golden --batch 2560 --dtype f16
  [ "$(sed -n 's/^rate .*loss \([0-9.]*\).*/\1/p' out | sort -g | head -n 1)" = "$(sed -n 's/^epoch 20.*  loss \([0-9.]*\).*/\1/p' out)" ] ||
    fail 'the training has another loss than its search'
  want 2 "$knet" train softmax --synthetic --find-rate golden --checkpoint run.st
  for signal in TERM INT; do
    "$knet" train vgg_cifar --synthetic --find-rate golden --json >out 2>err &
    pid=$!
    sleep 1 # the first of its trainings takes longer
    kill -s "$signal" "$pid"
    code=0
    wait "$pid" || code=$?
    [ "$code" -eq $((128 + $(kill -l "$signal"))) ] || fail "exit code $code after SIG$signal"
    [ "$(json status)" = interrupted ] || fail "the status is $(json status)"
  done
  # 128 images of class 11, of a model of ten classes
  mkdir idx
  { printf '\0\0\10\3\0\0\0\200\0\0\0\34\0\0\0\34'; head -c $((128 * 784)) /dev/zero; } >idx/train-images-idx3-ubyte
  { printf '\0\0\10\1\0\0\0\200'; head -c 128 /dev/zero | tr '\0' '\13'; } >idx/train-labels-idx1-ubyte
  want 2 "$knet" train softmax --data idx --find-rate golden
  err_has 'training labels go up to 11, but the model softmax has 10 classes'
  ;;
averages) # of the weights, and the scale of the loss
  train+=(--ema 0.98 --loss-scale)
  whole
  want 0 "$knet" train mlp --synthetic --epochs 2 --json --ema 0.98 --loss-scale --checkpoint run.st
  grep -aq '"ema/fc1.weight"' run.st || fail "no averages in the checkpoint"
  loss=$(json epochs.1.test_loss)
  want 0 "$knet" eval mlp --synthetic --weights run.st --json
  [ "$(json loss)" = "$loss" ] && [ "$(json averaged)" = true ] || fail "loss $(json loss), in training $loss"
  want 0 "$knet" eval mlp --synthetic --weights run.st
  out_has '  \(averaged weights\)$'
  want 0 "$knet" predict mlp --synthetic --weights run.st --count 1 --json
  [ "$(json averaged)" = true ] || fail "$(cat out)"
  want 0 "${train[@]}" --checkpoint run.st --resume
  same
  mv out averaged
  want 0 "$knet" train mlp --synthetic --epochs 4 --json
  same # averages and scales by powers of two change no step
  [ "$(json epochs.3.test_loss)" != "$(json epochs.1.test_loss averaged)" ] || fail "the averages were not tested"
  want 1 "$knet" train mlp --synthetic --epochs 5 --json --checkpoint run.st --resume --ema 0.98 --loss-scale --optimizer sgd
  err_has 'run.st has the state of adam; the optimiser is sgd: resume with the optimiser of the first run \(--optimizer\)$'
  want 1 "$knet" train mlp --synthetic --epochs 5 --json --checkpoint run.st --resume --ema 0.95 --loss-scale
  err_has 'run.st is of a run with averages of decay 0.98; .* is 0.95: resume with that of the first run \(--ema\)$'
  cp run.st before.st
  want 1 "$knet" train mlp --synthetic --epochs 5 --json --checkpoint run.st --resume --loss-scale
  err_has 'run.st has averages of the weights, which this run would lose'
  want 1 "$knet" train mlp --synthetic --epochs 5 --json --checkpoint run.st --resume --ema 0.98
  err_has 'run.st has a loss scale, which this run would lose'
  cmp run.st before.st || fail 'a refused file was changed'
  want 0 "$knet" train mlp --synthetic --epochs 1 --json --checkpoint plain.st
  want 1 "$knet" train mlp --synthetic --epochs 2 --json --checkpoint plain.st --resume --ema 0.98
  err_has 'plain.st has no averages of the weights: it is of a run without them \(--ema\)$'
  want 1 "$knet" train lenet --synthetic --epochs 2 --json --checkpoint plain.st --resume --ema 0.98
  err_has "plain.st has no tensor 'conv1.weight'"
  want 0 "$knet" train char_lstm --synthetic --epochs 1 --json --checkpoint rmsprop.st --optimizer rmsprop
  want 1 "$knet" train char_lstm --synthetic --epochs 2 --json --checkpoint rmsprop.st --resume --optimizer record
  err_has 'with rho 0.9; .* is 0.95: resume with the rho of the first run \(--optimizer\)$'
  want 1 "$knet" train mlp --synthetic --epochs 2 --json --checkpoint plain.st --resume --clip-norm 2
  err_has 'with clip_norm 0; .* is 2: resume with the clip_norm of the first run \(--clip-norm or --optimizer\)$'
  want 1 "$knet" train mlp --synthetic --epochs 2 --json --checkpoint plain.st --resume --clip-each 2
  err_has 'with clip_each 0; .* is 2: resume with the clip_each of the first run \(--clip-each or --optimizer\)$'
  want 2 "$knet" train mlp --synthetic --ema 1
  err_has 'the decay is in'
  ;;
data) # of as many samples, but not the same
  class_of() { # FOLDER CLASS: 256 black images of it
    mkdir "$1"
    for split in train t10k; do
      { printf '\0\0\10\3\0\0\1\0\0\0\0\34\0\0\0\34'; head -c $((256 * 784)) /dev/zero; } >"$1/$split-images-idx3-ubyte"
      { printf '\0\0\10\1\0\0\1\0'; head -c 256 /dev/zero | tr '\0' "\\$2"; } >"$1/$split-labels-idx1-ubyte"
    done
  }
  class_of ones 1
  class_of twos 2
  want 0 "$knet" train softmax --data ones --epochs 1 --quiet --checkpoint run.st
  want 0 "$knet" train softmax --data ones --epochs 2 --quiet --checkpoint run.st --resume
  [ ! -s err ] || fail "the same data: $(cat err)"
  want 0 "$knet" train softmax --data twos --epochs 3 --quiet --checkpoint run.st --resume
  err_has '^knet train: run.st was trained on other data, with as many samples; this run continues on twos$'
  want 0 "$knet" train softmax --data twos --epochs 4 --quiet --checkpoint run.st --resume
  [ ! -s err ] || fail "the same data: $(cat err)"
  sed 's/knet.data_hash/knet.data_hush/' run.st >older.st # those of older versions have no hash
  want 0 "$knet" train softmax --data ones --epochs 5 --quiet --checkpoint older.st --resume
  [ ! -s err ] || fail "of an older version: $(cat err)"
  ;;
loader) # a thread that prefetches changes nothing; augmentation does
  train+=(--epochs 2)
  whole
  want 0 "${train[@]}" --prefetch
  same
  want 0 "${train[@]}" --augment
  [ "$(json weights_fnv1a)" != "$(cat whole)" ] || fail "augmentation changed nothing"
  json weights_fnv1a >whole
  want 0 "${train[@]}" --augment --prefetch
  same
  ;;
prefetch) # the two threads at work; loader compares their results
  want 0 "$knet" train mlp --synthetic --epochs 1 --augment --prefetch
  out_has '^epoch 1/1 '
  ;;
stops)
  want 0 "$knet" train mlp --synthetic --epochs 60 --lr 0.05 --patience 2
  out_has 'stopped: no better loss in 2 epochs'
  want 1 "$knet" train mlp --synthetic --epochs 1 --lr 1e10 --optimizer sgd
  err_has 'the loss of step 3 is NaN; try a smaller learning rate: .*the result of linear in fc[12] has'
  want 0 "$knet" train mlp --synthetic --epochs 1 --batch 32 --accumulate 4 --json
  [ "$(json steps)" = 100 ] || fail "$(cat out)"
  ;;
best) # killed at any time it has the best epoch so far; in the end the best of all
  train=("$knet" train mlp --synthetic --epochs 12 --batch 32 --lr 0.05 --json)
  want 0 "${train[@]}" --metrics all.csv --best whole.st
  least=$(awk -F, 'NR == 2 || (NR > 2 && $4 < least) { least = $4 } END { print least }' all.csv)
  [ "$(tail -n 1 all.csv | cut -d, -f 4)" != "$least" ] || fail 'the last epoch is the best'
  kills=0
  for i in $(seq 1 60); do
    "${train[@]}" --checkpoint run.st --resume --best best.st >out 2>err &
    pid=$!
    sleep "0.$((RANDOM % 4))$((RANDOM % 10))"
    kill -9 "$pid" 2>/dev/null || true
    code=0
    wait "$pid" 2>/dev/null || code=$?
    [ "$code" -eq 0 ] && break
    [ "$code" -eq 137 ] || fail "exit code $code after kill -9"
    kills=$((kills + 1))
    [ ! -e best.st ] || want 0 "$knet" eval mlp --synthetic --weights best.st
  done
  want 0 "${train[@]}" --checkpoint run.st --resume --best best.st
  cmp best.st whole.st || fail 'the best of a killed run differs from that of a whole one'
  want 0 "$knet" eval mlp --synthetic --weights best.st --json
  awk -v a="$(json loss)" -v b="$least" 'BEGIN { d = a - b; exit !(d * d < 1e-16) }' || fail "loss $(json loss), not $least"
  [ "$kills" -gt 0 ] || fail "the run was never killed"
  want 0 "${train[@]}" --checkpoint run.st --resume --best best.st
  ! grep -q 'best epoch' err || fail 'a run warns of its own file'
  want 0 "${train[@]}" --checkpoint run.st --resume --best none.st
  err_has 'warning: none.st does not have the best epoch so far, of loss'
  want 1 "$knet" train mlp --synthetic --epochs 1 --checkpoint best.st --resume --batch 32
  err_has 'best.st has .*no '
  want 1 timeout 60 "$knet" train mlp --synthetic --epochs 100000 --best /dev/null --quiet
  err_has '/dev/null is a device'
  want 0 "$knet" train mlp --synthetic --epochs 2 --patience 1 --best best.st
  ;;
eval)
  want 0 "$knet" train mlp --synthetic --epochs 1 --checkpoint run.st --json
  trained=$(json epochs.0.test_accuracy)
  loss=$(json epochs.0.test_loss)
  want 0 "$knet" eval mlp --synthetic --weights run.st --json
  [ "$(json accuracy)" = "$trained" ] || fail "accuracy $(json accuracy), in training $trained"
  [ "$(json loss)" = "$loss" ] || fail "loss $(json loss), in training $loss"
  want 0 "$knet" eval mlp --synthetic --weights run.st
  out_has '^mlp: 2,560 test images; loss [0-9.]*  accuracy [0-9.]* %$'
  want 0 "$knet" predict mlp --synthetic --weights run.st --count 130
  [ "$(wc -l <out)" -eq 131 ] || fail "$(wc -l <out) lines"
  out_has '^129,9,9,0\.[0-9]*$'
  want 0 "$knet" predict mlp --synthetic --weights run.st --count 2 --json
  [ "$(json predictions.1.label)" = 1 ] || fail "$(cat out)"
  want 1 "$knet" train mlp --synthetic --epochs 1 --batch 4 --lr 1e18 --optimizer sgd --checkpoint nan.st --save-every 1
  for command in eval predict; do # no class is as good as another
    want 1 "$knet" $command mlp --synthetic --weights nan.st
    err_has "the model's probabilities of image 0 are NaN: its weights are damaged, or its training diverged"
    ! grep -q ',nan\|accuracy' out || fail "$command: $(cat out)"
    want 1 "$knet" $command mlp --synthetic --weights nan.st --json; [ "$(json status)" = failed ] || fail "$(cat out)"
  done
  want 1 "$knet" train vae --synthetic --epochs 1 --batch 16 --lr 1e18 --optimizer sgd --checkpoint nan.st --save-every 1
  want 1 "$knet" eval vae --synthetic --weights nan.st; err_has "the model's loss is NaN: its weights are damaged"
  want 3 env KNET_ALLOC=limit=4MiB "$knet" predict mlp --synthetic --weights run.st --batch 2560 --json
  [ "$(json status)" = failed ] && [ "$(wc -l <out)" = 1 ] || fail 'half a result of a prediction that failed'
  want 2 "$knet" eval mlp --synthetic
  err_has 'weights FILE is needed'
  want 0 "$knet" predict --help
  out_has '^knet predict MODEL --weights FILE \[OPTION\]'
  want 1 "$knet" eval lenet --synthetic --weights run.st
  err_has "run.st has no tensor 'conv1.weight'"
  want 1 "$knet" eval mlp --synthetic --weights none.st
  err_has 'none.st: No such file'
  want 2 "$knet" eval mlp --synthetic --weights run.st --device cuda:99
  ;;
python) # PyTorch's reader is this format: length, JSON, bytes
  python=$(command -v python3) || exit 77
  want 0 "$knet" train mlp --synthetic --epochs 1 --checkpoint run.st
  want 0 "$python" - <<'PY'
import json, struct
data = open("run.st", "rb").read()
n, = struct.unpack("<Q", data[:8])
head = json.loads(data[8:8 + n])
assert head["__metadata__"]["format"] == "pt"
for name, shape in (("fc1.weight", [64, 784]), ("fc1.bias", [64]), ("fc2.weight", [10, 64]), ("fc2.bias", [10]),
                    ("optimizer/m/fc1.weight", [64, 784]), ("optimizer/v/fc2.bias", [10])):
    assert head[name]["shape"] == shape and head[name]["dtype"] == "F32", (name, head[name])
begin, end = head["fc2.bias"]["data_offsets"]
values = struct.unpack("<10f", data[8 + n + begin:8 + n + end])
assert any(values) and all(abs(v) < 10 for v in values), values
hyper = head["optimizer/hyper"]
begin, _ = hyper["data_offsets"]
assert struct.unpack("<2d", data[8 + n + begin:8 + n + begin + 16]) == (0.001, 100), "rate, steps"

# The weights alone, in 16 bits, as other programs publish them.
half, body = {}, b""
for name, entry in head.items():
    if not name.startswith("fc"):
        continue
    begin, end = entry["data_offsets"]
    values = struct.unpack(f"<{(end - begin) // 4}f", data[8 + n + begin:8 + n + end])
    half[name] = {"dtype": "F16", "shape": entry["shape"], "data_offsets": [len(body), len(body) + 2 * len(values)]}
    body += struct.pack(f"<{len(values)}e", *values)
text = json.dumps(half).encode()
open("half.st", "wb").write(struct.pack("<Q", len(text)) + text + body)
PY
  want 0 "$knet" eval mlp --synthetic --weights run.st --json
  json loss >whole
  want 0 "$knet" eval mlp --synthetic --weights half.st --json
  awk -v a="$(json loss)" -v b="$(cat whole)" 'BEGIN { d = a - b; exit !(d * d < 1e-4 * b * b) }' || fail "loss $(json loss), of f32 $(cat whole)"
  want 0 "$knet" predict mlp --synthetic --weights half.st --count 1
  ;;
*) fail "no case $3" ;;
esac
