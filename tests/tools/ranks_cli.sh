#!/usr/bin/env bash
# ranks_cli.sh KNET JSON_GET CASE [FAKES]: knet train as several ranks under mpirun: results, profiles, checkpoints, batch norm, sharded
# state, ranks that fail. FAKES: folders of a fake driver and of kernels that go with it.
set -euo pipefail
knet=$1 json_get=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# shellcheck source=tests/tools/cli_checks.sh
source "$here/cli_checks.sh"
export OMPI_MCA_orte_tmpdir_base=$work # of two mpirun that begin at once, one may fail to make the folder in /tmp
# The ranks share one machine: MPI looks for no network.
export OMPI_MCA_btl=self,vader OMPI_MCA_rmaps_base_oversubscribe=1
unset KNET_TIMER KNET_COMM
mpirun=(timeout 200 mpirun --allow-run-as-root --oversubscribe --bind-to none)
"${mpirun[@]}" -n 2 true >out 2>&1 </dev/null || { echo "mpirun does not start 2 ranks"; exit 77; }
train=("$knet" train mlp --synthetic --epochs 2)

# Each rank leaves its process id and its exit code; the others go on when one ends, as under srun --kill-on-bad-exit=0.
cat >rank.sh <<'END'
r=$OMPI_COMM_WORLD_RANK
"$@" $(cat "options.$r" 2>/dev/null) &
echo $! >"pid.$r"
wait $! && code=0 || code=$?
echo "$code" >"code.$r"
END
# The environment of srun instead of mpirun's. FIRST: the rank that begins a second machine.
cat >srun.sh <<'END'
first=$1 r=$OMPI_COMM_WORLD_RANK n=$OMPI_COMM_WORLD_SIZE
shift
for v in $(env | sed -n 's/^\(OMPI_COMM_WORLD_[A-Z_]*\)=.*/\1/p'); do unset "$v"; done
export SLURM_PROCID=$r SLURM_STEP_NUM_TASKS=$n SLURM_LOCALID=$((r < first ? r : r - first))
exec "$@"
END
ranks_begin() { # N COMMAND
  local n=$1 r
  shift
  rm -f pid.* code.*
  "${mpirun[@]}" --enable-recovery -n "$n" bash rank.sh "$@" >out 2>err </dev/null &
  job=$!
  for r in $(seq 0 $((n - 1))); do
    for _ in $(seq 600); do [ -s "pid.$r" ] && break; sleep 0.1; done
    [ -s "pid.$r" ] || fail "rank $r did not start"
  done
}
# Ends a rank by a signal once all are in their steps.
steps_wait() { for _ in $(seq 600); do [ -s run.st ] && return; sleep 0.1; done; fail "no checkpoint was saved"; }
ranks_end() {
  local r
  wait "$job" || true
  for r in "$@"; do [ "$(cat "code.$r")" = 4 ] || fail "rank $r ended with $(cat "code.$r"), expected 4"; done
}
endless=("$knet" train mlp --synthetic --epochs 100000 --quiet --checkpoint run.st --save-every 20)

case $3 in
results)
  want 0 "${train[@]}" --batch 256 --json
  json epochs.1.loss >one
  want 0 "${mpirun[@]}" -n 2 "${train[@]}" --json
  [ "$(json ranks)" = 2 ] || fail "not 2 ranks"
  [ "$(grep -c weights_fnv1a out)" = 1 ] || fail "not one result"
  json weights_fnv1a >hash
  awk -v a="$(json epochs.1.loss)" -v b="$(cat one)" 'BEGIN { d = a - b; exit !(d < 1e-3 * b && -d < 1e-3 * b) }' ||
    fail "loss $(json epochs.1.loss), of one process $(cat one)"
  want 0 "${mpirun[@]}" -n 2 "${train[@]}" --json
  [ "$(json weights_fnv1a)" = "$(cat hash)" ] || fail "another run has other bits"
  for with in "--capture" "--capture --shard"; do
    # shellcheck disable=SC2086
    want 0 "${mpirun[@]}" -n 2 "${train[@]}" --json $with
    [ "$(json weights_fnv1a)" = "$(cat hash)" ] || fail "other bits with $with"
  done
  want 0 "${mpirun[@]}" -n 2 "${train[@]}" --metrics m.csv --output text.out
  [ "$(wc -l <m.csv)" = 3 ] || fail "metrics of more than one rank: $(cat m.csv)"
  [ "$(grep -c '2 ranks, cpu, ' text.out)" = 1 ] || fail "does not say 2 ranks: $(cat text.out)"
  [ "$(grep -c '^epoch' text.out)" = 2 ] || fail "epochs of more than one rank: $(cat text.out)"
  want 0 "${mpirun[@]}" -n 3 "${train[@]}" --json --accumulate 2
  [ "$(json ranks)" = 3 ] || fail "not 3 ranks"
  rate=("$knet" train softmax --synthetic --epochs 1 --optimizer sgd --find-rate golden --json)
  want 0 "${rate[@]}" --batch 128
  json lr >one
  want 0 "${mpirun[@]}" -n 2 "${rate[@]}" --batch 64
  [ "$(json lr)" = "$(cat one)" ] || fail "the rate is $(json lr), of the joined batch $(cat one)"
  ;;
profiles)
  want 0 "${mpirun[@]}" -n 2 -x KNET_TIMER=json=p.%r.json "${train[@]}" --quiet
  want 0 "$knet" report p.0.json p.1.json
  out_has 'in all of 2 runs'
  out_has 'gradients of all ranks'
  out_has ' all_reduce '
  ;;
resume)
  want 0 "${mpirun[@]}" -n 2 "${train[@]}" --json
  json weights_fnv1a >hash
  ranks_begin 2 "${endless[@]}"
  steps_wait
  kill -TERM "$(cat pid.0)" # all stop after the same step
  wait "$job" || true
  [ "$(cat code.0)" = 143 ] || fail "rank 0 ended with $(cat code.0)"
  [ "$(cat code.1)" = 143 ] || fail "rank 1, which had no signal, ended with $(cat code.1)"
  epoch=$(sed -n 's/^interrupted in epoch \([0-9]*\) .*/\1/p' out)
  [ -n "$epoch" ] || fail "does not say where it was interrupted"
  for n in 1 2 3; do # with other numbers of ranks
    cp run.st other.st
    want 0 "${mpirun[@]}" -n $n "$knet" train mlp --synthetic --epochs $((epoch + 1)) --json --checkpoint other.st --resume
    [ "$(json resumed)" -gt 0 ] || fail "did not resume"
    [ "$(json epochs.1.epoch)" = $((epoch + 1)) ] || fail "another epoch: $(json epochs.1.epoch)"
  done
  # The whole, in two parts.
  want 0 "${mpirun[@]}" -n 2 "$knet" train mlp --synthetic --epochs 1 --json --checkpoint part.st
  want 0 "${mpirun[@]}" -n 2 "${train[@]}" --json --checkpoint part.st --resume
  [ "$(json weights_fnv1a)" = "$(cat hash)" ] || fail "the weights differ from those of the whole run"
  ;;
signals) # one rank has it while the other one is in a longer step: both save, and end alike
  for signal in TERM USR1; do
    rm -f run.st*
    ranks_begin 2 "${endless[@]}"
    steps_wait
    kill -STOP "$(cat pid.1)"
    kill -s $signal "$(cat pid.0)"
    sleep 1
    kill -CONT "$(cat pid.1)"
    wait "$job" || true
    for r in 0 1; do
      [ "$(cat code.$r)" = $((128 + $(kill -l $signal))) ] || fail "SIG$signal: rank $r ended with $(cat code.$r): $(cat err)"
    done
    steps=$(sed -n 's/^interrupted in epoch [0-9]* after \([0-9]*\) steps$/\1/p' out)
    want 0 "$knet" train mlp --synthetic --epochs 1 --json --checkpoint run.st --resume
    [ "$(json resumed)" = "$steps" ] || fail "saved after $(json resumed) steps, ended after $steps"
  done
  ;;
search) # of a rate: a signal to one rank ends all of them alike
  victim=0
  for signal in TERM INT; do
    ranks_begin 3 "$knet" train mlp --synthetic --threads 1 --batch 256 --find-rate hyperband
    for _ in $(seq 600); do grep -q '^rate ' out && break; sleep 0.1; done
    kill -s "$signal" "$(cat pid.$victim)"
    wait "$job" || true
    for r in 0 1 2; do
      [ "$(cat "code.$r")" = $((128 + $(kill -l "$signal"))) ] || fail "SIG$signal to rank $victim: rank $r ended with $(cat "code.$r")"
    done
    out_has '^interrupted in the search of a rate$'
    victim=2
  done
  ;;
batchnorm) # by the joined batch, as one process
  norm=("$knet" train cifar_bn --synthetic --optimizer sgd --lr 0.02 --epochs 1 --json)
  want 0 "${norm[@]}" --batch 64
  json epochs.0.loss >one
  away() { awk -v a="$(json epochs.0.loss)" -v b="$(cat one)" 'BEGIN { d = (a - b) / b; print d < 0 ? -d : d }'; }
  for n in 2 4; do
    want 0 "${mpirun[@]}" -n $n "${norm[@]}" --batch $((64 / n)) --sync-batchnorm --checkpoint joined.$n.st
    awk -v d="$(away)" 'BEGIN { exit !(d < 1e-4) }' || fail "$n ranks: the loss is $(away) away from one process's"
  done
  want 0 "${mpirun[@]}" -n 4 "${norm[@]}" --batch 16
  awk -v d="$(away)" 'BEGIN { exit !(d > 1e-3) }' || fail "each rank's own statistics give the joined batch's loss"
  want 0 "$knet" eval cifar_bn --synthetic --weights joined.4.st
  for every in 1 1000; do # a checkpoint changes no running statistics
    want 0 "${mpirun[@]}" -n 3 "${norm[@]}" --batch 32 --sync-batchnorm --checkpoint every.st --save-every $every
    json epochs.0.test_loss >"test.$every"
  done
  cmp test.1 test.1000 || fail "the running statistics depend on when they were saved"
  want 2 "${mpirun[@]}" -n 2 "${train[@]}" --sync-batchnorm
  err_has '--sync-batchnorm: mlp has no batch norm'
  want 2 "${mpirun[@]}" -n 2 "$knet" train char_lstm --synthetic --carry
  err_has '--carry does not apply to several ranks'
  want 2 "${norm[@]}" --sync-batchnorm --capture
  err_has '--sync-batchnorm does not apply with --capture'
  for option in --sync-batchnorm --shard; do # one rank: nothing to join or to cut
    want 2 "${train[@]}" $option; err_has "$option applies only to several ranks"
  done
  ;;
shard) # the optimiser's state in parts: same weights, same files, any number of ranks resumes
  part=("$knet" train mlp --synthetic --epochs 1 --json)
  want 0 "${mpirun[@]}" -n 2 "${train[@]}" --json
  json weights_fnv1a >hash
  want 0 "${mpirun[@]}" -n 2 "${train[@]}" --json --shard
  [ "$(json weights_fnv1a)" = "$(cat hash)" ] || fail "--shard changes the weights"
  want 0 "${mpirun[@]}" -n 2 "${part[@]}" --checkpoint whole.st
  want 0 "${mpirun[@]}" -n 2 "${part[@]}" --checkpoint parts.st --shard
  cmp whole.st parts.st || fail "--shard saves another file"
  want 0 "${part[@]}" --checkpoint one.st
  resumes() { # FILE N OPTION...
    local file=$1 n=$2
    shift 2
    cp "$file" again.st
    want 0 "${mpirun[@]}" -n "$n" "${train[@]}" --json --checkpoint again.st --resume "$@"
    [ "$(json resumed)" -gt 0 ] || fail "$n ranks do not resume $file"
    [ "$(json epochs.0.epoch)" = 2 ] || fail "$n ranks resume $file in epoch $(json epochs.0.epoch)"
    json weights_fnv1a >"hash.$n$*"
  }
  resumes parts.st 2 --shard
  cmp hash hash.2--shard || fail "two parts of a run have other weights than the whole"
  resumes parts.st 1
  for n in 3 2; do
    from=$([ $n = 3 ] && echo parts.st || echo one.st)
    resumes "$from" $n
    resumes "$from" $n --shard
    cmp "hash.$n" "hash.$n--shard" || fail "$n ranks resume $from with other weights under --shard"
  done
  ;;
killed)
  for victim in 1 0 2; do
    rm -f run.st*
    KNET_TIMER=1 ranks_begin 3 "${endless[@]}"
    steps_wait
    kill -9 "$(cat "pid.$victim")"
    survivors=()
    for r in 0 1 2; do [ $r = $victim ] || survivors+=("$r"); done
    ranks_end "${survivors[@]}"
    for r in "${survivors[@]}"; do
      err_has "rank $r: .*(call [0-9]+.*): rank $victim of 3 \\(.*, process $(cat "pid.$victim")\\) ended"
    done
    [ "$(grep -c 'Section' err)" = 2 ] || fail "not the tables of 2 survivors"
    want 0 "$knet" train mlp --synthetic --epochs 1 --json --checkpoint run.st --resume # the file is whole
    [ "$(json resumed)" -gt 0 ] || fail "did not resume"
  done
  ;;
kills) # at random moments of steps and checkpoints: KNET_TEST_KILLS of them, 6 without it
  RANDOM=${KNET_TEST_SEED:-$$}
  for i in $(seq "${KNET_TEST_KILLS:-6}"); do
    rm -f run.st*
    n=$((2 + RANDOM % 2)) victim=$((RANDOM % n)) moment=$(printf '0.%03d' $((RANDOM % 700)))
    ranks_begin $n "${endless[@]}"
    steps_wait
    sleep "$moment"
    kill -9 "$(cat "pid.$victim")"
    begin=$SECONDS
    for r in $(seq 0 $((n - 1))); do
      [ "$r" = "$victim" ] && continue
      for _ in $(seq 600); do [ -s "code.$r" ] && break; sleep 0.1; done
      [ "$(cat "code.$r" 2>/dev/null)" = 4 ] || fail "kill $i, rank $victim of $n after $moment s: rank $r: $(cat "code.$r" err)"
      err_has "rank $r: .*rank $victim of $n "
    done
    [ $((SECONDS - begin)) -lt 30 ] || fail "kill $i: the others took $((SECONDS - begin)) s"
    wait "$job" || true
    want 0 "$knet" train mlp --synthetic --epochs 1 --json --checkpoint run.st --resume # the file is whole
    [ "$(json resumed)" -gt 0 ] || fail "kill $i: did not resume"
  done
  ;;
hangs)
  KNET_COMM=timeout=3s ranks_begin 2 "${endless[@]}"
  steps_wait
  kill -STOP "$(cat pid.1)"
  for _ in $(seq 300); do [ -s code.0 ] && break; sleep 0.1; done
  kill -KILL "$(cat pid.1)"
  ranks_end 0
  err_has "rank 0: .*rank 1 of 2 .* sent nothing for [0-9.]+ s"
  # A rank that ends before it joins, with success: mpirun waits, and so does MPI_Init.
  # shellcheck disable=SC2016
  KNET_COMM=timeout=2s "${mpirun[@]}" -n 2 sh -c '[ $OMPI_COMM_WORLD_RANK = 1 ] || exec "$@"' sh "${train[@]}" >out 2>err </dev/null &&
    fail "a rank did not come, and training ended well"
  err_has 'rank 0: .*a rank has not joined within 2 s'
  ;;
memory) # runs out on one rank alone
  echo "--limit 3MiB" >options.1
  ranks_begin 2 "${endless[@]}" --batch 4096
  ranks_end 0
  [ "$(cat code.1)" = 3 ] || fail "rank 1 ended with $(cat code.1), expected 3"
  err_has "rank 0: .*rank 1 of 2 .* failed: .*3.00 MiB"
  want 1 "${mpirun[@]}" -n 2 "${train[@]}" --device cpu,cpu
  err_has 'each of 2 ranks trains on one device'
  ;;
differ) # arguments, data and checkpoints that are not the same on all ranks
  differs() { # OPTIONS TEXT
    echo "$1" >options.1
    ranks_begin 3 "${train[@]}" --checkpoint here.st --quiet
    wait "$job" || true
    [ "$(cat code.0)$(cat code.1)$(cat code.2)" != 000 ] || fail "$1: all ranks end well"
    err_has "rank 0: .*$2"
    err_has "rank 2: .*$2"
  }
  for o in '--lr 0.1' '--seed 2' '--optimizer sgd' '--batch 126' '--dtype bf16' '--ema 0.9' --augment --loss-scale --shard; do
    differs "$o" "the command line differs between the ranks: rank 0 has '.*', rank 1 '.*$o"
  done
  differs '--epochs 3' "the training differs .* '2 epochs of [0-9]+ batches.*', rank 1 '3 epochs"
  differs '--save-every 5' "the training differs .* 1 '.* saved every 5 steps"
  want 0 "${mpirun[@]}" -n 2 "$knet" train mlp --synthetic --epochs 1 --quiet --checkpoint here.st
  differs '--resume' "the training differs .* from epoch 1, .* 1 '.* from epoch 2"
  ;;
terminal) # one progress bar, on the terminal of mpirun; the table of a run that mpirun ends
  command -v script >/dev/null || exit 77
  TERM=xterm script -qefc "$(printf '%q ' "${mpirun[@]:2}" -n 2 "$knet") train mlp --synthetic --epochs 20" out </dev/null >/dev/null 2>err || fail "failed: $(cat out)"
  tr '\r' '\n' <out | grep -c '/1000, ' >bars || fail "no progress bar: $(cat out)"
  tr '\r' '\n' <out | sed -n 's/.*, \([0-9]*\)\/1000, .*/\1/p' | sort -n -c -u || fail "more than one bar: $(cat out)"
  # A busy machine needs more than the second for which mpirun waits before it kills.
  OMPI_MCA_odls_base_sigkill_timeout=10 KNET_TIMER=1 "${mpirun[@]:2}" -n 2 "${endless[@]}" >out 2>err </dev/null &
  job=$!
  steps_wait
  kill -TERM $job
  wait $job || true
  [ "$(grep -c Section err)" = 2 ] || fail "not the tables of 2 ranks: $(cat err)"
  out_has '^interrupted in epoch'
  ;;
srun) # its environment, and MPI connected as srun --mpi=pmix does
  want 0 "${mpirun[@]}" -n 3 "${train[@]}" --json
  json weights_fnv1a >hash
  want 0 "${mpirun[@]}" -n 3 bash srun.sh 0 "${train[@]}" --json
  [ "$(json ranks)" = 3 ] || fail "not 3 ranks"
  [ "$(json weights_fnv1a)" = "$(cat hash)" ] || fail "srun gives other weights than mpirun"
  want 0 "${mpirun[@]}" -n 3 bash srun.sh 0 "${train[@]}"
  [ "$(grep -c '3 ranks, cpu, ' out)" = 1 ] || fail "does not say 3 ranks once: $(cat out)"
  ;;
devices) # SLURM_LOCALID chooses: the first rank is alone on its machine, the others are 0 and 1 of another one
  [ -n "${4:-}" ] || exit 77
  want 0 env LD_LIBRARY_PATH="$4" "$knet" train mlp --synthetic --epochs 1 --device cuda:1 --json # the fakes compute
  [ "$(json device)" = cuda:1 ] || fail "not on cuda:1"
  # A model on several devices: the weights of one, from a checkpoint too.
  stages=(env LD_LIBRARY_PATH="$4" "$knet" train mlp --synthetic --micro 1 --json)
  want 0 "${stages[@]}" --epochs 2 --device cuda:0
  json weights_fnv1a >hash
  want 0 "${stages[@]}" --epochs 2 --device cuda:0,cuda:1
  [ "$(json device)" = cuda:0,cuda:1 ] || fail "not on two devices"
  [ "$(json weights_fnv1a)" = "$(cat hash)" ] || fail "two devices give other weights"
  want 0 "${stages[@]}" --epochs 1 --device cuda:1,cpu --checkpoint stages.st
  for devices in cuda:0,cuda:1 cuda:1; do
    cp stages.st again.st
    want 0 "${stages[@]}" --epochs 2 --device $devices --checkpoint again.st --resume
    [ "$(json weights_fnv1a)" = "$(cat hash)" ] || fail "resumed on $devices: other weights"
  done
  want 2 "${stages[@]}" --device cuda:0,cuda:1 --cut pigeon
  err_has 'there is no layer pigeon'
  want 1 "${stages[@]}" --device cuda:0,cuda:1 --ema 0.9
  err_has 'the parameters lie on cuda:0 and cuda:1'
  want 2 "${stages[@]}" --device cuda:0,sim
  err_has 'sim computes nothing'
  LD_LIBRARY_PATH=$4 "${mpirun[@]}" --enable-recovery -n 3 bash srun.sh 1 "${train[@]}" --device cuda --limit 64KiB >out 2>err </dev/null || true
  err_has 'rank 0: .*pool cuda:0: out of memory'
  err_has 'rank 1: .*pool cuda:0: out of memory'
  err_has 'rank 2: .*pool cuda:1: out of memory'
  ;;
environment)
  want 2 env KNET_COMM=pigeon OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 "${train[@]}"
  err_has "KNET_COMM: 'pigeon'"
  want 2 env SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=1 "${train[@]}"
  err_has 'rank 1: srun started 4 ranks, but MPI knows 1; use srun --mpi=pmix'
  want 2 env SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=4 "${train[@]}"
  err_has 'SLURM_PROCID=5, SLURM_STEP_NUM_TASKS=4'
  want 0 env SLURM_PROCID=0 SLURM_NTASKS=4 "${train[@]}" --quiet # a batch script, without srun
  # Commands without ranks: the first of several says so.
  "$knet" train mlp --synthetic --epochs 1 --quiet --checkpoint run.st >out 2>err
  for _ in $(seq 100); do echo abcdefgh; done >text
  for command in "eval mlp --synthetic --weights run.st" "predict mlp --synthetic --count 1 --weights run.st" \
                 "bench mlp --steps 1 --batch 2" "sample char_lstm --data text --count 1"; do
    # shellcheck disable=SC2086
    want 0 "$knet" $command;                 ! grep -q 'has no ranks' err || fail "$command: there is one process"
    # shellcheck disable=SC2086
    want 0 "${mpirun[@]}" -n 2 "$knet" $command
    [ "$(grep -c 'this command has no ranks: each of the 2 processes that mpirun started does all of it' err)" = 1 ] || fail "$command"
  done
  ;;
*) echo "unknown case $3" >&2; exit 2 ;;
esac
