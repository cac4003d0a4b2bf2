"""The README of a folder that lists its files names each of them, and no other.

A name in the first column of the table below "| file | |" is a file of the folder or, if it has none, of its src/, with or
without its ending, or a pattern of some; folders end in "/". Prints what is missing or names nothing; exit code 1 then."""

import fnmatch
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = "| file | |"


def names_of(readme):
    """What the first column of the table names, each with whether it is a folder."""
    lines = readme.read_text(encoding="utf-8").split("\n")
    at = lines.index(HEADER) + 2
    names = []
    while at < len(lines) and lines[at].startswith("|"):
        names += re.findall(r"`([^`]+)`", lines[at].split("|")[1])
        at += 1
    return names


def problems(readme):
    folder = readme.parent
    if (folder / "src").is_dir() and not any(folder.glob("*.c")):
        folder /= "src"
    files = [f.name for f in folder.iterdir() if f.is_file() and f.suffix in (".c", ".h", ".cc", ".cu", ".cuh", ".html")]
    names = [n for n in names_of(readme) if not n.endswith("/")]
    seen = {n: False for n in names}
    for file in sorted(files):
        fits = [n for n in names if fnmatch.fnmatch(file, n) or fnmatch.fnmatch(file.rsplit(".", 1)[0], n)]
        for name in fits:
            seen[name] = True
        if not fits:
            yield f"{readme.relative_to(ROOT)}: {file} is not in its table"
    for name, is_there in seen.items():
        if not is_there and not (folder / name).exists():
            yield f"{readme.relative_to(ROOT)}: there is no file {name}"


def main():
    readmes = [r for part in ("alloc", "profiler", "ops", "autograd", "comm", "tools") for r in (ROOT / part).rglob("README.md")
               if HEADER in r.read_text(encoding="utf-8").split("\n")]
    found = [p for r in sorted(readmes) for p in problems(r)]
    print("\n".join(found) or f"{len(readmes)} folders, each file named")
    return 1 if found or len(readmes) < 10 else 0


sys.exit(main())
