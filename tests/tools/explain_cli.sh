#!/usr/bin/env bash
# explain_cli.sh KNET JSON_GET: what a training step runs, as a list, a picture, a graph and JSON.
set -euo pipefail
export LC_ALL=C.UTF-8
knet=$1 json_get=$2
source "$(dirname "$0")/cli_checks.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset KNET_TIMER AUTOGRAD_TIMER KNET_FUSE
cd "$work"

# A list: each layer with its kernels, forward and backward, before and after.
want 0 "$knet" explain lenet --batch 4 --steps 2
out_has '^lenet: a training step, batch 4, f32, cpu, '
out_has '^before: 21 kernels, .* a step, .* moved, .* live at most$'; out_has '^after: [0-9]+ kernels'
out_has '^  conv1$'; out_has '^    forward .* conv_act$'; out_has '^    backward .* conv_weight$'
out_has '^    update .* sgd_step$'
! grep -q ' 0\.00 ns' out || fail 'a kernel without a time'

# Chains of an LSTM as small ops are fused: fewer kernels that move fewer bytes, named by their ops.
want 0 "$knet" explain char_lstm_steps --steps 1 --json
[ "$(json after.kernels)" -lt $(($(json before.kernels) * 8 / 10)) ] || fail 'nothing is fused'
[ "$(json after.moved_bytes)" -lt "$(json before.moved_bytes)" ] || fail 'as many bytes'
grep -q '"name":"[a-z+_]*sigm+add+tanh+mul' out || fail 'no name of a fused kernel'
# Each node's sums are those of the step.
python3 - out <<'PY' || fail 'sums'
import json, sys
step = json.load(open(sys.argv[1]))
for side in (step["before"], step["after"]):
    nodes = side["nodes"]
    assert sum(n["kernels"] for n in nodes) == side["kernels"]
    assert sum(n["moved_bytes"] for n in nodes) == side["moved_bytes"]
    assert 0 < sum(n["ns"] for n in nodes) < 1.5 * side["step_ns"] + 1e9
    assert all(0 <= n["block"] < len(side["blocks"]) for n in nodes)
    ids = {n["id"] for n in nodes}
    assert all(i in ids and i != n["id"] for n in nodes for i in n["inputs"])
    assert any(n["inputs"] for n in nodes if n["phase"] == "backward")
before, after = ({n["name"] for n in s["nodes"]} for s in (step["before"], step["after"]))
assert not any("+" in name for name in before), before
fused = [n for n in step["after"]["nodes"] if n["ops"] > 1]
assert all(n["where"] for n in fused if n["phase"] == "forward"), fused
PY

# Without fusion both sides are the same.
for word in 0 off; do
  want 0 env KNET_FUSE=$word "$knet" explain mlp --steps 1 --json
  [ "$(json after.kernels)" = "$(json before.kernels)" ] || fail "KNET_FUSE=$word"
done
want 1 env KNET_FUSE=no "$knet" explain mlp --steps 1
err_has "KNET_FUSE is 'no'; it must be 0, off, 1, on or all"

# Captured: the plan of the fused step, whose replay runs the same kernels on the same data.
want 0 "$knet" explain lenet --batch 4 --steps 2 --captured
out_has '^captured: [0-9]+ kernels, .* live at most$'; out_has '^          .* in its plan$'
want 0 "$knet" explain vae --steps 1 --captured --json
python3 - out <<'PY' || fail 'captured'
import json, sys
step = json.load(open(sys.argv[1]))
def kernels(side, edges):
    nodes = {n["id"]: n for n in side["nodes"]}
    name = lambda n: (side["blocks"][n["block"]]["scope"], n["phase"], n["name"])
    return sorted((*name(n), n["kernels"], n["moved_bytes"], n["flops"], n["where"],
                   sorted(name(nodes[i]) for i in n["inputs"]) if edges else []) for n in nodes.values())
after, captured = step["after"], step["captured"]
assert captured["plan_bytes"] > 0 and "plan_bytes" not in after
assert all(n["ns"] > 0 for n in captured["nodes"])
assert any(n["ops"] > 1 for n in captured["nodes"])
assert any(n["inputs"] for n in captured["nodes"] if n["phase"] == "backward")
for a, b in zip(kernels(after, True), kernels(captured, True)):
    if a != b: print(a, b, sep="\n", file=sys.stderr)
assert kernels(after, True) == kernels(captured, True)
PY
want 0 "$knet" explain lenet --batch 2 --steps 1 --captured --format svg --output plan.svg
python3 -c 'import xml.dom.minidom as m; t = m.parse("plan.svg").getElementsByTagName("text"); assert sum(x.firstChild.data.startswith("captured: ") for x in t) == 1' || fail 'the picture of the plan'
want 0 "$knet" explain lenet --batch 2 --steps 1 --captured --format dot
out_has '^    s2n0 -> s2n[0-9]+;$'
want 0 "$knet" explain dcgan --batch 2 --steps 1 --captured; out_has '^captured: '
want 2 "$knet" explain reinforce --batch 4 --steps 1 --captured; err_has '--captured does not apply to reinforce: its step reads data on the host'

# Repeated scopes are shown once.
want 0 "$knet" explain gpt --batch 1 --steps 1
! grep -q '…' out || fail 'a path that is not ASCII'
out_has '^  blocks/mlp0\.\.3/fc1  \(4\)$'; ! grep -q '^  blocks/mlp1' out || fail 'repeated scopes'

# A picture, which is well-formed XML, and a graph.
want 0 "$knet" explain lenet --batch 2 --steps 1 --format svg --output step.svg
python3 -c 'import xml.dom.minidom as m; d = m.parse("step.svg"); assert len(d.getElementsByTagName("path")) > 20' || fail 'the picture'
want 0 "$knet" explain lenet --batch 2 --steps 1 --format dot
out_has '^digraph step \{$'; out_has 'label="conv1"'; out_has '^    s0n0 -> s0n[0-9]+;$'
if command -v dot >/dev/null; then dot -Tsvg out >/dev/null || fail 'graphviz rejects it'; fi
want 2 "$knet" explain lenet --format png; err_has "unknown format 'png'"
want 2 "$knet" explain lenet --json --format svg; err_has '--format does not apply with --json'
want 2 "$knet" explain lnet; err_has "did you mean 'lenet'"
echo ok
