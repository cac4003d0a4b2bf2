#!/usr/bin/env python3
"""Writes docs/models: for each model the first rows of its timing table, its memory by role, and what was done about
the top row.

    bench/models/pages.py KNET FOLDER [MODEL...]

KNET is the command of a Release build. Without names: all models but the largest. Takes about six seconds a model.
"""
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile

# Of a row, the first pattern that fits: what the code does about its time.
DONE = [
    (r"^dnnl_convolution|^conv_act$|^conv$", "Bias, activation and residual sum run inside the convolution, over each piece of "
     "the result while it is in the cache. Small windows take Winograd's transforms of our own, few channels our direct "
     "kernels, others oneDNN, whose plans are kept by shape. `kn_freeze` folds batch normalization into it for inference."),
    (r"^conv_weight$|^dnnl_convolution_backward", "The gradient of the weights is computed straight into the arena of gradients. "
     "Shape and instruction set decide between Winograd's transforms, our direct kernels and oneDNN's."),
    (r"^conv_data$", "The gradient of the input overwrites memory that no later derivative reads, where sizes allow."),
    (r"^gemm_packed$", "The product runs in our loops, which the shape chooses where they are faster than oneDNN's: with few columns they "
     "read the rows of x in place and pack the weight on the stack. Bias and activation run on its result while it is in the cache."),
    (r"^dnnl_sgemm$|^gemm|^matmul$|^linear", "The product is oneDNN's; bias and activation run on its result while it is in the "
     "cache, and gradients are added by the product itself."),
    (r"adam_step|sgd_step|momentum_step|rmsprop_step", "All parameters are updated in one pass over the arena. A table of words "
     "with `kn_param_sparse` has its rows of the batch updated alone."),
    (r"rnn", "The input's part of all steps is one product; the gates of a step run in one pass over its state."),
    (r"softmax|cross_entropy", "The loss and its gradient share the pass that finds the largest score."),
    (r"batchnorm", "Mean, variance and result take two passes over each channel, which is split by shape over threads."),
    (r"maxpool|avgpool", "A window of two has a vector loop of its own; backward overwrites the incoming gradient's memory."),
    (r"embedding|index", "Rows are copied whole; gradients are sums by rows in a fixed order."),
]
ELSE = "Nothing yet."
# Of models whose top row was another one.
BEFORE = {
    "linear": " Of a table of five steps it was `backward`: most of that was the first step, which creates the table's rows.",
    "reinforce": " It was `train`, the games: the boards of a step were new pages of malloc's, and a copy of each for the layers. Now "
                 "they lie in memory of the pool, where the layers read them: 0.12 ms a step instead of 0.19 (2026-11-30).",
}


def run(*command, **environment):
    return subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True, text=True).stdout


def cpu():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = re.findall(r"model name\s*: (.*)", file.read())
    return f"{names[0]}, {len(names)} processors" if names else platform.machine()


def times(text):
    """The table without what follows it."""
    lines = text.splitlines()
    rules = [i for i, line in enumerate(lines) if line.strip().startswith("───")]
    return "\n".join(line.rstrip() for line in lines[:rules[-1] + 1])


def roles(text):
    part = text.split("live then, by role and layer\n", 1)
    head = next(line for line in text.splitlines() if line.strip().startswith("high-water mark"))
    return head.strip() + "\n" + (part[1].split("\n\n", 1)[0] if len(part) > 1 else "")


def top_row(table):
    lines = table.splitlines()
    at = next(i for i, line in enumerate(lines) if line.lstrip().startswith("Section"))
    return lines[at + 2].split("  ")[0].strip()


def measure(knet, model, words, steps=5):
    words = f"cpu,mem,out=/dev/null,{words}"
    return json.loads(run(knet, "bench", model, "--json", "--steps", str(steps), KNET_TIMER=words))


def page(knet, model, machine):
    name = model["model"]
    with tempfile.TemporaryDirectory() as folder:
        steps, whole = os.path.join(folder, "steps.json"), os.path.join(folder, "whole.json")
        bench = measure(knet, name, f"json={whole}")
        # The first step of a table creates its rows: of fast steps one of a thousand.
        n = 5 if bench["train"]["median_ns"] > 1e6 else 1000
        measure(knet, name, f"steps=3-{n + 2},json={steps}", n)
        table = times(run(knet, "report", steps, "--flatten", "--top", "10"))
        memory = roles(run(knet, "report", whole, "--memory"))
    top = top_row(table)
    record = "" if bench["batch"] == model["batch"] else f"; the record's batch, and that of `knet train`, is {model['batch']}"
    done = next((text for pattern, text in DONE if re.search(pattern, top)), ELSE) + BEFORE.get(name, "")
    return f"""# {name}

{model["summary"][0].upper() + model["summary"][1:]}: {model["parameters"]:,} parameters; {model["data"]}.

{"Five" if n == 5 else f"{n:,}"} training steps of {bench["batch"]} samples, after two to warm up, {bench["threads"]} threads{record}. Memory is that of the whole run.
{machine}.

```text
{table}
```

The top row is `{top}`. {done}

```text
{memory}
```
"""


def main():
    knet, folder, names = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3:]
    models = json.loads(run(knet, "models", "--json"))["models"]
    wanted = [m for m in models if m["model"] in names or not names and m["parameters"] < 40000000]
    machine = f"{cpu()}, {datetime.date.today().isoformat()}, Release build"
    os.makedirs(folder, exist_ok=True)
    for m in wanted:
        with open(os.path.join(folder, m["model"] + ".md"), "w", encoding="utf-8") as file:
            file.write(page(knet, m, machine))
    lines = ["# What dominates in each model", "",
             "Written by `bench/models/pages.py`: the ten longest rows of time, memory by role at the high-water mark, and what",
             "was done about the first row. Sizes are those of the record.", "", "| model | parameters | data |", "|---|---|---|"]
    for m in models:
        path = m["model"] + ".md"
        link = f"[{m['model']}]({path})" if os.path.exists(os.path.join(folder, path)) else m["model"]
        lines.append(f"| {link} | {m['parameters']:,} | {m['data']} |")
    with open(os.path.join(folder, "README.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


main()
