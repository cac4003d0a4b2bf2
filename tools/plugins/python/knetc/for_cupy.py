"""knetc.install("cupy")"""
from ._lib import OutOfMemory, Pool

_pools = {}


def _pool(device):
    if device not in _pools:
        _pools[device] = Pool(device)
    return _pools[device]


def install():
    """Makes CuPy allocate from the pools, for CuPy's current stream at each allocation; returns the allocator. Memory that
    runs out raises cupy.cuda.memory.OutOfMemoryError with the pool's explanation."""
    import cupy

    def malloc(size, device):
        pool = _pool(device)
        try:
            return pool.alloc(size, cupy.cuda.get_current_stream().ptr or None)
        except OutOfMemory as error:
            raised = cupy.cuda.memory.OutOfMemoryError(size, pool.stat("reserved_bytes"))
            raise raised from error

    def free(address, device):
        _pool(device).free(address)

    allocator = cupy.cuda.PythonFunctionAllocator(malloc, free)
    cupy.cuda.set_allocator(allocator.malloc)
    return allocator
