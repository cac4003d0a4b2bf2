"""run.sh against a card, a sanitizer and programs that are scripts: whatever goes wrong on a card must be reported as
failed, with an exit code that is not 0."""
import copy
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import check_unverified  # noqa: E402
import profile_check  # noqa: E402
import steps  # noqa: E402

FAKE = os.path.join(HERE, "fake_program.sh")
PROGRAMS = ("bin/knet", "bench/bench_gpu_costs", "bench/bench_gpu_ops", "bench/bench_train", "bench/bench_arrays",
            "bench/bench_nn", "bench/bench_models", "tests/gpu_timer_program", "tests/test_profiler_replay", "tests/test_a", "tests/test_b", "tests/test_c", "tests/test_alone")
LIBRARIES = ("libcuda.so.1", "libcudart.so.13", "libcublasLt.so.13", "libcudnn.so.9", "libcupti.so.13")


def row(label, n_gpu=0, children=(), **more):
    return {"label": label, "gpu_ns": 1000 * n_gpu, "n_gpu": n_gpu, "held_bytes": 0, "children": list(children), **more}


def kernels(n):
    return [row("kernel", n, kernel=True)]


def profile(*scopes):
    launched = sum(scope["n_gpu"] for scope in scopes)
    return {"schema": "knet.prof", "scopes": list(scopes) + [row("~profiler~", extra=True)],
            "gpu": {"source": "cupti 130001", "launched": launched, "timed": launched, "pending": 0, "dropped": 0,
                    "untimed": 0, "unattributed_ns": 0, "n_unattributed": 0, "n_lost": 0},
            "memory": {"pools": [{"device_total_bytes": 100, "device_used_bytes": 50, "reserved_bytes": 20}]}}


def profiles():
    """What the timer writes on a card where all is well, by program and tier; and some where it is not."""
    train = profile(*(row(label, 10, kernels(10)) for label in ("forward", "backward", "update")))
    full = profile(row("forward", 10, [row("cudaLaunchKernel", 10, kernels(10))]))
    plain = profile(row("warm up", 4, kernels(4)), row("plain step", 200, kernels(200)))
    captured = profile(*(row(launch, 200, [row("[captured]", 200, [row(step, 200, kernels(200))])])
                         for step, launch in profile_check.GRAPHS))
    lite = profile(*(row(launch, 50, [row("[graph]", 50, kernel=True)]) for _, launch in profile_check.GRAPHS))
    made = {"train-gpu": train, "train-gpu-lite": train, "train-full": full, "plain": plain, "pause": plain,
            "captured-gpu": captured, "captured-gpu-lite": lite}
    unbalanced, unattributed, pending = (copy.deepcopy(train) for _ in range(3))
    unbalanced["gpu"]["launched"] += 1
    unattributed["gpu"]["unattributed_ns"] = 4  # of 30,000
    pending["gpu"].update(timed=29, pending=1)
    made.update(unbalanced=unbalanced, unattributed=unattributed, pending=pending)
    return made


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Bundle(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.bundle, self.bin, self.results = (os.path.join(self.folder, n) for n in ("bundle", "bin", "results"))
        self.profiles, self.libraries = os.path.join(self.folder, "profiles"), os.path.join(self.folder, "lib")
        for path in (self.bundle, self.bin, self.profiles, self.libraries):
            os.makedirs(path)
        for name in ("run.sh", "steps.py", "profile_check.py"):
            shutil.copy(os.path.join(HERE, name), self.bundle)
        for name in ("torch_baseline.py", "torch_plugin.py"):
            with open(os.path.join(self.bundle, name), "w") as file:
                file.write(f"import os\nos.execv('{self.bin}/{name}', ['{name}'])\n")
        for name in ("nvidia-smi", "compute-sanitizer", "torch_baseline.py", "torch_plugin.py"):
            shutil.copy(FAKE, os.path.join(self.bin, name))
        libm = next(p for p in glob.glob("/lib/*/libm.so.6") + glob.glob("/lib*/libm.so.6"))
        for name in LIBRARIES:  # anything that can be loaded
            os.symlink(libm, os.path.join(self.libraries, name))
        for name, made in profiles().items():
            with open(os.path.join(self.profiles, name + ".json"), "w") as file:
                json.dump(made, file)
        with open(os.path.join(self.profiles, "table.txt"), "w") as file:
            file.write("cupti: launched 30 = timed 30\n Time GPU\n")
        self.pack()

    def pack(self, without=None, seconds=60):
        stage = tempfile.mkdtemp(dir=self.folder)
        for program in PROGRAMS:
            if program != without:
                os.makedirs(os.path.join(stage, "build", os.path.dirname(program)), exist_ok=True)
                shutil.copy(FAKE, os.path.join(stage, "build", program))
        os.makedirs(os.path.join(stage, "build", "lib"), exist_ok=True)
        labels = {"test_a": ["gpu", "memcheck"], "test_b": ["gpu", "racecheck"]}
        tests = [{"name": name, "seconds": seconds, "alone": name == "test_alone", "labels": labels.get(name, ["gpu"]),
                  "environment": [], "command": ["@BUILD@/tests/" + name]}
                 for name in ("test_a", "test_b", "test_c", "test_alone")]
        with open(os.path.join(stage, "tests.json"), "w") as file:
            json.dump(tests, file)
        with tarfile.open(os.path.join(self.bundle, "payload.tar.gz"), "w:gz") as archive:
            archive.add(stage, ".")

    def environment(self, rules, seconds):
        with open(os.path.join(self.folder, "rules"), "w") as file:
            file.writelines(rule + "\n" for rule in rules)
        return {"PATH": f"{self.bin}:{os.path.dirname(sys.executable)}:/usr/bin:/bin", "HOME": self.folder,
                "FAKE_RULES": file.name, "FAKE_PROFILES": self.profiles, "LD_LIBRARY_PATH": self.libraries,
                "FAKE_PIDS": os.path.join(self.folder, "pids"), "KNET_GPU_STEP_SECONDS": str(seconds)}

    def run_bundle(self, rules=(), name="correctness", seconds=60, more=(), **environment):
        done = subprocess.run([os.path.join(self.bundle, "run.sh"), "run", name, *more, self.results], text=True,
                              env={**self.environment(rules, seconds), **environment}, capture_output=True, timeout=200)
        self.output = done.stdout + done.stderr
        return done.returncode

    def read(self, path):
        with open(path) as file:
            return file.read()

    def line(self, step):
        found = re.findall(rf"^{step} +[\d.]+ s  (.*)$", self.output, re.MULTILINE)
        self.assertTrue(found, f"no line of {step} in {self.output}")
        return found[0]

    def assert_fails(self, step, text, rules, name="correctness", **more):
        """The step is reported as failed, with the text; the others passed; the exit code is 1."""
        self.assertEqual(self.run_bundle(rules, name, **more), 1, self.output)
        self.assertIn("FAILED", self.line(step))
        self.assertIn(text, self.line(step))
        for other, _, _ in steps.RUNS[name]:
            if not other.startswith(step):
                self.assertEqual(self.line(other), "ok", self.output)

    def assert_children_are_gone(self, n):
        pids = self.read(os.path.join(self.folder, "pids")).split()
        self.assertEqual(len(pids), n)
        for pid in pids:
            self.assertFalse(is_alive(pid), f"process {pid} outlived its step")

    # --- what passes

    def test_runs_on_a_good_card_pass(self):
        for name, listed in steps.RUNS.items():
            self.assertEqual(self.run_bundle((), name), 0, self.output)
            for step, _, _ in listed:
                self.assertEqual(self.line(step), "ok")
            self.assertIn(f"{len(listed)} steps passed, 0 failed", self.output)
            self.assertTrue(os.path.exists(os.path.join(self.results, "logs.tar.gz")))
        with open(os.path.join(self.results, "bench.jsonl")) as file:
            self.assertGreater(len(file.readlines()), 100)

    def test_sanitizer_is_found_outside_path(self):
        home = os.path.join(self.folder, "cuda", "bin")
        os.makedirs(home)
        os.rename(os.path.join(self.bin, "compute-sanitizer"), os.path.join(home, "compute-sanitizer"))
        self.assertEqual(self.run_bundle(CUDA_HOME=os.path.dirname(home)), 0, self.output)

    def test_limits_add_up(self):
        listed = subprocess.run([os.path.join(HERE, "run.sh"), "list"], capture_output=True, text=True, check=True)
        total = {}
        for line in listed.stdout.splitlines():
            name, _, seconds = line.split("\t")
            total[name] = total.get(name, 0) + int(seconds)
        self.assertEqual(sorted(total), ["correctness", "models", "speed"])
        for name, seconds in total.items():
            self.assertLessEqual(seconds + steps.SPARE_SECONDS, 540, name)

    # --- what fails

    def test_sanitizer_that_fails_is_reported(self):
        self.assert_fails("sanitize-memcheck", "exit code 99", ["memcheck exit 99"])
        self.assert_fails("sanitize-racecheck", "exit code 3", ["racecheck exit 3"])

    def test_sanitizer_without_a_clean_summary_is_reported(self):
        self.assert_fails("sanitize-memcheck", "no summary", ["memcheck silent"])
        self.assert_fails("sanitize-memcheck", "no summary", ["memcheck 2"])
        self.assert_fails("sanitize-racecheck", "no summary", ["racecheck silent"])
        self.assert_fails("sanitize-racecheck", "no summary", ["racecheck 2"])

    def test_sanitizer_that_is_missing_is_reported(self):
        os.remove(os.path.join(self.bin, "compute-sanitizer"))
        if steps.glob.glob("/usr/local/cuda*/bin/compute-sanitizer"):
            self.skipTest("there is a real one")
        self.assertEqual(self.run_bundle(), 1)
        self.assertIn("compute-sanitizer is neither", self.line("sanitize-memcheck"))

    def test_tests_that_skip_on_a_card_are_reported(self):
        self.assertEqual(self.run_bundle(["test_a exit 77"]), 1)
        self.assertIn("1 of 3 tests: test_a", self.line("tests"))
        self.assertIn("skipped though there is a GPU", self.line("sanitize-memcheck"))

    def test_cases_that_skip_on_a_card_are_reported(self):
        self.assert_fails("tests", "1 of 3 tests: test_c", ["test_c inside some_case"])
        self.assertIn("skipped though there is a GPU: some_case", self.output)
        self.assertEqual(self.run_bundle(["test_c inside two_gpus_add"]), 0, self.output)

    def test_tests_that_fail_or_crash_are_reported(self):
        self.assert_fails("tests", "1 of 3 tests: test_c", ["test_c exit 1"])
        self.assert_fails("tests-alone", "1 of 1 tests: test_alone", ["test_alone signal"])

    def test_programs_that_are_missing_are_reported(self):
        self.pack(without="tests/test_c")
        self.assert_fails("tests", "test_c", [])
        self.pack(without="bin/knet")
        self.assertEqual(self.run_bundle(), 1)
        self.assertIn("knet can't be started", self.line("timer-gpu"))
        self.pack(without="bench/bench_train")
        self.assert_fails("bench-train", "can't be started", [], "speed")

    def test_step_that_hangs_is_cut_off_and_its_processes_are_killed(self):
        self.assert_fails("driver-costs", "cut off", ["bench_gpu_costs hang"], "speed", seconds=3)
        self.assert_children_are_gone(2)

    def test_test_that_hangs_is_cut_off_and_others_run(self):
        self.assertEqual(self.run_bundle(["test_c hang"], seconds=3), 1)
        self.assertIn("1 of 3 tests: test_c", self.line("tests"))
        self.assertEqual(self.line("tests-alone"), "ok")
        self.assertEqual(self.line("sanitize-memcheck"), "ok")
        self.assert_children_are_gone(2)

    def test_test_that_hangs_is_killed_at_its_own_limit(self):
        self.pack(seconds=2)
        self.assert_fails("tests", "1 of 3 tests: test_c", ["test_c hang", "test_alone after"])
        self.assert_children_are_gone(2)

    def test_processes_that_a_program_leaves_are_killed(self):
        self.assertEqual(self.run_bundle(["bench_gpu_costs leave"], "speed"), 0, self.output)
        self.assert_children_are_gone(1)

    def test_sanitizer_that_hangs_is_cut_off(self):
        self.assert_fails("sanitize-racecheck", "cut off", ["racecheck hang"], seconds=3)
        self.assert_children_are_gone(2)

    def test_profiles_that_are_wrong_are_reported(self):
        for rule, text in (("unbalanced", "launched 31 is not"), ("unattributed", "under no scope"),
                           ("pending", "pending 1")):
            self.assertEqual(self.run_bundle(["knet " + rule]), 1)
            for step in ("timer-gpu", "timer-lite", "timer-full"):
                self.assertIn(text, self.line(step))

    def test_recording_that_is_missing_is_reported(self):
        self.assertEqual(self.run_bundle(["knet unrecorded"]), 1)
        self.assertIn("no recording", self.line("timer-gpu"))

    def test_readers_that_disagree_are_reported(self):
        self.assert_fails("timer-replay", "exit code 1", ["test_profiler_replay exit 1"])

    def test_training_that_differs_is_reported(self):
        self.assertEqual(self.run_bundle(["knet 0.7"]), 1)
        self.assertIn("loss differs: 0.5 on the CPU, 0.7", self.line("train-lenet"))

    def test_figures_that_are_missing_are_reported(self):
        self.assert_fails("driver-costs", "1 figures", ["bench_gpu_costs few"], "speed")
        self.assertEqual(self.run_bundle(["torch_baseline.py exit 77"], "speed"), 1)
        self.assertIn("skipped though there is a GPU", self.line("torch-baseline"))
        self.assertIn("skipped though there is a GPU", self.line("bench-ops"))
        self.assert_fails("torch-baseline", "exit code 1", ["torch_plugin.py exit 1"], "speed")

    def test_libraries_that_are_missing_are_reported(self):
        os.remove(os.path.join(self.libraries, "libcuda.so.1"))
        if subprocess.run([sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1')"], check=False,
                          stderr=subprocess.DEVNULL).returncode == 0:
            self.skipTest("there is a real one")
        self.assert_fails("versions", "MISSING libcuda.so.1", [])

    def test_run_that_is_interrupted_fails_and_kills_its_processes(self):
        process = subprocess.Popen([os.path.join(self.bundle, "run.sh"), "run", "correctness", self.results], text=True,
                                   env=self.environment(["test_c hang"], 100), stdout=subprocess.PIPE)
        pids = os.path.join(self.folder, "pids")
        for _ in range(300):
            if os.path.exists(pids) and len(self.read(pids).split()) == 2:
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        self.output = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 1)
        self.assertIn("FAILED: the run was interrupted", self.line("sanitize-memcheck"))
        self.assertIn("test_c: did not run", self.output)
        self.assert_children_are_gone(2)

    # --- no card, no bundle

    def without_card(self):
        os.remove(os.path.join(self.bin, "nvidia-smi"))
        if glob.glob("/dev/nvidia[0-9]*") or shutil.which("nvidia-smi", path="/usr/bin:/bin"):
            self.skipTest("there is a GPU")

    def test_without_a_card_all_is_skipped_and_the_exit_code_says_so(self):
        self.without_card()
        skips = [f"test_{name} exit 77" for name in ("a", "b", "c", "alone")]
        for name, listed in steps.RUNS.items():
            self.assertEqual(self.run_bundle(skips, name), 77, self.output)
            for step, _, _ in listed:
                self.assertIn("skipped: no GPU", self.line(step))
            self.assertIn("no GPU: nothing of this run was checked", self.output)

    def test_without_a_card_programs_that_do_not_start_fail(self):
        self.without_card()
        self.assertEqual(self.run_bundle(["test_a exit 127"] + [f"test_{n} exit 77" for n in ("b", "c", "alone")]), 1)
        self.assertIn("1 of 3 tests: test_a", self.line("tests"))

    def test_some_steps_run_alone(self):
        self.assertEqual(self.run_bundle(["test_a exit 1"], "speed", more=["--only", "driver-costs,timer-cost"]), 0)
        self.assertEqual([line.split()[0] for line in self.output.split("== speed")[1].splitlines()[1:3]],
                         ["driver-costs", "timer-cost"])
        self.assertEqual(self.run_bundle(more=["--only", "tests,driver-costs"]), 2)
        self.assertIn("correctness has no step driver-costs", self.output)

    def test_wrong_usage_and_damaged_bundles_are_told_apart(self):
        self.assertEqual(self.run_bundle(name="everything"), 2)
        with open(os.path.join(self.bundle, "payload.tar.gz"), "w") as file:
            file.write("no archive")
        self.assertEqual(self.run_bundle(), 2)
        self.assertIn("missing or damaged", self.output)


class Names(unittest.TestCase):
    def test_ops_have_the_same_names_on_both_sides(self):
        with open(os.path.join(HERE, "bench_gpu_ops.c")) as file:
            ours = re.findall(r'^    \{"(\w+)", \w+, \d', file.read(), re.MULTILINE)
        with open(os.path.join(HERE, "torch_baseline.py")) as file:
            theirs = re.findall(r'yield \(?"(\w+)", lambda', file.read())
        self.assertGreater(len(ours), 30)
        self.assertEqual(ours, theirs)


class Lint(unittest.TestCase):
    """What check_unverified.py says of a list's rows."""

    TESTS, STEPS, CASES = {"gpu.device": ["gpu"], "alloc.pool": ["unit"]}, {"timer-gpu"}, {"some_case"}

    def wrong(self, settled_by, outcome="-"):
        text = ("| what | checked by | settled by | expected | outcome |\n|---|---|---|---|---|\n"
                f"| a | b | {settled_by} | c | {outcome} |\n")
        return check_unverified.problems(text, self.TESTS, self.STEPS, self.CASES)

    def test_rows_that_name_a_check_pass(self):
        for settled_by in ("`gpu.device`", "`timer-gpu`", "`gpu.device` (`some_case`), `timer-gpu`"):
            self.assertEqual(self.wrong(settled_by), [])

    def test_rows_without_a_check_are_wrong(self):
        for settled_by in ("", "no GPU test yet", "`some_case`", "`gpu.missing`", "`alloc.pool`",
                           "the table of `timer-gpu`", "`gpu.device` (`no_case`)"):
            self.assertEqual(len(self.wrong(settled_by)), 1, settled_by)
        self.assertEqual(len(self.wrong("`gpu.device`", outcome="")), 1)
        self.assertEqual(len(check_unverified.problems("no table", self.TESTS, self.STEPS, self.CASES)), 1)


class Checks(unittest.TestCase):
    """Each check of a profile complains about what it is for."""

    def good(self, name):
        return {**profiles()[name], "table": "launched 1 launched \n GPU"}

    def test_graph_of_an_unknown_capture_is_wrong(self):
        wrong, plain = self.good("captured-gpu"), self.good("plain")
        self.assertEqual(profile_check.captured_kernels(wrong, plain, 50), [])
        wrong["scopes"][0]["children"][0]["children"].append(row(profile_check.BEFORE, 3))
        self.assertIn("unknown graph", profile_check.captured_kernels(wrong, plain, 50)[0])

    def test_kernels_missing_from_a_launch_are_wrong(self):
        wrong, plain = self.good("captured-gpu"), self.good("plain")
        wrong["scopes"][0]["children"][0]["children"][0]["n_gpu"] = 199
        self.assertEqual(len(profile_check.captured_kernels(wrong, plain, 50)), 1)
        self.assertEqual(len(profile_check.graph_is_one_row(self.good("captured-gpu-lite"), plain, 51)), 2)

    def test_work_counted_in_a_pause_is_wrong(self):
        wrong, plain = self.good("pause"), self.good("plain")
        wrong["scopes"].append(row("paused step", 1))
        wrong["gpu"]["launched"] += 1
        self.assertEqual(len(profile_check.paused_work_is_absent(wrong, plain)), 2)

    def test_quiet_calls_and_strays_of_cupti_are_wrong(self):
        wrong = self.good("train-full")
        self.assertEqual(profile_check.calls_have_rows(wrong), [])
        wrong["scopes"] = [row("forward", 1, [row("cudaGetLastError"), row("CUPTI buffer flush")])]
        self.assertEqual(len(profile_check.calls_have_rows(wrong)), 4)

    def test_profile_without_gpu_time_column_or_cupti_is_wrong(self):
        wrong = self.good("train-gpu")
        self.assertEqual(profile_check.gpu(wrong), [])
        wrong.update(table="Time", scopes=[])
        wrong["gpu"]["source"] = "none"
        self.assertEqual(len(profile_check.gpu(wrong)), 3)
        del wrong["gpu"]
        self.assertEqual(len(profile_check.gpu(wrong)), 1)

    def test_scopes_without_gpu_time_and_too_much_memory_are_wrong(self):
        wrong = self.good("train-gpu")
        self.assertEqual(len(profile_check.scopes_have_gpu_time(wrong, ("forward", "evaluate"))), 1)
        wrong["scopes"].append({**row("~outside pool~", extra=True), "held_bytes": 31})
        self.assertEqual(len(profile_check.memory_outside_pools(wrong)), 1)


@unittest.skipUnless("KNET_MOCK_CUPTI" in os.environ, "the build has no CUPTI")
class TimerOverAMock(unittest.TestCase):
    """The checks read what the timer writes: of a program over a library that looks like CUPTI."""

    def profile(self, what, words):
        with tempfile.TemporaryDirectory() as folder:
            path, table, mock = folder + "/p.json", folder + "/t.txt", os.environ["KNET_MOCK_CUPTI"]
            subprocess.run([os.environ["KNET_GPU_PROGRAM"], mock, what], check=False, stderr=subprocess.DEVNULL,
                           env={**os.environ, "KNET_TIMER": f"{words},cupti={mock},json={path},out={table}"})
            made = profile_check.load(path)
            with open(table, encoding="utf-8") as file:
                made["table"] = file.read()
        return made

    def test_profiles_pass(self):
        for what, words in (("1", "gpu"), ("graph", "gpu"), ("graph", "gpu-lite"), ("calls", "full")):
            self.assertEqual(profile_check.gpu(self.profile(what, words)), [])
        self.assertEqual(profile_check.calls_have_rows(self.profile("calls", "full")), [])
        self.assertEqual(profile_check.scopes_have_gpu_time(self.profile("1", "gpu"), ("train",)), [])

    def test_graphs_have_their_rows(self):
        graph = self.profile("graph", "gpu")
        self.assertEqual(profile_check.n_gpu(graph, profile_check.BEFORE), 2)
        self.assertEqual(profile_check.n_gpu(graph, "[captured]"), 152)
        self.assertEqual(profile_check.n_gpu(self.profile("graph", "gpu-lite"), "[graph]"), 50)
        self.assertEqual(len(profile_check.calls_have_rows(graph)), 1)


if __name__ == "__main__":
    unittest.main()
