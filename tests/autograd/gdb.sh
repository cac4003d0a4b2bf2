#!/usr/bin/env bash
# gdb.sh GDB SCRIPT PROGRAM: the commands of knet.py print a tensor and its tape. 77 (skipped) where gdb has no Python or
# may not run a program.
set -euo pipefail
gdb=$1 script=$2 program=$3
"$gdb" -batch -nx -ex 'python print("python")' 2>/dev/null | grep -q python || { echo "gdb has no Python"; exit 77; }
out=$(KNET_TIMER=1,out=/dev/null "$gdb" -batch -nx -ex 'set debuginfod enabled off' -ex "source $script" \
      -ex 'set breakpoint pending on' -ex 'break kn_check' -ex run -ex 'knet tensor looked_at' -ex 'knet tensor forgotten' -ex 'knet tape looked_at' \
      -ex 'knet tape 0' "$program" 2>&1) || true
grep -q 'Breakpoint [0-9]*, ' <<<"$out" || { echo "$out"; echo "gdb can't run a program here"; exit 77; }
for line in 'tensor 0x[0-9a-f]*: f32 \[\], [12] references, .*gdb_program\.c:[0-9]+, .* on cpu, version .*; gradient to result 0 of sum 0x' \
            'tensor 0x[0-9a-f]*: f32 \[128,128\], .* references, forgotten until backward.*, no storage' \
            'tape 0x[0-9a-f]*: 7 nodes' '#0 watch.*: f32 \[2,3\]; inputs none; 0 saved' \
            '#1 mul in hidden.*: f32 \[2,3\]; inputs result 0 of watch #0, none; 1 saved' \
            '#2 tanh in hidden.*: f32 \[2,3\]; inputs result 0 of mul #1; 1 saved' \
            '#3 sum, .*gdb_program\.c:[0-9]+: f32 \[\]; inputs result 0 of tanh #2; 0 saved' \
            '^0 is NULL'; do
  grep -qE "$line" <<<"$out" || { echo "$out"; echo "no line '$line'"; exit 1; }
done
