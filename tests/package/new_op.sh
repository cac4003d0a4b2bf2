#!/usr/bin/env bash
# new_op.sh SOURCE: adds the ops of CONTRIBUTING to a copy of the source, a pointwise one and one with kernels, and runs the
# tests that walk the op table. Fails when a patch does not apply, touches more files than CONTRIBUTING promises, or is
# not enough.
set -euo pipefail
source=$1
here=$(cd "$(dirname "$0")" && pwd)
command -v git >/dev/null || { echo "new_op.sh: git is missing" >&2; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

mkdir "$tmp/copy"
tar -C "$source" --exclude=./build --exclude=./.git -cf - . | tar -C "$tmp/copy" -xf -
add() { # PATCH FILES: at most so many
  local n
  n=$(grep -c '^diff ' "$here/new_op/$1")
  [ "$n" -le "$2" ] || { echo "new_op.sh: $1 touches $n files, more than $2" >&2; exit 1; }
  (cd "$tmp/copy" && git apply --recount "$here/new_op/$1")
}
add row.patch 2
add kernel.patch 8

cmake -S "$tmp/copy" -B "$tmp/build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-O0 -DKNET_ONE_ISA=ON \
  -DKNET_CUDA=OFF -DKNET_BENCH=OFF \
  -DKNET_PARTS=alloc,profiler,ops,autograd >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
cmake --build "$tmp/build" --target test_ops_table test_ops_parity_host test_autograd_rules test_autograd_schema \
  >"$tmp/log" 2>&1 || { tail -40 "$tmp/log"; exit 1; }
for test in ops_table ops_parity_host autograd_rules autograd_schema; do
  "$tmp/build/tests/test_$test" >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
done
echo "both ops pass the tests that walk the table"
