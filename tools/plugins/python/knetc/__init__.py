"""The pools of libknet_alloc for PyTorch, CuPy and RMM, by ctypes alone.

    import knetc
    knetc.install("torch")      # or "cupy", "rmm"; before the first use of CUDA

    knetc.memory_stats()        # PyTorch's keys
    knetc.record_stacks()       # from now on: which line of Python allocated what
    knetc.dump("out.pickle")    # for https://pytorch.org/memory_viz
    knetc.limit(0, "20 GiB")    # most bytes that the pool of cuda:0 may reserve
    knetc.configure("decay=10s,pressure=0.8")   # options of the pool, in KNET_ALLOC's words
    knetc.trim()                # returns free memory to the device
    knetc.retire(stream)        # before a stream of CuPy, or of your own, is destroyed

    with knetc.scope("load"):   # a row of the timer's table: KNET_TIMER=1
        read_batch()

A device is PyTorch's number N, for "cuda:N", a name, or a torch.device; None is the current one, as it is there. The
libraries are found in $KNET_LIB, beside the package, or by the system's loader. KNET_ALLOC has the options of the pools:
see KNET_ALLOC=help.
"""
import importlib
import re
from decimal import Decimal

from ._lib import Error, OutOfMemory, Pool, byte_count, check
from .history import record_history, stop_history
from .scope import scope, step
from .snapshot import dump, snapshot
from .stacks import record_stacks, stop_stacks
from .stats import memory_allocated, memory_reserved, memory_stats, reset_peaks
from .streams import retire

__all__ = ["Error", "OutOfMemory", "Pool", "install", "memory_stats", "memory_allocated", "memory_reserved", "reset_peaks",
           "scope", "step", "snapshot", "dump", "record_history", "stop_history", "record_stacks",
           "stop_stacks", "limit", "configure", "trim", "retire"]

FRAMEWORKS = ("torch", "cupy", "rmm")


def install(framework="torch"):
    """Makes the framework allocate from the pools. Call it before the framework's first allocation."""
    if framework not in FRAMEWORKS:
        raise ValueError(f"install: unknown framework {framework!r}; known: {', '.join(FRAMEWORKS)}")
    return importlib.import_module(f".for_{framework}", __name__).install()


def _bytes_of_text(text):
    """Units as in KNET_ALLOC: GiB and G are 1024 to the third, GB is 1000 to the third."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(?:([KMGT])(iB|B)?|B)?\s*", text)
    if not found:
        raise ValueError(f"limit: {text!r} is no size; write a number, \"512 MiB\" or \"20G\"")
    power = " KMGT".index(found[2] or " ")
    size = int(Decimal(found[1]) * (1000 if found[3] == "B" else 1024) ** power)
    if size == 0:
        raise ValueError(f"limit: {text!r} is less than a byte; a share of the device's memory is a number, such as 0.5 "
                         "without quotes; None is no limit")
    return size


def limit(device=0, size=None):
    """Limits the bytes that the device's pool may reserve: a number, "20 GiB" (or "20 GB", which is less), or a
    share such as 0.5 of the device's memory. None or 0: no limit. If more is reserved, free memory is returned."""
    if isinstance(size, bool):
        raise TypeError(f"limit: {size} is no size; write a number, \"512 MiB\" or a share such as 0.5")
    pool = Pool(device)
    if isinstance(size, str):
        size = _bytes_of_text(size)
    elif isinstance(size, float):
        total = pool.info()[0]
        if not 0 < size <= 1:
            raise ValueError(f"limit: the share {size} is not in (0, 1]")
        if size * total < 1:
            raise ValueError(f"limit: the share {size} of {total} bytes is less than a byte")
        size = int(size * total)
    check(pool.lib.kn_pool_limit(pool.handle, 0 if size is None else byte_count("limit", size)))


def configure(words, device=0):
    """Changes options of the device's pool: the words of KNET_ALLOC that set options of pools, such as
    "limit=8GiB,decay=10s"; "none" as a value is the default."""
    if not isinstance(words, str):
        raise TypeError(f"configure: the words are {words!r}; they must be a str")
    pool = Pool(device)
    check(pool.lib.kn_pool_configure(pool.handle, words.encode()))


def trim(device=0, keep=0):
    """Waits until freed memory is out of use, and returns it to the device until `keep` bytes are reserved."""
    pool = Pool(device)
    keep = byte_count("trim", keep)
    check(pool.lib.kn_pool_sync(pool.handle))
    check(pool.lib.kn_pool_trim(pool.handle, keep))
