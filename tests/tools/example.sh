#!/usr/bin/env bash
# example.sh PROGRAM TEXT: the program ends with 0 and TEXT (a basic regular expression) is in what it prints.
set -euo pipefail
output=$("$1" 2>&1) || { echo "exit code $?: $output"; exit 1; }
grep -q "$2" <<<"$output" || { printf 'no "%s" in:\n%s\n' "$2" "$output"; exit 1; }
