#!/usr/bin/env bash
# knet info --peaks: the machine's peaks are kept for later runs and for the timer's tables.
# usage: info_cli.sh KNET
set -u
knet=$1
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
fail() { echo "info_cli.sh: $*" >&2; exit 1; }
export XDG_CACHE_HOME=$home/cache
unset KNET_TIMER

"$knet" info --json | grep -q peak_gflop_s && fail 'peaks that were never measured'
"$knet" info --peaks >"$home/out" || fail "exit code $?"
grep -q 'flop/s$' "$home/out" || fail 'no flop/s in the text'
grep -q 'B/s$' "$home/out" || fail 'no B/s in the text'
[ -s "$XDG_CACHE_HOME/knet/peaks" ] || fail 'no file of peaks'
[ "$(ls -A "$XDG_CACHE_HOME/knet")" = peaks ] || fail 'other files remain'
"$knet" info --json | grep -q '"peak_gflop_s":[0-9.]*[1-9]' || fail 'the peaks were not kept'
KNET_TIMER=1,width=140,out=$home/table "$knet" train mlp --epochs 1 --synthetic --quiet >/dev/null 2>&1 || fail 'train'
grep -q 'flop/s     B/s  %peak' "$home/table" || fail 'no %peak in the table'
XDG_CACHE_HOME=/dev/null "$knet" info --peaks >/dev/null 2>"$home/err" && fail 'a cache that is no directory'
grep -q '/dev/null/knet/peaks' "$home/err" || fail "an error without the path: $(cat "$home/err")"
exit 0
