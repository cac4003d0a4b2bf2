#!/usr/bin/env python3
"""shape.py [--list]: sizes and copies. Fails where a function has more than 50 lines, a file more than 600, or 12 equal
lines (blank ones and includes apart) are in two files of the libraries and the command. shape.txt lists the exceptions:
it only gets shorter, and an entry that is not needed fails too. --list prints that list for the tree as it is."""
import collections
import pathlib
import re
import subprocess
import sys

FUNCTION_LINES, FILE_LINES, EQUAL_LINES = 50, 600, 12
ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = pathlib.Path(__file__).with_name("shape.txt")
LIBRARIES = ("alloc/", "profiler/", "ops/", "autograd/", "comm/", "tools/")


def tracked():
    out = subprocess.run(["git", "ls-files", "*.c", "*.h", "*.cu", "*.cuh"], cwd=ROOT, text=True, check=True,
                         stdout=subprocess.PIPE).stdout
    return {path: (ROOT / path).read_text().split("\n")[:-1] for path in out.split("\n")
            if path and (ROOT / path).exists()}


def functions(lines):
    """(name, length) of each function: from its declaration to the brace in column one."""
    start = name = None
    for i, line in enumerate(lines):
        found = re.match(r"[A-Za-z_].*?\b([A-Za-z_]\w*)\(", line)
        if name is None and found:
            start, name, is_open = i, found.group(1), False
        if name and not is_open:
            is_open = line.endswith("{")
            if not is_open and line.endswith((";", "}", "\\")):
                name = None
        elif name and line.startswith("}"):
            yield name, i - start + 1
            name = None


def copies(files):
    """{(file, other): (line, other's line, length)}: the longest run of equal lines of each two files."""
    rows = {path: [(i + 1, " ".join(line.split())) for i, line in enumerate(lines)
                   if line.strip() and not line.lstrip().startswith("#include")] for path, lines in files.items()}
    places = collections.defaultdict(list)
    for path, row in rows.items():
        for at in range(len(row) - EQUAL_LINES + 1):
            places[tuple(text for _, text in row[at:at + EQUAL_LINES])].append((path, at))
    found = {}
    for here in places.values():
        for path, at in here:
            for other, there in here:
                if path >= other:
                    continue
                n = EQUAL_LINES
                while (at + n < len(rows[path]) and there + n < len(rows[other])
                       and rows[path][at + n][1] == rows[other][there + n][1]):
                    n += 1
                if n > found.get((path, other), (0, 0, 0))[2]:
                    found[path, other] = (rows[path][at][0], rows[other][there][0], n)
    return found


def problems(files):
    """{entry: (size, what to say)}."""
    out = {}
    for path, lines in files.items():
        if len(lines) > FILE_LINES:
            out[f"file {path}"] = (len(lines), f"{path}: {len(lines)} lines; the limit is {FILE_LINES}")
        for name, n in functions(lines):
            if n > FUNCTION_LINES:
                out[f"function {path} {name}"] = (n, f"{path}: {name} has {n} lines; the limit is {FUNCTION_LINES}")
    for (path, other), (line, there, n) in copies({p: l for p, l in files.items() if p.startswith(LIBRARIES)}).items():
        out[f"copy {path} {other}"] = (n, f"{path}:{line} and {other}:{there}: {n} equal lines; write them once")
    return out


def main():
    now = problems(tracked())
    if "--list" in sys.argv:
        print("\n".join(sorted(f"{size} {entry}" for entry, (size, _) in now.items())))
        return 0
    allowed = {}
    for line in LIST.read_text().split("\n"):
        if line and not line.startswith("#"):
            size, entry = line.split(" ", 1)
            allowed[entry] = int(size)
    bad = [text for entry, (size, text) in now.items() if size > allowed.get(entry, 0)]
    bad += [f"{LIST.name}: '{entry}' is not needed; delete the line" for entry in allowed if entry not in now]
    print("\n".join(bad))
    return 1 if bad else 0


sys.exit(main())
