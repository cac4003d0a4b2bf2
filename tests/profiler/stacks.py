"""Speedscope's and Hatchet's formats, read by a second reader: the schemas that these programs publish, written out
below, and what their importers do. usage: stacks.py KNET"""
import collections
import json
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

# https://www.speedscope.app/file-format-schema.json, as far as it is about sampled profiles. A key with "?" may be
# missing; no other keys may be there.
UNITS = {"none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"}
SPEEDSCOPE = {
    "$schema": lambda v: v == "https://www.speedscope.app/file-format-schema.json",
    "shared": {"frames": [{"name": str, "file?": str, "line?": int, "col?": int}]},
    "profiles": [{"type": lambda v: v == "sampled", "name": str, "unit": lambda v: v in UNITS, "startValue": int,
                  "endValue": int, "samples": [[int]], "weights": [int]}],
    "name?": str, "activeProfileIndex?": int, "exporter?": str,
}
# hatchet.GraphFrame.from_literal: a list of nodes; "metrics" is checked apart.
HATCHET = [{"frame": {"name": str, "type": str}, "metrics": dict}]


def check(value, schema, where):
    """The value has the form of the schema, and nothing else."""
    if isinstance(schema, dict):
        assert isinstance(value, dict), f"{where} is no object"
        keys = {k.rstrip("?"): k for k in schema}
        assert set(value) <= set(keys), f"{where} has {set(value) - set(keys)}"
        for name, key in keys.items():
            assert name in value or key.endswith("?"), f"{where} lacks {name}"
            if name in value:
                check(value[name], schema[key], f"{where}.{name}")
    elif isinstance(schema, list):
        assert isinstance(value, list), f"{where} is no list"
        for i, item in enumerate(value):
            check(item, schema[0], f"{where}[{i}]")
    elif isinstance(schema, type):
        assert isinstance(value, schema) and not isinstance(value, bool), f"{where} is {value!r}"
    else:
        assert schema(value), f"{where} is {value!r}"


def rows(scopes, path=()):
    """(path, row) of a profile, without what is not the program's."""
    for row in scopes:
        yield path + (row["label"],), row
        yield from rows(row.get("children", []), path + (row["label"],))


def own(row, key):
    rest = row.get(key, 0)
    for child in row.get("children", []):
        rest = max(rest - child.get(key, 0), 0)
    return rest


def want(profile, key):
    """Weight of each path that has some."""
    found = collections.Counter()
    for path, row in rows(profile["scopes"]):
        if key == "gpu_ns" or not row.get("extra"):
            found[path] += own(row, key)
    return +found


def read_speedscope(data):
    """As the importer does: a stack is a list of frames from the outside, its weight the number at the same place."""
    check(data, SPEEDSCOPE, "speedscope")
    frames, found = data["shared"]["frames"], []
    assert len({(f["name"], f.get("file"), f.get("line")) for f in frames}) == len(frames), "a frame occurs once"
    for profile in data["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"]), "as many weights as samples"
        assert all(w >= 0 for w in profile["weights"])
        assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])
        stacks = collections.Counter()
        for stack, weight in zip(profile["samples"], profile["weights"]):
            assert stack and all(0 <= i < len(frames) for i in stack)
            stacks[tuple(frames[i]["name"] for i in stack)] += weight
        found.append((profile["name"], +stacks))
    return found


def read_hatchet(nodes, path=()):
    """(path, metrics) of each node; a child is a node, and numbers are numbers."""
    for node in nodes:
        assert set(node) == {"frame", "metrics", "children"}, set(node)
        check([{k: node[k] for k in ("frame", "metrics")}], HATCHET, "hatchet")
        for key, value in node["metrics"].items():
            assert isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0, (key, value)
        here = path + (node["frame"]["name"],)
        yield here, node
        yield from read_hatchet(node["children"], here)


def place(file):
    """A line has a number from 1 on."""
    return file if file and int(file.rpartition(":")[2]) > 0 else None


def check_all(knet, profile_path):
    def report(fmt):
        return json.loads(subprocess.run([knet, "report", profile_path, "--format", fmt], check=True,
                                         stdout=subprocess.PIPE).stdout)

    profile = report("json")
    speedscope = report("speedscope")
    stacks = read_speedscope(speedscope)
    assert stacks[0] == ("time", want(profile, "time_ns")), "time of the stacks"
    places = {(row["label"], place(row.get("file"))) for _, row in rows(profile["scopes"])}
    frames = {(f["name"], f"{f['file']}:{f['line']}" if "file" in f else None) for f in speedscope["shared"]["frames"]}
    assert frames == places, frames ^ places
    more = [("GPU time", want(profile, "gpu_ns")), ("allocated bytes", want(profile, "alloc_bytes"))]
    assert stacks[1:] == [(name, w) for name, w in more if w], "GPU time and bytes of the stacks"
    assert [p["unit"] for p in speedscope["profiles"] if p["name"] == "allocated bytes"] in ([], ["bytes"])

    hatchet = report("hatchet")
    root = hatchet[0]
    assert len(hatchet) == 1 and root["frame"]["name"] == "ROOT", "one root"
    for key, field in ("cpu_time (ns)", "time_ns"), ("time (ns)", "gpu_ns"), ("alloc (bytes)", "alloc_bytes"):
        assert root["metrics"][key] == 0, key
        assert root["metrics"][key + " (inc)"] == sum(want(profile, field).values()), key
    nodes = list(read_hatchet(root["children"]))
    assert set(root["metrics"]) == set(nodes[0][1]["metrics"])
    listed = list(rows(profile["scopes"]))
    assert [n[0] for n in nodes] == [r[0] for r in listed], "one node a row, in their order"
    assert len({frozenset(n[1]["metrics"]) for n in nodes}) == 1, "the same metrics in each node"
    for (path, node), (_, row) in zip(nodes, listed):
        metrics = node["metrics"]
        assert metrics["cpu_time (ns) (inc)"] == row["time_ns"], path
        assert metrics["time (ns) (inc)"] == row.get("gpu_ns", 0), path
        assert metrics["alloc (bytes) (inc)"] == row.get("alloc_bytes", 0), path
        assert metrics["time (ns)"] == own(row, "gpu_ns"), path
        assert metrics["alloc (bytes)"] == (0 if row.get("extra") else own(row, "alloc_bytes")), path
        assert (metrics["time"], metrics["time (inc)"]) == (metrics["cpu_time (ns)"], row["time_ns"]), path
        assert metrics["cpu_time (ns)"] == (0 if row.get("extra") else own(row, "time_ns")), path
        assert node["frame"]["type"] == ("kernel" if row.get("kernel") else "function"), path
        assert metrics["count"] == (row["n_gpu"] if row.get("kernel") else row["n_calls"]), path
    load(hatchet)
    return len(nodes)


def load(hatchet):
    """By Hatchet itself, where it is installed: what a user calls first."""
    try:
        from hatchet import GraphFrame
    except ImportError:
        return
    frame = GraphFrame.from_literal(hatchet)
    assert "ROOT" in frame.tree() and frame.to_flamegraph()
    before = {row["name"]: row["cpu_time (ns) (inc)"] for _, row in frame.dataframe.iterrows()}
    frame.update_inclusive_columns()
    after = {row["name"]: row["cpu_time (ns) (inc)"] for _, row in frame.dataframe.iterrows()}
    assert before["ROOT"] == after["ROOT"], "own times add up"
    print("and Hatchet", file=sys.stderr)


# Spans and GPU work of a made-up trace: names that JSON must escape, the same name twice on a path, unattributed work.
TRACE = [{"ph": "X", "pid": 1, "tid": 1, "name": "a\"b\\c\n", "ts": 0, "dur": 100},
         {"ph": "X", "pid": 1, "tid": 1, "name": "λ", "ts": 10, "dur": 50},
         {"ph": "X", "pid": 1, "tid": 1, "name": "λ", "ts": 20, "dur": 30},
         {"ph": "X", "pid": 1, "tid": 1, "name": "launch", "cat": "cuda_runtime", "ts": 30, "dur": 5,
          "args": {"correlation": 5}},
         {"ph": "X", "pid": 0, "tid": 7, "name": "kernel<a;b>", "cat": "kernel", "ts": 40, "dur": 33,
          "args": {"correlation": 5}},
         {"ph": "X", "pid": 0, "tid": 7, "name": "[memset]", "cat": "gpu_memset", "ts": 80, "dur": 2,
          "args": {"correlation": 9}}]


def main():
    knet = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        run = os.path.join(folder, "run.json")
        env = dict(os.environ, KNET_TIMER=f"1,out=/dev/null,json={run}")
        subprocess.run([knet, "train", "mlp", "--synthetic", "--epochs", "1", "--threads", "2", "--quiet"], check=True,
                       env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert check_all(knet, run) > 20
        with open(run, encoding="utf-8") as file:
            profile = json.load(file)
        for i, (_, row) in enumerate(rows(profile["scopes"])):   # rows of one label in several places, one without a line
            row["file"] = f"layer{i}.c:{i}"
        with open(run, "w", encoding="utf-8") as file:
            json.dump(profile, file)
        assert check_all(knet, run) > 20
        trace = os.path.join(folder, "trace.json")
        with open(trace, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": TRACE}, file)
        assert check_all(knet, trace) == 7


main()
