"""Every row of UNVERIFIED.md names the check that settles it, and that check exists.

    check_unverified.py BUILD HAVE_CUDA

A check is a test with the label gpu or a step of run.sh; cases of a test may follow. A build without CUDA lacks some
tests: there a name counts that stands in a CMake file.
"""
import glob
import json
import os
import re
import subprocess
import sys

import steps

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)


def tests_of(build, have_cuda):
    """Labels by test."""
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True,
                           check=True).stdout
    found = {}
    for test in json.loads(shown)["tests"]:
        labels = [p["value"] for p in test["properties"] if p["name"] == "LABELS"]
        found[test["name"]] = labels[0] if labels else []
    if not have_cuda:
        for path in glob.glob(TESTS + "/*/CMakeLists.txt") + glob.glob(TESTS + "/*/*.cmake"):
            with open(path) as file:
                for name in re.findall(r"(?:knet_test\(|NAME )([\w.]+)", file.read()):
                    found.setdefault(name, ["gpu"])
    return found


def cases():
    found = set()
    for path in glob.glob(TESTS + "/*/*.c"):
        with open(path) as file:
            found.update(re.findall(r"^static void (\w+)\(void \*\*state\)", file.read(), re.MULTILINE))
    return found


def rows(text):
    """(cells by column name, line) of the tables that have a column "settled by"."""
    columns = None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            columns = None
        elif "settled by" in cells:
            columns = cells
        elif columns and not set(line) <= set("|-: "):
            yield dict(zip(columns, cells)), line


def problems(text, tests, step_names, case_names):
    wrong, n = [], 0
    for row, line in rows(text):
        n += 1
        names = re.findall(r"`([^`]+)`", row.get("settled by", ""))
        checks = [name for name in names if name in tests or name in step_names]
        unknown = [name for name in names if name not in checks and name not in case_names]
        rest = re.sub(r"`[^`]+`|[(), ]", "", row.get("settled by", ""))
        if unknown or rest:
            wrong.append(f"neither test, step nor case: {', '.join(unknown + [rest] * bool(rest))}: {line}")
        elif not checks:
            wrong.append(f"names no test and no step: {line}")
        elif any(name not in step_names and "gpu" not in tests[name] for name in checks):
            wrong.append(f"names a test that needs no GPU: {line}")
        elif "" in row.values():
            wrong.append(f"an empty cell: {line}")
    return wrong if n else ["no row"]


def main(build, have_cuda):
    with open(os.path.join(HERE, "UNVERIFIED.md")) as file:
        text = file.read()
    step_names = {name for listed in steps.RUNS.values() for name, _, _ in listed}
    wrong = problems(text, tests_of(build, have_cuda == "1"), step_names, cases())
    for problem in wrong:
        print("UNVERIFIED.md:", problem)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
