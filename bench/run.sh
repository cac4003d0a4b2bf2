#!/usr/bin/env bash
# Runs the benchmarks and writes build/bench.jsonl: one JSON object a line, {bench, metric, value, unit, baseline, ratio}.
#   --quick          fewer repeats
#   --torch PYTHON   a second peer: the PyTorch of that Python, such as a 2.x in a virtual environment. What compares
#                    with PyTorch runs once more, in turn with it; these lines have a "peer", such as "PyTorch 2.4.1".
# Every figure stands beside a baseline measured in the same run; where PyTorch is the baseline it is Debian's, installed
# if missing, and reported as absent where it can't be. Instructions are counted by valgrind, likewise; launches of a
# training step are counted on a fake GPU, beside the most that we allow.
set -euo pipefail
cd "$(dirname "$0")/.."
quick=() torch=
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=(--quick) ;;
    --torch)
      torch=$(command -v "${2:-}") || { echo "bench/run.sh: --torch needs a Python; '${2:-}' is no command" >&2; exit 2; }
      version=$("$torch" -c 'import torch; print(torch.__version__)') ||
        { echo "bench/run.sh: $torch has no PyTorch; install it there: $torch -m pip install torch" >&2; exit 2; }
      shift ;;
    *) echo "bench/run.sh: unknown option $1 (only --quick and --torch PYTHON)" >&2; exit 2 ;;
  esac
  shift
done

tools/install-deps.sh build
tools/install-deps.sh bench || echo "bench/run.sh: PyTorch or valgrind is absent; figures are left out" >&2

# Release code; an environment that slows OpenBLAS down would slow both sides.
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE KNET_TIMER KNET_ALLOC KNET_BENCH_PYTHON KNET_BENCH_PEER
build=build/bench
mkdir -p build
# The fake GPU counts launches and runs no kernel: without a card no machine code is made, which takes a minute.
kernels=()
[ -e /dev/nvidiactl ] || kernels=(-DCMAKE_CUDA_ARCHITECTURES=90-virtual)
cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release -DKNET_TESTS=OFF "${kernels[@]}" >build/bench.log
cmake --build $build -j "$(nproc)" >>build/bench.log || { tail -n 40 build/bench.log; exit 1; }

out=build/bench.jsonl
: >$out
run() {
  echo "== $(basename "$1")${KNET_BENCH_PEER:+ beside $KNET_BENCH_PEER}" >&2
  started=$SECONDS
  "$1" "${quick[@]}" | tee -a $out
  echo "   $((SECONDS - started)) s" >&2
}
for program in "$build"/bench/bench_*; do
  [ -x "$program" ] || continue
  run "$program"
done
if [ -n "$torch" ]; then
  export KNET_BENCH_PYTHON=$torch KNET_BENCH_PEER="PyTorch $version"
  for program in arrays nn train memory models; do run "$build/bench/bench_$program"; done
  unset KNET_BENCH_PYTHON KNET_BENCH_PEER
fi
if [ -x "$build/bench/pair_frames" ]; then
  echo "== pair_instr.sh" >&2
  bench/alloc/pair_instr.sh "$build/bench/pair_frames" | tee -a $out
fi
if [ -x "$build/bench/op_frames" ]; then
  echo "== op_instr.sh" >&2
  bench/ops/op_instr.sh "$build/bench/op_frames" | tee -a $out
fi
echo "wrote $out: $(wc -l <$out) figures, in $SECONDS s with the build" >&2
