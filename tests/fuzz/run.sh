#!/usr/bin/env bash
# run.sh [RUNS] [READER…]: libFuzzer with AddressSanitizer and UBSan over the readers of tests/fuzz/CMakeLists.txt, RUNS
# inputs each (1,000,000); needs clang. What crashes is left in build/fuzz, as READER-crash-…. KNET_FUZZ_KEEP=1 puts what
# was found to reach new code into the corpus.
set -euo pipefail
cd "$(dirname "$0")/../.."
runs=${1:-1000000}
shift || true
readers=("$@")
[ ${#readers[@]} -gt 0 ] || { mapfile -t readers < <(ls tests/fuzz/corpus); }
command -v clang >/dev/null || { echo "run.sh: clang is missing (apt-get install clang)" >&2; exit 2; }
for reader in "${readers[@]}"; do
  [ -d "tests/fuzz/corpus/$reader" ] || { echo "run.sh: no reader '$reader' ($(ls -C -w 0 tests/fuzz/corpus))" >&2; exit 2; }
done
build=build/fuzz
mkdir -p $build
cmake -S . -B $build -G Ninja -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DBUILD_SHARED_LIBS=OFF \
      -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_FLAGS_RELWITHDEBINFO="-O1 -g" -DKNET_CHECKED=1 -DKNET_ONE_ISA=ON \
      -DKNET_SANITIZE=fuzzer-no-link,address,undefined -DKNET_CUDA=OFF -DKNET_BENCH=OFF >$build.log
cmake --build $build --target fuzz >>$build.log || { tail -n 40 $build.log; exit 1; }
for reader in "${readers[@]}"; do
  program=$build/tests/test_fuzz_$reader found=$build/$reader.corpus corpus=tests/fuzz/corpus/$reader
  length=4096
  [ "$reader" != timer ] || length=400
  mkdir -p "$found"
  echo "== $reader"
  "$program" -runs="$runs" -max_len="$length" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
             -artifact_prefix="$build/$reader-" "$found" "$corpus" 2>&1 | tee "$build/$reader.log" | tail -n 8
  # The fewest inputs that reach all the code that was reached.
  if [ -n "${KNET_FUZZ_KEEP:-}" ]; then
    "$program" -set_cover_merge=1 -max_len=400 "$corpus" "$found" 2>/dev/null
  fi
done
