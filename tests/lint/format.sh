#!/usr/bin/env bash
# format.sh: all tracked C, C++ and CUDA files are as clang-format writes them. Another version than 14 formats some lines
# otherwise: 77 (skipped).
set -euo pipefail
cd "$(dirname "$0")/../.."
format=$(command -v clang-format-14 || command -v clang-format || true)
[ -n "$format" ] || { echo "clang-format 14 is not installed (apt-get install clang-format-14)"; exit 77; }
version=$("$format" --version)
grep -qE 'version 14\.' <<<"$version" || { echo "needs clang-format 14; $format is: $version"; exit 77; }
files=$(git ls-files '*.c' '*.cc' '*.h' '*.cu' '*.cuh')
wrong=$("$format" --dry-run -Werror $files 2>&1 | sed -n 's/^\([^: ]*\):[0-9]*:[0-9]*: error:.*/\1/p' | sort -u)
[ -z "$wrong" ] || { echo "not formatted; run: $format -i" $wrong; exit 1; }
