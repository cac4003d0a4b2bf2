#!/usr/bin/env bash
# From a fresh clone to a trained LeNet: installs dependencies, builds, trains three epochs on Fashion-MNIST and prints
# where time and memory went. About two minutes on two cores. usage: tools/demo.sh [OPTION of knet train]...
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH   # unset in an empty environment, where bash has a default of its own
case ${1:-} in
  -h | --help) echo "usage: tools/demo.sh [OPTION of knet train]... (knet train --help lists them)"; exit 0 ;;
esac

tools/install-deps.sh build
build=build log=build/demo.log
mkdir -p build

# CUDA kernels take minutes to compile: only where a GPU can run them.
cuda=OFF
[ -e /dev/nvidia0 ] && cuda=AUTO
generator=()
[ -e $build/CMakeCache.txt ] || ! command -v ninja >/dev/null || generator=(-G Ninja)

echo "Building"
if ! { cmake -S . -B $build "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DKNET_CUDA=$cuda -DKNET_TESTS=OFF \
             -DKNET_BENCH=OFF && cmake --build $build -j "$(nproc)"; } >$log 2>&1; then
  tail -n 40 $log >&2
  echo "tools/demo.sh: the build failed; $log has its whole output" >&2
  exit 1
fi

options=(--epochs 3 --optimizer adam --device cpu)
[ -e $build/lib/libknet_ops_cuda.so ] && options=(--epochs 3 --optimizer adam --device cuda)
if [ ! -d /usr/share/datasets/fashion-mnist ] && [[ " $* " != *" --data "* ]]; then
  echo "Fashion-MNIST is not installed; training on made-up images"
  options+=(--synthetic)
fi
echo "KNET_TIMER=1 $build/bin/knet train lenet ${options[*]} $*"
KNET_TIMER=1 exec $build/bin/knet train lenet "${options[@]}" "$@"
