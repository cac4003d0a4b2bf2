#!/usr/bin/env python3
"""circles.py BUILD_DIR: which files of a library call each other in a circle.

From the object files: file A calls file B where A's code refers to a symbol that B defines. What a table of functions holds
is called by whoever reads the table, not by the file that the table is in. A circle is a strongly connected part of that
graph; it must not be larger than the limit of its library. -v lists every circle.
"""
import json
import pathlib
import re
import subprocess
import sys

LIMITS = {"base": 1, "alloc": 3, "profiler": 13, "report": 3, "ops": 11, "autograd": 6, "comm": 4, "train": 5, "replay": 5}


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def symbols(objects):
    """Of each object, the names that it defines and those that its code refers to."""
    defined, used = {obj: set() for obj in objects}, {obj: set() for obj in objects}
    for line in run("nm", "-A", *objects):
        obj, rest = line.split(":", 1)
        *_, kind, name = rest.split()
        if kind.isupper() and kind != "U":   # weak references are w and v
            defined[obj].add(name)
    in_code, obj = False, objects[0]
    for line in run("readelf", "-rW", *objects):
        if line.startswith("File: "):   # of several
            obj = line[6:]
        section = re.match(r"Relocation section '\.rela?(\.[^']*)'", line)
        if section:
            in_code = section[1].startswith(".text")
        elif in_code and len(fields := line.split()) >= 5:
            used[obj].add(fields[4].split("@")[0])
    return defined, used


def calls(objects):
    """For each object those whose symbols it refers to."""
    defined, used = symbols(objects)
    owner = {name: obj for obj in objects for name in defined[obj]}
    return {obj: {owner[name] for name in used[obj] if name in owner} - {obj} for obj in objects}


def circles(graph):
    """Tarjan's algorithm: the strongly connected parts of more than one object."""
    index, low, stack, found = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in graph[v]:
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            at = stack.index(v)
            part, stack[at:] = stack[at:], []
            if len(part) > 1:
                found.append(part)

    sys.setrecursionlimit(10000)
    for v in graph:
        if v not in index:
            visit(v)
    return found


def main():
    build, verbose = pathlib.Path(sys.argv[1]), "-v" in sys.argv
    libraries = {}
    for command in json.loads((build / "compile_commands.json").read_text()):
        words = command["command"].split()
        obj = build / words[words.index("-o") + 1]
        match = obj.exists() and re.search(r"CMakeFiles/knet_([a-z]+?)(?:_objects|_cuda)?\.dir/(.*)\.(?:c|cu)\.o$", str(obj))
        if match and match[1] in LIMITS:
            libraries.setdefault(match[1], []).append(str(obj))
    if "alloc" not in libraries:
        sys.exit(f"no objects of our libraries under {build}")
    bad = False
    for library, objects in libraries.items():
        for part in circles(calls(objects)):
            files = [re.sub(r".*\.dir/|\.o$", "", obj) for obj in part]
            if len(part) > LIMITS[library] or verbose:
                print(f"{library}: {len(part)} files call each other: {', '.join(sorted(files))}")
            bad |= len(part) > LIMITS[library]
    sys.exit(bad)


main()
