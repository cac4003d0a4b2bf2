#!/usr/bin/env bash
# Runs the benchmarks and writes build/bench.jsonl: one JSON object a line, {bench, metric, value, unit, baseline, ratio}.
# --quick: fewer repeats. Every figure stands beside a baseline measured in the same run; where PyTorch is the baseline
# it is Debian's, installed if missing, and reported as absent where it can't be. Instructions are counted by valgrind,
# likewise; launches of a training step are counted on a fake GPU, beside the most that we allow.
set -euo pipefail
cd "$(dirname "$0")/.."
quick=()
case ${1:-} in
  "") ;;
  --quick) quick=(--quick) ;;
  *) echo "bench/run.sh: unknown option $1 (only --quick)" >&2; exit 2 ;;
esac

tools/install-deps.sh build
tools/install-deps.sh bench || echo "bench/run.sh: PyTorch or valgrind is absent; figures are left out" >&2

# Release code; an environment that slows OpenBLAS down would slow both sides.
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE KNET_TIMER KNET_ALLOC
build=build/bench
mkdir -p build
cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release -DKNET_TESTS=OFF >build/bench.log
cmake --build $build -j "$(nproc)" >>build/bench.log || { tail -n 40 build/bench.log; exit 1; }

out=build/bench.jsonl
: >$out
for program in "$build"/bench/bench_*; do
  [ -x "$program" ] || continue
  echo "== $(basename "$program")" >&2
  started=$SECONDS
  "$program" "${quick[@]}" | tee -a $out
  echo "   $((SECONDS - started)) s" >&2
done
if [ -x "$build/bench/pair_frames" ]; then
  echo "== pair_instr.sh" >&2
  bench/alloc/pair_instr.sh "$build/bench/pair_frames" | tee -a $out
fi
if [ -x "$build/bench/op_frames" ]; then
  echo "== op_instr.sh" >&2
  bench/ops/op_instr.sh "$build/bench/op_frames" | tee -a $out
fi
echo "wrote $out: $(wc -l <$out) figures, in $SECONDS s with the build" >&2
