#!/usr/bin/env bash
# Installs dependencies, builds and runs every test: in the dev build, under AddressSanitizer and UBSan, and under
# ThreadSanitizer. usage: tests/run.sh [PRESET]... The last line is "N passed, N failed".
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH   # unset in an empty environment, where bash has a default of its own

# The names of the presets for tests.
known=$(sed -n '/"testPresets"/,$s/.*{"name": "\([a-z0-9_-]*\)", "inherits.*/\1/p' CMakePresets.json | sort -u | tr '\n' ' ')
presets=("$@")
[ ${#presets[@]} -gt 0 ] || presets=(dev asan tsan)
for preset in "${presets[@]}"; do
  case $preset in
    -h | --help) echo "usage: tests/run.sh [PRESET]... (default: dev asan tsan; known: ${known% })"; exit 0 ;;
  esac
  if [[ " $known" != *" $preset "* ]]; then
    echo "tests/run.sh: unknown preset '$preset' (known: ${known% })" >&2
    exit 2
  fi
done

tools/install-deps.sh test
jobs=$(nproc)
mkdir -p build
passed=0 failed=0 skipped=0

for preset in "${presets[@]}"; do
  echo "== $preset"
  # A build that fails is one failed test: the other presets still run.
  if ! cmake --preset "$preset" >"build/$preset.log" 2>&1 ||
     ! cmake --build --preset "$preset" -j "$jobs" >>"build/$preset.log" 2>&1; then
    tail -n 60 "build/$preset.log"
    echo "$preset: the build failed"
    failed=$((failed + 1))
    continue
  fi
  rm -f "build/$preset.log"
  # One more than there are processors: some tests wait.
  ctest --preset "$preset" -j $((jobs + 1)) --output-junit "junit.xml" | tee "build/$preset/ctest.log" || true
  counts=$(sed -n 's/.*tests passed, \([0-9]*\) tests\{0,1\} failed out of \([0-9]*\).*/\1 \2/p' "build/$preset/ctest.log")
  if [ -z "$counts" ]; then
    echo "$preset: ctest ran no test"
    failed=$((failed + 1))
    continue
  fi
  read -r bad total <<<"$counts"
  unrun=$(grep -c '\*\*\*Skipped' "build/$preset/ctest.log" || true)   # ctest counts them as passed
  passed=$((passed + total - bad - unrun))
  failed=$((failed + bad))
  skipped=$((skipped + unrun))
done

[ "$skipped" -eq 0 ] || echo "skipped: $skipped (for example without a GPU)"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
