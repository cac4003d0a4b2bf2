#!/usr/bin/env python3
"""docs/from-numpy-pytorch.md: every name of ours is one that <knet.h> declares, every option a field of a header; every
function of <knet/ops.h> and its parts, rows of the op table included, is on the page; and each row of a table has names of
NumPy or PyTorch that no other row has, and names of ours, or *no* with a reason."""
import re
import sys

sys.dont_write_bytecode = True
import pages  # noqa: E402

PAGE = "docs/from-numpy-pytorch.md"
NOT_OPS = {"knet/tensor.h", "knet/frame.h"}  # ops.h includes what they include too
NOT_FOR_USERS = {"kn_located"}
bad = []


def op_functions():
    below = set().union(*(pages.headers(name) for name in NOT_OPS))
    text = "".join(text for name, text in pages.headers("knet/ops.h").items() if name not in below)
    return set(re.findall(r"^KN_API [\w *]*?\b(kn_\w+)\(", text, re.M)) | pages.rows()


page = pages.read(PAGE)
seen = set()
for numpy, torch, here, why in pages.table_rows(page, 4):
    if numpy == "NumPy":
        continue
    names = pages.quoted(numpy) + pages.quoted(torch)
    label = ", ".join(names) or here
    if not names:
        bad.append(f"{label}: no name of NumPy or PyTorch")
    if not re.search(r"`[^`]*\b(kn|KN)_\w", here) and not (here == "*no*" and why):
        bad.append(f"{label}: neither names of ours, nor *no* with a reason")
    bad += [f"{name} has two rows" for name in names if name in seen]
    seen |= set(names)

mentioned = set(re.findall(r"\b(?:kn|KN)_\w+", page))
bad += [f"{name} is in no header that <knet.h> includes" for name in sorted(mentioned - pages.names())]
fields = set(re.findall(r"\b\w+", "".join(pages.headers("knet.h").values())))
bad += [f".{name} is no option of a header" for name in sorted(set(re.findall(r"[`({ ]\.(\w+)", page)) - fields)]
bad += [f"{name} has no entry" for name in sorted(op_functions() - NOT_FOR_USERS - mentioned)]
for line in bad:
    print(f"{PAGE}: {line}")
sys.exit(bool(bad))
