"""Where memory was allocated: the Python frames of each live block, for snapshot() and out-of-memory errors."""
import atexit
import ctypes
import sys

from ._lib import Error, StacksOptions, check, load

_LINES_MAX = 32
_state = {"callback": None}
_Callback = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def _lines():
    """The frames of this thread outside this package, innermost first."""
    frame, out = sys._getframe(1), []
    while frame is not None and len(out) < _LINES_MAX:
        name, code = frame.f_globals.get("__name__", ""), frame.f_code
        if name.split(".")[0] != "knetc":
            out.append(f"{code.co_name} {code.co_filename}:{frame.f_lineno}\n")
        frame = frame.f_back
    return "".join(out)


def _give(_, out, size):
    try:
        text = _lines().encode(errors="replace")[:size]
    except Exception:  # an error has nowhere to go
        return 0
    ctypes.memmove(out, text, len(text))
    return len(text)


def record_stacks(native=False):
    """Keeps the Python stack of each allocation from now on, with `native` also the frames of C and C++. An allocation
    then takes some microseconds more."""
    if _state["callback"]:
        raise Error("record_stacks: stacks are recorded already")
    callback = _Callback(_give)
    options = StacksOptions(depth=0 if native else -1, fn=ctypes.cast(callback, ctypes.c_void_p))
    check(load().kn_stacks_begin(ctypes.byref(options)))
    _state["callback"] = callback
    _state.setdefault("kept", []).append(callback)  # another thread may still be in it
    atexit.register(stop_stacks)  # Python can't be called once it ends


def stop_stacks():
    """Ends the recording and forgets the stacks."""
    if _state["callback"]:
        load().kn_stacks_end()
        _state["callback"] = None
        atexit.unregister(stop_stacks)
