#!/usr/bin/env bash
# replay_cli.sh KNET JSON_GET: knet replay as a user runs it, exit codes and messages.
set -euo pipefail
export LC_ALL=C.UTF-8   # for the patterns below
knet=$1 json_get=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset KNET_TIMER AUTOGRAD_TIMER KNET_ALLOC

fail() { printf '%s\n--- stdout\n%s\n--- stderr\n%s\n' "$1" "$(cat "$work/out")" "$(cat "$work/err")"; exit 1; }
want() {
  local code=$1 got=0
  shift
  "$@" >"$work/out" 2>"$work/err" || got=$?
  [ "$got" -eq "$code" ] || fail "exit code $got, expected $code: $*"
}
out_has() { grep -qE -- "$1" "$work/out" || fail "not on stdout: $1"; }
err_has() { grep -qE -- "$1" "$work/err" || fail "not on stderr: $1"; }
json() { head -n 1 "$work/out" | "$json_get" "$1" || fail "no $1 in the JSON"; }

good=$work/good.csv
{
  echo Thread,Time,Action,Pointer,Size,Stream
  for i in $(seq 1 200); do echo "1,00:00:00:000000,allocate,0x${i}00,$((i * 10000)),0x0"; done
  for i in $(seq 1 2 200); do echo "1,00:00:00:000000,free,0x${i}00,$((i * 10000)),0x0"; done
} >"$good"
gzip -k "$good"
head -n 50 "$good" | sed '40s/allocate/alocate/' >"$work/bad.csv"
head -c 300 "$good.gz" >"$work/cut.csv.gz"

want 0 "$knet" replay --help;                      out_has '--device-bytes BYTES'; out_has '--fits'; out_has '^  3 +a trace needs more memory'
want 2 "$knet" replay;                             err_has 'TRACE is missing'
want 2 "$knet" replay --polcy arena "$good";       err_has "did you mean '--policy'"
want 2 "$knet" replay --policy arean "$good";      err_has "unknown policy 'arean'; did you mean 'arena'"
want 2 "$knet" replay --device-bytes many "$good"; err_has "is 'many'"

want 0 "$knet" replay --repeats 1 --policy all "$good" "$good.gz"
[ ! -s "$work/err" ] || fail 'stderr should be empty'
out_has 'good.csv: RMM CSV, 300 events, 200 blocks'
out_has 'good.csv.gz: RMM CSV'
for policy in arena classes bestfit pytorch expandable bfc naive cuda-async; do out_has "^  $policy +[0-9.]+ MiB +[0-9]\.[0-9]{4}"; done
out_has 'unused over time'; out_has 'addresses at the peak, from 0x'

want 0 "$knet" replay --repeats 1 --json "$good"
[ "$(wc -l <"$work/out")" -eq 1 ] || fail 'one object'
[ "$(json events)" = 300 ] && [ "$(json peak_live_bytes)" = 201000000 ] && [ "$(json oom)" = false ] || fail values
[ "$(json policy)" = arena ] && [ "$(json file)" = "$good" ] && [ "$(json syncs)" = 0 ] || fail values
for key in peak_reserved_bytes device_allocs device_frees maps ns_per_op; do json $key >/dev/null; done
[ "$(json device_bytes)" = 1608515584 ] && [ "$(json fits)" = null ] || fail 'a device of 8 times the peak'
want 0 "$knet" replay --repeats 1 --json --policy classes,bestfit "$good" "$good"
[ "$(wc -l <"$work/out")" -eq 4 ] || fail 'an object for each trace and policy'

# The smallest device: in the table and in the JSON, a bound of the search, and a device that fails.
want 0 "$knet" replay --repeats 1 --fits --policy all "$good"
out_has 'ratio +fits +allocs'
for policy in arena classes bestfit pytorch expandable bfc naive cuda-async; do out_has "^  $policy +[0-9.]+ MiB +[0-9]\.[0-9]{4} +[0-9]\.[0-9]{4} +[0-9]+"; done
want 0 "$knet" replay --repeats 1 --fits --json --policy bestfit "$good"
[ "$(json fits)" = "$(json ratio)" ] || fail 'best fit does not fit into the memory that it reserves'
want 3 "$knet" replay --repeats 1 --fits --device-bytes 64MiB "$good"
out_has '^  arena +[0-9.]+ MiB +[0-9]\.[0-9]{4} +- '
want 3 "$knet" replay --repeats 1 --fits --device-bytes 64MiB --json "$good"
[ "$(json fits)" = null ] || fail 'fits'

want 3 "$knet" replay --repeats 1 --device-bytes 64MiB "$good"
err_has 'good.csv: policy arena: out of memory at event [0-9]+ of 300: .*asked for'
out_has 'out of memory at event'
want 3 "$knet" replay --repeats 1 --device-bytes 64MiB --json "$good"
[ "$(json oom)" = true ] && [ "$(json ns_per_op)" = null ] || fail 'oom'

# Our pool has two names. Words of --device-bytes.
want 0 "$knet" replay --repeats 1 --policy knet,arena "$good"
[ "$(grep -c '^  arena  ' "$work/out")" -eq 1 ] || fail 'knet is arena'
want 2 "$knet" replay --device-bytes auto1 "$good"; err_has "is 'auto1'.*such as 512MiB or 1.5GiB, or auto"
want 0 "$knet" replay --help; out_has 'auto: for each policy'; out_has '_record_memory_history'; out_has 'LoggingResourceAdaptor'

# auto: each policy on its smallest device.
want 0 "$knet" replay --repeats 1 --device-bytes auto --policy naive,pytorch "$good"
out_has 'ratio +fits +device +allocs'; out_has '^  naive +[0-9.]+ MiB +[0-9.]+ +1\.[0-9]{4} +[0-9]+MiB'
want 0 "$knet" replay --repeats 1 --device-bytes auto --json --policy naive "$good"
[ "$(json device_bytes)" = 201326592 ] && [ "$(json oom)" = false ] || fail 'the smallest device'

# The cost of driver calls: published, or a card's.
want 0 "$knet" replay --repeats 1 --json --policy naive "$good"
[ "$(json driver_calls.cuMemAlloc)" = 200 ] && [ "$(json driver_us)" = 11400 ] && [ "$(json costs_measured)" = 0 ] || fail costs
printf '%s\n' '{"bench":"gpu_driver","metric":"cuMemAlloc_2MiB_us","value":1000,"unit":"us"}' >"$work/costs"
want 0 "$knet" replay --repeats 1 --json --policy naive --costs "$work/costs" "$good"
[ "$(json driver_us)" = 203800 ] && [ "$(json costs_measured)" = 1 ] || fail 'measured costs'
want 1 "$knet" replay --costs "$good" "$good";      err_has 'no figure of a driver call'
want 1 "$knet" replay --costs "$work/none" "$good"; err_has 'none: No such file'

# Plan mode is a policy, and --tune plays it.
want 0 "$knet" replay --repeats 1 --policy plan "$good"; out_has '^  plan +[0-9.]+ MiB'
want 0 "$knet" replay --repeats 1 --policy all "$good"
! grep -q '^  plan ' "$work/out" || fail 'all is all but plan'
want 0 "$knet" replay --repeats 1 --tune "$good"; out_has '^  . plan mode +[0-9.]+ MiB'

# Tuning, and the page.
want 0 "$knet" replay --repeats 1 --tune "$good"; out_has 'options of arena'; out_has '^  \* '; out_has '^  proposed: '
want 0 "$knet" replay --repeats 1 --tune --json "$good"
[ "$(wc -l <"$work/out")" -eq 2 ] && tail -n 1 "$work/out" | "$json_get" tries.0.options >/dev/null || fail 'tries'
want 0 "$knet" replay --repeats 1 --html "$work/page.html" "$good"; grep -q '"policy":"arena"' "$work/page.html" || fail page
want 1 "$knet" replay --repeats 1 --html "$work/none/page.html" "$good"; err_has 'cannot write .*none/page.html'

want 1 "$knet" replay "$work/bad.csv";             err_has "bad.csv:40: unknown action 'alocate'"
want 1 "$knet" replay "$work/cut.csv.gz";          err_has 'cut.csv.gz: the gzip data end early'
want 1 "$knet" replay "$work/none.csv";            err_has 'none.csv: No such file'
want 1 "$knet" replay "$work";                     err_has 'directory'
want 1 "$knet" replay "$knet";                     err_has 'not a trace of a known format'
# A file that can't be read doesn't keep the others from being played.
want 1 "$knet" replay --repeats 1 "$work/bad.csv" "$good"; out_has 'good.csv: RMM CSV'
