#!/usr/bin/env bash
# reference.sh SOURCE_DIR: Doxygen makes the API reference without a warning, and it has each function of the
# public headers.
set -euo pipefail
command -v doxygen >/dev/null || { echo "doxygen is not installed"; exit 77; }
cd "$1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{ cat docs/Doxyfile; echo "OUTPUT_DIRECTORY = $work"; } | doxygen - 2>"$work/warnings" || { cat "$work/warnings"; exit 1; }
[ ! -s "$work/warnings" ] || { cat "$work/warnings"; exit 1; }
bad=0
while read -r name; do
  grep -qrh ">$name</a>" "$work" --include='*.html' || { echo "$name is not in the reference"; bad=1; }
done < <(find alloc profiler ops autograd comm tools/train -path '*/include/knet/*.h' ! -name op.h ! -name rule.h -exec \
         sed -nE 's/.*KN_API .*[ *](kn_[a-z0-9_]*[a-z0-9])\(.*/\1/p' {} +)   # op.h and rule.h are not for users
exit $bad
