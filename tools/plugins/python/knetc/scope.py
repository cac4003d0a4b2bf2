"""Scopes of the timer: with KNET_TIMER=1, or under `knet run`, they are rows of its table."""
import contextlib
import ctypes
import functools
import threading

from ._lib import load_timer


class _Scope(ctypes.Structure):
    _fields_ = [("start", ctypes.c_uint64)]


class scope(contextlib.ContextDecorator):
    """with knetc.scope("load"): ..., or @knetc.scope("load") before a function. Next to nothing while the timer is off.

    Threads may share one."""

    def __init__(self, label):
        if not isinstance(label, str):
            raise TypeError(f"knetc.scope: the label is {label!r}; it must be a str")
        self.label = label.encode()
        self._of_thread = threading.local()

    def _opened(self):
        if not hasattr(self._of_thread, "opened"):
            self._of_thread.opened = []
        return self._of_thread.opened

    def __enter__(self):
        lib, is_on = _timer()
        if is_on.value & 1:
            self._opened().append(lib.kn_scope_begin_on_(self.label))
        else:
            self._opened().append(None)
        return self

    def __exit__(self, *failure):
        if not self._opened():
            raise RuntimeError(f"knetc.scope: {self.label.decode()!r} is not open in this thread")
        opened = self._opened().pop()
        if opened is not None and opened.start:
            _timer()[0].kn_scope_end_on_(ctypes.byref(opened))
        return False

    def _recreate_cm(self):
        return scope(self.label.decode())


def step():
    """Marks the end of one iteration."""
    _timer()[0].kn_step()


@functools.lru_cache(maxsize=None)
def _timer():
    lib = load_timer()
    lib.kn_scope_begin_on_.restype, lib.kn_scope_begin_on_.argtypes = _Scope, [ctypes.c_char_p]
    lib.kn_scope_end_on_.restype, lib.kn_scope_end_on_.argtypes = None, [ctypes.POINTER(_Scope)]
    lib.kn_step.restype, lib.kn_step.argtypes = None, []
    return lib, ctypes.c_int.in_dll(lib, "kn_prof_on_")
