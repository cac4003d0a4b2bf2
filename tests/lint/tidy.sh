#!/usr/bin/env bash
# tidy.sh BUILD_DIR: clang-tidy finds nothing in the libraries and the command, by the checks of .clang-tidy. 77 (skipped)
# without clang-tidy 14: others know other checks.
set -euo pipefail
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
tidy=$(command -v clang-tidy-14 || command -v clang-tidy || true)
[ -n "$tidy" ] || { echo "clang-tidy 14 is not installed (apt-get install clang-tidy-14)"; exit 77; }
version=$("$tidy" --version | grep version)
grep -qE 'version 14\.' <<<"$version" || { echo "needs clang-tidy 14; $tidy is: $version"; exit 77; }
# Files that this build compiles. Assertions on, whatever the build: they say what can't be.
files=$(sed -n 's/^ *"file": "\(.*\)".*/\1/p' "$build/compile_commands.json" |
        grep -E "^$PWD/(alloc|profiler|ops|autograd|comm|tools)/.*\.c$" | sort -u)
[ -n "$files" ] || { echo "$build/compile_commands.json lists no file of the libraries"; exit 1; }
# A file once for each element type: not for each instruction set, nor for targets that compile it again. Options that gcc
# alone has are left out of the commands.
commands=$(mktemp -d)
trap 'rm -rf "$commands"' EXIT
sed 's/ -fno-tree-loop-distribute-patterns//' "$build/compile_commands.json" |
  awk 'BEGIN { RS = "\n}"; print "[" }
       match($0, /"file": "[^"]*"/) {
         key = substr($0, RSTART, RLENGTH)
         if (match($0, /-DKN_REAL=f[0-9]+/)) key = key substr($0, RSTART, RLENGTH)
         if (match($0, /-DKN_ROW_NAME=[a-z0-9]+/)) key = key substr($0, RSTART, RLENGTH)
         if (seen[key]++) next
         sub(/^[,\[\n]*/, "")
         print (n++ ? "," : "") $0 "}"
       }
       END { print "]" }' >"$commands/compile_commands.json"
found=$(xargs -P "$(nproc)" -n 4 "$tidy" -p "$commands" --quiet --extra-arg=-UKN_CHECKED --extra-arg=-DKN_CHECKED=1 \
        <<<"$files" 2>/dev/null | grep -A 3 -E '(error|warning): ' || true)
echo "$(wc -l <<<"$files") files"
[ -z "$found" ] || { echo "$found"; exit 1; }
