#!/usr/bin/env python3
"""names.py: one meaning a name. Fails where two files define the same kn tag (struct, union, enum), where a name that is
in no public header begins with kn_ instead of kn__, and where a type of a private C header has no prefix."""
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARIES = ["alloc", "profiler", "ops", "autograd", "comm", "tools"]


def files(*patterns):
    out = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, text=True, check=True, stdout=subprocess.PIPE).stdout
    return [path for path in out.split("\n") if path.split("/")[0] in LIBRARIES and (ROOT / path).exists()]


def code(path):
    """A file's text without comments and string literals."""
    return re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", " ", (ROOT / path).read_text(), flags=re.S)


def main():
    texts = {path: code(path) for path in files("*.c", "*.h", "*.cu", "*.cuh", "*.hpp", "*.def")}
    public = set()
    for path, text in texts.items():
        if "/include/" in path or path.endswith(".def"):
            public |= set(re.findall(r"\bkn_\w+", text))
    for path in (ROOT / "tests/lint/exports").iterdir():  # found by name in a library that is loaded
        public |= set(path.read_text().split())
    # Rows of the op table: a macro puts kn_ before them.
    for path in files("*.def"):
        public |= {f"kn_{name}" for name in re.findall(r"^KN_\w+\((\w+)", (ROOT / path).read_text(), flags=re.M)}

    bad, at = [], collections.defaultdict(list)
    for path, text in texts.items():
        tags = re.findall(r"\b(?:struct|union|enum)\s+(?:alignas\(\w+\)\s*)?(\w+)\s*\{", text)
        for tag in tags:
            if tag.startswith("kn_"):
                at[tag].append(path)
        if "/include/" in path:
            continue
        declared = set(tags) | set(re.findall(r"^[a-z][^=;(){}\n]*?\b(kn_\w+)\(", text, flags=re.M))
        bad += [f"{path}: {name} begins with kn_, but no public header has it: kn__"
                for name in sorted(declared) if re.match(r"kn_[a-z]", name) and name not in public]
        if path.endswith(".h"):
            types = set(re.findall(r"^(?:typedef )?(?:struct|union|enum) (\w+) \{", text, flags=re.M))
            bad += [f"{path}: type {name} has no prefix" for name in sorted(types)
                    if not re.match(r"kn_|cu_", name)]
    bad += [f"{tag} is defined in {', '.join(sorted(where))}" for tag, where in sorted(at.items()) if len(where) > 1]
    print("\n".join(bad))
    return 1 if bad else 0


sys.exit(main())
