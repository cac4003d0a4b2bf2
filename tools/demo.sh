#!/usr/bin/env bash
# From a fresh clone to a trained LeNet: installs what is missing (Debian 12), builds, trains three epochs on the real
# Fashion-MNIST images and prints where time and memory went. About two minutes on two cores, most of them training.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH   # unset in an empty environment, where bash has a default of its own

tools/install-deps.sh build
build=build/demo log=build/demo.log
mkdir -p build

# CUDA kernels take minutes to compile: only where a GPU can run them.
cuda=OFF
[ -e /dev/nvidia0 ] && cuda=AUTO
generator=()
command -v ninja >/dev/null && generator=(-G Ninja)

echo "Building"
if ! { cmake -S . -B $build "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DKNET_CUDA=$cuda -DKNET_TESTS=OFF \
             -DKNET_BENCH=OFF && cmake --build $build -j "$(nproc)"; } >$log 2>&1; then
  tail -n 40 $log >&2
  echo "The build failed; all of it is in $log." >&2
  exit 1
fi

device=cpu
[ -e $build/lib/libknet_ops_cuda.so ] && device=cuda
echo "KNET_TIMER=1 $build/bin/knet train lenet --epochs 3 --optimizer adam --device $device"
KNET_TIMER=1 exec $build/bin/knet train lenet --epochs 3 --optimizer adam --device $device
