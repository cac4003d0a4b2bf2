"""Packs the bundle for a machine with a GPU: `run.sh prepare [--no-build] [FOLDER]`.

FOLDER (gpu-bundle) gets run.sh with its scripts, and payload.tar.gz: the programs of the cuda preset, stripped, the
libraries that they need and that such a machine lacks, what tests read, and images for training. 60 MB at most.
"""
import gzip
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(REPO, "build", "cuda")
IMAGES = "/usr/share/datasets/fashion-mnist"
CARRY_MB_MAX = 60
SCRIPTS = ("run.sh", "steps.py", "profile_check.py", "torch_baseline.py", "torch_plugin.py")
# Programs of the steps, beside those of the tests.
PROGRAMS = ("bin/knet", "bench/bench_gpu_costs", "bench/bench_gpu_ops", "bench/bench_train", "bench/bench_arrays",
            "bench/bench_nn", "bench/bench_models", "tests/gpu_timer_program", "tests/test_profiler_replay")
# The other machine brings these: the C library and all of CUDA.
FOREIGN = re.compile(r"lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so|ld-linux|linux-vdso|"
                     r"lib(cuda|cudart|cublas\w*|cudnn\w*|cupti|nvrtc[\w-]*|nvJitLink|nccl|cusolver\w*|cusparse\w*)\.so")


def fail(text):
    print("prepare: " + text, file=sys.stderr)
    sys.exit(1)


def build():
    jobs = str(os.cpu_count())
    for command in (["cmake", "--preset", "cuda"], ["cmake", "--build", "--preset", "cuda", "-j", jobs]):
        if subprocess.run(command, cwd=REPO, check=False).returncode != 0:
            fail(" ".join(command) + " failed")


def copy_source(stage, text):
    """What a test reads from the source tree is carried; its path is replaced when the test runs."""
    if text.startswith(REPO) and not text.startswith(BUILD) and os.path.exists(text):
        to = os.path.join(stage, "source", os.path.relpath(text, REPO))
        os.makedirs(os.path.dirname(to), exist_ok=True)
        if os.path.isdir(text):
            shutil.copytree(text, to, dirs_exist_ok=True)
        else:
            shutil.copy(text, to)
    return text.replace(BUILD, "@BUILD@").replace(REPO, "@SOURCE@")


def list_tests(stage):
    """The tests with the label gpu, as steps.py reads them."""
    shown = subprocess.run(["ctest", "--test-dir", BUILD, "-L", "^gpu$", "--show-only=json-v1"], capture_output=True,
                           text=True, check=True).stdout
    tests = []
    for test in json.loads(shown)["tests"]:
        if not os.path.exists(test.get("command", [""])[0]):
            fail(f"test {test['name']} is not built")
        has = {p["name"]: p["value"] for p in test["properties"]}
        tests.append({"name": test["name"], "seconds": has.get("TIMEOUT", 60), "alone": "RESOURCE_LOCK" in has,
                      "labels": has.get("LABELS", []),
                      "environment": [copy_source(stage, e) for e in has.get("ENVIRONMENT", []) if e],
                      "command": [copy_source(stage, word) for word in test["command"]]})
    if not tests:
        fail(f"ctest lists no test with the label gpu in {BUILD}")
    return tests


def copy_built(stage, path):
    source, to = os.path.join(BUILD, path), os.path.join(stage, "build", path)
    if not os.path.exists(source):
        fail(f"{source} is not built")
    os.makedirs(os.path.dirname(to), exist_ok=True)
    shutil.copy2(source, to, follow_symlinks=False)


def needed_libraries(stage):
    """(name, path) of what the staged files load and the other machine may lack."""
    found = {}
    for folder, _, names in os.walk(os.path.join(stage, "build")):
        for name in names:
            listed = subprocess.run(["ldd", os.path.join(folder, name)], capture_output=True, text=True, check=False)
            for line in listed.stdout.splitlines():
                words = line.split()
                if len(words) > 2 and words[1] == "=>" and words[2].startswith("/"):
                    if not FOREIGN.match(words[0]) and not words[2].startswith((BUILD, stage)):
                        found[words[0]] = words[2]
    return sorted(found.items())


def strip(stage):
    for folder, _, names in os.walk(stage):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path) and (os.access(path, os.X_OK) or ".so" in name):
                subprocess.run(["strip", "--strip-unneeded", path], stderr=subprocess.DEVNULL, check=False)


def copy_images(target, n=10000):
    """The first n images and labels of each part."""
    for name, header, size in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
        for part in ("train", "t10k"):
            path = os.path.join(IMAGES, f"{part}-{name}-ubyte.gz")
            if not os.path.exists(path):
                print(f"prepare: no {path}: training runs on made-up images there", file=sys.stderr)
                shutil.rmtree(target, ignore_errors=True)
                return
            with gzip.open(path) as file:
                data = file.read(header + n * size)
            os.makedirs(target, exist_ok=True)
            with gzip.open(os.path.join(target, os.path.basename(path)), "wb") as file:
                file.write(data[:4] + struct.pack(">I", n) + data[8:])


def pack(stage, bundle):
    shutil.rmtree(bundle, ignore_errors=True)
    os.makedirs(bundle)
    for name in SCRIPTS:
        shutil.copy(os.path.join(HERE, name), bundle)
    with tarfile.open(os.path.join(bundle, "payload.tar.gz"), "w:gz") as archive:
        archive.add(stage, ".")
    return sum(os.path.getsize(os.path.join(bundle, name)) for name in os.listdir(bundle)) / 1e6


def main(argv):
    if argv[:1] == ["--no-build"]:
        argv = argv[1:]
    else:
        build()
    bundle = os.path.abspath(argv[0]) if argv else os.path.join(REPO, "gpu-bundle")
    with tempfile.TemporaryDirectory() as stage:
        tests = list_tests(stage)
        with open(os.path.join(stage, "tests.json"), "w") as file:
            json.dump(tests, file, indent=1)
        programs = {os.path.relpath(t["command"][0].replace("@BUILD@", BUILD), BUILD) for t in tests}
        for path in sorted(programs.union(PROGRAMS)):
            copy_built(stage, path)
        for name in os.listdir(os.path.join(BUILD, "lib")):
            if ".so" in name:
                copy_built(stage, os.path.join("lib", name))
        os.makedirs(os.path.join(stage, "lib"))
        for name, path in needed_libraries(stage):
            shutil.copy(path, os.path.join(stage, "lib", name))
        strip(stage)
        copy_images(os.path.join(stage, "data"))
        shutil.copytree(os.path.join(REPO, "bench", "peer"), os.path.join(stage, "peer"))
        shutil.copytree(os.path.join(REPO, "tools", "plugins", "python", "knetc"), os.path.join(stage, "python", "knetc"),
                        ignore=shutil.ignore_patterns("__pycache__"))
        carried = pack(stage, bundle)
    print(f"{bundle}: {carried:.1f} MB to carry, {len(tests)} tests")
    if carried > CARRY_MB_MAX:
        fail(f"that is more than {CARRY_MB_MAX} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
