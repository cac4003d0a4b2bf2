#!/usr/bin/env bash
# Stands for every program of a bundle, for nvidia-smi and for compute-sanitizer in test_run.py. $FAKE_RULES has a line
# for each program that misbehaves: its name (a sanitizer's is its tool) and how.
name=$(basename "$0")
[ "$name" = compute-sanitizer ] && name=$2
rule=$(sed -n "s/^$name //p" "$FAKE_RULES")

case $rule in
  "exit "*) exit "${rule#exit }" ;;
  signal) kill -SEGV $$ ;;
  hang)   # with children: one in its group, one in a session of its own
    sleep 1000 &
    echo $! >>"$FAKE_PIDS"
    setsid sleep 1000 &
    echo $! >>"$FAKE_PIDS"
    wait ;;
  leave) sleep 1000 & echo $! >>"$FAKE_PIDS" ;;
  after) # the first process of what hung before is gone
    grep -qsv ') Z' "/proc/$(head -n 1 "$FAKE_PIDS")/stat" && exit 1 ;;
  "inside "*) echo "[  SKIPPED ] ${rule#inside }" ;;
esac

# The value of a word of KNET_TIMER.
word() { tr ',' '\n' <<<"${KNET_TIMER:-}" | sed -n "s/^$1=//p"; }

# The profile that the timer would write, and its table.
write_profile() {
  local kind=$1
  [ -n "$(word json)" ] || return 0
  [ -n "$rule" ] && [ -f "$FAKE_PROFILES/$rule.json" ] && kind=$rule
  cp "$FAKE_PROFILES/$kind.json" "$(word json)"
  cp "$FAKE_PROFILES/table.txt" "$(word out)"
  [ -z "$(word record)" ] || [ "$rule" = unrecorded ] || head -c 4096 /dev/zero >"$(word record)"
}

figures() {
  [ "$rule" = few ] && set -- 1
  for ((i = 0; i < $1; i++)); do
    echo '{"bench":"fake","metric":"m'"$i"'_us","value":1.5,"unit":"us","baseline":null,"ratio":null}'
  done
}

case $name in
  nvidia-smi) echo "GPU 0: fake" ;;
  memcheck|racecheck)
    shift 2
    while [[ $1 = --* ]]; do shift 2; done
    "$@" || exit $?
    case $name$rule in
      *silent) ;;
      memcheck*) echo "========= ERROR SUMMARY: ${rule:-0} errors" ;;
      racecheck*) echo "========= RACECHECK SUMMARY: ${rule:-0} hazards displayed (${rule:-0} errors, 0 warnings)" ;;
    esac ;;
  knet)
    case "$*" in
      info) echo "cuda:0 fake" ;;
      *"--device cpu"*) echo '{"epochs":[{"loss":0.5,"test_accuracy":0.9}]}' ;;
      *--json*) echo "{\"epochs\":[{\"loss\":${rule:-0.5},\"test_accuracy\":0.9}]}" ;;
      *) write_profile "train-${KNET_TIMER%%,*}" ;;
    esac ;;
  gpu_timer_program)
    echo '{"metric":"step","value":10.5,"unit":"us"}'
    if [ "$1" = captured ]; then write_profile "captured-${KNET_TIMER%%,*}"; else write_profile "$1"; fi ;;
  bench_gpu_costs) figures 80 ;;
  bench_gpu_ops) figures 32 ;;
  bench_train) figures 8 ;;
  bench_arrays | bench_nn) figures 70 ;;
  bench_models) figures 40 ;;
  torch_baseline.py) figures 40 ;;
  torch_plugin.py) figures 2 ;;
esac
exit 0
