#!/usr/bin/env bash
# rows_size.sh BUILD_DIR: the code of the pointwise rows, over all dtypes and instruction sets, is at most 2.9 MB (gcc 12
# makes 2.8). A second copy of the gradients' loops for what is rare goes past it.
set -euo pipefail
build=$1 most=2900000
rows() { find "$build" -path '*CMakeFiles/knet_ops_*/host/pointwise/row_loops.c.o' "$@"; }
[ -n "$(rows)" ] || { echo "no object of row_loops.c under $build"; exit 1; }
bytes=$(rows -exec size -A {} + | awk '$1 ~ /^\.text/ { n += $2 } END { print n + 0 }')
if [ "$bytes" -gt "$most" ]; then
  echo "the loops of pointwise rows have $bytes bytes of code, $most are allowed; the largest:"
  rows -exec nm -S --size-sort {} + | awk '$3 ~ /^[tT]$/ { print $2, $4 }' | sort | tail -10
  exit 1
fi
