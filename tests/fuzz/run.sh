#!/usr/bin/env bash
# run.sh [RUNS] [READER …]: libFuzzer with AddressSanitizer and UBSan over the readers of traces (csv, gzip, kntrace,
# pickle), the words of KNET_TIMER (timer) and KNET_ALLOC (config), profiles read back (profile) and their writers (format), 1,000,000
# inputs each by default; needs clang. What crashes is left in build/fuzz. KNET_FUZZ_KEEP=1 puts
# what was found to reach new code into the corpus.
set -euo pipefail
cd "$(dirname "$0")/../.."
runs=${1:-1000000}
shift || true
readers=("$@")
[ ${#readers[@]} -gt 0 ] || readers=(csv gzip kntrace pickle timer profile format config)
command -v clang >/dev/null || { echo "run.sh: clang is missing (apt-get install clang)" >&2; exit 2; }
mkdir -p build/fuzz
base=(alloc/base/*.c)
sources=(tests/fuzz/fuzz_trace.c tools/replay/replay_{trace,input,kntrace,csv,pickle,torch}.c alloc/device/{status,thread}.c)
config=(tests/fuzz/fuzz_config.c alloc/inspect/{config,writer}.c alloc/device/{status,thread}.c)
profiles=(tests/fuzz/fuzz_profile.c profiler/report/{read,read_trace,select,holders,diff}.c alloc/device/{status,thread}.c
          profiler/report/{report,table,cells,fields,json,export,name,timeline}.c profiler/src/env.c)
flags=(-std=gnu11 -D_GNU_SOURCE -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -DKN_CHECKED
       -Ialloc/include -Ialloc/base -Ialloc -Itools/replay -Iprofiler/include -Iprofiler/report -Iprofiler/src)
for reader in "${readers[@]}"; do
  program=build/fuzz/$reader found=build/fuzz/$reader.corpus
  mkdir -p "$found"
  length=4096
  case $reader in
    timer) files=("${profiles[@]}") length=400 ;;
    config) files=("${config[@]}") ;;
    profile | format) files=("${profiles[@]}") ;;
    *) files=("${sources[@]}") ;;
  esac
  clang "${flags[@]}" "-DFUZZ_${reader^^}" "${files[@]}" "${base[@]}" -lz -lcjson -lm -lpthread -o "$program"
  "$program" -runs="$runs" -max_len="$length" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
             -artifact_prefix="build/fuzz/$reader-" "$found" "tests/fuzz/corpus/$reader" 2>&1 |
    tee "build/fuzz/$reader.log" | tail -n 8
  # The fewest inputs that reach all the code that was reached.
  if [ -n "${KNET_FUZZ_KEEP:-}" ]; then
    "$program" -set_cover_merge=1 -max_len=400 "tests/fuzz/corpus/$reader" "$found" 2>/dev/null
  fi
done
