#!/usr/bin/env bash
# Everything that needs a GPU, on a machine that has one but no network and few packages.
#
#   tests/gpu/run.sh prepare [--no-build] [FOLDER]  where this repository builds: makes FOLDER (gpu-bundle), small enough
#                                                  to carry: binaries of the cuda preset with the libraries they need
#   FOLDER/run.sh run correctness [RESULTS]         on the machine with the GPU: tests, compute-sanitizer, the timer
#   FOLDER/run.sh run speed [RESULTS]               the same: what calls, ops and training steps cost, beside PyTorch
#   FOLDER/run.sh run models [RESULTS]              the same: every case of an op and every model beside PyTorch
#   FOLDER/run.sh run speed --only STEP,STEP …      some steps alone
#   tests/gpu/run.sh list                           the steps of all runs, with the seconds each may take
#
# A run ends within nine minutes. Results are written to RESULTS, else $OUT, else ./gpu-results: summary.txt,
# bench.jsonl, logs.tar.gz. Exit code 0: every step passed; 1: one failed, was cut off or left out; 2: wrong usage, or
# no bundle; 77: there is no GPU. Clocks and modes of the card stay as they are.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

command -v python3 >/dev/null || { echo "run.sh: needs python3" >&2; exit 2; }
case ${1:-} in
  prepare) shift; exec python3 "$here/prepare.py" "$@" ;;
  run) shift; exec python3 "$here/steps.py" "$@" ;;
  list) exec python3 "$here/steps.py" --list ;;
  *) sed -n '2,16p' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//'; exit 2 ;;
esac
