#!/usr/bin/env bash
# gdb.sh GDB SCRIPT PROGRAM: the commands of knet.py print the pool, blocks in each state and the streams' epochs. 77
# (skipped) where gdb has no Python or may not run a program.
set -euo pipefail
gdb=$1 script=$2 program=$3
"$gdb" -batch -nx -ex 'python print("python")' 2>/dev/null | grep -q python || { echo "gdb has no Python"; exit 77; }
out=$("$gdb" -batch -nx -ex 'set debuginfod enabled off' -ex 'set breakpoint pending on' -ex "source $script" \
      -ex 'break kn_pool_destroy' -ex run -ex 'knet pools' -ex 'knet blocks watched' -ex 'knet epochs pool' "$program" 2>&1)
grep -q 'Breakpoint 1, ' <<<"$out" || { echo "$out"; echo "gdb can't run a program here"; exit 77; }
for line in 'pool watched on sim7, 0x[0-9a-f]*: live 4\..* MiB, reserved .* MiB, waiting 2\.00 MiB, limit none, 2 streams' \
            ' live    stream 0x10, requested 3145728' ' slab    stream 0x10, slots of 1024: ' ' free    stream 0x10, epoch 1' \
            ' waiting stream 0x10, waits for epoch 1 of 0x20' ' hole    any stream' \
            'stream 0x20: epoch 2 is open with 0 B, 0 is finished, events of \[1\]'; do
  grep -qE "$line" <<<"$out" || { echo "$out"; echo "no line '$line'"; exit 1; }
done
