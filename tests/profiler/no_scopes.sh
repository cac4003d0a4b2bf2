#!/usr/bin/env bash
# no_scopes.sh COMPILER OBJECT SOURCE_DIR: an object with scopes compiled out refers to nothing of the timer,
# holds no label, and is byte for byte what it is without them.
set -euo pipefail
object=$2 work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if nm "$object" | grep -E 'kn_'; then echo "the timer is still referred to"; exit 1; fi
printf 'int work(int x); int with_scopes(int x); int with_scopes(int x) { return work(work(x)); }\n' >"$work/plain.c"
"$1" -O2 -c "$work/plain.c" -o "$work/plain.o"
"$1" -O2 -I"$3/profiler/include" -I"$3/alloc/include" -c "$3/tests/profiler/no_scopes.c" -o "$work/scopes.o"
objcopy -O binary -j .text "$work/plain.o" "$work/plain.bin"
objcopy -O binary -j .text "$work/scopes.o" "$work/scopes.bin"
cmp "$work/plain.bin" "$work/scopes.bin"
if strings "$work/scopes.o" | grep -E '^(block|text|statement)$'; then echo "labels are kept"; exit 1; fi
