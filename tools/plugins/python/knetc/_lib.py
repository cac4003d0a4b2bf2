"""Loads the libraries of Knet.c, and declares the functions that the package calls."""
import ctypes
import operator
import os
import sys

SONAMES = {"alloc": "libknet_alloc.so.0", "torch": "libknet_torch.so.0", "profiler": "libknet_profiler.so.0"}
_loaded = {}
used_devices = {}  # those of all pools so far, by their address
_pointer, _size, _u64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64

_FUNCTIONS = {
    "kn_device_find": (ctypes.c_int, [ctypes.POINTER(_pointer), ctypes.c_char_p]),
    "kn_device_name": (ctypes.c_char_p, [_pointer]),
    "kn_device_pool": (_pointer, [_pointer]),
    "kn_device_info_read": (ctypes.c_int, [_pointer, _size, _pointer]),
    "kn_check": (ctypes.c_int, []),
    "kn_last_error": (_pointer, []),
    "kn_alloc": (ctypes.c_int, [ctypes.POINTER(_pointer), _pointer, _size, _pointer]),
    "kn_free": (ctypes.c_int, [_pointer, _pointer]),
    "kn_block_find": (ctypes.c_bool, [ctypes.POINTER(_pointer), _size, _pointer, _pointer]),
    "kn_stream_sync": (ctypes.c_int, [_pointer, _pointer]),
    "kn_stream_retire": (None, [_pointer, _pointer]),
    "kn_block_use": (ctypes.c_int, [_pointer, _pointer, _pointer]),
    "kn_pool_stat": (ctypes.c_int, [ctypes.POINTER(_u64), _pointer, ctypes.c_char_p]),
    "kn_pool_limit": (ctypes.c_int, [_pointer, _size]),
    "kn_pool_configure": (ctypes.c_int, [_pointer, ctypes.c_char_p]),
    "kn_pool_trim": (ctypes.c_int, [_pointer, _size]),
    "kn_pool_sync": (ctypes.c_int, [_pointer]),
    "kn_pool_peaks_reset": (None, [_pointer]),
    "kn_pool_print": (ctypes.c_int, [_pointer, ctypes.c_char_p]),
    "kn_pool_snapshot": (ctypes.c_int, [_pointer, ctypes.c_char_p]),
    "kn_stacks_begin": (ctypes.c_int, [_pointer]),
    "kn_stacks_end": (None, []),
    "kn_trace_begin": (ctypes.c_int, [ctypes.c_char_p, _pointer]),
    "kn_trace_end": (ctypes.c_int, []),
    "kn_trace_flush": (ctypes.c_int, []),
}


class Error(RuntimeError):
    """A call of Knet.c failed; the text is the library's."""


class OutOfMemory(MemoryError):
    """An allocation failed; the text says who holds the memory."""


class StacksOptions(ctypes.Structure):
    """kn_stacks_options"""
    _fields_ = [("depth", ctypes.c_int), ("fn", _pointer), ("ctx", _pointer), ("reserved", _u64 * 4)]


class _LastError(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("line", ctypes.c_int), ("file", ctypes.c_char_p),
                ("op", ctypes.c_char_p), ("message", ctypes.c_char * 2048)]


def path_of(name):
    """The library's path: in the folder KNET_LIB; beside the package; in PREFIX/lib, of a package in
    PREFIX/lib/python3/dist-packages; or what the loader finds."""
    own = os.path.dirname(os.path.abspath(__file__))
    given = os.environ.get("KNET_LIB")
    for folder in (given, own, os.path.dirname(os.path.dirname(os.path.dirname(own)))):
        path = os.path.join(folder, SONAMES[name]) if folder else ""
        if path and os.path.exists(path):
            return path
        if folder and folder == given:
            raise Error(f"KNET_LIB is {given}, which has no {SONAMES[name]}")
    return SONAMES[name]


def load_timer():
    """The timer's library, which starts with KNET_TIMER; its functions are not declared."""
    try:
        return ctypes.CDLL(path_of("profiler"))
    except OSError as error:
        raise Error(f"{error}; set KNET_LIB to the folder of {SONAMES['profiler']}") from None


def load(name="alloc"):
    """The library, with its functions declared. Symbols of libraries that it needs are found too."""
    if name not in _loaded:
        try:
            lib = ctypes.CDLL(path_of(name))
        except OSError as error:
            raise Error(f"{error}; set KNET_LIB to the folder of {SONAMES[name]}") from None
        for function, (result, arguments) in _FUNCTIONS.items():
            getattr(lib, function).restype = result
            getattr(lib, function).argtypes = arguments
        _loaded[name] = lib
    return _loaded[name]


def check(status):
    """Raises the error of a failed call."""
    if status >= 0:
        return
    error = _LastError.from_address(load().kn_last_error())
    text = error.message.decode(errors="replace")
    raise (OutOfMemory if status == -5 else Error)(text)


def quoted(path):
    """The path as functions take it that replace %p in names."""
    return os.fsencode(path).replace(b"%", b"%%")


def byte_count(function, size):
    """Checks that the size fits size_t: ctypes would drop the upper bits without an error."""
    try:
        size = operator.index(size)
    except TypeError:
        raise TypeError(f"{function}: {size!r} is no number of bytes; write an int") from None
    if not 0 <= size < 1 << 64:
        raise ValueError(f"{function}: {size} is no number of bytes that memory can have")
    return size


class _Info(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("index", ctypes.c_int), ("major", ctypes.c_int), ("minor", ctypes.c_int),
                ("total_bytes", _u64), ("free_bytes", _u64)]


def _current_device():
    """PyTorch's, or CuPy's, where the program has loaded it; else the first."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch and torch.cuda.is_available():
        return torch.cuda.current_device()
    return cupy.cuda.Device().id if cupy else 0


def _name_of(device):
    if isinstance(device, str):
        return device
    kind, index = getattr(device, "type", None), getattr(device, "index", None)
    if isinstance(kind, str):  # as PyTorch's
        return "cpu" if kind == "cpu" else f"{kind}:{_current_device() if index is None else index}"
    flag = "bool" in f"{type(device).__name__} {getattr(device, 'dtype', '')}"  # also NumPy's and PyTorch's
    try:
        return f"cuda:{_current_device() if device is None else operator.index(None if flag else device)}"
    except TypeError:
        raise TypeError(f"{device!r} is no device; write its number, a name such as \"cuda:0\", a torch.device, or "
                        "None for the current one") from None


class Pool:
    """The default pool of a device: "cuda:0", 0 or torch.device("cuda:0") for the same, or None for the framework's
    current one."""

    def __init__(self, device=0):
        self.name = _name_of(device)
        self.lib = load()
        self.device = _pointer()
        check(self.lib.kn_device_find(ctypes.byref(self.device), self.name.encode()))
        self.handle = self.lib.kn_device_pool(self.device)
        if not self.handle:
            check(self.lib.kn_check())
        used_devices[self.device.value] = self.device

    def cuda_number(self, function, user):
        """N of a pool of cuda:N; the user knows no other devices."""
        name = self.lib.kn_device_name(self.device).decode()
        if not name.startswith("cuda:"):
            raise ValueError(f"{function}: {name} is not a CUDA device; {user} knows no other")
        return int(name[5:])

    def alloc(self, size, stream=None):
        """Allocates for the stream (its handle as a number); returns the address, 0 for 0 bytes."""
        out = _pointer()
        check(self.lib.kn_alloc(ctypes.byref(out), self.handle, byte_count("alloc", size), stream))
        return out.value or 0

    def free(self, address):
        self.lib.kn_free(self.handle, address)

    def use(self, address, stream):
        check(self.lib.kn_block_use(self.handle, address, stream))

    def end_use(self, address, stream):
        """Marks a use of a block that is freed next. Waits for a stream of another device: the pool can't note it."""
        status = self.lib.kn_block_use(self.handle, address, stream)
        start = _pointer()
        if status < 0 and self.lib.kn_block_find(ctypes.byref(start), ctypes.sizeof(start), self.handle, address):
            status = self.lib.kn_stream_sync(self.device, stream)
        check(status)

    def stat(self, name):
        out = _u64()
        check(self.lib.kn_pool_stat(ctypes.byref(out), self.handle, name.encode()))
        return out.value

    def info(self):
        """(total, free) bytes of the device."""
        info = _Info()
        check(self.lib.kn_device_info_read(ctypes.byref(info), ctypes.sizeof(info), self.device))
        return info.total_bytes, info.free_bytes
