"""The runs on a machine with a GPU: `run.sh run correctness`, `speed` and `models`; with --only, some of their steps.

A run is a list of steps, each with a limit; the limits add up to less than nine minutes, so no step takes another's
time. KNET_GPU_STEP_SECONDS lowers them all. A step fails when a program ends with a code that it must not have, skips
although there is a GPU, is missing, or runs into the limit: then every process that the step started is killed. Without
a GPU the programs of the tests are started all the same (they must say that they skip), and the rest is skipped.
"""
import concurrent.futures
import ctypes
import glob
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

import profile_check

RUN_SECONDS = 540
SPARE_SECONDS = 20  # to unpack, to write the summary
SKIPPED = 77
HERE = os.path.dirname(os.path.abspath(__file__))
PAYLOAD = os.path.join(HERE, "payload.tar.gz")


class Failure(Exception):
    """A step or a test did not pass; the text says why."""


class Skipped(Exception):
    """A program said that it can't run here."""


class Interrupted(Exception):
    """Someone asked the run to end."""


# --- processes -------------------------------------------------------------------------------------------------------

def own_orphans():
    """Processes whose parent died become ours, so that kill_descendants finds them."""
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants():
    parent_of = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    state, parent = file.read().rpartition(")")[2].split()[:2]
                if state != "Z":
                    parent_of[int(entry)] = int(parent)
            except (OSError, ValueError):
                pass  # it ended meanwhile
    found, front = set(), {os.getpid()}
    while front:
        front = {pid for pid, parent in parent_of.items() if parent in front} - found
        found |= front
    return found


def kill_descendants():
    for _ in range(50):
        pids = descendants()
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)


def kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def execute(argv, log, deadline, env=None, cwd=None):
    """Runs a program in a process group of its own; its exit code. Kills the group at the deadline."""
    with open(log, "ab") as out:
        out.write(("$ " + " ".join(argv).split("\n")[0] + "\n").encode())
        out.flush()
        try:
            process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=cwd,
                                       env={**os.environ, **(env or {})}, start_new_session=True)
        except OSError as error:
            raise Failure(f"{os.path.basename(argv[0])} can't be started: {error.strerror}") from error
        try:
            code = process.wait(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            kill_group(process)
            raise Failure(f"cut off: {os.path.basename(argv[0])} did not end in time") from None
        except BaseException:
            kill_group(process)
            raise
    kill_group(process)  # what it left running
    return code


def demand(code, what):
    if code == SKIPPED:
        raise Skipped(f"{what} skipped")
    if code != 0:
        raise Failure(f"{what}: " + (f"signal {-code}" if code < 0 else f"exit code {code}"))


# --- the run ---------------------------------------------------------------------------------------------------------

class Run:
    def __init__(self, name, results):
        self.name, self.results = name, results
        self.work = tempfile.mkdtemp(prefix="knet-gpu-")
        self.root = os.path.join(self.work, "bundle")
        self.logs = os.path.join(self.work, "logs")
        os.makedirs(self.root)
        os.makedirs(self.logs)
        self.n_gpus = count_gpus()
        self.has_gpu = self.n_gpus > 0
        self.due = 0 if self.has_gpu else SKIPPED  # exit code of a test
        self.lines, self.failed, self.tests_done, self.figures = [], [], {}, []

    def log(self, name):
        return os.path.join(self.logs, name + ".log")

    def build(self, path):
        return os.path.join(self.root, "build", path)

    def must(self, step, argv, deadline, env=None):
        """Runs a program whose exit code must be 0."""
        demand(execute(argv, self.log(step), deadline, env, self.work), os.path.basename(argv[0]))

    def placed(self, text):
        return text.replace("@BUILD@", self.build("")[:-1]).replace("@SOURCE@", os.path.join(self.root, "source"))


def count_gpus():
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False)
        if listed.returncode == 0 and "GPU " in listed.stdout:
            return listed.stdout.count("GPU ")
    except (OSError, subprocess.TimeoutExpired):
        pass
    return len(glob.glob("/dev/nvidia[0-9]*"))


def library_folders():
    """Folders with the CUDA libraries: Python's packages first, for a fair comparison with PyTorch; then toolkits."""
    folders = []
    for site in sys.path:
        if site.endswith("packages"):
            folders += sorted(glob.glob(os.path.join(site, "nvidia", "*", "lib")))
    for pattern in ("lib64", "extras/CUPTI/lib64", "targets/x86_64-linux/lib"):
        folders += sorted(glob.glob("/usr/local/cuda*/" + pattern))
    return folders


def unpack(run):
    with tarfile.open(PAYLOAD) as archive:
        archive.extractall(run.root)
    own = [run.build("lib"), os.path.join(run.root, "lib")]
    before = [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    os.environ["LD_LIBRARY_PATH"] = ":".join(dict.fromkeys(own + library_folders() + before))


# --- steps: correctness ----------------------------------------------------------------------------------------------

def versions(run, deadline):
    run.must("versions", ["nvidia-smi"], deadline)
    for argv in (["nvcc", "--version"], ["uname", "-a"], ["nproc"]):
        if shutil.which(argv[0]):
            run.must("versions", argv, deadline)
    code = ('import ctypes\nfor n in ("libcuda.so.1", "libcudart.so.13", "libcublasLt.so.13", "libcudnn.so.9",'
            ' "libcupti.so.13"):\n try:\n  ctypes.CDLL(n)\n  print(n, *{l.split()[-1] for l in open("/proc/self/maps")'
            ' if n.split(".so")[0] + ".so" in l})\n except OSError as e:\n  print("MISSING", e)\n')
    execute([sys.executable, "-c", code], run.log("versions"), deadline)
    with open(run.log("versions")) as file:
        missing = [line.strip() for line in file if line.startswith("MISSING")]
    if missing:
        raise Failure("; ".join(missing))


def run_test(run, test, deadline):
    """(exit code or None, why not, seconds)"""
    begin = time.monotonic()
    end = min(deadline, begin + test["seconds"])
    env = dict(pair.split("=", 1) for pair in map(run.placed, test["environment"]))
    code, why = None, ""
    try:
        argv = [run.placed(word) for word in test["command"]]
        code = execute(argv, run.log("test." + test["name"]), end, env, run.work)
    except Failure as failure:
        why = str(failure)
    return code, why, time.monotonic() - begin


def skipped_inside(run, name):
    """Cases that a program skipped, though it passed: with a GPU there they settled nothing."""
    with open(run.log("test." + name), errors="replace") as file:
        found = re.findall(r"^\[  SKIPPED \] (\w+)$", file.read(), re.MULTILINE)
    # One card can't settle what needs two.
    return [name for name in dict.fromkeys(found) if run.n_gpus > 1 or not name.startswith("two_gpus_")]


def judge_test(run, name, code, why):
    """Why the test did not do what it had to do; nothing if it did."""
    if why or code != run.due:
        return why or ("skipped though there is a GPU" if code == SKIPPED else f"exit code {code}")
    skipped = skipped_inside(run, name) if run.has_gpu else []
    return "skipped though there is a GPU: " + ", ".join(skipped) if skipped else ""


def run_tests(run, listed, n_workers, deadline):
    done = {}
    threads = concurrent.futures.ThreadPoolExecutor(n_workers)
    try:
        futures = {t["name"]: threads.submit(run_test, run, t, deadline) for t in listed}
        for name, future in futures.items():
            done[name] = future.result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        for test in listed:
            name = test["name"]
            code, why, seconds = done.get(name, (None, "did not run", 0))
            run.tests_done[name] = (judge_test(run, name, code, why), seconds)
    bad = [test["name"] for test in listed if run.tests_done[test["name"]][0]]
    if bad:
        raise Failure(f"{len(bad)} of {len(listed)} tests: " + ", ".join(bad))
    if not run.has_gpu:
        raise Skipped(f"no GPU; {len(listed)} programs start and say so")


def tests(run, deadline):
    """The tests that may run beside each other."""
    n_workers = max(4, (os.cpu_count() or 1) // 2)
    run_tests(run, [t for t in load_tests(run) if not t["alone"]], n_workers, deadline)


def tests_alone(run, deadline):
    """Those that need the card for themselves."""
    run_tests(run, [t for t in load_tests(run) if t["alone"]], 1, deadline)


def load_tests(run):
    with open(os.path.join(run.root, "tests.json")) as file:
        return json.load(file)


def find_sanitizer():
    places = [os.environ.get(name, "") + "/bin" for name in ("CUDA_HOME", "CUDA_PATH")]
    places += sorted(glob.glob("/usr/local/cuda*/bin")) + sorted(glob.glob("/usr/local/cuda*/compute-sanitizer"))
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=":".join(places))
    if not found:
        raise Failure("compute-sanitizer is neither in PATH nor in CUDA_HOME/bin, CUDA_PATH/bin, /usr/local/cuda*/bin")
    return found


# Races inside of NVIDIA's libraries are not ours to judge.
OURS_ALONE = [word for name in ("cublas", "cudnn", "cutlass", "cusolver", "xmma")
              for word in ("--kernel-name-exclude", "kns=" + name)]
CLEAN = {"memcheck": r"ERROR SUMMARY: 0 errors", "racecheck": r"RACECHECK SUMMARY: 0 hazards displayed \(0 errors"}


def sanitize(tool):
    def step(run, deadline):
        """Tests with the label of the tool under compute-sanitizer: clean only if it says so."""
        sanitizer = find_sanitizer()
        listed = [test for test in load_tests(run) if tool in test["labels"]]
        if not listed:
            raise Failure(f"no test of the bundle has the label {tool}")
        for test in listed:
            log = run.log(f"sanitize-{tool}.{test['name']}")
            env = dict(pair.split("=", 1) for pair in map(run.placed, test["environment"]))
            # Errors that tests provoke through the API (no memory, misuse) are theirs to check.
            options = ["--report-api-errors", "no", "--nvtx", "yes"] if tool == "memcheck" else OURS_ALONE
            argv = [sanitizer, "--tool", tool, *options, "--error-exitcode", "99"]
            code = execute(argv + [run.placed(word) for word in test["command"]], log, deadline, env, run.work)
            demand(code, f"{test['name']} under {tool}")
            with open(log, errors="replace") as file:
                if not re.search("========= " + CLEAN[tool], file.read()):
                    raise Failure(f"{test['name']}: {tool} wrote no summary without errors")
    return step


def profile(run, step, argv, words, deadline):
    """Runs a program under KNET_TIMER=words; its profile."""
    handle, path = tempfile.mkstemp(prefix=step + ".", suffix=".json", dir=run.logs)
    os.close(handle)
    table = path[:-5] + ".txt"
    run.must(step, argv, deadline, {"KNET_TIMER": f"{words},json={path},out={table}"})
    loaded = profile_check.load(path)
    with open(table, encoding="utf-8") as file:
        loaded["table"] = file.read()
    return loaded


def judge(problems):
    if problems:
        raise Failure("; ".join(problems))


def lenet(run):
    return [run.build("bin/knet"), "train", "lenet", "--device", "cuda", "--synthetic", "--epochs", "1", "--quiet"]


def timer_program(run, *words):
    return [run.build("tests/gpu_timer_program"), *map(str, words)]


def recording(run):
    return os.path.join(run.logs, "timer-gpu.kncupti")


def timer_gpu(run, deadline):
    taken = profile(run, "timer-gpu", lenet(run), "gpu,buf=64M,record=" + recording(run), deadline)
    judge(profile_check.gpu(taken) + profile_check.scopes_have_gpu_time(taken, ("forward", "backward", "update")) +
          profile_check.memory_outside_pools(taken))
    if not os.path.exists(recording(run)) or os.path.getsize(recording(run)) < 1000:
        raise Failure("no recording of the raw buffers")


def timer_replay(run, deadline):
    """The raw buffers of the card, read by our reader and by the real library's."""
    argv = [run.build("tests/test_profiler_replay"), "compare", recording(run)]
    run.must("timer-replay", argv, deadline)


def timer_lite(run, deadline):
    """It times graphs, so the steps are captured."""
    judge(profile_check.gpu(profile(run, "timer-lite", lenet(run) + ["--capture"], "gpu-lite", deadline)))


def timer_full(run, deadline):
    taken = profile(run, "timer-full", lenet(run), "full", deadline)
    judge(profile_check.gpu(taken) + profile_check.calls_have_rows(taken))


STEPS_OF_PROGRAM = 50


def timer_captured(words):
    def step(run, deadline):
        name = "timer-captured" + ("-lite" if words == "gpu-lite" else "")
        plain = profile(run, name, timer_program(run, "plain", STEPS_OF_PROGRAM), "gpu", deadline)
        taken = profile(run, name, timer_program(run, "captured", STEPS_OF_PROGRAM), words, deadline)
        check = profile_check.graph_is_one_row if words == "gpu-lite" else profile_check.captured_kernels
        judge(profile_check.gpu(plain) + profile_check.gpu(taken) + check(taken, plain, STEPS_OF_PROGRAM))
    return step


def timer_pause(run, deadline):
    plain = profile(run, "timer-pause", timer_program(run, "plain", STEPS_OF_PROGRAM), "gpu", deadline)
    taken = profile(run, "timer-pause", timer_program(run, "pause", STEPS_OF_PROGRAM), "gpu", deadline)
    judge(profile_check.gpu(plain) + profile_check.gpu(taken) + profile_check.paused_work_is_absent(taken, plain))


def train_lenet(run, deadline):
    """One epoch of real images on both devices: the same loss and accuracy within what rounding does."""
    data = os.path.join(run.root, "data")
    results = {}
    for device in ("cpu", "cuda"):
        log = run.log("train-lenet-" + device)
        argv = [run.build("bin/knet"), "train", "lenet", "--device", device, "--epochs", "1", "--quiet", "--json"]
        argv += ["--data", data] if os.path.isdir(data) else ["--synthetic"]
        demand(execute(argv, log, deadline, None, run.work), "knet train on " + device)
        results[device] = profile_check.last_json(log)
    judge(profile_check.same_training(results["cpu"], results["cuda"]))


def knet_info(run, deadline):
    run.must("knet-info", [run.build("bin/knet"), "info"], deadline)
    with open(run.log("knet-info")) as file:
        if "cuda:0" not in file.read():
            raise Failure("knet info lists no cuda:0")


# --- steps: speed ----------------------------------------------------------------------------------------------------

def figures_of(run, step, n_least):
    """The figures that the step's programs printed, at least so many; their values by metric."""
    figures = []
    with open(run.log(step), errors="replace") as file:
        for line in file:
            if line.startswith('{"bench"'):
                figures.append(json.loads(line))
    if len(figures) < n_least:
        raise Failure(f"{len(figures)} figures, {n_least} or more are due")
    run.figures += figures
    return {f["metric"]: f["value"] for f in figures}


def driver_costs(run, deadline):
    run.must("driver-costs", [run.build("bench/bench_gpu_costs")], deadline)
    figures_of(run, "driver-costs", 60)


def torch_baseline(run, deadline):
    run.must("torch-baseline", [sys.executable, os.path.join(HERE, "torch_baseline.py"), "ceilings"], deadline)
    plugin = [os.path.join(HERE, "torch_plugin.py"), run.build("lib"), os.path.join(run.root, "python")]
    run.must("torch-baseline", [sys.executable, *plugin], deadline)
    figures_of(run, "torch-baseline", 8)


def bench_ops(run, deadline):
    """Our ops and PyTorch's by events, and their ratios; PyTorch with TF32 and without."""
    run.must("bench-ops", [run.build("bench/bench_gpu_ops")], deadline)
    run.must("bench-ops", [sys.executable, os.path.join(HERE, "torch_baseline.py"), "ops"], deadline)
    by_name = figures_of(run, "bench-ops", 40)
    for name, us in sorted(by_name.items()):
        theirs = by_name.get("torch_" + name)
        if theirs:
            run.figures.append({"bench": "gpu_ops_ratio", "metric": name, "value": us, "unit": "us", "baseline": theirs,
                                "ratio": round(us / theirs, 3)})


def bench_train(run, deadline):
    peer = os.path.join(run.root, "peer", "steps.py")
    argv = [run.build("bench/bench_train"), "--device", "cuda", "--peer", sys.executable, peer]
    run.must("bench-train", argv, deadline)
    figures_of(run, "bench-train", 6)


def bench_cases(run, deadline):
    """The cases of bench/arrays and bench/nn beside PyTorch; convolutions and products with TF32 too."""
    python = {"KNET_BENCH_PYTHON": sys.executable}
    for program, script, *more in (("arrays", "arrays.py"), ("nn", "nn.py"),
                                   ("nn", "nn.py", "--math", "tf32", "--only", "nn/conv"),
                                   ("arrays", "arrays.py", "--math", "tf32", "--only", "mm")):
        argv = [run.build("bench/bench_" + program), "--quick", "--device", "cuda:0",
                "--script", os.path.join(run.root, "peer", script), *more]
        run.must("bench-cases", argv, deadline, python)
    figures_of(run, "bench-cases", 250)


MODELS_OF_EACH_PRECISION = ("lenet", "vgg_cifar", "resnet50", "mobilenet_v2", "char_lstm", "gpt", "transformer")


def bench_models(run, deadline):
    """Training steps of the models of the record beside PyTorch's, plain and captured."""
    script = os.path.join(run.root, "peer", "models.py")
    for math, share, models in (("tf32", 0.5, ()), ("bf16", 0.45, MODELS_OF_EACH_PRECISION),
                                ("strict", 0.7, MODELS_OF_EACH_PRECISION)):
        seconds = share * (deadline - time.monotonic())
        argv = [run.build("bench/bench_models"), "--device", "cuda:0", math, sys.executable, script, str(seconds), *models]
        run.must("bench-models", argv, deadline)
    figures_of(run, "bench-models", 100)


def timer_cost(run, deadline):
    """A launch-bound step with the timer off, on and paused, in turn."""
    samples = {}
    sides = [(words, "plain") for words in ("off", "1", "gpu", "gpu-lite")] + [("gpu", "pause")]
    for _ in range(3):
        for words, mode in sides:
            log = run.log("timer-cost")
            env = {} if words == "off" else {"KNET_TIMER": words + ",out=/dev/null"}
            demand(execute(timer_program(run, mode, 1000), log, deadline, env, run.work), "gpu_timer_program " + mode)
            samples.setdefault(words + ("-paused" if mode == "pause" else ""), []).append(
                profile_check.last_json(log)["value"])
    off = statistics.median(samples["off"])
    for name, values in samples.items():
        us = statistics.median(values)
        run.figures.append({"bench": "gpu_timer", "metric": f"step_{name}_us", "value": us, "unit": "us",
                            "baseline": off, "ratio": round(us / off, 3)})


# --- all runs -------------------------------------------------------------------------------------------------------

RUNS = {
    "correctness": [
        ("versions", 20, versions),
        ("knet-info", 10, knet_info),
        ("tests", 100, tests),
        ("tests-alone", 60, tests_alone),
        ("sanitize-memcheck", 60, sanitize("memcheck")),
        ("sanitize-racecheck", 105, sanitize("racecheck")),
        ("timer-gpu", 25, timer_gpu),
        ("timer-replay", 15, timer_replay),
        ("timer-lite", 20, timer_lite),
        ("timer-full", 25, timer_full),
        ("timer-captured", 15, timer_captured("gpu")),
        ("timer-captured-lite", 15, timer_captured("gpu-lite")),
        ("timer-pause", 15, timer_pause),
        ("train-lenet", 35, train_lenet),
    ],
    "speed": [
        ("versions", 20, versions),
        ("driver-costs", 90, driver_costs),
        ("torch-baseline", 80, torch_baseline),
        ("bench-ops", 120, bench_ops),
        ("bench-train", 140, bench_train),
        ("timer-cost", 60, timer_cost),
    ],
    "models": [
        ("versions", 20, versions),
        ("bench-cases", 150, bench_cases),
        ("bench-models", 340, bench_models),
    ],
}

for run_name, steps_of_run in RUNS.items():
    assert sum(seconds for _, seconds, _ in steps_of_run) + SPARE_SECONDS <= RUN_SECONDS, run_name


def take_step(run, name, seconds, function):
    """Runs one step and adds its line to the summary."""
    seconds = min(seconds, float(os.environ.get("KNET_GPU_STEP_SECONDS", seconds)))
    begin = time.monotonic()
    try:
        if not run.has_gpu and function not in (tests, tests_alone):
            raise Skipped("no GPU")
        function(run, begin + seconds)
        word = "ok"
    except Skipped as skipped:
        word = "skipped" if not run.has_gpu else "FAILED"
        word += ": " + str(skipped) + (" though there is a GPU" if run.has_gpu else "")
    except Failure as failure:
        word = "FAILED: " + str(failure)
    except Interrupted:
        raise
    except Exception as error:  # of a check that met what it did not expect
        word = f"FAILED: {type(error).__name__}: {error}"
    finally:
        kill_descendants()
    add_line(run, name, word, time.monotonic() - begin)


def add_line(run, name, word, seconds):
    if word.startswith("FAILED"):
        run.failed.append(name)
    run.lines.append(f"{name:22} {seconds:6.1f} s  {word}")
    print(run.lines[-1], flush=True)


def take_steps(run, only):
    remaining = [step for step in RUNS[run.name] if not only or step[0] in only]
    try:
        unpack(run)
        while remaining:
            take_step(run, *remaining[0])
            remaining.pop(0)
    except Interrupted:
        for name, _, _ in remaining:
            add_line(run, name, "FAILED: the run was interrupted", 0)


# --- summary ---------------------------------------------------------------------------------------------------------

SIGNS = re.compile(r"FAILED|error:|ERROR|returned|wrong|lacks|signal|MISSING|differ")


def excerpt(run, name, n=6):
    """What the last log of a step or test says of its failure."""
    logs = glob.glob(os.path.join(run.logs, name + "*.log"))
    if not logs:
        return []
    with open(max(logs, key=os.path.getmtime), errors="replace") as file:
        lines = [line.rstrip()[:200] for line in file]
    return list(dict.fromkeys([line for line in lines if SIGNS.search(line)][:n] + lines[-2:]))


def summary(run):
    text = [f"== {run.name}"] + run.lines
    for name in run.failed:
        if not name.startswith("tests"):
            text += [f"-- {name}"] + excerpt(run, name)
    for name, (wrong, seconds) in run.tests_done.items():
        if wrong:
            text += [f"-- test {name}: {wrong}, after {seconds:.1f} s"] + excerpt(run, "test." + name)
    if run.figures:
        text.append("figures:")
        for f in run.figures:
            ratio = "" if f.get("ratio") is None else f" (ratio {f['ratio']})"
            text.append(f"  {f['bench']} {f['metric']} = {f['value']} {f['unit']}{ratio}")
    if not run.has_gpu:
        text.append("no GPU: nothing of this run was checked but that the programs start" +
                    ("" if not run.failed else "; and not all of them do"))
    else:
        text.append(f"{len(run.lines) - len(run.failed)} steps passed, {len(run.failed)} failed")
    return "\n".join(text) + "\n"


def finish(run):
    os.makedirs(run.results, exist_ok=True)
    text = summary(run)
    sys.stdout.write("\n" + text)
    with open(os.path.join(run.results, "summary.txt"), "w") as file:
        file.write(text)
    with open(os.path.join(run.results, "bench.jsonl"), "w") as file:
        file.writelines(json.dumps(figure) + "\n" for figure in run.figures)
    archive = os.path.join(run.results, "logs.tar.gz")
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(run.logs, ".")
    print("logs:", archive, flush=True)
    shutil.rmtree(run.work, ignore_errors=True)
    return 1 if run.failed else 0 if run.has_gpu else SKIPPED


def interrupt(number, frame):
    raise Interrupted


def main(argv):
    if argv == ["--list"]:
        for name, steps in RUNS.items():
            for step, seconds, _ in steps:
                print(f"{name}\t{step}\t{seconds}")
        return 0
    only = []
    if argv[1:2] == ["--only"] and len(argv) > 2:
        only = argv.pop(2).split(",")
        argv.pop(1)
    if not 1 <= len(argv) <= 2 or argv[0] not in RUNS:
        print("usage: run.sh run correctness|speed|models [--only STEP,STEP] [RESULTS]", file=sys.stderr)
        return 2
    unknown = [name for name in only if name not in [step for step, _, _ in RUNS[argv[0]]]]
    if unknown:
        print(f"run.sh: {argv[0]} has no step {unknown[0]}; run.sh list shows them", file=sys.stderr)
        return 2
    if not os.path.exists(PAYLOAD) or not tarfile.is_tarfile(PAYLOAD):
        print(f"run.sh: {PAYLOAD} is missing or damaged; run.sh prepare makes it", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, interrupt)
    own_orphans()
    results = os.path.abspath(argv[1] if len(argv) > 1 else os.environ.get("OUT", "gpu-results"))
    run = Run(argv[0], results)
    take_steps(run, only)
    return finish(run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
