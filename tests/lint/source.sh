#!/usr/bin/env bash
# Includes point left only; libraries never exit, abort or print; no words that promise work still to do.
set -euo pipefail
cd "$(dirname "$0")/../.."
bad=0
complain() { echo "$1"; bad=1; }

# Which public headers each folder may include: its own and those to its left.
order=(alloc profiler ops autograd comm tools)
declare -A home
for folder in "${order[@]}"; do
  for header in "$folder"/{,train/}include/knet/*; do [ -e "$header" ] || continue; home[knet/$(basename "$header")]=$folder; done
done
rank() { local i; for i in "${!order[@]}"; do [ "${order[$i]}" = "$1" ] && echo "$i"; done; }
for folder in "${order[@]}"; do
  while IFS=: read -r file line text; do
    header=$(sed 's/.*[<"]\(knet\/[^>"]*\)[>"].*/\1/' <<<"$text")
    owner=${home[$header]:-}
    [[ $header != knet/sites/* ]] || continue # the build makes it
    if [ -z "$owner" ]; then
      complain "$file:$line: $header is no public header"
    elif [ "$(rank "$owner")" -gt "$(rank "$folder")" ]; then
      complain "$file:$line: $folder may not include $header of $owner: includes point left"
    fi
  done < <(grep -rnE '#include [<"]knet/' "$folder" --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh')
  # The build's files too: libraries, headers and sources of folders to the left alone.
  for other in "${order[@]}"; do
    [ "$other" != "$folder" ] || continue
    while IFS= read -r hit; do complain "$hit: builds with files of $other"; done < <(
      grep -rnE "(\.\./|PROJECT_SOURCE_DIR}/)$other/(src|base|report|inject|device|core|pool|inspect|train|replay|knet)\b" "$folder" --include=CMakeLists.txt --include='*.cmake' || true)
    [ "$(rank "$other")" -gt "$(rank "$folder")" ] || continue
    while IFS= read -r hit; do complain "$hit: links $other, which is right of $folder"; done < <(
      grep -rnE "(knet_|KnetC::)$other\b" "$folder" --include=CMakeLists.txt --include='*.cmake' || true)
  done
  # Private headers of other folders.
  while IFS= read -r hit; do complain "$hit: includes another folder's private file"; done < <(
    grep -rnE '#include "(\.\./)*(alloc|profiler|ops|autograd|comm|tools)/' "$folder" --include='*.[ch]' --include='*.cu' || true)
done

# The storeys of alloc: each includes those before it.
storeys=(device core pool inspect)
for i in "${!storeys[@]}"; do
  for above in "${storeys[@]:i+1}"; do
    while IFS= read -r hit; do complain "$hit: ${storeys[$i]} lies below $above"; done < <(
      grep -rnE "#include \"$above/" "alloc/${storeys[$i]}" || true)
  done
done

# Libraries: everything but the command, which is a program, and the examples.
# One file ends a process, in the C library's stead, that has only helper threads left.
libraries=$(git ls-files 'alloc/*.[ch]' 'profiler/*.[ch]' 'ops/*.[ch]' 'ops/*.cu' 'autograd/*.[ch]' 'comm/*.[ch]' 'tools/train/*.[ch]' \
            'tools/replay/*.[ch]' | grep -vE '^(tools/train/progress|alloc/device/helper|profiler/inject/exits)\.c$')
# The report that KNET_TIMER asks for goes to stderr from one file; nothing else prints.
hits=$(grep -nE '\b(exit|_exit|abort|printf|puts|perror|vprintf|assert)\s*\(|\bfprintf\s*\(\s*(stderr|stdout)' $libraries |
       grep -vE ':\s*(\*|//|/\*)|kn_[a-z_]*(exit|abort|printf)|snprintf' || true)
[ -z "$hits" ] || complain "libraries never exit, abort or print:
$hits"

hits=$(git grep -nE '\b(TODO|FIXME|XXX|HACK)\b|not implemented|unimplemented' -- '*.c' '*.h' '*.cu' '*.cuh' '*.sh' '*.py' \
       ':!tests/lint' || true)
[ -z "$hits" ] || complain "words that promise work still to do:
$hits"

# One style of sections, and of the libraries' guards: KNET_ is for public headers.
hits=$(git grep -nE '^/\* -(-|-{3,}) .* -+ \*/' -- '*.c' '*.h' '*.cu' '*.cuh' '*.cc' '*.hpp' || true)
[ -z "$hits" ] || complain "sections are written /* --- name --- */:
$hits"
hits=$(git grep -nE '^#ifndef KNET_[A-Z0-9_]+_H$' -- alloc profiler ops autograd comm ':!*/include/*' || true)
[ -z "$hits" ] || complain "guards of private headers start with KN_:
$hits"

# Tables that are fenced from the formatter may be wider.
hits=$(git ls-files '*.c' '*.h' '*.cu' '*.cuh' | python3 -c '
import sys
for name in sys.stdin.read().split():
    fenced = False
    for number, line in enumerate(open(name, encoding="utf-8"), 1):
        fenced = ("clang-format off" in line) or (fenced and "clang-format on" not in line)
        if not fenced and len(line.rstrip("\n")) > 100: print(f"{name}:{number}:{line[:60]}")')
[ -z "$hits" ] || complain "lines wider than the page:
$hits"
exit $bad
