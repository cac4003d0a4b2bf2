"""Streams that the program destroys."""
import operator

from . import _lib

_DEFAULT = (0, 1, 2)  # the handles of streams that can't be destroyed


def _handle_of(stream):
    """Of a stream of CuPy, PyTorch or RMM, or of a number, which is the handle itself."""
    if hasattr(stream, "__cuda_stream__"):
        return stream.__cuda_stream__()[1]
    for name in ("ptr", "cuda_stream"):
        stream = getattr(stream, name, stream)
    try:
        return operator.index(stream)
    except TypeError:
        raise TypeError(f"retire: {stream!r} is no stream; write a stream of CuPy, PyTorch or RMM, or its handle as a "
                        "number") from None


def retire(stream, device=None):
    """Call it before a stream is destroyed: the pools record events for the memory that still waits for the stream, and
    don't use its handle again. CuPy destroys a Stream when its last reference ends. `device` is the stream's; None: each
    device whose pool the program has used through this package, and the current one."""
    handle = _handle_of(stream)
    if handle in _DEFAULT:
        raise ValueError(f"retire: {handle} is a default stream, which can't be destroyed")
    pool = _lib.Pool(device)
    devices = [pool.device] if device is not None else list(_lib.used_devices.values())
    for used in devices:
        pool.lib.kn_stream_retire(used, handle)
