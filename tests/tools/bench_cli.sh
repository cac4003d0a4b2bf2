#!/usr/bin/env bash
# Figures beside another PyTorch than Debian's: its Python answers, and the lines name it.
# usage: bench_cli.sh BENCH_MODELS SOURCES
set -u
bench=$1 run=$2/bench/run.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "bench_cli.sh: $*" >&2; exit 1; }

# A Python whose every answer is 2 ms.
cat >"$work/python" <<'EOF'
#!/bin/sh
[ "$1" = -c ] && exit 1
while read -r line; do echo "$line" >>"$0.asked"; echo 2000000; done
EOF
chmod +x "$work/python"
KNET_BENCH_PYTHON=$work/python KNET_BENCH_PEER='PyTorch 9.9' "$bench" --quick linear >"$work/out" 2>"$work/err" ||
  fail "exit code $?: $(cat "$work/err")"
for row in train infer tuned; do
  grep -q "\"metric\":\"linear_$row\".*\"baseline\":2,.*\"peer\":\"PyTorch 9.9\"}" "$work/out" ||
    fail "no figure linear_$row beside the peer: $(cat "$work/out")"
done
grep -q '^linear tuned ' "$work/python.asked" || fail 'the best by hand was not asked for'
KNET_BENCH_PYTHON=$work/python "$bench" --quick linear 2>&1 | grep -q '"peer"' && fail 'a peer without a name'

# What run.sh can't use is an error before it installs or builds.
refuse() {
  local message=$1 rc=0
  shift
  "$run" "$@" >"$work/out" 2>&1 || rc=$?
  [ $rc = 2 ] || fail "$*: exit code $rc"
  grep -qe "$message" "$work/out" || fail "$*: $(cat "$work/out")"
}
refuse "--torch needs a Python; 'no-such-python' is no command" --torch no-such-python
refuse "--torch needs a Python; '' is no command" --quick --torch
refuse 'has no PyTorch' --torch "$work/python"
refuse 'unknown option --slow' --slow
exit 0
