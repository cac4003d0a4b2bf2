"""For the lints of pages that map the names of another library to ours: what the headers declare, and a page's tables."""
import glob
import os
import re

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def headers(first):
    """name: text, of the public header `first` and of all that it includes."""
    paths = glob.glob("*/include/knet/*.h") + glob.glob("tools/*/include/*.h") + glob.glob("tools/*/include/knet/*.h")
    found = {path[path.index("include/") + 8:]: read(path) for path in paths}
    reached, todo = {}, [first]
    while todo:
        name = todo.pop()
        if name in found and name not in reached:
            reached[name] = found[name]
            todo += re.findall(r"#include <([^>]+)>", found[name])
    return reached


def rows():
    """The functions that the rows of the op table declare; those of its ops are declared by headers."""
    names = re.findall(r"^KN_(\w+)\((\w+)", read("ops/include/knet/ops.def"), re.M)
    return {f"kn_{name}" for kind, name in names if kind != "OP"}


def names():
    """Every name that a program which includes <knet.h> can use."""
    return set(re.findall(r"\b(?:kn|KN)_\w+", "".join(headers("knet.h").values()))) | rows()


def table_rows(page, columns):
    """The cells of each row of the tables with that many columns, without their heads."""
    for line in page.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == columns and not set(line) <= set("|-"):
            yield cells


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)
