"""The history of allocations, from a trace of libknet_alloc (<knet/trace.h> describes the file)."""
import ctypes
import operator
import os
import struct
import tempfile
import threading

from ._lib import Error, check, load

_RECORD, _HEADER_BYTES = struct.Struct("<QQ"), 64
_EVENT = struct.Struct("<QQQQ")  # ticks, address | kind, size, stream
_PIECE_BYTES = 1 << 20  # that are read at once
_LATE = 1 << 16  # events of a pool that may be in the file before an older one of another thread
_SIZE_MAX = (1 << 48) - 1
ALLOC, FREE, OOM, POOL = 1, 2, 6, 7
END, THREAD, TIME, STREAM, NAME, CLOCK = range(128, 134)
_ACTIONS = {ALLOC: ("alloc",), FREE: ("free_requested", "free_completed"), OOM: ("oom",)}
_state = {"recording": None}


def record_history(max_entries=1000000):
    """Records the allocations of all pools from now on; snapshot() then has the last max_entries of each device, of which
    a free takes two. The trace is a temporary file without a name, of about 32 bytes for each of max_entries and at
    least 1 MiB: a thread reads it as it grows, and returns the disk space of what it has read. While one records,
    it changes max_entries and keeps what is recorded."""
    try:
        limit = operator.index(max_entries)
    except TypeError:
        raise TypeError(f"record_history: max_entries is {max_entries!r}; it must be an int") from None
    if limit < 0:
        raise ValueError(f"record_history: max_entries is {limit}; it must be 0 or more")
    if _state["recording"]:
        _state["recording"].set_limit(limit)
    else:
        _state["recording"] = _Recording(limit)


def stop_history():
    """Ends the recording and forgets it."""
    recording, _state["recording"] = _state["recording"], None
    if recording:
        recording.stop()


def traces():
    """{name of a pool: its last entries in PyTorch's form, oldest first}; the recording continues."""
    return _state["recording"].traces() if _state["recording"] else {}


def _forget():
    """A child of fork() has neither the trace nor the thread that reads it."""
    if _state["recording"]:
        os.close(_state["recording"].file)
        _state["recording"] = None


os.register_at_fork(after_in_child=_forget)


def _punch(file, end):
    """Returns the disk space of the file's first bytes; False where the file system can't."""
    keep_size, punch_hole = 1, 2
    offset = ctypes.c_int64
    return ctypes.CDLL(None).fallocate(file, keep_size | punch_hole, offset(0), offset(end)) == 0


class _Recording:
    """A running trace and its reader. `file` is the trace's, read up to `at`."""

    def __init__(self, limit):
        self.reader = _Reader()
        self.lock, self.stopped = threading.Lock(), threading.Event()
        self.set_limit(limit)
        self.begin()
        self.thread = threading.Thread(target=self.follow, name="knetc history", daemon=True)
        self.thread.start()

    def set_limit(self, limit):
        with self.lock:
            self.keep_bytes = max(limit * 2 * _RECORD.size, _PIECE_BYTES)
            self.reader.limit = limit
            self.reader.cut()

    def begin(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "history.kntrace")
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                check(load().kn_trace_begin(path.encode(), None))
            except Error:
                os.close(file)
                raise
        self.file, self.at = file, _HEADER_BYTES
        self.reader.begin(os.pread(file, _HEADER_BYTES, 0))

    def read(self, keep_bytes=0):
        """Reads the file but for its last bytes, and returns the disk space of what it has read."""
        n = (os.fstat(self.file).st_size - keep_bytes - self.at) // _RECORD.size
        end = self.at + n * _RECORD.size
        if self.at >= end:
            return
        while self.at < end:
            data = os.pread(self.file, min(end - self.at, _PIECE_BYTES), self.at)
            self.reader.read(data)
            self.at += len(data)
        _punch(self.file, self.at)

    def follow(self):
        while not self.stopped.wait(0.1):
            with self.lock:
                self.read(self.keep_bytes)

    def traces(self):
        with self.lock:
            try:
                check(load().kn_trace_flush())
            except Error:
                self.restart()  # after a write that failed nothing more is written
                raise
            self.read()
            return self.reader.traces()

    def restart(self):
        try:
            check(load().kn_trace_end())
        finally:
            self.read()
            file = self.file
            self.begin()
            os.close(file)

    def stop(self):
        self.stopped.set()
        self.thread.join()
        try:
            check(load().kn_trace_end())
        finally:
            os.close(self.file)


class _Thread:
    def __init__(self):
        self.ticks = self.stream = self.pool = 0
        self.name = bytearray(24)


def _last(items, n):
    return items[max(len(items) - n, 0):]


def _by_time(packed):
    return sorted(_EVENT.iter_unpack(packed), key=operator.itemgetter(0))


def _sized(events, live):
    """Gives a free the size and the stream of its allocation, as PyTorch's has; `live` has those of the live blocks by
    address, and is kept up to date. The trace has the rounded size, and no stream."""
    for ticks, what, size, stream in events:
        kind, address = what & 0xFF, what & ~0xFF
        if kind == ALLOC:
            live[address] = size, stream
        elif kind == FREE:
            size, stream = live.pop(address, (size, 0))
        yield ticks, kind, address, size, stream


class _Reader:
    """Reads a trace in pieces. Keeps the last events of each pool, and the blocks that were live before them."""

    def __init__(self):
        self.limit, self.names, self.clock = 0, {}, []
        self.events, self.live = {}, {}  # by the pool's number: packed events; {address: (size, stream)}

    def begin(self, header):
        """A new file repeats what its threads' events share; pools keep their numbers."""
        if header[:8] != b"kntrace\0" or struct.unpack_from("<II", header, 8) != (2, _RECORD.size):
            raise Error("the history is no trace of this version")
        self.threads = {}
        self.thread = self.threads.setdefault(0, _Thread())

    def read(self, data):
        """Reads whole records."""
        thread = self.thread
        for a, b in _RECORD.iter_unpack(data):
            kind = a & 0xFF
            if kind < END:
                thread.ticks += a >> 48 | b >> 48 << 16
                if kind in _ACTIONS and thread.pool:
                    stream = 0 if kind == FREE else thread.stream
                    self.events[thread.pool] += _EVENT.pack(thread.ticks, a & _SIZE_MAX, b & _SIZE_MAX, stream)
                elif kind == POOL:
                    self.names[thread.pool] = thread.name.split(b"\0")[0].decode(errors="replace")
            elif kind == THREAD:
                thread = self.threads.setdefault(a >> 8, _Thread())
            else:
                self.set(thread, kind, a >> 8, b)
        self.thread = thread
        self.cut()

    def set(self, thread, kind, a, b):
        if kind == TIME:
            thread.ticks = b
        elif kind == NAME:
            thread.name[a % 3 * 8:a % 3 * 8 + 8] = b.to_bytes(8, "little")
        elif kind == STREAM:
            thread.pool, thread.stream = a, b
            self.events.setdefault(a, bytearray())
        elif kind == CLOCK:
            self.clock[1:] = [(thread.ticks, b)]  # the first and the last

    def cut(self):
        """Forgets events that limit + _LATE others follow in the file."""
        for pool, packed in self.events.items():
            while len(packed) > (self.limit + 2 * _LATE) * _EVENT.size:
                first = _by_time(packed[:2 * _LATE * _EVENT.size])
                for _ in _sized(first[:_LATE], self.live.setdefault(pool, {})):
                    pass
                packed[:len(first) * _EVENT.size] = b"".join(_EVENT.pack(*event) for event in first[_LATE:])

    def traces(self):
        """As the function above."""
        pools = {}
        for pool, packed in self.events.items():
            events = pools.setdefault(self.names.get(pool, ""), [])
            events.extend(_sized(_by_time(packed), dict(self.live.get(pool, {}))))
        return {name: self.entries(sorted(events, key=operator.itemgetter(0))) for name, events in pools.items()}

    def entries(self, events):
        """Ticks become microseconds: two readings of the clock give the length of a tick."""
        (t0, ns0), (t1, ns1) = self.clock[0], self.clock[-1]
        scale = (ns1 - ns0) / (t1 - t0) if t1 > t0 else 1.0
        out = [{"action": action, "addr": address, "size": size, "stream": stream,
                "time_us": int((ns0 + (ticks - t0) * scale) / 1000), "frames": []}
               for ticks, kind, address, size, stream in _last(events, self.limit) for action in _ACTIONS[kind]]
        return _last(out, self.limit)
