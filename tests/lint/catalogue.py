#!/usr/bin/env python3
"""catalogue.py PARITY_PROGRAM [--update]: docs/catalogue.md is what the op table, the headers and the tests' tables give,
and no cell of it is empty. --update writes it. PARITY_PROGRAM: test_ops_parity_host, which lists the cases."""
import collections
import glob
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
PAGE = "docs/catalogue.md"
Op = collections.namedtuple("Op", "kind name inputs formula kernel orders")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def split(text):
    """At the commas outside parentheses."""
    out, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            out.append("")
        else:
            out[-1] += c
    return [" ".join(part.split()) for part in out]


# --- the op table ---

def row_orders(k, rest):
    first, second, third = rest[:k], rest[k:-1], rest[-1]
    if all(d == "NO" for d in first):
        return "zero"
    return "any" if third != "NONE" or all(d == "NO" or d.startswith("(N,") for d in second) else "1, 2"


def op_of(kind, text):
    a = split(text)
    if kind.startswith(("ROW", "RARE")):
        k = int(kind[-1])
        return Op("row", a[0], a[3:3 + k], a[3 + k], "row", row_orders(k, a[4 + k:]))
    if kind.startswith("COMPARE"):
        return Op("compare", a[0], a[2:-1], a[-1], "row", "none")
    inputs = [] if a[1] == "IN_NONE" else split(a[1][a[1].index("(") + 1:-1])
    return Op("op", a[0], inputs, None, a[5], "none" if a[6] == "NOGRAD" else "any")


def ops():
    kinds = ["ROW1", "ROW2", "ROW3", "RARE1", "RARE2", "RARE3", "COMPARE", "COMPARE1", "OP"]
    source = "".join(f"#define KN_{kind}(...) @{kind}@#__VA_ARGS__\n" for kind in kinds)
    source += '#include <knet/ops.def>\n'
    text = subprocess.run(["cc", "-E", "-P", "-w", "-x", "c", "-Iops/include", "-"], input=source, text=True,
                          capture_output=True, check=True).stdout
    for kind, quoted in re.findall(r'@(\w+)@\s*"((?:[^"\\]|\\.)*)"', text):
        yield op_of(kind, quoted)


# --- what headers say ---

def sentence(comment):
    """The first sentence that is long enough to say something."""
    text = " ".join(line.strip(" */") for line in comment.splitlines())
    text = re.sub(r"---.*?---", " ", " ".join(text.split())).strip()
    return re.split(r"(?<=[.])\s+(?=[A-Z])", text)[0].rstrip(".")


def plain(text):
    """As a cell of a table."""
    return text.replace("|NONE", " or KN_NONE").replace("|", "\\|").replace("\n", " ")


OTHERS = {"op.h", "tensor.h", "frame.h", "file.h", "print.h", "dlpack.h"}  # headers that declare no ops


def documented():
    """name: sentence, of each function of the ops' headers that makes tensors."""
    out = {}
    comment, last = "", ""
    headers = "\n\n".join(read(path) for path in sorted(glob.glob("ops/include/knet/*.h"))
                          if os.path.basename(path) not in OTHERS)
    for line in re.sub(r"/\*.*?\*/", lambda m: m.group().replace("\n", "\v"), headers, flags=re.S).split("\n"):
        line = line.replace("\v", "\n")
        name = re.search(r"KN_API (?:KN_MUST_CHECK )?(?:kn_tensor \*|kn_status (?=\w+\(kn_tensor ))(kn_\w+)\(", line)
        after = re.search(r";\s*/\*(.*)\*/\s*$", line, re.S)
        if line.lstrip().startswith("/*"):
            comment = line
        elif name:
            out[name.group(1)] = sentence(after.group(1) if after else comment)
            last = "" if ";" in line else name.group(1)
        elif last and ";" in line:
            out[last] = sentence(after.group(1)) if after else out[last]
            last = ""
        elif not line.strip():
            comment = ""
    return out


def kernel_table():
    """name: (in, out) of the first comment of kernel.h."""
    out, names = {}, []
    for line in read("ops/src/kernel.h").split("*/")[0].splitlines():
        body = line[3:] if line.startswith(" * ") else ""
        parts = re.split(r"\s{2,}", body.strip())
        if body[:1].strip():  # "names  in  out"; a long list of names has a line of its own
            names = parts[0].split() if len(parts) > 1 or not re.search(r"[^\w <>…]", body) else []
            for name in names:
                out[name] = (["", ""] + parts[1:])[-2:]
        elif body.strip():
            for name in names:
                new = not any(out[name])
                out[name] = ([""] + parts)[-2:] if new else [out[name][0], out[name][1] + " " + body.strip()]
        else:
            names = []
    return out


def lookup(table, name):
    """Some lines are of all names that end alike: "…_step"."""
    alike = [entry for key, entry in table.items() if key.startswith("…") and name.endswith(key[1:])]
    return table.get(name) or (alike or [["", ""]])[0]


# --- where kernels are ---

def definitions(device):
    out = collections.defaultdict(set)
    for path in glob.glob(f"ops/src/{device}/**/*.*", recursive=True):
        if not path.endswith((".c", ".cu", ".cuh", ".h")):
            continue
        for name in re.findall(rf"kn__{device}_(\w+)\s*\(", read(path)):
            out[name].add(path[len("ops/src/"):])
        for macro in re.findall(r"^KERNEL\w*\((\w+)", read(path), re.M):
            out[macro].add(path[len("ops/src/"):])
    return out


def shown(places):
    return ", ".join(sorted(places, key=lambda p: (p.endswith((".cuh", ".h")), p))[:2])


# --- the page ---

def readable(formula):
    text = re.sub(r"\bT_(\w+)", lambda m: m.group(1).lower(), formula.replace("(T)", ""))
    return "`" + text.replace("|", "\\|") + "`"


def classes(op):
    return ", ".join(re.sub(r"(\w+)\((.*)\)", r"\2 \1", i).replace(" MAYBE", " (or none)") for i in op.inputs) or "none"


def cells(op, docs, table, host, cuda, compared):
    moves = op.kernel == "NONE"
    if op.kind == "op":
        formula = docs.get("kn_" + op.name) or lookup(table, op.name)[1]
        shapes = "a view or a copy" if moves else " → ".join(filter(None, lookup(table, op.name)))
        source = shown(host[op.kernel]) + (", " + shown(cuda[op.kernel]) if cuda[op.kernel] else "")
        source = "src/movement.c, src/transfer.c" if moves else source
        on_cuda = "as host" if moves or cuda[op.kernel] else "UNSUPPORTED"
    else:
        formula, shapes = readable(op.formula), "broadcast"
        source, on_cuda = "host/pointwise/row_loops.c, cuda/pointwise/pointwise.cu", "as host"
    how = {"exact": "same bits", "close": "close", "close exact": "close"}
    tolerance = "same bits" if moves else how.get(" ".join(sorted(compared[op.name])), "")
    return [f"`{op.name}`", formula if op.kind != "op" else plain(formula), plain(shapes), classes(op), on_cuda, op.orders, source, tolerance]


HEAD = """# Catalogue of ops

A page made by `tests/lint/catalogue.py` from the op table (`ops.def`), the headers and the tables of the tests.

Classes of dtypes: REAL f32 f64; FLOAT also f16 bf16; NUMERIC also i64 i32 u8; ANY also bool; INDEX i64 i32 u8; STATE f64. Names follow the
inputs. Orders: of the gradients that there are; *zero*: the gradient is zero; *none*: no gradient. First and second orders
are compared with central differences in f64. Source: below `ops/src/`. Tolerance between the host and CUDA: the same bits, or
*close*: a normalised mean squared error of at most {f32} in f32 and {f64} in f64.
"""
COLUMNS = ["name", "formula", "shapes", "dtypes", "CUDA", "orders", "source", "tolerance"]


def table_text(title, columns, rows):
    lines = [f"\n## {title}\n", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def make(program):
    cases = subprocess.run([program, "list"], text=True, capture_output=True, check=True).stdout.split("\n")
    compared = collections.defaultdict(set)
    for line in filter(None, cases):
        compared[line.split()[0]].add(line.split()[1])
    docs, table = documented(), kernel_table()
    host, cuda = definitions("host"), definitions("cuda")
    everything = list(ops())
    of = {op.name: cells(op, docs, table, host, cuda, compared) for op in everything}
    public = [op for op in everything if op.kind == "op" and "kn_" + op.name in docs]
    inner = [op for op in everything if op.kind == "op" and "kn_" + op.name not in docs]
    f64, f32 = re.search(r"KN_F64 \? (\S+) : (\S+);", read("tests/ops/test_parity_cuda.c")).groups()
    page = HEAD.format(f32=f32, f64=f64)
    page += table_text("Pointwise", COLUMNS, [of[op.name] for op in everything if op.kind == "row"])
    page += table_text("Comparisons and logic", COLUMNS, [of[op.name] for op in everything if op.kind == "compare"])
    page += table_text("With kernels of their own", COLUMNS, [of[op.name] for op in public])
    page += table_text("For gradients, optimisers and other functions", COLUMNS, [of[op.name] for op in inner])
    composed = sorted(set(docs) - {"kn_located"} - {"kn_" + op.name for op in everything})
    page += table_text("Functions made of ops", ["name", "what"], [[f"`{name}`", plain(docs[name])] for name in composed])
    empty = [f"{row[0]} has no {column}" for row in of.values() for column, cell in zip(COLUMNS, row) if not cell.strip()]
    empty += [f"{name} has no comment" for name in composed if not docs[name]]
    return page, empty


def main():
    program = os.path.abspath(sys.argv[1])
    os.chdir(ROOT)
    page, empty = make(program)
    for line in empty:
        print(f"{PAGE}: {line}")
    if sys.argv[2:] == ["--update"]:
        with open(PAGE, "w", encoding="utf-8") as out:
            out.write(page)
    elif not os.path.exists(PAGE) or read(PAGE) != page:
        print(f"{PAGE} is out of date: tests/lint/catalogue.py {sys.argv[1]} --update")
        return 1
    return bool(empty)


sys.exit(main())
