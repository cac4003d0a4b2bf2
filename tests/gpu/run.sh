#!/usr/bin/env bash
# Everything that needs a GPU, on a machine that has one but no network and few packages.
#
#   tests/gpu/run.sh prepare [--no-build] [FOLDER]  where this repository builds: makes FOLDER (gpu-bundle), small enough
#                                                  to carry: binaries of the cuda preset with the libraries they need
#   FOLDER/run.sh run [RESULTS]                     on the machine with the GPU: versions, ceilings, tests, compute-
#                                                  sanitizer, costs of driver calls, benchmarks, training; a summary last
#
# Results go to RESULTS, else $OUT, else ./gpu-results: summary.txt, bench.jsonl, logs.tar.gz. A run ends within
# KNET_GPU_SECONDS (520): each step has its own limit, and none stops the others. Clocks and modes of the card are left
# as they are.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() { echo "run.sh: $*" >&2; exit 2; }

# --- prepare --------------------------------------------------------------------------------------------------------

# Libraries that the other machine brings itself: the C library and all of CUDA.
is_foreign_library() {
  case $1 in
    libc.so*|libm.so*|libdl.so*|librt.so*|libpthread.so*|ld-linux*|linux-vdso*|libstdc++.so*|libgcc_s.so*) return 0 ;;
    libcuda.so*|libcudart*|libcublas*|libcudnn*|libcupti*|libnvrtc*|libnvJitLink*|libnvToolsExt*) return 0 ;;
  esac
  return 1
}

# Writes tests.tsv: name, seconds allowed, "alone" or "shared", labels, environment, command. Paths of this machine
# become @BUILD@ and @SOURCE@; what tests read from the source tree is copied.
list_tests() {
  ctest --test-dir "$build" -L '^(gpu|parity)$' --show-only=json-v1 |
    python3 -c '
import json, os, shutil, sys
build, source, stage = sys.argv[1:]
for test in json.load(sys.stdin)["tests"]:
    if not os.path.exists(test.get("command", [""])[0]):
        print("not built: " + test["name"], file=sys.stderr)
        continue
    p = {x["name"]: x["value"] for x in test["properties"]}
    def moved(text):
        if text.startswith(source) and not text.startswith(build) and os.path.exists(text):
            to = os.path.join(stage, "source", os.path.relpath(text, source))
            os.makedirs(os.path.dirname(to), exist_ok=True)
            (shutil.copytree if os.path.isdir(text) else shutil.copy)(text, to)
        return text.replace(build, "@BUILD@").replace(source, "@SOURCE@")
    env = " ".join(moved(e) for e in p.get("ENVIRONMENT", []) if e)
    alone = "alone" if "RESOURCE_LOCK" in p or p.get("RUN_SERIAL") else "shared"
    print("\t".join([test["name"], str(int(p.get("TIMEOUT", 120))), alone, ",".join(p.get("LABELS", [])), env or "-",
                     " ".join(moved(c) for c in test["command"])]))
' "$build" "$repo" "$stage"
}

# The real data, cut: 10000 images for training, 10000 to test on.
copy_data() {
  python3 - "$1" "$2" <<'PY'
import gzip, os, struct, sys
source, target = sys.argv[1:]
for name, header, size in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
    for part in ("train", "t10k"):
        path = os.path.join(source, f"{part}-{name}-ubyte.gz")
        if not os.path.exists(path):
            sys.exit(f"no {path}: training runs on synthetic data there")
        with gzip.open(path) as file:
            data = file.read(header + 10000 * size)
        os.makedirs(target, exist_ok=True)
        data = data[:4] + struct.pack(">I", 10000) + data[8:]
        with gzip.open(os.path.join(target, os.path.basename(path)), "wb") as file:
            file.write(data)
PY
}

copy_libraries() {
  local file name path
  while read -r file; do
    ldd "$file" 2>/dev/null
  done < <(find "$stage/build" -type f -perm -u+x; find "$stage/build" -name '*.so*' -type f) |
    awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' | sort -u |
    while read -r name path; do
      is_foreign_library "$name" && continue
      case $path in "$build"/*) continue ;; esac
      cp -L "$path" "$stage/lib/$name"
    done
}

prepare() {
  local do_build=yes
  [ "${1:-}" = --no-build ] && { do_build=no; shift; }
  repo=$(cd "$here/../.." && pwd)
  build=$repo/build/cuda
  bundle=${1:-$repo/gpu-bundle}
  if [ $do_build = yes ]; then
    # What doesn't build is left behind, and said: the rest is worth a run.
    (cd "$repo" && cmake --preset cuda && cmake --build --preset cuda -j "$(nproc)" -- -k 0) ||
      echo "run.sh: the cuda preset built in part only" >&2
  fi
  [ -d "$build/lib" ] || fail "no $build/lib: build the cuda preset first"
  stage=$(mktemp -d) || exit 1
  trap 'rm -rf "$stage"' EXIT
  mkdir -p "$stage/lib" "$stage/build/tests"
  list_tests >"$stage/tests.tsv" || fail "ctest listed no tests in $build"
  (cd "$build" && find lib bin bench -maxdepth 1 ! -type d \( -perm -u+x -o -name '*.so*' \) \
    -exec cp -a --parents -t "$stage/build/" {} +) 2>&1 | grep -v "No such file"
  (cd "$build" && cut -f6 "$stage/tests.tsv" | cut -d' ' -f1 | sed -n 's,^@BUILD@/,,p' | sort -u |
    xargs -r cp -a --parents -t "$stage/build/")
  copy_libraries
  find "$stage/build" "$stage/lib" -type f \( -perm -u+x -o -name '*.so*' \) -exec strip --strip-unneeded {} + 2>/dev/null
  copy_data /usr/share/datasets/fashion-mnist "$stage/data"
  cp "$here"/*.py "$here/UNVERIFIED.md" "$stage/"
  [ -d "$repo/bench/peer" ] && cp -a "$repo/bench/peer" "$stage/peer"
  rm -rf "$bundle" && mkdir -p "$bundle" && cp "$here/run.sh" "$bundle/"
  tar -C "$stage" -czf "$bundle/payload.tar.gz" . || fail "packing failed"
  echo "$bundle: $(du -sm "$bundle" | cut -f1) MB to carry, $(du -sm "$stage" | cut -f1) MB there," \
       "$(wc -l <"$stage/tests.tsv") tests"
}

# --- run: steps, each with its limit --------------------------------------------------------------------------------

started=$SECONDS
left() { echo $((limit - (SECONDS - started))); }

# step NAME SECONDS COMMAND…: one line of the summary; the output goes to a log of that name.
step() {
  local name=$1 seconds=$2 begin=$SECONDS status
  shift 2
  [ "$(left)" -lt "$seconds" ] && seconds=$(left)
  if [ "$seconds" -lt 3 ]; then
    printf '%-28s left out: no time\n' "$name" >>"$summary"
    return 124
  fi
  timeout -k 3 "$seconds" "$@" >"$logs/$name.log" 2>&1
  status=$?
  printf '%-28s %-12s %4d s\n' "$name" "$(status_word $status)" $((SECONDS - begin)) >>"$summary"
  tail -n 1 "$summary"
  return $status
}

status_word() {
  case $1 in
    0) echo ok ;;
    77) echo skipped ;;
    124|137) echo "timed out" ;;
    *) echo "FAILED ($1)" ;;
  esac
}

# Folders with the CUDA libraries: Python's packages first, for a fair comparison with PyTorch; then toolkits.
library_folders() {
  local site
  for site in $(python3 -c 'import site, sysconfig; print(*site.getsitepackages(), sysconfig.get_paths()["purelib"])' \
                2>/dev/null); do
    find "$site/nvidia" -maxdepth 3 -type d -name lib 2>/dev/null
  done
  ls -d /usr/local/cuda*/lib64 /usr/local/cuda*/extras/CUPTI/lib64 /usr/local/cuda*/targets/x86_64-linux/lib 2>/dev/null
  python3 -c 'import ctypes; ctypes.CDLL("libcuda.so.1")' 2>/dev/null ||
    find /usr /opt /lib -name 'libcuda.so.1' -not -path '*compat*' -printf '%h\n' 2>/dev/null | head -n 1
}

versions() {
  nvidia-smi
  nvcc --version
  uname -a
  nproc
  python3 -c 'import torch; print("torch", torch.__version__, torch.version.cuda, torch.backends.cudnn.version())'
  local name
  for name in libcuda.so.1 libcudart.so.13 libcublas.so.13 libcublasLt.so.13 libcudnn.so.9 libcupti.so.13; do
    python3 -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1]); print(sys.argv[1], "from", *sorted({l.split()[-1]
      for l in open("/proc/self/maps") if sys.argv[1].split(".so")[0] + ".so" in l}))' "$name" || echo "$name: not found"
  done
  echo "missing libraries of ours:"
  find "$root/build" -type f -perm -u+x -exec ldd {} + 2>/dev/null | grep 'not found' | sort | uniq -c
  return 0
}

# The n-th column of a test's line.
test_field() { awk -F'\t' -v name="$1" -v n="$2" '$1 == name {print $n}' "$root/tests.tsv"; }

test_command() { test_field "$1" 6 | sed "s,@BUILD@,$root/build,g; s,@SOURCE@,$root/source,g"; }

test_environment() {
  local env
  env=$(test_field "$1" 5 | sed "s,@BUILD@,$root/build,g; s,@SOURCE@,$root/source,g")
  [ "$env" = - ] || echo "$env"
}

# Runs one test; its status and time go to tests.done.
run_test() {
  local name=$1 seconds begin status
  seconds=$(test_field "$name" 2)
  [ "$seconds" -gt 180 ] && seconds=180
  begin=$(date +%s%N)
  # shellcheck disable=SC2046
  (cd "$work" && env $(test_environment "$name") timeout -k 3 "$seconds" $(test_command "$name")) \
    >"$logs/test.$name.log" 2>&1
  status=$?
  printf '%s\t%s\t%d\n' "$name" "$status" $((($(date +%s%N) - begin) / 1000000)) >>"$work/tests.done"
}

run_tests() {
  local name
  : >"$work/tests.done"
  for name in $(awk -F'\t' '$3 == "alone" {print $1}' "$root/tests.tsv"); do run_test "$name"; done
  awk -F'\t' '$3 != "alone" {print $1}' "$root/tests.tsv" | xargs -r -P 4 -I NAME "$BASH" "$here/run.sh" --test NAME
  awk -F'\t' '$2 != 0 && $2 != 77' "$work/tests.done"
  awk -F'\t' '$2 != 0 && $2 != 77 {bad = 1} END {exit bad}' "$work/tests.done"
}

# compute-sanitizer over the quickest tests that passed, until its time is used up.
sanitize() {
  local tool=$1 seconds=$2 begin=$SECONDS name bad=0 n=0
  command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer"; return 77; }
  for name in $(awk -F'\t' '$2 == 0 {print $3, $1}' "$work/tests.done" | sort -n | cut -d' ' -f2); do
    case $name in gpu.pool|gpu.streams) continue ;; esac  # they fill the card; slow here
    [ $((seconds - (SECONDS - begin))) -lt 10 ] && break
    echo "== $tool $name"
    # Errors that tests provoke through the API (no memory, misuse) are theirs to check.
    # shellcheck disable=SC2046
    env $(test_environment "$name") timeout -k 3 60 compute-sanitizer --tool "$tool" \
      $([ "$tool" = memcheck ] && echo --report-api-errors no) --error-exitcode 99 $(test_command "$name") 2>&1 |
      tail -n 40
    [ "${PIPESTATUS[0]}" = 99 ] && { bad=$((bad + 1)); echo "== $tool found errors in $name"; }
    n=$((n + 1))
  done
  echo "== $tool: $n tests, errors in $bad"
  [ $bad -eq 0 ]
}

benches() {
  local program
  for program in "$root"/build/bench/bench_*; do
    [ -x "$program" ] || continue
    case $program in *gpu_costs) continue ;; esac
    echo "== $(basename "$program")"
    timeout -k 3 40 "$program" --quick 2>&1
  done
  return 0
}

train() {
  local model=$1 data=(--data "$root/data")
  shift
  [ -d "$root/data" ] || data=(--synthetic)
  [ -x "$root/build/bin/knet" ] || { echo "no knet command in the bundle"; return 77; }
  KNET_TIMER=1 "$root/build/bin/knet" train "$model" --device cuda "${data[@]}" "$@"
}

print_summary() {
  local name
  if [ -s "$logs/train-lenet.log" ]; then
    echo
    echo "== train-lenet"
    tail -n 40 "$logs/train-lenet.log"
  fi
  echo
  echo "== summary"
  cat "$summary"
  awk '/FAILED|timed out/ {print $1}' "$summary" | while read -r name; do
    [ "$name" = tests ] && continue
    echo "-- $name"
    sed -n '1,2p' "$logs/$name.log"
    tail -n 2 "$logs/$name.log"
  done
  if [ -s "$work/tests.done" ]; then
    awk -F'\t' '{n++} $2 == 0 {ok++} $2 == 77 {skipped++} END {
      printf "tests: %d passed, %d failed, %d skipped\n", ok, n - ok - skipped, skipped}' "$work/tests.done"
    awk -F'\t' '$2 != 0 && $2 != 77 {print $1}' "$work/tests.done" | while read -r name; do
      echo "-- $name"
      grep -aE 'FAILED|error:|ERROR|returned|wrong|lacks|signal' "$logs/test.$name.log" | head -n 6
      tail -n 2 "$logs/test.$name.log"
    done
  fi
  grep -ah '== .*: .* tests, errors in' "$logs"/sanitize-*.log 2>/dev/null
  echo "figures:"
  grep -hE 'ceiling|"torch"|grow_by_handle|cuMem(Alloc|Free|Unmap)_(2|1024)MiB|record_query|pair|table_|membarrier|cuStream|cuEvent(Record|Query)_ns|cuMemGetInfo' \
    "$results/bench.jsonl" 2>/dev/null |
    sed -E 's/\{"bench": ?"([^"]*)", ?"metric": ?"([^"]*)", ?"value": ?([^,]*), ?"unit": ?"([^"]*)".*"ratio": ?(.*)\}/  \1 \2 = \3 \4 (ratio \5)/'
}

finish() {
  grep -ah '^{"bench"' "$logs"/*.log >"$results/bench.jsonl" 2>/dev/null
  print_summary | tee "$results/summary.txt"
  tar -C "$logs" -czf "$results/logs.tar.gz" .
  echo "logs: $results/logs.tar.gz"
}

run() {
  results=$(realpath -m "${1:-${OUT:-gpu-results}}")
  limit=${KNET_GPU_SECONDS:-520}
  work=$(mktemp -d) || exit 1
  root=$work/bundle logs=$work/logs summary=$work/summary.txt
  mkdir -p "$root" "$logs" "$results"
  [ -f "$here/payload.tar.gz" ] || fail "no payload.tar.gz beside run.sh: this is no bundle (see: run.sh prepare)"
  tar -C "$root" -xzf "$here/payload.tar.gz" || fail "the bundle can't be unpacked"
  LD_LIBRARY_PATH=$root/build/lib:$root/lib:$(library_folders | awk '!seen[$0]++' | paste -sd:):${LD_LIBRARY_PATH:-}
  export LD_LIBRARY_PATH work root logs here
  echo "LD_LIBRARY_PATH=$LD_LIBRARY_PATH" >"$logs/environment.log"
  export -f sanitize benches train versions run_tests run_test test_field test_command test_environment
  trap finish EXIT
  steps
}

steps() {
  step versions 40 bash -c versions
  step tests 240 bash -c run_tests
  step driver-costs 90 "$root/build/bench/bench_gpu_costs"
  step torch-baseline 90 python3 "$root/torch_baseline.py"
  step train-lenet 60 bash -c 'train lenet --epochs 2'
  step train-mlp 40 bash -c 'train mlp --epochs 1'
  step knet-info 10 "$root/build/bin/knet" info
  step sanitize-memcheck 90 bash -c 'sanitize memcheck 85'
  step sanitize-racecheck 60 bash -c 'sanitize racecheck 55'
  step benches 120 bash -c benches
}

case ${1:-} in
  prepare) shift; prepare "$@" ;;
  run) shift; run "$@" ;;
  --test) run_test "$2" ;;   # of run_tests, which runs several at a time
  *) sed -n '2,12p' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//'; exit 2 ;;
esac
