#!/usr/bin/env python3
"""catalogue.py PARITY_PROGRAM COMPOSED_PROGRAM [--update]: docs/catalogue.md is what the op table, the headers and the
tests' tables give; no cell of it is empty, and none has the sentence of another function. --update writes it.
PARITY_PROGRAM: test_ops_parity_host, which lists the cases. COMPOSED_PROGRAM: test_autograd_composed, which lists the
dtypes and orders of functions that are made of ops."""
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


# Where a rule has less than the table says; tests/autograd/ and tests/comm/ have a case of each.
LIMITS = {"qr": "; none where columns exceed rows", "batchnorm": "; first across ranks"}


def op_of(kind, text):
    a = split(text)
    if kind.startswith(("ROW", "RARE")):
        k = int(kind[-1])
        return Op("row", a[0], a[3:3 + k], a[3 + k], "row", row_orders(k, a[4 + k:]))
    if kind.startswith("COMPARE"):
        return Op("compare", a[0], a[2:-1], a[-1], "row", "none")
    inputs = [] if a[1] == "IN_NONE" else split(a[1][a[1].index("(") + 1:-1])
    orders = "none" if a[6] == "NOGRAD" else "first" if "ONCE" in re.findall(r"\w+", a[8]) else "any"
    return Op("op", a[0], inputs, None, a[5], orders + LIMITS.get(a[0], ""))


def ops():
    kinds = ["ROW1", "ROW2", "ROW3", "RARE1", "RARE2", "RARE3", "COMPARE", "COMPARE1", "OP"]
    source = "".join(f"#define KN_{kind}(...) @{kind}@#__VA_ARGS__\n" for kind in kinds)
    source += '#include <knet/ops.def>\n'
    text = subprocess.run(["cc", "-E", "-P", "-w", "-x", "c", "-Iops/include", "-"], input=source, text=True,
                          capture_output=True, check=True).stdout
    for kind, quoted in re.findall(r'@(\w+)@\s*"((?:[^"\\]|\\.)*)"', text):
        yield op_of(kind, quoted)


# --- what headers say ---

LABEL = r"kn_\w+(?:(?:, | and )kn_\w+)*: "


def sentence(comment, function):
    """What a comment says of the function: after its label, "kn_sin: …; kn_cos: …", else the first sentence that is long
    enough to say something."""
    text = " ".join(line.strip(" */") for line in comment.splitlines())
    text = re.sub(r"---.*?---", " ", " ".join(text.split())).strip()
    parts = re.split(rf"(?:^|(?<=[.;:]) )(?={LABEL})", text)
    labelled = [part for part in parts if re.match(LABEL, part) and function in part.split(": ")[0].replace(",", "").split()]
    part = (labelled + parts)[0]
    part = re.sub(r"^kn_\w+: ", "", part) if labelled else part
    return re.split(r"(?<=[.])\s+(?=[A-Z])", part)[0].rstrip(".;")


def vague(docs):
    """Sentences that several functions share but do not all stand in, and those that need the one before."""
    of = collections.defaultdict(list)
    for name, text in docs.items():
        of[text].append(name)
        if re.match(r"The same\b(?!.*\bkn_)", text):
            yield f"{name}: \"{text}\": as which function?"
    for text, names in of.items():
        missing = [name for name in names if not re.search(rf"\b{name}\b", text)]
        if text and len(names) > 1 and missing:
            yield f"{', '.join(names)} share a sentence that does not name them: \"{text}\""


def plain(text):
    """As a cell of a table."""
    return text.replace("|NONE", " or KN_NONE").replace("|", "\\|").replace("\n", " ")


OTHERS = {"op.h", "capture.h", "tensor.h", "frame.h", "file.h", "print.h", "dlpack.h"}  # headers that declare no ops


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
            out[name.group(1)] = sentence(after.group(1) if after else comment, name.group(1))
            last = "" if ";" in line else name.group(1)
        elif last and ";" in line:
            out[last] = sentence(after.group(1), last) if after else out[last]
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

# What private macros of the op table mean.
MATHS = {"KN_NORMAL_CDF": "Φ(#)", "KN_MISH_T": "tanh(log1p(exp(#)))", "KN_DECAY": "exp(-abs(#))", "KN_CSCH": "1 / sinh(#)",
         "KN_GELU_S": "sigm(1.5957691216057308 * (# + 0.044715 * # * # * #))", "KN_CATHETUS": "sqrt(1 - # * #)",
         "KN_LEG": "sqrt(# * # - 1)", "KN_LOG100": "max(log(#), -100)", "KN_SELU": "1.0507009873554805",
         "KN_SELU_ALPHA": "1.7580993408473773", "T_EXPM1_BELOW": "expm1(#)", "T_POWER": "pow(#)"}


def readable(formula):
    for macro, text in MATHS.items():
        formula = re.sub(rf"\b{macro}\b(?:\(([^()]*)\))?", lambda m: text.replace("#", m.group(1) or ""), formula)
    text = re.sub(r"\bT_(\w+)", lambda m: m.group(1).lower(), formula.replace("(T)", ""))
    return "`" + text.replace("(P, 0, ", "(P, ").replace("|", "\\|") + "`"


def classes(op):
    texts = [re.sub(r" MAYBE_(\w+)", r" \1 (or none)", re.sub(r"(\w+)\((.*)\)", r"\2 \1", i)) for i in op.inputs]
    return ", ".join(texts).replace(" MAYBE", " (or none)") or "none"


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

Formulas: x, y, a, b and t are tensors, p and q, or P and Q, are numbers; Φ is the integral of the normal distribution's density.
Classes of dtypes: REAL f32 f64; FLOAT also f16 bf16; NUMERIC also i64 i32 u8; ANY also bool; INDEX i64 i32 u8; STATE f64;
COMPUTED: the dtype of the others, or f32 where that has 16 bits. Names
follow the inputs. Orders: of the gradients that there are; *first*: the gradient can't be differentiated again, which is an
UNSUPPORTED error; *zero*: the gradient is zero; *none*: no gradient. First orders are compared with central differences in
f64, and second ones where they exist; of `to`, a copy, neither. Source: below `ops/src/`. Tolerance between the host and CUDA:
the same bits, or *close*: a normalised mean squared error of at most {f32} in f32 and {f64} in f64.

The last table has the functions that are made of ops. They have no kernels, and run where their ops do; their shapes are in the
headers. Dtypes are those that x, and inputs of its dtype, may have; *frame's*: there is no input, and the result has the frame's.
Orders are those that calls in `tests/autograd/test_composed.c` have, which differentiate three times at most; *any*: all three
succeed.
"""
COLUMNS = ["name", "formula", "shapes", "dtypes", "CUDA", "orders", "source", "tolerance"]
MADE = ["name", "what", "dtypes", "orders"]
# Without an input.
NEW = "bilinear_filter eye full logspace ones orthogonal zeros".split()


def table_text(title, columns, rows):
    lines = [f"\n## {title}\n", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def listed(program, separator=None):
    text = subprocess.run([program, "list"], text=True, capture_output=True, check=True).stdout
    return [line.split(separator) for line in text.split("\n") if line]


def made_of_ops(program, docs, everything):
    """The rows of the last table, and what is wrong with them."""
    calls = {name: [dtypes, orders] for name, dtypes, orders in listed(program, "|")}
    calls.update({"kn_" + name: ["frame's", "none"] for name in NEW})
    names = set(docs) - {"kn_located"} - {"kn_" + op.name for op in everything}
    wrong = [f"{name} has no call in tests/autograd/test_composed.c" for name in sorted(names - set(calls))]
    wrong += [f"{name} is no function made of ops" for name in sorted(set(calls) - names)]
    wrong += [f"{name} has no comment" for name in sorted(names) if not docs[name]]
    return [[f"`{name}`", plain(docs[name])] + calls.get(name, ["", ""]) for name in sorted(names)], wrong


def make(parity, composed):
    compared = collections.defaultdict(set)
    for op, how in listed(parity):
        compared[op].add(how)
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
    rows, wrong = made_of_ops(composed, docs, everything)
    page += table_text("Functions made of ops", MADE, rows)
    wrong += [f"{row[0]} has no {column}" for row in of.values() for column, cell in zip(COLUMNS, row) if not cell.strip()]
    wrong += [f"{row[0]} shows a private name: {row[1]}" for row in of.values() if re.search(r"`.*\b(KN|T)_.*`", row[1])]
    return page, wrong + list(vague(docs))


def main():
    programs = [os.path.abspath(program) for program in sys.argv[1:3]]
    os.chdir(ROOT)
    page, wrong = make(*programs)
    for line in wrong:
        print(f"{PAGE}: {line}")
    if sys.argv[3:] == ["--update"]:
        with open(PAGE, "w", encoding="utf-8") as out:
            out.write(page)
    elif not os.path.exists(PAGE) or read(PAGE) != page:
        print(f"{PAGE} is out of date: tests/lint/catalogue.py {' '.join(programs)} --update")
        return 1
    return bool(wrong)


sys.exit(main())
