#!/usr/bin/env python3
"""docs/from-knet.md has one entry for each name of tests/data/knet_names.txt, and names of ours
that <knet.h> declares."""
import glob
import os
import re
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
PAGE, NAMES = "docs/from-knet.md", "tests/data/knet_names.txt"
bad = []


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


paths = glob.glob("*/include/knet/*.h") + glob.glob("tools/*/include/knet/*.h")
headers = {path[path.index("include/") + 8:]: read(path) for path in paths}
reached, todo = set(), ["knet.h"]
headers["knet.h"] = read("tools/train/include/knet.h")
while todo:
    name = todo.pop()
    if name in headers and name not in reached:
        reached.add(name)
        todo += re.findall(r"#include <([^>]+)>", headers[name])
ours = set(re.findall(r"\bkn_\w+", "".join(headers[name] for name in reached)))
ours |= {"kn_" + name for name in re.findall(r"^KN_\w+\((\w+)", read("ops/include/knet/ops.def"), re.M)}

page = read(PAGE)
entries = {}
for line in page.splitlines():
    cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    if len(cells) != 3 or not cells[0].startswith("`"):
        continue
    names, here, why = re.findall(r"`([^`]+)`", cells[0]), cells[1], cells[2]
    if not re.fullmatch(r"`kn_\w+`(, `kn_\w+`)*", here) and not (here in ("*later*", "*out*") and why):
        bad.append(f"{', '.join(names)}: neither functions of ours, nor *later* or *out* with a reason")
    for name in names:
        if name in entries:
            bad.append(f"{name} has two entries")
        entries[name] = here

wanted = set(read(NAMES).split("\n")) - {""}
bad += [f"{name} has no entry" for name in sorted(wanted - set(entries))]
bad += [f"{name} is not in {NAMES}" for name in sorted(set(entries) - wanted)]
bad += [f"{name} is in no header that <knet.h> includes" for name in sorted(set(re.findall(r"\bkn_\w+", page)) - ours)]
for line in bad:
    print(f"{PAGE}: {line}")
sys.exit(bool(bad))
