#!/usr/bin/env bash
# coverage.sh BUILD_DIR: which lines of the libraries the tests ran that were run in this build (preset coverage): a row
# a file, the least covered first, and a sum a folder. By gcovr where it's installed, else by gcov alone.
set -euo pipefail
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
if command -v gcovr >/dev/null; then
  exec gcovr --root . --object-directory "$build" --filter '(alloc|profiler|ops|autograd|comm|tools)/' --sort-uncovered "$build"
fi
objects=$(find "$build"/{alloc,profiler,ops,autograd,comm,tools} -name '*.gcda' 2>/dev/null || true)
[ -n "$objects" ] || { echo "$build has no counts; configure with --preset coverage, build, and run ctest" >&2; exit 1; }
# gcov writes "File 'path'", then "Lines executed:12.34% of 56". A file in several objects: the one that ran most of it.
(cd "$build" && xargs -P "$(nproc)" -n 20 gcov -n <<<"$objects" 2>/dev/null) | awk -v root="$PWD/" -F "[':% ]+" '
  /^File / { file = $2; next }
  /^Lines executed/ && index(file, root) == 1 {
    name = substr(file, length(root) + 1); lines = $NF; ran = int($3 * lines / 100 + 0.5)
    if (name ~ /^(alloc|profiler|ops|autograd|comm|tools)\// && (!(name in most) || ran > most[name])) {
      most[name] = ran; all[name] = lines
    }
    file = ""
  }
  END {
    for (name in most) {
      printf "%6.1f %%  %5d of %5d  %s\n", 100 * most[name] / all[name], most[name], all[name], name | "sort -n"
      folder = substr(name, 1, index(name, "/") - 1); ran_in[folder] += most[name]; lines_in[folder] += all[name]
    }
    close("sort -n")
    for (folder in ran_in)
      printf "%6.1f %%  %5d of %5d  in %s/\n", 100 * ran_in[folder] / lines_in[folder], ran_in[folder], lines_in[folder], folder
  }'
