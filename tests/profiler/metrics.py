"""Metrics of the timer, read as Prometheus's text format 0.0.4. usage: metrics.py PROGRAM [KNET]"""
import json
import os
import re
import subprocess
import sys
import tempfile

try:
    from prometheus_client.parser import text_string_to_metric_families as parse
except ImportError:
    print("python3-prometheus-client is not installed")
    sys.exit(77)

TYPES = {"counter": [""], "gauge": [""], "summary": ["", "_count", "_sum"]}   # and the names of their samples


def check_strictly(text):
    """What node_exporter's collector demands and the parser lets pass: each sample belongs to the type before it, and to no other
    one. Returns the samples' values, with all digits."""
    assert text.endswith("\n")
    seen, family, kind, values = set(), None, None, []
    for line in text.splitlines():
        head = re.fullmatch(r"# (HELP|TYPE) ([a-z_]+) (.+)", line)
        if head and head[1] == "HELP":
            assert head[2] not in seen, line
            seen.add(head[2])
            family, kind = head[2], None
        elif head:
            assert head[2] == family and kind is None and head[3] in TYPES, line
            kind = head[3]
            assert (kind == "counter") == family.endswith("_total"), line
        else:
            name = re.match(r"[a-z_]+", line)
            assert name and name[0] in [family + end for end in TYPES[kind]], line
            value = line.rsplit(" ", 1)[1]
            values.append(int(value) if re.fullmatch(r"-?\d+", value) else float(value))
    return iter(values)


def read(text):
    """{family: {(sample's name, labels): value}}"""
    values = check_strictly(text)
    families, samples = {f.name: f for f in parse(text)}, {}
    for name, f in families.items():
        for s in f.samples:
            key = (s.name, tuple(sorted(s.labels.items())))
            assert key not in samples.setdefault(name, {}), ("twice", key)
            samples[name][key] = next(values)
            assert s.value == float(samples[name][key]), key
    return samples, families


def rows(scopes, path=""):
    for row in scopes:
        name = path + row["label"].replace("\\", "\\\\").replace("/", "\\/")
        yield name, row
        yield from rows(row.get("children", []), name + "/")


def check(text, profile, least_spread=0):
    samples, families = read(text)
    assert families["knet_scope_time_seconds"].type == "counter"
    n = n_spread = 0
    for path, row in rows(profile["scopes"]):
        key = (("path", path),)
        n += 1
        for family, sample, want in [("knet_scope_calls", "_total", row["n_calls"]),
                                     ("knet_scope_time_seconds", "_total", row["time_ns"] / 1e9),
                                     ("knet_scope_allocated_bytes", "_total", row.get("alloc_bytes", 0)),
                                     ("knet_scope_peak_bytes", "", row.get("peak_bytes", 0))]:
            got = samples[family][(family + sample, key)]
            assert abs(got - want) <= 1e-8 * abs(want) + 1e-12, (family, path, got, want)
        if "p50_ns" in row:
            quantile = (("path", path), ("quantile", "0.5"))
            median = samples["knet_scope_call_seconds"][("knet_scope_call_seconds", quantile)] * 1e9
            assert abs(median - row["p50_ns"]) <= 0.05 * row["p50_ns"] + 1, (path, median, row["p50_ns"])
            assert samples["knet_scope_call_seconds"][("knet_scope_call_seconds_count", key)] == row["n_ended"]
            n_spread += 1
    assert n == len(samples["knet_scope_calls"]), (n, len(samples["knet_scope_calls"]))
    assert n_spread >= least_spread, n_spread
    return samples, n


def run(program, mode, folder):
    metrics, profile = os.path.join(folder, "m.prom"), os.path.join(folder, "p.json")
    subprocess.run([program, *mode], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "KNET_TIMER": f"metrics={metrics},json={profile},out=/dev/null"})
    with open(metrics, encoding="utf-8") as text, open(profile, encoding="utf-8") as data:
        text = text.read()
        return check(text, json.load(data)), text


# As a profile has them: name, unit, and n, last, min, max, mean; odd ones, and whole numbers that no double has.
COUNTERS = [
    ("power", "W", 5, 1.5, -10, 310, 78.25), ('odd "quoted\\name\\" λ', 'a"b', 1, 0, 0, 0, 0), ("never", "", 0, 0, 0, 0, 0),
    ("held", "B", 2, -2**63, -2**63, 2**63 - 1, -0.5), ("huge", "", 3, -1e300, -1e300, 1e300, 1e-300), ("a\tb\nc", "", 1, 1, 1, 1, 1),
] + [(f"many {i}", "", 1, i, i, i, i) for i in range(250)]


def check_counters(text, counters, kept=float):
    """`kept`: what became of a number on its way; the program's own keeps all digits, a profile that is read has doubles."""
    samples, families = read(text)
    assert [families["knet_counter_" + f].type for f in ("samples", "last", "min", "max", "mean")] == ["counter"] + ["gauge"] * 4
    got = {f: {tuple(v for k, v in labels): value for (name, labels), value in samples["knet_counter_" + f].items()}
           for f in ("samples", "last", "min", "max", "mean")}
    want = {(name.replace("\t", "?").replace("\n", "?"), unit): values for name, unit, *values in counters}
    assert set(got["samples"]) == set(want), set(got["samples"]) ^ set(want)
    for key, (n, *values) in want.items():
        assert got["samples"][key] == n, key
        for family, value in zip(("last", "min", "max", "mean"), values):
            assert got[family].get(key) == (kept(value) if n else None), (family, key, got[family].get(key), value)


def check_profile_with_counters(knet, profile, folder):
    profile["counters"] = [{"name": name, "unit": unit, "n": n, "first": last, "last": last, "min": least, "max": most, "mean": mean}
                           for name, unit, n, last, least, most, mean in COUNTERS]
    path = os.path.join(folder, "counters.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(profile, file)
    text = subprocess.run([knet, "report", path, "--format", "metrics"], check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
    check_counters(text, COUNTERS)


def main():
    program, knet = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    with tempfile.TemporaryDirectory() as folder:
        for mode, least in ("plain", 2), ("nodes", 1000), ("steps", 1):
            (samples, n), text = run(program, [mode], folder)
            assert n >= least, (mode, n)
            assert "knet_gpu" not in text, "a family without a GPU"
            if mode == "steps":
                assert samples["knet_steps"] == {("knet_steps_total", ()): 10}
        (samples, n), text = run(program, ["memory"], folder)
        assert "knet_counter" not in text
        (samples, n), text = run(program, ["counters"], folder)
        check_counters(text, [("queue", "jobs", 2, -1, -1, 2**53 + 1, 2**52), ("idle", "", 0, 0, 0, 0, 0)], int)
        (samples, n), text = run(program, ["memory"], folder)
        pools = samples["knet_pool_live_peak_bytes"]
        assert pools and all(v > 0 for v in pools.values()), pools
        assert all(dict(labels)["pool"] for name, labels in pools)
        info = [dict(labels) for name, labels in samples["knet_run_info"]]
        assert "timed_program" in info[0]["command"] and info[0]["host"], info
        odd = os.path.join(folder, "odd.json")   # labels that no program of ours has
        if knet:
            with open(os.path.join(folder, "p.json"), encoding="utf-8") as file:
                profile = json.load(file)
            profile["run"]["notes"] = 'math=tf32, a.b =x, "y" λ, command=none'
            row = profile["scopes"][0]
            row.update(label='a/b "c"\\d λ', n_calls=41, n_ended=40, times=[[1000, 40]], p50_ns=1000, p99_ns=1000,
                       min_ns=900, max_ns=1100)
            with open(odd, "w", encoding="utf-8") as file:
                json.dump(profile, file)
            text = subprocess.run([knet, "report", odd, "--format", "metrics"], check=True, stdout=subprocess.PIPE,
                                  encoding="utf-8").stdout
            samples, n = check(text, profile, 1)
            info = [dict(labels) for name, labels in samples["knet_run_info"]]
            notes = {k: v for k, v in info[0].items() if k.startswith("note_")}
            assert notes == {"note_math": "tf32", "note_a__2Eb__20": 'x, "y" λ', "note_command": "none"}, info
            assert "knet_counter" not in text
            check_profile_with_counters(knet, profile, folder)
            print("and knet report")


main()
