#!/usr/bin/env bash
# traces_cli.sh KNET JSON_GET CASE [PYTHON]: profiles of other tools in `knet report` and `knet diff`.
set -euo pipefail
export LC_ALL=C.UTF-8
knet=$1 json_get=$2 case=$3 python=${4:-python3}
here=$(cd "$(dirname "$0")" && pwd)
source "$here/cli_checks.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset KNET_TIMER AUTOGRAD_TIMER
cd "$work"

case $case in
  nsight)
    "$python" -c 'import sqlite3' 2>/dev/null || exit 77
    "$python" "$here/nsight_maker.py" run.sqlite
    if [ "${5:-ON}" != ON ]; then
      want 1 "$knet" report run.sqlite;            err_has 'built without SQLite'
      exit
    fi
    want 0 "$knet" report run.sqlite --min 0;      out_has '^ step +3 +2.70ms '
    out_has '^ load +3 +180μs '; out_has '^   forward +3 +1.20ms '; out_has '^ +cudaLaunchKernel.* +3 +24.0μs'
    out_has '\[memcpy HtoD\]'; out_has '\[memset\]'; out_has 'sgemm'
    ! grep -q 'cudaLaunchKernel_' out || fail 'a version is no part of a name'
    ! grep -qE 'a mark|never ended' out || fail 'a mark is no range'
    want 0 "$knet" report run.sqlite --json
    [ "$(json gpu.source)" = nsight ] && [ "$(json gpu.launched)" = 9 ] || fail 'balance'
    [ "$(json gpu.devices.0.busy_ns)" = 663000 ] && [ "$(json gpu.devices.0.streams.1.n)" = 6 ] || fail 'busy'
    [ "$(json scopes.0.label)" = step ] && [ "$(json scopes.0.gpu_ns)" = 663000 ] || fail 'GPU time'
    [ "$(json scopes.0.children.1.children.0.gpu_bytes)" = 196608 ] || fail 'bytes'
    want 0 "$knet" diff run.sqlite run.sqlite;     out_has 'no row moved'
    want 0 "$knet" report run.sqlite --format trace --output run.json
    grep -q '"name":"loader"' run.json || fail 'names of threads'
    grep -q '"grid":\[4,2,1\],"block":\[128,1,1\],"registers per thread":40,"shared memory":1536' run.json || fail 'grid'
    grep -q '"ph":"f".*"id":[0-9]' run.json || fail 'arrows'
    want 0 "$knet" report run.json --min 0;        out_has '^ step +3 +2.70ms '
    want 1 "$knet" report - <run.sqlite;           err_has 'name the file'
    head -c 5000 run.sqlite >cut.sqlite
    want 1 "$knet" report cut.sqlite;              err_has 'cut.sqlite is damaged, or no export of Nsight Systems'
    "$python" -c 'import sqlite3; d = sqlite3.connect("other.sqlite"); d.execute("CREATE TABLE t (x)"); d.commit()'
    want 1 "$knet" report other.sqlite;            err_has 'other.sqlite has no NVTX ranges'
    want 2 "$knet" diff run.sqlite other.sqlite
    ;;
  torch)
    "$python" -c 'import torch' 2>/dev/null || exit 77
    cat >train.py <<'PY'
import torch
from torch.profiler import ProfilerActivity, profile, record_function
model = torch.nn.Linear(32, 8)
with profile(activities=[ProfilerActivity.CPU]) as prof:
    for _ in range(4):
        with record_function("forward"):
            y = model(torch.ones(16, 32))
        with record_function("backward"):
            y.sum().backward()
        prof.step()
prof.export_chrome_trace("torch.json")
PY
    "$python" train.py >log 2>&1 || { cat log; exit 1; }
    want 0 "$knet" report torch.json --min 0;      out_has '^ forward +4 '; out_has '^ backward +4 '
    out_has 'aten::linear.* +4 '
    want 0 "$knet" report torch.json --flatten --min 0; out_has '^ aten::addmm +4 '
    want 0 "$knet" diff torch.json torch.json;     out_has 'no row moved'
    want 0 "$knet" report torch.json --format pftrace --output torch.pftrace
    [ "$(od -An -tx1 -N1 torch.pftrace)" = ' 0a' ] || fail 'no packets of Perfetto'
    want 0 "$knet" report torch.json --format trace --output again.json
    want 0 "$knet" report torch.json --json;       cp out first.json
    want 0 "$knet" report again.json --json
    [ "$(json scopes.0.time_ns)" = "$(json scopes.0.time_ns first.json)" ] || fail 'times'
    ;;
  events)
    want 0 env KNET_TIMER=1,events,out=table.txt,json=a.json "$knet" train mlp --synthetic --epochs 1 --threads 1 --quiet
    want 0 "$knet" report a.json;                  cmp out table.txt || fail 'the table with events differs'
    want 0 "$knet" report a.json --format trace --output t.json
    want 0 "$knet" report t.json --json;           cp out rows.json
    [ "$(json scopes.0.label rows.json)" != '' ] || fail 'no rows'
    calls() { "$knet" report "$1" --format csv --sort name | grep -E "^\"(forward|backward)[^,]*\"," | grep -v ',kernel,' | cut -d, -f1,4 | sort; }
    [ "$(calls a.json)" = "$(calls t.json)" ] || fail "calls of rows: $(diff <(calls a.json) <(calls t.json) | head)"
    want 0 "$knet" report a.json --format pftrace --output t.pftrace
    [ "$(od -An -tx1 -N1 t.pftrace)" = ' 0a' ] || fail 'no packets of Perfetto'
    want 2 "$knet" report a.json a.json --format trace;   err_has "--format trace shows one file: events of several can't be joined"
    want 1 "$knet" report t.pftrace;               err_has 't.pftrace is a trace for Perfetto'
    want 2 "$knet" diff a.json t.pftrace;          err_has 't.pftrace is a trace for Perfetto'
    want 0 env KNET_TIMER=1,out=table.txt,json=b.json "$knet" train mlp --synthetic --epochs 1 --threads 1 --quiet
    want 1 "$knet" report b.json --format trace;   err_has 'b.json has no events: write them with KNET_TIMER=json=FILE,events'
    want 0 env KNET_TIMER=1,events,trace_slow=60s,out=table.txt,json=c.json "$knet" train mlp --synthetic --epochs 1 --threads 1 --quiet
    grep -q '"ph":"X"' c.json && fail 'a step took a minute'
    want 0 "$knet" report c.json;                  cmp out table.txt || fail 'the table without events differs'
    want 0 "$knet" diff c.json c.json
    want 1 "$knet" report c.json --format trace;   err_has 'c.json has no events'
    ;;
esac
