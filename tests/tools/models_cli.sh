#!/usr/bin/env bash
# models_cli.sh KNET JSON_GET CASE PREDICT_PROGRAM: the list of models, their training on made-up data and texts, their measurement.
set -euo pipefail
export LC_ALL=C.UTF-8   # for the patterns below
knet=$1 json_get=$2 case=$3 predicts=$4
source "$(dirname "$0")/cli_checks.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset KNET_TIMER AUTOGRAD_TIMER
cd "$work"

case $case in
list)
  want 0 "$knet" models
  out_has '^resnet50 +25,557,032  ImageNet'
  [ "$(grep -cE '^[a-z]' out)" -ge 30 ] || fail "$(grep -cE '^[a-z]' out) models"
  # Below a model the published results, wrapped.
  [ "$(grep -A2 '^vgg_cifar ' out)" = 'vgg_cifar           3,441,592  CIFAR-10
    10 epochs on a K80: MXNet 145 s, Knet 159, Chainer 162, PyTorch 169,
    TensorFlow 173; accuracy 76 to 79 %' ] || fail 'results of vgg_cifar'
  grep -A1 '^cifar_bn ' out | grep -q '^vgg16 ' || fail 'results of cifar_bn'
  awk 'length > 80 { exit 1 }' out || fail 'more than 80 columns'
  n=$(awk '/^ / && !below { n++ } { below = /^ / } END { print n }' out)
  want 0 "$knet" models --json
  [ "$(grep -c '"published":"' out)" = "$n" ] || fail "$n models with results in the list"
  want 0 "$knet" models vgg_cifar
  out_has '^parameters +3,441,592$'; out_has '^step +batch 64, momentum, rate 0.01$'; out_has 'Knet 159'
  ! grep -q '^benchmarks' out || fail 'a batch of benchmarks that is that of the record'
  want 0 "$knet" models char_lstm;     out_has ', rmsprop, rate 0.002, times 0.97 after epoch 10 and later ones$'
  want 0 "$knet" models char_lstm --json
  [ "$(json models.0.lr_gamma)" = 0.97 ] && [ "$(json models.0.lr_from)" = 10 ] || fail 'the schedule of char_lstm'
  want 0 "$knet" models densenet121;   out_has '^step +batch 64, adam, rate 0.0001$'; out_has '^benchmarks +batch 8$'
  want 0 "$knet" models densenet121 --json
  [ "$(json models.0.batch)" = 64 ] && [ "$(json models.0.batch_bench)" = 8 ] || fail 'batches of densenet121'
  want 2 "$knet" models vgg;           err_has "unknown model 'vgg'; did you mean 'vgg16'"
  want 0 "$knet" models gpt --json
  [ "$(json models.0.parameters)" = 818176 ] || fail 'parameters of gpt'
  ;;
bench)
  want 0 "$knet" bench softmax --steps 3
  out_has '^softmax: 7,850 parameters, batch 100, f32; cpu'
  out_has '^train .* ms a step.* 3 steps'; out_has '^infer .* ms a step'
  want 0 "$knet" bench lenet --steps 1 --threads 1 --batch 1
  out_has '; cpu, 1 thread$'; out_has '^train .*, 1 step; '
  want 0 "$knet" bench resnet18 --steps 1 --batch 1 --threads 1 # a few a second
  out_has '; [0-9.]{4,} samples a second$'; ! grep -qE '; [0-9]{1,2} samples' out || fail 'a rate without its digits'
  want 0 "$knet" bench tagger --json --steps 4 --batch 2 --threads 1 --dtype f64
  [ "$(json batch)" = 2 ] && [ "$(json threads)" = 1 ] && [ "$(json dtype)" = f64 ] || fail 'what was asked for'
  [ "$(json train.steps)" = 4 ] && [ "$(json infer.steps)" = 4 ] || fail 'steps'
  for model in tagger gpt; do # inference without the gradients and the optimiser's state
    want 0 "$predicts" $model;                        alone=$(cat out)
    want 0 "$knet" bench $model --json --steps 2 --threads 1
    [ "$(json infer.live_bytes_max)" = "$alone" ] || fail "$model: $(json infer.live_bytes_max) bytes live, $alone alone"
    [ "$(json infer.live_bytes_max)" -lt $(($(json train.live_bytes_max) / 2)) ] || fail "$model: memory of training"
  done
  [ "$(json infer.reserved_bytes_max)" -lt "$(json train.reserved_bytes_max)" ] || fail 'memory that training reserved'
  want 0 "$knet" bench cifar_bn --json --steps 1 --recompute off; most=$(json train.live_bytes_max)
  want 0 "$knet" bench cifar_bn --json --steps 1 --recompute on
  [ "$(json train.live_bytes_max)" -lt $((most * 95 / 100)) ] || fail 'nothing was computed again'
  want 2 "$knet" bench cifar_bn --recompute maybe; err_has "unknown recompute 'maybe'; there are: on, off"
  want 0 "$knet" bench cifar_bn --frozen --steps 3 --batch 4; out_has '^infer .* ms a step'
  want 0 env KNET_TIMER=1,out=/dev/null "$knet" bench mlp --steps 3
  out_has '^ +[0-9.]+ ms  dnnl_sgemm|^ +[0-9.]+ ms  linear'
  want 0 env KNET_TIMER=1,out=/dev/null "$knet" bench softmax --json --steps 1
  ! grep -q '"calls":0' out || fail 'scopes of other steps'
  # The ops of the steps, without those of the warm-up.
  want 0 env KNET_TIMER=1,out=/dev/null "$knet" bench cifar_bn --json --steps 3 --threads 1
  for part in train infer; do
    sum=0
    for ((i = 0; i < 10; i++)); do
      calls=$(json $part.ops.$i.calls)
      [ "$calls" -gt 0 ] && [ $((calls % 3)) = 0 ] || fail "$part: $calls calls of $(json $part.ops.$i.op) in 3 steps"
      sum=$((sum + $(json $part.ops.$i.ns_per_step)))
    done
    [ $((sum * 10)) -gt $(($(json $part.min_ns) * 8)) ] || fail "$part: the ops take $sum ns of $(json $part.min_ns)"
  done
  want 2 "$knet" bench mlp --device sim; err_has 'computes nothing'
  for type in f16 bf16; do
    want 0 "$knet" bench lenet --dtype $type --batch 8 --steps 2; out_has "batch 8, $type; cpu"
  done
  want 2 "$knet" bench mlp --dtype f8
  ;;
scale) # forecasts for more ranks
  want 0 "$knet" scale mlp --steps 2
  [ "$(grep -cE '^ +[0-9]+ +[0-9.]+ ' out)" = 11 ] || fail 'not 1 to 1024 ranks by doubling'
  out_has '^mlp: 50,890 parameters, batch 100 a rank; cpu'
  out_has '^ +1 .* 100.0 % '
  want 0 "$knet" scale lenet --steps 2 --batch 4 --threads 1 --ranks 3..20 --bandwidth 1KB --latency 1ms --overhead 0 --json
  [ "$(json batch)" = 4 ] && [ "$(json threads)" = 1 ] && [ "$(json buckets)" = 2 ] || fail 'what was asked for'
  ranks=
  for i in 0 1 2 3; do ranks+="$(json forecasts.$i.ranks) "; done
  [ "$ranks" = '3 6 12 20 ' ] || fail "ranks $ranks"
  # Half an hour for a step. To each of two ranks: inputs and results of two buckets, each in one chunk, and a flag.
  awk -v e="$(json forecasts.0.efficiency)" -v r="$(json forecasts.0.reduce_seconds)" -v b="$(json gradient_bytes)" \
    'BEGIN { want = 4 / 3 * b / 1000; exit !(e < 0.01 && r > want && r < 1.01 * want) }' || fail 'a slow link'
  [ "$(json forecasts.0.messages)" = $((2 * (2 + 2 + 1))) ] || fail "$(json forecasts.0.messages) messages"
  want 0 "$knet" scale mlp --steps 1 --ranks 8; [ "$(grep -cE '^ +8 ' out)" = 1 ] || fail 'one number of ranks'
  for ranks in 0 5000 2.. ..4 8..2 4..x 123456789012345678901234..4; do
    want 2 "$knet" scale mlp --ranks "$ranks"; err_has "--ranks is '$ranks'"
  done
  want 2 "$knet" scale mlp --latency 5x;  err_has "--latency is '5x', but must be 0, or a number with ns, us"
  want 2 "$knet" scale mlp --overhead -1s; err_has "--overhead is '-1s'"
  want 2 "$knet" scale mlp --bandwidth 0
  want 2 "$knet" scale mlp --bandwidth 1.5; err_has "is .1.5., but must be a number of bytes from 1, whole or with a unit"
  want 1 "$knet" scale dcgan --steps 1;   err_has 'dcgan trains in turns'
  ;;
train)
  want 0 "$knet" train tagger --synthetic --epochs 1 --optimizer record --json --checkpoint t.st
  [ "$(json parameters)" = 1355488 ] && [ "$(json batch)" = 1 ] && [ "$(json lr)" = 0.001 ] || fail 'the record'
  want 0 "$knet" eval tagger --synthetic --weights t.st
  out_has '^tagger: 40 test samples; loss [0-9.]+$'
  want 0 "$knet" train linear --synthetic --optimizer record --quiet; out_has '^loss [0-9.]+  test loss [0-9.]+ '
  for i in $(seq 200); do echo 'the rain in spain stays mainly in the plain'; done >text
  want 0 "$knet" train char_lstm --data text --epochs 1; out_has '  test loss [0-9.]+  train'
  # The record's schedule: 0.97 of the rate after epoch 10 and each later one. A resumed run shows the rate of the last step.
  record=(train char_lstm --data text --optimizer record --checkpoint s.st)
  want 0 "$knet" "${record[@]}" --schedule record --epochs 12 --json; hash=$(json weights_fnv1a)
  want 0 "$knet" "${record[@]}" --epochs 12 --resume;                 out_has '; record, rate 0.0018818; cpu'
  rm s.st
  want 0 "$knet" "${record[@]}" --schedule record --epochs 10 --quiet
  want 0 "$knet" "${record[@]}" --epochs 10 --resume;                 out_has '; record, rate 0.002; cpu'
  want 0 "$knet" "${record[@]}" --schedule record --epochs 12 --resume --json
  [ "$(json weights_fnv1a)" = "$hash" ] && [ "$(json schedule)" = record ] || fail 'a resumed run has another schedule'
  want 0 "$knet" train softmax --synthetic --epochs 2 --json; hash=$(json weights_fnv1a)
  want 0 "$knet" train softmax --synthetic --epochs 2 --schedule record --json
  [ "$(json weights_fnv1a)" = "$hash" ] || fail 'a record without a schedule changes the rate'
  # A state from batch to batch: 176 samples are three batches an epoch.
  want 0 "$knet" train char_lstm --data text --epochs 2 --json; hash=$(json weights_fnv1a)
  want 0 "$knet" train char_lstm --data text --epochs 2 --carry --json; carried=$(json weights_fnv1a)
  [ "$hash" != "$carried" ] || fail 'nothing is carried'
  want 0 "$knet" train char_lstm --data text --epochs 1 --carry --checkpoint k.st --quiet
  want 0 "$knet" train char_lstm --data text --epochs 2 --carry --checkpoint k.st --resume --json
  [ "$(json weights_fnv1a)" = "$carried" ] || fail 'a resumed run carries something else'
  want 2 "$knet" train mlp --carry;                      err_has '--carry does not apply to mlp: its batches have no state'
  want 2 "$knet" train char_lstm --carry --device cpu,cpu; err_has "--carry needs one device; --device is 'cpu,cpu'"
  : >empty
  for command in train sample; do # data that don't fit are no wrong usage
    want 1 "$knet" $command char_lstm --data empty;  err_has '0 words or characters; samples of 50 take one more'
  done
  want 0 "$knet" train tree_lstm --synthetic --epochs 1 --quiet; out_has 'test loss [0-9.]+'
  want 0 "$knet" train reinforce --synthetic --epochs 2 --optimizer record --quiet; out_has 'test loss -(0\.9|1\.0)'
  want 1 "$knet" train dcgan --synthetic --accumulate 2 --batch 4; err_has 'trains in turns, without accumulated batches'
  want 2 "$knet" train connect4 --data text;             err_has 'connect4 reads no files; use --synthetic'
  for model in tree_lstm tagger_chars reinforce; do
    want 2 "$knet" train $model --synthetic --capture; err_has "--capture does not apply to $model: its step reads data on the host"
    want 2 "$knet" bench $model --capture;             err_has "--capture does not apply to $model: its step reads data on the host"
  done
  want 2 "$knet" train tagger;                           err_has 'tagger reads no files; use --synthetic'
  want 2 "$knet" eval tagger --weights t.st;             err_has 'tagger reads no files; use --synthetic'
  want 1 "$knet" train linear --data text;               err_has 'text: .*; Boston housing is https://'
  want 1 "$knet" train vgg_cifar --data none;            err_has 'none: No such file.*; https://www.cs.toronto.edu'
  want 2 "$knet" eval connect4 --weights t.st;           err_has 'connect4 reads no files; use --synthetic'
  for command in train 'eval --weights t.st'; do # models whose data is not Fashion-MNIST
    want 2 "$knet" $command linear
    err_has 'linear has no default data; give --data FILE or --synthetic; it is for Boston housing, 506 rows of 13 numbers; Boston housing is https://'
    want 2 "$knet" $command densenet121_imagenet
    err_has 'densenet121_imagenet has no default data; give --data DIR, with train/CLASS/IMAGE.jpg and test/..., or --synthetic; it is for ImageNet, 224x224'
  done
  # A table as UCI's housing.data: 13 numbers and the target.
  awk 'BEGIN { for (i = 0; i < 506; i++) { y = 3; for (j = 0; j < 13; j++) { x = (i * (j * j + 3)) % 17; y += (j % 3 - 1) * x; printf " %8.4f ", x }
    printf " %5.2f\n", y } }' >housing.data
  want 0 "$knet" train linear --data housing.data --optimizer record --epochs 200 --json --checkpoint housing.st
  [ "$(json batch)" = 506 ] || fail "batches of $(json batch)"
  awk -v l="$(json epochs.199.test_loss)" 'BEGIN { exit !(l < 0.01) }' || fail "loss $(json epochs.199.test_loss) of a line"
  want 0 "$knet" eval linear --data housing.data --weights housing.st; out_has '^linear: 506 test samples; loss 0.00'
  want 1 "$knet" train linear --data text; err_has "text: line 2, field 1: .the. is not a number"
  no_data='gru_imdb has no default data; give --data FILE or --synthetic; it is for IMDB'
  want 2 "$knet" train gru_imdb;                         err_has "$no_data"
  for command in eval predict; do
    want 2 "$knet" $command gru_imdb --weights t.st;     err_has "$no_data"
  done
  want 1 "$knet" train gru_imdb --data no/imdb.npz;      err_has 'no/imdb.npz.*: No such file'
  ;;
sample)
  for i in $(seq 300); do printf 'abcdefgh\n'; done >text
  want 0 "$knet" train gpt --data text --batch 5 --epochs 10 --checkpoint g.st --quiet
  want 0 "$knet" sample gpt --data text --weights g.st --count 18 --temperature 0.1
  out_has '^abcdefgh$'
  # The letters have the numbers of the training, whatever another text has most of.
  want 0 "$knet" sample gpt --weights g.st --count 18 --temperature 0.1
  out_has '^abcdefgh$'
  want 0 "$knet" eval gpt --data text --weights g.st --json; loss=$(json loss)
  { for i in $(seq 40); do printf 'hgfedcbahgfedhghhg\n'; done; cat text; } >other
  want 0 "$knet" eval gpt --data other --weights g.st --json
  awk -v a="$loss" -v b="$(json loss)" 'BEGIN { exit !(b < a + 0.01) }' || fail "loss $(json loss), of the text $loss"
  # a state from step to step; words with spaces between them
  want 0 "$knet" train char_lstm_steps --data text --batch 5 --epochs 30 --optimizer adam --lr 0.02 --checkpoint c.st --quiet
  want 0 "$knet" sample char_lstm_steps --weights c.st --count 27 --temperature 0.1
  [ "$(cat out)" = $'abcdefgh\nabcdefgh\nabcdefgh' ] || fail "$(cat out)"
  for i in $(seq 150); do echo 'one two three four five six seven'; done >words
  want 0 "$knet" train lstm_lm --data words --batch 5 --epochs 2 --optimizer adam --lr 0.01 --checkpoint l.st --quiet
  want 0 "$knet" sample lstm_lm --weights l.st --count 24 --temperature 0.1; sentence=$(cat out)
  [ "$(wc -w <out)" = 24 ] && [[ " $(head -c 240 words | tr '\n' ' ')" == *" $sentence"* ]] || fail "$sentence"
  want 0 "$knet" sample lstm_lm --weights l.st --count 24 --temperature 0.1 --json
  [ "$(json text)" = "$sentence" ] || fail "$(json text)"
  want 0 "$knet" sample gpt --count 20 --json --data text
  [ -n "$(json text)" ] || fail 'no text'
  printf 'text\0text\n' >zeros
  want 1 "$knet" sample gpt --count 20 --data zeros; err_has 'zeros: byte 4 is zero: not a text'
  for i in $(seq 300); do printf 'a\033\t\302\233\n'; done >controls
  want 0 "$knet" sample gpt --count 40 --data controls; cp out raw
  grep -q $'\033' raw && grep -q $'\302\233' raw || fail "$(od -c raw)"
  if command -v script >/dev/null; then # a terminal does not get what it would obey
    script -qec "stty -onlcr tabs; '$knet' sample gpt --count 40 --data controls" screen </dev/null >/dev/null
    sed '/^Script /d' screen >out
    [ "$(cat out)" = "$(sed 's/\x1b/?/g; s/\xc2\x9b/?/g' raw)" ] || fail "$(od -c out)"
  fi
  # the vocabulary of a file changed by hand; spaces keep its length
  if perl=$(command -v perl); then
    "$perl" -pe 's/("knet.vocab":"characters)([^"]*)"/"$1\"" . " " x length $2/e' g.st >none.st
    want 1 "$knet" sample gpt --weights none.st;          err_has 'the vocabulary has no words'
    rm none.st
  fi
  want 2 "$knet" sample vae;                             err_has '--picture FILE is needed'
  want 1 "$knet" sample vae --picture no/v.png;           err_has "no/v.png can't be written: No such file"
  want 0 "$knet" sample vae --picture v.png
  [ "$(head -c 8 v.png | od -An -tx1 | tr -d ' ')" = 89504e470d0a1a0a ] || fail 'not a PNG'
  want 0 "$knet" sample connect4 --seed 3;               out_has '^([1-7] )+[1-7]$'; out_has 'x wins|o wins|a draw'
  want 1 "$knet" sample connect4 --weights none.st;      err_has 'none.st'
  want 3 env KNET_ALLOC=limit=1MiB "$knet" sample gpt --data text --json; [ "$(json exit_code)" = 3 ] || fail 'out of memory'
  for model in vae connect4; do
    want 2 "$knet" sample $model --picture v.png --count 3;  err_has "--count does not apply to $model"
    want 2 "$knet" sample $model --picture v.png --data text; err_has "--data does not apply to $model"
  done
  want 2 "$knet" sample vae --picture v.png --temperature 1; err_has '--temperature does not apply to vae'
  want 2 "$knet" sample connect4 --picture v.png;         err_has '--picture does not apply to connect4'
  want 2 "$knet" sample gpt --data text --picture v.png;  err_has '--picture does not apply to gpt'
  # Weights of a training that diverged.
  for model in connect4 gpt; do
    want 1 "$knet" train $model --synthetic --epochs 1 --batch 4 --lr 1e18 --optimizer sgd --checkpoint n.st --save-every 1
    data=()
    [ $model = connect4 ] || data=(--data text)
    want 1 "$knet" sample $model --weights n.st "${data[@]}";  err_has "the model's scores are NaN"
    [ ! -s out ] || fail "a sample: $(cat out)"
  done
  ;;
esac
