#!/usr/bin/env python3
"""docs/from-knet.md has one entry for each name of tests/data/knet_names.txt, and names of ours
that <knet.h> declares."""
import re
import sys

sys.dont_write_bytecode = True
import pages  # noqa: E402

PAGE, NAMES = "docs/from-knet.md", "tests/data/knet_names.txt"
bad = []

page = pages.read(PAGE)
entries = {}
for there, here, why in pages.table_rows(page, 3):
    if not there.startswith("`"):
        continue
    names = pages.quoted(there)
    if not re.fullmatch(r"`kn_\w+`(, `kn_\w+`)*", here) and not (here in ("*later*", "*out*") and why):
        bad.append(f"{', '.join(names)}: neither functions of ours, nor *later* or *out* with a reason")
    for name in names:
        if name in entries:
            bad.append(f"{name} has two entries")
        entries[name] = here

wanted = set(pages.read(NAMES).split("\n")) - {""}
bad += [f"{name} has no entry" for name in sorted(wanted - set(entries))]
bad += [f"{name} is not in {NAMES}" for name in sorted(set(entries) - wanted)]
bad += [f"{name} is in no header that <knet.h> includes"
        for name in sorted(set(re.findall(r"\bkn_\w+", page)) - pages.names())]
for line in bad:
    print(f"{PAGE}: {line}")
sys.exit(bool(bad))
