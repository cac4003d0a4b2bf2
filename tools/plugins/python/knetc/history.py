"""The history of allocations, from a trace of libknet_alloc (<knet/trace.h> describes the file)."""
import os
import struct
import tempfile

from ._lib import Error, check, load

_state = {"folder": None, "path": None, "events": [], "limit": 0}
_RECORD = struct.Struct("<QQ")
_HEADER_BYTES = 64
_SIZE_MAX = (1 << 48) - 1
ALLOC, FREE, OOM, POOL = 1, 2, 6, 7
END, THREAD, TIME, STREAM, NAME, CLOCK = range(128, 134)


def record_history(max_entries=1000000):
    """Records the allocations of all pools from now on, at most the last max_entries; snapshot() then has them."""
    if _state["path"]:
        return
    _state["folder"] = tempfile.TemporaryDirectory()
    _state["events"], _state["limit"] = [], max_entries
    _begin()


def _begin():
    path = os.path.join(_state["folder"].name, "history.kntrace")
    check(load().kn_trace_begin(path.encode(), None))
    _state["path"] = path


def _end():
    check(load().kn_trace_end())
    with open(_state["path"], "rb") as file:
        _state["events"] += read(file.read())
    del _state["events"][:-_state["limit"]]
    _state["path"] = None


def stop_history():
    """Ends the recording and forgets it."""
    if _state["path"]:
        _end()
        _state["folder"].cleanup()
    _state["events"] = []


def events():
    """What was recorded so far; the recording continues."""
    if not _state["path"]:
        return list(_state["events"])
    _end()
    _begin()
    return list(_state["events"])


class _Thread:
    def __init__(self):
        self.ticks = self.stream = self.pool = 0
        self.name = bytearray(24)


def _records(data):
    if data[:8] != b"kntrace\0" or struct.unpack_from("<II", data, 8) != (2, 16):
        raise Error("the history is no trace of this version")
    return _RECORD.iter_unpack(data[_HEADER_BYTES:])


def read(data):
    """A list of dicts: kind, pool (its name), address, size, stream, time_us."""
    threads, names, clock, out = {}, {}, [], []
    thread = threads.setdefault(0, _Thread())
    for a, b in _records(data):
        kind = a & 0xFF
        if kind == THREAD:
            thread = threads.setdefault(a >> 8, _Thread())
        elif kind == TIME:
            thread.ticks = b
        elif kind == NAME:
            part = (a >> 8) % 3 * 8
            thread.name[part:part + 8] = b.to_bytes(8, "little")
        elif kind == STREAM:
            thread.pool, thread.stream = a >> 8, b
        elif kind == CLOCK:
            clock.append((thread.ticks, b))
        if kind >= END:
            continue
        thread.ticks += a >> 48 | b >> 48 << 16
        if kind == POOL:
            names[thread.pool] = thread.name.split(b"\0")[0].decode(errors="replace")
        elif thread.pool:
            out.append({"kind": kind, "pool": thread.pool, "address": a & _SIZE_MAX & ~0xFF, "size": b & _SIZE_MAX,
                        "stream": 0 if kind == FREE else thread.stream, "ticks": thread.ticks})
    return _dated(out, names, clock)


def _dated(out, names, clock):
    """Ticks become microseconds: two readings of the clock give the length of a tick."""
    (t0, ns0), (t1, ns1) = (clock[0], clock[-1]) if clock else ((0, 0), (0, 0))
    scale = (ns1 - ns0) / (t1 - t0) if t1 > t0 else 1.0
    out.sort(key=lambda event: event["ticks"])
    for event in out:
        event["pool"] = names.get(event["pool"], "")
        event["time_us"] = int((ns0 + (event.pop("ticks") - t0) * scale) / 1000)
    return out
