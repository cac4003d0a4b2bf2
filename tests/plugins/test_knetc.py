"""The Python package on the fake driver: test_knetc.py SOURCE_DIR LIB_DIR [VIEWER]. LD_LIBRARY_PATH names the driver's
folder. VIEWER: PyTorch's torch/cuda/_memory_viz.py, to read the snapshots."""
import ctypes
import errno
import gc
import io
import os
import pickle
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

source, lib, viewer = (sys.argv[1:] + [""])[:3]
sys.path[:0] = [os.path.join(source, "tools/plugins/python"), os.path.join(source, "tests/plugins")]
os.environ["KNET_LIB"] = lib
sys.dont_write_bytecode = True

import fake_frameworks  # noqa: E402
import knetc  # noqa: E402
from knetc import _lib, history  # noqa: E402

MIB = 1 << 20
FREE_OF_DOTS = ["max_split_size", "num_alloc_retries", "num_device_alloc", "num_device_free", "num_ooms",
                "num_sync_all_streams"]


class _Plain(pickle.Unpickler):
    """The viewer reads plain data alone."""

    def find_class(self, module, name):
        raise AssertionError(f"the pickle names {module}.{name}")


def plain(data):
    return _Plain(io.BytesIO(data)).load()


class Device:
    """As a torch.device."""

    def __init__(self, kind, index):
        self.type, self.index = kind, index


class Number:
    """0, as np.int64(0) is."""

    def __index__(self):
        return 0


Flag = type("bool_", (Number,), {})  # as np.bool_ is
Truth = type("Tensor", (Number,), {"dtype": "torch.bool"})


class Array:
    """As an array of several elements."""

    def __index__(self):
        raise TypeError("only integer scalar arrays can be converted to a scalar index")


class Case(unittest.TestCase):
    def setUp(self):
        self.pool = knetc.Pool(0)
        knetc.limit(0)

    def tearDown(self):
        gc.collect()
        knetc.trim()
        self.assertEqual(knetc.memory_reserved(), 0)
        self.assertEqual(self.pool.stat("n_misuses"), 0)


class Stacks(Case):
    def allocate(self, size):
        return self.pool.alloc(size)

    def setUp(self):
        super().setUp()
        knetc.record_stacks()

    def tearDown(self):
        knetc.stop_stacks()
        super().tearDown()

    def test_snapshots_name_the_lines_of_python(self):
        knetc.record_history()
        sizes = {1000: 1024, 3 * MIB: 3 * MIB}
        blocks = {self.allocate(size): size for size in sizes}
        data = plain(pickle.dumps(knetc.snapshot()))
        knetc.stop_history()
        live = {b["address"]: b for s in data["segments"] for b in s["blocks"] if b["state"] == "active_allocated"}
        self.assertEqual(set(live), set(blocks))
        events = {e["addr"]: e for e in data["device_traces"][0] if e["action"] == "alloc"}
        for address in blocks:
            frames = live[address]["frames"]
            self.assertEqual(frames[0]["name"], "allocate")
            self.assertEqual(os.path.basename(frames[0]["filename"]), "test_knetc.py")
            self.assertGreater(frames[0]["line"], 0)
            self.assertEqual(frames[1]["name"], "<dictcomp>" if frames[1]["name"].startswith("<") else
                             "test_snapshots_name_the_lines_of_python")
            self.assertEqual(events[address]["frames"], frames)
            self.pool.free(address)
        self.assertTrue(all(not b["frames"] for s in knetc.snapshot()["segments"] for b in s["blocks"]))

    def test_out_of_memory_names_the_line_that_holds_most(self):
        block = self.allocate(3 * MIB)
        knetc.limit(0, 16 * MIB)
        with self.assertRaisesRegex(knetc.OutOfMemory, r"allocated 3.00 MiB at allocate .*test_knetc.py:\d+"):
            self.pool.alloc(64 * MIB)
        self.pool.free(block)

    def test_a_second_recording_fails_and_native_frames_can_be_had(self):
        with self.assertRaisesRegex(knetc.Error, "already"):
            knetc.record_stacks()
        knetc.stop_stacks()
        knetc.stop_stacks()
        knetc.record_stacks(native=True)
        block = self.allocate(1000)
        frames = [b["frames"] for s in knetc.snapshot()["segments"] for b in s["blocks"] if b["frames"]][0]
        self.assertEqual(frames[0]["name"], "allocate")
        self.assertTrue(any("ffi" in frame["filename"] for frame in frames))
        self.pool.free(block)

    def test_a_program_ends_while_stacks_are_recorded(self):
        program = "import knetc; knetc.record_stacks(); knetc.Pool(0).alloc(1000)"
        where = dict(os.environ, PYTHONPATH=os.path.join(source, "tools/plugins/python"))
        subprocess.run([sys.executable, "-c", program], env=where, check=True, timeout=60)


class Torch(Case):
    """Calls what install() has handed to PyTorch, by address."""

    @classmethod
    def setUpClass(cls):
        cls.torch = fake_frameworks.torch()
        allocator = knetc.install("torch")
        functions = allocator.allocator().functions
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        cls.names = set(functions)
        cls.alloc = ctypes.CFUNCTYPE(pointer, size, number, pointer)(functions["alloc"])
        cls.free = ctypes.CFUNCTYPE(None, pointer, size, number, pointer)(functions["free"])
        cls.reset = ctypes.CFUNCTYPE(None)(functions["set_reset_fn"])
        cls.fraction = ctypes.CFUNCTYPE(None, ctypes.c_double, number)(functions["set_memory_fraction_fn"])

    def test_every_setter_is_called(self):
        self.assertEqual(self.names, {
            "alloc", "free", "set_init_fn", "set_reset_fn", "set_memory_fraction_fn", "set_base_alloc_fn",
            "set_record_stream_fn", "set_begin_allocate_to_pool", "set_end_allocate_to_pool_fn", "set_release_pool"})

    def test_functions_reach_the_pool(self):
        block = self.alloc(3 * MIB, 0, None)
        self.assertEqual(knetc.memory_allocated(), 3 * MIB)
        self.free(block, 3 * MIB, 0, None)
        self.assertEqual(knetc.memory_allocated(), 0)
        self.assertGreater(knetc.memory_reserved(), 0)
        self.reset()
        self.assertEqual(knetc.memory_reserved(), 0)
        self.fraction(0.125, 0)
        with self.assertRaises(knetc.OutOfMemory):
            self.pool.alloc(200 * MIB)

    def test_second_install_is_refused(self):
        with self.assertRaises(RuntimeError):
            knetc.install("torch")

    def test_unknown_framework_is_named(self):
        with self.assertRaisesRegex(ValueError, "jax.*torch, cupy, rmm"):
            knetc.install("jax")


class Cupy(Case):
    @classmethod
    def setUpClass(cls):
        cls.cupy = fake_frameworks.cupy()
        knetc.install("cupy")

    def test_arrays_come_from_the_pool(self):
        array = self.cupy.cuda.alloc(5000)
        self.assertGreaterEqual(knetc.memory_allocated(), 5000)
        del array
        gc.collect()
        self.assertEqual(knetc.memory_allocated(), 0)
        self.assertEqual(self.cupy.cuda.alloc(0).ptr, 0)

    def test_out_of_memory_is_cupys_error_with_the_reason(self):
        with self.assertRaises(self.cupy.cuda.memory.OutOfMemoryError) as raised:
            self.cupy.cuda.alloc(2048 * MIB)
        self.assertIn("2.00 GiB", str(raised.exception.__cause__))


class Rmm(Case):
    @classmethod
    def setUpClass(cls):
        cls.rmm = fake_frameworks.rmm()
        cls.resource = knetc.install("rmm")

    def test_buffers_come_from_the_pool(self):
        self.assertIs(self.rmm.mr.by_device[0], self.resource)
        stream = fake_frameworks.Stream(0)
        block = self.resource.allocate(7 * MIB, stream)
        self.assertEqual(knetc.memory_allocated(), 7 * MIB)
        self.resource.deallocate(block, 7 * MIB, stream)
        self.assertEqual(knetc.memory_allocated(), 0)
        with self.assertRaises(MemoryError):
            self.resource.allocate(2048 * MIB, stream)

    def test_devices_of_pytorch_and_names(self):
        for number, device in ((1, "cuda:1"), (1, Device("cuda", 1)), (0, None)):
            with mock.patch.dict(self.rmm.mr.by_device):
                resource = knetc.for_rmm.install(device)
                self.assertIs(self.rmm.mr.by_device[number], resource)
        with self.assertRaisesRegex(ValueError, "install: cpu is not a CUDA device"):
            knetc.for_rmm.install("cpu")

    def test_stream_of_another_device_frees_too(self):
        stream = ctypes.c_void_p()
        self.pool.lib.kn_stream_create(ctypes.byref(stream), knetc.Pool(1).device)
        block = self.resource.allocate(MIB, fake_frameworks.Stream(0))
        self.resource.deallocate(block, MIB, fake_frameworks.Stream(stream.value))
        self.assertEqual(knetc.memory_allocated(), 0)

    def test_stream_without_a_handle_is_an_error(self):
        with self.assertRaisesRegex(knetc.Error, "__cuda_stream__"):
            self.resource.allocate(100, object())


class Streams(Case):
    """On the fake driver, which reports a call about a stream that is gone."""

    def setUp(self):
        super().setUp()
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.driver.fake_cuda_violation.restype = ctypes.c_char_p

    def stream(self, device):
        out = ctypes.c_void_p()
        _lib.check(device.lib.kn_stream_create(ctypes.byref(out), device.device))
        return out.value

    def destroy(self, device, handle):
        """As the program does it, in its context."""
        driver, out = self.driver, ctypes.c_void_p()
        driver.fake_cuda_primary_context.restype = ctypes.c_void_p
        context = ctypes.c_void_p(driver.fake_cuda_primary_context(device.cuda_number("destroy", "the test")))
        driver.fake_cuda_context_push(context)
        self.assertEqual(driver.cuGetProcAddress(b"cuStreamDestroy", ctypes.byref(out), 12000, ctypes.c_uint64(1)), 0)
        status = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(out.value)(handle)
        driver.fake_cuda_context_pop()
        self.assertEqual(status, 0)

    def test_a_retired_stream_is_not_asked_about(self):
        first, second = self.pool, knetc.Pool(1)
        kinds = (lambda h: h, fake_frameworks.Stream, lambda h: mock.Mock(spec=["ptr"], ptr=h),
                 lambda h: mock.Mock(spec=["cuda_stream"], cuda_stream=h))
        for pool, device in ((first, None), (second, None), (second, 1)):
            for kind in kinds:
                handle = self.stream(pool)
                block = pool.alloc(8 * MIB, handle)
                knetc.retire(kind(handle), device)
                self.destroy(pool, handle)
                pool.free(block)
                knetc.trim(pool.name)
        self.assertEqual(self.driver.fake_cuda_violation(), b"")

    def test_what_is_no_stream_is_an_error(self):
        for handle in (0, 1, 2, mock.Mock(spec=["ptr"], ptr=0)):
            with self.assertRaisesRegex(ValueError, "retire: . is a default stream"):
                knetc.retire(handle)
        for stream in (None, "a", 1.5):
            with self.assertRaisesRegex(TypeError, "retire: .* is no stream"):
                knetc.retire(stream)


class Statistics(Case):
    def test_keys_are_those_of_pytorch(self):
        stats = knetc.memory_stats()
        kinds = ["allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
                 "inactive_split_bytes", "requested_bytes"]
        names = {f"{k}.{p}.{w}" for k in kinds for p in ("all", "small_pool", "large_pool")
                 for w in ("current", "peak", "allocated", "freed")}
        names |= {f"oversize_{k}.{w}" for k in ("allocations", "segments") for w in ("current", "peak", "allocated", "freed")}
        self.assertEqual(set(stats), names | set(FREE_OF_DOTS))

    def test_percent_signs_in_the_folder_of_temporary_files(self):
        with tempfile.TemporaryDirectory(suffix="%p%r%%") as folder, mock.patch("tempfile.tempdir", folder):
            self.assertIn("num_ooms", knetc.memory_stats())
            self.assertIn("segments", knetc.snapshot())

    def test_values_follow_the_pool(self):
        blocks = [self.pool.alloc(n) for n in (1000, 2000, 4 * MIB, 9 * MIB)]
        stats = knetc.memory_stats()
        self.assertEqual(stats["allocation.all.current"], 4)
        self.assertEqual(stats["allocation.small_pool.current"], 2)
        self.assertEqual(stats["allocated_bytes.large_pool.current"], 13 * MIB)
        self.assertEqual(stats["requested_bytes.all.current"], 3000 + 13 * MIB)
        self.assertEqual(stats["allocated_bytes.all.current"], self.pool.stat("live_bytes"))
        self.assertEqual(stats["reserved_bytes.all.current"], knetc.memory_reserved())
        for block in blocks:
            self.pool.free(block)
        after = knetc.memory_stats()
        self.assertEqual(after["allocation.all.current"], 0)
        self.assertEqual(after["allocation.all.freed"] - stats["allocation.all.freed"], 4)
        self.assertEqual(after["inactive_split_bytes.all.current"], knetc.memory_reserved())

    def test_peaks_start_again(self):
        self.pool.free(self.pool.alloc(30 * MIB))
        small = self.pool.alloc(3000)
        self.assertGreaterEqual(knetc.memory_stats()["allocated_bytes.all.peak"], 30 * MIB)
        knetc.reset_peaks()
        stats = knetc.memory_stats()
        self.assertEqual(stats["allocated_bytes.all.peak"], self.pool.stat("live_bytes"))
        self.assertEqual(stats["reserved_bytes.all.peak"], knetc.memory_reserved())
        self.pool.free(self.pool.alloc(5 * MIB))
        self.assertGreaterEqual(knetc.memory_stats()["allocated_bytes.all.peak"], 5 * MIB)
        self.pool.free(small)

    def test_limit_takes_bytes_text_and_shares(self):
        for size in (64 * MIB, "64 MiB", "64M", "66 MB", 0.0625):
            knetc.limit(0, size)
            with self.assertRaisesRegex(knetc.OutOfMemory, "65.*limit"):
                self.pool.alloc(65 * MIB)
            self.pool.free(self.pool.alloc(60 * MIB))
        for wrong in ("64 pears", "-1", ".", "1.2.3", "4 iB", 1.5, 0.0, -5, 1 << 70):
            with self.assertRaisesRegex(ValueError, "limit: .*" + re.escape(str(wrong))):
                knetc.limit(0, wrong)
        knetc.limit(0, 64 * MIB)
        for wrong in ("0.5", "0 GiB", "0", "0.0001K", 1e-15):
            with self.assertRaisesRegex(ValueError, "limit: .*" + re.escape(str(wrong)) + ".*less than a byte"):
                knetc.limit(0, wrong)
        for wrong in (True, False):
            with self.assertRaisesRegex(TypeError, f"limit: {wrong} is no size"):
                knetc.limit(0, wrong)
        with self.assertRaises(knetc.OutOfMemory):
            self.pool.alloc(65 * MIB)
        with self.assertRaisesRegex(ValueError, "trim: -5"):
            knetc.trim(keep=-5)
        knetc.limit(0)

    def test_sizes_that_fit_no_memory_are_errors(self):
        for size in (1 << 64, (1 << 64) + 100, -1):
            with self.assertRaisesRegex(ValueError, f"alloc: {size} "):
                self.pool.alloc(size)
        with self.assertRaisesRegex(TypeError, "alloc: 10.5 is no number of bytes"):
            self.pool.alloc(10.5)
        with self.assertRaises(knetc.OutOfMemory):
            self.pool.alloc((1 << 64) - 1)
        self.assertEqual(knetc.memory_allocated(), 0)

    def test_options_change_by_words(self):
        knetc.configure("limit=64MiB,pressure=0.5")
        with self.assertRaises(knetc.OutOfMemory):
            self.pool.alloc(65 * MIB)
        knetc.configure("limit=none,pressure=none", device=0)
        self.pool.free(self.pool.alloc(65 * MIB))
        with self.assertRaisesRegex(TypeError, "configure: the words are 5; they must be a str"):
            knetc.configure(5)
        with self.assertRaisesRegex(knetc.Error, "slab_max_bytes of pool cuda:0 is fixed"):
            knetc.configure("slab_max=1MiB")
        self.pool.free(self.pool.alloc(65 * MIB))

    def test_no_device_is_the_current_one(self):
        block = self.pool.alloc(2 * MIB)
        cuda = mock.Mock(**{"is_available.return_value": True, "current_device.return_value": 1})
        with mock.patch.dict(sys.modules, torch=mock.Mock(cuda=cuda)):
            self.assertEqual((knetc.Pool(None).name, knetc.memory_allocated(None)), ("cuda:1", 0))
            cuda.is_available.return_value = False  # as on a PyTorch without CUDA
            self.assertEqual(knetc.memory_allocated(None), 2 * MIB)
        self.assertEqual(len(knetc.snapshot(None)["segments"]), 1)
        self.pool.free(block)

    def test_devices_of_pytorch_and_numbers_of_numpy(self):
        block = self.pool.alloc(2 * MIB)
        number, first = Number(), Device("cuda", 0)  # NumPy's are no int
        self.assertEqual((knetc.memory_allocated(number), knetc.memory_allocated(first)), (2 * MIB, 2 * MIB))
        for devices in (number, first, [first], {number}):
            self.assertEqual(len(knetc.snapshot(devices)["segments"]), 1, devices)
        names = [knetc.Pool(Device(*d)).name for d in (("cuda", 1), ("cuda", None), ("cpu", None), ("cpu", 0))]
        self.assertEqual(names, ["cuda:1", "cuda:0", "cpu", "cpu"])
        with self.assertRaisesRegex(knetc.Error, "xpu:0"):
            knetc.limit(Device("xpu", 0))
        self.pool.free(block)

    def test_what_is_no_device_is_an_error(self):
        for device in (True, Flag(), Truth(), Array(), 0.0, b"cuda:0"):
            with self.assertRaisesRegex(TypeError, "is no device"):
                knetc.memory_stats(device)
        for device, shown in ((True, "True"), (0.5, "0.5"), (b"cuda:0", "b'cuda:0'")):
            with self.assertRaisesRegex(TypeError, f"{shown} is no device"):
                knetc.snapshot(device)

    def test_missing_device_is_an_error(self):
        with self.assertRaisesRegex(knetc.Error, "cuda:9"):
            knetc.Pool(9)


class Snapshot(Case):
    def take(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.pickle")
            knetc.dump(path)
            with open(path, "rb") as file:
                data = file.read()
            if viewer:
                self.view(path)
        return plain(data)

    def view(self, path):
        """PyTorch's own script reads it."""
        viz = runpy.run_path(viewer)
        with open(path, "rb") as file:
            data = pickle.load(file)
        for read in ("segsum", "trace", "trace_plot", "segment_plot"):
            if read in viz:  # not in every version
                self.assertGreater(len(viz[read](data)), 100, read)

    def test_devices_are_one_or_several(self):
        block = self.pool.alloc(3 * MIB)
        for devices in (0, "cuda:0", "cuda", (0,), ["cuda:0", 0]):
            data = knetc.snapshot(devices)
            self.assertEqual([s["device"] for s in data["segments"]], [0], devices)
            self.assertEqual(data["device_traces"], [[]])
        none = knetc.snapshot([])
        self.assertEqual((none["segments"], none["device_traces"]), ([], []))
        with self.assertRaisesRegex(ValueError, "cpu is not a CUDA device"):
            knetc.snapshot("cpu")
        with self.assertRaisesRegex(knetc.Error, "cuda:9"):
            knetc.snapshot([0, 9])
        self.pool.free(block)

    def test_a_dump_that_fails_keeps_the_old_one(self):
        with tempfile.TemporaryDirectory() as folder:
            path, link = os.path.join(folder, "out.pickle"), os.path.join(folder, "link")
            os.symlink("out.pickle", link)
            knetc.dump(path)
            os.chmod(path, 0o640)
            with open(path, "rb") as file:
                before = file.read()
            full = OSError(errno.ENOSPC, "No space left on device")
            with self.assertRaisesRegex(knetc.Error, "cuda:9"):
                knetc.dump(path, [0, 9])
            with mock.patch("os.fsync", side_effect=full), self.assertRaises(OSError):
                knetc.dump(path)
            with open(path, "rb") as file:
                self.assertEqual(file.read(), before)
            block = self.pool.alloc(3 * MIB)
            knetc.dump(link)
            self.pool.free(block)
            with open(path, "rb") as file:
                self.assertNotEqual(file.read(), before)
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o640)
            self.assertEqual(sorted(os.listdir(folder)), ["link", "out.pickle"])

    def test_a_dump_that_fails_names_its_path(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "none", "out.pickle")
            for given in (path, os.fsencode(path)):
                with self.assertRaises(FileNotFoundError) as raised:
                    knetc.dump(given)
                self.assertEqual(raised.exception.filename, path)

    def test_a_dump_into_a_pipe_does_not_replace_it(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "pipe")
            os.mkfifo(path)
            reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            knetc.dump(path)
            self.assertIn("segments", plain(os.read(reader, 1 << 16)))
            os.close(reader)
            self.assertEqual(os.listdir(folder), ["pipe"])

    def test_blocks_fill_their_segments(self):
        self.pool.lib.kn_tag_push(b"weights")
        blocks = {self.pool.alloc(n): n for n in (300, 1000, 100000, 4 * MIB, 20 * MIB)}
        self.pool.lib.kn_tag_pop()
        freed = self.pool.alloc(6 * MIB)
        self.pool.free(freed)
        snapshot = self.take()
        found = {}
        for segment in snapshot["segments"]:
            at = segment["address"]
            for block in segment["blocks"]:
                self.assertEqual(block["address"], at)
                at += block["size"]
                if block["state"] == "active_allocated":
                    found[block["address"]] = block["requested_size"]
                    self.assertEqual(block["frames"][0]["name"], "tag: weights")
            self.assertEqual(at, segment["address"] + segment["total_size"])
        self.assertEqual(found, blocks)
        self.assertEqual(sum(s["total_size"] for s in snapshot["segments"]), knetc.memory_reserved())
        self.assertEqual(sum(s["allocated_size"] for s in snapshot["segments"]), knetc.memory_allocated())
        for block in blocks:
            self.pool.free(block)

    def test_history_has_every_event_in_order(self):
        knetc.record_history()
        first = self.pool.alloc(2 * MIB)
        self.pool.free(first)
        second = self.pool.alloc(700)
        events = [(e["action"], e["addr"], e["size"]) for e in self.take()["device_traces"][0]]
        self.assertEqual(events, [("alloc", first, 2 * MIB), ("free_requested", first, 2 * MIB),
                                  ("free_completed", first, 2 * MIB), ("alloc", second, 700)])
        self.pool.free(second)
        trace = self.take()["device_traces"][0]
        self.assertEqual([e["action"] for e in trace][-2:], ["free_requested", "free_completed"])
        times = [e["time_us"] for e in trace]
        self.assertEqual(times, sorted(times))
        knetc.stop_history()
        self.assertEqual(knetc.snapshot()["device_traces"], [[]])

    def history_of(self, max_entries, n_pairs):
        knetc.record_history(max_entries)
        for _ in range(n_pairs):
            last = self.pool.alloc(5000)
            self.pool.free(last)
        entries = knetc.snapshot()["device_traces"][0]
        knetc.stop_history()
        return [(e["action"], e["addr"] == last, e["size"]) for e in entries]

    def test_history_keeps_the_last_entries(self):
        pair = [(action, True, 5000) for action in ("alloc", "free_requested", "free_completed")]
        self.assertEqual(self.history_of(10, 40), pair[2:] + 3 * pair)
        self.assertEqual(self.history_of(1, 40), pair[2:])
        self.assertEqual(self.history_of(0, 40), [])
        self.assertEqual(self.history_of(1000, 40), 40 * pair)
        for wrong, error in ((-5, ValueError), (2.5, TypeError), ("a", TypeError), (None, TypeError)):
            with self.assertRaisesRegex(error, "record_history: max_entries is"):
                knetc.record_history(wrong)
        self.assertEqual(knetc.snapshot()["device_traces"], [[]])

    def test_a_second_recording_changes_the_number_of_entries(self):
        sizes = [1000 * i for i in range(1, 41)]
        knetc.record_history(1000)
        for size in sizes:
            self.pool.free(self.pool.alloc(size))
        for max_entries, n in ((10, 10), (30, 30), (1000, 120)):
            knetc.record_history(max_entries)
            entries = knetc.snapshot()["device_traces"][0]
            self.assertEqual([e["size"] for e in entries], [size for size in sizes for _ in range(3)][-n:])
        with self.assertRaises(ValueError):
            knetc.record_history(-1)
        knetc.stop_history()

    def test_history_is_of_each_device(self):
        knetc.record_history(10)
        first = self.pool.alloc(700)
        host = knetc.Pool("cpu")
        for _ in range(40):
            host.free(host.alloc(700))
        self.assertEqual([e["addr"] for e in knetc.snapshot()["device_traces"][0]], [first])
        knetc.stop_history()
        self.pool.free(first)

    def test_history_that_forgets_knows_the_live_blocks(self):
        block = self.pool.alloc(700)
        with mock.patch.object(history, "_LATE", 4), mock.patch.object(history, "_PIECE_BYTES", 1024):
            self.pool.free(block)
            knetc.record_history(10)
            block = self.pool.alloc(700)
            for _ in range(500):
                self.pool.free(self.pool.alloc(5000))
            knetc.snapshot()
            self.pool.free(block)
            trace = knetc.snapshot()["device_traces"][0]
            kept = sum(map(len, history._state["recording"].reader.events.values()))
        knetc.stop_history()
        self.assertEqual([(e["addr"], e["size"]) for e in trace[-2:]], [(block, 700)] * 2)
        self.assertEqual(len(trace), 10)
        self.assertLessEqual(kept, 18 * 32)

    def test_the_file_of_a_history_stays_small(self):
        with tempfile.TemporaryFile() as file:
            file.write(bytes(1 << 16))
            file.flush()
            if not history._punch(file.fileno(), 1 << 16):
                self.skipTest("the file system has no holes")
        knetc.record_history(10)
        first = self.pool.alloc(700)
        for _ in range(100000):
            self.pool.free(self.pool.alloc(5000))
        file, until = history._state["recording"].file, time.monotonic() + 60
        while os.fstat(file).st_size < 200000 * 16 or os.fstat(file).st_blocks * 512 > 3 << 19:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        self.pool.free(first)
        trace = knetc.snapshot()["device_traces"][0]
        self.assertEqual([(e["addr"], e["size"]) for e in trace[-2:]], [(first, 700)] * 2)
        self.assertEqual([e["size"] for e in trace[:-2]], [5000] * 8)
        knetc.stop_history()

    def test_a_child_has_no_part_in_a_history(self):
        knetc.record_history()
        block = self.pool.alloc(700)
        child = os.fork()
        if not child:
            status = 1
            try:
                status = int(history.traces() != {})
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual([e["addr"] for e in knetc.snapshot()["device_traces"][0]], [block])
        knetc.stop_history()
        self.pool.free(block)

    def test_history_of_threads_is_in_order(self):
        def work():
            for _ in range(3000):
                self.pool.free(self.pool.alloc(5000))

        knetc.record_history(9000)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        trace = knetc.snapshot()["device_traces"][0]
        knetc.stop_history()
        self.assertEqual(len(trace), 9000)
        times = [e["time_us"] for e in trace]
        self.assertEqual(times, sorted(times))
        live = set()
        for entry in trace:
            if entry["action"] == "alloc":
                self.assertNotIn(entry["addr"], live)
                live.add(entry["addr"])
            elif entry["action"] == "free_completed":
                live.discard(entry["addr"])
        self.assertEqual(live, set())

    def test_snapshots_lose_no_event_of_other_threads(self):
        done, n = threading.Event(), [0] * 3

        def work(k):
            while not done.is_set():
                self.pool.free(self.pool.alloc(5000))
                n[k] += 1
                time.sleep(0.0001)

        knetc.record_history(10000000)
        threads = [threading.Thread(target=work, args=(k,)) for k in range(len(n))]
        for thread in threads:
            thread.start()
        for _ in range(8):
            before = sum(n)
            time.sleep(0.01)
            self.assertGreaterEqual(len(knetc.snapshot()["device_traces"][0]), 3 * before)
        done.set()
        for thread in threads:
            thread.join()
        actions = [e["action"] for e in knetc.snapshot()["device_traces"][0]]
        knetc.stop_history()
        for action in ("alloc", "free_requested", "free_completed"):
            self.assertEqual(actions.count(action), sum(n))

    def test_a_history_goes_on_after_a_failed_write(self):
        knetc.record_history()
        failed = mock.patch.object(history, "check", side_effect=[knetc.Error("disk full"), None, None])
        with failed, self.assertRaisesRegex(knetc.Error, "disk full"):
            knetc.snapshot()
        knetc.snapshot()
        knetc._lib.check(self.pool.lib.kn_trace_end())
        with self.assertRaisesRegex(knetc.Error, "no trace is running"):
            knetc.snapshot()
        self.pool.free(self.pool.alloc(5000))
        self.assertEqual(len(knetc.snapshot()["device_traces"][0]), 3)
        knetc.stop_history()


class Library(unittest.TestCase):
    def test_missing_library_names_the_variable(self):
        code = "import knetc._lib as l; l.SONAMES['alloc'] = 'libnone.so'; l.load()"
        env = dict(os.environ, PYTHONPATH=os.path.join(source, "tools/plugins/python"), PYTHONDONTWRITEBYTECODE="1")
        ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=False)
        self.assertIn(b"KNET_LIB", ran.stderr)

    def test_a_folder_without_the_library_is_named(self):
        code = "import knetc; knetc.memory_stats('cpu')"
        env = dict(os.environ, PYTHONPATH=os.path.join(source, "tools/plugins/python"), PYTHONDONTWRITEBYTECODE="1",
                   KNET_LIB="/nowhere")
        ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=False)
        self.assertIn(b"KNET_LIB is /nowhere, which has no libknet_alloc", ran.stderr)

    def test_an_installed_package_finds_the_libraries_of_its_tree(self):
        with tempfile.TemporaryDirectory() as prefix:
            place = os.path.join(prefix, "lib/python3/dist-packages")
            shutil.copytree(os.path.join(source, "tools/plugins/python/knetc"), os.path.join(place, "knetc"))
            for name in os.listdir(lib):
                if name.startswith(("libknet_alloc", "libknet_profiler")):
                    os.symlink(os.path.join(lib, name), os.path.join(prefix, "lib", name))
            env = {k: v for k, v in os.environ.items() if k not in ("KNET_LIB", "LD_LIBRARY_PATH")}
            env.update(PYTHONPATH=place, PYTHONDONTWRITEBYTECODE="1")
            code = "import knetc; print(knetc.memory_stats('cpu')['allocated_bytes.all.current'])"
            ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=False)
            self.assertEqual((ran.stdout, ran.stderr), (b"0\n", b""))

    def test_threads_share_a_scope(self):
        code = """if True:
            import threading, knetc
            shared, a, b = knetc.scope("load"), threading.Event(), threading.Event()
            def one():
                with shared:
                    a.set()
                    b.wait()
            def two():
                a.wait()
                with shared:
                    b.set()
                    first.join()
                with knetc.scope("after"):
                    pass
            first, second = threading.Thread(target=one), threading.Thread(target=two)
            first.start(); second.start(); second.join()
            for wrong in (lambda: knetc.scope(None), lambda: shared.__exit__()):
                try:
                    wrong()
                except (TypeError, RuntimeError) as error:
                    print(error)"""
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.csv")
            env = dict(os.environ, PYTHONPATH=os.path.join(source, "tools/plugins/python"), PYTHONDONTWRITEBYTECODE="1",
                       KNET_TIMER=f"min=0,out=/dev/null,csv={out}")
            ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=False)
            self.assertEqual(ran.stdout, b"knetc.scope: the label is None; it must be a str\n"
                             b"knetc.scope: 'load' is not open in this thread\n")
            with open(out, encoding="utf-8") as rows:
                paths = [line.split(",")[0] for line in rows]
            self.assertIn('"after"', paths)
            self.assertIn('"load"', paths)

    def test_package_installs_alone(self):
        """pip install . into a folder of its own, without a network; a machine without pip skips it."""
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, "copy")
            subprocess.run(["cp", "-r", os.path.join(source, "tools/plugins/python"), copy], check=True)
            ran = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index",
                                  "--target", os.path.join(folder, "site"), copy], capture_output=True,
                                 check=False)
            if b"No module named pip" in ran.stderr:
                self.skipTest("no pip")
            self.assertEqual(ran.returncode, 0, ran.stderr)
            env = dict(os.environ, PYTHONPATH=os.path.join(folder, "site"))
            code = "import knetc; print(knetc.__file__, knetc.memory_allocated())"
            out = subprocess.run([sys.executable, "-c", code], env=env, check=True, stdout=subprocess.PIPE, cwd=folder).stdout
            self.assertIn(os.path.join(folder, "site").encode(), out)


if __name__ == "__main__":
    _lib.load("torch")
    unittest.main(argv=sys.argv[:1], verbosity=1)
