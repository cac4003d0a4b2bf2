"""The library from Python, by ctypes: test_python.py LIBRARY. Exits with 77 where ctypes is missing."""
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

try:
    import _ctypes
    import ctypes
except ImportError:
    sys.exit(77)

OK, INVALID, OOM = 0, -1, -5


class Api:
    def __init__(self, path):
        lib = self.lib = ctypes.CDLL(path)
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        lib.kn_device_find.argtypes = [ctypes.POINTER(pointer), ctypes.c_char_p]
        lib.kn_device_pool.argtypes, lib.kn_device_pool.restype = [pointer], pointer
        lib.kn_alloc.argtypes = [ctypes.POINTER(pointer), pointer, size, pointer]
        lib.kn_free.argtypes = [pointer, pointer]
        lib.kn_pool_stat.argtypes = [ctypes.POINTER(ctypes.c_uint64), pointer, ctypes.c_char_p]
        lib.kn_pool_limit.argtypes = [pointer, size]
        lib.kn_pool_check.argtypes = [pointer]
        lib.kn_status_text.restype = ctypes.c_char_p

    def pool(self, name):
        device = ctypes.c_void_p()
        assert self.lib.kn_device_find(ctypes.byref(device), name) == OK
        pool = self.lib.kn_device_pool(device)
        assert pool
        return pool

    def alloc(self, pool, size):
        out = ctypes.c_void_p()
        status = self.lib.kn_alloc(ctypes.byref(out), pool, size, None)
        return status, out.value

    def stat(self, pool, name):
        out = ctypes.c_uint64()
        assert self.lib.kn_pool_stat(ctypes.byref(out), pool, name) == OK
        return out.value


def use(api, name, touch):
    pool = api.pool(name)
    blocks = []
    for i in range(200):
        status, ptr = api.alloc(pool, 1 + i * 5000)
        assert status == OK and ptr % 256 == 0
        if touch:
            ctypes.memset(ptr, 0x5A, 1 + i * 5000)
        blocks.append(ptr)
    assert api.stat(pool, b"n_allocs") >= 200
    for ptr in blocks:
        assert api.lib.kn_free(pool, ptr) == OK
    assert api.lib.kn_free(pool, blocks[-1]) == INVALID
    assert api.lib.kn_free(pool, None) == OK


def run_out(api):
    pool = api.pool(b"sim")
    assert api.lib.kn_pool_limit(pool, 32 << 20) == OK
    status, ptr = api.alloc(pool, 4 << 30)
    assert status == OOM and ptr is None
    assert api.lib.kn_status_text(status) == b"out of memory"
    assert api.lib.kn_pool_limit(pool, 0) == OK


def again(path):
    """A second copy, so that it can go: loaded, used, also by a thread, and closed, three times."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copy(path, folder)
        for _ in range(3):
            api = Api(copy)
            use(api, b"cpu", touch=True)
            thread = threading.Thread(target=use, args=(api, b"sim", False))
            thread.start()
            thread.join()
            while os.path.exists(f"/proc/self/task/{thread.native_id}"):
                time.sleep(0.001)  # it runs the copy's destructors after join() has returned
            _ctypes.dlclose(api.lib._handle)
            with open("/proc/self/maps") as maps:
                assert folder not in maps.read()


def child(path):
    api = Api(path)
    use(api, b"cpu", touch=True)
    use(api, b"sim", touch=False)
    threads = [threading.Thread(target=use, args=(api, b"cpu", True)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in (b"cpu", b"sim"):
        assert api.lib.kn_pool_check(api.pool(name)) == OK  # no other thread is in the pool now
        assert api.stat(api.pool(name), b"live_bytes") == 0
    run_out(api)
    again(path)
    pid = os.fork()
    if pid == 0:  # the host goes on, the others say why not
        status, ptr = api.alloc(api.pool(b"cpu"), 1000)
        os._exit(0 if status == OK and api.alloc(api.pool(b"sim"), 1000)[0] == -4 else 1)
    assert os.waitpid(pid, 0)[1] == 0
    api.alloc(api.pool(b"cpu"), 12345)  # live at exit


def main(path):
    for words in ("", "stats", "decay=1ms,limit=1GiB"):
        env = dict(os.environ, KNET_ALLOC=words)
        ran = subprocess.run([sys.executable, __file__, path, "child"], env=env, stderr=subprocess.PIPE)
        err = ran.stderr.decode()
        assert ran.returncode == 0, (words, ran.returncode, err)
        assert ("pool cpu on cpu" in err) == (words == "stats"), err
        assert words == "stats" or err == "", err


if len(sys.argv) > 2:
    child(sys.argv[1])
else:
    main(sys.argv[1])
