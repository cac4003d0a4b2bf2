#!/usr/bin/env python3
"""Prints README's table of models beside PyTorch: each model of a results file, with what others published.

    bench/models/table.py KNET RESULTS.jsonl [README.md [--check]]

KNET is the command, RESULTS.jsonl holds lines of bench_models; several files have commas between. With README.md: writes the table there instead; --check writes
nothing, and fails if the file has another table. A model's last line of a figure counts.
"""
import json
import math
import subprocess
import sys

HEAD = "| model, batch of the record | training step, PyTorch | ratio | inference, PyTorch | ratio | peak, PyTorch | ratio |" \
       " published, other machines |"
RULE = "|---|---|---|---|---|---|---|---|"
PARTS = "train", "infer", "peak"
PUBLISHED_MAX = 92


def published(text):
    """The text without remarks and the last results of long lists."""
    text = (text or "-").split("; ")[0].replace("GRID ", "")
    while len(text) > PUBLISHED_MAX and ", " in text:
        text = text.rpartition(", ")[0]
    return text


def number(x):
    """Three digits, or all before the point."""
    return f"{x:.0f}" if abs(x) >= 100 else f"{float(f'{x:.3g}'):g}"


def cells(line):
    """Ours and PyTorch's, and the ratio."""
    ours, theirs, ratio = (line[key] if line[key] is not None else math.nan for key in ("value", "baseline", "ratio"))
    return f"{number(ours)}, {'-' if math.isnan(theirs) else number(theirs)} {line['unit']} | " + \
           ("-" if math.isnan(ratio) else f"{ratio:.2f}")


def table(knet, results):
    models = json.loads(subprocess.run([knet, "models", "--json"], check=True, capture_output=True, text=True).stdout)["models"]
    lines = []
    for name in results.split(","):
        with open(name, encoding="utf-8") as file:
            lines += [json.loads(line) for line in file if line.strip()]
    figures = {line["metric"]: line for line in lines if line["bench"] == "models" and "peer" not in line}
    known = {f"{m['model']}_{part}" for m in models for part in PARTS}
    lost = [name for name in figures if name.endswith("_train") and name not in known]
    if lost:
        sys.exit(f"{results}: knet models lists no model of {', '.join(lost)}")
    rows = [HEAD, RULE]
    for m in models:
        of_model = [figures.get(f"{m['model']}_{part}") for part in PARTS]
        if any(of_model):
            shown = " | ".join(cells(line) if line else "- | -" for line in of_model)
            batch = "" if m["batch_bench"] == m["batch"] else f" (batch {m['batch_bench']})"
            rows.append(f"| {m['model']}{batch} | {shown} | {published(m['published'])} |")
    return rows


def main(knet, results, readme=None, check=None):
    rows = table(knet, results)
    if not readme:
        print("\n".join(rows))
        return
    with open(readme, encoding="utf-8") as file:
        lines = file.read().split("\n")
    first = lines.index(HEAD)
    last = lines.index("", first)
    if check and lines[first:last] != rows:
        sys.exit(f"{readme} has another table; write it: bench/models/table.py {knet} {results} {readme}")
    if not check:
        with open(readme, "w", encoding="utf-8") as file:
            file.write("\n".join(lines[:first] + rows + lines[last:]))


main(*sys.argv[1:])
